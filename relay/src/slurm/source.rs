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
use std::collections::{HashMap, HashSet};

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
        };
        match slurm.ask_cluster().await {
            Err(QueryError::Missing(_)) => Err(NoSlurm::NotInstalled),
            Err(QueryError::Said(_, why)) if why.contains("configuration source") => {
                Err(NoSlurm::NotConfigured)
            }
            Err(_) | Ok(()) => Ok(slurm),
        }
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
        let asked = self.client.ask(Program::Squeue, &squeue::args(self.uid, &mark)).await;
        let printed = asked.map_err(|error| self.sentence(&error))?;
        let list = squeue::read(&printed.out, self.uid, &mark);
        if list.jobs.is_empty() {
            self.refuse_if_no_list(&printed, &list)?;
        }
        if list.refused > 0 || list.noise {
            tracing::warn!(
                refused = list.refused,
                "squeue printed something that is no job of this user; it was skipped"
            );
        }
        self.listed = true;
        Ok(list.jobs)
    }

    fn sentence(&self, error: &QueryError) -> JobsError {
        let rest = if self.listed { "; showing the last list" } else { "; trying again" };
        JobsError { why: format!("{error}{rest}").into() }
    }

    /// An empty list is one only if squeue printed nothing at all: some of its errors exit with 0.
    fn refuse_if_no_list(&self, printed: &Printed, list: &squeue::List) -> Result<(), JobsError> {
        if printed.err.contains("error") {
            return Err(self.sentence(&QueryError::Said(Program::Squeue, query::sentence(&printed.err))));
        }
        if list.refused > 0 || list.noise {
            let start = Text::from_bytes(&printed.out[..printed.out.len().min(60)]);
            let why = format!(
                "squeue printed something that is no job list (“{start}”); is another squeue first on the PATH?"
            );
            return Err(JobsError { why: why.into() });
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

#[async_trait]
impl<C: Client> JobSource for Slurm<C> {
    async fn jobs(&mut self) -> Result<Vec<Job>, JobsError> {
        let mut jobs = self.list().await?;
        self.keep_met(&mut jobs);
        self.ask_details(&jobs).await;
        self.details.fill(&mut jobs);
        if self.cluster.is_none() && self.cluster_tries < CLUSTER_TRIES {
            let _ = self.ask_cluster().await;
        }
        Ok(jobs)
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
