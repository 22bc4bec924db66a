//! A sample of one GPU notifies one subscriber, and missed deltas are requested again.

use super::*;
use leptos::prelude::{ImmediateEffect, Owner, Track};
use nodeglass_protocol::field::NamedCells;
use nodeglass_protocol::live::{Mode, NodeReadings, Readings, Role, RowReadings, Snapshot};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::version::LIVE_WIRE;
use nodeglass_protocol::{Cell, GpuField, GpuUuid, NodeName, Picture};
use std::sync::atomic::AtomicUsize;

fn node(name: &str, gpus: usize) -> NodePicture {
    let mut node = NodePicture::new(NodeName::new(name).unwrap());
    for index in 0..gpus {
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new(format!("GPU-{name}-{index}"));
        node.gpus.push(gpu);
    }
    node
}

fn snapshot(topic: Topic, names: &[&str]) -> ServerMessage {
    let nodes = names.iter().map(|name| node(name, 2)).collect();
    let picture = Picture { at_ms: 5_000, nodes, ..Picture::default() };
    ServerMessage::Snapshot(Box::new(Snapshot { topic, number: 1, seq: 10, picture }))
}

fn delta(seq: u32, changes: Vec<Change>) -> ServerMessage {
    ServerMessage::Delta(Delta { topic: 1, seq, elapsed_ms: 1_000, changes })
}

fn histories(node: u32, past: nodeglass_protocol::picture::History) -> ServerMessage {
    ServerMessage::Histories(nodeglass_protocol::live::Histories { topic: 1, nodes: vec![(node, past)] })
}

fn util(node: u32, gpu: u32, percent: u32) -> Change {
    let cells = NamedCells(vec![(GpuField::Util, Cell::steps(percent))]);
    let rows = vec![RowReadings::Gpu { gpu, cells }];
    Change::Readings(Readings::Plain(vec![NodeReadings { node, age_ms: 0, rows }]))
}

fn fleet() -> FleetStore {
    let fleet = FleetStore::default();
    assert!(fleet.receive(snapshot(Topic::Overview, &["n1", "n2"]), 0.0).is_none());
    fleet
}

fn gpu_cell(store: &TopicStore, name: &str, index: usize) -> (NodeSignals, GpuSignals) {
    let node = store.cell(&NodeName::new(name).unwrap()).unwrap();
    let gpu = node.gpus().get_untracked()[index].clone();
    (node, gpu)
}

/// An effect that counts its runs and stores the last utilisation.
fn watch(
    store: &TopicStore,
    name: &str,
    index: usize,
) -> (ImmediateEffect, Arc<AtomicUsize>, Arc<Mutex<Option<u64>>>) {
    let (runs, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let (node, gpu) = gpu_cell(store, name, index);
    let effect = ImmediateEffect::new({
        let (store, runs, seen) = (store.clone(), runs.clone(), seen.clone());
        move || {
            runs.fetch_add(1, Relaxed);
            *seen.lock().unwrap() = store.gpu(&node, &gpu, |gpu| gpu.row.value(GpuField::Util)).flatten();
        }
    });
    (effect, runs, seen)
}

#[test]
fn a_change_of_one_gpu_notifies_only_its_subscriber() {
    Owner::new().with(|| {
        let fleet = fleet();
        let (_one, one_runs, one_seen) = watch(fleet.overview(), "n2", 1);
        let (_other, other_runs, _) = watch(fleet.overview(), "n2", 0);
        fleet.receive(delta(11, vec![util(1, 1, 97)]), 1_000.0);
        fleet.flush();
        assert_eq!((one_runs.load(Relaxed), *one_seen.lock().unwrap()), (2, Some(97)));
        assert_eq!(other_runs.load(Relaxed), 1);
    });
}

#[test]
fn several_deltas_in_one_frame_notify_once() {
    Owner::new().with(|| {
        let fleet = fleet();
        let (_effect, runs, seen) = watch(fleet.overview(), "n1", 0);
        assert!(fleet.request_frame());
        fleet.receive(delta(11, vec![util(0, 0, 10)]), 1_000.0);
        assert!(!fleet.request_frame());
        fleet.receive(delta(12, vec![util(0, 0, 20)]), 1_001.0);
        assert_eq!(runs.load(Relaxed), 1);
        fleet.flush();
        assert_eq!((runs.load(Relaxed), *seen.lock().unwrap()), (2, Some(20)));
        assert!(fleet.request_frame());
    });
}

#[test]
fn a_frame_with_new_data_ticks_and_many_frames_tick_once() {
    Owner::new().with(|| {
        let fleet = fleet();
        let seconds = || fleet.second().get_untracked();
        fleet.frame(10_000.0);
        assert_eq!(seconds(), 1);
        [10_016.0, 10_200.0, 10_600.0].into_iter().for_each(|at_ms| _ = fleet.frame(at_ms));
        assert_eq!(seconds(), 1);
        fleet.frame(10_990.0);
        assert_eq!((seconds(), fleet.since_tick_ms(11_000.0)), (2, 10.0));
    });
}

#[test]
fn structural_changes_tick_early_but_not_too_often() {
    Owner::new().with(|| {
        let fleet = fleet();
        let seconds = || fleet.second().get_untracked();
        let late = |seq| delta(seq, vec![Change::Head { node: 0, head: Box::default() }]);
        fleet.frame(10_000.0);
        fleet.receive(delta(11, vec![util(0, 0, 30)]), 10_300.0);
        fleet.frame(10_300.0);
        assert_eq!(seconds(), 1);
        fleet.receive(late(12), 10_320.0);
        fleet.frame(10_320.0);
        assert_eq!(seconds(), 2);
        fleet.receive(late(13), 10_400.0);
        assert_eq!([10_400.0, 10_500.0].map(|at_ms| fleet.frame(at_ms)), [Some(120), Some(20)]);
        assert_eq!(seconds(), 2);
        assert_eq!([10_520.0, 10_800.0].map(|at_ms| fleet.frame(at_ms)), [None, None]);
        assert_eq!(seconds(), 3);
    });
}

#[test]
fn polling_lists_are_notified_once_per_frame() {
    Owner::new().with(|| {
        let fleet = fleet();
        let store = fleet.overview().clone();
        let (one, two) = (gpu_cell(&store, "n1", 0), gpu_cell(&store, "n2", 1));
        let runs = Arc::new(AtomicUsize::new(0));
        let _effect = ImmediateEffect::new({
            let (store, runs) = (store.clone(), runs.clone());
            move || {
                store.changed().track();
                runs.fetch_add(1, Relaxed);
            }
        });
        let before = (one.1.row().count(), two.1.row().count());
        fleet.receive(delta(11, vec![util(1, 0, 1), util(1, 1, 97)]), 1_000.0);
        fleet.flush();
        assert_eq!(runs.load(Relaxed), 2);
        assert_eq!((one.1.row().count(), two.1.row().count()), (before.0, before.1 + 1));
        fleet.flush();
        assert_eq!(runs.load(Relaxed), 2);
    });
}

#[test]
fn a_missed_delta_requests_one_snapshot() {
    Owner::new().with(|| {
        let fleet = fleet();
        let reply = fleet.receive(delta(12, vec![util(0, 0, 10)]), 1_000.0);
        assert!(matches!(reply, Some(ClientMessage::Resync(Topic::Overview))));
        assert!(fleet.receive(delta(13, vec![util(0, 0, 20)]), 2_000.0).is_none());
        assert!(fleet.receive(snapshot(Topic::Overview, &["n1"]), 3_000.0).is_none());
        assert!(fleet.receive(delta(11, vec![util(0, 0, 30)]), 4_000.0).is_none());
    });
}

#[test]
fn a_delta_that_does_not_apply_requests_a_snapshot() {
    Owner::new().with(|| {
        let fleet = fleet();
        let reply = fleet.receive(delta(11, vec![util(7, 0, 10)]), 1_000.0);
        assert!(matches!(reply, Some(ClientMessage::Resync(Topic::Overview))));
    });
}

#[test]
fn reordered_nodes_keep_their_identity() {
    Owner::new().with(|| {
        let fleet = fleet();
        fleet.receive(delta(11, vec![util(0, 0, 11), util(1, 0, 22)]), 1_000.0);
        fleet.flush();
        let (_effect, _, seen) = watch(fleet.overview(), "n2", 0);
        let names = ["n3", "n2", "n1"].map(|name| NodeName::new(name).unwrap());
        fleet.receive(delta(12, vec![Change::Nodes(names.to_vec())]), 2_000.0);
        fleet.flush();
        assert_eq!(*seen.lock().unwrap(), Some(22));
        fleet.receive(delta(13, vec![util(1, 0, 33)]), 3_000.0);
        fleet.flush();
        assert_eq!(*seen.lock().unwrap(), Some(33));
    });
}

#[test]
fn f13_another_run_of_the_relay_clears_the_state() {
    Owner::new().with(|| {
        let fleet = fleet();
        fleet.on_welcome(welcome(1), 0.0);
        fleet.on_welcome(welcome(1), 10.0);
        assert_eq!(fleet.overview().nodes().with_untracked(Vec::len), 2);
        fleet.on_welcome(welcome(2), 20.0);
        assert_eq!(fleet.overview().nodes().with_untracked(Vec::len), 0);
        assert!(fleet.receive(delta(11, vec![]), 30.0).is_none());
    });
}

#[test]
fn a_lost_connection_stops_the_clock_until_the_next_snapshot() {
    Owner::new().with(|| {
        let fleet = fleet();
        fleet.on_welcome(welcome(1), 0.0);
        fleet.tick(3_000.0);
        let (lost, ticks) = (fleet.shown_ms(), || fleet.second().get_untracked());
        fleet.stop_clock(0.0);
        assert_eq!(fleet.relay_ms(4_000.0), lost + 1_000, "nothing was received yet");
        fleet.stop_clock(3_000.0);
        fleet.tick(60_000.0);
        assert_eq!((fleet.shown_ms(), ticks()), (lost, 2), "ages are still counted");
        fleet.on_welcome(welcome(1), 61_000.0);
        fleet.tick(61_100.0);
        assert_eq!(ticks(), 2, "the old picture is not shown at the new time");
        fleet.receive(snapshot(Topic::Overview, &["n1"]), 61_200.0);
        fleet.tick(61_300.0);
        assert_eq!(ticks(), 3);
    });
}

#[test]
fn deltas_of_a_topic_that_was_left_are_ignored() {
    Owner::new().with(|| {
        let fleet = FleetStore::default();
        fleet.show_detail(Some(Topic::Node(NodeName::new("n1").unwrap())));
        assert_eq!(fleet.topics().len(), 2);
        fleet.receive(snapshot(Topic::Node(NodeName::new("n1").unwrap()), &["n1"]), 0.0);
        fleet.show_detail(None);
        assert_eq!(fleet.topics(), [Topic::Overview]);
        assert!(fleet.receive(delta(99, vec![util(0, 0, 1)]), 1.0).is_none());
    });
}

#[test]
fn a_hidden_page_subscribes_to_less_and_is_not_shown_as_stale_when_visible() {
    Owner::new().with(|| {
        let fleet = FleetStore::default();
        let node = Topic::Node(NodeName::new("n1").unwrap());
        fleet.show_detail(Some(node.clone()));
        fleet.receive(snapshot(node.clone(), &["n1"]), 0.0);
        assert!(
            !fleet.set_notifying(true) && !fleet.set_notifying(false),
            "a visible page subscribes to the same topics either way"
        );
        fleet.suspend();
        assert_eq!(fleet.topics(), []);
        assert!(fleet.set_notifying(true) && !fleet.set_notifying(true));
        assert_eq!(fleet.topics(), [Topic::Overview]);
        // Data that arrives while suspended does not resume the subscription.
        fleet.receive(snapshot(Topic::Overview, &["n1"]), 1_000.0);
        assert_eq!(fleet.topics(), [Topic::Overview]);
        let seconds = || fleet.second().get_untracked();
        fleet.frame(60_000.0);
        assert!(fleet.resume(61_000.0) && !fleet.resume(61_000.0));
        assert_eq!(fleet.topics(), [Topic::Overview, node.clone()]);
        fleet.frame(61_100.0);
        assert_eq!(seconds(), 0);
        fleet.receive(snapshot(node, &["n1"]), 61_200.0);
        fleet.frame(61_210.0);
        assert_eq!(seconds(), 1);
    });
}

#[test]
fn the_overview_resumes_with_its_own_snapshot() {
    Owner::new().with(|| {
        let fleet = FleetStore::default();
        fleet.suspend();
        assert!(fleet.is_suspended() && fleet.resume(60_000.0) && !fleet.is_suspended());
        assert_eq!(fleet.topics(), [Topic::Overview]);
        fleet.tick(60_100.0);
        assert_eq!(fleet.second().get_untracked(), 0);
        fleet.receive(snapshot(Topic::Overview, &["n1"]), 60_200.0);
        fleet.tick(60_300.0);
        assert_eq!(fleet.second().get_untracked(), 1);
    });
}

#[test]
fn a_snapshot_without_history_keeps_that_of_the_same_gpus() {
    Owner::new().with(|| {
        let fleet = fleet();
        let past = || nodeglass_protocol::picture::History::default();
        fleet.receive(histories(0, past()), 500.0);
        fleet.receive(snapshot(Topic::Overview, &["n1", "n2"]), 1_000.0);
        assert_eq!(fleet.overview().read(|picture| picture.nodes[0].history.clone()), Some(past()));
        assert_eq!(fleet.overview().read(|picture| picture.nodes[1].history.clone()), None);
    });
}

#[test]
fn without_a_snapshot_the_page_keeps_its_data() {
    Owner::new().with(|| {
        let fleet = FleetStore::default();
        fleet.show_detail(Some(Topic::Node(NodeName::new("n1").unwrap())));
        fleet.suspend();
        fleet.resume(10_000.0);
        fleet.tick(11_000.0);
        assert_eq!(fleet.second().get_untracked(), 0);
        fleet.tick(12_500.0);
        assert_eq!(fleet.second().get_untracked(), 1);
    });
}

#[test]
fn a_guest_whose_share_ended_has_no_data_left() {
    use nodeglass_protocol::request::{LogStream, Tail};
    let fleet = fleet();
    fleet.on_welcome(welcome(1), 0.0);
    fleet.show_detail(Some(Topic::Node(NodeName::new("n1").unwrap())));
    fleet.receive(snapshot(Topic::Node(NodeName::new("n1").unwrap()), &["n1"]), 0.0);
    let log_ref = LogRef { job: nodeglass_protocol::JobId(17), stream: LogStream::Stdout };
    let log = fleet.follow(&[log_ref]).remove(0);
    fleet.receive(
        ServerMessage::Log { of: log_ref, tail: Tail { lines: vec!["secret".into()], ..Tail::default() } },
        0.0,
    );
    fleet.forget();
    assert!(fleet.welcome().is_none() && fleet.followed().is_empty());
    assert_eq!(log.read(|log| log.lines.len()), 0);
    for store in fleet.stores() {
        assert_eq!(store.read(Clone::clone), Picture::default());
        assert!(store.nodes().get_untracked().is_empty());
    }
}

fn welcome(epoch: u32) -> Welcome {
    Welcome {
        proto: LIVE_WIRE,
        build: "b".into(),
        epoch,
        at_ms: 0,
        wall_ms: 0,
        user: "alice".into(),
        host: "login".into(),
        cluster: None,
        mode: Mode::Slurm,
        role: Role::Owner,
        may_act: true,
        tunnel: "ssh".into(),
        share: None,
        downtimes: Vec::new(),
        report_webhook: None,
        utc_offset_min: 0,
        person: None,
        history_days: 0,
    }
}
