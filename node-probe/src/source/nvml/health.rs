//! How well a GPU is: what changes seldom, and each of its NVLinks.

use super::asker::{Ask, Asker};
use super::device::{NoHandle, Seat};
use super::fields::{self, Field};
use super::nvlinks;
use super::past::{LinkPast, Past};
use super::{beyond, plausible, word};
use crate::clock;
use nodeglass_protocol::gpu::{GpuHealth, NvLink};
use nodeglass_protocol::{Reading, Text};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, RetirementCause};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;

/// KiB in a MiB: NVLink's counters are told in the former, rates of links in the latter.
const KIB_OF_MIB: u64 = 1_024;

/// The counters whose sum is a link's errors.
const ERRORS: [(Ask, ErrorCounter); 4] = [
    (Ask::LinkReplay, ErrorCounter::DlReplay),
    (Ask::LinkRecovery, ErrorCounter::DlRecovery),
    (Ask::LinkCrcFlit, ErrorCounter::DlCrcFlit),
    (Ask::LinkCrcData, ErrorCounter::DlCrcData),
];

/// The health of one row of the inventory; of a lost GPU each reading says so.
pub fn of(seat: &Seat<'_>, past: &mut Past<'_>) -> GpuHealth {
    let device = match &seat.device {
        Ok(device) => device,
        Err(NoHandle::Faulty(why) | NoHandle::Avoided(why)) => return lost(why.clone()),
        Err(NoHandle::Forbidden) => return lost(word::FORBIDDEN.into()),
    };
    past.asker.begin(None);
    let health = asked(device, &mut past.asker);
    if let Some(fault) = past.asker.fault() {
        return lost(fault.clone());
    }
    let nvlinks = if seat.mig.is_none() { links(device, past) } else { Vec::new() };
    let mut health = GpuHealth { nvlinks, ..health };
    plausible::health(&mut health);
    health
}

fn lost(why: Text) -> GpuHealth {
    let (count, state) = (Reading::Failed(why.clone().into()), Reading::Failed(why.into()));
    GpuHealth {
        ecc_life_corrected: count.clone(),
        ecc_life_uncorrected: count.clone(),
        retired_corrected: count.clone(),
        retired_uncorrected: count.clone(),
        retired_pending: state.clone(),
        remapped_corrected: count.clone(),
        remapped_uncorrected: count.clone(),
        remap_pending: state.clone(),
        remap_failed: state,
        pcie_gen: count.clone(),
        pcie_width: count.clone(),
        pcie_replays: count.clone(),
        bar1_used_bytes: count.clone(),
        bar1_total_bytes: count,
        nvlinks: Vec::new(),
    }
}

fn asked(device: &Device<'_>, asker: &mut Asker) -> GpuHealth {
    let mut ecc = |ask, kind| asker.number(ask, || device.total_ecc_errors(kind, EccCounter::Aggregate));
    let life = (
        ecc(Ask::EccLifeCorrected, MemoryError::Corrected),
        ecc(Ask::EccLifeUncorrected, MemoryError::Uncorrected),
    );
    let mut retired =
        |ask, cause: RetirementCause| asker.number(ask, || beyond::retired_pages(device, cause.as_c()));
    let retired = (
        retired(Ask::RetiredCorrected, RetirementCause::MultipleSingleBitEccErrors),
        retired(Ask::RetiredUncorrected, RetirementCause::DoubleBitEccError),
    );
    let rows = asker.ask(Ask::Remapped, || beyond::remapped_rows(device));
    let bar1 = asker.ask(Ask::Bar1, || device.bar1_memory_info());
    GpuHealth {
        ecc_life_corrected: life.0,
        ecc_life_uncorrected: life.1,
        retired_corrected: retired.0,
        retired_uncorrected: retired.1,
        retired_pending: asker.ask(Ask::RetiredPending, || device.are_pages_pending_retired()),
        remapped_corrected: rows.clone().map(|rows| rows.corrected.into()),
        remapped_uncorrected: rows.clone().map(|rows| rows.uncorrected.into()),
        remap_pending: rows.clone().map(|rows| rows.pending),
        remap_failed: rows.map(|rows| rows.failed),
        pcie_gen: asker.number(Ask::PcieGen, || device.current_pcie_link_gen()),
        pcie_width: asker.number(Ask::PcieWidth, || device.current_pcie_link_width()),
        pcie_replays: asker.number(Ask::PcieReplays, || device.pcie_replay_counter()),
        bar1_used_bytes: bar1.clone().map(|bar1| bar1.used),
        bar1_total_bytes: bar1.map(|bar1| bar1.total),
        nvlinks: Vec::new(),
    }
}

/// Every link: whether it is up and its errors each time, what it is only once an inventory.
fn links(device: &Device<'_>, past: &mut Past<'_>) -> Vec<NvLink> {
    let states = nvlinks::states(device).unwrap_or_default();
    past.links.resize_with(states.len(), LinkPast::default);
    if !past.links_known {
        for (number, link) in (0..).zip(&mut past.links) {
            link.version = nvlinks::version(device, number);
            link.remote = word::reading(nvlinks::remote(device, number)).map(|remote| remote.text());
        }
        past.links_known = true;
    }
    let rates = rates(device, &states, past);
    let mut links = Vec::with_capacity(states.len());
    for (number, (state, (rx, tx))) in (0..).zip(states.into_iter().zip(rates)) {
        let link = &past.links[links.len()];
        let (version, remote) = (link.version.clone(), link.remote.clone());
        let errors = errors(device, number, &mut past.asker);
        links.push(NvLink {
            link: number,
            up: word::reading(state),
            version,
            remote: absent_if_invalid(remote),
            rx_mib_s: rx,
            tx_mib_s: tx,
            errors,
        });
    }
    links
}

/// Of a link that is down, NVML calls the question for its other end invalid.
fn absent_if_invalid<T>(reading: Reading<T>) -> Reading<T> {
    match reading {
        Reading::Failed(why) if *why == word::of(&NvmlError::InvalidArg) => Reading::Unsupported,
        reading => reading,
    }
}

/// Received and sent of each link, in MiB/s: one call for all links that are up.
fn rates(
    device: &Device<'_>,
    states: &[Result<bool, NvmlError>],
    past: &mut Past<'_>,
) -> Vec<(Reading<u64>, Reading<u64>)> {
    let up = |state: &Result<bool, NvmlError>| matches!(state, Ok(true));
    let mut request: Vec<Field> = (0..)
        .zip(states)
        .filter(|(_, state)| up(state))
        .flat_map(|(link, _)| {
            [Field::new(fields::NVLINK_RX_KIB, link), Field::new(fields::NVLINK_TX_KIB, link)]
        })
        .collect();
    let whole = fields::ask(device, &mut request).err().map(word::code);
    let mono_ns = clock::mono_ns();
    let mut answers = request.iter();
    let mut answer = || match (&whole, answers.next()) {
        (Some(code), _) => word::reading(Err(NvmlError::from(*code))),
        (None, Some(field)) => word::reading(field.answer()),
        (None, None) => Reading::Unsupported,
    };
    let mib = |kib: u64| kib / KIB_OF_MIB;
    states
        .iter()
        .zip(&mut past.links)
        .map(|(state, link)| {
            // A link that is down moves nothing, and its counters begin anew when it comes up.
            let (rx, tx) =
                if up(state) { (answer(), answer()) } else { (Reading::Unsupported, Reading::Unsupported) };
            (link.rx.rate(rx, mono_ns).map(mib), link.tx.rate(tx, mono_ns).map(mib))
        })
        .collect()
}

/// The sum of a link's error counters, by whichever way the card tells them.
fn errors(device: &Device<'_>, link: u32, asker: &mut Asker) -> Reading<u64> {
    let counters =
        ERRORS.map(|(ask, counter)| asker.ask(ask, || device.link_wrapper_for(link).error_counter(counter)));
    match sum(counters) {
        Reading::Unsupported => asker.ask(Ask::LinkDlErrors, || {
            let mut request = fields::NVLINK_DL_ERRORS.map(|id| Field::new(id, link));
            fields::ask(device, &mut request)?;
            request.iter().try_fold(0_u64, |sum, field| Ok(sum.saturating_add(field.answer()?)))
        }),
        sum => sum,
    }
}

/// The sum of those that there are; unsupported if there is none, failed if one failed.
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
    fn errors_are_the_sum_of_the_counters_that_there_are() {
        let (one, none) = (Reading::Value(1), Reading::Unsupported);
        let failed = Reading::Failed("unknown error".into());
        assert_eq!(sum([one.clone(), none.clone(), Reading::Value(4)]), Reading::Value(5));
        assert_eq!(sum([none.clone(), none.clone()]), Reading::Unsupported);
        assert_eq!(sum([one, failed.clone(), none]), failed);
    }
}
