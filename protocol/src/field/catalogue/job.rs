//! The metrics of what a job uses of a node.

use super::{catalogue, select};
use crate::field::metric::{Group, Metric, Retention, Unit};
use crate::field::{Field, ROW_WIDTH, ReadingSet};
use Group::{Activity, Errors, Memory};

const MIB_16: u64 = 16 << 20;

catalogue! {
    /// Metrics of a job's resource usage on a node.
    fields JobField = "job";

    /// Current resource usage of a job on a node.
    readings JobReadings {}

    /// CPU time since the last sample, in % of one core (`cpuacct.usage`, `cpu.stat`).
    Cpu: cpu_pct = Metric::gauge("cpu_pct", Unit::Percent, Activity, "CPU",
        "CPU utilisation; 100 % is one core").sum().part_of(JobField::CpuLimit);
    /// Memory without page cache of files (`memory.usage_in_bytes` or `memory.current`, less `inactive_file` and
    /// `active_file` of `memory.stat`).
    MemUsed: mem_used_bytes = Metric::bytes("mem_used_bytes", MIB_16, Memory, "Memory",
        "host memory used by the job, without reclaimable page cache")
        .short("RAM").column("mem").part_of(JobField::MemLimit);
    /// Shared memory and tmpfs within it (`memory.stat` `shmem`).
    Shmem: shmem_bytes = Metric::bytes("shmem_bytes", MIB_16, Memory, "Shared memory",
        "shared memory and tmpfs, part of the memory used").short("Shared").column("shm");
    /// CPU limit, in % of one core (`cpuset.cpus`, `cpu.max`).
    CpuLimit: cpu_limit_pct = Metric::gauge("cpu_limit_pct", Unit::Percent, Activity, "CPU limit",
        "CPU limit of the job; 100 % is one core").sum().stable();
    /// Memory limit (`memory.limit_in_bytes`, `memory.max`); unsupported without a limit.
    MemLimit: mem_limit_bytes = Metric::bytes("mem_limit_bytes", MIB_16, Memory, "Memory limit",
        "host memory limit of the job").short("RAM limit").stable();
    /// Processes killed at the memory limit (`memory.oom_control`, `memory.events` `oom_kill`).
    OomKills: oom_kills = Metric::counter("oom_kills", Unit::One, Errors, "OOM kills",
        "processes killed at the job's memory limit").short("OOM kills").column("oom");
}
