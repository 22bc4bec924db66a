//! The meaning of each field id, in the numbering of each driver.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_SUPPORTED, clocks, ecc, nvlink, offered, pcie, power, rows,
    thermal,
};
use crate::state::{Gpu, Remote};
use Value::{Long, Signed, Unsigned};
use nvml_wrapper_sys::bindings::nvmlValue_t;
use std::ops::RangeInclusive;

/// The scope of all links.
const ALL_LINKS: u32 = u32::MAX;
/// The scope of a power field for the module.
const MODULE: u32 = 1;
/// First unsupported field id by driver branch, from CUDA's headers.
const FIELDS: [(u32, u32); 12] = [
    (590, 310),
    (575, 274),
    (570, 269),
    (560, 230),
    (555, 223),
    (550, 200),
    (535, 197),
    (530, 173),
    (525, 170),
    (520, 167),
    (515, 161),
    (0, 148),
];
/// Power smoothing, which no GPU here supports.
const SMOOTHING: u32 = 256;

/// A value in the type that NVML gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Unsigned(u32),
    Signed(i32),
    Long(u64),
}

/// Garbage in the upper half of the union of a 32-bit value, as an A100's driver leaves it: a client
/// that reads more than the type covers gets it.
const LEFT_OVER: u64 = 0x4544_4f4e << 32;

impl Value {
    /// `nvmlValueType_t` and the union.
    pub(super) fn parts(self) -> (u32, nvmlValue_t) {
        let short = |value: u32| nvmlValue_t { ullVal: LEFT_OVER | u64::from(value) };
        match self {
            Self::Unsigned(value) => (1, short(value)),
            Self::Long(value) => (3, nvmlValue_t { ullVal: value }),
            Self::Signed(value) => (5, short(value.cast_unsigned())),
        }
    }
}

/// The number that CUDA 12.9 assigns to a field of this driver; an error if the driver does not support it.
///
/// Clock event reasons and power smoothing swapped numbers twice: in 575 and in 580.82.
pub(super) fn numbered_as_in_12_9(id: u32, driver: (u32, u32)) -> Answer<u32> {
    let (branch, _) = driver;
    let known = FIELDS.iter().find(|(since, _)| branch >= *since).map_or(0, |(_, fields)| *fields);
    let swapped = (555..570).contains(&branch);
    match id {
        0 => Err(INVALID_ARGUMENT),
        _ if id >= known => Err(INVALID_ARGUMENT),
        197 | 198 if branch < 555 => Err(INVALID_ARGUMENT),
        199 if swapped => Ok(200),
        200 if swapped => Ok(199),
        251..=268 if (570..575).contains(&branch) || driver >= (580, 82) => Ok(SMOOTHING),
        269..=273 if driver >= (580, 82) => Ok(id - 18),
        _ => Ok(id),
    }
}

/// A field of a whole GPU; instances have none.
pub(super) fn value(ctx: &DeviceContext<'_>, id: u32, scope: u32) -> Answer<Value> {
    let gpu = ctx.board()?;
    match id {
        1 | 2 => Ok(Unsigned(ecc::mode(gpu)?[id as usize - 1])),
        3..=6 => ecc::total(gpu, (id - 3) % 2, (id - 3) / 2).map(Long),
        11 | 12 => ecc::at_location(gpu, id - 11, 0, 2).map(Long),
        22 | 23 => ecc::at_location(gpu, id - 22, 1, 2).map(Long),
        29..=31 | 92 | 93 => pages(gpu, id),
        74..=81 => clocks::violation_ns(gpu, if id < 80 { id - 74 } else { id - 70 }).map(Long),
        82 => offered(thermal::mem_temperature(gpu)).map(Unsigned),
        83 | 191 => power::energy_mj(gpu).map(Long),
        94 | 95 => Ok(Unsigned(offered(gpu.pcie.replays)?[id as usize - 94])),
        142..=145 => remapped(gpu, id),
        170..=172 => c2c(gpu, id, scope),
        173..=182 => Ok(Unsigned(gpu.pcie.errors[id as usize - 173])),
        185..=190 | 192 => powers(gpu, id, scope).map(Unsigned),
        193..=196 => Ok(Signed(offered(gpu.thermal.tlimit)?[id as usize - 193])),
        197 | 198 => pcie::counted_bytes(gpu, id as usize - 197).map(Unsigned),
        199 => Ok(Unsigned(gpu.board.mig_capable.into())),
        230 => offered(gpu.recovery_action).map(Unsigned),
        251..=253 => Ok(Long(clocks::throttled_ns(gpu, id as usize - 249))),
        _ => link_field(gpu, id, scope),
    }
}

fn pages(gpu: &Gpu, id: u32) -> Answer<Value> {
    let retired = rows::retired(gpu)?;
    let [single, double] = retired.pending;
    Ok(Unsigned(match id {
        29 => retired.single_bit.len() as u32,
        30 => retired.double_bit.len() as u32,
        31 => u32::from(single || double),
        92 => single.into(),
        _ => double.into(),
    }))
}

fn remapped(gpu: &Gpu, id: u32) -> Answer<Value> {
    let rows = rows::remapped(gpu)?;
    Ok(Unsigned(match id {
        142 => rows.corrected,
        143 => rows.uncorrected,
        144 => rows.pending.into(),
        _ => rows.failed.into(),
    }))
}

fn c2c(gpu: &Gpu, id: u32, scope: u32) -> Answer<Value> {
    let [links, speed] = gpu.board.c2c;
    match id {
        _ if links == 0 => Err(NOT_SUPPORTED),
        170 => Ok(Unsigned(links)),
        _ if scope >= links => Err(INVALID_ARGUMENT),
        171 => Ok(Unsigned(1)),
        _ => Ok(Unsigned(speed)),
    }
}

/// Draw and limits in mW. Of the module, only its draw is known.
fn powers(gpu: &Gpu, id: u32, scope: u32) -> Answer<u32> {
    let power = &gpu.power;
    if scope == MODULE {
        return if id <= 186 { offered(power.module) } else { Err(NOT_SUPPORTED) };
    }
    offered(match id {
        185 => power.average.or(gpu.power_mw),
        186 => power.instant.or(gpu.power_mw),
        187 => power.min,
        188 => power.max,
        189 => power.default,
        190 => gpu.power_limit_mw,
        _ => power.requested.or(gpu.power_limit_mw),
    })
}

/// The link of a field, if links 0 to 5 and 6 to 11 have a field each.
fn own_link(id: u32, low: RangeInclusive<u32>, high: RangeInclusive<u32>) -> Option<u32> {
    if low.contains(&id) {
        Some(id - low.start())
    } else if high.contains(&id) {
        Some(id - high.start() + 6)
    } else {
        None
    }
}

/// Errors of a kind on a link, or on all.
fn link_errors(gpu: &Gpu, link: u32, kinds: &[usize]) -> Answer<Value> {
    let on = |link| {
        let nvlink = nvlink::link(gpu, link)?;
        kinds.iter().map(|kind| nvlink::errors(nvlink, link, *kind)).sum::<Answer<u64>>()
    };
    if link == ALL_LINKS {
        return (0..nvlink::nvlink(gpu)?.links).map(on).sum::<Answer<u64>>().map(Long);
    }
    on(link).map(Long)
}

/// KiB over a link, or over all: data (0) or including protocol overhead (1).
fn link_traffic(gpu: &Gpu, link: u32, way: usize, raw: bool) -> Answer<u64> {
    let links = if link == ALL_LINKS {
        nvlink::nvlink(gpu)?.active()
    } else {
        nvlink::link_up(gpu, link).map(|_| 1)?
    };
    let data = nvlink::counted_kib(gpu, way)? * u64::from(links);
    Ok(if raw { data + data / 8 } else { data })
}

/// Fields of NVLink, whose scope is the link.
fn link_field(gpu: &Gpu, id: u32, scope: u32) -> Answer<Value> {
    // Field ids of each kind of error: links 0 to 5, all, links 6 to 11.
    const ERRORS: [(u32, u32, usize); 4] = [(32, 96, 2), (39, 102, 3), (46, 108, 0), (53, 114, 1)];
    for (low, high, kind) in ERRORS {
        if let Some(link) = own_link(id, low..=low + 5, high..=high + 5) {
            return link_errors(gpu, link, &[kind]);
        }
        if id == low + 6 {
            return link_errors(gpu, ALL_LINKS, &[kind]);
        }
    }
    if let Some(link) = own_link(id, 84..=89, 132..=137) {
        return nvlink::link_up(gpu, link).map(|nvlink| Unsigned(nvlink.speed_mb_s));
    }
    match id {
        90 => Ok(Unsigned(nvlink::nvlink(gpu)?.speed_mb_s)),
        91 => Ok(Unsigned(nvlink::nvlink(gpu)?.links)),
        138..=141 => link_traffic(gpu, scope, (id as usize) % 2, id >= 140).map(Long),
        146 => nvlink::link_up(gpu, scope).map(|_| Unsigned(scope)),
        147 => {
            let nvlink = nvlink::nvlink(gpu)?;
            Ok(Unsigned(if nvlink.remote == Remote::Switch { nvlink.active() } else { 0 }))
        }
        148..=159 => link_errors(gpu, id - 148, &[4]),
        160 => link_errors(gpu, ALL_LINKS, &[4]),
        161 => link_errors(gpu, scope, &[0]),
        162 => link_errors(gpu, scope, &[1]),
        163 => link_errors(gpu, scope, &[2, 3]),
        164 => nvlink::link_up(gpu, scope).map(|nvlink| Unsigned(nvlink.speed_mb_s)),
        165 => nvlink::link(gpu, scope).map(|nvlink| Unsigned(nvlink.up(scope).into())),
        166 => nvlink::link(gpu, scope).map(|nvlink| Unsigned(nvlink.version)),
        167 => nvlink::link_up(gpu, scope).map(|_| Unsigned(0)),
        202 | 204 if nvlink::nvlink(gpu)?.version >= 7 => {
            link_traffic(gpu, scope, (id as usize - 202) / 2, false).map(|kib| Long(kib * 1_024))
        }
        _ => Err(NOT_SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_the_number_that_its_driver_gives_it() {
        let number = |id, driver| numbered_as_in_12_9(id, driver);
        for (driver, thermal) in [((575, 51), 251), ((580, 65), 251), ((580, 82), 269), ((590, 1), 269)] {
            assert_eq!(number(thermal, driver), Ok(251), "{driver:?}");
        }
        assert_eq!(number(251, (570, 86)), Ok(SMOOTHING));
        assert_eq!(number(251, (580, 95)), Ok(SMOOTHING));
        assert_eq!(number(251, (550, 54)), Err(INVALID_ARGUMENT));
        assert_eq!((number(197, (550, 54)), number(197, (555, 42))), (Err(INVALID_ARGUMENT), Ok(197)));
        assert_eq!((number(186, (530, 30)), number(186, (535, 54))), (Err(INVALID_ARGUMENT), Ok(186)));
    }

    #[test]
    fn a_field_of_one_link_is_of_that_link() {
        assert_eq!(own_link(37, 32..=37, 96..=101), Some(5));
        assert_eq!(own_link(96, 32..=37, 96..=101), Some(6));
        assert_eq!(own_link(38, 32..=37, 96..=101), None);
    }
}
