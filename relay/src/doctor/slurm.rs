//! Checks SLURM's clients and controller, and finds the node of the first running job.

use super::{CheckResult, Context, limited};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{NodeName, Text};
use nodeglass_slurm::command::{Client as _, CommandError, Commands, Program};
use nodeglass_slurm::{JobSource as _, Selection, Slurm};
use std::collections::BTreeMap;
use std::time::Duration;

const SECTION: &str = "SLURM";
/// For a check that runs up to two commands one after the other.
const LIMIT: Duration = Duration::from_secs(25);
const CONTROLLER: &str = "running relays keep the last job list and recover by themselves; if it lasts, ask the \
                          administrators whether slurmctld and munge run";

/// The result.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) results: Vec<CheckResult>,
    /// Whether there are SLURM's commands.
    pub(super) is_installed: bool,
    /// The user's jobs; `None` if they could not be listed.
    pub(super) jobs: Option<Vec<Job>>,
    /// The first node of the first running job.
    pub(super) node: Option<NodeName>,
}

/// Clients, controller and jobs.
pub(super) async fn check(context: &Context) -> Checked {
    let commands = Commands::new().for_cluster(context.config.cluster.clone());
    let version = Commands::new().run(Program::Squeue, &["--version".to_owned()]).await;
    let mut checked = Checked::default();
    checked.results.push(match version {
        Ok(output) => {
            checked.is_installed = true;
            clients(&output.out)
        }
        Err(CommandError::Missing(_)) => {
            checked.results.push(CheckResult::warn(
                SECTION,
                "clients",
                "squeue is not on the PATH, so a relay watches this machine only",
                "start the relay on a login node, or load SLURM's module",
            ));
            return checked;
        }
        Err(error) => {
            checked.results.push(CheckResult::warn(
                SECTION,
                "clients",
                error,
                "SLURM is installed but does not work here, so a relay watches this machine only; set SLURM_CONF, or \
                 start the relay on a login node",
            ));
            return checked;
        }
    });
    let mut jobs = None;
    let (controller, listed) = tokio::join!(
        limited((SECTION, "controller"), LIMIT, controller(commands.clone())),
        limited((SECTION, "jobs"), LIMIT, list(commands, &mut jobs))
    );
    checked.results.extend(controller);
    checked.results.extend(listed);
    let mut running = jobs.iter().flatten().filter(|job| job.state == JobState::Running);
    checked.node = running.find_map(|job| job.nodes.first().cloned());
    checked.jobs = jobs;
    checked
}

/// The version that squeue prints: `slurm 24.11.5`, or `slurm-wlm 22.05.8` of Debian's package.
fn clients(printed: &[u8]) -> CheckResult {
    let version = Text::from_bytes(printed.trim_ascii());
    if version.as_str().to_ascii_lowercase().starts_with("slurm") {
        return CheckResult::ok(SECTION, "clients", version);
    }
    let advice = "check that the first squeue on the PATH is SLURM's";
    CheckResult::fail(
        SECTION,
        "clients",
        format!("`squeue --version` printed no version of SLURM{}", quoted(&version)),
        advice,
    )
}

fn no_configuration(printed: &[u8]) -> CheckResult {
    let printed = quoted(&Text::from_bytes(printed.trim_ascii()));
    let advice = "check that the first scontrol on the PATH is SLURM's";
    CheckResult::fail(
        SECTION,
        "controller",
        format!("`scontrol show config` printed no configuration{printed}"),
        advice,
    )
}

/// Returns the text that was printed instead, if any.
fn quoted(printed: &Text) -> String {
    if printed.is_empty() { String::new() } else { format!(": {:?}", printed.as_str()) }
}

async fn controller(mut commands: Commands) -> Vec<CheckResult> {
    let args = ["show".to_owned(), "config".to_owned()];
    let output = match commands.run(Program::Scontrol, &args).await {
        Ok(output) => output,
        Err(error) => return vec![CheckResult::fail(SECTION, "controller", error, CONTROLLER)],
    };
    let text = String::from_utf8_lossy(&output.out);
    if !values(&text).contains_key("SLURM_VERSION") {
        return vec![no_configuration(&output.out)];
    }
    let mut found = vec![CheckResult::ok(SECTION, "controller", summary(&text))];
    if values(&text).get("PrivateData").is_some_and(|value| value.contains("jobs")) {
        found.push(CheckResult::ok(
            SECTION,
            "PrivateData",
            "other users' jobs are hidden from you, by SLURM",
        ));
    }
    found.extend(process_tracking(&text));
    found
}

/// Warns of a plugin by which no process can be attributed to a job: only control groups state the job of a process.
fn process_tracking(text: &str) -> Option<CheckResult> {
    let plugin = *values(text).get("ProctrackType")?;
    let warn = || {
        CheckResult::warn(
            SECTION,
            "ProctrackType",
            format!(
                "{plugin}: a user's jobs on one node cannot be told apart by their processes, and those of others have none"
            ),
            "ask the administrators for ProctrackType=proctrack/cgroup",
        )
    };
    (plugin != "proctrack/cgroup").then(warn)
}

/// The values of `scontrol show config`.
fn values(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect()
}

fn summary(text: &str) -> String {
    let values = values(text);
    let of = |key| values.get(key).copied().filter(|value| !value.is_empty() && *value != "(null)");
    let keys = ["SLURM_VERSION", "SelectType", "ProctrackType", "TaskPlugin", "GresTypes"];
    let mut parts = vec![format!("cluster {}", of("ClusterName").unwrap_or("without a name"))];
    parts.extend(keys.into_iter().filter_map(|key| Some(format!("{key} {}", of(key)?))));
    parts.join(", ")
}

async fn list(commands: Commands, jobs: &mut Option<Vec<Job>>) -> Vec<CheckResult> {
    let selection = Selection::own(rustix::process::getuid().as_raw());
    let mut slurm = match Slurm::detect_with(commands, selection).await {
        Ok(slurm) => slurm,
        Err(none) => {
            return vec![CheckResult::fail(
                SECTION,
                "jobs",
                none,
                "set SLURM_CONF, or start the relay on a login node",
            )];
        }
    };
    match slurm.jobs().await {
        Ok(list) => {
            let running = list.iter().filter(|job| job.state == JobState::Running).count();
            let text = format!("{} of yours, {running} running", list.len());
            *jobs = Some(list);
            vec![CheckResult::ok(SECTION, "jobs", text)]
        }
        Err(error) => vec![CheckResult::fail(SECTION, "jobs", error, CONTROLLER)],
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_configuration_is_summed_up_whatever_is_missing() {
        let text = "ClusterName             = lab\nSLURM_VERSION = 24.11.5\nGresTypes  = (null)\nnoise\n";
        assert_eq!(summary(text), "cluster lab, SLURM_VERSION 24.11.5");
        assert_eq!(summary(""), "cluster without a name");
    }

    #[test]
    fn processes_that_cannot_be_attributed_to_jobs_are_warned_of() {
        let of = |plugin: &str| process_tracking(&format!("ProctrackType           = {plugin}\n"));
        assert_eq!(of("proctrack/cgroup").map(|found| found.text), None);
        let found = of("proctrack/linuxproc").unwrap();
        assert_eq!(found.level, Level::Warn);
        assert!(found.text.starts_with("proctrack/linuxproc: a user's jobs"), "{}", found.text);
        assert!(process_tracking("ClusterName = lab\n").is_none());
    }

    #[test]
    fn what_is_no_answer_of_slurm_is_a_fault_and_shown_within_bounds() {
        for version in ["slurm 24.11.5\n", "slurm-wlm 22.05.8\n"] {
            assert_eq!(clients(version.as_bytes()).level, Level::Ok);
        }
        for printed in [&b""[..], b"\n", b"\x1b[2J\xff", &[b'x'; 100_000]] {
            for result in [clients(printed), no_configuration(printed)] {
                assert_eq!(result.level, Level::Fail);
                assert!(result.text.len() < 400 && !result.text.contains('\u{1b}'), "{}", result.text);
            }
        }
        assert!(clients(b"").text.ends_with("printed no version of SLURM"));
    }
}
