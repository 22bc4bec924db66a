//! The details of a job: why it is pending, its resources, how long it may still run.

use super::fact::{Emphasis, Fact, FactGroup, bytes};
use crate::domain::job_groups::parent_job;
use crate::domain::outcome::Exit;
use crate::domain::sorting;
use crate::domain::text;
use nodeglass_protocol::insight::BottleneckKind;
use nodeglass_protocol::job::{GpuSet, Job, JobState, Parent, TimeLimit};
use nodeglass_rules::run::has_run;
pub use nodeglass_rules::run::{run_time, time_left};

/// Time left in s below which it is a warning.
pub const SHORT_S: u64 = 600;

/// Title of the group of a job's directories and files.
pub const FILES: &str = "Files";

/// Formats a time in seconds since 1970, for [`groups`].
pub type When<'a> = &'a dyn Fn(i64) -> String;

/// Returns the groups of facts of a job; `when` formats a time in seconds since 1970.
pub fn groups(job: &Job, when: When<'_>) -> Vec<FactGroup> {
    vec![times(job, when), resources(job), origin(job), files(job)]
}

/// Returns why a job is pending, if SLURM reports it.
pub fn pending_reason(job: &Job) -> Option<String> {
    if !matches!(job.state, JobState::Pending) {
        return None;
    }
    job.reason_text.as_ref().map(ToString::to_string).or_else(|| job.reason.as_ref().map(ToString::to_string))
}

/// Returns the name of what limits the speed of a job's GPUs.
pub fn bottleneck(kind: BottleneckKind) -> &'static str {
    match kind {
        BottleneckKind::Compute => "compute",
        BottleneckKind::MemoryBandwidth => "memory bandwidth",
        BottleneckKind::Communication => "communication",
        BottleneckKind::Input => "input",
        BottleneckKind::Latency => "small kernels",
    }
}

fn times(job: &Job, when: When<'_>) -> FactGroup {
    let at = |label, moment: Option<i64>| moment.map(|at| Fact::new(label, when(at)));
    let pending = matches!(job.state, JobState::Pending);
    let start = if pending {
        at("Expected to start", job.start)
            .unwrap_or_else(|| Fact::new("Expected to start", "not estimated yet"))
    } else {
        at("Started", job.start).unwrap_or_default()
    };
    let limit = match job.limit {
        TimeLimit::Unknown => Fact::new("Time limit", "unknown"),
        TimeLimit::Unlimited => Fact::new("Time limit", "none"),
        TimeLimit::Seconds(seconds) => Fact::new("Time limit", text::span(seconds)),
    };
    let restarts = (job.restarts > 0).then(|| Fact::new("Restarts", job.restarts.to_string()));
    let exit = job.exit.as_ref().map(|exit| {
        let failed = exit.as_str() != "0:0";
        Fact::new("Exit code", exit.as_str())
            .with_note(exit_text(exit.as_str()))
            .with_emphasis_if(failed, Emphasis::Warning)
    });
    let facts =
        [at("Submitted", job.submitted), Some(start), at("Ended", job.ended), Some(limit), restarts, exit];
    FactGroup::new("Time", facts.into_iter().flatten().filter(|fact| !fact.label.is_empty()))
}

/// Explains SLURM's `code:signal`, unless it is plain.
pub fn exit_text(exit: &str) -> String {
    match Exit::parse(exit) {
        None | Some(Exit::Code(_)) => String::new(),
        Some(exit) => exit.text(),
    }
}

fn resources(job: &Job) -> FactGroup {
    let mut facts = vec![Fact::new("Nodes", nodes(job))];
    facts.push(match job.gpu_count {
        Some(count) => Fact::new("GPUs", count.to_string()),
        None => Fact::new("GPUs", "unknown"),
    });
    let alike = job.gpus.len() > 1 && job.gpus.windows(2).all(|two| two[0].set == two[1].set);
    match job.gpus.first() {
        Some(first) if alike => facts.push(Fact::new("GPUs on each node", which(&first.set))),
        _ => {
            facts.extend(job.gpus.iter().map(|on| Fact::new(format!("GPUs on {}", on.node), which(&on.set))))
        }
    }
    facts.extend(job.cpus.map(|cpus| Fact::new("CPUs", cpus.to_string())));
    facts.extend(job.mem_bytes.map(|mem| Fact::new("Memory", bytes(mem))));
    let is_allocated = match job.state {
        JobState::Pending => false,
        JobState::Ended(_) => has_run(job),
        _ => true,
    };
    FactGroup::new(if is_allocated { "Allocated" } else { "Requested" }, facts)
}

/// Describes which GPUs of a node, as precisely as SLURM reports it.
fn which(set: &GpuSet) -> String {
    match set {
        GpuSet::Indices(indices) => indices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        GpuSet::Count(count) => format!("{count}; SLURM does not report which"),
        GpuSet::Unknown => "not reported".to_owned(),
    }
}

fn nodes(job: &Job) -> String {
    if job.nodes.is_empty() {
        return job.node_count.to_string();
    }
    let names: Vec<&str> = job.nodes.iter().take(16).map(|node| node.as_str()).collect();
    let more = job.nodes.len() - names.len();
    if more > 0 { format!("{} and {more} more", names.join(", ")) } else { names.join(", ") }
}

fn origin(job: &Job) -> FactGroup {
    let text_fact =
        |label, text: Option<&nodeglass_protocol::Text>| text.map(|text| Fact::new(label, text.as_str()));
    let part_of = job.part_of.map(|parent| match parent {
        Parent::Array { job, task: Some(task) } => Fact::new("Array", format!("task {task} of {job}")),
        Parent::Array { job, task: None } => Fact::new("Array", format!("pending tasks of {job}")),
        Parent::Het { job, offset } => Fact::new("Heterogeneous", format!("component {offset} of {job}")),
    });
    let facts = [
        Some(Fact::new("Job ID", job.label.as_str())),
        part_of,
        text_fact("Depends on", job.dependency.as_ref()),
        text_fact("User", Some(&job.user)),
        text_fact("Account", job.account.as_ref()),
        text_fact("Partition", Some(&job.partition)),
        text_fact("QOS", job.qos.as_ref()),
        job.batch_host.as_ref().map(|host| Fact::new("Batch host", host.as_str())),
    ];
    FactGroup::new("SLURM", facts.into_iter().flatten().filter(|fact| !fact.value.is_empty()))
}

fn files(job: &Job) -> FactGroup {
    let paths = [
        ("Working directory", &job.workdir),
        ("Script", &job.command),
        ("Standard output", &job.stdout),
        ("Standard error", &job.stderr),
    ];
    let entries = paths.into_iter().filter_map(|(label, path)| {
        let path = path.as_ref().filter(|path| !path.is_empty())?;
        Some(Fact::new(label, path.as_str()))
    });
    let group = FactGroup::new(FILES, entries);
    if group.facts.is_empty() { group.with_note("The files of this job are not known.") } else { group }
}

/// Returns the other members of the same parent job, in the order of their numbers.
pub fn siblings(job: &Job, all: &[Job]) -> Vec<Job> {
    let Some(mine) = parent_job(job) else { return Vec::new() };
    let mut found: Vec<Job> =
        all.iter().filter(|other| other.id != job.id && parent_job(other) == Some(mine)).cloned().collect();
    sorting::sort_by_key(&mut found, |job| job.id);
    found
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    /// Job 17 in a state.
    pub fn job(state: JobState) -> Job {
        Job::new(JobId(17), "alice".into(), state)
    }

    #[test]
    fn a_pending_job_shows_the_relays_reason_or_else_the_code() {
        let mut waiting = job(JobState::Pending);
        assert_eq!(pending_reason(&waiting), None);
        waiting.reason = Some("Priority".into());
        assert_eq!(pending_reason(&waiting).as_deref(), Some("Priority"));
        waiting.reason_text = Some("others come first".into());
        assert_eq!(pending_reason(&waiting).as_deref(), Some("others come first"));
        waiting.state = JobState::Running;
        assert_eq!(pending_reason(&waiting), None);
    }

    #[test]
    fn exit_codes_name_their_signal() {
        assert_eq!(exit_text("0:0"), "success");
        assert_eq!(exit_text("0:15"), "ended by SIGTERM");
        assert_eq!(exit_text("0:125"), "out of host memory");
        assert_eq!(exit_text("1:0"), "");
        assert_eq!(exit_text("odd"), "");
    }

    #[test]
    fn siblings_are_the_other_tasks_of_the_same_array() {
        let task = |id: u32, parent: Option<u32>| Job {
            id: JobId(id),
            part_of: parent.map(|job| Parent::Array { job: JobId(job), task: Some(id) }),
            ..job(JobState::Running)
        };
        let all = [task(9, Some(1)), task(3, Some(1)), task(4, Some(2)), task(5, None), task(7, Some(1))];
        let found: Vec<u32> = siblings(&all[0], &all).iter().map(|job| job.id.0).collect();
        assert_eq!(found, [3, 7]);
        assert!(siblings(&all[3], &all).is_empty());
    }

    #[test]
    fn gpus_are_listed_per_node_as_precisely_as_slurm_reports() {
        use nodeglass_protocol::NodeName;
        use nodeglass_protocol::job::NodeGpus;
        let on = |node: &str, set| NodeGpus { node: NodeName::new(node).unwrap(), set };
        let job = Job {
            gpus: vec![
                on("n1", GpuSet::Indices(vec![0, 3])),
                on("n2", GpuSet::Count(2)),
                on("n3", GpuSet::Unknown),
            ],
            ..job(JobState::Running)
        };
        let entries: Vec<String> = resources(&job).facts.into_iter().skip(2).map(|fact| fact.value).collect();
        assert_eq!(entries, ["0, 3", "2; SLURM does not report which", "not reported"]);
        let gpus = vec![on("n1", GpuSet::Indices(vec![0, 1])), on("n2", GpuSet::Indices(vec![0, 1]))];
        let entries = resources(&Job { gpus, ..job });
        assert_eq!(
            (entries.facts[2].label.as_str(), entries.facts[2].value.as_str()),
            ("GPUs on each node", "0, 1")
        );
    }
}
