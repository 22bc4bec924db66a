//! One look at this node, for people: facts, one sample, health and the processes, as pretty JSON.

use crate::{
    attendant::{Attendant, Patience, Request},
    clock, hello,
    host::Host,
    source::{Report, Source},
    wake::Wake,
};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{GpuHealth, Hello, NvmlState, ProcessSample, Sample};
use serde::Serialize;
use std::{
    io,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// How long the driver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between the two readings whose difference is a rate or a share.
const WINDOW: Duration = Duration::from_millis(500);

/// One look.
#[derive(Debug, Serialize)]
pub struct Look {
    /// Facts.
    pub hello: Hello,
    /// Readings.
    pub sample: Sample,
    /// Health of the GPUs, in the order of the facts.
    pub health: Vec<GpuHealth>,
    /// Processes on GPUs.
    pub processes: Vec<ProcessSample>,
}

/// Looks once.
///
/// # Errors
/// If no thread can be started. A node without GPUs is no error: see [`Look::without_gpus`].
pub fn look(source: Box<dyn Source>) -> io::Result<Look> {
    let (wakes, inbox) = channel();
    let patience = Patience { checkup: Duration::ZERO, ..Patience::default() };
    let attendant = Attendant::start(source, patience, wakes)?;
    let mut host = Host::new();
    host.look();
    let mut look = Look {
        hello: hello::of_this_node(0, "the NVIDIA driver does not answer".into()),
        sample: Sample { seq: 1, ..Sample::default() },
        health: Vec::new(),
        processes: Vec::new(),
    };
    if !look.gather(&attendant, &inbox) {
        thread::sleep(WINDOW);
    }
    let now = host.look();
    (look.sample.host, look.sample.cores, look.sample.jobs) = (now.host, now.cores, now.jobs);
    Ok(look)
}

impl Look {
    /// Fills in what the source says before the patience ends; says whether that took the window.
    fn gather(&mut self, attendant: &Attendant, inbox: &Receiver<Wake>) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut looks = 0;
        while let Ok(wake) = inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            match wake {
                Wake::Report(Report::Opened(inventory)) => {
                    (self.hello.nvml, self.hello.gpus) = (inventory.nvml, inventory.gpus);
                    self.hello.topology = inventory.topology;
                    attendant.request(Request { processes: true });
                }
                Wake::Report(Report::Absent(absent)) => {
                    (self.hello.nvml, self.hello.gpus) = (NvmlState::Absent { why: absent.0 }, Vec::new());
                    self.hello.topology = Vec::new();
                    break;
                }
                Wake::Report(Report::Read { gpus, processes, .. }) => {
                    (self.sample.mono_ns, self.sample.wall_ms) = (clock::mono_ns(), clock::wall_ms());
                    self.sample.gpus = gpus;
                    self.processes = processes.unwrap_or_default();
                    looks += 1;
                }
                // Health ends a look: of the second one every rate is known.
                Wake::Report(Report::Health(gpus)) => {
                    self.health = gpus;
                    if looks > 1 {
                        break;
                    }
                    thread::sleep(WINDOW);
                    attendant.request(Request { processes: true });
                }
                _ => {}
            }
        }
        looks > 1
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
