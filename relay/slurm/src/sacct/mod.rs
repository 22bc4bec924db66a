//! Parses sacct's output: what SLURM's accounting states about jobs that have ended.

pub mod ended;

use super::squeue::{Delimiter, job_state};
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::report::Accounting;
use nodeglass_protocol::{JobId, Text};
use nodeglass_rules::run::REQUEUED;
use std::collections::BTreeMap;

/// The format of each job and step. The reason comes last, because an administrator may write it.
const FIELDS: &str = "JobIDRaw,State,ExitCode,DerivedExitCode,MaxRSS,Start,End,ElapsedRaw";
/// Number of fields without the reason.
const FIELD_COUNT: usize = 8;
/// The field that SLURM before 20.11 does not know.
const REASON: &str = ",Reason";

/// Statement of accounting about one run of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its start in s since 1970.
    pub start_s: Option<i64>,
    /// The rest; `None` while the record of the job is not complete.
    pub accounting: Option<Accounting>,
}

/// sacct's arguments for these jobs and their steps.
pub fn args(jobs: &[JobId], delimiter: &Delimiter, with_reason: bool) -> Vec<String> {
    let jobs: Vec<_> = jobs.iter().map(JobId::to_string).collect();
    let reason = if with_reason { REASON } else { "" };
    vec![
        "--allusers".to_owned(),
        // Each run of a requeued job.
        "--duplicates".to_owned(),
        "--noheader".to_owned(),
        "--parsable2".to_owned(),
        // Without it, 10 MiB may be printed as 10M or as 10240K.
        "--units=K".to_owned(),
        format!("--delimiter={}", delimiter.field()),
        format!("--format={FIELDS}{reason}"),
        format!("--jobs={}", jobs.join(",")),
    ]
}

/// Returns whether a failure means that this SLURM has no field for the reason.
pub fn lacks_reason(message: &str) -> bool {
    message.contains("Invalid field requested") && message.contains("Reason")
}

/// Parses the output of sacct for [`args`] with the same `delimiter`, as the runs of each job. Skips lines that do not belong
/// to a job or its steps.
pub fn read(out: &[u8], delimiter: &Delimiter) -> BTreeMap<JobId, Vec<Entry>> {
    let out = String::from_utf8_lossy(out);
    let mark = delimiter.field();
    let mut runs: BTreeMap<JobId, Vec<Entry>> = BTreeMap::new();
    for line in out.lines().filter_map(|line| Line::parse(line, &mark)) {
        if !line.is_step {
            runs.entry(line.job).or_default().push(line.entry());
            continue;
        }
        // The steps of a run follow it.
        let run = runs.get_mut(&line.job).and_then(|runs| runs.last_mut());
        if let Some(accounting) = run.and_then(|run| run.accounting.as_mut()) {
            accounting.max_rss_bytes = accounting.max_rss_bytes.max(size(line.max_rss));
        }
    }
    runs
}

/// Returns the state of a run that is over, as a list of jobs has it: `CANCELLED` of `CANCELLED by 2001`. In a list, a requeued
/// job waits; in accounting, `REQUEUED` is how its run ended.
fn ended_state(state: &str) -> Option<JobState> {
    match state.split(' ').next().unwrap_or_default() {
        REQUEUED => Some(JobState::Ended(REQUEUED.into())),
        state => Some(job_state(state, true)).filter(|state| matches!(state, JobState::Ended(_))),
    }
}

/// A line of the output.
struct Line<'a> {
    job: JobId,
    is_step: bool,
    state: &'a str,
    exit: &'a str,
    derived_exit: &'a str,
    max_rss: &'a str,
    start: &'a str,
    end: &'a str,
    elapsed: &'a str,
    reason: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str, mark: &str) -> Option<Self> {
        let mut fields = line.splitn(FIELD_COUNT + 1, mark);
        let mut next = || fields.next();
        let (id, state, exit, derived_exit) = (next()?, next()?, next()?, next()?);
        let (max_rss, start, end, elapsed) = (next()?, next()?, next()?, next()?);
        let reason = next().unwrap_or_default();
        let (id, is_step) = id.split_once('.').map_or((id, false), |(id, _)| (id, true));
        let job = JobId(id.parse().ok()?);
        Some(Self { job, is_step, state, exit, derived_exit, max_rss, start, end, elapsed, reason })
    }

    fn entry(&self) -> Entry {
        let is_over = ended_state(self.state).is_some();
        Entry { start_s: moment(self.start), accounting: is_over.then(|| self.accounting()).flatten() }
    }

    /// Returns the statement; `None` without an end or an exit code, which follow later than the state.
    fn accounting(&self) -> Option<Accounting> {
        let (exit_code, signal) = exit_status(self.exit)?;
        let derived = exit_status(self.derived_exit);
        let reason = Some(self.reason).filter(|reason| !matches!(*reason, "" | "None"));
        Some(Accounting {
            state: Text::new(self.state),
            exit_code,
            signal,
            // Of its steps; it is 0 if all of them succeeded.
            step_exit_code: derived.map(|(code, _)| code),
            max_rss_bytes: size(self.max_rss),
            ended_s: moment(self.end)?,
            elapsed_s: self.elapsed.parse().ok(),
            reason: reason.map(Text::new),
        })
    }
}

/// Exit code and signal of `3:0` or `0:9`.
fn exit_status(field: &str) -> Option<(u32, Option<u32>)> {
    let (code, signal) = field.split_once(':')?;
    let signal: u32 = signal.parse().ok()?;
    Some((code.parse().ok()?, (signal > 0).then_some(signal)))
}

/// Seconds since 1970, up to the year 9999.
fn moment(field: &str) -> Option<i64> {
    field.parse().ok().filter(|seconds| (1..253_402_300_800).contains(seconds))
}

/// Parses `214480K` as bytes; `None` for 0, which SLURM writes without a measurement.
fn size(field: &str) -> Option<u64> {
    let unit = field.chars().last()?;
    let (number, shift) = match "KMGTP".find(unit) {
        Some(power) => (&field[..field.len() - 1], 10 * (power + 1)),
        None => (field, 0),
    };
    let bytes = number.parse::<f64>().ok()? * 2_f64.powi(i32::try_from(shift).ok()?);
    (1.0..2_f64.powi(63)).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests;
