//! What `cargo xtask dist` packs: installed where nothing else is, and started.

mod recipes;

use anyhow::{Context, Result, ensure};
use nodeglass_tests::relay::binary;
use nodeglass_tests::{skip, test_tools};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packs these kinds from a folder with `relay` and `node-probe`; returns the files by name.
fn pack(programs: &Path, out: &Path, kinds: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    // As on machines with another umask and time zone. The checkout may get a commit meanwhile, of another time.
    let xtask = binary("xtask")?;
    let mut command = Command::new("sh");
    command.args(["-c", "umask 027; exec \"$0\" dist \"$@\""]).arg(xtask).args(kinds);
    command
        .args(["--url", "https://example.org/nodeglass"])
        .arg("--programs")
        .arg(programs)
        .arg("--out")
        .arg(out)
        .env("TZ", "Asia/Tokyo")
        .env("SOURCE_DATE_EPOCH", "1700000000");
    output(&mut command)?;
    let files = fs::read_dir(out)?.filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|path| path.is_file());
    Ok(files.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path))).collect())
}

/// The only file with such a name.
fn one<'a>(files: &'a BTreeMap<String, PathBuf>, suffix: &str) -> Result<&'a Path> {
    let mut found = files.iter().filter(|(name, _)| name.ends_with(suffix));
    let (_, path) = found.next().with_context(|| format!("no {suffix}: {files:?}"))?;
    ensure!(found.next().is_none(), "more than one {suffix}: {files:?}");
    Ok(path)
}

/// The programs that were built, without debug information, which would take most of the time.
fn stripped(folder: &Path) -> Result<()> {
    for name in ["relay", "node-probe"] {
        output(Command::new("strip").arg("-o").arg(folder.join(name)).arg(binary(name)?))?;
    }
    Ok(())
}

/// Scripts that run the programs that were built: small files, for tests of their packing.
fn scripts(folder: &Path) -> Result<()> {
    for name in ["relay", "node-probe", "node-probe-aarch64"] {
        let program = binary(name.trim_end_matches("-aarch64"))?;
        fs::write(folder.join(name), format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display()))?;
        fs::set_permissions(folder.join(name), Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {out}{errors}");
    Ok(out.into_owned())
}

/// The output of an installed program, in a home of its own.
fn installed(program: &Path, args: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    output(command.args(args).env_clear().env("PATH", path).env("HOME", home.path()))
}

/// What each package must install besides the programs.
const INSTALLED: [&str; 9] = [
    "usr/share/man/man1/relay-share-create.1.gz",
    "usr/share/man/man1/nodeglass.1.gz",
    "usr/share/bash-completion/completions/relay",
    "usr/share/bash-completion/completions/nodeglass",
    "usr/share/fish/vendor_completions.d/relay.fish",
    "usr/lib/systemd/user/nodeglass.service",
    "usr/share/doc/nodeglass/copyright",
    "usr/share/doc/nodeglass/LICENSE-MIT",
    "usr/share/doc/nodeglass/LICENSE-APACHE",
];

/// Checks the files and the commands of a package that was installed below `root`.
fn check_installed(root: &Path) -> Result<()> {
    for file in INSTALLED {
        let mode = fs::metadata(root.join(file)).with_context(|| file.to_owned())?.permissions().mode();
        ensure!(mode & 0o777 == 0o644, "{file} has the mode {mode:o}");
    }
    let unit = fs::read_to_string(root.join("usr/lib/systemd/user/nodeglass.service"))?;
    ensure!(unit.contains("\nExecStart=/usr/bin/nodeglass --new\n"), "{unit}");
    let version = installed(&binary("relay")?, &["--version"])?;
    for name in ["relay", "nodeglass"] {
        ensure!(installed(&root.join("usr/bin").join(name), &["--version"])? == version, "{name}");
    }
    let jobs = installed(&root.join("usr/bin/nodeglass"), &["jobs", "--demo"])?;
    ensure!(jobs.contains("llama3-8b-pretrain"), "{jobs}");
    Ok(())
}

#[test]
fn the_debian_package_installs_in_an_empty_root_and_its_relay_finds_its_probe() -> Result<()> {
    let Some([dpkg, _]) = skip::programs(["dpkg", "strip"]) else { return Ok(()) };
    if test_tools::nfpm().is_none() || !skip::root() {
        return Ok(());
    }
    let (programs, out, root) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
    stripped(programs.path())?;
    let files = pack(programs.path(), out.path(), &["deb"])?;
    let admin = root.path().join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        fs::create_dir_all(admin.join(folder))?;
    }
    for file in ["status", "available"] {
        fs::write(admin.join(file), "")?;
    }
    let dpkg = |args: &[&str]| -> Result<String> {
        let mut command = Command::new(&dpkg);
        command.arg("--root").arg(root.path()).arg("--log=/dev/null").args(args);
        output(&mut command)
    };
    let deb = one(&files, ".deb")?.display().to_string();
    // Nothing else is installed there, such as a C library.
    dpkg(&["--force-depends", "--install", &deb])?;
    let listed = dpkg(&["--listfiles", "nodeglass"])?;
    ensure!(listed.contains("/usr/share/zsh/vendor-completions/_relay"), "{listed}");
    check_installed(root.path())?;
    let probe = root.path().join("usr/lib/nodeglass/node-probe").canonicalize()?;
    let report = Command::new(root.path().join("usr/bin/nodeglass"))
        .args(["doctor", "--json"])
        .env("HOME", out.path())
        .stdin(Stdio::null())
        .output()?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    let checks = report["results"].as_array().context("results")?;
    let found = checks.iter().find(|check| check["check"] == "probe").context("the check of the probe")?;
    let text = found["text"].as_str().unwrap_or_default();
    ensure!(found["level"] == "ok" && text.starts_with(&*probe.to_string_lossy()), "{found}");
    dpkg(&["--purge", "nodeglass"])?;
    ensure!(!root.path().join("usr/lib/nodeglass").exists(), "files remain");
    Ok(())
}

#[test]
fn the_rpm_has_valid_digests_and_its_programs_run() -> Result<()> {
    let Some([rpm, rpm2cpio, cpio]) = skip::programs(["rpm", "rpm2cpio", "cpio"]) else { return Ok(()) };
    if test_tools::nfpm().is_none() {
        return Ok(());
    }
    let (programs, out, root) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
    scripts(programs.path())?;
    let files = pack(programs.path(), out.path(), &["rpm"])?;
    let file = one(&files, ".rpm")?;
    let query = |args: &[&str]| output(Command::new(&rpm).args(args).arg(file));
    query(&["--checksig", "--nosignature"])?;
    let facts = query(&["--query", "--queryformat", "%{NAME} %{ARCH} %{BUILDHOST} %{LICENSE}", "--package"])?;
    let arch = std::env::consts::ARCH;
    ensure!(facts == format!("nodeglass {arch} localhost MIT OR Apache-2.0"), "{facts}");
    ensure!(query(&["--query", "--requires", "--package"])?.contains("glibc >= 2.17"));
    let unpack = "\"$0\" \"$1\" | \"$2\" --quiet -idm";
    let mut command = Command::new("sh");
    command.args(["-euc", unpack]).arg(rpm2cpio).arg(file).arg(cpio).current_dir(root.path());
    output(&mut command)?;
    check_installed(root.path())?;
    ensure!(root.path().join("usr/share/zsh/site-functions/_relay").is_file());
    ensure!(root.path().join("usr/lib/nodeglass/node-probe-aarch64").is_file());
    Ok(())
}

#[test]
fn packing_the_same_programs_twice_gives_the_same_bytes() -> Result<()> {
    if test_tools::nfpm().is_none() {
        return Ok(());
    }
    let (programs, copies) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    scripts(programs.path())?;
    scripts(copies.path())?;
    let ours = pack(programs.path(), first.path(), &[])?;
    let theirs = pack(copies.path(), second.path(), &[])?;
    ensure!(ours.len() >= 5 && ours.keys().eq(theirs.keys()), "{ours:?} {theirs:?}");
    for (name, path) in &ours {
        ensure!(fs::read(path)? == fs::read(&theirs[name])?, "{name} differs");
    }
    Ok(())
}
