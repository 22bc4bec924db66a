//! Comparing keys takes the same time wherever they differ, counted in instructions instead of clock time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may end where it fails")]

use nodeglass_protocol::handshake::{Exchange, Key, LEN, Nonce};
use std::hint::black_box;
use std::io::Write as _;
use std::process::Command;

/// Often enough that one more byte to compare would be noticeable.
const TIMES: usize = 20_000;
/// Names the byte in which the keys differ.
const BYTE: &str = "NODEGLASS_BYTE";

fn key_that_differs_in(byte: usize) -> Key {
    let mut bytes = [7; LEN];
    bytes[byte] ^= 0x80;
    Key::new(bytes)
}

#[test]
#[ignore = "it is run by other tests, under valgrind"]
fn keys_are_compared_many_times() {
    let byte = std::env::var(BYTE).unwrap().parse().unwrap();
    let (key, other) = (Key::new([7; LEN]), key_that_differs_in(byte));
    assert!(!(0..TIMES).any(|_| black_box(&key) == black_box(&other)));
    let exchange = Exchange { client: Nonce([1; LEN]), server: Nonce([2; LEN]), authority: "127.0.0.1:8080" };
    assert!(exchange.accepts_client(&key.verifier(), &exchange.client_code(&other)).is_none());
}

/// The instructions of a run in which the keys differ in this byte.
fn instructions(byte: usize) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "keys_are_compared_many_times", "--test-threads=1"])
        .env(BYTE, byte.to_string())
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output_text}\n{}", String::from_utf8_lossy(&output.stdout));
    let count = output_text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.unwrap_or_else(|| panic!("valgrind counted nothing: {output_text}"))
}

#[test]
fn t12_comparing_keys_takes_the_same_time_wherever_they_differ() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        let strict = std::env::var("CI").is_ok_and(|value| value == "true");
        let _ = writeln!(std::io::stderr(), "SKIPPED t12: valgrind is not installed");
        assert!(!strict, "valgrind is not installed; with CI=true that is a failure");
        return;
    }
    let [first, last] = [0, LEN - 1].map(instructions);
    // A comparison that returned early would save at least one instruction per byte, in each repetition.
    let saved = (TIMES * (LEN - 1)) as u64;
    assert!(first > saved, "the comparisons were not counted: {first}");
    assert!(first.abs_diff(last) < saved / 2, "{first} instructions, or {last} where the last byte differs");
}
