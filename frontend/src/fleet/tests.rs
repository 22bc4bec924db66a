//! One GPU's sample wakes one subscriber, and what was missed is asked for.

use super::*;
use leptos::prelude::{ImmediateEffect, Owner, Track};
use nodeglass_protocol::cell::NamedCells;
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

fn pasts(node: u32, past: nodeglass_protocol::picture::History) -> ServerMessage {
    ServerMessage::Histories(nodeglass_protocol::live::Histories { topic: 1, nodes: vec![(node, past)] })
}

fn util(node: u32, gpu: u32, percent: u32) -> Change {
    let cells = NamedCells(vec![(GpuField::Util, Cell::steps(percent))]);
    let rows = vec![RowReadings::Gpu { gpu, cells }];
    Change::Readings(Readings::Plain(vec![NodeReadings { node, age_ms: 0, rows }]))
}

fn fleet() -> Fleet {
    let fleet = Fleet::default();
    assert!(fleet.receive(snapshot(Topic::Overview, &["n1", "n2"]), 0.0).is_none());
    fleet
}

fn gpu_cell(scene: &Scene, name: &str, index: usize) -> (NodeCell, GpuCell) {
    let node = scene.cell(&NodeName::new(name).unwrap()).unwrap();
    let gpu = node.gpus().get_untracked()[index].clone();
    (node, gpu)
}

/// An effect that counts how often it ran, and keeps the utilisation it saw last.
fn watch(
    scene: &Scene,
    name: &str,
    index: usize,
) -> (ImmediateEffect, Arc<AtomicUsize>, Arc<Mutex<Option<u64>>>) {
    let (runs, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let (node, gpu) = gpu_cell(scene, name, index);
    let effect = ImmediateEffect::new({
        let (scene, runs, seen) = (scene.clone(), runs.clone(), seen.clone());
        move || {
            runs.fetch_add(1, Relaxed);
            *seen.lock().unwrap() = scene.gpu(&node, &gpu, |gpu| gpu.row.value(GpuField::Util)).flatten();
        }
    });
    (effect, runs, seen)
}

#[test]
fn the_change_of_one_gpu_wakes_the_one_who_looks_at_it_and_nobody_else() {
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
fn several_deltas_in_one_frame_wake_once() {
    Owner::new().with(|| {
        let fleet = fleet();
        let (_effect, runs, seen) = watch(fleet.overview(), "n1", 0);
        assert!(fleet.ask_for_frame());
        fleet.receive(delta(11, vec![util(0, 0, 10)]), 1_000.0);
        assert!(!fleet.ask_for_frame());
        fleet.receive(delta(12, vec![util(0, 0, 20)]), 1_001.0);
        assert_eq!(runs.load(Relaxed), 1);
        fleet.flush();
        assert_eq!((runs.load(Relaxed), *seen.lock().unwrap()), (2, Some(20)));
        assert!(fleet.ask_for_frame());
    });
}

#[test]
fn a_frame_with_what_is_new_begins_the_second_and_many_frames_begin_one() {
    Owner::new().with(|| {
        let fleet = fleet();
        let seconds = || fleet.second().get_untracked();
        fleet.frame(10_000.0);
        assert_eq!(seconds(), 1);
        [10_016.0, 10_200.0, 10_600.0].into_iter().for_each(|at_ms| _ = fleet.frame(at_ms));
        assert_eq!(seconds(), 1);
        fleet.frame(10_990.0);
        assert_eq!((seconds(), fleet.since_beat_ms(11_000.0)), (2, 10.0));
    });
}

#[test]
fn sums_do_not_lag_behind_a_link_that_is_another_and_many_of_them_do_not_hurry_them() {
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
fn a_change_is_told_once_a_frame_to_lists_that_look_for_themselves() {
    Owner::new().with(|| {
        let fleet = fleet();
        let scene = fleet.overview().clone();
        let (one, two) = (gpu_cell(&scene, "n1", 0), gpu_cell(&scene, "n2", 1));
        let runs = Arc::new(AtomicUsize::new(0));
        let _effect = ImmediateEffect::new({
            let (scene, runs) = (scene.clone(), runs.clone());
            move || {
                scene.pulse().track();
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
fn a_gap_in_the_numbers_asks_once_for_the_picture_and_then_waits_for_it() {
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
fn a_delta_that_does_not_fit_asks_for_the_picture() {
    Owner::new().with(|| {
        let fleet = fleet();
        let reply = fleet.receive(delta(11, vec![util(7, 0, 10)]), 1_000.0);
        assert!(matches!(reply, Some(ClientMessage::Resync(Topic::Overview))));
    });
}

#[test]
fn nodes_in_another_order_are_still_themselves() {
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
fn another_run_of_the_relay_makes_the_page_forget() {
    Owner::new().with(|| {
        let fleet = fleet();
        fleet.welcomed(welcome(1), 0.0);
        fleet.welcomed(welcome(1), 10.0);
        assert_eq!(fleet.overview().nodes().with_untracked(Vec::len), 2);
        fleet.welcomed(welcome(2), 20.0);
        assert_eq!(fleet.overview().nodes().with_untracked(Vec::len), 0);
        assert!(fleet.receive(delta(11, vec![]), 30.0).is_none());
    });
}

#[test]
fn what_was_left_is_no_longer_listened_to() {
    Owner::new().with(|| {
        let fleet = Fleet::default();
        fleet.look_at(Some(Topic::Node(NodeName::new("n1").unwrap())));
        assert_eq!(fleet.topics().len(), 2);
        fleet.receive(snapshot(Topic::Node(NodeName::new("n1").unwrap()), &["n1"]), 0.0);
        fleet.look_at(None);
        assert_eq!(fleet.topics(), [Topic::Overview]);
        assert!(fleet.receive(delta(99, vec![util(0, 0, 1)]), 1.0).is_none());
    });
}

#[test]
fn a_page_that_nobody_sees_asks_for_no_more_than_it_notices_and_is_not_called_old_when_it_is_seen_again() {
    Owner::new().with(|| {
        let fleet = Fleet::default();
        let node = Topic::Node(NodeName::new("n1").unwrap());
        fleet.look_at(Some(node.clone()));
        fleet.receive(snapshot(node.clone(), &["n1"]), 0.0);
        assert!(
            !fleet.watch(true) && !fleet.watch(false),
            "a page that is seen asks for the same either way"
        );
        fleet.rest();
        assert_eq!(fleet.topics(), []);
        assert!(fleet.watch(true) && !fleet.watch(true));
        assert_eq!(fleet.topics(), [Topic::Overview]);
        // What comes while it rests does not wake it.
        fleet.receive(snapshot(Topic::Overview, &["n1"]), 1_000.0);
        assert_eq!(fleet.topics(), [Topic::Overview]);
        let seconds = || fleet.second().get_untracked();
        fleet.frame(60_000.0);
        assert!(fleet.wake(61_000.0) && !fleet.wake(61_000.0));
        assert_eq!(fleet.topics(), [Topic::Overview, node.clone()]);
        fleet.frame(61_100.0);
        assert_eq!(seconds(), 0);
        fleet.receive(snapshot(node, &["n1"]), 61_200.0);
        fleet.frame(61_210.0);
        assert_eq!(seconds(), 1);
    });
}

#[test]
fn the_list_of_everything_is_seen_again_with_its_own_picture() {
    Owner::new().with(|| {
        let fleet = Fleet::default();
        fleet.rest();
        assert!(fleet.is_resting() && fleet.wake(60_000.0) && !fleet.is_resting());
        assert_eq!(fleet.topics(), [Topic::Overview]);
        fleet.beat(60_100.0);
        assert_eq!(fleet.second().get_untracked(), 0);
        fleet.receive(snapshot(Topic::Overview, &["n1"]), 60_200.0);
        fleet.beat(60_300.0);
        assert_eq!(fleet.second().get_untracked(), 1);
    });
}

#[test]
fn a_picture_whose_past_is_still_to_come_keeps_what_is_known_of_the_same_cards() {
    Owner::new().with(|| {
        let fleet = fleet();
        let past = || nodeglass_protocol::picture::History::default();
        fleet.receive(pasts(0, past()), 500.0);
        fleet.receive(snapshot(Topic::Overview, &["n1", "n2"]), 1_000.0);
        assert_eq!(fleet.overview().read(|picture| picture.nodes[0].history.clone()), Some(past()));
        assert_eq!(fleet.overview().read(|picture| picture.nodes[1].history.clone()), None);
    });
}

#[test]
fn a_page_that_gets_no_picture_goes_on_with_what_it_has() {
    Owner::new().with(|| {
        let fleet = Fleet::default();
        fleet.look_at(Some(Topic::Node(NodeName::new("n1").unwrap())));
        fleet.rest();
        fleet.wake(10_000.0);
        fleet.beat(11_000.0);
        assert_eq!(fleet.second().get_untracked(), 0);
        fleet.beat(12_500.0);
        assert_eq!(fleet.second().get_untracked(), 1);
    });
}

#[test]
fn a_guest_who_was_sent_away_has_nothing_left() {
    use nodeglass_protocol::ask::{LogStream, Tail};
    let fleet = fleet();
    fleet.welcomed(welcome(1), 0.0);
    fleet.look_at(Some(Topic::Node(NodeName::new("n1").unwrap())));
    fleet.receive(snapshot(Topic::Node(NodeName::new("n1").unwrap()), &["n1"]), 0.0);
    let of = LogRef { job: nodeglass_protocol::JobId(17), stream: LogStream::Stdout };
    let log = fleet.follow(&[of]).remove(0);
    fleet.receive(
        ServerMessage::Log { of, tail: Tail { lines: vec!["secret".into()], ..Tail::default() } },
        0.0,
    );
    fleet.forget();
    assert!(fleet.welcome().is_none() && fleet.followed().is_empty());
    assert_eq!(log.read(|log| log.lines.len()), 0);
    for scene in fleet.scenes() {
        assert_eq!(scene.read(Clone::clone), Picture::default());
        assert!(scene.nodes().get_untracked().is_empty());
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
    }
}
