//! A probe never outlives its reader.

use crate::harness::{Node, Probe};
use nodeglass_protocol::probe::{Control, ProbeLine};
use serde_json::json;

fn node() -> Node {
    Node::new(&json!({"gpus": [{}]}))
}

/// Enough GPUs to fill a pipe with a few samples.
fn large_node() -> Node {
    Node::new(&json!({"gpus": vec![json!({}); 120]}))
}

#[test]
fn it_exits_when_stdin_closes() {
    let mut probe = node().start(&[]);
    probe.sample(|_| true);
    probe.close_stdin();
    assert_eq!(probe.bye(), "stdin was closed");
    assert!(probe.ended().success());
}

#[test]
fn it_exits_when_stdout_closes() {
    let node = node();
    let mut probe = node.start(&[]);
    probe.sample(|_| true);
    probe.close_stdout();
    let mut unread = Probe::start_unread(node.command());
    unread.close_stdout();
    assert!(unread.ended().success());
}

#[test]
fn it_exits_when_the_relay_is_silent() {
    let mut probe = node().start(&["--silence-ms", "1500"]);
    assert_eq!(probe.bye(), "no message from the relay");
    assert!(probe.ended().success());
}

#[test]
fn pings_keep_it_alive_and_invalid_lines_do_not() {
    let mut probe = node().start(&["--silence-ms", "3000"]);
    let mut samples = 0;
    while samples < 10 {
        probe.send(&Control::Ping);
        match probe.line() {
            ProbeLine::Sample(_) => samples += 1,
            ProbeLine::Bye(bye) => panic!("{}", bye.reason),
            _ => {}
        }
    }
    let bye = probe.until(|line| match line {
        ProbeLine::Bye(bye) => Some(bye),
        _ => None,
    });
    assert_eq!(bye.reason.as_str(), "no message from the relay");
}

#[test]
fn it_exits_on_stop() {
    let mut probe = node().start(&[]);
    probe.send(&Control::Stop);
    assert_eq!(probe.bye(), "stopped by the relay");
    assert!(probe.ended().success());
}

#[test]
fn it_exits_cleanly_on_a_signal() {
    let mut probe = node().start(&[]);
    probe.sample(|_| true);
    let pid = rustix::process::Pid::from_raw(probe.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(probe.bye(), "ended by a signal");
    assert!(probe.ended().success());
}

#[test]
fn a_blocked_pipe_does_not_keep_it_from_exiting() {
    let mut command = large_node().command();
    command.args(["--silence-ms", "4000"]);
    let mut probe = Probe::start_unread(command);
    assert!(probe.ended().success());
}

#[test]
fn only_the_newest_list_follows_a_blocked_pipe() {
    const GPUS: usize = 8;
    /// Per query: one for the length of each GPU's list, and one for the list.
    const CALLS: usize = 2 * GPUS;
    // Each list has different processes and takes 800 kB.
    let crowd = |round: u32| {
        let processes: Vec<_> = (0..400).map(|pid| json!({"pid": 2_000_000 + round * 400 + pid})).collect();
        json!({"gpus": vec![json!({"processes": processes}); GPUS]})
    };
    let node = Node::new(&crowd(0));
    let mut command = node.logged_command();
    command.args(["--retry-ms", "100", "--silence-ms", "60000"]);
    let mut probe = Probe::start_unread(command);
    probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
    // Four more lists, each of which would wait. The probe queries them every 1.9 s.
    let list = "nvmlDeviceGetComputeRunningProcesses";
    let mut calls = node.wait_for_calls(list, 0);
    for round in 1..=4 {
        node.set(&crowd(round));
        // The calls that are left of this query return some of the new processes.
        calls = node.wait_for_calls(list, calls + CALLS);
    }
    // The newest list is complete once another one is queried.
    node.wait_for_calls(list, calls + CALLS);
    let (mut lists, mut last_ns) = (0, 0);
    for line in probe.read_raw() {
        if let Some(list) = line.get("processes") {
            lists += 1;
            let at_ns = list["mono_ns"].as_u64().unwrap();
            assert!(at_ns > last_ns);
            last_ns = at_ns;
            if list["processes"][0]["facts"]["pid"] == 2_001_600 {
                break;
            }
        }
    }
    // The first, the one that was being written, and the newest.
    assert!(lists <= 3, "{lists} lists waited");
}

#[test]
fn f29_it_exits_while_a_call_hangs() {
    let node = node();
    let mut probe = node.start(&[]);
    probe.sample(|_| true);
    node.set(&json!({"hang_ms": {"nvmlDeviceGetPowerUsage": 60_000}, "gpus": [{}]}));
    probe.until(|line| match line {
        ProbeLine::Heartbeat(beat) => beat.driver_stuck_ms,
        _ => None,
    });
    probe.send(&Control::Stop);
    assert_eq!(probe.bye(), "stopped by the relay");
    assert!(probe.ended().success());
}

#[test]
fn invalid_lines_are_reported_on_stderr_and_ignored() {
    let mut probe = node().start(&[]);
    for garbage in
        ["rubbish", "{\"interval\":\"soon\"}", "{\"launch\":{}}", "\u{0}\u{1b}[31m", &"x".repeat(300_000)]
    {
        probe.send_line(garbage);
    }
    probe.send(&Control::Interval { ms: 700, phase_ms: 0 });
    probe.sample(|sample| sample.interval_ms == 700);
    probe.send(&Control::Stop);
    assert!(probe.ended().success());
    let stderr = probe.stderr();
    assert!(
        stderr.lines().count() >= 5
            && stderr.lines().all(|line| line.starts_with("node-probe: ignored a control line: ")),
        "{stderr}"
    );
    assert!(!stderr.contains('\u{1b}'));
}

#[test]
fn an_interval_out_of_bounds_is_clamped() {
    let mut probe = node().start(&[]);
    probe.send(&Control::Interval { ms: 1, phase_ms: 0 });
    probe.sample(|sample| sample.interval_ms == 500);
    probe.send(&Control::Interval { ms: u32::MAX, phase_ms: 0 });
    // The next sample is a minute away: until then heartbeats show that the probe is alive.
    probe.until(|line| {
        matches!(line, ProbeLine::Heartbeat(beat) if beat.driver_stuck_ms.is_none()).then_some(())
    });
}
