//! Host readings: CPUs, memory, disks, networks, pressure, file system usage, and resource usage
//! per job.

mod background;
mod cgroup;
mod cpu;
mod device;
mod device_rates;
mod file;
mod infiniband;
pub(crate) mod job;
mod memory;
mod space;

use crate::clock;
use background::BackgroundTask;
use cpu::Cpus;
use device::Devices;
use device_rates::DeviceRates;
use file::{OpenFile, ReadError, reading};
use infiniband::{Ports, Traffic};
use job::Jobs;
use memory::Memory;
use nodeglass_protocol::probe::{HostSample, JobCgroupUsage};
use nodeglass_protocol::{Reading, Text};
use space::{Mounts, Space};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Interval of file system queries and device discovery.
const SLOW_NS: u64 = 5_000_000_000;
/// Duration after which a background task counts as hung.
const STUCK_NS: u64 = 15_000_000_000;

/// Mount points of the files to read.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

/// One reading of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostReadings {
    /// The host as a whole.
    pub host: HostSample,
    /// Utilization of each CPU in %, if known.
    pub cores: Vec<u8>,
    /// Resource usage of each job.
    pub jobs: Vec<JobCgroupUsage>,
}

/// Reader of host metrics.
#[derive(Debug)]
pub struct Host {
    roots: Roots,
    stat: OpenFile,
    loadavg: OpenFile,
    meminfo: OpenFile,
    uptime: OpenFile,
    diskstats: OpenFile,
    net_dev: OpenFile,
    pressure: [OpenFile; 3],
    cpus: Cpus,
    disks: (Devices, DeviceRates),
    interfaces: (Devices, DeviceRates),
    jobs: Jobs,
    /// `/dev/shm`, `/tmp` and the scratch disk, in separate tasks because each may hang.
    spaces: [Option<BackgroundTask<Space>>; 3],
    links: Option<BackgroundTask<Traffic>>,
    slow_ns: Option<u64>,
    buffer: Vec<u8>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    /// Opens the files of this machine.
    pub fn new() -> Self {
        Self::of(Roots::default())
    }

    /// Opens the files below other mount points.
    pub fn of(roots: Roots) -> Self {
        let open = |name: &str| OpenFile::open(&roots.proc.join(name));
        let scratch = Mounts::read(&roots.proc).scratch();
        let places = [Some("/dev/shm".into()), Some("/tmp".into()), scratch];
        let mut ports = Ports::of(roots.sys.join("class/infiniband"));
        // Unavailable if no thread can be started.
        let links = device::has_any(&roots.sys.join("class/infiniband"))
            .then(|| BackgroundTask::start("links", move |now_ns| ports.read(now_ns)).ok());
        Self {
            stat: open("stat"),
            loadavg: open("loadavg"),
            meminfo: open("meminfo"),
            uptime: open("uptime"),
            diskstats: open("diskstats"),
            net_dev: open("net/dev"),
            pressure: ["pressure/cpu", "pressure/memory", "pressure/io"].map(open),
            cpus: Cpus::default(),
            disks: (Devices::of(roots.sys.join("block")), DeviceRates::default()),
            interfaces: (Devices::of(roots.sys.join("class/net")), DeviceRates::default()),
            jobs: Jobs::of(roots.sys.join("fs/cgroup"), roots.proc.clone()),
            spaces: places.map(|place| space_task(&roots.proc, place?)),
            links: links.flatten(),
            slow_ns: None,
            buffer: Vec::new(),
            roots,
        }
    }

    /// Reads the host; utilization and rates are since the previous reading, and not yet known at
    /// the first one.
    pub fn read(&mut self) -> HostReadings {
        self.read_at(clock::mono_ns())
    }

    fn read_at(&mut self, now_ns: u64) -> HostReadings {
        if self.slow_ns.is_none_or(|at| now_ns.saturating_sub(at) >= SLOW_NS) {
            self.slow_ns = Some(now_ns);
            self.disks.0.forget();
            self.interfaces.0.forget();
            self.spaces.iter().flatten().for_each(|space| space.request(now_ns));
        }
        let mut host = HostSample::default();
        let cores = self.read_cpus(&mut host);
        self.read_memory(&mut host);
        self.read_traffic(now_ns, &mut host);
        self.read_links(now_ns, &mut host);
        self.read_spaces(now_ns, &mut host);
        HostReadings { host, cores, jobs: self.jobs.read(now_ns) }
    }

    fn read_cpus(&mut self, host: &mut HostSample) -> Vec<u8> {
        // The following interrupt lines are long and unused.
        let stat =
            self.stat.text_until(&mut self.buffer, |text| text.windows(5).any(|word| word == b"\nintr"));
        let (share, cores) = match stat.and_then(|stat| self.cpus.shares(stat)) {
            Ok(shares) => shares,
            Err(error) => (reading(Err(error)), Vec::new()),
        };
        host.cpu_pct = share;
        let load = self.loadavg.text(&mut self.buffer);
        host.load1_centi = reading(load.and_then(memory::load1_centi));
        cores
    }

    fn read_memory(&mut self, host: &mut HostSample) {
        let memory = self.meminfo.text(&mut self.buffer).and_then(Memory::of);
        let part = |part: fn(&Memory) -> u64| reading(memory.as_ref().map(part).map_err(Clone::clone));
        host.mem_total_bytes = part(|memory| memory.total);
        host.mem_used_bytes = part(|memory| memory.used);
        host.swap_total_bytes = part(|memory| memory.swap_total);
        host.swap_used_bytes = part(|memory| memory.swap_used);
        let buffer = &mut self.buffer;
        let [cpu, mem, io] =
            self.pressure.each_ref().map(|file| reading(file.text(buffer).and_then(memory::pressure_pct)));
        (host.psi_cpu_pct, host.psi_mem_pct, host.psi_io_pct) = (cpu, mem, io);
        host.uptime_s = reading(self.uptime.text(buffer).and_then(memory::uptime_s));
    }

    fn read_traffic(&mut self, now_ns: u64, host: &mut HostSample) {
        let (devices, rates) = &mut self.disks;
        let disks = self.diskstats.text(&mut self.buffer).map(|text| device::disks(text, devices));
        [host.disk_read_bytes_s, host.disk_write_bytes_s] = class_rates(rates, now_ns, disks);
        let (devices, rates) = &mut self.interfaces;
        let interfaces = self.net_dev.text(&mut self.buffer).map(|text| device::interfaces(text, devices));
        [host.net_rx_bytes_s, host.net_tx_bytes_s] = class_rates(rates, now_ns, interfaces);
    }

    fn read_links(&mut self, now_ns: u64, host: &mut HostSample) {
        let Traffic { rx, tx, errors } = match &self.links {
            None => {
                Traffic { rx: Reading::Unsupported, tx: Reading::Unsupported, errors: Reading::Unsupported }
            }
            Some(links) => {
                let (traffic, stuck_ns) = links.latest(now_ns);
                links.request(now_ns);
                if stuck_ns >= STUCK_NS {
                    let hangs = || Reading::Failed("the InfiniBand driver does not respond".into());
                    Traffic { rx: hangs(), tx: hangs(), errors: hangs() }
                } else {
                    traffic.unwrap_or_default()
                }
            }
        };
        (host.ib_rx_bytes_s, host.ib_tx_bytes_s, host.ib_errors) = (rx, tx, errors);
    }

    fn read_spaces(&self, now_ns: u64, host: &mut HostSample) {
        let [shm, tmp, scratch] = self.spaces.each_ref().map(|space| match space {
            None => Space::both(Reading::Unsupported),
            Some(space) => match space.latest(now_ns) {
                (_, stuck_ns) if stuck_ns >= STUCK_NS => {
                    Space::both(Reading::Failed("its file system does not respond".into()))
                }
                (space, _) => space.unwrap_or_default(),
            },
        });
        (host.shm_used_bytes, host.shm_total_bytes) = (shm.used, shm.total);
        (host.tmp_used_bytes, host.tmp_total_bytes) = (tmp.used, tmp.total);
        (host.scratch_used_bytes, host.scratch_total_bytes) = (scratch.used, scratch.total);
    }

    /// Returns the mount points in use.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }
}

/// Creates a task that queries a file system; `None` if no thread can be started.
fn space_task(proc: &Path, place: PathBuf) -> Option<BackgroundTask<Space>> {
    let proc = proc.to_owned();
    BackgroundTask::start("space", move |_| Space::of(&place, &Mounts::read(&proc))).ok()
}

/// Returns the rates of a device class; unsupported without devices, failed if its counters could
/// not be read.
fn class_rates(
    rates: &mut DeviceRates,
    now_ns: u64,
    counters: Result<HashMap<String, [u64; 2]>, ReadError>,
) -> [Reading<u64>; 2] {
    match counters {
        Ok(counters) if counters.is_empty() => {
            rates.reset();
            [Reading::Unsupported, Reading::Unsupported]
        }
        Ok(counters) => rates.rates(now_ns, counters),
        Err(error) => {
            rates.reset();
            [reading(Err(error.clone())), reading(Err(error))]
        }
    }
}

/// `MemTotal` in bytes, or 0 if it cannot be read.
pub fn mem_total_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Memory::of(&meminfo).map_or(0, |memory| memory.total)
}

/// Returns the mount point of the node's scratch disk, if any.
pub fn scratch() -> Option<Text> {
    Mounts::read(Path::new("/proc")).scratch().map(|place| place.to_string_lossy().as_ref().into())
}

#[cfg(test)]
mod tests;
