//! Samples that come late or again are entered where they belong in the past, once it is known what time it was.

use super::timeline::Timeline;
use nodeglass_protocol::cell::Row;
use nodeglass_protocol::picture::{History, HistorySample};
use nodeglass_protocol::probe::delta::SampleDelta;
use nodeglass_protocol::{GpuField, HostField};

/// How many of them wait to be entered.
const MAX_WAITING: usize = 700;

/// What is sent again of one node.
#[derive(Debug, Default)]
pub struct Replay {
    /// The last one, from which the next may be told by differences.
    last: Option<Last>,
    /// Those that are to be entered, with the node's clock when they were taken: all at once, for a past is laid
    /// open to do so, and not before it is known what time it is on the node.
    waiting: Vec<(u64, HistorySample)>,
}

#[derive(Debug)]
struct Last {
    seq: u64,
    gpus: Vec<Row<GpuField>>,
    host: Row<HostField>,
}

impl Replay {
    /// Takes a sample that was sent again, of so many GPUs.
    pub fn take(&mut self, sample: &SampleDelta, gpus: usize) {
        let mut now = match (sample.since, self.last.take()) {
            (None, _) => Last { seq: 0, gpus: vec![Row::default(); gpus], host: Row::default() },
            (Some(since), Some(last)) if last.seq == since => last,
            // What it leaves out is not known.
            (Some(_), _) => return,
        };
        now.seq = sample.seq;
        sample.gpus.apply_each(&mut now.gpus, |row| row);
        sample.host.apply(&mut now.host);
        if self.waiting.len() < MAX_WAITING {
            let moment = HistorySample {
                at_ms: 0,
                hold_ms: u64::from(sample.interval_ms.max(1_000)) * 5 / 2,
                gpus: now.gpus.iter().map(History::of_gpu).collect(),
                host: History::of_host(&now.host),
            };
            self.waiting.push((sample.mono_ns, moment));
        }
        self.last = Some(now);
    }

    /// Enters what waits, if it is known what time it was; says whether there was something.
    pub fn settle(&mut self, past: &mut History, timeline: &Timeline, now_ms: u64) -> bool {
        if self.waiting.is_empty() || !timeline.is_known() {
            return false;
        }
        let at = |(mono_ns, moment)| HistorySample { at_ms: timeline.relay_ms(mono_ns, now_ms), ..moment };
        let moments: Vec<_> = self.waiting.drain(..).map(at).collect();
        self.waiting.shrink_to_fit();
        past.extend(&moments);
        true
    }

    /// Forgets what only the next sample of a row would be told by, when none came for a while.
    pub fn rest(&mut self) {
        if self.waiting.is_empty() {
            self.last = None;
        }
    }
}
