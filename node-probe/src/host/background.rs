//! What may hang is done on a thread of its own, and the last result is there for whoever asks.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

/// Stack of such a thread.
const STACK: usize = 64 << 10;

/// Work of which only the latest result is wanted.
#[derive(Debug)]
pub struct BackgroundTask<T> {
    requests: SyncSender<u64>,
    state: Arc<Mutex<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    latest: Option<T>,
    /// When the running work was asked for, in ns; `None` while it rests.
    since_ns: Option<u64>,
}

impl<T: Clone + Send + 'static> BackgroundTask<T> {
    /// Starts a thread that waits for work, which is told the time; it ends with this guard.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(name: &str, mut work: impl FnMut(u64) -> T + Send + 'static) -> io::Result<Self> {
        let (requests, inbox) = sync_channel::<u64>(1);
        let state = Arc::new(Mutex::new(State { latest: None, since_ns: None }));
        let shared = Arc::clone(&state);
        let run = move || {
            for now_ns in inbox {
                let result = work(now_ns);
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                *state = State { latest: Some(result), since_ns: None };
            }
        };
        thread::Builder::new().name(name.into()).stack_size(STACK).spawn(run)?;
        Ok(Self { requests, state })
    }

    /// Has the work done again, unless it is still being done.
    pub fn request(&self, now_ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since_ns.is_none() && self.requests.try_send(now_ns).is_ok() {
            state.since_ns = Some(now_ns);
        }
    }

    /// The latest result, and for how many ns the work has been going on since.
    pub fn latest(&self, now_ns: u64) -> (Option<T>, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.latest.clone(), state.since_ns.map_or(0, |since| now_ns.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn work_that_hangs_stops_nobody_and_is_known_to() {
        let (go, gate) = channel::<()>();
        let background = BackgroundTask::start("test", move |now_ns| {
            gate.recv().ok();
            now_ns
        })
        .unwrap();
        assert_eq!(background.latest(5), (None, 0));
        background.request(10);
        background.request(20);
        assert_eq!(background.latest(25), (None, 15));
        go.send(()).unwrap();
        while background.latest(30).0.is_none() {
            thread::yield_now();
        }
        assert_eq!(background.latest(30), (Some(10), 0));
        background.request(40);
        assert_eq!(background.latest(45), (Some(10), 5));
    }
}
