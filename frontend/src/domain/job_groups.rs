//! Groups tasks of an array job and components of a heterogeneous job into one entry of the job list.

use crate::domain::{health, sorting, text};
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
    job.part_of.map(|parent| parent.job())
}

/// Returns the array whose task a job is.
pub fn array_of(job: &Job) -> Option<JobId> {
    match job.part_of {
        Some(Parent::Array { job, .. }) => Some(job),
        _ => None,
    }
}

/// Returns the number of a task within its array; the rest that waits follows all of them.
pub fn task_number(job: &Job) -> u32 {
    match job.part_of {
        Some(Parent::Array { task: Some(task), .. }) => task,
        _ => u32::MAX,
    }
}

/// Returns whether a job is a task of an array.
pub fn is_task(job: &Job, array: JobId) -> bool {
    array_of(job) == Some(array)
}

/// Counts the tasks of an array by state, in the order of their lives: `8 running`, `12 waiting`, `3 completed`. The tasks that
/// wait are one entry of the list of jobs until they start.
pub fn states(tasks: &[Job]) -> Vec<String> {
    let order = |job: &Job| match job.state {
        JobState::Pending => 1,
        JobState::Ended(_) => 2,
        _ => 0,
    };
    let mut counts: Vec<(u8, String, u64)> = Vec::new();
    for job in tasks {
        let (order, count) = (order(job), waiting_tasks(job.label.as_str()));
        let name = if order == 1 { "waiting".to_owned() } else { health::state_label(job) };
        match counts.iter_mut().find(|(_, known, _)| *known == name) {
            Some((.., sum)) => *sum = sum.saturating_add(count),
            None => counts.push((order, name, count)),
        }
    }
    sorting::sort_by_key(&mut counts, |(order, ..)| *order);
    counts.into_iter().map(|(_, name, count)| format!("{} {name}", text::grouped(count))).collect()
}

/// Returns the number of tasks that a label stands for: 6 of `48440_[18-20,30-34:2%8]`. Of a range that SLURM shortened, only
/// the beginning counts.
fn waiting_tasks(label: &str) -> u64 {
    let list = label.split_once("_[").map_or("0", |(_, list)| list);
    let list = list.split(['%', ']']).next().unwrap_or_default();
    let count = |range: &str| {
        let (range, step) = range.split_once(':').unwrap_or((range, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last, step] = [first, last, step].map(|number| number.parse::<u32>().ok());
        Some(u64::from(last?.checked_sub(first?)?.checked_div(step?)?) + 1)
    };
    list.split(',').filter_map(count).sum()
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
        is_array &= array_of(job).is_some();
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
    fn the_tasks_of_an_array_are_counted_by_state() {
        let mut tasks: Vec<Job> = (0..5).map(|id| task(id, 17)).collect();
        tasks[1].state = JobState::Ended("COMPLETED".into());
        tasks[2].state = JobState::Ended("OUT_OF_MEMORY".into());
        tasks[3].state = JobState::Ended("COMPLETED".into());
        (tasks[4].state, tasks[4].label) = (JobState::Pending, "17_[18-20,30-34:2%8]".into());
        assert_eq!(states(&tasks), ["1 running", "6 waiting", "2 completed", "1 out of memory"]);
        let count = |label| waiting_tasks(label);
        assert_eq!([count("17_4"), count("17"), count("17_[5]"), count("17_[1,3,5-900...]")], [1, 1, 1, 2]);
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
