//! Hosts that hang, misbehave or send too much cost one slot for a bounded time and nothing else.

use super::config::{ECHO, User, expect, node, send_line, until};
use super::sshd::Sshd;
use nodeglass_launch::{LaunchError, Launcher};
use nodeglass_protocol::probe::MAGIC;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let Some(mut sshd) = Sshd::start() else { return };
    sshd.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    match User::of(&sshd).launch(&sshd.script(ECHO)).await {
        Err(LaunchError::Unreachable { why }) => assert!(why.as_str().contains("refused"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn f02_an_unresponsive_host_times_out_within_the_handshake_limit() {
    let Some(mut sshd) = Sshd::start() else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    sshd.port = silent.local_addr().unwrap().port();
    let began = Instant::now();
    match User::of(&sshd).launch(&sshd.script(ECHO)).await {
        Err(LaunchError::Unreachable { why }) => assert!(why.as_str().contains("did not speak SSH"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < Duration::from_secs(20), "the limit is 10 s");
}

#[tokio::test]
async fn something_that_is_no_sshd_is_an_error_and_not_a_crash() {
    for speech in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff\xff\xff", b""]
    {
        let Some(mut sshd) = Sshd::start() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sshd.port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            use std::io::Write;
            if let Ok((mut socket, _)) = listener.accept() {
                let _ = socket.write_all(speech);
            }
        });
        let error = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap_err();
        assert!(
            matches!(
                &error,
                LaunchError::Unreachable { .. }
                    | LaunchError::Capability { .. }
                    | LaunchError::Throttled { .. }
            ),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn f03_a_host_frozen_at_any_moment_can_be_left_without_waiting() {
    let Some(sshd) = Sshd::start() else { return };
    let mut stream = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
    sshd.signal(libc::SIGSTOP);
    send_line(&stream, "into the void").await;
    // Time for the pump to write to the frozen host, which cannot be observed from here.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let end = {
        let nodeglass_launch::NodeStream { stdout, stdin, end } = stream;
        drop((stdout, stdin));
        end
    };
    // The pump has ended: no thread and no task waits for the frozen host.
    tokio::time::timeout(Duration::from_secs(5), end).await.expect("it leaves").unwrap();
}

#[tokio::test]
async fn f03_a_frozen_host_holds_up_no_other() {
    let Some(frozen) = Sshd::start() else { return };
    let Some(sound) = Sshd::start() else { return };
    frozen.signal(libc::SIGSTOP);
    let to_frozen = User::of(&frozen).launcher(&frozen.script(ECHO));
    let hanging = tokio::spawn(async move { to_frozen.launch(&node()).await });
    let mut stream = User::of(&sound).launch(&sound.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
    assert!(!hanging.is_finished());
    // A cancelled launch ends at once, even during the handshake.
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn f07_noise_half_lines_and_huge_lines_arrive_as_they_are() {
    let Some(sshd) = Sshd::start() else { return };
    std::fs::write(sshd.home().join(".bashrc"), "echo 'Welcome to the cluster'; echo 'quota: 97%'\n")
        .unwrap();
    let body = "echo 'more noise'; printf '\\036NODE'; sleep 0.2; printf 'GLASS1 {\"half'; sleep 0.2; printf '\"}\\n'\n\
        head -c 10000000 /dev/zero | tr '\\0' x; echo; echo the end; cat >/dev/null";
    let mut stream = User::of(&sshd).launch(&sshd.script(body)).await.unwrap();
    let output = expect(&mut stream, "the end\n").await;
    assert!(output.contains("more noise") && output.contains(&format!("{MAGIC}{{\"half\"}}\n")));
    assert!(output.len() > 10_000_000);
}

#[tokio::test]
async fn f07_a_login_script_that_never_ends_is_named_as_such() {
    let Some(sshd) = Sshd::start() else { return };
    std::fs::write(sshd.home().join(".bashrc"), "exec sleep 98765\n").unwrap();
    let outcome = User::of(&sshd).launch(&sshd.script(ECHO)).await;
    // Nothing else ends it: without a terminal, sshd leaves it running.
    for pid in sshd.session_processes("sleep 98765") {
        // SAFETY: kill has no memory effects; the process is one that our own sshd started.
        #[expect(unsafe_code, reason = "the standard library sends no signals")]
        unsafe {
            libc::kill(pid as i32, libc::SIGKILL);
        }
    }
    match outcome {
        Err(LaunchError::Hangs { why, advice }) => {
            assert!(why.as_str().contains("accepted the login, but its login script did not end"), "{why}");
            assert!(advice.as_str().contains(".bashrc"), "{advice}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_slow_reader_blocks_the_node_and_loses_nothing() {
    let Some(sshd) = Sshd::start() else { return };
    let body = "printf '\\036NODEGLASS1 x\\n'; seq 1 400000; echo the end; cat >/dev/null";
    let mut stream = User::of(&sshd).launch(&sshd.script(body)).await.unwrap();
    // Time in which nobody reads, so that all buffers on the way fill.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let output = expect(&mut stream, "the end\n").await;
    let numbers = output.lines().filter(|line| line.parse::<u32>().is_ok()).count();
    assert_eq!(numbers, 400_000);
}

#[tokio::test]
async fn f19_twenty_nodes_at_once_need_no_thread_each() {
    let Some(sshd) = Sshd::start() else { return };
    let (user, probe) = (User::of(&sshd), sshd.script(ECHO));
    twenty_nodes(&sshd, Arc::new(user.launcher(&probe))).await;
    twenty_nodes(&sshd, Arc::new(user.openssh(&probe))).await;
}

async fn twenty_nodes(sshd: &Sshd, launcher: Arc<dyn Launcher>) {
    let launches = (0..20).map(|n| {
        let launcher = Arc::clone(&launcher);
        tokio::spawn(async move {
            let name = nodeglass_protocol::NodeName::new(format!("node-{n}")).unwrap();
            launcher.launch(&name).await
        })
    });
    let mut streams = Vec::new();
    for launch in launches.collect::<Vec<_>>() {
        streams.push(launch.await.unwrap().unwrap());
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        send_line(stream, &format!("to {n}")).await;
        expect(stream, &format!("got to {n}\n")).await;
    }
    drop(streams);
    let probe = sshd.path("bin").display().to_string();
    until("all twenty probes are gone", || sshd.session_processes(&probe).is_empty()).await;
}
