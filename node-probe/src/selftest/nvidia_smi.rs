//! The reference `nvidia-smi`, called once for each snapshot.

use super::judge::Observed;
use super::snapshot::{Key, OnceReport, Snapshot};
use nix::sys::resource::{UsageWho, getrusage};
use std::{
    collections::BTreeSet,
    io,
    process::{Command, Stdio},
    time::Duration,
};

/// The program.
const PROGRAM: &str = "nvidia-smi";
/// Fields of processes.
const OF_PROCESSES: &str = "--query-compute-apps=gpu_uuid,pid,used_gpu_memory";
/// Bytes in a MiB, the unit of memory.
const MIB: f64 = 1_048_576.0;

/// Form of a field.
#[derive(Clone, Copy)]
enum Form {
    /// A text.
    Text,
    /// A number, a state or a bit mask of the probe's resolution.
    Exact,
    /// A number with the factor to the unit of the probe, and its step in that unit.
    Scaled(f64, f64),
}
use Form::{Exact, Scaled, Text};

/// Memory in MiB.
const MEMORY: Form = Scaled(MIB, MIB);
/// Power in W with two decimals; the probe has mW.
const POWER: Form = Scaled(1_000.0, 10.0);

/// Readings of the probe, and names of the field for them: the first that this version has is queried.
const FIELDS: &[(&str, &[&str], Form)] = &[
    ("index", &["index"], Exact),
    ("name", &["name"], Text),
    ("serial", &["serial"], Text),
    ("vbios", &["vbios_version"], Text),
    ("pci", &["pci.bus_id"], Text),
    ("compute_capability", &["compute_cap"], Text),
    ("compute_mode", &["compute_mode"], Text),
    ("persistence", &["persistence_mode"], Exact),
    ("ecc_mode", &["ecc.mode.current"], Exact),
    ("mig_mode", &["mig.mode.current"], Exact),
    ("sm_clock_max_mhz", &["clocks.max.sm"], Exact),
    ("mem_clock_max_mhz", &["clocks.max.memory", "clocks.max.mem"], Exact),
    ("graphics_clock_max_mhz", &["clocks.max.graphics", "clocks.max.gr"], Exact),
    ("power_default_mw", &["power.default_limit"], POWER),
    ("power_min_mw", &["power.min_limit"], POWER),
    ("power_max_mw", &["power.max_limit"], POWER),
    ("pcie_gen_max", &["pcie.link.gen.max"], Exact),
    ("pcie_width_max", &["pcie.link.width.max"], Exact),
    ("util_pct", &["utilization.gpu"], Exact),
    ("mem_util_pct", &["utilization.memory"], Exact),
    ("enc_pct", &["utilization.encoder"], Exact),
    ("dec_pct", &["utilization.decoder"], Exact),
    ("jpg_pct", &["utilization.jpeg"], Exact),
    ("ofa_pct", &["utilization.ofa"], Exact),
    ("power_mw", &["power.draw"], POWER),
    ("power_instant_mw", &["power.draw.instant"], POWER),
    ("power_limit_mw", &["enforced.power.limit"], POWER),
    ("temp_c", &["temperature.gpu"], Exact),
    ("mem_temp_c", &["temperature.memory"], Exact),
    ("mem_used_bytes", &["memory.used"], MEMORY),
    ("mem_reserved_bytes", &["memory.reserved"], MEMORY),
    ("mem_total_bytes", &["memory.total"], MEMORY),
    ("sm_clock_mhz", &["clocks.current.sm", "clocks.sm"], Exact),
    ("mem_clock_mhz", &["clocks.current.memory", "clocks.mem"], Exact),
    ("graphics_clock_mhz", &["clocks.current.graphics", "clocks.gr"], Exact),
    ("video_clock_mhz", &["clocks.current.video", "clocks.video"], Exact),
    ("throttle_reasons", &["clocks_event_reasons.active", "clocks_throttle_reasons.active"], Exact),
    ("fan_pct", &["fan.speed"], Exact),
    ("p_state", &["pstate"], Exact),
    ("ecc_uncorrected", &["ecc.errors.uncorrected.volatile.total"], Exact),
    ("ecc_corrected", &["ecc.errors.corrected.volatile.total"], Exact),
    ("ecc_life_uncorrected", &["ecc.errors.uncorrected.aggregate.total"], Exact),
    ("ecc_life_corrected", &["ecc.errors.corrected.aggregate.total"], Exact),
    ("retired_corrected", &["retired_pages.single_bit_ecc.count", "retired_pages.sbe"], Exact),
    ("retired_uncorrected", &["retired_pages.double_bit.count", "retired_pages.dbe"], Exact),
    ("retired_pending", &["retired_pages.pending"], Exact),
    ("pcie_gen", &["pcie.link.gen.gpucurrent", "pcie.link.gen.current"], Exact),
    ("pcie_width", &["pcie.link.width.current"], Exact),
];

/// `nvidia-smi` of this machine.
pub struct NvidiaSmi {
    /// The queried fields.
    fields: Vec<(&'static str, &'static str, Form)>,
    /// Number of snapshots, and the CPU time of all.
    snapshots: u32,
    cpu: Duration,
    /// Memory of the largest call, in bytes.
    pub rss_bytes: u64,
}

impl NvidiaSmi {
    /// Finds out which fields this version has; `None` without the program.
    pub fn open() -> Option<Self> {
        let help = output(&["--help-query-gpu"]).ok()?;
        let known: BTreeSet<&str> = help.split('"').skip(1).step_by(2).collect();
        let field = |(name, names, form): &(&'static str, &'static [&'static str], Form)| {
            Some((*name, *names.iter().find(|name| known.contains(**name))?, *form))
        };
        let fields: Vec<_> = FIELDS.iter().filter_map(field).collect();
        let mut it = Self { fields, snapshots: 0, cpu: Duration::ZERO, rss_bytes: 0 };
        // The memory of the largest child so far, which is this program if it is the first one.
        it.snapshot().ok()?;
        let largest = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss());
        it.rss_bytes = u64::try_from(largest).unwrap_or(0) << 10;
        (!it.fields.is_empty()).then_some(it)
    }

    /// Reads all GPUs.
    ///
    /// # Errors
    /// If the program fails.
    pub fn snapshot(&mut self) -> io::Result<Snapshot> {
        let before = children_cpu();
        let names = self.fields.iter().map(|(_, field, _)| *field);
        let query = std::iter::once("uuid").chain(names).collect::<Vec<_>>().join(",");
        let gpus = output(&[&format!("--query-gpu={query}"), "--format=csv,noheader,nounits"])?;
        let processes = output(&[OF_PROCESSES, "--format=csv,noheader,nounits"])?;
        self.snapshots += 1;
        self.cpu += children_cpu().saturating_sub(before);
        let mut snapshot: Snapshot = gpus.lines().flat_map(|line| self.gpu(line)).collect();
        snapshot.extend(processes.lines().filter_map(process));
        Ok(snapshot)
    }

    fn gpu(&self, line: &str) -> Vec<(Key, Observed)> {
        let mut cells = line.split(',').map(str::trim);
        let gpu = cells.next().unwrap_or_default();
        let key = |name: &str| Key { gpu: gpu.to_owned(), pid: None, name: name.to_owned() };
        let fields = self.fields.iter().zip(cells);
        let readings = fields.map(|((name, _, form), cell)| (key(name), value(cell, *form)));
        std::iter::once((key("uuid"), Observed::Text(gpu.to_lowercase()))).chain(readings).collect()
    }

    /// Step of a reading in the unit of the probe.
    pub fn step(&self, key: &Key) -> f64 {
        let form = self.fields.iter().find(|(name, ..)| *name == key.name).map(|(_, _, form)| *form);
        match form {
            Some(Scaled(_, step)) => step,
            None if key.pid.is_some() => MIB,
            _ => 0.0,
        }
    }

    /// Returns whether it lists a reading of the probe: instances have no row, and only compute processes are listed.
    pub fn lists(&self, key: &Key, report: &OnceReport) -> bool {
        let Some(pid) = key.pid else { return !key.gpu.starts_with("MIG-") && self.knows(&key.name) };
        let is_listed = |(gpu, process, entry): (&str, u32, &serde_json::Value)| {
            gpu == key.gpu && process == pid && entry["facts"]["kind"]["compute"] == true
        };
        key.name == "gpu_mem_bytes" && !key.gpu.starts_with("MIG-") && report.processes().any(is_listed)
    }

    fn knows(&self, name: &str) -> bool {
        name == "uuid" || self.fields.iter().any(|(known, ..)| *known == name)
    }

    /// Mean CPU time of a snapshot.
    pub fn cpu_per_look(&self) -> Duration {
        self.cpu / self.snapshots.max(1)
    }
}

/// CPU time of all children that have ended.
fn children_cpu() -> Duration {
    let micros = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or_default()
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(Duration::ZERO, |usage| {
        Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
    })
}

fn output(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(PROGRAM).args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(io::Error::other(format!("{PROGRAM} failed: {}", text.trim()))),
    }
}

fn process(line: &str) -> Option<(Key, Observed)> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let [gpu, pid, memory] = cells[..] else { return None };
    let key = Key { gpu: gpu.to_owned(), pid: Some(pid.parse().ok()?), name: "gpu_mem_bytes".into() };
    Some((key, value(memory, MEMORY)))
}

/// Parses a cell: `97`, `0x0000000000000004`, `P0`, `Enabled`, `[N/A]`.
fn value(cell: &str, form: Form) -> Observed {
    if cell.starts_with('[') || cell == "N/A" || cell.is_empty() {
        return Observed::Absent(cell.to_lowercase());
    }
    let factor = match form {
        Text => return Observed::Text(cell.to_lowercase().replace('_', " ")),
        Exact => 1.0,
        Scaled(factor, _) => factor,
    };
    let number = match cell {
        "Enabled" | "Yes" | "Active" => Some(1.0),
        "Disabled" | "No" | "Not Active" => Some(0.0),
        _ if cell.starts_with("0x") => u64::from_str_radix(&cell[2..], 16).ok().map(|bits| bits as f64),
        _ => cell.trim_start_matches('P').parse().ok(),
    };
    number.map_or_else(
        || Observed::Text(cell.to_lowercase()),
        |number: f64| Observed::Number((number * factor).round()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_unit_of_the_probe() {
        let number = |cell: &str, form| value(cell, form);
        assert_eq!(number("301.52", POWER), Observed::Number(301_520.0));
        assert_eq!(number("2048", MEMORY), Observed::Number(2_048.0 * MIB));
        assert_eq!(number("0x0000000000000004", Exact), Observed::Number(4.0));
        assert_eq!(
            [number("P8", Exact), number("Enabled", Exact)],
            [Observed::Number(8.0), Observed::Number(1.0)]
        );
        assert_eq!(number("Exclusive_Process", Text), Observed::Text("exclusive process".into()));
        assert_eq!(number("[Not Supported]", Exact), Observed::Absent("[not supported]".into()));
    }

    #[test]
    fn a_process_is_listed_with_its_gpu_and_memory() {
        let (key, seen) = process("GPU-a, 4711, 512").unwrap();
        assert_eq!((key.gpu.as_str(), key.pid, seen), ("GPU-a", Some(4_711), Observed::Number(512.0 * MIB)));
        assert!(process("No running processes found").is_none());
    }
}
