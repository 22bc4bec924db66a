//! `relay doctor`: checks what a relay needs on this machine, of SLURM and on a node, and says what to do.
//!
//! Each check is a function from the [`Context`] to results, with a time limit of its own. A failed check does
//! not end the others. Results contain no keys, tokens or values of environment variables.

mod machine;
mod node;
mod notifications;
mod probe;
mod relay;
mod render;
mod services;
mod settings;
mod slurm;

use nodeglass_config::{Config, ConfigError, Effective};
use nodeglass_launch::target::Target;
use nodeglass_protocol::{NodeName, Text};
pub use render::text;
use serde::Serialize;
use std::time::Duration;

/// Version of the JSON form. New fields do not change it.
const SCHEMA: u32 = 1;

/// Severity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, with a limitation.
    Warn,
    /// It does not work.
    Fail,
}

/// Result of a check. Texts are for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// The part that was checked, a heading of the output.
    pub section: &'static str,
    /// The check.
    pub check: &'static str,
    /// Severity.
    pub level: Level,
    /// The result.
    pub text: String,
    /// Advice, if any.
    pub advice: Option<String>,
}

impl CheckResult {
    fn new(section: &'static str, check: &'static str, level: Level, text: impl ToString) -> Self {
        // Some texts are from nodes and SLURM.
        let text = nodeglass_protocol::LongText::new(text.to_string()).to_string();
        Self { section, check, level, text, advice: None }
    }

    fn ok(section: &'static str, check: &'static str, text: impl ToString) -> Self {
        Self::new(section, check, Level::Ok, text)
    }

    fn warn(section: &'static str, check: &'static str, text: impl ToString, advice: impl ToString) -> Self {
        Self { advice: Some(advice.to_string()), ..Self::new(section, check, Level::Warn, text) }
    }

    fn fail(section: &'static str, check: &'static str, text: impl ToString, advice: impl ToString) -> Self {
        Self { advice: Some(advice.to_string()), ..Self::new(section, check, Level::Fail, text) }
    }
}

/// All results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Version of this form.
    pub schema: u32,
    /// Version of the relay.
    pub version: &'static str,
    /// This machine (`uname -n`).
    pub machine: Text,
    /// The node that was checked, if any.
    pub node: Option<NodeName>,
    /// The most serious level.
    pub level: Level,
    /// The results, section by section.
    pub results: Vec<CheckResult>,
}

impl Report {
    fn new(machine: Text, node: Option<NodeName>, results: Vec<CheckResult>) -> Self {
        let level = results.iter().map(|result| result.level).max().unwrap_or(Level::Ok);
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), machine, node, level, results }
    }

    /// Returns whether nothing failed.
    pub fn is_healthy(&self) -> bool {
        self.level < Level::Fail
    }
}

/// Context of the checks.
struct Context {
    config: Config,
    machine: Text,
    user: Text,
}

/// Performs all checks. Without `node`, the node of the first running job is checked, if there is one. Where `settings`
/// are wrong, that is a result, and `default` is checked.
pub async fn run(
    node: Option<NodeName>,
    settings: Result<(Config, Vec<Effective>), ConfigError>,
    default: Config,
) -> Report {
    let mut results = settings::check(&settings);
    let context = Context {
        config: settings.map_or(default, |(config, _)| config),
        machine: Text::new(rustix::system::uname().nodename().to_string_lossy()),
        user: Text::new(nodeglass_launch::ssh_config::Local::from_env().user),
    };
    let (machine, notifications, relay, services, slurm) = tokio::join!(
        machine::check(&context),
        notifications::check(&context),
        relay::check(),
        services::check(&context),
        slurm::check(&context)
    );
    results.extend(machine);
    results.extend(notifications);
    results.extend(relay);
    results.extend(services);
    results.extend(slurm.results);
    let jobs = slurm.jobs.as_deref();
    let node = node.or(slurm.node);
    let target = node.as_ref().map(|node| node::target(&context, node));
    match (&node, target) {
        (Some(node), Some(Target::Ssh(target))) => {
            let (login, probe) = tokio::join!(
                node::check(&context, node, &target),
                probe::check(&context, node, true, jobs.unwrap_or_default())
            );
            results.extend(node::without_login(login, probe::is_started_by_srun(&probe)));
            results.extend(probe);
        }
        (Some(node), _) => {
            results.extend(probe::check(&context, node, false, jobs.unwrap_or_default()).await)
        }
        (None, _) if slurm.is_installed => results.push(no_node(jobs.is_some())),
        (None, _) => {
            let here = NodeName::new(context.machine.as_str()).or_else(|_| NodeName::new("localhost"));
            if let Ok(here) = here {
                results.extend(probe::check(&context, &here, false, jobs.unwrap_or_default()).await);
            }
        }
    }
    Report::new(context.machine, node, results)
}

/// Returns why no node was checked.
fn no_node(are_jobs_known: bool) -> CheckResult {
    let why = match are_jobs_known {
        true => "no job of yours runs",
        false => "your jobs could not be listed",
    };
    CheckResult::ok("Node", "node", format!("not checked: {why}; `relay doctor NODE` checks a node"))
}

/// Returns the result of `check` within `limit`, or a result that it took too long.
async fn limited(
    (section, name): (&'static str, &'static str),
    limit: Duration,
    check: impl Future<Output = Vec<CheckResult>>,
) -> Vec<CheckResult> {
    tokio::time::timeout(limit, check).await.unwrap_or_else(|_| {
        let text = format!("no response within {} s", limit.as_secs());
        vec![CheckResult::fail(
            section,
            name,
            text,
            "a file system or the network hangs; try again, then ask the administrators",
        )]
    })
}

/// Runs file system calls on a thread of their own, because a dead file server blocks them for ever.
async fn blocking(
    which: (&'static str, &'static str),
    check: impl FnOnce() -> Vec<CheckResult> + Send + 'static,
) -> Vec<CheckResult> {
    const LIMIT: Duration = Duration::from_secs(5);
    limited(which, LIMIT, async { tokio::task::spawn_blocking(check).await.unwrap_or_default() }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_fails_and_the_others_go_on() {
        let found = limited(("SLURM", "controller"), Duration::from_secs(9), std::future::pending()).await;
        assert_eq!((found[0].level, found[0].text.as_str()), (Level::Fail, "no response within 9 s"));
    }

    #[test]
    fn a_list_of_jobs_that_cannot_be_read_is_not_an_empty_one() {
        assert!(no_node(true).text.contains("no job of yours runs"));
        assert!(no_node(false).text.contains("could not be listed"));
    }

    #[test]
    fn the_most_serious_finding_decides() {
        let report = |results| Report::new("login1".into(), None, results);
        let (ok, warn) = (CheckResult::ok("a", "b", "c"), CheckResult::warn("a", "b", "c", "d"));
        assert!(report(vec![]).is_healthy() && report(vec![ok.clone(), warn.clone()]).is_healthy());
        assert!(!report(vec![warn, CheckResult::fail("a", "b", "c", "d"), ok]).is_healthy());
    }
}
