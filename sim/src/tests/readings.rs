//! All readings of the probe wire are present and consistent with the workload.

use super::*;
use nodeglass_protocol::field::ReadingSet as _;
use nodeglass_protocol::gpu::GpuPath;
use nodeglass_protocol::probe::HostSample;
use nodeglass_protocol::{Field as _, GpuField};

/// A scenario of one group of nodes.
fn nodes(model: &str, gpus: u32, rest: &str) -> Scenario {
    let text = toml(rest).replace("h100", model).replace("gpus = 4", &format!("gpus = {gpus}"));
    Scenario::from_toml(&text).unwrap()
}

#[test]
fn a_hopper_and_its_host_have_all_readings() {
    let scenario = scenario(&job(""));
    let mut sample = scenario.sample(&node("n1"), at(60)).unwrap();
    for field in GpuField::ALL {
        assert_eq!(sample.gpus[0].reading(*field).is_not_yet(), field.metric().is_derived, "{field:?}");
    }
    assert!(sample.host.readings_mut().all(|reading| reading.value().is_some()));
    assert_eq!(sample.cores.len(), 64);
    assert_eq!(sample.jobs.len(), 1);
    let facts = &scenario.hello(&node("n1"), at(60)).unwrap().gpus[0];
    let json = serde_json::to_value(facts).unwrap();
    assert!(
        json.as_object().unwrap().iter().all(|(name, value)| !value.is_null() || name.starts_with("mig"))
    );
}

#[test]
fn the_counters_of_gpm_follow_the_load_and_only_hoppers_have_them() {
    let training = scenario(&job("checkpoint_every = \"5m\""));
    let (step, waits) = (gpu(&training, "n2", 1, 200), gpu(&training, "n2", 1, 285));
    assert!(value(&waits.util_pct) >= 99 && value(&waits.sm_active_pct) < 25, "busy by its name only");
    assert!(value(&step.sm_active_pct) > 60 && value(&step.tensor_active_pct) > 40);
    assert!(value(&step.sm_active_pct) < value(&step.util_pct));
    assert!(value(&waits.tensor_active_pct) < 3);
    assert!(value(&step.nvlink_rx_bytes_s) > 20 * value(&waits.nvlink_rx_bytes_s));
    let older = nodes("a100", 4, &job(""));
    assert_eq!(gpu(&older, "n1", 1, 200).sm_active_pct, Reading::Unsupported);
    assert!(value(&gpu(&older, "n1", 1, 200).nvlink_rx_bytes_s) > 0);
}

#[test]
fn energy_grows_by_about_what_is_drawn() {
    let scenario = scenario(&job("checkpoint_every = \"1h\""));
    let energy = |second| value(&gpu(&scenario, "n1", 1, second).energy_mj);
    let drawn: u64 = (0..600).map(|second| value(&gpu(&scenario, "n1", 1, second).power_mw)).sum();
    let counted = energy(600) - energy(0);
    assert!(counted.abs_diff(drawn) < drawn / 8, "{counted} mJ counted, {drawn} mJ drawn");
    assert!((0..100).all(|second| energy(second) < energy(second + 1)));
}

#[test]
fn gpus_reach_each_other_as_their_boards_are_built() {
    let path = |model, gpus| nodes(model, gpus, "").hello(&node("n1"), at(0)).unwrap().topology[0].clone();
    assert_eq!(path("h100", 8)[..2], [GpuPath::Same, GpuPath::NvLink(18)]);
    assert_eq!(path("a100", 4)[3], GpuPath::NvLink(4));
    assert_eq!(path("rtx4090", 4)[1..], [GpuPath::HostBridge, GpuPath::System, GpuPath::System]);
    assert!(nodes("gb10", 1, "").hello(&node("n1"), at(0)).unwrap().topology.is_empty());
}

#[test]
fn a_gb10_has_the_memory_of_its_host_and_no_bus_to_it() {
    let scenario = nodes("gb10", 1, &job(""));
    let hello = scenario.hello(&node("n1"), at(0)).unwrap();
    assert!(hello.gpus[0].unified_memory);
    let sample = gpu(&scenario, "n1", 0, 60);
    assert_eq!(value(&sample.mem_total_bytes), hello.mem_total_bytes);
    assert_eq!(sample.pcie_rx_bytes_s, Reading::Unsupported);
    assert_eq!(sample.power_limit_mw, Reading::Unsupported);
    assert!(value(&sample.mem_used_bytes) > 0);
}

#[test]
fn instances_have_own_memory_and_processes_and_no_utilization() {
    let divided =
        toml(&job("gpus = [0, 2]")).replace("gpus = 4", "gpus = 2\nmig = [\"3g.40gb\", \"1g.10gb\"]");
    let scenario = Scenario::from_toml(&divided).unwrap();
    let facts = scenario.hello(&node("n1"), at(0)).unwrap().gpus;
    let profile = |unit: usize| facts[unit].mig.as_ref().and_then(|mig| mig.profile.clone());
    assert_eq!(facts.len(), 6);
    assert_eq!((profile(0), profile(1), profile(2)), (None, Some("3g.40gb".into()), Some("1g.10gb".into())));
    assert_eq!(facts[4].mig_parent.as_ref(), Some(&facts[3].uuid));
    let gpus = scenario.sample(&node("n1"), at(60)).unwrap().gpus;
    assert_eq!((&gpus[0].util_pct, &gpus[1].util_pct), (&Reading::Unsupported, &Reading::Unsupported));
    assert!(value(&gpus[1].sm_active_pct) > 0 && value(&gpus[2].sm_active_pct) == 0);
    assert!(value(&gpus[0].mem_used_bytes) > value(&gpus[1].mem_used_bytes));
    assert!((200_000..700_000).contains(&value(&gpus[0].power_mw)));
    let processes = scenario.processes(&node("n1"), at(60)).unwrap().processes;
    let on: Vec<_> = processes.iter().map(|process| process.facts.gpu.clone()).collect();
    assert_eq!(on, [facts[1].uuid.clone(), facts[4].uuid.clone()]);
    assert_eq!(processes[0].now.sm_pct, Reading::Unsupported);
}

#[test]
fn gpus_are_healthy_except_for_scenario_faults() {
    let fault = |kind: &str| format!("[[fault]]\nnodes = \"n1\"\nkind = \"{kind}\"\ngpu = 1\n");
    let all = ["row_remap", "nvlink_down", "pcie_narrow"].map(fault).concat();
    let scenario = scenario(&(all + &job("")));
    let report = scenario.health(&node("n1"), at(0)).unwrap();
    let (well, ill) = (&report.gpus[0], &report.gpus[1]);
    assert_eq!((&well.remap_pending, &ill.remap_pending), (&Reading::Value(false), &Reading::Value(true)));
    assert_eq!((value(&well.pcie_width), value(&ill.pcie_width)), (16, 8));
    let down = |links: &[nodeglass_protocol::gpu::NvLink]| {
        links.iter().filter(|link| link.up == Reading::Value(false)).count()
    };
    assert_eq!((well.nvlinks.len(), down(&well.nvlinks), down(&ill.nvlinks)), (18, 0, 1));
    assert_eq!(value(&gpu(&scenario, "n1", 1, 0).ecc_uncorrected), 1);
}

#[test]
fn a_power_brake_is_distinguished_from_the_power_cap() {
    let scenario = scenario(
        &("[[fault]]\nnodes = \"n1\"\nkind = \"power_brake\"\ngpu = 2\n".to_owned()
            + &job("checkpoint_every = \"1h\"")),
    );
    let (braked, well) = (gpu(&scenario, "n1", 2, 60), gpu(&scenario, "n1", 1, 60));
    assert_eq!(value(&braked.throttle_reasons), workload::HW_POWER_BRAKE);
    assert_eq!(value(&well.throttle_reasons) & !workload::POWER_CAP, 0);
    assert!(value(&braked.sm_clock_mhz) < value(&well.sm_clock_mhz) * 2 / 3);
}

#[test]
fn unowned_memory_and_zombies_are_visible_on_an_idle_gpu() {
    let fault = |kind: &str, gpu: u32| format!("[[fault]]\nnodes = \"n1\"\nkind = \"{kind}\"\ngpu = {gpu}\n");
    let scenario = scenario(&(fault("held_memory", 0) + &fault("zombie", 1)));
    let processes = scenario.processes(&node("n1"), at(0)).unwrap().processes;
    assert!(value(&gpu(&scenario, "n1", 0, 0).mem_used_bytes) > 8 << 30);
    assert!(value(&gpu(&scenario, "n1", 1, 0).mem_used_bytes) > 20 << 30);
    assert_eq!(processes.iter().map(|process| value(&process.now.state)).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_denied_counter_has_a_reason() {
    let scenario = scenario("[[fault]]\nnodes = \"n1\"\nkind = \"no_permission\"\n");
    let sample = gpu(&scenario, "n1", 0, 0);
    assert!(
        matches!(sample.sm_active_pct, Reading::Failed(why) if why.as_str().starts_with("no permission"))
    );
    assert!(sample.util_pct.value().is_some());
}

#[test]
fn job_usage_stays_within_its_limits() {
    let scenario = scenario(&job("gpus = [0, 1]"));
    let uses = scenario.sample(&node("n1"), at(60)).unwrap().jobs;
    let now = &uses[0].now;
    assert_eq!(value(&now.cpu_limit_pct), 3_200);
    assert!(value(&now.cpu_pct) <= 3_200 && value(&now.cpu_pct) > 100);
    assert!(value(&now.mem_used_bytes) < value(&now.mem_limit_bytes));
    let HostSample { mem_total_bytes, .. } = scenario.sample(&node("n1"), at(60)).unwrap().host;
    assert!(value(&now.mem_limit_bytes) < value(&mem_total_bytes));
}

#[test]
fn ranks_are_reported_and_other_users_details_are_hidden() {
    let text = job("container = { runtime = \"apptainer\", name = \"pytorch_24.05.sif\" }");
    let of = |scenario: &Scenario, name| scenario.processes(&node(name), at(60)).unwrap().processes;
    let facts = of(&scenario(&text), "n2").swap_remove(1).facts;
    let rank = facts.rank.unwrap();
    assert_eq!((rank.global, rank.local, rank.world), (5, Some(1), Some(8)));
    assert_eq!(facts.cwd, Reading::Value("/home/alice/runs/j".into()));
    assert_eq!(facts.container.unwrap().name, Some("pytorch_24.05.sif".into()));
    let theirs =
        of(&scenario(&text.replace("submitted", "user = \"bob\"\nsubmitted")), "n2").swap_remove(1).facts;
    assert_eq!((theirs.rank, theirs.cwd, theirs.args), (None, Reading::NotYet, Reading::NotYet));
}

#[test]
fn drivers_of_other_vendors_lack_readings_and_never_report_zero_instead() {
    use nodeglass_protocol::Vendor;
    let of = |model| {
        let scenario = nodes(model, 2, &job(""));
        let hello = scenario.hello(&node("n1"), at(60)).unwrap();
        (hello.sources[0].vendor, hello.gpus[1].vendor, gpu(&scenario, "n1", 1, 60))
    };
    let (source, vendor, amd) = of("mi300x");
    assert_eq!((source, vendor), (Vendor::Amd, Vendor::Amd));
    assert!(value(&amd.hotspot_temp_c) > value(&amd.temp_c) && value(&amd.power_mw) > 0);
    assert_eq!((amd.sm_active_pct, amd.enc_pct), (Reading::Unsupported, Reading::Unsupported));
    let (_, vendor, intel) = of("max1550");
    assert!(vendor == Vendor::Intel && value(&intel.energy_mj) > 0);
    assert_eq!((intel.mem_util_pct, intel.nvlink_rx_bytes_s), (Reading::Unsupported, Reading::Unsupported));
    let (_, vendor, mut tpu) = of("tpu-v5e");
    assert!(vendor == Vendor::Tpu && value(&tpu.mem_used_bytes) > 0);
    assert_eq!(tpu.readings_mut().filter(|reading| reading.value().is_some()).count(), 3);
}
