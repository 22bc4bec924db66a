//! Readings that detectors compare: ten minutes of each GPU, host and job in steps of ten seconds, and the peaks of
//! their memory and the activity of GPUs in each minute of two hours.

use nodeglass_protocol::field::{Field, Row};
use nodeglass_protocol::picture::{GpuPicture, History, HistorySample, NodePicture};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::{GpuField, GpuUuid, HostField, JobField, JobId, ProcessField};
use nodeglass_rules::limits;
use nodeglass_rules::peers::{self, Means};
pub use nodeglass_rules::peers::{STEP_MS, STEPS};
use std::collections::{BTreeMap, VecDeque};

/// Length of a long step in ms, of which leaks and GPUs that are mostly idle are recognized.
pub const LONG_STEP_MS: u64 = 60_000;
/// Number of long steps that are kept: two hours.
pub const LONG_STEPS: usize = 120;
/// Maximum power of a waiting GPU, as a fraction of its limit. Real work draws more, also where memory limits it.
const WAITING_POWER: f32 = 1.0 / 3.0;
/// SM activity in % that a GPU which only waits does not reach: a collective occupies one SM of each channel.
pub const WAITING_SM_PCT: f32 = 25.0;
/// Maximum number of GPUs per node; a driver that invents new UUIDs replaces the oldest ones.
const MAX_GPUS: usize = 128;
/// Maximum number of jobs per node.
const MAX_JOBS: usize = 64;

/// The readings of a GPU that detectors compare.
pub const GPU_FIELDS: [GpuField; 11] = [
    GpuField::Util,
    GpuField::Power,
    GpuField::SmClock,
    GpuField::SmActive,
    GpuField::DramActive,
    GpuField::TensorActive,
    GpuField::PcieRx,
    GpuField::PcieTx,
    GpuField::NvlinkRx,
    GpuField::NvlinkTx,
    GpuField::MemUsed,
];
/// The readings of a host that detectors compare.
pub const HOST_FIELDS: [HostField; 4] =
    [HostField::PsiIo, HostField::NetRx, HostField::IbRx, HostField::MemUsed];
/// The readings of a job on a node that detectors compare.
pub const JOB_FIELDS: [JobField; 1] = [JobField::MemUsed];

/// Means of some readings in one step; NaN where there was none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step<const N: usize> {
    /// Number of the step: the relay's clock / [`STEP_MS`].
    number: u64,
    means: [f32; N],
    /// Largest value of the last field, which is memory in use.
    peak: f32,
}

/// A long step.
#[derive(Clone, Copy, Debug)]
struct Minute {
    /// Number of the step: the relay's clock / [`LONG_STEP_MS`].
    number: u32,
    /// Largest memory in use; NaN if that is unknown.
    peak: f32,
    /// Sum of the activity of a GPU, and of how many steps.
    activity: (f32, u32),
}

/// The steps of one row.
#[derive(Clone, Debug)]
pub struct Series<const N: usize> {
    steps: VecDeque<Step<N>>,
    sums: [f64; N],
    counts: [u32; N],
    peak: f32,
    current: u64,
    long: VecDeque<Minute>,
    /// Activity before this moment is not the job's, in ms of the relay's clock.
    forgotten_ms: u64,
    /// End of the last step in which the first field was [`USED_PCT`](limits::USED_PCT) or more, in ms of the relay's clock.
    used_ms: Option<u64>,
    /// End of the last step in which a GPU drew more than a busy-wait; see [`works`].
    worked_ms: Option<u64>,
}

/// The series of one node.
#[derive(Debug, Default)]
pub struct NodeSeries {
    gpus: BTreeMap<GpuUuid, GpuSeries>,
    host: HostSeries,
    jobs: BTreeMap<JobId, JobSeries>,
    /// The processes on GPUs that are zombies or uninterruptible, by pid.
    stuck: BTreeMap<u32, Stuck>,
    /// Uncorrected memory errors of each GPU.
    uncorrected: BTreeMap<GpuUuid, UncorrectedErrors>,
    first_ms: Option<u64>,
    clock_ahead_ms: Option<i64>,
}

/// Uncorrected memory errors of a GPU since its driver was loaded.
#[derive(Clone, Copy, Debug)]
struct UncorrectedErrors {
    count: u64,
    /// When the count was last seen to grow, in ms of the relay's clock.
    grown_ms: Option<u64>,
}

/// A process that is a zombie or uninterruptible.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// Since when it is so without progress, in ms of the relay's clock.
    since_ms: u64,
    /// Its memory on the host and on the GPU, in bytes.
    memory: [Option<u64>; 2],
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self {
            steps: VecDeque::new(),
            sums: [0.0; N],
            counts: [0; N],
            peak: f32::NAN,
            current: 0,
            long: VecDeque::new(),
            forgotten_ms: 0,
            used_ms: None,
            worked_ms: None,
        }
    }
}

impl<const N: usize> Series<N> {
    /// Adds a sample, and returns the step that it completes. One that is older than the current step is left out:
    /// detectors see a gap, never a guess.
    fn record<F: Field>(&mut self, at_ms: u64, row: &Row<F>, fields: &[F; N]) -> Option<Step<N>> {
        let number = at_ms / STEP_MS;
        if number < self.current {
            return None;
        }
        let completed = (number > self.current).then(|| self.close(number)).flatten();
        for (slot, field) in fields.iter().enumerate() {
            if let Some(value) = row.value(*field) {
                self.sums[slot] += value as f64;
                self.counts[slot] += 1;
                if slot + 1 == N {
                    self.peak = self.peak.max(value as f32);
                }
            }
        }
        completed
    }

    /// Completes the current step, returns it unless it is empty, and begins the step `number`.
    fn close(&mut self, number: u64) -> Option<Step<N>> {
        let completed = self.counts.iter().any(|count| *count > 0).then(|| {
            let mean = |slot: usize| match self.counts[slot] {
                0 => f32::NAN,
                count => (self.sums[slot] / f64::from(count)) as f32,
            };
            let step = Step { number: self.current, means: std::array::from_fn(mean), peak: self.peak };
            if self.steps.len() == STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(step);
            if step.means[0] >= limits::USED_PCT {
                self.used_ms = Some((step.number + 1) * STEP_MS);
            }
            self.note_long(step);
            step
        });
        (self.sums, self.counts, self.peak, self.current) = ([0.0; N], [0; N], f32::NAN, number);
        completed
    }

    /// Keeps the largest peak of each minute.
    fn note_long(&mut self, step: Step<N>) {
        let number = u32::try_from(step.number * STEP_MS / LONG_STEP_MS).unwrap_or(u32::MAX);
        match self.long.back_mut() {
            Some(minute) if minute.number == number => minute.peak = minute.peak.max(step.peak),
            _ => {
                if self.long.len() == LONG_STEPS {
                    self.long.pop_front();
                }
                self.long.push_back(Minute { number, peak: step.peak, activity: (0.0, 0) });
            }
        }
    }

    /// Iterates over the complete steps of the last `steps` before `now_ms`, newest first: their starts in ms of the
    /// relay's clock, and the mean of the field in `slot` where it is known.
    fn recent(&self, slot: usize, steps: usize, now_ms: u64) -> impl Iterator<Item = (u64, f32)> + '_ {
        let first = (now_ms / STEP_MS).saturating_sub(steps as u64);
        self.steps
            .iter()
            .rev()
            .take_while(move |step| step.number >= first)
            .map(move |step| (step.number * STEP_MS, step.means[slot]))
            .filter(|(_, mean)| !mean.is_nan())
    }

    /// Drops the steps that began before `at_ms`, in ms of the relay's clock.
    fn forget_before(&mut self, at_ms: u64) {
        while self.steps.front().is_some_and(|step| step.number * STEP_MS < at_ms) {
            self.steps.pop_front();
        }
        let is_after = |end_ms: &u64| *end_ms > at_ms.saturating_add(STEP_MS);
        self.used_ms = self.used_ms.filter(is_after);
        self.worked_ms = self.worked_ms.filter(is_after);
        self.forgotten_ms = self.forgotten_ms.max(at_ms);
    }

    /// Puts what was recorded before the first step in front.
    fn prepend(&mut self, mut older: Self) {
        older.close(u64::MAX);
        let first = self.steps.front().map_or(self.current, |step| step.number);
        for step in older.steps.into_iter().rev().filter(|step| step.number < first) {
            if self.steps.len() < STEPS {
                self.steps.push_front(step);
            }
        }
        let first = self.long.front().map_or(u32::MAX, |minute| minute.number);
        for minute in older.long.into_iter().rev().filter(|minute| minute.number < first) {
            if self.long.len() < LONG_STEPS {
                self.long.push_front(minute);
            }
        }
        self.used_ms = self.used_ms.or(older.used_ms);
        self.worked_ms = self.worked_ms.or(older.worked_ms);
        self.forgotten_ms = self.forgotten_ms.max(older.forgotten_ms);
    }

    /// The largest memory of each minute, oldest first: its start in ms, and bytes.
    pub fn peaks(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        let known = self.long.iter().filter(|minute| !minute.peak.is_nan());
        known.map(|minute| (u64::from(minute.number) * LONG_STEP_MS, f64::from(minute.peak)))
    }
}

/// The series of one GPU.
pub type GpuSeries = Series<{ GPU_FIELDS.len() }>;
/// The series of one host.
pub type HostSeries = Series<{ HOST_FIELDS.len() }>;
/// The series of one job on a node.
pub type JobSeries = Series<{ JOB_FIELDS.len() }>;

impl GpuSeries {
    /// Adds a sample of `gpu`.
    fn record_gpu(&mut self, at_ms: u64, row: &Row<GpuField>, gpu: &GpuPicture) {
        let Some(step) = self.record(at_ms, row, &GPU_FIELDS) else { return };
        if works(&step, gpu) {
            self.worked_ms = Some((step.number + 1) * STEP_MS);
        }
        if let (Some(minute), Some(active)) = (self.long.back_mut(), step.mean(activity(gpu))) {
            minute.activity = (minute.activity.0 + active, minute.activity.1 + 1);
        }
    }

    /// The mean of [`activity`] in each complete minute from `from_ms` to `now_ms`, newest first: its start in ms of the
    /// relay's clock, and %.
    pub fn active_minutes(&self, from_ms: u64, now_ms: u64) -> impl Iterator<Item = (u64, f32)> + '_ {
        let from_ms = from_ms.max(self.forgotten_ms);
        let minutes = self.long.iter().rev().filter(|minute| minute.activity.1 > 0);
        minutes
            .map(|minute| (u64::from(minute.number) * LONG_STEP_MS, minute.activity))
            .skip_while(move |(at_ms, _)| at_ms + LONG_STEP_MS > now_ms)
            .take_while(move |(at_ms, _)| *at_ms >= from_ms)
            .map(|(at_ms, (sum, count))| (at_ms, sum / count as f32))
    }

    /// When it was last in use, in ms of the relay's clock, however long ago.
    pub fn used_ms(&self) -> Option<u64> {
        self.used_ms
    }

    /// When it last did more than wait, in ms of the relay's clock, however long ago.
    pub fn worked_ms(&self) -> Option<u64> {
        self.worked_ms
    }

    /// The steps of a field, newest first; see [`GPU_FIELDS`].
    pub fn of(&self, field: GpuField, steps: usize, now_ms: u64) -> impl Iterator<Item = (u64, f32)> + '_ {
        let slot = GPU_FIELDS.iter().position(|known| *known == field);
        slot.into_iter().flat_map(move |slot| self.recent(slot, steps, now_ms))
    }

    /// Returns the means of each step before `now_ms`, oldest first, for a comparison with other GPUs.
    pub fn means(&self, now_ms: u64) -> Vec<Means> {
        let oldest = (now_ms / STEP_MS).saturating_sub(STEPS as u64);
        let mut means = vec![peers::UNKNOWN; STEPS];
        for (slot, field) in peers::FIELDS.into_iter().enumerate() {
            for (at_ms, mean) in self.of(field, STEPS, now_ms) {
                if let Some(step) = means.get_mut((at_ms / STEP_MS - oldest) as usize) {
                    step[slot] = mean;
                }
            }
        }
        means
    }

    /// Mean of a field over the last `steps`, if at least four fifths of them are known.
    pub fn mean(&self, field: GpuField, steps: usize, now_ms: u64) -> Option<f32> {
        mean(self.of(field, steps, now_ms).map(|(_, value)| value), steps)
    }

    /// Smallest and largest step of a field, under the same condition.
    pub fn range(&self, field: GpuField, steps: usize, now_ms: u64) -> Option<(f32, f32)> {
        let values: Vec<f32> = self.of(field, steps, now_ms).map(|(_, value)| value).collect();
        is_known(values.len(), steps).then(|| {
            values.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)))
        })
    }
}

impl HostSeries {
    /// The steps of a field, newest first; see [`HOST_FIELDS`].
    pub fn of(&self, field: HostField, steps: usize, now_ms: u64) -> impl Iterator<Item = (u64, f32)> + '_ {
        let slot = HOST_FIELDS.iter().position(|known| *known == field);
        slot.into_iter().flat_map(move |slot| self.recent(slot, steps, now_ms))
    }

    /// Mean of a field over the last `steps`, if at least four fifths of them are known.
    pub fn mean(&self, field: HostField, steps: usize, now_ms: u64) -> Option<f32> {
        mean(self.of(field, steps, now_ms).map(|(_, value)| value), steps)
    }
}

impl NodeSeries {
    /// Drops the readings of a GPU from before `at_ms`, in ms of the relay's clock.
    pub fn forget_gpu_before(&mut self, gpu: &GpuUuid, at_ms: u64) {
        if let Some(series) = self.gpus.get_mut(gpu) {
            series.forget_before(at_ms);
        }
    }

    /// Adds the newest sample of a node. `clock_ahead_ms` is the Unix time of the node's clock at which the relay's
    /// clock would read 0, in ms.
    pub fn record(&mut self, node: &NodePicture, clock_ahead_ms: Option<i64>) {
        let Some(at_ms) = node.sampled_at_ms else { return };
        self.first_ms = self.first_ms.or(Some(at_ms));
        self.clock_ahead_ms = clock_ahead_ms;
        self.host.record(at_ms, &node.host, &HOST_FIELDS);
        // A job whose usage could not be read once goes on.
        let newest = at_ms / STEP_MS;
        self.jobs.retain(|_, series| series.current + STEPS as u64 >= newest);
        self.record_stuck(node, at_ms);
        for usage in node.job_usage.iter().take(MAX_JOBS) {
            if self.jobs.len() < 2 * MAX_JOBS || self.jobs.contains_key(&usage.job) {
                self.jobs.entry(usage.job).or_default().record(at_ms, &usage.row, &JOB_FIELDS);
            }
        }
        for gpu in node.gpus.iter().take(MAX_GPUS) {
            let uuid = &gpu.facts.uuid;
            if !self.gpus.contains_key(uuid) {
                if self.gpus.len() >= MAX_GPUS {
                    let oldest = self.gpus.iter().min_by_key(|(_, series)| series.current);
                    if let Some(oldest) = oldest.map(|(uuid, _)| uuid.clone()) {
                        self.gpus.remove(&oldest);
                    }
                }
                self.gpus.insert(uuid.clone(), GpuSeries::default());
            }
            if let Some(series) = self.gpus.get_mut(uuid) {
                series.record_gpu(at_ms, &gpu.row, gpu);
            }
        }
        self.record_uncorrected(node, at_ms);
    }

    /// Notes when the counts of uncorrected memory errors grow.
    fn record_uncorrected(&mut self, node: &NodePicture, at_ms: u64) {
        for gpu in node.gpus.iter().take(MAX_GPUS) {
            let Some(count) = gpu.row.value(GpuField::EccUncorrected) else { continue };
            match self.uncorrected.get_mut(&gpu.facts.uuid) {
                Some(known) => {
                    if known.count < count {
                        known.grown_ms = Some(at_ms);
                    }
                    known.count = count;
                }
                None => {
                    let errors = UncorrectedErrors { count, grown_ms: None };
                    self.uncorrected.insert(gpu.facts.uuid.clone(), errors);
                }
            }
        }
        if self.uncorrected.len() > self.gpus.len() {
            self.uncorrected.retain(|uuid, _| self.gpus.contains_key(uuid));
        }
    }

    /// Adds samples that the probe kept while no relay read them, oldest first.
    pub fn backfill(&mut self, node: &NodePicture, samples: &[HistorySample]) {
        for (position, gpu) in node.gpus.iter().take(MAX_GPUS).enumerate() {
            let Some(series) = self.gpus.get_mut(&gpu.facts.uuid) else { continue };
            let mut older = GpuSeries::default();
            for sample in samples {
                let Some(cells) = sample.gpus.get(position) else { continue };
                older.record_gpu(sample.at_ms, &History::gpu_row(cells), gpu);
            }
            series.prepend(older);
        }
        let mut older = HostSeries::default();
        for sample in samples {
            older.record(sample.at_ms, &History::host_row(&sample.host), &HOST_FIELDS);
        }
        self.host.prepend(older);
    }

    /// Notes since when processes are stuck. One that maps a file from a slow file system is uninterruptible in most
    /// samples as well, but its memory grows.
    fn record_stuck(&mut self, node: &NodePicture, at_ms: u64) {
        let mut stuck = BTreeMap::new();
        for process in &node.processes {
            let value = |field| process.row.value(field);
            let state = value(ProcessField::State).map(ProcessState::of_number);
            if !matches!(state, Some(ProcessState::Zombie | ProcessState::Uninterruptible)) {
                continue;
            }
            let now =
                Stuck { since_ms: at_ms, memory: [value(ProcessField::Rss), value(ProcessField::GpuMem)] };
            let pid = process.facts.pid;
            let since_ms = match self.stuck.get(&pid) {
                Some(before) if before.memory == now.memory => before.since_ms,
                _ => at_ms,
            };
            stuck.insert(pid, Stuck { since_ms, ..now });
        }
        self.stuck = stuck;
    }

    /// Since when a process on a GPU is a zombie or uninterruptible without progress, in ms of the relay's clock; `None`
    /// if it is not.
    pub fn stuck_since_ms(&self, pid: u32) -> Option<u64> {
        self.stuck.get(&pid).map(|stuck| stuck.since_ms)
    }

    /// Returns when a GPU's count of uncorrected memory errors last grew, in ms of the relay's clock; `None` for
    /// errors that it had when it was first read.
    pub fn uncorrected_grown_ms(&self, uuid: &GpuUuid) -> Option<u64> {
        self.uncorrected.get(uuid).and_then(|errors| errors.grown_ms)
    }

    /// The series of a GPU, if it was ever read.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&GpuSeries> {
        self.gpus.get(uuid)
    }

    /// Time of the first sample, if there is one.
    pub fn first_ms(&self) -> Option<u64> {
        self.first_ms
    }

    /// The series of the host.
    pub fn host(&self) -> &HostSeries {
        &self.host
    }

    /// The series of a job, if its usage is read.
    pub fn job(&self, job: JobId) -> Option<&JobSeries> {
        self.jobs.get(&job)
    }

    /// Unix time of the node's clock at which the relay's clock would read 0, in ms.
    pub fn clock_ahead_ms(&self) -> Option<i64> {
        self.clock_ahead_ms
    }
}

impl Step<{ GPU_FIELDS.len() }> {
    /// The mean of a field; `None` if it was not read.
    fn mean(&self, field: GpuField) -> Option<f32> {
        let slot = GPU_FIELDS.iter().position(|known| *known == field)?;
        Some(self.means[slot]).filter(|mean| !mean.is_nan())
    }
}

/// The reading that shows whether a GPU is in use. A MIG instance has no utilisation, but activity of its SMs from Hopper
/// on.
pub fn activity(gpu: &GpuPicture) -> GpuField {
    if gpu.facts.mig.is_some() { GpuField::SmActive } else { GpuField::Util }
}

/// The power in W up to which a GPU may only wait, and whether its activity shows as well that it does not work. `None`
/// if its limit is unknown.
///
/// A site may set a limit far below that of the board, which the power of a busy-wait does not follow.
pub fn waiting_power(gpu: &GpuPicture) -> Option<f32> {
    let limit = gpu.row.value(GpuField::PowerLimit)? as f32;
    let shows_activity = [GpuField::SmActive, GpuField::DramActive, GpuField::TensorActive]
        .into_iter()
        .all(|field| gpu.row.value(field).is_some());
    let default = gpu.facts.power_default_mw.value().map_or(limit, |mw| *mw as f32 / 1_000.0);
    Some(if shows_activity { limit.max(default) } else { limit } * WAITING_POWER)
}

/// Returns whether a GPU does more than wait, by means of its power in W and of its SM activity in %.
pub fn does_work(gpu: &GpuPicture, power: Option<f32>, sm_active: Option<f32>) -> bool {
    let draws = power.zip(waiting_power(gpu)).is_some_and(|(watts, most)| watts > most);
    draws || sm_active.is_some_and(|pct| pct >= WAITING_SM_PCT)
}

/// Returns whether a GPU did more than wait in a step.
fn works(step: &Step<{ GPU_FIELDS.len() }>, gpu: &GpuPicture) -> bool {
    does_work(gpu, step.mean(GpuField::Power), step.mean(GpuField::SmActive))
}

fn mean(values: impl Iterator<Item = f32>, steps: usize) -> Option<f32> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    is_known(count, steps).then(|| sum / count as f32)
}

/// Returns whether enough of the steps are known for a conclusion.
fn is_known(count: usize, steps: usize) -> bool {
    count > 0 && count * 5 >= steps * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;

    fn series(seconds: impl Iterator<Item = (u64, u32)>) -> GpuSeries {
        let mut series = GpuSeries::default();
        for (second, util) in seconds {
            let mut row = Row::default();
            row.set(GpuField::Util, Cell::steps(util));
            series.record(second * 1_000, &row, &GPU_FIELDS);
        }
        series
    }

    #[test]
    fn only_complete_steps_with_samples_count() {
        let series = series((0..95).map(|second| (second, if second < 50 { 0 } else { 100 })));
        assert_eq!(series.mean(GpuField::Util, 9, 95_000), Some(400.0 / 9.0));
        assert_eq!(series.mean(GpuField::Util, 4, 95_000), Some(100.0));
        assert_eq!(series.range(GpuField::Util, 9, 95_000), Some((0.0, 100.0)));
    }

    #[test]
    fn what_is_not_known_is_no_value() {
        let series = series((0..30).chain(70..101).map(|second| (second, 50)));
        assert_eq!(series.mean(GpuField::Util, 10, 100_000), None, "four of ten steps are missing");
        assert_eq!(series.mean(GpuField::Util, 2, 100_000), Some(50.0));
        assert_eq!(series.mean(GpuField::Power, 2, 100_000), None, "never read");
        assert_eq!(series.mean(GpuField::Util, 2, 200_000), None, "too old");
    }

    #[test]
    fn a_late_sample_changes_nothing() {
        let series = series([(5, 10), (15, 20), (3, 90), (25, 30)].into_iter());
        let values: Vec<f32> = series.of(GpuField::Util, 3, 30_000).map(|(_, value)| value).collect();
        assert_eq!(values, [20.0, 10.0]);
    }
}
