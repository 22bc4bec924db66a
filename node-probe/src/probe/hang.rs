//! Samples of the host go on while the driver hangs, and the relay learns that the driver hangs or is slow.

use super::Probe;
use crate::{
    clock,
    driver_thread::{DriverStatus, ReadRequest},
    host::Look,
    sampler::Stamp,
    source::DriverEvent,
};
use nodeglass_protocol::probe::{Event, GpuSample, ProbeLine};
use nodeglass_protocol::{GpuUuid, Text};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A call that has not returned for this long hangs.
const HUNG: Duration = Duration::from_secs(3);
/// Readings that take longer than this are slow,
const SLOW: Duration = Duration::from_secs(1);
/// and so is the driver after this many slow ones in a row, until as many in a row were fast.
const IN_A_ROW: u32 = 3;
/// Events that are remembered, so that a thread that comes back late does not report them again.
const REMEMBERED: usize = 32;
/// Within this time, two reports of an Xid by two threads are of one event; later it is another event, in ns.
const SAME_EVENT_NS: u64 = 60_000_000_000;

/// Whether the source answers, and how fast.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When the readings were requested that have not come yet.
    asked: Option<Instant>,
    /// Why the GPUs have no readings, once waiting for them was given up.
    hang: Option<Text>,
    is_slow: bool,
    /// How many readings in a row were slow while the driver is not, or the other way round.
    contrary: u32,
    /// The newest events: GPU, Xid, when they were printed in ns.
    recent: VecDeque<(Option<GpuUuid>, Option<u64>, u64)>,
}

impl Watch {
    /// Takes note of how long readings took; says so when they have become slow.
    fn pace(&mut self, took: Duration) -> Option<Text> {
        let is_contrary = (took >= SLOW) != self.is_slow;
        self.contrary = if is_contrary { self.contrary + 1 } else { 0 };
        if self.contrary < IN_A_ROW {
            return None;
        }
        (self.is_slow, self.contrary) = (!self.is_slow, 0);
        let text = format!("the NVIDIA driver is slow: reading the GPUs takes {:.1} s", took.as_secs_f64());
        self.is_slow.then(|| text.into())
    }
}

fn stamp_now() -> Stamp {
    Stamp { mono_ns: clock::mono_ns(), wall_ms: clock::wall_ms() }
}

impl Probe {
    /// Requests the readings of a sample. Without an answer in time the host alone makes one.
    pub(super) fn begin_reading(&mut self, now: Instant, stamp: Stamp, processes: bool) {
        match self.check_driver() {
            DriverStatus::Responsive => {}
            DriverStatus::Replaced => {
                (self.begun, self.watch.asked) = (None, None);
                // What it said of the call that hangs no longer holds for the driver.
                self.beat();
            }
            DriverStatus::Hung { since } => return self.sample_without_answer(stamp, since),
        }
        match self.watch.asked {
            // It may be slow: it is not asked again. The call that hangs began later than the readings did, and is to be
            // found first: it says which GPU hangs.
            Some(asked) if now.duration_since(asked) < HUNG + SLOW => {}
            Some(asked) => self.sample_without_answer(stamp, now.duration_since(asked)),
            None if self.driver_thread.request(ReadRequest { processes }) => {
                self.watch.asked = Some(now);
                self.begun = Some((stamp, self.host.look()));
                self.last_processes = if processes { Some(now) } else { self.last_processes };
            }
            None => {}
        }
    }

    /// Looks after the source's thread.
    pub(super) fn check_driver(&mut self) -> DriverStatus {
        self.driver_thread.check(HUNG).unwrap_or_else(|error| {
            eprintln!(
                "node-probe: cannot go on without the GPU that hangs, no thread can be started: {error}"
            );
            DriverStatus::Hung { since: HUNG }
        })
    }

    /// Prints a sample of the host. Its GPUs have a fault instead of readings.
    fn sample_without_answer(&mut self, stamp: Stamp, since: Duration) {
        self.begun = None;
        let why = self.watch.hang.clone().unwrap_or_else(|| {
            let why =
                Text::from(format!("the NVIDIA driver has not answered since {}", clock::time_of_day(since)));
            self.print_event(stamp.mono_ns, why.clone());
            self.watch.hang.insert(why).clone()
        });
        let gpu = GpuSample { fault: Some(why), ..GpuSample::default() };
        let host = self.host.look();
        // The event says it for all of them.
        self.print_sample_line(stamp, vec![gpu; self.hello.gpus.len()], host);
        self.beat();
    }

    /// When the sample was begun that is answered now, and the host then; `None` if it is none that was requested.
    pub(super) fn answered(&mut self) -> Option<(Stamp, Look)> {
        let took = self.watch.asked.take()?.elapsed();
        let (stamp, host) = self.begun.take().unwrap_or_else(|| (stamp_now(), self.host.look()));
        if self.watch.hang.take().is_some() {
            let text = format!("the NVIDIA driver answers again after {} s", took.as_secs());
            self.print_event(stamp.mono_ns, text.into());
        }
        if let Some(slow) = self.watch.pace(took) {
            self.print_event(stamp.mono_ns, slow);
        }
        Some((stamp, host))
    }

    /// Prints what happened to the GPUs.
    pub(super) fn print_driver_events(&mut self, mono_ns: u64, driver_events: Vec<DriverEvent>) {
        for DriverEvent { gpu, xid, text } in driver_events {
            if self.watch.recent.len() >= REMEMBERED {
                self.watch.recent.pop_front();
            }
            self.watch.recent.push_back((gpu.clone(), xid, mono_ns));
            self.print(&ProbeLine::Event(Event { mono_ns, gpu, xid, text }));
        }
    }

    /// Prints what a thread took from the driver before it was abandoned, unless the one after it has reported it, too.
    pub(super) fn print_late_driver_events(&mut self, mut driver_events: Vec<DriverEvent>) {
        let now_ns = clock::mono_ns();
        let same = |one: &DriverEvent, (gpu, xid, at_ns): &(_, _, u64)| {
            (gpu, xid) == (&one.gpu, &one.xid) && now_ns.saturating_sub(*at_ns) < SAME_EVENT_NS
        };
        driver_events.retain(|one| !self.watch.recent.iter().any(|printed| same(one, printed)));
        self.print_driver_events(now_ns, driver_events);
    }

    fn print_event(&mut self, mono_ns: u64, text: Text) {
        self.print(&ProbeLine::Event(Event { mono_ns, gpu: None, xid: None, text }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_stays_slow_is_reported_once() {
        let mut watch = Watch::default();
        let mut said = |millis: &[u64]| {
            let paces = millis.iter().filter_map(|millis| watch.pace(Duration::from_millis(*millis)));
            paces.map(|text| text.to_string()).collect::<Vec<_>>()
        };
        assert!(said(&[3_000, 20, 3_000, 3_000, 20]).is_empty());
        let slow = ["the NVIDIA driver is slow: reading the GPUs takes 3.0 s"];
        assert_eq!(said(&[3_000, 3_000, 3_000, 3_000, 3_000, 20, 20, 3_000]), slow);
        assert!(said(&[20, 20, 20, 3_000, 3_000]).is_empty());
        assert_eq!(said(&[3_000]), slow);
    }
}
