//! What would be done is named exactly before it is done, and nothing is done without a yes.

use nodeglass_protocol::NodeName;
use nodeglass_protocol::ask::{Ask, JobOrder, ProcessRef, Signal};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::ProcessPicture;

/// Something that the user may say yes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// What the relay is asked to do.
    pub ask: Ask,
    /// The question, with the thing's full name.
    pub question: String,
    /// What comes of it.
    pub effect: &'static str,
    /// The word of the button that does it.
    pub yes: &'static str,
    /// The word of the button that offers it.
    pub offer: &'static str,
}

/// What may be ordered of a job in its state.
pub fn of_job(job: &Job) -> Vec<Intent> {
    let orders: &[JobOrder] = match job.state {
        JobState::Ended(_) | JobState::Completing => &[],
        JobState::Pending if is_held(job) => &[JobOrder::Release, JobOrder::Cancel],
        JobState::Pending => &[JobOrder::Hold, JobOrder::Cancel],
        _ => &[JobOrder::Requeue, JobOrder::Cancel],
    };
    orders.iter().map(|order| job_intent(job, *order)).collect()
}

fn is_held(job: &Job) -> bool {
    job.reason.as_ref().is_some_and(|code| code.as_str().starts_with("JobHeld"))
}

fn job_intent(job: &Job, order: JobOrder) -> Intent {
    let (offer, yes, effect) = match order {
        JobOrder::Cancel => {
            ("Cancel", "Cancel the job", "It ends at once, and what it has not saved is lost.")
        }
        JobOrder::Hold => ("Hold", "Hold the job", "It waits until you release it."),
        JobOrder::Release => ("Release", "Release the job", "It waits for its turn again."),
        JobOrder::Requeue => {
            ("Requeue", "Requeue the job", "It ends and starts again from the beginning when its turn comes.")
        }
    };
    let name = if job.name.is_empty() { String::new() } else { format!(" “{}”", job.name) };
    Intent {
        ask: Ask::Job { job: job.id, order },
        question: format!("{offer} job {}{name}?", job.label),
        effect,
        yes,
        offer,
    }
}

/// The signals that may be sent to a process, with the key of each.
pub fn of_process(process: &ProcessPicture, node: &NodeName) -> Vec<(&'static str, Intent)> {
    let facts = &process.facts;
    let Some(started_ms) = facts.started_ms.value().copied() else { return Vec::new() };
    let command = facts.args.value().or(facts.command.value());
    let name = command.map_or(String::new(), |command| format!(": {}", shortened(command.as_str())));
    let intent = |(key, signal, offer, yes, effect)| {
        let ask =
            Ask::Signal { node: node.clone(), process: ProcessRef { pid: facts.pid, started_ms }, signal };
        let question = format!("{offer} {} on {node}{name}?", facts.pid);
        (key, Intent { ask, question, effect, yes, offer })
    };
    [
        ("I", Signal::Interrupt, "Interrupt", "Send SIGINT", "As Ctrl-C does: most programs save and end."),
        ("T", Signal::Terminate, "Terminate", "Send SIGTERM", "It is asked to end, and may save before."),
        ("K", Signal::Kill, "Kill", "Send SIGKILL", "It ends at once, and what it has not saved is lost."),
    ]
    .map(intent)
    .into()
}

/// The beginning of a command line, as much as a question can hold.
fn shortened(command: &str) -> String {
    const LONGEST: usize = 80;
    if command.chars().count() <= LONGEST {
        return command.to_owned();
    }
    command.chars().take(LONGEST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::process::{ProcessFacts, ProcessKind};
    use nodeglass_protocol::{GpuUuid, JobId, Reading, Row};

    fn offers(state: JobState, reason: Option<&str>) -> Vec<&'static str> {
        let job = Job { reason: reason.map(Into::into), ..Job::new(JobId(17), "alice".into(), state) };
        of_job(&job).iter().map(|intent| intent.offer).collect()
    }

    #[test]
    fn what_is_offered_fits_the_jobs_state() {
        assert_eq!(offers(JobState::Running, None), ["Requeue", "Cancel"]);
        assert_eq!(offers(JobState::Pending, Some("Priority")), ["Hold", "Cancel"]);
        assert_eq!(offers(JobState::Pending, Some("JobHeldUser")), ["Release", "Cancel"]);
        assert!(offers(JobState::Ended("COMPLETED".into()), None).is_empty());
    }

    #[test]
    fn a_question_names_the_job_exactly() {
        let job = Job {
            name: "train".into(),
            label: "3_0".into(),
            ..Job::new(JobId(17), "a".into(), JobState::Running)
        };
        let intent = &of_job(&job)[1];
        assert_eq!(intent.question, "Cancel job 3_0 “train”?");
        assert_eq!(intent.ask, Ask::Job { job: JobId(17), order: JobOrder::Cancel });
    }

    #[test]
    fn a_process_is_named_by_pid_start_node_and_command_or_not_signalled_at_all() {
        let mut facts = ProcessFacts::new(GpuUuid::new("GPU-1"), 4711, ProcessKind::default());
        let node = NodeName::new("n1").unwrap();
        let mut process = ProcessPicture { facts: facts.clone(), row: Row::default() };
        assert!(of_process(&process, &node).is_empty());
        facts.started_ms = Reading::Value(5);
        facts.command = Reading::Value("python".into());
        process.facts = facts;
        let intents = of_process(&process, &node);
        assert_eq!(intents[2].1.question, "Kill 4711 on n1: python?");
        let process = ProcessRef { pid: 4711, started_ms: 5 };
        assert_eq!(intents[2].1.ask, Ask::Signal { node, process, signal: Signal::Kill });
    }
}
