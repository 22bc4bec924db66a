//! When the driver or a card fails, the probe says what is wrong and everything else goes on.

use crate::harness::{Node, Probe};
use nodeglass_protocol::Reading::Value;
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{Event, Hello, NvmlState, ProbeLine};
use serde_json::{Value as Json, json};

fn absent(hello: &Hello) -> Option<&str> {
    match &hello.nvml {
        NvmlState::Absent { why } => Some(why.as_str()),
        NvmlState::Ready { .. } => None,
    }
}

fn event(probe: &mut Probe) -> Event {
    probe.until(|line| match line {
        ProbeLine::Event(event) => Some(event),
        _ => None,
    })
}

#[test]
fn a_gpu_that_is_lost_takes_no_other_with_it() {
    let gpus = |lost: bool| json!({"gpus": [{"uuid": "GPU-a", "util": 50}, {"uuid": "GPU-b", "lost": lost}]});
    let node = Node::new(&gpus(false));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus[1].fault.is_none());
    node.set(&gpus(true));
    let lost = probe.sample(|sample| sample.gpus[1].fault.is_some());
    assert_eq!(lost.gpus[1].fault, Some(Text::new("GPU is lost")));
    assert_eq!(lost.gpus[0].util_pct, Value(50));
    let told = event(&mut probe);
    assert_eq!((told.gpu.unwrap().as_str(), told.text.as_str()), ("GPU-b", "GPU-b: GPU is lost"));
    // Several enumerations later it still is who it was.
    let seq = lost.seq;
    probe.sample(|sample| sample.seq > seq + 3);
    node.set(&gpus(false));
    probe.sample(|sample| sample.gpus[1].fault.is_none());
    assert_eq!(event(&mut probe).text.as_str(), "GPU-b: answers again");
}

#[test]
fn a_gpu_that_was_lost_before_the_probe_came_keeps_its_row() {
    let node = Node::new(&json!({"gpus": [{}, {"lost_at_enumeration": true}, {"util": 7}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    assert_eq!((hello.gpus.len(), hello.gpus[1].uuid.as_str()), (3, "LOST-1"));
    let sample = probe.sample(|_| true);
    assert_eq!(sample.gpus[1].fault, Some(Text::new("GPU is lost")));
    assert_eq!(sample.gpus[2].util_pct, Value(7));
}

#[test]
fn a_call_that_hangs_is_told_by_heartbeats_until_it_returns() {
    let node = Node::new(&json!({"gpus": [{}]}));
    let mut probe = node.start(&[]);
    probe.sample(|_| true);
    node.set(&json!({"hang_ms": {"nvmlDeviceGetPowerUsage": 5000}, "gpus": [{}]}));
    let stuck = |probe: &mut Probe| {
        probe.until(|line| match line {
            ProbeLine::Heartbeat(beat) => beat.nvml_stuck_ms,
            _ => None,
        })
    };
    let first = stuck(&mut probe);
    let second = stuck(&mut probe);
    assert!(first >= 1_000 && second > first, "{first} {second}");
    node.set(&json!({"gpus": [{"util": 33}]}));
    probe.sample(|sample| sample.gpus[0].util_pct == Value(33));
}

#[test]
fn a_driver_that_hangs_at_the_very_start_does_not_keep_the_host_from_view() {
    let node = Node::new(&json!({"hang_ms": {"nvmlInit_v2": 5000}, "gpus": [{}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    assert_eq!(absent(&hello), Some("the NVIDIA driver does not answer"));
    assert!(probe.sample(|_| true).host.mem_used_bytes.value().is_some());
    probe.hello(|hello| hello.gpus.len() == 1);
    probe.sample(|sample| sample.gpus.len() == 1);
}

#[test]
fn each_reason_for_no_driver_has_its_sentence() {
    for (state, why) in [
        (json!({"init": 9}), "no NVIDIA driver: its kernel module is not loaded"),
        (
            json!({"init": 18}),
            "the NVIDIA driver was updated but not reloaded: library and kernel module differ in version",
        ),
        (json!({"init": 4}), "this user has no permission to use the NVIDIA driver"),
        (json!({"init": 999}), "the NVIDIA driver does not work: unknown error"),
    ] {
        let node = Node::new(&state);
        let mut probe = node.start(&[]);
        let hello = probe.hello(|_| true);
        assert_eq!(absent(&hello), Some(why));
        let sample = probe.sample(|_| true);
        assert!(sample.gpus.is_empty() && sample.host.load1_centi.value().is_some());
    }
}

#[test]
fn a_machine_without_the_library_is_a_host_without_a_driver() {
    let node = Node::new(&json!({}));
    let mut probe = node.start(&[]);
    assert!(absent(&probe.hello(|_| true)).is_none());
    let mut command = crate::harness::probe();
    command.args(["--nvml", "libnvidia-ml-that-is-nowhere.so.1"]);
    let mut probe = Probe::start(command);
    let hello = probe.hello(|_| true);
    assert_eq!(
        absent(&hello),
        Some("no NVIDIA driver: libnvidia-ml-that-is-nowhere.so.1 cannot be loaded on this machine")
    );
    probe.sample(|_| true);
}

#[test]
fn a_driver_may_come_and_go_and_come_back() {
    let ready: Json = json!({"gpus": [{}]});
    let node = Node::new(&json!({"init": 9}));
    let mut probe = node.start(&[]);
    probe.hello(|hello| absent(hello).is_some());
    node.set(&ready);
    probe.hello(|hello| hello.gpus.len() == 1);
    let before = probe.sample(|sample| sample.gpus.len() == 1);
    node.unload();
    probe.hello(|hello| absent(hello).is_some() && hello.gpus.is_empty());
    node.set(&ready);
    probe.hello(|hello| hello.gpus.len() == 1);
    let after = probe.sample(|sample| sample.gpus.len() == 1);
    assert!(after.seq > before.seq);
}

#[test]
fn an_inventory_that_changes_is_told_by_another_hello() {
    let node = Node::new(&json!({"gpus": [{"uuid": "GPU-a"}]}));
    let mut probe = node.start(&[]);
    probe.hello(|hello| hello.gpus.len() == 1);
    node.set(&json!({"gpus": [{"uuid": "GPU-a", "mig": [{"uuid": "MIG-a"}]}]}));
    let hello = probe.hello(|hello| hello.gpus.len() == 2);
    assert_eq!(hello.gpus[1].uuid.as_str(), "MIG-a");
    assert_eq!(probe.sample(|_| true).gpus.len(), 2);
}

#[test]
fn an_xid_is_told_once_with_its_gpu() {
    let node = Node::new(&json!({"gpus": [{}, {"uuid": "GPU-b"}]}));
    let mut probe = node.start(&[]);
    probe.sample(|_| true);
    node.set(&json!({"gpus": [{}, {"uuid": "GPU-b", "xids": [79]}]}));
    let told = event(&mut probe);
    assert_eq!(
        (told.xid, told.gpu.unwrap().as_str(), told.text.as_str()),
        (
            Some(79),
            "GPU-b",
            "Xid 79 on GPU 1: fell off the bus; the node needs a reboot, and the card a check of its seat and power"
        )
    );
    node.set(&json!({"gpus": [{}, {"uuid": "GPU-b", "xids": [79, 48]}]}));
    assert_eq!(event(&mut probe).xid, Some(48));
}
