//! The SSH library is the bundled one, with no known vulnerability.

use super::config::{ECHO, User, node};
use super::sshd::Sshd;
use nodeglass_launch::Launcher;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::time::Duration;

/// The first libssh2 with the fixes of 2026 (CVE-2026-55200 and related ones).
const AT_LEAST: [u32; 3] = [1, 11, 2];

#[tokio::test]
async fn t30_the_ssh_library_at_work_has_the_fixes_that_we_rely_on() {
    let Some(mut sshd) = Sshd::start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    sshd.port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).unwrap();
        line
    });
    // It must fail, because the server does not respond. The test is about the client's identification
    // string.
    assert!(User::of(&sshd).launcher(&sshd.script(ECHO)).launch(&node()).await.is_err());
    let identification = server.join().unwrap();
    let version = identification
        .trim_end()
        .strip_prefix("SSH-2.0-libssh2_")
        .unwrap_or_else(|| panic!("{identification:?}"));
    assert!(numbers(version) >= AT_LEAST, "libssh2 {version} is too old");
    // The distribution's library would be a shared object.
    assert!(
        !shared_objects().contains("libssh2"),
        "the system's libssh2 is in use: unset LIBSSH2_SYS_USE_PKG_CONFIG"
    );
}

#[test]
fn t30_an_older_ssh_library_would_be_noticed() {
    assert!(numbers("1.11.1_DEV") < AT_LEAST);
    assert!(numbers("1.9.0") < AT_LEAST);
    assert!(
        numbers("1.11.2") >= AT_LEAST && numbers("1.12.0") >= AT_LEAST && numbers("2.0.0_DEV") >= AT_LEAST
    );
    // OpenSSL comes from the system, which shows that the search finds shared objects.
    assert!(shared_objects().contains("libc.so"));
}

fn numbers(version: &str) -> [u32; 3] {
    let digits = version.split('_').next().unwrap_or_default();
    let mut parts = digits.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

fn shared_objects() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap()
}
