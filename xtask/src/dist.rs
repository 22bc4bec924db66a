//! Builds the release archives: programs that need nothing but a glibc as old as RHEL 7's, with the page
//! as part of the relay.

use crate::pins::Pinned;
use crate::shell::{long_step, root, run, step, target, which};
use crate::system;
use crate::tools::{self, home};
use crate::wheel;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc on which Rust's standard library runs, from RHEL 7 (2014).
const GLIBC: &str = "2.17";
/// Processors, as in `uname -m`, of login nodes and GPU nodes: x86-64, and ARM as in NVIDIA Grace.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];
/// A Debian release whose glibc (2.31) is older than the build machine's.
const OLD_DEBIAN: &str = "bullseye";
/// The profile of probes for tests.
const UNOPTIMISED: &str = "unoptimised";
const ZIGBUILD: Pinned = Pinned { name: "zigbuild", shown_by: "bin/cargo-zigbuild" };

/// Programs of one processor type.
struct Programs {
    machine: &'static str,
    folder: PathBuf,
}

/// Packs an archive for each processor type, with the probes of all, and runs the one for this machine in
/// a clean root file system.
///
/// # Errors
/// If a tool is missing, or a build or the trial run fails.
pub(crate) fn pack() -> Result<()> {
    crate::page::build(crate::page::Build::Optimised)?;
    let relay = ["--package", "nodeglass-relay", "--features", "nodeglass-relay/vendored-openssl"];
    let built = long_step("building relay and probe for each processor", "15 min", || {
        build(&[&["--release", "--package", "node-probe"], &relay[..]].concat(), "release")
    })?;
    for of in &built {
        let archive = step(&format!("packing the archive for {}", of.machine), || archive(of, &built))?;
        println!("  {}", archive.display());
        let platform = format!("manylinux2014_{}", of.machine);
        let wheel = step(&format!("packing the wheel for {}", of.machine), || {
            wheel::with_programs(&folder_of(of.machine), &platform)
        })?;
        println!("  {}", wheel.display());
        if of.machine == std::env::consts::ARCH {
            try_out(&archive, &wheel)?;
        }
    }
    let client = step("packing the wheel of the Python client", wheel::of_client)?;
    println!("  {}", client.display());
    Ok(())
}

/// Builds the probes without optimisation, for tests. Returns the folder of `node-probe-MACHINE` files.
///
/// # Errors
/// If a tool cannot be installed, or the build fails.
pub(crate) fn probes_for_tests() -> Result<PathBuf> {
    let built = step("building the probe for each processor", || {
        build(&["--package", "node-probe", "--profile", UNOPTIMISED], UNOPTIMISED)
    })?;
    let folder = target().join("portable/probes");
    fs::create_dir_all(&folder)?;
    for of in &built {
        fs::copy(of.folder.join("node-probe"), folder.join(format!("node-probe-{}", of.machine)))?;
    }
    Ok(folder)
}

/// Builds packages for all processor types. They have a target folder of their own: another selection of
/// packages would unify features differently, and rebuild the dependencies of all other builds.
fn build(flags: &[&str], profile: &str) -> Result<Vec<Programs>> {
    let bin = ZIGBUILD.by_pip(&home()?)?.join("bin");
    let folder = target().join("portable");
    let mut command = Command::new(bin.join("cargo-zigbuild"));
    // It finds zig as a module of the first Python.
    command.current_dir(root()).env("PATH", path_with(&bin)?).arg("zigbuild").args(flags);
    for machine in MACHINES {
        tools::rust_target(&rust_target(machine))?;
        command.args(["--target", &format!("{}.{GLIBC}", rust_target(machine))]);
    }
    run(command.arg("--target-dir").arg(&folder))?;
    Ok(MACHINES
        .map(|machine| Programs { machine, folder: folder.join(rust_target(machine)).join(profile) })
        .into())
}

fn rust_target(machine: &str) -> String {
    format!("{machine}-unknown-linux-gnu")
}

fn path_with(first: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(first.to_owned()).chain(std::env::split_paths(&path)))?)
}

/// Packs a relay with the probe for its own processor, the probes for others, licences, a short manual, man pages and
/// shell completions.
fn archive(of: &Programs, all: &[Programs]) -> Result<PathBuf> {
    let folder = folder_of(of.machine);
    let (parent, name) = (folder.parent().context("a folder")?, folder.file_name().context("a name")?);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for program in ["relay", "node-probe"] {
        fs::copy(of.folder.join(program), folder.join(program))?;
    }
    for other in all.iter().filter(|other| other.machine != of.machine) {
        fs::copy(other.folder.join("node-probe"), folder.join(format!("node-probe-{}", other.machine)))?;
    }
    for text in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::copy(root().join(text), folder.join(text)).with_context(|| format!("copy {text}"))?;
    }
    documents(native(all)?, &folder.join("share"))?;
    let file = parent.join(format!("{}.tar.gz", name.display()));
    run(Command::new("tar").current_dir(parent).arg("-czf").arg(&file).arg(name))?;
    Ok(file)
}

/// The folder that an archive contains.
fn folder_of(machine: &str) -> PathBuf {
    target().join("dist").join(format!("nodeglass-{}-linux-{machine}", env!("CARGO_PKG_VERSION")))
}

/// The relay for this machine, which can be run to print its documents.
fn native(all: &[Programs]) -> Result<PathBuf> {
    let native = all.iter().find(|of| of.machine == std::env::consts::ARCH);
    let native = native
        .context("no archive is for the processor of this machine, which is needed to print man pages")?;
    Ok(native.folder.join("relay"))
}

/// Shell completions, in the folders below `share` where each shell looks for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/relay"),
    ("zsh", "zsh/site-functions/_relay"),
    ("fish", "fish/vendor_completions.d/relay.fish"),
];

/// Lets a relay write its man pages and shell completions below `share`.
fn documents(relay: PathBuf, share: &Path) -> Result<()> {
    run(Command::new(&relay).args(["man", "--out"]).arg(share.join("man/man1")))?;
    for (shell, path) in COMPLETIONS {
        let output = Command::new(&relay).args(["completions", shell]).output()?;
        ensure!(output.status.success(), "relay completions {shell} failed");
        let path = share.join(path);
        fs::create_dir_all(path.parent().context("a folder of completions")?)?;
        fs::write(path, output.stdout)?;
    }
    Ok(())
}

/// Unpacks an archive in a clean root file system of an old Debian, installs a wheel there, and runs the programs of both.
/// Requires root; otherwise nothing is tried out, which is reported.
fn try_out(archive: &Path, wheel: &Path) -> Result<()> {
    if !system::may_install() {
        println!("  not tried out in a clean root file system: that requires root on Debian");
        return Ok(());
    }
    system::install(&["debootstrap"])?;
    let clean = target().join("dist").join(format!("{OLD_DEBIAN}-root"));
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
    step(&format!("trying out archive and wheel on Debian {OLD_DEBIAN}"), || {
        run(Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .args(["--strip-components=1", "-C"])
            .arg(clean.join("opt")))?;
        fs::copy(wheel, clean.join("opt").join(wheel.file_name().context("a wheel has a name")?))?;
        for line in TRIALS {
            // The mount of /proc ends with the namespace.
            let script =
                format!("mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /bin/sh -euc '{line}'");
            let shell = ["--mount", "--pid", "--net", "--fork", "sh", "-c", &script];
            run(Command::new("unshare").args(shell).arg(&clean))?;
        }
        Ok(())
    })
}

/// Commands for the clean root: both programs start, the relay starts the probe, and the page is served; so does the
/// relay of the wheel.
const TRIALS: [&str; 5] = [
    "/opt/relay --version",
    "grep -q expires /opt/share/man/man1/relay-share-create.1; test -s /opt/share/zsh/site-functions/_relay",
    "/opt/node-probe --once --json > /tmp/once || true; grep -q mem_total_bytes /tmp/once",
    "export HOME=/root; /opt/relay --local --new --bind unix:/root/relay.sock & \
     for n in 1 2 3 4 5 6 7 8 9; do sleep 1; /opt/relay link && exit 0; done; exit 1",
    "export HOME=/root/wheel; rm -rf /root/wheel; mkdir -m 700 /root/wheel; python3 -m venv /root/wheel/venv; \
     cd /root/wheel/venv/bin; ./pip install -q --no-index /opt/nodeglass-*.whl; \
     ./nodeglass --demo --new --bind unix:/root/wheel/relay.sock & \
     for n in 1 2 3 4 5 6 7 8 9; do sleep 1; ./nodeglass link && exit 0; done; exit 1",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_pages_and_completions_are_where_shells_look_for_them() {
        let relay = target().join("debug/relay");
        if !relay.is_file() {
            println!("skipped: the relay was not built");
            return;
        }
        let folder = crate::scratch::Scratch::new(&std::env::temp_dir(), "documents").unwrap();
        documents(relay, folder.path()).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        assert!(read("man/man1/relay-share-create.1").contains(".TH relay-share-create 1"));
        assert!(read("man/man1/relay.1").contains(".TH relay 1"));
        assert!(COMPLETIONS.iter().all(|(_, path)| read(path).contains("relay")));
    }

    #[test]
    fn the_folder_of_a_tool_precedes_the_path() {
        let path = path_with(Path::new("/tools/bin")).unwrap();
        assert_eq!(std::env::split_paths(&path).next().unwrap(), Path::new("/tools/bin"));
    }
}
