//! Installs what was packed in a clean root file system of an old Debian, and runs it there.

use crate::shell::{run, step, which};
use crate::system;
use crate::tools::home;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A Debian release whose glibc (2.31) is older than the build machine's.
const OLD_DEBIAN: &str = "bullseye";

/// Installs archive, wheel and package in a clean root file system of an old Debian, and runs the programs of each.
/// Requires root; otherwise nothing is tried out, which is reported.
pub(super) fn try_out(files: &[PathBuf]) -> Result<()> {
    if !system::may_install() {
        println!("  not tried out in a clean root file system: that requires root on Debian");
        return Ok(());
    }
    system::install(&["debootstrap"])?;
    // Kept for the next release, but no part of this one.
    let clean = home()?.join(format!("{OLD_DEBIAN}-root"));
    if which("debootstrap").is_none() {
        bail!("debootstrap is missing, with which the archive is tried out");
    }
    if !clean.join("usr/share/doc/python3-venv").is_dir() {
        step(&format!("creating a root file system of Debian {OLD_DEBIAN}"), || {
            let _ = fs::remove_dir_all(&clean);
            let packages = ["--variant=minbase", "--include=python3-venv", OLD_DEBIAN];
            run(Command::new("debootstrap").args(packages).arg(&clean))
        })?;
    }
    let opt = clean.join("opt");
    fs::remove_dir_all(&opt).and_then(|()| fs::create_dir(&opt)).context("empty /opt")?;
    for file in files {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, opt.join(name))?;
        let trials = TRIALS.iter().filter(|(suffix, _)| name.to_string_lossy().ends_with(suffix));
        for (_, line) in trials {
            step(&format!("trying out {} on Debian {OLD_DEBIAN}", name.display()), || {
                // The mount of /proc ends with the namespace.
                let script =
                    format!("mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /bin/sh -euc '{line}'");
                let shell = ["--mount", "--pid", "--net", "--fork", "sh", "-c", &script];
                run(Command::new("unshare").args(shell).arg(&clean))
            })?;
        }
    }
    Ok(())
}

/// Commands for the clean root, in which the file with such a name is in `/opt`: both programs start, the relay starts the probe,
/// and the page is served; so does the relay of wheel and package.
const TRIALS: [(&str, &str); 3] = [
    (
        ".tar.gz",
        "cd /opt; tar -xzf nodeglass-*.tar.gz --strip-components=1; ./relay --version; \
         zcat share/man/man1/relay-share-create.1.gz > /tmp/page; grep -q expires /tmp/page; test -s share/zsh/site-functions/_relay; \
         ./node-probe --once --json > /tmp/once || true; grep -q mem_total_bytes /tmp/once; \
         export HOME=/root; ./relay --local --new --bind unix:/root/relay.sock & \
         for n in 1 2 3 4 5 6 7 8 9; do sleep 1; /opt/relay link && exit 0; done; exit 1",
    ),
    (
        ".whl",
        "export HOME=/root/wheel; rm -rf /root/wheel; mkdir -m 700 /root/wheel; python3 -m venv /root/wheel/venv; \
         cd /root/wheel/venv/bin; ./pip install -q --no-index /opt/nodeglass-*.whl; \
         ./nodeglass --demo --new --bind unix:/root/wheel/relay.sock & \
         for n in 1 2 3 4 5 6 7 8 9; do sleep 1; ./nodeglass link && exit 0; done; exit 1",
    ),
    (
        ".deb",
        "dpkg --install /opt/nodeglass_*.deb; export HOME=/root/deb; rm -rf /root/deb; mkdir -m 700 /root/deb; \
         relay --version; nodeglass --local --new --bind unix:/root/deb/relay.sock & \
         for n in 1 2 3 4 5 6 7 8 9; do sleep 1; nodeglass link && exit 0; done; exit 1",
    ),
];
