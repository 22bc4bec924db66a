//! The processes that have a GPU open, found by their file descriptors, and what they use of it.
//!
//! Reading the descriptors of all processes of a node takes time, so a pass over them is divided
//! into steps. Only the processes that were found to have a GPU open are read each time.

use super::attribute::{Attribute, ReadError};
use super::fdinfo::{self, Client, Engine, EngineKind};
use crate::source::proc_files::{ProcFiles, Unknown};
use nodeglass_protocol::Reading;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    io,
    path::Path,
};

/// Number of processes whose descriptors one step of the first pass reads. It is large so that the pass is over
/// after a few samples.
const FIRST_STEP: usize = 1_024;
/// Number of processes whose descriptors one step of a later pass reads.
const STEP: usize = 128;
/// Minimum time between two listings of all processes.
const LISTING_INTERVAL_NS: u64 = 10_000_000_000;
/// Age of a process up to which it is looked at after each listing: programs open GPUs soon after their
/// start.
const YOUNG_NS: u64 = 120_000_000_000;

/// Usage of a GPU by a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Memory on the device in bytes.
    pub device_bytes: Option<u64>,
    /// Memory of the host that the device uses, in bytes.
    pub host_bytes: Option<u64>,
    /// Busy share of graphics or compute engines, whichever is larger, in %.
    pub compute_pct: Reading<u64>,
    /// Busy share of the encoder, in %.
    pub encoder_pct: Reading<u64>,
    /// Busy share of the decoder, in %.
    pub decoder_pct: Reading<u64>,
    /// Whether it has used the graphics engine.
    pub is_graphics: bool,
    /// Whether it computes.
    pub is_compute: bool,
}

impl Usage {
    /// Adds the usage of another client of the same process.
    pub fn merge(&mut self, other: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.device_bytes = sum(self.device_bytes, other.device_bytes);
        self.host_bytes = sum(self.host_bytes, other.host_bytes);
        add_share(&mut self.compute_pct, other.compute_pct);
        add_share(&mut self.encoder_pct, other.encoder_pct);
        add_share(&mut self.decoder_pct, other.decoder_pct);
        self.is_graphics |= other.is_graphics;
        self.is_compute |= other.is_compute;
    }
}

fn add_share(sum: &mut Reading<u64>, more: Reading<u64>) {
    match (&mut *sum, more) {
        (Reading::Value(sum), Reading::Value(more)) => *sum = sum.saturating_add(more).min(100),
        (Reading::Value(_), _) => {}
        (_, more) => *sum = more,
    }
}

/// Engine times of a client at the last reading.
#[derive(Debug)]
struct Seen {
    engines: Vec<Engine>,
    at_ns: u64,
}

/// Finds the clients of GPUs.
#[derive(Debug)]
pub struct ClientScanner {
    processes: ProcFiles,
    /// Time of the last listing of all processes.
    listed_ns: Option<u64>,
    /// Processes at that time, and until when they are young.
    alive: BTreeMap<u32, u64>,
    /// Whether the first pass is not over.
    is_first: bool,
    /// Processes that this pass has not looked at.
    pending: VecDeque<u32>,
    /// Processes with GPUs open, with these descriptors.
    known: BTreeMap<u32, Vec<u32>>,
    /// Processes of other people that cannot be read.
    hidden: BTreeSet<u32>,
    /// Whether there are others that are not even listed.
    hides_others: bool,
    clients: HashMap<(String, u64), Seen>,
}

impl ClientScanner {
    /// Creates a scanner of `/proc`.
    pub fn new(root: &Path) -> Self {
        Self {
            processes: ProcFiles::new(root),
            listed_ns: None,
            alive: BTreeMap::new(),
            is_first: true,
            pending: VecDeque::new(),
            known: BTreeMap::new(),
            hidden: BTreeSet::new(),
            hides_others: false,
            clients: HashMap::new(),
        }
    }

    /// Returns whether processes of other people cannot be read.
    pub fn is_partial(&self) -> bool {
        self.hides_others || !self.hidden.is_empty()
    }

    /// Returns the usage by process of each GPU, given the positions of the GPUs by PCI address.
    ///
    /// A client that several processes share, as children do with what their parent opened, counts
    /// for the one with the lowest pid.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn scan(
        &mut self,
        now_ns: u64,
        positions: &HashMap<String, usize>,
    ) -> io::Result<BTreeMap<(usize, u32), Usage>> {
        self.step(now_ns)?;
        let mut usages: BTreeMap<(usize, u32), Usage> = BTreeMap::new();
        let mut counted = HashSet::new();
        let mut buffer = vec![0; fdinfo::MAX_BYTES];
        let known = std::mem::take(&mut self.known);
        for (pid, descriptors) in known {
            let folder = self.processes.folder(pid).join("fdinfo");
            let mut open = Vec::with_capacity(descriptors.len());
            for descriptor in descriptors {
                let file = Attribute::open(&folder.join(descriptor.to_string()));
                let text = match file.text(&mut buffer) {
                    Ok(text) => text,
                    // Closed meanwhile; the next pass finds what it opened since.
                    Err(ReadError::Missing | ReadError::Gone) => continue,
                    Err(ReadError::Failed(_)) => {
                        open.push(descriptor);
                        continue;
                    }
                };
                open.push(descriptor);
                let Some(client) = fdinfo::parse(text) else { continue };
                let Some(position) = positions.get(&client.pdev) else { continue };
                if counted.insert((client.pdev.clone(), client.id)) {
                    usages.entry((*position, pid)).or_default().merge(self.usage(client, now_ns));
                }
            }
            if !open.is_empty() {
                self.known.insert(pid, open);
            }
        }
        self.clients.retain(|key, _| counted.contains(key));
        Ok(usages)
    }

    /// Looks at the descriptors of the next processes.
    fn step(&mut self, now_ns: u64) -> io::Result<()> {
        if self.listed_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= LISTING_INTERVAL_NS) {
            self.list(now_ns)?;
            self.listed_ns = Some(now_ns);
        }
        for _ in 0..if self.is_first { FIRST_STEP } else { STEP } {
            let Some(pid) = self.pending.pop_front() else { break };
            self.hidden.remove(&pid);
            self.known.remove(&pid);
            match self.processes.open_files(pid) {
                Ok(open) => {
                    let gpus = open.into_iter().filter(|(_, path)| path.starts_with("/dev/dri"));
                    let found: Vec<_> = gpus.map(|(descriptor, _)| descriptor).collect();
                    if !found.is_empty() {
                        self.known.insert(pid, found);
                    }
                }
                Err(Unknown::Hidden) => _ = self.hidden.insert(pid),
                Err(Unknown::Irrelevant) => {}
            }
        }
        self.is_first &= !self.pending.is_empty();
        Ok(())
    }

    /// Lists all processes. Young ones are looked at first; the others once a pass is over.
    fn list(&mut self, now_ns: u64) -> io::Result<()> {
        let pids = self.processes.pids()?;
        self.hides_others = self.processes.hides_others(&pids);
        let young_until_ns = if self.listed_ns.is_some() { now_ns.saturating_add(YOUNG_NS) } else { 0 };
        let before = std::mem::take(&mut self.alive);
        let until = |pid: u32| (pid, before.get(&pid).copied().unwrap_or(young_until_ns));
        self.alive = pids.into_iter().map(until).collect();
        let is_young = |until_ns: &u64| *until_ns > now_ns;
        self.pending.retain(|pid| self.alive.get(pid).is_some_and(|until_ns| !is_young(until_ns)));
        if self.pending.is_empty() {
            let old = self.alive.iter().filter(|(_, until_ns)| !is_young(until_ns));
            self.pending.extend(old.map(|(pid, _)| *pid));
        }
        let young = self.alive.iter().filter(|(_, until_ns)| is_young(until_ns));
        young.for_each(|(pid, _)| self.pending.push_front(*pid));
        self.hidden.retain(|pid| self.alive.contains_key(pid));
        self.known.retain(|pid, _| self.alive.contains_key(pid));
        Ok(())
    }

    fn usage(&mut self, client: Client, now_ns: u64) -> Usage {
        let Client { pdev, id, device_bytes, host_bytes, engines } = client;
        let before = self.clients.get(&(pdev.clone(), id));
        let share = |kind: EngineKind| {
            let Some(now) = engines.iter().find(|engine| engine.kind == kind) else {
                return Reading::Unsupported;
            };
            let last = before
                .and_then(|seen| Some((seen.engines.iter().find(|last| last.kind == kind)?, seen.at_ns)));
            last.map_or(Reading::NotYet, |(last, at_ns)| busy_share(now, last, now_ns.saturating_sub(at_ns)))
        };
        let mut compute_pct = share(EngineKind::Graphics);
        if let Reading::Value(compute) = share(EngineKind::Compute) {
            compute_pct = Reading::Value(compute_pct.value().copied().unwrap_or(0).max(compute));
        }
        let has_used = |kind| engines.iter().any(|engine| engine.kind == kind && engine.busy > 0);
        let usage = Usage {
            device_bytes,
            host_bytes,
            compute_pct,
            encoder_pct: share(EngineKind::Encoder),
            decoder_pct: share(EngineKind::Decoder),
            is_graphics: has_used(EngineKind::Graphics),
            is_compute: has_used(EngineKind::Compute),
        };
        self.clients.insert((pdev, id), Seen { engines, at_ns: now_ns });
        usage
    }
}

/// Returns the busy share of an engine since the last reading, in % of all engines of its kind.
fn busy_share(now: &Engine, last: &Engine, elapsed_ns: u64) -> Reading<u64> {
    let total = match (now.total, last.total) {
        (Some(now), Some(last)) => now.checked_sub(last),
        (None, None) => Some(elapsed_ns),
        _ => None,
    };
    let (Some(busy), Some(total)) = (now.busy.checked_sub(last.busy), total.filter(|total| *total > 0))
    else {
        return Reading::NotYet;
    };
    let whole = u128::from(total) * u128::from(now.capacity);
    Reading::Value(u64::try_from(u128::from(busy) * 100 / whole).unwrap_or(u64::MAX).min(100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn open_file(root: &Path, pid: u32, client: u64) {
        let folder = root.join("proc").join(pid.to_string());
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::create_dir_all(folder.join("fdinfo")).unwrap();
        std::os::unix::fs::symlink("/dev/dri/renderD128", folder.join("fd/3")).unwrap();
        let text = format!("drm-pdev: 0000:03:00.0\ndrm-client-id: {client}\ndrm-memory-vram: 8 KiB\n");
        fs::write(folder.join("fdinfo/3"), text).unwrap();
    }

    #[test]
    fn all_of_many_processes_are_found_in_several_steps_and_young_ones_first() {
        let root = tempfile::tempdir().unwrap();
        let idle = |pid: u32| fs::create_dir_all(root.path().join(format!("proc/{pid}/fd"))).unwrap();
        let last = u32::try_from(FIRST_STEP).unwrap() + 1;
        (1..last).for_each(idle);
        open_file(root.path(), last, 1);
        let positions = HashMap::from([("0000:03:00.0".to_owned(), 0)]);
        let mut scanner = ClientScanner::new(root.path());
        let mut scan = |at_ns| {
            let usages = scanner.scan(at_ns, &positions).unwrap();
            usages.into_keys().map(|(_, pid)| pid).collect::<Vec<_>>()
        };
        assert_eq!(scan(0), [] as [u32; 0], "it is the last of the first pass");
        assert_eq!(scan(1), [last]);
        open_file(root.path(), 50_000, 3);
        idle(70_000);
        assert_eq!(scan(LISTING_INTERVAL_NS), [last, 50_000]);
        // One opens a GPU after its start, a child inherits the client of its parent, one process ends.
        open_file(root.path(), 70_000, 4);
        open_file(root.path(), 60_000, 3);
        fs::remove_dir_all(root.path().join(format!("proc/{last}"))).unwrap();
        assert_eq!(scan(2 * LISTING_INTERVAL_NS), [50_000, 70_000]);
    }

    #[test]
    fn a_share_is_of_the_elapsed_time_or_of_the_cycles_of_all_engines() {
        let time = |busy| Engine { kind: EngineKind::Graphics, busy, total: None, capacity: 1 };
        assert_eq!(busy_share(&time(900), &time(400), 1_000), Reading::Value(50));
        assert_eq!(busy_share(&time(9_000), &time(0), 1_000), Reading::Value(100));
        assert_eq!(busy_share(&time(0), &time(400), 1_000), Reading::NotYet);
        let cycles =
            |busy, total| Engine { kind: EngineKind::Compute, busy, total: Some(total), capacity: 4 };
        assert_eq!(busy_share(&cycles(u64::MAX, 200), &cycles(0, 100), 1), Reading::Value(100));
        assert_eq!(busy_share(&cycles(100, 200), &cycles(0, 100), 1), Reading::Value(25));
        assert_eq!(busy_share(&cycles(100, 100), &cycles(0, 100), 1), Reading::NotYet);
    }
}
