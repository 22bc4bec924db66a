//! Settings: each has one name, used as flag, environment variable and key of the file; the nearest layer
//! wins.
//!
//! Flag before environment (`NODEGLASS_…`) before file before default. The command line, the file reader
//! and `relay config` are all derived from [`SETTINGS`], so that they cannot disagree.

pub mod base;
pub mod bind;
mod command;
mod file;
mod share;
mod value;

pub use base::BasePath;
pub use bind::BindAddr;
pub use command::{ReadError, Request, SETTINGS, Setting, read};
pub use share::{ShareOrder, ShareWhat};
pub use value::{LogLevel, Script, Watch};

use crate::access::proxies::Proxies;
use crate::access::trust::Trusted;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Minimum interval between polls of SLURM: one controller serves the whole cluster.
pub const MIN_SLURM_INTERVAL: Duration = Duration::from_secs(5);

/// The configuration of a relay.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Addresses to listen on; at least one.
    pub bind: Vec<BindAddr>,
    /// The certificate, for addresses that other machines can reach.
    pub tls: Option<TlsFiles>,
    /// What to watch.
    pub watch: Watch,
    /// Which scripted cluster, if one is watched.
    pub scenario: Script,
    /// Login name whose jobs are shown; `None` for the user who starts the relay.
    pub user: Option<String>,
    /// Interval between polls of SLURM, at least [`MIN_SLURM_INTERVAL`].
    pub slurm_interval: Duration,
    /// The probe to run on nodes; `None` for the one next to the relay.
    pub probe: Option<PathBuf>,
    /// Host names that requests may use, besides loopback; lower case.
    pub allowed_hosts: Vec<String>,
    /// Peers besides the owner that may present the owner's key.
    pub trusted: Vec<Trusted>,
    /// The path below which a proxy serves the relay.
    pub base_path: BasePath,
    /// The trusted proxies.
    pub proxies: Proxies,
    /// Whether shares are stored over a restart.
    pub persist_shares: bool,
    /// How probes are started.
    pub launcher: LauncherChoice,
    /// Whether actions are disabled, even for the owner.
    pub read_only: bool,
    /// The log level of stderr.
    pub log: LogLevel,
}

/// Certificate and private key files, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The key, readable by its owner alone.
    pub key: PathBuf,
}

/// How probes are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LauncherChoice {
    /// What works here: SSH on a cluster, a child process for this machine.
    #[default]
    Auto,
    /// Over SSH, by libssh2.
    Ssh2,
    /// As a child process on this machine.
    Local,
}

/// Which layer a value comes from, nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag on the command line.
    Flag,
    /// An environment variable.
    Env,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The default.
    Default,
}

/// One line of `relay config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value as it would be written in the file.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
}

/// Why a relay cannot start with these settings. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An invalid value.
    #[error("{place}: {why}")]
    Value {
        /// The flag, variable or line.
        place: String,
        /// What is wrong, and what would be valid.
        why: String,
    },
    /// An unknown key in the file.
    #[error("{}:{line}: there is no setting {key:?}{}", path.display(), suggest(nearest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The most similar setting.
        nearest: Option<&'static str>,
    },
    /// The file is not TOML.
    #[error("{}:{line}: this is not valid TOML: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        why: String,
    },
    /// The file cannot be read.
    #[error("the configuration file {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Other users could have written it.
    #[error(
        "the configuration file {} is not used: {why}; make file and folders your own and run `chmod go-w` on them",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// What is wrong with what.
        why: crate::access::safe_path::Exposed,
    },
    /// An unused certificate.
    #[error(
        "--tls-cert and --tls-key would not be used: every --bind is loopback or a Unix socket, where the relay speaks \
         without TLS because SSH encrypts already; leave the two out, or --bind an address that other machines can reach"
    )]
    UnusedTls,
    /// A user header without a trusted proxy.
    #[error("--proxy-user-header needs --trusted-proxy: the header is ignored from anyone else")]
    HeaderWithoutProxy,
    /// A certificate without its key, or a key without its certificate.
    #[error("--tls-cert and --tls-key go together: name both files, or none")]
    HalfTls,
    /// Two settings exclude each other.
    #[error(
        "--demo and --local exclude each other: a relay watches either a scripted cluster or this machine"
    )]
    DemoAndLocal,
}

fn suggest(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name:?}?"),
        None => "; `relay --help` lists them without their leading dashes".to_owned(),
    }
}

impl Source {
    /// Where the user can change this.
    fn place(&self, setting: &Setting) -> String {
        match self {
            Self::Flag => format!("--{}", setting.name),
            Self::Env => setting.variable.to_owned(),
            Self::File { path, line } => format!("{}:{line}: {}", path.display(), setting.name),
            Self::Default => format!("default of {}", setting.name),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Env => f.write_str("environment"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The default configuration file: `$XDG_CONFIG_HOME/nodeglass/config.toml`.
pub fn default_file(xdg_config_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let base = match xdg_config_home.filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.to_owned(),
        None => home?.join(".config"),
    };
    Some(base.join("nodeglass/config.toml"))
}

/// The effective settings as a table, in the form of a configuration file with the source as a comment.
pub fn table(effective: &[Effective]) -> String {
    let lines: Vec<_> =
        effective.iter().map(|line| (format!("{} = {}", line.setting.name, line.value), line)).collect();
    let width = lines.iter().map(|(text, _)| text.chars().count()).max().unwrap_or(0).min(60);
    lines.iter().map(|(text, line)| format!("{text:width$}  # {}\n", line.source)).collect()
}
