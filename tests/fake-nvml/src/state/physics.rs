//! Heat, power and clocks of a card beyond the few that every test sets.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// Temperatures in °C.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thermal {
    /// Memory (field 82); follows the GPU's temperature at a distance of 6.
    pub mem: Overridable<u32>,
    /// Shutdown threshold.
    pub shutdown: Option<u32>,
    /// Where the GPU's clocks are lowered by software.
    pub gpu_max: Option<u32>,
    /// Where they are for the memory's sake.
    pub mem_max: Option<u32>,
    /// Acoustic thresholds: least, current, most.
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
    /// Average of a second (field 185); follows the draw.
    pub average: Overridable<u32>,
    /// Instantaneous draw (field 186); follows the draw.
    pub instant: Overridable<u32>,
    /// Limit that was set; follows the enforced one.
    pub requested: Overridable<u32>,
    /// Limit after a boot.
    pub default: Option<u32>,
    /// Least limit that can be set.
    pub min: Option<u32>,
    /// Most.
    pub max: Option<u32>,
    /// The whole module's draw (scope 1 of fields 185 and 186), on Grace machines.
    pub module: Option<u32>,
    /// What the energy counter has counted before the state file was written, in mJ.
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

/// Clocks in MHz; SM and memory, now and at most, are `sm_clock`, `mem_clock` … of the GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clocks {
    /// Follows the SM clock.
    pub graphics: Overridable<u32>,
    /// Follows the largest SM clock.
    pub graphics_max: Overridable<u32>,
    /// Follows the SM clock, at 13/15 of it.
    pub video: Overridable<u32>,
    /// Follows the largest SM clock likewise.
    pub video_max: Overridable<u32>,
    /// What applications get: graphics (and SM), memory.
    pub applications: Option<[u32; 2]>,
    /// Reasons that the card can give for lower clocks, NVML's bit mask.
    pub reasons: u64,
    /// How long each reason has held before the state file was written, in ns: power cap, sync
    /// boost, thermal by software, thermal by hardware, power brake.
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

/// Load of the engines beside the SMs in %.
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
    /// Who encodes.
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
