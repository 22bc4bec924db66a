//! Opens what outlives the relay: the history, what jobs used, shares and a recording.

use anyhow::Context;
use nodeglass_actions::Silences;
use nodeglass_auth::tokens::Tokens;
use nodeglass_config::Config;
use nodeglass_fleet::{Event, StoredPart};
use nodeglass_history::{LongHistory, Span};
use nodeglass_live::Hub;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_platform::{memory, priority};
use nodeglass_protocol::Text;
use nodeglass_protocol::live::Downtime;
use nodeglass_recording::{Info, Recorder, RecordingState};
use nodeglass_share::{Store, StoreError};
use nodeglass_store::archive::{self, Archive, ArchiveError, EndedJob};
use nodeglass_store::{AuditRecorder, JobStore, Location, Origin, Restored};
use nodeglass_web::about::About;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

/// A load of the stored history that takes longer than this is stated to the owner.
const LOAD_NOTICE: Duration = Duration::from_secs(1);

/// Interval between two attempts to open the directory of the history.
const HISTORY_RETRY: Duration = Duration::from_secs(5);
/// Interval at which the file of tokens is read again if it changed.
const TOKEN_CHECK: Duration = Duration::from_secs(1);
/// Interval between two attempts to store silences.
const SILENCES_RETRY: Duration = Duration::from_secs(5);
/// Interval at which it is stored when tokens were last used.
const USE_SAVE: Duration = Duration::from_secs(60);
/// A check that takes longer is reported.
const LATE: Duration = Duration::from_secs(10);

/// The parts of the state that outlive the relay.
pub(super) struct Stored {
    pub(super) silences: Silences,
    pub(super) history: History,
    pub(super) shares: Option<Store>,
    pub(super) jobs: JobStore,
    pub(super) audit: AuditRecorder,
    pub(super) tokens: Tokens,
}

impl Stored {
    /// Opens each part, in memory only unless `is_stored`; `whose` describes whose jobs are watched, if the relay `has_jobs`, and `extent`
    /// everything that is.
    ///
    /// # Errors
    /// If what was configured cannot be opened.
    pub(super) fn open(
        config: &Config,
        about: &About,
        (is_stored, has_jobs): (bool, bool),
        (whose, extent): (&str, String),
        events: &mpsc::Sender<Event>,
    ) -> anyhow::Result<Self> {
        let silences = silences(is_stored);
        // Before the first findings.
        let _ = events.try_send(Event::Silences(silences.list()));
        let history = match is_stored && config.history_disk > 0 {
            true => History::open(config, about, events, whose),
            false => History::default(),
        };
        // Its message has all causes already; a chain of errors would repeat them.
        let shares = shares(is_stored && config.persist_shares, about, extent)
            .map_err(|error| anyhow::Error::msg(error.to_string()))?;
        let jobs = jobs(about, (is_stored, has_jobs), events.clone())?;
        let audit = if config.no_audit { jobs.audit().off() } else { jobs.audit() };
        Ok(Self { silences, history, shares, jobs, audit, tokens: tokens(is_stored) })
    }
}

/// The history of this host, opened; empty if it is kept in memory only.
#[derive(Default)]
pub(super) struct History {
    /// The archive to store it in, once it is open.
    pub(super) archive: Arc<OnceLock<Archive>>,
    /// History of earlier relays, not read yet.
    pub(super) unread: Option<StoredHistory>,
    /// Attempts to open the archive, if it cannot be opened now.
    pub(super) later: Option<LaterHistory>,
    /// The jobs that earlier relays saw end.
    pub(super) ended: Vec<EndedJob>,
    /// When no relay stored it.
    pub(super) downtimes: Vec<Downtime>,
}

impl History {
    /// While it cannot be stored, the relay runs without, and its pages say why.
    fn open(config: &Config, about: &About, events: &mpsc::Sender<Event>, whose: &str) -> Self {
        let place = HistoryPlace {
            cap: config.history_disk,
            budget: config.history_mem,
            host: about.host.clone(),
            clock: about.clock,
            watches: whose.to_owned(),
        };
        match place.open() {
            Ok((unread, mut archive)) => {
                report_archive(&archive, events);
                let wall_ahead_ms = unread.wall_ms.saturating_sub(unread.now_ms);
                let relay_ms = |wall_ms: u64| wall_ms.saturating_sub(wall_ahead_ms);
                let downtime =
                    |span: &Span| Downtime { from_ms: relay_ms(span.from_ms), to_ms: relay_ms(span.to_ms) };
                Self {
                    unread: Some(unread),
                    ended: archive.take_jobs(),
                    downtimes: archive.downtimes().iter().map(downtime).collect(),
                    archive: Arc::new(archive.into()),
                    later: None,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the history is not stored at present");
                let problem = problem(&error.to_string());
                let _ = events.try_send(Event::Storage(StoredPart::History, Some(problem.clone())));
                let archive = Arc::default();
                let later = LaterHistory { place, archive: Arc::clone(&archive), problem };
                Self { archive, later: Some(later), ..Self::default() }
            }
        }
    }
}

/// Directory and limits of the history of this host.
#[derive(Debug)]
struct HistoryPlace {
    /// Space on disk in bytes.
    cap: u64,
    /// Memory in bytes.
    budget: usize,
    host: Text,
    clock: Clock,
    /// Description of whose jobs are watched.
    watches: String,
}

impl HistoryPlace {
    fn open(&self) -> Result<(StoredHistory, Archive), ArchiveError> {
        let (now_ms, wall_ms) = (self.clock.now_ms(), Clock::wall_ms());
        // Login nodes may share a home.
        let dir = StateDir::open()?.dir("history")?.dir(self.host.as_str())?;
        let clock = self.clock;
        let wall_ahead_ms = move || u64::try_from(clock.wall_ahead_ms()).unwrap_or(0);
        let archive = Archive::open(dir.clone(), self.cap, wall_ahead_ms, &self.watches)?;
        Ok((StoredHistory { dir, budget: self.budget, now_ms, wall_ms }, archive))
    }
}

/// Opens an archive that could not be opened when the relay started: its directory was not usable, or another relay
/// stored in it, which may have ended since.
#[derive(Debug)]
pub(super) struct LaterHistory {
    place: HistoryPlace,
    archive: Arc<OnceLock<Archive>>,
    /// The problem that pages state.
    problem: Text,
}

impl LaterHistory {
    /// Tries until it succeeds, then reads the history of earlier relays. The jobs that they saw end are listed by the
    /// next relay.
    pub(super) async fn run(mut self, hub: Hub, events: mpsc::Sender<Event>) {
        loop {
            sleep(HISTORY_RETRY).await;
            let Ok((opened, place)) = spawn_blocking(move || (self.place.open(), self.place)).await else {
                return;
            };
            self.place = place;
            let error = match opened {
                Ok((unread, mut archive)) => {
                    tracing::info!("the history is stored from now on");
                    drop(archive.take_jobs());
                    report_archive(&archive, &events);
                    let _ = self.archive.set(archive);
                    let _ = events.send(Event::Storage(StoredPart::History, None)).await;
                    return unread.restore(hub).await;
                }
                Err(error) => problem(&error.to_string()),
            };
            if error != self.problem {
                self.problem.clone_from(&error);
                if events.send(Event::Storage(StoredPart::History, Some(error))).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Passes on whether the archive stores.
fn report_archive(archive: &Archive, events: &mpsc::Sender<Event>) {
    let problem_of = |state: &archive::Storing| Some(problem(state.as_ref().err()?.as_str()));
    tokio::spawn(report(archive.state(), StoredPart::History, problem_of, events.clone()));
}

/// History of earlier relays, not read yet.
#[derive(Debug)]
pub(super) struct StoredHistory {
    dir: StateDir,
    /// Memory for it in bytes.
    budget: usize,
    now_ms: u64,
    wall_ms: u64,
}

impl StoredHistory {
    /// Reads it on a thread of its own, because that takes many seconds for a week of many nodes, and passes it to the
    /// event loop. The relay serves meanwhile.
    pub(super) async fn restore(self, hub: Hub) {
        let (done, mut restored) = oneshot::channel();
        // Not one of tokio's threads, for whose end the relay would wait when it stops.
        let started = thread::Builder::new().name("restore".to_owned()).spawn(move || {
            priority::lower_this_thread();
            let mut history = LongHistory::new(self.budget);
            archive::load(&self.dir, &mut history, self.now_ms, self.wall_ms);
            // The receiver is gone only while the relay shuts down.
            let _ = done.send(history);
            memory::trim();
        });
        if let Err(error) = started {
            tracing::warn!(%error, "the stored history cannot be read");
        }
        let history = match timeout(LOAD_NOTICE, &mut restored).await {
            Ok(history) => history,
            Err(_) => {
                hub.restoring_history().await;
                restored.await
            }
        };
        hub.restore_history(history.ok()).await;
    }
}

fn problem(why: &str) -> Text {
    Text::new(format!("the history is kept in memory only, because it cannot be stored: {why}"))
}

/// Passes on whether a part can be stored, given the problem of each state.
pub(super) async fn report<T: Sync>(
    mut state: watch::Receiver<T>,
    part: StoredPart,
    problem_of: impl Fn(&T) -> Option<Text>,
    events: mpsc::Sender<Event>,
) {
    while state.changed().await.is_ok() {
        let problem = problem_of(&state.borrow_and_update());
        if events.send(Event::Storage(part, problem)).await.is_err() {
            return;
        }
    }
}

/// Starts the thread that stores jobs and notes. Those of a simulated cluster or a recording, which are not real, are
/// kept in memory only.
fn jobs(
    about: &About,
    (is_stored, has_jobs): (bool, bool),
    events: mpsc::Sender<Event>,
) -> anyhow::Result<JobStore> {
    let place = if is_stored { Location::StateDir } else { Location::Memory };
    let host = about.host.to_string();
    let problems = events.clone();
    let restored = move |stored: Restored| {
        // They fail only while the relay shuts down.
        let _ = events.blocking_send(Event::Restored(stored.jobs));
        if !stored.notes.is_empty() {
            let _ = events.blocking_send(Event::RestoredNotes(stored.notes));
        }
    };
    let started = match about.cluster.as_ref() {
        // SLURM was silent when it was asked for the name, which follows with the job list.
        None if has_jobs => JobStore::start_unnamed(place, host, restored),
        cluster => {
            let cluster = cluster.map(ToString::to_string).unwrap_or_default();
            JobStore::start(place, Origin { cluster, host }, restored)
        }
    };
    let store = started.context("failed to start the thread that stores jobs")?;
    tokio::spawn(report(store.problem(), StoredPart::Jobs, Option::clone, problems.clone()));
    tokio::spawn(report(store.damage(), StoredPart::DamagedJobs, Option::clone, problems));
    Ok(store)
}

/// The store for shares, if configured. A link to a simulated cluster or a recording must not lead to a real one later.
fn shares(is_stored: bool, about: &About, extent: String) -> Result<Option<Store>, StoreError> {
    if !is_stored {
        return Ok(None);
    }
    let store = Store::new(StateDir::locate()?, about.host.clone(), extent);
    // Everything else may heal, and is stated on the page.
    match store.ids() {
        Err(error) if error.is_final() => Err(error),
        _ => Ok(Some(store)),
    }
}

/// Opens the silences of findings. The silences of a simulated cluster or a recording end with the relay.
fn silences(is_stored: bool) -> Silences {
    let dir = is_stored.then(StateDir::locate).transpose().unwrap_or_else(|error| {
        tracing::warn!(%error, "silences will not be stored");
        None
    });
    Silences::open(dir, Clock::wall_ms())
}

/// The owner's tokens; those for a simulated cluster or a recording are kept in memory only.
fn tokens(is_stored: bool) -> Tokens {
    let dir = is_stored.then(StateDir::locate).transpose().unwrap_or_else(|error| {
        tracing::warn!(%error, "tokens will not be stored");
        None
    });
    Tokens::new(dir)
}

/// Stores silences that could not be stored before, and passes on why they cannot be.
pub(super) async fn store_silences(silences: Silences, events: mpsc::Sender<Event>) {
    let mut known = None;
    loop {
        let problem = silences.retry(Clock::wall_ms(), &events).await;
        if problem != known {
            known.clone_from(&problem);
            if events.send(Event::Storage(StoredPart::Silences, problem)).await.is_err() {
                return;
            }
        }
        sleep(SILENCES_RETRY).await;
    }
}

/// Reads the tokens again when their file changes, stores when they were last used, and passes on why they cannot be
/// read: a file that was damaged is a reason for refusals that no program sees.
pub(super) async fn check_tokens(tokens: Arc<Tokens>, events: mpsc::Sender<Event>) {
    let (mut known, mut saved_at) = (None, Instant::now());
    loop {
        let (checked, saves) = (tokens.clone(), saved_at.elapsed() >= USE_SAVE);
        if saves {
            saved_at = Instant::now();
        }
        let mut check = spawn_blocking(move || {
            if let Err(error) = if saves { checked.save_uses() } else { Ok(()) } {
                tracing::warn!(%error, "failed to store when tokens were last used");
            }
            checked.problem(Clock::wall_ms())
        });
        let problem = match timeout(LATE, &mut check).await {
            Ok(checked) => checked,
            Err(_) => {
                let late = "the state directory does not respond, so changes of tokens have no effect";
                if !report_tokens(&events, &mut known, Some(late.into())).await {
                    return;
                }
                check.await
            }
        };
        let Ok(problem) = problem else { return };
        if !report_tokens(&events, &mut known, problem).await {
            return;
        }
        sleep(TOKEN_CHECK).await;
    }
}

/// Passes on why the tokens cannot be read, if it is not `known`. Returns false if the relay shuts down.
async fn report_tokens(
    events: &mpsc::Sender<Event>,
    known: &mut Option<Text>,
    problem: Option<Text>,
) -> bool {
    if problem == *known {
        return true;
    }
    if let Some(why) = &problem {
        tracing::warn!("{why}");
    }
    known.clone_from(&problem);
    events.send(Event::Storage(StoredPart::Tokens, problem)).await.is_ok()
}

/// Checks that `--record` names a file that does not exist yet.
///
/// # Errors
/// As [`recorder`].
pub(super) fn check_record(config: &Config) -> anyhow::Result<()> {
    config.record.as_deref().map_or(Ok(()), Recorder::check).context("--record")
}

/// Begins a recording, if configured. `has_job_probes` says whether probes run in each of the user's jobs.
pub(super) fn recorder(
    config: &Config,
    about: &About,
    has_job_probes: bool,
    events: &mpsc::Sender<Event>,
) -> anyhow::Result<Option<Recorder>> {
    let Some(path) = &config.record else { return Ok(None) };
    let info = Info {
        version: Text::new(env!("CARGO_PKG_VERSION")),
        user: about.user.clone(),
        host: about.host.clone(),
        cluster: about.cluster.clone(),
        mode: about.mode,
        at_ms: about.clock.now_ms(),
        wall_ms: Clock::wall_ms(),
        has_job_probes,
        job: None,
    };
    let recorder = Recorder::create(path, &info).context("--record")?;
    tokio::spawn(report(recorder.state(), StoredPart::Recording, RecordingState::problem, events.clone()));
    Ok(Some(recorder))
}
