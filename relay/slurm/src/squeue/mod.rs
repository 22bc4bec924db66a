//! Parses squeue's output as the selected jobs; job names may contain any bytes.
//!
//! A job's name may contain any byte, hence any fixed separator. Each query therefore uses its own: a
//! random [`Delimiter`], which no name can predict. The name is last nonetheless.

use crate::{Selection, gres};
use nodeglass_hostlist::{self as hostlist, ExpansionBudget};
use nodeglass_protocol::{
    JobId, LongText, NodeName, Text,
    job::{Job, JobState, Parent, TimeLimit},
};
use nodeglass_redact::mask;
use std::collections::{HashMap, HashSet};

/// The field separator of one query; random, so that nothing in a job can imitate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimiter(String);

impl Delimiter {
    /// Generates a random separator.
    pub fn random() -> Self {
        let mut bytes = [0; 6];
        // Without randomness the control characters alone must suffice.
        let _ = getrandom::fill(&mut bytes);
        Self::of(u64::from_be_bytes([0, 0, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]))
    }

    /// A fixed separator, for scripts.
    pub fn of(number: u64) -> Self {
        Self(format!("{number:012x}"))
    }

    fn record(&self) -> String {
        format!("\x1e{}", self.0)
    }

    pub(super) fn field(&self) -> String {
        format!("\x1f{}", self.0)
    }
}

/// The format of each job, in the order of [`Record`]'s fields; the name comes last.
const FIELDS: [&str; 24] = [
    "%A", "%i", "%F", "%K", "%U", "%u", "%T", "%r", "%P", "%q", "%a", "%V", "%S", "%e", "%l", "%D", "%C",
    "%N", "%b", "%E", "%B", "%Z", "%o", "%j",
];

/// squeue's arguments for the selected jobs: of all states (SLURM keeps ended ones for some
/// minutes), in hidden partitions too, on this cluster only. Column titles are included: squeue prints
/// them only after the controller has responded, which distinguishes an empty list from no list.
pub fn args(selection: &Selection, delimiter: &Delimiter) -> Vec<String> {
    let fields = FIELDS.map(|field| format!("{}{field}", delimiter.field())).concat();
    let flags = ["--all", "--local", "--states=all"];
    let mut args: Vec<String> = flags.map(str::to_owned).into();
    args.extend(selection.squeue_options());
    args.push(format!("--format={}{fields}", delimiter.record()));
    args
}

/// The parsed output of squeue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The selected jobs in squeue's order, each id once. Their [`Job::gpus`] are not known yet.
    pub jobs: Vec<Job>,
    /// Those of `jobs` that belong to other users than the viewer.
    pub of_others: HashSet<JobId>,
    /// Jobs that squeue could not leave out, and whether they belong to other users than the viewer.
    pub not_selected: HashMap<JobId, (Job, bool)>,
    /// Records that are not jobs, or not requested jobs.
    pub refused: usize,
    /// Whether there was output outside of records.
    pub noise: bool,
    /// Whether column titles came first: the controller responded, even if it knows no job.
    pub titled: bool,
    /// Whether the last line is incomplete: squeue was killed or its output truncated.
    pub cut_off: bool,
}

impl List {
    /// Returns whether it has the pending rest of an array.
    pub fn has_rest_of(&self, array: Option<JobId>) -> bool {
        let rest = array.map(|job| Parent::Array { job, task: None });
        rest.is_some() && self.jobs.iter().any(|job| job.part_of == rest)
    }
}

impl List {
    /// Adds a job.
    pub fn add(&mut self, job: Job, is_of_other: bool) {
        if is_of_other {
            self.of_others.insert(job.id);
        }
        self.jobs.push(job);
    }
}

/// Parses the output of squeue for [`args`] with the same `selection` and `delimiter`.
pub fn read(out: &[u8], selection: &Selection, delimiter: &Delimiter) -> List {
    let mut list = List::default();
    let (record_mark, field_mark) = (delimiter.record(), delimiter.field());
    let mut records = split(out, record_mark.as_bytes());
    list.noise = records.next().is_some_and(|before| !is_cluster_line(before.trim_ascii()));
    let mut seen = HashSet::new();
    let mut budget = ExpansionBudget::default();
    for (index, line) in records.enumerate() {
        let complete_line = line.strip_suffix(b"\n");
        let record = Record::new(complete_line.unwrap_or(line), field_mark.as_bytes());
        list.cut_off = complete_line.is_none() || record.is_none();
        if index == 0 && record.as_ref().is_some_and(Record::is_titles) {
            list.titled = true;
            continue;
        }
        match record.and_then(|record| Some((record.uid()?, record.job(&mut budget)?))) {
            Some((uid, job)) if selection.contains(&job, uid) && seen.insert(job.id) => {
                list.add(job, uid != selection.viewer);
            }
            Some((uid, job)) if selection.exceeds_squeue() && !seen.contains(&job.id) => {
                list.not_selected.insert(job.id, (job, uid != selection.viewer));
            }
            _ => list.refused += 1,
        }
    }
    list
}

/// Returns whether nothing precedes the records, or the line `CLUSTER: NAME` that `--clusters` adds.
fn is_cluster_line(before: &[u8]) -> bool {
    before.is_empty() || before.starts_with(b"CLUSTER: ") && !before.contains(&b'\n')
}

fn split<'a>(mut bytes: &'a [u8], by: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let at = bytes.windows(by.len()).position(|window| window == by);
        let (piece, rest) = match at {
            Some(at) => (&bytes[..at], &bytes[at + by.len()..]),
            None => (bytes, &bytes[bytes.len()..]),
        };
        done = at.is_none();
        bytes = rest;
        Some(piece)
    })
}

/// The fields of one job as printed.
struct Record<'a>([&'a [u8]; FIELDS.len()]);

impl<'a> Record<'a> {
    fn new(bytes: &'a [u8], field_mark: &'a [u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = split(bytes.strip_prefix(field_mark)?, field_mark).collect();
        Some(Self(fields.try_into().ok()?))
    }

    /// Returns whether it contains the column titles, as SLURM names the first two numbers.
    fn is_titles(&self) -> bool {
        self.0[0] == b"JOBID" && self.0[4] == b"UID"
    }

    /// The uid of its owner.
    fn uid(&self) -> Option<u32> {
        parse(self.0[4])
    }

    /// The job, if it has an id.
    fn job(&self, budget: &mut ExpansionBudget) -> Option<Job> {
        let [id, label, first, task, _, user, state, reason, partition, qos, rest @ ..] = self.0;
        let [account, submitted, start, end, limit, nodes, cpus, hosts, gres, rest @ ..] = rest;
        let [dependency, batch_host, workdir, command, name] = rest;
        let id = JobId(parse(id)?);
        let hosts = hostlist::expand_within(ascii_field(hosts), budget).unwrap_or_else(|error| {
            tracing::warn!(job = id.0, "failed to {error}; the job is shown without its nodes");
            Vec::new()
        });
        let state = job_state(ascii_field(state), hosts.is_empty());
        let node_count = count(ascii_field(nodes)).unwrap_or(hosts.len() as u32);
        let gpus_per_node = gres::count(ascii_field(gres));
        let submitted = moment(submitted);
        let ended = matches!(state, JobState::Ended(_)).then(|| moment(end)).flatten();
        Some(Job {
            label: Text::from_bytes(label),
            part_of: parent(ascii_field(label), ascii_field(first), ascii_field(task)),
            name: Text::from_bytes(name),
            account: known(account),
            partition: Text::from_bytes(partition),
            qos: known(qos),
            reason: known(reason).filter(|reason| reason.as_str() != "None"),
            submitted,
            start: moment(start),
            ended,
            limit: time_limit(ascii_field(limit)),
            nodes: hosts,
            node_count,
            cpus: count(ascii_field(cpus)),
            gpu_count: gpus_per_node.and_then(|gpus| gpus.checked_mul(node_count)),
            dependency: known(dependency),
            batch_host: NodeName::new(ascii_field(batch_host)).ok().filter(|host| host.as_str() != "n/a"),
            workdir: known_long(workdir),
            command: known_long(mask::command(&String::from_utf8_lossy(command)).as_bytes()),
            ..Job::new(id, Text::from_bytes(user), state)
        })
    }
}

/// A field that only SLURM writes; empty if it is not UTF-8.
fn ascii_field(field: &[u8]) -> &str {
    std::str::from_utf8(field).unwrap_or_default().trim()
}

fn parse<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    ascii_field(field).parse().ok()
}

/// Seconds since 1970, up to the year 9999.
fn moment(field: &[u8]) -> Option<i64> {
    parse(field).filter(|seconds| (1..253_402_300_800).contains(seconds))
}

fn known(field: &[u8]) -> Option<Text> {
    let text = Text::from_bytes(field);
    (!matches!(text.as_str(), "" | "(null)" | "N/A")).then_some(text)
}

/// Returns a path or a command, which may be long.
fn known_long(field: &[u8]) -> Option<LongText> {
    let text = LongText::from_bytes(field);
    (!matches!(text.as_str(), "" | "(null)" | "N/A")).then_some(text)
}

/// squeue shortens round numbers: `1K` nodes are 1,024, `1.50K` are 1,536.
fn count(word: &str) -> Option<u32> {
    let (number, unit) = match word.strip_suffix(['K', 'k']) {
        Some(number) => (number, 1024.0),
        None => (word.strip_suffix('M').unwrap_or(word), if word.ends_with('M') { 1_048_576.0 } else { 1.0 }),
    };
    let number: f64 = number.split('-').next()?.parse().ok()?;
    let whole = (number * unit).round();
    (0.0..=f64::from(u32::MAX)).contains(&whole).then_some(whole as u32)
}

fn parent(label: &str, first: &str, task: &str) -> Option<Parent> {
    if let Some((job, offset)) = label.split_once('+') {
        return Some(Parent::Het { job: job.parse().ok()?, offset: offset.parse().ok()? });
    }
    let is_array = !matches!(task, "" | "N/A" | "(null)") && label.contains('_');
    is_array.then(|| Some(Parent::Array { job: first.parse().ok()?, task: task.parse().ok() })).flatten()
}

/// Parses SLURM's name of a state; an unknown one is active if the job has nodes.
pub(super) fn job_state(word: &str, no_nodes: bool) -> JobState {
    match word {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => {
            JobState::Pending
        }
        "CONFIGURING" | "POWER_UP_NODE" => JobState::Configuring,
        "RUNNING" => JobState::Running,
        "SUSPENDED" | "STOPPED" => JobState::Suspended,
        "COMPLETING" => JobState::Completing,
        "COMPLETED" | "CANCELLED" | "FAILED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED" | "BOOT_FAIL"
        | "DEADLINE" | "OUT_OF_MEMORY" | "REVOKED" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => {
            JobState::Ended(word.into())
        }
        _ if no_nodes => JobState::Pending,
        other => JobState::Other(other.into()),
    }
}

/// `[days-]hours:minutes:seconds`, `minutes:seconds`, `UNLIMITED`.
fn time_limit(word: &str) -> TimeLimit {
    if word.eq_ignore_ascii_case("unlimited") {
        return TimeLimit::Unlimited;
    }
    let (days, clock) =
        word.split_once('-').map_or((Some(0), word), |(days, clock)| (days.parse().ok(), clock));
    let seconds = days.and_then(|days: u64| {
        let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        let clock = match parts[..] {
            [minutes, seconds] => [0, minutes, seconds],
            [hours, minutes, seconds] => [hours, minutes, seconds],
            _ => return None,
        };
        let units = [3600, 60, 1];
        clock
            .iter()
            .zip(units)
            .try_fold(days.checked_mul(86_400)?, |sum, (part, unit)| sum.checked_add(part.checked_mul(unit)?))
    });
    seconds.map_or(TimeLimit::Unknown, TimeLimit::Seconds)
}

#[cfg(test)]
mod tests;
