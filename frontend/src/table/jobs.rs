//! The columns of jobs: what SLURM says of each, and how its GPUs do.

use super::column::{Column, Look, Sum};
use super::nodes::share;
use super::value::{Unit, Value};
use super::{Now, Told, by};
use crate::health::{Health, state_word};
use crate::tell::job::{run_time, time_left, waits_because};
use crate::totals::Totals;
use nodeglass_protocol::JobField;
use nodeglass_protocol::job::{Job, JobState, Parent, TimeLimit};

/// A job, with what its GPUs come to.
pub struct JobRow<'a> {
    /// The job.
    pub job: &'a Job,
    /// What its GPUs come to.
    pub totals: Totals,
    /// Its state.
    pub health: &'a Health,
    /// The time, for what is left.
    pub now: Now,
}

// A job's row has no readings of its own: the kind of field stands for none.
type Of = Told<fn(&JobRow<'_>) -> Value, JobField>;

const fn words(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, Unit::Words, width, about)
}

const fn span(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Span, 88, about)
}

static COLUMNS: [Of; 27] = [
    by(words("name", "Name", 150, "what it is called").rank(0).grows().look(Look::Own), |row| {
        Value::text(row.job.name.as_str())
    }),
    by(words("job", "Job", 92, "its number").rank(2).aliases(&["id"]), |row| {
        Value::text(row.job.label.as_str())
    }),
    by(
        words("cells", "GPUs now", 120, "a cell for each GPU, brighter is busier")
            .rank(4)
            .grows()
            .look(Look::Picture),
        |_| Value::NONE,
    ),
    by(
        Column::new("util", "Utilisation", Unit::Percent, 110, "mean of its GPUs")
            .rank(1)
            .look(Look::Util)
            .sum(Sum::Mean),
        |row| Value::number(row.totals.util_pct()),
    ),
    by(
        Column::new("gpus", "GPUs", Unit::Count, 56, "GPUs that it has or asks for").rank(3).sum(Sum::Total),
        |row| Value::number(row.job.gpu_count.map(Into::into)),
    ),
    by(Column::new("nodes", "Nodes", Unit::Count, 60, "nodes that it has or asks for").rank(5), |row| {
        Value::Number(row.job.node_count.into())
    }),
    by(
        Column::new("mem", "Memory", Unit::Gib, 112, "device memory in use of all its GPUs")
            .rank(6)
            .sum(Sum::Total),
        |row| share(row.totals.mem),
    ),
    by(
        Column::new("power", "Power", Unit::Watt, 124, "power of its GPUs, of the limits in force")
            .sum(Sum::Total),
        |row| share(row.totals.power),
    ),
    by(words("state", "State", 190, "running, waiting and for what, or how it ended").rank(1).grows(), state),
    by(span("left", "Left", "time until its limit").rank(0), left),
    by(span("time", "Run time", "since it started"), |row| Value::number(run_time(row.job, row.now.wall_s))),
    by(span("limit", "Limit", "how long it may run"), limit),
    by(span("waits", "Waiting", "since it was submitted"), waits),
    by(span("starts", "Starts in", "until SLURM expects to start it").rank(7), starts),
    by(words("user", "User", 88, "whose it is"), |row| Value::text(row.job.user.as_str())),
    by(words("partition", "Partition", 92, "where it runs, or may run").rank(7), |row| {
        Value::text(row.job.partition.as_str())
    }),
    by(words("account", "Account", 96, "who pays"), |row| said(row.job.account.as_ref())),
    by(words("qos", "QOS", 84, "its quality of service"), |row| said(row.job.qos.as_ref())),
    by(Column::new("cpus", "CPUs", Unit::Count, 64, "CPUs that it has or asks for").sum(Sum::Total), |row| {
        Value::number(row.job.cpus.map(Into::into))
    }),
    by(
        Column::new("ram", "RAM", Unit::Gib, 90, "host memory that it has or asks for").sum(Sum::Total),
        |row| Value::number(row.job.mem_bytes),
    ),
    by(
        words("part_of", "Part of", 92, "the array or heterogeneous job that it belongs to")
            .aliases(&["array"]),
        part_of,
    ),
    by(words("dependency", "Waits for", 150, "jobs that must end first"), |row| {
        said(row.job.dependency.as_ref())
    }),
    by(words("exit", "Exit", 58, "how it ended: code and signal"), |row| said(row.job.exit.as_ref())),
    by(Column::new("restarts", "Restarts", Unit::Count, 76, "how often it was started again"), |row| {
        Value::Number(row.job.restarts.into())
    }),
    by(words("batch_host", "Batch node", 112, "where its script runs"), |row| {
        said(row.job.batch_host.as_ref())
    }),
    by(words("workdir", "Folder", 220, "its working directory"), |row| said(row.job.workdir.as_ref())),
    by(words("command", "Command", 220, "its script"), |row| said(row.job.command.as_ref())),
];

/// The columns in the order they have by themselves.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|told| told.column).collect()
}

/// What stands in a column.
pub fn value(row: &JobRow<'_>, column: usize) -> Value {
    match COLUMNS.get(column).map(|told| &told.read) {
        Some(super::Read::By(read)) => read(row),
        _ => Value::NONE,
    }
}

/// Whether a job counts in the sums: one that waits or has ended has no GPUs now.
pub fn adds(job: &Job) -> bool {
    job.is_active()
}

/// What a column comes to that is about GPUs, given what those of all the jobs come to together; `None`: it is the sum of
/// what stands in it.
pub fn sum(totals: &Totals, column: &str) -> Option<Value> {
    match column {
        "util" => Some(Value::number(totals.util_pct())),
        "mem" => Some(share(totals.mem)),
        "power" => Some(share(totals.power)),
        _ => None,
    }
}

fn left(row: &JobRow<'_>) -> Value {
    if !row.job.is_active() {
        return Value::Absent("it does not run");
    }
    match row.job.limit {
        TimeLimit::Seconds(_) => Value::number(time_left(row.job, row.now.wall_s)),
        TimeLimit::Unlimited => Value::Absent("no limit"),
        TimeLimit::Unknown => Value::Absent("SLURM did not say"),
    }
}

fn limit(row: &JobRow<'_>) -> Value {
    match row.job.limit {
        TimeLimit::Seconds(limit) => Value::Number(limit),
        TimeLimit::Unlimited => Value::Absent("no limit"),
        TimeLimit::Unknown => Value::Absent("SLURM did not say"),
    }
}

fn waits(row: &JobRow<'_>) -> Value {
    let waiting = row.job.submitted.filter(|_| row.job.state == JobState::Pending);
    Value::number(waiting.map(|since| row.now.wall_s.saturating_sub(since).max(0).cast_unsigned()))
}

fn starts(row: &JobRow<'_>) -> Value {
    let start = row.job.start.filter(|_| row.job.state == JobState::Pending);
    Value::number(start.map(|at| at.saturating_sub(row.now.wall_s).max(0).cast_unsigned()))
}

fn state(row: &JobRow<'_>) -> Value {
    let job = row.job;
    if job.state != JobState::Pending {
        return Value::text(row.health.word.clone());
    }
    Value::text(waits_because(job).unwrap_or_else(|| state_word(&job.state)))
}

fn part_of(row: &JobRow<'_>) -> Value {
    match row.job.part_of {
        Some(Parent::Array { job, .. } | Parent::Het { job, .. }) => Value::text(job.to_string()),
        None => Value::NONE,
    }
}

fn said<T: ToString>(text: Option<&T>) -> Value {
    Value::text(text.map(ToString::to_string).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Shape;
    use crate::table::column::find;
    use nodeglass_protocol::JobId;

    fn at(job: &Job, id: &str) -> Value {
        let health = Health { shape: Shape::Well, word: "running".to_owned() };
        let now = Now { relay_ms: 0, wall_s: 1_100 };
        value(&JobRow { job, totals: Totals::default(), health: &health, now }, find(&columns(), id).unwrap())
    }

    #[test]
    fn a_waiting_job_says_for_what_and_when_it_may_start() {
        let mut job = Job::new(JobId(4), "alice".into(), JobState::Pending);
        job.reason = Some("Priority".into());
        job.submitted = Some(1_000);
        job.start = Some(1_700);
        assert_eq!(at(&job, "state"), Value::text("jobs with a higher priority come first"));
        assert_eq!((at(&job, "waits"), at(&job, "starts")), (Value::Number(100), Value::Number(600)));
        assert!(at(&job, "left").why_absent().is_some());
        assert!(at(&job, "time").why_absent().is_some());
    }

    #[test]
    fn a_running_job_says_what_is_left() {
        let mut job = Job::new(JobId(4), "alice".into(), JobState::Running);
        job.start = Some(1_000);
        job.limit = TimeLimit::Seconds(600);
        assert_eq!((at(&job, "left"), at(&job, "time")), (Value::Number(500), Value::Number(100)));
        job.limit = TimeLimit::Unlimited;
        assert_eq!(at(&job, "left"), Value::Absent("no limit"));
        assert!(at(&job, "waits").why_absent().is_some());
    }

    #[test]
    fn only_jobs_that_run_count_in_sums_and_gpus_are_summed_by_themselves() {
        let adds = |state| adds(&Job::new(JobId(4), "alice".into(), state));
        assert!(adds(JobState::Running) && adds(JobState::Suspended) && adds(JobState::Completing));
        assert!(!adds(JobState::Pending) && !adds(JobState::Ended("CANCELLED".into())));
        let totals = Totals::default();
        for column in columns().iter().filter(|column| matches!(column.id, "util" | "mem" | "power")) {
            assert!(sum(&totals, column.id).is_some(), "{}", column.id);
        }
        assert_eq!(sum(&totals, "gpus"), None);
    }

    #[test]
    fn what_slurm_does_not_say_is_a_dash() {
        let job = Job::new(JobId(4), "alice".into(), JobState::Running);
        for id in ["gpus", "account", "util", "mem", "exit"] {
            assert!(at(&job, id).why_absent().is_some(), "{id}");
        }
    }
}
