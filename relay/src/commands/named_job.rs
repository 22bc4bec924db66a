//! Raw ids of the jobs that a command line names by their labels, among the jobs of the running relay. Pure.

use anyhow::bail;
use nodeglass_api::{JobSelector, Listed, NotOneJob};
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Parent;

/// Returns the id of the named job. A raw id may belong to a job that is no longer in the list.
///
/// # Errors
/// [`NotOneJob`].
pub(super) fn id(jobs: &[impl Listed], named: &JobSelector) -> Result<JobId, NotOneJob> {
    named.of_one_cluster(jobs)?;
    or_unlisted(named.one(jobs), named)
}

/// Returns the id of the job whose notes are meant, which is a single one. The id of an array names no task, although the last one has
/// it as its raw id: only a command in that task, whose raw id is `own`, means this task by it.
///
/// # Errors
/// A complete sentence for the user.
pub(super) fn id_for_notes(
    jobs: &[impl Listed],
    named: &JobSelector,
    own: Option<&JobSelector>,
) -> anyhow::Result<JobId> {
    if Some(named) == own {
        return Ok(id(jobs, named)?);
    }
    named.of_one_cluster(jobs)?;
    let only = named.only(jobs);
    if only.as_ref().is_ok_and(|job| matches!(job.parent(), Some(Parent::Array { task: None, .. }))) {
        bail!("job {named} has not started");
    }
    Ok(or_unlisted(only, named)?)
}

/// Returns the label of a job, or its raw id if it is not in the list.
pub(super) fn label(jobs: &[impl Listed], id: JobId) -> String {
    jobs.iter().find(|job| job.id() == id.0).map_or_else(|| id.to_string(), |job| job.label().to_owned())
}

fn or_unlisted(listed: Result<&impl Listed, NotOneJob>, named: &JobSelector) -> Result<JobId, NotOneJob> {
    match (listed, named) {
        (Ok(job), _) => Ok(JobId(job.id())),
        (Err(NotOneJob::None(_)), JobSelector::Id(id)) => Ok(JobId(*id)),
        (Err(error), _) => Err(error),
    }
}

/// All jobs, and all arrays, that are named. The id of an array means the array, and that of a task never does, also of the last one,
/// which has the same raw id.
///
/// # Errors
/// [`NotOneJob`].
pub(super) fn jobs_and_arrays(
    jobs: &[impl Listed],
    named: &[JobSelector],
) -> Result<(Vec<JobId>, Vec<JobId>), NotOneJob> {
    let (mut ids, mut arrays) = (Vec::new(), Vec::new());
    for selector in named {
        selector.of_one_cluster(jobs)?;
        let selected = selector.select(jobs);
        match (selected.iter().find_map(|job| named_array(selector, *job)), selector) {
            (Some(array), _) => arrays.push(array),
            _ if !selected.is_empty() => ids.extend(selected.into_iter().map(|job| JobId(job.id()))),
            // The relay says what it thinks of a job that it does not list.
            (None, JobSelector::Id(id)) => ids.push(JobId(*id)),
            (None, _) => return Err(NotOneJob::None(selector.clone())),
        }
    }
    Ok((ids, arrays))
}

/// Returns the array of a selected task if the selector names the array, rather than the task.
fn named_array(selector: &JobSelector, task: &impl Listed) -> Option<JobId> {
    let Some(Parent::Array { job: array, .. }) = task.parent() else { return None };
    let names_array = match selector {
        JobSelector::Id(id) => *id == array.0,
        // Within a cluster, jobs are named by their labels only.
        JobSelector::Of { job, .. } => matches!(**job, JobSelector::Id(_)),
        _ => false,
    };
    names_array.then_some(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::job::{Job, JobState};

    fn task(id: u32, task: Option<u32>, label: &str) -> Job {
        let part_of = Some(Parent::Array { job: JobId(40), task });
        Job { part_of, label: label.into(), ..Job::new(JobId(id), "alice".into(), JobState::Pending) }
    }

    #[test]
    fn the_id_of_an_array_means_its_last_task_only_within_that_task() {
        let own = JobSelector::Id(40);
        let id = |jobs: &[Job], named: &str, own: Option<&JobSelector>| {
            id_for_notes(jobs, &named.parse().unwrap(), own).map_err(|error| error.to_string())
        };
        let refused = |why: &str| Err(why.to_owned());
        let waiting = [task(40, None, "40_[2-3]"), task(41, Some(0), "40_0"), task(42, Some(1), "40_1")];
        assert_eq!(id(&waiting, "40", None), refused("40 has 3 jobs in the list; choose one, such as 40_0"));
        assert_eq!(id(&waiting, "40_3", None), refused("job 40_3 has not started"));
        assert_eq!(id(&waiting[..1], "40", None), refused("job 40 has not started"));
        assert_eq!(id(&waiting, "40_1", None), Ok(JobId(42)));
        assert_eq!(id(&waiting, "42", None), Ok(JobId(42)));
        // The task starts before SLURM's list shows it.
        assert_eq!(id(&waiting, "40", Some(&own)), Ok(JobId(40)));
        let running = [task(42, Some(1), "40_1"), task(40, Some(3), "40_3")];
        assert_eq!(id(&running, "40_3", None), Ok(JobId(40)));
        assert_eq!(id(&running, "40", None), refused("40 has 2 jobs in the list; choose one, such as 40_1"));
        assert_eq!(id(&running, "99", None), Ok(JobId(99)));
        assert_eq!((label(&running, JobId(40)), label(&running, JobId(99))), ("40_3".into(), "99".into()));
    }

    #[test]
    fn t09_the_id_of_an_array_names_the_array_and_the_label_of_its_last_task_only_that_task() {
        let running = [task(42, Some(1), "40_1"), task(40, Some(3), "40_3"), task(901, Some(3), "40_3.ml")];
        let named = |named: &[&str]| {
            let named: Vec<JobSelector> = named.iter().map(|named| named.parse().unwrap()).collect();
            let (jobs, arrays) = jobs_and_arrays(&running[..2], &named).unwrap();
            [jobs, arrays].map(|ids| ids.into_iter().map(|id| id.0).collect::<Vec<_>>())
        };
        assert_eq!(named(&["40"]), [vec![], vec![40]]);
        assert_eq!(named(&["40_3"]), [vec![40], vec![]]);
        assert_eq!(named(&["42", "40_1", "99"]), [vec![42, 42, 99], vec![]]);
        let of_cluster: JobSelector = "40.ml".parse().unwrap();
        let (jobs, arrays) = jobs_and_arrays(&running, &[of_cluster]).unwrap();
        assert_eq!((jobs, arrays), (vec![], vec![JobId(40)]));
    }
}
