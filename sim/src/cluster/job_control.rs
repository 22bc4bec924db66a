//! Job control on a scripted cluster, with SLURM's results and errors.

use crate::scenario::{Scenario, ScenarioTime};
use nodeglass_protocol::Text;
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::request::JobAction;

/// Performs an operation on one of the owner's jobs.
///
/// # Errors
/// Reason for the rejection.
pub(crate) fn apply(
    scenario: &Scenario,
    at: ScenarioTime,
    job: &Job,
    order: JobAction,
) -> Result<Text, Text> {
    let listed = scenario.jobs(at);
    let known = listed.iter().find(|known| known.id == job.id && known.label == job.label);
    let Some(known) = known else {
        return Err(format!("SLURM does not know job {}", job.label).into());
    };
    if let Some(why) = refusal(known, order) {
        return Err(why.into());
    }
    scenario.interventions.order(known.id, order, at.t_ms);
    let label = &known.label;
    Ok(Text::new(match order {
        JobAction::Cancel => format!("job {label} is cancelled"),
        JobAction::Hold => format!("job {label} waits until it is released"),
        JobAction::Release => format!("job {label} is released"),
        JobAction::Requeue => format!("job {label} starts again from the beginning"),
    }))
}

fn refusal(job: &Job, order: JobAction) -> Option<&'static str> {
    let is_array = matches!(job.part_of, Some(Parent::Array { .. }));
    match (order, &job.state) {
        (_, JobState::Ended(_)) => Some("Job/step already completing or completed"),
        (JobAction::Hold | JobAction::Release, state) if *state != JobState::Pending => {
            Some("Job is no longer pending execution")
        }
        (JobAction::Requeue, JobState::Pending) => Some("Job is pending execution"),
        (JobAction::Hold | JobAction::Release | JobAction::Requeue, _) if is_array => {
            Some("the script of this demo has no such turn for an array; cancel can be tried")
        }
        _ => None,
    }
}
