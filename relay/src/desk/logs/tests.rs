//! Logs are followed here and on a node, by several readers and by none; the looks are real, the time is short.

use super::*;
use crate::clock::Clock;
use crate::fleet::{Event, Fleet, scene};
use crate::hub::{Core, CoreOptions, Inputs};
use crate::nodes::{FromNode, Question, Request};
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::share::Sharing;
use nodeglass_protocol::{JobId, LongText};
use std::io::Write;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Logs over a job list that is given, without any node.
struct Desk {
    logs: Logs,
    /// Questions that were asked of probes.
    asked: mpsc::Receiver<Request>,
    _inputs: (mpsc::Sender<FromNode>, mpsc::Sender<Event>, watch::Sender<bool>),
}

fn desk(jobs: Vec<Job>) -> Desk {
    let ((lines, nodes), (news, heard)) = (mpsc::channel(8), mpsc::channel(8));
    let (shutdown, ending) = watch::channel(false);
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs, wall_s: 1 }, 0);
    let inputs = Inputs { nodes, events: heard, sharing: watch::channel(Sharing::default()).1 };
    let (core, hub, _orders) = Core::new(fleet, Clock::start(), CoreOptions::default(), inputs);
    tokio::spawn(core.run(ending));
    let (probes, asked) = Probes::new();
    Desk {
        logs: Logs::new(hub, probes, Some("login1".into()), "alice".into()),
        asked,
        _inputs: (lines, news, shutdown),
    }
}

/// The next question that a probe is asked.
async fn question(desk: &mut Desk) -> Question {
    match desk.asked.recv().await {
        Some(Request::Question(question)) => question,
        other => panic!("no question: {other:?}"),
    }
}

fn job(path: &str) -> Job {
    Job { stdout: Some(path.into()), batch_host: Some(scene::name("n1")), ..scene::job(1, &[("n1", &[0])]) }
}

const LOG: LogRef = LogRef { job: JobId(1), stream: LogStream::Stdout };

async fn next(followed: &mut Followed) -> Tail {
    timeout(Duration::from_secs(30), followed.next()).await.expect("something new")
}

fn lines(tail: &Tail) -> Vec<&str> {
    tail.lines.iter().map(LongText::as_str).collect()
}

#[tokio::test]
async fn a_log_on_this_machine_is_told_to_all_who_follow_it_and_forgotten_with_the_last() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"one\n").unwrap();
    let desk = desk(vec![job(file.path().to_str().unwrap())]);
    let (mut first, mut second) =
        (desk.logs.follow(LOG, Recipient::Owner), desk.logs.follow(LOG, Recipient::Owner));
    assert_eq!(desk.logs.count(), 1);
    assert_eq!(lines(&next(&mut first).await), ["one"]);
    file.write_all(b"two\n 50%\r 99%").unwrap();
    let more = next(&mut first).await;
    assert_eq!((lines(&more), more.restarted), (vec!["two"], false));
    assert_eq!(more.partial, Some(LongText::line(" 99%")));
    assert_eq!(lines(&next(&mut second).await), ["one", "two"]);
    drop((first, second));
    timeout(Duration::from_secs(30), async {
        while desk.logs.count() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("nobody follows it any more");
}

#[tokio::test]
async fn a_log_of_a_job_that_ended_is_still_read_here() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "last words\n").unwrap();
    let ended = Job { state: JobState::Ended("FAILED".into()), ..job(file.path().to_str().unwrap()) };
    let desk = desk(vec![ended]);
    assert_eq!(lines(&next(&mut desk.logs.follow(LOG, Recipient::Owner)).await), ["last words"]);
}

#[tokio::test]
async fn a_log_that_is_only_on_the_node_is_asked_of_its_probe() {
    let path = "/nowhere/slurm-1.out";
    let mut desk = desk(vec![job(path)]);
    let mut followed = desk.logs.follow(LOG, Recipient::Owner);
    let (answers, told) = tokio::join!(
        async {
            let mut after = Vec::new();
            for end in [4, 8] {
                let question = question(&mut desk).await;
                let (node, ask) = question.parts();
                assert_eq!(node, &scene::name("n1"));
                let ProbeAsk::Tail { path: asked, after: from, .. } = ask else { panic!("{ask:?}") };
                assert_eq!(asked, path);
                after.push(*from);
                question.answer(Answer::Tail(Tail { end, lines: vec!["row".into()], ..Tail::default() }));
            }
            after
        },
        async { [next(&mut followed).await, next(&mut followed).await] }
    );
    assert_eq!(answers, [0, 4]);
    assert_eq!((lines(&told[0]), told[0].restarted), (vec!["row"], true));
    assert_eq!((lines(&told[1]), told[1].restarted), (vec!["row"], false));
}

#[tokio::test]
async fn a_log_that_cannot_be_read_says_why_in_words() {
    let mut waiting = job("/x");
    (waiting.state, waiting.stdout) = (JobState::Pending, None);
    let cases = [
        (vec![], "there is no job 1 in the list"),
        (vec![waiting], "it waits to be started"),
        (vec![Job { stdout: None, ..job("/x") }], "SLURM does not say where it writes"),
        (
            vec![Job { state: JobState::Ended("FAILED".into()), ..job("/nowhere/x.out") }],
            "/nowhere/x.out: no such file on login1",
        ),
        (
            vec![Job { state: JobState::Ended("FAILED".into()), ..job("/dev/zero") }],
            "/dev/zero: on login1 it is a device, not a regular file",
        ),
        (vec![job("/dev/null")], "SLURM was told to write it to /dev/null"),
    ];
    for (jobs, why) in cases {
        let desk = desk(jobs);
        let told = next(&mut desk.logs.follow(LOG, Recipient::Owner)).await.trouble.unwrap_or_default();
        assert!(told.as_str().contains(why), "{told}");
    }
    let mut desk = desk(vec![job("/nowhere/x.out")]);
    let mut followed = desk.logs.follow(LOG, Recipient::Owner);
    let (told, ()) = tokio::join!(next(&mut followed), async {
        question(&mut desk).await.answer(Answer::Refused("no such file".into()));
    });
    assert_eq!(told.trouble.unwrap().as_str(), "/nowhere/x.out: no such file on login1; on n1: no such file");
}

#[tokio::test]
async fn a_file_here_that_is_older_than_the_job_gives_way_to_the_nodes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "another job's\n").unwrap();
    let path = file.path().to_str().unwrap();
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed();
    let mut desk = desk(vec![Job { start: Some(now_s + 1_000), ..job(path) }]);
    let mut followed = desk.logs.follow(LOG, Recipient::Owner);
    let (told, ()) = tokio::join!(next(&mut followed), async {
        let tail = Tail { end: 4, lines: vec!["mine".into()], ..Tail::default() };
        question(&mut desk).await.answer(Answer::Tail(tail));
    });
    assert_eq!(lines(&told), ["mine"]);
}

/// A running job of whoever runs the test, which writes to `path` since ten seconds.
fn own_job(path: &std::path::Path) -> Job {
    let login = user::name_of(rustix::process::geteuid().as_raw()).expect("whoever runs the test has a name");
    Job { user: login, start: Some(now_s() - 10), ..job(path.to_str().unwrap()) }
}

fn now_s() -> i64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs().cast_signed()
}

/// Waits for a reason why a log is not read any more.
async fn trouble(followed: &mut Followed) -> Text {
    loop {
        if let Some(why) = next(followed).await.trouble {
            return why;
        }
    }
}

#[tokio::test]
async fn t09_a_guest_is_shown_no_other_file_that_took_the_name_of_the_log_while_it_was_followed() {
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
        let mut desk = desk(vec![own_job(&log)]);
        let mut guest = desk.logs.follow(LOG, Recipient::Guest);
        assert_eq!(lines(&next(&mut guest).await), ["epoch 1"]);
        exchange();
        std::fs::rename(&other, &log).unwrap();
        let (why, asked) = tokio::join!(trouble(&mut guest), async {
            // The node is asked, too, and by the same rule.
            let question = question(&mut desk).await;
            let ProbeAsk::Tail { audience, .. } = question.parts().1.clone() else { unreachable!() };
            question.answer(Answer::Refused("it is not shown to guests".into()));
            audience
        });
        assert!(why.as_str().contains("not shown to guests"), "{why}");
        assert!(matches!(asked, Audience::Guest { since_s } if (since_s - now_s()).abs() < 60));
    }
    // The owner reads whatever they may read.
    let desk = desk(vec![own_job(&log)]);
    assert_eq!(lines(&next(&mut desk.logs.follow(LOG, Recipient::Owner)).await), ["a secret"]);
}

#[tokio::test]
async fn t09_a_guest_is_shown_no_log_of_another_users_job_by_the_owners_rights() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a secret\n").unwrap();
    let others = Job { user: "no-such-user-here".into(), ..own_job(file.path()) };
    let mut desk = desk(vec![others]);
    let why = trouble(&mut desk.logs.follow(LOG, Recipient::Guest)).await;
    assert!(why.as_str().contains("other users' jobs"), "{why}");
    assert!(desk.asked.try_recv().is_err(), "nor is its node asked");
}

#[tokio::test]
async fn t09_before_its_job_has_started_a_guest_is_shown_no_log() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "a secret\n").unwrap();
    let waiting = Job { state: JobState::Pending, start: Some(now_s()), ..own_job(file.path()) };
    let desk = desk(vec![waiting]);
    let why = trouble(&mut desk.logs.follow(LOG, Recipient::Guest)).await;
    assert!(why.as_str().contains("waits to be started"), "{why}");
}
