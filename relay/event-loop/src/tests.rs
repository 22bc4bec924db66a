//! Subscribers that join, subscribe, lag and leave; with paused time.

use super::*;
use crate::capturer::Capturer;
use nodeglass_findings::capture::CaptureOrder;
use nodeglass_fleet::Fleet;
use nodeglass_fleet::NoteChange;
use nodeglass_fleet::SessionEvent;
use nodeglass_fleet::scene::{hello, job, name, process, sample};
use nodeglass_history::LongHistory;
use nodeglass_live::Subscriber;
use nodeglass_nodes::{FromNode, Plan};
use nodeglass_notify::{NotifyOn, Sender, Settings};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::capture::{CaptureGroup, FindingCapture};
use nodeglass_protocol::finding::{FindingSeverity, Silence};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::live::{CloseReason, MAX_TOPICS, ServerMessage};
use nodeglass_protocol::note::{NewNote, Note, NoteEdit, NoteId, NoteRequest, NoteSource};
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::share::{HiddenParts, Scope, Share, ShareId, ShareTerms, Sharing};
use nodeglass_protocol::{Field, GpuField, JobId, Picture, Reading, Text};
use nodeglass_store::{Location, Origin};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

mod own_load;

/// A running event loop with manual inputs.
struct Harness {
    hub: Hub,
    lines: mpsc::Sender<FromNode>,
    events: mpsc::Sender<nodeglass_fleet::Event>,
    plan: watch::Receiver<Plan>,
    shutdown: watch::Sender<bool>,
    clock: Clock,
}

impl Harness {
    fn open() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        Self::storing(options, None)
    }

    fn storing(options: Options, store: Option<JobStore>) -> Self {
        Self::feeding(options, Sinks { store, ..Sinks::default() })
    }

    fn feeding(options: Options, sinks: Sinks) -> Self {
        Self::changed(options, sinks, |core| core)
    }

    fn changed(options: Options, sinks: Sinks, change: impl FnOnce(EventLoop) -> EventLoop) -> Self {
        let (lines, nodes) = mpsc::channel(64);
        let (events, event_rx) = mpsc::channel(8);
        let (shutdown, ending) = watch::channel(false);
        let clock = Clock::start();
        let inputs = Inputs { nodes, events: event_rx, sharing: watch::channel(Sharing::default()).1 };
        let (core, hub, plan) = EventLoop::new(Fleet::new(), clock, options, inputs, sinks);
        tokio::spawn(change(core).run(ending));
        Self { hub, lines, events, plan, shutdown, clock }
    }

    async fn jobs(&self, jobs: Vec<Job>) {
        self.events.send(nodeglass_fleet::Event::Jobs { jobs, wall_ahead_ms: 1_000 }).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }

    async fn line(&self, node: &str, line: ProbeLine) {
        let event = SessionEvent::Line(Box::new(line.into()));
        self.lines
            .send(FromNode { node: name(node), job: None, at_ms: self.clock.now_ms(), event })
            .await
            .unwrap();
        sleep(Duration::from_millis(20)).await;
    }

    /// One job on one node with one GPU and one sample.
    async fn with_a_job() -> Self {
        let harness = Self::open();
        harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
        harness.line("n1", hello("n1", &[0])).await;
        harness.line("n1", sample(1, &[50])).await;
        harness
    }
}

async fn message(subscriber: &mut Subscriber) -> ServerMessage {
    Form::Binary.decode(&subscriber.next().await.unwrap()).unwrap()
}

/// Receives the next message and applies it to the pictures.
async fn follow(subscriber: &mut Subscriber, pictures: &mut BTreeMap<u32, Picture>) -> ServerMessage {
    let message = message(subscriber).await;
    match &message {
        ServerMessage::Snapshot(snapshot) => {
            pictures.insert(snapshot.number, snapshot.picture.clone());
        }
        ServerMessage::Delta(delta) => pictures.get_mut(&delta.topic).unwrap().apply(delta, |_| ()).unwrap(),
        ServerMessage::Histories(histories) => {
            pictures.get_mut(&histories.topic).unwrap().apply_histories(histories.clone(), |_| ()).unwrap();
        }
        _ => {}
    }
    message
}

fn job_topic() -> Topic {
    Topic::Job(JobId(1))
}

#[tokio::test(start_paused = true)]
async fn silences_hold_after_another_time_of_a_recording_is_selected() {
    let harness = Harness::open();
    let until_ms = Clock::wall_ms() + 3_600_000;
    let silence = Silence { kind: None, job: Some(JobId(1)), until_ms };
    harness.events.send(nodeglass_fleet::Event::Silences(vec![silence])).await.unwrap();
    harness.jobs(Vec::new()).await;
    let mut earlier = Fleet::new();
    let reason = Some("DependencyNeverSatisfied".into());
    let jobs = vec![Job { reason, ..Job::new(JobId(1), "alice".into(), JobState::Pending) }];
    earlier.handle(nodeglass_fleet::Event::Jobs { jobs, wall_ahead_ms: 1_000 }, harness.clock.now_ms());
    harness.hub.replace(earlier).await;
    let found = async || harness.hub.everything(Viewer::Owner).await.unwrap().0.findings;
    let mut findings = found().await;
    for _ in 0..600 {
        if !findings.is_empty() {
            break;
        }
        sleep(Duration::from_millis(100)).await;
        findings = found().await;
    }
    assert_eq!(
        findings.iter().map(|finding| finding.silenced_until_ms).collect::<Vec<_>>(),
        [Some(until_ms)]
    );
}

/// Runs a process that cannot be interrupted until it is to be captured.
async fn stuck_until_captured(harness: &Harness, orders: &mut mpsc::Receiver<CaptureOrder>) -> CaptureOrder {
    for second in 2..300 {
        harness.line("n1", sample(second, &[50])).await;
        let mut line = process("n1", 0, 4_711, Some(1));
        if let ProbeLine::Processes(list) = &mut line {
            list.processes[0].now.state = Reading::Value(ProcessState::Uninterruptible as u64);
        }
        harness.line("n1", line).await;
        sleep(Duration::from_millis(960)).await;
        if let Ok(order) = orders.try_recv() {
            return order;
        }
    }
    panic!("nothing was captured")
}

#[tokio::test(start_paused = true)]
async fn a_job_that_gets_stuck_is_captured_once_and_its_finding_says_where_it_stands() {
    let (capturer, mut orders) = Capturer::manual("alice");
    let harness =
        Harness::feeding(Options::default(), Sinks { capturer: Some(capturer), ..Sinks::default() });
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    harness.line("n1", hello("n1", &[0])).await;
    let order = stuck_until_captured(&harness, &mut orders).await;
    let pids: Vec<u32> = order.nodes[0].1.iter().map(|target| target.process.pid).collect();
    assert_eq!((order.job, pids), (JobId(1), vec![4_711]));
    let group = CaptureGroup { count: 1, frame: "load (train.py:7)".into(), ..CaptureGroup::default() };
    let at_ms = harness.clock.now_ms() + 1_000;
    let capture = Box::new(FindingCapture { at_ms, groups: vec![group], ..FindingCapture::default() });
    harness.events.send(Event::Capture { key: order.key.into(), capture }).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let (picture, _) = harness.hub.everything(Viewer::Owner).await.unwrap();
    let shown: Vec<_> = picture.findings.iter().filter_map(|finding| finding.capture.as_ref()).collect();
    assert_eq!((shown.len(), shown[0].groups[0].frame.as_str()), (1, "load (train.py:7)"));
    assert!(orders.try_recv().is_err(), "once");
}

#[tokio::test(start_paused = true)]
async fn a_new_subscriber_gets_a_snapshot_and_then_deltas() {
    let harness = Harness::with_a_job().await;
    let (mut subscriber, mut pictures) =
        (harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap(), BTreeMap::new());
    subscriber.set_topics(vec![job_topic()]).await;
    assert!(matches!(follow(&mut subscriber, &mut pictures).await, ServerMessage::Snapshot(_)));
    harness.line("n1", sample(2, &[60])).await;
    assert!(matches!(follow(&mut subscriber, &mut pictures).await, ServerMessage::Delta(_)));
    let picture = pictures.values().next().unwrap();
    assert_eq!(picture.nodes[0].gpus[0].row.value(GpuField::Util), Some(60));
}

#[tokio::test(start_paused = true)]
async fn a_lagging_subscriber_gets_a_snapshot_and_delays_no_other() {
    let harness = Harness::with_a_job().await;
    let (mut awake, mut asleep) = (
        harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap(),
        harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap(),
    );
    let (mut pictures, mut late) = (BTreeMap::new(), BTreeMap::new());
    awake.set_topics(vec![job_topic()]).await;
    asleep.set_topics(vec![job_topic()]).await;
    follow(&mut awake, &mut pictures).await;
    for second in 2..40 {
        sleep(Duration::from_secs(1)).await;
        harness.line("n1", sample(second, &[second])).await;
        assert!(matches!(follow(&mut awake, &mut pictures).await, ServerMessage::Delta(_)));
    }
    let mut lagged = 0;
    loop {
        match follow(&mut asleep, &mut late).await {
            ServerMessage::Lagged { missed } => lagged = missed,
            ServerMessage::Snapshot(_) if lagged > 0 => break,
            _ => {}
        }
    }
    assert!(lagged > 30, "{lagged}");
    let (known, truth) = (late.values().next().unwrap(), pictures.values().next().unwrap());
    assert_eq!(known.nodes, truth.nodes);
}

#[tokio::test(start_paused = true)]
async fn history_is_sent_in_parts_as_it_is_read_with_deltas_between() {
    let nodes = ["n1", "n2", "n3", "n4", "n5"];
    let harness = Harness::with(Options { history_budget: 1, ..Options::default() });
    harness.jobs(vec![job(1, &nodes.map(|node| (node, &[0][..])))]).await;
    for node in nodes {
        harness.line(node, hello(node, &[0])).await;
        harness.line(node, sample(1, &[50])).await;
    }
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    let mut pictures = BTreeMap::new();
    subscriber.set_topics(vec![job_topic()]).await;
    let snapshot = follow(&mut subscriber, &mut pictures).await;
    let ServerMessage::Snapshot(snapshot) = snapshot else { panic!("{snapshot:?}") };
    let out = |node: &NodePicture| node.history.is_some();
    assert_eq!(
        snapshot.picture.nodes.iter().map(out).collect::<Vec<_>>(),
        [true, false, false, false, false]
    );
    assert!(matches!(follow(&mut subscriber, &mut pictures).await, ServerMessage::Histories(_)));
    harness.line("n5", sample(2, &[60])).await;
    let mut rest = Vec::new();
    for _ in 0..4 {
        rest.push(matches!(follow(&mut subscriber, &mut pictures).await, ServerMessage::Histories(_)));
    }
    // The delta does not wait for the remaining history.
    assert_eq!(rest.iter().filter(|is_history| **is_history).count(), 3);
    assert!(!rest[0] || !rest[1], "{rest:?}");
    let frame = harness.hub.picture(job_topic(), Viewer::Owner, Form::Binary).await.unwrap();
    let ServerMessage::Snapshot(truth) = Form::Binary.decode(&frame).unwrap() else { panic!("no snapshot") };
    let known = pictures.values().next().unwrap();
    assert_eq!(known.nodes, truth.picture.nodes);
    assert!(known.nodes.iter().all(out));
}

/// A delta before the snapshot would apply to a picture that the subscriber does not have.
#[tokio::test(start_paused = true)]
async fn after_lagging_the_first_frame_of_a_topic_is_its_snapshot() {
    let harness = Harness::with_a_job().await;
    let mut asleep = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    asleep.set_topics(vec![job_topic()]).await;
    for second in 2..40 {
        sleep(Duration::from_secs(1)).await;
        harness.line("n1", sample(second, &[second])).await;
    }
    let mut seconds = 40..;
    asleep.read_until_lagging().await;
    // It was notified, and more happens before the event loop handles its request.
    harness.line("n1", sample(seconds.next().unwrap(), &[1])).await;
    assert_eq!(asleep.try_next(), None);
    asleep.catch_up().await;
    assert!(matches!(message(&mut asleep).await, ServerMessage::Lagged { missed } if missed > 30));
    assert!(matches!(message(&mut asleep).await, ServerMessage::Snapshot(_)));
    harness.line("n1", sample(seconds.next().unwrap(), &[2])).await;
    assert!(matches!(message(&mut asleep).await, ServerMessage::Delta(_)));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_nobody_views_are_no_problem_of_a_relay_that_pauses() {
    let harness = Harness::with(Options::default().pausing(true));
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    subscriber.set_topics(vec![Topic::Overview]).await;
    harness.line("n1", hello("n1", &[0])).await;
    harness.line("n1", sample(1, &[50])).await;
    let state = async || {
        let (picture, _) = harness.hub.everything(Viewer::Owner).await.unwrap();
        (picture.nodes[0].head.link.clone(), picture.findings.len())
    };
    assert_eq!(state().await, (Link::Live, 0));
    drop(subscriber);
    sleep(Duration::from_secs(60)).await;
    assert!(harness.plan.borrow().nodes.is_empty());
    assert_eq!(state().await, (Link::Connecting { failures: 0 }, 0));
    let _subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    harness.line("n1", sample(70, &[50])).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(state().await, (Link::Silent, 1), "while it is viewed, its silence is a problem");
}

#[tokio::test(start_paused = true)]
async fn nodes_are_sampled_faster_while_subscribed_to() {
    let harness = Harness::with_a_job().await;
    let interval = || harness.plan.borrow().nodes[&name("n1")].interval_ms;
    assert_eq!(interval(), 2_000);
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    subscriber.set_topics(vec![Topic::Overview, job_topic()]).await;
    sleep(Duration::from_millis(5)).await;
    assert_eq!(interval(), 1_000);
    drop(subscriber);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(interval(), 2_000);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(interval(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_longer_idle_interval_ends_with_the_first_viewer_and_spares_notices() {
    let minute = Options::default().idling(Duration::from_secs(60));
    let harness = Harness::with(minute);
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    let interval = |harness: &Harness| harness.plan.borrow().nodes[&name("n1")].interval_ms;
    sleep(Duration::from_secs(70)).await;
    assert_eq!(interval(&harness), 60_000);
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    subscriber.set_topics(vec![Topic::Overview]).await;
    sleep(Duration::from_millis(5)).await;
    assert_eq!(interval(&harness), 2_000, "the probe aligns its next sample to the new interval at once");

    let settings = Settings {
        webhook: None,
        command: Some("true".parse().unwrap()),
        mail: None,
        on: vec![NotifyOn::Starts],
        severity: FindingSeverity::Warning,
    };
    let notifier = Notifier::start(settings, Sender::default(), 0).unwrap();
    let notified = Harness::feeding(minute, Sinks { notifier: Some(notifier), ..Sinks::default() });
    notified.jobs(vec![job(1, &[("n1", &[0])])]).await;
    sleep(Duration::from_secs(70)).await;
    assert_eq!(interval(&notified), 10_000);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_job_is_gone_and_one_that_appears_is_sent_without_a_request() {
    let harness = Harness::open();
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    subscriber.set_topics(vec![job_topic()]).await;
    assert!(matches!(message(&mut subscriber).await, ServerMessage::Gone(topic) if topic == job_topic()));
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    assert!(
        matches!(message(&mut subscriber).await, ServerMessage::Snapshot(snapshot) if snapshot.topic == job_topic())
    );
}

#[tokio::test(start_paused = true)]
async fn topics_are_bounded_and_deduplicated() {
    let harness = Harness::with_a_job().await;
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    let many = (0..100).map(|id| Topic::Job(JobId(id / 2))).collect();
    subscriber.set_topics(many).await;
    for _ in 0..MAX_TOPICS {
        assert!(matches!(
            message(&mut subscriber).await,
            ServerMessage::Gone(_) | ServerMessage::Snapshot(_)
        ));
    }
    let more = tokio::time::timeout(Duration::from_millis(100), subscriber.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn subscribers_are_notified_of_shutdown() {
    let harness = Harness::with_a_job().await;
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    harness.shutdown.send(true).unwrap();
    assert!(matches!(message(&mut subscriber).await, ServerMessage::Bye(CloseReason::ShuttingDown)));
    assert!(subscriber.next().await.is_none());
    assert!(harness.hub.join(Form::Binary, Viewer::Owner).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_picture_is_returned_without_joining() {
    let harness = Harness::with_a_job().await;
    let bytes = harness.hub.picture(Topic::Overview, Viewer::Owner, Form::Json).await.unwrap();
    let ServerMessage::Snapshot(snapshot) = Form::Json.decode(&bytes).unwrap() else { panic!("no snapshot") };
    assert_eq!(snapshot.picture.jobs.len(), 1);
    assert!(harness.hub.picture(Topic::Node(name("stranger")), Viewer::Owner, Form::Json).await.is_none());
}

#[tokio::test]
async fn an_array_is_shared_as_such_or_by_a_task_that_has_started() {
    let task = |id, task: Option<u32>| Job {
        part_of: Some(Parent::Array { job: JobId(40), task }),
        label: task.map_or("40_[2-3]".to_owned(), |task| format!("40_{task}")).into(),
        ..job(id, &[("n1", &[0])])
    };
    let rest = || Job { state: JobState::Pending, nodes: Vec::new(), ..task(40, None) };
    let harness = Harness::open();
    let unwatched = async |id| harness.hub.unwatched(Scope::Jobs(vec![JobId(id)])).await;
    let unwatched_array =
        async |id| harness.hub.unwatched(Scope::of_jobs(vec![JobId(7)], vec![JobId(id)])).await;
    let instead = "job 40 is an array; share all of its tasks, or one that has started, such as 40_0";
    for rest in [None, Some(rest())] {
        let jobs = [task(41, Some(0)), task(42, Some(1)), job(7, &[("n1", &[0])])];
        harness.jobs(jobs.into_iter().chain(rest).collect()).await;
        assert_eq!(unwatched(40).await, Some(instead.into()));
        assert_eq!(unwatched(9).await, Some("this relay does not watch job 9".into()));
        assert_eq!((unwatched(42).await, unwatched(7).await, unwatched_array(40).await), (None, None, None));
        assert_eq!(unwatched_array(42).await, Some("this relay does not watch an array 42".into()));
    }
    // The last task has the id of the array.
    harness.jobs(vec![task(40, Some(3)), job(7, &[("n1", &[0])])]).await;
    assert_eq!((unwatched(40).await, unwatched_array(40).await), (None, None));
}

/// A share that was made ten seconds after the epoch.
fn share(scope: Scope) -> Share {
    let terms = ShareTerms {
        label: Text::default(),
        scope,
        hidden: HiddenParts::default(),
        to: None,
        expires_ms: u64::MAX,
        ends_with_job: false,
    };
    Share { id: ShareId::new("a").unwrap(), created_ms: 10_000, terms }
}

#[tokio::test]
async fn t09_a_share_ends_once_slurm_uses_the_number_of_its_job_again() {
    let harness = Harness::open();
    let shared = share(Scope::Jobs(vec![JobId(7)]));
    let ended = |job| Job { state: JobState::Ended("CANCELLED".into()), ..job };
    let first = || job(7, &[("n1", &[0])]);
    for list in [vec![first()], vec![ended(first())], Vec::new()] {
        harness.jobs(list).await;
        assert_eq!(harness.hub.is_over(shared.clone()).await, Some(false));
    }
    let others = Job { user: "bob".into(), submitted: Some(20), ..first() };
    harness.jobs(vec![others.clone()]).await;
    assert_eq!(harness.hub.is_over(shared.clone()).await, Some(true));
    harness.jobs(vec![others]).await;
    assert_eq!(harness.hub.is_over(shared.clone()).await, Some(true));
    let later = Share { created_ms: 30_000, ..shared };
    assert_eq!(harness.hub.is_over(later).await, Some(false));
}

#[tokio::test]
async fn an_array_has_ended_once_no_task_runs_or_waits() {
    let task = |id, task, state| Job {
        part_of: Some(Parent::Array { job: JobId(40), task }),
        state,
        ..job(id, &[("n1", &[0])])
    };
    let (array, last) = (Scope::of_jobs(Vec::new(), vec![JobId(40)]), Scope::Jobs(vec![JobId(40)]));
    let harness = Harness::open();
    let has_ended = async |scope: &Scope| harness.hub.has_ended(scope.clone()).await;
    let ended = || JobState::Ended("COMPLETED".into());
    assert_eq!(has_ended(&array).await, None, "there is no list yet");
    harness.jobs(vec![task(41, Some(0), ended()), task(40, None, JobState::Pending)]).await;
    assert_eq!(has_ended(&array).await, Some(false), "some wait");
    harness.jobs(vec![task(41, Some(0), JobState::Running), task(40, Some(1), ended())]).await;
    assert_eq!((has_ended(&array).await, has_ended(&last).await), (Some(false), Some(true)));
    harness.jobs(vec![task(41, Some(0), ended()), task(40, Some(1), ended())]).await;
    assert_eq!(has_ended(&array).await, Some(true));
}

#[tokio::test(start_paused = true)]
async fn few_nodes_sample_together_and_many_in_groups() {
    let harness = Harness::open();
    let names = |count: u32| -> Vec<String> { (0..count).map(|node| format!("n{node:04}")).collect() };
    let phases = async |count| {
        let names = names(count);
        let on: Vec<_> = names.iter().map(|name| (name.as_str(), &[0][..])).collect();
        harness.jobs(vec![job(1, &on)]).await;
        let mut phases = BTreeMap::<u32, usize>::new();
        harness
            .plan
            .borrow()
            .nodes
            .values()
            .for_each(|schedule| *phases.entry(schedule.phase_ms).or_default() += 1);
        phases
    };
    assert_eq!(phases(128).await, BTreeMap::from([(0, 128)]));
    let groups = phases(1_000).await;
    assert_eq!(
        groups.keys().copied().collect::<Vec<_>>(),
        (0..8).map(|group| group * 60).collect::<Vec<_>>()
    );
    assert!(groups.values().all(|nodes| (80..=180).contains(nodes)), "{groups:?}");
    // All groups fit into a second, however many there are.
    assert!(phases(4_000).await.keys().all(|phase_ms| *phase_ms < 960));
}

/// Lines of two nodes that sample together, in a virtual time that only passes while everything waits.
#[tokio::test(start_paused = true)]
async fn a_group_that_has_reported_is_sent_at_once_and_an_incomplete_one_after_a_pause() {
    let harness = Harness::open();
    harness.jobs(vec![job(1, &[("n1", &[0]), ("n2", &[0])])]).await;
    for node in ["n1", "n2"] {
        harness.line(node, hello(node, &[0])).await;
    }
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    subscriber.set_topics(vec![job_topic()]).await;
    // The first samples: the members of the group are not known yet.
    for node in ["n1", "n2"] {
        harness.line(node, sample(1, &[50])).await;
    }
    while tokio::time::timeout(Duration::from_millis(900), subscriber.next()).await.is_ok() {}
    let report = async |node: &str, second: u64| {
        let event = SessionEvent::Line(Box::new(sample(second, &[second]).into()));
        harness
            .lines
            .send(FromNode { node: name(node), job: None, at_ms: harness.clock.now_ms(), event })
            .await
            .unwrap();
    };
    for (second, nodes, waited_ms) in [(2, &["n1", "n2"][..], 0), (3, &["n2"], 5), (4, &["n1", "n2"], 0)] {
        let began = tokio::time::Instant::now();
        for node in nodes {
            report(node, second).await;
        }
        assert!(matches!(message(&mut subscriber).await, ServerMessage::Delta(_)));
        // Timers of the runtime have a resolution of 1 ms.
        let waited = began.elapsed().as_millis();
        assert!((waited_ms..=waited_ms + 1).contains(&waited), "second {second}: {waited} ms");
        tokio::time::sleep_until(began + Duration::from_secs(1)).await;
        while subscriber.try_next().is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_stored_history_is_entered_while_the_relay_serves() {
    let harness = Harness::with_a_job().await;
    let hub = harness.hub.clone();
    let query = |now_ms: u64| RangeQuery {
        topic: job_topic(),
        from_ms: now_ms.saturating_sub(86_400_000),
        to_ms: now_ms,
        step_ms: 60_000,
        gpu_fields: vec![GpuField::Util.name().into()],
        host_fields: Vec::new(),
    };
    let begins_ms = async || {
        let source = hub.range(Viewer::Owner, query(harness.clock.now_ms())).await.unwrap();
        source.read().begins_ms
    };
    let notices = async || hub.everything(Viewer::Owner).await.unwrap().0.relay.notices;
    hub.restoring_history().await;
    assert_eq!(notices().await.len(), 1, "it says what is missing");
    let before_ms = begins_ms().await;
    // Two hours of the same GPU, half a day ago.
    let mut node = hub.everything(Viewer::Owner).await.unwrap().0.nodes.remove(0);
    let mut restored = LongHistory::default();
    let half_a_day_ago_ms = harness.clock.now_ms() - 43_200_000;
    for minute in 0..120 {
        node.sampled_at_ms = Some(half_a_day_ago_ms + minute * 60_000);
        restored.record(&node);
    }
    hub.restore_history(Some(restored)).await;
    assert_eq!(notices().await, [] as [Text; 0]);
    let begins = begins_ms().await.unwrap();
    assert!(begins.abs_diff(half_a_day_ago_ms) <= 600_000, "{begins} {half_a_day_ago_ms} {before_ms:?}");
    // Without a readable history, the notice ends as well.
    hub.restoring_history().await;
    hub.restore_history(None).await;
    assert_eq!(notices().await, [] as [Text; 0]);
}

#[tokio::test]
async fn a_list_of_notes_has_those_that_were_read_from_the_disk_before() {
    let harness = Harness::open();
    for count in 1..=20 {
        let (id, text, source) = (NoteId::from_bits(count), "epoch 1".into(), NoteSource::Api);
        let note = Note { id, job: None, node: None, rank: None, at_ms: count, text, source };
        let restored = nodeglass_fleet::Event::RestoredNotes(vec![NoteChange::Put(note)]);
        // Both are there before the event loop runs again.
        harness.events.try_send(restored).unwrap();
        let listed = harness.hub.notes(None, Viewer::Owner).await.unwrap();
        assert_eq!(listed.len() as u64, count);
    }
}

/// Two relays of a cluster on one state directory.
struct TwoRelays {
    relays: [(Harness, JobStore); 2],
    _folder: tempfile::TempDir,
}

impl TwoRelays {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
        let relay = async |host: &str| {
            let origin = Origin { cluster: "hpc".into(), host: host.into() };
            let store = JobStore::start(Location::Dir(dir.clone()), origin, drop).unwrap();
            store.restored().await;
            let options = Options { sync_notes_ms: 100, ..Options::default() };
            (Harness::storing(options, Some(store.clone())), store)
        };
        Self { relays: [relay("login1").await, relay("login2").await], _folder: folder }
    }

    async fn request(&self, relay: usize, request: NoteRequest) -> Result<(NoteChange, bool), Text> {
        let (harness, store) = &self.relays[relay];
        harness.hub.note(request, store.changed_notes_now().await).await
    }

    async fn texts(&self, relay: usize) -> Vec<String> {
        let notes = self.relays[relay].0.hub.notes(None, Viewer::Owner).await.unwrap();
        notes.iter().map(|note| note.text.to_string()).collect()
    }

    /// Waits until a relay has these notes.
    async fn until(&self, relay: usize, texts: &[&str]) {
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while self.texts(relay).await != texts {
            assert!(std::time::Instant::now() < deadline, "{:?}", self.texts(relay).await);
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn a_note_of_another_relay_can_be_changed_and_deleted_and_appears_by_itself() {
    let both = TwoRelays::start().await;
    let add = |text: &str| NoteRequest::Add(NewNote { text: text.into(), ..NewNote::default() });
    let edit = |id, text: &str| {
        let edit = NoteEdit { text: Some(text.into()), ..NoteEdit::default() };
        NoteRequest::Edit { id, edit }
    };
    let (NoteChange::Put(note), true) = both.request(0, add("epoch 1")).await.unwrap() else { panic!() };
    assert!(both.request(1, edit(note.id, "epoch 2")).await.unwrap().1);
    assert_eq!(both.texts(1).await, ["epoch 2"]);
    // Without a request, with the next look at the database.
    both.until(0, &["epoch 2"]).await;
    assert!(both.request(0, NoteRequest::Delete(note.id)).await.unwrap().1);
    let refused = both.request(1, edit(note.id, "epoch 3")).await.unwrap_err();
    assert!(refused.as_str().contains("probably deleted"), "{refused}");
    assert_eq!(both.texts(1).await, [""; 0]);
    // The other relay deletes it after this one has looked.
    let (NoteChange::Put(note), true) = both.request(0, add("late")).await.unwrap() else { panic!() };
    let (other, store) = &both.relays[1];
    other.hub.note(edit(note.id, "later"), store.changed_notes_now().await).await.unwrap();
    both.request(0, NoteRequest::Delete(note.id)).await.unwrap();
    let refused = other.hub.note(edit(note.id, "lost"), None).await.unwrap_err();
    assert!(refused.as_str().contains("was deleted by another relay"), "{refused}");
    both.until(1, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_run_when_the_first_list_arrives_have_not_just_started() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let command = format!("sh -c 'echo $NODEGLASS_EVENT >> {}'", out.display());
    let settings = Settings {
        webhook: None,
        command: Some(command.parse().unwrap()),
        mail: None,
        on: vec![NotifyOn::Starts],
        severity: FindingSeverity::Warning,
    };
    let notifier = Notifier::start(settings, Sender::default(), 0).unwrap();
    let harness =
        Harness::feeding(Options::default(), Sinks { notifier: Some(notifier), ..Sinks::default() });
    // Some ticks before the first list, and one between the two.
    sleep(Duration::from_millis(2_500)).await;
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    sleep(Duration::from_millis(1_500)).await;
    // The command is a process, which a paused clock does not wait for.
    tokio::time::resume();
    harness.jobs(vec![job(1, &[("n1", &[0])]), job(2, &[("n1", &[1])])]).await;
    let ten_seconds = tokio::time::Instant::now() + Duration::from_secs(10);
    let read = || std::fs::read_to_string(&out).unwrap_or_default();
    while read().is_empty() && tokio::time::Instant::now() < ten_seconds {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(read(), "job_started\n");
}
