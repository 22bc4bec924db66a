//! The metrics of a process on a GPU.

use super::{catalogue, select};
use crate::field::metric::{Group, Metric, Retention, Unit, ValueKind};
use crate::field::wording::{AMD, INTEL, SEVERAL, TPU, VendorWording, Wording, words};
use crate::field::{Field, ROW_WIDTH, ReadingSet};
use Group::{Activity, Engines, Memory, System};

const MIB: u64 = 1 << 20;

const COMPUTE: &[VendorWording] = &[
    (AMD, COMPUTE_OF_OTHERS),
    (INTEL, COMPUTE_OF_OTHERS),
    (TPU, COMPUTE_OF_OTHERS),
    (SEVERAL, COMPUTE_OF_OTHERS),
];
const COMPUTE_OF_OTHERS: Wording = words(
    "Compute time",
    "Compute time",
    "Comp.",
    "share of the time of the compute units or of the busiest engine used by the process",
);

catalogue! {
    /// Metrics of a process on one GPU.
    fields ProcessField = "process";

    /// Changing readings of a process; utilization is since the previous sample.
    readings ProcessReadings {}

    /// Device memory in bytes; unsupported under WDDM and for some graphics contexts.
    GpuMem: gpu_mem_bytes = Metric::bytes("gpu_mem_bytes", MIB, Memory, "GPU memory",
        "device memory used by the process").short("GPU").column("mem");
    /// Share of the SMs' time, in % (`nvmlDeviceGetProcessUtilization.smUtil`); unsupported under
    /// MIG.
    Sm: sm_pct = Metric::percent("sm_pct", Activity, "SM time",
        "share of SM time used by the process").short("SM").variants(COMPUTE)
        .no_aggregate();
    /// CPU time in % of one core (`/proc/PID/stat` fields 14 and 15).
    Cpu: cpu_pct = Metric::gauge("cpu_pct", Unit::Percent, Activity, "CPU",
        "CPU utilisation; 100 % is one core").sum();
    /// Share of the memory bandwidth's time, in % (`memUtil`).
    MemBw: mem_bw_pct = Metric::percent("mem_bw_pct", Activity, "Memory bandwidth",
        "share of memory time used by the process").short("Mem").column("bw").no_aggregate();
    /// Resident memory in bytes (`/proc/PID/stat` field 24).
    Rss: rss_bytes = Metric::bytes("rss_bytes", MIB, Memory, "Memory", "resident host memory")
        .short("RAM").no_aggregate();
    /// Share of the encoder, in % (`encUtil`).
    Encoder: enc_pct = Metric::percent("enc_pct", Engines, "Encoder",
        "video encoder utilisation by the process")
        .short("Enc.").no_aggregate();
    /// Share of the decoder, in % (`decUtil`).
    Decoder: dec_pct = Metric::percent("dec_pct", Engines, "Decoder",
        "video decoder utilisation by the process")
        .short("Dec.").no_aggregate();
    /// Threads (`/proc/PID/stat` field 20).
    Threads: threads = Metric::gauge("threads", Unit::One, System, "Threads", "number of threads");
    /// Discriminant of [`crate::process::ProcessState`] (`/proc/PID/stat` field 3).
    State: state = Metric::gauge("state", Unit::One, System, "State",
        "process state: alive, waiting for a device, zombie, or stopped").kind(ValueKind::State);
}
