//! The invariant *snapshot + deltas = picture*, for every moment of joining and every loss.

mod guests;

use super::*;
use nodeglass_fleet::SessionEvent;
use nodeglass_fleet::scene::{self, hello, jobs, line, process, process_readings, replay, sample};
use nodeglass_fleet::{Event, Fleet, NoteChange};
use nodeglass_protocol::JobId;
use nodeglass_protocol::gpu::{GpuHealth, NvLink};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::HealthChange;
use nodeglass_protocol::note::{NoteId, NoteSource};
use nodeglass_protocol::probe::{GpuLinkRates, HealthReport, LinkRates, ProbeLine};
use nodeglass_protocol::request::AuditEntry;
use nodeglass_protocol::share::{HiddenParts, Scope, Share, ShareId, ShareTerms, Sharing};
use nodeglass_protocol::{LongText, Reading};
use nodeglass_share::Visibility;
use proptest::prelude::*;
use std::sync::Arc;

const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// So small that most history comes in separate frames.
const HISTORY_BUDGET: usize = 50;

/// An action on the fleet.
#[derive(Clone, Debug)]
enum Action {
    Jobs(Vec<(u32, Vec<usize>)>),
    Hello(usize, usize),
    Sample(usize, Vec<u64>),
    Replay(usize, u64, Vec<u64>),
    Process(usize, u32, Option<u32>),
    ProcessReadings(usize, u64),
    Health(usize, Vec<(u32, u64, u64)>),
    Down(usize),
    Note(Option<u32>, u64),
    DeleteNote(u64),
    Progress(u32, u32),
    Tick(u64),
    Publish,
}

fn actions() -> impl Strategy<Value = Action> {
    let node = 0..NODES.len();
    let utils = || proptest::collection::vec(0..101u64, 0..4);
    prop_oneof![
        1 => proptest::collection::vec((1..4u32, proptest::collection::vec(0..NODES.len(), 0..3)), 0..3).prop_map(Action::Jobs),
        2 => (node.clone(), 0..4usize).prop_map(|(node, gpus)| Action::Hello(node, gpus)),
        8 => (node.clone(), utils()).prop_map(|(node, utils)| Action::Sample(node, utils)),
        2 => (node.clone(), 0..20u64, utils()).prop_map(|(node, back, utils)| Action::Replay(node, back, utils)),
        2 => (node.clone(), 0..4u32, proptest::option::of(1..4u32)).prop_map(|(node, gpu, job)| Action::Process(node, gpu, job)),
        2 => (node.clone(), 1..9u64).prop_map(|(node, gib)| Action::ProcessReadings(node, gib)),
        2 => (node.clone(), proptest::collection::vec((0..4u32, 0..3u64, 98..104u64), 0..4)).prop_map(|(node, cards)| Action::Health(node, cards)),
        1 => node.prop_map(Action::Down),
        2 => (proptest::option::of(1..4u32), 0..6u64).prop_map(|(job, id)| Action::Note(job, id)),
        1 => (0..6u64).prop_map(Action::DeleteNote),
        1 => (1..4u32, 0..3u32).prop_map(|(job, done)| Action::Progress(job, done)),
        3 => (0..20_000u64).prop_map(Action::Tick),
        8 => Just(Action::Publish),
    ]
}

/// Jobs by id and the indices of their nodes, with one GPU on each; the first of two equal ids counts.
fn jobs_on(list: Vec<(u32, Vec<usize>)>, gpu: impl Fn(u32) -> u32) -> Vec<Job> {
    let mut list: Vec<_> = list
        .into_iter()
        .map(|(id, mut on)| {
            on.sort();
            on.dedup();
            let gpus = [gpu(id)];
            let on: Vec<_> = on.iter().map(|node| (NODES[*node], &gpus[..])).collect();
            Job {
                user: user_of(Some(id)).into(),
                account: Some(if id == 3 { "bio" } else { "ml" }.into()),
                ..scene::job(id, &on)
            }
        })
        .collect();
    list.dedup_by_key(|job| job.id);
    list
}

/// The user of a job; of none, an administrator.
fn user_of(job: Option<u32>) -> &'static str {
    match job {
        Some(1) => "alice",
        Some(2) => "bobby",
        Some(_) => "carol",
        None => "root",
    }
}

fn perform(fleet: &mut Fleet, now_ms: &mut u64, what: Action) {
    *now_ms += 137;
    let mono_s = 1_000 + *now_ms / 1_000;
    match what {
        Action::Jobs(list) => {
            jobs(fleet, jobs_on(list, |_| 0), *now_ms);
        }
        Action::Hello(node, gpus) => {
            line(fleet, NODES[node], hello(NODES[node], &[0, 1, 2, 3][..gpus]), *now_ms)
        }
        Action::Sample(node, utils) => line(fleet, NODES[node], sample(mono_s, &utils), *now_ms),
        Action::Replay(node, back, utils) => line(fleet, NODES[node], replay(mono_s - back, &utils), *now_ms),
        Action::Process(node, gpu, job) => {
            let ProbeLine::Processes(mut list) = process(NODES[node], gpu, 7, job) else { unreachable!() };
            list.processes[0].facts.user = Reading::Value(user_of(job).into());
            line(fleet, NODES[node], ProbeLine::Processes(list), *now_ms)
        }
        Action::ProcessReadings(node, gib) => line(fleet, NODES[node], process_readings(gib << 30), *now_ms),
        Action::Health(node, cards) => line(fleet, NODES[node], with_problems(&cards), *now_ms),
        Action::Down(node) => {
            let down = SessionEvent::Down { why: "cut".into(), retry_at_ms: *now_ms };
            fleet.handle(Event::Node(scene::name(NODES[node]), down), *now_ms);
        }
        Action::Note(job, id) => {
            let note = Note {
                id: NoteId::from_bits(id),
                job: job.map(JobId),
                node: None,
                rank: None,
                at_ms: *now_ms * 7 % 1_000,
                text: format!("canary-note-{}", job.unwrap_or(0)).into(),
                source: NoteSource::Api,
            };
            fleet.handle(Event::Note(NoteChange::Put(note)), *now_ms);
        }
        Action::DeleteNote(id) => {
            fleet.handle(Event::Note(NoteChange::Delete(NoteId::from_bits(id))), *now_ms);
        }
        Action::Progress(job, done) => {
            let logs = [(JobId(job), scene::log(f64::from(done)))].into();
            fleet.handle(Event::JobLogs(logs), *now_ms);
        }
        Action::Tick(ms) => {
            *now_ms += ms;
            fleet.handle(Event::Tick, *now_ms);
        }
        Action::Publish => {}
    }
}

/// Health in which a second PCIe replay comes with a pending remapping, and with an odd rate every other
/// link is down.
fn with_problems(cards: &[(u32, u64, u64)]) -> ProbeLine {
    let ProbeLine::Health(mut report) = scene::health(cards) else { unreachable!() };
    for (gpu, (_, replays, rate)) in report.gpus.iter_mut().zip(cards) {
        gpu.remap_pending = Reading::Value(*replays > 1);
        for link in gpu.nvlinks.iter_mut().skip(usize::from(rate % 4 == 1)).step_by(2) {
            link.up = Reading::Value(rate % 2 == 0);
        }
    }
    ProbeLine::Health(report)
}

/// A subscriber that joined at some moment, in one of the two forms.
struct TestSubscriber {
    form: Form,
    picture: Picture,
    seq: u32,
    pending_history: VecDeque<NodeName>,
}

impl TestSubscriber {
    fn join(feed: &mut TopicFeed, fleet: &Fleet, form: Form) -> Option<Self> {
        let (bytes, pending_history) = feed.initial_snapshot(fleet, form)?;
        let ServerMessage::Snapshot(snapshot) = form.decode(&bytes).unwrap() else { unreachable!() };
        Some(Self {
            form,
            picture: snapshot.picture,
            seq: snapshot.seq,
            pending_history: pending_history.iter().cloned().collect(),
        })
    }

    /// Requests some of its pending history, whatever has not been published yet.
    fn request_history(&mut self, feed: &mut TopicFeed, fleet: &Fleet) {
        if self.pending_history.is_empty() || self.seq != feed.seq {
            return;
        }
        let Some(bytes) = feed.history(fleet, self.form, &mut self.pending_history) else {
            return assert!(self.pending_history.is_empty());
        };
        let ServerMessage::Histories(histories) = self.form.decode(&bytes).unwrap() else { unreachable!() };
        self.picture.apply_histories(histories, |_| ()).unwrap();
    }

    /// Known and true picture, without pending history.
    fn comparable(&self, mut truth: Picture) -> (Picture, Picture) {
        let mut known = self.picture.clone();
        for node in known.nodes.iter_mut().chain(&mut truth.nodes) {
            node.history = node.history.take().filter(|_| !self.pending_history.contains(&node.name));
        }
        (known, truth)
    }

    /// Applies a frame; `false` if one before it was lost.
    fn take(&mut self, encoded: &Encoded) -> bool {
        let bytes = if self.form == Form::Binary { &encoded.binary } else { encoded.json.as_ref().unwrap() };
        let ServerMessage::Delta(delta) = self.form.decode(bytes).unwrap() else { unreachable!() };
        if delta.seq != self.seq.wrapping_add(1) {
            return false;
        }
        self.seq = delta.seq;
        self.picture.apply(&delta, |_| ()).unwrap();
        self.pending_history.extend(encoded.pending_history.iter().cloned());
        true
    }
}

fn check_convergence(topic: Topic, viewer: Viewer, story: Vec<(Action, bool, bool)>) {
    let (mut fleet, mut now_ms) = (Fleet::new(), 10_000);
    jobs(&mut fleet, vec![scene::job(1, &[("n1", &[0]), ("n2", &[0])])], now_ms);
    let Some(mut feed) = TopicFeed::open(topic.clone(), viewer.clone(), 3, HISTORY_BUDGET, &fleet, now_ms)
    else {
        return;
    };
    fleet.take_changes();
    let mut subscribers: Vec<TestSubscriber> = Vec::new();
    for (what, join, lose) in story {
        perform(&mut fleet, &mut now_ms, what.clone());
        subscribers.iter_mut().for_each(|subscriber| subscriber.request_history(&mut feed, &fleet));
        if !matches!(what, Action::Publish) && !join {
            continue;
        }
        // Backfilled samples are published with the next tick.
        fleet.handle(Event::Tick, now_ms);
        let changes = fleet.take_changes();
        let out = feed.advance(&fleet, &changes, now_ms, true);
        if feed.is_gone(&fleet) {
            return;
        }
        if let Some(encoded) = &out {
            // The first subscriber loses this frame, notices at the next one, and resynchronises.
            let skip = usize::from(lose);
            for subscriber in subscribers.iter_mut().skip(skip) {
                if !subscriber.take(encoded) {
                    *subscriber = TestSubscriber::join(&mut feed, &fleet, subscriber.form).unwrap();
                }
            }
        }
        if join {
            let both = [Form::Binary, Form::Json].into_iter();
            subscribers.extend(both.filter_map(|form| TestSubscriber::join(&mut feed, &fleet, form)));
        }
        let detail = DetailLevel::of(&topic);
        for subscriber in subscribers.iter().filter(|subscriber| subscriber.seq == feed.seq) {
            let at_ms = subscriber.picture.at_ms;
            let truth = truth(&topic, &viewer, detail, &fleet, at_ms);
            let (known, truth) = subscriber.comparable(truth);
            assert_eq!(first_difference(&known, &truth), None, "{:?}", subscriber.form);
        }
    }
}

#[test]
fn f34_subscribers_that_join_together_share_the_bytes_of_their_frames() {
    let (mut fleet, now_ms) = (Fleet::new(), 10_000);
    jobs(&mut fleet, vec![scene::job(1, &[("n1", &[0]), ("n2", &[0]), ("n3", &[0])])], now_ms);
    for node in ["n1", "n2", "n3"] {
        line(&mut fleet, node, scene::hello(node, &[0]), now_ms);
        line(&mut fleet, node, scene::sample(1, &[50]), now_ms);
    }
    let mut feed =
        TopicFeed::open(Topic::Job(JobId(1)), Viewer::Owner, 1, HISTORY_BUDGET, &fleet, now_ms).unwrap();
    fleet.take_changes();
    // The frames of a subscriber, until it has everything.
    let join = |feed: &mut TopicFeed, fleet: &Fleet| {
        let (snapshot, pending) = feed.initial_snapshot(fleet, Form::Binary).unwrap();
        let mut pending: VecDeque<_> = pending.iter().cloned().collect();
        let history = std::iter::from_fn(|| feed.history(fleet, Form::Binary, &mut pending));
        std::iter::once(snapshot).chain(history).collect::<Vec<_>>()
    };
    let addresses = |frames: &[Bytes]| frames.iter().map(|frame| frame.as_ptr()).collect::<Vec<_>>();
    let (first, second) = (join(&mut feed, &fleet), join(&mut feed, &fleet));
    assert_eq!(addresses(&first), addresses(&second));
    assert!(first.len() > 1, "history is pending");
    // A change makes them outdated.
    line(&mut fleet, "n1", scene::sample(2, &[60]), now_ms + 1_000);
    let changes = fleet.take_changes();
    assert!(feed.advance(&fleet, &changes, now_ms + 1_000, false).is_some());
    let third = join(&mut feed, &fleet);
    assert!(addresses(&third).iter().all(|frame| !addresses(&first).contains(frame)));
}

/// The current state of a topic, computed from the fleet.
fn truth(topic: &Topic, viewer: &Viewer, detail: DetailLevel, fleet: &Fleet, at_ms: u64) -> Picture {
    let mut truth = overview_state(topic, viewer, fleet, at_ms);
    for view in viewer.nodes(fleet, topic).unwrap() {
        let history = detail.history(view.history().as_deref());
        truth.nodes.push(NodePicture { history, ..detail.view(view.now()) });
    }
    truth
}

/// The first difference between two pictures.
fn first_difference(known: &Picture, truth: &Picture) -> Option<String> {
    let diff = |what: &str, known: &dyn std::fmt::Debug, truth: &dyn std::fmt::Debug| {
        Some(format!("{what}: known {known:?}, true {truth:?}"))
    };
    for (k, t) in known.nodes.iter().zip(&truth.nodes) {
        match () {
            () if k.name != t.name => return diff("name", &k.name, &t.name),
            () if k.head != t.head => return diff("head", &k.head, &t.head),
            () if k.sampled_at_ms != t.sampled_at_ms => {
                return diff("age", &k.sampled_at_ms, &t.sampled_at_ms);
            }
            () if k.gpus != t.gpus => return diff("gpus", &k.gpus, &t.gpus),
            () if k.host != t.host => return diff("host", &k.host, &t.host),
            () if k.processes != t.processes => return diff("processes", &k.processes, &t.processes),
            () if k.history != t.history => return diff("history", &k.history, &t.history),
            () => {}
        }
    }
    (known != truth).then(|| "jobs, relay, clock or membership".to_owned())
}

proptest! {
    #[test]
    fn every_subscriber_of_the_overview_has_the_picture(
        story in proptest::collection::vec((actions(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.1)), 1..60)
    ) {
        check_convergence(Topic::Overview, Viewer::Owner, story);
    }

    #[test]
    fn every_subscriber_of_a_job_has_the_picture(
        story in proptest::collection::vec((actions(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.1)), 1..60)
    ) {
        check_convergence(Topic::Job(JobId(1)), Viewer::Owner, story);
    }

    #[test]
    fn every_subscriber_of_a_node_has_the_picture(
        story in proptest::collection::vec((actions(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.1)), 1..60)
    ) {
        check_convergence(Topic::Node(scene::name("n1")), Viewer::Owner, story);
    }
}

#[test]
fn a_sample_of_eight_idle_gpus_costs_few_bytes() {
    let mut fleet = Fleet::new();
    fleet.watch_hosts([scene::name("n1")]);
    line(&mut fleet, "n1", hello("n1", &[0, 1, 2, 3, 4, 5, 6, 7]), 0);
    line(&mut fleet, "n1", sample(1, &[0; 8]), 1_000);
    let mut feed =
        TopicFeed::open(Topic::Node(scene::name("n1")), Viewer::Owner, 1, HISTORY_BUDGET, &fleet, 1_000)
            .unwrap();
    fleet.take_changes();
    line(&mut fleet, "n1", sample(2, &[0; 8]), 2_000);
    let changes = fleet.take_changes();
    let encoded = feed.advance(&fleet, &changes, 2_000, false).unwrap();
    assert!(encoded.binary.len() <= 16, "{} bytes", encoded.binary.len());
}

/// A fleet of which node `n1` has two healthy GPUs with two NVLinks each, with these readings.
fn healthy_fleet() -> (Fleet, HealthReport) {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![scene::job(1, &[("n1", &[0])]), scene::job(2, &[("n1", &[1])])], 0);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 0);
    line(&mut fleet, "n1", sample(1, &[0; 2]), 1_000);
    let ProbeLine::Health(report) = scene::health(&[(2, 0, 100); 2]) else { unreachable!() };
    line(&mut fleet, "n1", ProbeLine::Health(report.clone()), 1_000);
    (fleet, report)
}

/// The GPUs whose health a line changes for a viewer of the overview; the picture is true afterwards.
fn health_changes(viewer: Viewer, report: HealthReport) -> Vec<HealthChange> {
    let (mut fleet, _) = healthy_fleet();
    let mut feed =
        TopicFeed::open(Topic::Overview, viewer.clone(), 1, HISTORY_BUDGET, &fleet, 1_000).unwrap();
    fleet.take_changes();
    let mut subscriber = TestSubscriber::join(&mut feed, &fleet, Form::Binary).unwrap();
    subscriber.request_history(&mut feed, &fleet);
    line(&mut fleet, "n1", ProbeLine::Health(report), 1_500);
    let changes = fleet.take_changes();
    let Some(encoded) = feed.advance(&fleet, &changes, 1_500, false) else { return Vec::new() };
    assert!(subscriber.take(&encoded));
    let truth = truth(&Topic::Overview, &viewer, DetailLevel::Summary, &fleet, 1_500);
    let (known, truth) = subscriber.comparable(truth);
    assert_eq!(first_difference(&known, &truth), None);
    let ServerMessage::Delta(delta) = Form::Binary.decode(&encoded.binary).unwrap() else { unreachable!() };
    match <[Change; 1]>::try_from(delta.changes).unwrap() {
        [Change::Health { node: 0, changed }] => changed,
        [other] => panic!("{other:?}"),
    }
}

#[test]
fn a_problem_of_a_gpu_reaches_the_overview() {
    let (_, mut report) = healthy_fleet();
    report.gpus[1].nvlinks[1].up = Reading::Value(false);
    let down = NvLink { link: 1, up: Reading::Value(false), ..NvLink::default() };
    let changed =
        HealthChange { gpu: 1, link_count: Some(1), links: vec![(0, down)], ..HealthChange::default() };
    assert_eq!(health_changes(Viewer::Owner, report.clone()), [changed]);
    report.gpus[0].remap_pending = Reading::Value(true);
    let changed = health_changes(Viewer::Owner, report);
    let pending = GpuHealth { remap_pending: Reading::Value(true), ..GpuHealth::default() };
    assert_eq!((changed.len(), &changed[0].health), (2, &Some(Box::new(pending))));
}

#[test]
fn the_overview_is_sent_neither_rates_nor_counts_of_a_healthy_gpu() {
    let (mut fleet, mut report) = healthy_fleet();
    for gpu in &mut report.gpus {
        gpu.pcie_replays = Reading::Value(7);
        gpu.nvlinks[0].rx_mib_s = Reading::Value(90_000);
        gpu.nvlinks[1].errors = Reading::Value(3);
    }
    assert_eq!(health_changes(Viewer::Owner, report.clone()), []);
    let mut feed = TopicFeed::open(Topic::Overview, Viewer::Owner, 1, HISTORY_BUDGET, &fleet, 1_000).unwrap();
    fleet.take_changes();
    let rates = LinkRates { gpus: report.gpus.iter().map(GpuLinkRates::of).collect() };
    line(&mut fleet, "n1", ProbeLine::LinkRates(rates), 1_500);
    let changes = fleet.take_changes();
    assert!(!changes.is_empty());
    assert!(feed.advance(&fleet, &changes, 1_500, false).is_none());
}

#[test]
fn t09_a_guest_is_sent_problems_of_visible_gpus_only() {
    let guest = || guest(Scope::Jobs(vec![JobId(1)]), HiddenParts::default());
    let (_, mut report) = healthy_fleet();
    report.gpus[1].remap_failed = Reading::Value(true);
    assert_eq!(health_changes(guest(), report.clone()), []);
    report.gpus[0].nvlinks[0].up = Reading::Value(false);
    let changed = health_changes(guest(), report);
    assert_eq!(changed.iter().map(|change| change.gpu).collect::<Vec<_>>(), [0]);
}

fn guest(scope: Scope, hidden: HiddenParts) -> Viewer {
    Viewer::Restricted(Arc::new(Visibility::new(&terms(scope, hidden), "alice".into())))
}

fn terms(scope: Scope, hidden: HiddenParts) -> ShareTerms {
    ShareTerms { label: "canary-deed".into(), scope, hidden, to: None, expires_ms: 0, ends_with_job: false }
}
