//! Model of GPU behaviours, with figures of recorded traces (H100, A100, V100).
//!
//! Where no public trace exists (a permanent hang, thermal throttling), the figures follow vendor
//! documentation.

use crate::scenario::rng::Rng;
use nodeglass_gpu_models::GpuModel;

/// `nvmlClocksEventReasonGpuIdle`.
pub(crate) const IDLE: u64 = 0x1;
/// `nvmlClocksEventReasonSwPowerCap`: set 90 % of the time in a healthy training.
pub(crate) const POWER_CAP: u64 = 0x4;
/// `nvmlClocksThrottleReasonHwSlowdown` with `…HwThermalSlowdown`.
pub(crate) const HW_THERMAL: u64 = 0x8 | 0x40;
/// `nvmlClocksEventReasonSwThermalSlowdown`.
pub(crate) const SW_THERMAL: u64 = 0x20;

/// `nvmlClocksThrottleReasonHwSlowdown` alone.
pub(crate) const HW_SLOWDOWN: u64 = 0x8;
/// `nvmlClocksThrottleReasonHwSlowdown` with `…HwPowerBrakeSlowdown`.
pub(crate) const HW_POWER_BRAKE: u64 = 0x8 | 0x80;

/// State of one GPU at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Utilization in %.
    pub util: u64,
    /// Memory utilization in %.
    pub mem_util: u64,
    /// Fraction of the job's memory allocated so far, 0 to 1.
    pub memory: f64,
    /// Power in W.
    pub power_w: f64,
    /// SM clock in MHz.
    pub sm_mhz: u64,
    /// Clock-event reasons.
    pub throttle: u64,
    /// Temperature in °C if it does not follow from the power.
    pub hot_c: Option<u64>,
    /// Whether a process is on the GPU.
    pub process: bool,
}

/// Time to load a model before the first step.
pub(crate) const LOADING_MS: i64 = 40_000;
/// Duration of a checkpoint.
const CHECKPOINT_MS: i64 = 25_000;

/// A GPU at one time: model, random numbers, and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuContext<'a> {
    pub model: &'a GpuModel,
    pub rng: Rng,
    pub t_ms: i64,
}

impl GpuContext<'_> {
    /// Returns a random number from 0 to 1 for each half second, the shortest window of NVML.
    fn unit(&self, what: u64) -> f64 {
        self.rng.unit(what, self.t_ms.div_euclid(500))
    }

    fn between(&self, what: u64, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit(what)
    }

    fn whole(&self, what: u64, low: u64, high: u64) -> u64 {
        low + (self.unit(what) * (high - low + 1) as f64) as u64
    }

    /// Interpolates between the idle power with a loaded model and the power limit.
    fn watts(&self, share: f64) -> f64 {
        self.model.loaded_w + (self.model.cap_w - self.model.loaded_w) * share
    }

    /// No process.
    pub fn off(&self) -> Workload {
        Workload {
            util: 0,
            mem_util: 0,
            memory: 0.0,
            power_w: self.model.bare_w + self.between(1, -0.4, 0.4),
            sm_mhz: self.model.sm_idle_mhz,
            throttle: IDLE,
            hot_c: None,
            process: false,
        }
    }

    /// A model is loaded, nothing runs.
    pub fn loaded(&self) -> Workload {
        let power_w = self.model.loaded_w + self.between(1, -2.5, 2.5);
        Workload { memory: 1.0, power_w, sm_mhz: self.model.sm_max_mhz, process: true, ..self.off() }
    }

    /// A process that started `age_ms` ago loads its model.
    pub fn loading(&self, age_ms: i64) -> Workload {
        let memory = (age_ms as f64 / LOADING_MS as f64).clamp(0.02, 1.0);
        Workload { memory, throttle: 0, ..self.loaded() }
    }

    /// Waits for another rank in a collective.
    pub fn waiting(&self) -> Workload {
        let power_w = self.model.waiting_w + self.between(1, -1.5, 1.5);
        Workload { util: self.whole(2, 99, 100), mem_util: 1, power_w, throttle: 0, ..self.loaded() }
    }

    /// Waits in a collective for ranks that never arrive.
    pub fn hang(&self) -> Workload {
        Workload {
            util: 100,
            power_w: self.model.waiting_w - 1.0 + self.between(1, -0.5, 0.5),
            ..self.waiting()
        }
    }

    /// A training step, or a checkpoint every `every_ms`.
    pub fn training(&self, age_ms: i64, every_ms: i64, rank: usize) -> Workload {
        let checkpoint = age_ms.rem_euclid(every_ms) >= every_ms - CHECKPOINT_MS;
        match (checkpoint, rank) {
            (false, _) => self.step(0.975),
            (true, 0) => self.writing(),
            (true, _) => self.waiting(),
        }
    }

    /// A training step that waits for a slower rank.
    pub fn paced(&self, age_ms: i64, every_ms: i64, rank: usize) -> Workload {
        let workload = self.training(age_ms, every_ms, rank);
        if workload.mem_util < 10 {
            return workload;
        }
        // It waits for a part of each step at full clock, so the mean power stays below the limit.
        Workload {
            throttle: 0,
            util: self.whole(2, 98, 100),
            sm_mhz: self.model.sm_max_mhz,
            ..self.step(0.73)
        }
    }

    fn step(&self, share: f64) -> Workload {
        let dip = self.unit(3) < 0.04;
        let capped = self.unit(4) < 0.9;
        let share = share + 0.012 * self.rng.smooth_noise(5, self.t_ms, 9_000) - if dip { 0.09 } else { 0.0 };
        let slower = if capped { self.between(6, 0.10, 0.26) } else { 0.0 };
        Workload {
            util: if dip { self.whole(2, 90, 94) } else { self.whole(2, 96, 100) },
            mem_util: self.whole(8, 38, 46),
            power_w: self.watts(share) + self.between(1, -6.0, 6.0),
            sm_mhz: clock(self.model.sm_max_mhz as f64 * (1.0 - slower)),
            throttle: if capped { POWER_CAP } else { 0 },
            ..self.loaded()
        }
    }

    /// Rank 0 writes a checkpoint.
    fn writing(&self) -> Workload {
        let power_w = self.model.waiting_w * 0.955 + self.between(1, -1.0, 1.0);
        Workload { util: self.whole(2, 2, 4), power_w, throttle: 0, ..self.loaded() }
    }

    /// Thermal throttling.
    pub fn straggler(&self) -> Workload {
        let hardware = if self.rng.smooth_noise(9, self.t_ms, 20_000) > 0.1 { HW_THERMAL } else { 0 };
        Workload {
            util: self.whole(2, 86, 94),
            mem_util: self.whole(8, 24, 30),
            power_w: self.watts(0.46) + self.between(1, -5.0, 5.0),
            sm_mhz: self.model.sm_hot_mhz,
            throttle: SW_THERMAL | hardware,
            hot_c: Some((87.0 + self.rng.smooth_noise(10, self.t_ms, 12_000)).round() as u64),
            ..self.loaded()
        }
    }

    /// A lower clock without a reason.
    pub fn slow(&self) -> Workload {
        Workload {
            util: self.whole(2, 97, 100),
            power_w: self.watts(0.62) + self.between(1, -5.0, 5.0),
            sm_mhz: clock(self.model.sm_max_mhz as f64 * self.between(6, 0.78, 0.80)),
            throttle: 0,
            ..self.step(0.62)
        }
    }

    /// A training that never frees some of its memory.
    pub fn leaking(&self, age_ms: i64) -> Workload {
        let memory = (0.5 + age_ms.max(0) as f64 / 60_000.0 * 0.004).min(1.0);
        // Activations come and go with each step.
        Workload { memory: memory - 0.03 * self.unit(17), ..self.step(0.975) }
    }

    /// Kernels that are too small for the GPU.
    pub fn small_kernels(&self) -> Workload {
        Workload {
            util: self.whole(2, 96, 100),
            mem_util: self.whole(8, 2, 5),
            power_w: self.watts(0.04) + self.between(1, -2.0, 2.0),
            throttle: 0,
            ..self.loaded()
        }
    }

    /// Three minutes of generation at low power, then two of training.
    pub fn alternating(&self) -> Workload {
        const ROUND_MS: i64 = 300_000;
        match self.t_ms.rem_euclid(ROUND_MS) < 180_000 {
            true => Workload { util: self.whole(2, 55, 80), throttle: 0, ..self.step(0.35) },
            false => self.step(0.9),
        }
    }

    /// Steady work of a simulation, with a moment of output each minute.
    pub fn dynamics(&self) -> Workload {
        if self.t_ms.rem_euclid(60_000) < 2_000 {
            return Workload { util: self.whole(2, 5, 30), throttle: 0, ..self.loaded() };
        }
        Workload {
            util: self.whole(2, 93, 99),
            mem_util: self.whole(8, 10, 18),
            throttle: 0,
            sm_mhz: self.model.sm_max_mhz,
            ..self.step(0.62)
        }
    }

    /// Collectives, with little computation in between.
    pub fn communication(&self) -> Workload {
        let power_w = self.between_waiting_and_cap(0.2) + self.between(1, -5.0, 5.0);
        Workload {
            util: self.whole(2, 96, 100),
            mem_util: self.whole(8, 8, 14),
            power_w,
            throttle: 0,
            ..self.loaded()
        }
    }

    /// Kernels that read weights for few tokens.
    pub fn memory_bound(&self) -> Workload {
        let power_w = self.between_waiting_and_cap(0.35) + self.between(1, -5.0, 5.0);
        Workload {
            util: self.whole(2, 96, 100),
            mem_util: self.whole(8, 78, 84),
            power_w,
            throttle: 0,
            ..self.loaded()
        }
    }

    fn between_waiting_and_cap(&self, share: f64) -> f64 {
        self.model.waiting_w + (self.model.cap_w - self.model.waiting_w) * share
    }

    /// Inference with varying load.
    pub fn inference(&self) -> Workload {
        let crowd = self.rng.smooth_noise(11, self.t_ms, 45_000) * 0.6
            + self.rng.smooth_noise(12, self.t_ms, 7_000) * 0.4;
        let busy = (0.52 + 0.58 * crowd + self.between(2, -0.05, 0.05)).clamp(0.04, 0.97);
        Workload {
            util: (busy * 100.0) as u64,
            mem_util: (busy * 44.0) as u64,
            power_w: self.watts(busy * 0.52) + self.between(1, -5.0, 5.0),
            throttle: 0,
            ..self.loaded()
        }
    }

    /// A batch of 12 to 18 s, followed by a pause of 3 to 5 s.
    pub fn bursty(&self) -> Workload {
        const ROUND_MS: i64 = 20_000;
        let (round, into) = (self.t_ms.div_euclid(ROUND_MS), self.t_ms.rem_euclid(ROUND_MS));
        let pause_ms = 3_000 + (self.rng.unit(13, round) * 2_000.0) as i64;
        if into >= ROUND_MS - pause_ms {
            return Workload { util: self.whole(2, 0, 4), throttle: 0, ..self.loaded() };
        }
        Workload {
            util: self.whole(2, 84, 98),
            throttle: 0,
            mem_util: self.whole(8, 30, 52),
            ..self.step(0.62)
        }
    }

    /// A notebook cell runs for 8 s occasionally.
    pub fn notebook(&self) -> Workload {
        const ROUND_MS: i64 = 240_000;
        let round = self.t_ms.div_euclid(ROUND_MS);
        let from = (self.rng.unit(14, round) * (ROUND_MS - 8_000) as f64) as i64;
        let into = self.t_ms.rem_euclid(ROUND_MS) - from;
        if !(0..8_000).contains(&into) {
            return self.loaded();
        }
        let power_w = self.watts(0.3) + self.between(1, -9.0, 9.0);
        Workload {
            util: self.whole(2, 35, 90),
            mem_util: self.whole(8, 8, 25),
            power_w,
            throttle: 0,
            ..self.loaded()
        }
    }

    /// Waits for input in 41 of 50 seconds, at most 8 in a row.
    pub fn input_bound(&self) -> Workload {
        let second = self.t_ms.div_euclid(1_000);
        if waits_for_input(self.rng, second) {
            return Workload {
                power_w: self.model.loaded_w + self.between(1, 3.0, 12.0),
                throttle: 0,
                ..self.loaded()
            };
        }
        let power_w = self.watts(0.4) + self.between(1, -40.0, 40.0);
        Workload {
            util: self.whole(2, 41, 93),
            mem_util: self.whole(8, 10, 30),
            power_w,
            throttle: 0,
            ..self.loaded()
        }
    }

    /// Waits for its data loaders in more than half of the seconds, at most four in a row.
    pub fn starved(&self) -> Workload {
        const ROUND_S: i64 = 7;
        let second = self.t_ms.div_euclid(1_000);
        // Batches arrive in rounds: a wait, and the steps of what was loaded meanwhile.
        let waits_s = 3 + (self.rng.unit(18, second.div_euclid(ROUND_S)) * 2.0) as i64;
        if second.rem_euclid(ROUND_S) < waits_s {
            return Workload { throttle: 0, ..self.loaded() };
        }
        Workload { util: self.whole(2, 70, 95), throttle: 0, ..self.step(0.6) }
    }

    /// A stage of a pipeline, with a bubble in each step.
    pub fn pipeline(&self, rank: usize, ranks: usize) -> Workload {
        const STEP_MS: i64 = 4_000;
        let shift_ms = STEP_MS * rank as i64 / ranks.max(1) as i64;
        match (self.t_ms - shift_ms).rem_euclid(STEP_MS) < STEP_MS / 5 {
            true => Workload { util: self.whole(2, 15, 40), ..self.waiting() },
            false => Workload { util: self.whole(2, 82, 97), throttle: 0, ..self.step(0.8) },
        }
    }

    /// A training with an evaluation every ten minutes, and a checkpoint after it.
    pub fn evaluating(&self, age_ms: i64, rank: usize) -> Workload {
        const ROUND_MS: i64 = 600_000;
        const EVALUATION_MS: i64 = 75_000;
        const LONG_CHECKPOINT_MS: i64 = 58_000;
        let left_ms = ROUND_MS - age_ms.rem_euclid(ROUND_MS);
        match (left_ms, rank) {
            (..=LONG_CHECKPOINT_MS, 0) => self.writing(),
            (..=LONG_CHECKPOINT_MS, _) => self.waiting(),
            (left_ms, _) if left_ms <= LONG_CHECKPOINT_MS + EVALUATION_MS => Workload {
                util: self.whole(2, 40, 75),
                mem_util: self.whole(8, 12, 24),
                throttle: 0,
                ..self.step(0.4)
            },
            _ => self.step(0.975),
        }
    }

    /// Constant load.
    pub fn steady(&self) -> Workload {
        Workload { util: 50, mem_util: 25, power_w: self.model.cap_w / 2.0, throttle: 0, ..self.loaded() }
    }
}

/// Alternating seconds of waiting and work; waiting is 41 of 50 s.
const INPUT: [(i64, i64); 7] = [(8, 1), (3, 2), (7, 1), (5, 1), (8, 2), (4, 1), (6, 1)];

fn waits_for_input(rng: Rng, second: i64) -> bool {
    let (round, mut into) = (second.div_euclid(50), second.rem_euclid(50));
    let first = (rng.unit(15, round) * INPUT.len() as f64) as usize;
    for turn in 0..INPUT.len() {
        let (waits, works) = INPUT[(first + turn) % INPUT.len()];
        if into < waits + works {
            return into < waits;
        }
        into -= waits + works;
    }
    false
}

/// Rounds a clock to steps of 15 MHz.
fn clock(mhz: f64) -> u64 {
    (mhz / 15.0) as u64 * 15
}
