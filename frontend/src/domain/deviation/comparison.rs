//! Sorts the GPUs of a picture into groups of peers, and keeps their comparison up to date.

use super::peers::{Deviation, PeerGroup, StepDeviation};
use crate::chart::{Point, Window};
use crate::domain::metric::Metric;
use crate::domain::ownership;
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::{GpuUuid, JobId, Picture};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The comparison of all GPUs of a picture, each with those of the same job and model.
#[derive(Default)]
pub struct Comparison {
    window: Option<Window>,
    groups: Vec<Group>,
    /// Group and position in it of each GPU of each node.
    places: Vec<Vec<Option<(usize, usize)>>>,
    revision: u64,
    was_read: bool,
}

struct Group {
    job: JobId,
    model: String,
    /// Node and GPU of each member.
    members: Vec<(usize, usize)>,
    peers: PeerGroup,
}

impl Comparison {
    /// Updates the comparison to the last complete step, at most once a step. `only` is the job whose
    /// picture it is; without one, only GPUs whose owner is known are compared. `history_revision`
    /// grows when the history of a node, given by its position, is replaced.
    pub fn update(
        &mut self,
        picture: &Picture,
        only: Option<JobId>,
        history_revision: &dyn Fn(usize) -> u64,
    ) {
        let window = Window::ten_minutes(picture.at_ms);
        self.was_read = false;
        if self.window == Some(window) {
            return;
        }
        self.window = Some(window);
        self.regroup(picture, only);
        for group in &mut self.groups {
            let mut stamp = DefaultHasher::new();
            for (node, gpu) in &group.members {
                history_revision(*node).hash(&mut stamp);
                picture.nodes[*node].gpus[*gpu].facts.uuid.hash(&mut stamp);
            }
            let members = &group.members;
            let is_over = members.iter().all(|(node, _)| picture.nodes[*node].head.link == Link::Ended);
            let read = |member: usize, metric: Metric, first: usize| {
                let (node, gpu) = members[member];
                let history = picture.nodes[node].history.as_ref();
                let trace = history.zip(metric.field()).and_then(|(history, field)| history.gpu(gpu, field));
                trace
                    .map_or_else(Vec::new, |trace| window.points(trace, first, |steps| metric.measure(steps)))
            };
            let nodes: Vec<usize> = members.iter().map(|(node, _)| *node).collect();
            group.peers.advance(window, stamp.finish(), &nodes, is_over, read);
        }
        self.revision += 1;
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

    /// Returns how far a GPU is from its peers over the last minute of work; `None` if it is not compared.
    pub fn deviation(&self, node: usize, gpu: usize) -> Option<&Deviation> {
        let (peers, member) = self.place(node, gpu)?;
        peers.deviation(member)
    }

    /// Returns how far a GPU was from its peers at a moment.
    pub fn at(&self, node: usize, gpu: usize, at_ms: u64) -> StepDeviation {
        self.place(node, gpu).map_or(StepDeviation::NotCompared, |(peers, member)| peers.at(member, at_ms))
    }

    /// Returns a GPU's deviations in %, without sign, on the grid of a window, from a step on.
    pub fn points(&self, node: usize, gpu: usize, window: &Window, first: usize) -> Vec<Point> {
        match self.place(node, gpu) {
            Some((peers, member)) => peers.points(member, window, first),
            None => vec![Point::Unsupported; window.steps().saturating_sub(first)],
        }
    }

    /// Returns whether a GPU has enough peers to be compared with.
    pub fn has_peers(&self, node: usize, gpu: usize) -> bool {
        self.place(node, gpu).is_some()
    }

    fn place(&self, node: usize, gpu: usize) -> Option<(&PeerGroup, usize)> {
        let (group, member) = (*self.places.get(node)?.get(gpu)?)?;
        Some((&self.groups[group].peers, member))
    }

    /// Assigns the GPUs to groups, keeping the state of known groups.
    fn regroup(&mut self, picture: &Picture, only: Option<JobId>) {
        let mut old = std::mem::take(&mut self.groups);
        for (node_at, node) in picture.nodes.iter().enumerate() {
            for (gpu_at, gpu) in node.gpus.iter().enumerate() {
                let Some(job) = owner(node, gpu, only) else { continue };
                let model = gpu.facts.name.value().map_or("", |name| name.as_str());
                let is_same = |group: &Group| group.job == job && group.model == model;
                // Mostly that of the GPU before.
                let at = self.groups.iter().rposition(is_same).unwrap_or_else(|| {
                    let known = old.iter().position(is_same).map(|at| old.swap_remove(at).peers);
                    let peers = known.unwrap_or_default();
                    self.groups.push(Group { job, model: model.to_owned(), members: Vec::new(), peers });
                    self.groups.len() - 1
                });
                self.groups[at].members.push((node_at, gpu_at));
            }
        }
        self.groups.retain(|group| group.members.len() >= super::MIN_PEERS);
        self.places = picture.nodes.iter().map(|node| vec![None; node.gpus.len()]).collect();
        for (at, group) in self.groups.iter().enumerate() {
            for (member, (node, gpu)) in group.members.iter().enumerate() {
                self.places[*node][*gpu] = Some((at, member));
            }
        }
    }
}

/// Returns the job whose GPUs a GPU is compared with. A GPU that several jobs share, a MIG instance
/// and a GPU that is divided into instances have no peers: what they do is not one job's.
fn owner(node: &NodePicture, gpu: &GpuPicture, only: Option<JobId>) -> Option<JobId> {
    let is_parent_of = |part: &GpuPicture, uuid: &GpuUuid| part.facts.mig_parent.as_ref() == Some(uuid);
    let is_divided = gpu.facts.mig.is_some()
        || gpu.facts.mig_parent.is_some()
        || node.gpus.iter().any(|part| is_parent_of(part, &gpu.facts.uuid));
    if is_divided {
        return None;
    }
    match (gpu.owners.as_slice(), only) {
        ([], Some(job)) => Some(job).filter(|_| ownership::belongs_to_job(node, gpu, only)),
        ([owner], _) => Some(owner.job),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::history::History;
    use nodeglass_protocol::picture::{Evidence, Owner};
    use nodeglass_protocol::{Cell, GpuField, NodeName, Reading, Row};

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

    fn is_outlier(comparison: &Comparison, node: usize, gpu: usize) -> bool {
        comparison.deviation(node, gpu).is_some_and(|deviation| deviation.outlier.is_some())
    }

    #[test]
    fn gpus_of_one_job_are_compared_across_nodes() {
        let half = |name: &str, clocks: &[u32]| {
            let gpus = ["A", "B"].map(|gpu_name| gpu(&format!("{name}{gpu_name}"), &[7])).to_vec();
            node(name, gpus, clocks)
        };
        let comparison = comparison(vec![half("n1", &[1_980, 1_980]), half("n2", &[1_980, 1_095])], None);
        assert!(is_outlier(&comparison, 1, 1) && !is_outlier(&comparison, 0, 0));
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
            (compared, (0..8).filter(|gpu| is_outlier(&comparison, 0, *gpu)).count())
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
        assert!(is_outlier(&comparison, 0, 2));
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
        assert!(!is_outlier(&comparison, 0, 3));
        comparison.invalidate();
        comparison.update(&slow, None, &|_| 1);
        assert!(is_outlier(&comparison, 0, 3));
        assert_eq!(comparison.revision(), 2);
    }
}
