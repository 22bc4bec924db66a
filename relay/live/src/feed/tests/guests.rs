//! What guests are sent: never what is hidden from them, and the picture of the rest.

use super::*;
use nodeglass_protocol::job::Parent;

/// What a guest of job 1 must never be sent.
const HIDDEN: [&str; 12] = [
    "canary-note-0",
    "canary-note-2",
    "canary-note-3",
    "canary-job-2",
    "canary-job-3",
    "canary-command-2",
    "canary-command-3",
    "canary-command-none",
    "canary-arguments",
    "canary-path",
    "canary-why",
    "canary-deed",
];

/// A guest of job 1, with nine samples of its first node, and the feed and subscriber of the job.
fn guest_of(job: Job) -> (Fleet, TopicFeed, TestSubscriber) {
    let mut fleet = Fleet::new();
    jobs(&mut fleet, vec![job], 10_000);
    line(&mut fleet, "n1", hello("n1", &[0]), 10_000);
    (11..20).for_each(|second| line(&mut fleet, "n1", sample(second, &[second]), second * 1_000));
    fleet.take_changes();
    let viewer = guest(Scope::Jobs(vec![JobId(1)]), HiddenParts::default());
    let mut feed = TopicFeed::open(Topic::Job(JobId(1)), viewer, 3, 1 << 20, &fleet, 20_000).unwrap();
    let subscriber = TestSubscriber::join(&mut feed, &fleet, Form::Binary).unwrap();
    (fleet, feed, subscriber)
}

#[test]
fn a_guest_receives_the_history_again_when_another_part_of_it_is_visible() {
    let started = |start| Job { start: Some(start), ..scene::job(1, &[("n1", &[0])]) };
    let (mut fleet, mut feed, mut subscriber) = guest_of(started(1_016));
    let visible = |subscriber: &TestSubscriber| {
        let history = subscriber.picture.nodes[0].history.as_ref().unwrap();
        history
            .gpu(0, nodeglass_protocol::GpuField::Util)
            .unwrap()
            .points()
            .filter(|(_, cell)| cell.is_some())
            .count()
    };
    assert_eq!(visible(&subscriber), 4, "from 16 s on");
    // SLURM states another start; the node itself does not change.
    jobs(&mut fleet, vec![started(1_013)], 20_000);
    let changes = fleet.take_changes();
    assert!(subscriber.take(&feed.advance(&fleet, &changes, 20_000, true).unwrap()));
    assert_eq!(visible(&subscriber), 7, "from 13 s on");
}

/// A job has a host if it has every CPU of all of its nodes, which another node states last.
#[test]
fn a_guest_receives_the_history_of_a_host_that_another_node_makes_visible() {
    let job = Job { cpus: Some(16), ..scene::job(1, &[("n1", &[0]), ("n2", &[0])]) };
    let (mut fleet, mut feed, mut subscriber) = guest_of(job);
    line(&mut fleet, "n2", hello("n2", &[0]), 20_000);
    let changes = fleet.take_changes();
    assert!(subscriber.take(&feed.advance(&fleet, &changes, 20_000, true).unwrap()));
    let truth = truth(&feed.topic, &feed.viewer, DetailLevel::of(&feed.topic), &fleet, 20_000);
    assert_eq!(subscriber.picture.nodes[0].history, truth.nodes[0].history);
}

/// Performs an action, with a canary wherever there is something to hide. `others` is part of every text of jobs other
/// than the first and of their processes.
fn perform_with_canaries(fleet: &mut Fleet, now_ms: &mut u64, what: Action, others: &str) {
    let of = |job: u32| if job == 1 { "" } else { others };
    match what {
        Action::Jobs(list) => {
            *now_ms += 137;
            let list = jobs_on(list, |id| id - 1).into_iter().map(|job| {
                let path: LongText = format!("/canary-path-{}{}", job.id, of(job.id.0)).as_str().into();
                Job {
                    name: format!("canary-job-{}{}", job.id, of(job.id.0)).into(),
                    qos: Some(format!("canary-qos-{}{}", job.id, of(job.id.0)).into()),
                    workdir: Some(path.clone()),
                    command: Some(path.clone()),
                    stdout: Some(path),
                    // The last task of an array has its raw id.
                    part_of: (job.id.0 < 3).then_some(Parent::Array { job: job.id, task: Some(7) }),
                    dependency: Some("afterok:canary-job-2".into()),
                    ..job
                }
            });
            jobs(fleet, list.collect(), *now_ms);
            let deed = "canary-deed";
            let deed = AuditEntry { wall_ms: 0, action: deed.into(), outcome: deed.into(), succeeded: true };
            fleet.handle(Event::Audit(deed), *now_ms);
            let share = Share {
                id: ShareId::new("x").unwrap(),
                created_ms: *now_ms,
                terms: terms(Scope::All, HiddenParts::default()),
            };
            fleet.handle(Event::Sharing(Sharing { shares: vec![share], ..Sharing::default() }), *now_ms);
        }
        Action::Process(node, gpu, job) => {
            *now_ms += 137;
            let ProbeLine::Processes(mut list) = process(NODES[node], gpu, 7, job) else { unreachable!() };
            let facts = &mut list.processes[0].facts;
            facts.user = Reading::Value(user_of(job).into());
            let others = job.map_or(others, of);
            let job = job.map_or("none".to_owned(), |job| job.to_string());
            facts.command = Reading::Value(format!("canary-command-{job}{others}").into());
            facts.args = Reading::Value(format!("canary-arguments-{job}{others}").into());
            facts.cwd = Reading::Value(format!("/canary-path-{job}{others}").into());
            line(fleet, NODES[node], ProbeLine::Processes(list), *now_ms);
        }
        Action::Down(node) => {
            *now_ms += 137;
            let down = SessionEvent::Down { why: "canary-why".into(), retry_at_ms: *now_ms };
            fleet.handle(Event::Node(scene::name(NODES[node]), down), *now_ms);
        }
        other => perform(fleet, now_ms, other),
    }
}

/// Everything that is sent to a guest who subscribes to this topic, in both forms.
fn sent(topic: Topic, viewer: Viewer, story: Vec<Action>) -> Vec<u8> {
    sent_beside(topic, viewer, story, "")
}

/// As [`sent`], beside jobs of others with this text.
fn sent_beside(topic: Topic, viewer: Viewer, story: Vec<Action>, others: &str) -> Vec<u8> {
    let (mut fleet, mut now_ms, mut all) = (Fleet::new(), 10_000, Vec::new());
    let mut feed: Option<TopicFeed> = None;
    for what in story {
        perform_with_canaries(&mut fleet, &mut now_ms, what, others);
        fleet.handle(Event::Tick, now_ms);
        let changes = fleet.take_changes();
        if let Some(out) = feed.as_mut().and_then(|feed| feed.advance(&fleet, &changes, now_ms, true)) {
            all.extend_from_slice(&out.binary);
            all.extend_from_slice(&out.json.unwrap_or_default());
        }
        let names = || NODES.map(scene::name).into();
        let histories = |form| feed.as_mut().and_then(|feed| feed.history(&fleet, form, &mut names()));
        all.extend([Form::Binary, Form::Json].into_iter().filter_map(histories).flatten());
        feed = feed
            .or_else(|| TopicFeed::open(topic.clone(), viewer.clone(), 3, HISTORY_BUDGET, &fleet, now_ms));
        let whole = |form| feed.as_mut().and_then(|feed| feed.full_snapshot(&fleet, form));
        all.extend([Form::Binary, Form::Json].into_iter().filter_map(whole).flatten());
    }
    all
}

fn holds(bytes: &[u8], canary: &str) -> bool {
    bytes.windows(canary.len()).any(|window| window == canary.as_bytes())
}

fn topics() -> impl Strategy<Value = Topic> {
    prop_oneof![
        Just(Topic::Overview),
        (1..4u32).prop_map(|id| Topic::Job(JobId(id))),
        (0..NODES.len()).prop_map(|node| Topic::Node(scene::name(NODES[node]))),
    ]
}

fn scopes() -> impl Strategy<Value = Scope> {
    prop_oneof![
        Just(Scope::All),
        proptest::collection::vec((1..4u32).prop_map(JobId), 1..3).prop_map(Scope::Jobs),
        (0..3u32, 1..4u32).prop_map(|(job, array)| Scope::JobsAndArrays {
            jobs: (job > 0).then_some(JobId(job)).into_iter().collect(),
            arrays: vec![JobId(array)],
        }),
        proptest::collection::vec((0..NODES.len()).prop_map(|node| scene::name(NODES[node])), 1..3)
            .prop_map(Scope::Nodes),
    ]
}

fn person(user: &str, accounts: &[&str]) -> Viewer {
    let accounts = accounts.iter().map(nodeglass_protocol::Text::new).collect();
    Viewer::Restricted(Arc::new(Visibility::of_person(user.into(), accounts)))
}

/// People of a site: with and without accounts, with and without jobs, and an administrator.
fn people() -> impl Strategy<Value = Viewer> {
    let viewers = [
        person("alice", &[]),
        person("alice", &["ml"]),
        person("carol", &["bio"]),
        person("dave", &[]),
        Viewer::Restricted(Arc::new(Visibility::of_admin("alice".into()))),
    ];
    (0..viewers.len()).prop_map(move |index| viewers[index].clone())
}

fn story() -> impl Strategy<Value = Vec<Action>> {
    proptest::collection::vec(actions(), 1..50)
}

proptest! {
    #[test]
    fn t09_a_guest_of_one_job_or_array_never_receives_hidden_data(
        topic in topics(),
        is_array in proptest::bool::ANY,
        story in story(),
    ) {
        let named = vec![JobId(1)];
        let scope = if is_array { Scope::of_jobs(Vec::new(), named) } else { Scope::Jobs(named) };
        let bytes = sent(topic, guest(scope, HiddenParts::default()), story);
        for canary in HIDDEN {
            prop_assert!(!holds(&bytes, canary), "{canary}");
        }
    }

    #[test]
    fn t09_hidden_data_is_not_sent_in_any_scope(topic in topics(), scope in scopes(), story in story()) {
        let bytes = sent(topic, guest(scope.clone(), HiddenParts::default()), story);
        for canary in ["canary-arguments", "canary-path", "canary-why", "canary-deed"] {
            prop_assert!(!holds(&bytes, canary), "{canary}");
        }
        if let Scope::Nodes(shown) = &scope {
            for hidden in NODES.iter().filter(|name| !shown.contains(&scene::name(name))) {
                let gpu = format!("GPU-{hidden}-");
                prop_assert!(!holds(&bytes, &gpu), "{gpu}");
            }
        }
    }

    #[test]
    fn t09_a_person_never_receives_a_byte_about_another_users_job(topic in topics(), story in story()) {
        let bytes = sent(topic.clone(), person("alice", &[]), story.clone());
        let hidden = HIDDEN.into_iter().filter(|canary| !["canary-arguments", "canary-path"].contains(canary));
        let of_others = ["canary-arguments-2", "canary-path-2", "canary-qos-2", "canary-qos-3", "bobby", "carol"];
        for canary in hidden.chain(of_others) {
            prop_assert!(!holds(&bytes, canary), "{canary}");
        }
        let beside = sent_beside(topic, person("alice", &[]), story, "-that-is-longer");
        prop_assert!(bytes == beside, "what others call their jobs changes what alice receives");
    }

    #[test]
    fn t09_members_of_an_account_receive_no_details_of_others(topic in topics(), story in story()) {
        let bytes = sent(topic.clone(), person("alice", &["ml"]), story.clone());
        let details = ["canary-arguments-2", "canary-path-2", "canary-note-2", "canary-why", "canary-deed"];
        let of_carol = ["canary-job-3", "canary-command-3", "canary-note-3", "canary-qos-3", "carol"];
        for canary in details.into_iter().chain(of_carol) {
            prop_assert!(!holds(&bytes, canary), "{canary}");
        }
        let admin = Viewer::Restricted(Arc::new(Visibility::of_admin("alice".into())));
        let bytes = sent(topic, admin, story);
        for canary in ["canary-arguments-2", "canary-arguments-none", "canary-path-2", "canary-path-3", "canary-note-2", "canary-note-0"] {
            prop_assert!(!holds(&bytes, canary), "{canary}");
        }
    }

    #[test]
    fn every_person_has_the_filtered_picture(
        topic in topics(),
        viewer in people(),
        story in proptest::collection::vec((actions(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.1)), 1..60)
    ) {
        check_convergence(topic, viewer, story);
    }

    #[test]
    fn every_guest_has_the_filtered_picture(
        topic in topics(),
        scope in scopes(),
        story in proptest::collection::vec((actions(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.1)), 1..60)
    ) {
        check_convergence(topic, guest(scope, HiddenParts::default()), story);
    }
}

/// The search for canaries would find them: a person is sent every one of their own job, and of those of others what an
/// account or an administrator sees.
#[test]
fn t09_people_receive_the_details_of_their_own_jobs() {
    let story = vec![
        Action::Jobs(vec![(1, vec![0]), (2, vec![0])]),
        Action::Hello(0, 3),
        Action::Sample(0, vec![1, 2, 3]),
        Action::Process(0, 0, Some(1)),
        Action::Process(0, 1, Some(2)),
        Action::Note(Some(1), 1),
    ];
    let bytes = |viewer: &Viewer| {
        let of = |topic| sent(topic, viewer.clone(), story.clone());
        [of(Topic::Overview), of(Topic::Node(scene::name("n1"))), of(Topic::Job(JobId(1)))].concat()
    };
    let admin = Viewer::Restricted(Arc::new(Visibility::of_admin("alice".into())));
    for viewer in [person("alice", &[]), person("alice", &["ml"]), admin] {
        let bytes = bytes(&viewer);
        for canary in ["canary-job-1", "canary-qos-1", "canary-path-1", "canary-arguments-1", "canary-note-1"]
        {
            assert!(holds(&bytes, canary), "{canary} {viewer:?}");
        }
        let sees_bob = viewer != person("alice", &[]);
        for canary in ["canary-job-2", "canary-command-2", "bobby"] {
            assert_eq!(holds(&bytes, canary), sees_bob, "{canary} {viewer:?}");
        }
    }
    assert!(!holds(&bytes(&person("dave", &[])), "canary"));
}

/// The search for canaries would find them: the owner is sent every one.
#[test]
fn t09_the_owner_receives_what_is_hidden_from_guests() {
    let story = vec![
        Action::Jobs(vec![(2, vec![0]), (3, vec![1])]),
        Action::Hello(0, 3),
        Action::Sample(0, vec![1, 2, 3]),
        Action::Process(0, 0, Some(2)),
        Action::Process(0, 0, Some(3)),
        Action::Process(0, 0, None),
        Action::Down(0),
        Action::Note(None, 1),
        Action::Note(Some(2), 2),
        Action::Note(Some(3), 3),
    ];
    let overview = sent(Topic::Overview, Viewer::Owner, story.clone());
    let [one, other] =
        ["n1", "n2"].map(|name| sent(Topic::Node(scene::name(name)), Viewer::Owner, story.clone()));
    let bytes = [overview, one, other].concat();
    for canary in HIDDEN {
        assert!(holds(&bytes, canary), "{canary}");
    }
}
