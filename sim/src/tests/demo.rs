//! The demo contains every kind of state, and looks complete from its first second.

use super::*;
use nodeglass_protocol::job::{GpuSet, Job, JobState};
use nodeglass_protocol::process::ProcessState;
use std::collections::BTreeSet;

fn demo() -> Scenario {
    Scenario::from_toml(DEMO).unwrap()
}

fn named<'a>(jobs: &'a [Job], name: &str) -> &'a Job {
    jobs.iter().find(|job| job.name.as_str().starts_with(name)).unwrap()
}

#[test]
fn there_are_16_nodes_with_8_gpus_each_and_5_of_other_kinds_and_every_uuid_is_its_own() {
    let demo = demo();
    let hellos: Vec<_> = demo.node_names().map(|name| demo.hello(name, at(0)).unwrap()).collect();
    assert_eq!(hellos.iter().filter(|hello| hello.gpus.len() == 8).count(), 16);
    assert_eq!(hellos.len(), 21);
    let uuids: BTreeSet<_> = hellos.iter().flat_map(|hello| hello.gpus.iter().map(|gpu| &gpu.uuid)).collect();
    assert_eq!(uuids.len(), 128 + 4 + 1 + 1 + 4 + 2 * 5);
    assert!(uuids.iter().all(|uuid| uuid.as_str().len() == 40));
}

#[test]
fn the_demo_starts_with_running_and_pending_jobs() {
    let jobs = demo().jobs(at(1));
    let running = jobs.iter().filter(|job| job.state == JobState::Running).count();
    assert!((20..=30).contains(&running), "{running}");
    assert!(jobs.iter().filter(|job| job.state == JobState::Pending).all(|job| job.reason.is_some()));
    assert_eq!(named(&jobs, "llama3-8b").gpu_count, Some(64));
    assert!(jobs.iter().all(|job| !matches!(job.state, JobState::Ended(_))));
    assert!(jobs.iter().filter_map(|job| job.reason.as_ref()).count() >= 7);
    assert!(named(&jobs, "eval-report").dependency.is_some());
    assert!(named(&jobs, "llama3-70b").start.unwrap() > at(1).wall_ms() as i64 / 1_000);
}

#[test]
fn the_job_list_changes_over_time() {
    let demo = demo();
    let state = |second, name: &str| named(&demo.jobs(at(second)), name).state.clone();
    assert_eq!(state(100, "whisper"), JobState::Pending);
    assert_eq!(state(125, "whisper"), JobState::Running);
    assert_eq!(state(230, "clip-linear"), JobState::Running);
    assert_eq!(state(237, "clip-linear"), JobState::Completing);
    assert_eq!(state(250, "clip-linear"), JobState::Ended("COMPLETED".into()));
}

#[test]
fn at_no_moment_of_three_hours_does_a_gpu_have_two_jobs_or_a_job_a_gpu_that_is_not_there() {
    let demo = demo();
    for second in (0..10_800).step_by(97) {
        let mut seen = BTreeSet::new();
        let jobs = demo.jobs(at(second));
        let ids: BTreeSet<_> = jobs.iter().map(|job| job.id).collect();
        assert_eq!(ids.len(), jobs.len(), "numbers at {second}");
        for job in jobs.iter().filter(|job| job.is_active()) {
            for gpus in &job.gpus {
                let GpuSet::Indices(indices) = &gpus.set else { panic!("no indices") };
                assert!(indices.iter().all(|index| *index < 8));
                assert!(
                    indices.iter().all(|index| seen.insert((gpus.node.clone(), *index))),
                    "at {second}: {}",
                    job.name
                );
            }
        }
    }
}

#[test]
fn processes_run_where_the_job_list_says() {
    let demo = demo();
    for second in [0, 130, 420, 1_000, 5_000] {
        let jobs = demo.jobs(at(second));
        for name in demo.node_names() {
            let facts = demo.hello(name, at(second)).unwrap().gpus;
            let divided = facts.iter().any(|gpu| gpu.mig.is_some());
            for process in demo.processes(name, at(second)).unwrap().processes {
                if process.now.state == Reading::Value(ProcessState::Zombie as u64) {
                    continue;
                }
                let index = facts.iter().find(|gpu| gpu.uuid == process.facts.gpu).unwrap().index;
                let job = jobs.iter().find(|job| Some(job.id) == process.facts.job);
                let Some(job) = job else {
                    assert_eq!(process.facts.user, Reading::Value("bob".into()));
                    assert_eq!(
                        process.facts.args,
                        Reading::NotYet,
                        "another user's arguments are not ours to show"
                    );
                    continue;
                };
                // With MIG, SLURM counts instances, not GPUs.
                assert!(
                    divided
                        || matches!(job.gpus_on(name), Some(GpuSet::Indices(indices)) if indices.contains(&index))
                );
            }
        }
    }
}

#[test]
fn bobs_job_uses_gpus_but_is_not_in_alices_list() {
    let demo = demo();
    assert!(demo.jobs(at(0)).iter().all(|job| job.user.as_str() == "alice"));
    let list = demo.processes(&node("gpu-a01"), at(0)).unwrap().processes;
    assert_eq!(list.iter().filter(|process| process.facts.user == Reading::Value("bob".into())).count(), 3);
}

#[test]
fn sample_and_process_lines_fit_the_wire() {
    let demo = demo();
    let line = serde_json::to_vec(&demo.sample(&node("gpu-h01"), at(0)).unwrap()).unwrap();
    assert!(line.len() < 16_384, "{}", line.len());
    let line = serde_json::to_vec(&demo.processes(&node("gpu-h01"), at(0)).unwrap()).unwrap();
    assert!(line.len() < 8_192, "{}", line.len());
}

#[test]
fn the_large_scenario_is_one_job_of_512_gpus() {
    let large = Scenario::from_toml(LARGE).unwrap();
    let jobs = large.jobs(at(0));
    assert_eq!((jobs[0].gpu_count, jobs[0].nodes.len()), (Some(512), 64));
    let ranks: BTreeSet<u32> = large
        .node_names()
        .flat_map(|name| large.processes(name, at(0)).unwrap().processes)
        .map(|process| process.facts.rank.unwrap().global)
        .collect();
    assert_eq!(ranks, (0..512).collect());
}
