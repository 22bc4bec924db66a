//! Names of jobs in texts: the name, or the number of a job without a name.

use nodeglass_protocol::job::Job;

/// Returns what a job is called within a sentence: `train`, or `job 48440_10` without a name.
pub fn within(job: &Job) -> String {
    if job.name.is_empty() { format!("job {}", job.label) } else { job.name.to_string() }
}

/// Returns the same at the beginning of a sentence: `Job 48440_10`. A name is never capitalised.
pub fn first(job: &Job) -> String {
    if job.name.is_empty() { format!("Job {}", job.label) } else { job.name.to_string() }
}

/// Returns the name with the number, where a text has no other reference to the job: `train (17)`, `job 17`.
pub fn with_label(name: &str, label: &str) -> String {
    if name.is_empty() { format!("job {label}") } else { format!("{name} ({label})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::JobState;

    #[test]
    fn a_job_without_a_name_is_called_by_its_label() {
        let task =
            Job { label: "48440_10".into(), ..Job::new(JobId(48_451), "alice".into(), JobState::Running) };
        assert_eq!((within(&task), first(&task)), ("job 48440_10".to_owned(), "Job 48440_10".to_owned()));
        assert_eq!(with_label(task.name.as_str(), task.label.as_str()), "job 48440_10");
        let named = Job { name: "train".into(), ..task };
        assert_eq!((within(&named), first(&named)), ("train".to_owned(), "train".to_owned()));
        assert_eq!(with_label(named.name.as_str(), named.label.as_str()), "train (48440_10)");
    }
}
