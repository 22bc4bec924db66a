//! The relay's log: short lines without keys, of bounded total size.
//!
//! A [`Log`] receives every event of `tracing`: [`limit`] decides whether it is written or only counted,
//! [`line`] formats it as one sanitised line, and [`ring`] keeps the lines in a file of bounded size next
//! to the relay's key. Standard error shows the same lines from the configured level.

pub mod limit;
pub mod line;
pub mod ring;

use limit::{Limiter, Verdict};
use line::Line;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::disk_thread::{DiskThread, Items};
use ring::Ring;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IsTerminal, Write, stderr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The file has at least what is needed by someone who did not watch the terminal.
const FILE_LEVEL: Level = Level::INFO;
/// Maximum number of lines that wait for standard error; further ones are only in the file.
const MAX_WAITING: usize = 256;

/// The lines of this process.
#[derive(Clone)]
pub struct Log {
    shown: Level,
    state: Arc<Mutex<State>>,
}

struct State {
    limiter: Limiter,
    ring: Option<Ring>,
    /// Output of lines; tests read them here.
    screen: Box<dyn Write + Send>,
    colour: bool,
    started: Instant,
}

/// Ends the log, writing pending counts.
#[must_use = "pending counts are written on drop"]
pub struct Ending(Log);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.write_held(u64::MAX);
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Waits for the lines of the thread.
        state.screen = Box::new(stderr());
    }
}

/// An output that a thread writes to.
struct OnThread(DiskThread<Vec<u8>>);

impl Write for OnThread {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.pass(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets a thread write to an output: a terminal that is paused, or a pipe that nobody reads, must not stop the relay.
fn on_thread(mut output: impl Write + Send + 'static) -> Box<dyn Write + Send> {
    let write = move |lines: Items<Vec<u8>>| {
        for line in lines.iter() {
            // A closed stderr does not stop the relay.
            let _ = output.write_all(&line);
        }
    };
    match DiskThread::start("stderr", MAX_WAITING, write) {
        Ok(thread) => Box::new(OnThread(thread)),
        Err(_) => Box::new(stderr()),
    }
}

/// Subscribes to all events of this process and to panics: shown on standard error from the level
/// `shown`, and written to the ring.
pub fn start(shown: Level, ring: Option<Ring>) -> Ending {
    let colour = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = Log::new(shown, ring, on_thread(stderr()), colour);
    // Only a second start in one process could fail, and then the first one stays active.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log.clone()));
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let why = payload.downcast_ref::<&str>().copied();
        let why =
            why.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        tracing::error!(place, why, "internal error; please report it");
    }));
    Ending(log)
}

impl Log {
    /// A log that shows lines from the level `shown` on `screen`, and keeps them in `ring`.
    pub fn new(shown: Level, ring: Option<Ring>, screen: Box<dyn Write + Send>, colour: bool) -> Self {
        let state = State { limiter: Limiter::default(), ring, screen, colour, started: Instant::now() };
        Self { shown, state: Arc::new(Mutex::new(state)) }
    }

    fn takes(&self, level: Level) -> bool {
        level <= self.shown || level <= FILE_LEVEL
    }

    fn take(&self, event: &Event<'_>) {
        let (key, level) = (key(event), *event.metadata().level());
        {
            let mut state = self.state();
            let now_ms = state.now_ms();
            state.write_held(now_ms, self.shown);
            if state.limiter.admit(key, now_ms) == Verdict::Suppress {
                return;
            }
        }
        // Without the lock: a value that panics while it is formatted is logged as well.
        let line = Line::of(event);
        let mut state = self.state();
        state.limiter.set_example(key, level, line.summary());
        state.write(level, &line.at(Clock::wall_ms()), self.shown);
    }

    fn write_held(&self, now_ms: u64) {
        self.state().write_held(now_ms, self.shown);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Time since the start in ms: the wall clock may be set back.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes how many lines were suppressed in completed windows; `now_ms` is [`State::now_ms`], or [`u64::MAX`] at the end.
    fn write_held(&mut self, now_ms: u64, shown: Level) {
        for suppressed in self.limiter.take_due(now_ms) {
            let text = Line::text(suppressed.level, &suppressed.to_string());
            self.write(suppressed.level, &text.at(Clock::wall_ms()), shown);
        }
    }

    fn write(&mut self, level: Level, line: &str, shown: Level) {
        if let Some(ring) = self.ring.as_mut().filter(|_| level <= FILE_LEVEL || level <= shown)
            && let Some(error) = ring.write(line)
        {
            let why = format!("the log file cannot be written, and lacks lines from now on: {error}");
            self.show(Level::WARN, &Line::text(Level::WARN, &why).at(Clock::wall_ms()));
        }
        if level <= shown {
            self.show(level, line);
        }
    }

    fn show(&mut self, level: Level, line: &str) {
        // A closed stderr does not stop the relay.
        let _ = self.screen.write_all(painted(line, level, self.colour).as_bytes());
    }
}

/// The kind of an event: its source location and the node that it concerns, so that one node cannot
/// suppress messages about another.
fn key(event: &Event<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.metadata().callsite().hash(&mut hasher);
    line::node(event).hash(&mut hasher);
    hasher.finish()
}

fn painted(line: &str, level: Level, colour: bool) -> String {
    let code = match level {
        Level::ERROR => "31",
        Level::WARN => "33",
        _ => "2",
    };
    match line.split_once(level.as_str()).filter(|_| colour) {
        Some((before, after)) => format!("{before}\x1b[{code}m{level}\x1b[0m{after}"),
        None => line.to_owned(),
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.takes(*metadata.level())
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::from_level(self.shown.max(FILE_LEVEL)))
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.take(event);
    }
}

#[cfg(test)]
mod tests;
