//! Driver calls run on a worker thread with a watchdog. A hung call cannot be cancelled, so its
//! thread is abandoned and a replacement continues without that GPU.

use crate::{
    clock,
    loop_event::LoopEvent,
    source::{Absent, Inventory, Report, Session, Source, WorkerId, calls::CallTracker},
};
use nodeglass_protocol::{Text, Vendor};
use nodeglass_rules::backoff::exponential;
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Stack size of the thread, on which NVML's own code runs.
const STACK: usize = 1 << 20;
/// Number of futile inventories after which a contradiction causes another one only after [`FUTILE_PAUSE`].
const MAX_FUTILE: u32 = 3;
/// Pause before another inventory after [`MAX_FUTILE`] futile ones.
const FUTILE_PAUSE: Duration = Duration::from_secs(10);

/// Timing of calls into a source.
#[derive(Clone, Copy, Debug)]
pub struct DriverTimings {
    /// Pause after the first failed attempt to open the source; doubles up to `max_backoff`.
    pub initial_backoff: Duration,
    /// Maximum pause between attempts to open the source.
    pub max_backoff: Duration,
    /// Interval of inventory checks.
    pub inventory_interval: Duration,
    /// Interval of health queries.
    pub health_interval: Duration,
}

impl Default for DriverTimings {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(2),
            max_backoff: Duration::from_secs(30),
            inventory_interval: Duration::from_secs(30),
            health_interval: Duration::from_secs(5),
        }
    }
}

/// A request for readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Whether to include process lists.
    pub processes: bool,
}

/// Creates a source whose calls are tracked: one for the first thread and one per replacement.
pub type SourceFactory = Box<dyn FnMut(Arc<CallTracker>) -> Box<dyn Source>>;

/// The way to create a source of a node.
pub struct SourceConfig {
    /// Vendor of its accelerators.
    pub vendor: Vendor,
    /// Creates it.
    pub make: SourceFactory,
}

/// Maximum number of abandoned threads; each belongs to one GPU.
const MAX_ABANDONED: usize = 32;
/// Time limit of the first inventory: a driver without other users initializes each GPU on first
/// access.
const OPENING_LIMIT: Duration = Duration::from_secs(15);
/// Pause after a GPU's second hang before it is called again, which doubles with each further hang. After the
/// first hang, it is called again as soon as the hung call has returned.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Maximum pause before a GPU is called again.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// The pause is reset after this long without a hang.
const BACKOFF_RESET: Duration = Duration::from_secs(600);

/// Handle of the worker thread and of abandoned threads, owned by the event loop.
pub struct DriverThread {
    make: SourceFactory,
    events: Sender<LoopEvent>,
    timings: DriverTimings,
    worker: WorkerHandle,
    /// The last inventory reported by the source.
    inventory: Option<Inventory>,
    /// Abandoned threads with the GPU whose call hangs.
    abandoned: Vec<(u32, Arc<CallTracker>)>,
    /// GPUs with hung calls, by index of the driver.
    hung: BTreeMap<u32, HungGpu>,
}

/// Handle of the current worker thread.
struct WorkerHandle {
    id: WorkerId,
    requests: SyncSender<ReadRequest>,
    calls: Arc<CallTracker>,
}

/// A GPU with a hung call.
struct HungGpu {
    /// Fault reported in place of readings.
    why: Text,
    /// Number of hangs.
    times: u32,
    /// Start of the last call that hung.
    at: Instant,
    /// Time from which the GPU may be called again, set when the call has returned.
    readmit_at: Option<Instant>,
}

/// Result of a watchdog check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverStatus {
    /// No call exceeds the limit.
    Responsive,
    /// A call for one GPU hung, and the worker was replaced; pending requests of the old worker
    /// remain unanswered.
    Replaced,
    /// A call for the driver as a whole hangs, so a replacement would hang too; or calls for all of
    /// its GPUs do, if it has several.
    Hung {
        /// Duration of the call, of several the shortest.
        duration: Duration,
    },
}

impl DriverThread {
    /// Starts the thread of the source at this position, which reports through
    /// [`LoopEvent::Report`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        source: usize,
        mut make: SourceFactory,
        timings: DriverTimings,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        let id = WorkerId { source, number: 0 };
        let worker =
            WorkerHandle::start(id, &mut make, CallTracker::default(), None, timings, events.clone())?;
        let (abandoned, hung) = (Vec::new(), BTreeMap::new());
        Ok(Self { make, events, timings, worker, inventory: None, abandoned, hung })
    }

    /// Requests readings; returns whether the worker accepted the request.
    pub fn request(&self, request: ReadRequest) -> bool {
        self.worker.requests.try_send(request).is_ok()
    }

    /// Returns how long the current call has been running.
    pub fn call_duration(&self) -> Option<Duration> {
        self.worker.calls.running().map(|(call_duration, _)| call_duration)
    }

    /// Returns whether a report is from the current worker, not from an abandoned one.
    pub fn is_current(&self, worker: WorkerId) -> bool {
        self.worker.id == worker
    }

    /// Stores the inventory, so that hung GPUs keep their identity when the worker is replaced.
    pub fn set_inventory(&mut self, inventory: Option<&Inventory>) {
        self.inventory = inventory.cloned();
    }

    /// Replaces the worker if its call exceeds `limit`, and readmits GPUs whose hung calls have
    /// returned.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn check(&mut self, limit: Duration) -> io::Result<DriverStatus> {
        let now = Instant::now();
        self.readmit(now);
        let is_first = self.worker.id.number == 0 && !self.worker.calls.is_opened();
        let limit = if is_first { limit.max(OPENING_LIMIT) } else { limit };
        match self.worker.calls.blocked() {
            Some((call_duration, Some(gpu)))
                if call_duration >= limit && self.abandoned.len() < MAX_ABANDONED =>
            {
                self.replace_worker(gpu, call_duration, now)?;
                Ok(DriverStatus::Replaced)
            }
            Some((duration, _)) if duration >= limit => Ok(DriverStatus::Hung { duration }),
            _ => {
                let hung = self.all_hung(now).map(|duration| DriverStatus::Hung { duration });
                Ok(hung.unwrap_or(DriverStatus::Responsive))
            }
        }
    }

    /// Returns for how long calls for all GPUs have hung; `None` if one can be read. A single GPU does not show
    /// whether the driver hangs as a whole, so for it the result is `None`, too.
    fn all_hung(&self, now: Instant) -> Option<Duration> {
        let avoided = self.avoided(now);
        let gpus = &self.inventory.as_ref()?.gpus;
        if gpus.len() < 2 || gpus.iter().any(|facts| !avoided.contains_key(&facts.index)) {
            return None;
        }
        let last = avoided.keys().filter_map(|gpu| self.hung.get(gpu)).map(|hung| hung.at).max();
        last.map(|at| now.duration_since(at))
    }

    fn replace_worker(&mut self, gpu: u32, call_duration: Duration, now: Instant) -> io::Result<()> {
        let why = format!(
            "no answer from the driver since {}",
            clock::time_of_day(clock::wall_ns(), call_duration)
        );
        let before = self.hung.remove(&gpu).filter(|hung| now.duration_since(hung.at) < BACKOFF_RESET);
        let times = before.map_or(1, |hung| hung.times.saturating_add(1));
        let at = now.checked_sub(call_duration).unwrap_or(now);
        self.hung.insert(gpu, HungGpu { why: why.into(), times, at, readmit_at: None });
        let avoided = self.avoided(now);
        let id = WorkerId { number: self.worker.id.number.wrapping_add(1), ..self.worker.id };
        let replacement = WorkerHandle::start(
            id,
            &mut self.make,
            CallTracker::for_replacement(self.inventory.clone(), avoided),
            self.inventory.clone(),
            self.timings,
            self.events.clone(),
        )?;
        let WorkerHandle { calls, .. } = std::mem::replace(&mut self.worker, replacement);
        calls.abandon();
        self.abandoned.push((gpu, calls));
        Ok(())
    }

    /// Returns the GPUs that must not be called now, with the reason.
    fn avoided(&self, now: Instant) -> BTreeMap<u32, Text> {
        let is_avoided = |hung: &HungGpu| hung.readmit_at.is_none_or(|at| at > now);
        let avoided = self.hung.iter().filter(|(_, hung)| is_avoided(hung));
        avoided.map(|(gpu, hung)| (*gpu, hung.why.clone())).collect()
    }

    /// Removes abandoned threads that have ended and readmits their GPUs after the pause.
    fn readmit(&mut self, now: Instant) {
        let hung = &mut self.hung;
        self.abandoned.retain(|(gpu, calls)| {
            if calls.has_ended()
                && let Some(hung) = hung.get_mut(gpu)
            {
                hung.readmit_at = Some(now + pause_after(hung.times));
            }
            !calls.has_ended()
        });
        for (gpu, _) in self.hung.iter().filter(|(_, hung)| hung.readmit_at.is_some_and(|at| at <= now)) {
            self.worker.calls.readmit(*gpu);
        }
    }
}

/// Pause before a GPU is called again after its hung call returned; none after the first time.
fn pause_after(times: u32) -> Duration {
    exponential(FIRST_PAUSE, times.saturating_sub(1), MAX_PAUSE)
}

impl WorkerHandle {
    fn start(
        id: WorkerId,
        make: &mut SourceFactory,
        calls: CallTracker,
        inventory: Option<Inventory>,
        timings: DriverTimings,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(1);
        let calls = Arc::new(calls);
        let source = make(Arc::clone(&calls));
        let worker = Worker { id, inbox, events, calls: Arc::clone(&calls), timings, inventory };
        thread::Builder::new().name("source".into()).stack_size(STACK).spawn(move || worker.run(source))?;
        Ok(Self { id, requests, calls })
    }
}

/// The worker thread.
struct Worker {
    id: WorkerId,
    inbox: Receiver<ReadRequest>,
    events: Sender<LoopEvent>,
    calls: Arc<CallTracker>,
    timings: DriverTimings,
    /// The last inventory reported by this worker or its predecessor.
    inventory: Option<Inventory>,
}

/// The event loop has ended, or the worker was replaced.
struct Disconnected;

/// Records the end of a thread in any case, including a panic.
struct ExitGuard {
    calls: Arc<CallTracker>,
    events: Sender<LoopEvent>,
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        self.calls.set_ended();
        // An abandoned thread is expected to end, and a panic has already been reported.
        if !self.calls.is_abandoned() && !thread::panicking() {
            let _ = self.events.send(LoopEvent::ThreadFailed("its source thread ended unexpectedly".into()));
        }
    }
}

impl Worker {
    fn run(self, source: Box<dyn Source>) {
        self.calls.set_thread();
        let exit = ExitGuard { calls: Arc::clone(&self.calls), events: self.events.clone() };
        self.run_sessions(source);
        drop(exit);
    }

    /// Reopens the source whenever it becomes unavailable, until the probe ends.
    fn run_sessions(mut self, mut source: Box<dyn Source>) {
        let mut failures = 0;
        loop {
            let ended = match self.timed(|_| source.open()) {
                Ok(session) => {
                    failures = 0;
                    self.serve(session)
                }
                Err(absent) => Ok(absent),
            };
            if source.needs_new_process() && self.report(Report::NeedsNewProcess).is_err() {
                return;
            }
            failures += 1;
            let pause = exponential(self.timings.initial_backoff, failures, self.timings.max_backoff);
            let rested = ended.and_then(|absent| {
                self.inventory = None;
                self.report(Report::Absent(absent))?;
                self.wait(pause)
            });
            if rested.is_err() {
                return;
            }
        }
    }

    /// Answers requests until the source becomes unavailable, then closes it; closing also calls
    /// the driver.
    fn serve(&mut self, mut session: Box<dyn Session + '_>) -> Result<Absent, Disconnected> {
        let ended = self.handle_requests(&mut *session);
        self.timed(|_| drop(session));
        ended
    }

    fn handle_requests(&mut self, session: &mut dyn Session) -> Result<Absent, Disconnected> {
        self.take_inventory(session)?;
        let mut schedule = InventorySchedule { taken: Instant::now(), futile: 0 };
        let mut examined: Option<Instant> = None;
        loop {
            let request = self.inbox.recv().map_err(|_| Disconnected)?;
            let is_stale = self.calls.take_stale() || session.is_stale();
            if schedule.is_due(is_stale, self.timings.inventory_interval, Instant::now()) {
                let has_changed = self.take_inventory(session)?;
                schedule.record(is_stale && !has_changed, Instant::now());
            }
            match self.timed(|worker| worker.read(session, request)) {
                Ok(report) => self.report(report)?,
                Err(absent) => return Ok(absent),
            }
            // After the readings have been reported, so that no sample is delayed.
            if examined.is_none_or(|at| at.elapsed() >= self.timings.health_interval) {
                let health = self.timed(|_| session.health());
                examined = Some(Instant::now());
                self.report(Report::Health(health))?;
            }
        }
    }

    /// Queries the inventory, and reports it if it has changed. Returns whether it has.
    fn take_inventory(&mut self, session: &mut dyn Session) -> Result<bool, Disconnected> {
        let now = self.timed(|_| session.inventory());
        let has_changed = self.inventory.as_ref() != Some(&now);
        if has_changed {
            self.inventory = Some(now.clone());
            self.report(Report::Opened(now))?;
        }
        self.calls.set_opened();
        Ok(has_changed)
    }

    fn read(&mut self, session: &mut dyn Session, request: ReadRequest) -> Result<Report, Absent> {
        let gpus = session.readings()?;
        let processes = request.processes.then(|| session.gpu_processes());
        // The following calls are not for the GPU that was called last.
        self.calls.begin_driver_call();
        Ok(Report::Read { gpus, processes, driver_events: session.driver_events() })
    }

    /// Runs a call that may hang, observed by the watchdog.
    fn timed<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.calls.begin_driver_call();
        let result = call(self);
        self.calls.end_call();
        result
    }

    /// Reports even if the worker was abandoned, because events can be taken from the driver only
    /// once.
    fn report(&self, report: Report) -> Result<(), Disconnected> {
        self.events.send(LoopEvent::Report(self.id, report)).map_err(|_| Disconnected)?;
        if self.calls.is_abandoned() { Err(Disconnected) } else { Ok(()) }
    }

    /// Waits. Requests received meanwhile need no response, because the probe knows that the source
    /// is unavailable.
    fn wait(&self, pause: Duration) -> Result<(), Disconnected> {
        let until = Instant::now() + pause;
        loop {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Disconnected),
            }
        }
    }
}

/// Schedule of inventories. A contradicted inventory is taken again at once, except for a driver that keeps
/// contradicting itself, such as one that counts more GPUs than it lists.
#[derive(Debug)]
struct InventorySchedule {
    taken: Instant,
    /// Number of the last inventories that were contradicted before and had not changed.
    futile: u32,
}

impl InventorySchedule {
    fn is_due(&self, is_stale: bool, interval: Duration, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.taken);
        age >= interval || is_stale && (self.futile < MAX_FUTILE || age >= FUTILE_PAUSE)
    }

    fn record(&mut self, was_futile: bool, now: Instant) {
        *self = Self { taken: now, futile: if was_futile { self.futile.saturating_add(1) } else { 0 } };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{
        GpuProcessList, Inventory,
        scripted::{Act, Scene, ScriptedSource},
    };
    use nodeglass_protocol::probe::{GpuSample, SourceVersions};
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(20);
    const SOON: Duration = Duration::from_millis(1);
    const ASK: ReadRequest = ReadRequest { processes: true };

    fn inventory() -> Inventory {
        Inventory { versions: SourceVersions::default(), gpus: Vec::new(), topology: Vec::new() }
    }

    fn start(acts: impl IntoIterator<Item = Act>) -> (DriverThread, Receiver<LoopEvent>) {
        let (events, inbox) = channel();
        let timings = DriverTimings {
            initial_backoff: SOON,
            max_backoff: SOON,
            inventory_interval: LONG,
            health_interval: LONG,
        };
        let mut acts = Some(acts.into_iter().collect::<Vec<_>>());
        let make = move |_| Box::new(ScriptedSource::new(acts.take().unwrap_or_default())) as Box<dyn Source>;
        (DriverThread::start(0, Box::new(make), timings, events).unwrap(), inbox)
    }

    fn report(inbox: &Receiver<LoopEvent>) -> Report {
        match inbox.recv_timeout(LONG).unwrap() {
            LoopEvent::Report(_, report) => report,
            event => panic!("{event:?}"),
        }
    }

    fn open(scenes: impl IntoIterator<Item = Scene>) -> Act {
        Act::Open(inventory(), scenes.into_iter().collect())
    }

    #[test]
    fn an_unavailable_source_is_reopened() {
        let gone = Act::Absent(Absent::new("no driver"));
        let scene = Scene { gpus: vec![GpuSample::default()], ..Scene::default() };
        let (driver_thread, inbox) = start([gone, open([scene.clone()]), open([])]);
        assert_eq!(report(&inbox), Report::Absent(Absent::new("no driver")));
        assert_eq!(report(&inbox), Report::Opened(inventory()));
        assert!(driver_thread.request(ASK));
        let read = Report::Read {
            gpus: scene.gpus,
            processes: Some(GpuProcessList::default()),
            driver_events: Vec::new(),
        };
        assert_eq!(report(&inbox), read);
        assert_eq!(report(&inbox), Report::Health(Vec::new()));
        assert!(driver_thread.request(ASK));
        assert!(matches!(report(&inbox), Report::Absent(_)));
        assert_eq!(report(&inbox), Report::Opened(inventory()));
    }

    #[test]
    fn the_duration_of_a_hung_call_is_known() {
        let (driver_thread, inbox) = start([open([Scene { hang: LONG, ..Scene::default() }])]);
        assert_eq!(report(&inbox), Report::Opened(inventory()));
        assert!(driver_thread.request(ASK));
        let mut before = Duration::ZERO;
        for _ in 0..3 {
            while driver_thread.call_duration().is_none_or(|call_duration| call_duration <= before) {
                thread::yield_now();
            }
            before = driver_thread.call_duration().unwrap();
        }
        assert!(inbox.try_recv().is_err());
    }

    #[test]
    fn a_driver_that_keeps_contradicting_itself_is_not_listed_each_time() {
        let start = Instant::now();
        let mut schedule = InventorySchedule { taken: start, futile: 0 };
        let mut due = Vec::new();
        for second in 1..=20 {
            let now = start + Duration::from_secs(second);
            if schedule.is_due(true, LONG * 2, now) {
                due.push(second);
                schedule.record(true, now);
            }
        }
        assert_eq!(due, [1, 2, 3, 13]);
        // Once it has listed something new, it is believed again.
        schedule.record(false, start + LONG);
        assert!(schedule.is_due(true, LONG * 2, start + LONG + SOON));
        assert!(!schedule.is_due(false, LONG * 2, start + LONG + SOON));
        assert!(schedule.is_due(false, SOON, start + LONG + SOON));
    }
}
