//! Deviations of each GPU of a picture from its peers, and the GPUs that the relay found to be slow or unused.
//!
//! The rules are shared with the relay, [`nodeglass_rules::peers`]; its conclusions are in its findings. The page
//! concludes nothing itself: it lacks the settings, the processes of other nodes and the time before the last ten
//! minutes.

use crate::chart::{Point, Window, WindowCache};
use crate::domain::metric::GraphMetric;
use crate::domain::ownership;
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::{Field as _, GpuField, JobId, Picture};
pub use nodeglass_rules::limits::MIN_PEERS;
use nodeglass_rules::peers;
pub use nodeglass_rules::peers::{Deviation, StepDeviation};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The comparison of all GPUs of a picture, each with the GPUs of the same job and model.
#[derive(Default)]
pub struct Comparison {
    window: Option<Window>,
    groups: Vec<Group>,
    /// Group and position in it of each GPU of each node.
    places: Vec<Vec<Option<(usize, usize)>>>,
    /// By node and GPU.
    outliers: BTreeMap<(usize, usize), Outlier>,
    revision: u64,
    was_read: bool,
}

/// A GPU that is slow or unused while its peers work, as the relay found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// The metric whose graph shows it.
    pub metric: GraphMetric,
    /// The problem and its place: `Rank 35 (gpu-h05 GPU 3) runs 45 % slower than its peers: thermal slowdown`.
    pub title: String,
    /// In a few words: `SM clock −45 %`.
    pub label: String,
}

struct Group {
    job: JobId,
    model: String,
    /// Node and GPU of each member.
    members: Vec<(usize, usize)>,
    cache: WindowCache,
    window: Option<Window>,
    peers: peers::Group,
    deviations: Vec<Option<Deviation>>,
}

impl Comparison {
    /// Updates the outliers, and the comparison to the last complete step, at most once a step. `only` is the job whose
    /// picture it is; without one, only GPUs whose owner is known are compared. `history_revision`
    /// grows when the history of a node, given by its position, is replaced.
    pub fn update(
        &mut self,
        picture: &Picture,
        only: Option<JobId>,
        history_revision: &dyn Fn(usize) -> u64,
    ) {
        let window = ten_minutes(picture.at_ms);
        self.was_read = false;
        let is_new = self.window != Some(window);
        if is_new {
            self.window = Some(window);
            self.regroup(picture, only);
            self.groups.iter_mut().for_each(|group| group.advance(picture, history_revision));
        }
        let outliers = self.outliers_of(picture, only);
        if is_new || self.outliers != outliers {
            self.outliers = outliers;
            self.revision += 1;
        }
    }

    /// Returns whether it may be read: it was computed, and no GPU or history has been replaced since.
    pub fn is_valid(&self) -> bool {
        self.window.is_some()
    }

    /// Requires an update before it is read again: positions or histories have changed.
    pub fn invalidate(&mut self) {
        self.window = None;
    }

    /// Records that a view read it.
    pub fn note_read(&mut self) {
        self.was_read = true;
    }

    /// Returns whether any view has read it since the last update.
    pub fn was_read(&self) -> bool {
        self.was_read
    }

    /// Returns a number that changes with every update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns how far a GPU is from its peers over the last two minutes; `None` if it is not compared.
    pub fn deviation(&self, node: usize, gpu: usize) -> Option<&Deviation> {
        let (group, member) = self.place(node, gpu)?;
        group.deviations.get(member)?.as_ref()
    }

    /// Returns in what a GPU stands out, if it does.
    pub fn outlier(&self, node: usize, gpu: usize) -> Option<&Outlier> {
        self.outliers.get(&(node, gpu))
    }

    /// Returns how far a GPU was from its peers at a moment.
    pub fn at(&self, node: usize, gpu: usize, at_ms: u64) -> StepDeviation {
        let Some((group, member)) = self.place(node, gpu) else { return StepDeviation::NotCompared };
        let step = group.window.and_then(|window| window.step_at(at_ms));
        step.map_or(StepDeviation::NoData, |step| group.peers.in_step(member, step))
    }

    /// Returns a GPU's deviations in %, without sign, on the grid of a window, from a step on.
    pub fn points(&self, node: usize, gpu: usize, window: &Window, first: usize) -> Vec<Point> {
        match self.place(node, gpu) {
            Some((group, member)) => group.points(member, window, first),
            None => vec![Point::Unsupported; window.steps().saturating_sub(first)],
        }
    }

    /// Returns whether a GPU has enough peers to be compared with.
    pub fn has_peers(&self, node: usize, gpu: usize) -> bool {
        self.place(node, gpu).is_some()
    }

    fn place(&self, node: usize, gpu: usize) -> Option<(&Group, usize)> {
        let (group, member) = (*self.places.get(node)?.get(gpu)?)?;
        Some((&self.groups[group], member))
    }

    /// Assigns the GPUs to groups, keeping the state of known groups.
    fn regroup(&mut self, picture: &Picture, only: Option<JobId>) {
        let mut old = std::mem::take(&mut self.groups);
        old.iter_mut().for_each(|group| group.members.clear());
        for (node_at, node) in picture.nodes.iter().enumerate() {
            for (gpu_at, gpu) in node.gpus.iter().enumerate() {
                let Some(job) = owner(node, gpu, only) else { continue };
                let model = gpu.facts.name.value().map_or("", |name| name.as_str());
                let is_same = |group: &Group| group.job == job && group.model == model;
                // Mostly the same as for the GPU before.
                let at = self.groups.iter().rposition(is_same).unwrap_or_else(|| {
                    let known = old.iter().position(is_same).map(|at| old.swap_remove(at));
                    let new = || Group::new(job, model);
                    self.groups.push(known.unwrap_or_else(new));
                    self.groups.len() - 1
                });
                self.groups[at].members.push((node_at, gpu_at));
            }
        }
        self.groups.retain(|group| group.members.len() >= MIN_PEERS);
        self.places = picture.nodes.iter().map(|node| vec![None; node.gpus.len()]).collect();
        for (at, group) in self.groups.iter().enumerate() {
            for (member, (node, gpu)) in group.members.iter().enumerate() {
                self.places[*node][*gpu] = Some((at, member));
            }
        }
    }

    fn outliers_of(&self, picture: &Picture, only: Option<JobId>) -> BTreeMap<(usize, usize), Outlier> {
        let mut outliers = BTreeMap::new();
        for finding in picture.findings.iter().filter(|finding| is_of_outliers(finding, picture, only)) {
            for found in &finding.gpus {
                let Some(node) = picture.nodes.iter().position(|node| node.name == found.node) else {
                    continue;
                };
                let gpus = &picture.nodes[node].gpus;
                let Some(gpu) = gpus.iter().position(|gpu| gpu.facts.uuid == found.uuid) else { continue };
                let metric = found.metric.as_ref().and_then(|name| GraphMetric::from_name(name.as_str()));
                let metric = metric.unwrap_or_default();
                let away = self.place(node, gpu).zip(metric.field());
                let away = away.and_then(|((group, member), field)| group.deviation(member, field));
                let label = away.map_or_else(|| finding.reason.to_string(), |away| away.label());
                let title = finding.title.to_string();
                // The first is the most important one.
                outliers.entry((node, gpu)).or_insert(Outlier { metric, title, label });
            }
        }
        outliers
    }
}

impl Group {
    fn new(job: JobId, model: &str) -> Self {
        Self {
            job,
            model: model.to_owned(),
            members: Vec::new(),
            cache: WindowCache::default(),
            window: None,
            peers: peers::Group::default(),
            deviations: Vec::new(),
        }
    }

    /// Compares the newest steps. Of a job that has ended, those before its end are the newest.
    fn advance(&mut self, picture: &Picture, history_revision: &dyn Fn(usize) -> u64) {
        let nodes = || self.members.iter().map(|(node, _)| &picture.nodes[*node]);
        let is_over = nodes().all(|node| node.head.link == Link::Ended);
        let ended_ms = nodes().filter_map(|node| node.sampled_at_ms).max().filter(|_| is_over);
        let window = ten_minutes(ended_ms.unwrap_or(picture.at_ms));
        let mut stamp = DefaultHasher::new();
        for (node, gpu) in &self.members {
            history_revision(*node).hash(&mut stamp);
            picture.nodes[*node].gpus[*gpu].facts.uuid.hash(&mut stamp);
        }
        let Some((gone, first)) = self.cache.advance(window, stamp.finish()) else { return };
        self.window = Some(window);
        let row = |(node, gpu): &(usize, usize)| means(&picture.nodes[*node], *gpu, &window, first);
        self.peers.advance(gone, first, self.members.iter().map(row).collect());
        self.deviations = self.peers.deviations();
    }

    /// Returns how far a GPU is from the others in one reading.
    fn deviation(&self, member: usize, field: GpuField) -> Option<Deviation> {
        let percent = self.peers.away(member, field)?.percent.round() as i32;
        Some(Deviation { field, percent })
    }

    /// Returns a GPU's deviations in % on the grid of another window, from a step on.
    fn points(&self, member: usize, other: &Window, first: usize) -> Vec<Point> {
        // Several steps of the other window may lie within one of its own.
        let mut before = (usize::MAX, Point::Gap);
        let mut point = |step: usize| {
            let at_ms = other.at_ms(step) + other.step_ms() / 2;
            let own = self.window.filter(|_| at_ms >= other.shown_from_ms())?;
            // The newest step is not complete before ten seconds have passed.
            let newest = at_ms >= own.end_ms() && at_ms < own.end_ms() + 2 * own.step_ms();
            let step = if newest { own.steps() - 1 } else { own.step_at(at_ms)? };
            if before.0 != step {
                let point = match self.peers.in_step(member, step) {
                    StepDeviation::NoData => Point::Gap,
                    StepDeviation::NotCompared => Point::Unsupported,
                    StepDeviation::Value(away) => Point::Value(away.percent.unsigned_abs() as f32),
                };
                before = (step, point);
            }
            Some(before.1)
        };
        (first..other.steps()).map(|step| point(step).unwrap_or_default()).collect()
    }
}

fn ten_minutes(end_ms: u64) -> Window {
    Window::over(end_ms, peers::STEPS as u64 * peers::STEP_MS, peers::STEPS)
}

/// Returns the means of a GPU in each step of a window from `first` on.
fn means(node: &NodePicture, gpu: usize, window: &Window, first: usize) -> Vec<peers::Means> {
    let mut means = vec![peers::UNKNOWN; window.steps().saturating_sub(first)];
    for (slot, field) in peers::FIELDS.iter().enumerate() {
        let trace = node.history.as_ref().and_then(|history| history.gpu(gpu, *field));
        let value = |steps: u32| field.scale().value(u64::from(steps)) as f32;
        let points = trace.map_or_else(Vec::new, |trace| window.points(trace, first, value));
        for (means, point) in means.iter_mut().zip(points) {
            means[slot] = point.value().unwrap_or(f32::NAN);
        }
    }
    means
}

/// Returns whether a finding is about GPUs that stand out from others of their job: they are slow, or unused while
/// others work. For an ended job, findings of its last hour count.
fn is_of_outliers(finding: &Finding, picture: &Picture, only: Option<JobId>) -> bool {
    let is_of = |job: Option<JobId>| job.is_some_and(|job| finding.jobs.contains(&job));
    let owned = || {
        picture
            .nodes
            .iter()
            .flat_map(|node| node.gpus.iter().filter(move |gpu| is_of(owner(node, gpu, only))))
    };
    let is_over = || {
        let mut nodes = picture.nodes.iter().filter(|node| finding.nodes.contains(&node.name)).peekable();
        nodes.peek().is_some() && nodes.all(|node| node.head.link == Link::Ended)
    };
    let is_kind = match finding.kind {
        FindingKind::Straggler => true,
        FindingKind::UnusedGpus => finding.gpus.len() < owned().count(),
        _ => false,
    };
    is_kind && (finding.is_active() || is_over())
}

/// Returns the job whose GPUs a GPU is compared with: what a GPU does that several jobs share is not one job's.
fn owner(node: &NodePicture, gpu: &GpuPicture, only: Option<JobId>) -> Option<JobId> {
    match (gpu.owners.as_slice(), only) {
        _ if !ownership::is_whole(node, gpu) => None,
        ([], Some(job)) => Some(job).filter(|_| ownership::belongs_to_job(node, gpu, only)),
        ([owner], _) => Some(owner.job),
        _ => None,
    }
}

#[cfg(test)]
pub mod fleets;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::tests::finding;
    use nodeglass_protocol::finding::FindingGpu;
    use nodeglass_protocol::history::History;
    use nodeglass_protocol::picture::{Evidence, Owner};
    use nodeglass_protocol::{Cell, GpuUuid, NodeName, Reading, Row};

    const JOB: JobId = JobId(7);
    const END_MS: u64 = 903_000;

    fn gpu(uuid: &str, owners: &[u32]) -> GpuPicture {
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new(uuid);
        gpu.facts.name = Reading::Value("H100".into());
        let owner = |job: &u32| Owner { job: JobId(*job), by: Evidence::GresIndex };
        gpu.owners = owners.iter().map(owner).collect();
        gpu
    }

    /// A node whose GPUs run at these clocks, in MHz, for two minutes.
    fn node(name: &str, gpus: Vec<GpuPicture>, clocks: &[u32]) -> NodePicture {
        let mut node = NodePicture { gpus, ..NodePicture::new(NodeName::new(name).unwrap()) };
        let row = |clock: &u32| {
            let mut row = Row::default();
            row.set(GpuField::SmClock, Cell::steps(clock / 15));
            row.set(GpuField::Util, Cell::steps(99));
            row
        };
        let rows: Vec<Row<GpuField>> = clocks.iter().map(row).collect();
        let mut history = History::default();
        for at_ms in (END_MS - 120_000..END_MS).step_by(1_000) {
            history.push(at_ms, rows.iter(), &Row::default(), 0);
        }
        node.history = Some(history);
        node
    }

    fn comparison(nodes: Vec<NodePicture>, only: Option<JobId>) -> Comparison {
        let picture = Picture { at_ms: END_MS, nodes, ..Picture::default() };
        let mut comparison = Comparison::default();
        comparison.update(&picture, only, &|_| 0);
        comparison
    }

    fn deviates(comparison: &Comparison, node: usize, gpu: usize) -> bool {
        comparison.deviation(node, gpu).is_some_and(|away| away.percent <= -40)
    }

    #[test]
    fn gpus_of_one_job_are_compared_across_nodes() {
        let half = |name: &str, clocks: &[u32]| {
            let gpus = ["A", "B"].map(|gpu_name| gpu(&format!("{name}{gpu_name}"), &[7])).to_vec();
            node(name, gpus, clocks)
        };
        let comparison = comparison(vec![half("n1", &[1_980, 1_980]), half("n2", &[1_980, 1_095])], None);
        assert!(deviates(&comparison, 1, 1) && !deviates(&comparison, 0, 0));
    }

    #[test]
    fn gpus_of_different_jobs_or_models_are_not_compared() {
        let names = ["A", "B", "C", "D", "E", "F", "G", "H"];
        let mixed = |owners: &dyn Fn(usize) -> Vec<u32>, is_other_model: &dyn Fn(usize) -> bool| {
            let mut gpus: Vec<GpuPicture> =
                names.iter().enumerate().map(|(at, name)| gpu(name, &owners(at))).collect();
            for (_, gpu) in gpus.iter_mut().enumerate().filter(|(at, _)| is_other_model(*at)) {
                gpu.facts.name = Reading::Value("A100".into());
            }
            let clocks = [1_980, 1_980, 1_980, 1_980, 1_095, 1_095, 1_095, 1_095];
            let comparison = comparison(vec![node("n1", gpus, &clocks)], None);
            let compared = (0..8).filter(|gpu| comparison.has_peers(0, *gpu)).count();
            (compared, (0..8).filter(|gpu| deviates(&comparison, 0, *gpu)).count())
        };
        assert_eq!(mixed(&|at| vec![[7, 8][at / 4]], &|_| false), (8, 0), "two jobs");
        assert_eq!(mixed(&|_| vec![7], &|at| at >= 4), (8, 0), "two models");
        assert_eq!(mixed(&|_| vec![], &|_| false), (0, 0), "owner not known");
        assert_eq!(mixed(&|at| if at == 4 { vec![7, 8] } else { vec![7] }, &|_| false).0, 7, "shared");
        // Job 8 has 3 GPUs.
        assert_eq!(mixed(&|at| vec![if at > 4 { 8 } else { 7 }], &|_| false), (5, 1), "too few");
    }

    #[test]
    fn the_gpus_of_a_jobs_picture_count_as_its_own_unless_others_are_known() {
        let gpus = ["A", "B", "C", "D"].map(|name| gpu(name, &[])).to_vec();
        let comparison = comparison(vec![node("n1", gpus, &[1_980, 1_980, 1_095, 1_980])], Some(JOB));
        assert!(deviates(&comparison, 0, 2));
    }

    #[test]
    fn mig_instances_and_their_gpus_are_not_compared() {
        let mut gpus: Vec<GpuPicture> = ["A", "M1", "M2", "M3", "M4"].map(|name| gpu(name, &[7])).to_vec();
        for part in &mut gpus[1..] {
            part.facts.mig_parent = Some(GpuUuid::new("A"));
        }
        let comparison = comparison(vec![node("n1", gpus, &[1_980, 1_980, 1_980, 1_980, 1_095])], Some(JOB));
        assert!((0..5).all(|gpu| !comparison.has_peers(0, gpu)));
    }

    #[test]
    fn an_update_within_a_step_changes_nothing_unless_invalidated() {
        let gpus = || ["A", "B", "C", "D"].map(|name| gpu(name, &[7])).to_vec();
        let picture = |clocks: &[u32]| {
            let nodes = vec![node("n1", gpus(), clocks)];
            Picture { at_ms: END_MS, nodes, ..Picture::default() }
        };
        let mut comparison = Comparison::default();
        comparison.update(&picture(&[1_980; 4]), None, &|_| 0);
        let slow = picture(&[1_980, 1_980, 1_980, 1_095]);
        comparison.update(&slow, None, &|_| 1);
        assert!(!deviates(&comparison, 0, 3));
        comparison.invalidate();
        comparison.update(&slow, None, &|_| 1);
        assert!(deviates(&comparison, 0, 3));
        assert_eq!(comparison.revision(), 2);
    }

    #[test]
    fn the_gpus_of_the_relays_findings_are_the_outliers() {
        let gpus = || ["A", "B", "C", "D"].map(|name| gpu(name, &[7])).to_vec();
        let slow = |uuids: &[&str], kind: FindingKind| {
            let name = NodeName::new("n1").unwrap();
            let of = |uuid: &&str| FindingGpu::new(&name, &GpuUuid::new(*uuid), Some(GpuField::SmClock));
            let gpus = uuids.iter().map(of).collect();
            Finding { gpus, ended_ms: None, ..finding(kind, 7, "n1") }
        };
        let node = node("n1", gpus(), &[1_980, 1_980, 1_095, 1_980]);
        let mut picture = Picture { at_ms: END_MS, nodes: vec![node], ..Picture::default() };
        let mut comparison = Comparison::default();
        let mut outliers = |picture: &Picture| -> Vec<(usize, String)> {
            comparison.update(picture, None, &|_| 0);
            (0..4).filter_map(|gpu| Some((gpu, comparison.outlier(0, gpu)?.label.clone()))).collect()
        };
        assert_eq!(outliers(&picture), [], "the page concludes nothing");
        picture.findings = vec![slow(&["C"], FindingKind::Straggler)];
        let marked = [(2, "SM clock −45 %".to_owned())];
        assert_eq!(outliers(&picture), marked, "within the same step");
        picture.findings[0].ended_ms = Some(1);
        assert_eq!(outliers(&picture), []);
        picture.nodes[0].head.link = Link::Ended;
        assert_eq!(outliers(&picture), marked, "those of a job that has ended stay");
        picture.findings = vec![slow(&["C"], FindingKind::UnusedGpus)];
        assert_eq!(outliers(&picture), marked);
        picture.findings =
            vec![slow(&["A", "B", "C", "D"], FindingKind::UnusedGpus), slow(&["A"], FindingKind::Xid)];
        assert_eq!(outliers(&picture), [], "all are unused, or something else is wrong");
    }
}
