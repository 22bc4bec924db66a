//! The current state: the file as last read, with motion, real processes and counters applied.

use crate::{
    confine::confine,
    counters, motion, procfs,
    state::{Counters, Gpu, Process, State},
};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Names the state file; read when the library is first called.
const VARIABLE: &str = "FAKE_NVML_STATE";
/// Its path if the variable is not set: sshd and slurmd clean the environment.
const DEFAULT_PATH: &str = "/etc/fake-nvml.json";
/// Maximum age of the state: short for a user, long compared with a sample of a hundred calls.
const MAX_AGE: Duration = Duration::from_millis(20);
/// Overrides the age, in ms: an instruction count needs one state however long a sample takes.
const MAX_AGE_VARIABLE: &str = "FAKE_NVML_FRESH_MS";

static CURRENT: LazyLock<Mutex<Current>> = LazyLock::new(|| Mutex::new(Current::new()));

/// The state as of now; `None` without a readable state file, which means that no driver is loaded.
pub fn state() -> Option<Arc<State>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).refresh()
}

/// The state file.
pub(crate) fn path() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| DEFAULT_PATH.into(), PathBuf::from)
}

/// State that persists between calls.
struct Current {
    path: PathBuf,
    max_age: Duration,
    refreshed: Option<Instant>,
    stamp: Option<(u64, i64, i64, u64)>,
    file: Option<State>,
    counters: Vec<Counters>,
    now: Option<Arc<State>>,
}

impl Current {
    fn new() -> Self {
        let max_age = std::env::var(MAX_AGE_VARIABLE).ok().and_then(|ms| ms.parse().ok());
        let max_age = max_age.map_or(MAX_AGE, Duration::from_millis);
        Self {
            path: path(),
            max_age,
            refreshed: None,
            stamp: None,
            file: None,
            counters: Vec::new(),
            now: None,
        }
    }

    fn refresh(&mut self) -> Option<Arc<State>> {
        let max_age = self.file.as_ref().and_then(|state| state.fresh_ms);
        let max_age = max_age.map_or(self.max_age, Duration::from_millis);
        if self.refreshed.is_none_or(|at| at.elapsed() > max_age) {
            self.reload();
            let now = Instant::now();
            self.now = self.file.clone().map(|state| {
                let mut state = self.with_counters(with_activity(state), now);
                if state.confined {
                    confine(&mut state);
                }
                Arc::new(state)
            });
            self.refreshed = Some(now);
        }
        self.now.clone()
    }

    /// Continues the counters at the current rates.
    fn with_counters(&mut self, mut state: State, now: Instant) -> State {
        self.counters.resize_with(state.gpus.len().max(self.counters.len()), Counters::default);
        let written = self.stamp.map_or(Duration::ZERO, |(_, seconds, nanos, _)| {
            Duration::new(seconds.max(0) as u64, nanos.max(0) as u32)
        });
        let age = SystemTime::now().duration_since(UNIX_EPOCH + written).unwrap_or_default();
        for (gpu, counters) in state.gpus.iter_mut().zip(&mut self.counters) {
            counters::follow_readings(counters, gpu, now, age);
            gpu.counters.clone_from(counters);
        }
        state
    }

    /// Reads the file again if it changed; a half-written one is retried at the next refresh.
    fn reload(&mut self) {
        let Ok(meta) = fs::metadata(&self.path) else {
            // Counters restart with the driver.
            (self.stamp, self.file) = (None, None);
            self.counters.clear();
            return;
        };
        let stamp = Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()));
        if self.stamp == stamp {
            return;
        }
        match fs::read(&self.path).map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(state)) => (self.stamp, self.file) = (stamp, Some(state)),
            Ok(Err(error)) => eprintln!("fake-nvml: {}: {error}", self.path.display()),
            Err(error) => eprintln!("fake-nvml: {}: {error}", self.path.display()),
        }
    }
}

/// Adds real processes, then motion, then what is derived from both.
fn with_activity(mut state: State) -> State {
    if state.train_processes {
        for trainer in procfs::trainers() {
            for index in trainer.gpus {
                if let Some(gpu) = state.gpus.get_mut(index) {
                    gpu.processes.push(trainer.process.clone());
                }
            }
        }
    }
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    for (index, gpu) in state.gpus.iter_mut().enumerate() {
        let busy = !state.train_processes || !gpu.processes.is_empty();
        if state.motion {
            motion::apply_load(gpu, index, busy, now_ms);
        }
        gpu.mem_used_mib = gpu.mem_used_mib.or_else(|| gpu.mem_total_mib.map(|_| used_mib(gpu)));
    }
    state
}

fn used_mib(gpu: &Gpu) -> u64 {
    let listed = gpu.processes.iter().chain(gpu.mig.iter().flat_map(|mig| &mig.processes));
    listed.filter_map(|process: &Process| process.mem_mib).sum()
}
