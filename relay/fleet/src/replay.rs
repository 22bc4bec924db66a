//! Enters backfilled samples into the history, once the node's clock is known.

use super::timeline::Timeline;
use nodeglass_protocol::field::Row;
use nodeglass_protocol::picture::{History, HistorySample};
use nodeglass_protocol::probe::delta::SampleDelta;
use nodeglass_protocol::{GpuField, HostField};

/// Maximum number of pending samples.
const MAX_WAITING: usize = 700;

/// Backfilled samples of one node.
#[derive(Debug, Default)]
pub struct Replay {
    /// The last one, which the next may be relative to.
    last: Option<Last>,
    /// Pending samples with the node's clock: entered all at once, as the history must be unpacked for it, and
    /// only once the node's clock is known.
    waiting: Vec<(u64, HistorySample)>,
}

#[derive(Debug)]
struct Last {
    seq: u64,
    gpus: Vec<Row<GpuField>>,
    host: Row<HostField>,
    /// Whether its GPUs are unknown, as while a driver that served an earlier probe opens on this one.
    lacks_gpus: bool,
}

impl Replay {
    /// Adds a backfilled sample of a node with `gpus` GPUs; returns whether it will be entered as a whole.
    pub fn add(&mut self, sample: &SampleDelta, gpus: usize) -> bool {
        let mut now = match (sample.since, self.last.take()) {
            (None, _) => Last {
                seq: 0,
                gpus: vec![Row::default(); gpus],
                host: Row::default(),
                lacks_gpus: gpus == 0 && sample.gpus.rows > 0,
            },
            (Some(since), Some(last)) if last.seq == since => last,
            // Its baseline is unknown.
            (Some(_), _) => return false,
        };
        now.seq = sample.seq;
        sample.gpus.apply_each(&mut now.gpus, |row| row);
        sample.host.apply(&mut now.host);
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            let moment = HistorySample {
                at_ms: 0,
                hold_ms: u64::from(sample.interval_ms.max(1_000)) * 5 / 2,
                gpus: now.gpus.iter().map(History::of_gpu).collect(),
                host: History::of_host(&now.host),
            };
            self.waiting.push((sample.mono_ns, moment));
        }
        let is_whole = has_room && !now.lacks_gpus;
        self.last = Some(now);
        is_whole
    }

    /// Enters pending samples if the clock is known, and returns them.
    pub fn settle(&mut self, history: &mut History, timeline: &Timeline, now_ms: u64) -> Vec<HistorySample> {
        if self.waiting.is_empty() || !timeline.is_known() {
            return Vec::new();
        }
        let at = |(mono_ns, moment)| HistorySample { at_ms: timeline.relay_ms(mono_ns, now_ms), ..moment };
        let moments: Vec<_> = self.waiting.drain(..).map(at).collect();
        self.waiting.shrink_to_fit();
        history.extend(&moments);
        moments
    }

    /// Drops the baseline if no further sample arrived for a while.
    pub fn rest(&mut self) {
        if self.waiting.is_empty() {
            self.last = None;
        }
    }
}
