//! A single report of this node for `--once`: facts, one sample, health and processes, as JSON or
//! as a table.

pub mod table;

use crate::{
    clock,
    driver_thread::{DriverStatus, DriverThread, DriverTimings, ReadRequest, SourceConfig},
    hello,
    host::Host,
    library_exit,
    loop_event::LoopEvent,
    panics,
    process::Inspector,
    source::{Absent, GpuProcessList, Report, multi::MultiSource},
};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{GpuGap, GpuHealth, GpuSample, Hello, ProcessGap, ProcessSample, Sample};
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

/// The sources of a node while a report is collected.
struct Collection {
    sources: MultiSource,
    drivers: Vec<Driver>,
    /// Time of the process list that is being resolved, in ns of `CLOCK_BOOTTIME`.
    inspected_ns: Option<u64>,
}

/// The driver of one source.
struct Driver {
    thread: DriverThread,
    /// Number of samples taken.
    reads: u32,
    /// Whether the source has reported everything.
    is_read: bool,
    gpus: Vec<GpuSample>,
    processes: Option<GpuProcessList>,
}

/// Collects a report.
///
/// # Errors
/// If no thread can be started, or one panicked. A node without GPUs is not an error: see
/// [`NodeReport::without_gpus`].
pub fn collect(configs: Vec<SourceConfig>) -> io::Result<NodeReport> {
    let (events, inbox) = channel();
    panics::report_to(events.clone());
    let _guard = library_exit::report_to(events.clone());
    let timings = DriverTimings { health_interval: Duration::ZERO, ..DriverTimings::default() };
    let mut sources = MultiSource::new(configs.iter().map(|config| config.vendor));
    for (source, config) in (0..).zip(&configs) {
        sources
            .set_absent(source, Absent::new(format!("the {} driver does not respond", config.vendor.name())));
    }
    let drivers = (0..).zip(configs).map(|(source, config)| {
        let thread = DriverThread::start(source, config.make, timings, events.clone())?;
        Ok(Driver { thread, reads: 0, is_read: false, gpus: Vec::new(), processes: None })
    });
    let drivers = drivers.collect::<io::Result<_>>()?;
    let mut host = Host::new();
    host.read();
    let mut report = NodeReport {
        hello: hello::of_this_node(0, sources.states()),
        sample: Sample { seq: 1, ..Sample::default() },
        health: Vec::new(),
        processes: Vec::new(),
        process_gaps: Vec::new(),
    };
    let mut collection = Collection { sources, drivers, inspected_ns: None };
    let inspector = Inspector::start(events)?;
    if !report.gather(&mut collection, &inspector, &inbox)? {
        thread::sleep(RATE_WINDOW);
    }
    let now = host.read();
    if report.sample.mono_ns == 0 {
        report.stamp();
    }
    (report.sample.host, report.sample.cores, report.sample.jobs) = (now.host, now.cores, now.jobs);
    Ok(report)
}

impl Collection {
    fn is_complete(&self) -> bool {
        self.inspected_ns.is_none() && self.drivers.iter().all(|driver| driver.is_read)
    }

    /// Replaces threads that hang, and repeats their requests.
    fn check(&mut self) -> io::Result<()> {
        for driver in &mut self.drivers {
            if driver.thread.check(HUNG)? == DriverStatus::Replaced {
                driver.thread.request(ReadRequest { processes: true });
            }
        }
        Ok(())
    }

    /// Merges the processes of the sources that were read.
    fn processes(&self) -> GpuProcessList {
        self.sources.merge_processes(|source| {
            self.drivers[source].processes.clone().ok_or_else(|| "not read yet".into())
        })
    }
}

impl NodeReport {
    /// Collects the sources' reports until the timeout; returns whether that took the rate window.
    fn gather(
        &mut self,
        collection: &mut Collection,
        inspector: &Inspector,
        inbox: &Receiver<LoopEvent>,
    ) -> io::Result<bool> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline && !collection.is_complete() {
            let Ok(event) = inbox.recv_timeout(POLL_INTERVAL) else {
                collection.check()?;
                continue;
            };
            match event {
                LoopEvent::Report(worker, report)
                    if collection.drivers[worker.source].thread.is_current(worker) =>
                {
                    self.take(worker.source, report, collection, inspector);
                }
                LoopEvent::Processes(list) => {
                    collection.inspected_ns = collection.inspected_ns.filter(|at_ns| *at_ns != list.mono_ns);
                    (self.processes, self.process_gaps) = (list.processes, list.gaps);
                }
                LoopEvent::ThreadFailed(why) => {
                    return Err(io::Error::other(format!("internal error: {why}")));
                }
                _ => {}
            }
        }
        Ok(collection.drivers.iter().any(|driver| driver.reads > 1))
    }

    /// Stores a report of a source.
    fn take(&mut self, source: usize, report: Report, collection: &mut Collection, inspector: &Inspector) {
        let driver = &mut collection.drivers[source];
        match report {
            Report::Opened(inventory) => {
                driver.thread.set_inventory(Some(&inventory));
                driver.thread.request(ReadRequest { processes: true });
                collection.sources.set_ready(source, inventory);
                self.take_inventory(collection);
            }
            Report::Absent(absent) => {
                (driver.is_read, driver.gpus, driver.processes) = (true, Vec::new(), None);
                collection.sources.set_absent(source, absent);
                self.take_inventory(collection);
            }
            // The reason is reported next.
            Report::NeedsNewProcess => {}
            Report::Read { gpus, processes, .. } => {
                (driver.gpus, driver.processes) = (gpus, processes);
                driver.reads += 1;
                self.stamp();
                self.take_inventory(collection);
                let gpu_process_list = collection.processes();
                collection.inspected_ns = Some(gpu_process_list.mono_ns);
                inspector.inspect(gpu_process_list);
            }
            // Health is the last report of a sample; after the second sample all rates are known.
            Report::Health(gpus) => {
                self.health = collection.sources.set_health(source, gpus);
                if driver.reads > 1 {
                    driver.is_read = true;
                    return;
                }
                thread::sleep(RATE_WINDOW);
                driver.thread.request(ReadRequest { processes: true });
            }
        }
    }

    /// Stores the GPUs of all sources and their readings.
    fn take_inventory(&mut self, collection: &mut Collection) {
        let Collection { sources, drivers, inspected_ns } = collection;
        self.hello.sources = sources.states();
        (self.hello.gpus, self.hello.topology) = (sources.gpus(), sources.topology());
        self.sample.gpus = match drivers.iter().any(|driver| !driver.gpus.is_empty()) {
            true => sources.merge_readings(|source| drivers[source].gpus.clone()),
            false => Vec::new(),
        };
        if sources.ready().next().is_none() {
            *inspected_ns = None;
        }
    }

    /// Returns the reasons for missing processes as messages.
    pub fn missing_processes(&self) -> Vec<String> {
        let label = |gap: &GpuGap| {
            let gpu = self.hello.gpus.iter().find(|gpu| gpu.uuid == gap.gpu);
            gpu.map_or_else(|| gap.gpu.to_string(), |gpu| gpu.label())
        };
        let describe = |gap: &ProcessGap| match gap {
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
        gaps.map(|gap| format!("{}: {}", label(gap), describe(&gap.gap))).collect()
    }

    /// Sets the sample time.
    fn stamp(&mut self) {
        (self.sample.mono_ns, self.sample.wall_ms) = (clock::mono_ns(), clock::wall_ms());
    }

    /// Returns the reason why no GPU has readings, if so.
    pub fn without_gpus(&self) -> Option<Text> {
        let ready: Vec<_> = self.hello.sources.iter().filter(|source| source.versions().is_some()).collect();
        let Some(driver) = ready.first().map(|source| source.vendor.name()) else {
            let reasons = self
                .hello
                .sources
                .iter()
                .filter_map(|source| source.absent_reason().or(source.confinement()));
            let reasons: Vec<_> = reasons.map(Text::as_str).collect();
            return Some(reasons.join("; ").into());
        };
        if self.hello.gpus.is_empty() {
            let confinement = self.hello.sources.iter().find_map(|source| source.confinement().cloned());
            let shown = || format!("the {driver} driver is loaded but shows no GPU to this user").into();
            Some(confinement.unwrap_or_else(shown))
        } else if self.sample.gpus.is_empty() {
            Some(format!("the {driver} driver stopped answering").into())
        } else if self.sample.gpus.iter().all(|gpu| gpu.fault.is_some()) {
            Some("no GPU of this node can be read".into())
        } else {
            None
        }
    }

    /// Returns the problems of GPUs and their processes as messages.
    pub fn problems(&self) -> Vec<String> {
        let gpus = self.hello.gpus.iter().zip(&self.sample.gpus);
        let lost = gpus.filter_map(|(facts, gpu)| {
            let fault = gpu.fault.as_ref()?;
            let place = if facts.mig_parent.is_some() { "a MIG instance of " } else { "" };
            Some(format!("{place}{}: {fault}", facts.label()))
        });
        lost.chain(self.missing_processes()).collect()
    }
}
