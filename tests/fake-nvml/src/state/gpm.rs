//! Metrics of GPM, from Hopper on.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// GPM readings in %. Derived values are a share of the utilisation: a simple model of a training step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpm {
    /// Any engine active (metric 1).
    pub graphics: Overridable<f64>,
    /// SMs active (2).
    pub sm: Overridable<f64>,
    /// Warps, relative to the maximum (3).
    pub occupancy: Overridable<f64>,
    /// Integer pipe (4).
    pub integer: Overridable<f64>,
    /// Tensor pipes (5).
    pub tensor: Overridable<f64>,
    /// Tensor pipe in double precision (6).
    pub dfma: Overridable<f64>,
    /// Tensor pipe in half precision (7).
    pub hmma: Overridable<f64>,
    /// Tensor pipe on integers (9).
    pub imma: Overridable<f64>,
    /// Memory bandwidth (10).
    pub dram: Overridable<f64>,
    /// FP64 pipe (11).
    pub fp64: Overridable<f64>,
    /// FP32 pipe (12).
    pub fp32: Overridable<f64>,
    /// FP16 pipe (13).
    pub fp16: Overridable<f64>,
    /// Whether samples are streamed, which makes them unavailable to other clients.
    pub streaming: bool,
}

/// Number of metrics from 1 to 13, as an array indexed by NVML's number.
pub const METRICS: usize = 14;

impl Gpm {
    /// All readings by NVML's number of the metric; `None` for unsupported ones.
    pub fn readings(&self, util: Option<f64>) -> [Option<f64>; METRICS] {
        let of = |own: &Overridable<f64>, share: f64| own.or(util.map(|util| util * share));
        let mut all = [None; METRICS];
        all[1] = of(&self.graphics, 1.0);
        all[2] = of(&self.sm, 0.9);
        all[3] = of(&self.occupancy, 0.35);
        all[4] = of(&self.integer, 0.12);
        all[5] = of(&self.tensor, 0.5);
        all[6] = of(&self.dfma, 0.0);
        all[7] = of(&self.hmma, 0.48);
        all[9] = of(&self.imma, 0.02);
        all[10] = of(&self.dram, 0.55);
        all[11] = of(&self.fp64, 0.0);
        all[12] = of(&self.fp32, 0.15);
        all[13] = of(&self.fp16, 0.1);
        all
    }
}
