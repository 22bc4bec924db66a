//! What the probe prints: samples and what is news in them, signs of life, and what was missed.

use super::{Probe, SourceState};
use crate::sampler::{ProcessUpdate, Stamp};
use crate::source::{DriverEvent, GpuProcessList};
use crate::{clock, host::HostReadings, output};
use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::{
    GpuGap, GpuHealth, GpuSample, Heartbeat, ProbeAnswer, ProbeLine, ProcessGap, ProcessList, Sample,
};
use std::time::{Duration, Instant};

/// A call that runs longer than this hangs.
const STUCK: Duration = Duration::from_secs(1);
/// A lookup of processes that runs longer than this hangs.
const LOOKUP_STUCK: Duration = Duration::from_secs(5);
/// What is then said of each GPU's list.
const LOOKUP_STUCK_REASON: &str = "a file in /proc does not return";
/// Process lists are asked for at most this often; a little less than two intervals of a second.
const PROCESS_INTERVAL: Duration = Duration::from_millis(1_900);
/// Back-fill goes in portions of so many lines,
const REPLAY_BATCH: usize = 16;
/// with pauses between them, so that live lines find room.
const REPLAY_PAUSE: Duration = Duration::from_millis(50);

impl Probe {
    /// Says who it is and what it has; printed first, and whenever the inventory changed.
    pub(super) fn print_hello(&mut self) {
        self.print(&ProbeLine::Hello(Box::new(self.hello.clone())));
    }

    /// Asks for the readings of a sample; without a source the host alone makes one.
    pub(super) fn start_sample(&mut self, now: Instant) {
        let stamp = Stamp { mono_ns: clock::mono_ns(), wall_ms: clock::wall_ms() };
        match self.source_state {
            SourceState::Opening => {
                self.check_driver();
            }
            SourceState::Absent => {
                self.check_driver();
                let host = self.host.read();
                self.print_sample(stamp, Vec::new(), host);
            }
            SourceState::Ready => {
                let processes = self.last_processes.is_none_or(|at| now >= at + PROCESS_INTERVAL);
                self.request_readings(now, stamp, processes);
            }
        }
    }

    /// Prints what was asked for.
    pub(super) fn finish_sample(
        &mut self,
        gpus: Vec<GpuSample>,
        processes: Option<GpuProcessList>,
        driver_events: Vec<DriverEvent>,
    ) {
        // Otherwise it is the answer to a request of before the source went away.
        let Some((stamp, host)) = self.take_pending() else { return };
        self.print_sample(stamp, gpus, host);
        if let Some(gpu_process_list) = processes {
            self.look_up_processes(gpu_process_list);
        }
        self.print_driver_events(stamp.mono_ns, driver_events);
    }

    fn print_sample(&mut self, stamp: Stamp, gpus: Vec<GpuSample>, host: HostReadings) {
        let sample = self.sampler.sample(stamp, self.interval_ms, gpus, host);
        let fault_events = self.sampler.fault_events(&sample);
        self.offer_sample(sample);
        fault_events.into_iter().for_each(|event| self.print(&ProbeLine::Event(event)));
    }

    /// Prints a sample, but no events of GPUs that stopped answering with it.
    pub(super) fn print_sample_line(&mut self, stamp: Stamp, gpus: Vec<GpuSample>, host: HostReadings) {
        let sample = self.sampler.sample(stamp, self.interval_ms, gpus, host);
        self.offer_sample(sample);
    }

    fn offer_sample(&mut self, sample: Sample) {
        if self.output.offer(self.sampler.line(sample)) {
            self.last_line = Instant::now();
        } else {
            self.sampler.force_full_sample();
        }
    }

    /// Has processes looked up. While a lookup hangs, the last list is all that is known, and says so.
    fn look_up_processes(&mut self, gpu_process_list: GpuProcessList) {
        if self.inspector.busy().is_some_and(|busy| busy >= LOOKUP_STUCK) {
            let gap = |gpu: &GpuUuid| GpuGap {
                gpu: gpu.clone(),
                gap: ProcessGap::Failed(LOOKUP_STUCK_REASON.into()),
            };
            let gaps = self.sampler.uuids().iter().map(gap).collect();
            self.print_processes(self.sampler.last_processes(gpu_process_list.mono_ns, gaps));
        }
        self.inspector.inspect(gpu_process_list);
    }

    /// Prints the process list if it is news, otherwise what they do now.
    pub(super) fn print_processes(&mut self, list: ProcessList) {
        self.processes_ns = list.mono_ns;
        match self.sampler.processes(list) {
            Some(ProcessUpdate::Readings(bytes)) => {
                self.output.offer_readings(bytes);
            }
            Some(ProcessUpdate::List(line)) => self.print(&line),
            None => {}
        }
    }

    /// Prints what came of a question.
    pub(super) fn print_answer(&mut self, answer: ProbeAnswer) {
        self.print(&ProbeLine::Answer(Box::new(answer)));
    }

    /// Prints health if it is news.
    pub(super) fn print_health(&mut self, gpus: Vec<GpuHealth>) {
        if let Some(line) = self.sampler.health(clock::mono_ns(), gpus) {
            self.print(&line);
        }
    }

    pub(super) fn print(&mut self, line: &ProbeLine) {
        self.output.print(line);
        self.last_line = Instant::now();
    }

    /// Says that the probe is alive, and whether a call hangs.
    pub(super) fn print_heartbeat(&mut self) {
        let stuck = self.driver_thread.call_duration().filter(|busy| *busy >= STUCK);
        let nvml_stuck_ms = stuck.map(|busy| u64::try_from(busy.as_millis()).unwrap_or(u64::MAX));
        let heartbeat = ProbeLine::Heartbeat(Heartbeat { mono_ns: clock::mono_ns(), nvml_stuck_ms });
        // If there is no room, lines enough are waiting; it counts as said, or this would spin.
        self.output.offer_heartbeat(&heartbeat);
        self.last_line = Instant::now();
    }

    /// Sends the next portion again, unless live lines fill the pipe.
    pub(super) fn replay_batch(&mut self, now: Instant) {
        let Some((mut after, until, _)) = self.replay.take() else { return };
        for _ in 0..REPLAY_BATCH {
            match self.sampler.ring().after(after).filter(|entry| entry.seq <= until) {
                None => return,
                Some(entry) if self.output.offer(output::replayed(&entry.line)) => after = entry.seq,
                Some(_) => break,
            }
        }
        self.replay = Some((after, until, now + REPLAY_PAUSE));
    }
}
