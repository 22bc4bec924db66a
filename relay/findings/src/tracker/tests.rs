//! When what detectors see is listed, kept and resolved.

use super::*;

/// A kind that must last 20 s.
const KIND: FindingKind = FindingKind::Thermal;

fn now(relay_ms: u64) -> Now {
    Now { relay_ms, wall_ahead_ms: 1_000_000 }
}

fn seen() -> Detections {
    let title = "n1 GPU 0 is too hot".to_owned();
    let detection = Detection::new(KIND, "17/A".to_owned(), title);
    Detections { seen: vec![detection], ..Detections::default() }
}

fn missing() -> Detections {
    let mut detections = Detections::default();
    detections.unknown(&[KIND], "17");
    detections
}

#[test]
fn it_is_listed_once_it_lasted_and_resolved_once_it_is_over() {
    let mut tracker = Tracker::default();
    tracker.update(seen(), &Thresholds::default(), now(0));
    assert!(tracker.list().is_empty());
    tracker.update(seen(), &Thresholds::default(), now(KIND.confirm_ms()));
    let listed = tracker.list();
    assert_eq!((listed.len(), listed[0].since_ms), (1, 1_000_000));
    assert_eq!(listed[0].found_ms, 1_000_000 + KIND.confirm_ms());
    tracker.update(
        Detections::default(),
        &Thresholds::default(),
        now(KIND.confirm_ms() + KIND.clear_ms() - 1),
    );
    assert!(tracker.list()[0].is_active(), "hysteresis");
    tracker.update(Detections::default(), &Thresholds::default(), now(KIND.confirm_ms() + KIND.clear_ms()));
    assert_eq!(tracker.list()[0].ended_ms, Some(1_000_000 + KIND.confirm_ms()));
    tracker.update(
        Detections::default(),
        &Thresholds::default(),
        now(KIND.confirm_ms() + KIND.clear_ms() + RESOLVED_MS),
    );
    assert!(tracker.list().is_empty());
}

#[test]
fn what_returns_states_so_and_is_resolved_until_it_is_confirmed_again() {
    let mut tracker = Tracker::default();
    let mut at = |detections: Detections, at_ms| {
        tracker.update(detections, &Thresholds::default(), now(at_ms));
        tracker.list()
    };
    at(seen(), 0);
    at(seen(), KIND.confirm_ms());
    at(Detections::default(), KIND.confirm_ms() + KIND.clear_ms());
    // It returns for a moment.
    let returned_ms = KIND.confirm_ms() + 900_000;
    let ended_ms = Some(1_000_000 + KIND.confirm_ms());
    assert_eq!(at(seen(), returned_ms)[0].ended_ms, ended_ms);
    assert_eq!(at(Detections::default(), returned_ms + 60_000)[0].ended_ms, ended_ms);
    // It returns for good.
    let returned_ms = returned_ms + 120_000;
    at(seen(), returned_ms);
    let list = at(seen(), returned_ms + KIND.confirm_ms());
    assert!(list.len() == 1 && list[0].is_active(), "{list:?}");
    assert_eq!(list[0].since_ms, 1_000_000 + returned_ms);
    assert_eq!(list[0].evidence.last().map(|line| line.as_str()), Some("recurred after 17 min"));
    let list = at(seen(), returned_ms + 2 * KIND.confirm_ms());
    assert!(list[0].evidence.len() == 1, "{list:?}");
}

#[test]
fn what_recurs_states_what_it_had_cost_before() {
    let mut tracker = Tracker::default();
    let wasteful = || {
        let mut detections = seen();
        detections.seen[0].wasted_gpus = 16;
        detections
    };
    let mut at = |detections: Detections, at_ms| {
        tracker.update(detections, &Thresholds::default(), now(at_ms));
        tracker.list()
    };
    at(wasteful(), 0);
    at(wasteful(), 900_000);
    at(Detections::default(), 900_000 + KIND.clear_ms());
    at(wasteful(), 1_800_000);
    let list = at(wasteful(), 1_800_000 + KIND.confirm_ms());
    // 16 GPUs for a quarter of an hour, and the minute until it was certain to be over.
    let recurred = list[0].evidence.last().map(|line| line.as_str());
    assert_eq!(recurred, Some("recurred after 15 min, 4.3 GPU-h idle before"));
    // Again after a quarter of an hour and a pause.
    at(wasteful(), 2_700_000);
    at(Detections::default(), 2_700_000 + KIND.clear_ms());
    at(wasteful(), 3_600_000);
    let list = at(wasteful(), 3_600_000 + KIND.confirm_ms());
    let recurred = list[0].evidence.last().map(|line| line.as_str());
    assert_eq!(recurred, Some("recurred after 15 min, 8.5 GPU-h idle the 2 times before"));
}

#[test]
fn what_recurs_with_readings_from_before_its_end_states_no_pause() {
    let mut tracker = Tracker::default();
    let mut at = |detections: Detections, at_ms| {
        tracker.update(detections, &Thresholds::default(), now(at_ms));
        tracker.list()
    };
    at(seen(), 0);
    at(seen(), KIND.confirm_ms());
    let returned_ms = KIND.confirm_ms() + KIND.clear_ms();
    at(Detections::default(), returned_ms);
    let again = || {
        let mut detections = seen();
        detections.seen[0].since = Some((KIND.confirm_ms() / 2, false));
        detections
    };
    at(again(), returned_ms + 1_000);
    let list = at(again(), returned_ms + 1_000 + KIND.confirm_ms());
    assert_eq!(list[0].evidence.last().map(|line| line.as_str()), Some("recurred"));
}

#[test]
fn what_comes_and_goes_is_not_confirmed() {
    let mut tracker = Tracker::default();
    for step in 0..100 {
        let now = now(10_000 * step);
        let detections = if step % 4 == 0 { seen() } else { Detections::default() };
        tracker.update(detections, &Thresholds::default(), now);
        assert!(tracker.list().is_empty(), "it must last for {} ms", KIND.confirm_ms());
    }
}

#[test]
fn what_an_earlier_relay_found_is_new_if_it_returns_much_later() {
    let mut tracker = Tracker::default();
    tracker.update(seen(), &Thresholds::default(), now(0));
    tracker.update(seen(), &Thresholds::default(), now(KIND.confirm_ms()));
    let mut next = Tracker::default();
    next.restore(tracker.list().iter());
    for step in 0..60 {
        next.update(Detections::default(), &Thresholds::default(), now(3_600_000 + 10_000 * step));
    }
    let again_ms = 9_000_000;
    next.update(seen(), &Thresholds::default(), now(again_ms));
    next.update(seen(), &Thresholds::default(), now(again_ms + KIND.confirm_ms()));
    assert_eq!(next.list()[0].since_ms, 1_000_000 + again_ms);
}

#[test]
fn what_an_earlier_relay_found_is_kept_until_its_node_is_read() {
    let node: NodeName = "n1".parse().unwrap();
    let of_node = || {
        let mut detections = seen();
        detections.seen[0].nodes = vec![node.clone()];
        detections
    };
    let mut tracker = Tracker::default();
    tracker.update(of_node(), &Thresholds::default(), now(0));
    tracker.update(of_node(), &Thresholds::default(), now(60_000));
    let found_ms = tracker.list()[0].found_ms;
    let after = |read: BTreeSet<NodeName>| {
        let mut next = Tracker::default();
        next.restore(tracker.list().iter());
        for step in 0..60 {
            let detections = Detections { read: read.clone(), ..Detections::default() };
            next.update(detections, &Thresholds::default(), now(3_600_000 + 10_000 * step));
        }
        next.update(of_node(), &Thresholds::default(), now(4_200_000));
        next.update(of_node(), &Thresholds::default(), now(4_260_000));
        next.list()[0].found_ms
    };
    assert_eq!(after(BTreeSet::new()), found_ms, "the node was not read");
    assert!(after(BTreeSet::from([node.clone()])) > found_ms, "it was read without the finding");
}

#[test]
fn a_finding_ends_with_the_run_of_its_job() {
    let of_job = || {
        let mut detections = seen();
        detections.seen[0].jobs = vec![JobId(17)];
        detections
    };
    let mut tracker = Tracker::default();
    tracker.update(of_job(), &Thresholds::default(), now(0));
    tracker.update(of_job(), &Thresholds::default(), now(KIND.confirm_ms()));
    let at = |step| now(KIND.confirm_ms() + step);
    tracker.update(Detections::default(), &Thresholds::default(), at(2_000));
    assert!(tracker.list()[0].is_active());
    let mut waits = Detections { not_running: BTreeSet::from([JobId(17)]), ..missing() };
    waits.has_jobs = true;
    tracker.update(waits, &Thresholds::default(), at(4_000));
    assert!(!tracker.list()[0].is_active());
}

#[test]
fn missing_readings_neither_confirm_nor_resolve() {
    let mut tracker = Tracker::default();
    tracker.update(seen(), &Thresholds::default(), now(0));
    tracker.update(missing(), &Thresholds::default(), now(60_000));
    tracker.update(seen(), &Thresholds::default(), now(60_000 + KIND.confirm_ms() - 1));
    assert!(tracker.list().is_empty(), "the time without readings does not count");
    tracker.update(seen(), &Thresholds::default(), now(60_000 + KIND.confirm_ms()));
    tracker.update(missing(), &Thresholds::default(), now(900_000));
    assert!(tracker.list()[0].is_active());
}

#[test]
fn what_an_earlier_relay_found_keeps_its_start_until_it_ends() {
    let mut tracker = Tracker::default();
    tracker.update(seen(), &Thresholds::default(), now(0));
    tracker.update(seen(), &Thresholds::default(), now(KIND.confirm_ms()));
    let known = tracker.list();
    let mut next = Tracker::default();
    next.restore(known.iter());
    let start_ms = 3_600_000;
    next.update(seen(), &Thresholds::default(), now(start_ms));
    next.update(seen(), &Thresholds::default(), now(start_ms + KIND.confirm_ms()));
    assert_eq!((next.list()[0].since_ms, next.list()[0].found_ms), (known[0].since_ms, known[0].found_ms));
    next.update(
        Detections::default(),
        &Thresholds::default(),
        now(start_ms + KIND.confirm_ms() + KIND.clear_ms()),
    );
    let again_ms = 2 * start_ms;
    next.update(seen(), &Thresholds::default(), now(again_ms));
    next.update(seen(), &Thresholds::default(), now(again_ms + KIND.confirm_ms()));
    assert_eq!(next.list()[0].since_ms, 1_000_000 + again_ms);
}

#[test]
fn a_start_that_was_watched_stays_known_while_the_time_of_day_moves() {
    let mut tracker = Tracker::default();
    let seen_since = |since| {
        let mut detections = seen();
        detections.seen[0].since = Some(since);
        detections
    };
    tracker.update(seen_since((100_000, false)), &Thresholds::default(), now(120_000));
    // The readings no longer show what was before it, and the clock was set back by a moment.
    let moved = Now { relay_ms: 160_000, wall_ahead_ms: 999_998 };
    tracker.update(seen_since((100_000, true)), &Thresholds::default(), moved);
    assert_eq!((tracker.list()[0].since_ms, tracker.list()[0].or_earlier), (1_100_000, false));
    // Late samples show that it began minutes before.
    tracker.update(seen_since((40_000, true)), &Thresholds::default(), now(170_000));
    assert_eq!((tracker.list()[0].since_ms, tracker.list()[0].or_earlier), (1_040_000, true));
}

#[test]
fn a_cost_counts_each_gpu_for_its_time_and_never_falls() {
    const MINUTE_MS: u64 = 60_000;
    let wasted = |gpus| {
        let mut detections = seen();
        detections.seen[0].wasted_gpus = gpus;
        detections
    };
    let gpu_minutes = |tracker: &Tracker, at_ms| {
        (tracker.list()[0].wasted_gpu_hours(now(at_ms).wall_ms()) * 600.0).round() / 10.0
    };
    let mut tracker = Tracker::default();
    for at in 0..=10 {
        tracker.update(wasted(8), &Thresholds::default(), now(at * MINUTE_MS));
    }
    tracker.update(wasted(2), &Thresholds::default(), now(10 * MINUTE_MS));
    assert_eq!(gpu_minutes(&tracker, 20 * MINUTE_MS), 80.0 + 20.0);
    // Another relay continues where it was.
    let known = tracker.list();
    let mut next = Tracker::default();
    next.restore(known.iter());
    next.update(wasted(3), &Thresholds::default(), now(20 * MINUTE_MS));
    next.update(wasted(3), &Thresholds::default(), now(20 * MINUTE_MS + KIND.confirm_ms()));
    assert_eq!(gpu_minutes(&next, 30 * MINUTE_MS), 100.0 + 30.0);
    // It is not seen for a moment, which costs nothing.
    let mut at = |detections, at_ms| next.update(detections, &Thresholds::default(), now(at_ms));
    let (absent_ms, again_ms) = (30 * MINUTE_MS + 10_000, 30 * MINUTE_MS + 20_000);
    at(wasted(3), 30 * MINUTE_MS);
    at(Detections::default(), absent_ms);
    at(wasted(3), again_ms);
    assert_eq!(gpu_minutes(&next, again_ms), 130.5);
    assert_eq!(gpu_minutes(&next, again_ms + 10 * MINUTE_MS), 160.5);
    // Its end does not lower what was stated before.
    let last_ms = again_ms + 10 * MINUTE_MS;
    let mut at = |detections, at_ms| next.update(detections, &Thresholds::default(), now(at_ms));
    at(wasted(3), last_ms);
    at(Detections::default(), last_ms + 10_000);
    at(Detections::default(), last_ms + KIND.clear_ms());
    assert!(!next.list()[0].is_active());
    assert_eq!(gpu_minutes(&next, last_ms + 60 * MINUTE_MS), 161.0);
}

#[test]
fn an_event_that_is_repeated_has_its_latest_time() {
    let mut tracker = Tracker::default();
    for at_ms in [10_000, 900_000] {
        let mut detections = seen();
        (detections.seen[0].kind, detections.seen[0].since) = (FindingKind::Xid, Some((at_ms, false)));
        tracker.update(detections, &Thresholds::default(), now(at_ms));
    }
    assert_eq!(tracker.list()[0].since_ms, 1_900_000);
}

#[test]
fn the_number_of_findings_is_bounded_and_the_worst_stay() {
    let mut tracker = Tracker::default();
    let detections = |severity, range: std::ops::Range<usize>| {
        let of = |number| Detection { severity, ..Detection::new(KIND, format!("{number}"), String::new()) };
        Detections { seen: range.map(of).collect(), ..Detections::default() }
    };
    tracker.update(detections(FindingSeverity::Warning, 0..2 * MAX_FINDINGS), &Thresholds::default(), now(0));
    tracker.update(detections(FindingSeverity::Error, 5_000..5_001), &Thresholds::default(), now(0));
    assert_eq!(tracker.tracks.len(), MAX_FINDINGS);
    assert!(tracker.tracks.contains_key(&format!("{}/5000", KIND.name())));
}
