//! Commands that concern a relay which runs: its link, a second start, the audit log.

use super::{Home, LONG, demo, started, stderr};
use nodeglass_protocol::audit::AuditRecord;
use nodeglass_protocol::frame::Form;
use std::fs;
use std::io::{BufRead, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

#[test]
fn a_running_relay_prints_its_link_again_for_its_owner_only() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/?v=") && link.contains("#k="), "{link}");
    let output = home.run(&["link"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), link);

    let dir = home.path().join("nodeglass");
    assert_eq!(dir.metadata().unwrap().mode() & 0o7777, 0o700);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    // The key file and the socket.
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|file| file.metadata().unwrap().mode() & 0o777 == 0o600), "{files:?}");

    // The key is in no place where other users, or this one's logs, would find it.
    let key = link.split_once("#k=").unwrap().1;
    let pid = relay.0.id();
    for file in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_else(|error| {
            // Nobody but root reads the environment of a process that is not dumpable.
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{file}");
            Vec::new()
        });
        assert!(!String::from_utf8_lossy(&text).contains(key), "{file}");
    }
    relay.end();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let output = home.run(&["link"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no relay of yours is running on this machine"), "{}", stderr(&output));
}

#[test]
fn each_relay_has_its_own_socket_that_no_other_user_can_impersonate() {
    use std::io::{Read, Write};
    let home = Home::new();
    let (relay, _link, mut lines) = demo(&home);
    let path = home.path().join(format!("nodeglass/{}.sock", relay.0.id()));
    let output_text: String = (0..3).fold(String::new(), |mut output_text, _| {
        lines.read_line(&mut output_text).unwrap();
        output_text
    });
    assert!(
        output_text.contains(&format!(":{} ", path.display())),
        "the tunnel command is printed: {output_text}"
    );
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("ok\n"), "{reply}");
    relay.end();
    assert!(!path.exists());
}

#[test]
fn f27_a_second_relay_finds_the_first_and_doubles_nothing() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    for same in [&["--demo", "--bind", "127.0.0.1:0"][..], &["--demo"], &["--scenario", "demo"]] {
        let second = home.run(same);
        let output_text = String::from_utf8_lossy(&second.stdout);
        assert!(second.status.success(), "{same:?}: {}", stderr(&second));
        assert!(output_text.contains(&link) && output_text.contains("ssh -L "), "{output_text}");
        let already = format!("already running (pid {}, up ", relay.0.id());
        assert!(output_text.contains(&already) && output_text.contains(" --new"), "{output_text}");
    }
    // A second relay starts on request, and both are listed afterwards, each with what it shows.
    let mut new = home.relay(&["--demo", "--new", "--bind", "127.0.0.1:0"]);
    let (another, other, _more) = started(&mut new);
    assert_ne!(link, other);
    let output = home.run(&["link"]);
    let output_text = String::from_utf8_lossy(&output.stdout);
    for (relay, link) in [(&relay, &link), (&another, &other)] {
        let (pid, address) = (format!(" pid {} ", relay.0.id()), link.split('/').nth(2).unwrap());
        let line =
            output_text.lines().find(|line| line.contains(&pid)).unwrap_or_else(|| panic!("{output_text}"));
        assert!(line.contains(address) && line.contains(" since "), "{line}");
        assert!(output_text.lines().any(|line| line.trim() == link), "{output_text}");
        let one = home.run(&["link", "--relay", &relay.0.id().to_string()]);
        assert_eq!(String::from_utf8_lossy(&one.stdout).trim(), link);
    }
    // Which of them a command is for must be said.
    for command in [&["share", "list"][..], &["token", "list"], &["link", "--tab"], &["retry"]] {
        let output = home.run(command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(stderr(&output).contains("choose one with --relay PID"), "{}", stderr(&output));
        let pid = another.0.id().to_string();
        let named = home.run(&[command, &["--relay", &pid]].concat());
        assert!(named.status.success(), "{command:?}: {}", stderr(&named));
    }
    for relay in [relay, another] {
        relay.end();
    }
}

#[test]
fn a_relay_that_shuts_down_is_waited_for_instead_of_found() {
    let home = Home::new();
    let (mut relay, link, mut lines) = demo(&home);
    // A client that does not answer is waited for at the end.
    let address = link.split('/').nth(2).unwrap();
    let mut held = std::net::TcpStream::connect(address).unwrap();
    let upgrade = format!(
        "GET /live HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: {}\r\n\r\n",
        Form::Binary.subprotocol()
    );
    held.write_all(upgrade.as_bytes()).unwrap();
    let mut head = [0; 12];
    held.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let pid = rustix::process::Pid::from_child(&relay.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut line = String::new();
    while !line.contains("stopping the probes") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the relay ended without a notice");
    }
    let (next, other, _lines) = demo(&home);
    assert_ne!(link, other);
    assert!(relay.0.wait().unwrap().success());
    drop(held);
    next.end();
}

#[test]
fn a_start_that_requests_something_else_than_the_running_relay_is_refused() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    for (args, difference) in [
        (&[][..], "your SLURM jobs"),
        (&["--local"], "this machine"),
        (&["--demo", "--read-only"], "--read-only  false"),
        (&["--demo", "--bind", "127.0.0.1:1"], "--bind  127.0.0.1:0"),
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        let text = stderr(&output);
        assert!(output.stdout.is_empty() && !text.contains(&link), "the link is withheld: {text}");
        assert!(text.contains(difference), "{args:?}: {text}");
        assert!(text.contains(&format!("`kill {}`", relay.0.id())) && text.contains("--new"), "{text}");
    }
    // A setting in the file requests it, too.
    home.configure("user = \"nobody\"\n");
    assert!(stderr(&home.run(&[])).contains("nobody's SLURM jobs"));
    assert!(home.run(&["--demo"]).status.success());
    relay.end();
}

#[test]
fn a_link_for_one_tab_is_made_by_the_running_relay_and_differs_each_time() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    let tab = || String::from_utf8(home.run(&["link", "--tab"]).stdout).unwrap();
    let (one, other) = (tab(), tab());
    let address = link.split('#').next().unwrap();
    assert!(one.starts_with(&format!("{address}#t=")) && one.lines().count() == 1, "{one}");
    assert!(one != other && !one.contains(link.split_once("#k=").unwrap().1));
    relay.end();
    assert!(stderr(&home.run(&["link", "--tab"])).contains("no relay of yours is running"));
}

/// Sends a request to the relay behind a link, with a bearer.
fn request(link: &str, bearer: &str) -> String {
    let (address, _) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "GET /api/v1/picture HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn a_view_that_a_killed_relay_left_open_has_an_unknown_end() {
    let home = Home::new();
    let start = || started(&mut home.relay(&["--local", "--probe", "/bin/true", "--bind", "127.0.0.1:0"]));
    let audit = |format: &str| {
        let output = home.run(&["audit", "--days", "1", "--format", format]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(audit("text"), "no views and no actions in this time\n");
    let (relay, link, _lines) = start();
    let created = String::from_utf8(home.run(&["share", "create", "--everything"]).stdout).unwrap();
    let ticket =
        created.split_once("#s=").and_then(|(_, rest)| rest.split_whitespace().next()).expect(&created);
    assert!(request(&link, ticket).starts_with("HTTP/1.1 200"));
    // It is written at once, while the view goes on.
    let began = Instant::now();
    while !audit("csv").contains(",open,,") {
        assert!(began.elapsed() < LONG, "{}", audit("csv"));
    }
    relay.kill();
    assert!(audit("csv").contains(",unknown,"), "{}", audit("csv"));
    let (relay, ..) = start();
    let began = Instant::now();
    while !audit("csv").contains(",unknown,") {
        assert!(began.elapsed() < LONG, "{}", audit("csv"));
    }
    assert!(audit("text").contains("at least"), "{}", audit("text"));
    let records: Vec<AuditRecord> = serde_json::from_str(&audit("json")).unwrap();
    assert!(matches!(&records[..], [AuditRecord::View(_), AuditRecord::Action(_)]), "{records:?}");
    relay.end();
}
