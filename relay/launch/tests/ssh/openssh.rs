//! The system's ssh as a child process: its lifetime, and settings of the user that would get in the way.

use super::config::{ECHO, User, expect, node, send_line, until};
use super::sshd::Sshd;
use nodeglass_launch::{LaunchError, Launcher, NodeStream, StreamEnd};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

async fn end_of(stream: NodeStream) -> StreamEnd {
    let NodeStream { mut stdout, stdin, end } = stream;
    drop(stdin);
    while stdout.recv().await.is_some() {}
    tokio::time::timeout(Duration::from_secs(10), end).await.expect("the end is reported").unwrap()
}

#[tokio::test]
async fn ends_are_reported_as_by_the_built_in_client() {
    let Some(sshd) = Sshd::start() else { return };
    let user = User::of(&sshd);
    let hello = "printf '\\036NODEGLASS1 x\\n';";
    for (body, exit, stderr, signal) in [
        (ECHO.to_owned(), Some(0), "bye", None),
        (format!("{hello} echo no GPU >&2; exit 3"), Some(3), "no GPU", None),
        (format!("{hello} exit 255"), Some(255), "", None),
        (format!("{hello} kill -9 $$"), None, "", Some("a signal")),
    ] {
        let stream = user.openssh(&sshd.script(&body)).launch(&node()).await.unwrap();
        let signal = signal.map(Into::into);
        assert_eq!(
            end_of(stream).await,
            StreamEnd { exit, signal, stderr: stderr.into(), broken: None },
            "{body}"
        );
    }
    let mut stream = user.openssh(&sshd.script(ECHO)).launch(&node()).await.unwrap();
    expect(&mut stream, "hello").await;
    sshd.signal(libc::SIGKILL);
    let end = end_of(stream).await;
    assert!(end.exit.is_none() && end.broken.unwrap().as_str().starts_with("the connection broke: "));
}

#[tokio::test]
async fn dropping_the_stream_leaves_no_process_behind() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ECHO);
    // Its proxy command starts a child of its own, which outlives what closes its pipes.
    let proxy = format!(
        "ProxyCommand sh -c 'sleep 43210 & exec ssh -F {} -W %%h:%%p gate'",
        sshd.path("ssh_config").display()
    );
    let proxy = proxy.replace("%%", "%");
    let hosts = format!("Host gate\n ProxyCommand none\nHost node-1\n {proxy}\n");
    let user = User { hosts, ..User::of(&sshd) };
    let mut stream = user.openssh(&probe).launch(&node()).await.unwrap();
    expect(&mut stream, "hello").await;
    let config = sshd.path("ssh_config").display().to_string();
    assert!(!sshd.session_processes(&config).is_empty());
    // A frozen host, so that nothing ends by itself.
    sshd.signal(libc::SIGSTOP);
    drop(stream);
    until("ssh is gone", || sshd.session_processes(&config).is_empty()).await;
    until("the proxy's child is gone", || sshd.session_processes("sleep 43210").is_empty()).await;
    sshd.signal(libc::SIGCONT);
    until("the probe is gone", || sshd.session_processes(&probe.display().to_string()).is_empty()).await;
}

#[tokio::test]
async fn a_cancelled_launch_leaves_no_ssh_behind() {
    let Some(mut sshd) = Sshd::start() else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    sshd.port = silent.local_addr().unwrap().port();
    let launcher = User::of(&sshd).openssh(&sshd.script(ECHO));
    let config = sshd.path("ssh_config").display().to_string();
    let launch = tokio::spawn(async move { launcher.launch(&node()).await });
    let is_connecting = || sshd.session_processes(&config).len() == 1 && silent.accept().is_ok();
    silent.set_nonblocking(true).unwrap();
    until("ssh connects", is_connecting).await;
    launch.abort();
    until("ssh is gone", || sshd.session_processes(&config).is_empty()).await;
}

#[tokio::test]
async fn an_unresponsive_host_and_a_hanging_login_script_are_told_apart() {
    let Some(mut sshd) = Sshd::start() else { return };
    std::fs::write(sshd.home().join(".bashrc"), "exec sleep 98764\n").unwrap();
    let user = User::of(&sshd);
    let launcher = user.openssh(&sshd.script(ECHO));
    let hanging = tokio::spawn(async move { launcher.launch(&node()).await });
    until("the login script runs", || !sshd.session_processes("sleep 98764").is_empty()).await;
    let running = sshd.session_processes("sleep 98764");
    let (silent, port) = (TcpListener::bind("127.0.0.1:0").unwrap(), sshd.port);
    sshd.port = silent.local_addr().unwrap().port();
    match User::of(&sshd).openssh(&sshd.script(ECHO)).launch(&node()).await {
        Err(LaunchError::Unreachable { why }) => assert!(why.as_str().contains("did not speak SSH"), "{why}"),
        other => panic!("{other:?}"),
    }
    sshd.port = port;
    match hanging.await.unwrap() {
        Err(LaunchError::Hangs { why, .. }) => {
            assert!(why.as_str().contains("its login script did not end"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    for pid in running {
        // SAFETY: kill has no memory effects; the process is one that our own sshd started.
        #[expect(unsafe_code, reason = "the standard library sends no signals")]
        unsafe {
            libc::kill(pid as i32, libc::SIGKILL);
        }
    }
}

#[tokio::test]
async fn settings_for_the_users_own_sessions_do_not_get_in_the_way() {
    let Some(sshd) = Sshd::start() else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let extra = format!(
        " RequestTTY force\n RemoteCommand tmux attach\n StdinNull yes\n LogLevel QUIET\n LocalForward {port} 127.0.0.1:1\n \
         ExitOnForwardFailure yes\n ForwardAgent yes\n PermitLocalCommand yes\n LocalCommand touch {}\n ControlMaster auto\n \
         ControlPersist 60\n ControlPath {}",
        sshd.path("touched").display(),
        sshd.path("master-%C").display()
    );
    let user = User { extra, ..User::of(&sshd) };
    let mut stream = user.openssh(&sshd.script(ECHO)).launch(&node()).await.unwrap();
    expect(&mut stream, "hello").await;
    send_line(&stream, "a line").await;
    expect(&mut stream, "got a line").await;
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "the port is not forwarded");
    assert!(!sshd.path("touched").exists());
    let is_master = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("master-");
    assert!(!std::fs::read_dir(sshd.path("")).unwrap().flatten().any(is_master), "no connection to share");
}

#[tokio::test]
async fn a_connection_that_the_user_opened_is_used() {
    let Some(sshd) = Sshd::start() else { return };
    let path = sshd.path("master");
    let user = User { extra: format!(" ControlPath {}", path.display()), ..User::of(&sshd) };
    let config = user.config();
    let ssh = |args: &[&str]| {
        let mut command = Command::new("ssh");
        assert!(command.arg("-F").arg(&config).args(args).arg("node-1").status().unwrap().success());
    };
    ssh(&["-fNM"]);
    // From now on no login is accepted.
    std::fs::write(sshd.path("authorized_keys"), "").unwrap();
    let outcome = user.openssh(&sshd.script(ECHO)).launch(&node()).await;
    let mut stream = outcome.unwrap();
    expect(&mut stream, "hello").await;
    let end = end_of(stream).await;
    ssh(&["-q", "-O", "exit"]);
    assert_eq!((end.exit, end.stderr.as_str(), end.broken), (Some(0), "bye", None));
}
