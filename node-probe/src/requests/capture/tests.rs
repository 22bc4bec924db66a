//! Processes of this machine, of other users and in a made-up `/proc` are captured as far as they may be.

use super::*;
use crate::process;
use std::process::{Child, Command};

/// A process that sleeps until it is dropped.
struct Sleeping(Child);

impl Sleeping {
    fn new(program: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("600").env("RANK", "3").env("SLURM_JOB_ID", "4711");
        Self(command.spawn().unwrap())
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reader(proc: &Path, own_uid: u32) -> ProcReader {
    ProcReader { proc: proc.into(), boot_ms: process::boot_ms(), own_uid }
}

fn own_reader() -> ProcReader {
    reader(Path::new("/proc"), rustix::process::geteuid().as_raw())
}

fn of(pid: u32) -> ProcessRef {
    let stat = Stat::of(Path::new("/proc"), pid).unwrap();
    ProcessRef { pid, started_ms: stat::started_ms(process::boot_ms().unwrap(), stat.started_ticks) }
}

fn capture(reader: &ProcReader, processes: Vec<ProcessRef>, stacks: StackReader) -> Vec<ProcessCapture> {
    let request = CaptureRequest { job: JobId(4_711), processes, stacks };
    match reader.capture(&Arc::default(), request) {
        Response::Capture(capture) => capture.processes,
        other => unreachable!("{other:?}"),
    }
}

/// Waits until a process has executed its program and sleeps.
fn asleep(pid: u32) -> ProcessRef {
    let waits = || threads::system_call(Path::new(&format!("/proc/{pid}")));
    let until = Instant::now() + Duration::from_secs(10);
    while waits().value().is_none_or(|call| !call.as_str().contains("nanosleep")) {
        assert!(Instant::now() < until, "{:?}", waits());
        thread::sleep(Duration::from_millis(5));
    }
    of(pid)
}

#[test]
fn a_sleeping_process_is_captured_with_its_wait_and_its_rank() {
    let sleeping = Sleeping::new(Path::new("/bin/sleep"));
    let process = asleep(sleeping.0.id());
    let captured = capture(&own_reader(), vec![process], StackReader::OnPath).remove(0);
    assert_eq!((captured.refused, captured.rank), (None, Some(3)));
    assert_eq!((captured.state, captured.command.as_str()), (ThreadState::Sleeping, "sleep"));
    assert!(captured.args.value().unwrap().as_str().ends_with("sleep 600"));
    assert_eq!(captured.threads.len(), 1);
    assert_eq!(captured.connections, Reading::Value(0));
    assert!(captured.voluntary_switches.value().is_some());
    assert_eq!(captured.stack, Reading::NotYet, "it is no Python");
}

#[test]
fn a_reused_pid_is_not_captured() {
    let sleeping = Sleeping::new(Path::new("/bin/sleep"));
    let process = of(sleeping.0.id());
    let earlier = ProcessRef { started_ms: process.started_ms - 10, ..process };
    let captured = capture(&own_reader(), vec![earlier], StackReader::Off).remove(0);
    assert_eq!((captured.refused, captured.command.as_str()), (Some(GONE.into()), ""));
}

#[test]
fn another_users_process_is_not_captured() {
    let sleeping = Sleeping::new(Path::new("/bin/sleep"));
    let process = of(sleeping.0.id());
    let stranger = reader(Path::new("/proc"), 3_999_999);
    let captured = capture(&stranger, vec![process], StackReader::OnPath).remove(0);
    assert_eq!(captured.refused, Some("it belongs to another user".into()));
    assert_eq!((captured.args, captured.wait_channel), (Reading::NotYet, Reading::NotYet));
    assert!(stranger.of_job(JobId(4_711)).0.is_empty());
}

#[test]
fn without_named_processes_those_of_the_job_are_captured() {
    let sleeping = Sleeping::new(Path::new("/bin/sleep"));
    let process = asleep(sleeping.0.id());
    let found = capture(&own_reader(), Vec::new(), StackReader::Off);
    assert!(found.iter().any(|captured| captured.pid == process.pid), "{found:?}");
    assert!(found.len() <= MAX_SELECTED);
    assert!(own_reader().of_job(JobId(4_712)).0.is_empty());
}

#[test]
fn a_process_that_cannot_be_interrupted_is_captured_without_what_may_wait_with_it() {
    let proc = tempfile::tempdir().unwrap();
    let folder = proc.path().join("7");
    fs::create_dir_all(folder.join("task/7")).unwrap();
    fs::create_dir_all(folder.join("fd")).unwrap();
    let stat = format!("7 (python3) D 1 {}", vec!["0"; 48].join(" "));
    let own_uid = rustix::process::geteuid().as_raw();
    let status =
        format!("Name:\tpython3\nState:\tD (disk sleep)\nUid:\t{own_uid}\t{own_uid}\t{own_uid}\t{own_uid}\n");
    for (name, text) in [
        ("stat", stat.as_str()),
        ("task/7/stat", &stat),
        ("status", &status),
        ("wchan", "nfs_wait_bit_killable"),
        ("cmdline", "python3\0--api-key\0hunter2\0"),
        ("environ", "RANK=3\0"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    let reader = reader(proc.path(), own_uid);
    let process = ProcessRef { pid: 7, started_ms: process::boot_ms().unwrap() };
    let captured = capture(&reader, vec![process], StackReader::OnPath).remove(0);
    assert_eq!(captured.state, ThreadState::Uninterruptible);
    assert_eq!(captured.wait_channel, Reading::Value("nfs_wait_bit_killable".into()));
    assert_eq!((captured.args, captured.rank), (Reading::NotYet, None));
    assert!(matches!(captured.stack, Reading::Failed(why) if why.as_str().contains("cannot be interrupted")));
}

#[test]
fn more_processes_than_fit_are_counted() {
    let none = ProcessRef { pid: 1, started_ms: 1 };
    let request =
        CaptureRequest { job: JobId(1), processes: vec![none; MAX_PROCESSES + 5], stacks: StackReader::Off };
    let Response::Capture(capture) = own_reader().capture(&Arc::default(), request) else { unreachable!() };
    assert_eq!((capture.processes.len(), capture.omitted), (MAX_PROCESSES, 5));
}
