//! Merges the sources of a node into one list of GPUs, also if some of them do not respond.

use super::{Absent, GpuProcessList, Inventory};
use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuPath, GpuSample, ProcessKind, SourceState};
use nodeglass_protocol::{GpuUuid, Reading, Text, Vendor};
use std::sync::Arc;

/// The state of each source of a node, in a fixed order. GPUs are listed source by source.
#[derive(Debug)]
pub struct MultiSource {
    parts: Vec<Part>,
}

/// One source.
#[derive(Debug)]
struct Part {
    vendor: Vendor,
    phase: Phase,
    health: Vec<GpuHealth>,
}

/// Progress of a source.
#[derive(Debug)]
enum Phase {
    /// No report yet.
    Opening,
    /// Available.
    Ready(Inventory),
    /// Unavailable, with the reason; without a reason the node has no such hardware.
    Absent(Absent),
}

impl Part {
    fn inventory(&self) -> Option<&Inventory> {
        match &self.phase {
            Phase::Ready(inventory) => Some(inventory),
            Phase::Opening | Phase::Absent(_) => None,
        }
    }

    fn gpus(&self) -> &[GpuFacts] {
        self.inventory().map_or(&[], |inventory| &inventory.gpus)
    }
}

impl MultiSource {
    /// Creates the state of sources that have not reported yet.
    pub fn new(vendors: impl IntoIterator<Item = Vendor>) -> Self {
        let part = |vendor| Part { vendor, phase: Phase::Opening, health: Vec::new() };
        Self { parts: vendors.into_iter().map(part).collect() }
    }

    /// Number of sources.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether there are no sources.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Vendor of a source.
    pub fn vendor(&self, source: usize) -> Vendor {
        self.parts[source].vendor
    }

    /// Records the inventory of a source.
    pub fn set_ready(&mut self, source: usize, inventory: Inventory) {
        let part = &mut self.parts[source];
        (part.phase, part.health) = (Phase::Ready(inventory), Vec::new());
    }

    /// Records that a source is unavailable; returns whether that or the reason is new.
    pub fn set_absent(&mut self, source: usize, absent: Absent) -> bool {
        let part = &mut self.parts[source];
        let changed = !matches!(&part.phase, Phase::Absent(known) if *known == absent);
        (part.phase, part.health) = (Phase::Absent(absent), Vec::new());
        changed
    }

    /// Returns whether a source is available.
    pub fn is_ready(&self, source: usize) -> bool {
        self.parts[source].inventory().is_some()
    }

    /// Returns whether a source has reported a driver on this node.
    pub fn has_driver(&self, source: usize) -> bool {
        let part = &self.parts[source];
        let is_no_device = matches!(&part.phase, Phase::Absent(absent) if absent.is_no_device());
        part.vendor != Vendor::Unknown && !is_no_device
    }

    /// The available sources.
    pub fn ready(&self) -> impl Iterator<Item = usize> {
        (0..self.parts.len()).filter(|source| self.is_ready(*source))
    }

    /// The sources that have not reported yet.
    pub fn opening(&self) -> impl Iterator<Item = usize> {
        (0..self.parts.len()).filter(|source| matches!(self.parts[*source].phase, Phase::Opening))
    }

    /// The GPUs of a source; none while it is unavailable.
    pub fn gpus_of(&self, source: usize) -> &[GpuFacts] {
        self.parts[source].gpus()
    }

    /// The state of each source for which there is hardware. One that has not reported yet counts as
    /// unavailable.
    pub fn states(&self) -> Vec<SourceState> {
        let state = |part: &Part| match &part.phase {
            Phase::Opening => vec![SourceState::absent(part.vendor, not_opened(part.vendor))],
            Phase::Ready(inventory) => vec![SourceState::ready(part.vendor, inventory.versions.clone())],
            Phase::Absent(Absent { reason, confinement }) => {
                let confined = confinement.iter().map(|reason| SourceState::confined(reason.clone()));
                let absent = Some(reason).filter(|reason| !reason.is_empty());
                confined
                    .chain(absent.map(|reason| SourceState::absent(part.vendor, reason.clone())))
                    .collect()
            }
        };
        self.parts.iter().flat_map(state).collect()
    }

    /// All GPUs and MIG instances.
    ///
    /// Where several sources number their device files, only the first one's numbers are kept: SLURM
    /// counts the devices of a node in one sequence, which the numbers of one vendor do not show.
    pub fn gpus(&self) -> Vec<GpuFacts> {
        let is_numbered = |part: &&Part| part.gpus().iter().any(|gpu| gpu.minor.value().is_some());
        let numbered = self.parts.iter().find(is_numbered).map(|part| part.vendor);
        let mut gpus: Vec<_> = self.parts.iter().flat_map(|part| part.gpus().iter().cloned()).collect();
        for gpu in gpus.iter_mut().filter(|gpu| gpu.minor.value().is_some() && Some(gpu.vendor) != numbered) {
            gpu.minor = Reading::Unsupported;
        }
        gpus
    }

    /// UUIDs of all GPUs and MIG instances.
    pub fn uuids(&self) -> Vec<GpuUuid> {
        self.parts.iter().flat_map(|part| part.gpus().iter().map(|gpu| gpu.uuid.clone())).collect()
    }

    /// Connections between all GPUs; those between GPUs of two sources are unknown. Empty if no
    /// source knows any.
    pub fn topology(&self) -> Vec<Vec<GpuPath>> {
        let known: Vec<_> = self.parts.iter().filter_map(Part::inventory).collect();
        if known.iter().all(|inventory| inventory.topology.is_empty()) {
            return Vec::new();
        }
        let physical = |inventory: &Inventory| match inventory.topology.len() {
            0 => inventory.gpus.iter().filter(|gpu| gpu.mig_parent.is_none()).count(),
            count => count,
        };
        let total = known.iter().map(|inventory| physical(inventory)).sum();
        let mut rows = Vec::with_capacity(total);
        for inventory in known {
            let (first, count) = (rows.len(), physical(inventory));
            for row in 0..count {
                let mut paths = vec![GpuPath::Unknown; total];
                match inventory.topology.get(row) {
                    Some(own) => {
                        paths.iter_mut().skip(first).zip(own).for_each(|(path, own)| *path = *own);
                    }
                    None => paths[first + row] = GpuPath::Same,
                }
                rows.push(paths);
            }
        }
        rows
    }

    /// Records the health of a source's GPUs and returns the health of all GPUs.
    pub fn set_health(&mut self, source: usize, health: Vec<GpuHealth>) -> Vec<GpuHealth> {
        self.parts[source].health = health;
        let mut all = Vec::new();
        for part in &self.parts {
            let reports = part.health.iter().cloned().chain(std::iter::repeat_with(GpuHealth::default));
            all.extend(reports.take(part.gpus().len()));
        }
        all
    }

    /// Merges the readings of all GPUs. `part` returns the readings of a source; a source without any is represented
    /// by GPUs that are not read yet.
    pub fn merge_readings(&self, mut part: impl FnMut(usize) -> Vec<GpuSample>) -> Vec<GpuSample> {
        let mut all = Vec::new();
        for source in self.ready() {
            let count = self.gpus_of(source).len();
            all.extend(
                part(source).into_iter().chain(std::iter::repeat_with(GpuSample::default)).take(count),
            );
        }
        all
    }

    /// Merges the process lists of all available sources. `part` returns the list of a source, or the reason for a
    /// missing one; its processes are kept then and marked as incomplete.
    pub fn merge_processes(
        &self,
        mut part: impl FnMut(usize) -> Result<GpuProcessList, Text>,
    ) -> GpuProcessList {
        let mut lists: Vec<_> = self.ready().map(|source| (source, part(source))).collect();
        if let [(_, Ok(only))] = &mut *lists {
            return std::mem::take(only);
        }
        let mut merged = GpuProcessList { gpus: Arc::from(self.uuids()), ..GpuProcessList::default() };
        for (source, list) in lists {
            match list {
                Ok(list) => {
                    merged.mono_ns = merged.mono_ns.max(list.mono_ns);
                    merged.processes.extend(list.processes);
                    merged.unread.extend(list.unread);
                    merged.gaps.extend(list.gaps);
                }
                Err(why) => mark_unread(&mut merged, self.gpus_of(source), &why),
            }
        }
        merged
    }
}

/// Message about a source that has not reported yet.
fn not_opened(vendor: Vendor) -> String {
    format!("the {} driver has not responded yet", vendor.name())
}

/// Marks the lists of all these GPUs as unread.
fn mark_unread(list: &mut GpuProcessList, gpus: &[GpuFacts], why: &Text) {
    let kind = ProcessKind { compute: true, graphics: true, mps: true };
    for gpu in gpus.iter().filter(|gpu| gpu.mig_parent.is_none()) {
        let instances = gpus.iter().filter(|other| other.mig_parent.as_ref() == Some(&gpu.uuid));
        let uuids = std::iter::once(gpu).chain(instances).map(|gpu| gpu.uuid.clone());
        list.unread(uuids.collect(), kind, why.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::GpuProcess;
    use nodeglass_protocol::probe::{ProcessGap, ProcessReadings, SourceVersions};

    fn gpu(vendor: Vendor, index: u32) -> GpuFacts {
        GpuFacts { vendor, ..GpuFacts::new(GpuUuid::new(format!("{}-{index}", vendor.name())), index) }
    }

    fn inventory(vendor: Vendor, count: u32, topology: Vec<Vec<GpuPath>>) -> Inventory {
        let gpus = (0..count).map(|index| gpu(vendor, index)).collect();
        Inventory { versions: SourceVersions::default(), gpus, topology }
    }

    fn both() -> MultiSource {
        let mut sources = MultiSource::new([Vendor::Nvidia, Vendor::Amd]);
        let linked = vec![vec![GpuPath::Same, GpuPath::System], vec![GpuPath::System, GpuPath::Same]];
        sources.set_ready(0, inventory(Vendor::Nvidia, 2, linked));
        sources.set_ready(1, inventory(Vendor::Amd, 1, Vec::new()));
        sources
    }

    fn list(mono_ns: u64, gpu: &str) -> GpuProcessList {
        let process = GpuProcess {
            gpu: GpuUuid::new(gpu),
            pid: 7,
            now: ProcessReadings::default(),
            kind: ProcessKind { compute: true, graphics: false, mps: false },
        };
        GpuProcessList { mono_ns, processes: vec![process], ..GpuProcessList::default() }
    }

    #[test]
    fn gpus_are_listed_source_by_source() {
        let mut sources = both();
        let names = |sources: &MultiSource| {
            sources.uuids().iter().map(|uuid| uuid.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&sources), ["NVIDIA-0", "NVIDIA-1", "AMD-0"]);
        assert!(sources.set_absent(0, Absent::new("gone")) && !sources.set_absent(0, Absent::new("gone")));
        assert_eq!(names(&sources), ["AMD-0"]);
        let reasons: Vec<_> = sources.states().iter().map(|state| state.absent_reason().cloned()).collect();
        assert_eq!(reasons, [Some("gone".into()), None]);
    }

    #[test]
    fn paths_between_gpus_of_two_sources_are_unknown() {
        let (same, far, unknown) = (GpuPath::Same, GpuPath::System, GpuPath::Unknown);
        assert_eq!(
            both().topology(),
            [vec![same, far, unknown], vec![far, same, unknown], vec![unknown, unknown, same]]
        );
    }

    #[test]
    fn readings_and_health_keep_the_order_of_the_gpus() {
        let mut sources = both();
        let fault = |word: &str| GpuSample { fault: Some(word.into()), ..GpuSample::default() };
        let merged = sources.merge_readings(|source| match source {
            0 => Vec::new(),
            _ => vec![fault("it hangs")],
        });
        assert_eq!(merged, [GpuSample::default(), GpuSample::default(), fault("it hangs")]);
        let health =
            sources.set_health(1, vec![GpuHealth { pcie_gen: Reading::Value(4), ..GpuHealth::default() }]);
        assert_eq!(
            health.iter().map(|health| health.pcie_gen.value().copied()).collect::<Vec<_>>(),
            [None, None, Some(4)]
        );
    }

    #[test]
    fn the_processes_of_a_source_that_hangs_are_incomplete_not_gone() {
        let sources = both();
        let merged = sources.merge_processes(|source| match source {
            0 => Err("it hangs".into()),
            _ => Ok(list(9, "AMD-0")),
        });
        assert_eq!((merged.mono_ns, merged.processes.len(), merged.gpus.len()), (9, 1, 3));
        let gaps: Vec<_> = merged.gaps.iter().map(|gap| (gap.gpu.as_str(), gap.gap.clone())).collect();
        let failed = ProcessGap::Failed("it hangs".into());
        assert_eq!(gaps, [("NVIDIA-0", failed.clone()), ("NVIDIA-1", failed)]);
        assert_eq!(merged.unread.len(), 2);
    }
}
