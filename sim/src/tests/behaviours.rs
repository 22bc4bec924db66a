//! Each behaviour stays within ranges that were measured on real clusters.

use super::*;

/// Half an hour of one GPU, second by second.
fn half_hour(scenario: &Scenario, name: &str, index: usize) -> Vec<GpuSample> {
    (-600..1_200).map(|second| gpu(scenario, name, index, second)).collect()
}

fn share(samples: &[GpuSample], holds: impl Fn(&GpuSample) -> bool) -> f64 {
    samples.iter().filter(|sample| holds(sample)).count() as f64 / samples.len() as f64
}

fn of(behaviour: &str) -> Vec<GpuSample> {
    half_hour(&scenario(&job(&format!("behaviour = \"{behaviour}\""))), "n1", 1)
}

#[test]
fn readings_are_reproducible() {
    let (one, other) = (Scenario::from_toml(DEMO).unwrap(), Scenario::from_toml(DEMO).unwrap());
    for second in [-600, 0, 1, 777, 90_000] {
        for name in one.node_names() {
            assert_eq!(one.sample(name, at(second)), other.sample(name, at(second)));
            assert_eq!(one.processes(name, at(second)), other.processes(name, at(second)));
        }
        assert_eq!(one.jobs(at(second)), other.jobs(at(second)));
    }
    let reseeded = Scenario::from_toml(&DEMO.replace("seed = 20", "seed = 21")).unwrap();
    assert_ne!(one.sample(&node("gpu-h01"), at(0)), reseeded.sample(&node("gpu-h01"), at(0)));
}

#[test]
fn a_training_is_busy_at_its_power_cap_which_alone_is_no_alarm() {
    let samples = of("training");
    let steps: Vec<_> = samples.into_iter().filter(|sample| value(&sample.mem_util_pct) > 10).collect();
    assert!(steps.iter().all(|sample| (90..=100).contains(&value(&sample.util_pct))));
    assert!(share(&steps, |sample| value(&sample.util_pct) >= 95) > 0.9);
    assert!(steps.iter().all(|sample| value(&sample.power_mw) <= 700_000));
    assert!(share(&steps, |sample| value(&sample.power_mw) > 650_000) > 0.9);
    let capped = share(&steps, |sample| value(&sample.throttle_reasons) == workload::POWER_CAP);
    assert!((0.85..0.95).contains(&capped), "{capped}");
    assert!(steps.iter().all(|sample| sample.mem_used_bytes == steps[0].mem_used_bytes));
}

#[test]
fn during_a_checkpoint_rank_0_writes_and_all_others_wait() {
    let training = scenario(&job("behaviour = \"training\"\ncheckpoint_every = \"5m\""));
    for second in 276..299 {
        let (writing, waiting) = (gpu(&training, "n1", 0, second), gpu(&training, "n2", 0, second));
        assert!((2..=4).contains(&value(&writing.util_pct)));
        assert!((141_000..=144_000).contains(&value(&writing.power_mw)));
        assert!(value(&waiting.util_pct) >= 99);
        assert!((146_000..=152_000).contains(&value(&waiting.power_mw)));
    }
    assert!(value(&gpu(&training, "n1", 0, 270).power_mw) > 600_000);
    assert!(value(&gpu(&training, "n1", 0, 301).power_mw) > 600_000);
}

#[test]
fn a_straggler_is_hot_and_slow_and_its_peers_draw_less_power() {
    let location = "[[job.episode]]\nbehaviour = \"straggler\"\nnodes = \"n2\"\ngpus = [3]\n";
    let training = scenario(&job(&format!("checkpoint_every = \"1h\"\n{location}")));
    for second in 0..600 {
        let (hot, peer) = (gpu(&training, "n2", 3, second), gpu(&training, "n1", 0, second));
        assert_eq!(value(&hot.sm_clock_mhz), 1_095);
        assert!((86..=88).contains(&value(&hot.temp_c)));
        assert_ne!(value(&hot.throttle_reasons) & workload::SW_THERMAL, 0);
        assert!(value(&hot.util_pct) < value(&peer.util_pct));
        assert!((450_000..600_000).contains(&value(&peer.power_mw)));
        assert_eq!(value(&peer.throttle_reasons), 0);
    }
}

#[test]
fn a_hang_is_fully_busy_at_idle_power_with_constant_memory() {
    let samples = of("hang");
    assert!(samples.iter().all(|sample| value(&sample.util_pct) == 100));
    assert!(samples.iter().all(|sample| (147_000..=149_000).contains(&value(&sample.power_mw))));
    assert!(samples.iter().all(|sample| sample.mem_used_bytes == samples[0].mem_used_bytes));
}

#[test]
fn after_a_hang_the_job_loads_again_with_new_processes() {
    let job = job("[[job.episode]]\nbehaviour = \"hang\"\nfrom = \"1m\"\nfor = \"5m\"");
    let scenario = scenario(&job);
    let pid = |second| scenario.processes(&node("n1"), at(second)).unwrap().processes[0].facts.pid;
    assert_eq!(value(&gpu(&scenario, "n1", 1, 300).util_pct), 100);
    assert_eq!(value(&gpu(&scenario, "n1", 1, 370).util_pct), 0);
    assert!(
        gpu(&scenario, "n1", 1, 370).mem_used_bytes.value()
            < gpu(&scenario, "n1", 1, 350).mem_used_bytes.value()
    );
    assert!(value(&gpu(&scenario, "n1", 1, 410).util_pct) >= 90);
    assert_eq!(pid(100), pid(350));
    assert_ne!(pid(350), pid(370));
}

#[test]
fn an_idle_gpu_is_allocated_but_nothing_is_on_it() {
    let scenario = scenario(&job("behaviour = \"idle_gpu\""));
    let samples = half_hour(&scenario, "n1", 0);
    assert!(samples.iter().all(|sample| value(&sample.util_pct) == 0));
    assert!(samples.iter().all(|sample| value(&sample.power_mw) < 72_000));
    assert!(scenario.processes(&node("n1"), at(0)).unwrap().processes.is_empty());
    assert_eq!(scenario.jobs(at(0))[0].gpu_count, Some(8));
}

#[test]
fn a_notebook_holds_its_memory_and_is_mostly_idle() {
    let samples = of("notebook");
    let idle = |sample: &GpuSample| value(&sample.util_pct) == 0;
    assert!((0.93..0.99).contains(&share(&samples, idle)));
    let drawn = |sample: &GpuSample| (117_000..=123_000).contains(&value(&sample.power_mw));
    assert!(samples.iter().filter(|sample| idle(sample)).all(drawn));
    assert!(samples.iter().all(|sample| value(&sample.mem_used_bytes) > 60 << 30));
}

#[test]
fn an_input_bound_job_waits_in_82_of_100_samples_but_never_longer_than_8_s() {
    let samples = of("input_bound");
    let zero = |sample: &GpuSample| value(&sample.util_pct) == 0;
    let waits = share(&samples, zero);
    assert!((0.815..0.825).contains(&waits), "{waits}");
    let longest = samples.split(|sample| !zero(sample)).map(<[_]>::len).max();
    assert_eq!(longest, Some(8));
}

#[test]
fn varying_workloads_vary() {
    for (behaviour, low, high) in [("inference", 25, 75), ("bursty", 5, 80)] {
        let samples = of(behaviour);
        assert!(share(&samples, |sample| value(&sample.util_pct) <= low) > 0.05, "{behaviour}");
        assert!(share(&samples, |sample| value(&sample.util_pct) >= high) > 0.05, "{behaviour}");
        assert!(samples.iter().all(|sample| value(&sample.power_mw) < 700_000));
    }
}

#[test]
fn corrected_ecc_errors_grow_and_never_shrink() {
    let counts: Vec<u64> = of("ecc").iter().map(|sample| value(&sample.ecc_corrected)).collect();
    assert!(counts.is_sorted());
    assert!(counts[counts.len() - 1] > counts[0] + 100);
    assert!(of("training").iter().all(|sample| value(&sample.ecc_corrected) == 0));
}

#[test]
fn a_steady_scenario_does_not_move() {
    let quiet = Scenario::from_toml(QUIET).unwrap();
    let first = quiet.sample(&node("q1"), at(0)).unwrap();
    for second in [1, 60, 3_599] {
        let later = quiet.sample(&node("q1"), at(second)).unwrap();
        assert_eq!((&later.gpus, &later.host), (&first.gpus, &first.host));
    }
    assert_eq!((value(&first.gpus[0].util_pct), value(&first.gpus[0].power_mw)), (50, 350_000));
    assert_eq!(value(&first.gpus[1].util_pct), 0);
}

#[test]
fn a_warm_card_cools_slowly_when_its_work_stops() {
    let training = scenario(&job("checkpoint_every = \"5m\""));
    let temps: Vec<u64> = (270..300).map(|second| value(&gpu(&training, "n1", 1, second).temp_c)).collect();
    assert!(temps[0] > temps[29] + 10, "{temps:?}");
    assert!(temps.windows(2).all(|pair| pair[0].abs_diff(pair[1]) <= 14), "{temps:?}");
    assert!(temps.iter().all(|temp| (25..80).contains(temp)));
}

#[test]
fn a_desktop_card_has_a_fan_and_no_ecc_counters() {
    let text = toml(&job("")).replace("h100", "rtx4090");
    let sample = gpu(&Scenario::from_toml(&text).unwrap(), "n1", 0, 0);
    assert_eq!(sample.ecc_corrected, Reading::Unsupported);
    assert!(value(&sample.fan_pct) > 0);
    assert_eq!(gpu(&scenario(""), "n1", 0, 0).fan_pct, Reading::Unsupported);
}
