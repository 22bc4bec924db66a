//! Health of a GPU: slowly changing state, and each of its NVLinks.

use super::device::{DeviceHandle, HandleError};
use super::device_state::{DeviceState, LinkState};
use super::fields::{self, FieldQuery};
use super::nvlinks;
use super::query_cache::{Query, QueryCache};
use super::{REPORTER, error, ffi, license};
use crate::clock;
use crate::source::calls::CallTracker;
use crate::source::limits::check_rate;
use crate::source::plausible;
use nodeglass_protocol::gpu::{GpuHealth, NvLink, Vgpu};
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, RetirementCause};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enum_wrappers::vgpu::VmId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::vgpu::VgpuInstance;

/// KiB per MiB: NVLink counters are in KiB, link rates in MiB.
const KIB_OF_MIB: u64 = 1_024;

/// Counters whose sum is a link's error count.
const ERRORS: [(Query, ErrorCounter); 4] = [
    (Query::LinkReplay, ErrorCounter::DlReplay),
    (Query::LinkRecovery, ErrorCounter::DlRecovery),
    (Query::LinkCrcFlit, ErrorCounter::DlCrcFlit),
    (Query::LinkCrcData, ErrorCounter::DlCrcData),
];

/// Queries the health of one inventory entry; every reading of a lost GPU is failed.
pub fn of(handle: &DeviceHandle<'_>, device_state: &mut DeviceState<'_>) -> GpuHealth {
    let device = match &handle.device {
        Ok(device) => device,
        Err(HandleError::Faulty(why) | HandleError::Avoided(why)) => return lost(why.clone()),
        Err(HandleError::Forbidden) => return lost(error::FORBIDDEN.into()),
    };
    device_state.queries.begin(None);
    let health = query_all(device, &mut device_state.queries);
    if let Some(fault) = device_state.queries.fault() {
        return lost(fault.clone());
    }
    let nvlinks = if handle.mig.is_none() { links(device, device_state, &handle.calls) } else { Vec::new() };
    let mut health = GpuHealth { nvlinks, ..health };
    plausible::health(&mut health, REPORTER);
    health
}

fn lost(why: Text) -> GpuHealth {
    let mut health = GpuHealth::default();
    for reading in GpuHealth::readings() {
        reading.clear(&mut health, Reading::Failed(why.clone().into()));
    }
    health
}

fn query_all(device: &Device<'_>, queries: &mut QueryCache) -> GpuHealth {
    let mut ecc =
        |query, kind| queries.number(query, || device.total_ecc_errors(kind, EccCounter::Aggregate));
    let life = (
        ecc(Query::EccLifeCorrected, MemoryError::Corrected),
        ecc(Query::EccLifeUncorrected, MemoryError::Uncorrected),
    );
    let mut retired =
        |query, cause: RetirementCause| queries.number(query, || ffi::retired_pages(device, cause.as_c()));
    let retired = (
        retired(Query::RetiredCorrected, RetirementCause::MultipleSingleBitEccErrors),
        retired(Query::RetiredUncorrected, RetirementCause::DoubleBitEccError),
    );
    let rows = queries.query(Query::Remapped, || ffi::remapped_rows(device));
    let bar1 = queries.query(Query::Bar1, || device.bar1_memory_info());
    GpuHealth {
        ecc_life_corrected: life.0,
        ecc_life_uncorrected: life.1,
        retired_corrected: retired.0,
        retired_uncorrected: retired.1,
        retired_pending: queries.query(Query::RetiredPending, || device.are_pages_pending_retired()),
        remapped_corrected: rows.clone().map(|rows| rows.corrected.into()),
        remapped_uncorrected: rows.clone().map(|rows| rows.uncorrected.into()),
        remap_pending: rows.clone().map(|rows| rows.pending),
        remap_failed: rows.map(|rows| rows.failed),
        pcie_gen: queries.number(Query::PcieGen, || device.current_pcie_link_gen()),
        pcie_width: queries.number(Query::PcieWidth, || device.current_pcie_link_width()),
        pcie_replays: queries.number(Query::PcieReplays, || device.pcie_replay_counter()),
        bar1_used_bytes: bar1.clone().map(|bar1| bar1.used),
        bar1_total_bytes: bar1.map(|bar1| bar1.total),
        nvlinks: Vec::new(),
        vgpus: vgpus(device, queries),
        license: license::of(queries.query(Query::License, || ffi::licensable_feature(device))),
    }
}

/// Queries the vGPUs of a host. A driver without vGPUs does not support the call, which is then not repeated.
fn vgpus(device: &Device<'_>, queries: &mut QueryCache) -> Vec<Vgpu> {
    let ids = queries.query(Query::Vgpus, || ffi::active_vgpus(device));
    let vgpu = |id: &u32| {
        queries.begin_next_call();
        let instance = VgpuInstance::new(*id, device);
        let kind = || instance.instance_type();
        Vgpu {
            vm: error::reading(instance.vm_id()).map(|id| match id {
                VmId::Domain(id) | VmId::Uuid(id) => id.into(),
            }),
            profile: error::reading(kind().and_then(|kind| kind.name())).map(Text::from),
            mem_used_bytes: error::reading(instance.fb_usage()),
            mem_total_bytes: error::reading(kind().and_then(|kind| kind.framebuffer_size())),
            is_licensed: error::reading(instance.license_info_v2()).map(|license| license.is_licensed),
        }
    };
    ids.value().into_iter().flatten().map(vgpu).collect()
}

/// Queries all links: state and errors each time, static facts once per inventory.
fn links(device: &Device<'_>, device_state: &mut DeviceState<'_>, calls: &CallTracker) -> Vec<NvLink> {
    let states = nvlinks::states(device, calls).unwrap_or_default();
    device_state.links.resize_with(states.len(), LinkState::default);
    if !device_state.links_known {
        for (number, link) in (0..).zip(&mut device_state.links) {
            calls.begin_next_call();
            link.version = nvlinks::version(device, number);
            link.remote = error::reading(nvlinks::remote(device, number)).map(|remote| remote.text());
        }
        // The links of a GPU have one version, which a link that is down does not state.
        let fastest = device_state.links.iter().filter_map(LinkState::max_bytes_s).max();
        let is_known = !device_state.links.iter().any(|link| matches!(link.version, Reading::Failed(_)));
        device_state.limits.nvlink_bytes_s =
            fastest.filter(|_| is_known).map(|limit| limit.saturating_mul(device_state.links.len() as u64));
        device_state.links_known = true;
    }
    calls.begin_next_call();
    let rates = rates(device, &states, device_state);
    let mut links = Vec::with_capacity(states.len());
    for (number, (state, (rx, tx))) in (0..).zip(states.into_iter().zip(rates)) {
        let link = &device_state.links[links.len()];
        let (version, remote) = (link.version.clone(), link.remote.clone());
        let errors = errors(device, number, &mut device_state.queries);
        links.push(NvLink {
            link: number,
            up: error::reading(state),
            version,
            remote: absent_if_invalid(remote),
            rx_mib_s: rx,
            tx_mib_s: tx,
            errors,
        });
    }
    links
}

/// NVML reports an invalid argument for the remote end of a link that is down.
fn absent_if_invalid<T>(reading: Reading<T>) -> Reading<T> {
    match reading {
        Reading::Failed(why) if *why == error::of(&NvmlError::InvalidArg) => Reading::Unsupported,
        reading => reading,
    }
}

/// Returns the rates of each link in MiB/s, with one call for all links that are up.
fn rates(
    device: &Device<'_>,
    states: &[Result<bool, NvmlError>],
    device_state: &mut DeviceState<'_>,
) -> Vec<(Reading<u64>, Reading<u64>)> {
    let up = |state: &Result<bool, NvmlError>| matches!(state, Ok(true));
    let mut request: Vec<FieldQuery> = (0..)
        .zip(states)
        .filter(|(_, state)| up(state))
        .flat_map(|(link, _)| {
            [FieldQuery::new(fields::NVLINK_RX_KIB, link), FieldQuery::new(fields::NVLINK_TX_KIB, link)]
        })
        .collect();
    let whole = fields::query(device, &mut request).err().map(error::code);
    let mono_ns = clock::mono_ns();
    let mut answers = request.iter();
    let mut answer = || match (&whole, answers.next()) {
        (Some(code), _) => error::reading(Err(NvmlError::from(*code))),
        (None, Some(field)) => error::reading(field.answer()),
        (None, None) => Reading::Unsupported,
    };
    let mib = |kib: u64| kib / KIB_OF_MIB;
    states
        .iter()
        .zip(&mut device_state.links)
        .map(|(state, link)| {
            // A link that is down transfers nothing, and its counters restart when it comes up.
            let (rx, tx) =
                if up(state) { (answer(), answer()) } else { (Reading::Unsupported, Reading::Unsupported) };
            let limit = link.max_bytes_s().map(|limit| limit >> 20);
            let mut rates = (link.rx.rate(rx, mono_ns).map(mib), link.tx.rate(tx, mono_ns).map(mib));
            check_rate(&mut rates.0, limit, REPORTER, "MiB/s");
            check_rate(&mut rates.1, limit, REPORTER, "MiB/s");
            rates
        })
        .collect()
}

/// Returns the sum of a link's error counters, by the interface that the GPU supports.
fn errors(device: &Device<'_>, link: u32, queries: &mut QueryCache) -> Reading<u64> {
    let counters = ERRORS.map(|(query, counter)| {
        queries.query(query, || device.link_wrapper_for(link).error_counter(counter))
    });
    match sum(counters) {
        Reading::Unsupported => queries.query(Query::LinkDlErrors, || {
            let mut request = fields::NVLINK_DL_ERRORS.map(|id| FieldQuery::new(id, link));
            fields::query(device, &mut request)?;
            request.iter().try_fold(0_u64, |sum, field| Ok(sum.saturating_add(field.answer()?)))
        }),
        sum => sum,
    }
}

/// Sums the supported counters; unsupported if there is none, failed if one failed.
fn sum(counters: impl IntoIterator<Item = Reading<u64>>) -> Reading<u64> {
    counters.into_iter().fold(Reading::Unsupported, |sum, counter| match (sum, counter) {
        (Reading::Failed(why), _) | (_, Reading::Failed(why)) => Reading::Failed(why),
        (Reading::Value(sum), Reading::Value(more)) => Reading::Value(sum.saturating_add(more)),
        (_, Reading::Value(first)) => Reading::Value(first),
        (sum, _) => sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_errors_are_the_sum_of_supported_counters() {
        let (one, none) = (Reading::Value(1), Reading::Unsupported);
        let failed = Reading::Failed("unknown error".into());
        assert_eq!(sum([one.clone(), none.clone(), Reading::Value(4)]), Reading::Value(5));
        assert_eq!(sum([none.clone(), none.clone()]), Reading::Unsupported);
        assert_eq!(sum([one, failed.clone(), none]), failed);
    }
}
