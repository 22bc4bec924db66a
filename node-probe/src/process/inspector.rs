//! Thread that resolves processes in `/proc`: a lookup that hangs blocks neither samples nor the
//! source.

use super::ProcessTable;
use crate::{clock, loop_event::LoopEvent, source::GpuProcessList};
use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::Duration,
};

/// Stack size of the thread.
const STACK: usize = 256 << 10;

/// Resolves GPU processes and reports them as [`LoopEvent::Processes`]. The thread ends when this
/// guard is dropped.
#[derive(Debug)]
pub struct Inspector {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The next list to resolve; replaced by newer ones.
    waiting: Option<GpuProcessList>,
    /// Start of the current lookup, `CLOCK_BOOTTIME` in ns.
    began_ns: Option<u64>,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next list; `None` after the guard was dropped.
    fn next(&self) -> Option<GpuProcessList> {
        let mut state = self.state();
        state.began_ns = None;
        loop {
            if state.closed {
                return None;
            }
            if let Some(gpu_process_list) = state.waiting.take() {
                state.began_ns = Some(clock::mono_ns());
                return Some(gpu_process_list);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inspector {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(events: Sender<LoopEvent>) -> io::Result<Self> {
        Self::of(ProcessTable::new(), events)
    }

    fn of(mut process_table: ProcessTable, events: Sender<LoopEvent>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let inbox = Arc::clone(&shared);
        let inspect = move || {
            while let Some(gpu_process_list) = inbox.next() {
                if events.send(LoopEvent::Processes(process_table.update(gpu_process_list))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("processes".into()).stack_size(STACK).spawn(inspect)?;
        Ok(Self { shared })
    }

    /// Submits a list, which replaces a waiting one.
    pub fn inspect(&self, gpu_process_list: GpuProcessList) {
        self.shared.state().waiting = Some(gpu_process_list);
        self.shared.changed.notify_one();
    }

    /// Returns the duration of the current lookup.
    pub fn busy(&self) -> Option<Duration> {
        let began_ns = self.shared.state().began_ns?;
        Some(Duration::from_nanos(clock::mono_ns().saturating_sub(began_ns)))
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::GpuProcess;
    use nodeglass_protocol::GpuUuid;
    use nodeglass_protocol::probe::{ProcessKind, ProcessReadings};
    use rustix::fs::{Mode, mkfifoat};
    use std::{fs::File, sync::mpsc::channel};

    #[test]
    fn a_blocking_proc_file_delays_only_its_lookup() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("7");
        std::fs::create_dir(&folder).unwrap();
        // Opening a pipe for reading blocks until there is a writer.
        mkfifoat(rustix::fs::CWD, folder.join("stat"), Mode::RWXU).unwrap();
        let (events, inbox) = channel();
        let process_table = ProcessTable::of(proc.path().into(), proc.path().into(), None);
        let inspector = Inspector::of(process_table, events).unwrap();
        let at = |mono_ns| {
            let kind = ProcessKind::default();
            let one = GpuProcess { gpu: GpuUuid::new("A"), pid: 7, now: ProcessReadings::default(), kind };
            GpuProcessList { mono_ns, processes: vec![one], ..GpuProcessList::default() }
        };
        inspector.inspect(at(1));
        while inspector.busy().is_none() {
            thread::yield_now();
        }
        (2..=9).for_each(|mono_ns| inspector.inspect(at(mono_ns)));
        assert!(inspector.busy().is_some() && inbox.try_recv().is_err());
        let mut seen = Vec::new();
        while seen.len() < 2 {
            drop(File::options().write(true).open(folder.join("stat")).unwrap());
            if let Ok(LoopEvent::Processes(list)) = inbox.recv_timeout(Duration::from_millis(10)) {
                seen.push(list.mono_ns);
            }
        }
        assert_eq!(seen, [1, 9]);
    }
}
