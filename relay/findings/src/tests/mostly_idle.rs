//! GPUs that work now and then, by scripted readings.

use super::*;

/// A cell of a notebook that runs for `seconds` of each four minutes.
fn cells(seconds: u64) -> impl Fn(usize, u64) -> Option<(u64, u64, u64, f64)> {
    move |_, second| if second % 240 < seconds { WORK } else { IDLE }
}

fn kinds(script: &Script) -> Vec<FindingKind> {
    script.findings.list().iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_notebook_is_found_after_an_hour_and_costs_what_it_does_not_use() {
    let mut script = Script::new(1, 2);
    script.run(3_500, cells(12));
    assert_eq!(kinds(&script), []);
    script.run(220, cells(12));
    assert_eq!(script.active(), [FindingKind::MostlyIdle]);
    let (started_ms, now_ms) = (wall_s(START_MS) as u64 * 1_000, wall_s(script.now_ms) as u64 * 1_000);
    let found = script.only();
    assert_eq!(found.title.as_str(), "Both GPUs are mostly idle");
    assert!(found.since_ms.abs_diff(started_ms) <= 120_000 && !found.or_earlier, "{found:?}");
    let evidence = &found.evidence[0];
    assert!(
        evidence.as_str().starts_with("utilisation 4.") && evidence.as_str().ends_with(" over 1 h"),
        "{evidence}"
    );
    // A twentieth of the time is used.
    let cost = |script: &Script, now_ms| script.only().wasted_gpu_hours(now_ms);
    let expected = |since_ms: u64, now_ms: u64| 2.0 * 0.951 * (now_ms - since_ms) as f64 / 3_600_000.0;
    let (since_ms, first) = (found.since_ms, cost(&script, now_ms));
    assert!((first - expected(since_ms, now_ms)).abs() < 0.02, "{first} {}", expected(since_ms, now_ms));
    // It never falls, and keeps that rate.
    let mut last = first;
    for _ in 0..240 {
        script.run(15, cells(12));
        let now = cost(&script, wall_s(script.now_ms) as u64 * 1_000);
        assert!(now >= last, "{now} {last}");
        last = now;
    }
    let now_ms = wall_s(script.now_ms) as u64 * 1_000;
    assert!((last - expected(since_ms, now_ms)).abs() < 0.04, "{last} {}", expected(since_ms, now_ms));
    assert_eq!(script.only().since_ms, since_ms, "its start stays");
}

#[test]
fn hours_are_charged_to_one_finding_whichever_came_first() {
    // Idle, with one cell: the hour after that.
    let mut script = Script::new(1, 1);
    let read = |_: usize, second: u64| if (3_100..3_110).contains(&second) { WORK } else { IDLE };
    script.run(3_050, read);
    assert_eq!(script.active(), [FindingKind::UnusedGpus]);
    script.run(620, read);
    assert_eq!(script.active(), [FindingKind::MostlyIdle]);
    let list = script.findings.list();
    let unused = list.iter().find(|finding| finding.kind == FindingKind::UnusedGpus).unwrap();
    let mostly = &list[0];
    assert!(mostly.since_ms >= unused.ended_ms.unwrap(), "{list:#?}");
    let now_ms = wall_s(script.now_ms) as u64 * 1_000;
    let all: f64 = list.iter().map(|finding| finding.wasted_gpu_hours(now_ms)).sum();
    let run = (script.now_ms - START_MS) as f64 / 3_600_000.0;
    assert!((all - run).abs() < 0.01, "{all} of {run}");

    // Once it is listed, a longer pause is a part of it.
    script.run(1_800, read);
    assert_eq!(script.active(), [FindingKind::MostlyIdle], "{:#?}", script.findings.list());
}

#[test]
fn evaluations_and_checkpoints_leave_enough_work_and_work_that_begins_ends_it() {
    // Eight of ten minutes on the CPUs, and an evaluation of 50 minutes that uses the GPU for one second in eight.
    let mut evaluating = Script::new(1, 2);
    evaluating.run(7_200, |_, second| if second % 600 < 120 { WORK } else { IDLE });
    assert_eq!(kinds(&evaluating), []);
    let mut long = Script::new(1, 2);
    long.run(600, |_, _| WORK).run(3_000, |_, second| if second % 8 == 0 { WORK } else { IDLE });
    long.run(600, |_, _| WORK);
    assert_eq!(kinds(&long), []);

    let mut working = Script::new(1, 2);
    working.run(3_720, cells(8));
    assert_eq!(working.active(), [FindingKind::MostlyIdle]);
    let cost = |script: &Script| script.only().wasted_gpu_hours(wall_s(script.now_ms) as u64 * 1_000);
    working.run(120, |_, _| WORK);
    let stopped = cost(&working);
    working.run(480, |_, _| WORK);
    assert_eq!(cost(&working), stopped, "work costs nothing");
    working.run(300, |_, _| WORK);
    assert_eq!(working.active(), []);
}

#[test]
fn an_hour_of_another_job_or_of_a_suspended_one_is_not_evidence() {
    let mut script = Script::new(1, 2);
    script.run(3_000, cells(8));
    script.jobs[0].id = JobId(18);
    script.jobs[0].start = Some(wall_s(script.now_ms));
    for gpu in &mut script.nodes[0].gpus {
        gpu.owners[0].job = JobId(18);
    }
    script.run(3_000, cells(8));
    assert_eq!(kinds(&script), []);
    script.jobs[0].state = JobState::Suspended;
    script.run(2_400, |_, _| IDLE);
    script.jobs[0].state = JobState::Running;
    script.run(600, cells(120));
    assert_eq!(kinds(&script), [], "it was suspended");
}

/// Cells of 40 s of each four minutes on all of four GPUs but one.
fn all_but(unused: impl Fn(u64) -> usize) -> impl Fn(usize, u64) -> Option<(u64, u64, u64, f64)> {
    move |gpu, second| if gpu != unused(second) && second % 240 < 40 { WORK } else { IDLE }
}

#[test]
fn a_gpu_that_is_never_used_is_named_after_an_hour_although_the_others_work_seldom() {
    let mut script = Script::new(1, 4);
    script.run(3_500, all_but(|_| 3));
    assert_eq!(kinds(&script), [], "an hour has not passed");
    script.run(220, all_but(|_| 3));
    assert_eq!(script.active(), [FindingKind::UnusedGpus]);
    let found = script.only();
    assert_eq!(found.title.as_str(), "1 of 4 GPUs is not used while others are: n1 GPU 3");
    let started_ms = wall_s(START_MS).unsigned_abs() * 1_000;
    assert!(found.since_ms.abs_diff(started_ms) <= 60_000 && !found.or_earlier, "{found:?}");
    assert_eq!(found.wasted_gpus, 1);
    // A cell that uses it ends that.
    script.run(1_200, all_but(|_| 4));
    assert_eq!(script.active(), []);
}

#[test]
fn gpus_that_a_job_uses_in_turn_are_all_used() {
    let mut script = Script::new(1, 4);
    script.run(10_800, all_but(|second| (second / 1_800 % 4) as usize));
    assert_eq!(kinds(&script), [], "{:#?}", script.findings.list());
}

#[test]
fn a_gpu_that_a_small_program_never_uses_is_named_after_half_an_hour() {
    const LITTLE: Option<(u64, u64, u64, f64)> = Some((12, 160, 1_980, 4.0));
    let mut script = Script::new(1, 2);
    let read = |gpu: usize, _: u64| if gpu == 0 { LITTLE } else { IDLE };
    script.run(1_700, read);
    assert_eq!(kinds(&script), [], "it may begin to use it");
    script.run(220, read);
    assert_eq!(script.active(), [FindingKind::UnusedGpus]);
    assert_eq!(script.only().title.as_str(), "1 of 2 GPUs is idle while the other works: n1 GPU 1");

    // What did use both is in use, and a notebook may need either.
    let mut both = Script::new(1, 2);
    both.run(300, |_, _| WORK).run(3_000, read);
    assert_eq!(kinds(&both), []);
    let mut notebook = Script::new(1, 2);
    notebook.run(3_500, |gpu, second| if gpu == 0 && second % 240 < 40 { WORK } else { IDLE });
    assert_eq!(kinds(&notebook), []);
    notebook.run(220, |gpu, second| if gpu == 0 && second % 240 < 40 { WORK } else { IDLE });
    assert_eq!(notebook.active(), [FindingKind::MostlyIdle]);
    let evidence: Vec<_> = notebook.only().evidence.iter().map(|line| line.as_str()).collect();
    assert!(evidence.contains(&"not used at all: n1 GPU 1"), "{evidence:?}");
}
