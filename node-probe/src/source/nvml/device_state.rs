//! State of a GPU between sampling cycles: counters and unsupported queries.

use super::{
    device::DeviceHandle, fields::FIELD_READINGS, gpm::Gpm, nvlinks, pcie::Pcie, query_cache::QueryCache,
    sample_cursor::SampleCursor,
};
use crate::counter_rate::CounterRate;
use crate::source::limits::Limits;
use nodeglass_protocol::probe::GpuFacts;
use nodeglass_protocol::{Reading, Text};
use std::sync::Arc;

/// State of one inventory entry.
#[derive(Debug)]
pub struct DeviceState<'nvml> {
    /// Cache of unsupported queries.
    pub queries: QueryCache,
    /// GPM state.
    pub gpm: Gpm<'nvml>,
    /// PCIe throughput.
    pub pcie: Pcie,
    /// Limits that the GPU states for itself.
    pub limits: Limits,
    /// Rates of the field values that are counters.
    pub field_rates: [CounterRate; FIELD_READINGS],
    /// NVLinks, once health was queried.
    pub links: Vec<LinkState>,
    /// Whether static facts of the links were queried since the last inventory.
    pub links_known: bool,
    /// Timestamps of process utilization samples.
    pub usage: SampleCursor,
    /// Last reported memory size in bytes.
    pub mem_total_bytes: Option<u64>,
    /// Whether it could not be read in the last cycle.
    pub was_faulty: bool,
}

/// State of one NVLink.
#[derive(Debug, Default)]
pub struct LinkState {
    /// NVLink version.
    pub version: Reading<u64>,
    /// Remote end.
    pub remote: Reading<Text>,
    /// KiB sent.
    pub tx: CounterRate,
    /// KiB received.
    pub rx: CounterRate,
}

impl LinkState {
    /// Returns its data rate in one direction in bytes/s; unknown if it was down.
    pub fn max_bytes_s(&self) -> Option<u64> {
        self.version.value().copied().and_then(nvlinks::max_bytes_s)
    }
}

impl<'nvml> DeviceState<'nvml> {
    /// Creates the state of a new GPU.
    pub fn new(handle: &DeviceHandle<'_>) -> Self {
        Self {
            queries: queries(handle),
            gpm: Gpm::default(),
            pcie: Pcie::default(),
            limits: Limits::default(),
            field_rates: Default::default(),
            links: Vec::new(),
            links_known: false,
            usage: SampleCursor::default(),
            mem_total_bytes: None,
            was_faulty: false,
        }
    }

    /// Sets the limits that the facts state.
    pub fn set_limits(&mut self, facts: &GpuFacts) {
        self.pcie.set_link(facts.pcie_gen_max.value().copied(), facts.pcie_width_max.value().copied());
        let nvlink_bytes_s = self.limits.nvlink_bytes_s;
        self.limits = Limits::of(facts);
        (self.limits.pcie_bytes_s, self.limits.nvlink_bytes_s) =
            (Some(self.pcie.max_bytes_s()), nvlink_bytes_s);
    }

    /// Returns the state after another enumeration: counters are kept, unsupported queries are
    /// repeated.
    pub fn renewed(mut self, handle: &DeviceHandle<'_>) -> Self {
        self.queries = self.queries.renewed(handle.mig.is_some(), handle.divided == Some(true));
        self.gpm.reconsider();
        (self.links_known, self.was_faulty) = (false, false);
        self
    }
}

fn queries(handle: &DeviceHandle<'_>) -> QueryCache {
    QueryCache::new(handle.mig.is_some(), handle.divided == Some(true), Arc::clone(&handle.calls))
}
