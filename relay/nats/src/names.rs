//! Names of the nodes and jobs of several clusters in one fleet; pure.

use super::jobs::RemoteJobs;
use super::message::ClusterName;
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of clusters that one relay views; further ones are ignored.
pub(crate) const MAX_CLUSTERS: usize = 16;
/// Maximum number of nodes, and of jobs, whose clusters are remembered beyond the current lists.
const MAX_KNOWN: usize = 200_000;
/// SLURM numbers the jobs of a cluster below this power of two; ids of a federation have the origin's number above it, from 1.
const NUMBER_BITS: u32 = 26;
/// The greatest number above the number of a job.
const MAX_TAG: u32 = 63;

/// Jobs and nodes of one cluster.
#[derive(Debug, Default)]
struct Part {
    now: RemoteJobs,
    /// The last list of jobs. It stays while there is no newer one: else its jobs would seem to have ended.
    jobs: Vec<Job>,
    /// Whether it has ever had a relay. Its jobs stay, and so does its name.
    is_found: bool,
}

/// Joins the jobs and nodes of clusters, which are counted from 0.
///
/// Names that one cluster has stay as they are. A node that several have becomes `NODE.CLUSTER`, and so do the labels of jobs whose number
/// several have, with those of all tasks. The number of a job stays in the cluster that listed it first, and has another tag above [`NUMBER_BITS`] in others.
#[derive(Debug, Default)]
pub(crate) struct Names {
    clusters: Vec<(ClusterName, Part)>,
    /// Whether further ones publish.
    is_full: bool,
    /// The clusters that have or had a node of this name.
    owners: HashMap<NodeName, BTreeSet<usize>>,
    /// Nodes by their names in the fleet.
    shown: HashMap<NodeName, (usize, NodeName)>,
    /// The clusters that list or listed a number, as a job or as what a job is a part of; the first one first.
    numbers: HashMap<JobId, Vec<usize>>,
}

impl Names {
    /// Adds a cluster; returns its number. `None` if it is known, or too many are.
    pub(crate) fn add(&mut self, cluster: &ClusterName) -> Option<usize> {
        let is_new = self.clusters.iter().all(|(known, _)| known != cluster);
        self.is_full |= is_new && self.clusters.len() >= MAX_CLUSTERS;
        (is_new && self.clusters.len() < MAX_CLUSTERS).then(|| {
            self.clusters.push((cluster.clone(), Part::default()));
            self.clusters.len() - 1
        })
    }

    /// Replaces what a cluster has.
    pub(crate) fn set(&mut self, cluster: usize, now: RemoteJobs) {
        let Some((_, part)) = self.clusters.get_mut(cluster) else { return };
        if let Some(Ok(jobs)) = &now.jobs {
            part.jobs.clone_from(jobs);
        }
        part.is_found |= matches!(now.jobs, Some(Ok(_))) || now.no_slurm || !now.hosts.is_empty();
        part.now = now;
        if self.owners.len().max(self.shown.len()).max(self.numbers.len()) > MAX_KNOWN {
            (self.owners, self.shown, self.numbers) = Default::default();
        }
        for (cluster, (_, Part { now, jobs, .. })) in self.clusters.iter().enumerate() {
            for node in now.hosts.iter().chain(jobs.iter().flat_map(|job| &job.nodes)) {
                self.owners.entry(node.clone()).or_default().insert(cluster);
            }
            for id in jobs.iter().flat_map(|job| [Some(job.id), job.part_of.map(parent)]).flatten() {
                let clusters = self.numbers.entry(id).or_default();
                if !clusters.contains(&cluster) {
                    clusters.push(cluster);
                }
            }
        }
    }

    /// The cluster of a node of the fleet, and its name there.
    pub(crate) fn find(&self, node: &NodeName) -> Option<&(usize, NodeName)> {
        self.shown.get(node)
    }

    /// The jobs and nodes of all clusters, by their names in the fleet.
    pub(crate) fn joined(&mut self) -> RemoteJobs {
        let clusters = std::mem::take(&mut self.clusters);
        let (mut jobs, mut hosts) = (BTreeMap::new(), BTreeSet::new());
        for (cluster, (name, part)) in clusters.iter().enumerate() {
            hosts.extend(part.now.hosts.iter().filter_map(|host| self.show(cluster, name, host)));
            for job in &part.jobs {
                let job = self.renamed(cluster, name, job);
                jobs.entry(job.id).or_insert(job);
            }
        }
        let failed: Vec<_> =
            clusters.iter().filter_map(|(_, part)| part.now.jobs.as_ref()?.as_ref().err().cloned()).collect();
        let is_listed = clusters.iter().any(|(_, part)| matches!(part.now.jobs, Some(Ok(_))));
        let no_slurm = !clusters.is_empty() && clusters.iter().all(|(_, part)| part.now.no_slurm);
        self.clusters = clusters;
        let notices = self.clusters.iter().flat_map(|(_, part)| part.now.notices.iter().cloned());
        let (jobs, notices) = match failed.first().cloned() {
            _ if is_listed => {
                (Some(Ok(jobs.into_values().collect())), failed.into_iter().chain(notices).collect())
            }
            Some(why) => (Some(Err(why)), notices.collect()),
            None => (None, notices.collect()),
        };
        let mut notices: Vec<Text> = notices;
        if self.is_full {
            let why = format!(
                "more than {MAX_CLUSTERS} clusters publish over NATS: name those to show by --cluster"
            );
            notices.push(why.into());
        }
        let found = self.clusters.iter().filter(|(_, part)| part.is_found);
        let mut clusters: Vec<_> = found.map(|(name, _)| Text::new(name.to_string())).collect();
        clusters.sort();
        RemoteJobs { jobs, hosts, no_slurm, notices, clusters }
    }

    /// The name of a node in the fleet; `None` if another node has it.
    fn show(&mut self, cluster: usize, name: &ClusterName, node: &NodeName) -> Option<NodeName> {
        let is_shared = self.owners.get(node).is_some_and(|owners| owners.len() > 1);
        let shown = if is_shared { NodeName::new(format!("{node}.{name}")).ok()? } else { node.clone() };
        let own = (cluster, node.clone());
        let is_own = *self.shown.entry(shown.clone()).or_insert_with(|| own.clone()) == own;
        is_own.then_some(shown)
    }

    fn renamed(&mut self, cluster: usize, name: &ClusterName, job: &Job) -> Job {
        let mut job = job.clone();
        let number = job.part_of.map_or(job.id, parent);
        if self.numbers.get(&number).is_some_and(|clusters| clusters.len() > 1) {
            job.label = Text::new(format!("{}.{name}", job.label));
        }
        job.id = self.job(cluster, job.id);
        if let Some(Parent::Array { job: parent, .. } | Parent::Het { job: parent, .. }) = &mut job.part_of {
            *parent = self.job(cluster, *parent);
        }
        job.nodes = job.nodes.iter().filter_map(|node| self.show(cluster, name, node)).collect();
        job.batch_host = job.batch_host.as_ref().and_then(|node| self.show(cluster, name, node));
        job.gpus.retain_mut(|gpus| match self.show(cluster, name, &gpus.node) {
            Some(node) => {
                gpus.node = node;
                true
            }
            None => false,
        });
        job
    }

    /// The number of a cluster's job in the fleet.
    fn job(&self, cluster: usize, job: JobId) -> JobId {
        let tag = MAX_TAG - u32::try_from(cluster).unwrap_or(0);
        match self.numbers.get(&job).and_then(|clusters| clusters.first()) {
            Some(first) if *first != cluster => JobId(job.0 ^ (tag << NUMBER_BITS)),
            _ => job,
        }
    }

    /// Replaces the numbers of jobs in a line of a node by those in the fleet.
    pub(crate) fn rename_jobs(&self, node: &NodeName, line: &mut ParsedLine) {
        let Some((cluster, _)) = self.shown.get(node).filter(|_| self.clusters.len() > 1) else { return };
        let rename = |job: &mut JobId| *job = self.job(*cluster, *job);
        match line {
            ProbeLine::Sample(sample) => {
                sample.jobs.iter_mut().flatten().for_each(|usage| rename(&mut usage.job));
            }
            ProbeLine::Processes(list) => {
                list.processes.iter_mut().filter_map(|one| one.facts.job.as_mut()).for_each(rename);
                list.job_devices.iter_mut().for_each(|devices| rename(&mut devices.job));
            }
            ProbeLine::Notes(notes) => notes.notes.iter_mut().for_each(|note| rename(&mut note.job)),
            ProbeLine::Hello(hello) => {
                hello.confinement.iter_mut().filter_map(|by| by.job.as_mut()).for_each(rename);
            }
            ProbeLine::ProcessReadings(_)
            | ProbeLine::Health(_)
            | ProbeLine::LinkRates(_)
            | ProbeLine::Heartbeat(_)
            | ProbeLine::Event(_)
            | ProbeLine::Response(_)
            | ProbeLine::Bye(_)
            | ProbeLine::Piece(_)
            | ProbeLine::Usage(_) => {}
        }
    }
}

fn parent(of: Parent) -> JobId {
    match of {
        Parent::Array { job, .. } | Parent::Het { job, .. } => job,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::job::JobState;
    use nodeglass_protocol::probe::delta::{JobUsageDelta, SampleDelta};

    fn listed(jobs: &[(u32, &str)]) -> RemoteJobs {
        let one = |(id, node): &(u32, &str)| {
            let nodes = vec![NodeName::new(*node).unwrap()];
            Job { nodes, ..Job::new(JobId(*id), "alice".into(), JobState::Running) }
        };
        RemoteJobs { jobs: Some(Ok(jobs.iter().map(one).collect())), ..RemoteJobs::default() }
    }

    fn names() -> Names {
        let mut names = Names::default();
        assert_eq!(names.add(&"alpha".parse().unwrap()), Some(0));
        assert_eq!(names.add(&"beta".parse().unwrap()), Some(1));
        assert_eq!(names.add(&"beta".parse().unwrap()), None, "known already");
        names
    }

    fn texts(joined: &RemoteJobs) -> Vec<String> {
        let jobs = joined.jobs.clone().unwrap().unwrap();
        jobs.iter().map(|job| format!("{} on {}", job.label, job.nodes[0])).collect()
    }

    fn usage(names: &Names, node: &str, job: u32) -> u32 {
        let usage = JobUsageDelta { job: JobId(job), now: Default::default() };
        let sample = SampleDelta { jobs: Some(vec![usage]), ..SampleDelta::default() };
        let mut line = ProbeLine::Sample(Box::new(sample));
        names.rename_jobs(&NodeName::new(node).unwrap(), &mut line);
        let ProbeLine::Sample(sample) = line else { unreachable!() };
        sample.jobs.unwrap()[0].job.0
    }

    #[test]
    fn names_are_qualified_only_where_they_collide() {
        let mut names = names();
        names.set(0, listed(&[(1, "n1"), (2, "n2")]));
        assert_eq!(texts(&names.joined()), ["1 on n1", "2 on n2"]);
        assert_eq!(names.joined().clusters, ["alpha".into()], "the other one has no relay yet");
        names.set(1, listed(&[(2, "n1"), (3, "n3")]));
        let joined = names.joined();
        assert_eq!(texts(&joined), ["1 on n1.alpha", "2.alpha on n2", "3 on n3", "2.beta on n1.beta"]);
        let ids: BTreeSet<_> = joined.jobs.unwrap().unwrap().iter().map(|job| job.id.0).collect();
        assert!(ids.is_superset(&[1, 2, 3].into()) && ids.len() == 4, "{ids:?}");
        let node = NodeName::new("n1.beta").unwrap();
        assert_eq!(names.find(&node), Some(&(1, NodeName::new("n1").unwrap())));
    }

    #[test]
    fn an_array_whose_number_another_cluster_has_is_qualified_with_all_its_tasks_for_good() {
        let mut names = names();
        let task = |id, task| Job {
            part_of: Some(Parent::Array { job: JobId(40), task: Some(task) }),
            label: Text::new(format!("40_{task}")),
            ..Job::new(JobId(id), "alice".into(), JobState::Pending)
        };
        let listed = |jobs| RemoteJobs { jobs: Some(Ok(jobs)), ..RemoteJobs::default() };
        let labels = |names: &mut Names| {
            let jobs = names.joined().jobs.unwrap().unwrap();
            jobs.iter().map(|job| job.label.to_string()).collect::<Vec<_>>()
        };
        names.set(0, listed(vec![task(41, 1), task(42, 2)]));
        assert_eq!(labels(&mut names), ["40_1", "40_2"]);
        names.set(1, listed(vec![task(50, 1)]));
        assert_eq!(labels(&mut names), ["40_1.alpha", "40_2.alpha", "40_1.beta"]);
        names.set(1, listed(Vec::new()));
        assert_eq!(
            labels(&mut names),
            ["40_1.alpha", "40_2.alpha"],
            "or else a command would not find it any more"
        );
    }

    #[test]
    fn lines_name_the_jobs_of_their_own_cluster() {
        let mut names = names();
        names.set(0, listed(&[(1, "n1")]));
        names.set(1, listed(&[(1, "n1"), (2, "n2")]));
        let jobs = names.joined().jobs.unwrap().unwrap();
        let of_beta = jobs.iter().find(|job| job.label.as_str() == "1.beta").unwrap();
        assert_eq!(usage(&names, "n1.alpha", 1), 1);
        assert_eq!(usage(&names, "n1.beta", 1), of_beta.id.0);
        assert_eq!(usage(&names, "n2", 2), 2);
        // A job that only the other cluster lists, as that of another user.
        assert_ne!(usage(&names, "n1.alpha", 2), 2);
    }

    #[test]
    fn jobs_of_a_cluster_stay_while_its_list_is_missing() {
        let mut names = names();
        names.set(0, listed(&[(1, "n1")]));
        names.set(1, listed(&[(2, "n2")]));
        let failed = RemoteJobs { jobs: Some(Err("no list".into())), ..RemoteJobs::default() };
        names.set(1, failed.clone());
        let joined = names.joined();
        assert_eq!(texts(&joined), ["1 on n1", "2 on n2"]);
        assert_eq!(joined.notices, ["no list".into()]);
        assert_eq!(joined.clusters, ["alpha".into(), "beta".into()]);
        names.set(0, failed);
        assert_eq!(names.joined().jobs, Some(Err("no list".into())));
    }

    #[test]
    fn ambiguous_names_are_shown_once() {
        let mut names = names();
        names.set(0, listed(&[(1, "n1.beta"), (2, "n1")]));
        names.set(1, listed(&[(3, "n1")]));
        let jobs = names.joined().jobs.unwrap().unwrap();
        let nodes: Vec<_> = jobs.iter().flat_map(|job| job.nodes.iter().map(NodeName::as_str)).collect();
        assert_eq!(nodes, ["n1.beta", "n1.alpha"]);
        assert_eq!(names.find(&NodeName::new("n1.beta").unwrap()).unwrap().0, 0);
    }

    #[test]
    fn no_more_clusters_are_viewed_than_can_be_numbered() {
        let mut names = Names::default();
        let added = (0..100).filter_map(|number| names.add(&format!("c{number}").parse().unwrap()));
        assert_eq!(added.count(), MAX_CLUSTERS);
        let notices = names.joined().notices;
        assert!(notices[0].as_str().contains("by --cluster"), "{notices:?}");
    }
}
