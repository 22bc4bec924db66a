//! The host of a node, and what each job may use of it.

use crate::JobId;
use serde::{Deserialize, Serialize};

readings! {
    /// Changing readings of the host.
    HostSample of HostField {
        /// Busy share of all CPUs since the last sample, % (`/proc/stat`).
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
        /// Errors of the InfiniBand links since they came up (`symbol_error`, `link_downed`, `port_rcv_errors`).
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
        /// Share of the last 10 s in which some task waited for a CPU, % (`/proc/pressure/cpu`).
        psi_cpu_pct => PsiCpu,
        /// Share in which some task waited for memory.
        psi_mem_pct => PsiMem,
        /// Share in which some task waited for a disk.
        psi_io_pct => PsiIo,
        /// Time since boot, in s (`/proc/uptime`).
        uptime_s => Uptime,
    }
}

/// What a job uses of a node, by its cgroup (version 1 or 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobUsage {
    /// The job.
    pub job: JobId,
    /// What it uses now.
    pub now: JobReadings,
}

readings! {
    /// What a job uses of a node now.
    JobReadings of JobField {
        /// CPU time since the last sample, in % of one core (`cpuacct.usage`, `cpu.stat`).
        cpu_pct => Cpu,
        /// CPU it may use, in % of one core (`cpuset.cpus`, `cpu.max`).
        cpu_limit_pct => CpuLimit,
        /// Memory, the page cache that can be dropped left out (`memory.usage_in_bytes`, `memory.current`).
        mem_used_bytes => MemUsed,
        /// Memory it may use (`memory.limit_in_bytes`, `memory.max`); unsupported when there is no limit.
        mem_limit_bytes => MemLimit,
        /// Shared memory and tmpfs within it (`memory.stat` `shmem`).
        shmem_bytes => Shmem,
        /// How often the limit killed one of its processes (`memory.events` `oom_kill`).
        oom_kills => OomKills,
    }
}
