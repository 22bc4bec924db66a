//! Hangs, and what resembles them.

use super::*;
use crate::job_log::JobLog;

#[test]
fn a_hang_is_found_within_its_time_and_resolved_when_work_goes_on() {
    let mut script = Script::new(2, 8);
    script.run(600, |_, _| WORK).run(110, |_, _| WAIT);
    assert!(script.active().is_empty(), "a checkpoint may look the same");
    script.run(40, |_, _| WAIT);
    assert_eq!(script.active(), [FindingKind::CollectiveHang]);
    let hang = script.only();
    assert_eq!((hang.severity, hang.wasted_gpus), (FindingSeverity::Error, 16));
    let began_ms = (START_MS + 600_000).saturating_add_signed(WALL_AHEAD_MS);
    assert!(hang.since_ms.abs_diff(began_ms) <= 10_000, "{}", hang.since_ms);
    script.run(60, |_, _| WORK);
    assert!(script.active().is_empty());
    assert!(script.only().ended_ms.is_some());
}

#[test]
fn a_hang_states_since_when_its_log_is_silent_and_not_since_when_a_relay_runs() {
    let evidence = |written_ms| {
        let log = JobLog { is_read: true, since_ms: START_MS + 480_000, written_ms, ..JobLog::default() };
        let mut script = Script::new(1, 2);
        script.findings.set_logs([(JobId(17), log)].into());
        script.run(600, |_, _| WORK).run(150, |_, _| WAIT);
        let hang = script.only();
        hang.evidence.last().map(|line| line.to_string()).unwrap_or_default()
    };
    assert_eq!(evidence(Some(START_MS - 6_600_000)), "no log output for 2 h 2 min");
    let unknown = evidence(None);
    assert!(unknown.starts_with("no log output since the relay began to read it 4 min"), "{unknown}");
}

#[test]
fn a_hang_of_most_ranks_names_the_one_that_does_nothing() {
    let mut script = Script::new(1, 8);
    let stuck = |gpu: usize, _| if gpu == 3 { IDLE } else { WAIT };
    script.run(600, |_, _| WORK).run(290, stuck);
    assert!(script.active().is_empty(), "rank 0 may save for minutes");
    script.run(40, stuck);
    assert_eq!(script.active(), [FindingKind::CollectiveHang]);
    let hang = script.only();
    assert_eq!(hang.title.as_str(), "Looks hung: 7 of 8 GPUs wait at full utilisation for n1 GPU 3");
    assert_eq!(hang.wasted_gpus, 8);
    script.run(900, stuck);
    assert_eq!(script.active(), [FindingKind::CollectiveHang], "it is not an unused GPU");
}

#[test]
fn a_gpu_that_the_program_left_unused_before_is_not_waited_for() {
    let mut script = Script::new(1, 2);
    script.run(300, |_, _| WORK).run(400, |gpu, _| if gpu == 0 { WORK } else { IDLE });
    script.run(1_200, |gpu, _| if gpu == 0 { WAIT } else { IDLE });
    assert!(!script.active().contains(&FindingKind::CollectiveHang), "{:?}", script.active());
}

#[test]
fn small_kernels_at_full_utilisation_are_no_hang() {
    let mut script = Script::new(1, 2);
    script.run(1_200, |_, _| WAIT);
    assert!(!script.active().contains(&FindingKind::CollectiveHang), "{:?}", script.active());
}

#[test]
fn a_program_that_writes_does_not_hang() {
    let mut script = Script::new(1, 2);
    let mut scanner = LogScanner::new(LogPatterns::new(&[]).into(), START_MS);
    script.run(300, |_, _| WORK);
    for minute in 0..20 {
        let line = LongText::line(&format!("episode {minute} return 3.1"));
        scanner.read(&[line], None, LogChunk::New, read_at(script.now_ms));
        let logs = [(JobId(17), scanner.state(script.now_ms))].into();
        script.findings.set_logs(logs);
        script.run(60, |_, _| WAIT);
        assert!(!script.active().contains(&FindingKind::CollectiveHang), "minute {minute}");
    }
    script.run(600, |_, _| WAIT);
    assert!(script.active().contains(&FindingKind::CollectiveHang), "it no longer writes");
}

#[test]
fn one_rank_that_computes_is_no_hang() {
    let mut script = Script::new(1, 8);
    script.run(600, |_, _| WORK).run(600, |gpu, _| if gpu == 3 { WORK } else { WAIT });
    assert!(!script.active().contains(&FindingKind::CollectiveHang));
}

#[test]
fn progress_in_the_log_contradicts_a_hang() {
    let hung = |line: &dyn Fn(u64) -> Option<String>| {
        let mut script = Script::new(1, 8);
        let mut scanner = LogScanner::new(LogPatterns::new(&[]).into(), START_MS);
        for step in 1..=60 {
            script.run(10, |_, _| if step <= 30 { WORK } else { WAIT });
            let lines: Vec<LongText> = line(step).iter().map(|line| LongText::line(line)).collect();
            scanner.read(&lines, None, LogChunk::New, read_at(script.now_ms));
            script.findings.set_logs([(JobId(17), scanner.state(script.now_ms))].into());
        }
        script
    };
    let progress = |step| format!("step {step}/1000");
    assert_eq!(hung(&|step| (step <= 30).then(|| progress(step))).active(), [FindingKind::CollectiveHang]);
    assert!(!hung(&|step| Some(progress(step))).active().contains(&FindingKind::CollectiveHang));
}
