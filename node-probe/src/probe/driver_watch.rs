//! Samples of the host go on while the driver hangs, and the relay learns that the driver hangs or is slow.

use super::Probe;
use crate::{
    clock,
    driver_thread::{DriverStatus, ReadRequest},
    host::HostReadings,
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
const CONSECUTIVE: u32 = 3;
/// Events that are remembered, so that a thread that comes back late does not report them again.
const MAX_RECENT: usize = 32;
/// Within this time, two reports of an Xid by two threads are of one event; later it is another event, in ns.
const SAME_EVENT_NS: u64 = 60_000_000_000;

/// Whether the source answers, and how fast.
#[derive(Debug, Default)]
pub(super) struct DriverWatch {
    /// When the readings were requested that have not come yet.
    requested_at: Option<Instant>,
    /// Why the GPUs have no readings, once waiting for them was given up.
    hang_reason: Option<Text>,
    is_slow: bool,
    /// How many readings in a row were slow while the driver is not, or the other way round.
    deviating: u32,
    /// The newest events: GPU, Xid, when they were printed in ns.
    recent: VecDeque<(Option<GpuUuid>, Option<u64>, u64)>,
}

impl DriverWatch {
    /// Takes note of how long readings took; says so when they have become slow.
    fn record_duration(&mut self, took: Duration) -> Option<Text> {
        let is_deviating = (took >= SLOW) != self.is_slow;
        self.deviating = if is_deviating { self.deviating + 1 } else { 0 };
        if self.deviating < CONSECUTIVE {
            return None;
        }
        (self.is_slow, self.deviating) = (!self.is_slow, 0);
        let text = format!("the NVIDIA driver is slow: reading the GPUs takes {:.1} s", took.as_secs_f64());
        self.is_slow.then(|| text.into())
    }
}

fn stamp_now() -> Stamp {
    Stamp { mono_ns: clock::mono_ns(), wall_ms: clock::wall_ms() }
}

impl Probe {
    /// Requests the readings of a sample. Without an answer in time the host alone makes one.
    pub(super) fn request_readings(&mut self, now: Instant, stamp: Stamp, processes: bool) {
        match self.check_driver() {
            DriverStatus::Responsive => {}
            DriverStatus::Replaced => {
                (self.pending, self.driver_watch.requested_at) = (None, None);
                // What it said of the call that hangs no longer holds for the driver.
                self.print_heartbeat();
            }
            DriverStatus::Hung { since } => return self.sample_host_only(stamp, since),
        }
        match self.driver_watch.requested_at {
            // It may be slow: it is not asked again. The call that hangs began later than the readings did, and is to be
            // found first: it says which GPU hangs.
            Some(requested_at) if now.duration_since(requested_at) < HUNG + SLOW => {}
            Some(requested_at) => self.sample_host_only(stamp, now.duration_since(requested_at)),
            None if self.driver_thread.request(ReadRequest { processes }) => {
                self.driver_watch.requested_at = Some(now);
                self.pending = Some((stamp, self.host.read()));
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
    fn sample_host_only(&mut self, stamp: Stamp, since: Duration) {
        self.pending = None;
        let why = self.driver_watch.hang_reason.clone().unwrap_or_else(|| {
            let why =
                Text::from(format!("the NVIDIA driver has not answered since {}", clock::time_of_day(since)));
            self.print_event(stamp.mono_ns, why.clone());
            self.driver_watch.hang_reason.insert(why).clone()
        });
        let gpu = GpuSample { fault: Some(why), ..GpuSample::default() };
        let host = self.host.read();
        // The event says it for all of them.
        self.print_sample_line(stamp, vec![gpu; self.hello.gpus.len()], host);
        self.print_heartbeat();
    }

    /// When the sample was begun that is answered now, and the host then; `None` if it is none that was requested.
    pub(super) fn take_pending(&mut self) -> Option<(Stamp, HostReadings)> {
        let took = self.driver_watch.requested_at.take()?.elapsed();
        let (stamp, host) = self.pending.take().unwrap_or_else(|| (stamp_now(), self.host.read()));
        if self.driver_watch.hang_reason.take().is_some() {
            let text = format!("the NVIDIA driver answers again after {} s", took.as_secs());
            self.print_event(stamp.mono_ns, text.into());
        }
        if let Some(slow) = self.driver_watch.record_duration(took) {
            self.print_event(stamp.mono_ns, slow);
        }
        Some((stamp, host))
    }

    /// Prints what happened to the GPUs.
    pub(super) fn print_driver_events(&mut self, mono_ns: u64, driver_events: Vec<DriverEvent>) {
        for DriverEvent { gpu, xid, text } in driver_events {
            if self.driver_watch.recent.len() >= MAX_RECENT {
                self.driver_watch.recent.pop_front();
            }
            self.driver_watch.recent.push_back((gpu.clone(), xid, mono_ns));
            self.print(&ProbeLine::Event(Event { mono_ns, gpu, xid, text }));
        }
    }

    /// Prints what a thread took from the driver before it was abandoned, unless the one after it has reported it, too.
    pub(super) fn print_late_driver_events(&mut self, mut driver_events: Vec<DriverEvent>) {
        let now_ns = clock::mono_ns();
        let same = |one: &DriverEvent, (gpu, xid, at_ns): &(_, _, u64)| {
            (gpu, xid) == (&one.gpu, &one.xid) && now_ns.saturating_sub(*at_ns) < SAME_EVENT_NS
        };
        driver_events.retain(|one| !self.driver_watch.recent.iter().any(|printed| same(one, printed)));
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
        let mut driver_watch = DriverWatch::default();
        let mut said = |millis: &[u64]| {
            let paces = millis
                .iter()
                .filter_map(|millis| driver_watch.record_duration(Duration::from_millis(*millis)));
            paces.map(|text| text.to_string()).collect::<Vec<_>>()
        };
        assert!(said(&[3_000, 20, 3_000, 3_000, 20]).is_empty());
        let slow = ["the NVIDIA driver is slow: reading the GPUs takes 3.0 s"];
        assert_eq!(said(&[3_000, 3_000, 3_000, 3_000, 3_000, 20, 20, 3_000]), slow);
        assert!(said(&[20, 20, 20, 3_000, 3_000]).is_empty());
        assert_eq!(said(&[3_000]), slow);
    }
}
