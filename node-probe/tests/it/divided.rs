//! A GPU in MIG mode has no utilization, and its instances have their own readings.

use crate::harness::Node;
use nodeglass_protocol::Reading::{Unsupported, Value};
use nodeglass_protocol::gpu::MigFacts;
use serde_json::{Value as Json, json};

fn divided() -> Json {
    let inner = json!({"pid": 4_000_001, "mem_mib": 50});
    json!({"driver": "580.90.07", "gpus": [{"card": "h100", "uuid": "GPU-0", "mig": [
        {"profile": "3g.40gb", "uuid": "MIG-a", "gi": 1, "gpm": {"sm": 70, "tensor": 30}, "processes": [inner]},
        {"profile": "1g.10gb", "uuid": "MIG-b", "gi": 7, "gpm": {"sm": 20, "tensor": 5}},
    ]}]})
}

#[test]
fn an_instance_has_its_ids_and_profile() {
    let node = Node::new(&divided());
    let hello = node.start(&[]).hello(|hello| !hello.gpus.is_empty());
    assert_eq!((&hello.gpus[0].mig_mode, &hello.gpus[0].mig), (&Value(true), &None));
    let first = hello.gpus[1].mig.clone().unwrap();
    assert_eq!((first.gpu_instance, first.compute_instance), (1, 0));
    assert_eq!(first.profile.as_ref().map(|profile| profile.as_str()), Some("3g.40gb"));
    assert_eq!(first.multiprocessors, Some(48));
    let second = hello.gpus[2].mig.clone().unwrap();
    assert_eq!(
        second,
        MigFacts {
            gpu_instance: 7,
            profile: Some("1g.10gb".into()),
            multiprocessors: Some(16),
            ..second.clone()
        }
    );
    for gpu in &hello.gpus[1..] {
        assert_eq!(
            (&gpu.minor, &gpu.power_max_mw, &gpu.mig_mode),
            (&Unsupported, &Unsupported, &Unsupported)
        );
    }
    assert!(hello.topology.is_empty(), "one GPU has no paths");
}

#[test]
fn gpm_is_read_per_instance_and_utilization_is_never_zero() {
    let node = Node::new(&divided());
    let mut probe = node.start(&[]);
    let sample = probe.sample(|sample| sample.seq > 2 && sample.gpus.len() == 3);
    for gpu in &sample.gpus {
        for reading in
            [&gpu.util_pct, &gpu.mem_util_pct, &gpu.enc_pct, &gpu.dec_pct, &gpu.jpg_pct, &gpu.ofa_pct]
        {
            assert_eq!(*reading, Unsupported);
        }
    }
    let active =
        |at: usize| (sample.gpus[at].sm_active_pct.clone(), sample.gpus[at].tensor_active_pct.clone());
    assert_eq!((active(1), active(2)), ((Value(70), Value(30)), (Value(20), Value(5))));
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(list.processes[0].facts.gpu.as_str(), "MIG-a");
    assert_eq!((&list.processes[0].now.sm_pct, &list.processes[0].now.dec_pct), (&Unsupported, &Unsupported));
}

#[test]
fn a_utilization_of_zero_in_mig_mode_is_ignored() {
    let state = json!({"gpus": [{"util": 0, "board": {"mig_mode": true}}]});
    let sample = Node::new(&state).start(&[]).sample(|sample| !sample.gpus.is_empty());
    assert_eq!((&sample.gpus[0].util_pct, &sample.gpus[0].temp_c), (&Unsupported, &Value(31)));
}
