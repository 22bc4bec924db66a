//! SLURM as a job source: one squeue per poll, and scontrol only for what is new.

mod detail_cache;
mod schedule;
mod trigger;

use crate::{
    JobSource, JobsError, Owners, Selection,
    command::{self, Client, CommandError, Commands, Output, Program},
    nodes,
    scontrol::{self, Detail},
    squeue::{self, Delimiter},
};
use async_trait::async_trait;
use detail_cache::{DetailCache, DetailQuery};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::{
    JobId, Text,
    cluster::ClusterSummary,
    job::{Job, JobState},
};
use nodeglass_rules::run::REQUEUED;
pub use schedule::PollSchedule;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;
pub use trigger::{PollReason, PollTrigger};

/// Reason why SLURM cannot be used on this machine; a complete sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSlurm {
    /// The machine has no `squeue`.
    #[error("no SLURM: squeue is not in PATH")]
    NotInstalled,
    /// The commands are installed but not configured for a cluster.
    #[error("SLURM is installed but not configured; set SLURM_CONF if slurm.conf is in an unusual place")]
    NotConfigured,
}

/// Number of queries of the cluster name if it was not available at first; a controller that has just returned may be
/// slow for some polls.
const CLUSTER_TRIES: u32 = 10;
/// Requests to the controller per run of squeue: the user's jobs, and the partitions, which it always
/// loads (counted with `sdiag` on 22.05; no option avoids the second).
const SQUEUE_REQUESTS: u32 = 2;
/// Maximum number of requests of `scontrol --details show job`: jobs and nodes.
const SCONTROL_REQUESTS: u32 = 2;
/// Maximum number of requests of `scontrol show node`: nodes and partitions.
const NODE_REQUESTS: u32 = 2;
/// Nodes are queried at most this often.
const NODE_INTERVAL: Duration = Duration::from_secs(60);
/// Age of the nodes from which they are queried instead of details: a busy cluster always has details to query.
const NODE_PATIENCE: Duration = Duration::from_secs(300);
/// Maximum number of jobs missing in a list that are queried one by one before the list is accepted.
const DOUBTED_JOBS: usize = 3;
/// Number of lists from which jobs are missing after which squeue is believed if scontrol has failed each time: a site may
/// allow it to administrators only.
const UNVERIFIED_LISTS: u32 = 5;

/// The clock of the controller may be ahead of this machine's by this much.
const FUTURE_END: Duration = Duration::from_secs(120);
/// Jobs that had ended at most this long before the first list are shown: the user may have just submitted them.
const RECENT: Duration = Duration::from_secs(300);

/// The selected jobs on this machine's cluster.
#[derive(Debug)]
pub struct Slurm<C = Commands> {
    client: C,
    selection: Selection,
    cluster: Option<Text>,
    /// Its name as an earlier process knew it, as long as SLURM does not state it.
    assumed_cluster: Option<Text>,
    /// The name that was assumed, once SLURM states another one.
    former_cluster: Option<Text>,
    controller: Option<Text>,
    cluster_tries: u32,
    cache: DetailCache,
    /// Whether there has been a list, which the caller may keep showing.
    listed: bool,
    /// Jobs of the first list that had ended long before it, which are not shown.
    former: HashSet<JobId>,
    /// Jobs of the last list that had not ended.
    open: BTreeMap<JobId, Job>,
    /// Jobs of the last list that squeue leaves out, because they changed partition or account.
    moved: BTreeSet<JobId>,
    /// Jobs of the last list that belong to other users than the relay's.
    of_others: HashSet<JobId>,
    /// Warning about the last list, which is logged once.
    warning: Option<String>,
    /// Error that squeue printed with its last whole list, without numbers, such as of a process.
    error: Option<String>,
    /// Consecutive lists from which jobs are missing, and about which scontrol failed.
    unverified: u32,
    /// Requests made by the last poll.
    requests: u32,
    /// When the nodes were last queried.
    nodes_queried: Option<Instant>,
    /// Summary of the nodes by the last poll.
    summary: Option<ClusterSummary>,
}

impl Slurm<Commands> {
    /// Detects SLURM on this machine, for the jobs of the user who runs this process.
    ///
    /// A controller that does not respond now does not prevent detection.
    ///
    /// # Errors
    /// [`NoSlurm`] if there is none; the caller watches this machine instead and shows the sentence.
    pub async fn detect() -> Result<Self, NoSlurm> {
        Self::detect_with(Commands::new(), Selection::own(rustix::process::getuid().as_raw())).await
    }
}

impl<C: Client> Slurm<C> {
    /// Detects SLURM through `client`, for the selected jobs.
    ///
    /// # Errors
    /// [`NoSlurm`] if there is none.
    pub async fn detect_with(client: C, selection: Selection) -> Result<Self, NoSlurm> {
        let mut slurm = Self {
            client,
            cache: DetailCache::new(selection.is_of_many()),
            selection,
            cluster: None,
            assumed_cluster: None,
            former_cluster: None,
            controller: None,
            cluster_tries: 0,
            listed: false,
            former: HashSet::new(),
            open: BTreeMap::new(),
            moved: BTreeSet::new(),
            of_others: HashSet::new(),
            warning: None,
            error: None,
            unverified: 0,
            requests: 0,
            nodes_queried: None,
            summary: None,
        };
        match slurm.query_cluster_name().await {
            Err(CommandError::Missing(_)) => Err(NoSlurm::NotInstalled),
            Err(CommandError::Failed(_, why)) if why.contains("configuration source") => {
                Err(NoSlurm::NotConfigured)
            }
            Err(_) | Ok(()) => Ok(slurm),
        }
    }

    /// Returns the client that runs SLURM's commands.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// The cluster's name (`ClusterName`), once known; before, the assumed one.
    pub fn cluster(&self) -> Option<&Text> {
        self.cluster.as_ref().or(self.assumed_cluster.as_ref())
    }

    /// Sets the name to assume until SLURM states it.
    pub fn assume_cluster(&mut self, name: Text) {
        self.assumed_cluster = Some(name);
    }

    /// The first controller in the cluster's configuration, once known.
    pub fn controller(&self) -> Option<&Text> {
        self.controller.as_ref()
    }

    async fn query_cluster_name(&mut self) -> Result<(), CommandError> {
        self.cluster_tries += 1;
        let output = self.client.run(Program::Scontrol, &scontrol::config_args()).await?;
        self.cluster = scontrol::cluster_name(&output.out).map(Text::from);
        self.controller = scontrol::controller(&output.out).map(Text::from);
        let assumed = self.assumed_cluster.take();
        self.former_cluster =
            assumed.filter(|assumed| self.cluster.as_ref().is_some_and(|name| name != assumed));
        if let (Some(assumed), Some(cluster)) = (&self.former_cluster, &self.cluster) {
            tracing::error!(%assumed, %cluster, "this machine is of another cluster than before; start the relay again");
        }
        Ok(())
    }

    /// Refuses the jobs of another cluster than the assumed one, whose history is shown and whose shares are open.
    fn refuse_if_of_another_cluster(&self) -> Result<(), JobsError> {
        match (&self.former_cluster, &self.cluster) {
            (Some(former), Some(cluster)) => {
                let why = format!(
                    "SLURM is that of cluster “{cluster}”, but the relay assumed “{former}” when it started; start it again"
                );
                Err(JobsError { why: why.into() })
            }
            _ => Ok(()),
        }
    }

    async fn list(&mut self) -> Result<Vec<Job>, JobsError> {
        let delimiter = Delimiter::random();
        self.requests += SQUEUE_REQUESTS;
        let result = self.client.run(Program::Squeue, &squeue::args(&self.selection, &delimiter)).await;
        let output = result.map_err(|error| self.sentence(&error))?;
        let mut list = squeue::read(&output.out, &self.selection, &delimiter);
        self.refuse_if_no_list(&output, &list)?;
        self.keep_runs(&mut list);
        self.list_moved(&mut list).await?;
        let requeued = self.refuse_if_jobs_are_missing(&output, &mut list).await?;
        let warning = warning(&list, &output);
        if let Some(warning) = warning.as_ref().filter(|_| warning != self.warning) {
            tracing::warn!("{warning}");
        }
        self.warning = warning;
        self.listed = true;
        self.continue_requeued(&mut list.jobs);
        self.doubt_future_ends(&mut list.jobs);
        let open = list.jobs.iter().filter(|job| !matches!(job.state, JobState::Ended(_)));
        let open = open.map(|job| (job.id, job.clone())).collect();
        let before = std::mem::replace(&mut self.open, open);
        self.moved.retain(|id| self.open.contains_key(id));
        // Requeued jobs are listed once more, as ended: until they start again, squeue lists them only within the
        // pending rest of their array.
        let ended = before.into_values().filter(|job| requeued.contains(&job.id));
        list.jobs.extend(ended.map(|job| Job { state: JobState::Ended(REQUEUED.into()), ..job }));
        list.of_others.extend(self.of_others.iter().filter(|id| requeued.contains(id)));
        self.of_others = list.of_others;
        Ok(list.jobs)
    }

    fn sentence(&self, error: &CommandError) -> JobsError {
        self.keep_last(&error.to_string())
    }

    fn keep_last(&self, why: &str) -> JobsError {
        let suffix = if self.listed { "; showing the last list" } else { "; trying again" };
        JobsError { why: format!("{why}{suffix}").into() }
    }

    /// Output is a list only from the column titles to the end of its last line: some errors of squeue
    /// exit with 0, and a pipe may truncate its output.
    fn refuse_if_no_list(&self, output: &Output, list: &squeue::List) -> Result<(), JobsError> {
        let is_whole = list.titled && !list.cut_off;
        if !is_whole && has_error(output) {
            return Err(
                self.sentence(&CommandError::Failed(Program::Squeue, command::error_message(&output.err)))
            );
        }
        if !list.titled && list.jobs.is_empty() {
            let start = Text::from_bytes(&output.out[..output.out.len().min(60)]);
            let what = match start.as_str() {
                "" => "nothing, not even column titles".to_owned(),
                start => format!("something other than a job list (“{start}”)"),
            };
            let why = format!("squeue printed {what}; is another squeue first on the PATH?");
            return Err(JobsError { why: why.into() });
        }
        if !is_whole {
            return Err(self.keep_last(&format!(
                "squeue printed only a part of its list, {} jobs of it",
                list.jobs.len()
            )));
        }
        Ok(())
    }

    /// Keeps runs that are not selected any more, such as one that gave up the selected nodes: they have not ended.
    fn keep_runs(&self, list: &mut squeue::List) {
        let is_known = |job: &Job| {
            self.open.get(&job.id).is_some_and(|run| run.start == job.start && run.user == job.user)
        };
        let kept: Vec<_> = list
            .not_selected
            .extract_if(|_, (job, _)| job.state != JobState::Pending && is_known(job))
            .map(|(_, kept)| kept)
            .collect();
        kept.into_iter().for_each(|(job, is_of_other)| list.add(job, is_of_other));
    }

    /// Adds the jobs that squeue leaves out since they changed partition or account, until they end.
    async fn list_moved(&mut self, list: &mut squeue::List) -> Result<(), JobsError> {
        let listed: HashSet<JobId> = list.jobs.iter().map(|job| job.id).collect();
        let wanted: Vec<_> = self.moved.iter().filter(|id| !listed.contains(id)).copied().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (all, delimiter) = (Selection::of(self.selection.viewer, Owners::All), Delimiter::random());
        let ids: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        let mut args = squeue::args(&all, &delimiter);
        args.insert(0, format!("--jobs={}", ids.join(",")));
        self.requests += SQUEUE_REQUESTS;
        let found = match self.client.run(Program::Squeue, &args).await {
            Ok(output) => squeue::read(&output.out, &all, &delimiter),
            // All of them ended, and SLURM has forgotten them.
            Err(CommandError::Failed(_, why)) if why.contains("Invalid job id") => squeue::List::default(),
            Err(error) => return Err(self.sentence(&error)),
        };
        for job in found.jobs.into_iter().filter(|job| wanted.contains(&job.id)) {
            let is_of_other = found.of_others.contains(&job.id);
            list.add(job, is_of_other);
        }
        Ok(())
    }

    /// A job that has just ended is listed for as long as SLURM remembers it (`MinJobAge`). One that is
    /// missing altogether was either forgotten at once, or the list is incomplete: scontrol decides. Returns those that
    /// were requeued and wait with the rest of their array.
    async fn refuse_if_jobs_are_missing(
        &mut self,
        output: &Output,
        list: &mut squeue::List,
    ) -> Result<Vec<JobId>, JobsError> {
        let mut missing: Vec<JobId> = self.open.keys().copied().collect();
        let listed: HashSet<JobId> = list.jobs.iter().map(|job| job.id).collect();
        missing.retain(|id| !listed.contains(id) && !list.not_selected.contains_key(id));
        let error = has_error(output).then(|| command::error_message(&output.err));
        let without_numbers =
            error.as_ref().map(|error| error.replace(|letter: char| letter.is_ascii_digit(), ""));
        let is_usual = without_numbers == self.error;
        self.error = without_numbers;
        let mut requeued = Vec::new();
        let unverified = std::mem::take(&mut self.unverified);
        if missing.is_empty() {
            return Ok(requeued);
        }
        // One that it prints each time, as of a plugin, is not why they are missing.
        if let Some(error) = error.filter(|_| !is_usual) {
            return Err(self.sentence(&CommandError::Failed(Program::Squeue, error)));
        }
        for id in missing.iter().copied().take(DOUBTED_JOBS) {
            self.requests += SCONTROL_REQUESTS;
            // Without a state, as of an answer that is cut off, it neither agrees nor disagrees.
            let answer = self.client.run(Program::Scontrol, &scontrol::job_args(Some(id))).await;
            let answer = answer.and_then(|output| match scontrol::is_active(&output.out, id) {
                Some(is_active) => Ok((output, is_active)),
                None => Err(CommandError::Failed(Program::Scontrol, format!("no state of job {id}"))),
            });
            match answer {
                Ok((output, _)) if list.has_rest_of(scontrol::array_of_pending(&output.out, id)) => {
                    requeued.push(id);
                }
                Ok((output, true)) => {
                    let word = |key| scontrol::word_after(&output.out, id, key);
                    let (partitions, account) = (word("Partition="), word("Account="));
                    if self.selection.leaves_out(partitions.as_deref(), account.as_deref()) {
                        self.moved.insert(id);
                        continue;
                    }
                    let why = format!("squeue left out job {id}, which scontrol still shows");
                    return Err(self.keep_last(&why));
                }
                Ok((_, false)) => {}
                Err(CommandError::Failed(_, why)) if why.contains("Invalid job id") => {}
                Err(CommandError::Failed(..)) if unverified + 1 == UNVERIFIED_LISTS => break,
                Err(error) => {
                    self.unverified = unverified + u32::from(matches!(error, CommandError::Failed(..)));
                    return Err(self.sentence(&error));
                }
            }
        }
        if missing.iter().any(|id| self.moved.contains(id)) {
            // Others may have moved with them.
            self.moved.extend(missing.iter().skip(DOUBTED_JOBS));
            self.list_moved(list).await?;
        }
        Ok(requeued)
    }

    /// Restores the start of runs that were requeued and are still completing: squeue states the time of the requeue, which is
    /// their end, as if another run had begun.
    fn continue_requeued(&self, jobs: &mut [Job]) {
        for job in jobs.iter_mut().filter(|job| job.state == JobState::Completing) {
            let is_requeued = |run: &&Job| run.is_active() && run.start < job.start;
            if let Some(run) = self.open.get(&job.id).filter(is_requeued) {
                (job.start, job.ended) = (run.start, job.start);
            }
        }
    }

    /// Keeps jobs as they were if SLURM lists them as ended in the future: a controller with an inconsistent state
    /// reports a running job as ended at its time limit.
    fn doubt_future_ends(&self, jobs: &mut [Job]) {
        let latest_s = (Clock::wall_ms() / 1_000).cast_signed() + FUTURE_END.as_secs().cast_signed();
        let is_doubtful = |job: &Job| {
            matches!(job.state, JobState::Ended(_)) && job.ended.is_some_and(|at_s| at_s > latest_s)
        };
        for job in jobs.iter_mut().filter(|job| is_doubtful(job)) {
            if let Some(open) = self.open.get(&job.id).filter(|open| open.start == job.start) {
                tracing::warn!(job.id = %job.id, "SLURM lists the job as ended in the future; it is shown as before");
                job.clone_from(open);
            }
        }
    }

    /// Drops jobs that had ended long before the first list. One that starts and ends between two lists is kept: it may
    /// have failed at once.
    fn drop_former(&mut self, jobs: &mut Vec<Job>, is_first: bool) {
        let has_ended = |job: &Job| matches!(job.state, JobState::Ended(_));
        if is_first {
            let since_s = Clock::wall_ms().cast_signed() / 1_000 - RECENT.as_secs().cast_signed();
            let is_former = |job: &&Job| has_ended(job) && job.ended.is_none_or(|ended_s| ended_s < since_s);
            self.former = jobs.iter().filter(is_former).map(|job| job.id).collect();
        }
        // Some have been requeued.
        let listed: HashSet<JobId> = jobs.iter().filter(|job| has_ended(job)).map(|job| job.id).collect();
        self.former.retain(|id| listed.contains(id));
        jobs.retain(|job| !self.former.contains(&job.id));
    }

    /// Queries missing details, or the nodes if they are due: a poll does not query both, so that it stays
    /// within the budget of [`PollSchedule`].
    async fn query_details_or_nodes(&mut self, jobs: &[Job], is_first: bool) {
        let age = self.nodes_queried.map(|at| at.elapsed());
        let are_older = |than| age.is_none_or(|age| age >= than);
        let may_query = |slurm: &Self| {
            let lists = if slurm.moved.is_empty() { 1 } else { 2 };
            slurm.selection.is_of_others() && slurm.requests <= lists * SQUEUE_REQUESTS
        };
        if may_query(self) && !is_first && are_older(NODE_PATIENCE) {
            return self.query_nodes().await;
        }
        self.query_details(jobs).await;
        if may_query(self) && are_older(NODE_INTERVAL) {
            self.query_nodes().await;
        }
    }

    /// Queries the nodes of the cluster. A failure does not delay the list.
    async fn query_nodes(&mut self) {
        self.requests += NODE_REQUESTS;
        self.nodes_queried = Some(Instant::now());
        match self.client.run(Program::Scontrol, &nodes::args()).await {
            Ok(output) => self.summary = nodes::summary(&output.out, &self.selection),
            Err(error) => tracing::warn!("{error}; the overview of the cluster is not updated"),
        }
    }

    /// Queries missing details. A failure does not delay the list.
    async fn query_details(&mut self, jobs: &[Job]) {
        match self.cache.plan(jobs) {
            DetailQuery::All => {
                let Ok(mut found) = self.query_detail(None).await else { return };
                for job in jobs {
                    // What is missing here is queried one by one in the next polls.
                    if let Some(Some(detail)) = found.remove(&job.id) {
                        self.cache.record(job, Some(detail));
                    }
                }
            }
            DetailQuery::Each(wanted) => {
                for job in jobs.iter().filter(|job| wanted.contains(&job.id)) {
                    let Ok(mut found) = self.query_detail(Some(job.id)).await else { return };
                    self.cache.record(job, found.remove(&job.id).flatten());
                }
            }
        }
    }

    async fn query_detail(
        &mut self,
        id: Option<JobId>,
    ) -> Result<HashMap<JobId, Option<Detail>>, CommandError> {
        self.requests += SCONTROL_REQUESTS;
        match self.client.run(Program::Scontrol, &scontrol::job_args(id)).await {
            Ok(output) => Ok(scontrol::read(&output.out, &self.selection)),
            // The job ended between the two queries.
            Err(CommandError::Failed(_, why)) if why.contains("Invalid job id") => Ok(HashMap::new()),
            Err(error) => {
                tracing::warn!("{error}; details of new jobs are not available yet");
                Err(error)
            }
        }
    }
}

/// Removes what only the owner of a job may see: paths, and the command with its arguments.
fn withhold(job: &mut Job) {
    (job.workdir, job.stdout, job.stderr, job.command) = (None, None, None, None);
}

/// Returns what is odd about a list that is used all the same.
fn warning(list: &squeue::List, output: &Output) -> Option<String> {
    let stderr = command::error_message(&output.err);
    match list.refused {
        0 if has_error(output) => Some(format!("squeue printed an error with its list: {stderr}")),
        0 if list.noise => Some("squeue printed something besides its list, which was skipped".to_owned()),
        0 => None,
        refused => Some(format!("squeue printed {refused} jobs that were not requested; they were skipped")),
    }
}

/// Returns whether a command that exited with 0 printed an error all the same.
fn has_error(output: &Output) -> bool {
    output.err.contains("error")
}

#[async_trait]
impl<C: Client> JobSource for Slurm<C> {
    fn requests(&self) -> u32 {
        self.requests
    }

    fn is_of_many(&self) -> bool {
        self.selection.is_of_many()
    }

    fn cluster_name(&self) -> Option<&str> {
        let has_none = self.cluster_tries >= CLUSTER_TRIES;
        self.cluster.as_ref().map(Text::as_str).or(has_none.then_some(""))
    }

    fn take_cluster(&mut self) -> Option<ClusterSummary> {
        self.summary.take()
    }

    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        self.requests = 0;
        self.refuse_if_of_another_cluster()?;
        let is_first = !self.listed;
        let mut jobs = self.list().await?;
        self.drop_former(&mut jobs, is_first);
        self.query_details_or_nodes(&jobs, is_first).await;
        self.cache.fill(&mut jobs);
        let of_others = jobs.iter_mut().filter(|job| self.of_others.contains(&job.id));
        of_others.for_each(withhold);
        if self.cluster.is_none() && self.cluster_tries < CLUSTER_TRIES {
            self.requests += 1;
            let _ = self.query_cluster_name().await;
            self.refuse_if_of_another_cluster()?;
        }
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests;
