//! One AMD GPU: the attributes that amdgpu provides, and which reading each of them is.

use super::gpu_metrics::{self, GpuMetrics, Throttle};
use super::kfd::KfdGpu;
use super::levels;
use super::partition;
use super::ras::{Errors, Ras};
use crate::counter_rate::CounterRate;
use crate::source::drm::attribute::{self, Attribute, ReadError, Reader, or_else};
use crate::source::drm::card::{Card, Partition};
use crate::source::drm::clients::Usage;
use crate::source::drm::facts::{self, narrow};
use crate::source::drm::hwmon::Hwmon;
use crate::source::drm::link::PcieLink;
use crate::source::drm::session::Device;
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuSample};
use nodeglass_protocol::{GpuUuid, Reading, Vendor};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Bits of NVML's clock-event reasons, which the throttle mask of all vendors uses.
mod reason {
    pub const POWER: u64 = 0x4;
    pub const HARDWARE: u64 = 0x8;
    pub const THERMAL: u64 = 0x40;
}

/// Groups of `SMU_THROTTLER_…` bits: limits of power and of current, temperatures, and a request of
/// processor or board (PROCHOT). The limit for reliability (FIT) belongs to normal operation.
const POWER_LIMITS: u64 = 0xff | 0xff << 16 | 1 << 56;
const TEMPERATURES: u64 = 0x3fff << 32;
const PROCHOT: u64 = 0b11 << 46;

/// Label of the voltage of a north bridge, which only processors have.
const APU_VOLTAGE: &str = "vddnb";
/// PCI device ids of processors' GPUs in amdgpu: Kaveri and all since Raven, then Kabini to Stoney. The ids of
/// discrete GPUs begin at 0x6600.
const APU_IDS: [RangeInclusive<u32>; 2] = [0x1300..=0x1fff, 0x9830..=0x98ff];

/// Units of the energy counter in 1 J.
const ENERGY_UNITS: u128 = 1 << 16;
const UNSUPPORTED: Reading<u64> = Reading::Unsupported;

/// An AMD GPU with its open attributes.
#[derive(Debug)]
pub struct AmdDevice {
    root: PathBuf,
    card: Card,
    link: PcieLink,
    hwmon: Hwmon,
    sensors: Sensors,
    ras: Ras,
    kfd: KfdGpu,
    /// Errors at the last reading of the health, because counting them queries the hardware.
    errors: Errors,
    residency: ResidencyShares,
    xgmi: [CounterRate; 2],
    is_apu: bool,
}

/// Attributes that are read for a partition that does not stand for its board.
const OF_PARTITION: [&str; 2] = ["mem_info_vram_total", "gpu_metrics"];

/// The attributes that are read for each sample.
#[derive(Debug)]
struct Sensors {
    busy: Attribute,
    mem_busy: Attribute,
    vram_used: Attribute,
    vram_total: Attribute,
    gtt_used: Attribute,
    gtt_total: Attribute,
    temperature: Attribute,
    hotspot: Attribute,
    mem_temperature: Attribute,
    power_average: Attribute,
    power_input: Attribute,
    power_cap: Attribute,
    gfx_clock: Attribute,
    mem_clock: Attribute,
    gfx_levels: Attribute,
    mem_levels: Attribute,
    pwm: Attribute,
    fan: Attribute,
    fan_max: Attribute,
    gpu_metrics: Attribute,
}

impl Sensors {
    /// Opens the attributes of a card, or of a partition that does not represent its board, of which few are read: a
    /// node has up to 64 partitions, and a limited number of open files.
    fn open(card: &Card, hwmon: &Hwmon) -> Self {
        let is_read = |name: &str| card.is_first() || OF_PARTITION.contains(&name);
        let open = |name: &str| match is_read(name) {
            true => Attribute::open(&card.device.join(name)),
            false => Attribute::missing(),
        };
        let none = Hwmon::none();
        let hwmon = if card.is_first() { hwmon } else { &none };
        Self {
            busy: open("gpu_busy_percent"),
            mem_busy: open("mem_busy_percent"),
            vram_used: open("mem_info_vram_used"),
            vram_total: open("mem_info_vram_total"),
            gtt_used: open("mem_info_gtt_used"),
            gtt_total: open("mem_info_gtt_total"),
            temperature: hwmon.open_temperature(core_sensor(hwmon), "input"),
            hotspot: hwmon.open_temperature(hwmon.temperature("junction"), "input"),
            mem_temperature: hwmon.open_temperature(hwmon.temperature("mem"), "input"),
            power_average: hwmon.open("power1_average"),
            power_input: hwmon.open("power1_input"),
            power_cap: hwmon.open("power1_cap"),
            gfx_clock: hwmon.open("freq1_input"),
            mem_clock: hwmon.open("freq2_input"),
            gfx_levels: open("pp_dpm_sclk"),
            mem_levels: open("pp_dpm_mclk"),
            pwm: hwmon.open("pwm1"),
            fan: hwmon.open("fan1_input"),
            fan_max: hwmon.open("fan1_max"),
            gpu_metrics: open("gpu_metrics"),
        }
    }
}

/// The sensor of the GPU's core: at its edge, or the hottest one of cards that report only that. Linux
/// before 5.3 has one sensor without a label.
fn core_sensor(hwmon: &Hwmon) -> Option<u32> {
    let labelled = hwmon.temperature("edge").or_else(|| hwmon.temperature("junction"));
    labelled.or_else(|| (!hwmon.open("temp1_label").is_open()).then_some(1))
}

impl Device for AmdDevice {
    const VENDOR: Vendor = Vendor::Amd;
    const DRIVERS: &'static [&'static str] = &["amdgpu"];

    fn entries(root: &Path, cards: Vec<Card>) -> Vec<Card> {
        partition::entries(root, cards)
    }

    fn open(root: &Path, card: &Card) -> Self {
        let hwmon = Hwmon::of(&card.device, &card.driver);
        Self {
            root: root.to_owned(),
            link: PcieLink::of(&card.device),
            sensors: Sensors::open(card, &hwmon),
            ras: Ras::of(&card.device, card.is_first()),
            kfd: KfdGpu::of(root, card.pci.as_deref(), card.partition),
            card: card.clone(),
            errors: Errors::default(),
            residency: ResidencyShares::default(),
            xgmi: [CounterRate::wide(), CounterRate::wide()],
            is_apu: is_apu(card, &hwmon),
            hwmon,
        }
    }

    fn facts(&mut self, is_awake: bool) -> GpuFacts {
        let text = |name: &str| attribute::read_reading(&self.card.device.join(name));
        let uuid = match text("unique_id") {
            // Cards without a serial number report 0.
            Reading::Value(id) if id.as_str().bytes().any(|byte| byte != b'0') => match self.card.partition {
                Some(Partition { number, .. }) => format!("AMD-{id}/{number}"),
                None => format!("AMD-{id}"),
            },
            _ => String::new(),
        };
        let facts = GpuFacts {
            uuid: GpuUuid::new(uuid),
            vbios: text("vbios_version"),
            serial: text("serial_number"),
            architecture: self.kfd.architecture.clone().map_or(Reading::Unsupported, Reading::Value),
            ecc_mode: if self.ras.has_memory() { Reading::Value(true) } else { Reading::Unsupported },
            ..facts::of(&self.root, &self.card, Vendor::Amd, &self.link, is_awake)
        };
        if is_awake { self.limits(facts) } else { facts }
    }

    fn read(&mut self, reader: &mut Reader, mono_ns: u64) -> GpuSample {
        let metrics = self.metrics(reader).unwrap_or_default();
        let mut sample = self.sensors.read(reader, &metrics);
        if self.is_apu {
            self.sensors.add_host_memory(reader, &mut sample);
        }
        if let Some(part) = self.card.partition {
            sample = partition::sample(sample, part, &metrics, self.kfd.vram_bytes());
            if !self.card.is_first() {
                return sample;
            }
        }
        let throttling = self.throttling(&metrics);
        let [rx, tx] = [&metrics.xgmi_read_kb, &metrics.xgmi_write_kb].map(|links| kilobytes(links));
        GpuSample {
            throttle_reasons: throttling.reasons,
            power_capped_pct: throttling.power_pct,
            thermal_capped_pct: throttling.thermal_pct,
            nvlink_rx_bytes_s: self.xgmi[0].rate(rx, mono_ns),
            nvlink_tx_bytes_s: self.xgmi[1].rate(tx, mono_ns),
            ecc_corrected: self.errors.corrected.clone(),
            ecc_uncorrected: self.errors.uncorrected.clone(),
            ..sample
        }
    }

    fn health(&mut self, reader: &mut Reader) -> GpuHealth {
        if !self.card.is_first() {
            return GpuHealth::unsupported();
        }
        self.errors = self.ras.errors(reader);
        let pages = self.ras.bad_pages(reader);
        let replays = attribute::read_number(&self.card.device.join("pcie_replay_count"));
        let replays = or_else(reader.take(replays), || {
            self.metrics(reader).and_then(|metrics| metrics.pcie_replays).map_or(UNSUPPORTED, Reading::Value)
        });
        GpuHealth {
            retired_uncorrected: pages.retired,
            retired_pending: pages.is_pending,
            pcie_gen: reader.take(self.link.generation()),
            pcie_width: reader.take(self.link.width()),
            pcie_replays: replays,
            ..GpuHealth::unsupported()
        }
    }

    fn is_integrated(&self) -> bool {
        self.is_apu
    }

    fn listed_processes(&mut self) -> Vec<(u32, Usage)> {
        let units = self.kfd.compute_units.max(1);
        let usage = |busy_units: Option<u64>, vram_bytes| Usage {
            device_bytes: vram_bytes,
            compute_pct: busy_units.map_or(Reading::Unsupported, |busy| {
                Reading::Value((busy.saturating_mul(100) / units).min(100))
            }),
            is_compute: true,
            ..Usage::default()
        };
        let processes = self.kfd.processes().into_iter();
        processes.map(|process| (process.pid, usage(process.busy_units, process.vram_bytes))).collect()
    }

    fn lists_others(&self) -> bool {
        self.kfd.is_known()
    }
}

impl AmdDevice {
    /// Adds the facts whose attributes only a running device has.
    fn limits(&mut self, facts: GpuFacts) -> GpuFacts {
        self.metrics(&mut Reader::default());
        let power = |name: &str| narrow(self.hwmon.open(name).number().map(|microwatts| microwatts / 1_000));
        let celsius = |sensor, name: &str| {
            narrow(
                self.hwmon.open_temperature(sensor, name).number().map(|millidegrees| millidegrees / 1_000),
            )
        };
        let (core, memory) = (core_sensor(&self.hwmon), self.hwmon.temperature("mem"));
        let partition = attribute::read_text(&self.card.device.join("current_compute_partition"));
        GpuFacts {
            sm_clock_max_mhz: highest(&self.card.device.join("pp_dpm_sclk")),
            mem_clock_max_mhz: highest(&self.card.device.join("pp_dpm_mclk")),
            temp_slowdown_c: celsius(core, "crit"),
            temp_shutdown_c: celsius(core, "emergency"),
            temp_mem_max_c: celsius(memory, "crit"),
            power_default_mw: power("power1_cap_default"),
            power_min_mw: power("power1_cap_min"),
            power_max_mw: power("power1_cap_max"),
            compute_mode: match (partition, self.card.partition) {
                (Ok(mode), Some(Partition { number, count })) => {
                    Reading::Value(format!("partition {} of {count} ({mode})", number + 1).into())
                }
                (Ok(mode), None) if mode != "SPX" => Reading::Value(format!("partitioned ({mode})").into()),
                (Ok(_), None) => Reading::Value("one partition (SPX)".into()),
                (Err(_), _) => Reading::Unsupported,
            },
            unified_memory: self.is_apu,
            ..facts
        }
    }

    /// Reads the table, which also shows that the GPU is part of a processor.
    fn metrics(&mut self, reader: &mut Reader) -> Option<GpuMetrics> {
        let mut buffer = [0; gpu_metrics::MAX_BYTES];
        let table = self.sensors.gpu_metrics.bytes(&mut buffer);
        self.is_apu |= table.as_ref().is_ok_and(|table| gpu_metrics::is_of_apu(table));
        reader.take(table.map(gpu_metrics::parse)).value().cloned().flatten()
    }

    fn throttling(&mut self, metrics: &GpuMetrics) -> Throttling {
        match metrics.throttle {
            None => Throttling::all(UNSUPPORTED),
            Some(Throttle::Status(status)) => {
                Throttling { reasons: Reading::Value(reasons(status)), ..Throttling::all(UNSUPPORTED) }
            }
            Some(residency @ Throttle::Residency { .. }) => self.residency.since_last(residency),
        }
    }
}

/// Returns whether the GPU is part of a processor, by attributes that each driver version has.
fn is_apu(card: &Card, hwmon: &Hwmon) -> bool {
    let has_its_voltage = || {
        let label = hwmon.path("in1_label").and_then(|path| attribute::read_text(&path).ok());
        label.is_some_and(|label| label == APU_VOLTAGE)
    };
    card.device_id.is_some_and(|id| APU_IDS.iter().any(|ids| ids.contains(&id))) || has_its_voltage()
}

impl Sensors {
    fn read(&self, reader: &mut Reader, metrics: &GpuMetrics) -> GpuSample {
        let known = |value: Option<u64>| value.map_or(UNSUPPORTED, Reading::Value);
        // The second die of a card has no figures of its own, which older kernels report as 0.
        let milliwatts = |reading: Reading<u64>| match reading {
            Reading::Value(0) => Reading::Unsupported,
            reading => reading.map(|microwatts| microwatts / 1_000),
        };
        let (average, input) =
            (milliwatts(reader.number(&self.power_average)), milliwatts(reader.number(&self.power_input)));
        let socket =
            known(metrics.power_w.filter(|watts| *watts > 0).and_then(|watts| watts.checked_mul(1_000)));
        let energy_mj = metrics.energy.map(|energy| u128::from(energy) * 1_000 / ENERGY_UNITS);
        GpuSample {
            util_pct: or_else(reader.percent(&self.busy), || known(metrics.gfx_pct)),
            mem_util_pct: or_else(reader.percent(&self.mem_busy), || known(metrics.umc_pct)),
            mem_used_bytes: reader.number(&self.vram_used),
            mem_total_bytes: reader.number(&self.vram_total),
            temp_c: or_else(reader.celsius(&self.temperature), || known(metrics.hotspot_c)),
            hotspot_temp_c: or_else(reader.celsius(&self.hotspot), || known(metrics.hotspot_c)),
            mem_temp_c: or_else(reader.celsius(&self.mem_temperature), || known(metrics.mem_c)),
            host_mem_used_bytes: reader.number(&self.gtt_used),
            power_mw: or_else(average, || or_else(input.clone(), || socket)),
            power_instant_mw: input,
            power_limit_mw: milliwatts(reader.number(&self.power_cap)),
            energy_mj: known(energy_mj.and_then(|energy| u64::try_from(energy).ok())),
            sm_clock_mhz: clock(reader, [&self.gfx_clock, &self.gfx_levels], metrics.gfx_mhz),
            mem_clock_mhz: clock(reader, [&self.mem_clock, &self.mem_levels], metrics.mem_mhz),
            video_clock_mhz: known(metrics.video_mhz),
            fan_pct: self.fan(reader),
            fan_rpm: reader.number(&self.fan),
            ..facts::unsupported_sample()
        }
    }

    /// Reads the speed of the fan in %: what the driver sets, or the share of its highest speed.
    fn fan(&self, reader: &mut Reader) -> Reading<u64> {
        let set = reader.number(&self.pwm).map(|pwm| pwm.min(255) * 100 / 255);
        or_else(set, || match (reader.number(&self.fan), reader.number(&self.fan_max)) {
            (Reading::Value(rpm), Reading::Value(max @ 1..)) => Reading::Value(rpm.saturating_mul(100) / max),
            _ => UNSUPPORTED,
        })
    }

    /// Adds the host's memory, which a processor's GPU mostly uses.
    fn add_host_memory(&self, reader: &mut Reader, sample: &mut GpuSample) {
        for (sum, part) in
            [(&mut sample.mem_used_bytes, &self.gtt_used), (&mut sample.mem_total_bytes, &self.gtt_total)]
        {
            if let (Reading::Value(sum), Reading::Value(part)) = (sum, reader.number(part)) {
                *sum = sum.saturating_add(part);
            }
        }
    }
}

/// Reads a clock in MHz: the sensor in Hz, otherwise the table, otherwise the marked level.
fn clock(reader: &mut Reader, [hertz, levels]: [&Attribute; 2], from_table: Option<u64>) -> Reading<u64> {
    let sensor = reader.number(hertz).map(|hertz| hertz / 1_000_000);
    or_else(sensor, || match from_table {
        Some(mhz) => Reading::Value(mhz),
        None => {
            let mut buffer = [0; 4_096];
            let level =
                levels.text(&mut buffer).and_then(|text| levels::current(text).ok_or(ReadError::Missing));
            reader.take(level)
        }
    })
}

fn highest(levels: &Path) -> Reading<u32> {
    narrow(attribute::read_lines(levels).and_then(|text| levels::highest(&text).ok_or(ReadError::Missing)))
}

/// Adds up the links in bytes; the driver counts in KB.
fn kilobytes(links: &[u64]) -> Reading<u64> {
    let sum = links.iter().copied().reduce(u64::saturating_add);
    sum.and_then(|kilobytes| kilobytes.checked_mul(1_024)).map_or(UNSUPPORTED, Reading::Value)
}

/// Converts a throttle status that does not depend on the card to NVML's reasons.
fn reasons(status: u64) -> u64 {
    let when = |bits: u64, reason: u64| if status & bits != 0 { reason } else { 0 };
    when(POWER_LIMITS, reason::POWER) | when(TEMPERATURES, reason::THERMAL) | when(PROCHOT, reason::HARDWARE)
}

/// The reasons for reduced clocks since the last reading, with their shares of the time.
#[derive(Debug, PartialEq)]
struct Throttling {
    /// The reasons that applied.
    reasons: Reading<u64>,
    /// Share of time in which the power limit applied, %.
    power_pct: Reading<u64>,
    /// Share of time in which the limit of the hottest part applied, %.
    thermal_pct: Reading<u64>,
}

impl Throttling {
    fn all(reading: Reading<u64>) -> Self {
        Self { reasons: reading.clone(), power_pct: reading.clone(), thermal_pct: reading }
    }
}

/// Throttle residencies at the last reading.
#[derive(Debug, Default)]
struct ResidencyShares {
    last: Option<Throttle>,
}

impl ResidencyShares {
    fn since_last(&mut self, now: Throttle) -> Throttling {
        let (Some(last), now) = (self.last.replace(now), now) else {
            return Throttling::all(Reading::NotYet);
        };
        let (
            Throttle::Residency { cycles, prochot, power, thermal },
            Throttle::Residency {
                cycles: last_cycles,
                prochot: last_prochot,
                power: last_power,
                thermal: last_thermal,
            },
        ) = (now, last)
        else {
            return Throttling::all(Reading::NotYet);
        };
        // The counters have 32 bits and wrap around.
        let elapsed = u64::from(cycles.wrapping_sub(last_cycles));
        if elapsed == 0 {
            return Throttling::all(Reading::NotYet);
        }
        let is_hot = thermal != last_thermal;
        let reasons = [
            (power != last_power, reason::POWER),
            (is_hot, reason::THERMAL),
            (prochot != last_prochot, reason::HARDWARE),
        ];
        let mask =
            reasons.into_iter().filter(|(applies, _)| *applies).fold(0, |mask, (_, reason)| mask | reason);
        let share = |now: u32, last: u32| (u64::from(now.wrapping_sub(last)) * 100 / elapsed).min(100);
        let hottest = thermal.iter().zip(last_thermal).map(|(now, last)| share(*now, last)).max();
        Throttling {
            reasons: Reading::Value(mask),
            power_pct: Reading::Value(share(power, last_power)),
            thermal_pct: Reading::Value(hottest.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_bits_have_the_reasons_of_all_vendors() {
        assert_eq!(reasons(0), 0);
        assert_eq!(reasons(1 | 1 << 17), reason::POWER);
        assert_eq!(reasons(1 << 36), reason::THERMAL);
        assert_eq!(reasons(1 << 47 | 1 << 45), reason::THERMAL | reason::HARDWARE);
        assert_eq!(reasons(1 << 57), 0, "a reliability limit is normal");
    }

    #[test]
    fn residencies_count_since_the_last_reading() {
        let at = |cycles, power, hot| Throttle::Residency { cycles, prochot: 0, power, thermal: [0, 0, hot] };
        let of = |reasons, power, thermal| Throttling {
            reasons: Reading::Value(reasons),
            power_pct: Reading::Value(power),
            thermal_pct: Reading::Value(thermal),
        };
        let mut shares = ResidencyShares::default();
        assert_eq!(shares.since_last(at(1_000, 500, 0)), Throttling::all(Reading::NotYet));
        assert_eq!(shares.since_last(at(2_000, 750, 0)), of(reason::POWER, 25, 0));
        assert_eq!(shares.since_last(at(3_000, 750, 100)), of(reason::THERMAL, 0, 10));
        assert_eq!(shares.since_last(at(3_000, 750, 100)), Throttling::all(Reading::NotYet));
        shares.since_last(at(u32::MAX - 99, 750, 100));
        assert_eq!(shares.since_last(at(100, 850, 100)), of(reason::POWER, 50, 0));
    }
}
