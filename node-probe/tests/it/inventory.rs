//! Changes of the inventory are detected immediately, although it is queried only every 30 s.

use crate::harness::{Node, Probe};
use nodeglass_protocol::Reading::{Unsupported, Value};
use nodeglass_protocol::probe::{ProbeLine, Sample};
use serde_json::{Value as Json, json};

/// Number of samples within which a change is noticed: one that detects it, one after the new inventory, and
/// one that had begun before the change.
const MAX_SAMPLES: u64 = 3;

/// Changes the node; returns the number of samples until one is as expected.
fn samples_until(probe: &mut Probe, node: &Node, state: &Json, wanted: impl Fn(&Sample) -> bool) -> u64 {
    let before = probe.sample(|_| true).seq;
    node.set(state);
    probe.sample(wanted).seq - before
}

#[test]
fn a_gpu_lost_at_an_inventory_recovers_within_two_intervals() {
    let process = json!({"pid": 4_000_001});
    let gpus = |lost: bool| json!({"gpus": [{}, {"uuid": "GPU-b", "lost_at_enumeration": lost, "util": 7, "processes": [process]}]});
    let node = Node::new(&gpus(true));
    let mut probe = node.start_patient();
    let lost = probe.sample(|sample| sample.gpus.len() == 2);
    assert!(lost.gpus[1].fault.is_some());
    let samples = samples_until(&mut probe, &node, &gpus(false), |sample| {
        sample.gpus[1].fault.is_none() && sample.gpus[1].util_pct == Value(7)
    });
    assert!(samples <= MAX_SAMPLES, "{samples}");
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(list.processes[0].facts.gpu.as_str(), "GPU-b");
}

#[test]
fn a_gpu_that_recovers_under_its_old_handle_has_its_facts_at_once() {
    let gpus = |lost: bool| json!({"gpus": [{"uuid": "GPU-a", "lost": lost, "name": "NVIDIA L4"}]});
    let node = Node::new(&gpus(true));
    let mut probe = node.start_patient();
    assert_eq!(probe.hello(|hello| hello.gpus.len() == 1).gpus[0].uuid.as_str(), "LOST-0");
    probe.sample(|sample| sample.gpus.len() == 1);
    node.set(&gpus(false));
    let mut samples = 0;
    let facts = probe.until(|line| match line {
        ProbeLine::Sample(_) => {
            samples += 1;
            None
        }
        ProbeLine::Hello(hello) => Some(hello.gpus[0].clone()),
        _ => None,
    });
    assert_eq!((facts.uuid.as_str(), facts.name), ("GPU-a", Value("NVIDIA L4".into())));
    assert!(samples <= MAX_SAMPLES, "{samples}");
}

#[test]
fn f28_a_mig_mode_change_is_detected_within_two_intervals() {
    let whole = json!({"driver": "580.90.07", "gpus": [{"card": "h100", "util": 60}]});
    let divided = |instances: Json| json!({"driver": "580.90.07", "gpus": [{"card": "h100", "board": {"mig_mode": true}, "mig": instances}]});
    let instance = |gi: u32| json!({"profile": "1g.10gb", "uuid": format!("MIG-{gi}"), "gi": gi});
    let node = Node::new(&whole);
    let mut probe = node.start_patient();
    probe.sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(60)));
    for (state, rows) in [
        (divided(json!([])), 1),
        (divided(json!([instance(1)])), 2),
        (divided(json!([instance(1), instance(2), instance(3)])), 4),
        (divided(json!([instance(1), instance(2)])), 3),
        (whole.clone(), 1),
        (divided(json!([instance(4), instance(5)])), 3),
        (whole.clone(), 1),
    ] {
        let utilisation = if state == whole { Value(60) } else { Unsupported };
        let samples = samples_until(&mut probe, &node, &state, |sample| {
            sample.gpus.len() == rows && sample.gpus[0].util_pct == utilisation
        });
        assert!(samples <= MAX_SAMPLES, "{samples} samples until {state}");
    }
}

#[test]
fn a_single_not_supported_error_costs_one_sample() {
    let errors = |errors: Json| json!({"gpus": [{"util": 60, "temp": 50, "errors": errors}]});
    let node = Node::new(&errors(json!({})));
    let mut probe = node.start_patient();
    probe.sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(60)));
    let refused = json!({"nvmlDeviceGetUtilizationRates": 3, "nvmlDeviceGetMemoryInfo_v2": 3});
    node.set(&errors(refused));
    let refused = probe.sample(|sample| sample.gpus[0].util_pct == Unsupported);
    // Version 1 of the call would count reserved memory as used: no sample has a different value.
    assert_eq!((&refused.gpus[0].mem_used_bytes, &refused.gpus[0].temp_c), (&Unsupported, &Value(50)));
    let samples = samples_until(&mut probe, &node, &errors(json!({})), |sample| {
        sample.gpus[0].util_pct == Value(60) && sample.gpus[0].mem_used_bytes.value().is_some()
    });
    assert!(samples <= MAX_SAMPLES, "{samples}");
}

#[test]
fn f28_an_added_or_removed_gpu_is_detected_within_two_intervals() {
    let gpus = |count: usize| json!({"gpus": vec![json!({}); count]});
    let node = Node::new(&gpus(1));
    let mut probe = node.start_patient();
    probe.sample(|sample| sample.gpus.len() == 1);
    for count in [3, 2] {
        let samples = samples_until(&mut probe, &node, &gpus(count), |sample| sample.gpus.len() == count);
        assert!(samples <= MAX_SAMPLES, "{samples}");
    }
}

#[test]
fn a_forbidden_gpu_is_not_lost_and_appears_once_permitted() {
    let gpus = |errors: Json| json!({"gpus": [{"uuid": "GPU-a", "errors": errors, "util": 3}, {}]});
    let node = Node::new(&gpus(json!({"nvmlDeviceGetHandleByIndex_v2": 4})));
    let mut probe = node.start_patient();
    let hello = probe.hello(|hello| hello.gpus.len() == 2);
    let why = nodeglass_protocol::Reading::Failed("not permitted to this user".into());
    assert_eq!((hello.gpus[0].uuid.as_str(), &hello.gpus[0].name), ("FORBIDDEN-0", &why));
    let sample = probe.sample(|sample| sample.gpus.len() == 2);
    assert_eq!((&sample.gpus[0].fault, &sample.gpus[1].fault), (&None, &None));
    let why = nodeglass_protocol::Reading::Failed("not permitted to this user".into());
    assert_eq!((&sample.gpus[0].util_pct, &sample.gpus[0].power_mw), (&why, &why));
    let samples =
        samples_until(&mut probe, &node, &gpus(json!({})), |sample| sample.gpus[0].util_pct == Value(3));
    assert!(samples <= MAX_SAMPLES, "{samples}");
}
