//! One look at this node, for people: facts, one sample and the processes, as pretty JSON.

use crate::{
    attendant::{Attendant, Patience, Request},
    clock, hello,
    host::Host,
    source::{Report, Source},
    wake::Wake,
};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{Hello, NvmlState, ProcessSample, Sample};
use serde::Serialize;
use std::{
    io,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// How long the driver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between the two readings of the CPU, whose difference is its share.
const CPU_WINDOW: Duration = Duration::from_millis(200);

/// One look.
#[derive(Debug, Serialize)]
pub struct Look {
    /// Facts.
    pub hello: Hello,
    /// Readings.
    pub sample: Sample,
    /// Processes on GPUs.
    pub processes: Vec<ProcessSample>,
}

/// Looks once.
///
/// # Errors
/// If no thread can be started. A node without GPUs is no error: see [`Look::without_gpus`].
pub fn look(source: Box<dyn Source>) -> io::Result<Look> {
    let (wakes, inbox) = channel();
    let attendant = Attendant::start(source, Patience::default(), wakes)?;
    let mut host = Host::new();
    host.sample();
    let mut look = Look {
        hello: hello::of_this_node(0, "the NVIDIA driver does not answer".into()),
        sample: Sample { seq: 1, ..Sample::default() },
        processes: Vec::new(),
    };
    look.gather(&attendant, &inbox);
    thread::sleep(CPU_WINDOW);
    look.sample.host = host.sample();
    Ok(look)
}

impl Look {
    /// Fills in what the source says before the patience ends.
    fn gather(&mut self, attendant: &Attendant, inbox: &Receiver<Wake>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Wake::Report(Report::Opened(inventory))) => {
                    (self.hello.nvml, self.hello.gpus) = (inventory.nvml, inventory.gpus);
                    (self.sample.mono_ns, self.sample.wall_ms) = (clock::mono_ns(), clock::wall_ms());
                    attendant.request(Request { processes: true });
                }
                Ok(Wake::Report(Report::Absent(absent))) => {
                    (self.hello.nvml, self.hello.gpus) = (NvmlState::Absent { why: absent.0 }, Vec::new());
                    return;
                }
                Ok(Wake::Report(Report::Read { gpus, processes, .. })) => {
                    self.sample.gpus = gpus;
                    self.processes = processes.unwrap_or_default();
                    return;
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Why there are no GPUs, if there are none.
    pub fn without_gpus(&self) -> Option<Text> {
        match &self.hello.nvml {
            NvmlState::Absent { why } => Some(why.clone()),
            NvmlState::Ready { .. } if self.hello.gpus.is_empty() => {
                Some("the NVIDIA driver is loaded but shows no GPU to this user".into())
            }
            NvmlState::Ready { .. } if self.sample.gpus.is_empty() => {
                Some("the NVIDIA driver stopped answering".into())
            }
            NvmlState::Ready { .. } => None,
        }
    }
}
