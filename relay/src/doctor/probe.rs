//! Checks the probe: starts it as a relay does, and reads what it says about driver and GPUs.

use super::{CheckResult, Context, Level, limited, node};
use nodeglass_app::watched::ProbeHosts;
use nodeglass_config::LauncherChoice;
use nodeglass_launch::target::Targets;
use nodeglass_launch::{Launcher, srun};
use nodeglass_nodes::decoder::{Decoder, Found};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::probe::{Hello, ProbeLine, SourceStatus};
use nodeglass_protocol::{NodeName, Reading, Text};
use nodeglass_rules::text;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const SECTION: &str = "Probe";
/// For a launch with an upload, and for the probe's first line.
const LIMIT: Duration = Duration::from_secs(60);
/// Precedes the name of the launcher.
const STARTED_WITH: &str = "started with";

/// Starts the probe with the launchers that the settings choose.
pub(super) async fn check(
    context: &Context,
    node: &NodeName,
    is_remote: bool,
    jobs: &[Job],
) -> Vec<CheckResult> {
    let jobs = Arc::new(srun::jobs_by_node(jobs, context.user.as_str()));
    let site = match is_remote || context.config.launcher == LauncherChoice::Srun {
        // As the relay: where nodes admit no logins, it starts probes as steps of the user's jobs.
        true if jobs.contains_key(node) => ProbeHosts::Jobs,
        true => ProbeHosts::Hosts,
        false => ProbeHosts::ThisMachine,
    };
    let (_keep, jobs) = watch::channel(jobs);
    let launcher = match site.launcher(&context.config, &Targets::default(), &jobs) {
        Ok(launcher) => launcher,
        // Reported by the check of the probe's file.
        Err(error) => {
            return vec![CheckResult::fail(SECTION, "start", error, "see the check of the probe above")];
        }
    };
    limited((SECTION, "start"), LIMIT, start(&*launcher, node)).await
}

/// Launches the probe, and describes what it says first.
async fn start(launcher: &dyn Launcher, node: &NodeName) -> Vec<CheckResult> {
    let mut stream = match launcher.launch(node).await {
        Ok(stream) => stream,
        Err(error) => {
            let refusal = node::refusal(node, &error);
            return vec![CheckResult { section: SECTION, check: "start", ..refusal }];
        }
    };
    let status = launcher.status().borrow().clone();
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    while let Some(chunk) = stream.stdout.recv().await {
        if let Err(error) = decoder.feed(&chunk, 0, &mut found) {
            let advice = format!("see what `ssh {node} true` prints");
            return vec![CheckResult::fail(SECTION, "start", error, advice)];
        }
        let hello = found.iter().find_map(|found| match found {
            Found::Line(line) => match &**line {
                ProbeLine::Hello(hello) => Some(hello),
                _ => None,
            },
            _ => None,
        });
        if let Some(hello) = hello {
            return describe(hello, &status.name, status.reason.as_ref());
        }
    }
    let end = stream.end.await.unwrap_or_default();
    let text = format!("the probe ended at once: {}", end.stderr);
    vec![CheckResult::fail(SECTION, "start", text, format!("run `node-probe --once` on {node}"))]
}

/// Returns whether the probe was started as a step of a job.
pub(super) fn is_started_by_srun(results: &[CheckResult]) -> bool {
    let by_srun = format!("{STARTED_WITH} srun");
    results
        .iter()
        .any(|result| (result.check, result.level) == ("start", Level::Ok) && result.text.contains(&by_srun))
}

/// Describes the probe, the drivers and the GPUs.
fn describe(hello: &Hello, launcher: &Text, reason: Option<&Text>) -> Vec<CheckResult> {
    let why = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let text = format!("runs on {} as {}, {STARTED_WITH} {launcher}{why}", hello.host, hello.user);
    let mut found = vec![
        CheckResult::ok(SECTION, "start", text),
        CheckResult::ok(SECTION, "version", format!("build {}", hello.build)),
    ];
    let (mut ready, mut absent) = (false, Vec::new());
    for source in &hello.sources {
        match &source.status {
            SourceStatus::Ready(versions) => {
                ready = true;
                let driver = match &versions.driver {
                    Reading::Value(version) => format!("{} driver {version}", source.vendor.name()),
                    _ => format!("{} driver of unknown version", source.vendor.name()),
                };
                found.push(CheckResult::ok(SECTION, "driver", driver));
            }
            SourceStatus::Absent { reason } => absent.push(reason),
            SourceStatus::Confined { reason } => found.push(CheckResult::warn(
                SECTION,
                "visible GPUs",
                reason,
                "a site's ConstrainDevices=yes does this; the relay starts a probe in each of your jobs to show their GPUs",
            )),
        }
    }
    if !ready && absent.is_empty() {
        let advice = "check `nvidia-smi` there; a node without GPUs still shows its processes and host";
        found.push(CheckResult::warn(SECTION, "driver", "no GPU driver was found", advice));
    } else if !ready {
        let text = absent.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join("; ");
        let advice =
            "ask the administrators, with the output of `nvidia-smi` there, if the node should have GPUs";
        found.push(CheckResult::warn(SECTION, "driver", text, advice));
    } else {
        let instances = hello.gpus.iter().filter(|gpu| gpu.mig_parent.is_some()).count();
        let gpus = text::count(hello.gpus.len() - instances, "GPU", "GPUs");
        let and_instances = match instances {
            0 => String::new(),
            count => format!(" and {}", text::count(count, "MIG instance", "MIG instances")),
        };
        found.push(CheckResult::ok(SECTION, "GPUs", format!("{gpus}{and_instances} can be read")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_of_a_probe_is_known_from_its_start() {
        let started = |text: &str| [CheckResult::ok(SECTION, "start", text)];
        assert!(is_started_by_srun(&started("runs on n1 as alice, started with srun (no logins)")));
        assert!(!is_started_by_srun(&started("runs on n1 as alice, started with ssh2")));
        assert!(!is_started_by_srun(&[CheckResult::fail(SECTION, "start", "started with srun", "")]));
    }
}
