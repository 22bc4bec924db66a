//! Runs tasks that may hang on a separate thread; callers get the latest result.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

/// Stack size of the thread.
const STACK: usize = 64 << 10;

/// A repeated task of which only the latest result matters.
#[derive(Debug)]
pub struct BackgroundTask<T> {
    requests: SyncSender<u64>,
    state: Arc<Mutex<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    latest: Option<T>,
    /// Start of the current run in ns; `None` while idle.
    since_ns: Option<u64>,
}

impl<T: Clone + Send + 'static> BackgroundTask<T> {
    /// Starts a thread that runs `work` on request with the request's time; it ends when this guard
    /// is dropped.
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

    /// Requests another run, unless one is in progress.
    pub fn request(&self, now_ns: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since_ns.is_none() && self.requests.try_send(now_ns).is_ok() {
            state.since_ns = Some(now_ns);
        }
    }

    /// Returns the latest result and the duration of the current run in ns.
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
    fn a_hung_task_does_not_block_and_is_detected() {
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
