//! Lists of jobs: published by the relays that poll SLURM, joined by those that view.

use super::bounds::{ShownNodes, clamped, weight};
use super::connection::Bus;
use super::message::{self, ClusterName, Jobs, MAX_PARTS, PART, RelayId};
use super::publisher::Publisher;
use super::relays::{GONE, MAX_RELAYS, Relays};
use super::viewer::header;
use async_nats::Message;
use async_trait::async_trait;
use futures_util::StreamExt;
use nodeglass_protocol::cluster::ClusterSummary;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_slurm::{JobSource, JobsError};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Maximum number of jobs of a cluster that are shown.
const MAX_JOBS: usize = 100_000;
/// Maximum size of the lists of a cluster in memory, in bytes, including those that are replaced.
const MAX_WEIGHT: usize = 256 << 20;

/// A source of jobs that publishes its lists.
pub(crate) struct PublishedJobs {
    pub(crate) jobs: Box<dyn JobSource>,
    pub(crate) publisher: Publisher,
}

#[async_trait]
impl JobSource for PublishedJobs {
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        let jobs = self.jobs.jobs().await;
        self.publisher.set_jobs(jobs.clone().map_err(|error| error.why));
        jobs
    }

    fn requests(&self) -> u32 {
        self.jobs.requests()
    }

    fn is_free(&self) -> bool {
        self.jobs.is_free()
    }

    fn is_of_many(&self) -> bool {
        self.jobs.is_of_many()
    }

    fn cluster_name(&self) -> Option<&str> {
        self.jobs.cluster_name()
    }

    fn take_cluster(&mut self) -> Option<ClusterSummary> {
        self.jobs.take_cluster()
    }
}

/// The jobs and nodes that the relays of one cluster, or of several, watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteJobs {
    /// The jobs of all, or the reason for having no list; `None` while none has arrived.
    pub jobs: Option<Result<Vec<Job>, Text>>,
    /// Nodes of relays that list no jobs.
    pub hosts: BTreeSet<NodeName>,
    /// Whether none of them lists jobs.
    pub no_slurm: bool,
    /// Clusters whose lists are missing while others have one, and names that two clusters have; complete sentences.
    pub notices: Vec<Text>,
    /// The names of the clusters that have ever had a relay, sorted; empty for a single cluster's list.
    pub clusters: Vec<Text>,
}

/// Lists by relay, with parts that have arrived so far.
#[derive(Debug, Default)]
struct Lists {
    lists: BTreeMap<RelayId, Result<Weighed, Text>>,
    parts: BTreeMap<RelayId, (u32, Weighed)>,
    /// The relays whose lists arrived since the last call of [`Lists::forget`].
    recent: BTreeSet<RelayId>,
    /// Whether a list has been left out for want of space.
    is_full: bool,
}

/// Jobs, and their size in memory, in bytes: it is compared with every part, of which a large list has a hundred.
#[derive(Debug, Default)]
struct Weighed {
    jobs: Vec<Job>,
    weight: usize,
}

impl Weighed {
    /// Adds jobs, as many as may be shown.
    fn add(&mut self, jobs: Vec<Job>) {
        let room = MAX_JOBS.saturating_sub(self.jobs.len());
        for job in jobs.into_iter().take(room).map(clamped) {
            self.weight += weight(&job);
            self.jobs.push(job);
        }
    }
}

impl Lists {
    /// Takes a part of a list; returns whether a list is complete. It may arrive before its relay's announcement.
    fn take(&mut self, message: &Message, relays: &Relays) -> bool {
        let part = header(message, PART).and_then(|part| part.split_once('/'));
        let part = part.and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        match (part, message::parse(&message.payload)) {
            (Some(part), Some(jobs)) => self.take_part(part, jobs, relays),
            _ => false,
        }
    }

    fn take_part(&mut self, (number, count): (u32, u32), jobs: Jobs, relays: &Relays) -> bool {
        let Jobs { relay, jobs, failed } = jobs;
        if !(1..=count.min(MAX_PARTS)).contains(&number) {
            return false;
        }
        if self.lists.len() + self.parts.len() >= 2 * MAX_RELAYS {
            self.lists.retain(|relay, _| relays.contains(*relay));
            self.parts.retain(|relay, _| relays.contains(*relay));
        }
        if let Some(why) = failed {
            self.lists.insert(relay, Err(why));
            return true;
        }
        self.recent.insert(relay);
        let (last, list) = self.parts.remove(&relay).unwrap_or_default();
        let (before, mut list) = if number == 1 { (0, Weighed::default()) } else { (last, list) };
        if before + 1 != number {
            return false;
        }
        list.add(jobs);
        if self.weight() + list.weight > MAX_WEIGHT {
            // No list is better than an old one.
            self.lists.remove(&relay);
            self.is_full = true;
            return true;
        }
        if number < count {
            self.parts.insert(relay, (number, list));
            return false;
        }
        self.lists.insert(relay, Ok(list));
        true
    }

    /// The size of all lists in memory, in bytes.
    fn weight(&self) -> usize {
        let parts = self.parts.values().map(|(_, list)| list);
        self.lists.values().flatten().chain(parts).map(|list| list.weight).sum()
    }

    /// Drops the lists of relays that are gone.
    fn forget(&mut self, relays: &Relays) {
        let recent = std::mem::take(&mut self.recent);
        let stays = |relay: &RelayId| relays.contains(*relay) || recent.contains(relay);
        self.lists.retain(|relay, _| stays(relay));
        self.parts.retain(|relay, _| stays(relay));
        self.is_full &= self.weight() > MAX_WEIGHT / 2;
    }

    /// Joins the lists of all relays. A job that several list is shown once.
    fn joined(&self, relays: &Relays, cluster: &ClusterName) -> RemoteJobs {
        let lists: Vec<_> = self
            .lists
            .iter()
            .filter(|(relay, _)| relays.contains(**relay))
            .map(|(_, list)| list.as_ref().map(|list| &list.jobs))
            .collect();
        let mut jobs: BTreeMap<JobId, Job> = BTreeMap::new();
        let mut mixed = None;
        let mut shown = ShownNodes::default();
        for job in lists.iter().flatten().copied().flatten().take(MAX_JOBS) {
            let mut job = job.clone();
            job.nodes.retain(|node| shown.admit(node));
            match jobs.entry(job.id) {
                Entry::Vacant(free) => drop(free.insert(job)),
                Entry::Occupied(known) if is_another(known.get(), &job) => mixed = mixed.or(Some(job.id)),
                Entry::Occupied(_) => {}
            }
        }
        let failed = lists.iter().find_map(|list| list.err().cloned());
        let is_nobody = relays.iter().next().is_none();
        let no_slurm = !is_nobody && relays.iter().all(|relay| !relay.has_jobs);
        // A relay that lists jobs watches their nodes, also for a moment before and after they are listed.
        let machines = relays.iter().filter(|relay| !relay.has_jobs);
        let announced = machines.flat_map(|relay| relay.nodes.iter());
        let is_on_jobs: BTreeSet<_> = announced.clone().filter(|node| shown.contains(node)).collect();
        let hosts =
            announced.filter(|node| !is_on_jobs.contains(node) && shown.admit(node)).cloned().collect();
        let jobs = match failed {
            _ if is_nobody => Some(Err(format!("no relay publishes the cluster {cluster} over NATS").into())),
            _ if lists.iter().any(Result::is_ok) => Some(Ok(jobs.into_values().collect())),
            Some(why) => Some(Err(why)),
            None => None,
        };
        let full = self
            .is_full
            .then(|| format!("more jobs of {cluster} are published over NATS than this relay keeps").into());
        let mixed = mixed.map(|job| {
            let why = format!(
                "the relays of {cluster} list different jobs {job}, so two clusters publish as {cluster} over NATS, and are mixed here: \
                 give one of them another name (--nats-cluster) or a NATS account of its own"
            );
            Text::new(why)
        });
        let notices = relays.conflict(cluster).into_iter().chain(mixed).chain(full).collect();
        RemoteJobs { jobs, hosts, no_slurm, notices, clusters: Vec::new() }
    }
}

/// Returns whether two jobs of one number are of different clusters. A job that is requeued is submitted again, one may be renamed, and a
/// machine may not know the name of a user: one difference may be that of the times at which two relays asked.
fn is_another(one: &Job, other: &Job) -> bool {
    one.submitted != other.submitted && (one.user != other.user || one.name != other.name)
}

/// Follows the lists of all relays of a cluster, and sends them with its number whenever they change.
pub(crate) async fn follow(
    bus: Bus,
    cluster: ClusterName,
    mut relays: watch::Receiver<Relays>,
    number: usize,
    changes: mpsc::Sender<(usize, RemoteJobs)>,
) {
    let mut messages = bus.subscribed(bus.subjects.jobs()).await;
    let (mut lists, mut last) = (Lists::default(), RemoteJobs::default());
    // Without any relay, nothing changes, and that is stated after a while.
    let mut check = interval_at(Instant::now() + GONE, GONE);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_new = tokio::select! {
            message = messages.next() => match message {
                Some(message) => lists.take(&message, &relays.borrow()),
                None => return,
            },
            changed = relays.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = check.tick() => {
                lists.forget(&relays.borrow());
                true
            }
        };
        if is_new {
            let mut now = lists.joined(&relays.borrow_and_update(), &cluster);
            if let (Some(Err(why)), Some(lost)) = (&mut now.jobs, bus.lost()) {
                // Whether anybody publishes is not known.
                *why = lost;
            }
            if now != last {
                last.clone_from(&now);
                if changes.send((number, now)).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Announcement;
    use super::super::relays::tests::{announced, announcement, id};
    use super::*;
    use nodeglass_protocol::job::JobState;

    fn job(id: u32) -> Job {
        Job::new(JobId(id), "alice".into(), JobState::Pending)
    }

    fn list(number: u8, ids: &[u32]) -> Jobs {
        let jobs = ids.iter().map(|id| job(*id)).collect();
        Jobs { relay: id(number), jobs, failed: None }
    }

    #[tokio::test]
    async fn clusters_that_nothing_else_tells_apart_differ_in_their_jobs() {
        let relays = announced([announcement(1, true, "n1"), announcement(2, true, "n2")]);
        let one = Job { submitted: Some(100), name: "train".into(), ..job(7) };
        let notice = |other: Job| {
            let mut lists = Lists::default();
            lists.take_part((1, 1), Jobs { relay: id(1), jobs: vec![one.clone()], failed: None }, &relays);
            lists.take_part((1, 1), Jobs { relay: id(2), jobs: vec![other], failed: None }, &relays);
            lists.joined(&relays, &"hpc".parse().unwrap()).notices.first().cloned()
        };
        let other = Job { submitted: Some(200), name: "eval".into(), ..job(7) };
        let why = notice(other.clone()).unwrap();
        assert!(why.as_str().contains("list different jobs 7, so two clusters publish as hpc"), "{why}");
        for same in [
            one.clone(),
            Job { submitted: Some(200), ..one.clone() },
            Job { name: "b".into(), ..one.clone() },
        ] {
            assert_eq!(notice(same), None, "requeued, or renamed");
        }
        assert_eq!(notice(Job { id: JobId(8), ..other }), None);
    }

    fn ids(lists: &Lists, relays: &Relays) -> Option<Result<Vec<u32>, Text>> {
        let jobs = lists.joined(relays, &"hpc".parse().unwrap()).jobs?;
        Some(jobs.map(|jobs| jobs.iter().map(|job| job.id.0).collect()))
    }

    #[tokio::test]
    async fn lists_of_several_relays_are_joined_and_end_with_their_relay() {
        let (first, second) = (announcement(1, true, "n1"), announcement(2, true, "n2"));
        let (both, one) = (announced([first.clone(), second]), announced([first]));
        let mut lists = Lists::default();
        assert_eq!(ids(&lists, &both), None, "not yet");
        assert!(lists.take_part((1, 1), list(1, &[1, 2]), &both));
        assert!(lists.take_part((1, 1), list(2, &[2, 3]), &both));
        assert_eq!(ids(&lists, &both), Some(Ok(vec![1, 2, 3])));
        assert_eq!(ids(&lists, &one), Some(Ok(vec![1, 2])));
        let nobody = ids(&lists, &Relays::default()).unwrap().unwrap_err();
        assert_eq!(nobody.as_str(), "no relay publishes the cluster hpc over NATS");
    }

    #[tokio::test]
    async fn a_list_in_parts_is_shown_once_it_is_complete_and_in_order() {
        let relays = announced([announcement(1, true, "n1")]);
        let mut lists = Lists::default();
        assert!(!lists.take_part((1, 2), list(1, &[1]), &relays));
        assert!(lists.take_part((2, 2), list(1, &[2]), &relays));
        assert_eq!(ids(&lists, &relays), Some(Ok(vec![1, 2])));
        for parts in [(2, 2), (0, 1), (3, 2), (1, u32::MAX)] {
            assert!(!lists.take_part(parts, list(1, &[7]), &relays), "{parts:?}");
        }
        assert_eq!(ids(&lists, &relays), Some(Ok(vec![1, 2])), "as before");
    }

    #[tokio::test]
    async fn lists_of_many_relays_take_no_memory_and_end_with_them() {
        let mut lists = Lists::default();
        let heavy: Vec<_> = (0..2_000)
            .map(|id| Job { command: Some("x".repeat(4_000).as_str().into()), ..job(id) })
            .collect();
        let relays = announced((1..40).map(|number| announcement(number, true, "n1")));
        for number in 1..40 {
            lists.take_part((1, 1), Jobs { relay: id(number), jobs: heavy.clone(), failed: None }, &relays);
        }
        assert!(lists.weight() <= MAX_WEIGHT && lists.lists.len() < 39, "{}", lists.weight());
        let notices = lists.joined(&relays, &"hpc".parse().unwrap()).notices;
        assert!(notices[0].as_str().contains("than this relay keeps"), "{notices:?}");
        lists.forget(&Relays::default());
        assert!(!lists.lists.is_empty(), "a list may arrive before its relay's announcement");
        lists.forget(&Relays::default());
        assert_eq!(lists.weight(), 0);
    }

    #[tokio::test]
    async fn times_that_no_job_has_and_nodes_without_end_are_not_shown() {
        let many = (0..100_000).map(|number| NodeName::new(format!("n{number}")).unwrap()).collect();
        let odd = Job { ended: Some(i64::MIN), nodes: many, ..job(7) };
        let relays = announced([announcement(1, true, "n1"), announcement(2, false, "m1")]);
        let mut lists = Lists::default();
        lists.take_part((1, 1), Jobs { relay: id(1), jobs: vec![odd], failed: None }, &relays);
        let joined = lists.joined(&relays, &"hpc".parse().unwrap());
        let jobs = joined.jobs.unwrap().unwrap();
        assert_eq!(jobs[0].ended, Some(0));
        assert!(jobs[0].nodes.len() < 20_000 && joined.hosts.is_empty());
    }

    #[tokio::test]
    async fn machines_are_those_of_relays_without_jobs() {
        let relays = announced([announcement(1, true, "n1"), announcement(2, false, "m1")]);
        let joined = Lists::default().joined(&relays, &"hpc".parse().unwrap());
        assert_eq!(joined.hosts, [NodeName::new("m1").unwrap()].into());
        assert!(!joined.no_slurm);
    }

    #[tokio::test]
    async fn lists_of_another_cluster_of_the_name_are_left_out_and_it_is_named() {
        let of = |controller: &str, number| Announcement {
            controller: Some(controller.into()),
            ..announcement(number, true, "n1")
        };
        let relays = announced([of("ctl-a", 1), of("ctl-b", 2)]);
        let mut lists = Lists::default();
        assert!(lists.take_part((1, 1), list(1, &[1]), &relays));
        assert!(lists.take_part((1, 1), list(2, &[2]), &relays));
        assert_eq!(ids(&lists, &relays), Some(Ok(vec![1])));
        let notices = lists.joined(&relays, &"hpc".parse().unwrap()).notices;
        assert!(notices[0].as_str().contains("ctl-b is not"), "{notices:?}");
    }
}
