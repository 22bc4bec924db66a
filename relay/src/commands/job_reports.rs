//! `relay report`, `relay history` and `relay me`: read the database, and of running jobs the running relay.

use crate::commands::{NotFound, job_tables, named_job};
use anyhow::{Context as _, bail};
use hyper::{Method, StatusCode};
use nodeglass_api::{Job, JobSelector, NotOneJob};
use nodeglass_app::addresses::own_login;
use nodeglass_app::remote::{Refused, Remote};
use nodeglass_app::terminal;
use nodeglass_config::{ExportFormat, FaultsArgs, HistoryCommand, ListJobsArgs, ReportArgs, ReportFormat};
use nodeglass_notify::report_webhook;
use nodeglass_notify::webhook::Webhook;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::{self, LocalTime};
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::note::Note;
use nodeglass_protocol::report::{MAX_DAYS, Usage};
use nodeglass_protocol::{JobId, Text};
use nodeglass_report::{JobRecord, NodeFaults, Report};
use nodeglass_store::{Database, StoreError};

/// Maximum number of reports that are read from a running relay.
const MAX_REPORTS: usize = 1_000;

/// Executes `relay report`; returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn report(args: ReportArgs, webhook: Option<Webhook>) -> anyhow::Result<String> {
    let format = if args.json { ReportFormat::Json } else { args.format };
    let database = database()?;
    let relays = relays(args.which.relay)?;
    let job = resolved(&args.job, &relays, database.as_ref()).await?;
    let (stored, notes) = match &database {
        Some(database) => stored(database, job)?,
        None => (None, Vec::new()),
    };
    let runs = database.as_ref().map(|database| database.runs(job)).transpose()?.unwrap_or_default();
    let (report, note) = match args.run {
        Some(number) => run(&args.job, &runs, usize::from(number), notes)?,
        None => match newest(job, stored, notes, &relays).await {
            Err(error) if error.is::<NotFound>() => {
                return Err(without_report(&args.job, &relays).await.unwrap_or(error));
            }
            found => found?,
        },
    };
    let earlier = if args.run.is_none() { of_earlier_run(&args.job, &runs, &report) } else { None };
    let notes = [note, earlier, of_one_task(&args.job, report.label.as_str())];
    let note = notes.into_iter().flatten().reduce(|one, other| format!("{one} {other}"));
    match webhook {
        Some(webhook) => {
            let sent = report_webhook::post(&webhook, &report).await.map_err(anyhow::Error::msg)?;
            return Ok(format!("{sent}\n"));
        }
        None if args.webhook.is_some() => {
            bail!("no webhook is configured; set report-webhook in the configuration file, or name a URL")
        }
        None => {}
    }
    Ok(match format {
        ReportFormat::Text => nodeglass_report::text(&report, note.as_deref(), &local_time::here_and_now),
        ReportFormat::Markdown => {
            nodeglass_report::markdown(&report, note.as_deref(), &local_time::here_and_now)
        }
        ReportFormat::Json => terminal::json(&report)?,
    })
}

/// Executes `relay history`; returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn history(args: HistoryCommand) -> anyhow::Result<String> {
    Ok(match args {
        HistoryCommand::Show(args) => report(args.into(), None).await?,
        HistoryCommand::List(ListJobsArgs { days, json, which }) => {
            let reports = reports(days.days, which.relay).await?;
            if json { terminal::json(&reports)? } else { job_tables::list(&reports, LocalTime::of) }
        }
        HistoryCommand::Faults(args) => faults(&args).await?,
        HistoryCommand::Export { format, days, which } => {
            let reports = reports(days.days, which.relay).await?;
            match format {
                ExportFormat::Json => terminal::json(&reports)?,
                ExportFormat::Csv => job_tables::csv(&reports),
            }
        }
    })
}

/// The faults of nodes in the reports of the last days: the stored ones, or the running relay's before any is stored.
async fn faults(args: &FaultsArgs) -> anyhow::Result<String> {
    let mut faults = NodeFaults::default();
    let mut is_any_stored = false;
    if let Some(database) = database()? {
        let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX);
        let since_s = now_s - i64::from(args.days.days) * 86_400;
        database.each_report(since_s, None, |report| {
            is_any_stored = true;
            faults.add(&report);
        })?;
    }
    if !is_any_stored {
        reports(args.days.days, None).await?.iter().for_each(|report| faults.add(report));
    }
    let faults = faults.list(args.node.as_ref());
    Ok(if args.json { terminal::json(&faults)? } else { job_tables::faults(&faults, LocalTime::of) })
}

/// Executes `relay me`; returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn me(ListJobsArgs { days, json, which }: ListJobsArgs) -> anyhow::Result<String> {
    let days = days.days;
    let stored = stored_reports(days, Some(&own_login()))?;
    let is_empty = stored.is_empty();
    let usage = match (is_empty || which.relay.is_some(), only_relay(which.relay, is_empty)?) {
        // It has its jobs in memory until they are stored, and the jobs of a simulated cluster forever.
        (true, Some(relay)) => {
            let days = days.min(MAX_DAYS);
            relay.json(Method::GET, &format!("/api/v1/usage?days={days}"), String::new()).await?
        }
        (_, relay) => {
            // The running relay knows whether sacct listed what no relay watched.
            let known: Option<Usage> = match relay {
                Some(relay) => relay.json(Method::GET, "/api/v1/usage?days=1", String::new()).await.ok(),
                None => None,
            };
            let incomplete = known.and_then(|usage| usage.incomplete);
            Usage {
                incomplete,
                ..nodeglass_report::usage(&stored, days, |at_s| LocalTime::utc_offset_s(at_s.unsigned_abs()))
            }
        }
    };
    Ok(if json { terminal::json(&usage)? } else { job_tables::usage(&usage, LocalTime::of) })
}

/// The raw id of a job, from a running relay or the database.
async fn resolved(
    named: &JobSelector,
    relays: &[Remote],
    database: Option<&Database>,
) -> anyhow::Result<JobId> {
    if let JobSelector::Id(id) = named {
        return match one_of_relays(named, relays, Remote::jobs).await {
            Err(error) if matches!(error.downcast_ref(), Some(NotOneJob::Clusters { .. })) => Err(error),
            found => Ok(found.unwrap_or(JobId(*id))),
        };
    }
    let not_listed = match one_of_relays(named, relays, Remote::jobs).await {
        Ok(id) => return Ok(id),
        Err(error) => error,
    };
    let stored = database.map(|database| database.id_of(&named.to_string())).transpose()?.flatten();
    match stored {
        Some(id) => Ok(id),
        // It may be newer than the list.
        None if matches!(not_listed.downcast_ref(), Some(NotOneJob::None(_))) => {
            one_of_relays(named, relays, async |relay| relay.jobs_with(std::slice::from_ref(named)).await)
                .await
        }
        None => Err(not_listed),
    }
}

/// The raw id of a job that a running relay lists, or why the last one lists none.
async fn one_of_relays(
    named: &JobSelector,
    relays: &[Remote],
    jobs_of: impl AsyncFn(&Remote) -> anyhow::Result<Vec<Job>>,
) -> anyhow::Result<JobId> {
    let mut error = NotOneJob::None(named.clone()).into();
    for relay in relays {
        match jobs_of(relay).await.and_then(|jobs| Ok(named_job::id(&jobs, named)?)) {
            Ok(id) => return Ok(id),
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Reads the record of a job and its notes of the same cluster.
fn stored(database: &Database, job: JobId) -> Result<(Option<JobRecord>, Vec<Note>), StoreError> {
    Ok(match database.job_with_origin(job)? {
        Some((record, origin)) => (Some(record), database.notes_of(&origin, job)?),
        None => (None, Vec::new()),
    })
}

/// Returns the report of a job: of its newest run from a running relay, from the database if it has ended, else as it was last stored;
/// with a sentence that states which of these it is.
async fn newest(
    job: JobId,
    stored: Option<JobRecord>,
    notes: Vec<Note>,
    relays: &[Remote],
) -> anyhow::Result<(Report, Option<String>)> {
    // A requeued job, or another one with its number, may run since.
    let ended = stored.as_ref().filter(|record| record.is_final);
    let is_newer = |report: &Report| ended.is_none_or(|record| report.start_s > record.job.start);
    let mut failed = None;
    for relay in relays {
        match relay.report(job).await {
            Ok(report) if !is_newer(&report) => {}
            Ok(report) if report.is_outdated((Clock::wall_ms() / 1_000).cast_signed()) => {
                let at = LocalTime::of(u64::try_from(report.at_s).unwrap_or(0)).seen_from(&now());
                return Ok((report, Some(Report::last_observed(at))));
            }
            Ok(report) => {
                let note = "The job is still running; these are its figures so far.";
                return Ok((report.clone(), (!report.is_final).then(|| note.to_owned())));
            }
            Err(error) if is_unknown(&error) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(record) = ended {
        return Ok((record.report_with(notes), None));
    }
    let Some(record) = stored else {
        match failed {
            Some(error) => {
                bail!(
                    "there is no report of job {job} in the database, and a running relay failed: {error:#}"
                )
            }
            None => {
                let why = "neither the database nor a running relay has seen it";
                return Err(NotFound(format!("there is no report of job {job}: {why}")).into());
            }
        }
    };
    let at = LocalTime::of(u64::try_from(record.at_s).unwrap_or(0)).seen_from(&now());
    let note = match failed {
        Some(error) => {
            format!("A running relay failed ({error:#}); these are the figures stored last, {at}.")
        }
        None => format!("No running relay sees this job; these are the figures stored last, {at}."),
    };
    Ok((record.report_with(notes), Some(note)))
}

/// Returns the report of a stored run, the first one being 1, with a sentence if it was not observed to its end.
///
/// # Errors
/// [`NotFound`].
fn run(
    named: &JobSelector,
    runs: &[JobRecord],
    number: usize,
    mut notes: Vec<Note>,
) -> Result<(Report, Option<String>), NotFound> {
    let record = number.checked_sub(1).and_then(|at| runs.get(at)).ok_or_else(|| {
        let count = runs.len();
        let runs = if count == 1 { "run" } else { "runs" };
        NotFound(format!("job {named} has {count} stored {runs}; there is no run {number}"))
    })?;
    if let Some(next_s) = runs.get(number).and_then(|next| next.job.start) {
        notes.retain(|note| note.at_ms < next_s.unsigned_abs() * 1_000);
    }
    let note = (!record.is_final).then(|| {
        let at = LocalTime::of(u64::try_from(record.at_s).unwrap_or(0)).seen_from(&now());
        format!("These are the figures stored last, {at}.")
    });
    Ok((record.report_with(notes), note))
}

/// Returns a sentence about the runs before the reported one.
fn of_earlier_run(named: &JobSelector, runs: &[JobRecord], report: &Report) -> Option<String> {
    let is_earlier = |run: &&JobRecord| {
        // A relay of another cluster may have a job with the number.
        (&run.job.user, &run.job.name) == (&report.user, &report.name) && run.job.start < report.start_s
    };
    let earlier = runs.iter().filter(is_earlier).count();
    let number = earlier + 1;
    (earlier > 0).then(|| {
        format!(
            "This is run {number} of the job; `relay report {named} --run {earlier}` reports the one before."
        )
    })
}

/// Returns why there is no report of what a running relay lists: several jobs, or one that has not started, or never did.
async fn without_report(named: &JobSelector, relays: &[Remote]) -> Option<anyhow::Error> {
    for relay in relays {
        let jobs = relay.jobs().await.unwrap_or_default();
        let has_started = |job: &Job| job.is_active || !job.nodes.is_empty();
        match named.only(&jobs) {
            Err(NotOneJob::None(_)) => {}
            Ok(job) if has_started(job) => return None,
            Ok(job) if job.has_ended() => {
                return Some(NotFound(format!("job {named} ended before it started")).into());
            }
            Err(several) if named.select(&jobs).into_iter().any(has_started) => return Some(several.into()),
            _ => return Some(NotFound(format!("job {named} has not started")).into()),
        }
    }
    None
}

/// Returns a sentence about the other jobs, where the id of an array or heterogeneous job names the job that is reported: one
/// of them has this id as its raw id.
fn of_one_task(named: &JobSelector, label: &str) -> Option<String> {
    let JobSelector::Id(id) = named else { return None };
    let part = label.strip_prefix(&id.to_string())?;
    let (what, other) = match part.chars().next()? {
        '_' => ("task", format!("{id}_N")),
        '+' => ("component", format!("{id}+N")),
        _ => return None,
    };
    Some(format!(
        "This report covers {what} {label} only; `relay report {other}` reports another one, and `relay history list` lists them."
    ))
}

/// Returns whether a relay responded that it does not know the job.
fn is_unknown(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.status == StatusCode::NOT_FOUND)
}

fn now() -> LocalTime {
    LocalTime::of(Clock::wall_ms() / 1_000)
}

/// Returns the reports of all jobs that started in the last days, newest first: the stored ones; or the running relay's
/// before any is stored or if they cannot be read, and of a relay that the user names.
async fn reports(days: u32, relay: Option<u32>) -> anyhow::Result<Vec<Report>> {
    let (stored, unreadable) = match stored_reports(days, None) {
        Ok(stored) => (stored, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    match only_relay(relay, stored.is_empty())? {
        Some(running) if stored.is_empty() || relay.is_some() => {
            let since_s =
                i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX) - i64::from(days) * 86_400;
            let mut reports = Vec::new();
            let jobs = running.jobs().await?;
            for job in jobs.iter().filter(|job| !job.is_pending()).take(MAX_REPORTS) {
                // A job that ends at this moment may have none yet.
                reports.extend(running.report(JobId(job.id)).await);
            }
            reports.retain(|report: &Report| report.start_s.is_none_or(|start_s| start_s >= since_s));
            reports.sort_by_key(|report| std::cmp::Reverse(report.start_s));
            Ok(reports)
        }
        _ => unreadable.map_or(Ok(stored), Err),
    }
}

/// The relay with this process id, or all that run.
///
/// # Errors
/// A complete sentence for the user: no relay has this process id.
fn relays(pid: Option<u32>) -> anyhow::Result<Vec<Remote>> {
    match pid {
        Some(_) => Ok(vec![Remote::find(pid)?]),
        None => Remote::list(),
    }
}

/// The relay with this process id, or the running one, if there is one and only one.
///
/// # Errors
/// A complete sentence for the user: no relay has this process id; or several run, and one `is_needed`.
fn only_relay(pid: Option<u32>, is_needed: bool) -> anyhow::Result<Option<Remote>> {
    let mut relays = relays(pid)?;
    match relays.len() {
        1 => Ok(relays.pop()),
        // The error names them.
        2.. if is_needed => Remote::find(pid).map(Some),
        _ => Ok(None),
    }
}

/// The stored reports of all jobs, or of one user's, that started in the last days, newest first.
fn stored_reports(days: u32, user: Option<&Text>) -> anyhow::Result<Vec<Report>> {
    let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap_or(i64::MAX);
    match database()? {
        Some(database) => Ok(database.reports_since(now_s - i64::from(days) * 86_400, user)?),
        None => Ok(Vec::new()),
    }
}

fn database() -> anyhow::Result<Option<Database>> {
    let dir = StateDir::open().context("the database of jobs cannot be read")?;
    Ok(Database::open_existing(&dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::job;
    use nodeglass_protocol::note::{NoteId, NoteSource};

    #[test]
    fn the_runs_of_a_requeued_job_are_reported_by_their_numbers() {
        let record = |start_s: i64, is_final| {
            let job = job::Job::new(JobId(7), "alice".into(), job::JobState::Running);
            let job = job::Job { start: Some(start_s), submitted: Some(0), ..job };
            JobRecord { is_final, ..JobRecord::of(job, start_s + 60) }
        };
        let (named, runs) =
            ("7".parse().unwrap(), [record(100, true), record(200, false), record(300, true)]);
        let note = |at_s: u64| Note {
            id: NoteId::from_bits(at_s),
            job: Some(JobId(7)),
            node: None,
            rank: None,
            at_ms: at_s * 1_000,
            text: "restarted".into(),
            source: NoteSource::Command,
        };
        let (report, sentence) = run(&named, &runs, 1, vec![note(150), note(250)]).unwrap();
        assert_eq!((report.start_s, report.notes.len(), sentence), (Some(100), 1, None));
        let (report, sentence) = run(&named, &runs, 2, Vec::new()).unwrap();
        assert!(sentence.unwrap().starts_with("These are the figures stored last"));
        let before = "This is run 2 of the job; `relay report 7 --run 1` reports the one before.";
        assert_eq!(of_earlier_run(&named, &runs, &report).as_deref(), Some(before));
        assert_eq!(of_earlier_run(&named, &runs, &runs[0].report()), None);
        let of_other = Report { user: "bob".into(), ..report };
        assert_eq!(of_earlier_run(&named, &runs, &of_other), None);
        let missing = run(&named, &runs[..1], 4, Vec::new()).unwrap_err().to_string();
        assert_eq!(missing, "job 7 has 1 stored run; there is no run 4");
    }

    #[test]
    fn the_id_of_an_array_says_that_one_task_is_reported() {
        let said = |named: &str, label| of_one_task(&named.parse().unwrap(), label);
        let task = said("48440", "48440_16").unwrap();
        assert!(task.starts_with("This report covers task 48440_16 only; `relay report 48440_N`"), "{task}");
        assert!(said("48511", "48511+0").unwrap().contains("component 48511+0"));
        for (named, label) in
            [("48440_16", "48440_16"), ("48461", "48461"), ("48456", "48440_16"), ("4844", "48440_1")]
        {
            assert_eq!(said(named, label), None, "{named} {label}");
        }
    }
}
