//! Installs distribution packages where permitted, and otherwise names the missing ones.

use crate::shell::{output_of, run, step, which};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Packages for the test tiers: a SLURM cluster, sshd on every node, a network to break, a browser, a proxy.
const FOR_TESTING: &[&str] = &[
    "slurmctld",
    "slurmd",
    "slurm-client",
    "libpam-slurm-adopt",
    "slurmdbd",
    "slurm-wlm-mysql-plugin",
    "mariadb-server-core",
    "mariadb-client-core",
    "munge",
    "openssh-server",
    "openssh-client",
    "iproute2",
    "nftables",
    "chromium",
    "chromium-driver",
    "fonts-dejavu-core",
    "nginx-light",
    "python3",
    "python3-venv",
    "tmux",
    "valgrind",
    "prometheus",
    "victoria-metrics",
    "nats-server",
    "rpm",
    "passenger",
    "lmod",
];
const FOR_BUILDING: &[&str] = &["libssl-dev", "pkg-config"];

/// Source of OpenSSL, which libssh2 needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenSsl {
    /// The system's libssl-dev.
    System,
    /// Built from source, which takes two more minutes.
    Vendored,
}

impl OpenSsl {
    /// Cargo's flags for building the relay.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::System => &[],
            Self::Vendored => &["--features", "nodeglass-relay/vendored-openssl"],
        }
    }
}

/// Ensures that the relay can be built.
///
/// # Errors
/// If OpenSSL's headers are missing and cannot be installed; names what to install.
pub(crate) fn for_building() -> Result<OpenSsl> {
    if has_openssl() {
        return Ok(OpenSsl::System);
    }
    if may_install() {
        install(FOR_BUILDING)?;
        return Ok(OpenSsl::System);
    }
    if which("perl").is_some() && which("make").is_some() {
        return Ok(OpenSsl::Vendored);
    }
    bail!(
        "OpenSSL's headers are missing: install them (Debian: apt-get install libssl-dev pkg-config; \
         Fedora, RHEL: dnf install openssl-devel), or perl and make to build OpenSSL along"
    )
}

/// Installs what the tests start, or reports what is missing; those tests are then skipped.
pub(crate) fn for_testing() -> Result<()> {
    if may_install() {
        return install(FOR_TESTING);
    }
    let programs = [
        "slurmctld",
        "slurmd",
        "squeue",
        "munged",
        "sshd",
        "ip",
        "nft",
        "chromium",
        "chromedriver",
        "nginx",
        "tmux",
        "valgrind",
        "prometheus",
        "promtool",
        "victoria-metrics",
        "nats-server",
        "rpm",
        "passenger",
    ];
    let missing: Vec<_> = programs.into_iter().filter(|program| which(program).is_none()).collect();
    if !missing.is_empty() {
        println!("not here, so what needs them is skipped: {}", missing.join(", "));
        println!("  (as root on Debian they would be installed: {})", FOR_TESTING.join(" "));
    }
    Ok(())
}

/// Installs the databases that the stored history is compared with, if it may.
///
/// # Errors
/// If apt-get fails.
pub(crate) fn for_comparing_storage() -> Result<()> {
    if may_install() { install(&["victoria-metrics"]) } else { Ok(()) }
}

fn has_openssl() -> bool {
    std::env::var_os("OPENSSL_DIR").is_some() || output_of("pkg-config", &["--exists", "openssl"]).is_some()
}

/// Returns whether this is root on Debian or a derivative.
pub(crate) fn may_install() -> bool {
    output_of("id", &["-u"]).as_deref() == Some("0")
        && which("apt-get").is_some()
        && which("dpkg-query").is_some()
}

/// Installs Debian packages that are missing.
///
/// # Errors
/// If apt-get fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    step(&format!("installing {}", missing.join(" ")), || {
        let _quiet = NoDaemons::new()?;
        run(apt().args(["update", "-qq"]))?;
        run(apt().args(["install", "-qq", "--no-install-recommends"]).args(&missing))
    })
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-y", "-o", "Dpkg::Use-Pty=0"]);
    command
}

fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let query = Command::new("dpkg-query")
        .args(["-W", "-f=${db:Status-Status} ${Package}\n"])
        .args(packages)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let there: BTreeSet<&str> = query.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
    packages.iter().copied().filter(|package| !there.contains(package)).collect()
}

/// While it lives, installed packages start no daemon: the tests start their own, in namespaces.
struct NoDaemons {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoDaemons {
    fn new() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        std::fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("write {POLICY}"))?;
        std::fs::set_permissions(POLICY, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { ours: true })
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(POLICY);
        }
    }
}
