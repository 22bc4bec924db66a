//! Faults that a card reports: ECC errors, retired pages, remapped rows.

use super::Overridable;
use serde::{Deserialize, Serialize};

/// ECC beyond the volatile totals, which are `ecc_corrected` and `ecc_uncorrected` of the GPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// Whether ECC is on; follows whether there is a total.
    pub mode: Overridable<bool>,
    /// Whether it will be after a reset; follows the current mode.
    pub pending: Overridable<bool>,
    /// Corrected errors of the card's life; follows the volatile total.
    pub aggregate_corrected: Overridable<u64>,
    /// Uncorrected errors of the card's life; follows the volatile total.
    pub aggregate_uncorrected: Overridable<u64>,
    /// How many of the corrected ones were in SRAM: volatile, aggregate. The rest were in DRAM.
    pub sram_corrected: [u64; 2],
    /// How many of the uncorrected ones were in SRAM and found by parity: volatile, aggregate.
    pub sram_parity: [u64; 2],
    /// How many were found by SEC-DED: volatile, aggregate.
    pub sram_secded: [u64; 2],
    /// Where the aggregate ones in SRAM were: L2, SM, PCIe, microcontroller, elsewhere.
    pub sram_buckets: [u64; 5],
    /// Whether their number means that the card should be replaced.
    pub sram_threshold_exceeded: bool,
}

/// Pages that a card before Ampere has retired.
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

/// Rows that a card from Ampere on has remapped.
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
    /// Banks by how many spare rows are left: all, many, some, few, none.
    pub histogram: [u32; 5],
}

impl Default for Remapped {
    fn default() -> Self {
        Self { corrected: 0, uncorrected: 0, pending: false, failed: false, histogram: [640, 0, 0, 0, 0] }
    }
}
