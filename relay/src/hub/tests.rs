//! Viewers come, look, sleep and leave; time is given, not slept.

use super::*;
use crate::clock::Clock;
use crate::fleet::Fleet;
use crate::fleet::scene::{hello, job, name, sample};
use crate::nodes::{FromNode, NodeEvent, Plan};
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::live::{Farewell, ServerMessage};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::share::{Scope, Sharing};
use nodeglass_protocol::{GpuField, JobId, Picture};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// A running core, fed by hand.
struct Desk {
    hub: Hub,
    lines: mpsc::Sender<FromNode>,
    news: mpsc::Sender<crate::fleet::Event>,
    orders: watch::Receiver<Plan>,
    shutdown: watch::Sender<bool>,
    clock: Clock,
}

impl Desk {
    fn open() -> Self {
        Self::with(CoreOptions::default())
    }

    fn with(options: CoreOptions) -> Self {
        let (lines, nodes) = mpsc::channel(64);
        let (news, heard) = mpsc::channel(8);
        let (shutdown, ending) = watch::channel(false);
        let clock = Clock::start();
        let inputs = Inputs { nodes, news: heard, sharing: watch::channel(Sharing::default()).1 };
        let (core, hub, orders) = Core::new(Fleet::new(), clock, options, inputs);
        tokio::spawn(core.run(ending));
        Self { hub, lines, news, orders, shutdown, clock }
    }

    async fn jobs(&self, jobs: Vec<Job>) {
        self.news.send(crate::fleet::Event::Jobs { jobs, wall_s: 1 }).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }

    async fn line(&self, node: &str, line: ProbeLine) {
        let event = NodeEvent::Line(Box::new(line.into()));
        self.lines.send(FromNode { node: name(node), at_ms: self.clock.now_ms(), event }).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }

    /// One job on one node with one GPU that was sampled once.
    async fn with_a_job() -> Self {
        let desk = Self::open();
        desk.jobs(vec![job(1, &[("n1", &[0])])]).await;
        desk.line("n1", hello("n1", &[0])).await;
        desk.line("n1", sample(1, &[50])).await;
        desk
    }
}

async fn message(viewer: &mut Viewer) -> ServerMessage {
    Form::Binary.decode(&viewer.next().await.unwrap()).unwrap()
}

/// The next message that tells something, passing over the relay's own figures.
async fn follow(viewer: &mut Viewer, pictures: &mut BTreeMap<u32, Picture>) -> ServerMessage {
    let message = message(viewer).await;
    match &message {
        ServerMessage::Snapshot(snapshot) => {
            pictures.insert(snapshot.number, snapshot.picture.clone());
        }
        ServerMessage::Delta(delta) => pictures.get_mut(&delta.topic).unwrap().apply(delta, |_| ()).unwrap(),
        ServerMessage::Histories(pasts) => {
            pictures.get_mut(&pasts.topic).unwrap().apply_histories(pasts.clone(), |_| ()).unwrap();
        }
        _ => {}
    }
    message
}

fn job_topic() -> Topic {
    Topic::Job(JobId(1))
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_the_whole_and_then_what_changes() {
    let desk = Desk::with_a_job().await;
    let (mut viewer, mut pictures) =
        (desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap(), BTreeMap::new());
    viewer.look(vec![job_topic()]).await;
    assert!(matches!(follow(&mut viewer, &mut pictures).await, ServerMessage::Snapshot(_)));
    desk.line("n1", sample(2, &[60])).await;
    assert!(matches!(follow(&mut viewer, &mut pictures).await, ServerMessage::Delta(_)));
    let picture = pictures.values().next().unwrap();
    assert_eq!(picture.nodes[0].gpus[0].row.value(GpuField::Util), Some(60));
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_slept_catches_up_with_a_snapshot_and_delays_nobody() {
    let desk = Desk::with_a_job().await;
    let (mut awake, mut asleep) = (
        desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap(),
        desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap(),
    );
    let (mut pictures, mut late) = (BTreeMap::new(), BTreeMap::new());
    awake.look(vec![job_topic()]).await;
    asleep.look(vec![job_topic()]).await;
    follow(&mut awake, &mut pictures).await;
    for second in 2..40 {
        sleep(Duration::from_secs(1)).await;
        desk.line("n1", sample(second, &[second])).await;
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
async fn pasts_come_in_pieces_as_they_are_read_and_deltas_between_them() {
    let nodes = ["n1", "n2", "n3", "n4", "n5"];
    let desk = Desk::with(CoreOptions { room: 1, ..CoreOptions::default() });
    desk.jobs(vec![job(1, &nodes.map(|node| (node, &[0][..])))]).await;
    for node in nodes {
        desk.line(node, hello(node, &[0])).await;
        desk.line(node, sample(1, &[50])).await;
    }
    let mut viewer = desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap();
    let mut pictures = BTreeMap::new();
    viewer.look(vec![job_topic()]).await;
    let snapshot = follow(&mut viewer, &mut pictures).await;
    let ServerMessage::Snapshot(snapshot) = snapshot else { panic!("{snapshot:?}") };
    let told = |node: &NodePicture| node.history.is_some();
    assert_eq!(
        snapshot.picture.nodes.iter().map(told).collect::<Vec<_>>(),
        [true, false, false, false, false]
    );
    assert!(matches!(follow(&mut viewer, &mut pictures).await, ServerMessage::Histories(_)));
    desk.line("n5", sample(2, &[60])).await;
    let mut rest = Vec::new();
    for _ in 0..4 {
        rest.push(matches!(follow(&mut viewer, &mut pictures).await, ServerMessage::Histories(_)));
    }
    // The delta is not kept waiting until all pasts have come.
    assert_eq!(rest.iter().filter(|is_past| **is_past).count(), 3);
    assert!(!rest[0] || !rest[1], "{rest:?}");
    let frame = desk.hub.picture(job_topic(), Eyes::Owner, Form::Binary).await.unwrap();
    let ServerMessage::Snapshot(truth) = Form::Binary.decode(&frame).unwrap() else { panic!("no snapshot") };
    let known = pictures.values().next().unwrap();
    assert_eq!(known.nodes, truth.picture.nodes);
    assert!(known.nodes.iter().all(told));
}

/// A delta that came before the snapshot would be of a picture that the viewer does not have.
#[tokio::test(start_paused = true)]
async fn after_a_viewer_fell_behind_the_first_thing_of_a_topic_is_its_snapshot() {
    let desk = Desk::with_a_job().await;
    let mut asleep = desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap();
    asleep.look(vec![job_topic()]).await;
    for second in 2..40 {
        sleep(Duration::from_secs(1)).await;
        desk.line("n1", sample(second, &[second])).await;
    }
    let mut seconds = 40..;
    while !matches!(asleep.mailbox.next().await, Mail::Behind) {}
    // It has noticed, and before the core hears of it, more happens.
    desk.line("n1", sample(seconds.next().unwrap(), &[1])).await;
    assert_eq!(asleep.waiting(), None);
    asleep.hub.requests.send(Request::CatchUp { viewer: asleep.id }).await.unwrap();
    assert!(matches!(message(&mut asleep).await, ServerMessage::Lagged { missed } if missed > 30));
    assert!(matches!(message(&mut asleep).await, ServerMessage::Snapshot(_)));
    desk.line("n1", sample(seconds.next().unwrap(), &[2])).await;
    assert!(matches!(message(&mut asleep).await, ServerMessage::Delta(_)));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_sampled_as_quickly_as_somebody_looks() {
    let desk = Desk::with_a_job().await;
    let interval = || desk.orders.borrow().nodes[&name("n1")].interval_ms;
    assert_eq!(interval(), 2_000);
    let mut viewer = desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap();
    viewer.look(vec![Topic::Overview, job_topic()]).await;
    sleep(Duration::from_millis(5)).await;
    assert_eq!(interval(), 1_000);
    drop(viewer);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(interval(), 2_000);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(interval(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_exist_is_gone_and_one_that_appears_is_shown_unasked() {
    let desk = Desk::open();
    let mut viewer = desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap();
    viewer.look(vec![job_topic()]).await;
    assert!(matches!(message(&mut viewer).await, ServerMessage::Gone(topic) if topic == job_topic()));
    desk.jobs(vec![job(1, &[("n1", &[0])])]).await;
    assert!(
        matches!(message(&mut viewer).await, ServerMessage::Snapshot(snapshot) if snapshot.topic == job_topic())
    );
}

#[tokio::test(start_paused = true)]
async fn topics_are_bounded_and_told_once() {
    let desk = Desk::with_a_job().await;
    let mut viewer = desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap();
    let many = (0..100).map(|id| Topic::Job(JobId(id / 2))).collect();
    viewer.look(many).await;
    for _ in 0..MAX_TOPICS {
        assert!(matches!(message(&mut viewer).await, ServerMessage::Gone(_) | ServerMessage::Snapshot(_)));
    }
    let more = tokio::time::timeout(Duration::from_millis(100), viewer.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn everyone_is_told_when_the_relay_ends() {
    let desk = Desk::with_a_job().await;
    let mut viewer = desk.hub.enter(Form::Binary, Eyes::Owner).await.unwrap();
    desk.shutdown.send(true).unwrap();
    assert!(matches!(message(&mut viewer).await, ServerMessage::Bye(Farewell::ShuttingDown)));
    assert!(viewer.next().await.is_none());
    assert!(desk.hub.enter(Form::Binary, Eyes::Owner).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_picture_is_given_without_entering() {
    let desk = Desk::with_a_job().await;
    let bytes = desk.hub.picture(Topic::Overview, Eyes::Owner, Form::Json).await.unwrap();
    let ServerMessage::Snapshot(snapshot) = Form::Json.decode(&bytes).unwrap() else { panic!("no snapshot") };
    assert_eq!(snapshot.picture.jobs.len(), 1);
    assert!(desk.hub.picture(Topic::Node(name("stranger")), Eyes::Owner, Form::Json).await.is_none());
}

#[tokio::test]
async fn the_number_of_an_array_is_answered_with_those_of_its_tasks() {
    let task = |id, task| Job {
        part_of: Some(Parent::Array { job: JobId(40), task: Some(task) }),
        ..job(id, &[("n1", &[0])])
    };
    let desk = Desk::open();
    desk.jobs(vec![task(41, 0), task(42, 1), job(7, &[("n1", &[0])])]).await;
    let missing = async |id| desk.hub.missing(Scope::Jobs(vec![JobId(id)])).await;
    assert_eq!(missing(40).await, Some("job 40 is an array; name those of its tasks: 41,42".into()));
    assert_eq!(missing(9).await, Some("there is no job 9 among those that this relay watches".into()));
    assert_eq!((missing(42).await, missing(7).await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_few_nodes_sample_together_and_very_many_in_groups() {
    let desk = Desk::open();
    let names = |count: u32| -> Vec<String> { (0..count).map(|node| format!("n{node:04}")).collect() };
    let phases = async |count| {
        let names = names(count);
        let on: Vec<_> = names.iter().map(|name| (name.as_str(), &[0][..])).collect();
        desk.jobs(vec![job(1, &on)]).await;
        let mut phases = BTreeMap::<u32, usize>::new();
        desk.orders
            .borrow()
            .nodes
            .values()
            .for_each(|orders| *phases.entry(orders.phase_ms).or_default() += 1);
        phases
    };
    assert_eq!(phases(128).await, BTreeMap::from([(0, 128)]));
    let groups = phases(1_000).await;
    assert_eq!(
        groups.keys().copied().collect::<Vec<_>>(),
        (0..8).map(|group| group * 60).collect::<Vec<_>>()
    );
    assert!(groups.values().all(|nodes| (80..=180).contains(nodes)), "{groups:?}");
    // However many there are, all of them come within the second.
    assert!(phases(4_000).await.keys().all(|phase_ms| *phase_ms < 960));
}
