//! A source is called on a thread of its own. A call that hangs cannot be cancelled: its thread is left alone, and another one goes on without that GPU.

use crate::{
    clock,
    loop_event::LoopEvent,
    source::{Absent, Inventory, Report, Session, Source, calls::CallTracker},
};
use nodeglass_protocol::Text;
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

/// Stack of the thread: NVML's own calls run on it.
const STACK: usize = 1 << 20;

/// How patient the attendant is with a source.
#[derive(Clone, Copy, Debug)]
pub struct DriverTimings {
    /// Pause after the first failed opening; doubles up to `max_backoff`.
    pub initial_backoff: Duration,
    /// Longest pause between two openings.
    pub max_backoff: Duration,
    /// How often the inventory is looked at again.
    pub inventory_interval: Duration,
    /// How often health is asked.
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

/// What is asked of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Whether process lists are wanted too.
    pub processes: bool,
}

/// Makes a source whose calls are marked: one for the first thread, and another one for each thread that takes over.
pub type SourceFactory = Box<dyn FnMut(Arc<CallTracker>) -> Box<dyn Source>>;

/// The most threads that may hang in calls at once; each is one GPU's.
const MAX_ABANDONED: usize = 32;
/// The first inventory may take this long: a driver that nobody uses initialises each GPU when it is asked for.
const OPENING_LIMIT: Duration = Duration::from_secs(15);
/// A GPU whose call came back is called again at once. If it hangs again, it is left alone for this long, then for
/// twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// A GPU that answered for so long starts with the first pause again.
const BACKOFF_RESET: Duration = Duration::from_secs(600);

/// The end of the source's thread that the probe's loop holds, and of those threads that hang in a call.
pub struct DriverThread {
    make: SourceFactory,
    events: Sender<LoopEvent>,
    timings: DriverTimings,
    worker: WorkerHandle,
    /// What the source last said that it has.
    inventory: Option<Inventory>,
    /// Threads whose call has not returned, with the GPU that it is for.
    abandoned: Vec<(u32, Arc<CallTracker>)>,
    /// GPUs whose calls hung, by NVML index.
    hung: BTreeMap<u32, HungGpu>,
}

/// The thread that answers.
struct WorkerHandle {
    /// Tells its reports from those of the threads before it.
    number: u32,
    requests: SyncSender<ReadRequest>,
    calls: Arc<CallTracker>,
}

/// A GPU whose call hung.
struct HungGpu {
    /// One sentence for its readings.
    why: Text,
    /// How often that happened.
    times: u32,
    /// When it last happened.
    at: Instant,
    /// The call came back; the GPU may be called again then.
    readmit_at: Option<Instant>,
}

/// How the source does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverStatus {
    /// No call has run for longer than the limit.
    Responsive,
    /// A call on one GPU hangs. Another thread has taken over; what the one before was asked stays unanswered.
    Replaced,
    /// A call hangs that is for no single GPU, so that another thread would hang too.
    Hung {
        /// For how long.
        since: Duration,
    },
}

impl DriverThread {
    /// Starts the thread; reports come as [`LoopEvent::Report`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        mut make: SourceFactory,
        timings: DriverTimings,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        let worker =
            WorkerHandle::start(0, &mut make, CallTracker::default(), None, timings, events.clone())?;
        let (abandoned, hung) = (Vec::new(), BTreeMap::new());
        Ok(Self { make, events, timings, worker, inventory: None, abandoned, hung })
    }

    /// Asks for readings; says whether the source is free to answer.
    pub fn request(&self, request: ReadRequest) -> bool {
        self.worker.requests.try_send(request).is_ok()
    }

    /// For how long the call that runs now has run.
    pub fn call_duration(&self) -> Option<Duration> {
        self.worker.calls.running().map(|(call_duration, _)| call_duration)
    }

    /// Whether a report is from the thread that answers now, and not from one that was abandoned.
    pub fn is_current(&self, number: u32) -> bool {
        self.worker.number == number
    }

    /// Takes note of what the source has, so that GPUs that hang keep their names when another thread takes over.
    pub fn set_inventory(&mut self, inventory: Option<&Inventory>) {
        self.inventory = inventory.cloned();
    }

    /// Gives up a thread whose call has not returned for `limit`, and lets GPUs be called again whose calls came back.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn check(&mut self, limit: Duration) -> io::Result<DriverStatus> {
        let now = Instant::now();
        self.readmit(now);
        let is_first = self.worker.number == 0 && !self.worker.calls.is_opened();
        let limit = if is_first { limit.max(OPENING_LIMIT) } else { limit };
        match self.worker.calls.running() {
            Some((call_duration, Some(gpu)))
                if call_duration >= limit && self.abandoned.len() < MAX_ABANDONED =>
            {
                self.replace_worker(gpu, call_duration, now)?;
                Ok(DriverStatus::Replaced)
            }
            Some((since, _)) if since >= limit => Ok(DriverStatus::Hung { since }),
            _ => Ok(DriverStatus::Responsive),
        }
    }

    fn replace_worker(&mut self, gpu: u32, call_duration: Duration, now: Instant) -> io::Result<()> {
        let why = format!("no answer from the driver since {}", clock::time_of_day(call_duration));
        let before = self.hung.remove(&gpu).filter(|hung| now.duration_since(hung.at) < BACKOFF_RESET);
        let times = before.map_or(1, |hung| hung.times.saturating_add(1));
        self.hung.insert(gpu, HungGpu { why: why.into(), times, at: now, readmit_at: None });
        let avoided = self.avoided(now);
        let replacement = WorkerHandle::start(
            self.worker.number.wrapping_add(1),
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

    /// GPUs that must not be called now, and why.
    fn avoided(&self, now: Instant) -> BTreeMap<u32, Text> {
        let is_avoided = |hung: &HungGpu| hung.readmit_at.is_none_or(|at| at > now);
        let avoided = self.hung.iter().filter(|(_, hung)| is_avoided(hung));
        avoided.map(|(gpu, hung)| (*gpu, hung.why.clone())).collect()
    }

    /// Looks for threads that came back, and lets their GPUs be called again when their time has come.
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

/// How long a GPU is left alone after its call came back.
fn pause_after(times: u32) -> Duration {
    match times.checked_sub(2) {
        None => Duration::ZERO,
        Some(again) => {
            FIRST_PAUSE.saturating_mul(1_u32.checked_shl(again).unwrap_or(u32::MAX)).min(MAX_PAUSE)
        }
    }
}

impl WorkerHandle {
    fn start(
        number: u32,
        make: &mut SourceFactory,
        calls: CallTracker,
        inventory: Option<Inventory>,
        timings: DriverTimings,
        events: Sender<LoopEvent>,
    ) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(1);
        let calls = Arc::new(calls);
        let source = make(Arc::clone(&calls));
        let worker = Worker { number, inbox, events, calls: Arc::clone(&calls), timings, inventory };
        thread::Builder::new().name("source".into()).stack_size(STACK).spawn(move || worker.run(source))?;
        Ok(Self { number, requests, calls })
    }
}

/// What the thread has.
struct Worker {
    number: u32,
    inbox: Receiver<ReadRequest>,
    events: Sender<LoopEvent>,
    calls: Arc<CallTracker>,
    timings: DriverTimings,
    /// What was last reported of the inventory, by this thread or by the one before.
    inventory: Option<Inventory>,
}

/// Nobody listens any more: the probe is ending, or another thread has taken over.
struct Disconnected;

/// Notes the end of a thread when its last call has returned, in whatever way it ends.
struct ExitGuard {
    calls: Arc<CallTracker>,
    events: Sender<LoopEvent>,
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        self.calls.set_ended();
        // A thread that was abandoned is expected to end, and one that panics has said so already.
        if !self.calls.is_abandoned() && !thread::panicking() {
            let _ = self.events.send(LoopEvent::ThreadFailed("its source thread ended unexpectedly".into()));
        }
    }
}

impl Worker {
    fn run(self, source: Box<dyn Source>) {
        let note = ExitGuard { calls: Arc::clone(&self.calls), events: self.events.clone() };
        self.run_sessions(source);
        drop(note);
    }

    /// Opens the source again whenever it went away, and ends with the probe.
    fn run_sessions(mut self, mut source: Box<dyn Source>) {
        let mut pause = self.timings.initial_backoff;
        loop {
            let ended = match self.timed(|_| source.open()) {
                Ok(session) => {
                    pause = self.timings.initial_backoff;
                    self.serve(session)
                }
                Err(absent) => Ok(absent),
            };
            if source.is_stuck() && self.report(Report::Stuck).is_err() {
                return;
            }
            let rested = ended.and_then(|absent| {
                self.inventory = None;
                self.report(Report::Absent(absent))?;
                self.wait(pause)
            });
            if rested.is_err() {
                return;
            }
            pause = (pause * 2).min(self.timings.max_backoff);
        }
    }

    /// Answers requests until the source goes away, and closes it; closing is a call into the driver, too.
    fn serve(&mut self, mut session: Box<dyn Session + '_>) -> Result<Absent, Disconnected> {
        let ended = self.answer_requests(&mut *session);
        self.timed(|_| drop(session));
        ended
    }

    fn answer_requests(&mut self, session: &mut dyn Session) -> Result<Absent, Disconnected> {
        self.take_inventory(session)?;
        let mut checked = Instant::now();
        let mut examined: Option<Instant> = None;
        loop {
            let request = self.inbox.recv().map_err(|_| Disconnected)?;
            if self.calls.take_stale()
                || session.is_stale()
                || checked.elapsed() >= self.timings.inventory_interval
            {
                self.take_inventory(session)?;
                checked = Instant::now();
            }
            match self.timed(|worker| worker.read(session, request)) {
                Ok(report) => self.report(report)?,
                Err(absent) => return Ok(absent),
            }
            // After the readings were told, so that no sample waits for it.
            if examined.is_none_or(|at| at.elapsed() >= self.timings.health_interval) {
                let health = self.timed(|_| session.health());
                examined = Some(Instant::now());
                self.report(Report::Health(health))?;
            }
        }
    }

    /// Looks at what the source has, and reports it if that is new.
    fn take_inventory(&mut self, session: &mut dyn Session) -> Result<(), Disconnected> {
        let now = self.timed(|_| session.inventory());
        if self.inventory.as_ref() != Some(&now) {
            self.inventory = Some(now.clone());
            self.report(Report::Opened(now))?;
        }
        self.calls.set_opened();
        Ok(())
    }

    fn read(&mut self, session: &mut dyn Session, request: ReadRequest) -> Result<Report, Absent> {
        let gpus = session.readings()?;
        let processes = request.processes.then(|| session.gpu_processes());
        // What follows is no longer about the GPU that was called last.
        self.calls.begin_driver_call();
        Ok(Report::Read { gpus, processes, driver_events: session.driver_events() })
    }

    /// Runs a call that may hang, under the eye of the watchdog.
    fn timed<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.calls.begin_driver_call();
        let result = call(self);
        self.calls.end_call();
        result
    }

    /// Reports, even if the thread was abandoned meanwhile: events that it took from the driver are told only once.
    fn report(&self, report: Report) -> Result<(), Disconnected> {
        self.events.send(LoopEvent::Report(self.number, report)).map_err(|_| Disconnected)?;
        if self.calls.is_abandoned() { Err(Disconnected) } else { Ok(()) }
    }

    /// Waits; what is asked meanwhile needs no answer, for the probe knows that the source is absent.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{
        GpuProcessList, Inventory,
        scripted::{Act, Scene, ScriptedSource},
    };
    use nodeglass_protocol::probe::{GpuSample, NvmlState};
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(20);
    const SOON: Duration = Duration::from_millis(1);
    const ASK: ReadRequest = ReadRequest { processes: true };

    fn inventory() -> Inventory {
        Inventory {
            nvml: NvmlState::Absent { why: "scripted".into() },
            gpus: Vec::new(),
            topology: Vec::new(),
        }
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
        (DriverThread::start(Box::new(make), timings, events).unwrap(), inbox)
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
    fn a_source_that_goes_away_is_opened_again() {
        let gone = Act::Absent(Absent("no driver".into()));
        let scene = Scene { gpus: vec![GpuSample::default()], ..Scene::default() };
        let (driver_thread, inbox) = start([gone, open([scene.clone()]), open([])]);
        assert_eq!(report(&inbox), Report::Absent(Absent("no driver".into())));
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
    fn a_call_that_does_not_return_is_known_to_run() {
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
}
