//! Keeps sampling the host while the driver hangs, and reports a hanging or slow driver.

use super::{Engine, Phase, environment::Environment};
use crate::{
    clock,
    driver_thread::{DriverStatus, ReadRequest},
    host::HostReadings,
    sampler::Stamp,
    source::{DriverEvent, GpuProcessList},
};
use nodeglass_protocol::probe::{Event, GpuSample, ProbeLine};
use nodeglass_protocol::{GpuUuid, Text, Vendor};
use std::time::Duration;

/// Duration after which a call counts as hung.
const HUNG: Duration = Duration::from_secs(3);
/// Maximum time that a sample waits for readings: a call that hangs is detected before, because it
/// began shortly after the request.
const SAMPLE_WAIT: Duration = HUNG.saturating_add(Duration::from_millis(250));
/// The wait for a driver whose thread was just replaced, which may hang as a whole.
const REPLACEMENT_WAIT: Duration = Duration::from_millis(500);
/// Duration after which readings count as slow.
const SLOW: Duration = Duration::from_secs(1);
/// Number of consecutive slow readings after which the driver counts as slow, until as many were fast.
const CONSECUTIVE: u32 = 3;

/// A recent event: GPU, Xid, and time printed in ns.
pub(super) type RecentEvent = (Option<GpuUuid>, Option<u64>, u64);
/// Number of recent events kept, so that a late thread does not report them again.
const MAX_RECENT: usize = 32;
/// Time within which two reports of an Xid by two threads are the same event, in ns.
const SAME_EVENT_NS: u64 = 60_000_000_000;

/// A sample that waits for readings.
pub(super) struct PendingSample {
    stamp: Stamp,
    host: HostReadings,
    /// Time at which it is printed without the missing readings.
    pub(super) until: Duration,
}

/// Responses of one source's driver.
pub(super) struct Driver {
    watch: DriverWatch,
    /// Whether it hung as a whole at the last check.
    is_hung: bool,
    /// Whether its thread was replaced since its last response.
    was_replaced: bool,
    /// Whether samples are printed without waiting for it, until its next response.
    is_late: bool,
    /// Time of the first request since its last response.
    unanswered_since: Option<Duration>,
    /// Time of the request that is still pending.
    requested_at: Option<Duration>,
    /// Its readings for the pending sample, or for the next one if they arrived late.
    answer: Option<Answer>,
}

/// Readings of one source.
struct Answer {
    gpus: Vec<GpuSample>,
    processes: Option<GpuProcessList>,
    driver_events: Vec<DriverEvent>,
}

impl Driver {
    pub(super) fn new(vendor: Vendor) -> Self {
        Self {
            watch: DriverWatch::new(vendor),
            is_hung: false,
            was_replaced: false,
            is_late: false,
            unanswered_since: None,
            requested_at: None,
            answer: None,
        }
    }

    /// Forgets everything about a source that became unavailable.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.watch.vendor);
    }

    /// Returns whether the pending sample waits for its readings.
    fn is_awaited(&self) -> bool {
        self.requested_at.is_some() && !self.is_late
    }

    /// Returns whether its thread was replaced and the replacement has not had time to respond.
    fn is_on_trial(&self) -> bool {
        self.was_replaced && !self.is_late
    }

    /// Returns for how long it has not responded.
    fn unanswered_for(&self, now: Duration) -> Duration {
        self.unanswered_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

/// Responsiveness of a driver.
#[derive(Debug)]
struct DriverWatch {
    vendor: Vendor,
    /// Reason why the GPUs have no readings, while the driver hangs.
    hang_reason: Option<Text>,
    is_slow: bool,
    /// Number of consecutive readings that deviate from the current state.
    deviating: u32,
}

impl DriverWatch {
    fn new(vendor: Vendor) -> Self {
        Self { vendor, hang_reason: None, is_slow: false, deviating: 0 }
    }

    /// Records that the driver hangs; returns a message if that is new.
    fn record_hang(&mut self, wall_ns: u64, since: Duration) -> Option<Text> {
        if self.hang_reason.is_some() {
            return None;
        }
        let vendor = self.vendor.name();
        let why =
            format!("the {vendor} driver has not responded since {}", clock::time_of_day(wall_ns, since));
        Some(self.hang_reason.insert(why.into()).clone())
    }

    /// Records that the driver answered; returns a message if it hung before.
    fn record_response(&mut self, took: Duration) -> Option<Text> {
        self.hang_reason.take()?;
        Some(format!("the {} driver responds again after {} s", self.vendor.name(), took.as_secs()).into())
    }

    /// Records the duration of readings; returns a message if the driver has become slow.
    fn record_duration(&mut self, took: Duration) -> Option<Text> {
        let is_deviating = (took >= SLOW) != self.is_slow;
        self.deviating = if is_deviating { self.deviating + 1 } else { 0 };
        if self.deviating < CONSECUTIVE {
            return None;
        }
        (self.is_slow, self.deviating) = (!self.is_slow, 0);
        let (vendor, seconds) = (self.vendor.name(), took.as_secs_f64());
        let text = format!("the {vendor} driver is slow: reading the GPUs takes {seconds:.1} s");
        self.is_slow.then(|| text.into())
    }
}

impl<E: Environment> Engine<E> {
    /// Requests the readings of a sample, unless the pending request still waits for a driver. GPUs of a hanging
    /// driver have a fault; GPUs of a slow one are not read yet.
    pub(super) fn request_readings(&mut self, now: Duration, stamp: Stamp, processes: bool) {
        let ready: Vec<_> = self.sources.ready().collect();
        for source in &ready {
            self.check_ready_driver(*source, now, stamp);
        }
        if let Some(until) = self.pending.as_ref().map(|pending| pending.until) {
            if now < until && ready.iter().any(|source| self.drivers[*source].is_awaited()) {
                return;
            }
            ready.iter().for_each(|source| self.give_up_waiting(*source, now, stamp));
            self.finish_sample();
        }
        let on_trial = ready.iter().any(|source| self.drivers[*source].is_on_trial());
        let until = now + if on_trial { REPLACEMENT_WAIT } else { SAMPLE_WAIT };
        for source in &ready {
            let driver = &mut self.drivers[*source];
            // A late response is used now. A driver that hangs as a whole would not respond.
            let is_needed = driver.requested_at.is_none() && driver.answer.is_none() && !driver.is_hung;
            if is_needed && self.env.request_readings(*source, ReadRequest { processes }) {
                driver.requested_at = Some(now);
                driver.unanswered_since.get_or_insert(now);
                self.last_processes = if processes { Some(now) } else { self.last_processes };
            }
        }
        self.pending = Some(PendingSample { stamp, host: self.env.read_host(), until });
        if !ready.iter().any(|source| self.drivers[*source].is_awaited()) {
            self.finish_sample();
            if ready.iter().all(|source| self.drivers[*source].watch.hang_reason.is_some()) {
                self.print_heartbeat();
            }
        }
    }

    /// Runs the watchdog check of an available source.
    fn check_ready_driver(&mut self, source: usize, now: Duration, stamp: Stamp) {
        let mut status = self.env.check_driver(source, HUNG);
        if status == DriverStatus::Replaced {
            let driver = &mut self.drivers[source];
            (driver.requested_at, driver.was_replaced) = (None, true);
            if !driver.is_late {
                // The replacement reads all GPUs again, so that they are not missing from this sample.
                self.pending = None;
                self.drivers.iter_mut().for_each(|driver| driver.answer = None);
            }
            status = self.env.check_driver(source, HUNG);
        }
        let driver = &mut self.drivers[source];
        driver.is_hung = matches!(status, DriverStatus::Hung { .. });
        if let DriverStatus::Hung { duration } = status {
            driver.is_late = true;
            let duration = duration.max(driver.unanswered_for(now));
            self.report_hang(source, duration, stamp);
        }
    }

    /// Prints samples without a driver that is still awaited, until it responds.
    fn give_up_waiting(&mut self, source: usize, now: Duration, stamp: Stamp) {
        let driver = &mut self.drivers[source];
        if !driver.is_awaited() {
            return;
        }
        driver.is_late = true;
        // A replaced thread means that a call for one GPU hung. Now a call for another GPU hangs, so the driver
        // counts as hanging as a whole. Without a hung call, it is only slow.
        if driver.was_replaced {
            let since = driver.unanswered_for(now);
            self.report_hang(source, since, stamp);
        }
    }

    /// Prints once that a driver hangs as a whole.
    fn report_hang(&mut self, source: usize, since: Duration, stamp: Stamp) {
        let wall_ns = self.env.now().wall_ns;
        if let Some(event) = self.drivers[source].watch.record_hang(wall_ns, since) {
            self.print_event(stamp.mono_ns, event);
        }
    }

    /// Runs the watchdog check of every driver.
    pub(super) fn check_drivers(&mut self) {
        (0..self.drivers.len()).for_each(|source| _ = self.env.check_driver(source, HUNG));
    }

    /// Returns for how long no driver has responded; `None` if one does.
    pub(super) fn unresponsive_for(&self) -> Option<Duration> {
        let is_relevant = |source: &usize| match self.phase() {
            Phase::Ready => self.sources.is_ready(*source),
            Phase::Opening | Phase::HostOnly => self.sources.has_driver(*source),
        };
        let now = self.env.now().elapsed;
        let busy_for = |source: usize| {
            let driver = &self.drivers[source];
            // The call of a replacement is shorter than the hang.
            let since_replaced = driver.was_replaced.then(|| driver.unanswered_for(now));
            self.env.driver_call_duration(source).max(since_replaced)
        };
        // `None` is less than any duration.
        (0..self.drivers.len()).filter(is_relevant).map(busy_for).min().flatten()
    }

    /// Takes the readings of a source, and prints the sample if it is complete.
    pub(super) fn take_readings(
        &mut self,
        source: usize,
        gpus: Vec<GpuSample>,
        processes: Option<GpuProcessList>,
        driver_events: Vec<DriverEvent>,
    ) {
        let now = self.env.now();
        let driver = &mut self.drivers[source];
        // Without a request it is a late response from before the source became unavailable.
        let Some(took) = driver.requested_at.take().map(|at| now.elapsed.saturating_sub(at)) else { return };
        let unanswered_for = driver.unanswered_for(now.elapsed);
        (driver.is_late, driver.was_replaced, driver.unanswered_since) = (false, false, None);
        let events = [driver.watch.record_response(unanswered_for), driver.watch.record_duration(took)];
        driver.answer = Some(Answer { gpus, processes, driver_events });
        let mono_ns = self.pending.as_ref().map_or(now.mono_ns, |pending| pending.stamp.mono_ns);
        events.into_iter().flatten().for_each(|event| self.print_event(mono_ns, event));
        if self.pending.is_none() {
            self.take_late_response(source);
        }
        let is_complete = !self.sources.ready().any(|source| self.drivers[source].is_awaited());
        if self.pending.is_some() && is_complete {
            self.finish_sample();
        }
    }

    /// Starts a sample for a response that arrived late, unless other drivers answer on time: then
    /// the next sample has the readings.
    fn take_late_response(&mut self, source: usize) {
        if self.sources.ready().all(|other| other == source || self.drivers[other].is_late) {
            let now = self.env.now();
            let host = self.env.read_host();
            self.pending = Some(PendingSample { stamp: now.stamp(), host, until: now.elapsed });
        } else if let Some(answer) = &mut self.drivers[source].answer {
            let driver_events = std::mem::take(&mut answer.driver_events);
            let mono_ns = self.env.now().mono_ns;
            self.print_driver_events(mono_ns, driver_events);
        }
    }

    /// Prints the pending sample with the readings that were taken for it.
    fn finish_sample(&mut self) {
        let Some(PendingSample { stamp, host, .. }) = self.pending.take() else { return };
        let mut answers: Vec<_> = self.drivers.iter_mut().map(|driver| driver.answer.take()).collect();
        let reason = |source: usize| self.drivers[source].watch.hang_reason.clone();
        let gpus = self.sources.merge_readings(|source| match &mut answers[source] {
            Some(answer) => std::mem::take(&mut answer.gpus),
            None => {
                let fault = GpuSample { fault: reason(source), ..GpuSample::default() };
                vec![fault; self.sources.gpus_of(source).len()]
            }
        });
        let is_listed = |answer: &Answer| answer.processes.is_some();
        let has_processes = answers.iter().any(Option::is_some) && answers.iter().flatten().all(is_listed);
        let processes = has_processes.then(|| {
            self.sources.merge_processes(|source| {
                let list = answers[source].as_mut().and_then(|answer| answer.processes.take());
                list.ok_or_else(|| reason(source).unwrap_or_else(|| "not read yet".into()))
            })
        });
        match answers.iter().any(Option::is_some) {
            true => self.print_sample(stamp, gpus, host),
            // One event covers all GPUs.
            false => self.print_sample_line(stamp, gpus, host),
        }
        if let Some(gpu_process_list) = processes {
            self.look_up_processes(gpu_process_list);
        }
        let driver_events = answers.into_iter().flatten().flat_map(|answer| answer.driver_events);
        self.print_driver_events(stamp.mono_ns, driver_events.collect());
    }

    /// Prints driver events.
    pub(super) fn print_driver_events(&mut self, mono_ns: u64, driver_events: Vec<DriverEvent>) {
        for DriverEvent { gpu, xid, text } in driver_events {
            if self.recent_events.len() >= MAX_RECENT {
                self.recent_events.pop_front();
            }
            self.recent_events.push_back((gpu.clone(), xid, mono_ns));
            self.print(&ProbeLine::Event(Event { mono_ns, gpu, xid, text }));
        }
    }

    /// Prints events of an abandoned thread that its replacement has not reported.
    pub fn print_late_driver_events(&mut self, mut driver_events: Vec<DriverEvent>) {
        let now_ns = self.env.now().mono_ns;
        let same = |one: &DriverEvent, (gpu, xid, at_ns): &(_, _, u64)| {
            (gpu, xid) == (&one.gpu, &one.xid) && now_ns.saturating_sub(*at_ns) < SAME_EVENT_NS
        };
        driver_events.retain(|one| !self.recent_events.iter().any(|printed| same(one, printed)));
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
        let mut driver_watch = DriverWatch::new(Vendor::Nvidia);
        let mut messages = |millis: &[u64]| {
            let paces = millis
                .iter()
                .filter_map(|millis| driver_watch.record_duration(Duration::from_millis(*millis)));
            paces.map(|text| text.to_string()).collect::<Vec<_>>()
        };
        assert!(messages(&[3_000, 20, 3_000, 3_000, 20]).is_empty());
        let slow = ["the NVIDIA driver is slow: reading the GPUs takes 3.0 s"];
        assert_eq!(messages(&[3_000, 3_000, 3_000, 3_000, 3_000, 20, 20, 3_000]), slow);
        assert!(messages(&[20, 20, 20, 3_000, 3_000]).is_empty());
        assert_eq!(messages(&[3_000]), slow);
    }
}
