//! GPU processes have a user, a command and a job, and secrets are masked.

use crate::harness::Node;
use nodeglass_protocol::probe::{
    Control, GpuGap, MAX_PROCESSES, ProbeLine, ProcessGap, ProcessKind, ProcessList,
};
use nodeglass_protocol::{JobId, Reading};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
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
fn an_own_process_has_all_facts_without_secrets() {
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
    let node = Node::new(&json!({"train_processes": true, "fresh_ms": 100, "gpus": [{}, {"uuid": "GPU-b"}]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| list.processes.iter().any(|process| process.facts.pid == _job.0.id()));
    let process = list.processes.iter().find(|process| process.facts.pid == _job.0.id()).unwrap();
    assert_eq!((process.facts.gpu.as_str(), &process.now.gpu_mem_bytes), ("GPU-b", &Reading::Value(3 << 30)));
}

#[test]
fn a_pid_of_another_namespace_is_listed_as_unknown() {
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
fn a_list_that_outgrows_its_buffer_is_read_completely() {
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

/// This many entries on each of this many GPUs; no processes have these pids.
fn crowd(gpus: u32, each: u32) -> serde_json::Value {
    let processes =
        |_| (1..=each).map(|pid| json!({"pid": 4_000_000 + pid, "mem_mib": 100})).collect::<Vec<_>>();
    let gpus: Vec<_> =
        (0..gpus).map(|gpu| json!({"uuid": format!("GPU-{gpu}"), "processes": processes(gpu)})).collect();
    json!({"gpus": gpus})
}

fn by_gpu(list: &ProcessList) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    list.processes.iter().for_each(|one| *counts.entry(one.facts.gpu.as_str()).or_default() += 1);
    counts
}

#[test]
fn a_list_longer_than_a_line_is_complete_and_stays_current() {
    let node = Node::new(&crowd(8, 256));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(
        by_gpu(&list),
        (0..8)
            .map(|gpu| (["GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7"][gpu], 256))
            .collect()
    );
    assert!(list.gaps.is_empty());
    let mut state = crowd(8, 256);
    for process in state["gpus"][7]["processes"].as_array_mut().unwrap() {
        process["mem_mib"] = json!(300);
    }
    node.set(&state);
    let moved = probe.until(|line| match line {
        ProbeLine::ProcessReadings(readings) => {
            readings.now.last().filter(|now| now.gpu_mem_bytes == Reading::Value(300 << 20)).cloned()
        }
        ProbeLine::Processes(_) => panic!("who they are has not changed"),
        _ => None,
    });
    assert_eq!(moved.gpu_mem_bytes, Reading::Value(300 << 20));
}

#[test]
fn real_processes_with_long_command_lines_keep_their_arguments() {
    let argument = "x".repeat(240);
    let ranks: Vec<_> = (0..64).map(|_| Waiting::new(&["train.py", &argument])).collect();
    let entries: Vec<_> = ranks.iter().map(|rank| json!({"pid": rank.0.id(), "mem_mib": 512})).collect();
    // Each rank has a context on each GPU.
    let node = Node::new(&json!({"gpus": vec![json!({"processes": entries}); 8]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(list.processes.len(), 512);
    assert!(
        list.processes.iter().all(|one| one
            .facts
            .args
            .value()
            .is_some_and(|args| args.as_str().contains("train.py")))
    );
}

#[test]
fn truncated_lists_show_some_processes_of_each_gpu_and_a_count() {
    let mut state = crowd(3, 6_000);
    state["gpus"][1]["processes"] = json!([{"pid": 7_000_000 % 4_194_304}]);
    let node = Node::new(&state);
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    let half = (MAX_PROCESSES - 1) / 2;
    assert_eq!(by_gpu(&list), BTreeMap::from([("GPU-0", half), ("GPU-1", 1), ("GPU-2", half)]));
    let more = |gpu: &str| GpuGap {
        gpu: nodeglass_protocol::GpuUuid::new(gpu),
        gap: ProcessGap::More(6_000 - half as u32),
    };
    assert_eq!(list.gaps, [more("GPU-0"), more("GPU-2")]);
}

#[test]
fn a_failed_list_is_not_an_empty_one() {
    for (code, why) in [(4, "insufficient permissions"), (999, "unknown error")] {
        let (first, second) = (Waiting::new(&["a.py"]), Waiting::new(&["b.py"]));
        let state = |code: u32| {
            let errors = match code {
                0 => json!({}),
                code => json!({"nvmlDeviceGetComputeRunningProcesses_v3": code}),
            };
            let of = |child: &Waiting| json!([{"pid": child.0.id(), "mem_mib": 5}]);
            json!({"gpus": [{"uuid": "GPU-a", "processes": of(&first)}, {"uuid": "GPU-b", "processes": of(&second), "errors": errors}]})
        };
        let node = Node::new(&state(0));
        let mut probe = node.start(&[]);
        probe.processes(|list| list.processes.len() == 2);
        node.set(&state(code));
        let list = probe.processes(|list| !list.gaps.is_empty());
        let [GpuGap { gpu, gap: ProcessGap::Failed(said) }] = &list.gaps[..] else {
            panic!("{:?}", list.gaps)
        };
        assert!(
            gpu.as_str() == "GPU-b" && said.as_str().contains(why.split(' ').next_back().unwrap()),
            "{said}"
        );
        assert_eq!(list.processes.len(), 2, "the previous processes may still be running");
        assert_eq!(list.processes[0].now.gpu_mem_bytes, Reading::Value(5 << 20));
        assert!(matches!(list.processes[1].now.gpu_mem_bytes, Reading::Failed(_)));
        let once = node.command().arg("--once").output().unwrap();
        let once: serde_json::Value = serde_json::from_slice(&once.stdout).unwrap();
        assert_eq!(once["process_gaps"][0]["gpu"], "GPU-b");
        // An ended process is removed, whether NVML lists it or not.
        drop(second);
        probe.processes(|list| list.processes.len() == 1 && !list.gaps.is_empty());
    }
}

#[test]
fn a_driver_without_process_lists_is_not_an_empty_list() {
    let state = |code: u32| {
        let errors: serde_json::Map<_, _> = ["Compute", "Graphics", "MPSCompute"]
            .into_iter()
            .filter(|_| code > 0)
            .flat_map(|kind| {
                ["", "_v2", "_v3"].map(|version| format!("nvmlDeviceGet{kind}RunningProcesses{version}"))
            })
            .map(|call| (call, json!(code)))
            .collect();
        json!({"gpus": [{"uuid": "GPU-a", "processes": [{"pid": 4_000_000}], "errors": errors}]})
    };
    let node = Node::new(&state(3));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.gaps.is_empty());
    assert_eq!((&list.gaps[0].gap, list.gaps.len()), (&ProcessGap::Unsupported, 1));
    assert!(list.processes.is_empty());
    // A reading that is missing for one sample does not remove a process.
    node.set(&state(0));
    probe.processes(|list| list.processes.len() == 1 && list.gaps.is_empty());
    node.set(&state(3));
    probe.processes(|list| list.processes.len() == 1 && !list.gaps.is_empty());
}

#[test]
fn an_invalid_pid_does_not_hide_other_processes() {
    let pids = [0, 4_000_001, u32::MAX, 4_000_002, (1 << 22) + 1];
    let processes: Vec<_> = pids.map(|pid| json!({"pid": pid, "mem_mib": 1})).into();
    let node = Node::new(&json!({"gpus": [{"processes": processes}]}));
    let list = node.start(&[]).processes(|list| !list.processes.is_empty());
    let pids: Vec<_> = list.processes.iter().map(|one| one.facts.pid).collect();
    assert_eq!(pids, [4_000_001, 4_000_002]);
    assert_eq!(list.gaps[0].gap, ProcessGap::More(3));
}

/// A `getpwuid_r` that does not return while a file exists, as with an unavailable directory service.
const HANGING_NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>
int getpwuid_r(uid_t uid, struct passwd *pwd, char *buffer, size_t size, struct passwd **result) {
    int (*real)(uid_t, struct passwd *, char *, size_t, struct passwd **) = dlsym(RTLD_NEXT, "getpwuid_r");
    while (access(getenv("HANGING_NAMES"), F_OK) == 0) usleep(20000);
    return real(uid, pwd, buffer, size, result);
}
"#;

#[test]
fn a_hung_user_database_delays_only_names() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library, down) =
        (folder.path().join("names.c"), folder.path().join("names.so"), folder.path().join("down"));
    fs::write(&source, HANGING_NAMES).unwrap();
    fs::write(&down, "").unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
    assert!(built.unwrap().success(), "a linker for Rust is a compiler for C");
    let job = Waiting::new(&["train.py"]);
    let node = Node::new(&json!({"gpus": [{"processes": [{"pid": job.0.id()}]}]}));
    let mut command = node.command();
    command.args(["--retry-ms", "100"]).env("LD_PRELOAD", &library).env("HANGING_NAMES", &down);
    let mut probe = crate::harness::Probe::start(command);
    probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
    let list = probe.processes(|list| !list.processes.is_empty());
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(list.processes[0].facts.user, Reading::Value(uid.as_str().into()));
    let mut samples = 0;
    while samples < 6 {
        match probe.line() {
            ProbeLine::Sample(_) => samples += 1,
            ProbeLine::Heartbeat(beat) => assert_eq!(beat.driver_stuck_ms, None, "it is not NVML that hangs"),
            _ => {}
        }
    }
    fs::remove_file(&down).unwrap();
    let named = probe.processes(|list| {
        list.processes[0].facts.user != list.processes[0].facts.user.clone().map(|_| uid.as_str().into())
    });
    assert!(named.processes[0].facts.user.value().is_some());
}
