//! Tiers, gaps, late samples, ages, the memory budget and what a viewer may read.

use super::*;
use nodeglass_protocol::gpu::GpuFacts;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::range::{RangeHistory, RangeQuery, Summary};
use nodeglass_protocol::{Cell, Field};

const START_MS: u64 = nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
const HOUR_MS: u64 = 3_600_000;

fn node(gpus: usize) -> NodePicture {
    let mut node = NodePicture::new(NodeName::new("n1").unwrap());
    let gpu = |number| {
        let uuid = GpuUuid::new(format!("GPU-{number}"));
        GpuPicture { facts: GpuFacts { uuid, ..GpuFacts::default() }, ..GpuPicture::default() }
    };
    node.gpus = (0..gpus).map(gpu).collect();
    node.head.interval_ms = 1_000;
    node
}

/// Sets the utilisation of every GPU and the time of the sample.
fn sample(node: &mut NodePicture, at_ms: u64, util: u32) {
    node.sampled_at_ms = Some(at_ms);
    node.gpus.iter_mut().for_each(|gpu| gpu.row.set(GpuField::Util, Cell::steps(util)));
}

fn visible(node: &NodePicture, span: Span) -> Vec<VisibleNode> {
    let gpus = node.gpus.iter().map(|gpu| (gpu.facts.uuid.clone(), span)).collect();
    vec![VisibleNode { name: node.name.clone(), gpus, host: Some(span) }]
}

fn query(from_ms: u64, to_ms: u64, step_ms: u64) -> RangeQuery {
    let gpu_fields = vec![GpuField::Util.name().into()];
    RangeQuery { topic: Topic::Overview, from_ms, to_ms, step_ms, gpu_fields, host_fields: Vec::new() }
}

fn read(history: &LongHistory, node: &NodePicture, query: &RangeQuery) -> RangeHistory {
    history.select(query, &visible(node, Span::ALL)).read()
}

/// Start of each slot and mean, minimum, maximum of the first GPU's utilisation.
fn slots(range: &RangeHistory) -> Vec<(u64, u32, u32, u32)> {
    let known = range.nodes[0].gpus[0].fields[0].since(0);
    let value = |cell: Cell| cell.value().unwrap();
    known
        .filter_map(|(slot, summary)| {
            let Summary { mean, min, max } = summary?;
            Some((slot * range.step_ms, value(mean), value(min), value(max)))
        })
        .collect()
}

/// What a query for slots of `step_ms` must return for samples of one value each.
fn expected(samples: &[(u64, u32)], step_ms: u64) -> Vec<(u64, u32, u32, u32)> {
    let by_slot = samples.chunk_by(|one, other| one.0 / step_ms == other.0 / step_ms);
    by_slot
        .map(|samples| {
            let values = samples.iter().map(|(_, value)| *value);
            let (count, sum) = (samples.len() as u32, values.clone().sum::<u32>());
            let (min, max) = (values.clone().min().unwrap(), values.max().unwrap());
            (samples[0].0 / step_ms * step_ms, (sum + count / 2) / count, min, max)
        })
        .collect()
}

#[test]
fn every_tier_keeps_mean_and_extremes_of_its_slots() {
    let (mut history, mut node) = (LongHistory::default(), node(2));
    let samples: Vec<_> =
        (0..7_200).map(|second| (START_MS + second * 1_000, (second * 7_919 % 101) as u32)).collect();
    for (at_ms, util) in &samples {
        sample(&mut node, *at_ms, *util);
        history.record(&node);
    }
    let to_ms = START_MS + 7_200_000;
    for (from_ms, step_ms) in [(START_MS + HOUR_MS, 10_000), (START_MS, 60_000), (START_MS, 600_000)] {
        let range = read(&history, &node, &query(from_ms, to_ms, step_ms));
        assert_eq!(range.step_ms, step_ms);
        let covered: Vec<_> = samples.iter().copied().filter(|(at_ms, _)| *at_ms >= from_ms).collect();
        let (found, expected) = (slots(&range), expected(&covered, step_ms));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((found.0, found.2, found.3), (expected.0, expected.2, expected.3));
            assert!(found.1.abs_diff(expected.1) <= 1, "{found:?} {expected:?}");
        }
    }
    let range = read(&history, &node, &query(START_MS, to_ms, 10_000));
    assert_eq!(range.step_ms, 20_000, "a response has at most 600 slots");
    assert_eq!(range.begins_ms, Some(START_MS));
}

#[test]
fn downtime_is_a_gap_and_slow_sampling_is_not() {
    let (mut history, mut node) = (LongHistory::default(), node(1));
    node.head.interval_ms = 10_000;
    // The first in a slot's last moment, the second early in the next but one.
    for at_ms in [9_900, 20_100, 30_000, 900_000, 910_000] {
        sample(&mut node, START_MS + at_ms, 50);
        history.record(&node);
    }
    let range = read(&history, &node, &query(START_MS, START_MS + HOUR_MS, 10_000));
    let starts: Vec<_> = slots(&range).iter().map(|slot| (slot.0 - START_MS) / 1_000).collect();
    assert_eq!(starts, [0, 10, 20, 30, 900, 910]);
}

#[test]
fn samples_that_arrive_late_are_entered_as_if_they_had_not() {
    let (mut late, mut in_order, mut node) = (LongHistory::default(), LongHistory::default(), node(1));
    let lost = 1_900..2_300;
    let mut missed = Vec::new();
    for second in 0..4_000 {
        sample(&mut node, START_MS + second * 1_000, (second % 90) as u32);
        in_order.record(&node);
        if lost.contains(&second) {
            missed.push(HistorySample {
                at_ms: START_MS + second * 1_000,
                hold_ms: 2_500,
                gpus: Box::new([nodeglass_protocol::picture::History::of_gpu(&node.gpus[0].row)]),
                host: nodeglass_protocol::picture::History::of_host(&node.host),
            });
        } else {
            late.record(&node);
        }
        if second == 2_310 {
            late.backfill(&node, &missed);
        }
    }
    for step_ms in [10_000, 60_000, 600_000] {
        let query = query(START_MS + 1_000_000, START_MS + 4_000_000, step_ms);
        let (late, in_order) = (slots(&read(&late, &node, &query)), slots(&read(&in_order, &node, &query)));
        assert_eq!(late.len(), in_order.len());
        // A slot in which the outage begins or ends keeps the samples that were in time.
        let differing = late.iter().zip(&in_order).filter(|(late, in_order)| late != in_order).count();
        assert!(differing <= 2, "{differing} of {} slots of {step_ms} ms", late.len());
    }
}

#[test]
fn a_late_sample_counts_once_in_every_tier() {
    let (mut history, mut node) = (LongHistory::default(), node(1));
    let at = |second: u64| START_MS + second * 1_000;
    sample(&mut node, at(2), 90);
    let late = HistorySample {
        at_ms: at(2),
        hold_ms: 2_500,
        gpus: Box::new([nodeglass_protocol::picture::History::of_gpu(&node.gpus[0].row)]),
        host: nodeglass_protocol::picture::History::of_host(&node.host),
    };
    for second in [0, 4] {
        sample(&mut node, at(second), 0);
        history.record(&node);
    }
    history.backfill(&node, &[late]);
    sample(&mut node, at(1_200), 50);
    history.record(&node);
    for step_ms in [10_000, 60_000, 600_000] {
        let range = read(&history, &node, &query(START_MS, at(60), step_ms));
        assert_eq!(slots(&range)[0], (START_MS, 30, 0, 90), "{step_ms}");
    }
}

#[test]
fn a_new_relay_has_what_the_probes_kept() {
    let (mut history, mut node) = (LongHistory::default(), node(1));
    let kept: Vec<_> = (0..600)
        .map(|second| {
            sample(&mut node, START_MS - 600_000 + second * 1_000, 40);
            HistorySample {
                at_ms: node.sampled_at_ms.unwrap(),
                hold_ms: 2_500,
                gpus: Box::new([nodeglass_protocol::picture::History::of_gpu(&node.gpus[0].row)]),
                host: nodeglass_protocol::picture::History::of_host(&node.host),
            }
        })
        .collect();
    sample(&mut node, START_MS, 40);
    history.record(&node);
    history.backfill(&node, &kept);
    for (step_ms, count) in [(10_000, 61), (60_000, 11), (600_000, 2)] {
        let range = read(&history, &node, &query(START_MS - HOUR_MS, START_MS + 10_000, step_ms));
        assert_eq!((range.step_ms, slots(&range).len()), (step_ms, count));
        assert_eq!(range.begins_ms, Some(START_MS - 600_000));
    }
}

#[test]
fn a_week_is_kept_and_not_more() {
    let (mut history, mut node) = (LongHistory::default(), node(1));
    let days = 9;
    for step in 0..days * 24 * 360 {
        let at_ms = START_MS + step * 10_000;
        sample(&mut node, at_ms, (step % 100) as u32);
        history.record(&node);
        history.tick(at_ms);
    }
    let to_ms = START_MS + days * 24 * HOUR_MS;
    let week_ms = 7 * 24 * HOUR_MS;
    let range = read(&history, &node, &query(0, to_ms, 600_000));
    let begins_ms = range.begins_ms.unwrap();
    assert!((to_ms - week_ms - 21 * HOUR_MS..=to_ms - week_ms).contains(&begins_ms), "{begins_ms}");
    // A short range of days ago has the steps that are left, one of today the finest.
    let ago = |hours: u64| {
        let to_ms = to_ms - hours * HOUR_MS;
        read(&history, &node, &query(to_ms - 600_000, to_ms, 1_000)).step_ms
    };
    assert_eq!([ago(0), ago(5), ago(48), ago(160)], [10_000, 10_000, 60_000, 60_000]);
    assert!(history.len() < 2 << 20, "{}", history.len());
}

#[test]
fn fine_steps_go_first_if_memory_is_scarce_and_the_week_stays() {
    let budget = 1_300_000;
    let (mut history, mut node) = (LongHistory::new(budget), node(8));
    for step in 0..3 * 24 * 360_u64 {
        let at_ms = START_MS + step * 10_000;
        node.sampled_at_ms = Some(at_ms);
        for (number, gpu) in node.gpus.iter_mut().enumerate() {
            for (slot, field) in GpuField::HISTORY.iter().enumerate() {
                let noise = (step * 7_919 + number as u64 * 131 + slot as u64 * 17) * 2_654_435_761 % 60_000;
                gpu.row.set(*field, Cell::steps(noise as u32));
            }
        }
        history.record(&node);
        history.tick(at_ms);
    }
    let to_ms = START_MS + 3 * 24 * HOUR_MS;
    history.trim(to_ms);
    assert!(history.len() <= budget, "{}", history.len());
    let whole = read(&history, &node, &query(START_MS, to_ms, 600_000));
    assert_eq!((whole.step_ms, slots(&whole).len()), (600_000, 3 * 144));
    let before = read(&history, &node, &query(to_ms - 60 * HOUR_MS, to_ms - 59 * HOUR_MS, 10_000));
    assert_eq!(before.step_ms, 600_000, "its minutes are gone");
    let now = read(&history, &node, &query(to_ms - HOUR_MS, to_ms, 10_000));
    assert_eq!(now.step_ms, 10_000);
}

/// Samples every ten seconds; the value is the number of the sample.
fn sampled(history: &mut LongHistory, node: &mut NodePicture, numbers: std::ops::Range<u64>) {
    for number in numbers {
        sample(node, START_MS + number * 10_000, number as u32);
        history.record(node);
    }
}

/// What the next relay reads from disk after one that took the samples before `end`.
fn stored(node: &mut NodePicture, end: u64) -> LongHistory {
    let (mut before, mut restored) = (LongHistory::default(), LongHistory::default());
    before.take_excerpts(START_MS, false);
    let end_ms = START_MS + end * 10_000;
    // The last one completes the slot before it.
    for number in 0..=end {
        sampled(&mut before, node, number..number + 1);
        for excerpt in before.take_excerpts(START_MS + number * 10_000, number == end) {
            restored.restore(&excerpt, end_ms);
        }
    }
    restored.complete_restored(end_ms);
    restored
}

#[test]
fn what_is_recorded_while_the_stored_history_is_read_is_kept() {
    // The relay before it ended within a minute, and within ten minutes.
    const END: u64 = 1_003;
    let (mut whole, mut node) = (LongHistory::default(), node(2));
    sampled(&mut whole, &mut node, 0..END + 400);
    // Reading takes no time, a minute, or so long that chunks are complete.
    for read_at in [END, END + 6, END + 300] {
        let restored = stored(&mut node, END);
        let mut history = LongHistory::default();
        history.take_excerpts(START_MS + END * 10_000, false);
        sampled(&mut history, &mut node, END..read_at);
        let read_at_ms = START_MS + read_at * 10_000;
        let mut excerpts = history.take_excerpts(read_at_ms, true);
        history.merge_restored(restored, read_at_ms);
        sampled(&mut history, &mut node, read_at..END + 400);
        let to_ms = START_MS + (END + 400) * 10_000;
        for step_ms in [10_000, 60_000] {
            let query = query(to_ms - 590 * step_ms.min(20_000), to_ms, step_ms);
            let (read, expected) = (read(&history, &node, &query), read(&whole, &node, &query));
            let (read, expected) = (slots(&read), slots(&expected));
            assert_eq!(read.len(), expected.len(), "{read_at} {step_ms}");
            let restart_ms = (START_MS + END * 10_000) / step_ms * step_ms;
            for (slot, expected) in read.iter().zip(&expected) {
                // Of the slot in which the relay was restarted, the mean is not exact.
                let is_restart = slot.0 == restart_ms;
                assert_eq!((slot.0, slot.2, slot.3), (expected.0, expected.2, expected.3), "{read_at}");
                assert!(is_restart || slot.1 == expected.1, "{slot:?} {expected:?}");
            }
        }
        let query = query(to_ms - 7 * 24 * HOUR_MS, to_ms, 600_000);
        let [coarse, known] = [&history, &whole].map(|history| slots(&read(history, &node, &query)));
        let extremes = |slots: &[(u64, u32, u32, u32)]| -> Vec<_> {
            slots.iter().map(|slot| (slot.0, slot.2, slot.3)).collect()
        };
        assert_eq!(extremes(&coarse), extremes(&known), "no extreme is lost");
        // What was read is not stored again, what was recorded is stored once.
        excerpts.extend(history.take_excerpts(to_ms, true));
        let fine = excerpts.iter().filter(|excerpt| excerpt.step_ms == 10_000);
        let fine: Vec<_> = fine.flat_map(|excerpt| excerpt.slots.clone()).collect();
        let first = START_MS / 10_000 + END;
        assert_eq!(fine, (first..first + 400).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_read_does_not_exceed_the_memory_and_does_not_replace_gpus_that_are_sampled() {
    let mut node = node(MAX_GPUS);
    let restored = stored(&mut node, 2_000);
    let budget = restored.len() / 2;
    let mut history = LongHistory::new(budget);
    node.gpus.iter_mut().for_each(|gpu| gpu.facts.uuid = GpuUuid::new(format!("new {}", gpu.facts.uuid)));
    sampled(&mut history, &mut node, 2_000..2_010);
    let now_ms = START_MS + 2_010 * 10_000;
    history.merge_restored(restored, now_ms);
    assert!(history.len() <= budget, "{} of {budget}", history.len());
    let range = read(&history, &node, &query(START_MS, now_ms, 10_000));
    assert!(range.nodes[0].gpus.iter().all(|gpu| !gpu.fields[0].is_empty()));
}

#[test]
fn a_viewer_reads_only_the_time_that_is_visible() {
    let (mut history, mut node) = (LongHistory::default(), node(1));
    for second in 0..3_600 {
        sample(&mut node, START_MS + second * 1_000, 10);
        history.record(&node);
    }
    let span = Span { from_ms: START_MS + 605_000, to_ms: START_MS + 1_205_000 };
    for step_ms in [10_000, 60_000, 600_000] {
        let query = query(START_MS, START_MS + HOUR_MS, step_ms);
        let range = history.select(&query, &visible(&node, span)).read();
        let slots = slots(&range);
        assert!(slots.iter().all(|slot| slot.0 >= START_MS + 600_000), "{slots:?}");
        // The last slot, which ends after the span, may hold what the viewer may not see.
        assert!(slots.iter().all(|slot| slot.0 < START_MS + 1_200_000), "{slots:?}");
        assert!(range.begins_ms >= Some(span.from_ms));
    }
    let hidden = Span { from_ms: u64::MAX, to_ms: 0 };
    let range = history.select(&query(0, u64::MAX, 1), &visible(&node, hidden)).read();
    assert!(range.nodes[0].gpus[0].fields[0].is_empty());
}

#[test]
fn odd_queries_and_endless_gpus_are_bounded() {
    let (mut history, mut node) = (LongHistory::default(), node(1));
    for round in 0..1_000 {
        node.gpus[0].facts.uuid = GpuUuid::new(format!("GPU-{round}"));
        sample(&mut node, START_MS + round * 10_000, 1);
        history.record(&node);
    }
    assert!(history.nodes[&node.name].gpus.len() <= MAX_GPUS);
    for (from_ms, to_ms, step_ms) in [(0, u64::MAX, 0), (u64::MAX, 0, u64::MAX), (5, 5, 1)] {
        let mut query = query(from_ms, to_ms, step_ms);
        query.gpu_fields.extend(["no_such_field".into(), GpuField::MemTotal.name().into()]);
        query.gpu_fields.resize(5_000, "util_pct".into());
        let range = read(&history, &node, &query);
        assert!(range.nodes[0].gpus[0].fields.len() <= 32);
    }
    let nobody = [VisibleNode { name: NodeName::new("n9").unwrap(), gpus: Vec::new(), host: None }];
    assert_eq!(history.select(&query(0, 9, 9), &nobody).read().begins_ms, None);
}
