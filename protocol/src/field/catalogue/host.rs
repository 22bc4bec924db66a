//! The metrics of a host.

use super::{catalogue, select};
use crate::field::metric::{Group, Metric, Retention, Unit};
use crate::field::{Field, ROW_WIDTH, ReadingSet, Scale};
use Group::{Activity, Disks, Memory, Network, Pressure, System};

const MIB_64: u64 = 64 << 20;

catalogue! {
    /// Metrics of a host.
    fields HostField = "host";

    /// Changing readings of the host.
    readings HostSample {}

    /// CPU utilization of all cores since the last sample, % (`/proc/stat`).
    Cpu: cpu_pct = Metric::percent("cpu_pct", Activity, "CPU",
        "CPU utilisation of the host, averaged over all CPUs")
        .with_history().in_summary();
    /// One-minute load average in hundredths (`/proc/loadavg`).
    Load1: load1_centi = Metric::gauge("load1_centi", Unit::Hundredth, Activity, "Load",
        "load average over one minute").column("load");
    /// `MemTotal` − `MemAvailable` (`/proc/meminfo`).
    MemUsed: mem_used_bytes = Metric::bytes("mem_used_bytes", MIB_64, Memory, "Memory",
        "host memory in use").short("RAM").column("ram").part_of(HostField::MemTotal)
        .with_history().in_summary();
    /// `MemTotal`.
    MemTotal: mem_total_bytes = Metric::bytes("mem_total_bytes", MIB_64, Memory, "Total memory",
        "total host memory").short("RAM total").column("ram_total").stable().in_summary();
    /// Read from local disks, in bytes a second (`/proc/diskstats`, whole devices).
    DiskRead: disk_read_bytes_s = Metric::rate("disk_read_bytes_s", Disks, "Read from disks",
        "data read from local disks").label("Read").short("Disk in");
    /// Written to local disks, in bytes a second.
    DiskWrite: disk_write_bytes_s = Metric::rate("disk_write_bytes_s", Disks, "Written to disks",
        "data written to local disks").label("Written").short("Disk out");
    /// Received from the network, in bytes a second (`/proc/net/dev`, physical interfaces).
    NetRx: net_rx_bytes_s = Metric::rate("net_rx_bytes_s", Network, "Network received",
        "data received from the network").label("Received").short("Net in");
    /// Sent to the network, in bytes a second.
    NetTx: net_tx_bytes_s = Metric::rate("net_tx_bytes_s", Network, "Network sent",
        "data sent to the network").label("Sent").short("Net out");
    /// Received over InfiniBand or RoCE, in bytes a second
    /// (`/sys/class/infiniband/*/ports/*/counters/port_rcv_data` × 4).
    IbRx: ib_rx_bytes_s = Metric::rate("ib_rx_bytes_s", Network, "InfiniBand received",
        "data received over InfiniBand or RoCE").short("IB in");
    /// Sent over InfiniBand or RoCE, in bytes a second (`port_xmit_data` × 4).
    IbTx: ib_tx_bytes_s = Metric::rate("ib_tx_bytes_s", Network, "InfiniBand sent",
        "data sent over InfiniBand or RoCE").short("IB out");
    /// PSI `some` CPU pressure over 10 s, % (`/proc/pressure/cpu`).
    PsiCpu: psi_cpu_pct = Metric::percent("psi_cpu_pct", Pressure, "CPU pressure",
        "share of the last 10 s in which some task was waiting for a CPU (PSI)").short("PSI CPU").no_aggregate();
    /// PSI `some` memory pressure over 10 s, %.
    PsiMem: psi_mem_pct = Metric::percent("psi_mem_pct", Pressure, "Memory pressure",
        "share of the last 10 s in which some task was waiting for memory (PSI)").short("PSI mem").no_aggregate();
    /// PSI `some` I/O pressure over 10 s, %.
    PsiIo: psi_io_pct = Metric::percent("psi_io_pct", Pressure, "I/O pressure",
        "share of the last 10 s in which some task was waiting for a disk (PSI)").short("PSI I/O").no_aggregate();
    /// `SwapTotal` − `SwapFree`.
    SwapUsed: swap_used_bytes = Metric::bytes("swap_used_bytes", MIB_64, Memory, "Swap",
        "swap in use").column("swap").part_of(HostField::SwapTotal).no_aggregate();
    /// `SwapTotal`.
    SwapTotal: swap_total_bytes = Metric::bytes("swap_total_bytes", MIB_64, Memory, "Total swap",
        "total swap").stable().no_aggregate();
    /// Used of `/dev/shm` (`statvfs`).
    ShmUsed: shm_used_bytes = Metric::bytes("shm_used_bytes", MIB_64, Memory, "/dev/shm",
        "space used in /dev/shm").column("shm").part_of(HostField::ShmTotal).no_aggregate();
    /// Size of `/dev/shm`.
    ShmTotal: shm_total_bytes = Metric::bytes("shm_total_bytes", MIB_64, Memory,
        "Size of /dev/shm", "size of /dev/shm").stable().no_aggregate();
    /// Used of `/tmp`.
    TmpUsed: tmp_used_bytes = Metric::bytes("tmp_used_bytes", MIB_64, Memory, "/tmp",
        "space used in /tmp").column("tmp").part_of(HostField::TmpTotal).no_aggregate();
    /// Size of `/tmp`.
    TmpTotal: tmp_total_bytes = Metric::bytes("tmp_total_bytes", MIB_64, Memory, "Size of /tmp",
        "size of /tmp").stable().no_aggregate();
    /// Used of the node's scratch disk, see [`crate::probe::Hello::scratch`].
    ScratchUsed: scratch_used_bytes = Metric::bytes("scratch_used_bytes", MIB_64, Memory, "Scratch",
        "space used on the scratch disk").column("scratch").part_of(HostField::ScratchTotal)
        .no_aggregate();
    /// Size of the scratch disk.
    ScratchTotal: scratch_total_bytes = Metric::bytes("scratch_total_bytes", MIB_64, Memory,
        "Size of scratch", "size of the scratch disk").stable().no_aggregate();
    /// InfiniBand link errors since the links came up (`symbol_error`, `link_downed`,
    /// `port_rcv_errors`).
    IbErrors: ib_errors = Metric::counter("ib_errors", Unit::One, Network, "InfiniBand errors",
        "InfiniBand link errors since the links came up").short("IB errors").no_aggregate();
    /// Time since boot, in s (`/proc/uptime`).
    Uptime: uptime_s = Metric::gauge("uptime_s", Unit::Second, System, "Uptime",
        "time since the host booted").short("Up").scale(Scale::Linear(60));
}
