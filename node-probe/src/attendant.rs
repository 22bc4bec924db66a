//! A source is called on a thread of its own, and it is known since when a call has not returned: a hung driver cannot be cancelled.

use crate::{
    clock,
    process::Roster,
    source::{Absent, Report, Session, Source},
    wake::Wake,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
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

/// The end of the thread that the probe's loop holds.
#[derive(Debug)]
pub struct Attendant {
    requests: SyncSender<Request>,
    /// `CLOCK_BOOTTIME` in ns when the running call began; 0 when none runs.
    began_ns: Arc<AtomicU64>,
}

impl Attendant {
    /// Starts the thread; reports come as [`Wake::Report`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(source: Box<dyn Source>, patience: Patience, wakes: Sender<Wake>) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(1);
        let began_ns = Arc::new(AtomicU64::new(0));
        let desk = Desk { inbox, wakes, began_ns: Arc::clone(&began_ns), roster: Roster::new(), patience };
        thread::Builder::new().name("source".into()).stack_size(STACK).spawn(move || desk.attend(source))?;
        Ok(Self { requests, began_ns })
    }

    /// Asks for readings; says whether the source is free to answer.
    pub fn request(&self, request: Request) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// For how long the call that runs now has run.
    pub fn busy(&self) -> Option<Duration> {
        match self.began_ns.load(Ordering::Acquire) {
            0 => None,
            began => Some(Duration::from_nanos(clock::mono_ns().saturating_sub(began))),
        }
    }
}

/// What the thread has.
struct Desk {
    inbox: Receiver<Request>,
    wakes: Sender<Wake>,
    began_ns: Arc<AtomicU64>,
    roster: Roster,
    patience: Patience,
}

/// Nobody listens any more: the probe is ending.
struct Deserted;

impl Desk {
    /// Opens the source again whenever it went away, and ends with the probe.
    fn attend(mut self, mut source: Box<dyn Source>) {
        let mut pause = self.patience.first;
        loop {
            let opened = self.timed(|_| source.open());
            let ended = match opened {
                Ok(session) => {
                    pause = self.patience.first;
                    self.serve(session)
                }
                Err(absent) => Ok(absent),
            };
            let rested = ended.and_then(|absent| {
                self.tell(Report::Absent(absent))?;
                self.rest(pause)
            });
            if rested.is_err() {
                return;
            }
            pause = (pause * 2).min(self.patience.most);
        }
    }

    /// Answers requests until the source goes away.
    fn serve(&mut self, mut session: Box<dyn Session + '_>) -> Result<Absent, Deserted> {
        let mut inventory = self.timed(|_| session.inventory());
        self.tell(Report::Opened(inventory.clone()))?;
        let mut checked = Instant::now();
        let mut examined: Option<Instant> = None;
        loop {
            let request = self.inbox.recv().map_err(|_| Deserted)?;
            if checked.elapsed() >= self.patience.recheck {
                let now = self.timed(|_| session.inventory());
                checked = Instant::now();
                if now != inventory {
                    inventory = now;
                    self.tell(Report::Opened(inventory.clone()))?;
                }
            }
            match self.timed(|desk| desk.read(&mut *session, request)) {
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

    fn read(&mut self, session: &mut dyn Session, request: Request) -> Result<Report, Absent> {
        let gpus = session.readings()?;
        let processes = request.processes.then(|| self.roster.call(session.occupants()));
        Ok(Report::Read { gpus, processes, news: session.news() })
    }

    /// Runs a call that may hang, under the eye of the watchdog.
    fn timed<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        self.began_ns.store(clock::mono_ns(), Ordering::Release);
        let result = call(self);
        self.began_ns.store(0, Ordering::Release);
        result
    }

    fn tell(&self, report: Report) -> Result<(), Deserted> {
        self.wakes.send(Wake::Report(report)).map_err(|_| Deserted)
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
        Inventory,
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
        (Attendant::start(Box::new(ScriptedSource::new(acts)), patience, wakes).unwrap(), inbox)
    }

    fn report(inbox: &Receiver<Wake>) -> Report {
        match inbox.recv_timeout(LONG).unwrap() {
            Wake::Report(report) => report,
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
        let read = Report::Read { gpus: scene.gpus, processes: Some(Vec::new()), news: Vec::new() };
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
