//! What the probe prints: samples and what is news in them, signs of life, and what was missed.

use super::{Link, Probe};
use crate::attendant::Request;
use crate::sampler::{Stamp, Told};
use crate::{clock, host::Look, output, source::News};
use nodeglass_protocol::probe::{
    Event, GpuHealth, GpuSample, Heartbeat, ProbeAnswer, ProbeLine, ProcessSample,
};
use std::time::{Duration, Instant};

/// A call that runs longer than this hangs.
const STUCK: Duration = Duration::from_secs(1);
/// Process lists are asked for at most this often; a little less than two intervals of a second.
const PROCESSES_EVERY: Duration = Duration::from_millis(1_900);
/// Back-fill goes in portions of so many lines,
const REPLAY_PORTION: usize = 16;
/// with pauses between them, so that live lines find room.
const REPLAY_PAUSE: Duration = Duration::from_millis(50);

impl Probe {
    /// Says who it is and what it has; printed first, and whenever the inventory changed.
    pub(super) fn greet(&mut self) {
        self.print(&ProbeLine::Hello(Box::new(self.hello.clone())));
    }

    /// Asks for the readings of a sample; without a source the host alone makes one.
    pub(super) fn begin_sample(&mut self, now: Instant) {
        let stamp = Stamp { mono_ns: clock::mono_ns(), wall_ms: clock::wall_ms() };
        match self.link {
            Link::Opening => {}
            Link::Absent => {
                let host = self.host.look();
                self.print_sample(stamp, Vec::new(), host);
            }
            // A source that still owes an answer is not asked again: it may hang.
            Link::Ready if self.begun.is_some() => {}
            Link::Ready => {
                let processes = self.last_processes.is_none_or(|at| now >= at + PROCESSES_EVERY);
                if self.attendant.request(Request { processes }) {
                    self.begun = Some((stamp, self.host.look()));
                    self.last_processes = if processes { Some(now) } else { self.last_processes };
                }
            }
        }
    }

    /// Prints what was asked for.
    pub(super) fn finish_sample(
        &mut self,
        gpus: Vec<GpuSample>,
        processes: Option<Vec<ProcessSample>>,
        news: Vec<News>,
    ) {
        // Without a beginning it is the answer to a question of before the source went away.
        let Some((stamp, host)) = self.begun.take() else { return };
        self.print_sample(stamp, gpus, host);
        if let Some(processes) = processes {
            self.print_processes(processes);
        }
        for News { gpu, xid, text } in news {
            self.print(&ProbeLine::Event(Event { mono_ns: stamp.mono_ns, gpu, xid, text }));
        }
    }

    fn print_sample(&mut self, stamp: Stamp, gpus: Vec<GpuSample>, host: Look) {
        let sample = self.sampler.sample(stamp, self.interval_ms, gpus, host);
        let turns = self.sampler.turns(&sample);
        if self.output.offer(self.sampler.line(sample)) {
            self.last_line = Instant::now();
        } else {
            self.sampler.tell_whole();
        }
        turns.into_iter().for_each(|event| self.print(&ProbeLine::Event(event)));
    }

    /// Prints the process list if it is news, otherwise what they do now.
    pub(super) fn print_processes(&mut self, processes: Vec<ProcessSample>) {
        match self.sampler.processes(clock::mono_ns(), processes) {
            // If there is no room for these, the next ones are newer anyway.
            Some(Told::Vitals(bytes)) => {
                self.output.offer(bytes);
            }
            Some(Told::List(line)) => self.print(&line),
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

    fn print(&mut self, line: &ProbeLine) {
        self.output.print(line);
        self.last_line = Instant::now();
    }

    /// Says that the probe is alive, and whether a call hangs.
    pub(super) fn beat(&mut self) {
        let stuck = self.attendant.busy().filter(|busy| *busy >= STUCK);
        let nvml_stuck_ms = stuck.map(|busy| u64::try_from(busy.as_millis()).unwrap_or(u64::MAX));
        let beat = ProbeLine::Heartbeat(Heartbeat { mono_ns: clock::mono_ns(), nvml_stuck_ms });
        let mut bytes = Vec::new();
        output::encode(&beat, &mut bytes);
        // If there is no room, lines enough are waiting; it counts as said, or this would spin.
        self.output.offer(bytes);
        self.last_line = Instant::now();
    }

    /// Sends the next portion again, unless live lines fill the pipe.
    pub(super) fn replay_portion(&mut self, now: Instant) {
        let Some((mut after, until, _)) = self.replay.take() else { return };
        for _ in 0..REPLAY_PORTION {
            match self.sampler.ring().after(after).filter(|kept| kept.seq <= until) {
                None => return,
                Some(kept) if self.output.offer(output::replayed(&kept.line)) => after = kept.seq,
                Some(_) => break,
            }
        }
        self.replay = Some((after, until, now + REPLAY_PAUSE));
    }
}
