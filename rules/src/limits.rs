//! Limits of readings from which a GPU counts as idle, as working, or as different from its peers. Page, terminal and
//! detectors use these limits only; settings of the relay replace some of them.
//!
//! The recordings are four trainings on 8 H100 (22 minutes at most), the scenarios are those of `cargo xtask
//! findings`.

/// Utilisation in % up to which a GPU does nothing: a display or a monitor causes that much.
pub const IDLE_PCT: u32 = 5;
/// Mean utilisation in % over an hour up to which the GPUs of a job are mostly idle. With evaluations on the CPUs or checkpoints,
/// the mean is higher. Princeton's jobstats marks 15 % over a whole job.
pub const MOSTLY_IDLE_PCT: u32 = 10;
/// Mean utilisation in % of ten seconds from which a GPU is in use. It is above [`IDLE_PCT`], so no GPU is both idle
/// and in use.
pub const USED_PCT: f32 = 10.0;
/// Median utilisation in % from which the GPUs of a job work: below, they wait for input, and what they do depends on
/// when each gets some.
pub const WORKING_PCT: f32 = 50.0;
/// Median power, as a fraction of the highest of two minutes, below which GPUs only wait, for a checkpoint or in a
/// collective. In the recordings they draw a quarter then, for 18 to 58 s.
pub const WORKING_POWER: f32 = 0.6;

/// GPUs of a job and model from which on they are compared: of three, two that agree may be the exception.
pub const MIN_PEERS: usize = 4;
/// Deviation of the SM clock, in %. At the power limit, equal cards differ by up to 10 %.
pub const CLOCK_PCT: u32 = 12;
/// Deviation of the power, in %; 9 % is the most that lasts in the recordings.
pub const POWER_PCT: u32 = 15;
/// Deviation of utilisation and SM activity, in %: they vary more than the clock from step to step.
pub const ACTIVITY_PCT: u32 = 20;
/// Deviation of the memory in use, in %: it differs between ranks by design.
pub const MEMORY_PCT: u32 = 30;
/// A deviation is this many times the median one of the group: where all differ, none stands out.
pub const SPREADS: f32 = 4.0;
/// If more than one in this many GPUs is slow, and more than one, the program has unequal parts, such as the stages of a pipeline.
pub const UNEQUAL_PARTS: usize = 8;
/// Deviation of the memory in use, in %, from which the GPUs of a node hold another part of the model than their peers, if
/// all of them have it: ranks of the same work hold the same parameters.
pub const STAGE_MEMORY_PCT: f32 = 10.0;
/// Maximum difference of that deviation between the GPUs of such a node, in percentage points.
pub const STAGE_ALIKE_PCT: f32 = 5.0;
