//! What must be remembered of a GPU from one look to the next: counters, and what it does not offer.

use super::{device::DeviceHandle, gpm::Gpm, pcie::Pcie, query_cache::QueryCache, usage::SampleCursor};
use crate::counter_rate::CounterRate;
use nodeglass_protocol::{Reading, Text};

/// The past of one row of the inventory.
#[derive(Debug)]
pub struct DeviceState<'nvml> {
    /// What it does not offer.
    pub queries: QueryCache,
    /// Its performance monitor.
    pub gpm: Gpm<'nvml>,
    /// Its traffic over PCIe.
    pub pcie: Pcie,
    /// KiB sent over all NVLinks.
    pub nvlink_tx: CounterRate,
    /// KiB received over all NVLinks.
    pub nvlink_rx: CounterRate,
    /// Its NVLinks, once health was asked.
    pub links: Vec<LinkState>,
    /// Whether what does not change of the links was asked since the last inventory.
    pub links_known: bool,
    /// Which samples of process utilisation were seen.
    pub usage: SampleCursor,
    /// Its memory in bytes, as it last said.
    pub mem_total_bytes: Option<u64>,
    /// Whether it could not be read at the last look.
    pub was_faulty: bool,
}

/// The past of one NVLink.
#[derive(Debug, Default)]
pub struct LinkState {
    /// Its version.
    pub version: Reading<u64>,
    /// What it leads to.
    pub remote: Reading<Text>,
    /// KiB sent.
    pub tx: CounterRate,
    /// KiB received.
    pub rx: CounterRate,
}

impl<'nvml> DeviceState<'nvml> {
    /// Of a GPU that was not seen before.
    pub fn new(handle: &DeviceHandle<'_>) -> Self {
        Self {
            queries: queries(handle),
            gpm: Gpm::default(),
            pcie: Pcie::default(),
            nvlink_tx: CounterRate::default(),
            nvlink_rx: CounterRate::default(),
            links: Vec::new(),
            links_known: false,
            usage: SampleCursor::default(),
            mem_total_bytes: None,
            was_faulty: false,
        }
    }

    /// Of a GPU that was enumerated again: it keeps its counters, and is asked for everything again.
    pub fn renewed(mut self, handle: &DeviceHandle<'_>) -> Self {
        self.queries = self.queries.renewed(handle.mig.is_some(), handle.divided == Some(true));
        self.gpm.reconsider();
        (self.links_known, self.was_faulty) = (false, false);
        self
    }
}

fn queries(handle: &DeviceHandle<'_>) -> QueryCache {
    QueryCache::new(handle.mig.is_some(), handle.divided == Some(true))
}
