//! One Intel GPU: the attributes that i915 or Xe provide, and which reading each of them is.

use super::gt::{self, Gt};
use crate::counter_rate::CounterRate;
use crate::source::drm::attribute::{Attribute, ReadError, Reader, or_else};
use crate::source::drm::card::Card;
use crate::source::drm::facts::{self, narrow};
use crate::source::drm::hwmon::Hwmon;
use crate::source::drm::link::PcieLink;
use crate::source::drm::session::Device;
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuSample};
use nodeglass_protocol::{Reading, Vendor};
use std::path::{Path, PathBuf};

/// PCI address of a GPU that is part of a processor.
const INTEGRATED: &str = "0000:00:02.0";

/// An Intel GPU with its open attributes.
#[derive(Debug)]
pub struct IntelDevice {
    root: PathBuf,
    card: Card,
    link: PcieLink,
    gts: Vec<Gt>,
    sensors: Sensors,
    /// Rate of the energy counter, which is the power in µW.
    power: CounterRate,
}

/// The sensors and the size of the memory.
#[derive(Debug)]
struct Sensors {
    energy: Attribute,
    power_max: Attribute,
    power_rated: Attribute,
    package: Attribute,
    package_limit: Attribute,
    package_shutdown: Attribute,
    memory: Attribute,
    memory_limit: Attribute,
    vram_total: Attribute,
    vram_free: Attribute,
}

impl Sensors {
    fn open(card: &Card) -> Self {
        let hwmon = Hwmon::of(&card.device);
        // Of two channels, the card includes what its package consumes. Xe labels its sensors; i915
        // has one of each kind, without a label.
        let channel = if hwmon.open("energy1_input").is_open() { 1 } else { 2 };
        let package = hwmon.temperature("pkg").or(if card.driver == "i915" { Some(1) } else { Some(2) });
        let memory = hwmon.temperature("vram").or(if card.driver == "i915" { None } else { Some(3) });
        Self {
            energy: hwmon.open(&format!("energy{channel}_input")),
            power_max: hwmon.open(&format!("power{channel}_max")),
            power_rated: hwmon.open(&format!("power{channel}_rated_max")),
            package: hwmon.open_temperature(package, "input"),
            package_limit: hwmon.open_temperature(package, "crit"),
            package_shutdown: hwmon.open_temperature(package, "emergency"),
            memory: hwmon.open_temperature(memory, "input"),
            memory_limit: hwmon.open_temperature(memory, "crit"),
            // Only some kernels of Intel's data-centre releases have them.
            vram_total: Attribute::open(&card.folder.join("lmem_total_bytes")),
            vram_free: Attribute::open(&card.folder.join("lmem_avail_bytes")),
        }
    }
}

impl Device for IntelDevice {
    const VENDOR: Vendor = Vendor::Intel;
    const DRIVERS: &'static [&'static str] = &["i915", "xe"];

    fn open(root: &Path, card: &Card) -> Self {
        Self {
            root: root.to_owned(),
            link: PcieLink::of(&card.device),
            gts: Gt::all(&card.folder, &card.device),
            sensors: Sensors::open(card),
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
        let max_clock = self.gts.iter().filter_map(|gt| gt.max_clock().ok()).max();
        GpuFacts {
            sm_clock_max_mhz: narrow(max_clock.ok_or(ReadError::Missing)),
            temp_slowdown_c: celsius(&self.sensors.package_limit),
            temp_shutdown_c: celsius(&self.sensors.package_shutdown),
            temp_mem_max_c: celsius(&self.sensors.memory_limit),
            power_default_mw: narrow(self.sensors.power_rated.number().map(|microwatts| microwatts / 1_000)),
            ..facts
        }
    }

    fn read(&mut self, reader: &mut Reader, mono_ns: u64) -> GpuSample {
        let sensors = &self.sensors;
        let energy = reader.number(&sensors.energy);
        // A limit of 0 is switched off.
        let limit = or_else(reader.number(&sensors.power_max), || reader.number(&sensors.power_rated));
        let limit = if limit == Reading::Value(0) { Reading::Unsupported } else { limit };
        let (total, free) = (reader.number(&sensors.vram_total), reader.number(&sensors.vram_free));
        let used = match (&total, &free) {
            (Reading::Value(total), Reading::Value(free)) => Reading::Value(total.saturating_sub(*free)),
            _ => free.clone(),
        };
        GpuSample {
            util_pct: gt::largest(self.gts.iter_mut().map(|gt| gt.busy(reader, mono_ns))),
            sm_clock_mhz: gt::largest(self.gts.iter().map(|gt| gt.clock(reader))),
            throttle_reasons: gt::union(self.gts.iter().map(|gt| gt.throttle(reader))),
            mem_used_bytes: used,
            mem_total_bytes: total,
            temp_c: reader.celsius(&sensors.package),
            mem_temp_c: reader.celsius(&sensors.memory),
            power_mw: self.power.rate(energy.clone(), mono_ns).map(|microwatts| microwatts / 1_000),
            power_limit_mw: limit.map(|microwatts| microwatts / 1_000),
            energy_mj: energy.map(|microjoules| microjoules / 1_000),
            ..facts::unsupported_sample()
        }
    }

    fn health(&mut self, reader: &mut Reader) -> GpuHealth {
        GpuHealth {
            pcie_gen: reader.take(self.link.generation()),
            pcie_width: reader.take(self.link.width()),
            ..facts::unsupported_health()
        }
    }

    fn is_integrated(&self) -> bool {
        self.card.pci.as_deref() == Some(INTEGRATED)
    }
}
