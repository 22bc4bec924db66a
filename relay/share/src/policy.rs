//! Access policy: filters what the holder of a share or a person of a site is sent, before it is encoded.

mod certainty;
mod extent;

use nodeglass_fleet::Fleet;
use nodeglass_history::{Span, VisibleNode};
use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind, FindingTrait};
use nodeglass_protocol::gpu::{GpuHealth, GpuPath};
use nodeglass_protocol::insight::JobInsight;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::note::Note;
use nodeglass_protocol::picture::{
    GpuEvent, GpuPicture, History, JobsHealth, Link, NodeHead, NodePicture, ProcessFacts, ProcessPicture,
    RelayStatus,
};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::{HiddenParts, Scope, Sharing};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Cell, GpuField, JobId, NodeName, Reading, Row, Text};
use nodeglass_rules::ownership::has_every_cpu;
use nodeglass_rules::run::{is_before_submission, resumed_at};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A viewer of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Viewer {
    /// The owner, who sees everything.
    #[default]
    Owner,
    /// Anyone else: the holder of a share, or a person or administrator of a site. Viewers with equal visibility share
    /// an encoding.
    Restricted(Arc<Visibility>),
}

/// The jobs and nodes that a restricted viewer may see, and the parts of them that are hidden.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Visibility {
    extent: Extent,
    hidden: HiddenParts,
    /// The owner of the share, or the person.
    user: Text,
    /// Whether the viewer is `user`: a person or an administrator, who sees their own jobs without logs and other
    /// users' processes.
    is_person: bool,
}

/// The jobs and nodes that a restricted viewer may see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Extent {
    /// Those of a share; for an administrator everything.
    Scope(Scope),
    /// The jobs of a person, and those of these accounts.
    Person { accounts: BTreeSet<Text> },
}

/// A node as a viewer sees it. Filtered lazily: most nodes do not change in most updates.
#[derive(Debug)]
pub struct NodeView<'a> {
    raw: &'a NodePicture,
    guest: Option<(&'a Visibility, &'a Fleet)>,
    filtered: OnceCell<Box<NodePicture>>,
}

impl Viewer {
    /// Returns the nodes of the owner's job that was requeued and waits, with their history until then; of others none.
    pub fn nodes_before_requeue<'a>(&'a self, fleet: &'a Fleet, topic: &Topic) -> Vec<NodeView<'a>> {
        match (self, topic) {
            (Self::Owner, Topic::Job(id)) => {
                fleet.nodes_before_requeue(*id).iter().map(|raw| NodeView::of(raw, None)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the nodes of a topic; `None` if the topic does not exist, or is not visible.
    pub fn nodes<'a>(&'a self, fleet: &'a Fleet, topic: &Topic) -> Option<Vec<NodeView<'a>>> {
        let nodes = fleet.nodes_of(topic)?;
        let Self::Restricted(visibility) = self else {
            return Some(nodes.into_iter().map(|raw| NodeView::of(raw, None)).collect());
        };
        let jobs = fleet.jobs();
        let is_visible = match topic {
            Topic::Overview => true,
            Topic::Job(id) => visibility.shows_job(*id, jobs),
            Topic::Node(name) => visibility.shows_node(name, jobs),
        };
        let current = visibility.current_nodes(jobs);
        let shown = |node: &&NodePicture| match (topic, &current) {
            (Topic::Overview | Topic::Node(_), Some(current)) => current.contains(&node.name),
            // The last picture of a job may contain nodes that are in use by others now.
            (Topic::Job(_), _) | (_, None) => visibility.shares_node(&node.name),
        };
        is_visible.then(|| {
            nodes
                .into_iter()
                .filter(shown)
                .map(|raw| NodeView::of(raw, Some((visibility.as_ref(), fleet))))
                .collect()
        })
    }

    /// The current state of a node that is known to be visible: one of a topic's nodes, as of the same
    /// job list.
    pub fn node<'a>(&'a self, fleet: &'a Fleet, name: &NodeName) -> Option<NodeView<'a>> {
        let guest = match self {
            Self::Owner => None,
            Self::Restricted(visibility) => Some((visibility.as_ref(), fleet)),
        };
        fleet.node(name).map(|raw| NodeView::of(raw, guest))
    }

    /// Returns whether a topic exists and is visible.
    pub fn has_topic(&self, fleet: &Fleet, topic: &Topic) -> bool {
        self.nodes(fleet, topic).is_some()
    }

    /// The job list.
    pub fn jobs(&self, fleet: &Fleet) -> Vec<Job> {
        match self {
            Self::Owner => fleet.jobs().to_vec(),
            Self::Restricted(visibility) => {
                fleet.jobs().iter().filter_map(|job| visibility.job(job)).collect()
            }
        }
    }

    /// The relay's status; guests only learn whether the job list is fresh.
    pub fn status(&self, fleet: &Fleet) -> RelayStatus {
        let status = fleet.status();
        match self {
            Self::Owner => status.clone(),
            Self::Restricted(_) => {
                let jobs = match &status.jobs {
                    JobsHealth::Stale { last_ms, retry_at_ms, .. } => JobsHealth::Stale {
                        last_ms: *last_ms,
                        reason: "SLURM does not respond to the relay".into(),
                        retry_at_ms: *retry_at_ms,
                    },
                    other => other.clone(),
                };
                RelayStatus { jobs, replay: status.replay.clone(), ..RelayStatus::default() }
            }
        }
    }

    /// The audit log.
    pub fn audit_log<'a>(&self, fleet: &'a Fleet) -> &'a [AuditEntry] {
        if *self == Self::Owner { fleet.audit_log() } else { &[] }
    }

    /// Returns further conclusions about running jobs, which come from their logs.
    pub fn insights<'a>(&self, fleet: &'a Fleet) -> &'a [JobInsight] {
        if *self == Self::Owner { fleet.insights() } else { &[] }
    }

    /// Open shares and current visitors.
    pub fn sharing(&self, fleet: &Fleet) -> Sharing {
        if *self == Self::Owner { fleet.sharing().clone() } else { Sharing::default() }
    }

    /// Returns the notes of a topic, by time: notes of the whole cluster, and of the content of the topic.
    pub fn notes(&self, fleet: &Fleet, topic: &Topic) -> Vec<Note> {
        let jobs = fleet.jobs();
        // Once, as there are thousands of notes and of jobs.
        let job_nodes = match topic {
            Topic::Job(id) => jobs.iter().find(|job| job.id == *id).map(|job| &*job.nodes),
            Topic::Overview | Topic::Node(_) => None,
        };
        let jobs_here: BTreeSet<JobId> = match topic {
            Topic::Node(name) => {
                jobs.iter().filter(|job| job.nodes.contains(name)).map(|job| job.id).collect()
            }
            Topic::Overview | Topic::Job(_) => BTreeSet::new(),
        };
        let is_of = |note: &Note| match (topic, note.job) {
            (Topic::Overview, None) => note.node.is_none(),
            (Topic::Overview, Some(_)) => false,
            (Topic::Job(id), Some(job)) => job == *id,
            (Topic::Job(_), None) => {
                note.node.as_ref().is_none_or(|name| job_nodes.is_some_and(|nodes| nodes.contains(name)))
            }
            (Topic::Node(name), job) => {
                // A note of another node of the same job is none of this one.
                note.node.as_ref().is_none_or(|node| node == name)
                    && job.is_none_or(|job| jobs_here.contains(&job))
            }
        };
        let shown = fleet.notes().iter().filter(|note| is_of(note) && self.shows_note(fleet, note));
        nodeglass_fleet::sorted_notes(shown.cloned())
    }

    /// The findings of a topic, in their order. A guest receives those about jobs and nodes in scope alone.
    pub fn findings(&self, fleet: &Fleet, topic: &Topic) -> Vec<Finding> {
        let is_of = |finding: &Finding| match topic {
            Topic::Overview => true,
            Topic::Job(id) => finding.jobs.contains(id),
            Topic::Node(name) => finding.nodes.contains(name),
        };
        let found = fleet.findings().iter().filter(|finding| is_of(finding));
        match self {
            Self::Owner => found.cloned().collect(),
            Self::Restricted(visibility) => {
                found.filter_map(|finding| visibility.finding(finding, fleet)).collect()
            }
        }
    }

    /// Returns all visible notes, or the notes of a job, by time.
    pub fn all_notes(&self, fleet: &Fleet, job: Option<JobId>) -> Vec<Note> {
        let is_of = |note: &Note| job.is_none() || note.job == job;
        let shown = fleet.notes().iter().filter(|note| is_of(note) && self.shows_note(fleet, note));
        nodeglass_fleet::sorted_notes(shown.cloned())
    }

    fn shows_note(&self, fleet: &Fleet, note: &Note) -> bool {
        match self {
            Self::Owner => true,
            Self::Restricted(visibility) => visibility.shows_note(note, fleet.jobs()),
        }
    }

    /// Returns whether something may be hidden from it.
    pub fn is_restricted(&self) -> bool {
        *self != Self::Owner
    }
}

impl<'a> NodeView<'a> {
    fn of(raw: &'a NodePicture, guest: Option<(&'a Visibility, &'a Fleet)>) -> Self {
        Self { raw, guest, filtered: OnceCell::new() }
    }

    /// The node's name.
    pub fn name(&self) -> &'a NodeName {
        &self.raw.name
    }

    /// [`NodePicture::sampled_at_ms`].
    pub fn sampled_at_ms(&self) -> Option<u64> {
        self.raw.sampled_at_ms
    }

    /// The node without its history.
    pub fn now(&self) -> &NodePicture {
        match self.guest {
            None => self.raw,
            Some((visibility, fleet)) => {
                self.filtered.get_or_init(|| Box::new(visibility.node(self.raw, fleet)))
            }
        }
    }

    /// Returns the visible part of its long-term history: for a shared job only the time in which it ran there.
    pub fn long_history(&self) -> VisibleNode {
        let spans = |gpu: &GpuPicture| match self.guest {
            None => Some(Span::ALL),
            Some((visibility, fleet)) => {
                visibility.shows_gpu(gpu, fleet.jobs()).then(|| visibility.gpu_span(gpu, self.raw, fleet))
            }
        };
        let host = match self.guest {
            None => Some(Span::ALL),
            Some((visibility, fleet)) => visibility.host_span(self.raw, fleet),
        };
        let gpus = self.raw.gpus.iter().filter_map(|gpu| Some((gpu.facts.uuid.clone(), spans(gpu)?)));
        VisibleNode { name: self.raw.name.clone(), gpus: gpus.collect(), host }
    }

    /// [`NodePicture::history`].
    pub fn history(&self) -> Option<Cow<'a, History>> {
        let history = self.raw.history.as_ref()?;
        Some(match self.guest {
            None => Cow::Borrowed(history),
            Some((visibility, fleet)) => Cow::Owned(visibility.history(history, self.raw, fleet)),
        })
    }
}

impl Visibility {
    /// Returns whether logs are shown at all.
    pub fn shows_logs(&self) -> bool {
        !self.hidden.logs
    }

    /// Returns whether a job's logs are shown.
    pub fn shows_logs_of(&self, id: JobId, jobs: &[Job]) -> bool {
        !self.hidden.logs && self.shows_job(id, jobs)
    }

    /// Returns whether a note is shown: one of a job in scope, of a node in scope, or of the whole cluster if
    /// everything is.
    pub fn shows_note(&self, note: &Note, jobs: &[Job]) -> bool {
        let is_in_scope = match (note.job, &note.node) {
            (Some(job), node) => {
                self.shows_job(job, jobs) && node.as_ref().is_none_or(|node| self.shares_node(node))
            }
            (None, Some(node)) => {
                self.shared_nodes().is_some_and(|shown| shown.contains(node)) || self.covers_all()
            }
            (None, None) => self.covers_all(),
        };
        let job = note.job.and_then(|id| jobs.iter().find(|job| job.id == id));
        let is_earlier = job.is_some_and(|job| is_before_submission(note.at_ms, job));
        is_in_scope && !is_earlier && !self.hidden_of(job.map(|job| &job.user)).notes
    }

    /// A finding as a guest sees it; `None` if it is hidden. It is shown only if everything that its texts name is: its
    /// jobs and nodes, and the readings that it is made from.
    fn finding(&self, finding: &Finding, fleet: &Fleet) -> Option<Finding> {
        let jobs = fleet.jobs();
        // What the owner silenced stays silenced, and a page can unfold it.
        let mut finding = finding.clone();
        if finding.kind.is(FindingTrait::OfNode) && !finding.jobs.is_empty() {
            // Its texts name the node alone.
            finding.jobs.retain(|job| self.shows_job(*job, jobs));
            if finding.jobs.is_empty() {
                return None;
            }
        }
        let are_jobs_shown = finding.jobs.iter().all(|job| self.shows_job(*job, jobs));
        let are_nodes_shown = finding.nodes.iter().all(|node| self.shares_node(node));
        let is_node_shown =
            || !finding.jobs.is_empty() || finding.nodes.iter().all(|node| self.shows_node(node, jobs));
        if !(are_jobs_shown && are_nodes_shown && is_node_shown()) {
            return None;
        }
        let are_hosts_shown = || finding.nodes.iter().all(|node| self.shows_host(node, fleet));
        let is = |what| finding.kind.is(what);
        if is(FindingTrait::OfHost) && !are_hosts_shown() || is(FindingTrait::NamesPaths) && self.hidden.paths
        {
            return None;
        }
        if !self.is_certain(&finding, fleet) {
            return None;
        }
        match finding.kind {
            FindingKind::HeldMemory if !self.shows_unattributed() => return None,
            // Names a process.
            FindingKind::StuckProcess if !self.shows_processes_on(&finding.gpus, fleet) => return None,
            FindingKind::Failed if self.hidden.logs && finding.advice.as_str() == finding.kind.advice() => {
                finding.advice = "Ask its owner for the end of its log".into();
            }
            // SLURM's explanation may name other jobs.
            FindingKind::PendingForever if !self.covers_all() => {
                finding.advice = finding.kind.advice().into();
            }
            _ => {}
        }
        let of_finding = || jobs.iter().filter(|job| finding.jobs.contains(&job.id));
        let hidden: Vec<NodeName> = match self.shared_nodes() {
            None => Vec::new(),
            Some(shown) => of_finding()
                .flat_map(|job| &job.nodes)
                .filter(|node| !shown.contains(node))
                .cloned()
                .collect(),
        };
        nodeglass_findings::without_nodes(nodeglass_findings::for_guests(finding)?, &hidden)
    }

    /// Returns whether every process on these GPUs is shown.
    fn shows_processes_on(&self, gpus: &[FindingGpu], fleet: &Fleet) -> bool {
        gpus.iter().all(|gpu| {
            let processes = fleet.node(&gpu.node).into_iter().flat_map(|node| &node.processes);
            let mut here = processes.filter(|process| process.facts.gpu == gpu.uuid);
            here.all(|process| self.shows_process(&process.facts, fleet.jobs()))
        })
    }

    /// Returns the time for which a GPU in scope is visible.
    fn gpu_span(&self, gpu: &GpuPicture, raw: &NodePicture, fleet: &Fleet) -> Span {
        let owners = fleet.jobs().iter().filter(|job| gpu.is_owned_by(job.id));
        self.span_of(owners, raw, Some(gpu), fleet)
    }

    /// Returns the time for which the whole host is visible; `None` if it is hidden.
    fn host_span(&self, raw: &NodePicture, fleet: &Fleet) -> Option<Span> {
        let jobs = || self.jobs_with_host(&raw.name, fleet);
        self.shows_host(&raw.name, fleet).then(|| self.span_of(jobs(), raw, None, fleet))
    }

    /// Returns the time from the first start to the last end of those jobs that are in scope, without the time for
    /// which it is uncertain that they ran there and had the GPU; all time if the scope is not jobs.
    fn span_of<'a>(
        &self,
        jobs: impl Iterator<Item = &'a Job>,
        raw: &NodePicture,
        gpu: Option<&GpuPicture>,
        fleet: &Fleet,
    ) -> Span {
        if !self.is_of_jobs() {
            return Span::ALL;
        }
        let jobs: Vec<&Job> = jobs.filter(|job| self.covers(job)).collect();
        let span = jobs.iter().fold(Span::NONE, |span, job| {
            let on_node = || fleet.on_node_since(job, &raw.name);
            let from_ms = gpu.map_or_else(on_node, |gpu| fleet.owned_since(job, &raw.name, gpu));
            // SLURM gives the CPUs of a suspended job to others.
            let from_ms = resumed_at(job).map_or(from_ms, |resumed| from_ms.max(fleet.relay_ms(resumed)));
            let suspended = job.suspension.filter(|_| job.state == JobState::Suspended).map(|since| since.at);
            let to_ms = job.ended.or(suspended).map_or(u64::MAX, |ended| fleet.relay_ms(ended));
            Span { from_ms: span.from_ms.min(from_ms), to_ms: span.to_ms.max(to_ms) }
        });
        let gpu = gpu.map(|gpu| &gpu.facts.uuid);
        Span { to_ms: span.to_ms.min(Self::certain_until(fleet, raw, gpu, &jobs)), ..span }
    }

    /// Returns whether readings of the whole host are shown: for a shared job only if it has every CPU of
    /// the node, as they would otherwise reveal other users' jobs. The job's own usage is in
    /// [`NodePicture::job_usage`].
    pub fn shows_host(&self, name: &NodeName, fleet: &Fleet) -> bool {
        !self.is_of_jobs() || self.jobs_with_host(name, fleet).next().is_some()
    }

    /// The jobs in scope that have the whole host now. Between an earlier one and these, it may have been another
    /// user's.
    fn jobs_with_host<'a>(&self, name: &NodeName, fleet: &'a Fleet) -> impl Iterator<Item = &'a Job> {
        let here = |job: &&Job| job.is_active() && self.covers(job) && job.nodes.contains(name);
        let cpus_of = |name: &NodeName| Some(fleet.node(name)?.head.facts.as_ref()?.cpus);
        let has_hosts = move |job: &&Job| has_every_cpu(job, job.nodes.iter().map(cpus_of));
        fleet.jobs().iter().filter(here).filter(has_hosts)
    }

    /// Returns whether a GPU is shown. If the scope is jobs, only their own GPUs are, and none without a known owner.
    fn shows_gpu(&self, gpu: &GpuPicture, jobs: &[Job]) -> bool {
        !self.is_of_jobs() || gpu.owners.iter().any(|owner| self.shows_job(owner.job, jobs))
    }

    /// Returns whether a process is shown: of a shared job only its own, and other users' processes only if the share
    /// shows them. An unknown user counts as another. A person sees the processes that the owner of a job in scope runs
    /// in it.
    pub fn shows_process(&self, process: &ProcessFacts, jobs: &[Job]) -> bool {
        let user = process.user.value();
        let own = user == Some(&self.user);
        match &self.extent {
            Extent::Person { .. } => {
                let is_its = |job: &Job| Some(job.id) == process.job && Some(&job.user) == user;
                jobs.iter().any(|job| is_its(job) && self.covers(job))
            }
            Extent::Scope(scope) if scope.is_of_jobs() => {
                process.job.is_some_and(|job| self.shows_job(job, jobs)) && (own || !self.hidden.other_users)
            }
            Extent::Scope(_) => {
                own.then_some(process.job).flatten().is_none_or(|job| self.shows_job(job, jobs))
                    && (own || !self.hidden.other_users)
            }
        }
    }

    /// Returns whether unattributed memory is shown: only where every process is, as it would otherwise
    /// reveal how much memory hidden processes hold. A page may still compute what the visible ones leave.
    fn shows_unattributed(&self) -> bool {
        !self.hidden.other_users && !self.is_of_jobs()
    }

    /// A job as a viewer sees it; `None` if it is hidden.
    pub fn job(&self, job: &Job) -> Option<Job> {
        if !self.shows_job(job.id, std::slice::from_ref(job)) {
            return None;
        }
        let (mut job, hidden) = (job.clone(), self.hidden_of(Some(&job.user)));
        if hidden.paths {
            (job.workdir, job.stdout, job.stderr) = (None, None, None);
        }
        if hidden.paths || hidden.arguments {
            job.command = None;
        }
        if !self.covers_all() && job.dependency.is_some() {
            // Both name other jobs.
            (job.dependency, job.reason_text) = (None, None);
        }
        if let Some(shown) = self.shared_nodes() {
            job.nodes.retain(|node| shown.contains(node));
            job.gpus.retain(|gpus| shown.contains(&gpus.node));
            job.batch_host = job.batch_host.filter(|node| shown.contains(node));
        }
        Some(job)
    }

    fn node(&self, raw: &NodePicture, fleet: &Fleet) -> NodePicture {
        let jobs = fleet.jobs();
        // A history shows a slot if its beginning is visible; pages append the readings of the same slots.
        let is_certain = |span: Span| {
            raw.sampled_at_ms.is_none_or(|at_ms| span.from_ms <= Trace::slot_ms(at_ms) && at_ms <= span.to_ms)
        };
        let host = self.host_span(raw, fleet).is_some_and(is_certain);
        let shown = raw.gpus.iter().filter(|gpu| self.shows_gpu(gpu, jobs));
        let gpus = shown.map(|gpu| self.gpu(gpu, jobs, is_certain(self.gpu_span(gpu, raw, fleet)))).collect();
        let processes = raw.processes.iter().filter(|process| self.shows_process(&process.facts, jobs));
        NodePicture {
            name: raw.name.clone(),
            head: self.head(raw, fleet),
            sampled_at_ms: raw.sampled_at_ms,
            host: if host { raw.host.clone() } else { Row::default() },
            processes: processes.map(|process| self.process(process, jobs)).collect(),
            job_usage: raw
                .job_usage
                .iter()
                .filter(|usage| self.shows_job(usage.job, jobs))
                .cloned()
                .collect(),
            cores: if host { raw.cores.clone() } else { Vec::new() },
            history: None,
            gpus,
        }
    }

    /// A GPU as a viewer sees it; without readings unless it is certain that they are of a job in scope.
    fn gpu(&self, gpu: &GpuPicture, jobs: &[Job], is_certain: bool) -> GpuPicture {
        let mut gpu = gpu.clone();
        if !is_certain {
            (gpu.row, gpu.health) = (Row::default(), GpuHealth::default());
        }
        gpu.owners.retain(|owner| self.shows_job(owner.job, jobs));
        if !self.shows_unattributed() {
            gpu.row.set(GpuField::MemUnattributed, Cell::NOT_YET);
        }
        gpu
    }

    /// Returns the visible history: of a shared job only the time in which it ran there, because the GPU may have
    /// been another user's before.
    fn history(&self, history: &History, raw: &NodePicture, fleet: &Fleet) -> History {
        let shown = history.gpus.iter().zip(&raw.gpus).filter(|(_, gpu)| self.shows_gpu(gpu, fleet.jobs()));
        let gpus = shown.map(|(traces, gpu)| {
            let Span { from_ms, to_ms } = self.gpu_span(gpu, raw, fleet);
            traces.within(from_ms, to_ms)
        });
        let Span { from_ms, to_ms } = self.host_span(raw, fleet).unwrap_or(Span::NONE);
        History {
            is_summary: history.is_summary,
            gpus: gpus.collect(),
            host: history.host.within(from_ms, to_ms),
        }
    }

    fn process(&self, process: &ProcessPicture, jobs: &[Job]) -> ProcessPicture {
        let mut process = process.clone();
        self.mask_process(&mut process.facts, jobs);
        process
    }

    /// Removes what is hidden from the facts of a process.
    pub fn mask_process(&self, facts: &mut ProcessFacts, jobs: &[Job]) {
        let hidden = self.hidden_of(facts.user.value());
        if hidden.arguments {
            facts.args = Reading::NotYet;
        }
        if hidden.paths {
            facts.cwd = Reading::NotYet;
            // A program's name may be a path, followed by other text.
            facts.command = std::mem::take(&mut facts.command).map(|command| base_name(&command));
            if let Some(container) = &mut facts.container {
                container.name = container.name.take().map(|name| base_name(&name));
            }
        }
        facts.job = facts.job.filter(|job| self.shows_job(*job, jobs));
    }

    /// Returns the head of a node as a viewer sees it. The relay's remarks (`notes`) are hidden: they contain output of
    /// login shells.
    fn head(&self, raw: &NodePicture, fleet: &Fleet) -> NodeHead {
        let jobs = fleet.jobs();
        let link = match &raw.head.link {
            Link::Down { retry_at_ms, .. } => {
                Link::Down { reason: "the relay cannot reach this node".into(), retry_at_ms: *retry_at_ms }
            }
            Link::Refused { .. } => {
                Link::Refused { reason: "the relay may not enter this node".into(), advice: Text::default() }
            }
            other => other.clone(),
        };
        let mut facts = raw.head.facts.clone();
        if let Some(facts) = &mut facts {
            facts.scratch = facts.scratch.take().filter(|_| !self.hidden.paths);
            facts.topology = self.topology(&facts.topology, &raw.gpus, jobs);
        }
        let shown = |event: &&GpuEvent| match &event.gpu {
            Some(uuid) => raw.gpus.iter().any(|gpu| {
                let is_in_time = || self.gpu_span(gpu, raw, fleet).contains(event.at_ms);
                gpu.facts.uuid == *uuid && self.shows_gpu(gpu, jobs) && is_in_time()
            }),
            None => !self.is_of_jobs(),
        };
        NodeHead {
            link,
            facts,
            no_gpu: raw.head.no_gpu.clone(),
            driver_stuck_ms: raw.head.driver_stuck_ms,
            notes: Vec::new(),
            events: raw.head.events.iter().filter(shown).map(|event| self.event(event)).collect(),
            interval_ms: raw.head.interval_ms,
            // Which machines belong together is the owner's arrangement, and may name people.
            group: raw.head.group.clone().filter(|_| self.covers_all()),
            without_gpus: raw
                .head
                .without_gpus
                .iter()
                .copied()
                .filter(|job| self.shows_job(*job, jobs))
                .collect(),
        }
    }

    /// Returns an event as a viewer sees it: the text of an Xid may contain a process name and pid.
    fn event(&self, event: &GpuEvent) -> GpuEvent {
        match event.xid {
            Some(xid) if self.hidden.other_users => {
                GpuEvent { text: format!("Xid {xid}").into(), ..event.clone() }
            }
            _ => event.clone(),
        }
    }

    /// The rows and columns of visible GPUs.
    fn topology(&self, topology: &[Vec<GpuPath>], gpus: &[GpuPicture], jobs: &[Job]) -> Vec<Vec<GpuPath>> {
        let of_shown = |row: &[GpuPath]| {
            let paths = row.iter().zip(gpus).filter(|(_, gpu)| self.shows_gpu(gpu, jobs));
            paths.map(|(path, _)| *path).collect::<Vec<_>>()
        };
        let rows = topology.iter().zip(gpus).filter(|(_, gpu)| self.shows_gpu(gpu, jobs));
        rows.map(|(row, _)| of_shown(row)).collect()
    }
}

/// The last component of a command's path, without arguments.
fn base_name(path: &Text) -> Text {
    let first = path.as_str().split(' ').next().unwrap_or_default();
    Text::new(first.rsplit('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
