//! Addresses and folders that a relay does not use, and why.

use super::{Home, Running, demo, stderr};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn a_port_in_use_is_reported_with_two_remedies() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = Home::new().run(&["--demo", "--bind", &addr]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&format!("{addr} is already in use")), "{text}");
    assert!(text.contains("`relay link`") && text.contains("--bind 127.0.0.1:"), "{text}");
}

#[test]
fn an_unused_certificate_is_an_error() {
    let home = Home::new();
    let output = home.run(&["--demo", "--tls-cert", "a.pem", "--tls-key", "b.pem", "--bind", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--tls-cert and --tls-key would not be used"), "{}", stderr(&output));
}

#[test]
fn a_socket_in_a_folder_of_others_is_refused() {
    let home = Home::new();
    let folder = home.path().join("project");
    fs::create_dir(&folder).unwrap();
    for (mode, way) in [(0o777, "can be written to by others (mode 0777)"), (0o1777, "(mode 1777)")] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let bind = format!("unix:{}/relay.sock", folder.display());
        let output = home.run(&["--demo", "--bind", &bind]);
        assert_eq!(output.status.code(), Some(1), "{mode:o}");
        let text = stderr(&output);
        assert!(text.contains(way) && text.contains("choose a folder that only you can write to"), "{text}");
        assert!(!folder.join("relay.sock").exists());
    }
}

#[test]
fn localhost_reaches_the_relay_over_ipv6_or_the_owner_is_warned() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    let port: u16 = link.split([':', '/', '#']).find_map(|part| part.parse().ok()).unwrap();
    let Ok(mut stream) = std::net::TcpStream::connect(("::1", port)) else {
        assert!(std::net::TcpListener::bind("[::1]:0").is_err(), "[::1]:{port} is left to others");
        return;
    };
    use std::io::{Read, Write};
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("ok\n"), "{reply}");
    relay.end();
    // Somebody else is there first.
    let taken = std::net::TcpListener::bind("[::1]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut command = home.relay(&["--demo", "--bind", &format!("127.0.0.1:{port}")]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output_text = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut output_text).unwrap();
    Running(child).end();
    assert!(output_text.contains(&format!("another program listens on [::1]:{port}")), "{output_text}");
}

#[test]
fn a_runtime_directory_that_is_a_link_stops_the_relay() {
    let (home, elsewhere) = (Home::new(), Home::new());
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join("nodeglass")).unwrap();
    let output = home.run(&["--demo", "--bind", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is not a directory"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
