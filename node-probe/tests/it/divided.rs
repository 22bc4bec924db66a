//! A GPU in MIG mode has no utilization, and its instances have their own readings.

use crate::harness::Node;
use nodeglass_protocol::Reading::{Failed, Unsupported, Value};
use nodeglass_protocol::gpu::MigFacts;
use nodeglass_protocol::probe::{JobDevices, ProbeLine};
use nodeglass_protocol::{GpuUuid, JobId};
use serde_json::{Value as Json, json};
use std::process::Command;

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
fn an_instance_is_read_where_its_gpu_refuses() {
    let refused = [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
    ];
    let lists = ["Compute", "Graphics", "MPSCompute"].into_iter().flat_map(|kind| {
        ["", "_v2", "_v3"].map(|version| format!("nvmlDeviceGet{kind}RunningProcesses{version}"))
    });
    let refused: Vec<_> = refused.into_iter().map(str::to_owned).chain(lists).collect();
    for code in [3, 4, 999] {
        let mut state = divided();
        let errors: serde_json::Map<_, _> = refused.iter().map(|call| (call.clone(), json!(code))).collect();
        state["gpus"][0]["errors_of_gpu"] = errors.into();
        state["gpus"][0]["mig"][0]["mem_used_mib"] = json!(9_000);
        let node = Node::new(&state);
        let mut probe = node.start(&[]);
        let sample = probe.sample(|sample| sample.gpus.len() == 3);
        let of_gpu = &sample.gpus[0].mem_used_bytes;
        assert!(if code == 3 { *of_gpu == Unsupported } else { matches!(of_gpu, Failed(_)) }, "{of_gpu:?}");
        assert_eq!(sample.gpus[1].mem_used_bytes, Value(9_000 << 20), "{code}");
        let list = probe.processes(|list| !list.processes.is_empty());
        let process = &list.processes[0];
        assert_eq!((process.facts.gpu.as_str(), process.facts.pid), ("MIG-a", 4_000_001));
        assert_eq!(process.now.gpu_mem_bytes, Value(50 << 20));
        let gaps: Vec<_> = list.gaps.iter().map(|gap| gap.gpu.as_str()).collect();
        assert_eq!(gaps, ["GPU-0"], "the instances are complete: {code}");
    }
}

#[test]
fn instances_behind_a_free_position_are_listed() {
    let at = |position: u32, uuid: &str| json!({"uuid": uuid, "gi": position + 3, "position": position});
    let state = |instances: &[Json]| json!({"gpus": [{"card": "h100", "uuid": "GPU-0", "mig": instances}]});
    let node = Node::new(&state(&[at(0, "MIG-a"), at(2, "MIG-c"), at(5, "MIG-f")]));
    let mut probe = node.start_patient();
    let uuids = |probe: &mut crate::harness::Probe, count: usize| {
        let hello = probe.hello(|hello| hello.gpus.len() == count);
        hello.gpus.iter().map(|gpu| gpu.uuid.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(uuids(&mut probe, 4), ["GPU-0", "MIG-a", "MIG-c", "MIG-f"]);
    // Unchanged instances are no reason for another inventory.
    let is_inventory = |line: &ProbeLine| matches!(line, ProbeLine::Hello(_));
    let settled = probe.until(|line| match line {
        ProbeLine::Sample(sample) if sample.seq >= 4 => Some(true),
        line if is_inventory(&line) => Some(false),
        _ => None,
    });
    assert!(settled, "another inventory");
    node.set(&state(&[at(0, "MIG-a"), at(1, "MIG-b"), at(2, "MIG-c"), at(5, "MIG-f")]));
    assert_eq!(uuids(&mut probe, 5)[2], "MIG-b");
    node.set(&state(&[at(0, "MIG-a"), at(2, "MIG-c")]));
    assert_eq!(uuids(&mut probe, 3)[2], "MIG-c");
}

#[test]
fn a_utilization_of_zero_in_mig_mode_is_ignored() {
    let state = json!({"gpus": [{"util": 0, "board": {"mig_mode": true}}]});
    let sample = Node::new(&state).start(&[]).sample(|sample| !sample.gpus.is_empty());
    assert_eq!((&sample.gpus[0].util_pct, &sample.gpus[0].temp_c), (&Unsupported, &Value(31)));
}

#[test]
fn the_instances_that_a_job_may_see_are_stated_before_it_uses_them() {
    let instance = "MIG-4f2a7f0e-9c11-5c6e-a3f4-0d5e1d2b7a10";
    let state = json!({"driver": "580.90.07", "gpus": [{"card": "h100", "mig": [
        {"profile": "1g.10gb", "uuid": instance, "gi": 7},
    ]}]});
    let mut task = Command::new("sleep")
        .arg("600")
        .env("SLURM_JOB_ID", "4000017")
        .env("SLURM_STEP_ID", "0")
        .env("SLURM_STEP_GPUS", "3")
        .env("CUDA_VISIBLE_DEVICES", instance)
        .spawn()
        .unwrap();
    let node = Node::new(&state);
    let mut probe = node.start(&[]);
    let is_it = |devices: &JobDevices| devices.job == JobId(4_000_017);
    let list = probe.processes(|list| list.job_devices.iter().any(is_it));
    task.kill().unwrap();
    task.wait().unwrap();
    let devices = list.job_devices.iter().find(|devices| is_it(devices)).unwrap();
    assert_eq!((&*devices.gres_indices, &*devices.uuids), (&[3][..], &[GpuUuid::new(instance)][..]));
    assert!(list.processes.is_empty(), "it does not use a GPU");
    // Its end is noticed as well.
    let ended = probe.processes(|list| !list.job_devices.iter().any(is_it));
    assert!(ended.mono_ns > list.mono_ns);
}
