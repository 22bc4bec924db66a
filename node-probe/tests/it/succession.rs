//! After a broken link the next probe continues the stream, and missed samples are replayed.

use crate::harness::{Node, Probe};
use nodeglass_protocol::probe::{Control, ProbeLine, Sample};
use serde_json::json;

fn relay_id() -> String {
    format!("{:032x}", node_probe::clock::mono_ns() ^ (u64::from(std::process::id()) << 40))
}

fn node() -> Node {
    Node::new(&json!({"gpus": [{"util": 5}]}))
}

fn replayed(probe: &mut Probe, until_seq: u64) -> Vec<Sample> {
    let mut found = Vec::new();
    probe.until(|line| {
        if let ProbeLine::Sample(sample) = line
            && sample.replay
        {
            found.push(*sample);
        }
        found.last().is_some_and(|sample| sample.seq >= until_seq).then_some(())
    });
    found
}

/// The samples after `seq` arrived without a gap; the first may be the full sample before it.
fn assert_all_after(seq: u64, numbers: &[u64]) {
    assert!(numbers[0] <= seq + 1, "{numbers:?}");
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn the_next_probe_continues_the_stream_and_the_old_one_exits() {
    let (node, relay) = (node(), relay_id());
    let mut old = node.start(&["--relay", &relay]);
    let stream = old.hello(|_| true).stream;
    old.sample(|sample| sample.seq == 4);
    let mut new = node.start(&["--relay", &relay]);
    assert_eq!(old.bye(), "a newer probe took over");
    assert!(old.ended().success());
    assert_eq!(new.hello(|_| true).stream, stream);
    let first = new.sample(|_| true);
    assert!(first.seq >= 5, "{}", first.seq);
    new.send(&Control::Backfill { stream, after_seq: 1 });
    let numbers: Vec<_> = replayed(&mut new, first.seq - 1).iter().map(|sample| sample.seq).collect();
    assert_all_after(1, &numbers);
    // And a third one after the second.
    let mut third = node.start(&["--relay", &relay]);
    assert_eq!(new.bye(), "a newer probe took over");
    assert_eq!(third.hello(|_| true).stream, stream);
}

#[test]
fn a_probe_without_a_link_waits_for_its_successor() {
    let (node, relay) = (node(), relay_id());
    let mut old = node.start(&["--relay", &relay]);
    let stream = old.hello(|_| true).stream;
    old.sample(|sample| sample.seq == 2);
    old.close_stdin();
    let mut new = node.start(&["--relay", &relay]);
    assert!(old.ended().success());
    assert_eq!(new.hello(|_| true).stream, stream);
    // Without a successor it exits by itself.
    new.close_stdin();
    assert_eq!(new.bye(), "stdin was closed");
}

#[test]
fn a_probe_with_a_blocked_pipe_still_hands_over() {
    let relay = relay_id();
    // Measuring PCIe traffic of this many GPUs would take longer than an interval.
    let gpu = json!({"pcie": {"measure_ms": 0}});
    let node = Node::new(&json!({"gpus": vec![gpu; 120]}));
    let mut command = node.command();
    command.args(["--relay", &relay]);
    let mut old = Probe::start_unread(command);
    old.send(&Control::Interval { ms: 500, phase_ms: 0 });
    old.wait_until_blocked();
    // Four intervals, in which it samples on: its ring cannot be observed from outside before the handover.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let mut new = node.start(&["--relay", &relay]);
    let stream = new.hello(|_| true).stream;
    assert!(old.ended().success());
    let first = new.sample(|_| true);
    assert!(first.seq > 3, "samples continue while the pipe is blocked: {}", first.seq);
    new.send(&Control::Backfill { stream, after_seq: 0 });
    assert_eq!(replayed(&mut new, first.seq - 1)[0].seq, 1);
}

#[test]
fn probes_of_different_relays_do_not_take_over() {
    let node = node();
    let mut one = node.start(&["--relay", &relay_id()]);
    one.sample(|_| true);
    let mut other = node.start(&["--relay", &relay_id()]);
    let mut nobody_s = node.start(&[]);
    assert_ne!(one.pid(), other.pid());
    let streams = [other.hello(|_| true).stream, nobody_s.hello(|_| true).stream];
    assert_ne!(streams[0], streams[1]);
    let last = one.sample(|_| true).seq;
    one.sample(|sample| sample.seq > last + 1);
}

#[test]
fn missed_samples_are_replayed_oldest_first_and_marked() {
    let mut probe = node().start(&[]);
    let stream = probe.hello(|_| true).stream;
    probe.sample(|sample| sample.seq == 5);
    probe.send(&Control::Backfill { stream, after_seq: 2 });
    let numbers: Vec<_> = replayed(&mut probe, 5).iter().map(|sample| sample.seq).collect();
    assert_all_after(2, &numbers);
}

#[test]
fn another_stream_is_not_replayed() {
    let mut probe = node().start(&[]);
    let stream = probe.hello(|_| true).stream;
    probe.sample(|sample| sample.seq == 3);
    probe.send(&Control::Backfill { stream: stream ^ 1, after_seq: 0 });
    let next = probe.sample(|sample| sample.seq > 5);
    assert!(!next.replay);
}

#[test]
fn an_invalid_relay_id_is_rejected() {
    let output = node().command().args(["--relay", "../../x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("a relay id is 1 to 64 hex digits"));
}
