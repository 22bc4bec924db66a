//! Actions that await confirmation. Each names its target exactly.

use crate::domain::text;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::ProcessPicture;
use nodeglass_protocol::request::{JobAction, ProcessRef, Request, Signal};

/// Maximum length of a command line in a question, in characters.
const MAX_COMMAND: usize = 81;

/// An action that the user may confirm.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingAction {
    /// The request to the relay.
    pub request: Request,
    /// The question, with the target's full name.
    pub question: String,
    /// The effect of the action.
    pub effect: &'static str,
    /// Label of the button that confirms it.
    pub confirm_label: &'static str,
    /// Label of the button that offers it.
    pub offer_label: &'static str,
    /// Whether it ends something that cannot be brought back.
    pub is_destructive: bool,
}

/// Returns the actions that a job's state allows.
pub fn for_job(job: &Job) -> Vec<PendingAction> {
    let actions: &[JobAction] = match job.state {
        JobState::Ended(_) | JobState::Completing => &[],
        JobState::Pending if is_held(job) => &[JobAction::Release, JobAction::Cancel],
        JobState::Pending => &[JobAction::Hold, JobAction::Cancel],
        _ => &[JobAction::Requeue, JobAction::Cancel],
    };
    actions.iter().map(|action| job_action(job, *action)).collect()
}

fn is_held(job: &Job) -> bool {
    job.reason.as_ref().is_some_and(|code| code.as_str().starts_with("JobHeld"))
}

fn job_action(job: &Job, action: JobAction) -> PendingAction {
    let is_pending = matches!(job.state, JobState::Pending);
    let (verb, label, effect) = match action {
        JobAction::Cancel if is_pending => ("Cancel", "Cancel job", "Removes it from the queue."),
        JobAction::Cancel => (
            "Cancel",
            "Cancel job",
            "Sends SIGTERM, then SIGKILL after SLURM's grace period. Unsaved work is lost.",
        ),
        JobAction::Hold => {
            ("Hold", "Hold job", "It stays in the queue and does not start until you release it.")
        }
        JobAction::Release => ("Release", "Release job", "It can start again when its turn comes."),
        JobAction::Requeue => (
            "Requeue",
            "Requeue job",
            "Stops it and puts it back in the queue; it starts again from the beginning. Unsaved work is lost.",
        ),
    };
    let name = if job.name.is_empty() { String::new() } else { format!(" “{}”", job.name) };
    PendingAction {
        request: Request::Job { job: job.id, action },
        question: format!("{verb} job {}{name}?", job.label),
        effect,
        confirm_label: label,
        offer_label: label,
        is_destructive: matches!(action, JobAction::Cancel | JobAction::Requeue),
    }
}

/// Returns the signals that may be sent to a process, each with its key.
pub fn for_process(process: &ProcessPicture, node: &NodeName) -> Vec<(&'static str, PendingAction)> {
    let facts = &process.facts;
    let Some(started_ms) = facts.started_ms.value().copied() else { return Vec::new() };
    let command = facts.args.value().or(facts.command.value());
    let name = command
        .map_or(String::new(), |command| format!(": {}", text::shortened(command.as_str(), MAX_COMMAND)));
    let action = |(key, signal, offer_label, confirm_label, effect)| {
        let request = Request::Signal {
            node: node.clone(),
            process: ProcessRef { pid: facts.pid, started_ms },
            signal,
        };
        let question = format!("{offer_label} process {} on {node}{name}?", facts.pid);
        (key, PendingAction { request, question, effect, confirm_label, offer_label, is_destructive: true })
    };
    [
        (
            "I",
            Signal::Interrupt,
            "Interrupt",
            "Send SIGINT",
            "Sends SIGINT, as Ctrl-C does; most programs clean up and exit.",
        ),
        (
            "T",
            Signal::Terminate,
            "Terminate",
            "Send SIGTERM",
            "Sends SIGTERM; the process can clean up before exiting.",
        ),
        (
            "K",
            Signal::Kill,
            "Kill",
            "Send SIGKILL",
            "Sends SIGKILL: the process ends immediately and cannot clean up. Unsaved work is lost.",
        ),
    ]
    .map(action)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::process::{ProcessFacts, ProcessKind};
    use nodeglass_protocol::{GpuUuid, JobId, Reading, Row};

    fn offers(state: JobState, reason: Option<&str>) -> Vec<&'static str> {
        let job = Job { reason: reason.map(Into::into), ..Job::new(JobId(17), "alice".into(), state) };
        for_job(&job).iter().map(|action| action.offer_label).collect()
    }

    #[test]
    fn the_offered_actions_match_the_jobs_state() {
        assert_eq!(offers(JobState::Running, None), ["Requeue job", "Cancel job"]);
        assert_eq!(offers(JobState::Pending, Some("Priority")), ["Hold job", "Cancel job"]);
        assert_eq!(offers(JobState::Pending, Some("JobHeldUser")), ["Release job", "Cancel job"]);
        assert!(offers(JobState::Ended("COMPLETED".into()), None).is_empty());
    }

    #[test]
    fn a_question_names_the_job_exactly() {
        let job = Job {
            name: "train".into(),
            label: "3_0".into(),
            ..Job::new(JobId(17), "a".into(), JobState::Running)
        };
        let action = &for_job(&job)[1];
        assert_eq!(action.question, "Cancel job 3_0 “train”?");
        assert_eq!(action.request, Request::Job { job: JobId(17), action: JobAction::Cancel });
    }

    #[test]
    fn a_process_without_a_start_time_cannot_be_signalled() {
        let mut facts = ProcessFacts::new(GpuUuid::new("GPU-1"), 4711, ProcessKind::default());
        let node = NodeName::new("n1").unwrap();
        let mut process = ProcessPicture { facts: facts.clone(), row: Row::default() };
        assert!(for_process(&process, &node).is_empty());
        facts.started_ms = Reading::Value(5);
        facts.command = Reading::Value("python".into());
        process.facts = facts;
        let actions = for_process(&process, &node);
        assert_eq!(actions[2].1.question, "Kill process 4711 on n1: python?");
        let process = ProcessRef { pid: 4711, started_ms: 5 };
        assert_eq!(actions[2].1.request, Request::Signal { node, process, signal: Signal::Kill });
    }
}
