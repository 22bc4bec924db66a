//! A panic ends the probe with a reason. Libraries cannot cause one on demand, so this test program
//! itself acts as the probe, with a source that panics.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's own machinery fails as its test does")]

use node_probe::driver_thread::SourceConfig;
use node_probe::probe::{self, Settings};
use node_probe::source::scripted::{Act, Scene, ScriptedSource};
use node_probe::source::{Absent, DriverEvent, GpuProcessList, Inventory, Session, Source};
use nodeglass_protocol::Vendor;
use nodeglass_protocol::probe::{GpuHealth, GpuSample, MAGIC, ProbeLine, SourceVersions};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Names the thread that panics; set only for the program that acts as the probe.
const STAND_IN: &str = "NODEGLASS_TEST_PANIC";

/// Panics at the first readings.
struct PanickingSource {
    on_another_thread: bool,
}

impl Source for PanickingSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        Ok(Box::new(PanickingSession { on_another_thread: self.on_another_thread }))
    }
}

struct PanickingSession {
    on_another_thread: bool,
}

impl Session for PanickingSession {
    fn inventory(&mut self) -> Inventory {
        Inventory { versions: SourceVersions::default(), gpus: Vec::new(), topology: Vec::new() }
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        if self.on_another_thread {
            let helper = std::thread::Builder::new().name("helper".into());
            let _ = helper.spawn(|| panic!("the helper fell over")).unwrap().join();
            return Ok(Vec::new());
        }
        panic!("min > max. min = 65600, max = 65536");
    }

    fn gpu_processes(&mut self) -> GpuProcessList {
        GpuProcessList::default()
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        Vec::new()
    }

    fn driver_events(&mut self) -> Vec<DriverEvent> {
        Vec::new()
    }
}

/// Not a test: the probe of the tests below, when they start this program again.
#[test]
fn stand_in() {
    let Ok(which) = std::env::var(STAND_IN) else { return };
    let make: node_probe::driver_thread::SourceFactory = match which.as_str() {
        "none" => {
            let inventory =
                Inventory { versions: SourceVersions::default(), gpus: Vec::new(), topology: Vec::new() };
            Box::new(move |_| {
                let scenes = vec![Scene::default(); 1_000].into();
                Box::new(ScriptedSource::new([Act::Open(inventory.clone(), scenes)]))
            })
        }
        which => {
            let on_another_thread = which == "helper";
            Box::new(move |_| Box::new(PanickingSource { on_another_thread }))
        }
    };
    let sources = vec![SourceConfig { vendor: Vendor::Nvidia, make }];
    let failed = probe::run(sources, &Settings::default()).is_err();
    std::process::exit(if failed { 1 } else { 0 });
}

/// The last line and the exit status of a probe in which this thread panics.
fn ended(which: &str) -> (String, Option<i32>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "panics::stand_in", "--nocapture"]).env(STAND_IN, which);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Its stdin stays open: it must not end for that reason.
    let stdin = child.stdin.take();
    if which == "none" {
        drop(stdin);
    }
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    let mut lines = text.lines().map(|line| line.trim_start_matches(MAGIC));
    let bye = lines.find_map(|line| match serde_json::from_str(line) {
        Ok(ProbeLine::<nodeglass_protocol::probe::Sample>::Bye(bye)) => Some(bye.reason.to_string()),
        _ => None,
    });
    (bye.unwrap_or_else(|| panic!("no bye in {text}")), status.code())
}

#[test]
fn a_panic_of_any_thread_ends_the_probe_at_once_with_its_reason() {
    for (which, thread, message) in [
        ("source", "source", "min > max. min = 65600, max = 65536"),
        ("helper", "helper", "the helper fell over"),
    ] {
        let began = Instant::now();
        let (bye, exit) = ended(which);
        assert!(bye.starts_with(&format!("internal error: its {thread} thread panicked at ")), "{bye}");
        assert!(bye.ends_with(message), "{bye}");
        assert_eq!(exit, Some(1));
        assert!(began.elapsed() < Duration::from_secs(25), "not because the relay was silent for 30 s");
    }
}

#[test]
fn a_probe_without_a_panic_exits_successfully() {
    assert_eq!(ended("none"), ("stdin was closed".into(), Some(0)));
}
