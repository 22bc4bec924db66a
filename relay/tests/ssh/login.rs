//! Logging in, and being refused.

use super::config::{ECHO, User, expect, say};
use super::sshd::Sshd;

#[tokio::test]
async fn a_key_file_logs_in_and_lines_flow_both_ways() {
    let Some(sshd) = Sshd::start() else { return };
    let mut stream = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "{\"hello\":1}\n").await;
    say(&stream, "first").await;
    expect(&mut stream, "got first\n").await;
    say(&stream, "second").await;
    expect(&mut stream, "got second\n").await;
}
