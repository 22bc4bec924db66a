//! A process's share of its GPU is the driver's own; who does nothing has none, and who cannot be told is not zero.

use crate::harness::Node;
use nodeglass_protocol::Reading::{self, Failed, Unsupported, Value};
use nodeglass_protocol::probe::ProcessList;
use serde_json::{Value as Json, json};

fn list(gpu: Json) -> ProcessList {
    Node::new(&json!({"gpus": [gpu]})).start(&[]).processes(|list| !list.processes.is_empty())
}

fn sm(list: &ProcessList) -> Vec<(u32, Reading<u64>)> {
    list.processes.iter().map(|process| (process.facts.pid, process.now.sm_pct.clone())).collect()
}

#[test]
fn shares_are_those_of_each_process() {
    let busy = json!({"pid": 101, "sm": 60, "mem": 25, "enc": 7, "dec": 8});
    let list = list(
        json!({"util": 80, "processes": [busy, {"pid": 102, "sm": 20}, {"pid": 103, "sm": null, "mem": null}]}),
    );
    assert_eq!(sm(&list), [(101, Value(60)), (102, Value(20)), (103, Value(0))]);
    let now = &list.processes[0].now;
    assert_eq!((&now.mem_bw_pct, &now.enc_pct, &now.dec_pct), (&Value(25), &Value(7), &Value(8)));
}

#[test]
fn a_gpu_on_which_nobody_is_active_has_processes_that_use_nothing() {
    assert_eq!(sm(&list(json!({"util": 0, "processes": [{"pid": 101}]}))), [(101, Value(0))]);
}

#[test]
fn a_sample_of_before_is_not_taken_for_one_of_now() {
    let list = list(json!({"processes": [{"pid": 101, "sm": 60, "age_ms": 60_000}]}));
    assert_eq!(sm(&list), [(101, Value(0))]);
}

#[test]
fn a_card_or_a_driver_that_does_not_tell_is_not_zero() {
    let refused = |code: u32| {
        let errors = json!({"nvmlDeviceGetProcessUtilization": code});
        sm(&list(json!({"errors": errors, "processes": [{"pid": 101, "sm": 60}]}))).remove(0).1
    };
    assert_eq!(refused(3), Unsupported);
    assert_eq!(refused(4), Failed("insufficient permissions".into()));
}

#[test]
fn entries_of_each_width_are_read() {
    for stride in [16, 24, 32] {
        let processes = json!([{"pid": 101, "mem_mib": 5}, {"pid": 102, "mem_mib": 6}]);
        let node = Node::new(&json!({"v3_stride": stride, "gpus": [{"processes": processes}]}));
        let list = node.start(&[]).processes(|list| !list.processes.is_empty());
        let memory: Vec<_> = list.processes.iter().map(|process| process.now.gpu_mem_bytes.clone()).collect();
        assert_eq!(memory, [Value(5 << 20), Value(6 << 20)], "{stride}");
    }
}
