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
use std::sync::{Arc, Mutex, PoisonError};
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
        let state = State { limiter: Limiter::default(), ring, screen, colour };
        Self { shown, state: Arc::new(Mutex::new(state)) }
    }

    fn takes(&self, level: Level) -> bool {
        level <= self.shown || level <= FILE_LEVEL
    }

    fn take(&self, event: &Event<'_>, now_ms: u64) {
        let meta = event.metadata();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write_held(now_ms, self.shown);
        if state.limiter.admit(key(event), now_ms) == Verdict::Suppress {
            return;
        }
        let line = Line::of(event);
        state.limiter.set_example(key(event), *meta.level(), line.summary());
        state.write(*meta.level(), &line.at(now_ms), self.shown);
    }

    fn write_held(&self, now_ms: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write_held(now_ms, self.shown);
    }
}

impl State {
    /// Writes how many lines were suppressed in completed windows.
    fn write_held(&mut self, now_ms: u64, shown: Level) {
        for suppressed in self.limiter.take_due(now_ms) {
            let at_ms = now_ms.min(Clock::wall_ms());
            let text = Line::text(suppressed.level, &suppressed.to_string());
            self.write(suppressed.level, &text.at(at_ms), shown);
        }
    }

    fn write(&mut self, level: Level, line: &str, shown: Level) {
        if let Some(ring) = self.ring.as_mut().filter(|_| level <= FILE_LEVEL || level <= shown) {
            ring.write(line);
        }
        if level <= shown {
            // A closed stderr does not stop the relay.
            let _ = self.screen.write_all(painted(line, level, self.colour).as_bytes());
        }
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
        self.take(event, Clock::wall_ms());
    }
}

#[cfg(test)]
mod tests;
