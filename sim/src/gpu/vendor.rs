//! Readings that the drivers of other vendors than NVIDIA report: a part of those that a model has.

use nodeglass_gpu_models::{Architecture, GpuModel};
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuSample, ProcessReadings};
use nodeglass_protocol::{Reading, Vendor};

/// Degrees between the core and the hottest place of an AMD GPU.
const HOTSPOT_C: u64 = 9;

/// The vendor of a model.
pub(crate) fn of(model: &GpuModel) -> Vendor {
    match model.architecture {
        Architecture::Cdna3 => Vendor::Amd,
        Architecture::XeHpc => Vendor::Intel,
        Architecture::TpuV5e => Vendor::Tpu,
        Architecture::Turing
        | Architecture::Ampere
        | Architecture::Ada
        | Architecture::Hopper
        | Architecture::Blackwell => Vendor::Nvidia,
    }
}

/// Leaves the facts that the vendor's driver states.
pub(crate) fn facts(all: GpuFacts) -> GpuFacts {
    let common = GpuFacts {
        uuid: all.uuid.clone(),
        vendor: all.vendor,
        index: all.index,
        minor: all.minor.clone(),
        name: all.name.clone(),
        pci: all.pci.clone(),
        pcie_gen_max: all.pcie_gen_max.clone(),
        pcie_width_max: all.pcie_width_max.clone(),
        numa_node: all.numa_node.clone(),
        cpu_affinity: all.cpu_affinity.clone(),
        ..GpuFacts::unsupported()
    };
    let with_limits = GpuFacts {
        sm_clock_max_mhz: all.sm_clock_max_mhz.clone(),
        temp_slowdown_c: all.temp_slowdown_c.clone(),
        temp_shutdown_c: all.temp_shutdown_c.clone(),
        temp_mem_max_c: all.temp_mem_max_c.clone(),
        power_default_mw: all.power_default_mw.clone(),
        ..common.clone()
    };
    match all.vendor {
        Vendor::Unknown | Vendor::Nvidia => all,
        Vendor::Amd => GpuFacts {
            mem_clock_max_mhz: all.mem_clock_max_mhz,
            power_min_mw: all.power_min_mw,
            power_max_mw: all.power_max_mw,
            vbios: all.vbios,
            serial: all.serial,
            architecture: all.architecture,
            ecc_mode: all.ecc_mode,
            compute_mode: Reading::Value("one partition (SPX)".into()),
            ..with_limits
        },
        Vendor::Intel => with_limits,
        Vendor::Tpu => common,
    }
}

/// Leaves the readings that the vendor's driver has.
pub(crate) fn readings(vendor: Vendor, all: GpuSample) -> GpuSample {
    if vendor == Vendor::Nvidia || all.fault.is_some() {
        return all;
    }
    let mut none = GpuSample::default();
    none.readings_mut().for_each(|reading| *reading = Reading::Unsupported);
    let common = GpuSample {
        util_pct: all.util_pct,
        mem_used_bytes: all.mem_used_bytes,
        mem_total_bytes: all.mem_total_bytes,
        ..none
    };
    if vendor == Vendor::Tpu {
        return common;
    }
    let of_cards = GpuSample {
        temp_c: all.temp_c.clone(),
        mem_temp_c: all.mem_temp_c,
        power_mw: all.power_mw,
        power_limit_mw: all.power_limit_mw,
        energy_mj: all.energy_mj,
        sm_clock_mhz: all.sm_clock_mhz,
        throttle_reasons: all.throttle_reasons,
        ..common
    };
    if vendor == Vendor::Intel {
        return of_cards;
    }
    GpuSample {
        mem_util_pct: all.mem_util_pct,
        hotspot_temp_c: all.temp_c.map(|temp_c| temp_c + HOTSPOT_C),
        host_mem_used_bytes: Reading::Value(64 << 20),
        power_instant_mw: all.power_instant_mw,
        power_capped_pct: all.power_capped_pct,
        thermal_capped_pct: all.thermal_capped_pct,
        mem_clock_mhz: all.mem_clock_mhz,
        nvlink_rx_bytes_s: all.nvlink_rx_bytes_s,
        nvlink_tx_bytes_s: all.nvlink_tx_bytes_s,
        ecc_corrected: all.ecc_corrected,
        ecc_uncorrected: all.ecc_uncorrected,
        ..of_cards
    }
}

/// Leaves what the vendor's driver states about the health of a GPU.
pub(crate) fn health(vendor: Vendor, all: GpuHealth) -> GpuHealth {
    let link = GpuHealth {
        pcie_gen: all.pcie_gen.clone(),
        pcie_width: all.pcie_width.clone(),
        ..GpuHealth::unsupported()
    };
    match vendor {
        Vendor::Unknown | Vendor::Nvidia => all,
        Vendor::Amd => GpuHealth { pcie_replays: all.pcie_replays, ..link },
        Vendor::Intel | Vendor::Tpu => link,
    }
}

/// Leaves the readings that the vendor's driver has of a process.
pub(crate) fn process(vendor: Vendor, all: ProcessReadings) -> ProcessReadings {
    if vendor == Vendor::Nvidia {
        return all;
    }
    ProcessReadings {
        sm_pct: if vendor == Vendor::Tpu { Reading::Unsupported } else { all.sm_pct },
        mem_bw_pct: Reading::Unsupported,
        enc_pct: Reading::Unsupported,
        dec_pct: Reading::Unsupported,
        ..all
    }
}
