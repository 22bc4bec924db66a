//! Readings become cells: the one place that knows which reading a field shows, and in which unit.

use nodeglass_protocol::cell::{Field, Row};
use nodeglass_protocol::host::{HostSample, JobUse};
use nodeglass_protocol::picture::{ProcessPicture, UsePicture};
use nodeglass_protocol::probe::{GpuSample, ProcessSample};
use nodeglass_protocol::process::ProcessReadings;
use nodeglass_protocol::{Cell, GpuField, HostField, JobField, ProcessField, Reading};

/// Millijoules of a watt-hour.
const MJ_PER_WH: u64 = 3_600_000;

/// Enters the readings of a GPU.
pub fn fill_gpu(row: &mut Row<GpuField>, sample: &GpuSample) {
    for field in GpuField::ALL {
        row.set(*field, gpu_cell(*field, sample));
    }
}

fn gpu_cell(field: GpuField, sample: &GpuSample) -> Cell {
    let cell = |reading: &Reading<u64>| Cell::of(field, reading);
    match field {
        GpuField::Util => cell(&sample.util_pct),
        GpuField::Power => cell(&parts(&sample.power_mw, 1_000)),
        GpuField::Temp => cell(&sample.temp_c),
        GpuField::MemUsed => cell(&sample.mem_used_bytes),
        GpuField::SmClock => cell(&sample.sm_clock_mhz),
        GpuField::MemClock => cell(&sample.mem_clock_mhz),
        GpuField::MemUtil => cell(&sample.mem_util_pct),
        GpuField::Throttle => cell(&sample.throttle_reasons),
        GpuField::Fan => cell(&sample.fan_pct),
        GpuField::PState => cell(&sample.p_state),
        GpuField::EccUncorrected => cell(&sample.ecc_uncorrected),
        GpuField::EccCorrected => cell(&sample.ecc_corrected),
        GpuField::PowerLimit => cell(&parts(&sample.power_limit_mw, 1_000)),
        GpuField::MemReserved => cell(&sample.mem_reserved_bytes),
        GpuField::MemTotal => cell(&sample.mem_total_bytes),
        GpuField::SmActive => cell(&sample.sm_active_pct),
        GpuField::SmOccupancy => cell(&sample.sm_occupancy_pct),
        GpuField::TensorActive => cell(&sample.tensor_active_pct),
        GpuField::DramActive => cell(&sample.dram_active_pct),
        GpuField::Fp64Active => cell(&sample.fp64_active_pct),
        GpuField::Fp32Active => cell(&sample.fp32_active_pct),
        GpuField::Fp16Active => cell(&sample.fp16_active_pct),
        GpuField::GraphicsActive => cell(&sample.graphics_active_pct),
        GpuField::PcieRx => cell(&sample.pcie_rx_bytes_s),
        GpuField::PcieTx => cell(&sample.pcie_tx_bytes_s),
        GpuField::NvlinkRx => cell(&sample.nvlink_rx_bytes_s),
        GpuField::NvlinkTx => cell(&sample.nvlink_tx_bytes_s),
        GpuField::MemTemp => cell(&sample.mem_temp_c),
        GpuField::PowerInstant => cell(&parts(&sample.power_instant_mw, 1_000)),
        GpuField::Energy => cell(&parts(&sample.energy_mj, MJ_PER_WH)),
        GpuField::GraphicsClock => cell(&sample.graphics_clock_mhz),
        GpuField::VideoClock => cell(&sample.video_clock_mhz),
        GpuField::Encoder => cell(&sample.enc_pct),
        GpuField::Decoder => cell(&sample.dec_pct),
        GpuField::Jpeg => cell(&sample.jpg_pct),
        GpuField::Ofa => cell(&sample.ofa_pct),
    }
}

/// Enters the readings of a host.
pub fn fill_host(row: &mut Row<HostField>, sample: &HostSample) {
    for field in HostField::ALL {
        row.set(*field, Cell::of(*field, host_reading(*field, sample)));
    }
}

fn host_reading(field: HostField, sample: &HostSample) -> &Reading<u64> {
    match field {
        HostField::Cpu => &sample.cpu_pct,
        HostField::Load1 => &sample.load1_centi,
        HostField::MemUsed => &sample.mem_used_bytes,
        HostField::MemTotal => &sample.mem_total_bytes,
        HostField::DiskRead => &sample.disk_read_bytes_s,
        HostField::DiskWrite => &sample.disk_write_bytes_s,
        HostField::NetRx => &sample.net_rx_bytes_s,
        HostField::NetTx => &sample.net_tx_bytes_s,
        HostField::IbRx => &sample.ib_rx_bytes_s,
        HostField::IbTx => &sample.ib_tx_bytes_s,
        HostField::PsiCpu => &sample.psi_cpu_pct,
        HostField::PsiMem => &sample.psi_mem_pct,
        HostField::PsiIo => &sample.psi_io_pct,
        HostField::SwapUsed => &sample.swap_used_bytes,
        HostField::SwapTotal => &sample.swap_total_bytes,
        HostField::ShmUsed => &sample.shm_used_bytes,
        HostField::ShmTotal => &sample.shm_total_bytes,
        HostField::TmpUsed => &sample.tmp_used_bytes,
        HostField::TmpTotal => &sample.tmp_total_bytes,
        HostField::ScratchUsed => &sample.scratch_used_bytes,
        HostField::ScratchTotal => &sample.scratch_total_bytes,
        HostField::IbErrors => &sample.ib_errors,
        HostField::Uptime => &sample.uptime_s,
    }
}

/// A process as the page shows it.
pub fn process_picture(sample: ProcessSample) -> ProcessPicture {
    ProcessPicture { row: process_row(&sample.now), facts: sample.facts }
}

/// The row of a process.
pub fn process_row(now: &ProcessReadings) -> Row<ProcessField> {
    let mut row = Row::default();
    for field in ProcessField::ALL {
        let reading = match field {
            ProcessField::GpuMem => &now.gpu_mem_bytes,
            ProcessField::Sm => &now.sm_pct,
            ProcessField::Cpu => &now.cpu_pct,
            ProcessField::MemBw => &now.mem_bw_pct,
            ProcessField::Rss => &now.rss_bytes,
            ProcessField::Encoder => &now.enc_pct,
            ProcessField::Decoder => &now.dec_pct,
            ProcessField::Threads => &now.threads,
            ProcessField::State => &now.state,
        };
        row.set(*field, Cell::of(*field, reading));
    }
    row
}

/// What a job uses, as the page shows it.
pub fn use_picture(usage: &JobUse) -> UsePicture {
    let mut row = Row::default();
    for field in JobField::ALL {
        let reading = match field {
            JobField::Cpu => &usage.now.cpu_pct,
            JobField::MemUsed => &usage.now.mem_used_bytes,
            JobField::Shmem => &usage.now.shmem_bytes,
            JobField::CpuLimit => &usage.now.cpu_limit_pct,
            JobField::MemLimit => &usage.now.mem_limit_bytes,
            JobField::OomKills => &usage.now.oom_kills,
        };
        row.set(*field, Cell::of(*field, reading));
    }
    UsePicture { job: usage.job, row }
}

/// A reading in a unit `divisor` times as large, rounded.
fn parts(reading: &Reading<u64>, divisor: u64) -> Reading<u64> {
    reading.clone().map(|value| value.saturating_add(divisor / 2) / divisor)
}
