//! The state file: what NVML reports, with a default for every value.

mod board;
mod bus;
pub mod card;
mod counter_rates;
mod gpm;
mod gpu;
mod health;
pub mod identity;
mod instance;
mod overridable;
mod physics;
mod process;
mod vgpu;

pub use board::Board;
pub use bus::{NvLink, Pcie, Remote};
pub use counter_rates::{COUNTED_REASONS, CounterRate, Counters};
pub use gpm::{Gpm, METRICS};
pub use gpu::Gpu;
pub use health::{Ecc, Remapped, Retired};
pub use instance::{Mig, Profile};
pub use overridable::Overridable;
pub use physics::{Clocks, Engines, Power, Session, Thermal};
pub use process::{Account, Accounting, Process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use vgpu::{License, Vgpu};

/// The whole file. `{}` is a machine with a driver and no GPU; without any file, no driver is loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Result of `nvmlInit_v2`: 0, 4 (no permission), 9 (driver not loaded), 18 (version mismatch), 999.
    pub init: u32,
    /// `nvmlSystemGetDriverVersion`. It also determines which field ids exist, and their numbers.
    pub driver: String,
    /// `nvmlSystemGetNVMLVersion`.
    pub nvml: String,
    /// `nvmlSystemGetCudaDriverVersion_v2`: 12040 is 12.4.
    pub cuda: i32,
    /// Utilisation, clocks, power, temperature and traffic vary over time. With `train_processes`, a GPU
    /// without processes is idle; otherwise every GPU is busy.
    pub motion: bool,
    /// Lists real processes whose arguments contain `--gpus=0,1` (and `--gpu-mem=41G`) on those GPUs.
    pub train_processes: bool,
    /// Maximum age of motion and of real processes, in ms; by default 20. To find the processes, the
    /// library searches `/proc`, which a driver does not: where CPU is measured, this is longer than a
    /// sample takes.
    pub fresh_ms: Option<u64>,
    /// Lists only GPUs whose `/dev/nvidiaN` this process may open, as a driver does under a device cgroup.
    pub confined: bool,
    /// Bytes from one entry to the next in the `_v3` process lists: 24; 32 as drivers 535.43 to 535.86 write, for any
    /// room of the caller; 16 as observed in a container.
    pub v3_stride: usize,
    /// `nvmlSystemGetConfComputeState`: environment, feature, developer tools.
    pub conf_compute: [u32; 3],
    /// `nvmlGpuTopologyLevel_t` between GPUs, one row per GPU; by default derived from their NUMA nodes.
    pub topology: Option<Vec<Vec<u32>>>,
    /// Calls that hang: symbol, `field:186` or `gpm:5` → milliseconds.
    pub hang_ms: BTreeMap<String, u64>,
    /// Calls that fail on every device: symbol, `field:186` or `gpm:5` → return code.
    pub errors: BTreeMap<String, u32>,
    /// Calls that return another number than the state has: symbol → number. For a list, it is the
    /// reported length, and the list itself is not returned.
    pub numbers: BTreeMap<String, u64>,
    /// A call in which the library prints a line on stdout.
    pub prints: Option<String>,
    /// A call in which the library ends the process with status 0.
    pub exits: Option<String>,
    /// Number of times the driver was replaced. For a library that was loaded before, each call on a device
    /// and each initialisation then returns a version mismatch; it still counts its GPUs.
    pub generation: u32,
    /// The library stays loaded after `dlclose`, like one with a running thread.
    pub stays_loaded: bool,
    /// The GPUs in NVML's order.
    pub gpus: Vec<Gpu>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            init: 0,
            driver: "550.54.15".into(),
            nvml: "12.550.54.15".into(),
            cuda: 12_040,
            motion: false,
            train_processes: false,
            fresh_ms: None,
            confined: false,
            v3_stride: 24,
            conf_compute: [0; 3],
            topology: None,
            hang_ms: BTreeMap::new(),
            errors: BTreeMap::new(),
            numbers: BTreeMap::new(),
            prints: None,
            exits: None,
            generation: 0,
            stays_loaded: false,
            gpus: Vec::new(),
        }
    }
}

impl State {
    /// The driver's version, major and minor: (550, 54).
    pub fn driver_version(&self) -> (u32, u32) {
        let mut numbers = self.driver.split('.').map(|number| number.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    /// The NUMA node that a GPU is near.
    pub fn socket(&self, index: usize) -> u32 {
        let halves = if self.gpus.len() > 1 { index * 2 / self.gpus.len() } else { 0 };
        self.gpus.get(index).and_then(|gpu| gpu.board.socket.or(Some(halves as u32))).unwrap_or(0)
    }
}
