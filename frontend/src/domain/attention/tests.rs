//! Tests, and the findings that tests of other modules share.

use super::*;
use nodeglass_protocol::finding::{FindingGpu, Silence, SilenceRequest};
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::picture::{Evidence, GpuPicture, Link, Owner};

/// The relay's clock and the time of day at which the tests look, in ms.
pub const NOW_MS: u64 = 4_000_000;
pub const WALL_MS: u64 = 1_000_000_000;

/// A running job on a node, started an hour before.
pub fn job(id: u32, node: &str) -> Job {
    let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
    job.name = format!("job-{id}").as_str().into();
    job.nodes = vec![NodeName::new(node).unwrap()];
    job.start = Some(WALL_MS.cast_signed() / 1_000 - 3_600);
    job
}

/// A live node whose GPUs belong to these jobs.
pub fn node(name: &str, owners: &[u32]) -> NodePicture {
    let mut node = NodePicture::new(NodeName::new(name).unwrap());
    node.head.link = Link::Live;
    node.head.interval_ms = 1_000;
    node.sampled_at_ms = Some(NOW_MS);
    let gpu = |(index, job): (usize, &u32)| {
        let mut gpu = GpuPicture::default();
        gpu.facts.index = index as u32;
        gpu.facts.uuid = GpuUuid::new(format!("{name}-{index}"));
        gpu.owners = vec![Owner { job: JobId(*job), by: Evidence::GresIndex }];
        gpu
    };
    node.gpus = owners.iter().enumerate().map(gpu).collect();
    node
}

/// A finding about a GPU of a job's node, since a minute.
pub fn finding(kind: FindingKind, job: u32, node: &str) -> Finding {
    let name = NodeName::new(node).unwrap();
    Finding {
        key: format!("{}/{job}", kind.name()).as_str().into(),
        kind,
        severity: FindingSeverity::Warning,
        confidence_pct: 95,
        jobs: vec![JobId(job)],
        gpus: vec![FindingGpu::new(&name, &GpuUuid::new(format!("{node}-0")), Some(GpuField::SmClock))],
        nodes: vec![name],
        title: format!("{} title", kind.name()).as_str().into(),
        reason: format!("{} reason", kind.name()).as_str().into(),
        evidence: vec!["SM clock 1,380 MHz".into(), "81 °C".into()],
        advice: "Exclude the node".into(),
        since_ms: WALL_MS - 60_000,
        or_earlier: false,
        found_ms: WALL_MS,
        ended_ms: None,
        silenced_until_ms: None,
        wasted_gpus: 0,
        capture: None,
        wasted_before: None,
    }
}

/// A picture with these findings.
pub fn picture(findings: Vec<Finding>) -> Picture {
    Picture { findings, ..Picture::default() }
}

fn keys(jobs: &[Job], findings: Vec<Finding>) -> Vec<String> {
    all(jobs, &picture(findings)).into_iter().map(|item| item.key).collect()
}

#[test]
fn a_finding_of_a_machine_without_a_job_is_listed_beside_those_of_jobs() {
    let lost = || Finding { jobs: Vec::new(), ..finding(FindingKind::GpuLost, 0, "n2") };
    let found =
        || vec![lost(), finding(FindingKind::Thermal, 1, "n1"), finding(FindingKind::Thermal, 9, "n9")];
    let mut listed = keys(&[job(1, "n1")], found());
    listed.sort_unstable();
    assert_eq!(listed, ["gpu_lost/0", "thermal/1"]);
    let of_job = marked(&Route::Job(JobId(1), JobTab::Nodes), &[job(1, "n1")], &picture(found()));
    assert_eq!(of_job.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["thermal/1"]);
}

#[test]
fn an_item_has_the_gpu_and_the_graph_of_its_finding() {
    let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Thermal, 1, "n1")]));
    let [item] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!((item.severity, item.since.at_ms), (Severity::Warning, WALL_MS - 60_000));
    assert_eq!(item.target.gpu, Some(GpuUuid::new("n1-0")));
    assert_eq!(item.target.route, Route::Job(JobId(1), JobTab::Node(NodeName::new("n1").unwrap())));
    assert_eq!(item.spark().map(|spark| spark.field), Some(GpuField::Power));
    assert_eq!((item.subject.as_str(), item.evidence.as_str()), ("job-1", "SM clock 1,380 MHz · 81 °C"));
}

#[test]
fn a_link_shows_the_graph_at_the_start_and_the_sheet_of_what_no_graph_shows() {
    let item = |finding: Finding| all(&[job(1, "n1")], &picture(vec![finding])).remove(0);
    let hot = || finding(FindingKind::Thermal, 1, "n1");
    let since_s = (WALL_MS - 60_000) / 1_000;
    let pinned = "?m=sm_clock_mhz&pin=n1/n1-0";
    assert_eq!(item(hot()).query(WALL_MS).text(), pinned, "the recent history has it");
    let hour = WALL_MS + 3_600_000;
    assert_eq!(item(hot()).query(hour).text(), format!("{pinned}&r=600-{}", since_s + 300));
    let ended = Finding { ended_ms: Some(WALL_MS + 240_000), ..hot() };
    let items = resolved(&[job(1, "n1")], &picture(vec![ended]));
    assert_eq!(items[0].query(hour).text(), format!("{pinned}&r=900-{}", since_s + 600));
    let mut lost = finding(FindingKind::GpuLost, 1, "n1");
    lost.gpus[0].metric = None;
    assert_eq!(item(lost).query(hour).text(), "?gpu=n1-0");
}

#[test]
fn graphs_mark_what_concerns_their_job_and_node_the_worst_last() {
    let hot = |job, node| finding(FindingKind::Thermal, job, node);
    let error = FindingSeverity::Error;
    let lost = Finding { severity: error, ..finding(FindingKind::GpuLost, 1, "n1") };
    let ended = Finding { ended_ms: Some(WALL_MS), ..finding(FindingKind::Xid, 1, "n1") };
    let found = picture(vec![lost, hot(1, "n2"), hot(1, "n1"), hot(2, "n1"), ended]);
    let jobs = [job(1, "n1"), job(2, "n1")];
    let kinds =
        |route: &Route| marked(route, &jobs, &found).into_iter().map(|item| item.kind).collect::<Vec<_>>();
    use FindingKind::{GpuLost, Thermal, Xid};
    let n1 = NodeName::new("n1").unwrap();
    assert_eq!(kinds(&Route::Job(JobId(1), JobTab::Nodes)), [Xid, Thermal, Thermal, GpuLost]);
    assert_eq!(kinds(&Route::Job(JobId(1), JobTab::Node(n1.clone()))), [Xid, Thermal, GpuLost]);
    assert_eq!(kinds(&Route::Node(n1)), [Xid, Thermal, Thermal, GpuLost]);
    assert!(kinds(&Route::AllJobs).is_empty() && kinds(&Route::Job(JobId(3), JobTab::Nodes)).is_empty());
}

#[test]
fn what_is_resolved_of_other_jobs_or_only_worth_knowing_is_not_listed() {
    let list = |finding: Finding| keys(&[job(1, "n1")], vec![finding]).len();
    let thermal = || finding(FindingKind::Thermal, 1, "n1");
    assert_eq!(list(thermal()), 1);
    assert_eq!(list(Finding { ended_ms: Some(1), ..thermal() }), 0);
    assert_eq!(list(Finding { jobs: vec![JobId(2)], ..thermal() }), 0);
    assert_eq!(list(Finding { severity: FindingSeverity::Info, ..thermal() }), 0);
    assert!(keys(&[], vec![]).is_empty());
}

#[test]
fn a_slow_gpu_stands_for_the_heat_that_slows_it_down() {
    let (slow, hot) =
        (|| finding(FindingKind::Straggler, 1, "n1"), || finding(FindingKind::Thermal, 1, "n1"));
    let jobs = [job(1, "n1")];
    assert_eq!(keys(&jobs, vec![slow(), hot()]), ["straggler/1"]);
    assert_eq!(keys(&jobs, vec![slow(), finding(FindingKind::Thermal, 1, "n2")]).len(), 2, "of another GPU");
    let shared = Finding { jobs: vec![JobId(1), JobId(2)], ..hot() };
    assert_eq!(keys(&jobs, vec![slow(), shared]), ["thermal/1"], "the other job would not know");
    let worse = Finding { severity: FindingSeverity::Error, ..hot() };
    assert_eq!(keys(&jobs, vec![slow(), worse]), ["thermal/1"]);
    let silenced = Finding { silenced_until_ms: Some(WALL_MS), ..slow() };
    assert_eq!(keys(&jobs, vec![silenced, hot()]), ["thermal/1"], "it is not listed itself");
}

#[test]
fn heat_of_more_gpus_than_are_slow_is_listed_with_the_highest_cost() {
    let gpu = |index: u32| {
        let uuid = GpuUuid::new(format!("n1-{index}"));
        FindingGpu::new(&NodeName::new("n1").unwrap(), &uuid, Some(GpuField::SmClock))
    };
    let slow = |index: u32, wasted_gpus, cost: &str| Finding {
        key: format!("straggler/1/{index}").as_str().into(),
        gpus: vec![gpu(index)],
        wasted_gpus,
        evidence: vec!["81 °C".into(), cost.into()],
        ..finding(FindingKind::Straggler, 1, "n1")
    };
    let hot = Finding {
        gpus: vec![gpu(0), gpu(1), gpu(2)],
        evidence: vec!["87 °C".into(), "61 other GPUs of the job may wait for it".into()],
        ..finding(FindingKind::Thermal, 1, "n1")
    };
    let slow = [
        slow(0, 3, "62 GPUs may wait for it: the work of up to 3 GPUs is lost"),
        slow(1, 28, "62 GPUs may wait for it: the work of up to 28 GPUs is lost"),
    ];
    let found = picture([vec![hot], slow.to_vec()].concat());
    let [item] = all(&[job(1, "n1")], &found).try_into().unwrap();
    assert_eq!((item.kind, item.sources.len()), (FindingKind::Thermal, 3));
    assert_eq!(item.evidence, "87 °C · 62 GPUs may wait for it: the work of up to 28 GPUs is lost");
}

#[test]
fn a_silence_of_a_line_covers_all_that_it_stands_for() {
    let jobs = [job(1, "n1")];
    let found = || vec![finding(FindingKind::Straggler, 1, "n1"), finding(FindingKind::Thermal, 1, "n1")];
    let silence = |findings: &mut [Finding], request: &SilenceRequest| {
        let silence = Silence { kind: request.kind, job: request.job, until_ms: WALL_MS };
        let covered = findings.iter_mut().filter(|finding| silence.covers(finding, |_| None));
        covered.for_each(|finding| finding.silenced_until_ms = Some(WALL_MS));
    };
    let mut now = found();
    let [item] = all(&jobs, &picture(now.clone())).try_into().unwrap();
    let requests = item.silences(60);
    assert_eq!(requests.len(), 2);
    for (request, left) in requests.iter().zip([vec!["straggler/1"], vec![]]) {
        silence(&mut now, request);
        assert_eq!(keys(&jobs, now.clone()), left, "nothing else is listed meanwhile");
    }
    let [item] = silenced(&jobs, &picture(now)).try_into().unwrap();
    let ends = item.end_silences();
    assert!(requests.iter().all(|request| ends.contains(&SilenceRequest { for_s: 0, ..request.clone() })));
    assert!(item.stands_for("thermal/1") && item.stands_for("straggler/1"));
}

#[test]
fn an_item_without_evidence_has_its_advice_alone() {
    let bare = Finding { evidence: Vec::new(), ..finding(FindingKind::Xid, 1, "n1") };
    let items = all(&[job(1, "n1")], &picture(vec![bare]));
    assert_eq!((items[0].evidence.as_str(), items[0].evidence_or_advice()), ("", "Exclude the node"));
}

#[test]
fn a_node_has_the_worst_item_that_is_about_it_alone() {
    let [n1, n2] = ["n1", "n2"].map(|name| NodeName::new(name).unwrap());
    let error = FindingSeverity::Error;
    let hang = Finding {
        severity: error,
        nodes: vec![n1.clone(), n2.clone()],
        ..finding(FindingKind::CollectiveHang, 1, "n1")
    };
    let lost = Finding { severity: error, ..finding(FindingKind::GpuLost, 1, "n1") };
    let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Xid, 1, "n1"), lost, hang]));
    let entries: Vec<Entry> = items.into_iter().map(|item| Entry { item, is_resolved: false }).collect();
    assert_eq!(of_node(&entries, &n1).map(|item| item.kind), Some(FindingKind::GpuLost));
    assert_eq!(of_node(&entries, &n2), None);
    assert_eq!(affecting_node(&entries, &n2).map(|item| item.kind), Some(FindingKind::CollectiveHang));
}

#[test]
fn errors_of_what_runs_come_before_failures_and_failures_before_warnings() {
    let error = FindingSeverity::Error;
    let failed = Finding { severity: error, ..finding(FindingKind::Failed, 1, "n1") };
    let timeout = Finding { since_ms: WALL_MS, ..finding(FindingKind::Failed, 4, "n1") };
    let lost = Finding { severity: error, ..finding(FindingKind::GpuLost, 3, "n3") };
    let hot = finding(FindingKind::Thermal, 2, "n2");
    let jobs = [job(1, "n1"), job(2, "n2"), job(3, "n3"), job(4, "n1")];
    let sorted = ["gpu_lost/3", "failed/1", "failed/4", "thermal/2"];
    assert_eq!(keys(&jobs, vec![hot, timeout, failed, lost]), sorted);
}

#[test]
fn failures_since_the_last_visit_stay_above_warnings_and_seen_ones_below() {
    let failed = |id, hours: u64| Job {
        state: JobState::Ended("OUT_OF_MEMORY".into()),
        ended: Some((WALL_MS - hours * 3_600_000).cast_signed() / 1_000),
        ..job(id, "n1")
    };
    let jobs = vec![job(2, "n2"), failed(1, 5), failed(3, 9), failed(4, 30)];
    let picture = Picture { jobs, ..picture(vec![finding(FindingKind::Thermal, 2, "n2")]) };
    let visits = Visits { first_ms: WALL_MS - 86_400_000, last_ms: WALL_MS - 6 * 3_600_000 };
    let items = with_failures(&picture, visits, WALL_MS);
    let jobs: Vec<u32> = items.iter().map(|item| item.jobs[0].0).collect();
    assert_eq!(jobs, [1, 2, 3], "{items:?}");
    assert!(
        items[0].is_past && items[0].ended_ms.is_none(),
        "it can be dismissed, and has the time of its end"
    );
    assert_eq!(items[0].title, "job-1 ended: out of host memory");
}

#[test]
fn repeated_failures_are_one_item_of_all_their_jobs_with_the_log_of_the_latest() {
    let train = |id| Job { name: "train".into(), ..job(id, "n1") };
    let failed = |id, since_ms| Finding {
        reason: "out of memory".into(),
        since_ms,
        ..finding(FindingKind::Failed, id, "n1")
    };
    let found = || picture(vec![failed(1, WALL_MS - 60_000), failed(2, WALL_MS)]);
    let [item] = all(&[train(1), train(2)], &found()).try_into().unwrap();
    assert_eq!(item.title, "train failed 2 times: out of memory");
    assert_eq!((item.jobs, item.sources.len()), (vec![JobId(2), JobId(1)], 2));
    assert_eq!((item.target.route, item.since.at_ms), (Route::Job(JobId(2), JobTab::Logs), WALL_MS));
    let [item] = all(&[train(1)], &found()).try_into().unwrap();
    assert_eq!(item.jobs, [JobId(1)], "on the page of one of them, only that one is listed");
}

#[test]
fn how_a_job_ended_is_shown_with_its_log() {
    let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Failed, 1, "n1")]));
    assert_eq!(items[0].target.route, Route::Job(JobId(1), JobTab::Logs));
    assert!(items[0].is_past);
}

#[test]
fn what_affects_several_jobs_is_shown_on_the_nodes_page_and_names_them() {
    let down = Finding { jobs: vec![JobId(1), JobId(2)], ..finding(FindingKind::NodeUnreachable, 1, "n1") };
    let items = all(&[job(1, "n1"), job(2, "n1")], &picture(vec![down]));
    assert_eq!(items[0].target.route, Route::Node(NodeName::new("n1").unwrap()));
    assert!(items[0].evidence.ends_with("affects job-1, job-2"), "{}", items[0].evidence);
}

#[test]
fn what_ended_is_listed_as_resolved_latest_first() {
    let ended = |job, at_ms| Finding { ended_ms: Some(at_ms), ..finding(FindingKind::Thermal, job, "n1") };
    let jobs = [job(1, "n1"), job(2, "n1")];
    let items = resolved(&jobs, &picture(vec![ended(1, 5), ended(2, 9), finding(FindingKind::Xid, 1, "n1")]));
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["thermal/2", "thermal/1"]);
}

#[test]
fn a_resolved_slow_gpu_and_its_cause_are_one_line() {
    let ended = |kind, at_ms| Finding { ended_ms: Some(at_ms), ..finding(kind, 1, "n1") };
    let found = [(FindingKind::Straggler, WALL_MS + 9), (FindingKind::PowerBrake, WALL_MS + 5)];
    let items =
        resolved(&[job(1, "n1")], &picture(found.into_iter().map(|(kind, at)| ended(kind, at)).collect()));
    let kinds: Vec<_> = items.iter().map(|item| (item.kind, item.sources.len())).collect();
    assert_eq!(kinds, [(FindingKind::Straggler, 2)]);
}

#[test]
fn what_is_silenced_is_listed_apart_and_shown_again_whichever_silence_covers_it() {
    let hot = || finding(FindingKind::Thermal, 1, "n1");
    let silenced_hot = Finding { silenced_until_ms: Some(WALL_MS + 60_000), ..hot() };
    let jobs = [job(1, "n1"), job(2, "n1")];
    let found = picture(vec![silenced_hot.clone()]);
    assert!(all(&jobs, &found).is_empty());
    let [item] = silenced(&jobs, &found).try_into().unwrap();
    assert_eq!(item.silenced_until_ms, Some(WALL_MS + 60_000));
    assert_eq!(
        item.silences(3_600),
        [SilenceRequest { kind: Some(FindingKind::Thermal), job: Some(JobId(1)), for_s: 3_600 }]
    );
    let ends = |item: &Item, finding: &Finding| {
        let ends = |kind, job| item.end_silences().contains(&SilenceRequest { kind, job, for_s: 0 });
        let scopes = [(Some(item.kind), None), (None, item.only_job()), (Some(item.kind), item.only_job())];
        let covers =
            |(kind, job): &(_, _)| Silence { kind: *kind, job: *job, until_ms: 0 }.covers(finding, |_| None);
        scopes
            .into_iter()
            .filter(|(kind, job)| kind.is_some() || job.is_some())
            .filter(covers)
            .all(|(kind, job)| ends(kind, job))
    };
    assert!(ends(&item, &silenced_hot));
    let several = Finding { jobs: vec![JobId(1), JobId(2)], ..silenced_hot };
    let [item] = silenced(&jobs[..1], &picture(vec![several.clone()])).try_into().unwrap();
    assert_eq!(item.silences(60)[0].job, None, "another job is affected, too");
    assert!(ends(&item, &several));
    let over = Finding { ended_ms: Some(WALL_MS), silenced_until_ms: Some(WALL_MS), ..hot() };
    assert!(silenced(&jobs, &picture(vec![over])).is_empty());
}

#[test]
fn missing_gpus_matter_to_a_job_that_has_some() {
    let mut bare = node("n1", &[]);
    bare.head.no_gpu = Some("no NVIDIA driver".into());
    assert!(lacks_gpus(&bare, &[Job { gpu_count: Some(4), ..job(1, "n1") }]));
    assert!(!lacks_gpus(&bare, &[job(1, "n1")]), "a node without jobs that have GPUs lacks none");
}

#[test]
fn a_cost_is_gpu_hours_since_the_start() {
    let cost = |wasted_gpus, since_ms, or_earlier| {
        let finding =
            Finding { wasted_gpus, since_ms, or_earlier, ..finding(FindingKind::IdleGpus, 1, "n1") };
        all(&[job(1, "n1")], &picture(vec![finding]))[0].cost_text(WALL_MS)
    };
    assert_eq!(cost(0, WALL_MS - 2_880_000, false), None);
    assert_eq!(cost(2, WALL_MS - 2_880_000, false).as_deref(), Some("1.6 GPU-h idle"));
    assert_eq!(cost(2, WALL_MS - 600_000, true).as_deref(), Some("≥ 0.3 GPU-h idle"));
}

#[test]
fn a_node_of_a_hung_job_looks_hung_in_that_jobs_views_only() {
    let hang = Finding {
        severity: FindingSeverity::Error,
        nodes: ["n1", "n2"].map(|name| NodeName::new(name).unwrap()).to_vec(),
        reason: "looks hung".into(),
        ..finding(FindingKind::CollectiveHang, 1, "n1")
    };
    let mut tracker = Tracker::default();
    tracker.update(all(&[job(1, "n1"), job(2, "n1")], &picture(vec![hang])), false);
    let entries = tracker.entries().to_vec();
    let health = |own: Severity, job, node: &str| {
        let own = Arc::new(Health::new(own, "own"));
        let health = node_health_in(own, &entries, Some(JobId(job)), &NodeName::new(node).unwrap());
        (health.severity, health.label.clone())
    };
    let hung = (Severity::Error, "looks hung".to_owned());
    assert_eq!([health(Severity::Ok, 1, "n1"), health(Severity::Warning, 1, "n2")], [hung.clone(), hung]);
    let own = |severity| (severity, "own".to_owned());
    assert_eq!(health(Severity::Ok, 2, "n1"), own(Severity::Ok), "a neighbour is not affected");
    assert_eq!(health(Severity::Ok, 1, "n3"), own(Severity::Ok));
    assert_eq!(health(Severity::Error, 1, "n1"), own(Severity::Error), "what is as bad keeps its name");
}
