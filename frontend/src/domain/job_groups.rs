//! Groups tasks of an array job and components of a heterogeneous job into one entry of the job list.

use crate::domain::text;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState, Parent};

/// One entry of the job list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListEntry {
    /// A job by itself, or a member of an expanded group.
    Job(JobId),
    /// Several tasks of an array or components of a heterogeneous job, by the parent's number.
    Group(JobId),
}

/// Returns the array or heterogeneous job that a job belongs to.
pub fn parent_job(job: &Job) -> Option<JobId> {
    match job.part_of? {
        Parent::Array { job, .. } | Parent::Het { job, .. } => Some(job),
    }
}

/// Returns the entries of a list of jobs. A group stands where its first member does, followed by its members
/// if it is open. A single member is listed as an ordinary job.
pub fn entries(jobs: &[&Job], is_open: impl Fn(JobId) -> bool) -> Vec<ListEntry> {
    let mut entries = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let Some(of) = parent_job(job).filter(|of| members(jobs, *of).count() > 1) else {
            entries.push(ListEntry::Job(job.id));
            continue;
        };
        if jobs[..at].iter().any(|other| parent_job(other) == Some(of)) {
            continue;
        }
        entries.push(ListEntry::Group(of));
        if is_open(of) {
            entries.extend(members(jobs, of).map(|job| ListEntry::Job(job.id)));
        }
    }
    entries
}

/// Returns the members of a group.
pub fn members<'a>(jobs: &'a [&Job], of: JobId) -> impl Iterator<Item = &'a Job> {
    jobs.iter().copied().filter(move |job| parent_job(job) == Some(of))
}

/// Describes a group: `5 tasks of array 17 · 8 GPUs`. GPUs of ended members are excluded unless all have
/// ended.
pub fn summary<'a>(of: JobId, members: impl Iterator<Item = &'a Job>) -> String {
    let (mut count, mut gpus, mut is_array, mut rest) = (0, None, true, false);
    let members: Vec<&Job> = members.collect();
    let ended = |job: &Job| matches!(job.state, JobState::Ended(_));
    let are_over = members.iter().all(|job| ended(job));
    for job in members {
        count += 1;
        let gpu_count = job.gpu_count.filter(|_| are_over || !ended(job));
        gpus = gpu_count.map_or(gpus, |more| Some(gpus.unwrap_or(0) + more as usize));
        is_array &= matches!(job.part_of, Some(Parent::Array { .. }));
        // Pending tasks have no numbers of their own yet: SLURM lists them as one job.
        rest |=
            matches!((job.part_of, &job.state), (Some(Parent::Array { task: None, .. }), JobState::Pending));
    }
    let (one, many) =
        if is_array { ("task of array", "tasks of array") } else { ("part of job", "parts of job") };
    let more = if rest { " and more that wait" } else { "" };
    let mut summary = format!("{} {of}{more}", text::count(count, one, many));
    if let Some(gpus) = gpus {
        summary.push_str(&format!(" · {}", text::count(gpus, "GPU", "GPUs")));
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u32, part_of: Option<Parent>) -> Job {
        let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
        job.part_of = part_of;
        job.gpu_count = Some(2);
        job
    }

    fn task(id: u32, of: u32) -> Job {
        job(id, Some(Parent::Array { job: JobId(of), task: Some(id) }))
    }

    #[test]
    fn array_tasks_are_one_entry_until_expanded() {
        let jobs = [job(1, None), task(18, 17), job(2, None), task(19, 17), task(30, 29)];
        let jobs: Vec<&Job> = jobs.iter().collect();
        let shut = entries(&jobs, |_| false);
        let own = |id| ListEntry::Job(JobId(id));
        assert_eq!(shut, [own(1), ListEntry::Group(JobId(17)), own(2), own(30)]);
        let open = entries(&jobs, |_| true);
        assert_eq!(open, [own(1), ListEntry::Group(JobId(17)), own(18), own(19), own(2), own(30)]);
    }

    #[test]
    fn a_group_shows_its_size() {
        let jobs = [task(18, 17), task(19, 17)];
        assert_eq!(summary(JobId(17), jobs.iter()), "2 tasks of array 17 · 4 GPUs");
        let over = |job: &Job| Job { state: JobState::Ended("CANCELLED".into()), ..job.clone() };
        let some = [jobs[0].clone(), over(&jobs[1])];
        assert_eq!(summary(JobId(17), some.iter()), "2 tasks of array 17 · 2 GPUs");
        assert_eq!(summary(JobId(17), jobs.each_ref().map(over).iter()), "2 tasks of array 17 · 4 GPUs");
        let mut rest = job(17, Some(Parent::Array { job: JobId(17), task: None }));
        rest.state = JobState::Pending;
        rest.gpu_count = None;
        assert_eq!(
            summary(JobId(17), [task(18, 17), rest].iter()),
            "2 tasks of array 17 and more that wait · 2 GPUs"
        );
        let het = [0, 1].map(|offset| job(40 + offset, Some(Parent::Het { job: JobId(40), offset })));
        assert_eq!(summary(JobId(40), het.iter()), "2 parts of job 40 · 4 GPUs");
    }
}
