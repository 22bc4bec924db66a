//! Snapshots for the tests of queries, and what they have in common.

use super::source::Observed;
use super::*;
use nodeglass_api::{ConnectionState, Job, JobSuspension, Snapshot};
use nodeglass_config::JobsArgs;
use nodeglass_protocol::job::{self, JobState};
use nodeglass_protocol::picture::{
    Evidence, GpuFacts, GpuPicture, Link, NodePicture, Owner, Picture, ProcessFacts, ProcessPicture,
};
use nodeglass_protocol::process::ProcessKind;
use nodeglass_protocol::{Field, GpuField, GpuUuid, JobId, NodeName, Reading};
use std::time::Duration;

/// Node n1 with three GPUs: one of job 17 with a process, one of job 17 without, one free; node n2 with two free ones.
pub(super) fn snapshot() -> Snapshot {
    let gpu = |node: &str, index: u32, job: Option<u32>, util_pct: u64| {
        let uuid = GpuUuid::new(format!("GPU-{node}-{index}"));
        let mut facts = GpuFacts { index, ..GpuFacts::new(uuid, index) };
        facts.name = Reading::Value("NVIDIA H100".into());
        let mut gpu = GpuPicture { facts, ..GpuPicture::default() };
        gpu.row.set(GpuField::Util, GpuField::Util.cell(&Reading::Value(util_pct)));
        gpu.row.set(GpuField::MemUsed, GpuField::MemUsed.cell(&Reading::Value(0)));
        gpu.owners = job.into_iter().map(|job| Owner { job: JobId(job), by: Evidence::GresIndex }).collect();
        gpu
    };
    let node = |name: &str, gpus| {
        let mut node = NodePicture::new(NodeName::new(name).unwrap());
        node.head.link = Link::Live;
        node.sampled_at_ms = Some(1_000);
        node.gpus = gpus;
        node
    };
    let mut first =
        node("n1", vec![gpu("n1", 0, Some(17), 90), gpu("n1", 1, Some(17), 3), gpu("n1", 2, None, 0)]);
    let kind = ProcessKind { compute: true, ..ProcessKind::default() };
    let mut facts = ProcessFacts::new(GpuUuid::new("GPU-n1-0"), 4711, kind);
    facts.job = Some(JobId(17));
    facts.user = Reading::Value("alice".into());
    facts.started_ms = Reading::Value(1_000_000);
    facts.command = Reading::Value("python3".into());
    facts.args = Reading::Value("/usr/bin/python3 -u /home/alice/train.py --lr 1".into());
    first.processes.push(ProcessPicture { facts, row: Default::default() });
    let running = job::Job {
        nodes: vec![first.name.clone()],
        node_count: 1,
        gpu_count: Some(2),
        ..job::Job::new(JobId(17), "alice".into(), JobState::Running)
    };
    let second = node("n2", vec![gpu("n2", 0, None, 0), gpu("n2", 1, None, 0)]);
    let picture = Picture { jobs: vec![running], nodes: vec![first, second], ..Picture::default() };
    Snapshot::new(&picture, 0)
}

#[test]
fn the_list_has_nvgpus_marks_and_columns() {
    // Long after the process started.
    let snapshot = Snapshot { at: Some(nodeglass_api::Timestamp::from_millis(9_000_000)), ..snapshot() };
    let answer = list::answer(&snapshot, &Default::default()).unwrap();
    let lines: Vec<_> = answer.text.lines().collect();
    assert_eq!(lines[0], "n1");
    assert!(lines[1].starts_with("GPU  STATUS  TYPE"), "{}", answer.text);
    assert!(
        lines[2].starts_with("0    [~]     H100") && lines[2].ends_with("4711  train.py"),
        "{}",
        answer.text
    );
    assert!(lines[3].starts_with("1    [~]") && lines[4].starts_with("2    [ ]"), "{}", answer.text);
    assert!(lines[5].is_empty() && lines[6] == "n2", "{}", answer.text);
    // Missing values are dashes, never zeros.
    assert!(!lines[2].contains(" 0 "), "{}", answer.text);
}

#[test]
fn a_gpu_that_is_not_known_to_be_free_is_not_shown_as_free() {
    let mark = |change: fn(&mut nodeglass_api::Gpu)| {
        let mut snapshot = snapshot();
        // Of n1, the third is free.
        change(&mut snapshot.gpus[2]);
        let text = list::answer(&snapshot, &Default::default()).unwrap().text;
        text.lines().nth(4).and_then(|line| line.split("  ").nth(2)).unwrap_or_default().trim().to_owned()
    };
    assert_eq!(mark(|_| ()), "[ ]");
    assert_eq!(mark(|gpu| gpu.connection = ConnectionState::Silent), "[!]");
    assert_eq!(mark(|gpu| gpu.processes = None), "[!]");
    assert_eq!(mark(|gpu| gpu.processes = Some(1)), "[~]");
}

#[test]
fn notices_are_of_what_was_asked_for() {
    let mut snapshot = snapshot();
    let mut dark = snapshot.nodes[1].clone();
    (dark.name, dark.gpus, dark.reason) = ("n3".to_owned(), Vec::new(), Some("login refused".to_owned()));
    snapshot.nodes.push(dark);
    let notice = |args: nodeglass_config::ListArgs| list::answer(&snapshot, &args).unwrap().notice;
    assert_eq!(notice(Default::default()).as_deref(), Some("n3: login refused"));
    let of_node = |name: &str| nodeglass_config::ListArgs {
        node: Some(NodeName::new(name).unwrap()),
        ..Default::default()
    };
    assert_eq!(notice(of_node("n1")), None);
    assert_eq!(notice(of_node("n3")).as_deref(), Some("n3: login refused"));
    // Job 17 has GPUs of n1 alone.
    let of_job = nodeglass_config::ListArgs { job: Some(JobSelector::Id(17)), ..Default::default() };
    assert_eq!(notice(of_job.clone()), None);
    let elsewhere = nodeglass_config::ListArgs { node: of_node("n2").node, ..of_job };
    assert_eq!(notice(elsewhere).as_deref(), Some("no GPU matches"));
}

#[test]
fn processes_that_are_not_listed_are_counted() {
    let mut snapshot = snapshot();
    (snapshot.gpus[0].processes, snapshot.gpus[1].processes) = (Some(4), Some(1));
    let list = list::answer(&snapshot, &Default::default()).unwrap().text;
    let lines: Vec<_> = list.lines().collect();
    assert!(lines[2].ends_with("4711  train.py  (3 more processes are not listed)"), "{list}");
    assert!(lines[3].ends_with("(1 process is not listed)"), "{list}");
    let notice = processes::answer(&snapshot, &Default::default()).unwrap().notice.unwrap();
    assert_eq!(notice, "n1:0: 3 more processes are not listed\nn1:1: 1 process is not listed");
    let args = nodeglass_config::GpuArgs { gpu: "n1:1".to_owned(), json: false, which: Default::default() };
    let text = gpu::answer(&snapshot, &args).unwrap().text;
    assert!(text.ends_with("Processes\n  1 process is not listed\n"), "{text}");
}

#[test]
fn sums_that_are_not_of_all_gpus_of_a_job_are_marked() {
    let mut snapshot = snapshot();
    let args = all(&ListArgs::default());
    let complete = jobs::answer(&snapshot, &args, 0, None).unwrap();
    assert!(!complete.text.contains('*') && complete.notice.is_none(), "{complete:?}");
    snapshot.jobs[0].totals.gpus = 1;
    let partial = jobs::answer(&snapshot, &args, 0, None).unwrap();
    assert!(partial.text.contains(" %*"), "{}", partial.text);
    assert_eq!(partial.notice.as_deref(), Some("* of 1 of the 2 GPUs of job 17"));
    let totals = &mut snapshot.jobs[0].totals;
    (totals.util_pct, totals.power_w, totals.mem_used_bytes) = (None, None, None);
    assert_eq!(jobs::answer(&snapshot, &args, 0, None).unwrap().notice, None);
}

#[test]
fn lists_are_filtered() {
    let of = |user: &str| nodeglass_config::ListArgs { login: Some(user.to_owned()), ..Default::default() };
    let text = list::answer(&snapshot(), &of("alice")).unwrap().text;
    assert!(text.contains("[~]") && !text.contains("[ ]"), "{text}");
    let processes = processes::answer(&snapshot(), &of("alice")).unwrap().text;
    assert!(processes.contains("4711") && processes.contains("train.py"), "{processes}");
}

fn all(list: &ListArgs) -> JobsArgs {
    JobsArgs { list: list.clone(), hide_ended: false }
}

#[test]
fn the_times_of_a_suspended_job_stand_still() {
    let mut snapshot = snapshot();
    let at = nodeglass_api::Timestamp::from_secs;
    let job = &mut snapshot.jobs[0];
    (job.started_at, job.time_limit_s) = (at(1_000), Some(600));
    (job.state, job.suspension) =
        ("SUSPENDED".into(), Some(JobSuspension { at: at(1_039).unwrap(), ran_s: 39 }));
    let times = |snapshot: &Snapshot| {
        let text = jobs::answer(snapshot, &JobsArgs::default(), 1_200, None).unwrap().text;
        let row = text.lines().nth(1).unwrap().split_whitespace().map(str::to_owned);
        row.filter(|word| word.contains(':')).collect::<Vec<_>>()
    };
    assert_eq!(times(&snapshot), ["0:39", "9:21"]);
    snapshot.jobs[0].state = "RUNNING".into();
    snapshot.jobs[0].suspension.as_mut().unwrap().at = at(1_174).unwrap();
    assert_eq!(times(&snapshot), ["1:05", "8:55"]);
}

#[test]
fn ended_jobs_are_hidden_on_request() {
    let mut snapshot = snapshot();
    let ended = Job {
        id: 16,
        label: "16".into(),
        state: "FAILED".into(),
        is_active: false,
        ..snapshot.jobs[0].clone()
    };
    let pending = Job { id: 18, label: "18".into(), state: "PENDING".into(), ..ended.clone() };
    snapshot.jobs.extend([ended, pending]);
    let ids = |hide_ended| {
        let text =
            jobs::answer(&snapshot, &JobsArgs { hide_ended, ..JobsArgs::default() }, 0, None).unwrap().text;
        text.lines().skip(1).map(|line| line[..2].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (ids(false), ids(true)),
        (vec!["17".into(), "16".into(), "18".into()], vec!["17".into(), "18".into()])
    );
}

#[test]
fn a_narrow_terminal_shows_the_columns_of_jobs_that_matter_and_whole_words() {
    let mut snapshot = snapshot();
    (snapshot.jobs[0].name, snapshot.jobs[0].state) =
        ("a-job-with-a-rather-long-name".into(), "COMPLETING".into());
    let answer = |width| jobs::answer(&snapshot, &JobsArgs::default(), 0, width).unwrap();
    let narrow = answer(Some(80));
    assert!(narrow.text.lines().all(|line| line.chars().count() <= 80), "{}", narrow.text);
    for column in ["JOBID", "NAME", "STATE", "LEFT", "GPUS", "UTIL"] {
        assert!(narrow.text.contains(column), "{column}: {}", narrow.text);
    }
    assert!(narrow.notice.unwrap().starts_with("no room for ID, "));
    let whole = answer(None);
    assert!(whole.text.contains("NODELIST(REASON)") && whole.notice.is_none(), "{}", whole.text);

    let text = "▲ short\n  a sentence that is longer than the line\n\nend\n".to_owned();
    let broken = super::Answer::text(text.clone()).in_lines_of(Some(24)).text;
    assert_eq!(broken, "▲ short\n  a sentence that is\n    longer than the line\n\nend\n");
    assert_eq!(super::Answer::text(text.clone()).in_lines_of(None).text, text);
}

#[test]
fn a_node_job_or_user_that_is_not_there_is_said_to_be_unknown() {
    let args = |node: Option<&str>, job: Option<&str>, user: Option<&str>, json| nodeglass_config::ListArgs {
        node: node.map(|name| NodeName::new(name).unwrap()),
        job: job.map(|job| job.parse().unwrap()),
        login: user.map(str::to_owned),
        json,
        ..Default::default()
    };
    for (node, job, user, why) in [
        (Some("n9"), None, None, "no node n9 is watched"),
        (None, Some("99"), None, "there is no job 99 in the list"),
        (None, Some("17_3"), None, "there is no job 17_3 in the list"),
        (None, None, Some("carol"), "carol has no job in the list, and no process on a GPU"),
    ] {
        let jobs = |snapshot: &Snapshot, list: &ListArgs| jobs::answer(snapshot, &all(list), 0, None);
        for answer in [list::answer, jobs, processes::answer] {
            let said = answer(&snapshot(), &args(node, job, user, false)).unwrap();
            assert_eq!(
                (said.notice.as_deref(), said.code, said.text.as_str()),
                (Some(why), exit_code::NOT_MET, "")
            );
            let json = answer(&snapshot(), &args(node, job, user, true)).unwrap();
            assert_eq!((json.text.as_str(), json.code), ("[]\n", exit_code::NOT_MET));
        }
    }
    // What is known, but has nothing of the kind, is no error.
    let idle = processes::answer(&snapshot(), &args(Some("n2"), None, None, false)).unwrap();
    assert_eq!((idle.notice.as_deref(), idle.code), (Some("no processes on GPUs"), 0));
    let jobless = jobs::answer(&snapshot(), &all(&args(Some("n2"), None, None, false)), 0, None).unwrap();
    assert_eq!((jobless.notice.as_deref(), jobless.code), (Some("no jobs"), 0));
}

#[test]
fn durations_and_ages_are_in_words_that_users_know() {
    assert_eq!(
        [ago(1), ago(59), ago(3_600), ago(200_000)],
        ["1 second ago", "59 seconds ago", "1 hour ago", "2 days ago"]
    );
    assert_eq!([clock(5), clock(3_723), clock(93_784)], ["0:05", "1:02:03", "1-02:03:04"]);
}

#[test]
fn an_answer_without_findings_says_how_long_was_watched() {
    let said = |observed| {
        let answer = findings::answer(&snapshot(), observed, &Default::default()).unwrap();
        assert_eq!((answer.code, answer.text.as_str()), (0, ""));
        answer.notice.unwrap()
    };
    let young = said(Observed::For(Duration::from_secs(12)));
    assert!(young.starts_with("nothing needs attention yet: the relay has watched for 12 s"), "{young}");
    assert_eq!(said(Observed::For(Duration::from_secs(600))), "nothing needs attention");
    let glance = said(Observed::Glance);
    assert!(glance.starts_with("no findings, but no relay of yours is running"), "{glance}");
}

#[test]
fn a_finding_names_its_job_and_an_end_reads_as_one() {
    let text = |ended_ms, all| {
        let found = nodeglass_protocol::finding::Finding {
            or_earlier: true,
            ended_ms,
            ..nodeglass_api::fixtures::finding("thermal/17")
        };
        let mut job = job::Job::new(JobId(17), "alice".into(), JobState::Running);
        job.name = "train".into();
        let picture = Picture { jobs: vec![job], findings: vec![found], ..Picture::default() };
        let args = nodeglass_config::FindingsArgs { all, ..Default::default() };
        let long = Observed::For(Duration::from_secs(600));
        findings::answer(&Snapshot::new(&picture, 0), long, &args).unwrap().text
    };
    let (lasts, over) = (text(None, false), text(Some(780_000), true));
    assert!(lasts.starts_with("◆ job 17 train: Rank 3"), "{lasts}");
    assert!(lasts.contains("(n1 GPU 3) is too hot\n  for at least "), "{lasts}");
    assert!(lasts.contains(" or earlier · thermal\n"), "{lasts}");
    assert!(over.starts_with("✓ resolved: job 17 train: "), "{over}");
    assert!(over.contains("is too hot, lasted at least 12 min\n  ended "), "{over}");
}

#[test]
fn findings_of_one_cause_are_one_entry_as_in_the_page() {
    use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind};
    let named = |id, name: &str| job::Job {
        name: name.into(),
        ..job::Job::new(JobId(id), "alice".into(), JobState::Running)
    };
    let of = |kind: FindingKind, id: u32| Finding {
        key: format!("{}/{id}", kind.name()).as_str().into(),
        kind,
        jobs: vec![JobId(id)],
        gpus: vec![FindingGpu::new(&NodeName::new("n1").unwrap(), &GpuUuid::new("GPU-n1-3"), None)],
        ..nodeglass_api::fixtures::finding("thermal/17")
    };
    let failed = |id, since_ms| Finding {
        reason: "out of memory".into(),
        evidence: vec!["exit code 0:125".into()],
        since_ms,
        ..of(FindingKind::Failed, id)
    };
    let findings = vec![
        of(FindingKind::Straggler, 17),
        of(FindingKind::Thermal, 17),
        failed(20, 1_000),
        failed(21, 3_000),
        failed(22, 2_000),
    ];
    let jobs = vec![named(17, "train"), named(20, "eval"), named(21, "eval"), named(22, "eval")];
    let snapshot = Snapshot::new(&Picture { jobs, findings, ..Picture::default() }, 0);
    let long = Observed::For(Duration::from_secs(600));
    let answer = |json| {
        let args = nodeglass_config::FindingsArgs { json, ..Default::default() };
        findings::answer(&snapshot, long, &args).unwrap().text
    };
    let text = answer(false);
    assert_eq!(text.matches('→').count(), 2, "{text}");
    assert!(text.contains(" · straggler\n") && !text.contains(" · thermal\n"), "{text}");
    assert!(text.contains("◆ job 21 eval: failed 3 times: out of memory\n"), "{text}");
    assert!(text.contains("  exit code 0:125\n  before: 22, 20\n"), "{text}");
    assert_eq!(answer(true).matches("\"key\"").count(), 5, "scripts read each finding");
}
