//! SLURM as a job source: one poll is one squeue, and scontrol only for what is new.

use super::{
    JobSource, JobsError,
    details::{Details, Plan},
    query::{self, Client, Commands, Printed, Program, QueryError},
    scontrol::{self, Detail},
    squeue::{self, Mark},
};
use async_trait::async_trait;
use nodeglass_protocol::{
    JobId, Text,
    job::{Job, JobState},
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Why this machine has no SLURM to watch; one sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSlurm {
    /// There is no `squeue`.
    #[error("no SLURM on this machine: squeue is not on the PATH")]
    NotInstalled,
    /// There are commands but nothing says which cluster they are for.
    #[error(
        "no SLURM on this machine: it is installed but has no slurm.conf; set SLURM_CONF if it is in an unusual place"
    )]
    NotConfigured,
}

/// So often the name of the cluster is asked for when it was not told at first.
const CLUSTER_TRIES: u32 = 3;
/// Requests to the controller that one run of squeue makes: the user's jobs, and the partitions, which it always loads
/// (counted with `sdiag` on 22.05; no option of it avoids the second).
const SQUEUE_REQUESTS: u32 = 2;
/// The same of `scontrol --details show job`: jobs and nodes.
const SCONTROL_REQUESTS: u32 = 2;
/// So many jobs that a list leaves out are asked for one by one before the list is believed.
const DOUBTED_JOBS: usize = 3;

/// The jobs of one user on the cluster that this machine belongs to.
#[derive(Debug)]
pub struct Slurm<C = Commands> {
    client: C,
    uid: u32,
    cluster: Option<Text>,
    cluster_tries: u32,
    details: Details,
    /// Whether there has been a list, which whoever asks may go on showing.
    listed: bool,
    /// Jobs that an earlier list held before they ended, and so may be shown as ended.
    met: HashSet<JobId>,
    /// Jobs of the last list that had not ended.
    open: BTreeSet<JobId>,
    /// Requests that the last poll made.
    requests: u32,
}

impl Slurm<Commands> {
    /// Looks for SLURM on this machine, to watch the jobs of the user who runs this process.
    ///
    /// A cluster whose controller does not answer now is a cluster all the same.
    ///
    /// # Errors
    /// [`NoSlurm`] if there is none; watch this machine instead and show the sentence.
    pub async fn detect() -> Result<Self, NoSlurm> {
        Self::detect_with(Commands::new(), rustix::process::getuid().as_raw()).await
    }
}

impl<C: Client> Slurm<C> {
    /// Looks for SLURM through `client`, to watch the jobs of the user with this number.
    ///
    /// # Errors
    /// [`NoSlurm`] if there is none.
    pub async fn detect_with(client: C, uid: u32) -> Result<Self, NoSlurm> {
        let mut slurm = Self {
            client,
            uid,
            cluster: None,
            cluster_tries: 0,
            details: Details::default(),
            listed: false,
            met: HashSet::new(),
            open: BTreeSet::new(),
            requests: 0,
        };
        match slurm.ask_cluster().await {
            Err(QueryError::Missing(_)) => Err(NoSlurm::NotInstalled),
            Err(QueryError::Said(_, why)) if why.contains("configuration source") => {
                Err(NoSlurm::NotConfigured)
            }
            Err(_) | Ok(()) => Ok(slurm),
        }
    }

    /// Whose jobs it watches.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The cluster's name (`ClusterName`), once SLURM has told it.
    pub fn cluster(&self) -> Option<&Text> {
        self.cluster.as_ref()
    }

    async fn ask_cluster(&mut self) -> Result<(), QueryError> {
        self.cluster_tries += 1;
        let printed = self.client.ask(Program::Scontrol, &scontrol::config_args()).await?;
        self.cluster = scontrol::cluster_name(&printed.out).map(Text::from);
        Ok(())
    }

    async fn list(&mut self) -> Result<Vec<Job>, JobsError> {
        let mark = Mark::random();
        self.requests += SQUEUE_REQUESTS;
        let asked = self.client.ask(Program::Squeue, &squeue::args(self.uid, &mark)).await;
        let printed = asked.map_err(|error| self.sentence(&error))?;
        let list = squeue::read(&printed.out, self.uid, &mark);
        self.refuse_if_no_list(&printed, &list)?;
        self.refuse_if_jobs_are_missing(&printed, &list).await?;
        if list.refused > 0 || list.noise || has_error(&printed) {
            tracing::warn!(
                refused = list.refused,
                stderr = %query::sentence(&printed.err),
                "squeue printed something that is no job of this user; it was skipped"
            );
        }
        self.listed = true;
        let open = list.jobs.iter().filter(|job| !matches!(job.state, JobState::Ended(_)));
        self.open = open.map(|job| job.id).collect();
        Ok(list.jobs)
    }

    fn sentence(&self, error: &QueryError) -> JobsError {
        self.keep_last(&error.to_string())
    }

    fn keep_last(&self, why: &str) -> JobsError {
        let rest = if self.listed { "; showing the last list" } else { "; trying again" };
        JobsError { why: format!("{why}{rest}").into() }
    }

    /// What squeue prints is a list only from the titles of its columns to the end of its last line: some of its errors
    /// exit with 0, and whatever stands between it and us may cut its output off.
    fn refuse_if_no_list(&self, printed: &Printed, list: &squeue::List) -> Result<(), JobsError> {
        let is_whole = list.titled && !list.cut_off;
        if !is_whole && has_error(printed) {
            return Err(self.sentence(&QueryError::Said(Program::Squeue, query::sentence(&printed.err))));
        }
        if !list.titled && list.jobs.is_empty() {
            let start = Text::from_bytes(&printed.out[..printed.out.len().min(60)]);
            let what = match start.as_str() {
                "" => "nothing, not even the titles of its columns".to_owned(),
                start => format!("something that is no job list (“{start}”)"),
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

    /// A job that has just ended is still listed, with its state, for as long as SLURM remembers it (`MinJobAge`). One
    /// that is missing altogether was either forgotten at once, or the list is not whole: scontrol knows.
    async fn refuse_if_jobs_are_missing(
        &mut self,
        printed: &Printed,
        list: &squeue::List,
    ) -> Result<(), JobsError> {
        let mut missing = self.open.clone();
        missing.retain(|id| list.jobs.iter().all(|job| job.id != *id));
        if missing.is_empty() {
            return Ok(());
        }
        if has_error(printed) {
            return Err(self.sentence(&QueryError::Said(Program::Squeue, query::sentence(&printed.err))));
        }
        for id in missing.into_iter().take(DOUBTED_JOBS) {
            self.requests += SCONTROL_REQUESTS;
            match self.client.ask(Program::Scontrol, &scontrol::job_args(Some(id))).await {
                Ok(printed) if scontrol::goes_on(&printed.out, id) == Some(true) => {
                    let why = format!("squeue left out job {id}, which scontrol still shows");
                    return Err(self.keep_last(&why));
                }
                Ok(_) => {}
                Err(QueryError::Said(_, why)) if why.contains("Invalid job id") => {}
                Err(error) => return Err(self.sentence(&error)),
            }
        }
        Ok(())
    }

    /// Leaves out jobs that had ended before this source ever listed them.
    fn keep_met(&mut self, jobs: &mut Vec<Job>) {
        let listed: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
        self.met.retain(|id| listed.contains(id));
        let ended = |job: &Job| matches!(job.state, JobState::Ended(_));
        self.met.extend(jobs.iter().filter(|job| !ended(job)).map(|job| job.id));
        jobs.retain(|job| self.met.contains(&job.id));
    }

    /// Asks for the details that are missing. That they could not be had is no reason to hold back the list.
    async fn ask_details(&mut self, jobs: &[Job]) {
        match self.details.plan(jobs) {
            Plan::All => {
                let Ok(mut found) = self.ask_detail(None).await else { return };
                for job in jobs {
                    // What is missing here is asked one by one in the next polls.
                    if let Some(Some(detail)) = found.remove(&job.id) {
                        self.details.learn(job, Some(detail));
                    }
                }
            }
            Plan::Each(wanted) => {
                for job in jobs.iter().filter(|job| wanted.contains(&job.id)) {
                    let Ok(mut found) = self.ask_detail(Some(job.id)).await else { return };
                    self.details.learn(job, found.remove(&job.id).flatten());
                }
            }
        }
    }

    async fn ask_detail(&mut self, id: Option<JobId>) -> Result<HashMap<JobId, Option<Detail>>, QueryError> {
        self.requests += SCONTROL_REQUESTS;
        match self.client.ask(Program::Scontrol, &scontrol::job_args(id)).await {
            Ok(printed) => Ok(scontrol::read(&printed.out, self.uid)),
            // The job ended between the two questions.
            Err(QueryError::Said(_, why)) if why.contains("Invalid job id") => Ok(HashMap::new()),
            Err(error) => {
                tracing::warn!("{error}; details of the new jobs are not known yet");
                Err(error)
            }
        }
    }
}

/// Whether a command that exited with 0 complained all the same.
fn has_error(printed: &Printed) -> bool {
    printed.err.contains("error")
}

#[async_trait]
impl<C: Client> JobSource for Slurm<C> {
    fn requests(&self) -> u32 {
        self.requests
    }

    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        self.requests = 0;
        let mut jobs = self.list().await?;
        self.keep_met(&mut jobs);
        self.ask_details(&jobs).await;
        self.details.fill(&mut jobs);
        if self.cluster.is_none() && self.cluster_tries < CLUSTER_TRIES {
            self.requests += 1;
            let _ = self.ask_cluster().await;
        }
        Ok(jobs)
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
