//! Every target passes with mutations of its stored inputs: what stable Rust can do of fuzzing, in each run of the
//! tests. `cargo xtask fuzz` is guided by coverage, and finds more.

use nodeglass_fuzz::names::NAMES;
use nodeglass_fuzz::{NEEDLE, inputs, target};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestError, TestRunner};

/// Mutated inputs of each target in a run.
const CASES: u32 = 2_000;
/// Maximum mutations of one input.
const MANY: usize = 8;
/// Maximum length of a spliced or repeated piece, in bytes.
const PIECE: usize = 64;

/// Bytes that mean something to a decoder of text, numbers or lengths.
const TOKENS: [&[u8]; 20] = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\x1b[",
    b"\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x01",
    b"-1",
    b"18446744073709551616",
    b"9e999",
    b"NaN",
    b"null",
    b"[",
    b"{\"",
    b"]",
    b"[0-4294967295]",
    b"|",
    b"=",
    b"%s",
    b"..",
    b"\xf0\x9f\x92\xa5",
];

/// A change of an input.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Insert(Index, &'static [u8]),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    Truncate(Index),
    /// The end of another input takes the place of the end of this one.
    Splice(Index, Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), 1..=255_u8).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        3 => (at(), select(&TOKENS[..])).prop_map(|(at, token)| Mutation::Insert(at, token)),
        2 => (at(), 1..=PIECE).prop_map(|(at, length)| Mutation::Remove(at, length)),
        1 => (at(), 1..=PIECE, 1..=64_usize).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
        1 => at().prop_map(Mutation::Truncate),
        2 => (at(), at(), at()).prop_map(|(other, cut, from)| Mutation::Splice(other, cut, from)),
    ]
}

fn apply(mutation: &Mutation, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
    let place = |at: &Index, length: usize| at.index(length + 1);
    let length = bytes.len();
    match mutation {
        Mutation::Flip(at, bits) => {
            if let Some(byte) = bytes.get_mut(place(at, length)) {
                *byte ^= bits;
            }
        }
        Mutation::Insert(at, token) => {
            let at = place(at, length);
            drop(bytes.splice(at..at, token.iter().copied()));
        }
        Mutation::Remove(at, count) => {
            let at = place(at, length);
            drop(bytes.drain(at..(at + count).min(length)));
        }
        Mutation::Repeat(at, count, times) => {
            let at = place(at, length);
            let piece = bytes[at..(at + count).min(length)].repeat(*times);
            drop(bytes.splice(at..at, piece));
        }
        Mutation::Truncate(at) => bytes.truncate(place(at, length)),
        Mutation::Splice(other, cut, from) => {
            let other = other.get(inputs);
            bytes.truncate(place(cut, length));
            bytes.extend_from_slice(&other[place(from, other.len())..]);
        }
    }
}

/// Feeds mutated inputs to a target; returns the shortest that it found to break it.
fn fuzz(name: &str, inputs: &[Vec<u8>], cases: u32) -> Result<(), String> {
    let target = target(name).expect("a target");
    let strategy =
        (any::<Index>(), proptest::collection::vec(mutation(), 1..=MANY)).prop_map(|(start, changes)| {
            let mut bytes = start.get(inputs).clone();
            changes.iter().for_each(|change| apply(change, &mut bytes, inputs));
            bytes
        });
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let result = runner.run(&strategy, |bytes| {
        target(&bytes);
        Ok(())
    });
    result.map_err(|error| match error {
        TestError::Fail(why, bytes) => {
            format!(
                "{name}: {why}\nkeep it in tests/fuzz/corpus/{name}/: {:?}",
                bytes.escape_ascii().to_string()
            )
        }
        TestError::Abort(why) => format!("{name}: {why}"),
    })
}

fn survives(name: &str) {
    let broken = fuzz(name, &inputs(name), CASES).err();
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

macro_rules! targets {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { survives($name); })*
        const TESTED: &[&str] = &[$($name),*];
    };
}

targets! {
    page_to_relay_survives_mutations: "page-to-relay",
    relay_to_page_survives_mutations: "relay-to-page",
    relay_to_page_for_long_survives_mutations: "relay-to-page-for-long",
    probe_to_relay_survives_mutations: "probe-to-relay",
    squeue_survives_mutations: "squeue",
    scontrol_survives_mutations: "scontrol",
    slurm_words_survives_mutations: "slurm-words",
    known_hosts_survives_mutations: "known-hosts",
    ssh_config_survives_mutations: "ssh-config",
    http_survives_mutations: "http",
    log_survives_mutations: "log",
    names_survives_mutations: "names",
    recording_survives_mutations: "recording",
    history_segment_survives_mutations: "history-segment",
    job_record_survives_mutations: "job-record",
    database_survives_mutations: "database",
}

#[test]
fn every_target_is_fed_with_mutations() {
    assert!(NAMES.iter().map(|(name, _)| name).eq(TESTED));
}

/// Without guidance the needle is found from close by only, but a run that finds nothing there would find nothing at
/// all.
#[test]
fn an_input_that_breaks_a_target_is_found_and_printed() {
    let close = [b"neexle".to_vec(), b"xxxdle".to_vec()];
    let why = fuzz(NEEDLE, &close, 20_000).unwrap_err();
    assert!(why.contains("the needle was found") && why.contains("needle"), "{why}");
}
