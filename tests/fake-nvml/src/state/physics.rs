//! Temperatures, power, clocks and engines of a GPU beyond the common ones.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// Temperatures in °C.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thermal {
    /// Memory (field 82); by default 6 above the GPU's temperature.
    pub mem: Overridable<u32>,
    /// Shutdown threshold.
    pub shutdown: Option<u32>,
    /// Threshold of software thermal slowdown of the GPU.
    pub gpu_max: Option<u32>,
    /// Threshold of slowdown because of the memory.
    pub mem_max: Option<u32>,
    /// Acoustic thresholds: minimum, current, maximum.
    pub acoustic: Option<[u32; 3]>,
    /// Limits relative to the margin (fields 193–196): shutdown, slowdown, memory, GPU.
    pub tlimit: Option<[i32; 4]>,
}

impl Default for Thermal {
    fn default() -> Self {
        Self {
            mem: Overridable::Follows,
            shutdown: Some(95),
            gpu_max: Some(85),
            mem_max: Some(95),
            acoustic: None,
            tlimit: None,
        }
    }
}

/// Power in mW; the draw and the enforced limit are `power_mw` and `power_limit_mw` of the GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Power {
    /// One-second average (field 185); by default the draw.
    pub average: Overridable<u32>,
    /// Instantaneous draw (field 186); by default the draw.
    pub instant: Overridable<u32>,
    /// Configured limit; by default the enforced one.
    pub requested: Overridable<u32>,
    /// Limit after a boot.
    pub default: Option<u32>,
    /// Minimum of the configurable limit.
    pub min: Option<u32>,
    /// Its maximum.
    pub max: Option<u32>,
    /// Draw of the whole module (scope 1 of fields 185 and 186), on Grace machines.
    pub module: Option<u32>,
    /// Initial value of the energy counter when the state file is written, in mJ.
    pub energy_mj: Option<u64>,
    /// `nvmlPowerSource_t`: 0 mains, 1 battery.
    pub source: Option<u32>,
}

impl Default for Power {
    fn default() -> Self {
        Self {
            average: Overridable::Follows,
            instant: Overridable::Follows,
            requested: Overridable::Follows,
            default: Some(400_000),
            min: Some(100_000),
            max: Some(400_000),
            module: None,
            energy_mj: Some(0),
            source: Some(0),
        }
    }
}

/// Clocks in MHz; current and maximum SM and memory clocks are `sm_clock`, `mem_clock` … of the GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clocks {
    /// By default the SM clock.
    pub graphics: Overridable<u32>,
    /// By default the maximum SM clock.
    pub graphics_max: Overridable<u32>,
    /// By default 13/15 of the SM clock.
    pub video: Overridable<u32>,
    /// By default 13/15 of the maximum SM clock.
    pub video_max: Overridable<u32>,
    /// Application clocks: graphics (and SM), memory.
    pub applications: Option<[u32; 2]>,
    /// Throttle reasons that the GPU supports, NVML's bit mask.
    pub reasons: u64,
    /// Initial throttled time by reason when the state file is written, in ns: power cap, sync boost,
    /// software thermal, hardware thermal, power brake.
    pub throttled_ns: [u64; 5],
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            graphics: Overridable::Follows,
            graphics_max: Overridable::Follows,
            video: Overridable::Follows,
            video_max: Overridable::Follows,
            applications: Some([1_275, 1_593]),
            reasons: 0x1ff,
            throttled_ns: [0; 5],
        }
    }
}

/// Utilisation of the engines besides the SMs, in %.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engines {
    /// Video encoder.
    pub encoder: Option<u32>,
    /// Video decoder.
    pub decoder: Option<u32>,
    /// JPEG decoder.
    pub jpeg: Option<u32>,
    /// Optical flow.
    pub ofa: Option<u32>,
    /// Encoder sessions.
    pub sessions: Vec<Session>,
}

impl Default for Engines {
    fn default() -> Self {
        Self { encoder: Some(0), decoder: Some(0), jpeg: Some(0), ofa: Some(0), sessions: Vec::new() }
    }
}

/// One encoder session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Pid of the encoding process.
    pub pid: u32,
    /// Width and height in pixels.
    pub size: [u32; 2],
    /// Frames per second.
    pub fps: u32,
    /// Latency in µs.
    pub latency_us: u32,
}

impl Default for Session {
    fn default() -> Self {
        Self { pid: 1, size: [1_920, 1_080], fps: 60, latency_us: 900 }
    }
}
