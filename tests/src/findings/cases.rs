//! Labelled scenarios: what goes wrong in them and when, and healthy jobs of many shapes.

mod hosts;
mod jobs;

use crate::findings::{Observed, Play};
use nodeglass_protocol::finding::FindingKind as Kind;
use std::fmt::Write as _;

/// When something begins to go wrong, in s after the start.
const FAULT_S: i64 = 900;
/// Duration of lasting problems, in s: longer than any scenario is played.
const LASTING_S: i64 = 36_000;
/// Time beyond the limit of its kind for which a finding may be listed as active, in s: an examination and the tick
/// of a poll.
const RESOLVE_SLACK_S: i64 = 90;
/// Sampling interval in ms, as of nodes that somebody looks at seldom.
const INTERVAL_MS: u64 = 2_000;
/// GPU models of the scenarios, with the number of GPUs of a node.
const MODELS: [(&str, u32); 4] = [("h100", 8), ("a100", 8), ("l40s", 4), ("rtx4090", 4)];

/// A scenario with what must be found in it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The way it is played.
    pub play: Play,
    /// Findings that must occur; none in a healthy one.
    pub expected: Vec<Expected>,
    /// Findings that may occur as well: consequences.
    pub allowed: Vec<Kind>,
    nodes: u32,
    model: &'static str,
    gpus: u32,
    mig: bool,
    jobs: String,
}

/// A finding that must be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its kind.
    pub kind: Kind,
    /// When its cause begins, in s.
    pub begins_s: i64,
    /// When its cause ends, in s; `None` if that lasts. It must not be resolved before, and must be soon after.
    pub ends_s: Option<i64>,
    /// Time within which it must be found, in s; `None` for the time of its kind.
    pub within_s: Option<i64>,
}

impl Expected {
    /// A finding whose cause begins and does not end.
    fn lasting(kind: Kind, begins_s: i64) -> Self {
        Self { kind, begins_s, ends_s: None, within_s: None }
    }

    /// A hang of all GPUs, which is found sooner than one of some of them.
    fn hang(begins_s: i64) -> Self {
        Self { within_s: Some(150), ..Self::lasting(Kind::CollectiveHang, begins_s) }
    }

    /// A finding whose cause begins and ends.
    fn until(kind: Kind, begins_s: i64, ends_s: i64) -> Self {
        Self { ends_s: Some(ends_s), ..Self::lasting(kind, begins_s) }
    }

    /// Returns whether an occurrence began with its cause or later, and before that was long over.
    pub fn is_met_by(&self, observed: &Observed) -> bool {
        observed.kind == self.kind
            && observed.found_s >= self.begins_s
            && self.ends_s.is_none_or(|ends_s| observed.found_s < ends_s + self.resolved_within_s())
    }

    /// Returns for how long after the end of its cause it may be listed as active, in s.
    fn resolved_within_s(&self) -> i64 {
        (self.kind.clear_ms() / 1_000).cast_signed() + RESOLVE_SLACK_S
    }
}

/// A fault of an expected finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It was not found.
    Missed,
    /// It was found too late.
    Late,
    /// It was resolved while its cause lasted.
    ResolvedEarly,
    /// It was not resolved in time.
    ResolvedLate,
}

impl Case {
    /// The scenario file with a seed.
    pub fn toml(&self, seed: u64) -> String {
        let Self { nodes, model, gpus, jobs, .. } = self;
        let mig = if self.mig { "mig = [\"3g.40gb\", \"2g.20gb\", \"1g.10gb\", \"1g.10gb\"]\n" } else { "" };
        format!(
            "cluster = \"test\"\nuser = \"alice\"\nseed = {seed}\ncycle = \"30d\"\n\n[[node]]\nname = \"n[01-{nodes:02}]\"\n\
             model = \"{model}\"\ngpus = {gpus}\n{mig}\n{jobs}"
        )
    }

    /// Returns what is wrong with the expected findings, and which others were found.
    pub fn judge(&self, observed: &[Observed]) -> (Vec<(Kind, Fault)>, Vec<Observed>) {
        let mut faults = Vec::new();
        for expected in &self.expected {
            let kind = expected.kind;
            let of_kind = || observed.iter().filter(|found| expected.is_met_by(found));
            let promised_s = (kind.found_within_ms() / 1_000).cast_signed();
            let within_s = expected.within_s.unwrap_or(promised_s);
            match of_kind().map(|found| found.found_s).min() {
                None => faults.push((kind, Fault::Missed)),
                Some(found_s) if found_s > expected.begins_s + within_s => faults.push((kind, Fault::Late)),
                Some(_) => {}
            }
            let ends_s = expected.ends_s.unwrap_or(i64::MAX);
            if of_kind().any(|found| found.resolved_s.is_some_and(|resolved_s| resolved_s < ends_s)) {
                faults.push((kind, Fault::ResolvedEarly));
            }
            let latest_s = ends_s.saturating_add(expected.resolved_within_s());
            if of_kind().any(|found| found.resolved_s.unwrap_or(i64::MAX) > latest_s) {
                faults.push((kind, Fault::ResolvedLate));
            }
        }
        let is_false = |found: &&Observed| {
            !self.expected.iter().any(|expected| expected.is_met_by(found))
                && !self.allowed.contains(&found.kind)
        };
        (faults, observed.iter().filter(is_false).cloned().collect())
    }
}

/// The jobs and faults of a scenario.
struct Script(String);

impl Script {
    /// A job on all nodes that has run for an hour.
    fn job(nodes: u32, behaviour: &str, more: &str) -> Self {
        Self(format!(
            "[[job]]\nid = 17\nname = \"train\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\nstart = \"-1h\"\nlimit = \"10d\"\n\
             nodes = \"n[01-{nodes:02}]\"\nbehaviour = \"{behaviour}\"\nargs = \"python3 train.py\"\n{more}\n"
        ))
    }

    /// A job that starts at `start_s`.
    fn new_job(start_s: i64, behaviour: &str, more: &str) -> Self {
        Self(format!(
            "[[job]]\nid = 17\nname = \"train\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\nstart = \"{start_s}s\"\n\
             limit = \"10d\"\nnodes = \"n[01-02]\"\nbehaviour = \"{behaviour}\"\nargs = \"python3 train.py\"\n{more}\n"
        ))
    }

    fn episode(mut self, behaviour: &str, node: u32, gpus: &[u32], from_s: i64, for_s: Option<i64>) -> Self {
        // Without a length it would be there from the start on.
        let lasts = format!("for = \"{}s\"\n", for_s.unwrap_or(LASTING_S));
        let place = if gpus.is_empty() {
            String::new()
        } else {
            format!("nodes = \"n{node:02}\"\ngpus = {gpus:?}\n")
        };
        let _ = write!(
            self.0,
            "[[job.episode]]\nbehaviour = \"{behaviour}\"\n{place}from = \"{from_s}s\"\n{lasts}\n"
        );
        self
    }

    fn fault(mut self, kind: &str, gpu: Option<u32>, xid: Option<u64>, for_s: Option<i64>) -> Self {
        let gpu = gpu.map_or(String::new(), |gpu| format!("gpu = {gpu}\n"));
        let xid = xid.map_or(String::new(), |xid| format!("xid = {xid}\n"));
        // Without a length it would be there from the start on.
        let lasts = format!("for = \"{}s\"\n", for_s.unwrap_or(LASTING_S));
        let _ = write!(
            self.0,
            "[[fault]]\nnodes = \"n01\"\nkind = \"{kind}\"\nat = \"{FAULT_S}s\"\n{gpu}{xid}{lasts}\n"
        );
        self
    }
}

/// All scenarios.
pub fn all() -> Vec<Case> {
    let mut cases = healthy();
    cases.extend(look_alikes());
    cases.extend(work_problems());
    cases.extend(faults());
    cases.extend(beginnings_and_ends());
    cases.extend(restarts());
    cases.extend(successors());
    cases.extend(without_slurm());
    cases.extend(hosts::all());
    cases.extend(jobs::all());
    cases
}

/// Ten days of 64 nodes with healthy jobs of many shapes, sampled as without a viewer: a part for each job, because
/// jobs on nodes of their own do not affect each other.
pub fn ten_days() -> Vec<Case> {
    const SHAPES: [(&str, &str, u32); 9] = [
        ("training", "checkpoint_every = \"10m\"", 16),
        ("training", "checkpoint_every = \"25m\"", 8),
        ("training", "checkpoint_every = \"3m\"", 8),
        ("inference", "", 8),
        ("steady", "", 8),
        ("bursty", "", 4),
        ("notebook", "", 4),
        ("alternating", "", 4),
        ("dynamics", "", 4),
    ];
    let part = |(number, (behaviour, more, nodes)): (usize, &(&str, &str, u32))| {
        let mut job = String::new();
        let _ = write!(
            job,
            "[[job]]\nid = {}\nname = \"{behaviour}\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\nstart = \"-1h\"\n\
             limit = \"30d\"\nnodes = \"n[01-{nodes:02}]\"\nbehaviour = \"{behaviour}\"\n\
             args = \"python3 train.py\"\n{more}\n",
            17 + number
        );
        let name = format!("ten-days/{}-{behaviour}-on-{nodes}", number + 1);
        let case = case(name, *nodes, MODELS[0], 14_400, Script(job));
        let play = Play { interval_ms: 10_000, ..case.play };
        Case { allowed: of_bursts(behaviour), play, ..case }
    };
    SHAPES.iter().enumerate().map(part).collect()
}

fn case(name: String, nodes: u32, (model, gpus): (&'static str, u32), minutes: u64, script: Script) -> Case {
    Case {
        name,
        play: Play::new(minutes, INTERVAL_MS),
        expected: Vec::new(),
        allowed: Vec::new(),
        nodes,
        model,
        gpus,
        mig: false,
        jobs: script.0,
    }
}

/// Jobs that are well: of each shape, on each model, on one node and on four.
fn healthy() -> Vec<Case> {
    const SHAPES: [(&str, &str); 9] = [
        ("training", "checkpoint_every = \"10m\""),
        ("inference", ""),
        ("bursty", ""),
        ("notebook", ""),
        ("steady", ""),
        ("ecc", ""),
        ("alternating", ""),
        ("dynamics", ""),
        ("input_bound", ""),
    ];
    let mut cases = Vec::new();
    for model in MODELS {
        for (behaviour, more) in SHAPES {
            for nodes in [1, 4] {
                let script = Script::job(nodes, behaviour, more);
                let name = format!("healthy/{behaviour}/{}x{nodes}", model.0);
                cases.push(Case { allowed: of_bursts(behaviour), ..case(name, nodes, model, 40, script) });
            }
        }
    }
    let single = Script::job(1, "training", "gpus = [0]\ncheckpoint_every = \"10m\"");
    cases.push(case("healthy/single-gpu".to_owned(), 1, MODELS[0], 40, single));
    let array = "array = { tasks = 400, task_time = \"8m\" }";
    cases.push(case("healthy/array".to_owned(), 1, MODELS[1], 40, Script::job(1, "training", array)));
    let mig = Script::job(1, "notebook", "");
    let mig = case("healthy/mig".to_owned(), 1, ("h100", 2), 40, mig);
    cases.push(Case { mig: true, allowed: of_bursts("notebook"), ..mig });
    cases
}

/// Returns what may be found in a job that computes for seconds in minutes, once its readings of an hour are known.
fn of_bursts(behaviour: &str) -> Vec<Kind> {
    if behaviour == "notebook" { vec![Kind::MostlyIdle] } else { Vec::new() }
}

/// Returns look-alikes of problems.
fn look_alikes() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in MODELS {
        let name = |what: &str| format!("look-alike/{what}/{}", model.0);
        let often = Script::job(2, "training", "checkpoint_every = \"3m\"");
        cases.push(case(name("frequent-checkpoints"), 2, model, 40, often));
        let waiting = Script::job(2, "training", "").episode("hang", 0, &[], FAULT_S, Some(58));
        cases.push(case(name("wait-of-58-s"), 2, model, 30, waiting));
        let pause = Script::job(1, "training", "").episode("idle_gpu", 0, &[], FAULT_S, Some(240));
        // Processes restart, as after an evaluation in a program of its own.
        cases.push(case(name("pause-of-4-min"), 1, model, 30, pause));
        let stages = Script::job(2, "training", "").episode("bursty", 2, &[0, 1, 2, 3], 0, None);
        cases.push(case(name("unequal-stages"), 2, model, 30, stages));
        for phase in ["communication", "memory_bound"] {
            let brief = Script::job(2, "training", "").episode(phase, 0, &[], FAULT_S, Some(240));
            cases.push(case(name(&format!("4-min-of-{phase}")), 2, model, 30, brief));
        }
        let brief = Script::job(2, "training", "").episode("slow", 1, &[1], FAULT_S, Some(40));
        cases.push(case(name("slow-for-40-s"), 2, model, 30, brief));
    }
    cases
}

/// Jobs whose work goes wrong.
fn work_problems() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in MODELS {
        for nodes in [1, 2, 4] {
            let name = |what: &str| format!("{what}/{}x{nodes}", model.0);
            let found = |kind| vec![Expected::lasting(kind, FAULT_S)];
            let hang = Script::job(nodes, "training", "").episode("hang", 0, &[], FAULT_S, None);
            cases.push(Case {
                expected: vec![Expected::hang(FAULT_S)],
                ..case(name("hang"), nodes, model, 25, hang)
            });
            let slow = Script::job(nodes, "training", "").episode("slow", 1, &[2], FAULT_S, None);
            cases.push(Case {
                expected: found(Kind::Straggler),
                ..case(name("slow-gpu"), nodes, model, 25, slow)
            });
            let hot = Script::job(nodes, "training", "").episode("straggler", 1, &[1], FAULT_S, None);
            let both = [Kind::Straggler, Kind::Thermal].map(|kind| Expected::lasting(kind, FAULT_S)).to_vec();
            cases.push(Case { expected: both, ..case(name("hot-gpu"), nodes, model, 25, hot) });
            let idle = Script::job(nodes, "training", "").episode("idle_gpu", 1, &[0, 1], FAULT_S, None);
            cases.push(Case {
                expected: found(Kind::UnusedGpus),
                ..case(name("two-idle"), nodes, model, 35, idle)
            });
            let waits = Script::job(nodes, "communication", "");
            let expected = vec![Expected::lasting(Kind::CommunicationBound, 0)];
            cases.push(Case { expected, ..case(name("communication"), nodes, model, 25, waits) });
            let leak = Script::job(nodes, "host_leak", "");
            let expected = vec![Expected::lasting(Kind::JobMemoryForecast, 0)];
            cases.push(Case { expected, ..case(name("host-leak"), nodes, model, 30, leak) });
        }
        let name = |what: &str| format!("{what}/{}", model.0);
        // One rank does nothing, and all others wait for it.
        let hang = Script::job(2, "training", "").episode("hang", 0, &[], FAULT_S, None);
        let hang = hang.episode("idle_gpu", 1, &[1], FAULT_S, None);
        let expected = Expected::lasting(Kind::CollectiveHang, FAULT_S);
        let allowed = vec![Kind::UnusedGpus];
        let expected = vec![expected];
        cases.push(Case { expected, allowed, ..case(name("hang-for-one-rank"), 2, model, 25, hang) });
        let ended = Script::job(1, "training", "").episode("idle_gpu", 0, &[], FAULT_S, None);
        let kind = Kind::NoProcess;
        let expected = vec![Expected::lasting(kind, FAULT_S)];
        let allowed = vec![Kind::IdleGpus];
        cases.push(Case { expected, allowed, ..case(name("process-ended"), 1, model, 35, ended) });
        let leak = Script::job(1, "training", "memory_pct = 98").episode("leak", 1, &[1], -3_600, None);
        // It begins with the job, and is recognized once the relay has watched it.
        let expected = vec![Expected::lasting(Kind::GpuMemoryForecast, 0)];
        cases.push(Case { expected, ..case(name("leak"), 1, model, 40, leak) });
        let slower = vec![Expected::lasting(Kind::SlowerThanModel, FAULT_S)];
        let gpus: Vec<u32> = (0..model.1).collect();
        let slow = Script::job(5, "training", "").episode("slow", 1, &gpus, FAULT_S, None);
        cases.push(Case { expected: slower.clone(), ..case(name("slow-node"), 5, model, 30, slow) });
        let limited = Script::job(5, "training", "").fault("power_limited", None, None, None);
        cases.push(Case { expected: slower, ..case(name("power-limited"), 5, model, 30, limited) });
        let small = Script::job(1, "small_kernels", "");
        let expected = vec![Expected::lasting(Kind::LowEfficiency, 0)];
        cases.push(Case { expected, ..case(name("small-kernels"), 1, model, 25, small) });
    }
    // Only Hopper and later report the bandwidth in use.
    for nodes in [1, 2, 4] {
        let decoding = Script::job(nodes, "memory_bound", "");
        let expected = vec![Expected::lasting(Kind::MemoryBound, 0)];
        let name = format!("memory-bandwidth/h100x{nodes}");
        cases.push(Case { expected, ..case(name, nodes, MODELS[0], 25, decoding) });
    }
    cases
}

/// Faults of nodes and GPUs.
fn faults() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in &MODELS[..3] {
        let mut add_ending = |what: &str, expected: Expected, allowed: &[Kind], script: Script| {
            let expected = vec![expected];
            let allowed = allowed.to_vec();
            cases.push(Case {
                expected,
                allowed,
                ..case(format!("{what}/{}", model.0), 2, *model, 25, script)
            });
        };
        let train = || Script::job(2, "training", "");
        let gone = [Kind::CollectiveHang];
        for (what, kind, allowed, fault, for_s) in [
            ("node-dies", Kind::NodeUnreachable, &gone[..], "dies", 300),
            ("node-silent", Kind::NodeUnreachable, &[], "silent", 120),
            ("driver-hangs", Kind::DriverHang, &[], "nvml_stuck", 120),
        ] {
            let expected = Expected::until(kind, FAULT_S, FAULT_S + for_s);
            add_ending(what, expected, allowed, train().fault(fault, None, None, Some(for_s)));
        }
        let mut add = |what: &str, kind, allowed: &[Kind], script: Script| {
            add_ending(what, Expected::lasting(kind, FAULT_S), allowed, script);
        };
        // A lost GPU, a dead node and a slow one have consequences for the others.
        let slow = [Kind::Straggler];
        add("lost-gpu", Kind::GpuLost, &[Kind::Xid], train().fault("lost_gpu", Some(1), None, None));
        for xid in [31, 43, 74, 119] {
            add(&format!("xid-{xid}"), Kind::Xid, &[], train().fault("xid", Some(1), Some(xid), Some(1)));
        }
        for xid in [48, 63, 95] {
            add(
                &format!("xid-{xid}"),
                Kind::MemoryErrors,
                &[],
                train().fault("xid", Some(1), Some(xid), Some(1)),
            );
        }
        add("power-brake", Kind::PowerBrake, &slow, train().fault("power_brake", Some(1), None, None));
        add("row-remap", Kind::MemoryErrors, &[], train().fault("row_remap", Some(1), None, None));
        if model.0 != "l40s" {
            add("nvlink-down", Kind::NvlinkDown, &[], train().fault("nvlink_down", Some(1), None, None));
        }
        add("pcie-narrow", Kind::PcieNarrow, &[], train().fault("pcie_narrow", Some(1), None, None));
        add("left-over", Kind::OutsideJob, &[], train().fault("left_over", Some(1), None, None));
        add("clock-skew", Kind::ClockSkew, &[], train().fault("clock_skew", None, None, None));
        add("held-memory", Kind::HeldMemory, &[], train().fault("held_memory", Some(1), None, None));
    }
    cases
}

/// Problems that begin with a job, begin late, end, or return.
fn beginnings_and_ends() -> Vec<Case> {
    const AGAIN_S: i64 = 2_400;
    let mut cases = Vec::new();
    for model in MODELS {
        let name = |what: &str| format!("{what}/{}", model.0);
        let train = || Script::job(2, "training", "checkpoint_every = \"10m\"");
        let for_10_min = |kind, begins_s: i64| Expected::until(kind, begins_s, begins_s + 600);
        let hang_for_10_min =
            |begins_s: i64| Expected { ends_s: Some(begins_s + 600), ..Expected::hang(begins_s) };
        let once = train().episode("hang", 0, &[], FAULT_S, Some(600));
        let expected = vec![hang_for_10_min(FAULT_S)];
        cases.push(Case { expected, ..case(name("hang-that-ends"), 2, model, 45, once) });
        let twice =
            train().episode("hang", 0, &[], FAULT_S, Some(600)).episode("hang", 0, &[], AGAIN_S, Some(600));
        let expected = vec![hang_for_10_min(FAULT_S), hang_for_10_min(AGAIN_S)];
        cases.push(Case { expected, ..case(name("hang-that-returns"), 2, model, 65, twice) });
        let hot = train().episode("straggler", 1, &[1], FAULT_S, Some(600)).episode(
            "straggler",
            1,
            &[1],
            AGAIN_S,
            Some(600),
        );
        let expected = [FAULT_S, AGAIN_S]
            .into_iter()
            .flat_map(|at_s| [Kind::Thermal, Kind::Straggler].map(|kind| for_10_min(kind, at_s)))
            .collect();
        cases.push(Case { expected, ..case(name("heat-that-returns"), 2, model, 65, hot) });
        // The program pauses for as long as a checkpoint of rank 0 may take, and loads again.
        let paused =
            train().episode("slow", 1, &[1], FAULT_S, None).episode("hang", 0, &[], AGAIN_S, Some(58));
        let expected = vec![Expected::lasting(Kind::Straggler, FAULT_S)];
        cases.push(Case { expected, ..case(name("slow-gpu-with-a-pause"), 2, model, 55, paused) });
        let idle = Script::new_job(60, "idle_gpu", "");
        let expected = vec![Expected::lasting(Kind::NoProcess, 60)];
        let allowed = vec![Kind::UnusedGpus];
        cases.push(Case { expected, allowed, ..case(name("no-process-from-the-start"), 2, model, 45, idle) });
        let unused = Script::new_job(60, "training", "").episode("idle_gpu", 1, &[0, 1], 0, None);
        let expected = vec![Expected::lasting(Kind::UnusedGpus, 60)];
        cases.push(Case { expected, ..case(name("unused-from-the-start"), 2, model, 45, unused) });
        let begins = Script::new_job(60, "training", "checkpoint_every = \"10m\"");
        cases.push(case(format!("healthy/that-starts/{}", model.0), 2, model, 45, begins));
        let late = Script::job(1, "late_leak", "memory_pct = 98");
        let expected = vec![Expected::lasting(Kind::GpuMemoryForecast, FAULT_S)];
        cases.push(Case { expected, ..case(name("leak-that-begins-later"), 1, model, 60, late) });
    }
    cases
}

/// Returns a healthy job that starts on the GPUs of a job that ends at that moment: the activity of the ended one is
/// not its own.
fn successors() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in MODELS {
        for (before, kind) in [
            ("hang", Some(Kind::CollectiveHang)),
            ("small_kernels", Some(Kind::LowEfficiency)),
            ("communication", Some(Kind::CommunicationBound)),
            ("training", None),
            ("notebook", None),
        ] {
            let mut jobs = String::new();
            // A relay that starts during a hang does not know it from small kernels.
            let (behaviour, episode, begins_s) = match before {
                "hang" => {
                    let lasts = "[[job.episode]]\nbehaviour = \"hang\"\nfrom = \"300s\"\nfor = \"600s\"\n";
                    ("training", lasts, 300)
                }
                other => (other, "", 0),
            };
            for (id, start_s, more, behaviour, episode) in [
                (17, -3_600, format!("end = \"{FAULT_S}s\"\n"), behaviour, episode),
                (18, FAULT_S, String::new(), "training", ""),
            ] {
                let _ = write!(
                    jobs,
                    "[[job]]\nid = {id}\nname = \"train\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\n\
                     start = \"{start_s}s\"\n{more}limit = \"10d\"\nnodes = \"n[01-02]\"\nbehaviour = \"{behaviour}\"\n\
                     args = \"python3 train.py\"\n\n{episode}\n"
                );
            }
            let expected = kind.map(|kind| Expected::until(kind, begins_s, FAULT_S)).into_iter().collect();
            let name = format!("successor/of-{before}/{}", model.0);
            cases.push(Case { expected, ..case(name, 2, model, 40, Script(jobs)) });
        }
    }
    cases
}

/// Restarts of the relay neither interrupt a finding nor create one.
fn restarts() -> Vec<Case> {
    const RESTART_S: i64 = 1_500;
    let mut cases = Vec::new();
    for model in MODELS {
        let name = |what: &str| format!("restart/{what}/{}", model.0);
        let mut add = |what: &str, expected: Vec<Expected>, script: Script| {
            let case = case(name(what), 2, model, 45, script);
            cases.push(Case { expected, play: Play { restart_s: Some(RESTART_S), ..case.play }, ..case });
        };
        for behaviour in ["training", "inference", "notebook"] {
            add(behaviour, Vec::new(), Script::job(2, behaviour, ""));
        }
        let train = || Script::job(2, "training", "");
        let lasting = |kind| Expected::lasting(kind, FAULT_S);
        let hang = train().episode("hang", 0, &[], FAULT_S, None);
        add("hang", vec![Expected::hang(FAULT_S)], hang);
        let hot = train().episode("straggler", 1, &[1], FAULT_S, None);
        add("hot-gpu", vec![lasting(Kind::Thermal), lasting(Kind::Straggler)], hot);
        let idle = train().episode("idle_gpu", 1, &[0, 1], 300, None);
        add("two-idle", vec![Expected::lasting(Kind::UnusedGpus, 300)], idle);
    }
    cases
}

/// Returns workstations and clusters without SLURM, where jobs are unknown.
fn without_slurm() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in MODELS {
        let name = |what: &str| format!("without-slurm/{what}/{}", model.0);
        let mut add = |what: &str, expected: &[Kind], allowed: &[Kind], script: Script| {
            let expected = expected.iter().map(|kind| Expected::lasting(*kind, FAULT_S)).collect();
            let allowed = allowed.to_vec();
            let case = case(name(what), 2, model, 40, script);
            cases.push(Case { expected, allowed, play: Play { has_slurm: false, ..case.play }, ..case });
        };
        for behaviour in ["training", "inference", "bursty", "notebook", "dynamics", "idle_gpu"] {
            add(behaviour, &[], &[], Script::job(2, behaviour, ""));
        }
        let train = || Script::job(2, "training", "");
        add("hot-gpu", &[Kind::Thermal], &[], train().episode("straggler", 1, &[1], FAULT_S, None));
        add("lost-gpu", &[Kind::GpuLost], &[Kind::Xid], train().fault("lost_gpu", Some(1), None, None));
        // Without row remapping, GeForce cards retire pages.
        if model.0 != "rtx4090" {
            add("row-remap", &[Kind::MemoryErrors], &[], train().fault("row_remap", Some(1), None, None));
        }
    }
    cases
}
