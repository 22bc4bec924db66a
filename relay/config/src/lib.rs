//! Settings: each has one name, used as flag, environment variable and key of the file; the nearest layer
//! wins.
//!
//! Flag before environment (`NODEGLASS_…`) before file before default. [`Config`] declares each setting
//! once: the command line, the file reader and `relay config` are all derived from it.

pub mod bind;
mod command;
mod doctor;
mod effective;
mod error;
mod file;
mod help;
mod load;
mod mcp;
mod nats;
mod note;
mod notify;
mod query;
mod record;
mod reports;
mod requested;
mod service;
mod share;
mod site;
mod token;
mod top;
mod unknown;
mod value;

pub use bind::BindAddr;
use clap::ArgAction;
pub use command::{ReadError, Request, read, settings};
pub use doctor::{CommandName, CompletionsArgs, DoctorArgs, ManArgs};
pub use effective::{Effective, Source, json, table};
pub use error::ConfigError;
pub use help::ManPage;
pub use mcp::McpArgs;
use nodeglass_access::base_path::BasePath;
use nodeglass_access::peer::Peer;
use nodeglass_access::proxies::{Proxies, Proxy};
use nodeglass_access::trust::Trusted;
use nodeglass_access::user;
use nodeglass_findings::job_log::{CustomPattern, MAX_CUSTOM};
use nodeglass_findings::rule::{self, Rule};
use nodeglass_findings::thresholds::{ThresholdChange, Thresholds};
use nodeglass_http_client::HttpUrl;
use nodeglass_launch::hosts::entry::Entries;
use nodeglass_nats::{ClusterName, NatsUrl};
use nodeglass_notify::webhook::{Webhook, WebhookFormat};
use nodeglass_notify::{Mail, NotifyCommand, NotifyOn, Settings as NotifySettings};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::capture::StackReader;
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::report::Cost;
pub use note::{Moment, NoteArgs};
pub use notify::NotifyArgs;
pub use query::*;
pub use record::{RecordArgs, RecordCommand};
pub use reports::{
    AuditArgs, AuditFormat, Days, ExportFormat, FaultsArgs, HistoryCommand, ListJobsArgs, ReportArgs,
    ReportFormat,
};
pub use requested::whose;
pub use requested::{Difference, Requested};
pub use service::{ServiceCommand, ServiceSettings};
pub use share::{CreateShareArgs, ShareArgs, ShareCommand};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use token::TokenCommand;
pub use top::{ColorChoice, Layout, TopArgs};
use tracing::Level;
pub use unknown::{Unknown, stop_hint};
pub use value::{LauncherChoice, Script, Watch, Who};

/// Minimum interval between polls of SLURM: one controller serves the whole cluster.
pub const MIN_SLURM_INTERVAL: Duration = Duration::from_secs(5);

/// Memory that a relay needs besides its history, in bytes: 64 nodes with a page take less than half of it.
pub const MIN_OTHER_MEM: usize = 48 << 20;

/// Placeholder of a switch's value, which distinguishes switches from other settings.
const SWITCH: &str = "BOOL";

/// Headings of the help.
const LISTEN: &str = "Listen";
const WATCH: &str = "What to watch";
const NODES: &str = "Nodes";
const HISTORY: &str = "History";
const STORAGE: &str = "Long-term storage";
const NOTIFY: &str = "Notifications";
const FINDINGS: &str = "Findings";
const ACCESS: &str = "Access";
const PROXY: &str = "Behind a proxy";
const SITE: &str = "For a whole site (relay site)";
const NATS: &str = "Several relays";
const LOAD: &str = "Load on this machine";
const LOG: &str = "Log";

/// The configuration of a relay, in the order of the help. A doc comment is the setting's help.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Config {
    /// Addresses to listen on; at least one
    #[arg(
        help = "Address to listen on: 127.0.0.1:PORT, [::1]:PORT, unix:PATH, owner:PATH (a socket for a proxy of \
                yours, such as JupyterLab's, that needs no key), or any address with --tls-cert and --tls-key; may be repeated"
    )]
    #[arg(long, env = "NODEGLASS_BIND", value_name = "ADDR", default_value = "127.0.0.1:8080")]
    #[arg(value_delimiter = ',', help_heading = LISTEN)]
    pub bind: Vec<BindAddr>,

    /// Certificate chain (PEM) for addresses that other machines can reach
    #[arg(long, env = "NODEGLASS_TLS_CERT", value_name = "FILE", help_heading = LISTEN)]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM), readable by you only
    #[arg(long, env = "NODEGLASS_TLS_KEY", value_name = "FILE", help_heading = LISTEN)]
    pub tls_key: Option<PathBuf>,

    /// Show a simulated cluster; needs no SLURM, SSH or GPUs
    #[arg(long, env = "NODEGLASS_DEMO", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = WATCH)]
    pub demo: bool,

    /// Show another simulated cluster: demo, large (one job with 512 GPUs), or a scenario file
    #[arg(long, env = "NODEGLASS_SCENARIO", value_name = "WHICH", value_parser = value::scenario)]
    #[arg(help_heading = WATCH)]
    pub scenario: Option<Script>,

    /// Watch this machine, even if it has SLURM
    #[arg(long, env = "NODEGLASS_LOCAL", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = WATCH)]
    pub local: bool,

    /// Watch the SLURM jobs of these users: all, login names, or account:NAME [default: you]
    #[arg(long, env = "NODEGLASS_USERS", value_name = "WHO", value_delimiter = ',', value_parser = value::selected_user)]
    #[arg(help_heading = WATCH)]
    pub users: Vec<Who>,

    /// Watch the SLURM jobs of this login name; short for --users NAME
    #[arg(long, env = "NODEGLASS_USER", value_name = "NAME", value_parser = value::user, help_heading = WATCH)]
    pub user: Option<String>,

    /// Watch the machines that this file lists, one per line, with or without SLURM; changes of the file apply at
    /// once
    #[arg(long, env = "NODEGLASS_HOSTS", value_name = "FILE", help_heading = WATCH)]
    pub hosts: Option<PathBuf>,

    /// Watch this machine, with or without SLURM: NAME, USER@NAME:PORT, gpu[01-08], or self; may be repeated
    #[arg(long, env = "NODEGLASS_HOST", value_name = "NAME", help_heading = WATCH)]
    pub host: Vec<Entries>,

    /// Watch the workers of the TPU pod to which this machine belongs, as Google Cloud lists them
    #[arg(long, env = "NODEGLASS_TPU_POD", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = WATCH)]
    pub tpu_pod: bool,

    /// Watch the jobs of this SLURM cluster instead of this machine's, as --clusters of squeue; with --view-only, NAME,NAME shows several
    #[arg(long, env = "NODEGLASS_CLUSTER", value_name = "NAME", value_parser = value::cluster, help_heading = WATCH)]
    pub cluster: Option<String>,

    /// Watch only jobs in this partition; may be repeated
    #[arg(long = "partition", env = "NODEGLASS_PARTITION", value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = value::partition, help_heading = WATCH)]
    pub partitions: Vec<String>,

    /// Watch only jobs that have one of these nodes, such as gpu-[01-04]
    #[arg(long, env = "NODEGLASS_NODES", value_name = "NODELIST", value_parser = value::nodelist)]
    #[arg(help_heading = WATCH)]
    pub nodes: Option<HashSet<NodeName>>,

    /// Interval between polls of SLURM, at least 5s
    #[arg(long, env = "NODEGLASS_SLURM_INTERVAL", value_name = "TIME", default_value = "15s")]
    #[arg(value_parser = value::slurm_interval, help_heading = WATCH)]
    pub slurm_interval: Duration,

    /// Time between two samples of a node once no page has been open for a minute, 1s to 60s; more than 10s does not
    /// apply while notices are sent or samples are recorded
    #[arg(long, env = "NODEGLASS_IDLE_INTERVAL", value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = value::idle_interval, help_heading = WATCH)]
    pub idle_interval: Duration,

    /// How to start the probe on a node: ssh2 (built-in SSH), openssh (the system's ssh), srun (as a
    /// step of your job), local (on this machine), or auto (ssh2, else openssh, else srun)
    #[arg(long, env = "NODEGLASS_LAUNCHER", value_name = "HOW", default_value = "auto")]
    #[arg(value_parser = value::launcher, help_heading = NODES)]
    pub launcher: LauncherChoice,

    /// The node-probe binary to run on nodes [default: the one next to relay]
    #[arg(long, env = "NODEGLASS_PROBE", value_name = "PATH", value_parser = value::probe, help_heading = NODES)]
    pub probe: Option<PathBuf>,

    /// Memory for the history of a week; when it is used up, fine steps older than some hours go first
    #[arg(long, env = "NODEGLASS_HISTORY_MEM", value_name = "SIZE", default_value = "64M")]
    #[arg(value_parser = value::history_mem, help_heading = HISTORY)]
    pub history_mem: usize,

    /// Disk space for this history in ~/.local/state/nodeglass, where the next relay finds it; 0 turns it off
    #[arg(long, env = "NODEGLASS_HISTORY_DISK", value_name = "SIZE", default_value = "512M")]
    #[arg(value_parser = value::history_disk, help_heading = HISTORY)]
    pub history_disk: u64,

    /// Price of a GPU hour for the reports of jobs, such as 1.20EUR
    #[arg(long, env = "NODEGLASS_GPU_HOUR_COST", value_name = "AMOUNT")]
    #[arg(value_parser = value::cost, help_heading = HISTORY)]
    pub gpu_hour_cost: Option<Cost>,

    /// Emissions of a kWh in g of CO₂, for the reports of jobs
    #[arg(long, env = "NODEGLASS_CO2_G_PER_KWH", value_name = "GRAMS")]
    #[arg(value_parser = value::co2, help_heading = HISTORY)]
    pub co2_g_per_kwh: Option<f64>,

    /// URL to which the report of a job is posted on request, by a button of its page or by relay report JOBID
    /// --webhook; put it into the configuration file, since other users see command lines
    #[arg(long, env = "NODEGLASS_REPORT_WEBHOOK", value_name = "URL", value_parser = value::webhook)]
    #[arg(help_heading = HISTORY)]
    pub report_webhook: Option<HttpUrl>,

    /// Format of the post: json, or message for Slack and Mattermost
    #[arg(long, env = "NODEGLASS_REPORT_WEBHOOK_FORMAT", value_name = "FORMAT", default_value = "json")]
    #[arg(value_parser = value::webhook_format, help_heading = HISTORY)]
    pub report_webhook_format: WebhookFormat,

    /// Record everything that is watched to this new file, for --replay
    #[arg(long, env = "NODEGLASS_RECORD", value_name = "FILE", help_heading = HISTORY)]
    pub record: Option<PathBuf>,

    /// Play a recording instead of watching a cluster; pages can pause, speed it up, and go to any time
    #[arg(long, env = "NODEGLASS_REPLAY", value_name = "FILE", help_heading = HISTORY)]
    pub replay: Option<PathBuf>,

    /// URL of a server of Prometheus remote write, to which the series of /metrics are sent, such as
    /// http://127.0.0.1:8428/api/v1/write
    #[arg(long, env = "NODEGLASS_REMOTE_WRITE", value_name = "URL", value_parser = value::webhook)]
    #[arg(help_heading = STORAGE)]
    pub remote_write: Option<HttpUrl>,

    /// Time between two samples of a series that is sent, at least 1s
    #[arg(long, env = "NODEGLASS_REMOTE_WRITE_INTERVAL", value_name = "TIME", default_value = "15s")]
    #[arg(value_parser = value::remote_write_interval, help_heading = STORAGE)]
    pub remote_write_interval: Duration,

    /// File with credentials for this server: USER:PASSWORD, or Bearer TOKEN; readable by you only
    #[arg(long, env = "NODEGLASS_REMOTE_WRITE_AUTH", value_name = "FILE", help_heading = STORAGE)]
    pub remote_write_auth: Option<PathBuf>,

    /// Disk space in ~/.local/state/nodeglass for what this server does not accept yet; the oldest is dropped first
    #[arg(long, env = "NODEGLASS_REMOTE_WRITE_SPOOL", value_name = "SIZE", default_value = "256M")]
    #[arg(value_parser = value::spool, help_heading = STORAGE)]
    pub remote_write_spool: u64,

    /// Value of the label cluster of all metrics, if another cluster in the same database has the name of this one [default:
    /// --nats-cluster, --cluster or SLURM's name]
    #[arg(long, env = "NODEGLASS_METRICS_CLUSTER", value_name = "NAME", help_heading = STORAGE)]
    pub metrics_cluster: Option<ClusterName>,

    /// URL of a server with Prometheus' HTTP API, from which ranges older than a week are read, such as
    /// http://127.0.0.1:8428
    #[arg(long, env = "NODEGLASS_HISTORY_URL", value_name = "URL", value_parser = value::webhook)]
    #[arg(help_heading = STORAGE)]
    pub history_url: Option<HttpUrl>,

    /// File with credentials for this server: USER:PASSWORD, or Bearer TOKEN; readable by you only
    #[arg(long, env = "NODEGLASS_HISTORY_AUTH", value_name = "FILE", help_heading = STORAGE)]
    pub history_auth: Option<PathBuf>,

    /// URL to which findings and the other events of notify-on are posted; put it into the configuration file, since
    /// other users see command lines
    #[arg(long, env = "NODEGLASS_NOTIFY_WEBHOOK", value_name = "URL", value_parser = value::webhook)]
    #[arg(help_heading = NOTIFY)]
    pub notify_webhook: Option<HttpUrl>,

    /// Format of the post: json, or message for Slack and Mattermost
    #[arg(long, env = "NODEGLASS_NOTIFY_WEBHOOK_FORMAT", value_name = "FORMAT", default_value = "json")]
    #[arg(value_parser = value::webhook_format, help_heading = NOTIFY)]
    pub notify_webhook_format: WebhookFormat,

    /// Command that is run for each notice, without a shell; it reads the event as JSON from standard input
    #[arg(long, env = "NODEGLASS_ON_FINDING", value_name = "COMMAND", value_parser = value::notify_command)]
    #[arg(help_heading = NOTIFY)]
    pub on_finding: Option<NotifyCommand>,

    /// Address to which notices are mailed by the machine's sendmail
    #[arg(long, env = "NODEGLASS_NOTIFY_MAIL", value_name = "ADDRESS", value_parser = value::mail)]
    #[arg(help_heading = NOTIFY)]
    pub notify_mail: Option<Mail>,

    /// Events to notify about: findings, resolved, starts, ends; a failed job is a finding
    #[arg(long, env = "NODEGLASS_NOTIFY_ON", value_name = "EVENTS", default_values = ["findings", "resolved"])]
    #[arg(value_delimiter = ',', value_parser = value::notify_on, help_heading = NOTIFY)]
    pub notify_on: Vec<NotifyOn>,

    /// Least severity of a finding to notify of: info, warning or error
    #[arg(long, env = "NODEGLASS_NOTIFY_SEVERITY", value_name = "SEVERITY", default_value = "warning")]
    #[arg(value_parser = value::severity, help_heading = NOTIFY)]
    pub notify_severity: FindingSeverity,

    /// Message to look for in the logs of your jobs, as a name and a regular expression; may be repeated
    #[arg(long = "log-pattern", env = "NODEGLASS_LOG_PATTERN", value_name = "NAME=REGEX", value_parser = value::log_pattern)]
    #[arg(help_heading = FINDINGS)]
    pub log_patterns: Vec<CustomPattern>,

    /// Do not read the logs of your jobs every ten seconds for messages and progress
    #[arg(long, env = "NODEGLASS_NO_LOG_WATCH", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = FINDINGS)]
    pub no_log_watch: bool,

    /// Threshold of a kind of finding, such as idle-minutes=30; may be repeated
    #[arg(long = "finding-threshold", env = "NODEGLASS_FINDING_THRESHOLD", value_name = "NAME=NUMBER")]
    #[arg(value_delimiter = ',', value_parser = value::threshold, help_heading = FINDINGS)]
    pub finding_thresholds: Vec<ThresholdChange>,

    /// Kind of finding to turn off, such as low_efficiency; may be repeated
    #[arg(long = "finding-off", env = "NODEGLASS_FINDING_OFF", value_name = "KIND")]
    #[arg(value_delimiter = ',', value_parser = value::finding_kind, help_heading = FINDINGS)]
    pub findings_off: Vec<FindingKind>,

    /// Rule of your own on a metric, such as 'hot=gpu.temp_c > 80 for 5m, error'; may be repeated
    #[arg(long = "finding-rule", env = "NODEGLASS_FINDING_RULE", value_name = "RULE")]
    #[arg(value_parser = value::rule, help_heading = FINDINGS)]
    pub finding_rules: Vec<Rule>,

    /// Host name that browsers may use besides localhost; may be repeated
    #[arg(long = "allowed-host", env = "NODEGLASS_ALLOWED_HOST", value_name = "NAME")]
    #[arg(value_delimiter = ',', value_parser = value::host, help_heading = ACCESS)]
    pub allowed_hosts: Vec<String>,

    /// Path under which a reverse proxy serves the page, such as /rnode/login1/8080
    #[arg(long, env = "NODEGLASS_BASE_PATH", value_name = "PATH", help_heading = PROXY)]
    pub base_path: Option<BasePath>,

    /// Trust forwarded headers of this proxy: a user of this machine, or an IP address if it connects over
    /// TLS; may be repeated
    #[arg(long, env = "NODEGLASS_TRUSTED_PROXY", value_name = "WHO")]
    #[arg(value_delimiter = ',', value_parser = value::proxy, help_heading = PROXY)]
    pub trusted_proxy: Vec<Proxy>,

    /// Accept your key through trusted proxies that send your login name in this header, such as
    /// X-Forwarded-User
    #[arg(long, env = "NODEGLASS_PROXY_USER_HEADER", value_name = "NAME", value_parser = value::header)]
    #[arg(help_heading = PROXY)]
    pub proxy_user_header: Option<String>,

    /// Also accept your key from connections of this user: a login name or uid, unknown (the kernel does not
    /// report the user, as in containers), or remote (other machines, over TLS); may be repeated
    #[arg(long, env = "NODEGLASS_TRUST_UID", value_name = "WHO")]
    #[arg(value_delimiter = ',', value_parser = value::trusted, help_heading = ACCESS)]
    pub trust_uid: Vec<Trusted>,

    /// Show members of an account its jobs, as slurmdbd lists them; without arguments, paths, logs and notes
    #[arg(long, env = "NODEGLASS_ACCOUNT_VISIBILITY", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = SITE)]
    pub account_visibility: bool,

    /// Show these users all jobs and nodes; without arguments, paths, logs and notes of others
    #[arg(long, env = "NODEGLASS_ADMIN_USERS", value_name = "NAMES", value_delimiter = ',', value_parser = value::user)]
    #[arg(help_heading = SITE)]
    pub admin_users: Vec<String>,

    /// Whether it is the relay of a site: of the command line alone, so that no setting shows a user's relay to others.
    #[arg(skip)]
    pub site: bool,

    /// Disable actions: signals to processes and job control
    #[arg(long, env = "NODEGLASS_READ_ONLY", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = ACCESS)]
    pub read_only: bool,

    /// Keep shares across restarts, in ~/.local/state/nodeglass (without their keys)
    #[arg(long, env = "NODEGLASS_PERSIST_SHARES", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = ACCESS)]
    pub persist_shares: bool,

    /// Do not store the audit log of views and actions
    #[arg(long, env = "NODEGLASS_NO_AUDIT", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = ACCESS)]
    pub no_audit: bool,

    /// Do not capture what the processes of your jobs do when a job hangs or stops working
    #[arg(long, env = "NODEGLASS_NO_CAPTURES", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = NODES)]
    pub no_captures: bool,

    /// py-spy on the nodes, which reads Python stacks for captures; off disables it [default: the one on the probe's PATH]
    #[arg(long, env = "NODEGLASS_PY_SPY", value_name = "PATH", value_parser = value::py_spy)]
    #[arg(help_heading = NODES)]
    pub py_spy: Option<StackReader>,

    /// NATS server over which relays share nodes and jobs, as nats://HOST:PORT or tls://HOST:PORT; may be repeated
    #[arg(long, env = "NODEGLASS_NATS", value_name = "URL", value_delimiter = ',', help_heading = NATS)]
    pub nats: Vec<NatsUrl>,

    /// File with the credentials for NATS, readable by you only: as nsc writes it, or USER:PASSWORD
    #[arg(long, env = "NODEGLASS_NATS_CREDENTIALS", value_name = "FILE", help_heading = NATS)]
    pub nats_credentials: Option<PathBuf>,

    /// Certificate authorities (PEM) of the NATS servers [default: this machine's]
    #[arg(long, env = "NODEGLASS_NATS_CA", value_name = "FILE", help_heading = NATS)]
    pub nats_ca: Option<PathBuf>,

    /// Name of this cluster on NATS, if another one there has the same [default: --cluster, SLURM's name, or this machine's]
    #[arg(long, env = "NODEGLASS_NATS_CLUSTER", value_name = "NAME", help_heading = NATS)]
    pub nats_cluster: Option<ClusterName>,

    /// Show what other relays publish over NATS, of --cluster or of all clusters; needs no SLURM and no SSH
    #[arg(long, env = "NODEGLASS_VIEW_ONLY", value_name = SWITCH, action = ArgAction::Set, value_parser = value::switch)]
    #[arg(help_heading = NATS)]
    pub view_only: bool,

    /// CPU time that the relay may use, in % of a core, such as 50%; by a control group, or else by slower sampling
    #[arg(long, env = "NODEGLASS_CPU_MAX", value_name = "PERCENT", value_parser = load::cpu_max, help_heading = LOAD)]
    pub cpu_max: Option<u32>,

    /// Memory that the relay may use, such as 500M; the oldest history is dropped before it is used up
    #[arg(long, env = "NODEGLASS_MEMORY_MAX", value_name = "SIZE", value_parser = load::memory_max)]
    #[arg(help_heading = LOAD)]
    pub memory_max: Option<usize>,

    /// Exit after this time without jobs of yours and without viewers, such as 12h
    #[arg(long, env = "NODEGLASS_AUTO_EXIT", value_name = "AFTER", value_parser = load::auto_exit)]
    #[arg(help_heading = LOAD)]
    pub auto_exit: Option<Duration>,

    /// Log level on stderr: error, warn, info, debug or trace
    #[arg(long, env = "NODEGLASS_LOG", value_name = "LEVEL", default_value = "warn")]
    #[arg(value_parser = value::log, help_heading = LOG)]
    pub log: Level,
}

impl Config {
    /// Thresholds of the detectors.
    pub fn thresholds(&self) -> Thresholds {
        let thresholds = Thresholds::new(&self.finding_thresholds, &self.findings_off);
        Thresholds { rules: self.finding_rules.clone(), ..thresholds }
    }

    /// Returns what to watch.
    pub fn watch(&self) -> Watch {
        if let Some(path) = &self.replay {
            return Watch::Replay(path.clone());
        }
        if self.view_only {
            let clusters = self.cluster.iter().flat_map(|names| names.split(','));
            return Watch::Others(clusters.map(str::to_owned).collect());
        }
        match (&self.scenario, self.demo, self.local) {
            (Some(script), ..) => Watch::Demo(script.clone()),
            (None, true, _) => Watch::Demo(Script::Demo),
            (None, false, true) => Watch::Local,
            (None, false, false) => Watch::Auto,
        }
    }

    /// Returns how processes are captured when a job hangs or stops working; `None` if captures are turned off, or for a
    /// recording, whose processes ended long ago.
    pub fn captures(&self) -> Option<StackReader> {
        let is_off = self.no_captures || self.replay.is_some();
        (!is_off).then(|| self.py_spy.clone().unwrap_or_default())
    }

    /// Returns whether machines are listed.
    pub fn has_hosts(&self) -> bool {
        self.hosts.is_some() || !self.host.is_empty() || self.tpu_pod
    }

    /// Returns where reports are posted.
    pub fn report_webhook(&self) -> Option<Webhook> {
        Some(Webhook::new(self.report_webhook.clone()?, self.report_webhook_format))
    }

    /// Returns where notices are sent, and which events they are about.
    pub fn notifications(&self) -> NotifySettings {
        let webhook = |url: HttpUrl| Webhook::new(url, self.notify_webhook_format);
        NotifySettings {
            webhook: self.notify_webhook.clone().map(webhook),
            command: self.on_finding.clone(),
            mail: self.notify_mail.clone(),
            on: self.notify_on.clone(),
            severity: self.notify_severity,
        }
    }

    /// Returns whose jobs to watch; empty means the user who runs the relay.
    pub fn watched_users(&self) -> Vec<Who> {
        if self.site {
            return vec![Who::All];
        }
        self.users.iter().cloned().chain(self.user.clone().map(Who::User)).collect()
    }

    /// The path below which a proxy serves the relay.
    pub fn base_path(&self) -> BasePath {
        self.base_path.clone().unwrap_or_default()
    }

    /// The certificate, for addresses that other machines can reach.
    pub fn tls(&self) -> Option<TlsFiles> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { cert, key })
    }

    /// The trusted proxies.
    pub fn proxies(&self) -> Proxies {
        let proxies = Proxies::new(self.trusted_proxy.clone());
        match &self.proxy_user_header {
            Some(header) => {
                proxies.naming_visitors(header.clone(), Peer::owner().uid().and_then(user::name_of))
            }
            None => proxies,
        }
    }

    /// Checks settings that depend on each other.
    ///
    /// # Errors
    /// [`ConfigError`].
    fn check(&self) -> Result<(), ConfigError> {
        let watches_others =
            self.demo || self.scenario.is_some() || self.local || self.has_hosts() || self.record.is_some();
        if self.replay.is_some() && watches_others {
            return Err(ConfigError::ReplayAndWatch);
        }
        nats::check(self)?;
        if self.local && matches!(self.watch(), Watch::Demo(_)) {
            return Err(ConfigError::DemoAndLocal);
        }
        if self.has_hosts() && matches!(self.watch(), Watch::Demo(_)) {
            return Err(ConfigError::DemoAndHosts);
        }
        if self.has_hosts() && self.launcher == LauncherChoice::Local {
            return Err(ConfigError::LocalLauncherAndHosts);
        }
        if self.user.is_some() && !self.users.is_empty() {
            return Err(ConfigError::UserAndUsers);
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(ConfigError::HalfTls);
        }
        if self.tls_cert.is_some() && !self.bind.iter().any(|addr| matches!(addr, BindAddr::Tls(_))) {
            return Err(ConfigError::UnusedTls);
        }
        if self.proxy_user_header.is_some() && self.trusted_proxy.is_empty() {
            return Err(ConfigError::HeaderWithoutProxy);
        }
        if self.log_patterns.len() > MAX_CUSTOM {
            return Err(ConfigError::TooManyPatterns(self.log_patterns.len()));
        }
        if let Some(memory_max) = self.memory_max
            && self.history_mem.saturating_add(MIN_OTHER_MEM) > memory_max
        {
            return Err(ConfigError::HistoryAndMemory { memory_max, history_mem: self.history_mem });
        }
        rule::check(&self.finding_rules)?;
        same_pattern(&self.log_patterns).map_or(Ok(()), Err)
    }
}

/// Returns the error if two patterns have one name: a finding would not state which of them matched.
fn same_pattern(patterns: &[CustomPattern]) -> Option<ConfigError> {
    let texts: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    let name = |text: &String| text.split('=').next().unwrap_or_default().to_owned();
    texts.iter().enumerate().find_map(|(number, second)| {
        let first = texts[..number].iter().find(|first| name(first) == name(second))?;
        Some(ConfigError::SamePattern { first: first.clone(), second: second.clone() })
    })
}

/// Certificate and private key files, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The key, readable by its owner alone.
    pub key: PathBuf,
}

/// The default configuration file: `$XDG_CONFIG_HOME/nodeglass/config.toml`.
pub fn default_file(xdg_config_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let base = match xdg_config_home.filter(|dir| dir.is_absolute()) {
        Some(dir) => dir.to_owned(),
        None => home?.join(".config"),
    };
    Some(base.join("nodeglass/config.toml"))
}
