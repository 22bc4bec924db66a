//! Errors of the settings, as sentences for the user.

use super::MIN_OTHER_MEM;
use nodeglass_findings::job_log::MAX_CUSTOM;
use nodeglass_findings::rule::RulesError;
use std::path::PathBuf;

/// Error of the settings. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An invalid value.
    #[error("{place}: {why}")]
    Value {
        /// The flag, variable or line.
        place: String,
        /// The problem, and what would be valid.
        why: String,
    },
    /// An unknown key in the file.
    #[error("{}:{line}: unknown setting {key:?}{}", path.display(), suggest(nearest))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
        /// The most similar setting.
        nearest: Option<String>,
    },
    /// The file is not TOML.
    #[error("{}:{line}: not valid TOML: {why}", path.display())]
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
        /// The reason.
        source: std::io::Error,
    },
    /// Other users could have written it.
    #[error(
        "the configuration file {} is not used: {why}; file and folders must be yours, and writable by you only (`chmod go-w`)",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The problem, with the path.
        why: nodeglass_access::safe_path::Exposed,
    },
    /// An unused certificate.
    #[error(
        "--tls-cert and --tls-key would not be used: every --bind is a loopback address or a Unix socket, which the relay \
         serves without TLS because SSH already encrypts; omit both, or --bind an address that other machines can reach"
    )]
    UnusedTls,
    /// A user header without a trusted proxy.
    #[error("--proxy-user-header needs --trusted-proxy: other clients could forge the header")]
    HeaderWithoutProxy,
    /// The relay of a site watches everything.
    #[error("relay site watches the jobs and GPU nodes of the whole cluster: omit {0}")]
    SiteWatches(&'static str),
    /// The relay of a site as root.
    #[error(
        "relay site does not run as root, who may do more than a relay needs: start it as an account of its own"
    )]
    SiteAsRoot,
    /// A setting of a site's relay for a user's.
    #[error("{0} applies to the relay of a site only: start it by `relay site`, or omit the setting")]
    OnlyOfSite(&'static str),
    /// A certificate without its key, or a key without its certificate.
    #[error("--tls-cert and --tls-key go together; set both or neither")]
    HalfTls,
    /// Two settings exclude each other.
    #[error(
        "--demo and --local exclude each other: a relay watches either a simulated cluster or this machine"
    )]
    DemoAndLocal,
    /// A simulated cluster has no other machines.
    #[error(
        "--demo and --hosts exclude each other: a relay watches either a simulated cluster or real machines"
    )]
    DemoAndHosts,
    /// A recording, and something else to watch or to record.
    #[error(
        "--replay shows only a recording; omit it, or omit the other settings of what to watch or record"
    )]
    ReplayAndWatch,
    /// Settings of NATS without a server.
    #[error(
        "--nats-credentials, --nats-ca, --nats-cluster and --view-only need --nats, the URL of a NATS server"
    )]
    WithoutNats,
    /// A recording over NATS.
    #[error("--replay and --nats exclude each other: a recording is not shared with other relays")]
    ReplayAndNats,
    /// A relay that views others, and something else to watch.
    #[error(
        "--view-only shows only what other relays publish; omit it, or omit the other settings of what to watch"
    )]
    ViewOnlyAndWatch,
    /// A relay that watches more than one cluster.
    #[error(
        "--cluster names several clusters, and a relay watches one cluster: start a relay for each, with --new and a --bind of its own"
    )]
    SeveralClusters,
    /// A relay that views several clusters, whose jobs have the same numbers in the storage.
    #[error(
        "--remote-write and --history-url need to know the cluster: with --view-only, name one cluster by --cluster"
    )]
    StorageOfSeveralClusters,
    /// A launcher that ignores the name of a machine.
    #[error(
        "--launcher local would start the probes of all listed machines on this one; omit it: `self` in a list is \
         started on this machine, and the others over SSH"
    )]
    LocalLauncherAndHosts,
    /// There are too many patterns of logs.
    #[error(
        "--log-pattern is given {0} times, but at most {MAX_CUSTOM} patterns are supported; combine some: NAME='one|other'"
    )]
    TooManyPatterns(usize),
    /// Rules of findings contradict each other, or there are too many.
    #[error("--finding-rule: {0}")]
    Rules(#[from] RulesError),
    /// Two patterns of logs have one name.
    #[error("--log-pattern: {first:?} and {second:?} have the same name; rename one")]
    SamePattern {
        /// The first, as it was written.
        first: String,
        /// The second.
        second: String,
    },
    /// The history does not fit into the memory.
    #[error(
        "--memory-max {}M leaves no room for --history-mem {}M: everything else needs {}M; use --memory-max {}M at least, \
         or --history-mem {}M at most",
        memory_max >> 20,
        history_mem >> 20,
        MIN_OTHER_MEM >> 20,
        (history_mem + MIN_OTHER_MEM) >> 20,
        memory_max.saturating_sub(MIN_OTHER_MEM) >> 20
    )]
    HistoryAndMemory {
        /// The memory in bytes.
        memory_max: usize,
        /// That for the history.
        history_mem: usize,
    },
    /// A service that records.
    #[error(
        "--record does not go with a service: each start needs a new file; omit it, and record from a relay that you start \
         yourself"
    )]
    ServiceRecords,
    /// Two settings say whose jobs to watch.
    #[error("--user and --users exclude each other: name every user in --users")]
    UserAndUsers,
}

fn suggest(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name:?}?"),
        None => "; settings are the options of `relay --help` without their dashes".to_owned(),
    }
}
