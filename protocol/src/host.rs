//! The host of a node and the resource usage of its jobs.

use crate::JobId;
use serde::{Deserialize, Serialize};

readings! {
    /// Changing readings of the host.
    HostSample of HostField {
        /// CPU utilization since the last sample, % (`/proc/stat`).
        cpu_pct => Cpu,
        /// One-minute load in hundredths (`/proc/loadavg`).
        load1_centi => Load1,
        /// `MemTotal` − `MemAvailable` (`/proc/meminfo`).
        mem_used_bytes => MemUsed,
        /// `MemTotal`.
        mem_total_bytes => MemTotal,
        /// `SwapTotal` − `SwapFree`.
        swap_used_bytes => SwapUsed,
        /// `SwapTotal`.
        swap_total_bytes => SwapTotal,
        /// Read from local disks, in bytes a second (`/proc/diskstats`, whole devices).
        disk_read_bytes_s => DiskRead,
        /// Written to local disks, in bytes a second.
        disk_write_bytes_s => DiskWrite,
        /// Received from the network, in bytes a second (`/proc/net/dev`, physical interfaces).
        net_rx_bytes_s => NetRx,
        /// Sent to the network, in bytes a second.
        net_tx_bytes_s => NetTx,
        /// Received over InfiniBand or RoCE, in bytes a second (`/sys/class/infiniband/*/ports/*/counters/port_rcv_data` × 4).
        ib_rx_bytes_s => IbRx,
        /// Sent over InfiniBand or RoCE, in bytes a second (`port_xmit_data` × 4).
        ib_tx_bytes_s => IbTx,
        /// InfiniBand link errors since the links came up (`symbol_error`, `link_downed`,
        /// `port_rcv_errors`).
        ib_errors => IbErrors,
        /// Used of `/dev/shm` (`statvfs`).
        shm_used_bytes => ShmUsed,
        /// Size of `/dev/shm`.
        shm_total_bytes => ShmTotal,
        /// Used of `/tmp`.
        tmp_used_bytes => TmpUsed,
        /// Size of `/tmp`.
        tmp_total_bytes => TmpTotal,
        /// Used of the node's scratch disk, see [`crate::probe::Hello::scratch`].
        scratch_used_bytes => ScratchUsed,
        /// Size of the scratch disk.
        scratch_total_bytes => ScratchTotal,
        /// PSI `some` CPU pressure over 10 s, % (`/proc/pressure/cpu`).
        psi_cpu_pct => PsiCpu,
        /// PSI `some` memory pressure over 10 s, %.
        psi_mem_pct => PsiMem,
        /// PSI `some` I/O pressure over 10 s, %.
        psi_io_pct => PsiIo,
        /// Time since boot, in s (`/proc/uptime`).
        uptime_s => Uptime,
    }
}

/// Resource usage of a job on a node, from its cgroup (version 1 or 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobUsage {
    /// The job.
    pub job: JobId,
    /// Its current usage.
    pub now: JobReadings,
}

readings! {
    /// Current resource usage of a job on a node.
    JobReadings of JobField {
        /// CPU time since the last sample, in % of one core (`cpuacct.usage`, `cpu.stat`).
        cpu_pct => Cpu,
        /// CPU limit, in % of one core (`cpuset.cpus`, `cpu.max`).
        cpu_limit_pct => CpuLimit,
        /// Memory without reclaimable page cache (`memory.usage_in_bytes`, `memory.current`).
        mem_used_bytes => MemUsed,
        /// Memory limit (`memory.limit_in_bytes`, `memory.max`); unsupported without a limit.
        mem_limit_bytes => MemLimit,
        /// Shared memory and tmpfs within it (`memory.stat` `shmem`).
        shmem_bytes => Shmem,
        /// Number of OOM kills (`memory.events` `oom_kill`).
        oom_kills => OomKills,
    }
}
