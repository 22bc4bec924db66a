//! Plays simulated fleets through the relay's detectors, and what the relay sends of them through the page's comparison: both
//! must mark the same GPUs, by the same figures.

use super::*;
use nodeglass_fleet::{Event, Fleet, SessionEvent};
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::{GpuUuid, NodeName};
use nodeglass_sim::{Cluster, Scenario, ScenarioTime, SimulatedProbe};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Time of day at which a scenario starts, in ms since 1970.
const START_WALL_MS: i64 = 1_790_000_000_000;
/// Sampling interval in ms.
const INTERVAL_MS: u64 = 2_000;
/// When faults begin, in s.
const FAULT_S: u64 = 300;
/// Maximum difference of the percentages of both: the newest step of the relay may be incomplete.
const TOLERANCE_PCT: i32 = 2;

type Gpus = BTreeSet<GpuUuid>;
/// A behaviour, and the node and GPU that have it.
pub type Episode = (&'static str, u32, u32);

/// Marks of both surfaces within the time that a fleet was played.
#[derive(Debug, Default)]
struct Marks {
    /// Those of active findings about slow GPUs.
    found: Gpus,
    /// Those that the rules name when they are applied to the history that the page has.
    by_history: Gpus,
}

/// Plays a fleet for some minutes and compares the marks.
fn play(toml: &str, minutes: u64) -> Marks {
    let (mut comparison, mut marks) = (Comparison::default(), Marks::default());
    played(toml, minutes, |fleet, names, now_ms| {
        let picture = picture(fleet, names, now_ms);
        comparison.update(&picture, None, &|_| 0);
        compare(&picture, &comparison, &mut marks);
    });
    marks
}

/// Returns a fleet that was played for some minutes, and the time of the relay's clock then. `each` examines it every ten
/// seconds.
pub fn played(toml: &str, minutes: u64, mut each: impl FnMut(&Fleet, &[NodeName], u64)) -> (Fleet, u64) {
    let cluster = Cluster::new(Scenario::from_toml(toml).unwrap());
    let names: Vec<NodeName> = cluster.scenario().node_names().cloned().collect();
    let at = |elapsed_ms: u64| ScenarioTime { t_ms: elapsed_ms.cast_signed(), start_wall_ms: START_WALL_MS };
    let mut probes: Vec<SimulatedProbe> =
        names.iter().map(|name| cluster.connect(name, at(0)).unwrap()).collect();
    let mut fleet = Fleet::new();
    for elapsed_ms in (0..minutes * 60_000).step_by(INTERVAL_MS as usize) {
        let now_ms = CLOCK_STARTS_AT_MS + elapsed_ms;
        if elapsed_ms % 20_000 == 0 {
            let wall_ahead_ms = START_WALL_MS - CLOCK_STARTS_AT_MS.cast_signed();
            let jobs = cluster.scenario().jobs(at(elapsed_ms));
            fleet.handle(Event::Jobs { jobs, wall_ahead_ms }, now_ms);
        }
        for (name, probe) in names.iter().zip(&mut probes) {
            let mut emit = |event| fleet.handle(Event::Node(name.clone(), event), now_ms);
            if elapsed_ms == 0 {
                emit(SessionEvent::Connecting { failures: 0 });
            }
            lines(probe, at(elapsed_ms)).for_each(|line| emit(SessionEvent::Line(Box::new(line))));
        }
        fleet.handle(Event::Tick, now_ms);
        drop(fleet.take_changes());
        if elapsed_ms % 10_000 == 0 && elapsed_ms > 0 {
            each(&fleet, &names, now_ms);
        }
    }
    (fleet, CLOCK_STARTS_AT_MS + minutes * 60_000)
}

fn lines(probe: &mut SimulatedProbe, at: ScenarioTime) -> impl Iterator<Item = ParsedLine> {
    probe.advance(at);
    probe.receive(format!("{{\"interval\":{{\"ms\":{INTERVAL_MS}}}}}\n").as_bytes());
    let mut output = Vec::new();
    while probe.has_output() {
        output.extend(probe.take_output());
    }
    let lines: Vec<ParsedLine> = output
        .split(|byte| *byte == b'\n')
        // The first line begins with a mark.
        .filter_map(|line| Some(&line[line.iter().position(|byte| *byte == b'{')?..]))
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    lines.into_iter()
}

/// Returns the picture that the relay sends to a page.
fn picture(fleet: &Fleet, names: &[NodeName], at_ms: u64) -> Picture {
    let nodes = names.iter().filter_map(|name| fleet.node(name)).cloned().collect();
    let (jobs, findings) = (fleet.jobs().to_vec(), fleet.findings().to_vec());
    Picture { at_ms, jobs, nodes, findings, ..Picture::default() }
}

/// Compares both at a moment.
fn compare(picture: &Picture, comparison: &Comparison, marks: &mut Marks) {
    let is_slow = |finding: &&Finding| finding.is_active() && finding.kind == FindingKind::Straggler;
    let slow: Vec<&Finding> = picture.findings.iter().filter(is_slow).collect();
    let mut outliers = BTreeMap::new();
    for (at, node) in picture.nodes.iter().enumerate() {
        for (gpu, known) in node.gpus.iter().enumerate() {
            let outlier = comparison.outlier(at, gpu);
            outliers.extend(outlier.map(|outlier| (known.facts.uuid.clone(), outlier.clone())));
        }
    }
    for finding in &slow {
        let uuid = &finding.gpus[0].uuid;
        let outlier = outliers.remove(uuid).unwrap_or_else(|| panic!("not marked: {}", finding.title));
        // `… runs 36 % slower than its peers: …`, and `SM clock −36 %`. While the job pauses, the figure is missing.
        let percent = |text: &str| text.split(" %").next()?.rsplit([' ', '−']).next()?.parse::<i32>().ok();
        if let Some((stated, shown)) = percent(finding.title.as_str()).zip(percent(&outlier.label)) {
            assert!((stated - shown).abs() <= TOLERANCE_PCT, "{}: {}", finding.title, outlier.label);
        }
        marks.found.insert(uuid.clone());
    }
    let is_unused = |outlier: &Outlier| {
        picture
            .findings
            .iter()
            .any(|finding| finding.kind == FindingKind::UnusedGpus && finding.title.as_str() == outlier.title)
    };
    assert!(outliers.values().all(is_unused), "marked without a finding: {outliers:?}");
    for group in &comparison.groups {
        let nodes: Vec<usize> = group.members.iter().map(|(node, _)| *node).collect();
        for slow in group.peers.slow(&nodes, &peers::SlowLimits::default()).unwrap_or_default() {
            let (node, gpu) = group.members[slow.member];
            marks.by_history.insert(picture.nodes[node].gpus[gpu].facts.uuid.clone());
        }
    }
}

/// A job on all nodes of a cluster of H100, and what happens to some of its GPUs.
pub fn fleet(seed: u64, nodes: u32, behaviour: &str, episodes: &[Episode]) -> String {
    let mut toml = format!(
        "cluster = \"test\"\nuser = \"alice\"\nseed = {seed}\ncycle = \"30d\"\n\n[[node]]\nname = \"n[01-{nodes:02}]\"\n\
         model = \"h100\"\ngpus = 8\n\n[[job]]\nid = 17\nname = \"train\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\n\
         start = \"-1h\"\nlimit = \"10d\"\nnodes = \"n[01-{nodes:02}]\"\nbehaviour = \"{behaviour}\"\nargs = \"python3 train.py\"\n\n"
    );
    for (what, node, gpu) in episodes {
        let _ = write!(
            toml,
            "[[job.episode]]\nbehaviour = \"{what}\"\nnodes = \"n{node:02}\"\ngpus = [{gpu}]\nfrom = \"{FAULT_S}s\"\nfor = \"10h\"\n\n"
        );
    }
    toml
}

#[test]
fn page_and_relay_mark_the_same_gpus_of_scenarios() {
    let slow = [("slow", 1, 2)];
    let hot = [("straggler", 2, 5), ("slow", 1, 0)];
    let cases: [(&str, &[Episode]); 5] =
        [("training", &[]), ("training", &slow), ("training", &hot), ("inference", &[]), ("bursty", &[])];
    for (behaviour, episodes) in cases {
        let marks = play(&fleet(1, 2, behaviour, episodes), 10);
        assert_eq!(marks.found, marks.by_history, "{behaviour} with {episodes:?}");
        assert_eq!(marks.found.len(), episodes.len(), "{behaviour} with {episodes:?}: {marks:?}");
    }
}

#[test]
fn page_and_relay_mark_the_same_gpus_of_generated_fleets() {
    for seed in 0..16 {
        let pick = |salt: u64, of: u64| {
            (seed + 7 * salt + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) % of
        };
        let behaviour =
            ["training", "training", "training", "steady", "inference", "dynamics"][pick(1, 6) as usize];
        let nodes = 1 + pick(2, 3) as u32;
        let episode = |salt| {
            let what = ["slow", "straggler", "idle_gpu"][pick(salt, 3) as usize];
            (what, 1 + pick(salt + 1, u64::from(nodes)) as u32, pick(salt + 2, 8) as u32)
        };
        let episodes: Vec<_> = (0..pick(3, 3)).map(|number| episode(10 + 3 * number)).collect();
        let marks = play(&fleet(seed, nodes, behaviour, &episodes), 9);
        let what = format!("seed {seed}: {behaviour} on {nodes} nodes with {episodes:?}: {marks:?}");
        // Of programs that do not wait for each other, the relay reports only what a reading explains.
        match behaviour {
            "training" => assert_eq!(marks.found, marks.by_history, "{what}"),
            _ => assert!(marks.found.is_subset(&marks.by_history), "{what}"),
        }
    }
}
