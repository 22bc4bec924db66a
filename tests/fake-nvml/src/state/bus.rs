//! PCIe and NVLink of a GPU.

use serde::{Deserialize, Serialize};

/// The PCIe link.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    /// Current generation; the host's maximum; the GPU's maximum.
    pub generation: Option<[u32; 3]>,
    /// Current and maximum width.
    pub width: Option<[u32; 2]>,
    /// Sent by the GPU, KiB/s.
    pub tx_kib_s: Option<u64>,
    /// Received by the GPU, KiB/s.
    pub rx_kib_s: Option<u64>,
    /// Initial values of the byte counters (fields 197 and 198, drivers from 555) when the state file is
    /// written: sent, received. The counters have 32 bits.
    pub counted: Option<[u64; 2]>,
    /// Duration of `nvmlDeviceGetPcieThroughput`, ms.
    pub measure_ms: u64,
    /// Replays, and how often their counter overflowed.
    pub replays: Option<[u32; 2]>,
    /// Error counters, fields 173–182: correctable, NAKs received, receiver, bad TLP, NAKs sent, bad
    /// DLLP, non-fatal, fatal, unsupported requests, LCRC.
    pub errors: [u32; 10],
    /// BAR1 in MiB: total and used.
    pub bar1_mib: Option<[u64; 2]>,
}

impl Default for Pcie {
    fn default() -> Self {
        Self {
            generation: Some([4, 4, 4]),
            width: Some([16, 16]),
            tx_kib_s: Some(0),
            rx_kib_s: Some(0),
            counted: Some([0, 0]),
            measure_ms: 20,
            replays: Some([0, 0]),
            errors: [0; 10],
            bar1_mib: Some([131_072, 4]),
        }
    }
}

/// NVLink, all links of a card.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvLink {
    /// Number of links.
    pub links: u32,
    /// Links that are down.
    pub down: Vec<u32>,
    /// `nvmlNvlinkVersion_t`: 4 is NVLink 3.0, 6 is 4.0, 7 is 5.0, 8 is 6.0, 0 is none.
    pub version: u32,
    /// Speed of a link in MB/s.
    pub speed_mb_s: u32,
    /// The remote ends: GPUs (`gpu`, one after the other), a `switch`, the CPU (`npu`), or `unknown`.
    pub remote: Remote,
    /// Sent over all links, KiB/s; divided equally among the active ones.
    pub tx_kib_s: u64,
    /// Received over all links, KiB/s.
    pub rx_kib_s: u64,
    /// Initial values of the counters when the state file is written, KiB: sent, received, all links.
    pub counted_kib: [u64; 2],
    /// Errors of each link: replays, recoveries, flits with a bad CRC, data with one, ECC. Links that
    /// are not listed have none.
    pub errors: Vec<[u64; 5]>,
}

/// The remote end of an NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remote {
    /// Another GPU.
    Gpu,
    /// A switch.
    Switch,
    /// A CPU's unit.
    Npu,
    /// Unknown to NVML.
    Unknown,
}

impl Default for NvLink {
    fn default() -> Self {
        Self {
            links: 12,
            down: Vec::new(),
            version: 4,
            speed_mb_s: 25_000,
            remote: Remote::Switch,
            tx_kib_s: 0,
            rx_kib_s: 0,
            counted_kib: [0, 0],
            errors: Vec::new(),
        }
    }
}

impl NvLink {
    /// Returns whether a link of this number exists and is up.
    pub fn up(&self, link: u32) -> bool {
        link < self.links && !self.down.contains(&link)
    }

    /// Number of links that are up.
    pub fn active(&self) -> u32 {
        (0..self.links).filter(|link| self.up(*link)).count() as u32
    }
}
