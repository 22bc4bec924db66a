//! What `cargo xtask dist` packs: installed where nothing else is, and started.

mod recipes;

use anyhow::{Context, Result, ensure};
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, binary};
use nodeglass_tests::release::{one, output, pack, scripts, stripped};
use nodeglass_tests::{skip, test_tools};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The output of an installed program, in a home of its own.
fn installed(program: &Path, args: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    output(command.args(args).env_clear().env("PATH", path).env("HOME", home.path()))
}

/// What each package must install besides the programs.
const INSTALLED: [&str; 10] = [
    "usr/share/man/man1/relay-share-create.1.gz",
    "usr/share/man/man1/nodeglass.1.gz",
    "usr/share/man/man1/nvl.1.gz",
    "usr/share/man/man1/node-probe.1.gz",
    "usr/share/bash-completion/completions/relay",
    "usr/share/bash-completion/completions/nodeglass",
    "usr/share/fish/vendor_completions.d/relay.fish",
    "usr/lib/systemd/user/nodeglass.service",
    "usr/share/nodeglass/ondemand/app.js",
    "usr/share/doc/nodeglass/README.md",
];
/// A library of the page, and a text of a C library, in licence texts.
const LICENCES: [&str; 2] = ["\nleptos ", "Redistribution and use in source and binary forms"];
/// The bill of materials.
const BILL: &str = concat!("nodeglass-", env!("CARGO_PKG_VERSION"), ".cdx.json");

/// Checks the files and the commands of a package that was installed below `root`.
fn check_installed(root: &Path) -> Result<()> {
    for file in INSTALLED {
        let mode = fs::metadata(root.join(file)).with_context(|| file.to_owned())?.permissions().mode();
        ensure!(mode & 0o777 == 0o644, "{file} has the mode {mode:o}");
    }
    let unit = fs::read_to_string(root.join("usr/lib/systemd/user/nodeglass.service"))?;
    ensure!(unit.contains("\nExecStart=/usr/bin/nodeglass --new\n"), "{unit}");
    let bill = fs::read(root.join("usr/share/doc/nodeglass").join(BILL))?;
    let bill: Value = serde_json::from_slice(&bill)?;
    ensure!(bill["components"].as_array().is_some_and(|libraries| libraries.len() > 100), "{bill}");
    let version = installed(&binary("relay")?, &["--version"])?;
    for name in ["relay", "nodeglass"] {
        ensure!(installed(&root.join("usr/bin").join(name), &["--version"])? == version, "{name}");
    }
    ensure!(installed(&root.join("usr/bin/nvl"), &["--help"])?.contains("Usage: relay list"));
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
    check_policy(root.path(), &dpkg(&["--status", "nodeglass"])?)?;
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

/// Checks what Debian's policy demands of documents and maintainer, as lintian does.
fn check_policy(root: &Path, status: &str) -> Result<()> {
    let documents = root.join("usr/share/doc/nodeglass");
    let copyright = fs::read_to_string(documents.join("copyright"))?;
    for text in ["Copyright: 2026 ", "Permission is hereby granted", "/usr/share/common-licenses/Apache-2.0"]
    {
        ensure!(copyright.contains(text), "copyright lacks {text}");
    }
    ensure!(
        LICENCES.iter().all(|text| copyright.contains(&text.replace('\n', "\n "))),
        "copyright lacks libraries"
    );
    ensure!(!documents.join("LICENSE-MIT").exists(), "a licence is outside of copyright");
    let changes = |name: &str| output(Command::new("zcat").arg(documents.join(name)));
    let [package, program] = [changes("changelog.Debian.gz")?, changes("changelog.gz")?];
    ensure!(package.starts_with(&format!("nodeglass ({}-1) ", env!("CARGO_PKG_VERSION"))), "{package}");
    ensure!(
        package.contains("\n -- ") && package.contains("  Tue, 14 Nov 2023 22:13:20 +0000\n"),
        "{package}"
    );
    ensure!(program.starts_with("# Changelog\n"));
    let maintainer =
        status.lines().find_map(|line| line.strip_prefix("Maintainer: ")).context("a maintainer")?;
    ensure!(maintainer.contains(" <") && package.contains(maintainer), "{maintainer}: {package}");
    Ok(())
}

/// Copies the libraries into a root that its programs are linked with, in place of the C library that a package depends on.
fn add_libraries(root: &Path, folder: &str) -> Result<()> {
    let mut ldd = Command::new("ldd");
    let listed = output(ldd.args(["relay", "node-probe"].map(|name| root.join(folder).join(name))))?;
    let libraries = listed.split_whitespace().filter(|word| word.starts_with("/lib") && word.contains(".so"));
    for library in libraries {
        let to = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::copy(library, to)?;
    }
    Ok(())
}

/// A command that runs nodeglass in a root that has nothing but its package, with a network of its own.
fn in_root(root: &Path, args: &[&str]) -> Command {
    // The mount ends with the namespace.
    let script = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" /usr/bin/nodeglass \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", script]).arg(root);
    command.args(args).env_clear().env("HOME", "/root").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

#[test]
fn the_rpm_installs_in_an_empty_root_and_its_relay_starts_its_probe_there() -> Result<()> {
    let Some([rpm, _]) = skip::programs(["rpm", "strip"]) else { return Ok(()) };
    if test_tools::nfpm().is_none() || !skip::root() {
        return Ok(());
    }
    let (programs, out, root) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
    stripped(programs.path())?;
    fs::copy(programs.path().join("node-probe"), programs.path().join("node-probe-aarch64"))?;
    let files = pack(programs.path(), out.path(), &["rpm"])?;
    let file = one(&files, ".rpm")?.display().to_string();
    let facts = ["--query", "--queryformat", "%{NAME} %{ARCH} %{BUILDHOST} %{LICENSE}", "--package", &file];
    let facts = output(Command::new(&rpm).args(facts))?;
    let arch = std::env::consts::ARCH;
    ensure!(facts == format!("nodeglass {arch} localhost MIT OR Apache-2.0"), "{facts}");

    let rpm = |args: &[&str]| -> Result<String> {
        let mut command = Command::new(&rpm);
        output(command.arg("--root").arg(root.path()).args(["--dbpath", "/var/lib/rpm"]).args(args))
    };
    for folder in ["proc", "dev", "tmp", "root"] {
        fs::create_dir(root.path().join(folder))?;
    }
    let refused = rpm(&["--install", &file]).err().context("it was installed without a C library")?;
    let needed: Vec<_> =
        refused.to_string().lines().filter(|line| line.contains("is needed by")).map(str::to_owned).collect();
    ensure!(needed.len() == 1 && needed[0].contains("glibc >= 2.17"), "{refused}");
    rpm(&["--install", "--nodeps", &file])?;
    ensure!(rpm(&["--verify", "--nodeps", "nodeglass"])?.is_empty(), "files differ from the package");
    check_installed(root.path())?;
    let licences = rpm(&["--query", "--licensefiles", "nodeglass"])?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "LICENSE-THIRD-PARTY"] {
        ensure!(licences.contains(&format!("/usr/share/licenses/nodeglass/{name}\n")), "{name}: {licences}");
    }
    ensure!(root.path().join("usr/share/zsh/site-functions/_relay").is_file());
    ensure!(root.path().join("usr/lib/nodeglass/node-probe-aarch64").is_file());

    add_libraries(root.path(), "usr/lib/nodeglass")?;
    // It finds warnings there, such as no driver.
    let report = in_root(root.path(), &["doctor", "--json"]).stdin(Stdio::null()).output()?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    let check = |name: &str| {
        let mut checks = report["results"].as_array().into_iter().flatten();
        let found = checks.find(|check| check["check"] == name && check["level"] == "ok");
        found.with_context(|| format!("{name}: {report:#}"))
    };
    ensure!(
        check("probe")?["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("/usr/lib/nodeglass/node-probe"))
    );
    check("start")?;
    ensure!(check("installation")?["text"].as_str().is_some_and(|text| text.contains("sudo dnf install")));
    let args = ["--demo", "--new", "--bind", "unix:/root/relay.sock"];
    Process::start(&mut in_root(root.path(), &args))?.wait_for("a link", Link::find)?;

    rpm(&["--erase", "nodeglass"])?;
    for folder in [
        "usr/lib/nodeglass",
        "usr/share/doc/nodeglass",
        "usr/share/licenses/nodeglass",
        "usr/share/nodeglass",
    ] {
        ensure!(!root.path().join(folder).exists(), "{folder} remains");
    }
    Ok(())
}

/// Prints the names in a wheel, its licence files as its metadata states them, and the texts of the libraries.
const WHEEL: &str = "
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
print(*names, sep='\\n')
for end in ('/METADATA', '/licenses/LICENSE-THIRD-PARTY'):
    (name,) = [name for name in names if name.endswith(end)]
    print(wheel.read(name).decode())
";

#[test]
fn archive_and_wheel_have_the_licences_of_all_libraries_and_a_bill_of_materials() -> Result<()> {
    let Some(python) = test_tools::python() else { return Ok(()) };
    let (programs, out) = (tempfile::tempdir()?, tempfile::tempdir()?);
    scripts(programs.path())?;
    let files = pack(programs.path(), out.path(), &["archive", "wheel"])?;
    let archive = output(Command::new("tar").arg("-tzf").arg(one(&files, ".tar.gz")?))?;
    for name in ["LICENSE-MIT", "LICENSE-THIRD-PARTY", BILL, "nvl", "share/nodeglass/ondemand/app.js"] {
        ensure!(archive.lines().any(|line| line.ends_with(&format!("/{name}"))), "{name}: {archive}");
    }
    let wheel = one(&files, &format!("_{}.whl", std::env::consts::ARCH))?;
    let wheel = output(Command::new(python).args(["-c", WHEEL]).arg(wheel))?;
    ensure!(wheel.contains(&format!(".dist-info/sboms/{BILL}\n")), "{wheel}");
    ensure!(wheel.contains("\nLicense-File: LICENSE-THIRD-PARTY\n"), "{wheel}");
    ensure!(LICENCES.iter().all(|text| wheel.contains(text)), "the licences lack libraries");
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
