//! Keeps sampling the host while the driver hangs, and reports a hanging or slow driver.

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

/// Duration after which a call counts as hung.
const HUNG: Duration = Duration::from_secs(3);
/// Duration after which readings count as slow,
const SLOW: Duration = Duration::from_secs(1);
/// and number of consecutive slow readings after which the driver does, until as many were fast.
const CONSECUTIVE: u32 = 3;
/// Number of recent events kept, so that a late thread does not report them again.
const MAX_RECENT: usize = 32;
/// Time within which two reports of an Xid by two threads are the same event, in ns.
const SAME_EVENT_NS: u64 = 60_000_000_000;

/// Responsiveness of the source.
#[derive(Debug, Default)]
pub(super) struct DriverWatch {
    /// Time of the pending request.
    requested_at: Option<Instant>,
    /// Reason why the GPUs have no readings, while the driver hangs.
    hang_reason: Option<Text>,
    is_slow: bool,
    /// Number of consecutive readings that deviate from the current state.
    deviating: u32,
    /// Recent events: GPU, Xid, and time printed in ns.
    recent: VecDeque<(Option<GpuUuid>, Option<u64>, u64)>,
}

impl DriverWatch {
    /// Records the duration of readings; returns a message if the driver has become slow.
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
    /// Requests the readings of a sample. Without a response in time, the sample contains the host
    /// only.
    pub(super) fn request_readings(&mut self, now: Instant, stamp: Stamp, processes: bool) {
        match self.check_driver() {
            DriverStatus::Responsive => {}
            DriverStatus::Replaced => {
                (self.pending, self.driver_watch.requested_at) = (None, None);
                // The message about the hanging call does not apply to the driver as a whole.
                self.print_heartbeat();
            }
            DriverStatus::Hung { since } => return self.sample_host_only(stamp, since),
        }
        match self.driver_watch.requested_at {
            // The driver may just be slow. A hanging call started later than the request and should
            // be detected first, because it identifies the GPU.
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

    /// Runs the watchdog check.
    pub(super) fn check_driver(&mut self) -> DriverStatus {
        self.driver_thread.check(HUNG).unwrap_or_else(|error| {
            eprintln!(
                "node-probe: cannot go on without the GPU that hangs, no thread can be started: {error}"
            );
            DriverStatus::Hung { since: HUNG }
        })
    }

    /// Prints a sample of the host with a fault for each GPU.
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
        // One event covers all GPUs.
        self.print_sample_line(stamp, vec![gpu; self.hello.gpus.len()], host);
        self.print_heartbeat();
    }

    /// Returns the start time and host readings of the sample that the response belongs to; `None`
    /// without a pending request.
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

    /// Prints driver events.
    pub(super) fn print_driver_events(&mut self, mono_ns: u64, driver_events: Vec<DriverEvent>) {
        for DriverEvent { gpu, xid, text } in driver_events {
            if self.driver_watch.recent.len() >= MAX_RECENT {
                self.driver_watch.recent.pop_front();
            }
            self.driver_watch.recent.push_back((gpu.clone(), xid, mono_ns));
            self.print(&ProbeLine::Event(Event { mono_ns, gpu, xid, text }));
        }
    }

    /// Prints events of an abandoned thread that its replacement has not reported.
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
    fn a_slow_driver_is_reported_once() {
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
