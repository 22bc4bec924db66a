//! The columns of jobs: what SLURM reports about each, and the state of its GPUs.

use super::column::{CellStyle, Column, Sum};
use super::definition::{ColumnDef, Now, computed};
use super::nodes::share;
use super::value::{CellUnit, NO_START, NOT_PENDING, Value};
use crate::describe::job::{bottleneck as bottleneck_name, run_time, time_left};
use crate::domain::health::{Health, state_label};
use crate::domain::job_groups::parent_job;
use crate::domain::text;
use crate::domain::totals::Totals;
use nodeglass_protocol::insight::{JobInsight, JobProgress};
use nodeglass_protocol::job::{Job, JobState, TimeLimit};
use nodeglass_protocol::{JobField, NodeName};
use nodeglass_rules::health::slurm_state;

/// A job with the totals of its GPUs.
pub struct JobRow<'a> {
    /// The job.
    pub job: &'a Job,
    /// The totals of its GPUs.
    pub totals: Totals,
    /// Its health.
    pub health: &'a Health,
    /// Further conclusions about it.
    pub insight: Option<&'a JobInsight>,
    /// The current time, for what is left.
    pub now: Now,
}

// A job's row has no readings of its own: the field type is a placeholder.
type Def = ColumnDef<fn(&JobRow<'_>) -> Value, JobField>;

const fn text_column(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Text, width, about)
}

const fn span(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Span, 96, about)
}

static COLUMNS: &[Def] = &[
    computed(text_column("name", "Name", 160, "its name").rank(0).grows().style(CellStyle::Custom), |row| {
        Value::text(row.job.name.as_str())
    }),
    computed(text_column("job", "Job", 82, "its number").rank(2).grows().aliases(&["id"]), |row| {
        Value::text(row.job.label.as_str())
    }),
    computed(
        text_column("cells", "GPUs now", 118, "a cell for each GPU, brighter is busier")
            .rank(4)
            .grows()
            .style(CellStyle::Graphic),
        |_| Value::NONE,
    ),
    computed(
        Column::new("util", "Utilisation", CellUnit::Percent, 104, "mean of its GPUs")
            .rank(1)
            .style(CellStyle::Util)
            .sum(Sum::Mean),
        |row| Value::number(row.totals.util_pct()),
    ),
    computed(
        Column::new("gpus", "GPUs", CellUnit::Count, 56, "GPUs that it has or asks for")
            .rank(3)
            .sum(Sum::Total),
        |row| match row.job.gpu_count {
            Some(count) => Value::Number(count.into()),
            None => Value::Absent("unknown: SLURM does not state them"),
        },
    ),
    computed(
        Column::new("nodes", "Nodes", CellUnit::Count, 60, "nodes that it has or asks for").rank(5),
        |row| Value::Number(row.job.node_count.into()),
    ),
    computed(
        Column::new("mem", "Memory", CellUnit::Gib, 112, "device memory in use of all its GPUs")
            .rank(6)
            .sum(Sum::Total),
        |row| share(row.totals.mem),
    ),
    computed(
        Column::new("power", "Power", CellUnit::Watt, 124, "power of its GPUs, of the limits in force")
            .sum(Sum::Total),
        |row| share(row.totals.power),
    ),
    computed(
        text_column("state", "State", 190, "its problem, why it waits, or how it ended")
            .rank(1)
            .grows()
            .style(CellStyle::Custom),
        state,
    ),
    computed(span("left", "Left", "time until its limit").rank(0), left),
    computed(Column::new("progress", "Progress", CellUnit::Percent, 76, "progress by its log"), progress),
    computed(text_column("limited_by", "Limited by", 124, "what limits the speed of its GPUs"), limited_by),
    computed(span("time", "Run time", "since it started"), |row| {
        Value::number(run_time(row.job, row.now.wall_s))
    }),
    computed(span("limit", "Limit", "how long it may run"), limit),
    computed(span("waits", "Waiting", "since it was submitted"), waiting_time),
    computed(span("starts", "Starts in", "until SLURM expects to start it").rank(7), starts),
    computed(text_column("user", "User", 88, "whose it is"), |row| Value::text(row.job.user.as_str())),
    computed(text_column("partition", "Partition", 92, "where it runs, or may run").rank(7), |row| {
        Value::text(row.job.partition.as_str())
    }),
    computed(text_column("account", "Account", 96, "who pays"), |row| text_or_none(row.job.account.as_ref())),
    computed(text_column("qos", "QOS", 84, "its quality of service"), |row| {
        text_or_none(row.job.qos.as_ref())
    }),
    computed(
        Column::new("cpus", "CPUs", CellUnit::Count, 64, "CPUs that it has or asks for").sum(Sum::Total),
        |row| Value::number(row.job.cpus.map(Into::into)),
    ),
    computed(
        Column::new("ram", "RAM", CellUnit::Gib, 90, "host memory that it has or asks for").sum(Sum::Total),
        |row| Value::number(row.job.mem_bytes),
    ),
    computed(
        text_column("part_of", "Part of", 92, "the array or heterogeneous job that it belongs to")
            .aliases(&["array"]),
        part_of,
    ),
    computed(text_column("dependency", "Waits for", 150, "jobs that must end first"), |row| {
        text_or_none(row.job.dependency.as_ref())
    }),
    computed(text_column("exit", "Exit", 58, "how it ended: code and signal"), |row| {
        text_or_none(row.job.exit.as_ref())
    }),
    computed(
        Column::new("restarts", "Restarts", CellUnit::Count, 76, "how often it was started again"),
        |row| Value::Number(row.job.restarts.into()),
    ),
    computed(text_column("batch_host", "Batch node", 112, "where its script runs"), |row| {
        text_or_none(row.job.batch_host.as_ref())
    }),
    computed(
        text_column("node_names", "Node names", 200, "the nodes that it has").aliases(&["node"]),
        node_names,
    ),
    computed(text_column("workdir", "Folder", 220, "its working directory"), |row| {
        text_or_none(row.job.workdir.as_ref())
    }),
    computed(text_column("command", "Command", 220, "its script"), |row| {
        text_or_none(row.job.command.as_ref())
    }),
];

/// Returns the columns in their default order; user and account are shown by default if the jobs belong to
/// `several_users`.
pub fn columns(several_users: bool) -> Vec<Column> {
    let columns = COLUMNS.iter().map(|column| column.column);
    let ranked = columns.map(|column| match column.id {
        "user" if several_users => column.rank(1),
        "account" if several_users => column.rank(6),
        _ => column,
    });
    ranked.collect()
}

/// Returns the value of a column.
pub fn value(row: &JobRow<'_>, column: usize) -> Value {
    match COLUMNS.get(column).map(|column| &column.read) {
        Some(super::definition::ColumnReader::Computed(read)) => read(row),
        _ => Value::NONE,
    }
}

/// Returns whether a job counts in the sums: a pending or ended one has no GPUs now.
pub fn counts_in_totals(job: &Job) -> bool {
    job.is_active()
}

/// Returns whether a job has ended.
pub fn has_ended(job: &Job) -> bool {
    matches!(job.state, JobState::Ended(_))
}

/// Returns which rows of jobs are shown until the others are unfolded, by their index, and what the others are in words:
/// the first `most` that have not ended, or of the ended ones if all have. `None` if that hides at most one row.
pub fn folded(is_ended: &[bool], most: usize) -> Option<(Vec<usize>, String)> {
    let all_of = |ended: bool| (0..is_ended.len()).filter(move |at| is_ended[*at] == ended);
    let ended = all_of(true).count();
    let listed = is_ended.len() - ended;
    let shown: Vec<usize> = all_of(listed == 0).take(most).collect();
    let more = if listed == 0 { ended } else { listed }.saturating_sub(shown.len());
    let more = (more > 0).then(|| format!("{} more", text::grouped(more as u64)));
    let ended = (listed > 0 && ended > 0).then(|| format!("{} ended", text::grouped(ended as u64)));
    let rest: Vec<String> = more.into_iter().chain(ended).collect();
    (is_ended.len() > shown.len() + 1).then(|| (shown, rest.join(" · ")))
}

/// Returns the aggregate of a column about GPUs, given the totals of all listed jobs; `None` where it is the
/// sum of the column's values.
pub fn sum(totals: &Totals, column: &str) -> Option<Value> {
    match column {
        // Jobs may share a GPU, and what they ask for need not be what they have.
        "gpus" => Some(Value::Number(totals.gpus as u64)),
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

fn progress(row: &JobRow<'_>) -> Value {
    let progress = row.insight.and_then(|insight| insight.progress.as_ref());
    Value::number(progress.and_then(JobProgress::ratio).map(|ratio| (ratio * 100.0) as u64))
}

fn limited_by(row: &JobRow<'_>) -> Value {
    let bottleneck = row.insight.and_then(|insight| insight.bottleneck.as_ref());
    Value::text(bottleneck.map(|limit| bottleneck_name(limit.kind)).unwrap_or_default())
}

fn limit(row: &JobRow<'_>) -> Value {
    match row.job.limit {
        TimeLimit::Seconds(limit) => Value::Number(limit),
        TimeLimit::Unlimited => Value::Absent("no limit"),
        TimeLimit::Unknown => Value::Absent("SLURM did not say"),
    }
}

fn waiting_time(row: &JobRow<'_>) -> Value {
    if row.job.state != JobState::Pending {
        return NOT_PENDING;
    }
    Value::number(row.job.submitted.map(|since| row.now.wall_s.saturating_sub(since).max(0).cast_unsigned()))
}

fn starts(row: &JobRow<'_>) -> Value {
    if row.job.state != JobState::Pending {
        return NOT_PENDING;
    }
    match row.job.start {
        Some(at) => Value::Number(at.saturating_sub(row.now.wall_s).max(0).cast_unsigned()),
        None => NO_START,
    }
}

fn state(row: &JobRow<'_>) -> Value {
    let label = row.health.label.as_str();
    let (state, slurm) = (state_label(row.job), slurm_state(&row.job.state).to_lowercase());
    // A filter also finds a job by a word without its reason or the count of further problems, by its state, with any
    // problem, and by SLURM's word for it.
    let problem = label.rsplit_once(" +").map_or(label, |(problem, _)| problem);
    let without_reason = |text: &str| text.split(" (").next().unwrap_or_default().to_owned();
    Value::Tagged(label.to_owned(), vec![without_reason(problem), without_reason(&state), slurm])
}

fn node_names(row: &JobRow<'_>) -> Value {
    let names: Vec<String> = row.job.nodes.iter().map(NodeName::to_string).collect();
    if names.is_empty() { Value::NONE } else { Value::Tagged(names.join("; "), names) }
}

fn part_of(row: &JobRow<'_>) -> Value {
    text_or_none(parent_job(row.job).as_ref())
}

fn text_or_none<T: ToString>(text: Option<&T>) -> Value {
    Value::text(text.map(ToString::to_string).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::severity::Severity;
    use crate::table::column::find;
    use crate::table::filter::Filter;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::insight::{Bottleneck, BottleneckKind};

    fn at(job: &Job, id: &str) -> Value {
        let health = Health { severity: Severity::Ok, label: state_label(job) };
        let now = Now { relay_ms: 0, wall_s: 1_100 };
        value(
            &JobRow { job, totals: Totals::default(), health: &health, insight: None, now },
            find(&columns(false), id).unwrap(),
        )
    }

    #[test]
    fn ended_jobs_and_those_beyond_the_first_screen_are_folded() {
        let fold = |ended: &[usize], all: usize, most| {
            let is_ended: Vec<bool> = (0..all).map(|at| ended.contains(&at)).collect();
            folded(&is_ended, most)
        };
        assert_eq!(fold(&[0, 2, 3], 6, 8), Some((vec![1, 4, 5], "3 ended".to_owned())));
        assert_eq!(fold(&[0, 2], 9, 4), Some((vec![1, 3, 4, 5], "3 more · 2 ended".to_owned())));
        assert_eq!(fold(&[0, 1, 2, 3], 4, 2), Some((vec![0, 1], "2 more".to_owned())), "all have ended");
        assert_eq!(fold(&[2], 3, 8), None, "a button takes as much room as the row that it hides");
        assert_eq!(fold(&[], 0, 8), None);
    }

    #[test]
    fn a_pending_job_shows_its_reason_and_expected_start() {
        let mut job = Job::new(JobId(4), "alice".into(), JobState::Pending);
        job.reason = Some("Priority".into());
        job.submitted = Some(1_000);
        job.start = Some(1_700);
        assert_eq!(at(&job, "state").line(CellUnit::Text), "waiting (Priority)");
        assert_eq!((at(&job, "waits"), at(&job, "starts")), (Value::Number(100), Value::Number(600)));
        assert!(at(&job, "left").why_absent().is_some());
        assert!(at(&job, "time").why_absent().is_some());
    }

    #[test]
    fn a_job_is_found_by_its_problem_its_state_and_each_of_its_nodes() {
        let nodes = ["g01", "g02"].map(|name| NodeName::new(name).unwrap()).to_vec();
        let job = Job { nodes, ..Job::new(JobId(4), "alice".into(), JobState::Running) };
        let health = Health { severity: Severity::Error, label: "looks hung +1".into() };
        let now = Now { relay_ms: 0, wall_s: 1_100 };
        let row = JobRow { job: &job, totals: Totals::default(), health: &health, insight: None, now };
        let columns = columns(false);
        let finds =
            |filter: &str| Filter::parse(filter, &columns).unwrap().passes(&columns, &|at| value(&row, at));
        for filter in [r#"state="looks hung""#, "state=running", "node=g02", "node:g0?", "g02"] {
            assert!(finds(filter), "{filter}");
        }
        assert!(!finds("node=g0") && !finds("state=hung"));
    }

    #[test]
    fn a_running_job_shows_the_time_left() {
        let mut job = Job::new(JobId(4), "alice".into(), JobState::Running);
        job.start = Some(1_000);
        job.limit = TimeLimit::Seconds(600);
        assert_eq!((at(&job, "left"), at(&job, "time")), (Value::Number(500), Value::Number(100)));
        job.limit = TimeLimit::Unlimited;
        assert_eq!(at(&job, "left"), Value::Absent("no limit"));
        assert_eq!(at(&job, "state").line(CellUnit::Text), "running");
        let hot = Health::new(Severity::Warning, "GPU 3 too hot");
        let row = JobRow {
            job: &job,
            totals: Totals::default(),
            health: &hot,
            insight: None,
            now: Now { relay_ms: 0, wall_s: 0 },
        };
        assert_eq!(state(&row).line(CellUnit::Text), "GPU 3 too hot");
        assert!(state(&row).searched(CellUnit::Text).contains(&"running".to_owned()));
        assert!(at(&job, "waits").why_absent().is_some());
    }

    #[test]
    fn a_job_shows_how_far_it_is_and_what_limits_it() {
        let job = Job::new(JobId(4), "alice".into(), JobState::Running);
        let progress = JobProgress {
            label: "epoch".into(),
            done: 5.0,
            total: Some(12.0),
            epoch: None,
            rate_per_s: None,
            advanced_at_ms: 0,
            end: None,
            part_end: None,
        };
        let bottleneck = Bottleneck { kind: BottleneckKind::MemoryBandwidth, evidence: "".into() };
        let insight = JobInsight { job: job.id, progress: Some(progress), bottleneck: Some(bottleneck) };
        let health = Health { severity: Severity::Ok, label: state_label(&job) };
        let row = |insight| {
            let row = JobRow {
                job: &job,
                totals: Totals::default(),
                health: &health,
                insight,
                now: Now { relay_ms: 0, wall_s: 0 },
            };
            (super::progress(&row), limited_by(&row))
        };
        let known = (Value::Number(41), Value::text("memory bandwidth"));
        assert_eq!(row(Some(&insight)), known);
        let (progress, limit) = row(None);
        assert!(progress.why_absent().is_some() && limit.why_absent().is_some());
    }

    #[test]
    fn only_running_jobs_count_and_shared_gpus_count_once() {
        let counts_in_totals = |state| counts_in_totals(&Job::new(JobId(4), "alice".into(), state));
        assert!(
            counts_in_totals(JobState::Running)
                && counts_in_totals(JobState::Suspended)
                && counts_in_totals(JobState::Completing)
        );
        assert!(
            !counts_in_totals(JobState::Pending) && !counts_in_totals(JobState::Ended("CANCELLED".into()))
        );
        let totals = Totals::default();
        for column in
            columns(false).iter().filter(|column| matches!(column.id, "gpus" | "util" | "mem" | "power"))
        {
            assert!(sum(&totals, column.id).is_some(), "{}", column.id);
        }
        let mut shared = totals;
        shared.gpus = 148;
        assert_eq!(sum(&shared, "gpus"), Some(Value::Number(148)));
        assert_eq!(sum(&totals, "cpus"), None);
    }

    #[test]
    fn user_and_account_are_shown_by_default_among_jobs_of_several_users() {
        let is_shown = |several: bool| {
            let columns = columns(several);
            ["user", "account"].map(|id| columns[find(&columns, id).unwrap()].rank != Column::HIDDEN)
        };
        assert_eq!((is_shown(false), is_shown(true)), ([false; 2], [true; 2]));
    }

    #[test]
    fn what_slurm_does_not_report_is_a_dash() {
        let job = Job::new(JobId(4), "alice".into(), JobState::Running);
        for id in ["gpus", "account", "util", "mem", "exit"] {
            assert!(at(&job, id).why_absent().is_some(), "{id}");
        }
    }
}
