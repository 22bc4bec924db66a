//! Tests of the comparison over synthetic jobs.

use super::*;

/// Values of a metric of a GPU in a step, counted from the start of the job.
type Values<'a> = &'a dyn Fn(usize, Metric, usize) -> Option<f32>;

const STEPS: usize = 200;
/// GPUs of a node.
const PER_NODE: usize = 8;

fn advance_to(group: &mut PeerGroup, steps: usize, count: usize, values: Values<'_>) {
    let end_ms = (steps as u64 + 1) * Window::STEP_MS;
    let nodes: Vec<usize> = (0..count).map(|gpu| gpu / PER_NODE).collect();
    group.advance(Window::ten_minutes(end_ms), 0, &nodes, false, |gpu, metric, first| {
        let point = |step: usize| values(gpu, metric, step).map_or(Point::Gap, Point::Value);
        // The window ends with step `steps`.
        (first..STEPS).map(|at| point(steps + 1 + at - STEPS)).collect()
    });
}

fn group(count: usize, values: Values<'_>) -> PeerGroup {
    let mut group = PeerGroup::default();
    advance_to(&mut group, STEPS, count, values);
    group
}

fn outliers(group: &PeerGroup) -> Vec<usize> {
    (0..group.deviations.len())
        .filter(|gpu| group.deviation(*gpu).is_some_and(|deviation| deviation.outlier.is_some()))
        .collect()
}

/// A GPU that trains, with noise that differs by GPU and step.
fn training(gpu: usize, metric: Metric, step: usize) -> f32 {
    let noise = ((gpu * 7 + step * 13) % 11) as f32 / 5.0 - 1.0;
    match metric {
        Metric::CLOCK => 1_700.0 + 60.0 * noise,
        Metric::POWER => 660.0 + 10.0 * noise,
        Metric::SM_ACTIVE => 82.0 + 2.0 * noise,
        Metric::UTIL => 98.0 + noise,
        _ => 70.0,
    }
}

/// A GPU that waits in a collective, as the others do while rank 0 writes a checkpoint.
fn waiting(metric: Metric) -> f32 {
    match metric {
        Metric::CLOCK => 1_980.0,
        Metric::POWER => 150.0,
        Metric::SM_ACTIVE => 99.0,
        Metric::UTIL => 100.0,
        _ => 70.0,
    }
}

/// A GPU whose clock is lowered for heat.
fn slow(metric: Metric) -> f32 {
    match metric {
        Metric::CLOCK => 1_095.0,
        Metric::POWER => 385.0,
        Metric::UTIL => 90.0,
        _ => 70.0,
    }
}

#[test]
fn a_slow_card_is_an_outlier_whose_cause_is_its_clock() {
    let group = group(64, &|gpu, metric, step| {
        Some(if gpu == 35 && step >= 80 { slow(metric) } else { training(gpu, metric, step) })
    });
    assert_eq!(outliers(&group), [35]);
    let deviation = group.deviation(35).unwrap();
    assert_eq!((deviation.metric, deviation.percent), (Metric::CLOCK, -36));
    let outlier = deviation.outlier.clone().unwrap();
    assert!((outlier.away + 605.0).abs() < 30.0, "{outlier:?}");
    assert_eq!((outlier.lasts_ms, outlier.or_longer), (121 * Window::STEP_MS, false));
    assert!(group.deviation(34).unwrap().percent.abs() <= 5);
}

#[test]
fn a_single_dip_is_no_outlier() {
    let dip = 190..197;
    let group = group(8, &|gpu, metric, step| {
        let dips = gpu == 2 && dip.contains(&step) && metric == Metric::UTIL;
        Some(if dips { 5.0 } else { training(gpu, metric, step) })
    });
    assert!(outliers(&group).is_empty());
    // The heat map shows it, though.
    let window = Window::ten_minutes((STEPS as u64 + 1) * Window::STEP_MS);
    let points = group.points(2, &window, 0);
    assert!(points[192].value().unwrap() > 60.0 && points[180].value().unwrap() < 10.0);
}

#[test]
fn rank_0_is_no_outlier_while_it_writes_a_checkpoint_however_long() {
    for length in [6, 20, 40] {
        let group = group(8, &|gpu, metric, step| {
            Some(match (step > STEPS - length, gpu, metric) {
                (false, ..) => training(gpu, metric, step),
                (true, 0, Metric::UTIL | Metric::SM_ACTIVE) => 3.0,
                (true, ..) => waiting(metric),
            })
        });
        assert!(outliers(&group).is_empty(), "{length}");
    }
}

#[test]
fn without_power_only_clocks_are_compared_as_a_checkpoint_is_not_known() {
    let group = group(8, &|gpu, metric, step| {
        Some(match (metric, gpu) {
            (Metric::POWER, _) => return None,
            (Metric::UTIL | Metric::SM_ACTIVE, 0) if step > STEPS - 15 => 3.0,
            (Metric::CLOCK, 5) => 1_095.0,
            _ => training(gpu, metric, step),
        })
    });
    assert_eq!(outliers(&group), [5]);
    let window = Window::ten_minutes((STEPS as u64 + 1) * Window::STEP_MS);
    assert!(group.points(0, &window, 190).iter().all(|point| point.value().is_some_and(|away| away < 10.0)));
}

#[test]
fn a_rank_for_which_the_others_wait_without_end_is_an_outlier() {
    let group = group(8, &|gpu, metric, step| {
        Some(match (step > STEPS - 80, gpu, metric) {
            (false, ..) => training(gpu, metric, step),
            (true, 5, Metric::UTIL | Metric::SM_ACTIVE) => 0.0,
            (true, ..) => waiting(metric),
        })
    });
    assert_eq!(outliers(&group), [5]);
    assert_eq!(group.deviation(5).unwrap().metric, Metric::UTIL);
}

#[test]
fn two_slow_nodes_of_eight_are_outliers() {
    let group = group(64, &|gpu, metric, step| {
        let is_slow = matches!(gpu / 8, 2 | 5);
        Some(if is_slow { slow(metric) } else { training(gpu, metric, step) })
    });
    let expected: Vec<usize> = (16..24).chain(40..48).collect();
    assert_eq!(outliers(&group), expected);
    assert!(group.deviation(16).unwrap().outlier.as_ref().unwrap().or_longer);
}

#[test]
fn stages_of_a_pipeline_that_differ_in_power_have_no_outliers() {
    for count in [4, 8, 64] {
        let group = group(count, &|gpu, metric, step| {
            let value = training(gpu, metric, step);
            let is_first = gpu < count / 2;
            Some(if is_first && metric == Metric::POWER { value * 0.6 } else { value })
        });
        assert!(outliers(&group).is_empty(), "{count}");
        let window = Window::ten_minutes((STEPS as u64 + 1) * Window::STEP_MS);
        let brightest =
            group.points(0, &window, 0).iter().filter_map(|point| point.value()).fold(0.0, f32::max);
        assert!(brightest <= 8.0, "{brightest}");
    }
}

/// A job of eight nodes, the first of which has `memory` times as much in use and draws `power` times as much.
fn with_first_node(memory: f32, power: f32, clock: f32) -> PeerGroup {
    group(64, &move |gpu, metric, step| {
        let factor = match metric {
            _ if gpu >= 8 => 1.0,
            Metric::MEMORY => memory,
            Metric::POWER => power,
            Metric::CLOCK => clock,
            _ => 1.0,
        };
        Some(training(gpu, metric, step) * factor)
    })
}

#[test]
fn a_stage_on_one_node_of_eight_has_no_outliers_but_a_slow_node_and_a_slow_stage_have() {
    assert!(outliers(&with_first_node(1.4, 0.75, 1.0)).is_empty(), "another part of the model");
    assert_eq!(outliers(&with_first_node(1.0, 0.75, 1.0)).len(), 8, "the same work at less power");
    assert_eq!(outliers(&with_first_node(1.4, 0.75, 0.6)).len(), 8, "no work lowers the clock");
}

#[test]
fn servers_with_loads_of_their_own_have_no_outliers() {
    let group = group(4, &|gpu, metric, _| {
        let load = [0.3, 0.5, 0.6, 0.9][gpu];
        Some(match metric {
            Metric::UTIL | Metric::SM_ACTIVE => 100.0 * load,
            Metric::POWER => 120.0 + 500.0 * load,
            _ => 70.0,
        })
    });
    assert!(outliers(&group).is_empty());
}

#[test]
fn an_idle_job_is_not_compared() {
    let group = group(8, &|gpu, metric, _| {
        Some(match metric {
            Metric::CLOCK => [345.0, 1_980.0][usize::from(gpu == 3)],
            Metric::POWER => [70.0, 120.0][usize::from(gpu == 3)],
            _ => 0.0,
        })
    });
    assert_eq!((0..8).filter_map(|gpu| group.deviation(gpu)).count(), 0);
    assert_eq!(group.at(3, 300 * 1_000), StepDeviation::NotCompared);
}

#[test]
fn an_unused_gpu_is_named_by_its_utilisation() {
    let group = group(8, &|gpu, metric, step| {
        Some(match (gpu, metric) {
            (6, Metric::UTIL | Metric::SM_ACTIVE) => 0.0,
            (6, Metric::POWER) => 120.0,
            (6, Metric::CLOCK) => 345.0,
            _ => training(gpu, metric, step),
        })
    });
    assert_eq!(outliers(&group), [6]);
    assert_eq!(group.deviation(6).unwrap().metric, Metric::UTIL);
}

#[test]
fn missing_readings_are_no_deviation() {
    let silent = group(8, &|_, _, _| None);
    let group = group(8, &|gpu, metric, step| match (gpu, metric) {
        // One node is silent, one card does not report its clock, one reported for 20 s only.
        (0, _) if step > 150 => None,
        (1, Metric::CLOCK) => None,
        (2, _) if step < STEPS - 7 => None,
        (2, _) => Some(slow(metric)),
        _ => Some(training(gpu, metric, step)),
    });
    assert!(outliers(&group).is_empty());
    assert_eq!((group.deviation(0), group.deviation(2)), (None, None));
    assert!(group.deviation(1).is_some());
    assert_eq!(silent.deviation(0), None);
}

#[test]
fn three_gpus_are_not_compared() {
    let values = |gpu: usize, metric: Metric, step: usize| {
        Some(if gpu == 0 { slow(metric) } else { training(gpu, metric, step) })
    };
    assert!(outliers(&group(3, &values)).is_empty());
    assert_eq!(outliers(&group(4, &values)), [0]);
}

#[test]
fn a_hotter_gpu_and_one_with_a_bit_more_memory_are_no_outliers() {
    let group = group(8, &|gpu, metric, step| {
        let value = training(gpu, metric, step);
        Some(match (gpu, metric) {
            (1, Metric::TEMP) => 60.0,
            (0, Metric::MEMORY) => 78.0,
            _ => value,
        })
    });
    assert!(outliers(&group).is_empty());
}

#[test]
fn an_outlier_near_the_limit_does_not_flicker() {
    let values = |gpu: usize, metric: Metric, step: usize| {
        let is_lower = gpu == 1 && metric == Metric::CLOCK;
        // 15 % below, then 11 %, which alone would not be an outlier.
        let clock = if step < STEPS { 0.85 } else { 0.89 };
        Some(if metric == Metric::CLOCK {
            1_700.0 * if is_lower { clock } else { 1.0 }
        } else {
            waiting(metric)
        })
    };
    let mut changing = PeerGroup::default();
    for steps in STEPS..STEPS + 40 {
        advance_to(&mut changing, steps, 8, &values);
        assert_eq!(outliers(&changing), [1], "{steps}");
    }
    let mut anew = PeerGroup::default();
    advance_to(&mut anew, STEPS + 39, 8, &values);
    assert!(outliers(&anew).is_empty());
}

#[test]
fn an_advanced_group_equals_a_recomputed_one() {
    let values = |gpu: usize, metric: Metric, step: usize| {
        Some(if gpu == 3 && step % 40 < 9 { slow(metric) } else { training(gpu, metric, step) })
    };
    let mut advanced = PeerGroup::default();
    for steps in [STEPS, STEPS + 1, STEPS + 3, STEPS + 50] {
        advance_to(&mut advanced, steps, 8, &values);
        let mut anew = PeerGroup::default();
        advance_to(&mut anew, steps, 8, &values);
        assert_eq!(advanced.rows, anew.rows, "{steps}");
        assert_eq!(advanced.peak_power(), anew.peak_power());
    }
}

#[test]
fn the_newest_seconds_show_the_last_complete_step() {
    let group = group(8, &|gpu, metric, step| {
        Some(if gpu == 0 { slow(metric) } else { training(gpu, metric, step) })
    });
    let end_ms = (STEPS as u64 + 1) * Window::STEP_MS;
    let window = Window::over(end_ms + 2_000, 60_000, 60);
    let points = group.points(0, &window, 0);
    assert!(points.iter().all(|point| point.value().is_some_and(|away| away > 30.0)), "{points:?}");
    let late = Window::over(end_ms + 30_000, 30_000, 60);
    assert_eq!(group.points(0, &late, 29), [Point::Gap]);
}
