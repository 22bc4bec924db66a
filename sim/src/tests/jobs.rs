//! Jobs, arrays and heterogeneous parts start, run and end as SLURM would list them.

use super::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{GpuSet, Job, JobState, Parent, TimeLimit};

fn labels(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.label.as_str()).collect()
}

/// Six tasks on two GPUs, a minute each, from the start on.
fn array(rest: &str) -> Scenario {
    let job = job(&format!("gpus = [0]\narray = {{ tasks = 6, task_time = \"60s\" }}\n{rest}"));
    scenario(&job.replace("start = \"-1h\"", "start = 0"))
}

#[test]
fn a_pending_array_is_one_line() {
    let jobs = array("").jobs(at(-1));
    assert_eq!(labels(&jobs), ["7_[0-5%2]"]);
    assert_eq!(jobs[0].part_of, Some(Parent::Array { job: JobId(7), task: None }));
    assert_eq!(jobs[0].state, JobState::Pending);
}

#[test]
fn tasks_start_one_after_the_other_and_the_rest_waits() {
    let array = array("");
    assert_eq!(labels(&array.jobs(at(10))), ["7_[1-5%2]", "7_0"]);
    assert_eq!(labels(&array.jobs(at(40))), ["7_[2-5%2]", "7_0", "7_1"]);
    let later = array.jobs(at(70));
    assert_eq!(labels(&later), ["7_[3-5%2]", "7_0", "7_1", "7_2"]);
    assert_eq!(later[1].state, JobState::Ended("COMPLETED".into()));
    let task = &later[3];
    assert_eq!(task.part_of, Some(Parent::Array { job: JobId(7), task: Some(2) }));
    assert_eq!(task.gpus_on(&node("n1")), Some(&GpuSet::Indices(vec![0])));
    assert_eq!(task.nodes, [node("n1")]);
}

#[test]
fn the_last_task_keeps_the_job_id_of_the_array() {
    let jobs = array("").jobs(at(160));
    let last = jobs.iter().find(|job| job.label.as_str() == "7_5").unwrap();
    assert_eq!(last.id, JobId(7));
    assert!(jobs.iter().all(|job| job.state != JobState::Pending));
}

#[test]
fn a_task_runs_on_the_listed_gpu() {
    let array = array("");
    for second in [10, 40, 70, 100, 170] {
        for job in array.jobs(at(second)).iter().filter(|job| job.state == JobState::Running) {
            // Its processes appear 3 s after the start.
            let processes = array.processes(&job.nodes[0], at(second)).unwrap().processes;
            assert_eq!(processes[0].facts.job, Some(job.id), "at {second}");
        }
    }
}

#[test]
fn a_repeated_array_never_overlaps_itself() {
    let array = array("every = \"3m\"");
    for second in 0..1_000 {
        let jobs = array.jobs(at(second));
        let running: Vec<&Job> = jobs.iter().filter(|job| job.is_active()).collect();
        assert!(running.len() <= 2, "at {second}");
        assert!(running.len() < 2 || running[0].nodes != running[1].nodes, "at {second}");
    }
    assert!(array.jobs(at(200)).iter().any(|job| job.id == JobId(1_008)));
}

#[test]
fn a_timed_out_job_has_slurms_state_and_is_listed_for_a_while() {
    let scenario = scenario(&job("limit = \"1h30s\""));
    let job = |second| scenario.jobs(at(second)).pop();
    assert_eq!(job(0).unwrap().limit, TimeLimit::Seconds(3_630));
    assert_eq!(job(29).unwrap().state, JobState::Completing);
    let ended = job(31).unwrap();
    assert_eq!(ended.state, JobState::Ended("TIMEOUT".into()));
    assert_eq!(ended.ended.unwrap() - ended.start.unwrap(), 3_630);
    assert_eq!(job(331), None);
    assert!(scenario.processes(&node("n1"), at(31)).unwrap().processes.is_empty());
}

#[test]
fn a_heterogeneous_component_refers_to_its_leader() {
    let jobs = scenario(&job("het = { job = 6, offset = 1 }")).jobs(at(0));
    assert_eq!(jobs[0].label.as_str(), "6+1");
    assert_eq!(jobs[0].part_of, Some(Parent::Het { job: JobId(6), offset: 1 }));
}

#[test]
fn the_estimate_of_a_job_that_never_starts_stays_in_the_future() {
    let waiting = job("reason = \"Priority\"\nnode_count = 4").replace("nodes = \"n[1-2]\"\n", "");
    let waiting = scenario(&waiting.replace("start = \"-1h\"", "start = \"5m\""));
    for second in [0, 299, 300, 301, 100_000] {
        let jobs = waiting.jobs(at(second));
        assert_eq!((&jobs[0].state, jobs[0].node_count), (&JobState::Pending, 4));
        assert!(jobs[0].start.unwrap() * 1_000 > at(second).wall_ms() as i64, "at {second}");
    }
}

#[test]
fn a_job_that_starts_fills_its_memory_before_its_first_step() {
    let starting = scenario(&job("").replace("start = \"-1h\"", "start = 0"));
    let memory: Vec<u64> =
        [1, 5, 20, 35].map(|second| value(&gpu(&starting, "n1", 0, second).mem_used_bytes)).into();
    assert!(memory.is_sorted() && memory[3] > 20 << 30, "{memory:?}");
    assert_eq!(value(&gpu(&starting, "n1", 0, 20).util_pct), 0);
    assert!(value(&gpu(&starting, "n1", 0, 60).util_pct) >= 90);
}
