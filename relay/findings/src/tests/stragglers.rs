//! Slow GPUs of a job: what they cost, and what explains them.

use super::*;

/// A GPU that is slower than the others by this clock in MHz.
fn slow(clock: u64) -> Option<(u64, u64, u64, f64)> {
    Some((98, 400, clock, 60.0))
}

fn stragglers(script: &Script) -> Vec<&Finding> {
    let is_slow = |finding: &&Finding| finding.kind == FindingKind::Straggler && finding.is_active();
    script.findings.list().iter().filter(is_slow).collect()
}

#[test]
fn only_the_slowest_of_two_stragglers_is_charged() {
    let mut script = Script::new(2, 8);
    script.run(300, |gpu, _| match gpu {
        3 => slow(990),
        11 => slow(1_200),
        _ => WORK,
    });
    let found = stragglers(&script);
    let [slowest, hidden] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((slowest.gpus[0].uuid.as_str(), slowest.wasted_gpus > 0), ("GPU-1-3", true));
    assert_eq!((hidden.gpus[0].uuid.as_str(), hidden.wasted_gpus), ("GPU-2-3", 0));
    let last = |finding: &Finding| finding.evidence.last().map(ToString::to_string);
    assert_eq!(last(hidden).as_deref(), Some("hidden behind n1 GPU 3, which is slower"));
    assert!(last(slowest).is_some_and(|cost| cost.starts_with("14 GPUs may wait for it")), "{slowest:?}");
    // Once the slowest is well again, the other one is what the job waits for.
    script.run(400, |gpu, _| if gpu == 11 { slow(1_200) } else { WORK });
    let found = stragglers(&script);
    let [other] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((other.gpus[0].uuid.as_str(), other.wasted_gpus > 0), ("GPU-2-3", true));
    // What it costs begins where the cost of the other one ends.
    let all = script.findings.list();
    let slowest =
        all.iter().find(|finding| finding.gpus.first().is_some_and(|gpu| gpu.uuid.as_str() == "GPU-1-3"));
    let ended_ms = slowest.and_then(|slowest| slowest.ended_ms);
    assert!(ended_ms.is_some_and(|end| end <= other.waste().since_ms), "{all:?}");
    assert!(other.since_ms < other.waste().since_ms && other.waste().before_gpu_ms == 0, "{other:?}");
    assert!(last(other).is_some_and(|cost| cost.contains("may wait for it")), "{other:?}");
}

#[test]
fn the_cost_of_a_straggler_never_falls_while_others_come_and_go() {
    let mut script = Script::new(2, 8);
    let mut costs: BTreeMap<String, f64> = BTreeMap::new();
    // Another one is slower, less slow, and well again; finally, so is the first one.
    for (third, eleventh) in [(1_200, 1_755), (1_200, 990), (1_200, 1_500), (1_200, 1_755), (1_755, 1_755)] {
        for _ in 0..60 {
            script.run(10, |gpu, _| match gpu {
                3 => slow(third),
                11 => slow(eleventh),
                _ => WORK,
            });
            let wall_ms = Now { relay_ms: script.now_ms, wall_ahead_ms: WALL_AHEAD_MS }.wall_ms();
            for finding in script.findings.list() {
                let cost = finding.wasted_gpu_hours(wall_ms);
                let before = costs.insert(finding.key.to_string(), cost).unwrap_or_default();
                assert!(cost >= before, "{before} GPU-h became {cost}: {finding:?}");
            }
        }
    }
    let first = costs.iter().find(|(key, _)| key.contains("GPU-1-3")).map(|(_, cost)| *cost);
    let other = costs.iter().find(|(key, _)| key.contains("GPU-2-3")).map(|(_, cost)| *cost);
    // 32 % and 44 % of 14 or 15 GPUs, for about 30 and 10 minutes.
    assert!(first.is_some_and(|cost| (1.5..3.0).contains(&cost)), "{costs:?}");
    assert!(other.is_some_and(|cost| (0.6..1.5).contains(&cost)), "{costs:?}");
}

#[test]
fn a_straggler_keeps_its_cause_and_its_start_after_the_cause_ended() {
    let mut script = Script::new(1, 8);
    script.run(600, |_, _| WORK);
    let only_slow = |gpu: usize, _: u64| if gpu == 5 { slow(990) } else { WORK };
    set(&mut script.nodes[0].gpus[5], GpuField::Throttle, 0x80);
    script.run(330, only_slow);
    let (title, since) = {
        let found = stragglers(&script);
        (found[0].title.to_string(), (found[0].since_ms, found[0].or_earlier))
    };
    assert!(title.ends_with("slower than its peers: power brake"), "{title}");
    assert!(!since.1, "its start was watched");
    set(&mut script.nodes[0].gpus[5], GpuField::Throttle, 0);
    script.run(30, only_slow);
    assert_eq!(stragglers(&script)[0].title.as_str(), title, "reasons come and go within seconds");
    script.run(600, only_slow);
    let found = stragglers(&script);
    assert!(found[0].title.as_str().ends_with(": power brake, which ended after 5 min"), "{found:?}");
    assert_eq!((found[0].since_ms, found[0].or_earlier), since);
}

#[test]
fn a_gpu_without_a_process_does_not_hide_that_another_one_is_slow() {
    use nodeglass_protocol::process::Rank;
    let mut script = Script::new(1, 8);
    let processes = &mut script.nodes[0].processes;
    processes.pop();
    for (index, process) in (0..).zip(processes) {
        process.facts.rank = Some(Rank { global: index, local: None, world: None });
        process.facts.pid = index;
    }
    script.run(300, |gpu, _| match gpu {
        3 => slow(1_500),
        7 => IDLE,
        _ => WORK,
    });
    let found = stragglers(&script);
    assert!(found.len() == 1 && found[0].gpus[0].uuid.as_str() == "GPU-1-3", "{found:?}");
}
