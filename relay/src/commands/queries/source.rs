//! Sources of a query's answer: the running relay, or its parts within this process.

use anyhow::{Context, bail};
use hyper::Method;
use nodeglass_api::{Job, JobSelector, Snapshot};
use nodeglass_app::embedded::Embedded;
use nodeglass_app::remote::Remote;
use nodeglass_app::terminal;
use nodeglass_config::{Config, Requested};
use nodeglass_protocol::Picture;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_rules::health::is_settled;
use nodeglass_share::Viewer;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum time for an own relay until every node has responded or failed, and for any relay until it knows the jobs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of checks whether it has.
const CHECK: Duration = Duration::from_millis(100);
/// Time for which a waiting command tries to reach a relay that was stopped.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause between attempts.
const RETRY: Duration = Duration::from_secs(1);

/// The source of snapshots.
pub enum Source {
    /// The owner's running relay.
    Running(Box<Remote>),
    /// A relay of this process alone.
    Own(Box<Embedded>),
}

/// Time for which a source has observed the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// For a few seconds: no relay runs.
    Glance,
    /// For as long as the relay has run.
    For(Duration),
}

/// The part of `/status` about the relay and the list of jobs.
#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    uptime_s: u64,
    slurm: SlurmState,
}

/// State of SLURM.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SlurmState {
    /// `not_yet`, `no_slurm`, `fresh` or `stale`.
    state: String,
    /// Age of the list of jobs, if there is one.
    pub age_s: Option<u64>,
    /// Reason for the failure of the last query.
    reason: Option<String>,
}

impl SlurmState {
    fn of(health: &JobsHealth, now_ms: u64) -> Self {
        let age_s = |at_ms: u64| now_ms.saturating_sub(at_ms) / 1_000;
        let state = |state: &str| Self { state: state.to_owned(), ..Self::default() };
        match health {
            JobsHealth::NotYet => state("not_yet"),
            JobsHealth::NoSlurm => state("no_slurm"),
            JobsHealth::Fresh { at_ms } => Self { age_s: Some(age_s(*at_ms)), ..state("fresh") },
            JobsHealth::Stale { last_ms, reason, .. } => {
                Self { age_s: last_ms.map(age_s), reason: Some(reason.to_string()), ..state("stale") }
            }
        }
    }

    fn is_pending(&self) -> bool {
        self.state == "not_yet"
    }

    /// That the list of jobs is old because SLURM does not respond, if so.
    pub fn staleness(&self) -> Option<String> {
        let (age_s, reason) = (self.age_s?, self.reason.as_ref()?);
        Some(format!("the list of jobs is {age_s} s old: {reason}"))
    }

    /// Returns the reason for the lack of a list of jobs.
    fn failure(&self) -> Option<String> {
        let reason = self.reason.as_ref().filter(|_| self.age_s.is_none())?;
        Some(format!("SLURM has not listed the jobs: {reason}; `relay doctor` says what to do"))
    }
}

impl Source {
    /// Attaches to the running relay that watches what is `requested`, if anything is; if there is none, starts to watch what
    /// `config` says. What was started runs until [`Self::close`].
    ///
    /// # Errors
    /// A complete sentence for the user: the relay that was named does not run, or nothing can be watched.
    pub async fn open(
        relay: Option<u32>,
        config: Config,
        requested: Option<&Requested>,
    ) -> anyhow::Result<Self> {
        Ok(match Remote::matching(relay, requested)? {
            Some(running) => Self::Running(Box::new(running)),
            None => Self::Own(Box::new(Embedded::start(config).await?)),
        })
    }

    /// Waits until every node has answered or failed, or the time is up; a running relay is asked as it is.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let Self::Own(own) = self else { return Ok(()) };
        let started = Instant::now();
        while started.elapsed() < SETTLE_TIMEOUT && !is_settled(&*picture(own).await?) {
            sleep(CHECK).await;
        }
        Ok(())
    }

    /// The current state.
    ///
    /// # Errors
    /// A complete sentence for the user, also where there is nothing because SLURM does not respond.
    pub async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let started = Instant::now();
        loop {
            let snapshot = self.read().await?;
            if is_listed(&snapshot) {
                return Ok(snapshot);
            }
            let slurm = self.slurm().await?;
            if let Some(failure) = slurm.failure() {
                bail!(failure);
            }
            // A relay that has just been started.
            if !slurm.is_pending() || started.elapsed() >= SETTLE_TIMEOUT {
                return Ok(snapshot);
            }
            sleep(CHECK).await;
        }
    }

    /// Returns a snapshot from a newer list of jobs, if the last one lacks a named job: it may have been submitted
    /// since.
    ///
    /// # Errors
    /// A complete sentence for the user, also if SLURM does not respond and the job is unknown therefore.
    pub async fn snapshot_with(&self, job: Option<&JobSelector>) -> anyhow::Result<Snapshot> {
        let snapshot = self.snapshot().await?;
        match job.filter(|job| job.select(&snapshot.jobs).is_empty()) {
            Some(missing) if self.renew_jobs(missing).await? => self.snapshot().await,
            _ => Ok(snapshot),
        }
    }

    /// Returns once the list of jobs is newer than this call, and whether it has been renewed.
    ///
    /// # Errors
    /// A complete sentence for the user if SLURM does not respond.
    pub async fn renew_jobs(&self, job: &JobSelector) -> anyhow::Result<bool> {
        match self {
            Self::Running(relay) => relay.renew_jobs(job).await.map(|()| true),
            // Its list was requested by this command.
            Self::Own(_) => {
                let slurm = self.slurm().await?;
                match slurm.failure().or_else(|| slurm.staleness()) {
                    Some(why) => bail!("job {job} is not in the list of jobs: {why}"),
                    None => Ok(false),
                }
            }
        }
    }

    /// Returns for how long the state has been observed.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn observed(&self) -> anyhow::Result<Observed> {
        Ok(match self {
            Self::Running(relay) => {
                let status: Status = relay.json(Method::GET, "/status", String::new()).await?;
                Observed::For(Duration::from_secs(status.uptime_s))
            }
            Self::Own(_) => Observed::Glance,
        })
    }

    /// The current state, for a command that waits: if the relay is stopped, once it runs again.
    ///
    /// # Errors
    /// A complete sentence for the user: it did not come back within five minutes, or until `end`; or SLURM does not respond.
    pub async fn patient_snapshot(&mut self, end: Option<Instant>) -> anyhow::Result<Snapshot> {
        self.retried(end, async |source| source.snapshot().await).await
    }

    /// Returns the current state in the same way, whether or not SLURM has listed the jobs.
    ///
    /// # Errors
    /// A complete sentence for the user: the relay did not come back within five minutes, or until `end`.
    pub async fn patient_state(&mut self, end: Option<Instant>) -> anyhow::Result<Snapshot> {
        self.retried(end, async |source| source.read().await).await
    }

    async fn retried(
        &mut self,
        end: Option<Instant>,
        read: impl AsyncFn(&Self) -> anyhow::Result<Snapshot>,
    ) -> anyhow::Result<Snapshot> {
        let started = Instant::now();
        let mut is_stated = false;
        loop {
            let error = match read(self).await {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) => error,
            };
            let is_over = end.is_some_and(|end| Instant::now() >= end);
            if is_over || started.elapsed() >= RECONNECT_TIMEOUT || matches!(self, Self::Own(_)) {
                return Err(error);
            }
            if !is_stated {
                terminal::complain(format_args!("{error:#}; trying again for up to five minutes"));
                is_stated = true;
            }
            sleep(RETRY).await;
            self.find_again();
        }
    }

    /// Ends what was started.
    pub async fn close(self) {
        match self {
            Self::Running(_) => {}
            Self::Own(own) => own.stop().await,
        }
    }

    async fn read(&self) -> anyhow::Result<Snapshot> {
        match self {
            Self::Running(relay) => relay.json(Method::GET, "/api/v1/snapshot", String::new()).await,
            Self::Own(own) => {
                let wall_ahead_ms = own.clock().displayed_wall_ahead_ms();
                let picture = picture(own).await?;
                Ok(Snapshot::new(&picture, wall_ahead_ms))
            }
        }
    }

    /// Returns whether SLURM responds, and the age of the list of jobs.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn slurm(&self) -> anyhow::Result<SlurmState> {
        match self {
            Self::Running(relay) => {
                Ok(relay.json::<Status>(Method::GET, "/status", String::new()).await?.slurm)
            }
            Self::Own(own) => {
                let picture = picture(own).await?;
                Ok(SlurmState::of(&picture.relay.jobs, picture.at_ms))
            }
        }
    }

    /// A restarted relay has another process id; it is found if it is the only one.
    fn find_again(&mut self) {
        let Self::Running(relay) = self else { return };
        let same = Remote::find(Some(relay.pid()));
        if let Ok(found) = same.or_else(|_| Remote::find(None)) {
            **relay = found;
        }
    }
}

/// Returns whether SLURM, or a list of hosts, has stated what there is: a relay that was started anew lists the jobs that an
/// earlier one saw end.
fn is_listed(snapshot: &Snapshot) -> bool {
    !snapshot.nodes.is_empty() || !snapshot.jobs.iter().all(Job::has_ended)
}

async fn picture(own: &Embedded) -> anyhow::Result<Box<Picture>> {
    Ok(own.hub().everything(Viewer::Owner).await.context("the relay has ended")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_an_earlier_relay_saw_end_are_no_list() {
        let of = |state: &str, is_active| {
            let job = super::super::tests::snapshot().jobs[0].clone();
            let jobs = vec![Job { state: state.to_owned(), is_active, ..job }];
            is_listed(&Snapshot { jobs, ..Snapshot::default() })
        };
        assert_eq!([of("COMPLETED", false), of("PENDING", false), of("RUNNING", true)], [false, true, true]);
    }

    #[test]
    fn a_list_that_slurm_never_gave_is_a_failure_and_an_old_one_is_not() {
        let stale =
            |last_ms| JobsHealth::Stale { last_ms, reason: "squeue timed out".into(), retry_at_ms: 1 };
        let failure = SlurmState::of(&stale(None), 0).failure().unwrap();
        assert!(failure.contains("squeue timed out") && failure.contains("relay doctor"), "{failure}");
        for health in
            [stale(Some(1)), JobsHealth::NoSlurm, JobsHealth::Fresh { at_ms: 1 }, JobsHealth::NotYet]
        {
            assert_eq!(SlurmState::of(&health, 9_001).failure(), None, "{health:?}");
        }
        let staleness = |health: &JobsHealth| SlurmState::of(health, 29_001).staleness();
        assert_eq!(
            staleness(&stale(Some(1))).as_deref(),
            Some("the list of jobs is 29 s old: squeue timed out")
        );
        assert_eq!((staleness(&stale(None)), staleness(&JobsHealth::Fresh { at_ms: 1 })), (None, None));
        let status: Status = serde_json::from_str(
            r#"{"slurm": {"state": "stale", "age_s": null, "reason": "x", "retry_in_s": 3}}"#,
        )
        .unwrap();
        assert!(status.slurm.failure().is_some());
    }
}
