//! Faults that a GPU reports: ECC errors, retired pages, remapped rows.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// ECC beyond the volatile totals, which are `ecc_corrected` and `ecc_uncorrected` of the GPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// Whether ECC is enabled; by default if there is a total.
    pub mode: Overridable<bool>,
    /// ECC mode after a reset; by default the current mode.
    pub pending: Overridable<bool>,
    /// Corrected errors over the GPU's lifetime; by default the volatile total.
    pub aggregate_corrected: Overridable<u64>,
    /// Uncorrected errors over the GPU's lifetime; by default the volatile total.
    pub aggregate_uncorrected: Overridable<u64>,
    /// Number of corrected errors in SRAM: volatile, aggregate. The others were in DRAM.
    pub sram_corrected: [u64; 2],
    /// Number of uncorrected errors in SRAM that parity detected: volatile, aggregate.
    pub sram_parity: [u64; 2],
    /// Number of uncorrected errors in SRAM that SEC-DED detected: volatile, aggregate.
    pub sram_secded: [u64; 2],
    /// Aggregate errors in SRAM by location: L2, SM, PCIe, microcontroller, other.
    pub sram_buckets: [u64; 5],
    /// Whether their number means that the card should be replaced.
    pub sram_threshold_exceeded: bool,
}

/// Pages that a GPU before Ampere has retired.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retired {
    /// Addresses, for several single-bit errors.
    pub single_bit: Vec<u64>,
    /// Addresses, for a double-bit error.
    pub double_bit: Vec<u64>,
    /// Whether some wait for a reset: single-bit, double-bit.
    pub pending: [bool; 2],
}

/// Rows that a GPU from Ampere on has remapped.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Remapped {
    /// For correctable errors.
    pub corrected: u32,
    /// For uncorrectable errors.
    pub uncorrected: u32,
    /// Whether some wait for a reset.
    pub pending: bool,
    /// Whether a remapping ever failed.
    pub failed: bool,
    /// Banks by number of remaining spare rows: all, many, some, few, none.
    pub histogram: [u32; 5],
}

impl Default for Remapped {
    fn default() -> Self {
        Self { corrected: 0, uncorrected: 0, pending: false, failed: false, histogram: [640, 0, 0, 0, 0] }
    }
}
