//! Output that a cluster of 22.05 with slurmdbd printed, and output that no SLURM should print.

use super::*;
use proptest::prelude::*;

const RECORDED: &[u8] = include_bytes!("../../tests/22.05/sacct.out");

fn delimiter() -> Delimiter {
    Delimiter::of(0x0123_4567_89ab)
}

/// What a line of fields says.
fn read_lines(lines: &[&[&str]]) -> BTreeMap<JobId, Vec<Entry>> {
    let mark = delimiter().field();
    let out: String = lines.iter().map(|fields| fields.join(&mark) + "\n").collect();
    read(out.as_bytes(), &delimiter())
}

#[test]
fn jobs_of_a_real_cluster_have_exit_code_signal_and_memory() {
    let recorded = String::from_utf8_lossy(RECORDED).replace('\u{1f}', &delimiter().field());
    let entries = read(recorded.as_bytes(), &delimiter());
    let short = |id: u32| {
        let found = entries[&JobId(id)][0].accounting.clone().unwrap();
        (found.state.to_string(), found.exit_code, found.signal, found.max_rss_bytes.map(|bytes| bytes >> 10))
    };
    assert_eq!(short(1), ("COMPLETED".into(), 0, None, Some(10_600)));
    assert_eq!(short(2), ("FAILED".into(), 3, None, None));
    assert_eq!(short(3), ("FAILED".into(), 0, Some(9), None));
    assert_eq!(short(4), ("COMPLETED".into(), 0, None, Some(214_564)));
    // The step of srun used more than the batch script.
    assert_eq!(short(8), ("CANCELLED by 2001".into(), 0, None, Some(110_448)));
    let first = &entries[&JobId(1)][0];
    let accounting = first.accounting.as_ref().unwrap();
    assert_eq!((first.start_s, accounting.ended_s), (Some(1_795_572_056), 1_795_572_058));
    assert_eq!(
        (accounting.elapsed_s, accounting.step_exit_code, &accounting.reason),
        (Some(2), Some(0), &None)
    );
    assert_eq!(entries.len(), 8);
}

#[test]
fn a_record_that_is_not_complete_states_nothing_yet() {
    let running = ["5", "RUNNING", "0:0", "0:0", "", "1795572056", "Unknown", "10", "None"];
    let without_end = ["6", "COMPLETED", "0:0", "0:0", "", "1795572056", "Unknown", "10", "None"];
    let entries = read_lines(&[&running, &without_end]);
    for id in [5, 6] {
        assert_eq!(entries[&JobId(id)], [Entry { start_s: Some(1_795_572_056), accounting: None }]);
    }
}

#[test]
fn a_reason_may_hold_anything_and_may_be_missing() {
    let fields = ["7", "NODE_FAIL", "1:0", "2:0", "1.5G", "10", "20", "10"];
    let reason = format!("Xid 79{}<b>", delimiter().field());
    let with = [&fields[..], &[&reason]].concat();
    let accounting = read_lines(&[&with])[&JobId(7)][0].accounting.clone().unwrap();
    assert_eq!(accounting.reason, Some(Text::new(&reason)));
    assert_eq!((accounting.max_rss_bytes, accounting.step_exit_code), (Some(3 << 29), Some(2)));
    let accounting = read_lines(&[&fields])[&JobId(7)][0].accounting.clone().unwrap();
    assert_eq!(accounting.reason, None);
    assert!(lacks_reason("sacct failed: Invalid field requested: \"Reason\""));
    assert!(!lacks_reason("sacct failed: Slurm accounting storage is disabled"));
}

#[test]
fn what_is_no_record_is_left_out() {
    let good = ["7", "COMPLETED", "0:0", "0:0", "", "10", "20", "10", "None"];
    let entries = read_lines(&[
        &["x", "COMPLETED", "0:0", "0:0", "", "10", "20", "10", "None"],
        &["7.batch", "COMPLETED"],
        &["CLUSTER: lab"],
        &[""],
        &good,
        // A step of a job that was not asked for.
        &["9.0", "COMPLETED", "0:0", "", "5K", "10", "20", "10", ""],
    ]);
    assert_eq!(entries.keys().copied().collect::<Vec<_>>(), [JobId(7)]);
}

#[test]
fn sizes_without_a_meaning_are_unknown() {
    for (text, bytes) in
        [("0", None), ("16K", Some(16 << 10)), ("1.5M", Some(3 << 19)), ("2G", Some(2 << 30))]
    {
        assert_eq!(size(text), bytes, "{text}");
    }
    for text in ["", "K", "-1K", "NaN", "infK", "9999999P", "1é"] {
        assert_eq!(size(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn t18_no_output_makes_the_parser_panic(out in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&out, &delimiter());
    }

    #[test]
    fn t18_no_fields_make_the_parser_panic(fields in proptest::collection::vec("[0-9:.KMGTPé]{0,6}", 1..12)) {
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        read_lines(&[&fields]);
    }
}
