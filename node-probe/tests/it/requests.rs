//! A probe answers requests about processes and logs, and signals only the requested process.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's own machinery fails as its test does")]

use crate::harness::{Node, Probe};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::{Control, ProbeLine};
use nodeglass_protocol::process::{Container, ProcessDetail, ProcessState, Runtime};
use nodeglass_protocol::request::{Audience, ProbeRequest, ProcessRef, Response, Signal, Tail};
use serde_json::json;
use std::{
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// A process that waits until it is dropped.
struct Waiting(Child);

impl Waiting {
    fn new(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).spawn().expect("the process starts"))
    }

    fn shell(script: &str) -> Self {
        Self::new(
            Command::new("sh").args(["-c", script, "sh", "--api-key", "hunter2"]).env("MY_TOKEN", "hunter2"),
        )
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn request(probe: &mut Probe, request: ProbeRequest) -> Response {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    probe.send(&Control::Request { number, request });
    probe.until(|line| match line {
        ProbeLine::Response(response) if response.number == number => Some(response.response),
        _ => None,
    })
}

/// A probe with one GPU that lists a process, and that process as the probe identifies it.
fn probe_with(pid: u32) -> (Node, Probe, ProcessRef) {
    let node = Node::new(&json!({"gpus": [{"uuid": "GPU-a", "processes": [{"pid": pid, "mem_mib": 1}]}]}));
    let mut probe = node.start(&[]);
    let list = probe.processes(|list| !list.processes.is_empty());
    let started_ms = *list.processes[0].facts.started_ms.value().unwrap();
    (node, probe, ProcessRef { pid, started_ms })
}

fn detail(probe: &mut Probe, process: ProcessRef, environment: bool) -> ProcessDetail {
    match request(probe, ProbeRequest::Process { process, environment }) {
        Response::Process(detail) => *detail,
        response => panic!("{response:?}"),
    }
}

fn tail(probe: &mut Probe, path: &str, after: u64) -> Tail {
    match request(probe, ProbeRequest::Tail { path: path.to_owned(), after, audience: Audience::Owner }) {
        Response::Tail(tail) => tail,
        response => panic!("{response:?}"),
    }
}

#[test]
fn process_details_contain_relatives_and_no_secrets() {
    let job = Waiting::shell("sleep 600 & read x; :");
    let (_node, mut probe, process) = probe_with(job.0.id());
    let found = detail(&mut probe, process, true);
    let ancestors: Vec<u32> = found.ancestors.iter().map(|ancestor| ancestor.pid).collect();
    assert_eq!(ancestors[ancestors.len() - 2..], [std::process::id(), job.0.id()]);
    assert!(
        found.descendants.iter().any(|descendant| descendant.command.as_str() == "sleep 600"),
        "{:?}",
        found.descendants
    );
    let args = found.args.value().unwrap().as_str();
    assert!(args.contains("--api-key") && !args.contains("hunter2"), "{args}");
    let token =
        found.environment.value().unwrap().iter().find(|one| one.name.as_str() == "MY_TOKEN").unwrap();
    assert!(!token.value.as_str().contains("hunter2"));
    assert!(found.cwd.value().is_some() && found.exe.value().is_some() && found.open_files.value().is_some());
    assert_eq!(detail(&mut probe, process, false).environment, Reading::NotYet);
    for descendant in &found.descendants {
        let _ = Command::new("kill").arg(descendant.pid.to_string()).status();
    }
}

#[test]
fn a_signal_never_reaches_a_reused_pid() {
    let mut job = Waiting::shell("read x; :");
    let (_node, mut probe, process) = probe_with(job.0.id());
    let earlier = ProcessRef { started_ms: process.started_ms - 10, ..process };
    let response = request(&mut probe, ProbeRequest::Signal { process: earlier, signal: Signal::Kill });
    assert_eq!(response, Response::Refused("there is no such process any more".into()));
    assert!(job.0.try_wait().unwrap().is_none());
    let response = request(&mut probe, ProbeRequest::Signal { process, signal: Signal::Terminate });
    assert!(matches!(&response, Response::Done(what) if what.as_str().contains("SIGTERM")), "{response:?}");
    assert_eq!(job.0.wait().unwrap().signal(), Some(15));
    let response = request(&mut probe, ProbeRequest::Signal { process, signal: Signal::Kill });
    assert_eq!(response, Response::Refused("there is no such process any more".into()));
}

#[test]
fn neither_the_probe_nor_pid_1_can_be_signalled() {
    let job = Waiting::shell("read x; :");
    let (_node, mut probe, _) = probe_with(job.0.id());
    for pid in [0, 1, probe.pid(), u32::MAX] {
        let process = ProcessRef { pid, started_ms: 0 };
        let response = request(&mut probe, ProbeRequest::Signal { process, signal: Signal::Kill });
        assert!(matches!(response, Response::Refused(_)), "{response:?}");
    }
    probe.sample(|_| true);
}

#[test]
fn a_zombie_is_reported_as_such() {
    let mut job = Waiting::shell("read x; :");
    let (_node, mut probe, process) = probe_with(job.0.id());
    // It remains a zombie until the test is over.
    drop(job.0.stdin.take());
    probe.until(|line| {
        let now = match line {
            ProbeLine::Processes(list) => list.processes.into_iter().map(|process| process.now).collect(),
            ProbeLine::ProcessReadings(readings) => readings.now,
            _ => Vec::new(),
        };
        now.first().filter(|now| now.state == Reading::Value(ProcessState::Zombie as u64)).map(|_| ())
    });
    let response = request(&mut probe, ProbeRequest::Signal { process, signal: Signal::Kill });
    assert!(
        matches!(&response, Response::Refused(why) if why.as_str().contains("ended already")),
        "{response:?}"
    );
}

#[test]
fn rank_step_and_image_are_read_again_after_exec() {
    let mut command = Command::new("sh");
    command.args(["-c", "read x; RANK=5 LOCAL_RANK=1 WORLD_SIZE=8 exec sh -c 'read y; :'"]);
    command.env("SLURM_JOB_ID", "31").env("SLURM_STEP_ID", "2").env("SLURM_PROCID", "0").env_remove("RANK");
    command.env("APPTAINER_CONTAINER", "/images/torch.sif");
    let mut job = Waiting::new(&mut command);
    let (_node, mut probe, _) = probe_with(job.0.id());
    let facts = probe.processes(|list| list.processes[0].facts.rank.is_some()).processes.remove(0).facts;
    assert_eq!((facts.step.map(|step| step.to_string()), facts.rank.unwrap().global), (Some("2".into()), 0));
    let image = Container { runtime: Runtime::Apptainer, name: Some("torch.sif".into()) };
    assert_eq!(facts.container, Some(image));
    std::io::Write::write_all(job.0.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let list = probe.processes(|list| list.processes[0].facts.rank.is_some_and(|rank| rank.global == 5));
    let rank = list.processes[0].facts.rank.unwrap();
    assert_eq!((rank.local, rank.world), (Some(1), Some(8)));
}

#[test]
fn cpu_utilization_of_a_process_is_sent_without_a_new_list() {
    let job = Waiting::new(Command::new("sh").args(["-c", "while :; do :; done"]).process_group(0));
    let (_node, mut probe, _) = probe_with(job.0.id());
    let now = probe.until(|line| match line {
        ProbeLine::ProcessReadings(readings) => {
            readings.now.into_iter().find(|now| now.cpu_pct.value().is_some())
        }
        _ => None,
    });
    assert!(*now.cpu_pct.value().unwrap() > 0);
    assert!(*now.rss_bytes.value().unwrap() > 0 && now.threads == Reading::Value(1));
}

#[test]
fn a_log_is_followed_with_its_progress_bar_and_its_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("job.out");
    let path = log.to_str().unwrap();
    let node = Node::new(&json!({"gpus": []}));
    let mut probe = node.start(&[]);
    fs::write(&log, "\x1b[1mepoch 1\x1b[0m\n 10%|#  |\r 50%|## |").unwrap();
    let first = tail(&mut probe, path, 0);
    assert_eq!(first.lines.iter().map(|line| line.as_str()).collect::<Vec<_>>(), ["epoch 1"]);
    assert_eq!(first.partial.unwrap().as_str(), " 50%|## |");
    let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
    std::io::Write::write_all(&mut file, b"\r100%|###|\n").unwrap();
    let second = tail(&mut probe, path, first.end);
    assert_eq!(second.lines.iter().map(|line| line.as_str()).collect::<Vec<_>>(), ["100%|###|"]);
    fs::rename(&log, folder.path().join("job.out.1")).unwrap();
    assert!(tail(&mut probe, path, second.end).error.unwrap().as_str().starts_with("no such file"));
    fs::write(&log, "a new file that is longer than the one before it was, so that only its inode differs\n")
        .unwrap();
    let third = tail(&mut probe, path, second.end);
    assert!(third.restarted && third.lines.len() == 1);
}

#[test]
fn a_pipe_in_place_of_a_log_blocks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("job.out");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let node = Node::new(&json!({"gpus": []}));
    let mut probe = node.start(&[]);
    let began = Instant::now();
    for _ in 0..8 {
        assert!(tail(&mut probe, pipe.to_str().unwrap(), 0).error.unwrap().as_str().contains("a pipe"));
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    probe.sample(|_| true);
}

#[test]
fn t09_for_a_guest_the_probe_reads_no_file_that_may_be_another_than_the_jobs_log() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let log = folder.join("job.out");
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let node = Node::new(&json!({"gpus": []}));
    let mut probe = node.start(&[]);
    let mut tail = |since_s| {
        let path = log.to_str().unwrap().to_owned();
        match request(
            &mut probe,
            ProbeRequest::Tail { path, after: 0, audience: Audience::Guest { since_s } },
        ) {
            Response::Tail(tail) => tail,
            response => panic!("{response:?}"),
        }
    };
    fs::write(&log, "epoch 1\n").unwrap();
    assert_eq!(tail(now_s).lines.len(), 1);
    let refused = tail(now_s + 1_000);
    assert!(refused.lines.is_empty() && refused.error.unwrap().as_str().contains("older than the job"));
    fs::hard_link(&log, folder.join("other")).unwrap();
    let refused = tail(now_s);
    assert!(refused.lines.is_empty() && refused.error.unwrap().as_str().contains("several names"));
}
