//! Counts the connections to a node, and what was lost on them.

use crate::SessionEvent;
use crate::event::RefusalCause;
use nodeglass_protocol::probe::ProbeLine;
use std::collections::BTreeSet;

/// Time without a recovered sample, in ms, after which missing ones are lost: a probe replays its ring within seconds.
const RECOVERY_MS: u64 = 30_000;
/// Maximum number of missing samples that may be recovered: more than a ring of ten minutes has.
const MAX_MISSING: u64 = 1_024;

/// Losses of the connections to a node since the relay began to watch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Attempts to start a probe that have ended, and the one whose probe is connected.
    pub attempts: u64,
    /// Lines that could not be read.
    pub unreadable_lines: u64,
    /// Samples that the probe numbered, and that neither arrived nor were recovered after an interruption.
    pub lost_samples: u64,
}

/// Derives [`ConnectionCounts`] from the events of a session.
#[derive(Debug, Default)]
pub(super) struct ConnectionCounter {
    counts: ConnectionCounts,
    /// Whether an attempt is being made.
    is_attempt: bool,
    /// Number of unreadable lines of this connection.
    unreadable_lines: u64,
    stream: u64,
    /// Number of the next sample of the stream; `None` before the first one.
    next_seq: Option<u64>,
    /// Numbers of samples that did not arrive, and may be recovered.
    missing: BTreeSet<u64>,
    /// When `missing` last changed.
    changed_ms: u64,
}

impl ConnectionCounter {
    pub(super) fn counts(&self) -> ConnectionCounts {
        self.counts
    }

    /// Counts an event.
    pub(super) fn observe(&mut self, event: &SessionEvent, now_ms: u64) {
        match event {
            SessionEvent::Connecting { .. } => (self.is_attempt, self.unreadable_lines) = (true, 0),
            SessionEvent::Ending | SessionEvent::Refused { cause: RefusalCause::OtherNodes, .. } => {
                self.is_attempt = false;
            }
            SessionEvent::Down { .. } | SessionEvent::Refused { .. } => _ = self.end_attempt(),
            SessionEvent::Lost { lines, .. } => {
                let new = lines.saturating_sub(self.unreadable_lines);
                self.unreadable_lines = *lines;
                self.counts.unreadable_lines = self.counts.unreadable_lines.saturating_add(new);
            }
            SessionEvent::Noise(_) => {}
            SessionEvent::Line(line) => {
                let is_first = self.end_attempt();
                match &**line {
                    ProbeLine::Hello(hello) => self.begin(hello.stream, is_first),
                    ProbeLine::Sample(sample) if !sample.replay => self.sampled(sample.seq, now_ms),
                    _ => {}
                }
            }
        }
    }

    /// Notes that a sample which had not arrived was entered into the history. It may precede the first live sample of its
    /// connection, before which none is known to be missing.
    pub(super) fn recovered(&mut self, seq: u64, now_ms: u64) {
        if self.next_seq.is_some_and(|next| seq >= next) {
            self.sampled(seq, now_ms);
        } else if self.missing.remove(&seq) {
            self.changed_ms = now_ms;
        }
    }

    /// Gives missing samples up once none was recovered for a while.
    pub(super) fn tick(&mut self, now_ms: u64) {
        if !self.missing.is_empty() && now_ms.saturating_sub(self.changed_ms) >= RECOVERY_MS {
            self.give_up();
        }
    }

    /// Returns whether an attempt was being made.
    fn end_attempt(&mut self) -> bool {
        let was_attempt = std::mem::take(&mut self.is_attempt);
        self.counts.attempts += u64::from(was_attempt);
        was_attempt
    }

    /// Begins to count the samples of a stream, unless it is the known one.
    fn begin(&mut self, stream: u64, is_first: bool) {
        let is_other = self.stream != stream;
        if is_first || is_other {
            // A new connection requests only what came after the last one.
            self.give_up();
        }
        if is_other {
            (self.stream, self.next_seq) = (stream, None);
        }
    }

    fn sampled(&mut self, seq: u64, now_ms: u64) {
        let next = self.next_seq.unwrap_or(seq);
        if seq > next {
            let recoverable = next.max(seq.saturating_sub(MAX_MISSING));
            self.lose(recoverable - next);
            self.missing.extend(recoverable..seq);
            while self.missing.len() as u64 > MAX_MISSING {
                self.missing.pop_first();
                self.lose(1);
            }
            self.changed_ms = now_ms;
        }
        self.next_seq = Some(next.max(seq.saturating_add(1)));
    }

    fn give_up(&mut self) {
        self.lose(self.missing.len() as u64);
        self.missing.clear();
    }

    fn lose(&mut self, samples: u64) {
        self.counts.lost_samples = self.counts.lost_samples.saturating_add(samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene;
    use nodeglass_protocol::probe::delta::ParsedLine;

    fn line(line: ProbeLine) -> SessionEvent {
        SessionEvent::Line(Box::new(line.into()))
    }

    fn live(seq: u64) -> SessionEvent {
        line(scene::sample(seq, &[]))
    }

    /// A hello of a probe with a stream.
    fn hello(stream: u64) -> SessionEvent {
        let mut parsed: ParsedLine = scene::hello("n1", &[]).into();
        if let ProbeLine::Hello(hello) = &mut parsed {
            hello.stream = stream;
        }
        SessionEvent::Line(Box::new(parsed))
    }

    /// Counts events that happen at once.
    fn after(counter: &mut ConnectionCounter, events: &[SessionEvent]) -> ConnectionCounts {
        events.iter().for_each(|event| counter.observe(event, 1_000));
        counter.counts()
    }

    const CONNECTING: SessionEvent = SessionEvent::Connecting { failures: 0 };

    #[test]
    fn each_attempt_counts_once_however_it_ends_and_none_that_was_not_made() {
        let mut counter = ConnectionCounter::default();
        let down = || SessionEvent::Down { why: "no route".into(), retry_at_ms: 0 };
        let refused = |cause| SessionEvent::Refused { cause, why: "no key".into(), advice: "load it".into() };
        assert_eq!(after(&mut counter, &[CONNECTING, hello(1), live(1), hello(1)]).attempts, 1);
        assert_eq!(after(&mut counter, &[down(), CONNECTING, down()]).attempts, 2);
        assert_eq!(after(&mut counter, &[CONNECTING, refused(RefusalCause::Login)]).attempts, 3);
        assert_eq!(after(&mut counter, &[CONNECTING, refused(RefusalCause::OtherNodes)]).attempts, 3);
        assert_eq!(after(&mut counter, &[SessionEvent::Ending, down()]).attempts, 3);
    }

    #[test]
    fn unreadable_lines_of_all_connections_are_added() {
        let mut counter = ConnectionCounter::default();
        let lost = |lines| SessionEvent::Lost { lines, sample: "x".into() };
        assert_eq!(after(&mut counter, &[CONNECTING, lost(1), lost(3)]).unreadable_lines, 3);
        assert_eq!(after(&mut counter, &[CONNECTING, lost(2)]).unreadable_lines, 5);
    }

    #[test]
    fn only_samples_that_are_not_recovered_are_lost() {
        let mut counter = ConnectionCounter::default();
        // A stream of another relay has begun long before.
        let connected = [CONNECTING, hello(1), live(50), live(51)];
        assert_eq!(after(&mut counter, &connected).lost_samples, 0);
        let interrupted = [CONNECTING, hello(1), live(60), live(61), live(61)];
        assert_eq!(after(&mut counter, &interrupted).lost_samples, 0);
        (52..58).for_each(|seq| counter.recovered(seq, 2_000));
        counter.recovered(55, 2_000);
        counter.tick(2_000 + RECOVERY_MS - 1);
        assert_eq!(counter.counts().lost_samples, 0, "the others may still come");
        counter.tick(2_000 + RECOVERY_MS);
        assert_eq!(counter.counts().lost_samples, 2);
        counter.recovered(58, 40_000);
        assert_eq!(counter.counts().lost_samples, 2, "a count never falls");
    }

    #[test]
    fn samples_that_are_recovered_before_the_first_live_one_are_not_lost() {
        let mut counter = ConnectionCounter::default();
        after(&mut counter, &[CONNECTING, hello(1), live(50), CONNECTING, hello(1)]);
        // One that the probe no longer had.
        (51..60).filter(|seq| *seq != 55).for_each(|seq| counter.recovered(seq, 2_000));
        counter.observe(&live(60), 3_000);
        counter.tick(3_000 + RECOVERY_MS);
        assert_eq!(counter.counts().lost_samples, 1);
    }

    #[test]
    fn another_connection_or_stream_ends_a_recovery_but_a_second_hello_does_not() {
        let mut counter = ConnectionCounter::default();
        assert_eq!(after(&mut counter, &[CONNECTING, hello(1), live(1), live(4), hello(1)]).lost_samples, 0);
        assert_eq!(after(&mut counter, &[CONNECTING, hello(1), live(5)]).lost_samples, 2);
        assert_eq!(after(&mut counter, &[live(7), CONNECTING, hello(2), live(900)]).lost_samples, 3);
    }

    #[test]
    fn numbers_of_any_size_neither_overflow_nor_take_memory() {
        let mut counter = ConnectionCounter::default();
        let far = [CONNECTING, hello(1), live(0), live(u64::MAX / 2_000_000_000), live(5)];
        let counts = after(&mut counter, &far);
        assert!(counts.lost_samples > 1_000_000_000 && counter.missing.len() as u64 <= MAX_MISSING);
        counter.sampled(u64::MAX, 0);
        counter.sampled(u64::MAX, 0);
        assert!(counter.missing.len() as u64 <= MAX_MISSING);
    }
}
