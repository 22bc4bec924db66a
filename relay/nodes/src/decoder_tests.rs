//! The decoder is fed noise, halves, bombs and anything at all.

use super::*;
use nodeglass_protocol::probe::{
    Heartbeat, Piece, ProcessFacts, ProcessKind, ProcessList, ProcessSample, Sample,
};
use nodeglass_protocol::{GpuUuid, Reading};
use proptest::prelude::*;

const HEARTBEAT: &str = r#"{"heartbeat":{"mono_ns":7}}"#;

fn beat() -> Found {
    Found::Line(Box::new(ProbeLine::Heartbeat(Heartbeat { mono_ns: 7, driver_stuck_ms: None })))
}

fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<Found>, DecodeError> {
    let mut found = Vec::new();
    decoder.feed(bytes, 0, &mut found).map(|()| found)
}

fn started() -> Decoder {
    let mut decoder = Decoder::default();
    assert_eq!(decode(&mut decoder, format!("{MAGIC}{HEARTBEAT}\n").as_bytes()), Ok(vec![beat()]));
    decoder
}

#[test]
fn every_kind_of_line_is_known() {
    let unknown = serde_json::from_str::<ParsedLine>(r#"{"x":{}}"#).unwrap_err().to_string();
    let kinds = KNOWN_KINDS.map(|kind| format!("`{kind}`")).join(", ");
    assert!(unknown.contains(&format!("expected one of {kinds} at")), "{unknown}");
}

#[test]
fn f07_output_of_a_login_shell_is_skipped_and_reported_once() {
    let mut decoder = Decoder::default();
    let bytes = format!("Welcome to \x1b[1mgpu-01\x1b[0m!\nQuota: 97%\n{MAGIC}{HEARTBEAT}\n{HEARTBEAT}\n");
    let noise = Found::Noise(Text::new("Welcome to \x1b[1mgpu-01\x1b[0m!\nQuota: 97%\n"));
    assert_eq!(decode(&mut decoder, bytes.as_bytes()), Ok(vec![noise, beat(), beat()]));
    assert_eq!(decoder.noise(), None);
}

#[test]
fn f07_endless_noise_ends_the_link_with_a_sample() {
    let mut decoder = Decoder::default();
    let outcome = decode(&mut decoder, &b"motd ".repeat(MAX_NOISE / 4));
    assert!(outcome.unwrap_err().to_string().contains("motd motd"));
}

#[test]
fn f05_broken_lines_are_counted_and_the_others_are_read() {
    let mut decoder = started();
    let found =
        decode(&mut decoder, b"{\"sample\":NaN}\n{\"heartbeat\":{\"mono_ns\":7}}\n\xff\xfe\n").unwrap();
    assert_eq!(found[0], Found::Lost { lines: 1, sample: "{\"sample\":NaN}".into() });
    assert_eq!(found[1], beat());
    assert!(matches!(found[2], Found::Lost { lines: 2, .. }));
}

#[test]
fn f05_ten_bad_lines_within_a_minute_end_the_link_but_not_ten_in_an_hour() {
    let mut decoder = started();
    let mut found = Vec::new();
    for minute in 0..60 {
        decoder.feed(b"rubbish\n", minute * 60_000, &mut found).unwrap();
    }
    let mut outcome = Ok(());
    for _ in 0..MAX_BAD {
        outcome = outcome.and(decoder.feed(b"rubbish\n", 3_600_000, &mut found));
    }
    assert_eq!(outcome, Err(DecodeError::Garbage("rubbish".into())));
}

#[test]
fn f06_a_line_of_ten_megabytes_costs_no_more_than_the_limit_and_is_lost_once() {
    let mut decoder = started();
    let mut found = Vec::new();
    for _ in 0..640 {
        decoder.feed(&[b'x'; 16 * 1024], 0, &mut found).unwrap();
        assert!(decoder.buffer.capacity() <= 2 * MAX_LINE);
    }
    decoder.feed(format!("\n{HEARTBEAT}\n").as_bytes(), 0, &mut found).unwrap();
    assert!(matches!(&found[..], [Found::Lost { lines: 1, .. }, line] if *line == beat()));
}

#[test]
fn f22_an_unknown_kind_of_line_is_skipped_silently() {
    assert_eq!(decode(&mut started(), b"{\"nvlink\":{\"x\":[1,2]}}\n"), Ok(vec![]));
    assert_eq!(decode(&mut started(), b"\"later\"\n").unwrap().len(), 1, "that is no line of any version");
}

#[test]
fn f22_another_version_is_reported_clearly() {
    for hello in ["\x1eNODEGLASS2 {}\n", "noise\x1eNODEGLASS17 {}\n"] {
        let error = decode(&mut Decoder::default(), hello.as_bytes()).unwrap_err();
        assert!(matches!(&error, DecodeError::Version { .. }), "{error}");
    }
    let hello =
        r#"{"hello":{"proto":{"min":3,"max":4},"build":"b","stream":1,"host":"h","boot_id":"i","kernel":"k",
        "cpus":1,"mem_total_bytes":1,"user":"u","pid":1,"sources":[{"vendor":"nvidia","status":{"absent":{"reason":"w"}}}]}}"#
            .replace('\n', "");
    let error = decode(&mut Decoder::default(), format!("{MAGIC}{hello}\n").as_bytes()).unwrap_err();
    assert!(error.to_string().contains("speaks version 3–4 and this relay version 2"), "{error}");
}

/// A list of processes of far more than a line, as a probe prints it.
fn long_list() -> (ProcessList, Vec<u8>) {
    let facts = |pid| ProcessFacts {
        args: Reading::Value("\"".repeat(200).into()),
        ..ProcessFacts::new(GpuUuid::new("GPU-1"), pid, ProcessKind::default())
    };
    let process = |pid| ProcessSample { facts: facts(pid), now: Default::default() };
    let list =
        ProcessList { mono_ns: 5, processes: (1..2_000).map(process).collect(), ..ProcessList::default() };
    let whole = serde_json::to_string(&ProbeLine::<Sample>::Processes(list.clone())).unwrap();
    let cut = whole.as_bytes().chunks(100_000);
    let parts = cut.len() as u32;
    let piece = |(part, text): (u32, &[u8])| {
        let piece = Piece { line: 1, part, parts, text: String::from_utf8(text.to_vec()).unwrap() };
        serde_json::to_string(&ProbeLine::<Sample>::Piece(piece)).unwrap() + "\n"
    };
    let pieces = (0..).zip(cut).map(piece).collect::<String>().into_bytes();
    (list, pieces)
}

#[test]
fn a_list_in_pieces_is_reassembled_and_a_missing_piece_is_counted() {
    let (list, bytes) = long_list();
    let mut found = decode(&mut started(), &bytes).unwrap();
    assert_eq!(found.pop(), Some(Found::Line(Box::new(ProbeLine::Processes(list.clone())))));
    assert!(found.len() > 2 && found.iter().all(|found| *found == Found::Piece));
    // Other lines may come between; a piece may not be missing.
    let mut decoder = started();
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let with_beats: Vec<u8> =
        lines.iter().flat_map(|line| [*line, HEARTBEAT.as_bytes(), b"\n"]).flatten().copied().collect();
    let found = decode(&mut decoder, &with_beats).unwrap();
    assert_eq!(found.iter().filter(|found| matches!(found, Found::Line(_))).count(), lines.len() + 1);
    let torn: Vec<u8> = [lines[0], lines[2]].concat();
    assert!(matches!(decode(&mut decoder, &torn).unwrap()[..], [Found::Piece, Found::Lost { .. }]));
    assert!(decode(&mut decoder, &bytes).unwrap().iter().any(|found| matches!(found, Found::Line(_))));
}

#[test]
fn f05_a_deeply_nested_bomb_is_one_lost_line() {
    let bomb = format!("{}\n", "[".repeat(200_000));
    assert!(matches!(decode(&mut started(), bomb.as_bytes()).unwrap()[..], [Found::Lost { .. }]));
}

proptest! {
    #[test]
    fn f05_any_bytes_in_any_pieces_neither_panic_nor_grow_the_buffer(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..50),
        begun in any::<bool>(),
    ) {
        let mut decoder = if begun { started() } else { Decoder::default() };
        let mut found = Vec::new();
        for piece in pieces {
            if decoder.feed(&piece, 0, &mut found).is_err() {
                break;
            }
            prop_assert!(decoder.buffer.len() <= MAX_LINE.max(MAX_NOISE));
        }
    }

    #[test]
    fn lines_do_not_depend_on_how_the_network_cut_them(cuts in prop::collection::vec(1usize..40, 1..40)) {
        let text = format!("motd\n{MAGIC}{HEARTBEAT}\nbad\n{HEARTBEAT}\r\n{{\"new\":1}}\n{HEARTBEAT}\n");
        let whole = decode(&mut Decoder::default(), text.as_bytes()).unwrap();
        let (mut decoder, mut found, mut rest) = (Decoder::default(), Vec::new(), text.as_bytes());
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            decoder.feed(piece, 0, &mut found).unwrap();
            rest = after;
            if rest.is_empty() { break; }
        }
        prop_assert_eq!(found, whole);
    }
}
