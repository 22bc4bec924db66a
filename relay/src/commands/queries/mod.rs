//! Queries of the current state for terminals and scripts: `relay findings`, `list`, `available`, `wait-free`, `fit`, `jobs`, `ps`,
//! `gpu` and `wait`.
//!
//! They read the resources of the HTTP API from the running relay; where none runs, they watch on their own until they
//! have an answer, and leave nothing behind.

mod age;
mod available;
mod findings;
mod fit;
mod free_in_slurm;
mod gpu;
mod jobs;
mod list;
mod processes;
mod silences;
mod source;
mod wait;

use nodeglass_api::{Gpu, JobSelector, NotOneJob, Snapshot};
use nodeglass_app::Signals;
use nodeglass_config::{Config, FindingsArgs, FindingsCommand, ListArgs, Query, Requested};
use nodeglass_platform::wrap;
use nodeglass_protocol::{LongText, NodeName};
use nodeglass_rules::text::aligned;
use nodeglass_slurm::command::Commands;
use nodeglass_top::line_width;
use serde::Serialize;
use source::Source;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// Exit codes besides those of every command (0, 1 for a failure, 2 for invalid usage).
pub mod exit_code {
    /// A failure.
    pub const FAILURE: u8 = 1;
    /// The requested object does not exist, or the event did not happen in time.
    pub const NOT_MET: u8 = 3;
    /// The job ended without success.
    pub const JOB_FAILED: u8 = 4;
    /// All GPUs of the job are idle.
    pub const STALLED: u8 = 5;
    /// A signal ended the query: what a shell returns for Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

/// The answer to a query.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The output.
    pub text: String,
    /// The text for standard error, a complete sentence.
    pub notice: Option<String>,
    /// The exit code.
    pub code: u8,
}

impl Answer {
    fn text(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    fn json<T: Serialize>(value: &T) -> anyhow::Result<Self> {
        Ok(Self::text(format!("{}\n", serde_json::to_string_pretty(value)?)))
    }

    fn not_met(notice: String) -> Self {
        Self { text: String::new(), notice: Some(notice), code: exit_code::NOT_MET }
    }

    /// With a further line on standard error, if there is one.
    fn with_notice(self, line: Option<String>) -> Self {
        let lines: Vec<String> = self.notice.into_iter().chain(line).collect();
        Self { notice: (!lines.is_empty()).then(|| lines.join("\n")), ..self }
    }

    /// With lines no longer than `width`, broken between words; what follows is indented further.
    fn in_lines_of(self, width: Option<usize>) -> Self {
        let Some(width) = width else { return self };
        let mut text = String::with_capacity(self.text.len());
        for line in self.text.lines() {
            let indent = line.len() - line.trim_start().len();
            let room = width.saturating_sub(indent + 2).max(20);
            let broken = if line.chars().count() > width {
                wrap::words(line, room)
            } else {
                vec![line[indent..].to_owned()]
            };
            for (at, part) in broken.iter().enumerate() {
                let further = if at > 0 { 2 } else { 0 };
                let _ = writeln!(text, "{:1$}{part}", "", indent + further);
            }
            if broken.is_empty() {
                text.push('\n');
            }
        }
        Self { text, ..self }
    }

    /// With an empty list, if the output is JSON.
    fn into_json_list(self, json: bool) -> anyhow::Result<Self> {
        Ok(if json { Self { text: "[]\n".to_owned(), ..self } } else { self })
    }

    /// The exit code as a program returns it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// Answers a query. `config` says what to watch where no relay runs.
///
/// # Errors
/// A complete sentence for the user.
pub async fn answer(query: Query, config: Config, requested: Option<Requested>) -> anyhow::Result<Answer> {
    // SLURM itself is asked where jobs fit, with or without a relay.
    if let Query::Fit(args) = query {
        return fit::answer(args, config.cluster, &config.partitions).await;
    }
    if let Query::Findings(FindingsArgs { command: Some(command), .. }) = query {
        return match command {
            FindingsCommand::Explain { kinds } => Ok(findings::explain(&kinds)),
            FindingsCommand::Silence(args) => silences::silence(args).await,
            FindingsCommand::Silences { json, which } => silences::list(&which, json).await,
        };
    }
    let signals = Signals::listen()?;
    if let Query::WaitFree(args) = &query
        && args.slurm
    {
        let mut commands = Commands::new().for_cluster(config.cluster);
        return tokio::select! {
            answer = free_in_slurm::wait(&mut commands, args, &config.partitions) => answer,
            _ = signals.wait() => Ok(Answer { code: exit_code::INTERRUPTED, ..Answer::default() }),
        };
    }
    let mut source = Source::open(query.relay(), config, requested.as_ref()).await?;
    let answer = tokio::select! {
        answer = answer_from(&mut source, query) => answer,
        _ = signals.wait() => Ok(Answer { code: exit_code::INTERRUPTED, ..Answer::default() }),
    };
    // Also after an error or a signal: no probe that was started is left behind.
    source.close().await;
    answer
}

async fn answer_from(source: &mut Source, query: Query) -> anyhow::Result<Answer> {
    source.settle().await?;
    match query {
        Query::Findings(args) if args.watch => return findings::watch(source, &args).await,
        Query::WaitFree(args) => return available::wait(source, &args).await,
        Query::Wait(args) => return wait::answer(source, &args).await,
        _ => {}
    }
    let snapshot = source.snapshot_with(query.job()).await?;
    let slurm = source.slurm().await?;
    let answer = match &query {
        Query::List(args) => list::answer(&snapshot, args),
        Query::Findings(args) => {
            let answer = findings::answer(&snapshot, source.observed().await?, args)?;
            Ok(if args.json { answer } else { answer.in_lines_of(line_width()) })
        }
        Query::Jobs(args) => jobs::answer(&snapshot, args, age::as_of_s(&snapshot, &slurm), line_width()),
        Query::Ps(args) => processes::answer(&snapshot, args),
        Query::Gpu(args) => gpu::answer(&snapshot, args),
        Query::Available(args) => available::answer(&snapshot, args),
        Query::WaitFree(_) | Query::Wait(_) | Query::Fit(_) => Ok(Answer::default()),
    }?;
    let is_for_people = std::io::stderr().is_terminal() && answer.code == 0 && !answer.text.is_empty();
    let age = match (slurm.staleness(), &query) {
        (Some(stale), _) => Some(stale),
        // Sums are of the nodes that can be read.
        (None, Query::Jobs(_)) if is_for_people => {
            age::of_lost(&snapshot, None, age::now_ms(&snapshot)).or_else(|| age::of_jobs(&slurm))
        }
        (None, Query::List(ListArgs { node, .. }) | Query::Ps(ListArgs { node, .. })) => {
            let now_ms = age::now_ms(&snapshot);
            let readings = || is_for_people.then(|| age::of_readings(&snapshot, now_ms)).flatten();
            age::of_lost(&snapshot, node.as_ref(), now_ms).or_else(readings)
        }
        _ => None,
    };
    Ok(answer.with_notice(age))
}

/// Returns the unknown filter of a list.
fn unknown_in_list(snapshot: &Snapshot, args: &ListArgs) -> Option<Answer> {
    unknown(snapshot, args.node.as_ref(), args.job.as_ref(), args.login.as_ref())
}

/// The answer to a query about a node, job or user that is not there.
fn unknown(
    snapshot: &Snapshot,
    node: Option<&NodeName>,
    job: Option<&JobSelector>,
    user: Option<&String>,
) -> Option<Answer> {
    let has_node = |node: &NodeName| snapshot.nodes.iter().any(|known| known.name == node.as_str());
    let has_job = |job: &JobSelector| {
        let ids = job.ids(&snapshot.jobs);
        let owns = |gpu: &Gpu| gpu.jobs.iter().any(|owner| ids.contains(&owner.job));
        !job.select(&snapshot.jobs).is_empty() || snapshot.gpus.iter().any(owns)
    };
    let has_user = |user: &String| {
        snapshot.jobs.iter().any(|job| job.user == *user)
            || snapshot.processes.iter().any(|process| process.user.as_ref() == Some(user))
    };
    let several = job.and_then(|job| job.of_one_cluster(&snapshot.jobs).err());
    let why = match (node, job, user) {
        _ if several.is_some() => several?.to_string(),
        (Some(node), ..) if !has_node(node) => no_node(snapshot, node),
        (_, Some(job), _) if !has_job(job) => NotOneJob::None(job.clone()).to_string(),
        (.., Some(user)) if !has_user(user) => {
            format!("{user} has no job in the list, and no process on a GPU")
        }
        _ => return None,
    };
    Some(Answer::not_met(why))
}

/// States that a node is not watched, with those of several clusters that have its name.
fn no_node(snapshot: &Snapshot, node: &NodeName) -> String {
    let prefix = format!("{node}.");
    let longer: Vec<_> =
        snapshot.nodes.iter().map(|known| &*known.name).filter(|name| name.starts_with(&prefix)).collect();
    match &longer[..] {
        [] => format!("no node {node} is watched"),
        longer => format!("no node {node} is watched; choose {}", longer.join(" or ")),
    }
}

/// A table with a header; `-` for empty cells. The first `texts` columns are aligned to the left, and so is the last.
fn table(header: &[&str], rows: Vec<Vec<String>>, texts: usize) -> String {
    table_with(header, rows, |column| column >= texts && column + 1 < header.len())
}

/// A table of which the columns that `is_number` selects are aligned to the right.
fn table_with(header: &[&str], mut rows: Vec<Vec<String>>, is_number: impl Fn(usize) -> bool) -> String {
    for cell in rows.iter_mut().flatten() {
        // Something else than a relay may have sent it.
        *cell = LongText::new(&*cell).to_string();
        if cell.is_empty() {
            cell.push('-');
        }
    }
    rows.insert(0, header.iter().map(|title| (*title).to_owned()).collect());
    aligned(&rows, is_number).into_iter().map(|line| line + "\n").collect()
}

/// A value, or a dash where there is none.
fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns a time in the past, as `2 days ago`.
fn ago(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{} ago", if number == 1 { "" } else { "s" })
}

/// A duration as SLURM writes it: `1-02:03:04`, `2:03:04`, `3:04`.
fn clock(seconds: u64) -> String {
    let (days, hours, minutes, seconds) =
        (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests;
