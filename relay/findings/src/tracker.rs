//! Confirms what detectors see, keeps it while it lasts, and resolves it when it is over.

use super::now::Now;
use super::series::STEP_MS;
use super::thresholds::Thresholds;
use nodeglass_protocol::finding::{
    self, Finding, FindingGpu, FindingKind, FindingSeverity, FindingTrait, MAX_EVIDENCE, MAX_FINDINGS, Waste,
    WastedBefore,
};
use nodeglass_protocol::{JobId, LongText, NodeName, Text};
use nodeglass_rules::{cost, text};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum time for which a problem that is not confirmed yet may be absent, in ms: one examination.
const MAX_GAP_MS: u64 = 15_000;

/// Time for which a finding is listed after its end, in ms.
const RESOLVED_MS: u64 = 3_600_000;

/// A problem that a detector sees now.
#[derive(Clone, Debug)]
pub struct Detection {
    /// Kind.
    pub kind: FindingKind,
    /// The subject; with the kind, its identity: `17/GPU-2f…`.
    pub subject: String,
    /// Severity.
    pub severity: FindingSeverity,
    /// See [`Finding::confidence_pct`].
    pub confidence_pct: u8,
    /// See [`Finding::jobs`].
    pub jobs: Vec<JobId>,
    /// See [`Finding::nodes`].
    pub nodes: Vec<NodeName>,
    /// See [`Finding::gpus`].
    pub gpus: Vec<FindingGpu>,
    /// See [`Finding::title`].
    pub title: String,
    /// See [`Finding::reason`].
    pub reason: String,
    /// See [`Finding::evidence`].
    pub evidence: Vec<String>,
    /// Advice, if it is more specific than the advice of the kind.
    pub advice: Option<String>,
    /// Explanation by a current reading.
    pub cause: Option<String>,
    /// When it began by the readings, in ms of the relay's clock, and whether it may have been earlier.
    pub since: Option<(u64, bool)>,
    /// When its job started, in ms since 1970, if it is about what one job does: it has not begun before.
    pub job_started_ms: Option<u64>,
    /// See [`Finding::wasted_gpus`].
    pub wasted_gpus: usize,
    /// The GPUs that it costs as a fraction, where whole ones would be too coarse.
    pub lost_gpus: Option<f64>,
}

impl Detection {
    /// A detection without details, as severe as its kind usually is.
    pub fn new(kind: FindingKind, subject: String, title: String) -> Self {
        Self {
            kind,
            subject,
            severity: kind.severity(),
            confidence_pct: 95,
            jobs: Vec::new(),
            nodes: Vec::new(),
            gpus: Vec::new(),
            title,
            reason: String::new(),
            evidence: Vec::new(),
            advice: None,
            cause: None,
            since: None,
            job_started_ms: None,
            wasted_gpus: 0,
            lost_gpus: None,
        }
    }

    /// States what it costs as a number of GPUs that need not be whole.
    pub fn set_lost_gpus(&mut self, gpus: f64) {
        (self.wasted_gpus, self.lost_gpus) = (gpus.round() as usize, Some(gpus));
    }

    fn key(&self) -> String {
        format!("{}/{}", self.kind.name(), self.subject)
    }
}

/// The reports of all detectors at one moment.
#[derive(Debug, Default)]
pub struct Detections {
    /// Detected problems.
    pub seen: Vec<Detection>,
    /// Prefixes of keys about which nothing is known at the moment, because readings are missing.
    pub unknown: Vec<String>,
    /// Nodes that are not read, about whose GPUs [momentary](FindingTrait::Momentary) findings are not known.
    pub unread: BTreeSet<NodeName>,
    /// Nodes that are read.
    pub read: BTreeSet<NodeName>,
    /// Whether the jobs are known.
    pub has_jobs: bool,
    /// Listed jobs that are pending, perhaps after a requeue, or have ended.
    pub not_running: BTreeSet<JobId>,
    /// Jobs whose GPUs are busy computing, and the readings that show it.
    pub computing: BTreeMap<JobId, String>,
}

impl Detections {
    /// Adds what is seen.
    pub fn add(&mut self, detection: Detection) {
        self.seen.push(detection);
    }

    /// Marks some kinds of a subject as unknown: active findings of these kinds stay as they are.
    pub fn unknown(&mut self, kinds: &[FindingKind], subject: &str) {
        self.unknown.extend(kinds.iter().map(|kind| format!("{}/{subject}", kind.name())));
    }
}

/// Active findings, and those that ended within the last hour.
#[derive(Debug, Default)]
pub struct Tracker {
    tracks: BTreeMap<String, Track>,
    /// Findings of an earlier relay that were active at its end, by key.
    earlier: BTreeMap<String, Earlier>,
}

/// A finding of an earlier relay.
#[derive(Debug)]
struct Earlier {
    /// See [`Finding::since_ms`], [`Finding::or_earlier`] and [`Finding::found_ms`].
    since_ms: u64,
    or_earlier: bool,
    found_ms: u64,
    /// See [`Finding::waste`] and [`Finding::wasted_before`].
    waste: Waste,
    wasted_before: Option<WastedBefore>,
    nodes: Vec<NodeName>,
    is_of_job: bool,
    /// Since when it could be seen and was not, in ms of the relay's clock.
    absent_since_ms: Option<u64>,
}

#[derive(Debug)]
struct Track {
    finding: Finding,
    /// When it was first and last seen, in ms of the relay's clock; before it is confirmed, without an interruption of
    /// more than [`MAX_GAP_MS`].
    first_ms: u64,
    last_ms: u64,
    /// Whether it was seen long enough.
    is_confirmed: bool,
    /// The cause that was last read, and when, in ms of the relay's clock.
    cause: Option<(String, u64)>,
    /// The finding before it ended and returned.
    before: Option<Box<Finding>>,
    earlier: Occurrences,
}

/// The occurrences of a finding that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrences {
    count: u32,
    /// Their cost together.
    gpu_hours: f64,
}

impl Occurrences {
    /// These, and one more that has ended.
    fn with(self, ended: &Finding) -> Self {
        Self { count: self.count.saturating_add(1), gpu_hours: self.gpu_hours + cost_of(ended) }
    }

    /// These without the last one.
    fn without(self, ended: &Finding) -> Self {
        Self { count: self.count.saturating_sub(1), gpu_hours: (self.gpu_hours - cost_of(ended)).max(0.0) }
    }
}

/// Returns what a finding that has ended had cost, in GPU hours.
fn cost_of(ended: &Finding) -> f64 {
    ended.wasted_gpu_hours(ended.ended_ms.unwrap_or_default())
}

/// Explanation of an active finding when its cause was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCause<'a> {
    /// The cause: `power brake`.
    pub text: &'a str,
    /// When it was last read, in ms of the relay's clock.
    pub read_ms: u64,
    /// See [`Finding::since_ms`].
    pub since_ms: u64,
}

impl Track {
    /// The finding, once it is confirmed; until then, what it was before it returned.
    fn listed(&self) -> Option<&Finding> {
        if self.is_confirmed { Some(&self.finding) } else { self.before.as_deref() }
    }

    /// Stops its cost until `until_ms`, in ms since 1970; returns whether it had not stopped.
    fn stop_cost(&mut self, wall_ms: u64, until_ms: u64) -> bool {
        let waste = self.finding.waste();
        let grows = waste.gpus > 0 && waste.since_ms <= wall_ms;
        if grows {
            self.finding.wasted_before = Some(WastedBefore { gpu_ms: waste.gpu_ms(wall_ms), until_ms });
        }
        grows
    }

    /// Returns whether it is a straggler that its job waits for.
    fn is_charged(&self) -> bool {
        let finding = &self.finding;
        finding.kind == FindingKind::Straggler && finding.is_active() && finding.wasted_gpus > 0
    }

    /// Returns whether it lasts or ended within the last hour. One that did not last long enough gives way to what it
    /// was before.
    fn is_kept(&mut self, wall_ms: u64) -> bool {
        if !self.is_confirmed && self.finding.ended_ms.is_some() {
            let Some(before) = self.before.take() else { return false };
            self.earlier = self.earlier.without(&before);
            (self.finding, self.is_confirmed) = (*before, true);
        }
        self.before = self
            .before
            .take()
            .filter(|before| before.ended_ms.is_none_or(|at_ms| at_ms + RESOLVED_MS > wall_ms));
        self.finding.ended_ms.is_none_or(|ended_ms| ended_ms + RESOLVED_MS > wall_ms)
    }
}

impl Tracker {
    /// Takes over the starts of what an earlier relay had found.
    pub fn restore<'a>(&mut self, earlier: impl Iterator<Item = &'a Finding>) {
        let known = |finding: &Finding| {
            let Finding { since_ms, or_earlier, found_ms, .. } = *finding;
            let (nodes, is_of_job) = (finding.nodes.clone(), !finding.jobs.is_empty());
            let known = Earlier {
                since_ms,
                or_earlier,
                found_ms,
                waste: finding.waste(),
                wasted_before: finding.wasted_before,
                nodes,
                is_of_job,
                absent_since_ms: None,
            };
            (finding.key.to_string(), known)
        };
        self.earlier.extend(earlier.take(MAX_FINDINGS).map(known));
    }

    /// Enters what is seen at `now`, and returns whether the list changed.
    pub fn update(&mut self, detections: Detections, thresholds: &Thresholds, now: Now) -> bool {
        let Detections { seen, unknown, unread, read, has_jobs, not_running, .. } = detections;
        let mut changed = false;
        let charged: BTreeMap<String, Vec<JobId>> = self
            .tracks
            .iter()
            .filter(|(_, track)| track.is_charged())
            .map(|(key, track)| (key.clone(), track.finding.jobs.clone()))
            .collect();
        for detection in seen {
            let extra_ms = thresholds.extra_confirm_ms(detection.kind);
            changed |= self.observe(detection, extra_ms, now);
        }
        self.hand_over(&charged, now);
        changed |= self.end_absent(&unknown, &unread, &not_running, now);
        let can_be_seen = |key: &str, earlier: &Earlier| {
            (has_jobs || !earlier.is_of_job)
                && earlier.nodes.iter().all(|node| read.contains(node))
                && !unknown.iter().any(|prefix| is_of(key, prefix))
        };
        self.forget_earlier(can_be_seen, thresholds, now.relay_ms);
        let before = self.tracks.len();
        self.tracks.retain(|_, track| track.is_kept(now.wall_ms()));
        self.bound();
        changed || self.tracks.len() != before
    }

    /// Ends findings that were not seen for long enough, and pauses those that cannot be seen. Returns whether a
    /// confirmed one changed.
    fn end_absent(
        &mut self,
        unknown: &[String],
        unread: &BTreeSet<NodeName>,
        not_running: &BTreeSet<JobId>,
        now: Now,
    ) -> bool {
        let mut changed = false;
        let (now_ms, wall_ms) = (now.relay_ms, now.wall_ms());
        for (key, track) in &mut self.tracks {
            if track.last_ms == now_ms || track.finding.ended_ms.is_some() {
                continue;
            }
            let jobs = &track.finding.jobs;
            // Nobody should follow its advice any more, such as to cancel a job that waits again.
            let is_over = !jobs.is_empty() && jobs.iter().all(|job| not_running.contains(job));
            let is_unread = !is_over
                && track.finding.kind.is(FindingTrait::Momentary)
                && track.finding.nodes.iter().any(|node| unread.contains(node));
            if is_unread || !is_over && unknown.iter().any(|prefix| is_of(key, prefix)) {
                // What cannot be seen neither goes on nor ends.
                let paused_ms = now_ms.saturating_sub(track.last_ms);
                track.last_ms = now_ms;
                if !track.is_confirmed {
                    track.first_ms = track.first_ms.saturating_add(paused_ms);
                }
                continue;
            }
            let absent_ms = now_ms.saturating_sub(track.last_ms);
            let clear_ms = track.finding.kind.clear_ms();
            if is_over || absent_ms >= if track.is_confirmed { clear_ms } else { clear_ms.min(MAX_GAP_MS) } {
                // If it is seen again later, it is a new finding.
                self.earlier.remove(key);
                track.finding.ended_ms = Some(now.to_wall_ms(track.last_ms).min(wall_ms));
                changed |= track.is_confirmed;
            }
            // It may be over: it costs nothing more unless it is seen again.
            changed |= track.stop_cost(wall_ms, wall_ms.saturating_add(clear_ms)) && track.is_confirmed;
        }
        changed
    }

    /// Starts the cost of stragglers for which jobs wait instead of for the `charged` ones, to which the time before is
    /// charged.
    fn hand_over(&mut self, charged: &BTreeMap<String, Vec<JobId>>, now: Now) {
        for (key, track) in self.tracks.iter_mut().filter(|(_, track)| track.is_charged()) {
            let follows = |jobs: &Vec<JobId>| track.finding.jobs.iter().any(|job| jobs.contains(job));
            if !charged.contains_key(key) && charged.values().any(follows) {
                let gpu_ms = track.finding.waste().before_gpu_ms;
                track.finding.wasted_before = Some(WastedBefore { gpu_ms, until_ms: now.wall_ms() });
            }
        }
    }

    /// Forgets what an earlier relay had found once it would have been found again if it still lasted.
    fn forget_earlier(
        &mut self,
        can_be_seen: impl Fn(&str, &Earlier) -> bool,
        thresholds: &Thresholds,
        now_ms: u64,
    ) {
        let tracks = &self.tracks;
        self.earlier.retain(|key, earlier| {
            let is_seen = tracks.get(key).is_some_and(|track| track.finding.ended_ms.is_none());
            if is_seen || !can_be_seen(key, earlier) {
                earlier.absent_since_ms = None;
                return true;
            }
            let Some(kind) = key.split('/').next().and_then(FindingKind::from_name) else { return false };
            let since_ms = *earlier.absent_since_ms.get_or_insert(now_ms);
            let found_again_ms = thresholds.found_within_ms(kind) + kind.clear_ms();
            now_ms.saturating_sub(since_ms) < found_again_ms
        });
    }

    /// Enters one detection; returns whether the list changed.
    fn observe(&mut self, detection: Detection, extra_ms: u64, now: Now) -> bool {
        let key = detection.key();
        let (known, before, earlier) = self.take_known(&key);
        let first_ms = known.as_ref().map_or(now.relay_ms, |track| track.first_ms);
        let was_confirmed = known.as_ref().is_some_and(|track| track.is_confirmed);
        let is_confirmed =
            was_confirmed || now.relay_ms.saturating_sub(first_ms) >= detection.kind.confirm_ms() + extra_ms;
        let cause = match (&detection.cause, &known) {
            (Some(cause), _) => Some((cause.clone(), now.relay_ms)),
            (None, Some(track)) => track.cause.clone(),
            (None, None) => None,
        };
        let found_ms = match &known {
            Some(track) if was_confirmed => track.finding.found_ms,
            _ => now.wall_ms(),
        };
        let ended_before_ms = before.as_ref().and_then(|before| before.ended_ms);
        let (at_ms, or_earlier) = detection.since.unwrap_or((first_ms, false));
        let by_readings = (now.to_wall_ms(at_ms), or_earlier);
        // What an event lists is its latest occurrence.
        let is_event = detection.kind.is_event();
        let lost_gpus = detection.lost_gpus;
        // While the clock is behind the job's start, nothing can be dated.
        let earliest_ms = detection.job_started_ms.filter(|started_ms| *started_ms <= now.wall_ms());
        let since = if is_event { by_readings } else { start(by_readings, known.as_ref(), ended_before_ms) };
        let mut finding = listed(detection, &key, since, found_ms);
        if let Some((last, ended_ms)) = before.as_ref().zip(ended_before_ms)
            && finding.evidence.len() < MAX_EVIDENCE
        {
            finding.evidence.push(recurrence(&finding, last, ended_ms, earlier));
        }
        if let Some(earlier) = self.earlier.get(&key) {
            // It is the same one. Steps begin elsewhere by another relay's clock, so its start may seem to be earlier.
            if earlier.since_ms <= finding.since_ms && !is_event {
                (finding.since_ms, finding.or_earlier) = (earlier.since_ms, earlier.or_earlier);
            }
            finding.found_ms = earlier.found_ms;
        }
        if let Some(earliest_ms) = earliest_ms.filter(|earliest_ms| *earliest_ms > finding.since_ms) {
            (finding.since_ms, finding.or_earlier) = (earliest_ms, false);
        }
        finding.wasted_before = self.wasted_before(known.as_ref(), &finding, lost_gpus, now);
        let changed = is_confirmed && known.is_none_or(|track| !was_confirmed || track.finding != finding);
        let last_ms = now.relay_ms;
        let track = Track { finding, first_ms, last_ms, is_confirmed, cause, before, earlier };
        self.tracks.insert(key, track);
        changed
    }

    /// Returns what a finding, `known` as it was before, lost until now; see [`Detection::lost_gpus`].
    fn wasted_before(
        &self,
        known: Option<&Track>,
        finding: &Finding,
        lost_gpus: Option<f64>,
        now: Now,
    ) -> Option<WastedBefore> {
        let wall_ms = now.wall_ms();
        let known_waste = match (known, self.earlier.get(finding.key.as_str())) {
            (Some(Track { finding, .. }), _) => Some((finding.waste(), finding.wasted_before)),
            (None, Some(earlier)) => Some((earlier.waste, earlier.wasted_before)),
            (None, None) => None,
        };
        let Some(gpus) = lost_gpus else {
            return known_waste.and_then(|known| wasted_before(known, finding.wasted_gpus, wall_ms));
        };
        let from_ms = match (known, known_waste) {
            (Some(track), _) => now.to_wall_ms(track.last_ms),
            // It is not known when an earlier relay last saw it.
            (None, Some(_)) => wall_ms,
            (None, None) => finding.since_ms,
        };
        let before_gpu_ms = known_waste.map_or(0, |(waste, _)| waste.gpu_ms(from_ms));
        let since_gpu_ms = (gpus * wall_ms.saturating_sub(from_ms) as f64) as u64;
        // Until it is seen again, it costs nothing more.
        let until_ms = wall_ms.saturating_add(finding.kind.clear_ms());
        Some(WastedBefore { gpu_ms: before_gpu_ms.saturating_add(since_gpu_ms), until_ms })
    }

    /// Returns until when listed findings of these kinds about a subject lasted, in ms since 1970: `u64::MAX` if one lasts,
    /// `None` if there was none within the last hour.
    pub fn lasted_until_ms(&self, kinds: &[FindingKind], subject: &str) -> Option<u64> {
        let listed = |kind: &FindingKind| self.tracks.get(&format!("{}/{subject}", kind.name()))?.listed();
        kinds.iter().filter_map(listed).map(|finding| finding.ended_ms.unwrap_or(u64::MAX)).max()
    }

    /// Returns the cause that was last read for a finding that lasts.
    pub fn cause(&self, kind: FindingKind, subject: &str) -> Option<KnownCause<'_>> {
        let track = self.tracks.get(&format!("{}/{subject}", kind.name()))?;
        let (text, read_ms) = track.cause.as_ref().filter(|_| track.finding.is_active())?;
        Some(KnownCause { text, read_ms: *read_ms, since_ms: track.finding.since_ms })
    }

    /// Removes what is known of a key: the active finding, and what it was before it ended and returned.
    fn take_known(&mut self, key: &str) -> (Option<Track>, Option<Box<Finding>>, Occurrences) {
        match self.tracks.remove(key) {
            Some(Track { finding, is_confirmed: true, earlier, .. }) if !finding.is_active() => {
                let earlier = earlier.with(&finding);
                (None, Some(Box::new(finding)), earlier)
            }
            Some(mut track) if track.finding.is_active() => {
                let (before, earlier) = (track.before.take(), track.earlier);
                (Some(track), before, earlier)
            }
            _ => Default::default(),
        }
    }

    /// Drops findings beyond the limit: first ended ones, then unconfirmed ones, then the least severe, and of those
    /// the newest.
    fn bound(&mut self) {
        let Some(over) = self.tracks.len().checked_sub(MAX_FINDINGS).filter(|over| *over > 0) else { return };
        let rank = |track: &Track| {
            let Finding { severity, ended_ms, since_ms, .. } = track.finding;
            (ended_ms.is_none(), track.is_confirmed, severity, ended_ms, Reverse(since_ms))
        };
        let mut ranked: Vec<_> = self.tracks.iter().map(|(key, track)| (rank(track), key.clone())).collect();
        ranked.sort_unstable();
        for (_, key) in ranked.into_iter().take(over) {
            self.tracks.remove(&key);
        }
    }

    /// The confirmed findings, active ones first, the worst first.
    pub fn list(&self) -> Vec<Finding> {
        let confirmed = || self.tracks.values().filter_map(Track::listed);
        // Without a process, GPUs idle as well; that need not be listed beside it.
        let without_process: BTreeSet<JobId> = confirmed()
            .filter(|finding| finding.kind == FindingKind::NoProcess && finding.is_active())
            .flat_map(|finding| finding.jobs.iter().copied())
            .collect();
        let is_listed = |finding: &&Finding| {
            let is_idle = matches!(
                finding.kind,
                FindingKind::IdleGpus | FindingKind::UnusedGpus | FindingKind::MostlyIdle
            );
            !(is_idle && finding.is_active() && finding.jobs.iter().any(|job| without_process.contains(job)))
        };
        let mut list: Vec<Finding> = confirmed().filter(is_listed).cloned().collect();
        list.sort_unstable_by(finding::order);
        list
    }
}

/// Returns when a finding began, and whether it may have been earlier. `by_readings` is its start in the readings,
/// which forget it after some minutes, and whose times of day move with the clock; a start that was watched stays. What
/// ended at `ended_before_ms` is not a part of it.
fn start(by_readings: (u64, bool), known: Option<&Track>, ended_before_ms: Option<u64>) -> (u64, bool) {
    let since = match known {
        Some(Track { finding, .. }) if finding.since_ms <= by_readings.0.saturating_add(STEP_MS) => {
            (finding.since_ms, finding.or_earlier)
        }
        _ => by_readings,
    };
    match ended_before_ms {
        Some(ended_ms) if since.0 < ended_ms => (ended_ms, false),
        _ => since,
    }
}

/// Returns what was lost before `gpus` GPUs are wasted at `wall_ms`, in ms since 1970: what a finding has cost is never taken
/// back.
fn wasted_before(
    (known, before): (Waste, Option<WastedBefore>),
    gpus: u32,
    wall_ms: u64,
) -> Option<WastedBefore> {
    if known.gpus == gpus && known.since_ms <= wall_ms {
        return before;
    }
    Some(WastedBefore { gpu_ms: known.gpu_ms(wall_ms), until_ms: wall_ms })
}

/// States that a finding has returned after its last occurrence, and what all before have cost: its own cost is without them.
fn recurrence(finding: &Finding, last: &Finding, ended_ms: u64, earlier: Occurrences) -> Text {
    let pause_s = finding.since_ms.saturating_sub(ended_ms) / 1_000;
    // The readings of this one may begin before the end of the last one was confirmed.
    let after = if pause_s > 0 { format!(" after {}", text::span(pause_s)) } else { String::new() };
    let before = match earlier.count {
        0 | 1 => "before".to_owned(),
        count => format!("the {count} times before"),
    };
    let cost = cost::text(last.kind, earlier.gpu_hours, last.or_earlier);
    let cost = cost.map(|cost| format!(", {cost} {before}")).unwrap_or_default();
    Text::new(format!("recurred{after}{cost}"))
}

/// Returns whether a key is a subject or a part of it.
fn is_of(key: &str, prefix: &str) -> bool {
    key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The finding of a detection.
fn listed(detection: Detection, key: &str, since: (u64, bool), found_ms: u64) -> Finding {
    let advice = detection.advice.unwrap_or_else(|| detection.kind.advice().to_owned());
    Finding {
        key: Text::new(key),
        kind: detection.kind,
        severity: detection.severity,
        confidence_pct: detection.confidence_pct,
        jobs: detection.jobs,
        nodes: detection.nodes,
        gpus: detection.gpus,
        title: LongText::new(detection.title),
        reason: Text::new(detection.reason),
        evidence: detection.evidence.iter().take(MAX_EVIDENCE).map(Text::new).collect(),
        advice: LongText::new(advice),
        since_ms: since.0,
        or_earlier: since.1,
        found_ms,
        ended_ms: None,
        silenced_until_ms: None,
        wasted_gpus: u32::try_from(detection.wasted_gpus).unwrap_or(u32::MAX),
        capture: None,
        wasted_before: None,
    }
}

#[cfg(test)]
mod tests;
