//! A probe captures what a job's processes do, and survives a py-spy that hangs, fails or never stops printing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's own machinery fails as its test does")]

use crate::harness::{Node, Probe};
use nodeglass_protocol::capture::{CaptureRequest, Frame, ProcessCapture, StackReader, ThreadState};
use nodeglass_protocol::probe::{Control, ProbeLine};
use nodeglass_protocol::request::{ProbeRequest, ProcessRef, Response};
use nodeglass_protocol::{JobId, Reading};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

/// A sleeping process of this name, which a probe takes for Python.
struct Python(Child);

impl Python {
    fn new(folder: &Path) -> Self {
        let program = folder.join("python3");
        copy(Path::new("/bin/sleep"), &program);
        let mut command = Command::new(program);
        Self(command.arg("600").env("RANK", "5").env("MY_TOKEN", "hunter2").spawn().unwrap())
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies a program. Not in this process: what other tests start meanwhile inherits the open file, which cannot be
/// executed then.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// A shell script as py-spy.
fn py_spy(folder: &Path, script: &str) -> PathBuf {
    let (text, path) = (folder.join("script"), folder.join("py-spy"));
    fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    copy(&text, &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A node on which a process runs on a GPU, and its probe.
struct Scene {
    folder: tempfile::TempDir,
    _node: Node,
    probe: Probe,
    process: ProcessRef,
    _python: Python,
}

impl Scene {
    /// With this script as the py-spy on the probe's `PATH`.
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let python = Python::new(folder.path());
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        py_spy(&bin, script);
        let pid = python.0.id();
        let node =
            Node::new(&json!({"gpus": [{"uuid": "GPU-a", "processes": [{"pid": pid, "mem_mib": 1}]}]}));
        let mut command = node.command();
        command.args(["--retry-ms", "100"]).env("PATH", &bin).env("HOME", folder.path());
        let mut probe = Probe::start(command);
        probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
        let list = probe.processes(|list| !list.processes.is_empty());
        let started_ms = *list.processes[0].facts.started_ms.value().unwrap();
        Self { folder, _node: node, probe, process: ProcessRef { pid, started_ms }, _python: python }
    }

    fn capture(&mut self, processes: Vec<ProcessRef>, stacks: StackReader) -> Vec<ProcessCapture> {
        let request = ProbeRequest::Capture(CaptureRequest { job: JobId(17), processes, stacks });
        self.probe.send(&Control::Request { number: 1, request });
        let response = self.probe.until(|line| match line {
            ProbeLine::Response(response) => Some(response.response),
            _ => None,
        });
        match response {
            Response::Capture(capture) => capture.processes,
            other => panic!("{other:?}"),
        }
    }

    /// The only process, and how long its capture took.
    fn captured(&mut self) -> (ProcessCapture, Duration) {
        let began = Instant::now();
        let mut processes = self.capture(vec![self.process], StackReader::OnPath);
        assert_eq!(processes.len(), 1);
        (processes.remove(0), began.elapsed())
    }
}

fn why(captured: &ProcessCapture) -> &str {
    match &captured.stack {
        Reading::Failed(why) => why.as_str(),
        other => panic!("{other:?}"),
    }
}

const DUMP: &str = r#"cat <<END
[{"pid": $5, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": $5, "active": false, "owns_gil": false,
  "frames": [{"name": "all_reduce", "filename": "/e/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
              "module": null, "short_filename": "distributed_c10d.py", "line": 2501, "locals": null}]}]
END"#;

#[test]
fn a_capture_has_wait_channel_threads_and_python_stack_of_exactly_the_process() {
    // The shell has no `cat` on this `PATH`.
    let mut scene = Scene::new(&DUMP.replace("cat <<", "/bin/cat <<"));
    let (captured, _) = scene.captured();
    assert_eq!(
        (captured.command.as_str(), captured.rank, captured.state),
        ("python3", Some(5), ThreadState::Sleeping)
    );
    let frame = Frame {
        function: "all_reduce".into(),
        file: "/e/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py".into(),
        line: 2_501,
    };
    assert_eq!(captured.stack, Reading::Value(vec![frame]));
    assert_eq!(captured.threads[0].count, 1);
    assert!(matches!(&captured.system_call, Reading::Value(call) if call.as_str().ends_with("nanosleep")));
    let printed = serde_json::to_string(&captured).unwrap();
    assert!(!printed.contains("hunter2"));
    let earlier = ProcessRef { started_ms: scene.process.started_ms - 10, ..scene.process };
    let init = ProcessRef { pid: 1, started_ms: 1 };
    let refused = scene.capture(vec![earlier, init], StackReader::OnPath);
    assert!(refused.iter().all(|one| one.refused.is_some() && one.stack == Reading::NotYet), "{refused:?}");
    let off = scene.capture(vec![scene.process], StackReader::Off);
    assert_eq!(off[0].stack, Reading::NotYet);
}

#[test]
fn a_py_spy_that_hangs_is_ended_and_samples_go_on() {
    let mut scene = Scene::new("/bin/sleep 600 & /bin/sleep 600");
    let began = Instant::now();
    let request = ProbeRequest::Capture(CaptureRequest {
        job: JobId(17),
        processes: vec![scene.process],
        stacks: StackReader::OnPath,
    });
    scene.probe.send(&Control::Request { number: 1, request });
    let mut samples = 0;
    let response = scene.probe.until(|line| match line {
        ProbeLine::Sample(_) => {
            samples += 1;
            None
        }
        ProbeLine::Response(response) => Some(response.response),
        _ => None,
    });
    let Response::Capture(capture) = response else { panic!("{response:?}") };
    assert_eq!(why(&capture.processes[0]), "py-spy did not exit within 5 s");
    assert!(capture.processes[0].wait_channel != Reading::NotYet, "the rest is complete");
    assert!(samples >= 5 && began.elapsed() < Duration::from_secs(20), "{samples} samples");
}

#[test]
fn a_py_spy_that_prints_garbage_or_without_end_fails_alone() {
    let mut scene = Scene::new("echo 'Python v3.11'");
    assert_eq!(why(&scene.captured().0), "py-spy printed something else than stacks");
    let bin = scene.folder.path().join("bin");
    py_spy(&bin, "exec /usr/bin/head -c 100000000 /dev/zero");
    assert_eq!(why(&scene.captured().0), "py-spy printed more than 4 MiB");
    py_spy(&bin, "echo 'Error: Permission Denied' >&2; exit 1");
    assert_eq!(why(&scene.captured().0), "py-spy failed: Error: Permission Denied");
    let (captured, took) = {
        fs::remove_file(bin.join("py-spy")).unwrap();
        scene.captured()
    };
    assert!(why(&captured).contains("not on the PATH"), "{:?}", captured.stack);
    assert!(took < Duration::from_secs(5));
    let elsewhere = py_spy(scene.folder.path(), &DUMP.replace("cat <<", "/bin/cat <<"));
    let found = scene.capture(vec![scene.process], StackReader::At(elsewhere.display().to_string()));
    assert!(found[0].stack.value().is_some(), "{:?}", found[0].stack);
}
