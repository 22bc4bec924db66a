//! Samples that come late or again are entered where they belong in the past, once it is known what time it was.

use super::timeline::Timeline;
use nodeglass_protocol::cell::Row;
use nodeglass_protocol::picture::{GpuMoment, HostMoment, Past};
use nodeglass_protocol::told::ToldSample;
use nodeglass_protocol::{GpuField, HostField};

/// How many back-filled samples wait for the first live one.
const MAX_EARLY: usize = 700;

/// What is sent again of one node.
#[derive(Debug, Default)]
pub struct Replay {
    /// The last one, from which the next may be told by differences.
    last: Option<Last>,
    /// Those that came before it was known what time it is on the node.
    early: Vec<Moment>,
}

#[derive(Debug)]
struct Last {
    seq: u64,
    gpus: Vec<Row<GpuField>>,
    host: Row<HostField>,
}

/// What the past keeps of a sample.
#[derive(Debug)]
struct Moment {
    mono_ns: u64,
    hold_ms: u64,
    gpus: Box<[GpuMoment]>,
    host: HostMoment,
}

impl Replay {
    /// Takes a sample that was sent again, of so many GPUs; says whether the past is now another.
    pub fn take(
        &mut self,
        sample: &ToldSample,
        gpus: usize,
        past: Option<(&mut Past, &Timeline, u64)>,
    ) -> bool {
        let mut now = match (sample.since, self.last.take()) {
            (None, _) => Last { seq: 0, gpus: vec![Row::default(); gpus], host: Row::default() },
            (Some(since), Some(last)) if last.seq == since => last,
            // What it leaves out is not known.
            (Some(_), _) => return false,
        };
        now.seq = sample.seq;
        sample.gpus.enter_each(&mut now.gpus, |row| row);
        sample.host.enter(&mut now.host);
        let moment = Moment {
            mono_ns: sample.mono_ns,
            hold_ms: u64::from(sample.interval_ms.max(1_000)) * 5 / 2,
            gpus: now.gpus.iter().map(Past::of_gpu).collect(),
            host: Past::of_host(&now.host),
        };
        self.last = Some(now);
        if let Some((past, timeline, now_ms)) = past {
            moment.enter(past, timeline, now_ms);
            return true;
        }
        if self.early.len() < MAX_EARLY {
            self.early.push(moment);
        }
        false
    }

    /// Enters what waited; says whether there was something.
    pub fn settle(&mut self, past: &mut Past, timeline: &Timeline, now_ms: u64) -> bool {
        let early = std::mem::take(&mut self.early);
        early.iter().for_each(|moment| moment.enter(past, timeline, now_ms));
        !early.is_empty()
    }

    /// Forgets what only the next sample of a row would be told by, when none came for a while.
    pub fn rest(&mut self) {
        if self.early.is_empty() {
            self.last = None;
        }
    }
}

impl Moment {
    fn enter(&self, past: &mut Past, timeline: &Timeline, now_ms: u64) {
        let at_ms = timeline.relay_ms(self.mono_ns, now_ms);
        past.push_moment(at_ms, self.gpus.iter().copied(), self.host, self.hold_ms);
    }
}
