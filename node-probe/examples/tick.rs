//! Measures the cost of a look at this machine's GPUs: `cargo run --release -p node-probe --example tick -- [LIBRARY [TICKS]]`.

use node_probe::host::{Host, HostReadings};
use node_probe::output;
use node_probe::process::ProcessTable;
use node_probe::sampler::{HandoverState, ProcessUpdate, Sampler, Stamp};
use node_probe::source::{Session, Source, nvml::NvmlSource};
use nodeglass_protocol::probe::ProcessList;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Ticks that count, unless another number is asked for.
const TICKS: usize = 40;
/// GPM yields nothing for shorter intervals, and an immediate repetition would measure warm caches.
const PAUSE: Duration = Duration::from_millis(110);
/// The parts of a tick, in their order.
const PARTS: [&str; 4] = ["readings", "processes", "host", "lines"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut source = NvmlSource::new(arguments.next().map(Into::into));
    let ticks = arguments.next().and_then(|word| word.to_str()?.parse().ok()).unwrap_or(TICKS);
    let mut session = source.open()?;
    let inventory = session.inventory();
    let mut tick = Tick::new();
    // The first look opens files and takes marks for rates, the second still meets new memory.
    for _ in 0..2 {
        tick.run(&mut *session)?;
        std::thread::sleep(PAUSE);
    }
    let mut costs = Vec::with_capacity(ticks);
    for _ in 0..ticks {
        costs.push(tick.run(&mut *session)?);
        std::thread::sleep(PAUSE);
    }
    let health = cost(|| drop(session.health()));
    let whole = median(costs.iter().map(|parts| parts.iter().sum()).collect());
    print!("{{\"gpus\": {}, \"tick_us\": {whole:.1}", inventory.gpus.len());
    for (at, part) in PARTS.iter().enumerate() {
        print!(", \"{part}_us\": {:.1}", median(costs.iter().map(|parts| parts[at]).collect()));
    }
    println!(", \"health_us\": {health:.1}}}");
    Ok(())
}

/// Everything that a probe holds between two ticks.
struct Tick {
    process_table: ProcessTable,
    host: Host,
    sampler: Sampler,
    mono_ns: u64,
}

impl Tick {
    fn new() -> Self {
        let sampler = Sampler::new(HandoverState::new(1));
        Self { process_table: ProcessTable::new(), host: Host::new(), sampler, mono_ns: 0 }
    }

    /// One tick; µs of CPU of each of its [`PARTS`].
    fn run(&mut self, session: &mut dyn Session) -> Result<[f64; 4], Box<dyn std::error::Error>> {
        let (mut gpus, mut processes, mut host) =
            (Ok(Vec::new()), ProcessList::default(), HostReadings::default());
        let readings = cost(|| gpus = session.readings());
        let people = cost(|| processes = self.process_table.update(session.gpu_processes()));
        let machine = cost(|| host = self.host.read());
        let gpus = gpus?;
        self.mono_ns += 1_000_000_000;
        let to_facts = Stamp { mono_ns: self.mono_ns, wall_ms: 0 };
        let lines = cost(|| {
            let sample = self.sampler.sample(to_facts, 1_000, gpus, host);
            self.sampler.line(sample);
            if let Some(ProcessUpdate::List(line)) =
                self.sampler.processes(ProcessList { mono_ns: self.mono_ns, ..processes })
            {
                output::encode(&line, &mut Vec::new());
            }
        });
        Ok([readings, people, machine, lines])
    }
}

/// µs of this thread's CPU that a call takes.
fn cost(call: impl FnOnce()) -> f64 {
    let now = || clock_gettime(ClockId::ThreadCPUTime);
    let began = now();
    call();
    let ended = now();
    (ended.tv_sec - began.tv_sec) as f64 * 1e6 + (ended.tv_nsec - began.tv_nsec) as f64 / 1e3
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
