//! A source is called on a thread of its own. A call that hangs cannot be cancelled: its thread is left alone, and another one goes on without that GPU.

use crate::{
    clock,
    source::{Absent, Inventory, Report, Session, Source, calls::Calls},
    wake::Wake,
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
pub struct Patience {
    /// Pause after the first failed opening; doubles up to `most`.
    pub first: Duration,
    /// Longest pause between two openings.
    pub most: Duration,
    /// How often the inventory is looked at again.
    pub recheck: Duration,
    /// How often health is asked.
    pub checkup: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(2),
            most: Duration::from_secs(30),
            recheck: Duration::from_secs(30),
            checkup: Duration::from_secs(5),
        }
    }
}

/// What is asked of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether process lists are wanted too.
    pub processes: bool,
}

/// Makes a source whose calls are marked: one for the first thread, and another one for each thread that takes over.
pub type MakeSource = Box<dyn FnMut(Arc<Calls>) -> Box<dyn Source>>;

/// The most threads that may hang in calls at once; each is one GPU's.
const MOST_ABANDONED: usize = 32;
/// The first inventory may take this long: a driver that nobody uses initialises each GPU when it is asked for.
const OPENING_LIMIT: Duration = Duration::from_secs(15);
/// A GPU whose call came back is called again at once. If it hangs again, it is left alone for this long, then for
/// twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A GPU that answered for so long starts with the first pause again.
const FORGIVEN: Duration = Duration::from_secs(600);

/// The end of the source's thread that the probe's loop holds, and of those threads that hang in a call.
pub struct Attendant {
    make: MakeSource,
    wakes: Sender<Wake>,
    patience: Patience,
    worker: Worker,
    /// What the source last said that it has.
    inventory: Option<Inventory>,
    /// Threads whose call has not returned, with the GPU that it is for.
    abandoned: Vec<(u32, Arc<Calls>)>,
    /// GPUs whose calls hung, by NVML index.
    hung: BTreeMap<u32, Hung>,
}

/// The thread that answers.
struct Worker {
    /// Tells its reports from those of the threads before it.
    number: u32,
    requests: SyncSender<Request>,
    calls: Arc<Calls>,
}

/// A GPU whose call hung.
struct Hung {
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
pub enum Tended {
    /// No call has run for longer than the limit.
    Answers,
    /// A call on one GPU hangs. Another thread has taken over; what the one before was asked stays unanswered.
    TakenOver,
    /// A call hangs that is for no single GPU, so that another thread would hang too.
    Hangs {
        /// For how long.
        since: Duration,
    },
}

impl Attendant {
    /// Starts the thread; reports come as [`Wake::Report`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(mut make: MakeSource, patience: Patience, wakes: Sender<Wake>) -> io::Result<Self> {
        let worker = Worker::start(0, &mut make, Calls::default(), None, patience, wakes.clone())?;
        let (abandoned, hung) = (Vec::new(), BTreeMap::new());
        Ok(Self { make, wakes, patience, worker, inventory: None, abandoned, hung })
    }

    /// Asks for readings; says whether the source is free to answer.
    pub fn request(&self, request: Request) -> bool {
        self.worker.requests.try_send(request).is_ok()
    }

    /// For how long the call that runs now has run.
    pub fn busy(&self) -> Option<Duration> {
        self.worker.calls.running().map(|(busy, _)| busy)
    }

    /// Whether a report is from the thread that answers now, and not from one that was abandoned.
    pub fn is_current(&self, number: u32) -> bool {
        self.worker.number == number
    }

    /// Takes note of what the source has, so that GPUs that hang keep their names when another thread takes over.
    pub fn remember(&mut self, inventory: Option<&Inventory>) {
        self.inventory = inventory.cloned();
    }

    /// Gives up a thread whose call has not returned for `limit`, and lets GPUs be called again whose calls came back.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn tend(&mut self, limit: Duration) -> io::Result<Tended> {
        let now = Instant::now();
        self.readmit(now);
        let is_first = self.worker.number == 0 && !self.worker.calls.is_opened();
        let limit = if is_first { limit.max(OPENING_LIMIT) } else { limit };
        match self.worker.calls.running() {
            Some((busy, Some(gpu))) if busy >= limit && self.abandoned.len() < MOST_ABANDONED => {
                self.take_over(gpu, busy, now)?;
                Ok(Tended::TakenOver)
            }
            Some((since, _)) if since >= limit => Ok(Tended::Hangs { since }),
            _ => Ok(Tended::Answers),
        }
    }

    fn take_over(&mut self, gpu: u32, busy: Duration, now: Instant) -> io::Result<()> {
        let why = format!("no answer from the driver since {}", clock::time_of_day(busy));
        let before = self.hung.remove(&gpu).filter(|hung| now.duration_since(hung.at) < FORGIVEN);
        let times = before.map_or(1, |hung| hung.times.saturating_add(1));
        self.hung.insert(gpu, Hung { why: why.into(), times, at: now, readmit_at: None });
        let avoided = self.avoided(now);
        let successor = Worker::start(
            self.worker.number.wrapping_add(1),
            &mut self.make,
            Calls::of_successor(self.inventory.clone(), avoided),
            self.inventory.clone(),
            self.patience,
            self.wakes.clone(),
        )?;
        let Worker { calls, .. } = std::mem::replace(&mut self.worker, successor);
        calls.abandon();
        self.abandoned.push((gpu, calls));
        Ok(())
    }

    /// GPUs that must not be called now, and why.
    fn avoided(&self, now: Instant) -> BTreeMap<u32, Text> {
        let is_avoided = |hung: &Hung| hung.readmit_at.is_none_or(|at| at > now);
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
            FIRST_PAUSE.saturating_mul(1_u32.checked_shl(again).unwrap_or(u32::MAX)).min(LONGEST_PAUSE)
        }
    }
}

impl Worker {
    fn start(
        number: u32,
        make: &mut MakeSource,
        calls: Calls,
        inventory: Option<Inventory>,
        patience: Patience,
        wakes: Sender<Wake>,
    ) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(1);
        let calls = Arc::new(calls);
        let source = make(Arc::clone(&calls));
        let desk = Desk { number, inbox, wakes, calls: Arc::clone(&calls), patience, inventory };
        thread::Builder::new().name("source".into()).stack_size(STACK).spawn(move || desk.run(source))?;
        Ok(Self { number, requests, calls })
    }
}

/// What the thread has.
struct Desk {
    number: u32,
    inbox: Receiver<Request>,
    wakes: Sender<Wake>,
    calls: Arc<Calls>,
    patience: Patience,
    /// What was last reported of the inventory, by this thread or by the one before.
    inventory: Option<Inventory>,
}

/// Nobody listens any more: the probe is ending, or another thread has taken over.
struct Deserted;

/// Notes the end of a thread when its last call has returned, in whatever way it ends.
struct EndNote {
    calls: Arc<Calls>,
    wakes: Sender<Wake>,
}

impl Drop for EndNote {
    fn drop(&mut self) {
        self.calls.set_ended();
        // A thread that was abandoned is expected to end, and one that panics has said so already.
        if !self.calls.is_abandoned() && !thread::panicking() {
            let _ = self.wakes.send(Wake::ThreadFailed("its source thread ended unexpectedly".into()));
        }
    }
}

impl Desk {
    fn run(self, source: Box<dyn Source>) {
        let note = EndNote { calls: Arc::clone(&self.calls), wakes: self.wakes.clone() };
        self.attend(source);
        drop(note);
    }

    /// Opens the source again whenever it went away, and ends with the probe.
    fn attend(mut self, mut source: Box<dyn Source>) {
        let mut pause = self.patience.first;
        loop {
            let ended = match self.timed(|_| source.open()) {
                Ok(session) => {
                    pause = self.patience.first;
                    self.serve(session)
                }
                Err(absent) => Ok(absent),
            };
            if source.is_stuck() && self.tell(Report::Stuck).is_err() {
                return;
            }
            let rested = ended.and_then(|absent| {
                self.inventory = None;
                self.tell(Report::Absent(absent))?;
                self.rest(pause)
            });
            if rested.is_err() {
                return;
            }
            pause = (pause * 2).min(self.patience.most);
        }
    }

    /// Answers requests until the source goes away, and closes it; closing is a call into the driver, too.
    fn serve(&mut self, mut session: Box<dyn Session + '_>) -> Result<Absent, Deserted> {
        let ended = self.answer_requests(&mut *session);
        self.timed(|_| drop(session));
        ended
    }

    fn answer_requests(&mut self, session: &mut dyn Session) -> Result<Absent, Deserted> {
        self.take_inventory(session)?;
        let mut checked = Instant::now();
        let mut examined: Option<Instant> = None;
        loop {
            let request = self.inbox.recv().map_err(|_| Deserted)?;
            if self.calls.take_stale() || session.is_stale() || checked.elapsed() >= self.patience.recheck {
                self.take_inventory(session)?;
                checked = Instant::now();
            }
            match self.timed(|desk| desk.read(session, request)) {
                Ok(report) => self.tell(report)?,
                Err(absent) => return Ok(absent),
            }
            // After the readings were told, so that no sample waits for it.
            if examined.is_none_or(|at| at.elapsed() >= self.patience.checkup) {
                let health = self.timed(|_| session.health());
                examined = Some(Instant::now());
                self.tell(Report::Health(health))?;
            }
        }
    }

    /// Looks at what the source has, and reports it if that is new.
    fn take_inventory(&mut self, session: &mut dyn Session) -> Result<(), Deserted> {
        let now = self.timed(|_| session.inventory());
        if self.inventory.as_ref() != Some(&now) {
            self.inventory = Some(now.clone());
            self.tell(Report::Opened(now))?;
        }
        self.calls.set_opened();
        Ok(())
    }

    fn read(&mut self, session: &mut dyn Session, request: Request) -> Result<Report, Absent> {
        let gpus = session.readings()?;
        let processes = request.processes.then(|| session.occupants());
        // What follows is no longer about the GPU that was called last.
        self.calls.enter_driver();
        Ok(Report::Read { gpus, processes, news: session.news() })
    }

    /// Runs a call that may hang, under the eye of the watchdog.
    fn timed<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.calls.enter_driver();
        let result = call(self);
        self.calls.rest();
        result
    }

    /// Reports, even if the thread was abandoned meanwhile: events that it took from the driver are told only once.
    fn tell(&self, report: Report) -> Result<(), Deserted> {
        self.wakes.send(Wake::Report(self.number, report)).map_err(|_| Deserted)?;
        if self.calls.is_abandoned() { Err(Deserted) } else { Ok(()) }
    }

    /// Waits; what is asked meanwhile needs no answer, for the probe knows that the source is absent.
    fn rest(&self, pause: Duration) -> Result<(), Deserted> {
        let until = Instant::now() + pause;
        loop {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Deserted),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{
        Inventory, Occupancy,
        scripted::{Act, Scene, ScriptedSource},
    };
    use nodeglass_protocol::probe::{GpuSample, NvmlState};
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(20);
    const SOON: Duration = Duration::from_millis(1);
    const ASK: Request = Request { processes: true };

    fn inventory() -> Inventory {
        Inventory {
            nvml: NvmlState::Absent { why: "scripted".into() },
            gpus: Vec::new(),
            topology: Vec::new(),
        }
    }

    fn start(acts: impl IntoIterator<Item = Act>) -> (Attendant, Receiver<Wake>) {
        let (wakes, inbox) = channel();
        let patience = Patience { first: SOON, most: SOON, recheck: LONG, checkup: LONG };
        let mut acts = Some(acts.into_iter().collect::<Vec<_>>());
        let make = move |_| Box::new(ScriptedSource::new(acts.take().unwrap_or_default())) as Box<dyn Source>;
        (Attendant::start(Box::new(make), patience, wakes).unwrap(), inbox)
    }

    fn report(inbox: &Receiver<Wake>) -> Report {
        match inbox.recv_timeout(LONG).unwrap() {
            Wake::Report(_, report) => report,
            wake => panic!("{wake:?}"),
        }
    }

    fn open(scenes: impl IntoIterator<Item = Scene>) -> Act {
        Act::Open(inventory(), scenes.into_iter().collect())
    }

    #[test]
    fn a_source_that_goes_away_is_opened_again() {
        let gone = Act::Absent(Absent("no driver".into()));
        let scene = Scene { gpus: vec![GpuSample::default()], ..Scene::default() };
        let (attendant, inbox) = start([gone, open([scene.clone()]), open([])]);
        assert_eq!(report(&inbox), Report::Absent(Absent("no driver".into())));
        assert_eq!(report(&inbox), Report::Opened(inventory()));
        assert!(attendant.request(ASK));
        let read = Report::Read { gpus: scene.gpus, processes: Some(Occupancy::default()), news: Vec::new() };
        assert_eq!(report(&inbox), read);
        assert_eq!(report(&inbox), Report::Health(Vec::new()));
        assert!(attendant.request(ASK));
        assert!(matches!(report(&inbox), Report::Absent(_)));
        assert_eq!(report(&inbox), Report::Opened(inventory()));
    }

    #[test]
    fn a_call_that_does_not_return_is_known_to_run() {
        let (attendant, inbox) = start([open([Scene { hang: LONG, ..Scene::default() }])]);
        assert_eq!(report(&inbox), Report::Opened(inventory()));
        assert!(attendant.request(ASK));
        let mut before = Duration::ZERO;
        for _ in 0..3 {
            while attendant.busy().is_none_or(|busy| busy <= before) {
                thread::yield_now();
            }
            before = attendant.busy().unwrap();
        }
        assert!(inbox.try_recv().is_err());
    }
}
