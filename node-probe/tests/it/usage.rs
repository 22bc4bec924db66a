//! Per-process utilization comes from the driver; inactive processes have zero, unsupported ones do not.

use crate::harness::Node;
use nodeglass_protocol::Reading::{self, Failed, Unsupported, Value};
use nodeglass_protocol::probe::{ProbeLine, ProcessList};
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

fn list(gpu: Json) -> ProcessList {
    Node::new(&json!({"gpus": [gpu]})).start(&[]).processes(|list| !list.processes.is_empty())
}

fn sm(list: &ProcessList) -> Vec<(u32, Reading<u64>)> {
    list.processes.iter().map(|process| (process.facts.pid, process.now.sm_pct.clone())).collect()
}

#[test]
fn utilization_is_reported_per_process() {
    let busy = json!({"pid": 101, "sm": 60, "mem": 25, "enc": 7, "dec": 8});
    let list = list(
        json!({"util": 80, "processes": [busy, {"pid": 102, "sm": 20}, {"pid": 103, "sm": null, "mem": null}]}),
    );
    assert_eq!(sm(&list), [(101, Value(60)), (102, Value(20)), (103, Value(0))]);
    let now = &list.processes[0].now;
    assert_eq!((&now.mem_bw_pct, &now.enc_pct, &now.dec_pct), (&Value(25), &Value(7), &Value(8)));
}

#[test]
fn inactive_processes_have_zero_utilization() {
    assert_eq!(sm(&list(json!({"util": 0, "processes": [{"pid": 101}]}))), [(101, Value(0))]);
}

#[test]
fn old_utilization_samples_are_not_reused() {
    let list = list(json!({"processes": [{"pid": 101, "sm": 60, "age_ms": 60_000}]}));
    assert_eq!(sm(&list), [(101, Value(0))]);
}

#[test]
fn utilization_stays_current_when_timestamps_jump() {
    let state = |age_ms: i64, sm: u32| json!({"gpus": [{"util": 50, "processes": [{"pid": 101, "sm": sm, "age_ms": age_ms}]}]});
    let is = |wanted: u64| {
        move |line: ProbeLine| {
            match line {
                ProbeLine::Processes(list) => {
                    list.processes.first().map(|process| process.now.sm_pct.clone())
                }
                ProbeLine::ProcessReadings(readings) => readings.now.first().map(|now| now.sm_pct.clone()),
                _ => None,
            }
            .filter(|share| *share == Value(wanted))
        }
    };
    let node = Node::new(&state(-40_000, 40));
    let mut probe = node.start(&[]);
    probe.until(is(40));
    node.set(&state(-40_000, 41));
    probe.until(is(41));
    // The clock is set back by 40 s: the driver's stamps are those of 40 s ago.
    let before = Instant::now();
    node.set(&state(0, 42));
    probe.until(is(42));
    assert!(before.elapsed() < Duration::from_secs(30), "it waited until the clock had caught up");
}

#[test]
fn an_implausible_utilization_fails_alone() {
    let list = list(json!({"util": 80, "processes": [{"pid": 101, "sm": 255, "mem": 20}]}));
    let now = &list.processes[0].now;
    assert_eq!(now.sm_pct, Failed("NVML reported 255 %".into()));
    assert_eq!((&now.mem_bw_pct, &now.enc_pct), (&Value(20), &Value(0)));
}

#[test]
fn unsupported_utilization_is_not_zero() {
    let refused = |code: u32| {
        let errors = json!({"nvmlDeviceGetProcessUtilization": code});
        sm(&list(json!({"errors": errors, "processes": [{"pid": 101, "sm": 60}]}))).remove(0).1
    };
    assert_eq!(refused(3), Unsupported);
    assert_eq!(refused(4), Failed("insufficient permissions".into()));
}

#[test]
fn entries_of_each_layout_are_read() {
    for stride in [16, 24, 32] {
        let processes = json!([{"pid": 101, "mem_mib": 5}, {"pid": 102, "mem_mib": 6}]);
        let node = Node::new(&json!({"v3_stride": stride, "gpus": [{"processes": processes}]}));
        let list = node.start(&[]).processes(|list| !list.processes.is_empty());
        let memory: Vec<_> = list.processes.iter().map(|process| process.now.gpu_mem_bytes.clone()).collect();
        assert_eq!(memory, [Value(5 << 20), Value(6 << 20)], "{stride}");
    }
}
