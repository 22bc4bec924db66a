//! The running parts of a relay: how they are started, and how they end.

use super::listed_hosts::ListedHosts;
use super::nats;
use super::remote_write::{self, RemoteWrite};
use super::signals::Signals;
use super::site;
use super::sources::{Common, Sources};
use super::storage::{self, LaterHistory, Stored, StoredHistory};
use super::terminal::Terminal;
use super::watched::Watched;
use nodeglass_access::hosts::AllowedHosts;
use nodeglass_access::key_file::KeyFile;
use nodeglass_access::trust::Trust;
use nodeglass_actions::{ActionService, Deps, Recipient, Silences};
use nodeglass_auth::authenticator::Authenticator;
use nodeglass_config::Config;
use nodeglass_event_loop::capturer::Capturer;
use nodeglass_event_loop::own_load::OwnLimits;
use nodeglass_event_loop::{EventLoop, Inputs, Options, Sinks};
use nodeglass_findings::job_log::LogPatterns;
use nodeglass_fleet::StoredPart;
use nodeglass_live::Hub;
use nodeglass_nats::Publishing;
use nodeglass_nodes::{Plan, Probes};
use nodeglass_notify::{NotificationCounts, Notifier};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::Mode;
use nodeglass_remote_write::Counts as RemoteWriteCounts;
use nodeglass_remote_write::promql::PromQl;
use nodeglass_rules::text::span;
use nodeglass_share::{ShareEndpoint, Shares};
use nodeglass_slurm::PollTrigger;
use nodeglass_store::{AuditRecorder, JobStore};
use nodeglass_web::about::About;
use nodeglass_web::assets::{Assets, PageFile};
use nodeglass_web::{Listeners, WebState};
use std::future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// Capacity of the channel of node events; sessions wait when it is full.
const NODE_EVENTS: usize = 4_096;
/// Capacity of the channel of job lists and audit entries.
const EVENTS: usize = 8;
/// Time limit for probes to exit at shutdown.
pub(super) const PROBES_LEAVE: Duration = Duration::from_secs(5);
/// Time limit for giving leases up at shutdown; they expire by themselves soon after.
const LEASES_END: Duration = Duration::from_secs(2);
/// Interval of checks whether the file of the link is still there.
const LINK_CHECK: Duration = Duration::from_secs(5);
/// Time limit for storing jobs at shutdown.
const STORE_LEAVES: Duration = Duration::from_secs(2);

/// Parameters of a relay's start.
pub(super) struct Setup<'a> {
    pub(super) config: &'a Config,
    /// Constants of this run, without the downtimes that the stored history states.
    pub(super) about: About,
    pub(super) watched: Watched,
    /// Listed machines, if any.
    pub(super) hosts: Option<ListedHosts>,
    /// The connection to other relays, if nodes are shared with them.
    pub(super) nats: Option<Publishing>,
    /// The owner's key.
    pub(super) key: Key,
    /// The address at which guests reach this relay.
    pub(super) endpoint: ShareEndpoint,
    /// The terminal that shows notices.
    pub(super) terminal: Terminal,
    /// Whether history and jobs are stored in the state directory.
    pub(super) stores: bool,
    /// The page that it serves.
    pub(super) page: &'static [PageFile],
    /// Sampling intervals.
    pub(super) sampling: Options,
    /// The limits of this process; `None` if it has another purpose besides.
    pub(super) limits: Option<OwnLimits>,
}

/// Reasons for a relay to end.
pub(super) struct Ending {
    pub(super) signals: Signals,
    /// `auto_exit`, and what resolves when nobody has used the relay for that time; `None` if that does not end it.
    pub(super) unused: Option<(Duration, oneshot::Receiver<()>)>,
}

impl Ending {
    /// Waits for the first reason to end; returns what to say about it.
    async fn wait(self) -> Option<Text> {
        let unused = async {
            if let Some((after, unused)) = self.unused
                && unused.await.is_ok()
            {
                return after;
            }
            future::pending().await
        };
        tokio::select! {
            reason = self.signals.wait() => reason,
            after = unused => {
                let after = span(after.as_secs());
                Some(format!("no jobs, viewers or requests for {after}: the relay exits (auto-exit)").into())
            }
        }
    }
}

/// The name of this run of the relay, for users who read why a share is closed.
fn run_name() -> String {
    let started = local_time::here_and_now(Clock::wall_ms() / 1_000);
    format!("with the job numbers of relay {}, started {started}", std::process::id())
}

/// The running parts.
pub(super) struct Relay {
    pub(super) about: Arc<About>,
    pub(super) web: WebState,
    pub(super) store: JobStore,
    pub(super) shutdown: watch::Sender<bool>,
    pub(super) core: JoinHandle<()>,
    pub(super) nodes: JoinHandle<()>,
    /// Remote write, if configured.
    remote_write: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts every part.
    ///
    /// # Errors
    /// Any failure of the start, as a complete sentence for the user.
    pub(super) fn start(setup: Setup<'_>) -> anyhow::Result<Self> {
        let Setup { config, about, watched, hosts, nats, key, endpoint, terminal, .. } = setup;
        let (stores, page, sampling, limits) = (setup.stores, setup.page, setup.sampling, setup.limits);
        let (shutdown, ending) = watch::channel(false);
        let (node_events, nodes) = mpsc::channel(NODE_EVENTS);
        let (events, event_rx) = mpsc::channel(EVENTS);
        let (probes, requests) = Probes::new();

        let reports = nats::Reports::of(nats.as_ref(), &watched);
        let whose = watched.jobs_description().unwrap_or_default();
        let (extent, numbers_jobs) = (watched.extent(config), watched.numbers_jobs());
        let sources = Sources::new(config, watched, hosts, nats.as_ref(), &about.host)?;
        // What is simulated or recorded does not outlive the relay.
        let is_stored = stores && about.mode != Mode::Demo && !sources.is_recording();
        let Stored { silences, history, shares, jobs: store, audit, tokens } =
            Stored::open(config, &about, (is_stored, sources.has_jobs()), (whose.as_str(), extent), &events)?;
        let shares = shares.map(|store| if numbers_jobs { store.numbering_jobs(run_name()) } else { store });
        let about = Arc::new(About { downtimes: history.downtimes, ..about });
        let shares = Arc::new(Shares::new(key.clone(), about.user.clone(), endpoint, shares));

        let notifier = if stores && !sources.is_recording() { notifier(config, &about) } else { None };
        let notifications = notifier.as_ref().map(Notifier::counts).unwrap_or_default();
        // Others may read what notices contain.
        let log_reader = if notifier.is_some() { Recipient::Guest } else { Recipient::Owner };
        let log_reader = (!config.no_log_watch && !sources.is_recording()).then_some(log_reader);
        let remote_write = RemoteWrite::start(config, &about, is_stored, &events)?;
        let sinks = Sinks {
            recorder: storage::recorder(config, &about, sources.has_job_probes(), &events)?,
            archive: history.archive,
            store: Some(store.clone()),
            notifier,
            capturer: Capturer::start(config.captures(), &about.user, &probes, &events),
        };
        let inputs = Inputs { nodes, events: event_rx, sharing: shares.watch() };
        let fleet = sources.fleet(config, &about, history.ended);
        let (core, hub, plan) = EventLoop::new(fleet, about.clock, sampling, inputs, sinks);
        let core = match limits {
            Some(limits) => core.limited(limits),
            None => core,
        };

        let poll_trigger = PollTrigger::default();
        let common = Common { config, about, terminal, events, hub, store, shares, poll_trigger };
        let actions = actions(&common, &sources, (probes, plan.clone()), audit.clone(), silences);
        let trust = Trust::new(config.trust_uid.clone());
        let site = config.site.then(|| site::people(config, &common.about, terminal, sources.commands()));
        let authenticator = Authenticator::new(key, trust, common.shares.clone(), tokens);
        let counts = remote_write.as_ref().map(RemoteWrite::counts);
        // A recording has its own time, and is mostly of another relay.
        let long_term = remote_write::long_term(config)?.filter(|_| !sources.is_recording());
        let web = WebState {
            site,
            nats: reports.as_ref().map(|reports| reports.health.clone()),
            ..web(&common, page, actions, audit, authenticator, (notifications, counts, long_term))
        };
        let remote_write = remote_write.map(|remote| tokio::spawn(remote.run(web.clone(), ending.clone())));
        start_tasks(&common, &web, (history.unread, history.later), log_reader);
        if let Some(reports) = reports {
            reports.start(terminal, &common.events);
        }
        let supervisor = sources.run(&common, node_events);
        let core = tokio::spawn(core.run(ending.clone()));
        let nodes = tokio::spawn(async move {
            // A recording has no probes: requests to them are refused.
            if let Some(supervisor) = supervisor {
                supervisor.run(plan, requests, ending, PROBES_LEAVE).await;
            }
            // Last, so that no other relay starts a probe before.
            if let Some(nats) = nats {
                let _ = timeout(LEASES_END, nats.leave()).await;
            }
        });
        Ok(Self { web, store: common.store, about: common.about, shutdown, core, nodes, remote_write })
    }

    /// Serves clients until a signal arrives, then shuts down in order: the links are withdrawn, clients are notified, probes are
    /// stopped and awaited.
    ///
    /// # Errors
    /// The event loop ended by itself: without it, a relay would seem to run, and show nothing.
    pub(super) async fn serve(
        mut self,
        listeners: Listeners,
        ending: Ending,
        key_file: KeyFile,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let key_file = Arc::new(Mutex::new(key_file));
        let keeping = tokio::spawn(keep_link(Arc::clone(&key_file)));
        let proxies = self.web.proxies.clone();
        let serving = tokio::spawn(nodeglass_web::serve(
            listeners,
            nodeglass_web::router(self.web),
            proxies,
            self.shutdown.subscribe(),
        ));
        let reason = async {
            if let Some(reason) = ending.wait().await {
                terminal.notice(&reason);
            }
        };
        let failure = until_stopped(reason, &mut self.core).await;
        // Another relay must not send its user to this one.
        keeping.abort();
        key_file.lock().unwrap_or_else(PoisonError::into_inner).withdraw();
        terminal.notice(&"stopping the probes on all nodes …".into());
        let _ = self.shutdown.send(true);
        if failure.is_none() {
            let _ = self.core.await;
        }
        let _ = tokio::join!(self.nodes, serving);
        if let Some(remote_write) = self.remote_write {
            let _ = remote_write.await;
        }
        end_store(&self.store).await;
        failure.map_or(Ok(()), Err)
    }
}

/// Writes the link again when its file or directory is deleted; nothing waits for its file system.
async fn keep_link(key_file: Arc<Mutex<KeyFile>>) {
    loop {
        sleep(LINK_CHECK).await;
        let file = Arc::clone(&key_file);
        let restored =
            spawn_blocking(move || file.lock().unwrap_or_else(PoisonError::into_inner).restore()).await;
        match restored {
            Ok(Ok(true)) => tracing::warn!("the file of the link was deleted, and is written again"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the file of the link cannot be written again"),
            Err(_) => return,
        }
    }
}

/// Waits for a signal, or for the end of the event loop, which is a failure.
async fn until_stopped(
    signal: impl Future<Output = ()>,
    core: &mut tokio::task::JoinHandle<()>,
) -> Option<anyhow::Error> {
    tokio::select! {
        () = signal => None,
        _ = core => Some(anyhow::anyhow!("stopped by an internal error, which the log describes; start the relay again")),
    }
}

/// Completes what is being stored. A slow disk must not keep the relay from ending.
pub(super) async fn end_store(store: &JobStore) {
    store.end_views();
    let _ = timeout(STORE_LEAVES, store.flush()).await;
}

/// Sends notices, if any are configured.
fn notifier(config: &Config, about: &About) -> Option<Notifier> {
    let sender = nodeglass_notify::Sender {
        cluster: about.cluster.as_ref().unwrap_or(&about.host).to_string(),
        user: about.user.to_string(),
        host: about.host.to_string(),
    };
    Notifier::start(config.notifications(), sender, Clock::wall_ms())
}

/// Creates the service that executes the owner's requests.
fn actions(
    common: &Common<'_>,
    sources: &Sources,
    (probes, plan): (Probes, watch::Receiver<Plan>),
    audit: AuditRecorder,
    silences: Silences,
) -> ActionService {
    let Common { config, about, events, .. } = common;
    tokio::spawn(storage::store_silences(silences.clone(), events.clone()));
    ActionService::new(Deps {
        hub: common.hub.clone(),
        probes,
        job_control: sources.job_control.clone(),
        events: common.events.clone(),
        poll_trigger: common.poll_trigger.clone(),
        plan,
        user: about.user.clone(),
        log_files: sources.log_files.clone(),
        read_only: about.read_only,
        shares: common.shares.clone(),
        audit,
        store: common.store.clone(),
        report_webhook: config.report_webhook(),
        silences,
        player: sources.player_control(),
    })
}

/// Creates the state of the web server.
fn web(
    common: &Common<'_>,
    page: &'static [PageFile],
    actions: ActionService,
    audit: AuditRecorder,
    authenticator: Authenticator,
    (notifications, remote_write, long_term): (NotificationCounts, Option<RemoteWriteCounts>, Option<PromQl>),
) -> WebState {
    let Common { config, about, .. } = common;
    WebState {
        about: about.clone(),
        hub: common.hub.clone(),
        actions,
        store: common.store.clone(),
        audit,
        authenticator: Arc::new(authenticator),
        shares: common.shares.clone(),
        hosts: Arc::new(AllowedHosts::new(config.allowed_hosts.clone())),
        base: config.base_path(),
        proxies: Arc::new(config.proxies()),
        site: None,
        assets: Arc::new(Assets::of(page, &config.base_path(), &about.cache_buster)),
        notifications,
        remote_write,
        long_term,
        nats: None,
    }
}

/// Starts the tasks that end shares, follow the logs of jobs and the file of tokens, and read the `unread` history.
fn start_tasks(
    common: &Common<'_>,
    web: &WebState,
    (unread, later): (Option<StoredHistory>, Option<LaterHistory>),
    log_reader: Option<Recipient>,
) {
    let Common { config, about, events, hub, shares, .. } = common;
    if let Some(unread) = unread {
        tokio::spawn(unread.restore(hub.clone()));
    }
    if let Some(later) = later {
        tokio::spawn(later.run(hub.clone(), events.clone()));
    }
    if let Some(recipient) = log_reader {
        let patterns = LogPatterns::new(&config.log_patterns);
        tokio::spawn(web.actions.log_watch(patterns, about.clock, recipient).run());
    }
    end_shares(shares, hub);
    tokio::spawn(storage::report(shares.problem(), StoredPart::Shares, Option::clone, events.clone()));
    tokio::spawn(storage::check_tokens(web.authenticator.tokens().clone(), events.clone()));
}

/// Ends shares at their time, and with their jobs.
fn end_shares(shares: &Arc<Shares>, hub: &Hub) {
    let hub = hub.clone();
    tokio::spawn(shares.clone().run_expiry(move |share| {
        let hub = hub.clone();
        async move { hub.is_over(share).await }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_the_event_loop_stops_the_relay() {
        let mut runs = tokio::spawn(future::pending());
        assert!(until_stopped(future::ready(()), &mut runs).await.is_none(), "a signal");
        runs.abort();
        let mut failed = tokio::spawn(async { panic!("a test") });
        assert!(until_stopped(future::pending(), &mut failed).await.is_some());
    }
}
