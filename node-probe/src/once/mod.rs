//! A single report of this node for `--once`: facts, one sample, health and processes, as JSON or
//! as a table.

pub mod table;

use crate::{
    clock,
    driver_thread::{DriverStatus, DriverThread, DriverTimings, ReadRequest, SourceFactory},
    hello,
    host::Host,
    loop_event::LoopEvent,
    panics,
    process::Inspector,
    source::Report,
};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{GpuGap, GpuHealth, Hello, NvmlState, ProcessGap, ProcessSample, Sample};
use serde::Serialize;
use std::{
    io,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// Timeout of the driver.
///
/// Longer than the watchdog's limit for opening the driver, so that GPUs beside a hung one are
/// still read.
const TIMEOUT: Duration = Duration::from_secs(25);
/// Time between the two samples from which rates are computed.
const RATE_WINDOW: Duration = Duration::from_millis(500);
/// Duration after which a call counts as hung; the other GPUs are then read without that one.
const HUNG: Duration = Duration::from_secs(3);
/// Interval of watchdog checks.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The report.
#[derive(Debug, Serialize)]
pub struct NodeReport {
    /// Facts.
    pub hello: Hello,
    /// Readings.
    pub sample: Sample,
    /// Health of the GPUs, in inventory order.
    pub health: Vec<GpuHealth>,
    /// Processes on GPUs.
    pub processes: Vec<ProcessSample>,
    /// GPUs with missing processes, and the reason.
    pub process_gaps: Vec<GpuGap>,
}

/// Progress of a report.
#[derive(Debug, Default)]
struct Progress {
    /// Number of samples taken.
    reads: u32,
    /// Time of the process list that is being resolved, in ns of `CLOCK_BOOTTIME`.
    inspected_ns: Option<u64>,
    /// Whether the source has reported everything.
    is_read: bool,
}

/// Collects a report.
///
/// # Errors
/// If no thread can be started, or one panicked. A node without GPUs is not an error: see
/// [`NodeReport::without_gpus`].
pub fn collect(source: SourceFactory) -> io::Result<NodeReport> {
    let (events, inbox) = channel();
    panics::report_to(events.clone());
    let timings = DriverTimings { health_interval: Duration::ZERO, ..DriverTimings::default() };
    let mut driver_thread = DriverThread::start(source, timings, events.clone())?;
    let mut host = Host::new();
    host.read();
    let mut report = NodeReport {
        hello: hello::of_this_node(0, "the NVIDIA driver does not answer".into()),
        sample: Sample { seq: 1, ..Sample::default() },
        health: Vec::new(),
        processes: Vec::new(),
        process_gaps: Vec::new(),
    };
    let inspector = Inspector::start(events)?;
    if !report.gather(&mut driver_thread, &inspector, &inbox)? {
        thread::sleep(RATE_WINDOW);
    }
    let now = host.read();
    if report.sample.mono_ns == 0 {
        report.stamp();
    }
    (report.sample.host, report.sample.cores, report.sample.jobs) = (now.host, now.cores, now.jobs);
    Ok(report)
}

impl NodeReport {
    /// Collects the source's reports until the timeout; returns whether that took the rate window.
    fn gather(
        &mut self,
        driver_thread: &mut DriverThread,
        inspector: &Inspector,
        inbox: &Receiver<LoopEvent>,
    ) -> io::Result<bool> {
        let deadline = Instant::now() + TIMEOUT;
        let mut progress = Progress::default();
        while Instant::now() < deadline && !(progress.is_read && progress.inspected_ns.is_none()) {
            let event = match inbox.recv_timeout(POLL_INTERVAL) {
                Ok(event) => event,
                Err(_) => {
                    // The request to the hung thread is repeated to its replacement.
                    if driver_thread.check(HUNG)? == DriverStatus::Replaced {
                        driver_thread.request(ReadRequest { processes: true });
                    }
                    continue;
                }
            };
            match event {
                LoopEvent::Report(number, report) if driver_thread.is_current(number) => {
                    self.take(report, &mut progress, driver_thread, inspector);
                }
                LoopEvent::Processes(list) => {
                    progress.inspected_ns = progress.inspected_ns.filter(|at_ns| *at_ns != list.mono_ns);
                    (self.processes, self.process_gaps) = (list.processes, list.gaps);
                }
                LoopEvent::ThreadFailed(why) => {
                    return Err(io::Error::other(format!("internal error: {why}")));
                }
                _ => {}
            }
        }
        Ok(progress.reads > 1)
    }

    /// Stores a report of the source.
    fn take(
        &mut self,
        report: Report,
        progress: &mut Progress,
        driver_thread: &mut DriverThread,
        inspector: &Inspector,
    ) {
        match report {
            Report::Opened(inventory) => {
                driver_thread.set_inventory(Some(&inventory));
                (self.hello.nvml, self.hello.gpus) = (inventory.nvml, inventory.gpus);
                self.hello.topology = inventory.topology;
                driver_thread.request(ReadRequest { processes: true });
            }
            Report::Absent(absent) => {
                (self.hello.nvml, self.hello.gpus) = (NvmlState::Absent { why: absent.0 }, Vec::new());
                self.hello.topology = Vec::new();
                (progress.is_read, progress.inspected_ns) = (true, None);
            }
            // The reason is reported next.
            Report::Stuck => {}
            Report::Read { gpus, processes, .. } => {
                self.stamp();
                self.sample.gpus = gpus;
                progress.inspected_ns = processes.as_ref().map(|gpu_process_list| gpu_process_list.mono_ns);
                processes.into_iter().for_each(|gpu_process_list| inspector.inspect(gpu_process_list));
                progress.reads += 1;
            }
            // Health is the last report of a sample; after the second sample all rates are known.
            Report::Health(gpus) => {
                self.health = gpus;
                if progress.reads > 1 {
                    progress.is_read = true;
                    return;
                }
                thread::sleep(RATE_WINDOW);
                driver_thread.request(ReadRequest { processes: true });
            }
        }
    }

    /// Returns the reasons for missing processes as messages.
    pub fn missing_processes(&self) -> Vec<String> {
        let index = |gap: &GpuGap| {
            let gpu = self.hello.gpus.iter().find(|gpu| gpu.uuid == gap.gpu);
            gpu.map_or_else(|| gap.gpu.to_string(), |gpu| gpu.index.to_string())
        };
        let words = |gap: &ProcessGap| match gap {
            ProcessGap::Unsupported => "the driver does not list its processes".to_owned(),
            ProcessGap::Failed(why) => format!("its process list could not be read: {why}"),
            ProcessGap::More(more) => format!("{more} more of its processes are not listed"),
        };
        // The fault of an unreadable GPU already explains its missing list.
        let faulty: Vec<_> = self
            .hello
            .gpus
            .iter()
            .zip(&self.sample.gpus)
            .filter(|(_, gpu)| gpu.fault.is_some())
            .map(|(facts, _)| &facts.uuid)
            .collect();
        let gaps = self.process_gaps.iter().filter(|gap| !faulty.contains(&&gap.gpu));
        gaps.map(|gap| format!("GPU {}: {}", index(gap), words(&gap.gap))).collect()
    }

    /// Sets the sample time.
    fn stamp(&mut self) {
        (self.sample.mono_ns, self.sample.wall_ms) = (clock::mono_ns(), clock::wall_ms());
    }

    /// Returns the reason why no GPU has readings, if so.
    pub fn without_gpus(&self) -> Option<Text> {
        match &self.hello.nvml {
            NvmlState::Absent { why } => Some(why.clone()),
            NvmlState::Ready { .. } if self.hello.gpus.is_empty() => {
                Some("the NVIDIA driver is loaded but shows no GPU to this user".into())
            }
            NvmlState::Ready { .. } if self.sample.gpus.is_empty() => {
                Some("the NVIDIA driver stopped answering".into())
            }
            NvmlState::Ready { .. } if self.sample.gpus.iter().all(|gpu| gpu.fault.is_some()) => {
                Some("no GPU of this node can be read".into())
            }
            NvmlState::Ready { .. } => None,
        }
    }

    /// Returns the problems of GPUs and their processes as messages.
    pub fn problems(&self) -> Vec<String> {
        let gpus = self.hello.gpus.iter().zip(&self.sample.gpus);
        let lost = gpus.filter_map(|(facts, gpu)| {
            let fault = gpu.fault.as_ref()?;
            let place = if facts.mig_parent.is_some() { "a MIG instance of GPU" } else { "GPU" };
            Some(format!("{place} {}: {fault}", facts.index))
        });
        lost.chain(self.missing_processes()).collect()
    }
}
