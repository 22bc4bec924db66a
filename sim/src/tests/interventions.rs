//! Requests and job control have the same effects as on a real cluster.

use super::*;
use crate::responses::respond;
use nodeglass_protocol::JobId;
use nodeglass_protocol::capture::{CaptureRequest, ProcessCapture, StackReader};
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::probe::ProcessSample;
use nodeglass_protocol::request::{Audience, ProbeRequest, ProcessRef, Response, Signal, Tail};

fn listed(scenario: &Scenario, name: &str, second: i64) -> Vec<ProcessSample> {
    scenario.processes(&node(name), at(second)).unwrap().processes
}

fn of(process: &ProcessSample) -> ProcessRef {
    ProcessRef { pid: process.facts.pid, started_ms: *process.facts.started_ms.value().unwrap() }
}

fn tail(scenario: &Scenario, path: &str, after: u64, second: i64) -> Tail {
    match respond(
        scenario,
        0,
        at(second),
        &ProbeRequest::Tail { path: path.into(), after, audience: Audience::Owner },
    ) {
        Response::Tail(tail) => tail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_killed_process_leaves_its_peers_hanging() {
    let scenario = scenario(&job("checkpoint_every = \"1h\""));
    let process = of(&listed(&scenario, "n1", 60)[2]);
    let signal = ProbeRequest::Signal { process, signal: Signal::Terminate };
    assert!(
        matches!(respond(&scenario, 0, at(60), &signal), Response::Done(text) if text.as_str().starts_with("SIGTERM"))
    );
    assert_eq!(listed(&scenario, "n1", 61).len(), 3);
    assert_eq!(value(&gpu(&scenario, "n1", 2, 61).util_pct), 0);
    assert!((140_000..160_000).contains(&value(&gpu(&scenario, "n2", 0, 61).power_mw)), "a peer only waits");
    assert_eq!(listed(&scenario, "n1", 59).len(), 4, "the past is as it was");
    assert!(matches!(respond(&scenario, 0, at(62), &signal), Response::Refused(_)), "it is gone");
}

#[test]
fn another_users_process_is_not_ours_to_end() {
    let scenario = scenario(&job("user = \"bob\""));
    let process = of(&listed(&scenario, "n1", 60)[0]);
    let signal = ProbeRequest::Signal { process, signal: Signal::Kill };
    assert_eq!(
        respond(&scenario, 0, at(60), &signal),
        Response::Refused(format!("process {} is bob's", process.pid).into())
    );
    assert_eq!(listed(&scenario, "n1", 61).len(), 4);
}

#[test]
fn process_details_have_relatives_and_a_masked_environment() {
    let scenario = scenario(&job(""));
    let process = of(&listed(&scenario, "n2", 60)[1]);
    let request = ProbeRequest::Process { process, environment: true };
    let Response::Process(detail) = respond(&scenario, 1, at(60), &request) else { panic!("no detail") };
    assert!(detail.ancestors.windows(2).all(|pair| pair[1].parent == pair[0].pid));
    assert_eq!(detail.ancestors.last().map(|peers| peers.pid), Some(process.pid));
    assert!(
        detail.descendants.iter().all(|peers| peers.parent == process.pid) && detail.descendants.len() == 4
    );
    let variables = detail.environment.value().unwrap();
    let of_name = |name: &str| variables.iter().find(|variable| variable.name.as_str() == name).unwrap();
    assert_eq!(of_name("RANK").value.as_str(), "5");
    assert_eq!(of_name("HF_TOKEN").value.as_str(), "•••");
    let other = ProcessRef { started_ms: process.started_ms + 1, ..process };
    let request = ProbeRequest::Process { process: other, environment: false };
    assert!(matches!(respond(&scenario, 1, at(60), &request), Response::Refused(_)));
}

#[test]
fn a_log_is_read_from_the_end_of_the_last_response() {
    let scenario = scenario(&job(""));
    let path = scenario.jobs(at(60))[0].stdout.clone().unwrap().to_string();
    let whole = tail(&scenario, &path, 0, 60);
    assert!(whole.lines.iter().any(|line| line.as_str().contains("loss ")), "{:?}", whole.lines);
    assert!(whole.skipped > 0, "an hour is longer than one answer");
    let more = tail(&scenario, &path, whole.end, 80);
    assert_eq!(more.lines.len(), 10);
    let again = tail(&scenario, &path, 0, 80);
    assert!(again.lines.ends_with(&more.lines) && !more.restarted);
    let errors = tail(&scenario, scenario.jobs(at(60))[0].stderr.as_ref().unwrap().as_str(), 0, 60);
    assert!(errors.lines.iter().any(|line| line.as_str().contains("Warning")));
    assert!(tail(&scenario, "/etc/passwd", 0, 60).error.is_some());
}

#[test]
fn a_progress_bar_is_sent_as_a_partial_line() {
    let scenario = scenario(&job("behaviour = \"input_bound\""));
    let path = scenario.jobs(at(60))[0].stderr.clone().unwrap().to_string();
    let (first, later) = (tail(&scenario, &path, 0, 60), tail(&scenario, &path, 0, 80));
    assert!(first.partial.as_ref().unwrap().as_str().contains("it/s]"));
    assert_ne!(first.partial, later.partial);
    assert_eq!(first.end, later.end);
}

fn order(scenario: &Scenario, second: i64, order: JobAction) -> Result<Text, Text> {
    let job = scenario.jobs(at(second)).pop().unwrap();
    scenario.control_job(at(second), &job, order)
}

#[test]
fn a_cancelled_job_ends_with_its_processes() {
    let scenario = scenario(&job(""));
    order(&scenario, 60, JobAction::Cancel).unwrap();
    let after = scenario.jobs(at(61)).pop().unwrap();
    assert_eq!(after.state, JobState::Ended("CANCELLED".into()));
    assert_eq!(after.exit, Some("0:15".into()));
    assert!(listed(&scenario, "n1", 61).is_empty());
    assert!(scenario.jobs(at(400)).is_empty());
    assert!(order(&scenario, 62, JobAction::Cancel).is_err(), "it is over");
    assert_eq!(scenario.jobs(at(59))[0].state, JobState::Running);
}

#[test]
fn a_held_job_starts_after_its_release() {
    let text = job("").replace("start = \"-1h\"", "start = \"1m\"");
    let scenario = scenario(&text);
    order(&scenario, 10, JobAction::Hold).unwrap();
    let held = scenario.jobs(at(90)).pop().unwrap();
    assert_eq!((held.state, held.reason), (JobState::Pending, Some("JobHeldUser".into())));
    order(&scenario, 100, JobAction::Release).unwrap();
    assert_eq!(scenario.jobs(at(104))[0].state, JobState::Pending);
    assert_eq!(scenario.jobs(at(109))[0].state, JobState::Running);
    assert!(order(&scenario, 110, JobAction::Hold).is_err(), "it runs");
    assert_eq!(listed(&scenario, "n1", 120).len(), 4);
}

#[test]
fn a_job_that_its_script_holds_waits_for_its_turn_once_it_is_released() {
    let text =
        job("reason = \"JobHeldUser\"").replace("start = \"-1h\"\nnodes = \"n[1-2]\"\n", "node_count = 2\n");
    let scenario = scenario(&text);
    order(&scenario, 10, JobAction::Release).unwrap();
    let reason = |second| scenario.jobs(at(second)).pop().unwrap().reason;
    assert_eq!([5, 20].map(reason), [Some("JobHeldUser".into()), Some("Priority".into())]);
}

#[test]
fn a_requeued_job_restarts() {
    let scenario = scenario(&job(""));
    order(&scenario, 60, JobAction::Requeue).unwrap();
    assert_eq!(scenario.jobs(at(70))[0].state, JobState::Pending);
    assert!(listed(&scenario, "n1", 70).is_empty());
    let again = scenario.jobs(at(90)).pop().unwrap();
    assert_eq!((again.state, again.restarts), (JobState::Running, 1));
    assert!(!listed(&scenario, "n1", 95).is_empty());
}

#[test]
fn cancelling_the_rest_of_an_array_keeps_running_tasks() {
    let text = job("gpus = [0]\narray = { tasks = 6, task_time = \"60s\" }");
    let scenario = scenario(&text.replace("start = \"-1h\"", "start = 0"));
    let rest = scenario.jobs(at(40)).swap_remove(0);
    assert_eq!(rest.label.as_str(), "7_[2-5%2]");
    scenario.control_job(at(40), &rest, JobAction::Cancel).unwrap();
    let labels: Vec<String> =
        scenario.jobs(at(70)).iter().filter(|job| job.is_active()).map(|job| job.label.to_string()).collect();
    assert_eq!(labels, ["7_1"]);
    assert!(listed(&scenario, "n1", 75).is_empty(), "no third task began");
}

#[test]
fn in_a_hang_one_rank_stands_elsewhere() {
    let scenario = scenario(&job("behaviour = \"hang\""));
    let processes: Vec<ProcessRef> = listed(&scenario, "n1", 60).iter().map(of).collect();
    let capture = |node: usize, processes: Vec<ProcessRef>, stacks| {
        let request = CaptureRequest { job: JobId(1), processes, stacks };
        match respond(&scenario, node, at(60), &ProbeRequest::Capture(request)) {
            Response::Capture(capture) => capture.processes,
            other => panic!("{other:?}"),
        }
    };
    let innermost =
        |captured: &ProcessCapture| captured.stack.value().map(|stack| stack[0].function.to_string());
    let others: Vec<ProcessRef> = listed(&scenario, "n2", 60).iter().map(of).collect();
    let all = capture(0, processes.clone(), StackReader::OnPath).into_iter().chain(capture(
        1,
        others,
        StackReader::OnPath,
    ));
    let stands: Vec<String> = all.filter_map(|captured| innermost(&captured)).collect();
    assert_eq!(stands.iter().filter(|function| *function == "PollSelector.select").count(), 1, "{stands:?}");
    assert_eq!(stands.iter().filter(|function| *function == "all_reduce").count(), stands.len() - 1);
    assert_eq!(innermost(&capture(0, processes.clone(), StackReader::Off)[0]), None);
    let gone = ProcessRef { started_ms: 1, ..processes[0] };
    assert!(capture(0, vec![gone], StackReader::Off)[0].refused.is_some());
}
