//! Tests of the comparison over synthetic jobs.

use super::*;

/// GPUs of a node.
const PER_NODE: usize = 8;
/// The newest step.
const NOW: usize = STEPS - 1;

/// Value of a reading of a GPU in a step.
type Value<'a> = &'a dyn Fn(usize, usize, usize) -> f32;

fn rows(count: usize, steps: Range<usize>, value: Value<'_>) -> Vec<Vec<Means>> {
    let step = |gpu, step| std::array::from_fn(|slot| value(gpu, slot, step));
    (0..count).map(|gpu| steps.clone().map(|at| step(gpu, at)).collect()).collect()
}

fn group(count: usize, value: Value<'_>) -> Group {
    Group::new(rows(count, 0..STEPS, value))
}

fn found(group: &Group) -> Vec<Slow> {
    let nodes: Vec<usize> = (0..group.rows.len()).map(|gpu| gpu / PER_NODE).collect();
    let mut slow = group.slow(&nodes, &SlowLimits::default()).unwrap_or_default();
    slow.sort_by_key(|slow| slow.member);
    slow
}

fn slow_members(group: &Group) -> Vec<usize> {
    found(group).iter().map(|slow| slow.member).collect()
}

fn shown(group: &Group, gpu: usize, step: usize) -> Option<i32> {
    match group.in_step(gpu, step) {
        StepDeviation::Value(away) => Some(away.percent),
        _ => None,
    }
}

/// A GPU that trains, with noise that differs by GPU and step.
fn training(gpu: usize, slot: usize, step: usize) -> f32 {
    let noise = ((gpu * 7 + step * 13) % 11) as f32 / 5.0 - 1.0;
    match slot {
        CLOCK => 1_700.0 + 60.0 * noise,
        POWER => 660.0 + 10.0 * noise,
        SM_ACTIVE => 82.0 + 2.0 * noise,
        UTIL => 98.0 + noise,
        _ => 70e9,
    }
}

/// A GPU that waits in a collective, as the others do while rank 0 writes a checkpoint.
fn waiting(slot: usize) -> f32 {
    [1_980.0, 150.0, 99.0, 100.0, 70e9][slot]
}

/// A GPU whose clock is lowered for heat.
fn hot(slot: usize) -> f32 {
    [1_095.0, 385.0, 80.0, 90.0, 70e9][slot]
}

#[test]
fn a_slow_card_is_slow_by_its_clock_since_it_became_so() {
    let group = group(64, &|gpu, slot, step| match gpu {
        35 if step >= NOW - 10 => hot(slot),
        _ => training(gpu, slot, step),
    });
    let found = found(&group);
    let [slow] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((slow.member, slow.field, slow.since), (35, GpuField::SmClock, Some((NOW - 10, false))));
    assert!((slow.away.percent + 35.6).abs() < 2.0, "{slow:?}");
    assert_eq!(group.deviations()[35].map(|away| away.field), Some(GpuField::SmClock));
    assert!(group.deviations()[34].is_some_and(|away| away.percent.abs() <= 5));
}

#[test]
fn a_short_dip_is_shown_but_is_not_slowness() {
    let group = group(8, &|gpu, slot, step| match (gpu, slot) {
        (2, UTIL) if step == NOW - 1 => 5.0,
        _ => training(gpu, slot, step),
    });
    assert!(found(&group).is_empty());
    assert!(
        shown(&group, 2, NOW - 1).is_some_and(|percent| percent < -60),
        "{:?}",
        group.in_step(2, NOW - 1)
    );
    assert!(shown(&group, 2, NOW - 4).is_some_and(|percent| percent.abs() < 10));
}

#[test]
fn rank_0_is_not_slow_while_it_writes_a_checkpoint_however_long() {
    for length in [2, 6, 12] {
        let group = group(8, &|gpu, slot, step| match (step > NOW - length, gpu, slot) {
            (false, ..) => training(gpu, slot, step),
            (true, 0, UTIL | SM_ACTIVE) => 3.0,
            (true, ..) => waiting(slot),
        });
        assert!(found(&group).is_empty(), "{length}");
        let is_calm = |step| shown(&group, 0, step).is_none_or(|percent| percent.abs() < 10);
        assert!((0..STEPS).all(is_calm), "{length}");
    }
}

#[test]
fn without_power_activity_is_not_shown_as_a_deviation() {
    let group = group(8, &|gpu, slot, step| match (slot, gpu) {
        (POWER, _) => f32::NAN,
        (UTIL | SM_ACTIVE, 0) if step > NOW - 5 => 3.0,
        (CLOCK, 5) => 1_095.0,
        _ => training(gpu, slot, step),
    });
    assert_eq!(slow_members(&group), [5]);
    assert!(shown(&group, 0, NOW).is_some_and(|percent| percent.abs() < 10));
}

#[test]
fn if_more_than_an_eighth_is_slow_the_program_has_unequal_parts() {
    let with_slow_nodes = |nodes: usize| {
        let value = |gpu, slot, step| if gpu / 8 < nodes { hot(slot) } else { training(gpu, slot, step) };
        slow_members(&group(64, &value)).len()
    };
    assert_eq!([with_slow_nodes(1), with_slow_nodes(2)], [8, 0]);
    for count in [4, 8, 64] {
        let group = group(count, &|gpu, slot, step| {
            let value = training(gpu, slot, step);
            if gpu < count / 2 && slot == POWER { value * 0.7 } else { value }
        });
        assert!(found(&group).is_empty(), "{count}");
        assert!(group.deviations().iter().flatten().all(|away| away.percent.abs() <= 8), "{count}");
    }
}

#[test]
fn a_stage_on_one_node_of_eight_is_not_slow_but_a_slow_node_and_a_slow_stage_are() {
    let with_first_node = |memory: f32, activity: f32, clock: f32| {
        let value = move |gpu, slot, step| {
            let factor = match slot {
                _ if gpu >= 8 => 1.0,
                MEMORY => memory,
                SM_ACTIVE => activity,
                CLOCK => clock,
                _ => 1.0,
            };
            training(gpu, slot, step) * factor
        };
        slow_members(&group(64, &value)).len()
    };
    assert_eq!(with_first_node(1.4, 0.6, 1.0), 0, "another part of the model");
    assert_eq!(with_first_node(1.0, 0.6, 1.0), 8, "the same work, less active");
    assert_eq!(with_first_node(1.4, 0.6, 0.6), 8, "no work lowers the clock");
}

#[test]
fn servers_with_loads_of_their_own_are_not_slow() {
    let group = group(4, &|gpu, slot, _| {
        let load = [0.4, 0.6, 0.7, 0.9][gpu];
        match slot {
            UTIL | SM_ACTIVE => 100.0 * load,
            POWER => 120.0 + 500.0 * load,
            CLOCK => 1_980.0,
            _ => 70e9,
        }
    });
    assert!(found(&group).is_empty(), "{:?}", found(&group));
}

#[test]
fn an_idle_job_is_not_compared() {
    let group = group(8, &|gpu, slot, _| match slot {
        CLOCK => [345.0, 1_980.0][usize::from(gpu == 3)],
        POWER => [70.0, 120.0][usize::from(gpu == 3)],
        _ => 0.0,
    });
    assert_eq!((group.deviations().iter().flatten().count(), group.has_worked()), (0, false));
    assert_eq!(group.in_step(3, NOW), StepDeviation::NotCompared);
    assert_eq!(group.slow(&[0; 8], &SlowLimits::default()), None);
}

#[test]
fn a_gpu_that_does_nothing_deviates_but_is_not_slow() {
    let group = group(8, &|gpu, slot, step| match (gpu, slot) {
        (6, UTIL | SM_ACTIVE) => 0.0,
        (6, POWER) => 120.0,
        (6, CLOCK) => 345.0,
        _ => training(gpu, slot, step),
    });
    assert!(found(&group).is_empty());
    assert!(group.deviations()[6].is_some_and(|away| away.percent < -70), "{:?}", group.deviations()[6]);
}

#[test]
fn missing_readings_are_no_deviation() {
    let silent = group(8, &|_, _, _| f32::NAN);
    assert_eq!((silent.deviations(), silent.in_step(0, NOW)), (vec![None; 8], StepDeviation::NotCompared));
    let group = group(8, &|gpu, slot, step| match (gpu, slot) {
        // One node is silent, one card does not report its clock, one has reported for a few steps only.
        (0, _) if step > NOW - 8 => f32::NAN,
        (1, CLOCK) => f32::NAN,
        (2, _) if step < NOW - 3 => f32::NAN,
        (2, _) => hot(slot),
        _ => training(gpu, slot, step),
    });
    assert!(found(&group).is_empty());
    let deviations = group.deviations();
    assert_eq!((deviations[0], deviations[2], deviations[1].is_some()), (None, None, true));
    assert_eq!(group.in_step(0, NOW), StepDeviation::NoData);
}

#[test]
fn three_gpus_are_not_compared() {
    let value = |gpu, slot, step| if gpu == 0 { hot(slot) } else { training(gpu, slot, step) };
    assert!(found(&group(3, &value)).is_empty());
    assert_eq!(slow_members(&group(4, &value)), [0]);
}

#[test]
fn an_advanced_group_equals_a_recomputed_one() {
    let value =
        |gpu, slot, step| if gpu == 3 && step % 13 < 3 { hot(slot) } else { training(gpu, slot, step) };
    let mut advanced = group(8, &value);
    let mut end = STEPS;
    for gone in [1, 2, 20] {
        end += gone;
        // The last three steps of the cached ones are replaced as well.
        let first = STEPS - gone - 3;
        advanced.advance(gone, first, rows(8, end - STEPS + first..end, &value));
        let anew = Group::new(rows(8, end - STEPS..end, &value));
        assert_eq!((&advanced.rows, &advanced.medians), (&anew.rows, &anew.medians), "{end}");
        assert_eq!((advanced.deviations(), &advanced.spreads), (anew.deviations(), &anew.spreads), "{end}");
    }
}

#[test]
fn a_label_has_the_reading_and_a_signed_percentage() {
    let label = |percent| Deviation { field: GpuField::SmClock, percent }.label();
    assert_eq!([label(-45), label(7)], ["SM clock −45 %", "SM clock +7 %"]);
}
