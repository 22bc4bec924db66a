//! squeue's list becomes jobs of one user, whatever bytes the jobs' names are made of.
//!
//! A job's name may hold any byte, so also any separator that we could agree on. Each query therefore
//! brings its own: a [`Mark`] drawn at random, which no name can know. The name stands last all the same.

use super::gres;
use super::hostlist::{self, Room};
use nodeglass_protocol::{
    JobId, LongText, NodeName, Text,
    job::{Job, JobState, Parent, TimeLimit},
    mask,
};

/// What separates the fields of one query's answer; random, so that nothing in a job can imitate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// Draws a new one.
    pub fn random() -> Self {
        let mut bytes = [0; 6];
        // Without randomness the control characters alone must do.
        let _ = getrandom::fill(&mut bytes);
        Self::of(u64::from_be_bytes([0, 0, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]))
    }

    /// A given one, for scripts.
    pub fn of(number: u64) -> Self {
        Self(format!("{number:012x}"))
    }

    fn record(&self) -> String {
        format!("\x1e{}", self.0)
    }

    fn field(&self) -> String {
        format!("\x1f{}", self.0)
    }
}

/// What is asked of each job, in the order of [`Record`]'s fields; the name comes last.
const FIELDS: [&str; 24] = [
    "%A", "%i", "%F", "%K", "%U", "%u", "%T", "%r", "%P", "%q", "%a", "%V", "%S", "%e", "%l", "%D", "%C",
    "%N", "%b", "%E", "%B", "%Z", "%o", "%j",
];

/// squeue's arguments for the jobs of the user `uid`: of all states (SLURM keeps ended ones for some
/// minutes), in hidden partitions too, on this cluster only. The titles of the columns are wanted: squeue prints them
/// only after the controller has answered, so that they tell an empty list from no list.
pub fn args(uid: u32, mark: &Mark) -> Vec<String> {
    let fields = FIELDS.map(|field| format!("{}{field}", mark.field())).concat();
    let words = ["--all", "--local", "--states=all"];
    let mut args: Vec<String> = words.map(str::to_owned).into();
    args.push(format!("--user={uid}"));
    args.push(format!("--format={}{fields}", mark.record()));
    args
}

/// What squeue printed, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The user's jobs in squeue's order; each number once. Their [`Job::gpus`] are not known yet.
    pub jobs: Vec<Job>,
    /// Records that are no job, or not the user's.
    pub refused: usize,
    /// Whether something was printed that belongs to no record.
    pub noise: bool,
    /// Whether the titles of the columns came first: the controller answered, even if it knows no job.
    pub titled: bool,
    /// Whether the last line is incomplete: something ended squeue or cut its output off.
    pub cut_off: bool,
}

/// Reads what squeue printed for [`args`] of the same `uid` and `mark`.
pub fn read(out: &[u8], uid: u32, mark: &Mark) -> List {
    let mut list = List::default();
    let (record_mark, field_mark) = (mark.record(), mark.field());
    let mut records = split(out, record_mark.as_bytes());
    list.noise = records.next().is_some_and(|before| !before.trim_ascii().is_empty());
    let mut seen = std::collections::HashSet::new();
    let mut room = Room::default();
    for (index, line) in records.enumerate() {
        let whole_line = line.strip_suffix(b"\n");
        let record = Record::new(whole_line.unwrap_or(line), field_mark.as_bytes());
        list.cut_off = whole_line.is_none() || record.is_none();
        if index == 0 && record.as_ref().is_some_and(Record::is_titles) {
            list.titled = true;
            continue;
        }
        match record.and_then(|record| record.job(uid, &mut room)) {
            Some(job) if seen.insert(job.id) => list.jobs.push(job),
            _ => list.refused += 1,
        }
    }
    list
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

    /// Whether it holds the titles of the columns, as SLURM names the first two numbers.
    fn is_titles(&self) -> bool {
        self.0[0] == b"JOBID" && self.0[4] == b"UID"
    }

    /// The job, if it is the user's and has a number.
    fn job(&self, uid: u32, room: &mut Room) -> Option<Job> {
        let [id, label, first, task, owner, user, state, reason, partition, qos, rest @ ..] = self.0;
        let [account, submitted, start, end, limit, nodes, cpus, hosts, gres, rest @ ..] = rest;
        let [dependency, batch_host, workdir, command, name] = rest;
        if parse::<u32>(owner)? != uid {
            return None;
        }
        let id = JobId(parse(id)?);
        let hosts = hostlist::expand_within(word(hosts), room).unwrap_or_else(|error| {
            tracing::warn!(job = id.0, "failed to {error}; the job is shown without its nodes");
            Vec::new()
        });
        let state = job_state(word(state), hosts.is_empty());
        let node_count = count(word(nodes)).unwrap_or(hosts.len() as u32);
        let gpus_per_node = gres::count(word(gres));
        let submitted = moment(submitted);
        let ended = matches!(state, JobState::Ended(_)).then(|| moment(end)).flatten();
        Some(Job {
            label: Text::from_bytes(label),
            part_of: parent(word(label), word(first), word(task)),
            name: Text::from_bytes(name),
            account: known(account),
            partition: Text::from_bytes(partition),
            qos: known(qos),
            reason: known(reason).filter(|reason| reason.as_str() != "None"),
            submitted,
            start: moment(start),
            ended,
            limit: time_limit(word(limit)),
            nodes: hosts,
            node_count,
            cpus: count(word(cpus)),
            gpu_count: gpus_per_node.and_then(|gpus| gpus.checked_mul(node_count)),
            dependency: known(dependency),
            batch_host: NodeName::new(word(batch_host)).ok().filter(|host| host.as_str() != "n/a"),
            workdir: told(workdir),
            command: told(mask::command(&String::from_utf8_lossy(command)).as_bytes()),
            ..Job::new(id, Text::from_bytes(user), state)
        })
    }
}

/// A field that only SLURM writes; what is not UTF-8 there is as good as empty.
fn word(field: &[u8]) -> &str {
    std::str::from_utf8(field).unwrap_or_default().trim()
}

fn parse<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    word(field).parse().ok()
}

/// Seconds since 1970, up to the year 9999: with what lies beyond nobody can reckon.
fn moment(field: &[u8]) -> Option<i64> {
    parse(field).filter(|seconds| (1..253_402_300_800).contains(seconds))
}

fn known(field: &[u8]) -> Option<Text> {
    let text = Text::from_bytes(field);
    (!matches!(text.as_str(), "" | "(null)" | "N/A")).then_some(text)
}

/// The same for a path or a command, which may be long.
fn told(field: &[u8]) -> Option<LongText> {
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

/// SLURM's word for a state; one that we do not know holds nodes if it has some.
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
#[path = "squeue_tests.rs"]
mod tests;
