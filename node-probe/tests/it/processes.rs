//! Whoever is on a GPU has a user, a command and a job, and nobody's secrets are shown.

use crate::harness::Node;
use nodeglass_protocol::probe::{ProbeLine, ProcessKind};
use nodeglass_protocol::{JobId, Reading};
use serde_json::json;
use std::process::{Child, Command, Stdio};

/// A process that waits until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "read x; :", "sh"]).args(arguments).env("SLURM_JOB_ID", "4711");
        Self(command.stdin(Stdio::piped()).spawn().expect("sh starts"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_of_our_own_has_everything_but_its_secrets() {
    let job = Waiting::new(&["train.py", "--token", "hunter2", "--lr=0.1"]);
    let node =
        Node::new(&json!({"gpus": [{"uuid": "GPU-a", "processes": [{"pid": job.0.id(), "mem_mib": 512}]}]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    let process = &list.processes[0];
    assert_eq!((process.facts.gpu.as_str(), process.facts.pid), ("GPU-a", job.0.id()));
    assert_eq!(process.facts.command, Reading::Value("sh".into()));
    assert_eq!(process.now.gpu_mem_bytes, Reading::Value(512 << 20));
    assert_eq!(process.facts.job, Some(JobId(4711)));
    assert!(process.facts.user.value().is_some() && process.facts.started_ms.value().is_some());
    let args = process.facts.args.value().unwrap().as_str();
    assert!(args.contains("train.py") && args.contains("--lr=0.1") && !args.contains("hunter2"), "{args}");
}

#[test]
fn a_real_process_can_play_a_training_job() {
    let _job = Waiting::new(&["train.py", "--gpus=1", "--gpu-mem=3G"]);
    let node = Node::new(&json!({"train_processes": true, "gpus": [{}, {"uuid": "GPU-b"}]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| list.processes.iter().any(|process| process.facts.pid == _job.0.id()));
    let process = list.processes.iter().find(|process| process.facts.pid == _job.0.id()).unwrap();
    assert_eq!((process.facts.gpu.as_str(), &process.now.gpu_mem_bytes), ("GPU-b", &Reading::Value(3 << 30)));
}

#[test]
fn a_pid_of_another_namespace_is_listed_and_said_to_be_unknown() {
    let node = Node::new(&json!({"gpus": [{"processes": [{"pid": 4_194_303, "mem_mib": null}]}]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(list.processes[0].facts.command, Reading::Failed("no such process here".into()));
    assert_eq!(list.processes[0].now.gpu_mem_bytes, Reading::Unsupported);
}

#[test]
fn a_process_in_several_lists_is_one_entry_with_several_kinds() {
    let processes = json!([{"pid": 101, "kind": "CG"}, {"pid": 102, "kind": "M"}, {"pid": 103, "kind": "G"}]);
    let node = Node::new(&json!({"gpus": [{"processes": processes}]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    let kinds: Vec<_> =
        list.processes.iter().map(|process| (process.facts.pid, process.facts.kind)).collect();
    let kind = |compute, graphics, mps| ProcessKind { compute, graphics, mps };
    assert_eq!(
        kinds,
        [(101, kind(true, true, false)), (102, kind(false, false, true)), (103, kind(false, true, false))]
    );
}

#[test]
fn a_list_that_outgrows_its_buffer_is_read_whole() {
    let crowd = |size: u32| {
        let processes: Vec<_> = (1..=size).map(|pid| json!({"pid": 4_000_000 + pid})).collect();
        json!({"gpus": [{"processes": processes}]})
    };
    let node = Node::new(&crowd(3));
    let mut probe = node.start(&[]);
    probe.processes(|list| list.processes.len() == 3);
    node.set(&crowd(500));
    let list = probe.processes(|list| list.processes.len() > 3);
    assert_eq!(list.processes.len(), 500);
}

#[test]
fn a_process_that_ended_leaves_the_list() {
    let node = Node::new(&json!({"gpus": [{"processes": [{"pid": 4_000_000}]}]}));
    let mut probe = node.start(&[]);
    probe.processes(|list| list.processes.len() == 1);
    node.set(&json!({"gpus": [{}]}));
    probe.processes(|list| list.processes.is_empty());
}

#[test]
fn a_list_that_does_not_change_is_not_sent_with_every_sample() {
    let node = Node::new(&json!({"gpus": [{"processes": [{"pid": 4_000_000}]}]}));
    let mut probe = node.start(&[]);
    probe.processes(|list| list.processes.len() == 1);
    let mut samples = 0;
    let mut lists = 0;
    while samples < 8 {
        match probe.line() {
            ProbeLine::Sample(_) => samples += 1,
            ProbeLine::Processes(_) => lists += 1,
            _ => {}
        }
    }
    assert!(lists <= 1, "{lists}");
}
