//! Assembles the relay, runs it, and shuts it down so that no process is left behind anywhere.
//!
//! [`run`] serves until a signal; [`embedded`] is the same without listeners, within another command. [`watched`] decides where
//! jobs and nodes come from, [`addresses`] how the relay is reached, and [`terminal`] what is shown. [`remote`] is the client of
//! a relay that runs already.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod addresses;
pub mod embedded;
mod listed_hosts;
mod polling;
pub mod remote;
mod signals;
mod storage;
pub mod terminal;
mod tpu_pod;
pub mod watched;

use addresses::{guests_tunnel, here, here_text, links, own_login, own_tunnel, share_endpoint, tunnel};
use anyhow::Context;
use listed_hosts::ListedHosts;
use nodeglass_access::cache_buster::CacheBuster;
use nodeglass_access::hosts::AllowedHosts;
use nodeglass_access::key_file::{self, KeyFile, Running};
use nodeglass_access::runtime_dir::{Places, RuntimeDir};
use nodeglass_access::trust::Trust;
use nodeglass_actions::{ActionService, Deps};
use nodeglass_auth::authenticator::Authenticator;
use nodeglass_auth::tokens::Tokens;
use nodeglass_config::{Config, Requested};
use nodeglass_event_loop::{EventLoop, Inputs, Options};
use nodeglass_findings::job_log::LogPatterns;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_launch::target::Targets;
use nodeglass_live::Hub;
use nodeglass_nodes::{Plan, Probes, Request, Supervisor};
use nodeglass_notify::{NotificationCounts, Notifier};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::Mode;
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_recording::Outputs;
use nodeglass_report::Factors;
use nodeglass_share::{ShareEndpoint, Shares};
use nodeglass_slurm::accounting::AccountingQueries;
use nodeglass_slurm::{PollSchedule, PollTrigger};
use nodeglass_store::{AuditRecorder, JobStore};
use nodeglass_web::about::About;
use nodeglass_web::assets::{self, Assets, PageFile};
use nodeglass_web::{Listeners, WebState, tls::Tls};
use polling::{account, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
pub use signals::Signals;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use terminal::Terminal;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use watched::Watched;

/// Capacity of the channel of node events; sessions wait when it is full.
const NODE_EVENTS: usize = 4_096;
/// Capacity of the channel of job lists and audit entries.
const EVENTS: usize = 8;
/// Enough for 10,000 nodes.
const OPEN_FILES: u64 = 65_536;
/// Time limit for probes to exit at shutdown.
const PROBES_LEAVE: Duration = Duration::from_secs(5);

/// Time limit for storing jobs at shutdown.
const STORE_LEAVES: Duration = Duration::from_secs(2);

/// Runs a relay until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// Whatever prevents the start, as a complete sentence for the user.
pub async fn run(
    config: Config,
    requested: Requested,
    page: &'static [PageFile],
) -> anyhow::Result<ExitCode> {
    // Before anything that needs cleaning up, so that an early signal is handled.
    let signals = Signals::listen()?;
    raise_open_files();
    // What the settings name is checked before a port is taken: a wrong file is not reported as a port in use.
    let tls = config.tls().as_ref().map(Tls::load).transpose()?;
    let hosts = ListedHosts::load(&config).await?;
    let watched = Watched::choose(&config).await?;
    storage::check_record(&config)?;
    let mut listeners = nodeglass_web::bind(&config.bind, tls.as_ref()).await?;
    let dir = RuntimeDir::open(&Places::from_env())?;
    let pid = std::process::id();
    let own = listeners.open_private(&dir, &key_file::socket_name(pid));
    let key = nodeglass_access::new_key()?;
    let tunnels = (tunnel(&listeners, &own_login(), &here_text()), guests_tunnel(&listeners, &here_text()));
    let about = about(&config, &watched, tunnels, page)?;
    let endpoint = share_endpoint(&listeners, &config, &about);
    let watches = hosts.as_ref().map(ListedHosts::description);
    let watches = watched.description(&requested.watch, watches).to_string();
    let terminal = Terminal::new();
    if let Some(hosts) = &hosts {
        hosts.warn(&terminal);
    }
    let sampling = Options::default().idling(config.idle_interval);
    let outside = Outside { terminal, stores: true, page, sampling };
    let relay = Relay::start(&config, about, (watched, hosts), (key.clone(), endpoint), outside)?;

    let running = Running {
        pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        since_s: Clock::wall_ms() / 1_000,
        watches,
        requested_watch: requested.watch,
        settings: requested.settings,
        addresses: listeners.addresses().iter().map(ToString::to_string).collect(),
        read_only: config.read_only,
        links: links(&listeners, &config, &relay.about.cache_buster, &key),
        tunnel: relay.about.tunnel.to_string(),
        own_tunnel: own.as_ref().ok().and_then(|path| own_tunnel(path, &listeners)),
    };
    let _key_file = KeyFile::write(dir, &running).context("failed to store the link for `relay link`")?;
    terminal.open(&running);
    for port in listeners.ports_taken_on_ipv6() {
        terminal.warn(
            &format!(
                "another program listens on [::1]:{port}, so `localhost:{port}` may lead to it; \
                 use 127.0.0.1 in the ssh command, as shown above"
            )
            .into(),
        );
    }
    if let Some(problem) = relay.web.authenticator.tokens().problem(Clock::wall_ms()) {
        terminal.warn(&problem);
    }
    if let Err(error) = own {
        terminal.warn(&format!("{error}; continuing without a private socket").into());
    }

    relay.serve(listeners, signals, &terminal).await?;
    Ok(ExitCode::SUCCESS)
}

/// What the running parts use of this machine besides nodes and SLURM.
#[derive(Clone, Copy)]
struct Outside {
    /// Where notices are shown.
    terminal: Terminal,
    /// Whether history and jobs are stored in the state directory.
    stores: bool,
    /// The page that it serves.
    page: &'static [PageFile],
    /// How often nodes are sampled.
    sampling: Options,
}

/// The running parts.
struct Relay {
    about: Arc<About>,
    web: WebState,
    store: JobStore,
    shutdown: watch::Sender<bool>,
    core: tokio::task::JoinHandle<()>,
    nodes: tokio::task::JoinHandle<()>,
}

impl Relay {
    fn start(
        config: &Config,
        mut about: About,
        (watched, hosts): (Watched, Option<ListedHosts>),
        (key, endpoint): (Key, ShareEndpoint),
        outside: Outside,
    ) -> anyhow::Result<Self> {
        let (shutdown, ending) = watch::channel(false);
        let (node_events, nodes) = mpsc::channel(NODE_EVENTS);
        let (events, event_rx) = mpsc::channel(EVENTS);
        let mut fleet = match &watched {
            Watched::Replay(player, _) => player.fleet(),
            _ => Fleet::with_history_budget(config.history_mem),
        };
        fleet.set_thresholds(config.thresholds());
        // What is simulated or recorded does not outlive the relay.
        let is_real = about.mode != Mode::Demo && !matches!(watched, Watched::Replay(..));
        let is_stored = is_real && outside.stores;
        let watches = watched.jobs_description().unwrap_or_default();
        let archive = match is_stored {
            true => storage::history(config, &mut about, &mut fleet, &events, watches.as_str()),
            false => None,
        };
        let about = Arc::new(about);
        let targets = Targets::default();
        let (jobs_by_node, here) = watch::channel(Arc::default());
        let launcher = match &watched {
            Watched::Replay(..) => None,
            watched => Some(watched.launcher(config, &targets, &here)?),
        };
        let has_job_probes = launcher.as_ref().is_some_and(|launcher| launcher.job_launcher().is_some());
        if has_job_probes {
            fleet.use_jobs_of(about.user.clone());
        }
        let factors = Factors { gpu_hour: config.gpu_hour_cost.clone(), co2_g_per_kwh: config.co2_g_per_kwh };
        fleet.set_factors(factors.clone());
        let recorder = storage::recorder(config, &about, has_job_probes)?;
        let commands = watched.commands();
        let (job_control, has_local_logs) = (watched.job_control(), watched.has_logs_here());
        let poll_trigger = PollTrigger::default();
        if let Some(launcher) = &launcher {
            tokio::spawn(report_launcher(launcher.status(), events.clone(), outside.terminal));
        }
        let mut player = None;
        match watched {
            Watched::Replay(recording, control) => player = Some((recording, control)),
            watched => match watched.into_jobs() {
                Some(jobs) => {
                    let poll_schedule = PollSchedule::new(config.slurm_interval)
                        .of_many(jobs.is_of_many())
                        .free(jobs.is_free());
                    let found = (events.clone(), jobs_by_node);
                    tokio::spawn(poll(jobs, poll_schedule, about.clock, found, poll_trigger.clone()));
                }
                None => {
                    fleet.handle(Event::NoSlurm, about.clock.now_ms());
                    if hosts.is_none() {
                        fleet.handle(listed_hosts::this_machine_only(), about.clock.now_ms());
                    }
                }
            },
        }
        if let Some(hosts) = hosts {
            tokio::spawn(hosts.run(targets, events.clone(), outside.terminal));
        }
        let shares = Arc::new(Shares::new(
            key.clone(),
            about.user.clone(),
            endpoint,
            storage::shares(config, &about)?,
        ));
        let inputs = Inputs { nodes, events: event_rx, sharing: shares.watch() };
        let (mut core, hub, plan) = EventLoop::new(fleet, about.clock, outside.sampling, inputs);
        if let Some(recorder) = recorder {
            core.record_to(recorder);
        }
        let mut notifications = NotificationCounts::default();
        if outside.stores && player.is_none() {
            let sender = nodeglass_notify::Sender {
                cluster: about.cluster.as_ref().unwrap_or(&about.host).to_string(),
                user: about.user.to_string(),
                host: about.host.to_string(),
            };
            let notifier = Notifier::start(config.notifications(), sender, Clock::wall_ms());
            if let Some(notifier) = notifier {
                notifications = notifier.counts();
                core.notify_by(notifier);
            }
        }
        if let Some((archive, stored)) = archive {
            core.store_to(archive);
            tokio::spawn(stored.restore(hub.clone()));
        }
        let store = storage::jobs(&about, is_stored, events.clone())?;
        tokio::spawn(storage::report_jobs(store.problem(), events.clone()));
        let audit = if config.no_audit { store.audit().off() } else { store.audit() };
        if let Some(commands) = commands {
            let queries = AccountingQueries::new(commands);
            tokio::spawn(account(queries, about.user.clone(), factors, store.clone(), about.clock));
        }
        let (probes, questions) = Probes::new();
        let capturer =
            nodeglass_event_loop::capturer::Capturer::start(config.captures(), &about.user, &probes, &events);
        let core = core.with_store(store.clone()).with_captures(capturer);
        let outputs = Outputs { nodes: node_events.clone(), events: events.clone(), hub: hub.clone() };
        let supervisor = launcher
            .map(|launcher| Supervisor::new(launcher, about.clock, node_events, poll_trigger.clone()));
        let silences = storage::silences(is_stored);
        // Before the first findings.
        let _ = events.try_send(Event::Silences(silences.list()));
        let actions = ActionService::new(Deps {
            hub: hub.clone(),
            probes,
            job_control,
            events: events.clone(),
            poll_trigger,
            plan: plan.clone(),
            user: about.user.clone(),
            local_host: has_local_logs.then(|| about.host.clone()),
            read_only: about.read_only,
            shares: shares.clone(),
            audit: audit.clone(),
            store: store.clone(),
            report_webhook: config.report_webhook(),
            silences,
        });
        let is_replay = player.is_some();
        let actions = match player {
            None => actions,
            Some((player, control)) => {
                tokio::spawn(player.run(outputs));
                actions.with_player(control)
            }
        };
        if !config.no_log_watch && !is_replay {
            let patterns = LogPatterns::new(&config.log_patterns);
            tokio::spawn(actions.log_watch(patterns, about.clock).run());
        }
        let ends = hub.clone();
        tokio::spawn(shares.clone().run_expiry(move |scope| {
            let hub = ends.clone();
            async move { hub.has_ended(scope).await }
        }));
        let parts = (hub, actions, store.clone());
        let web = web_state(
            config,
            about.clone(),
            parts,
            (key, shares, audit),
            (storage::tokens(is_real), outside.page),
        );
        let web = WebState { notifications, ..web };
        tokio::spawn(storage::check_tokens(web.authenticator.tokens().clone(), events));
        Ok(Self {
            web,
            store,
            about,
            shutdown,
            core: tokio::spawn(core.run(ending.clone())),
            nodes: tokio::spawn(follow_plan(supervisor, plan, questions, ending)),
        })
    }

    /// Serves clients until a signal arrives, then shuts down in order: clients are notified, probes are
    /// stopped and awaited.
    ///
    /// # Errors
    /// The event loop ended by itself: without it, a relay would seem to run, and show nothing.
    async fn serve(
        mut self,
        listeners: Listeners,
        signals: Signals,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let proxies = self.web.proxies.clone();
        let serving = tokio::spawn(nodeglass_web::serve(
            listeners,
            nodeglass_web::router(self.web),
            proxies,
            self.shutdown.subscribe(),
        ));
        let failure = until_stopped(signals.wait(), &mut self.core).await;
        terminal.notice(&"stopping the probes on all nodes …".into());
        let _ = self.shutdown.send(true);
        if failure.is_none() {
            let _ = self.core.await;
        }
        let _ = tokio::join!(self.nodes, serving);
        end_store(&self.store).await;
        failure.map_or(Ok(()), Err)
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
async fn end_store(store: &JobStore) {
    store.end_views();
    let _ = timeout(STORE_LEAVES, store.flush()).await;
}

/// Raises the limit of open files, which is often 1,024: each `ssh` takes three, each viewer one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it, launches beyond the limit fail with a message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// Passes on how probes are started, and shows it in the terminal when it changes.
async fn report_launcher(
    mut status: watch::Receiver<LauncherStatus>,
    events: mpsc::Sender<Event>,
    terminal: Terminal,
) {
    loop {
        let LauncherStatus { name, reason } = status.borrow_and_update().clone();
        if let Some(reason) = &reason {
            terminal.notice(&format!("starting probes with {name} from now on, because {reason}").into());
        }
        if events.send(Event::Launcher(LauncherStatus { name, reason })).await.is_err()
            || status.changed().await.is_err()
        {
            return;
        }
    }
}

fn web_state(
    config: &Config,
    about: Arc<About>,
    (hub, actions, store): (Hub, ActionService, JobStore),
    (key, shares, audit): (Key, Arc<Shares>, AuditRecorder),
    (tokens, page): (Tokens, &[PageFile]),
) -> WebState {
    let assets = Arc::new(Assets::of(page, &config.base_path(), &about.cache_buster));
    WebState {
        about,
        hub,
        actions,
        store,
        audit,
        authenticator: Arc::new(Authenticator::new(
            key,
            Trust::new(config.trust_uid.clone()),
            shares.clone(),
            tokens,
        )),
        shares,
        hosts: Arc::new(AllowedHosts::new(config.allowed_hosts.clone())),
        base: config.base_path(),
        proxies: Arc::new(config.proxies()),
        assets,
        notifications: NotificationCounts::default(),
    }
}

/// Applies the plan to the supervisor, and stops all probes at shutdown.
async fn follow_plan(
    supervisor: Option<Supervisor>,
    mut plan: watch::Receiver<Plan>,
    mut requests: mpsc::Receiver<Request>,
    mut ending: watch::Receiver<bool>,
) {
    // A recording has no probes: requests to them are refused.
    let Some(mut supervisor) = supervisor else { return };
    let planned = plan.borrow_and_update().clone();
    supervisor.follow(&planned);
    loop {
        tokio::select! {
            // The plan changed, or SLURM was polled.
            changed = plan.changed() => {
                if changed.is_err() {
                    break;
                }
                let planned = plan.borrow_and_update().clone();
                supervisor.follow(&planned);
            }
            // A question to a node, or a retry.
            Some(request) = requests.recv() => supervisor.serve(request),
            // Shutdown.
            _ = ending.wait_for(|ending| *ending) => break,
        }
    }
    supervisor.stop_all(PROBES_LEAVE).await;
}

/// Constants of this run, given the owner's and guests' `ssh -L` commands.
fn about(
    config: &Config,
    watched: &Watched,
    (tunnel, guests_tunnel): (Text, Text),
    page: &[PageFile],
) -> anyhow::Result<About> {
    let (user, here) = (watched.user(), here_text());
    let (clock, host) = match watched {
        // Its pages show whose recording it is.
        Watched::Replay(player, _) => (player.clock(), player.info().host.clone()),
        _ => (Clock::start(), here.clone()),
    };
    let mut epoch = [0; 4];
    // A fixed epoch would only make pages show an old picture for a moment.
    let _ = getrandom::fill(&mut epoch);
    Ok(About {
        build: Text::new(assets::build_id(page)),
        cache_buster: CacheBuster::random()?,
        epoch: u32::from_ne_bytes(epoch),
        clock,
        tunnel,
        guests_tunnel,
        read_only: config.read_only || matches!(watched, Watched::Replay(..)),
        user,
        host,
        cluster: watched.cluster(),
        mode: watched.mode(),
        downtimes: Vec::new(),
        report_webhook: config.report_webhook().map(|webhook| Text::new(webhook.display_url())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future;

    #[tokio::test]
    async fn the_end_of_the_event_loop_stops_the_relay() {
        let mut runs = tokio::spawn(future::pending());
        assert!(until_stopped(future::ready(()), &mut runs).await.is_none(), "a signal");
        runs.abort();
        let mut failed = tokio::spawn(async { panic!("a test") });
        assert!(until_stopped(future::pending(), &mut failed).await.is_some());
    }
}
