//! Lines that the probe prints: samples, derived events, heartbeats and replays.

use super::{Engine, Phase, environment::Environment};
use crate::sampler::{ProcessUpdate, Stamp};
use crate::source::GpuProcessList;
use crate::{host::HostReadings, output};
use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::{
    GpuGap, GpuHealth, GpuSample, Heartbeat, ProbeLine, ProbeResponse, ProcessGap, ProcessList, Sample,
    SpoolNotes,
};
use std::time::Duration;

/// Duration after which a driver call counts as stuck.
const STUCK: Duration = Duration::from_secs(1);
/// Duration after which a process lookup counts as stuck.
const LOOKUP_STUCK: Duration = Duration::from_secs(5);
/// Reason reported for each GPU's process list while a lookup is stuck.
const LOOKUP_STUCK_REASON: &str = "a file in /proc does not return";
/// Minimum interval of process lists; slightly less than two one-second intervals.
const PROCESS_INTERVAL: Duration = Duration::from_millis(1_900);
/// Minimum interval of reading notes; slightly less than two one-second intervals.
const NOTES_INTERVAL: Duration = Duration::from_millis(1_900);
/// Minimum interval of lines about the probe itself; slightly less than the interval of the slowest samples.
const USAGE_INTERVAL: Duration = Duration::from_secs(59);
/// Number of lines per replay batch.
const REPLAY_BATCH: usize = 16;
/// Pause between replay batches, so that live lines have room.
const REPLAY_PAUSE: Duration = Duration::from_millis(50);

impl<E: Environment> Engine<E> {
    /// Prints the hello line; the first line, and repeated when the inventory changed.
    pub(super) fn print_hello(&mut self) {
        self.print(&ProbeLine::Hello(Box::new(self.hello.clone())));
    }

    /// Starts a sample; without a source it contains the host only.
    pub(super) fn start_sample(&mut self, now: Duration) {
        let stamp = self.env.now().stamp();
        match self.phase() {
            Phase::Opening => self.check_drivers(),
            Phase::HostOnly => {
                self.check_drivers();
                let host = self.env.read_host();
                self.print_sample(stamp, Vec::new(), host);
            }
            Phase::Ready => {
                let processes = self.last_processes.is_none_or(|at| now >= at + PROCESS_INTERVAL);
                self.request_readings(now, stamp, processes);
            }
        }
    }

    /// Prints a sample, and the faults that began or ended with it.
    pub(super) fn print_sample(&mut self, stamp: Stamp, gpus: Vec<GpuSample>, host: HostReadings) {
        let sample = self.sampler.sample(stamp, self.interval_ms, gpus, host);
        let fault_events = self.sampler.fault_events(&sample);
        self.offer_sample(sample);
        fault_events.into_iter().for_each(|event| self.print(&ProbeLine::Event(event)));
    }

    /// Prints a sample without fault events.
    pub(super) fn print_sample_line(&mut self, stamp: Stamp, gpus: Vec<GpuSample>, host: HostReadings) {
        let sample = self.sampler.sample(stamp, self.interval_ms, gpus, host);
        self.offer_sample(sample);
    }

    fn offer_sample(&mut self, sample: Sample) {
        if self.env.offer_sample(self.sampler.line(sample)) {
            self.last_line = self.env.now().elapsed;
        } else {
            self.sampler.force_full_sample();
        }
    }

    /// Submits processes for resolution. While a lookup is stuck, the last list is repeated with
    /// gaps.
    pub(super) fn look_up_processes(&mut self, gpu_process_list: GpuProcessList) {
        if self.env.lookup_duration().is_some_and(|busy| busy >= LOOKUP_STUCK) {
            let gap = |gpu: &GpuUuid| GpuGap {
                gpu: gpu.clone(),
                gap: ProcessGap::Failed(LOOKUP_STUCK_REASON.into()),
            };
            let gaps = self.sampler.uuids().iter().map(gap).collect();
            self.print_processes(self.sampler.last_processes(gpu_process_list.mono_ns, gaps));
        }
        self.env.look_up_processes(gpu_process_list);
    }

    /// Prints the process list if it changed, otherwise the current readings.
    pub(super) fn print_processes(&mut self, list: ProcessList) {
        self.processes_ns = list.mono_ns;
        match self.sampler.processes(list) {
            Some(ProcessUpdate::Readings(bytes)) => {
                self.env.offer_readings(bytes);
            }
            Some(ProcessUpdate::List(line)) => self.print(&line),
            None => {}
        }
    }

    /// Prints the response to a request.
    pub(super) fn print_response(&mut self, response: ProbeResponse) {
        self.print(&ProbeLine::Response(Box::new(response)));
    }

    /// Prints what the probe itself uses, not before the first sample.
    pub(super) fn print_usage(&mut self, now: Duration) {
        let is_due = self.last_usage.is_none_or(|at| now >= at + USAGE_INTERVAL);
        if self.sampler.next_seq() > 1 && is_due {
            self.last_usage = Some(now);
            if let Some(usage) = self.env.read_usage() {
                self.print(&ProbeLine::Usage(usage));
            }
        }
    }

    /// Requests new notes, unless some still wait for room in the pipe: the files keep what is not read yet. Not before
    /// the first sample, without which the relay cannot convert their time.
    pub(super) fn read_notes(&mut self, now: Duration) {
        self.offer_notes();
        let is_due = self.last_notes.is_none_or(|at| now >= at + NOTES_INTERVAL);
        if !self.note_jobs.is_empty() && self.pending_notes.is_none() && self.sampler.next_seq() > 1 && is_due
        {
            self.last_notes = Some(now);
            self.env.read_notes(&self.note_jobs);
        }
    }

    /// Prints new notes.
    pub fn handle_notes(&mut self, notes: SpoolNotes) {
        match &mut self.pending_notes {
            Some(pending) => {
                pending.notes.extend(notes.notes);
                pending.problems = notes.problems.or(pending.problems.take());
            }
            None => self.pending_notes = Some(notes),
        }
        self.offer_notes();
    }

    fn offer_notes(&mut self) {
        if let Some(notes) = self.pending_notes.take() {
            let line = ProbeLine::Notes(notes);
            if !self.env.offer_notes(&line)
                && let ProbeLine::Notes(notes) = line
            {
                self.pending_notes = Some(notes);
            }
        }
    }

    /// Prints health if it changed.
    pub(super) fn print_health(&mut self, gpus: Vec<GpuHealth>) {
        if let Some(line) = self.sampler.health(self.env.now().mono_ns, gpus) {
            self.print(&line);
        }
    }

    /// Prints a line.
    pub fn print(&mut self, line: &ProbeLine) {
        self.env.print(line);
        self.last_line = self.env.now().elapsed;
    }

    /// Prints a heartbeat, including the duration of a stuck call.
    pub(super) fn print_heartbeat(&mut self) {
        let stuck = self.unresponsive_for().filter(|busy| *busy >= STUCK);
        let driver_stuck_ms = stuck.map(|busy| u64::try_from(busy.as_millis()).unwrap_or(u64::MAX));
        let heartbeat = ProbeLine::Heartbeat(Heartbeat { mono_ns: self.env.now().mono_ns, driver_stuck_ms });
        // Without room enough other lines are waiting; it counts as printed, to avoid a busy loop.
        self.env.offer_heartbeat(&heartbeat);
        self.last_line = self.env.now().elapsed;
    }

    /// Replays the next batch, unless live lines fill the pipe.
    pub(super) fn replay_batch(&mut self, now: Duration) {
        let Some((mut after, until, _)) = self.replay.take() else { return };
        for _ in 0..REPLAY_BATCH {
            match self.sampler.ring().after(after).filter(|entry| entry.seq <= until) {
                None => return,
                Some(entry) if self.env.offer_sample(output::replayed(&entry.line)) => after = entry.seq,
                Some(_) => break,
            }
        }
        self.replay = Some((after, until, now + REPLAY_PAUSE));
    }
}
