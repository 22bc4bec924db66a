//! Two sources run side by side: one that hangs or is absent does not affect the other. This test
//! program itself acts as the probe, with scripted sources.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use node_probe::driver_thread::SourceConfig;
use node_probe::probe::{self, Settings};
use node_probe::source::scripted::{Act, Scene, ScriptedSource};
use node_probe::source::{Absent, Inventory};
use nodeglass_protocol::probe::{GpuFacts, GpuSample, Hello, MAGIC, ProbeLine, Sample, SourceVersions};
use nodeglass_protocol::{GpuUuid, Reading, Vendor};
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Behaviour of the second source; set only for the program that acts as the probe.
const SECOND: &str = "NODEGLASS_TEST_SECOND_SOURCE";
/// Duration of the second source's hang: longer than the watchdog's limit.
const HANG: Duration = Duration::from_secs(9);

fn inventory(vendor: Vendor, count: u32) -> Inventory {
    let gpu = |index| GpuFacts {
        vendor,
        ..GpuFacts::new(GpuUuid::new(format!("{}-{index}", vendor.name())), index)
    };
    Inventory {
        versions: SourceVersions::default(),
        gpus: (0..count).map(gpu).collect(),
        topology: Vec::new(),
    }
}

fn scene(count: usize, util_pct: u64, hang: Duration) -> Scene {
    let gpu = GpuSample { util_pct: Reading::Value(util_pct), ..GpuSample::default() };
    Scene { hang, gpus: vec![gpu; count], ..Scene::default() }
}

fn config(vendor: Vendor, acts: Vec<Act>) -> SourceConfig {
    let make =
        move |_| -> Box<dyn node_probe::source::Source> { Box::new(ScriptedSource::new(acts.clone())) };
    SourceConfig { vendor, make: Box::new(make) }
}

/// Not a test: the probe of the tests below, when they start this program again.
#[test]
fn stand_in() {
    let Ok(second) = std::env::var(SECOND) else { return };
    let steady = |util_pct| vec![scene(2, util_pct, Duration::ZERO); 1_000];
    let first = vec![Act::Open(inventory(Vendor::Nvidia, 2), steady(97).into())];
    let one = |hang| scene(1, 41, hang);
    let second = match second.as_str() {
        "hangs" => {
            let scenes = [one(Duration::ZERO), one(Duration::ZERO), one(HANG)].into_iter();
            let scenes = scenes.chain(vec![one(Duration::ZERO); 1_000]).collect();
            vec![Act::Open(inventory(Vendor::Amd, 1), scenes)]
        }
        _ => vec![Act::Absent(Absent::new("no AMD driver: not loaded")); 100],
    };
    let sources = vec![config(Vendor::Nvidia, first), config(Vendor::Amd, second)];
    let failed = probe::run(sources, &Settings::default()).is_err();
    std::process::exit(if failed { 1 } else { 0 });
}

/// The program that acts as the probe.
struct StandIn {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// It exits when its stdin closes.
    _stdin: ChildStdin,
}

impl StandIn {
    fn start(second: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sources::stand_in", "--nocapture"]).env(SECOND, second);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { lines, _stdin: child.stdin.take().unwrap(), child }
    }

    /// Reads lines until `find` returns a value.
    fn until<T>(&mut self, mut find: impl FnMut(ProbeLine) -> Option<T>) -> T {
        loop {
            let line = self.lines.next().expect("the probe goes on").unwrap();
            let line = line.split_once(MAGIC).map_or(line.as_str(), |(_, line)| line);
            if let Some(found) = serde_json::from_str(line).ok().and_then(&mut find) {
                return found;
            }
        }
    }

    fn hello(&mut self) -> Box<Hello> {
        self.until(|line| match line {
            ProbeLine::Hello(hello) => Some(hello),
            _ => None,
        })
    }

    fn sample(&mut self, mut is: impl FnMut(&Sample) -> bool) -> Box<Sample> {
        self.until(|line| match line {
            ProbeLine::Heartbeat(beat) => {
                assert_eq!(beat.driver_stuck_ms, None, "one of the drivers answers");
                None
            }
            ProbeLine::Sample(sample) if is(&sample) => Some(sample),
            _ => None,
        })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_hanging_source_does_not_affect_gpus_of_another() {
    let mut probe = StandIn::start("hangs");
    let hello = probe.hello();
    let vendors: Vec<_> = hello.gpus.iter().map(|gpu| gpu.vendor).collect();
    assert_eq!(vendors, [Vendor::Nvidia, Vendor::Nvidia, Vendor::Amd]);
    assert_eq!(hello.sources.iter().filter(|source| source.versions().is_some()).count(), 2);
    let util =
        |sample: &Sample| -> Vec<_> { sample.gpus.iter().map(|gpu| gpu.util_pct.value().copied()).collect() };
    assert_eq!(util(&probe.sample(|sample| sample.gpus.len() == 3)), [Some(97), Some(97), Some(41)]);
    let fault = |sample: &Sample| sample.gpus.get(2).and_then(|gpu| gpu.fault.clone());
    let why = fault(&probe.sample(|sample| fault(sample).is_some())).unwrap();
    assert!(why.as_str().starts_with("the AMD driver has not responded since "), "{why}");
    // While it hangs, the other source continues: each sample follows the one before.
    let began = Instant::now();
    for _ in 0..3 {
        let sample = probe.sample(|_| true);
        assert!(sample.gpus.iter().take(2).all(|gpu| gpu.fault.is_none()), "{sample:?}");
    }
    assert!(began.elapsed() < HANG / 2, "samples are taken each second: {:?}", began.elapsed());
    let again = probe.until(|line| match line {
        ProbeLine::Event(event) if event.text.as_str().contains("responds again") => Some(event.text),
        _ => None,
    });
    assert!(again.as_str().starts_with("the AMD driver responds again after "), "{again}");
    assert_eq!(probe.sample(|sample| util(sample).get(2) == Some(&Some(41))).gpus[2].fault, None);
}

#[test]
fn an_absent_source_is_named_beside_the_gpus_of_another() {
    let mut probe = StandIn::start("absent");
    let hello = probe.hello();
    assert_eq!(hello.gpus.len(), 2);
    assert_eq!(hello.sources[1].vendor, Vendor::Amd);
    assert_eq!(hello.sources[1].absent_reason().unwrap().as_str(), "no AMD driver: not loaded");
    let sample = probe.sample(|sample| sample.gpus.len() == 2);
    assert!(sample.gpus.iter().all(|gpu| gpu.util_pct == Reading::Value(97)), "{sample:?}");
}
