//! Actions of the owner: process details, signals, job control, shares and logs.
//!
//! Details and signals go to the node's probe, job control to SLURM; logs are read locally or by a
//! probe. None of this touches pictures, except that each action is added to the audit log.

mod log_buffer;
mod log_reader;
mod logs;
mod silences;

pub use logs::{FollowedLog, LogFiles, LogWatch, Logs, Recipient, SimulatedFiles};
use nodeglass_findings::job_log::LogPatterns;
use nodeglass_fleet::{Event, NoteChange};
use nodeglass_live::Hub;
use nodeglass_nodes::{JobListVersion, Plan, Probes};
use nodeglass_notify::report_webhook;
use nodeglass_notify::webhook::Webhook;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::finding::{Silence, SilenceRequest};
use nodeglass_protocol::note::{NoteRequest, SavedNote};
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::request::{
    AuditEntry, FoundProcess, JobAction, ProbeRequest, ProcessRef, Request, Response, RetryTarget, Signal,
};
use nodeglass_protocol::share::{ShareId, ShareLink, ShareRequest, Sharing};
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_recording::PlayerControl;
use nodeglass_share::{ShareError, Shares, Viewer};
use nodeglass_slurm::{JobController, PollReason, PollTrigger};
use nodeglass_store::{AuditRecorder, JobStore};
pub use silences::Silences;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Time limit for reading the audit log; the database may wait for a disk.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for posting a report with all attempts; a page waits 20 s.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(18);

/// Whether and how jobs can be controlled.
#[derive(Clone)]
pub enum JobControl {
    /// By this controller.
    Enabled(Arc<dyn JobController>),
    /// Not at all, and why.
    Disabled(&'static str),
}

/// Reason for the lack of a job list that is newer than a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNewerJobs {
    /// SLURM does not respond.
    Failing,
    /// It has not been polled within [`NEWER_JOBS_TIMEOUT`].
    Late,
}

/// Time limit for a newer job list: longer than the minimum interval between two polls, and shorter than clients wait.
const NEWER_JOBS_TIMEOUT: Duration = Duration::from_secs(8);

/// Dependencies of the action service.
#[derive(Clone, Debug)]
pub struct Deps {
    /// Access to the job list.
    pub hub: Hub,
    /// Access to the probes.
    pub probes: Probes,
    /// Controls jobs.
    pub job_control: JobControl,
    /// Receives audit entries.
    pub events: mpsc::Sender<Event>,
    /// Requests an early poll of the job list.
    pub poll_trigger: PollTrigger,
    /// States which poll the state of the fleet is based on.
    pub plan: watch::Receiver<Plan>,
    /// The user whose jobs may be controlled.
    pub user: Text,
    /// Locations of job logs besides the nodes.
    pub log_files: LogFiles,
    /// Whether actions are rejected.
    pub read_only: bool,
    /// The shares.
    pub shares: Arc<Shares>,
    /// Stores the audit log.
    pub audit: AuditRecorder,
    /// Knows the reports of ended jobs.
    pub store: JobStore,
    /// The URL to which reports are posted on request.
    pub report_webhook: Option<Webhook>,
    /// The silences of findings.
    pub silences: Silences,
    /// The recording that is played instead of watching a cluster.
    pub player: Option<PlayerControl>,
}

/// Executes requests of the owner. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ActionService {
    deps: Arc<Deps>,
    logs: Logs,
}

impl ActionService {
    /// Creates an action service from its dependencies.
    pub fn new(deps: Deps) -> Self {
        let logs =
            Logs::new(deps.hub.clone(), deps.probes.clone(), deps.log_files.clone(), deps.user.clone());
        Self { deps: Arc::new(deps), logs }
    }

    /// Watches the logs of the owner's jobs, by the rules for `recipient`; to be run.
    pub fn log_watch(&self, patterns: LogPatterns, clock: Clock, recipient: Recipient) -> LogWatch {
        LogWatch::new((self.logs.clone(), recipient), self.deps.events.clone(), patterns, clock)
    }

    /// Returns the silences of findings; some may have ended.
    pub fn silences(&self) -> Vec<Silence> {
        self.deps.silences.list()
    }

    /// Executes a request and returns the result. An action completes and is audited even if the caller
    /// is dropped.
    pub async fn request(&self, request: Request) -> Response {
        if request.is_action() && self.deps.read_only {
            return Response::Refused("this relay was started with --read-only or --view-only".into());
        }
        let deps = self.deps.clone();
        match request {
            Request::Process { node, process, environment } => {
                deps.probes.request(&node, ProbeRequest::Process { process, environment }).await
            }
            Request::Signal { node, process, signal } => {
                run_detached(async move { deps.signal(node, process, signal).await }).await
            }
            Request::Job { job, action } => {
                run_detached(async move { deps.control_job(job, action).await }).await
            }
            Request::Share(request) => run_detached(async move { deps.share(*request).await }).await,
            Request::ShareLink(id) => linked(deps.shares.link(&id)),
            Request::Revoke(id) => run_detached(async move { deps.revoke(id).await }).await,
            Request::Retry(_) if deps.player.is_some() => {
                Response::Refused("a recording is played, which has nothing to retry".into())
            }
            Request::Retry(target) => deps.retry(target).await,
            Request::SendReport(job) => run_detached(async move { deps.send_report(job).await }).await,
            Request::FindProcesses { pid } => deps.find_processes(pid).await,
            Request::Audit { days } => deps.audit_log(days).await,
            Request::Silence(request) => run_detached(async move { deps.silence(request).await }).await,
            Request::Note(_) if deps.player.is_some() => {
                Response::Refused("notes cannot be added while a recording is played".into())
            }
            Request::Note(request) => run_detached(async move { deps.note(request).await }).await,
            Request::Replay(command) => match &deps.player {
                None => Response::Refused("this relay watches a cluster; it plays no recording".into()),
                Some(player) => match player.apply(command).await {
                    Ok(()) => Response::Done("the recording is played as requested".into()),
                    Err(why) => Response::Refused(why),
                },
            },
        }
    }

    /// Requests an early poll: the owner opened a page, perhaps to see a job that was just submitted.
    pub fn refresh_jobs(&self) {
        self.deps.poll_trigger.send(PollReason::Doubt);
    }

    /// Waits for a job list that is newer than this call: a job that was just submitted may be missing in the last one.
    /// Returns at once where no jobs are polled.
    ///
    /// # Errors
    /// There is none, because SLURM does not respond, or not in time.
    pub async fn newer_jobs(&self) -> Result<(), NoNewerJobs> {
        let mut plan = self.deps.plan.clone();
        let before = plan.borrow_and_update().list;
        let Some(wanted) = self.deps.poll_trigger.request_newer() else { return Ok(()) };
        if before.number > 0 && !before.is_fresh {
            return Err(NoNewerJobs::Failing);
        }
        let is_answer =
            |list: JobListVersion| list.number >= wanted || list.number > before.number && !list.is_fresh;
        match timeout(NEWER_JOBS_TIMEOUT, plan.wait_for(|plan| is_answer(plan.list))).await {
            Ok(Ok(plan)) if plan.list.is_fresh => Ok(()),
            Ok(_) => Err(NoNewerJobs::Failing),
            Err(_) => Err(NoNewerJobs::Late),
        }
    }

    /// Access to logs, which is read-only.
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Open shares and current visitors.
    pub fn sharing(&self) -> Sharing {
        self.deps.shares.watch().borrow().clone()
    }
}

fn linked(made: Result<ShareLink, ShareError>) -> Response {
    match made {
        Ok(link) => Response::Share(Box::new(link)),
        Err(error) => Response::Refused(error.to_string().into()),
    }
}

/// Runs a change of shares on a blocking thread: with `--persist-shares` it writes to disk.
async fn run_blocking<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, ShareError> + Send + 'static,
) -> Result<T, ShareError> {
    let done = tokio::task::spawn_blocking(change).await;
    done.unwrap_or_else(|_| Err(ShareError::Failed("internal error; see the relay's log".into())))
}

/// Runs an action to completion even if the caller is dropped.
async fn run_detached(action: impl Future<Output = Response> + Send + 'static) -> Response {
    let done = tokio::spawn(action).await;
    done.unwrap_or_else(|_| Response::Refused("internal error; see the relay's log".into()))
}

impl Deps {
    async fn audit_log(&self, days: u32) -> Response {
        match timeout(AUDIT_TIMEOUT, self.audit.read(days)).await {
            Ok(Some(log)) => Response::Audit(Box::new(log)),
            Ok(None) => Response::Refused("the audit log cannot be read; see the relay's log".into()),
            Err(_) => Response::Refused("the database does not respond; try again later".into()),
        }
    }

    async fn find_processes(&self, pid: u32) -> Response {
        let Some((picture, _)) = self.hub.everything(Viewer::Owner).await else {
            return Response::Refused("the relay is shutting down".into());
        };
        let of_node = |node: NodePicture| {
            let processes = node.processes.into_iter().filter(|process| process.facts.pid == pid);
            let found =
                move |process: ProcessPicture| FoundProcess { node: node.name.clone(), facts: process.facts };
            processes.map(found).collect::<Vec<_>>()
        };
        Response::Processes(picture.nodes.into_iter().flat_map(of_node).take(FoundProcess::MAX).collect())
    }

    async fn silence(&self, request: SilenceRequest) -> Response {
        let jobs = self.hub.jobs(Viewer::Owner).await.unwrap_or_default();
        self.silences.change(request, &jobs, Clock::wall_ms(), &self.events).await
    }

    async fn share(&self, mut request: ShareRequest) -> Response {
        if let Some(what) = self.hub.unwatched(request.scope.clone()).await {
            return linked(Err(ShareError::NotWatched(what)));
        }
        if self.hub.has_ended(request.scope.clone()).await == Some(true) {
            // What has ended cannot end the share.
            request.lifetime_s.get_or_insert(ShareRequest::DEFAULT_S);
        }
        let shares = self.shares.clone();
        let created = run_blocking(move || shares.create(request)).await;
        if let Ok(ShareLink { share, .. }) = &created {
            let audience = share.terms.to.as_ref().map_or("anyone with the link", Text::as_str);
            let outcome = format!("for {audience}");
            let what = format!("create share {} of {}", share.id, share.terms.scope);
            self.store_entry(what, outcome.into(), true);
        }
        linked(created)
    }

    async fn revoke(&self, id: ShareId) -> Response {
        let (shares, revoked) = (self.shares.clone(), id.clone());
        let result = run_blocking(move || shares.revoke(&revoked)).await;
        let response = match &result {
            Ok(()) => Response::Done("the share was revoked".into()),
            Err(error) => Response::Refused(error.to_string().into()),
        };
        if let Response::Done(outcome) | Response::Refused(outcome) = &response {
            self.store_entry(format!("revoke share {id}"), outcome.clone(), result.is_ok());
        }
        response
    }

    /// Stores an action in the audit log.
    fn store_entry(&self, what: String, outcome: Text, succeeded: bool) -> AuditEntry {
        let entry = AuditEntry { wall_ms: Clock::wall_ms(), action: what.into(), outcome, succeeded };
        self.audit.action(entry.clone());
        entry
    }

    /// Allowed on a read-only relay, as it changes nothing on the cluster.
    async fn note(&self, request: NoteRequest) -> Response {
        // Another relay may have added, changed or deleted the note.
        let stored = self.store.changed_notes_now().await;
        match self.hub.note(request, stored).await {
            Ok((NoteChange::Put(note) | NoteChange::Add(note), is_stored)) => {
                // The notes of a simulated cluster end with their relay.
                let is_stored = is_stored && self.store.is_durable();
                Response::Note(Box::new(SavedNote { note, is_stored }))
            }
            Ok((NoteChange::Delete(_), true)) => Response::Done("the note was deleted".into()),
            Ok((NoteChange::Delete(_), false)) => {
                Response::Done("the note was deleted, but this could not be stored yet".into())
            }
            Err(why) => Response::Refused(why),
        }
    }

    async fn signal(&self, node: NodeName, process: ProcessRef, signal: Signal) -> Response {
        let what = format!("{} to {} on {node}", signal.name(), process.pid);
        let response = self.probes.request(&node, ProbeRequest::Signal { process, signal }).await;
        self.record(what, &response).await;
        response
    }

    async fn control_job(&self, id: JobId, action: JobAction) -> Response {
        let Some(job) = self.hub.job(id).await else {
            return Response::Refused(format!("there is no job {id} in the list").into());
        };
        if job.user != self.user {
            return Response::Refused(format!("job {} is {}'s, not yours", job.label, job.user).into());
        }
        let outcome = match &self.job_control {
            JobControl::Enabled(controller) => controller.execute(&job, action).await,
            JobControl::Disabled(why) => Err((*why).into()),
        };
        let response = match outcome {
            Ok(done) => Response::Done(done),
            Err(why) => Response::Refused(why),
        };
        self.record(format!("{} job {}", verb(action), job.label), &response).await;
        self.poll_trigger.send(PollReason::Order);
        response
    }

    /// Allowed on a read-only relay, as it changes nothing on the cluster. Only the settings name the URL.
    async fn send_report(&self, job: JobId) -> Response {
        let Some(webhook) = &self.report_webhook else {
            return Response::Refused("no webhook is configured; set report-webhook".into());
        };
        let posted = async {
            let usage = self.hub.usage(job, Viewer::Owner).await;
            let (running, notes) = usage.map_or((None, Vec::new()), |usage| (usage.running, usage.notes));
            let record = match running {
                Some(record) => Some(record),
                None => self.store.job(job).await,
            };
            let record = record.ok_or_else(|| format!("there is no report of job {job}"))?;
            let notes = self.store.report_notes(job, notes).await;
            report_webhook::post(webhook, &record.report_with(notes)).await
        };
        let late = || Err(format!("{} did not respond in time", webhook.display_url()));
        let (response, outcome) = match timeout(WEBHOOK_TIMEOUT, posted).await.unwrap_or_else(|_| late()) {
            Ok(done) => (Response::Done(Text::new(&done)), (done, true)),
            Err(why) => (Response::Refused(Text::new(&why)), (why, false)),
        };
        self.store_entry(format!("send report of job {job}"), outcome.0.into(), outcome.1);
        response
    }

    /// Allowed on a read-only relay, as it changes nothing on the cluster.
    async fn retry(&self, target: RetryTarget) -> Response {
        let node = match target {
            RetryTarget::Jobs => {
                self.poll_trigger.send(PollReason::Retry);
                return Response::Done("asking SLURM for the job list".into());
            }
            RetryTarget::Node(node) => Some(node),
            RetryTarget::Everything => {
                self.poll_trigger.send(PollReason::Retry);
                None
            }
        };
        let asks_slurm = node.is_none() && self.poll_trigger.is_polled();
        match self.probes.retry(node).await {
            Response::Done(done) if asks_slurm => {
                Response::Done(format!("asking SLURM for the job list; {done}").into())
            }
            response => response,
        }
    }

    /// Records an action in the relay's log and in the audit log, and shows it on the owner's pages.
    async fn record(&self, what: String, response: &Response) {
        let (done, outcome) = match response {
            Response::Done(outcome) => (true, outcome.clone()),
            Response::Refused(why) => (false, why.clone()),
            Response::Process(_)
            | Response::Tail(_)
            | Response::Share(_)
            | Response::Audit(_)
            | Response::Note(_)
            | Response::Capture(_)
            | Response::Processes(_) => (false, "unexpected response".into()),
        };
        tracing::info!(action.what = %what, action.outcome = %outcome, action.done = done, "action requested");
        let entry = self.store_entry(what, outcome, done);
        let _ = self.events.send(Event::Audit(entry)).await;
    }
}

fn verb(action: JobAction) -> &'static str {
    match action {
        JobAction::Cancel => "cancel",
        JobAction::Hold => "hold",
        JobAction::Release => "release",
        JobAction::Requeue => "requeue",
    }
}

impl fmt::Debug for JobControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enabled(_) => "Enabled(..)",
            Self::Disabled(why) => why,
        })
    }
}
