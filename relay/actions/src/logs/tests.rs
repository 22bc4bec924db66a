//! Logs followed locally and on a node, by several readers and by none; reads are real, intervals short.

use super::*;
use nodeglass_event_loop::{EventLoop, Inputs, Options, Sinks};
use nodeglass_fleet::{Event, Fleet, scene};
use nodeglass_nodes::{FromNode, QueuedRequest, SupervisorRequest};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, LongText};
use std::io::Write;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Logs over a given job list, without nodes.
pub(super) struct Harness {
    pub(super) logs: Logs,
    /// Requests to probes.
    requests: mpsc::Receiver<SupervisorRequest>,
    _inputs: (mpsc::Sender<FromNode>, mpsc::Sender<Event>, watch::Sender<bool>),
}

pub(super) fn harness(jobs: Vec<Job>) -> Harness {
    harness_with(jobs, LogFiles::Here("login1".into()))
}

fn harness_with(jobs: Vec<Job>, files: LogFiles) -> Harness {
    let ((lines, nodes), (is_new, event_rx)) = (mpsc::channel(8), mpsc::channel(8));
    let (shutdown, ending) = watch::channel(false);
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs, wall_ahead_ms: 1_000 }, 0);
    let inputs = Inputs { nodes, events: event_rx, sharing: watch::channel(Sharing::default()).1 };
    let (core, hub, _orders) =
        EventLoop::new(fleet, Clock::start(), Options::default(), inputs, Sinks::default());
    tokio::spawn(core.run(ending));
    let (probes, requests) = Probes::new();
    Harness {
        logs: Logs::new(hub, probes, files, "alice".into()),
        requests,
        _inputs: (lines, is_new, shutdown),
    }
}

/// The next request to a probe.
async fn next_request(harness: &mut Harness) -> QueuedRequest {
    match harness.requests.recv().await {
        Some(SupervisorRequest::Probe(queued)) => queued,
        other => panic!("no request: {other:?}"),
    }
}

pub(super) fn job(path: &str) -> Job {
    Job { stdout: Some(path.into()), batch_host: Some(scene::name("n1")), ..scene::job(1, &[("n1", &[0])]) }
}

const LOG: LogRef = LogRef { job: JobId(1), stream: LogStream::Stdout };

async fn next(followed: &mut FollowedLog) -> Tail {
    timeout(Duration::from_secs(30), followed.next()).await.expect("something new")
}

fn lines(tail: &Tail) -> Vec<&str> {
    tail.lines.iter().map(LongText::as_str).collect()
}

#[tokio::test]
async fn a_local_log_is_shared_by_followers_and_dropped_with_the_last() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"one\n").unwrap();
    let harness = harness(vec![job(file.path().to_str().unwrap())]);
    let (mut first, mut second) =
        (harness.logs.follow(LOG, Recipient::Owner), harness.logs.follow(LOG, Recipient::Owner));
    assert_eq!(harness.logs.count(), 1);
    assert_eq!(lines(&next(&mut first).await), ["one"]);
    file.write_all(b"two\n 50%\r 99%").unwrap();
    let more = next(&mut first).await;
    assert_eq!((lines(&more), more.restarted), (vec!["two"], false));
    assert_eq!(more.partial, Some(LongText::line(" 99%")));
    assert_eq!(lines(&next(&mut second).await), ["one", "two"]);
    drop((first, second));
    timeout(Duration::from_secs(30), async {
        while harness.logs.count() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the log has no followers");
}

#[tokio::test]
async fn a_log_of_an_ended_job_is_still_read_locally() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "last words\n").unwrap();
    let ended = Job { state: JobState::Ended("FAILED".into()), ..job(file.path().to_str().unwrap()) };
    let harness = harness(vec![ended]);
    assert_eq!(lines(&next(&mut harness.logs.follow(LOG, Recipient::Owner)).await), ["last words"]);
}

#[tokio::test]
async fn a_log_that_exists_only_on_the_node_is_read_by_its_probe() {
    let path = "/nowhere/slurm-1.out";
    let mut harness = harness(vec![job(path)]);
    let mut followed = harness.logs.follow(LOG, Recipient::Owner);
    let (responses, tail) = tokio::join!(
        async {
            let mut after = Vec::new();
            for end in [4, 8] {
                let queued = next_request(&mut harness).await;
                let (node, request) = queued.parts();
                assert_eq!(node, &scene::name("n1"));
                let ProbeRequest::Tail { path: requested, after: from, .. } = request else {
                    panic!("{request:?}")
                };
                assert_eq!(requested, path);
                after.push(*from);
                queued.respond(Response::Tail(Tail { end, lines: vec!["row".into()], ..Tail::default() }));
            }
            after
        },
        async { [next(&mut followed).await, next(&mut followed).await] }
    );
    assert_eq!(responses, [0, 4]);
    assert_eq!((lines(&tail[0]), tail[0].restarted), (vec!["row"], true));
    assert_eq!((lines(&tail[1]), tail[1].restarted), (vec!["row"], false));
}

#[tokio::test]
async fn the_reason_why_a_log_cannot_be_read_is_reported() {
    let mut waiting = job("/x");
    (waiting.state, waiting.stdout) = (JobState::Pending, None);
    let cases = [
        (vec![], "there is no job 1 in the list"),
        (vec![waiting], "it is pending"),
        (vec![Job { stdout: None, ..job("/x") }], "SLURM does not report where it writes"),
        (
            vec![Job { state: JobState::Ended("FAILED".into()), ..job("/nowhere/x.out") }],
            "/nowhere/x.out: no such file on login1",
        ),
        (
            vec![Job { state: JobState::Ended("FAILED".into()), ..job("/dev/zero") }],
            "/dev/zero: on login1 it is a device, not a regular file",
        ),
        (vec![job("/dev/null")], "SLURM writes it to /dev/null"),
    ];
    for (jobs, why) in cases {
        let harness = harness(jobs);
        let tail = next(&mut harness.logs.follow(LOG, Recipient::Owner)).await.error.unwrap_or_default();
        assert!(tail.as_str().contains(why), "{tail}");
    }
    let mut harness = harness(vec![job("/nowhere/x.out")]);
    let mut followed = harness.logs.follow(LOG, Recipient::Owner);
    let (tail, ()) = tokio::join!(next(&mut followed), async {
        next_request(&mut harness).await.respond(Response::Refused("no such file".into()));
    });
    assert_eq!(tail.error.unwrap().as_str(), "/nowhere/x.out: no such file on login1; on n1: no such file");
}

/// The file system of a simulated cluster, which has one log.
#[derive(Debug)]
struct OneFile(&'static str);

impl SimulatedFiles for OneFile {
    fn tail(&self, _job: &Job, path: &str, after: u64) -> Option<Tail> {
        (path == self.0).then(|| Tail {
            lines: vec![format!("after {after}").into()],
            end: 9,
            ..Tail::default()
        })
    }
}

#[tokio::test]
async fn a_log_of_an_ended_job_of_a_simulated_cluster_needs_no_watched_node() {
    let path = "/home/alice/slurm-1.out";
    let ended = Job { state: JobState::Ended("FAILED".into()), ended: Some(now_s()), ..job(path) };
    let mut harness = harness_with(vec![ended], LogFiles::Simulated(Arc::new(OneFile(path))));
    assert_eq!(lines(&next(&mut harness.logs.follow(LOG, Recipient::Owner)).await), ["after 0"]);
    assert!(harness.requests.try_recv().is_err());
}

#[tokio::test]
async fn what_to_do_is_said_if_only_the_node_of_an_ended_job_may_have_the_log() {
    let ended = Job { state: JobState::Ended("FAILED".into()), ..job("/nowhere/x.out") };
    let mut harness = harness(vec![ended]);
    let mut followed = harness.logs.follow(LOG, Recipient::Owner);
    let (tail, ()) = tokio::join!(next(&mut followed), async {
        let queued = next_request(&mut harness).await;
        let why = unwatched(queued.parts().0);
        queued.respond(Response::Refused(why.into()));
    });
    assert_eq!(
        tail.error.unwrap().as_str(),
        "/nowhere/x.out: no such file on login1; n1 is not watched any more, because the job has ended: read it there, \
         or let jobs write to a shared file system"
    );
}

#[tokio::test]
async fn a_local_file_older_than_the_job_yields_to_the_nodes_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "another job's\n").unwrap();
    let path = file.path().to_str().unwrap();
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let mut harness = harness(vec![Job { start: Some(now_s + 1_000), ..job(path) }]);
    let mut followed = harness.logs.follow(LOG, Recipient::Owner);
    let (tail, ()) = tokio::join!(next(&mut followed), async {
        let tail = Tail { end: 4, lines: vec!["mine".into()], ..Tail::default() };
        next_request(&mut harness).await.respond(Response::Tail(tail));
    });
    assert_eq!(lines(&tail), ["mine"]);
}

/// A running job of the user who runs the test, which writes to `path` since ten seconds.
fn own_job(path: &std::path::Path) -> Job {
    let login = user::name_of(rustix::process::geteuid().as_raw()).expect("the test's user has a name");
    Job { user: login, start: Some(now_s() - 10), ..job(path.to_str().unwrap()) }
}

fn now_s() -> i64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed()
}

/// Waits for an error.
async fn error(followed: &mut FollowedLog) -> Text {
    loop {
        if let Some(why) = next(followed).await.error {
            return why;
        }
    }
}

#[tokio::test]
async fn t09_a_guest_does_not_see_another_file_that_replaced_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let (log, other) = (folder.join("job.out"), folder.join("other"));
    let old = std::time::SystemTime::now() - Duration::from_secs(2 * 86_400);
    let exchanges: [&dyn Fn(); 2] =
        [&|| std::fs::File::open(&other).unwrap().set_modified(old).unwrap(), &|| {
            std::fs::hard_link(&other, folder.join("its other name")).unwrap()
        }];
    for exchange in exchanges {
        std::fs::write(&log, "epoch 1\n").unwrap();
        std::fs::write(&other, "a secret\n").unwrap();
        let mut harness = harness(vec![own_job(&log)]);
        let mut guest = harness.logs.follow(LOG, Recipient::Guest);
        assert_eq!(lines(&next(&mut guest).await), ["epoch 1"]);
        exchange();
        std::fs::rename(&other, &log).unwrap();
        let (why, audience) = tokio::join!(error(&mut guest), async {
            // The node receives a request as well, under the same rule.
            let queued = next_request(&mut harness).await;
            let ProbeRequest::Tail { audience, .. } = queued.parts().1.clone() else { unreachable!() };
            queued.respond(Response::Refused("it is not shown to guests".into()));
            audience
        });
        assert!(why.as_str().contains("not shown to guests"), "{why}");
        assert!(matches!(audience, Audience::Guest { since_s } if (since_s - now_s()).abs() < 60));
    }
    // The owner can read any file that their permissions allow.
    let harness = harness(vec![own_job(&log)]);
    assert_eq!(lines(&next(&mut harness.logs.follow(LOG, Recipient::Owner)).await), ["a secret"]);
}

#[tokio::test]
async fn t09_a_guest_does_not_see_logs_of_other_users_jobs() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a secret\n").unwrap();
    let others = Job { user: "no-such-user-here".into(), ..own_job(file.path()) };
    let mut harness = harness(vec![others]);
    let why = error(&mut harness.logs.follow(LOG, Recipient::Guest)).await;
    assert!(why.as_str().contains("other users' jobs"), "{why}");
    assert!(harness.requests.try_recv().is_err(), "its node receives no request either");
}

#[tokio::test]
async fn t09_a_guest_does_not_see_a_log_before_its_job_started() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a secret\n").unwrap();
    let waiting = Job { state: JobState::Pending, start: Some(now_s()), ..own_job(file.path()) };
    let harness = harness(vec![waiting]);
    let why = error(&mut harness.logs.follow(LOG, Recipient::Guest)).await;
    assert!(why.as_str().contains("it is pending"), "{why}");
}
