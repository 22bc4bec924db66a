//! The end of a probe is reported with its reason, and no probe outlives its stream.

use super::config::{ECHO, User, expect, until};
use super::sshd::Sshd;
use nodeglass_launch::StreamEnd;
use std::time::Duration;

async fn end_of(stream: nodeglass_launch::NodeStream) -> StreamEnd {
    let nodeglass_launch::NodeStream { mut stdout, stdin, end } = stream;
    drop(stdin);
    while stdout.recv().await.is_some() {}
    tokio::time::timeout(Duration::from_secs(10), end).await.expect("the end is reported").unwrap()
}

#[tokio::test]
async fn closing_stdin_lets_a_probe_exit_and_its_stderr_is_kept() {
    let Some(sshd) = Sshd::start() else { return };
    let mut stream = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
    let end = end_of(stream).await;
    assert_eq!(end, StreamEnd { exit: Some(0), stderr: "bye".into(), ..StreamEnd::default() });
}

#[tokio::test]
async fn exit_status_and_signal_are_distinguished() {
    let Some(sshd) = Sshd::start() else { return };
    let hello = "printf '\\036NODEGLASS1 x\\n';";
    let stream =
        User::of(&sshd).launch(&sshd.script(&format!("{hello} echo no GPU >&2; exit 3"))).await.unwrap();
    let end = end_of(stream).await;
    assert_eq!((end.exit, end.stderr.as_str()), (Some(3), "no GPU"));
    let stream = User::of(&sshd).launch(&sshd.script(&format!("{hello} kill -9 $$"))).await.unwrap();
    let end = end_of(stream).await;
    assert_eq!(end.exit, None);
    assert!(end.signal.as_ref().is_some_and(|signal| signal.as_str().contains("KILL")), "{end:?}");
}

#[tokio::test]
async fn a_broken_connection_is_reported_as_such() {
    let Some(sshd) = Sshd::start() else { return };
    let mut stream = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
    sshd.signal(libc::SIGKILL);
    let nodeglass_launch::NodeStream { mut stdout, stdin: _stdin, end } = stream;
    while stdout.recv().await.is_some() {}
    let end = tokio::time::timeout(Duration::from_secs(10), end).await.expect("the end is reported").unwrap();
    assert!(end.exit.is_none() && end.broken.is_some(), "{end:?}");
}

#[tokio::test]
async fn dropping_the_stream_leaves_no_probe_behind() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ECHO);
    let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
    expect(&mut stream, "hello").await;
    let name = probe.display().to_string();
    assert!(!sshd.session_processes(&name).is_empty());
    drop(stream);
    until("the probe is gone", || sshd.session_processes(&name).is_empty()).await;
}
