//! What NVML says now: the state file as it was last read, motion and real processes applied.

use crate::{
    meter::Meters,
    motion, procfs,
    state::{Gpu, Process, State},
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
/// Where it is if the variable is not set: sshd and slurmd clean the environment.
const DEFAULT_PATH: &str = "/etc/fake-nvml.json";
/// Maximum age of the state: short for a person, long for a tick of a hundred calls.
const FRESH: Duration = Duration::from_millis(20);
/// Says another age in ms: whoever counts instructions wants the same picture however long that takes.
const FRESH_VARIABLE: &str = "FAKE_NVML_FRESH_MS";

static CURRENT: LazyLock<Mutex<Current>> = LazyLock::new(|| Mutex::new(Current::new()));

/// The state as of now; `None` without a readable state file, which means that no driver is loaded.
pub fn state() -> Option<Arc<State>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).look()
}

/// What is remembered between calls.
struct Current {
    path: PathBuf,
    fresh: Duration,
    looked: Option<Instant>,
    stamp: Option<(u64, i64, i64, u64)>,
    file: Option<State>,
    meters: Vec<Meters>,
    now: Option<Arc<State>>,
}

impl Current {
    fn new() -> Self {
        let path = std::env::var_os(VARIABLE).map_or_else(|| DEFAULT_PATH.into(), PathBuf::from);
        let fresh = std::env::var(FRESH_VARIABLE).ok().and_then(|ms| ms.parse().ok());
        let fresh = fresh.map_or(FRESH, Duration::from_millis);
        Self { path, fresh, looked: None, stamp: None, file: None, meters: Vec::new(), now: None }
    }

    fn look(&mut self) -> Option<Arc<State>> {
        let fresh = self.file.as_ref().and_then(|state| state.fresh_ms);
        let fresh = fresh.map_or(self.fresh, Duration::from_millis);
        if self.looked.is_none_or(|at| at.elapsed() > fresh) {
            self.reload();
            let now = Instant::now();
            self.now = self.file.clone().map(|state| Arc::new(self.metered(alive(state), now)));
            self.looked = Some(now);
        }
        self.now.clone()
    }

    /// Lets the counters run on at the rates of now.
    fn metered(&mut self, mut state: State, now: Instant) -> State {
        self.meters.resize_with(state.gpus.len().max(self.meters.len()), Meters::default);
        let written = self.stamp.map_or(Duration::ZERO, |(_, seconds, nanos, _)| {
            Duration::new(seconds.max(0) as u64, nanos.max(0) as u32)
        });
        let age = SystemTime::now().duration_since(UNIX_EPOCH + written).unwrap_or_default();
        for (gpu, meters) in state.gpus.iter_mut().zip(&mut self.meters) {
            meters.follow(gpu, now, age);
            gpu.meters.clone_from(meters);
        }
        state
    }

    /// Reads the file again if it changed; a half-written one is tried again at the next look.
    fn reload(&mut self) {
        let Ok(meta) = fs::metadata(&self.path) else {
            // Counters begin anew with the driver.
            (self.stamp, self.file) = (None, None);
            self.meters.clear();
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

/// Adds real processes, then motion, then what follows from both.
fn alive(mut state: State) -> State {
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
            motion::move_on(gpu, index, busy, now_ms);
        }
        gpu.mem_used_mib = gpu.mem_used_mib.or_else(|| gpu.mem_total_mib.map(|_| used_mib(gpu)));
    }
    state
}

fn used_mib(gpu: &Gpu) -> u64 {
    let listed = gpu.processes.iter().chain(gpu.mig.iter().flat_map(|mig| &mig.processes));
    listed.filter_map(|process: &Process| process.mem_mib).sum()
}
