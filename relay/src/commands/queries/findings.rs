//! `relay findings`: which job needs attention, why, and what to do.

use super::source::{Observed, Source};
use super::{Answer, age, silences, unknown};
use nodeglass_api::{Capture, Finding, Job, Snapshot};
use nodeglass_app::addresses::own_login;
use nodeglass_app::terminal;
use nodeglass_config::{ExplainedKind, FindingsArgs};
use nodeglass_findings::job_log::LogPatterns;
use nodeglass_findings::thresholds::{THRESHOLDS, Threshold};
use nodeglass_platform::local_time::{self, LocalTime};
use nodeglass_platform::wrap;
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{self, FindingKind, FindingSeverity};
use nodeglass_rules::attention::{Folded, Since, fold, fold_run};
use nodeglass_rules::{cost, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::sleep;

/// Interval of checks with `--watch`.
const POLL: Duration = Duration::from_secs(5);
/// Time for which a relay must have watched before most kinds can be found.
const ENOUGH: Duration = Duration::from_secs(180);
/// Columns of explanations, and of the names of kinds in their list.
const WIDTH: usize = 80;
const NAME_WIDTH: usize = 20;

/// The findings, or JSON. `observed` says how much the absence of a finding means.
///
/// # Errors
/// JSON cannot be written.
pub fn answer(snapshot: &Snapshot, observed: Observed, args: &FindingsArgs) -> anyhow::Result<Answer> {
    let answer = listed(snapshot, observed, args)?;
    Ok(match observed {
        // It is printed with any findings; the reason for missing data comes first.
        Observed::Glance if answer.code == 0 => {
            let found = answer.notice.map_or_else(String::new, |nothing| format!("{nothing}, but "));
            Answer { notice: Some(format!("{found}{GLANCE}")), ..answer }
        }
        _ => answer,
    })
}

/// Findings without a relay are incomplete.
const GLANCE: &str = "no relay of yours is running: a look of a few seconds finds little; most kinds need minutes of \
                      readings; start one with `relay`";

fn listed(snapshot: &Snapshot, observed: Observed, args: &FindingsArgs) -> anyhow::Result<Answer> {
    let jobs = jobs(snapshot, args);
    let is_selected = |finding: &&Finding| {
        (args.all || finding.is_active && finding.silenced_until.is_none())
            && is_watched(finding, args, jobs.as_ref())
    };
    let found: Vec<&Finding> = snapshot.findings.iter().filter(is_selected).collect();
    // A finding may be of a job that is no longer in the list.
    let is_ambiguous = args.job.as_ref().is_some_and(|job| job.of_one_cluster(&snapshot.jobs).is_err());
    let is_unknown = (found.is_empty() || is_ambiguous)
        .then(|| unknown(snapshot, args.node.as_ref(), args.job.as_ref(), None));
    if let Some(answer) = is_unknown.flatten() {
        return answer.into_json_list(args.json);
    }
    if args.json {
        return Ok(Answer {
            notice: found.is_empty().then(|| not_yet(observed)).flatten(),
            ..Answer::json(&found)?
        });
    }
    if found.is_empty() {
        let is_silenced = |finding: &&Finding| {
            finding.silenced_until.is_some() && finding.is_active && is_watched(finding, args, jobs.as_ref())
        };
        let silenced = match snapshot.findings.iter().filter(is_silenced).count() {
            0 => String::new(),
            count => format!(" ({count} silenced: see --all)"),
        };
        let notice = match not_yet(observed) {
            Some(not_yet) => format!("{not_yet}{silenced}"),
            // Without data, no GPU is known to be right either.
            None if observed == Observed::Glance => format!("no findings{silenced}"),
            None => format!("nothing needs attention{silenced}"),
        };
        return Ok(Answer { notice: Some(notice), ..Answer::default() });
    }
    let named = Named::new(snapshot);
    let found: Vec<finding::Finding> = found.into_iter().map(Finding::to_protocol).collect();
    let entries: Vec<String> = named.folded(&found).iter().map(|entry| named.entry(entry)).collect();
    Ok(Answer::text(entries.join("\n")))
}

/// That a relay has not watched for long enough, if so.
fn not_yet(observed: Observed) -> Option<String> {
    match observed {
        Observed::For(time) if time < ENOUGH => Some(format!(
            "nothing needs attention yet: the relay has watched for {}; most kinds need minutes",
            text::span(time.as_secs())
        )),
        _ => None,
    }
}

/// Prints what begins and ends, until the output is closed; stays through a restart of the relay.
///
/// # Errors
/// The relay cannot be reached any more, or the output is closed.
pub async fn watch(source: &mut Source, args: &FindingsArgs) -> anyhow::Result<Answer> {
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    let mut is_first = true;
    loop {
        let snapshot = source.patient_snapshot(None).await?;
        if std::mem::take(&mut is_first)
            && let Some(answer) = unknown(&snapshot, args.node.as_ref(), args.job.as_ref(), None)
        {
            // It may start later.
            let notice = answer.notice.unwrap_or_default();
            terminal::complain(format_args!("relay: {notice}; waiting for it"));
        }
        let out = reported(&snapshot, news(&snapshot, args, &mut known), args.json)?;
        known.retain(|key, _| snapshot.findings.iter().any(|finding| finding.key == *key));
        {
            use std::io::Write as _;
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(terminal::printable(&out).as_bytes())?;
            stdout.flush()?;
        }
        sleep(POLL).await;
    }
}

/// Returns the findings that began or ended since the last look. `known` are the findings of that look, and whether
/// they were active.
fn news<'a>(
    snapshot: &'a Snapshot,
    args: &FindingsArgs,
    known: &mut BTreeMap<String, bool>,
) -> Vec<&'a Finding> {
    let jobs = jobs(snapshot, args);
    let mut news = Vec::new();
    for finding in snapshot.findings.iter().filter(|finding| is_watched(finding, args, jobs.as_ref())) {
        if !args.all && finding.silenced_until.is_some() {
            // What returns after its silence is news.
            if !finding.is_active {
                known.remove(&finding.key);
            }
            continue;
        }
        // What ended before the first look is not news.
        let was_active = known.get(&finding.key).copied();
        if was_active == Some(finding.is_active) || was_active.is_none() && !finding.is_active {
            continue;
        }
        known.insert(finding.key.clone(), finding.is_active);
        if finding.is_active || !finding.kind.is_event() {
            news.push(finding);
        }
    }
    news
}

/// News as they are printed: a line of JSON for each, or folded, with the time of day.
fn reported(snapshot: &Snapshot, news: Vec<&Finding>, json: bool) -> anyhow::Result<String> {
    let mut out = String::new();
    if json {
        for finding in news {
            writeln!(out, "{}", serde_json::to_string(finding)?)?;
        }
        return Ok(out);
    }
    let named = Named::new(snapshot);
    let time = LocalTime::of(named.now_ms / 1_000);
    let clock = time.seen_from(&time);
    let news: Vec<finding::Finding> = news.into_iter().map(Finding::to_protocol).collect();
    for entry in named.folded(&news) {
        // The evidence dates from its beginning.
        let text = if entry.finding.is_active() { named.entry(&entry) } else { named.heading(&entry) };
        writeln!(out, "{clock} {text}")?;
    }
    Ok(out)
}

/// The jobs that are named, if some are.
fn jobs(snapshot: &Snapshot, args: &FindingsArgs) -> Option<BTreeSet<u32>> {
    args.job.as_ref().map(|named| named.ids(&snapshot.jobs))
}

fn is_watched(finding: &Finding, args: &FindingsArgs, jobs: Option<&BTreeSet<u32>>) -> bool {
    jobs.is_none_or(|ids| finding.jobs.iter().any(|id| ids.contains(id)))
        && args.node.as_ref().is_none_or(|node| finding.nodes.iter().any(|name| name == node.as_str()))
}

/// Context of printing findings: the names of jobs, and the time.
struct Named<'a> {
    jobs: BTreeMap<JobId, &'a Job>,
    captures: BTreeMap<&'a str, &'a Capture>,
    /// Whether jobs of several users are listed: the owners of other jobs are named then.
    has_several_users: bool,
    own_login: String,
    now_ms: u64,
}

impl<'a> Named<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let users: BTreeSet<&str> = snapshot.jobs.iter().map(|job| job.user.as_str()).collect();
        let capture = |finding: &'a Finding| Some((finding.key.as_str(), finding.capture.as_ref()?));
        Self {
            jobs: snapshot.jobs.iter().map(|job| (JobId(job.id), job)).collect(),
            captures: snapshot.findings.iter().filter_map(capture).collect(),
            has_several_users: users.len() > 1,
            own_login: own_login().to_string(),
            now_ms: age::now_ms(snapshot),
        }
    }

    /// Findings as the page lists them, the worst first: what is active, silenced and resolved is each folded.
    fn folded<'f>(&'f self, found: &'f [finding::Finding]) -> Vec<Folded<'f>> {
        let names = || self.jobs.iter().map(|(id, job)| (*id, job.name.as_str(), job.user.as_str()));
        let (active, ended): (Vec<_>, Vec<_>) = found.iter().partition(|finding| finding.is_active());
        let (silenced, active): (Vec<_>, Vec<_>) =
            active.into_iter().partition(|finding| finding.silenced_until_ms.is_some());
        let mut entries = fold(active, names());
        entries.extend(fold(silenced, names()));
        entries.extend(fold_run(ended));
        entries.sort_by(|a, b| finding::order(a.finding, b.finding));
        entries
    }

    /// An entry as text: what is wrong, since when, the evidence, and what to do.
    fn entry(&self, entry: &Folded<'_>) -> String {
        let mut out = self.heading(entry);
        let label = |id| self.jobs.get(&id).map_or_else(|| id.to_string(), |job| job.label.clone());
        for line in entry.evidence(label) {
            let _ = writeln!(out, "  {line}");
        }
        let finding = entry.finding;
        if let Some(capture) = self.captures.get(finding.key.as_str()) {
            captured(capture, self.now_ms, &mut out);
        }
        if finding.is_active() {
            let _ = writeln!(out, "  → {}", entry.advice());
        }
        out
    }

    /// Returns the problem with its start, or a solved problem with its duration.
    fn heading(&self, entry: &Folded<'_>) -> String {
        let finding = entry.finding;
        let symbol = match (finding.is_active(), finding.severity) {
            (false, _) => "✓",
            (_, FindingSeverity::Error) => "▲",
            (_, FindingSeverity::Warning) => "◆",
            (_, FindingSeverity::Info) => "·",
        };
        // An event cannot be resolved.
        let (state, lasted) = match finding.ended_ms {
            Some(end_ms) if !finding.kind.is_event() => {
                let is_moment = end_ms.saturating_sub(entry.since().at_ms) < 1_000;
                let lasted = (!is_moment).then(|| format!(", lasted {}", spent(entry.since(), end_ms)));
                ("resolved: ", lasted.unwrap_or_default())
            }
            _ => ("", String::new()),
        };
        let what = match entry.is_repeated() {
            // Its evidence has the other jobs, all of the same name.
            true => format!("{}{}", self.whom(&finding.jobs), entry.reason()),
            false => {
                format!("{}{}", self.whom(&entry.jobs()), self.without_name(&entry.jobs(), entry.title()))
            }
        };
        let when = lasts(entry, self.now_ms);
        format!("{symbol} {state}{what}{lasted}\n  {when} · {}\n", finding.kind.name())
    }

    /// Removes the name of a single job from the beginning of a title.
    fn without_name(&self, jobs: &[JobId], title: String) -> String {
        let name = match jobs {
            [id] => self.jobs.get(id).map_or("", |job| job.name.as_str()),
            _ => "",
        };
        let without =
            |rest: &str| rest.strip_prefix(": ").or_else(|| rest.strip_prefix(' ')).map(str::to_owned);
        match title.strip_prefix(name).and_then(without) {
            Some(rest) if !name.is_empty() => rest,
            _ => title,
        }
    }

    /// `job 48213 llama3-8b-pretrain: `, `jobs 17 train, 18 eval (bob): `.
    fn whom(&self, jobs: &[JobId]) -> String {
        let name = |id: &JobId| match self.jobs.get(id) {
            Some(job) if self.has_several_users && job.user != self.own_login => {
                format!("{} {} ({})", job.label, job.name, job.user)
            }
            Some(job) => format!("{} {}", job.label, job.name),
            None => id.to_string(),
        };
        let names: Vec<String> = jobs.iter().map(name).collect();
        match names.as_slice() {
            [] => String::new(),
            [job] => format!("job {job}: "),
            jobs => format!("jobs {}: ", jobs.join(", ")),
        }
    }
}

/// Prints the places of the processes, with the wait and the stack of the first of each group; JSON has more.
fn captured(capture: &Capture, now_ms: u64, out: &mut String) {
    let _ = writeln!(out, "  positions of its processes at {}:", clock(capture.at.as_millis(), now_ms));
    for group in &capture.groups {
        let _ = writeln!(out, "    {}", group.summary);
        for line in group.details.iter().take(1) {
            let _ = writeln!(out, "      {line}");
        }
        for frame in &group.stack {
            let _ = writeln!(out, "      at {frame}");
        }
    }
    if capture.others > 0 {
        let _ = writeln!(out, "    {} more at other positions", capture.others);
    }
    if capture.missing > 0 {
        let _ = writeln!(out, "    {} processes could not be captured", capture.missing);
    }
    for line in &capture.notes {
        let _ = writeln!(out, "    {line}");
    }
    if !capture.files.is_empty() {
        out.push_str("    dumps and logs of NCCL:\n");
    }
    for file in &capture.files {
        let _ = writeln!(out, "      {file}");
    }
}

/// `for 12 min, since 14:02`, `for at least 3 h, since 11:14 or earlier · ≥ 1.6 GPU-h idle`, `ended 4 min ago`.
fn lasts(entry: &Folded<'_>, now_ms: u64) -> String {
    let (finding, since) = (entry.finding, entry.since());
    let hours = entry.waste().gpu_hours(finding.ended_ms.unwrap_or(now_ms));
    let cost = cost::text(finding.kind, hours, since.or_earlier);
    let wasted = cost.map_or_else(String::new, |cost| format!(" · {cost}"));
    let silenced = finding.silenced_until_ms.map_or_else(String::new, |until_ms| {
        format!(" · silenced for another {}", text::span(silences::remaining_s(until_ms, now_ms)))
    });
    match finding.ended_ms {
        _ if finding.kind.is_event() => format!("{} ago{silenced}", spent(since, now_ms)),
        None => {
            let begin = local_time::since(clock(since.at_ms, now_ms), since.or_earlier);
            format!("for {}, {begin}{wasted}{silenced}", spent(since, now_ms))
        }
        Some(end_ms) => {
            let ago = text::span(now_ms.saturating_sub(end_ms) / 1_000);
            format!("ended {ago} ago{wasted}")
        }
    }
}

/// Returns the duration until then: `12 min`, `at least 12 min`.
fn spent(since: Since, end_ms: u64) -> String {
    let spent = text::span(end_ms.saturating_sub(since.at_ms) / 1_000);
    if since.or_earlier { format!("at least {spent}") } else { spent }
}

/// A moment as a clock here shows it: `14:02`, `Tue 14:02`.
fn clock(at_ms: u64, now_ms: u64) -> String {
    LocalTime::of(at_ms / 1_000).seen_from(&LocalTime::of(now_ms / 1_000))
}

/// Returns the meaning of kinds of findings; without any, the names of all.
pub fn explain(kinds: &[ExplainedKind]) -> Answer {
    if kinds.is_empty() {
        let indent = " ".repeat(NAME_WIDTH + 1);
        let entry = |kind: &FindingKind| {
            let lines = wrap::words(kind.condition(), WIDTH - indent.len());
            format!("{:<NAME_WIDTH$} {}\n", kind.name(), lines.join(&format!("\n{indent}")))
        };
        return Answer::text(FindingKind::ALL.iter().map(entry).collect());
    }
    Answer::text(kinds.iter().map(|kind| explanation(kind.0)).collect::<Vec<_>>().join("\n"))
}

fn explanation(kind: FindingKind) -> String {
    let clear = match kind.clear_ms() / 1_000 {
        0 => "once it is over".to_owned(),
        seconds => format!("{} after it was last seen", text::exact_span(seconds)),
    };
    let timing = format!(
        "Detected within {} of its beginning; resolved {clear}.",
        text::exact_span(kind.found_within_ms() / 1_000)
    );
    let mut out = format!("{}\n", kind.name());
    for (title, content) in [
        ("Found when (with the default thresholds)", kind.condition()),
        ("Meaning", kind.meaning()),
        ("Advice", kind.advice()),
    ] {
        let _ = write!(out, "\n{title}\n{}", indented(content));
    }
    let _ = write!(out, "\n{}\n", wrap::words(&timing, WIDTH).join("\n"));
    let thresholds: Vec<_> = THRESHOLDS.iter().filter(|threshold| threshold.kinds.contains(&kind)).collect();
    if !thresholds.is_empty() {
        out.push_str("\nThresholds (--finding-threshold NAME=NUMBER)\n");
    }
    for Threshold { name, default, least, most, what, .. } in thresholds {
        let _ = writeln!(out, "  {name}={default}");
        for line in wrap::words(&format!("{what}; from {least} to {most}"), WIDTH - 4) {
            let _ = writeln!(out, "    {line}");
        }
    }
    if kind == FindingKind::LogMessage {
        out.push_str("\nMessages (more with --log-pattern NAME=REGEX)\n");
        let patterns = LogPatterns::new(&[]);
        for pattern in patterns.all() {
            let _ = writeln!(out, "  {:<20} {} ({})", pattern.name, pattern.summary, pattern.severity.name());
        }
    }
    out
}

/// A text in lines of the terminal, indented.
fn indented(text: &str) -> String {
    wrap::words(text, WIDTH - 2).into_iter().map(|line| format!("  {line}\n")).collect()
}
