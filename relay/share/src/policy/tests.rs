//! What each setting of a share hides, tested from the guest's side.

use super::*;
use nodeglass_fleet::scene::{self, hello, jobs, line, process, sample};
use nodeglass_fleet::{Event, NoteChange, SessionEvent};
use nodeglass_protocol::cluster::ClusterSummary;
use nodeglass_protocol::finding::FindingSeverity;
use nodeglass_protocol::host::HostSample;
use nodeglass_protocol::job::{JobState, Parent, Suspension};
use nodeglass_protocol::note::{NoteId, NoteSource};
use nodeglass_protocol::probe::{JobCgroupUsage, ProbeLine};
use nodeglass_protocol::share::{HiddenParts, ShareTerms};

const NOTHING: HiddenParts =
    HiddenParts { arguments: false, paths: false, other_users: false, logs: false, notes: false };

fn viewer(scope: Scope, hidden: HiddenParts) -> Viewer {
    let terms = ShareTerms { label: "".into(), scope, hidden, to: None, expires_ms: 0, ends_with_job: false };
    Viewer::Restricted(Arc::new(Visibility::new(&terms, "alice".into())))
}

// Job 1 has GPU 0 of n1 and n2, job 2 has GPU 1 of n1.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new();
    let mut first = scene::job(1, &[("n1", &[0]), ("n2", &[0])]);
    first.workdir = Some("/home/alice/secret".into());
    first.command = Some("train.sh --secret".into());
    first.dependency = Some("afterok:2".into());
    jobs(&mut fleet, vec![first, scene::job(2, &[("n1", &[1])])], 0);
    for node in ["n1", "n2"] {
        line(&mut fleet, node, hello(node, &[0, 1]), 0);
        line(&mut fleet, node, sample(1, &[10, 20]), 1_000);
    }
    line(&mut fleet, "n1", process("n1", 0, 7, Some(1)), 1_500);
    fleet
}

/// A sample that includes the host and its CPU cores.
fn host_sample() -> ProbeLine {
    let ProbeLine::Sample(mut sample) = sample(2, &[10, 20]) else { unreachable!() };
    sample.host = HostSample {
        cpu_pct: Reading::Value(77),
        mem_used_bytes: Reading::Value(1 << 36),
        ..HostSample::default()
    };
    sample.cores = vec![99, 1];
    ProbeLine::Sample(sample)
}

fn names(nodes: &[NodeView<'_>]) -> Vec<String> {
    nodes.iter().map(|node| node.name().to_string()).collect()
}

fn gpus(node: &NodeView<'_>) -> Vec<String> {
    node.now().gpus.iter().map(|gpu| gpu.facts.uuid.to_string()).collect()
}

/// Array 40 has task 41 on GPU 0 of n1, and once it has `started` its last task, with the raw id 40, on GPU 0 of n2. Beside them are
/// a task of array 50 and job 2.
fn array(fleet: &mut Fleet, has_started: bool, now_ms: u64) {
    let task = |id, array, on: &[(&str, &[u32])]| Job {
        part_of: Some(Parent::Array { job: JobId(array), task: Some(id) }),
        ..scene::job(id, on)
    };
    let last = task(40, 40, &[("n2", &[0])]);
    let part_of = Some(Parent::Array { job: JobId(40), task: None });
    let rest = Job { part_of, ..Job::new(JobId(40), "alice".into(), JobState::Pending) };
    let last = if has_started { last } else { rest };
    let others = [task(51, 50, &[("n1", &[1])]), scene::job(2, &[("n2", &[1])])];
    jobs(fleet, [task(41, 40, &[("n1", &[0])]), last].into_iter().chain(others).collect(), now_ms);
}

#[test]
fn t09_of_a_shared_array_later_tasks_are_seen_too_and_no_other_job() {
    let mut fleet = Fleet::new();
    array(&mut fleet, false, 0);
    for node in ["n1", "n2"] {
        line(&mut fleet, node, hello(node, &[0, 1]), 0);
        line(&mut fleet, node, sample(1, &[10, 20]), 1_000);
    }
    for (node, pid, on) in [("n1", 7, [41, 51]), ("n2", 9, [40, 2])] {
        let [mut both, other] =
            [0, 1].map(|gpu| match process(node, gpu, pid + gpu, Some(on[gpu as usize])) {
                ProbeLine::Processes(list) => list,
                _ => unreachable!(),
            });
        both.processes.extend(other.processes);
        line(&mut fleet, node, ProbeLine::Processes(both), 1_500);
    }
    let [all, last, other] = [
        Scope::of_jobs(Vec::new(), vec![JobId(40)]),
        Scope::Jobs(vec![JobId(40)]),
        Scope::of_jobs(vec![JobId(2)], vec![JobId(50)]),
    ]
    .map(|scope| viewer(scope, NOTHING));
    let ids = |viewer: &Viewer, fleet: &Fleet| -> Vec<u32> {
        let mut ids: Vec<u32> = viewer.jobs(fleet).iter().map(|job| job.id.0).collect();
        ids.sort_unstable();
        ids
    };
    let seen = |viewer: &Viewer, fleet: &Fleet| -> Vec<(String, Vec<String>)> {
        let nodes = viewer.nodes(fleet, &Topic::Overview).unwrap();
        nodes.iter().map(|node| (node.name().to_string(), gpus(node))).collect()
    };
    let gpu = |node: &str, gpu: u32| (node.to_owned(), vec![format!("GPU-{node}-{gpu}")]);
    assert_eq!((ids(&all, &fleet), seen(&all, &fleet)), (vec![40, 41], vec![gpu("n1", 0)]));
    assert!(!all.has_topic(&fleet, &Topic::Node(scene::name("n2"))));

    array(&mut fleet, true, 2_000);
    assert_eq!((ids(&all, &fleet), seen(&all, &fleet)), (vec![40, 41], vec![gpu("n1", 0), gpu("n2", 0)]));
    assert_eq!((ids(&last, &fleet), seen(&last, &fleet)), (vec![40], vec![gpu("n2", 0)]));
    assert_eq!((ids(&other, &fleet), seen(&other, &fleet)), (vec![2, 51], vec![gpu("n1", 1), gpu("n2", 1)]));
    let topics =
        |viewer: &Viewer| [40, 41, 51, 2, 50].map(|id| viewer.has_topic(&fleet, &Topic::Job(JobId(id))));
    assert_eq!(topics(&all), [true, true, false, false, false]);
    assert_eq!(topics(&last), [true, false, false, false, false]);
    assert_eq!(topics(&other), [false, false, true, true, false]);
    let processes = |viewer: &Viewer| -> Vec<u32> {
        let nodes = viewer.nodes(&fleet, &Topic::Overview).unwrap();
        nodes.iter().flat_map(|node| &node.now().processes).map(|process| process.facts.pid).collect()
    };
    assert_eq!((processes(&all), processes(&last), processes(&other)), (vec![7, 9], vec![9], vec![8, 10]));
}

#[test]
fn t09_of_a_shared_job_its_own_gpus_are_seen_and_no_other_job() {
    let (fleet, viewer) = (fleet(), viewer(Scope::Jobs(vec![JobId(1)]), NOTHING));
    let nodes = viewer.nodes(&fleet, &Topic::Overview).unwrap();
    assert_eq!(names(&nodes), ["n1", "n2"]);
    assert_eq!(gpus(&nodes[0]), ["GPU-n1-0"]);
    assert_eq!(nodes[0].history().unwrap().gpus.len(), 1);
    let listed = viewer.jobs(&fleet);
    assert_eq!(listed.iter().map(|job| job.id.0).collect::<Vec<_>>(), [1]);
    assert_eq!((&listed[0].dependency, &listed[0].reason_text), (&None, &None));
    assert!(
        viewer.has_topic(&fleet, &Topic::Job(JobId(1))) && !viewer.has_topic(&fleet, &Topic::Job(JobId(2)))
    );
}

#[test]
fn t09_of_a_gpu_of_a_shared_job_nothing_is_seen_of_the_time_before_it() {
    let mut fleet = Fleet::new();
    let every = u32::from(u16::MAX);
    let job = |id, start| Job { start: Some(start), cpus: Some(every), ..scene::job(id, &[("n1", &[0])]) };
    jobs(&mut fleet, vec![job(2, 1_000)], 0);
    line(&mut fleet, "n1", hello("n1", &[0]), 0);
    let at = |fleet: &mut Fleet, second: u64| {
        line(fleet, "n1", sample(second, &[10 * second]), second * 1_000);
        let event = nodeglass_protocol::probe::Event {
            mono_ns: second * 1_000_000_000,
            gpu: Some(scene::uuid("n1", 0)),
            xid: Some(second),
            text: "of a program".into(),
        };
        line(fleet, "n1", ProbeLine::Event(event), second * 1_000);
    };
    (1..=4).for_each(|second| at(&mut fleet, second));
    // The relay's clock began 1,000 s after 1970.
    jobs(&mut fleet, vec![job(1, 1_003)], 4_500);
    (5..=6).for_each(|second| at(&mut fleet, second));
    let seen = |viewer: Viewer, topic: Topic| {
        let nodes = viewer.nodes(&fleet, &topic).unwrap();
        let history = nodes[0].history().unwrap().into_owned();
        let seconds = |trace: &nodeglass_protocol::trace::Trace| {
            let known = trace.points().filter(|(_, cell)| cell.is_some());
            known.map(|(at_ms, _)| at_ms / 1_000).collect::<Vec<_>>()
        };
        let gpu = seconds(history.gpu(0, GpuField::Util).unwrap());
        let host = seconds(history.host.get(nodeglass_protocol::HostField::Cpu).unwrap());
        let events: Vec<_> = nodes[0].now().head.events.iter().filter_map(|event| event.xid).collect();
        (gpu, host, events)
    };
    let of_job = || viewer(Scope::Jobs(vec![JobId(1)]), NOTHING);
    for topic in [Topic::Overview, Topic::Job(JobId(1)), Topic::Node(scene::name("n1"))] {
        let (gpu, host, mut events) = seen(of_job(), topic);
        events.sort_unstable();
        assert_eq!((gpu, host, events), (vec![3, 4, 5, 6], vec![3, 4, 5, 6], vec![3, 4, 5, 6]));
    }
    let of_node = viewer(Scope::Nodes(vec![scene::name("n1")]), NOTHING);
    let (gpu, host, events) = seen(of_node, Topic::Overview);
    assert_eq!((gpu.len(), host.len(), events.len()), (6, 6, 6));
}

#[test]
fn t09_of_a_gpu_that_slurm_gave_to_no_job_only_the_time_of_its_use_is_seen() {
    let mut fleet = Fleet::new();
    let without_gpu = Job { start: Some(1_000), ..scene::job(1, &[("n1", &[])]) };
    jobs(&mut fleet, vec![without_gpu.clone()], 0);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 0);
    (1..=3).for_each(|second| line(&mut fleet, "n1", sample(second, &[10, 20]), second * 1_000));
    let seconds = |fleet: &Fleet| {
        let viewer = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING);
        let nodes = viewer.nodes(fleet, &Topic::Overview).unwrap();
        let history = nodes[0].history().unwrap().into_owned();
        let points = |trace: &nodeglass_protocol::trace::Trace| {
            let known = trace.points().filter(|(_, cell)| cell.is_some());
            known.map(|(at_ms, _)| at_ms / 1_000).collect::<Vec<_>>()
        };
        history.gpu(0, GpuField::Util).map(points)
    };
    assert_eq!(seconds(&fleet), None);
    line(&mut fleet, "n1", process("n1", 1, 7, Some(1)), 3_500);
    (4..=5).for_each(|second| line(&mut fleet, "n1", sample(second, &[10, 20]), second * 1_000));
    // From the readings on that are the newest when it is seen.
    assert_eq!(seconds(&fleet), Some(vec![3, 4, 5]));
    // A node may send a sample later that is older.
    let shown = |fleet: &Fleet| {
        let viewer = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING);
        let nodes = viewer.nodes(fleet, &Topic::Overview).unwrap();
        nodes[0].now().gpus[0].row.get(GpuField::Util) != Cell::NOT_YET
    };
    assert!(shown(&fleet));
    line(&mut fleet, "n1", sample(2, &[10, 20]), 5_200);
    assert_eq!((shown(&fleet), seconds(&fleet)), (false, Some(vec![3, 4, 5])));
    line(&mut fleet, "n1", sample(5, &[10, 20]), 5_400);
    // It is another user's job's from now on.
    let others = Job { user: "bob".into(), ..scene::job(2, &[("n1", &[1])]) };
    jobs(&mut fleet, vec![without_gpu, others], 5_500);
    assert_eq!(seconds(&fleet), None);
}

#[test]
fn t09_of_the_host_of_a_shared_job_nothing_is_seen_that_other_jobs_do() {
    let n1 = |cpus: Option<u32>, scope: Scope| {
        let mut fleet = fleet();
        let first = Job { cpus, ..scene::job(1, &[("n1", &[0]), ("n2", &[0])]) };
        jobs(&mut fleet, vec![first, scene::job(2, &[("n1", &[1])])], 1_600);
        line(&mut fleet, "n1", host_sample(), 2_000);
        let viewer = viewer(scope, NOTHING);
        let nodes = viewer.nodes(&fleet, &Topic::Node(scene::name("n1"))).unwrap();
        let history: Vec<_> = nodes[0]
            .history()
            .unwrap()
            .host
            .iter()
            .flat_map(|(_, trace)| trace.points())
            .filter_map(|(_, cell)| cell)
            .collect();
        (nodes[0].now().clone(), history)
    };
    let every: u32 = fleet().jobs()[0]
        .nodes
        .iter()
        .map(|name| scene::node(&fleet(), name.as_str()).head.facts.as_ref().unwrap().cpus)
        .sum();
    assert!(every > 1);
    for (cpus, scope, shown) in [
        (Some(every - 1), Scope::Jobs(vec![JobId(1)]), false),
        (None, Scope::Jobs(vec![JobId(1)]), false),
        (Some(every), Scope::Jobs(vec![JobId(2)]), false),
        (Some(every), Scope::Jobs(vec![JobId(1)]), true),
        (Some(1), Scope::Nodes(vec![scene::name("n1")]), true),
        (Some(1), Scope::All, true),
    ] {
        let (node, history) = n1(cpus, scope.clone());
        let host = (node.host != Row::default(), !node.cores.is_empty(), !history.is_empty());
        assert_eq!(host, (shown, shown, shown), "{cpus:?} {scope:?}");
        assert!(node.head.facts.is_some() && node.sampled_at_ms.is_some());
    }
}

#[test]
fn t09_of_shared_nodes_only_those_are_seen() {
    let (fleet, viewer) = (fleet(), viewer(Scope::Nodes(vec![scene::name("n2")]), NOTHING));
    assert_eq!(names(&viewer.nodes(&fleet, &Topic::Overview).unwrap()), ["n2"]);
    assert!(!viewer.has_topic(&fleet, &Topic::Node(scene::name("n1"))));
    assert!(!viewer.has_topic(&fleet, &Topic::Job(JobId(2))));
    assert_eq!(names(&viewer.nodes(&fleet, &Topic::Job(JobId(1))).unwrap()), ["n2"]);
    let job = &viewer.jobs(&fleet)[0];
    assert_eq!(job.nodes, [scene::name("n2")]);
    assert_eq!(job.gpus.len(), 1);
}

#[test]
fn a_node_that_a_shared_job_left_is_hidden() {
    let mut fleet = fleet();
    jobs(&mut fleet, vec![scene::job(1, &[("n2", &[0])]), scene::job(2, &[("n1", &[1])])], 2_000);
    let viewer = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING);
    assert_eq!(names(&viewer.nodes(&fleet, &Topic::Overview).unwrap()), ["n2"]);
    assert!(!viewer.has_topic(&fleet, &Topic::Node(scene::name("n1"))));
}

#[test]
fn hidden_fields_of_a_process_are_absent() {
    let (fleet, scope) = (fleet(), Scope::All);
    let mut process =
        viewer(scope.clone(), NOTHING).nodes(&fleet, &Topic::Overview).unwrap()[0].now().processes[0].clone();
    process.facts.args = Reading::Value("--token secret".into());
    process.facts.cwd = Reading::Value("/home/alice/secret".into());
    process.facts.command = Reading::Value("/home/alice/secret/python3 x".into());
    let shown = |hidden: HiddenParts| {
        let Viewer::Restricted(visibility) = viewer(scope.clone(), hidden) else { unreachable!() };
        visibility.process(&process, fleet.jobs()).facts
    };
    assert_eq!(shown(NOTHING), process.facts);
    let no_arguments = shown(HiddenParts { arguments: true, ..NOTHING });
    assert_eq!((no_arguments.args, no_arguments.cwd), (Reading::NotYet, process.facts.cwd.clone()));
    let no_paths = shown(HiddenParts { paths: true, ..NOTHING });
    assert_eq!(
        (no_paths.args, no_paths.cwd, no_paths.command),
        (process.facts.args.clone(), Reading::NotYet, Reading::Value("python3".into()))
    );
}

#[test]
fn processes_of_other_and_of_unknown_users_are_hidden() {
    let fleet = fleet();
    let node = scene::node(&fleet, "n1");
    let mut process = node.processes[0].clone();
    process.facts.job = None;
    for user in [Reading::Value("bob".into()), Reading::NotYet, Reading::Failed("gone".into())] {
        process.facts.user = user;
        for (scope, hidden, shown) in [
            (Scope::All, HiddenParts::default(), false),
            (Scope::All, NOTHING, true),
            (Scope::Jobs(vec![JobId(1)]), NOTHING, false),
        ] {
            let Viewer::Restricted(visibility) = viewer(scope, hidden) else { unreachable!() };
            assert_eq!(
                visibility.shows_process(&process.facts, fleet.jobs()),
                shown,
                "{:?}",
                process.facts.user
            );
        }
    }
}

#[test]
fn memory_of_hidden_processes_is_not_revealed_as_unattributed() {
    let mut fleet = fleet();
    for second in 2..20 {
        let ProbeLine::Sample(mut sample) = sample(second, &[10, 20]) else { unreachable!() };
        sample.gpus.iter_mut().for_each(|gpu| gpu.mem_used_bytes = Reading::Value(8 << 30));
        line(&mut fleet, "n1", ProbeLine::Sample(sample), second * 1_000);
    }
    let shown = |viewer: Viewer| {
        let nodes = viewer.nodes(&fleet, &Topic::Overview).unwrap();
        let cells = nodes[0].now().gpus.iter().map(|gpu| gpu.row.get(GpuField::MemUnattributed));
        cells.collect::<Vec<_>>()
    };
    // One process holds a GiB of the first GPU.
    let known = [Cell::steps(7), Cell::steps(8)];
    assert_eq!(shown(Viewer::Owner), known);
    assert_eq!(shown(viewer(Scope::All, NOTHING)), known);
    assert_eq!(shown(viewer(Scope::Nodes(vec![scene::name("n1")]), NOTHING)), known);
    assert_eq!(shown(viewer(Scope::All, HiddenParts { other_users: true, ..NOTHING })), [Cell::NOT_YET; 2]);
    assert_eq!(shown(viewer(Scope::Jobs(vec![JobId(1)]), NOTHING)), [Cell::NOT_YET]);
}

#[test]
fn data_of_the_owner_alone_is_never_visible() {
    let mut fleet = fleet();
    fleet.handle(
        Event::JobsFailed { why: "squeue: error: /etc/slurm/secret".into(), retry_at_ms: 9_000 },
        3_000,
    );
    let viewer = viewer(Scope::All, NOTHING);
    fleet.handle(Event::Cluster(ClusterSummary::default()), 5);
    fleet.handle(Event::JobLogs([(JobId(1), scene::log(3.0))].into()), 6);
    assert_eq!(Viewer::Owner.insights(&fleet).len(), 1);
    assert!(viewer.insights(&fleet).is_empty(), "a bar may be named anything");
    assert_eq!(Viewer::Owner.status(&fleet).cluster.map(|cluster| cluster.at_ms), Some(5));
    assert_eq!(viewer.status(&fleet).cluster, None);
    let JobsHealth::Stale { reason: why, .. } = viewer.status(&fleet).jobs else { panic!() };
    assert!(!why.as_str().contains("secret"), "{why}");
    assert!(viewer.audit_log(&fleet).is_empty() && viewer.sharing(&fleet) == Sharing::default());
}

/// A finding about job 1 on its node.
fn finding(kind: FindingKind) -> Finding {
    Finding {
        key: "x".into(),
        kind,
        severity: FindingSeverity::Warning,
        confidence_pct: 95,
        jobs: vec![JobId(1)],
        nodes: vec![scene::name("n1")],
        gpus: Vec::new(),
        title: "x".into(),
        reason: "x".into(),
        evidence: Vec::new(),
        advice: "x".into(),
        since_ms: 0,
        or_earlier: false,
        found_ms: 0,
        ended_ms: None,
        silenced_until_ms: Some(9_000),
        wasted_gpus: 0,
        capture: Some(Box::default()),
        wasted_before: None,
    }
}

#[test]
fn t09_a_finding_shows_a_guest_neither_output_of_logins_nor_hidden_readings() {
    let mut fleet = fleet();
    let down = SessionEvent::Down { why: "/etc/profile: secret".into(), retry_at_ms: 90_000 };
    fleet.handle(Event::Node(scene::name("n1"), down), 3_000);
    for second in 1..60 {
        fleet.handle(Event::Tick, 3_000 + second * 1_000);
    }
    let shown = |viewer: Viewer| {
        let all = viewer.findings(&fleet, &Topic::Overview);
        all.into_iter().find(|finding| finding.key == "node_unreachable/n1".into())
    };
    assert_eq!(shown(Viewer::Owner).unwrap().evidence[0].as_str(), "/etc/profile: secret");
    let guest = shown(viewer(Scope::All, NOTHING)).unwrap();
    assert_eq!((guest.title.as_str(), guest.evidence.as_slice()), ("n1 cannot be reached", &[][..]));
    assert_eq!(guest.jobs, [JobId(1), JobId(2)]);
    assert_eq!(shown(viewer(Scope::Jobs(vec![JobId(2)]), NOTHING)).unwrap().jobs, [JobId(2)]);
    assert_eq!(shown(viewer(Scope::Nodes(vec![scene::name("n2")]), NOTHING)), None);

    let Viewer::Restricted(everything) = viewer(Scope::All, NOTHING) else { unreachable!() };
    let shown = everything.finding(&finding(FindingKind::Straggler), &fleet).unwrap();
    assert_eq!(shown.silenced_until_ms, Some(9_000), "what is silenced is so for guests too");
    assert_eq!(shown.capture, None, "stacks and connections are the owner's, whatever is shared");
    assert_eq!(shown.advice.as_str(), FindingKind::Straggler.advice(), "it follows from a capture");
    let evidence = vec!["hidden behind rank 61 (n2 GPU 5), which is slower".into(), "n1 GPU 0: 12 %".into()];
    let slow = Finding { evidence, ..finding(FindingKind::Straggler) };
    let evidence = |scope| {
        let Viewer::Restricted(visibility) = viewer(scope, NOTHING) else { unreachable!() };
        visibility.finding(&slow, &fleet).unwrap().evidence.len()
    };
    assert_eq!(evidence(Scope::Nodes(vec![scene::name("n1"), scene::name("n2")])), 2);
    assert_eq!(evidence(Scope::Nodes(vec![scene::name("n1")])), 1, "the other node is not shared");
    let sees = |scope, hidden, kind| {
        let Viewer::Restricted(visibility) = viewer(scope, hidden) else { unreachable!() };
        visibility.finding(&finding(kind), &fleet).is_some()
    };
    let job = || Scope::Jobs(vec![JobId(1)]);
    for kind in
        [FindingKind::HostMemory, FindingKind::Swapping, FindingKind::DiskFull, FindingKind::HeldMemory]
    {
        assert!(sees(Scope::All, NOTHING, kind), "{kind:?}");
        assert!(!sees(job(), NOTHING, kind), "{kind:?} is made from readings of the whole node");
    }
    let paths = HiddenParts { paths: true, ..NOTHING };
    assert!(!sees(Scope::All, paths, FindingKind::DiskFull));
    assert!(sees(job(), NOTHING, FindingKind::Straggler));
    assert!(!sees(Scope::Jobs(vec![JobId(2)]), NOTHING, FindingKind::Straggler));
}

#[test]
fn t09_each_topic_and_share_has_its_notes() {
    let mut fleet = fleet();
    let note = |id, job: Option<u32>, node: Option<&str>| Note {
        id: NoteId::from_bits(id),
        job: job.map(JobId),
        node: node.map(scene::name),
        rank: None,
        at_ms: id,
        text: "x".into(),
        source: NoteSource::Api,
    };
    let all =
        [note(1, Some(1), None), note(2, Some(2), None), note(3, None, Some("n2")), note(4, None, None)];
    // What a job wrote on one of its nodes is not of the others.
    let all = all.into_iter().chain([note(5, Some(1), Some("n1"))]);
    all.for_each(|note| fleet.handle(Event::Note(NoteChange::Put(note)), 0));
    let (job, node) = (|id| Topic::Job(JobId(id)), |name| Topic::Node(scene::name(name)));
    let ids = |viewer: &Viewer, topic: &Topic| {
        viewer.notes(&fleet, topic).iter().map(|note| note.id.get()).collect::<Vec<_>>()
    };
    let owner = |topic| ids(&Viewer::Owner, &topic);
    assert_eq!(owner(Topic::Overview), [4]);
    assert_eq!([owner(job(1)), owner(job(2))], [vec![1, 3, 4, 5], vec![2, 4]]);
    assert_eq!([owner(node("n1")), owner(node("n2"))], [vec![1, 2, 4, 5], vec![1, 3, 4]]);
    let one = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING);
    assert_eq!(
        [Topic::Overview, job(1), job(2), node("n1")].map(|topic| ids(&one, &topic)),
        [vec![], vec![1, 5], vec![], vec![1, 5]]
    );
    let two = viewer(Scope::Nodes(vec![scene::name("n2")]), NOTHING);
    assert_eq!(
        [job(1), node("n2"), node("n1")].map(|topic| ids(&two, &topic)),
        [vec![1, 3], vec![1, 3], vec![1]]
    );
    assert_eq!(ids(&viewer(Scope::All, NOTHING), &job(1)), [1, 3, 4, 5]);
    let hidden = HiddenParts { notes: true, ..NOTHING };
    assert_eq!(ids(&viewer(Scope::All, hidden), &job(1)), [0; 0]);
    // SLURM uses the number again.
    jobs(&mut fleet, vec![Job { submitted: Some(1), ..scene::job(1, &[("n1", &[0])]) }], 0);
    assert_eq!(one.notes(&fleet, &job(1)), []);
}

/// A viewer who is a person of a site.
fn person(user: &str, accounts: &[&str]) -> Viewer {
    let accounts = accounts.iter().map(Text::new).collect();
    Viewer::Restricted(Arc::new(Visibility::of_person(user.into(), accounts)))
}

// Job 1 is alice's, of account ml; job 2 is bob's, of ml; job 3 is carol's, of bio. Each has its user's process.
fn site() -> Fleet {
    let mut fleet = Fleet::new();
    let of = |id, user: &str, account: &str, gpu: u32| Job {
        user: user.into(),
        account: Some(account.into()),
        workdir: Some(format!("/home/{user}").as_str().into()),
        command: Some("train.sh".into()),
        ..scene::job(id, &[("n1", &[gpu])])
    };
    jobs(&mut fleet, vec![of(1, "alice", "ml", 0), of(2, "bob", "ml", 1), of(3, "carol", "bio", 2)], 0);
    line(&mut fleet, "n1", hello("n1", &[0, 1, 2]), 0);
    let idle = (scene::name("n2"), nodeglass_fleet::Host { group: None, target: 0 });
    fleet.handle(Event::Hosts { hosts: [idle].into(), notices: Vec::new() }, 0);
    line(&mut fleet, "n2", hello("n2", &[0]), 0);
    line(&mut fleet, "n1", sample(1, &[10, 20, 30]), 1_000);
    let lists = (1..=3).zip(["alice", "bob", "carol"]).map(|(id, user)| {
        let ProbeLine::Processes(mut list) = process("n1", id - 1, id, Some(id)) else { unreachable!() };
        list.processes[0].facts.user = Reading::Value(user.into());
        list.processes[0].facts.args = Reading::Value("--lr 3".into());
        list.processes.remove(0)
    });
    let list = nodeglass_protocol::probe::ProcessList { processes: lists.collect(), ..Default::default() };
    line(&mut fleet, "n1", ProbeLine::Processes(list), 1_500);
    fleet
}

#[test]
fn t09_a_person_sees_their_own_jobs_and_those_of_their_accounts_without_details() {
    let fleet = site();
    let seen = |viewer: &Viewer| {
        let listed = viewer.jobs(&fleet);
        let nodes = viewer.nodes(&fleet, &Topic::Overview).unwrap();
        let pids: Vec<_> = nodes
            .iter()
            .flat_map(|node| node.now().processes.clone())
            .map(|process| (process.facts.pid, process.facts.args.value().is_some()))
            .collect();
        let jobs: Vec<_> = listed.iter().map(|job| (job.id.0, job.workdir.is_some())).collect();
        (jobs, nodes.iter().flat_map(gpus).collect::<Vec<_>>(), pids)
    };
    let own = (vec![(1, true)], vec!["GPU-n1-0".to_owned()], vec![(1, true)]);
    assert_eq!(seen(&person("alice", &[])), own);
    let (jobs, gpus, pids) = seen(&person("alice", &["ml"]));
    assert_eq!((jobs, gpus.len(), pids), (vec![(1, true), (2, false)], 2, vec![(1, true), (2, false)]));
    assert_eq!(seen(&person("dave", &[])), (vec![], vec![], vec![]));
    let admin = Viewer::Restricted(Arc::new(Visibility::of_admin("alice".into())));
    let (jobs, gpus, pids) = seen(&admin);
    assert_eq!(jobs, [(1, true), (2, false), (3, false)]);
    assert_eq!((gpus.len(), pids), (4, vec![(1, true), (2, false), (3, false)]), "idle nodes as well");
    let carol = person("carol", &["bio"]);
    for id in [1, 2] {
        assert!(!carol.has_topic(&fleet, &Topic::Job(JobId(id))), "{id}");
    }
    assert!(!carol.has_topic(&fleet, &Topic::Node(scene::name("n2"))), "an idle node");
    for viewer in [person("alice", &["ml"]), admin] {
        let Viewer::Restricted(visibility) = viewer else { unreachable!() };
        assert!(!visibility.shows_logs(), "the relay does not read files on behalf of others");
    }
}

/// SLURM gives a name to each job; what has none, or a foreign one, is of nobody.
#[test]
fn t09_nothing_is_seen_of_a_process_of_another_user_inside_a_job() {
    let mut fleet = site();
    for user in [Reading::Value("bob".into()), Reading::NotYet, Reading::Failed("gone".into())] {
        let ProbeLine::Processes(mut list) = process("n1", 0, 9, Some(1)) else { unreachable!() };
        list.processes[0].facts.user = user.clone();
        line(&mut fleet, "n1", ProbeLine::Processes(list), 2_000);
        let alice = person("alice", &["ml"]);
        let nodes = alice.nodes(&fleet, &Topic::Overview).unwrap();
        assert!(nodes.iter().all(|node| node.now().processes.is_empty()), "{user:?}");
    }
}

#[test]
fn t09_of_a_host_nothing_is_seen_of_the_time_between_two_jobs() {
    let mut fleet = Fleet::new();
    let of = |id, user: &str, start, ended| Job {
        user: user.into(),
        start: Some(start),
        ended,
        state: if ended.is_some() { JobState::Ended("COMPLETED".into()) } else { JobState::Running },
        cpus: Some(u32::from(u16::MAX)),
        ..scene::job(id, &[("n1", &[0])])
    };
    let first = of(1, "alice", 1_000, Some(1_002));
    jobs(&mut fleet, vec![of(3, "alice", 1_006, None), first, of(2, "bob", 1_002, Some(1_006))], 0);
    line(&mut fleet, "n1", hello("n1", &[0]), 0);
    let both = viewer(Scope::Jobs(vec![JobId(1), JobId(3)]), NOTHING);
    for viewer in [person("alice", &[]), both] {
        let nodes = viewer.nodes(&fleet, &Topic::Overview).unwrap();
        let history = nodes[0].long_history();
        assert_eq!(history.host.map(|span| span.from_ms), Some(6_000));
    }
}

/// What a guest sees of the GPU of job 1 of alice, which SLURM listed at 1,000 s of the node's clock.
fn seen_util(prepare: impl FnOnce(&mut Fleet)) -> (Option<u64>, Option<u64>) {
    let mut fleet = Fleet::new();
    let cpus = Some(u32::from(u16::MAX));
    let job = |id, gpu| Job { start: Some(900), cpus, ..scene::job(id, &[("n1", &[gpu])]) };
    jobs(&mut fleet, vec![job(1, 0)], 1_000);
    line(&mut fleet, "n1", hello("n1", &[0, 1]), 1_000);
    prepare(&mut fleet);
    let viewer = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING);
    let nodes = viewer.nodes(&fleet, &Topic::Job(JobId(1))).unwrap();
    let now = nodes[0].now();
    let newest = nodes[0].history().unwrap().gpu(0, GpuField::Util).and_then(|trace| {
        let known = trace.points().filter(|(_, cell)| cell.is_some());
        known.map(|(at_ms, _)| at_ms / 1_000).last()
    });
    assert_eq!(
        now.host.value(nodeglass_protocol::HostField::Cpu).is_some(),
        now.gpus[0].row.value(GpuField::Util).is_some()
    );
    (now.gpus[0].row.value(GpuField::Util), newest)
}

/// Samples of each second, up to `until`; the usage of these jobs is read there.
fn samples(fleet: &mut Fleet, until: u64, used_by: &[u32]) {
    for second in 1..=until {
        let ProbeLine::Sample(mut sample) = sample(second, &[50, 60]) else { unreachable!() };
        sample.jobs =
            used_by.iter().map(|job| JobCgroupUsage { job: JobId(*job), now: Default::default() }).collect();
        line(fleet, "n1", ProbeLine::Sample(sample), second * 1_000);
    }
}

#[test]
fn t09_readings_that_may_be_of_the_next_job_on_a_gpu_are_not_shown() {
    let foreign = |started_ms: u64, user: &str| {
        let ProbeLine::Processes(mut list) = process("n1", 0, 7, None) else { unreachable!() };
        list.processes[0].facts.user = Reading::Value(user.into());
        list.processes[0].facts.started_ms = Reading::Value(started_ms);
        ProbeLine::Processes(list)
    };
    let seen = |until: u64, used_by: &[u32]| seen_util(|fleet| samples(fleet, until, used_by));
    let seen_without_slurm = |until: u64, used_by: &[u32]| {
        seen_util(|fleet| {
            let why = "slurmctld does not respond".into();
            fleet.handle(Event::JobsFailed { why, retry_at_ms: 1_000_000 }, 2_000);
            samples(fleet, until, used_by);
        })
    };
    assert_eq!(seen(100, &[]), (Some(50), Some(100)), "as SLURM lists it");
    assert_eq!(seen_without_slurm(60, &[]), (Some(50), Some(60)), "as SLURM listed it");
    assert_eq!(seen_without_slurm(100, &[]), (None, Some(1)), "the list is too old");
    assert_eq!(seen_without_slurm(100, &[1]), (Some(50), Some(100)), "its cgroup is there");
    assert_eq!(seen(20, &[2]), (None, Some(1)), "a job that SLURM does not list is there instead");
    // The relay's clock began 1,000 s after 1970.
    let with_process = |started_ms, user| {
        seen_util(|fleet| {
            samples(fleet, 20, &[]);
            line(fleet, "n1", foreign(started_ms, user), 20_500);
        })
    };
    assert_eq!(with_process(1_010_000, "bob"), (None, Some(1)), "another user is there since");
    assert_eq!(
        with_process(1_000_000, "bob"),
        (Some(50), Some(20)),
        "it was there when SLURM listed the job"
    );
    assert_eq!(with_process(1_010_000, "root"), (Some(50), Some(20)));
    assert_eq!(with_process(1_010_000, "alice"), (Some(50), Some(20)));
}

#[test]
fn t09_while_a_shared_job_is_suspended_what_others_do_is_not_shown() {
    let seen = seen_util(|fleet| {
        let suspension = Some(Suspension { at: 1_010, ran_s: 110 });
        let job = scene::job(1, &[("n1", &[0])]);
        let cpus = Some(u32::from(u16::MAX));
        jobs(
            fleet,
            vec![Job { state: JobState::Suspended, suspension, cpus, start: Some(900), ..job }],
            1_000,
        );
        samples(fleet, 20, &[1]);
    });
    assert_eq!(seen, (None, Some(10)));
}

#[test]
fn t09_after_a_shared_job_is_resumed_what_others_did_meanwhile_is_not_shown() {
    let mut visible = Span::ALL;
    seen_util(|fleet| {
        let suspension = Some(Suspension { at: 1_020, ran_s: 110 });
        let cpus = Some(u32::from(u16::MAX));
        let job = Job { suspension, cpus, start: Some(900), ..scene::job(1, &[("n1", &[0])]) };
        jobs(fleet, vec![job], 1_000);
        let Viewer::Restricted(visibility) = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING) else {
            unreachable!()
        };
        let node = fleet.node(&scene::name("n1")).unwrap();
        visible = visibility.host_span(node, fleet).unwrap();
        assert_eq!(visible.from_ms, fleet.relay_ms(1_020));
    });
    assert!(visible != Span::ALL);
}

#[test]
fn t09_a_finding_that_may_be_of_the_next_job_on_a_gpu_is_not_shown() {
    let seen = |used_by: &[u32], ended_ms: Option<u64>| {
        let mut shown = false;
        seen_util(|fleet| {
            let why = "slurmctld does not respond".into();
            fleet.handle(Event::JobsFailed { why, retry_at_ms: 1_000_000 }, 2_000);
            samples(fleet, 100, used_by);
            let uuid = fleet.node(&scene::name("n1")).unwrap().gpus[0].facts.uuid.clone();
            let gpus = vec![FindingGpu { node: scene::name("n1"), uuid, metric: None }];
            let hot = Finding { gpus, ended_ms, ..finding(FindingKind::Thermal) };
            let Viewer::Restricted(visibility) = viewer(Scope::Jobs(vec![JobId(1)]), NOTHING) else {
                unreachable!()
            };
            shown = visibility.finding(&hot, fleet).is_some();
        });
        shown
    };
    assert!(seen(&[1], None), "its cgroup is there");
    assert!(!seen(&[], None), "the list is too old");
    // SLURM listed the job at 1,000 s of the relay's wall clock.
    assert!(seen(&[], Some(1_000_000)) && !seen(&[], Some(1_060_000)), "it had ended by then");
}
