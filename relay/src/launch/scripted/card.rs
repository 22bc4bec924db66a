//! What each GPU model of a scenario is and draws, after public data sheets and recorded traces.

use serde::Deserialize;

/// A GPU model that a scenario can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// H100 SXM, 80 GB HBM3.
    H100,
    /// A100 SXM4, 80 GB.
    A100,
    /// L40S, 48 GB.
    L40s,
    /// GeForce RTX 4090: with a fan and without ECC counters.
    Rtx4090,
}

/// The figures of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// As `nvmlDeviceGetName` says it.
    pub name: &'static str,
    /// Device memory, in MiB.
    pub mem_mib: u64,
    /// What driver and firmware reserve of it, in MiB.
    pub reserved_mib: u64,
    /// Power limit, in W.
    pub cap_w: f64,
    /// Draw with no process on it, in W.
    pub bare_w: f64,
    /// Draw with a model loaded and nothing running, in W.
    pub loaded_w: f64,
    /// Draw of a collective that waits: busy in NVML's eyes, cool in fact; in W.
    pub waiting_w: f64,
    /// SM clock with no process on it, in MHz.
    pub sm_idle_mhz: u64,
    /// Largest SM clock, in MHz.
    pub sm_max_mhz: u64,
    /// SM clock at which a hot card of this model ends up, in MHz.
    pub sm_hot_mhz: u64,
    /// Memory clock, in MHz.
    pub mem_mhz: u64,
    /// Temperature at which the card slows down, in °C.
    pub slowdown_c: u32,
    /// How much warmer than the inlet the card is at its power limit, in °C.
    pub rise_c: f64,
    /// Whether it has a fan of its own.
    pub fan: bool,
    /// Whether it counts ECC errors.
    pub ecc: bool,
}

impl Model {
    /// Its figures.
    pub fn card(self) -> Card {
        match self {
            Self::H100 => H100,
            Self::A100 => A100,
            Self::L40s => L40S,
            Self::Rtx4090 => RTX_4090,
        }
    }
}

const H100: Card = Card {
    name: "NVIDIA H100 80GB HBM3",
    mem_mib: 81_559,
    reserved_mib: 551,
    cap_w: 700.0,
    bare_w: 70.0,
    loaded_w: 120.0,
    waiting_w: 149.0,
    sm_idle_mhz: 345,
    sm_max_mhz: 1_980,
    sm_hot_mhz: 1_095,
    mem_mhz: 2_619,
    slowdown_c: 90,
    rise_c: 41.0,
    fan: false,
    ecc: true,
};

const A100: Card = Card {
    name: "NVIDIA A100-SXM4-80GB",
    mem_mib: 81_920,
    reserved_mib: 617,
    cap_w: 400.0,
    bare_w: 53.0,
    loaded_w: 64.0,
    waiting_w: 97.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 1_410,
    sm_hot_mhz: 885,
    mem_mhz: 1_593,
    slowdown_c: 89,
    rise_c: 38.0,
    ..H100
};

const L40S: Card = Card {
    name: "NVIDIA L40S",
    mem_mib: 46_068,
    reserved_mib: 600,
    cap_w: 350.0,
    bare_w: 34.0,
    loaded_w: 82.0,
    waiting_w: 112.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 2_520,
    sm_hot_mhz: 1_350,
    mem_mhz: 9_001,
    slowdown_c: 88,
    rise_c: 43.0,
    ..H100
};

const RTX_4090: Card = Card {
    name: "NVIDIA GeForce RTX 4090",
    mem_mib: 24_564,
    reserved_mib: 346,
    cap_w: 450.0,
    bare_w: 18.0,
    loaded_w: 58.0,
    waiting_w: 110.0,
    sm_idle_mhz: 210,
    sm_max_mhz: 3_120,
    sm_hot_mhz: 1_800,
    mem_mhz: 10_501,
    slowdown_c: 90,
    rise_c: 42.0,
    fan: true,
    ecc: false,
};
