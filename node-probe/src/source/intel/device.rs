//! One Intel GPU: the attributes that i915 or Xe provide, and which reading each of them is.

use super::gt::{self, Gt};
use crate::counter_rate::{CounterRate, possible};
use crate::source::drm::attribute::{Attribute, ReadError, Reader, or_else};
use crate::source::drm::card::Card;
use crate::source::drm::facts::{self, narrow};
use crate::source::drm::hwmon::Hwmon;
use crate::source::drm::link::PcieLink;
use crate::source::drm::session::Device;
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuSample};
use nodeglass_protocol::{Reading, Vendor};
use std::path::{Path, PathBuf};

/// PCI slot of a GPU that is part of a processor, and of its virtual functions.
const INTEGRATED: &str = "0000:00:02.";

/// An Intel GPU with its open attributes.
#[derive(Debug)]
pub struct IntelDevice {
    root: PathBuf,
    card: Card,
    link: PcieLink,
    gts: Vec<Gt>,
    sensors: Sensors,
    is_integrated: bool,
    /// Rate of the energy counter, which is the power in µW.
    power: CounterRate,
}

/// The sensors and the size of the memory.
#[derive(Debug)]
struct Sensors {
    energy: Attribute,
    /// Limits that may be in force; the first enabled one counts.
    power_limits: [Attribute; 5],
    power_rated: [Attribute; 2],
    package: Attribute,
    package_limit: Attribute,
    package_shutdown: Attribute,
    memory: Attribute,
    memory_limit: Attribute,
    fans: [Attribute; 3],
    vram_total: Attribute,
    vram_free: Attribute,
    /// Size of the memory of each tile, which kernels without `vram_total` have.
    tiles: Vec<Attribute>,
}

impl Sensors {
    fn open(card: &Card, hwmon: &Hwmon) -> Self {
        // Of two channels, the card includes what its package consumes. Xe labels its sensors; i915
        // has one of each kind, without a label.
        let channel = if hwmon.open("energy1_input").is_open() { 1 } else { 2 };
        let package = hwmon.temperature("pkg").or(if card.driver == "i915" { Some(1) } else { Some(2) });
        let memory = hwmon.temperature("vram").or(if card.driver == "i915" { None } else { Some(3) });
        Self {
            energy: hwmon.open(&format!("energy{channel}_input")),
            power_limits: power_limits(channel).map(|name| hwmon.open(&name)),
            power_rated: [channel, 3 - channel]
                .map(|channel| hwmon.open(&format!("power{channel}_rated_max"))),
            package: hwmon.open_temperature(package, "input"),
            package_limit: hwmon.open_temperature(package, "crit"),
            package_shutdown: hwmon.open_temperature(package, "emergency"),
            memory: hwmon.open_temperature(memory, "input"),
            memory_limit: hwmon.open_temperature(memory, "crit"),
            fans: [1, 2, 3].map(|fan| hwmon.open(&format!("fan{fan}_input"))),
            // Only some kernels of Intel's data-centre releases have them.
            vram_total: Attribute::open(&card.folder.join("lmem_total_bytes")),
            vram_free: Attribute::open(&card.folder.join("lmem_avail_bytes")),
            tiles: gt::tiles(&card.device)
                .iter()
                .map(|tile| Attribute::open(&tile.join("physical_vram_size_bytes")))
                .collect(),
        }
    }

    /// Reads the size of the memory in bytes; 0 for a GPU without memory of its own.
    fn vram_total(&self, reader: &mut Reader) -> Reading<u64> {
        let of_tiles = || {
            let sizes: Result<Vec<_>, _> = self.tiles.iter().map(Attribute::number).collect();
            sizes.and_then(|sizes| sizes.into_iter().reduce(u64::saturating_add).ok_or(ReadError::Missing))
        };
        let total = self.vram_total.number().or_else(|_| of_tiles());
        reader.take(total.and_then(|total| if total == 0 { Err(ReadError::Missing) } else { Ok(total) }))
    }
}

/// Returns the names of the power limits of a channel: sustained, then for bursts (the only limit of some cards),
/// then the rating of the card, then the limits of the other channel.
fn power_limits(channel: u32) -> [String; 5] {
    let (own, other) = (format!("power{channel}"), format!("power{}", 3 - channel));
    [
        format!("{own}_max"),
        format!("{own}_cap"),
        format!("{own}_rated_max"),
        format!("{other}_max"),
        format!("{other}_cap"),
    ]
}

/// Reads the limit in force in µW; one of 0 is switched off.
fn power_limit(sensors: &Sensors, reader: &mut Reader) -> Reading<u64> {
    let mut limit = Reading::Unsupported;
    for attribute in &sensors.power_limits {
        let next = match reader.number(attribute) {
            Reading::Value(0) => Reading::Unsupported,
            next => next,
        };
        limit = or_else(limit, || next);
    }
    limit
}

/// Reads the speed of the fastest fan, in revolutions a minute.
fn fastest_fan(sensors: &Sensors, reader: &mut Reader) -> Reading<u64> {
    let faster = |one, other| match (one, other) {
        (Reading::Value(one), Reading::Value(other)) => Reading::Value(u64::max(one, other)),
        (one, other) => or_else(one, || other),
    };
    sensors.fans.iter().fold(Reading::Unsupported, |fastest, fan| faster(fastest, reader.number(fan)))
}

impl Device for IntelDevice {
    const VENDOR: Vendor = Vendor::Intel;
    const DRIVERS: &'static [&'static str] = &["i915", "xe"];

    fn open(root: &Path, card: &Card) -> Self {
        let hwmon = Hwmon::of(&card.device, &card.driver);
        // Both drivers provide sensors for cards only. In a virtual machine, a card may have that slot.
        let has_slot = card.pci.as_deref().is_some_and(|pci| pci.starts_with(INTEGRATED));
        Self {
            root: root.to_owned(),
            link: PcieLink::of(&card.device),
            gts: Gt::all(&card.folder, &card.device),
            sensors: Sensors::open(card, &hwmon),
            is_integrated: has_slot && !hwmon.exists(),
            power: CounterRate::wide(),
            card: card.clone(),
        }
    }

    fn facts(&mut self, is_awake: bool) -> GpuFacts {
        let facts = facts::of(&self.root, &self.card, Vendor::Intel, &self.link, is_awake);
        let facts = GpuFacts { unified_memory: self.is_integrated(), ..facts };
        if !is_awake {
            return facts;
        }
        let celsius =
            |attribute: &Attribute| narrow(attribute.number().map(|millidegrees| millidegrees / 1_000));
        let [rated, of_other] = &self.sensors.power_rated;
        let rated = rated.number().or_else(|_| of_other.number());
        let max_clock = self.gts.iter().filter_map(|gt| gt.max_clock().ok()).max();
        GpuFacts {
            sm_clock_max_mhz: narrow(max_clock.ok_or(ReadError::Missing)),
            temp_slowdown_c: celsius(&self.sensors.package_limit),
            temp_shutdown_c: celsius(&self.sensors.package_shutdown),
            temp_mem_max_c: celsius(&self.sensors.memory_limit),
            power_default_mw: narrow(rated.map(|microwatts| microwatts / 1_000)),
            ..facts
        }
    }

    fn read(&mut self, reader: &mut Reader, mono_ns: u64) -> GpuSample {
        let sensors = &self.sensors;
        let energy = possible(reader.number(&sensors.energy));
        let limit = power_limit(sensors, reader);
        let (total, free) = (sensors.vram_total(reader), reader.number(&sensors.vram_free));
        let used = match (&total, &free) {
            (Reading::Value(total), Reading::Value(free)) => Reading::Value(total.saturating_sub(*free)),
            _ => free.clone(),
        };
        GpuSample {
            util_pct: gt::busiest(self.gts.iter_mut().map(|gt| gt.busy(reader, mono_ns))),
            sm_clock_mhz: gt::largest(self.gts.iter().map(|gt| gt.clock(reader))),
            throttle_reasons: gt::union(self.gts.iter().map(|gt| gt.throttle(reader))),
            mem_used_bytes: used,
            mem_total_bytes: total,
            temp_c: reader.celsius(&sensors.package),
            mem_temp_c: reader.celsius(&sensors.memory),
            power_mw: self.power.rate(energy.clone(), mono_ns).map(|microwatts| microwatts / 1_000),
            power_limit_mw: limit.map(|microwatts| microwatts / 1_000),
            energy_mj: energy.map(|microjoules| microjoules / 1_000),
            fan_rpm: fastest_fan(sensors, reader),
            ..facts::unsupported_sample()
        }
    }

    fn health(&mut self, reader: &mut Reader) -> GpuHealth {
        GpuHealth {
            pcie_gen: reader.take(self.link.generation()),
            pcie_width: reader.take(self.link.width()),
            ..GpuHealth::unsupported()
        }
    }

    fn is_integrated(&self) -> bool {
        self.is_integrated
    }
}
