//! Parses the values of settings; errors say what would have been valid.

use super::MIN_SLURM_INTERVAL;
use nodeglass_access::proxies::Proxy;
use nodeglass_access::trust::Trusted;
use nodeglass_access::user::uid_of;
use nodeglass_findings::job_log::{CustomPattern, PatternError};
use nodeglass_findings::rule::{self, Rule, RuleError};
use nodeglass_findings::thresholds::{ThresholdChange, ThresholdError};
use nodeglass_hostlist as hostlist;
use nodeglass_http_client::HttpUrl;
use nodeglass_notify::webhook::WebhookFormat;
use nodeglass_notify::{Mail, NotifyCommand, NotifyOn};
use nodeglass_protocol::capture::StackReader;
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::report::Cost;
use nodeglass_protocol::{NodeName, Text};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

/// Limits of the memory for the history, in bytes.
const MIN_HISTORY_MEM: usize = 8 << 20;
const MAX_HISTORY_MEM: usize = 16 << 30;
/// Limits of the disk space for the history, in bytes.
const MIN_HISTORY_DISK: usize = 16 << 20;
const MAX_HISTORY_DISK: usize = 64 << 30;
/// Least disk space for what waits for remote write: some minutes of a large cluster.
const MIN_SPOOL: usize = 1 << 20;

/// The jobs or machines that a relay watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The user's SLURM jobs if there is SLURM here, otherwise this machine.
    Auto,
    /// This machine.
    Local,
    /// A simulated cluster.
    Demo(Script),
    /// A recording.
    Replay(PathBuf),
    /// Jobs and nodes that the other relays of these clusters publish over NATS; of all clusters if none is named.
    Others(Vec<String>),
}

/// A simulated cluster that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// A bit of everything.
    Demo,
    /// One job on 64 nodes with 8 GPUs each.
    Large,
    /// The scenario of this file.
    File(PathBuf),
}

/// A simulated cluster by name, or from a readable file.
pub(super) fn scenario(raw: &str) -> Result<Script, String> {
    match raw {
        "demo" => Ok(Script::Demo),
        "large" => Ok(Script::Large),
        path => match std::fs::File::open(path) {
            Ok(_) => Ok(Script::File(path.into())),
            Err(error) => Err(format!(
                "{path:?} is neither demo nor large, and cannot be read as a scenario file: {error}"
            )),
        },
    }
}

/// Users whose jobs are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every user's.
    All,
    /// Those of the user with this login name.
    User(String),
    /// Those charged to this account, in lower case as SLURM stores it.
    Account(String),
}

impl Who {
    /// In words, with a possessive: `alice's`.
    pub fn possessive(&self) -> String {
        match self {
            Self::All => "all users'".to_owned(),
            Self::User(name) => format!("{name}'s"),
            Self::Account(name) => format!("account {name}'s"),
        }
    }
}

/// The launcher of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherChoice {
    /// The launcher that works here: SSH on a cluster, first by libssh2, or else srun; a child process for this
    /// machine.
    Auto,
    /// Over SSH, by libssh2.
    Ssh2,
    /// Over SSH, by the system's `ssh`.
    Openssh,
    /// Steps of the user's jobs, by SLURM's `srun`.
    Srun,
    /// A child process on this machine.
    Local,
}

/// Parses the path of py-spy on the nodes.
pub(super) fn py_spy(text: &str) -> Result<StackReader, String> {
    match text {
        "off" => Ok(StackReader::Off),
        path if path.starts_with('/') => Ok(StackReader::At(path.to_owned())),
        _ => Err("must be an absolute path on the nodes, or off".to_owned()),
    }
}

pub(super) fn switch(raw: &str) -> Result<bool, String> {
    match raw {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

/// Returns a parser of numbers from 1 to `most`.
pub(super) fn count_up_to(most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |raw| match raw.parse() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ if most == u32::MAX => Err("expected a whole number of at least 1".to_owned()),
        _ => Err(format!("expected a whole number from 1 to {most}")),
    }
}

/// Parses a duration such as `15s`, `90m`, `1h30m` or `3d`; a bare number is in seconds.
pub(super) fn duration(raw: &str) -> Option<Duration> {
    match raw.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // A space is more likely a mistake in quoting than two durations.
        Err(_) if raw.contains(char::is_whitespace) => None,
        Err(_) => humantime::parse_duration(raw).ok(),
    }
}

/// Parses `15s`, `2m`, `1h` or plain seconds.
pub(super) fn slurm_interval(raw: &str) -> Result<Duration, String> {
    let interval =
        duration(raw).ok_or_else(|| format!("{raw:?} is not a duration; use for example 15s or 2m"))?;
    if interval < MIN_SLURM_INTERVAL {
        return Err(format!(
            "{raw} is too short: one controller serves the whole cluster; the minimum is {}s",
            MIN_SLURM_INTERVAL.as_secs()
        ));
    }
    if interval > Duration::from_secs(3600) {
        return Err(format!("{raw} is too long to notice a job in time; the maximum is 1h"));
    }
    Ok(interval)
}

/// Parses the sampling interval of nodes that nobody watches.
pub(super) fn idle_interval(raw: &str) -> Result<Duration, String> {
    let interval =
        duration(raw).ok_or_else(|| format!("{raw:?} is not a duration; use for example 10s or 1m"))?;
    match interval.as_secs() {
        1..=60 => Ok(interval),
        _ => Err(format!("{raw} is not between 1s and 60s, the range of probes")),
    }
}

/// Parses the disk space for the history in bytes: `512M`, `2G`; a bare number is in MB, 0 means none.
pub(super) fn history_disk(raw: &str) -> Result<u64, String> {
    match size(raw)? {
        0 => Ok(0),
        bytes if (MIN_HISTORY_DISK..=MAX_HISTORY_DISK).contains(&bytes) => Ok(bytes as u64),
        _ => Err(format!("{raw} is out of range: the history takes between 16M and 64G on disk, or 0")),
    }
}

/// Parses the time between two samples of a series.
pub(super) fn remote_write_interval(raw: &str) -> Result<Duration, String> {
    let interval =
        duration(raw).ok_or_else(|| format!("{raw:?} is not a duration; use for example 15s or 1m"))?;
    match interval.as_secs() {
        1..=300 => Ok(interval),
        _ => Err(format!("{raw} is not between 1s and 5m, after which servers consider a series ended")),
    }
}

/// Parses the disk space for what a server does not accept yet, in bytes.
pub(super) fn spool(raw: &str) -> Result<u64, String> {
    match size(raw)? {
        bytes if (MIN_SPOOL..=MAX_HISTORY_DISK).contains(&bytes) => Ok(bytes as u64),
        _ => Err(format!("{raw} is out of range: the spool takes between 1M and 64G")),
    }
}

/// Parses the memory for the history in bytes: `64M`, `1G`; a bare number is in MB.
pub(super) fn history_mem(raw: &str) -> Result<usize, String> {
    match size(raw)? {
        bytes if (MIN_HISTORY_MEM..=MAX_HISTORY_MEM).contains(&bytes) => Ok(bytes),
        _ => Err(format!("{raw} is out of range: the history takes between 8M and 16G")),
    }
}

/// Parses an amount and its currency: `1.20EUR`, `2 credits`.
pub(super) fn cost(raw: &str) -> Result<Cost, String> {
    let wrong = || format!("{raw:?} is not a price; use an amount and a currency, for example 1.20EUR");
    let digits = raw.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let (amount, currency) = (&raw[..raw.len() - digits.len()], digits.trim());
    // A digit is the exponent of an amount, or of a second one.
    let is_odd = |letter: char| letter.is_whitespace() || letter.is_ascii_digit();
    let is_word = !currency.is_empty() && currency.chars().count() <= 12 && !currency.contains(is_odd);
    let amount = amount.parse::<f64>().ok().filter(|amount| (0.0..=1e6).contains(amount) && is_word);
    Ok(Cost { amount: amount.ok_or_else(wrong)?, currency: Text::new(currency) })
}

/// Parses the URL of a webhook.
pub(super) fn webhook(raw: &str) -> Result<HttpUrl, String> {
    // The text may be a secret, so the error does not repeat it.
    raw.parse().map_err(|error| format!("the URL cannot be used: {error}"))
}

/// Parses a message to look for in logs.
pub(super) fn log_pattern(raw: &str) -> Result<CustomPattern, String> {
    let (name, source) = raw.split_once('=').unwrap_or((raw, ""));
    CustomPattern::parse(raw).map_err(|error| match error {
        PatternError::Name(_) => {
            format!(
                "{name:?} is not a valid name: use lower-case letters, digits and underscores, 40 at most"
            )
        }
        // It repeats the expression and points into it; the last line says what is wrong.
        PatternError::Regex(why) => {
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let source: String = source.chars().take(80).collect();
            format!("the expression of {name}, {source:?}, is not valid: {why}")
        }
        other => other.to_string(),
    })
}

/// Parses a threshold of findings.
pub(super) fn threshold(raw: &str) -> Result<ThresholdChange, String> {
    raw.parse().map_err(|error: ThresholdError| error.to_string())
}

/// Parses a rule on a metric; of an unknown metric, the most similar name comes first.
pub(super) fn rule(raw: &str) -> Result<Rule, String> {
    raw.parse().map_err(|error: RuleError| match &error {
        RuleError::Metric { kind, name } => match nearest(name, rule::metrics(kind).into_iter()) {
            Some(nearest) => format!("{error}; did you mean {kind}.{nearest}?"),
            None => error.to_string(),
        },
        error => error.to_string(),
    })
}

/// Parses the name of a kind of finding.
pub(super) fn finding_kind(raw: &str) -> Result<FindingKind, String> {
    let name = raw.trim().replace('-', "_");
    let unknown = || match nearest_kind(&name) {
        Some(nearest) => format!("there is no kind of finding {raw:?}; did you mean {nearest:?}?"),
        None => format!("there is no kind of finding {raw:?}; `relay findings explain` lists all"),
    };
    FindingKind::from_name(&name).ok_or_else(unknown)
}

/// The kind of finding with the most similar name, if one is similar.
pub(super) fn nearest_kind(name: &str) -> Option<&'static str> {
    nearest(name, FindingKind::ALL.iter().map(|kind| kind.name()))
}

/// The most similar of some names, if one is similar.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let all = names.map(|name| (strsim::levenshtein(name, word), name));
    all.min().filter(|(distance, name)| *distance <= name.len() / 3 + 1).map(|(_, name)| name)
}

/// Parses the form of what is posted to a webhook.
pub(super) fn webhook_format(raw: &str) -> Result<WebhookFormat, String> {
    match raw {
        "json" => Ok(WebhookFormat::Json),
        "message" => Ok(WebhookFormat::Message),
        _ => Err(format!("{raw:?} is neither json nor message")),
    }
}

/// Parses a command that is run for notices.
pub(super) fn notify_command(raw: &str) -> Result<NotifyCommand, String> {
    raw.parse().map_err(|error| format!("the command cannot be used: {error}"))
}

/// Parses an address for mails.
pub(super) fn mail(raw: &str) -> Result<Mail, String> {
    raw.parse()
}

/// Parses an event that is notified of.
pub(super) fn notify_on(raw: &str) -> Result<NotifyOn, String> {
    match raw.trim() {
        "findings" => Ok(NotifyOn::Findings),
        "resolved" => Ok(NotifyOn::Resolved),
        "starts" => Ok(NotifyOn::Starts),
        "ends" => Ok(NotifyOn::Ends),
        _ => Err(format!("{raw:?} is not one of findings, resolved, starts, ends")),
    }
}

/// Parses the severity of a finding.
pub(super) fn severity(raw: &str) -> Result<FindingSeverity, String> {
    match raw {
        "info" => Ok(FindingSeverity::Info),
        "warning" => Ok(FindingSeverity::Warning),
        "error" => Ok(FindingSeverity::Error),
        _ => Err(format!("{raw:?} is not one of info, warning, error")),
    }
}

/// Parses g of CO₂ per kWh.
pub(super) fn co2(raw: &str) -> Result<f64, String> {
    let grams = raw.parse::<f64>().ok().filter(|grams| (0.0..=10_000.0).contains(grams));
    grams.ok_or_else(|| format!("{raw:?} is not a number of g of CO₂ per kWh; use for example 380"))
}

pub(super) fn size(raw: &str) -> Result<usize, String> {
    let digits = raw.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let shift = match raw[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(format!("{raw:?} is not a size; use for example 64M or 1G")),
    };
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    size.ok_or_else(|| format!("{raw:?} is not a size; use for example 64M or 1G"))
}

pub(super) fn launcher(raw: &str) -> Result<LauncherChoice, String> {
    match raw {
        "auto" => Ok(LauncherChoice::Auto),
        "ssh2" => Ok(LauncherChoice::Ssh2),
        "openssh" => Ok(LauncherChoice::Openssh),
        "srun" => Ok(LauncherChoice::Srun),
        "local" => Ok(LauncherChoice::Local),
        other => Err(format!("unknown launcher {other:?}; choose auto, ssh2, openssh, srun or local")),
    }
}

pub(super) fn log(raw: &str) -> Result<Level, String> {
    match raw {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        other => Err(format!("unknown log level {other:?}; choose error, warn, info, debug or trace")),
    }
}

/// Validates a login name, which is passed to SLURM's commands as an argument.
pub(super) fn user(raw: &str) -> Result<String, String> {
    let ok = (1..=64).contains(&raw.len())
        && !raw.starts_with(['-', '.'])
        && raw.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'@' | b'+'));
    if ok { Ok(raw.to_owned()) } else { Err(format!("{raw:?} is not a login name")) }
}

/// Parses `all`, a login name or `account:NAME`.
pub(super) fn selected_user(raw: &str) -> Result<Who, String> {
    match raw.split_once(':') {
        None if raw == "all" => Ok(Who::All),
        None => user(raw).map(Who::User),
        Some(("account", name)) => {
            let name = user(name).map_err(|_| format!("{name:?} is not the name of an account"))?;
            Ok(Who::Account(name.to_ascii_lowercase()))
        }
        Some(_) => Err(format!("{raw:?} is neither all, nor a login name, nor account:NAME")),
    }
}

/// Validates the name of a partition, which is passed to SLURM's commands as an argument.
pub(super) fn partition(raw: &str) -> Result<String, String> {
    user(raw).map_err(|_| format!("{raw:?} is not the name of a partition"))
}

/// Validates the name of a SLURM cluster, which is passed to SLURM's commands as an argument.
pub(super) fn cluster(raw: &str) -> Result<String, String> {
    if raw == "all" {
        return Err("names several clusters; name each, or omit it with --view-only to show all".into());
    }
    let names = raw.split(',').all(|name| user(name).is_ok());
    if names { Ok(raw.to_owned()) } else { Err(format!("{raw:?} is not the name of a cluster")) }
}

/// Parses a host list such as `gpu-[01-04],login1`.
pub(super) fn nodelist(raw: &str) -> Result<HashSet<NodeName>, String> {
    let nodes = hostlist::expand(raw).map_err(|error| format!("failed to {error}"))?;
    if nodes.is_empty() {
        return Err(format!("{raw:?} names no node"));
    }
    Ok(nodes.into_iter().collect())
}

/// Validates a host name without port and converts it to lower case, as browsers send it.
pub(super) fn host(raw: &str) -> Result<String, String> {
    let ok = (1..=253).contains(&raw.len())
        && raw.as_bytes()[0].is_ascii_alphanumeric()
        && raw.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'));
    if ok {
        return Ok(raw.to_ascii_lowercase());
    }
    Err(format!("{raw:?} is not a host name; omit scheme and port, as in portal.example.org"))
}

/// Parses a peer that may present the owner's key.
pub(super) fn trusted(raw: &str) -> Result<Trusted, String> {
    match raw {
        "unknown" => Ok(Trusted::Unknown),
        "remote" => Ok(Trusted::Remote),
        raw => uid(raw).map(Trusted::User),
    }
}

/// Parses a trusted proxy: an address, a login name or a uid.
pub(super) fn proxy(raw: &str) -> Result<Proxy, String> {
    match raw.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err(format!("{raw} is not the address of a machine")),
        Ok(ip) => Ok(Proxy::Address(ip.to_canonical())),
        Err(_) => uid(raw).map(Proxy::User),
    }
}

/// Validates a header name and normalises it for lookup.
pub(super) fn header(raw: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    // Headers that browsers or proxies send for other purposes cannot name a user.
    let is_taken = ["host", "cookie", "authorization", "origin", "connection", "upgrade"]
        .contains(&raw.to_ascii_lowercase().as_str());
    if (1..=64).contains(&raw.len()) && raw.bytes().all(is_plain) && !is_taken {
        return Ok(raw.to_ascii_lowercase());
    }
    Err(format!(
        "{raw:?} is not a header that can name a user; use the one that the proxy sets, such as X-Forwarded-User"
    ))
}

/// The uid of a login name, or a numeric uid.
fn uid(raw: &str) -> Result<u32, String> {
    let by_name = || user(raw).ok().and_then(|name| uid_of(&name));
    raw.parse().ok().or_else(by_name).ok_or_else(|| format!("there is no user {raw:?} on this machine"))
}

pub(super) fn probe(raw: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(raw) {
        Ok(found) if found.is_file() => Ok(raw.into()),
        Ok(_) => Err(format!("{raw:?} is not a file; pass the path of the node-probe binary itself")),
        Err(error) => Err(format!("cannot use the probe {raw:?}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_history_has_a_unit_and_limits() {
        for (raw, megabytes) in [("64", 64), ("64M", 64), ("8mb", 8), ("2G", 2_048), ("1GiB", 1_024)] {
            assert_eq!(history_mem(raw), Ok(megabytes << 20), "{raw}");
        }
        for raw in ["", "M", "7M", "17G", "1T", "-1M", "64 M", "1.5G", "99999999999999999999M"] {
            assert!(history_mem(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        for (raw, seconds) in [("15s", 15), ("5", 5), ("2m", 120), ("1h", 3600)] {
            assert_eq!(slurm_interval(raw), Ok(Duration::from_secs(seconds)), "{raw}");
        }
    }

    #[test]
    fn a_time_that_would_hurt_or_means_nothing_is_refused() {
        for raw in ["4s", "0", "", "s", "-5s", "15 s", "1d", "2h", "18446744073709551615m", "15ss", "1ü"] {
            assert!(slurm_interval(raw).is_err(), "{raw}");
        }
        assert!(slurm_interval("1s").unwrap_err().contains("the minimum is 5s"));
    }

    #[test]
    fn users_are_all_or_named_or_those_of_an_account() {
        assert_eq!(selected_user("all"), Ok(Who::All));
        assert_eq!(selected_user("alice"), Ok(Who::User("alice".to_owned())));
        assert_eq!(selected_user("account:ML"), Ok(Who::Account("ml".to_owned())));
        for (raw, why) in [
            ("-x", "is not a login name"),
            ("group:ml", "nor account:NAME"),
            ("account:", "is not the name of an account"),
            ("account:-x", "is not the name of an account"),
        ] {
            assert!(selected_user(raw).unwrap_err().contains(why), "{raw}");
        }
        assert!(partition("gpu,-x").unwrap_err().contains("is not the name of a partition"));
        assert!(nodelist("gpu-[01-04],login1").is_ok());
        for raw in ["gpu-[01-", "(null)", "-oProxyCommand=x"] {
            assert!(nodelist(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_trusted_peer_is_a_user_or_a_keyword() {
        for (raw, who) in [
            ("root", Trusted::User(0)),
            ("1001", Trusted::User(1001)),
            ("unknown", Trusted::Unknown),
            ("remote", Trusted::Remote),
        ] {
            assert_eq!(trusted(raw), Ok(who));
        }
        for raw in ["no-such-user-here", "-1", "", "4294967296", "a\0b"] {
            assert!(trusted(raw).unwrap_err().contains("there is no user"), "{raw}");
        }
    }

    #[test]
    fn a_proxy_is_a_user_or_an_address() {
        assert_eq!(proxy("root"), Ok(Proxy::User(0)));
        assert_eq!(proxy("33"), Ok(Proxy::User(33)));
        assert_eq!(proxy("::ffff:10.0.0.9"), Ok(Proxy::Address("10.0.0.9".parse().unwrap())));
        for raw in ["0.0.0.0", "::", "10.0.0.0/8", "no-such-user-here", "*"] {
            assert!(proxy(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn names_that_look_like_options_are_refused() {
        for raw in ["-u", "", "a b", "a;b", "../x", "a\nb"] {
            assert!(user(raw).is_err(), "{raw}");
            assert!(host(raw).is_err(), "{raw}");
        }
        assert_eq!(host("Portal.Example.org").unwrap(), "portal.example.org");
        assert!(host("portal:8080").is_err());
        assert!(host("http://portal").is_err());
    }

    #[test]
    fn an_idle_interval_is_one_that_probes_have() {
        assert_eq!(idle_interval("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0s", "61s", "soon"] {
            assert!(idle_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_metric_of_a_rule_is_corrected() {
        let error = |raw| rule(raw).unwrap_err();
        let unknown = error("hot=gpu.tmp_c > 80 for 5m");
        assert!(
            unknown.starts_with("there is no metric gpu.tmp_c; those of gpu are util_pct, power_w,"),
            "{unknown}"
        );
        assert!(unknown.ends_with("; did you mean gpu.temp_c?"), "{unknown}");
        assert!(rule("hot=gpu.temp_c > 80 for 5m, error, Ask the administrators").is_ok());
    }

    #[test]
    fn a_price_is_an_amount_with_a_currency() {
        let parsed = |raw| cost(raw).map(|cost| (cost.amount, cost.currency.to_string()));
        assert_eq!(parsed("1.20EUR"), Ok((1.2, "EUR".to_owned())));
        assert_eq!(parsed("2 credits"), Ok((2.0, "credits".to_owned())));
        assert_eq!(parsed("0€"), Ok((0.0, "€".to_owned())));
        for raw in ["1e400EUR", "", "1.20", "EUR", "1.2.3EUR", "-1EUR", "1EUR per hour", "10000000EUR"] {
            assert!(cost(raw).is_err_and(|why| why.contains("1.20EUR")), "{raw}");
        }
        assert_eq!(co2("380"), Ok(380.0));
        for raw in ["", "-1", "nan", "inf", "380g"] {
            assert!(co2(raw).is_err(), "{raw}");
        }
    }
}
