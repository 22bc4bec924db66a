//! Scripted series of samples, and the sums that must follow from them.

use super::*;
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::job::{Suspension, TimeLimit};
use nodeglass_protocol::note::{MAX_PER_JOB, Note, NoteId, NoteSource};
use nodeglass_protocol::picture::{
    Evidence, History, JobUsagePicture, NodeFacts, Owner, ProcessFacts, ProcessPicture,
};
use nodeglass_protocol::process::ProcessKind;
use nodeglass_protocol::{Cell, Reading};

const GIB: u64 = 1 << 30;

/// The relay's clock started when job 7 did.
fn relay_ms(wall_s: i64) -> u64 {
    (wall_s - 1_000).cast_unsigned().saturating_mul(1_000)
}

/// A moment as reports state it.
fn time(at_s: u64) -> String {
    format!("at {at_s}")
}

fn node_name() -> NodeName {
    NodeName::new("n1").unwrap()
}

fn job(gpus: u32) -> Job {
    Job {
        name: "train".into(),
        start: Some(1_000),
        limit: TimeLimit::Seconds(86_400),
        nodes: vec![node_name()],
        node_count: 1,
        cpus: Some(16),
        mem_bytes: Some(64 * GIB),
        gpu_count: Some(gpus),
        ..Job::new(JobId(7), "alice".into(), JobState::Running)
    }
}

/// A node whose GPUs belong to job 7, each with a utilisation in % and a power in W.
fn node(at_ms: u64, gpus: &[(u64, u64)]) -> NodePicture {
    let mut node = NodePicture::new(node_name());
    node.sampled_at_ms = Some(at_ms);
    node.head.interval_ms = 1_000;
    for (index, (util, power)) in (0..).zip(gpus) {
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new(format!("GPU-{index}"));
        gpu.facts.index = index;
        gpu.owners = vec![Owner { job: JobId(7), by: Evidence::GresIndex }];
        gpu.row.set(GpuField::Util, Cell::quantize(GpuField::Util, &Reading::Value(*util)));
        gpu.row.set(GpuField::Power, Cell::quantize(GpuField::Power, &Reading::Value(*power)));
        node.gpus.push(gpu);
    }
    node
}

fn reports(gpus: u32) -> JobReports {
    let mut reports = JobReports::default();
    reports.set_jobs(&[job(gpus)], 1_000, relay_ms, |_| None);
    reports
}

/// The report of job 7 after its end at `ended_s`.
fn ended(reports: &mut JobReports, gpus: u32, ended_s: i64) -> Report {
    let state = JobState::Ended("COMPLETED".into());
    reports.set_jobs(&[Job { state, ended: Some(ended_s), ..job(gpus) }], ended_s, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    record.report()
}

#[test]
fn an_hour_of_known_load_gives_exactly_its_gpu_hours_and_energy() {
    let mut reports = reports(2);
    for second in 0..=3_600u64 {
        // The first GPU works for three quarters of the hour; the second never does.
        let first = if second <= 2_700 { (80, 400) } else { (0, 60) };
        reports.record(&node(second * 1_000, &[first, (0, 50)]));
    }
    let report = ended(&mut reports, 2, 1_000 + 3_600);
    let totals = &report.totals;
    assert_eq!((report.elapsed_s, report.observed_pct), (3_600, 100.0));
    assert_eq!((totals.gpu_hours_allocated, totals.gpu_hours_observed), (2.0, 2.0));
    assert_eq!((totals.gpu_hours_used, totals.gpu_hours_idle), (0.6, 1.25));
    assert_eq!(totals.util_pct, Some(30.0));
    // 400 W × 0.75 h + 60 W × 0.25 h + 50 W × 1 h.
    assert_eq!((totals.energy_kwh, totals.energy_known_pct), (Some(0.365), 100.0));
    let bins = report.gpus[0].util_distribution_pct.unwrap();
    assert_eq!((bins[0], bins[8], bins.iter().sum::<f64>()), (25.0, 75.0, 100.0));
    assert_eq!(report.gpus[1].idle_s, Some(3_600.0));
    assert_eq!(report.totals.gpu_hours_unused, 1.4);
}

#[test]
fn hours_of_a_mig_instance_without_utilisation_are_not_waste() {
    let mut reports = reports(2);
    for second in 0..=3_600u64 {
        let mut picture = node(second * 1_000, &[(25, 100), (0, 50)]);
        picture.gpus[1].row.set(GpuField::Util, Cell::quantize(GpuField::Util, &Reading::Unsupported));
        reports.record(&picture);
    }
    let report = ended(&mut reports, 2, 1_000 + 3_600);
    let totals = &report.totals;
    assert_eq!(
        (totals.gpu_hours_observed, totals.gpu_hours_used, totals.gpu_hours_unused),
        (2.0, 0.25, 0.75)
    );
    let text = text(&report, None, &time);
    assert!(text.contains("0.25 used, 0.75 unused (0.75 partly busy), 1 of unknown utilisation"), "{text}");
}

#[test]
fn the_sm_activity_of_a_mig_instance_is_its_utilisation() {
    let mut reports = reports(1);
    for second in 0..=3_600u64 {
        let mut picture = node(second * 1_000, &[(0, 100)]);
        let gpu = &mut picture.gpus[0];
        gpu.facts.uuid = GpuUuid::new("MIG-4f2a7f0e");
        gpu.row.set(GpuField::Util, Cell::UNSUPPORTED);
        gpu.row.set(GpuField::SmActive, Cell::quantize(GpuField::SmActive, &Reading::Value(2)));
        reports.record(&picture);
    }
    let report = ended(&mut reports, 1, 1_000 + 3_600);
    assert_eq!((report.totals.gpu_hours_used, report.totals.gpu_hours_idle), (0.02, 1.0));
    assert_eq!((report.gpus[0].util_pct, report.gpus[0].idle_s), (Some(2.0), Some(3_600.0)));
    let text = text(&report, None, &time);
    assert!(text.contains("  2 % on average (SM activity of MIG instances)\n"), "{text}");
}

#[test]
fn t09_a_guest_sees_energy_but_neither_its_price_nor_its_emissions() {
    let mut reports = reports(1);
    let gpu_hour = Some(Cost { amount: 3.6, currency: "EUR".into() });
    reports.set_factors(Factors { gpu_hour, co2_g_per_kwh: Some(400.0) });
    for second in 0..=100u64 {
        reports.record(&node(second * 1_000, &[(50, 100)]));
    }
    let record = reports.of(JobId(7), 1_100, Until::Now).unwrap();
    let owners = record.report().totals;
    assert!(owners.cost.is_some() && owners.co2_kg.is_some(), "{owners:?}");
    let guests = record.for_guest(job(1)).unwrap().report().totals;
    assert_eq!((guests.cost, guests.co2_kg), (None, None));
    assert!(guests.energy_kwh.is_some() && guests.energy_kwh == owners.energy_kwh);
}

#[test]
fn t09_a_guest_sees_the_traffic_of_a_host_only_if_the_job_has_all_its_cpus() {
    for (cpus, is_shown) in [(Some(16), true), (Some(17), false), (Some(0), false), (None, false)] {
        let mut reports = reports(1);
        for second in 0..=100u64 {
            let mut picture = node(second * 1_000, &[(50, 100)]);
            picture.head.facts = cpus.map(|cpus| NodeFacts { cpus, ..NodeFacts::default() });
            for field in [HostField::NetRx, HostField::NetTx, HostField::DiskRead, HostField::DiskWrite] {
                picture.host.set(field, Cell::quantize(field, &Reading::Value(1_000_000)));
            }
            reports.record(&picture);
        }
        reports.set_jobs(&[job(1)], 1_100, relay_ms, |_| None);
        let bound = Finding { kind: FindingKind::CommunicationBound, ..finding("c", 1_060_000, None) };
        reports.record_findings(&[bound]);
        let record = reports.of(JobId(7), 1_100, Until::Listed).unwrap();
        let traffic = |totals: Totals| {
            [
                totals.nodes_net_rx_bytes,
                totals.nodes_net_tx_bytes,
                totals.nodes_disk_read_bytes,
                totals.nodes_disk_write_bytes,
            ]
        };
        assert!(traffic(record.report().totals).iter().all(|bytes| bytes.is_some()));
        let guest = record.for_guest(job(1)).unwrap();
        assert_eq!(guest.findings.len(), usize::from(is_shown), "{cpus:?}");
        let shown = traffic(guest.report().totals);
        assert!(shown.iter().all(|bytes| bytes.is_some() == is_shown), "{cpus:?}: {shown:?}");
    }
}

#[test]
fn t09_a_guest_sees_what_a_running_job_used_until_slurm_last_listed_it() {
    let mut reports = reports(1);
    let used = |reports: &JobReports, until| reports.of(JobId(7), 1_200, until).unwrap().report().totals;
    (0..=100u64).for_each(|second| reports.record(&node(second * 1_000, &[(100, 100)])));
    assert_eq!(used(&reports, Until::Listed).util_pct, None);
    reports.set_jobs(&[job(1)], 1_100, relay_ms, |_| None);
    // SLURM does not respond, and another program works there.
    (101..=200u64).for_each(|second| reports.record(&node(second * 1_000, &[(0, 300)])));
    let [owners, guests] = [Until::Now, Until::Listed].map(|until| used(&reports, until));
    assert_eq!((owners.util_pct, guests.util_pct), (Some(50.0), Some(100.0)));
    assert!(guests.energy_kwh < owners.energy_kwh);
    reports.set_jobs(&[job(1)], 1_200, relay_ms, |_| None);
    assert_eq!(used(&reports, Until::Listed), used(&reports, Until::Now));
}

#[test]
fn a_report_states_for_which_part_of_the_run_traffic_is_known() {
    let mut reports = reports(1);
    let known_pct = |reports: &JobReports| {
        let report = reports.of(JobId(7), 1_100, Until::Now).unwrap().report();
        (report.totals.usage_known_pct, text(&report, None, &time))
    };
    for second in 0..=100u64 {
        let mut picture = node(second * 1_000, &[(50, 100)]);
        if second > 80 {
            picture.gpus[0]
                .row
                .set(GpuField::PcieRx, Cell::quantize(GpuField::PcieRx, &Reading::Value(1_000)));
        }
        reports.record(&picture);
        if second == 80 {
            assert_eq!(known_pct(&reports).0, 100.0, "a figure that is never known is not stated");
        }
    }
    let (known_pct, text) = known_pct(&reports);
    assert_eq!(known_pct, 20.0);
    assert!(text.contains("traffic, CPUs and host memory are known for 20 % of the run"), "{text}");
}

#[test]
fn the_gpu_hours_of_a_job_follow_its_size() {
    let two_nodes = || {
        let nodes = vec![node_name(), NodeName::new("n2").unwrap()];
        Job { nodes, node_count: 2, ..job(4) }
    };
    let record = |reports: &mut JobReports, at_s: u64, gpus: &[(u64, u64)]| {
        reports.record(&node(at_s * 1_000, gpus));
        let mut second = node(at_s * 1_000, gpus);
        second.name = NodeName::new("n2").unwrap();
        second
            .gpus
            .iter_mut()
            .for_each(|gpu| gpu.facts.uuid = GpuUuid::new(format!("{}-n2", gpu.facts.uuid)));
        reports.record(&second);
    };
    let mut reports = JobReports::default();
    reports.set_jobs(&[two_nodes()], 1_000, relay_ms, |_| None);
    (0..=1_800).for_each(|second| record(&mut reports, second, &[(100, 100); 2]));
    // scontrol update NumNodes=1
    reports.set_jobs(&[job(2)], 2_800, relay_ms, |_| None);
    (1_801..=2_700).for_each(|second| record(&mut reports, second, &[(100, 100); 2]));
    let stored = serde_json::to_string(&reports.running(3_700)).unwrap();
    (2_701..=3_600).for_each(|second| record(&mut reports, second, &[(100, 100); 2]));
    let totals = ended(&mut reports, 2, 4_600).totals;
    // Half an hour of four GPUs, and one of two.
    assert_eq!(
        (totals.gpu_hours_allocated, totals.gpu_hours_observed, totals.gpu_hours_used),
        (3.0, 3.0, 3.0)
    );
    // The next relay finds it grown again.
    let mut next = JobReports::default();
    next.set_jobs(&[two_nodes()], 3_700, relay_ms, |_| None);
    next.restore(serde_json::from_str(&stored).unwrap());
    let grown = next.of(JobId(7), 4_600, Until::Now).unwrap().report().totals;
    assert_eq!(grown.gpu_hours_allocated, 2.0 + 0.5 + 1.0);
}

#[test]
fn a_job_that_ran_between_two_lists_has_a_report_of_its_end() {
    let mut reports = JobReports::default();
    let failed = |id: u32, exit: &str| Job {
        id: JobId(id),
        ended: Some(1_005),
        exit: Some(exit.into()),
        ..Job { state: JobState::Ended("FAILED".into()), ..job(1) }
    };
    let never_started = Job { nodes: Vec::new(), ended: Some(1_000), ..failed(9, "0:0") };
    reports.restore_ended([JobId(8)]);
    let mut list = vec![failed(7, "0:0"), failed(8, "0:0"), never_started];
    reports.set_jobs(&list, 1_010, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    let report = record.report();
    assert_eq!((report.job, report.is_final, report.elapsed_s), (JobId(7), true, 5));
    assert_eq!((report.observed_pct, report.totals.util_pct), (0.0, None));
    assert_eq!(format!("{:.0} %", report.observed_pct), "0 %", "and no negative zero");
    assert!(text(&report, None, &time).contains("not observed"), "{}", text(&report, None, &time));
    // Once, and again when SLURM states more.
    reports.set_jobs(&list, 1_020, relay_ms, |_| None);
    assert_eq!(reports.take_finished(), []);
    list[0].exit = Some("3:0".into());
    reports.set_jobs(&list, 1_030, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    assert_eq!(record.report().exit, Some("3:0".into()));
}

#[test]
fn each_of_many_jobs_that_end_in_one_list_has_its_record() {
    let mut reports = JobReports::default();
    let running: Vec<_> = (1..=4_096).map(|id| Job { id: JobId(id), ..job(1) }).collect();
    reports.set_jobs(&running, 1_000, relay_ms, |_| None);
    reports.set_jobs(&[], 1_010, relay_ms, |_| None);
    let records = reports.take_finished();
    assert_eq!((records.len(), reports.lost()), (4_096, 0));
    // Not stored twice: the oldest are dropped, and counted.
    reports.put_back(records.clone());
    reports.put_back([records, vec![JobRecord::of(job(1), 1_010)]].concat());
    assert_eq!(reports.lost(), 1);
    assert_eq!(reports.take_finished()[0].job.id, JobId(2));
}

#[test]
fn a_job_may_state_any_time() {
    let state = JobState::Ended("COMPLETED".into());
    let late = Job { state, submitted: Some(i64::MAX), ended: Some(i64::MAX), ..job(1) };
    let mut reports = reports(1);
    reports.restore(vec![JobRecord::of(job(1), i64::MAX)]);
    reports.set_jobs(&[late], 1_010, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    assert!(record.report_with(Vec::new()).is_final);
}

#[test]
fn what_an_earlier_relay_counted_of_a_job_that_ended_meanwhile_is_final() {
    let mut earlier = reports(1);
    (0..=100u64).for_each(|second| earlier.record(&node(second * 1_000, &[(50, 100)])));
    let mut later = JobReports::default();
    let state = JobState::Ended("COMPLETED".into());
    later.set_jobs(&[Job { state, ended: Some(1_200), ..job(1) }], 1_300, relay_ms, |_| None);
    later.restore(earlier.running(1_100));
    let [unobserved, with_sums] = later.take_finished().try_into().unwrap();
    assert!(unobserved.nodes.is_empty());
    let report = with_sums.report();
    assert_eq!((report.is_final, report.elapsed_s, report.observed_pct), (true, 200, 50.0));
}

#[test]
fn a_gap_is_not_observed_and_never_idle() {
    let mut reports = reports(1);
    for second in (0..=100u64).chain(400..=500) {
        reports.record(&node(second * 1_000, &[(50, 100)]));
    }
    let report = ended(&mut reports, 1, 1_000 + 500);
    // The first sample after the gap holds for 2.5 s.
    assert_eq!((report.gpus[0].observed_s, report.gpus[0].idle_s), (202.5, Some(0.0)));
    assert_eq!(report.observed_pct, 40.5);
    assert_eq!((report.totals.util_pct, report.totals.energy_known_pct), (Some(50.0), 40.5));
}

#[test]
fn duplicate_and_reordered_samples_add_nothing() {
    let mut reports = reports(1);
    for second in [0, 1, 1, 2, 1, 2, 3u64] {
        reports.record(&node(second * 1_000, &[(100, 100)]));
    }
    assert_eq!(ended(&mut reports, 1, 1_003).gpus[0].observed_s, 3.0);
}

#[test]
fn late_samples_fill_a_gap_once() {
    let mut reports = reports(1);
    (0..=10).chain(60..=70).for_each(|second| reports.record(&node(second * 1_000, &[(50, 100)])));
    let now = node(70_000, &[(50, 100)]);
    reports.record_late(&now, &kept(5..=57));
    reports.record_late(&now, &kept(5..=57));
    let report = ended(&mut reports, 1, 1_070);
    // 10 s, then 47 s of late samples, then 2.5 s, then 10 s.
    assert_eq!(report.gpus[0].observed_s, 69.5);
    assert_eq!(report.totals.util_pct, Some((47.0 * 100.0 + 22.5 * 50.0) / 69.5));
}

/// Samples of the seconds that a probe kept, at 100 %.
fn kept(seconds: std::ops::RangeInclusive<u64>) -> Vec<HistorySample> {
    let sample = |second| {
        let picture = node(second * 1_000, &[(100, 200)]);
        let gpus = picture.gpus.iter().map(|gpu| History::of_gpu(&gpu.row)).collect();
        HistorySample { at_ms: second * 1_000, hold_ms: 2_500, gpus, host: History::of_host(&picture.host) }
    };
    seconds.map(sample).collect()
}

#[test]
fn what_the_probe_kept_from_before_the_relay_is_of_the_job_as_its_findings_say() {
    // A hang that the readings show from the start on, and the relay's first sample after ten minutes.
    let mut reports = reports(1);
    for second in 600..=1_200 {
        reports.record(&node(second * 1_000, &[(100, 100)]));
    }
    reports.record_late(&node(1_200_000, &[(100, 100)]), &kept(1..=599));
    let hang = Finding {
        kind: FindingKind::CollectiveHang,
        wasted_gpus: 1,
        ..finding("collective_hang/7", 1_001_000, None)
    };
    reports.set_jobs(&[job(1)], 2_200, relay_ms, |_| None);
    reports.record_findings(std::slice::from_ref(&hang));
    let report = ended(&mut reports, 1, 2_200);
    let lost = hang.wasted_gpu_hours(2_200_000);
    assert!((report.totals.gpu_hours_hung - lost).abs() < 0.002, "{} {lost}", report.totals.gpu_hours_hung);
    assert!(report.observed_pct > 99.0, "{}", report.observed_pct);
}

#[test]
fn late_samples_without_readings_are_not_observed() {
    let mut reports = reports(1);
    reports.record(&node(100_000, &[(80, 200)]));
    let mut samples = kept(1..=50);
    for sample in &mut samples {
        sample.gpus.iter_mut().for_each(|cells| cells.fill(Cell::default()));
        sample.host.fill(Cell::default());
    }
    reports.record_late(&node(100_000, &[(80, 200)]), &samples);
    let report = reports.of(JobId(7), 1_100, Until::Now).unwrap().report();
    assert_eq!(report.gpus.first().map_or(0.0, |gpu| gpu.observed_s), 0.0);
}

#[test]
fn what_an_earlier_relay_counted_is_not_counted_again() {
    let mut earlier = reports(1);
    for second in 0..=600 {
        earlier.record(&node(second * 1_000, &[(100, 300)]));
    }
    let record = earlier.of(JobId(7), 1_600, Until::Now).unwrap();
    // Its record may be read after the first samples.
    let mut reports = reports(1);
    reports.record(&node(700_000, &[(100, 300)]));
    reports.record_late(&node(700_000, &[(100, 300)]), &kept(101..=699));
    reports.restore(vec![record]);
    assert_eq!(ended(&mut reports, 1, 1_700).gpus[0].observed_s, 600.0);
}

#[test]
fn samples_after_a_boot_of_the_node_are_not_of_a_job_from_before() {
    let mut reports = reports(1);
    let up = |second: u64, uptime_s: u64| {
        let mut node = node(second * 1_000, &[(90, 300)]);
        node.host.set(HostField::Uptime, Cell::quantize(HostField::Uptime, &Reading::Value(uptime_s)));
        node
    };
    (0..=600).for_each(|second| reports.record(&up(second, 86_400 + second)));
    // The node was down for a minute; SLURM states the end of the job later.
    (660..=900).for_each(|second| reports.record(&up(second, second - 640)));
    let report = ended(&mut reports, 1, 1_000 + 1_200);
    assert_eq!(report.gpus[0].observed_s, 600.0);
    // The run after it is on the same node.
    let again = Job { start: Some(1_700), ..job(1) };
    reports.set_jobs(std::slice::from_ref(&again), 2_200, relay_ms, |_| None);
    (1_200..=1_560).for_each(|second| reports.record(&up(second, second - 640)));
    let state = JobState::Ended("COMPLETED".into());
    reports.set_jobs(&[Job { state, ended: Some(2_560), ..again }], 2_560, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    assert_eq!(record.report().gpus[0].observed_s, 360.0);
}

#[test]
fn samples_from_before_a_job_are_not_its_own() {
    let mut reports = JobReports::default();
    reports.set_jobs(&[Job { start: Some(1_500), ..job(1) }], 1_600, relay_ms, |_| None);
    reports.record(&node(600_000, &[(100, 300)]));
    reports.record_late(&node(600_000, &[(100, 300)]), &kept(1..=599));
    assert_eq!(reports.of(JobId(7), 1_600, Until::Now).unwrap().report().gpus[0].observed_s, 99.0);
}

#[test]
fn a_missing_reading_is_not_zero() {
    let mut reports = reports(1);
    for second in 0..=10u64 {
        let mut picture = node(second * 1_000, &[(100, 300)]);
        if second > 5 {
            picture.gpus[0].row.set(GpuField::Power, Cell::FAILED);
        }
        if second > 8 {
            picture.gpus[0].fault = Some("GPU is lost".into());
        }
        reports.record(&picture);
    }
    let report = ended(&mut reports, 1, 1_010);
    assert_eq!((report.totals.energy_known_pct, report.totals.energy_kwh), (50.0, Some(1_500.0 / 3.6e6)));
    assert_eq!((report.gpus[0].util_pct, report.gpus[0].fault_s), (Some(100.0), 2.0));
    assert_eq!((report.totals.pcie_rx_bytes, report.totals.mem_peak_bytes), (None, None));
}

#[test]
fn rates_counters_throttling_and_the_jobs_usage_are_added_up() {
    let mut reports = reports(1);
    for second in 0..=10u64 {
        let mut picture = node(second * 1_000, &[(100, 300)]);
        let row = &mut picture.gpus[0].row;
        let mut set = |field: GpuField, value| row.set(field, Cell::quantize(field, &Reading::Value(value)));
        set(GpuField::PcieRx, 1 << 20);
        set(GpuField::Throttle, if second > 6 { 0x44 } else { 0x4 });
        // The driver was loaded again after 5 s.
        set(GpuField::EccCorrected, if second <= 5 { 10 + second } else { second - 6 });
        let mut usage = Row::<JobField>::default();
        let mut set =
            |field: JobField, value| usage.set(field, Cell::quantize(field, &Reading::Value(value)));
        set(JobField::Cpu, if second % 2 == 0 { 100 } else { 300 });
        set(JobField::MemUsed, second * GIB);
        picture.job_usage.push(JobUsagePicture { job: JobId(7), row: usage });
        reports.record(&picture);
    }
    reports.count_xid(&node_name(), &GpuUuid::new("GPU-0"));
    reports.count_xid(&node_name(), &GpuUuid::new("GPU-other"));
    let totals = ended(&mut reports, 1, 1_010).totals;
    assert_eq!(totals.pcie_rx_bytes, Some(10.0 * f64::from(1 << 20)));
    let throttled: Vec<_> = totals.throttled.iter().map(|one| (one.reason.as_str(), one.seconds)).collect();
    assert_eq!(throttled, [("too hot (hardware)", 4.0), ("power limit", 10.0)]);
    assert_eq!((totals.ecc_corrected, totals.xids), (Some(9), 1));
    assert_eq!((totals.cpus_used, totals.cpus_peak), (Some(2.0), Some(3.0)));
    assert_eq!(totals.mem_peak_bytes, Some(10 * GIB));
}

#[test]
fn a_restart_of_the_relay_continues_the_sums() {
    let mut before = reports(1);
    (0..=100).for_each(|second| before.record(&node(second * 1_000, &[(100, 360)])));
    let stored = serde_json::to_string(&before.running(1_100)).unwrap();
    let mut after = reports(1);
    (0..=50).for_each(|second| after.record(&node(second * 1_000, &[(0, 360)])));
    after.restore(serde_json::from_str(&stored).unwrap());
    (51..=100).for_each(|second| after.record(&node(second * 1_000, &[(0, 360)])));
    let report = ended(&mut after, 1, 1_200);
    assert_eq!((report.observed_pct, report.totals.util_pct), (100.0, Some(50.0)));
    assert_eq!(report.totals.energy_kwh, Some(0.02));
    // Sums of another run of the job are not its own.
    let mut other = JobReports::default();
    other.set_jobs(&[Job { start: Some(5_000), ..job(1) }], 5_000, relay_ms, |_| None);
    other.restore(serde_json::from_str(&stored).unwrap());
    assert!(other.of(JobId(7), 5_001, Until::Now).unwrap().nodes[0].gpus.is_empty());
}

#[test]
fn a_job_that_slurm_lists_as_active_again_continues_its_sums() {
    let mut reports = reports(1);
    (0..=100).for_each(|second| reports.record(&node(second * 1_000, &[(100, 360)])));
    let false_end = ended(&mut reports, 1, 1_100);
    assert!(false_end.is_final);
    reports.set_jobs(&[job(1)], 1_115, relay_ms, |_| None);
    (116..=200).for_each(|second| reports.record(&node(second * 1_000, &[(100, 360)])));
    let running = reports.of(JobId(7), 1_200, Until::Now).unwrap();
    assert_eq!((running.is_final, running.false_end_s), (false, Some(1_100)));
    let report = ended(&mut reports, 1, 1_200);
    assert_eq!((report.elapsed_s, report.totals.energy_kwh), (200, Some(0.0184)), "184 s of 360 W");
    // A later run is a different record.
    reports.set_jobs(&[Job { start: Some(1_300), ..job(1) }], 1_310, relay_ms, |_| None);
    let requeued = reports.of(JobId(7), 1_310, Until::Now).unwrap();
    assert_eq!((requeued.false_end_s, requeued.nodes[0].gpus.len()), (None, 0));
}

#[test]
fn what_is_sampled_after_a_jobs_end_is_not_the_jobs() {
    let mut reports = reports(1);
    let mut history = History::default();
    let mut last = node(0, &[(80, 200)]);
    for second in 0..=60u64 {
        // It ends after 50 s; SLURM is asked after 30 and 60 s.
        let mut picture = node(second * 1_000, &[if second < 50 { (80, 200) } else { (0, 50) }]);
        history.push(second * 1_000, [&picture.gpus[0].row].into_iter(), &picture.host, 2_500);
        reports.record(&picture);
        if second == 30 {
            reports.set_jobs(&[job(1)], 1_030, relay_ms, |_| None);
        }
        picture.history = None;
        last = picture;
    }
    last.history = Some(history);
    let state = JobState::Ended("COMPLETED".into());
    let ended = Job { state, ended: Some(1_050), ..job(1) };
    reports.set_jobs(&[ended], 1_060, relay_ms, |_| Some(&last));
    let [record] = reports.take_finished().try_into().unwrap();
    let gpu = &record.report().gpus[0];
    assert_eq!((gpu.observed_s, gpu.util_pct, gpu.idle_s), (50.0, Some(80.0), Some(0.0)));
    assert_eq!(gpu.energy_kwh, Some(200.0 * 50.0 / 3.6e6));
}

#[test]
fn an_end_in_the_second_of_the_list_leaves_out_what_was_sampled_after_it() {
    // Whether another list had the job since its first sample, or none.
    for list_s in [Some(30), None] {
        ends_in_the_second_of_the_list(list_s);
    }
}

fn ends_in_the_second_of_the_list(list_s: Option<u64>) {
    let mut reports = reports(1);
    let mut history = History::default();
    let mut last = node(0, &[(80, 200)]);
    for second in 0..=60u64 {
        let at_ms = second * 1_000 + 300;
        last = node(at_ms, &[if second < 60 { (80, 200) } else { (0, 50) }]);
        history.push(at_ms, [&last.gpus[0].row].into_iter(), &last.host, 2_500);
        reports.record(&last);
        if Some(second) == list_s {
            reports.set_jobs(&[job(1)], 1_030, relay_ms, |_| None);
        }
    }
    last.history = Some(history);
    let ended = Job { state: JobState::Ended("COMPLETED".into()), ended: Some(1_060), ..job(1) };
    reports.set_jobs(&[ended], 1_060, relay_ms, |_| Some(&last));
    let [record] = reports.take_finished().try_into().unwrap();
    let gpu = &record.report().gpus[0];
    assert_eq!((gpu.util_pct, gpu.idle_s), (Some(80.0), Some(0.0)));
    assert!((58.0..=60.0).contains(&gpu.observed_s), "{}", gpu.observed_s);
}

/// A statement of accounting.
fn accounting(state: &str, ended_s: i64, elapsed_s: u64) -> Accounting {
    Accounting {
        state: state.into(),
        exit_code: 0,
        signal: None,
        step_exit_code: None,
        max_rss_bytes: None,
        ended_s,
        elapsed_s: Some(elapsed_s),
        reason: None,
    }
}

#[test]
fn the_time_for_which_a_job_is_suspended_is_no_run_time() {
    let mut reports = reports(1);
    let list = |reports: &mut JobReports, state, at: u64, suspension| {
        let wall_s = 1_000 + at.cast_signed();
        let job = Job { state, suspension: Some(suspension), ..job(1) };
        reports.set_jobs(&[job], wall_s, relay_ms, |_| None);
    };
    (0..=40).for_each(|second| reports.record(&node(second * 1_000, &[(100, 100)])));
    list(&mut reports, JobState::Suspended, 40, Suspension { at: 1_040, ran_s: 40 });
    (41..=140).for_each(|second| reports.record(&node(second * 1_000, &[(0, 50)])));
    let report = reports.of(JobId(7), 1_140, Until::Now).unwrap().report();
    assert_eq!((report.elapsed_s, report.observed_pct, report.totals.gpu_hours_idle), (40, 100.0, 0.0));
    list(&mut reports, JobState::Running, 140, Suspension { at: 1_140, ran_s: 40 });
    (141..=160).for_each(|second| reports.record(&node(second * 1_000, &[(100, 100)])));
    let report = reports.of(JobId(7), 1_160, Until::Now).unwrap().report();
    assert_eq!((report.elapsed_s, report.observed_pct, report.totals.util_pct), (60, 100.0, Some(100.0)));
    // Of the end, accounting knows more than the list.
    let mut record = reports.of(JobId(7), 1_160, Until::Now).unwrap();
    (record.job.suspension, record.is_final) = (None, true);
    assert_eq!(record.report().elapsed_s, 160);
    record.accounting = Some(accounting("CANCELLED", 1_160, 61));
    assert_eq!(record.report().elapsed_s, 61);
}

/// Observes job 7, in this state at each list, for ten seconds before each.
fn listed(reports: &mut JobReports, lists: std::ops::RangeInclusive<u64>, job: &Job) {
    for list in lists {
        (list * 10 - 9..=list * 10).for_each(|second| reports.record(&node(second * 1_000, &[(80, 200)])));
        reports.set_jobs(std::slice::from_ref(job), 1_000 + (list * 10).cast_signed(), relay_ms, |_| None);
    }
}

#[test]
fn a_job_that_ends_while_it_is_suspended_keeps_what_was_observed_before() {
    let mut reports = reports(1);
    reports.record(&node(0, &[(80, 200)]));
    listed(&mut reports, 1..=3, &job(1));
    let suspension = Some(Suspension { at: 1_035, ran_s: 35 });
    listed(&mut reports, 4..=9, &Job { state: JobState::Suspended, suspension, ..job(1) });
    let report = ended(&mut reports, 1, 1_035);
    assert_eq!((report.elapsed_s, report.gpus[0].observed_s), (35, 30.0));
}

#[test]
fn an_end_before_two_lists_that_have_the_job_is_of_another_clock() {
    let mut reports = reports(1);
    reports.record(&node(0, &[(80, 200)]));
    listed(&mut reports, 1..=9, &job(1));
    let report = ended(&mut reports, 1, 1_005);
    assert_eq!(report.gpus[0].observed_s, 80.0);
}

#[test]
fn a_run_that_is_requeued_while_it_is_suspended_ends_with_the_suspension() {
    let mut reports = reports(1);
    let suspension = Some(Suspension { at: 1_035, ran_s: 35 });
    listed(&mut reports, 1..=9, &Job { state: JobState::Suspended, suspension, ..job(1) });
    reports.set_jobs(&[Job { state: JobState::Pending, start: None, ..job(1) }], 1_100, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    assert_eq!(record.report().elapsed_s, 35);
}

#[test]
fn a_requeued_job_has_a_report_of_each_run() {
    let mut reports = reports(1);
    (0..=10).for_each(|second| reports.record(&node(second * 1_000, &[(100, 100)])));
    // Its nodes are cleaned up when it has run.
    let completing = Job { state: JobState::Completing, ended: Some(1_010), ..job(1) };
    reports.set_jobs(&[completing], 1_011, relay_ms, |_| None);
    reports.set_jobs(&[Job { state: JobState::Pending, start: None, ..job(1) }], 1_040, relay_ms, |_| None);
    let [first] = reports.take_finished().try_into().unwrap();
    assert_eq!((first.job.start, first.job.ended, first.is_final), (Some(1_000), Some(1_010), true));
    assert_eq!(first.report().state.as_str(), "REQUEUED");
    // Accounting knows why, and when exactly.
    let failed = JobRecord { accounting: Some(accounting("NODE_FAIL", 1_008, 8)), ..first };
    assert_eq!((failed.report().state.as_str(), failed.report().ended_s), ("NODE_FAIL", Some(1_008)));
    reports.set_jobs(&[Job { start: Some(1_100), ..job(1) }], 1_100, relay_ms, |_| None);
    assert!(reports.of(JobId(7), 1_100, Until::Now).unwrap().nodes[0].gpus.is_empty());
}

#[test]
fn a_run_that_ended_while_no_relay_ran_does_not_end_as_the_next_one() {
    // Its node failed, it was requeued, and cancelled in its next run or before that.
    let state = JobState::Ended("CANCELLED".into());
    let cancelled = Job { state, start: Some(1_800), ended: Some(1_810), ..job(1) };
    let waited = Job { ended: Some(1_800), nodes: Vec::new(), ..cancelled.clone() };
    let ends_of = |listed: Job| {
        let mut reports = reports(1);
        (0..=10).for_each(|second| reports.record(&node(second * 1_000, &[(100, 100)])));
        reports.set_jobs(&[listed], 1_815, relay_ms, |_| None);
        let finished = reports.take_finished();
        let ends: Vec<_> = finished
            .iter()
            .map(|run| (run.report().state.to_string(), run.job.start, run.job.ended))
            .collect();
        (ends, finished)
    };
    let first = ("REQUEUED".to_owned(), Some(1_000), Some(1_815));
    let second = ("CANCELLED".to_owned(), Some(1_800), Some(1_810));
    assert_eq!(ends_of(cancelled).0, [first.clone(), second]);
    let (ends, mut finished) = ends_of(waited);
    assert_eq!(ends, [first]);
    let first = finished.remove(0);
    let failed = JobRecord { accounting: Some(accounting("NODE_FAIL", 1_485, 485)), ..first };
    let report = failed.report();
    assert_eq!((report.state.as_str(), report.ended_s, report.elapsed_s), ("NODE_FAIL", Some(1_485), 485));
}

#[test]
fn a_run_that_was_requeued_while_no_relay_ran_has_ended() {
    let stored = |state| JobRecord { is_final: false, ..JobRecord::of(Job { state, ..job(1) }, 1_500) };
    let mut reports = JobReports::default();
    reports.restore(vec![stored(JobState::Running)]);
    reports.set_jobs(&[Job { start: Some(2_000), ..job(1) }], 2_010, relay_ms, |_| None);
    let [record] = reports.take_finished().try_into().unwrap();
    let report = record.report();
    assert_eq!((report.state.as_str(), report.is_final, report.elapsed_s), ("REQUEUED", true, 500));

    let mut reports = JobReports::default();
    reports.restore(vec![stored(JobState::Configuring)]);
    reports.set_jobs(&[Job { start: Some(2_000), ..job(1) }], 2_010, relay_ms, |_| None);
    assert!(reports.take_finished().is_empty());
}

#[test]
fn advice_states_numbers_and_the_line_that_would_have_fitted() {
    let observed_from = |from: u64| {
        let mut reports = reports(4);
        for second in from..=3_600 {
            let mut picture = node(second * 1_000, &[(90, 300), (90, 300), (2, 60), (0, 60)]);
            let mut usage = Row::<JobField>::default();
            let mut set =
                |field: JobField, value| usage.set(field, Cell::quantize(field, &Reading::Value(value)));
            set(JobField::Cpu, 350);
            set(JobField::MemUsed, 10 * GIB);
            picture.job_usage.push(JobUsagePicture { job: JobId(7), row: usage });
            reports.record(&picture);
        }
        ended(&mut reports, 4, 1_000 + 3_600)
    };
    let lines = |report: &Report| -> Vec<String> {
        report.advice.iter().map(|advice| advice.sbatch.as_ref().unwrap().to_string()).collect()
    };
    // The rest of the run may have needed more.
    assert_eq!(lines(&observed_from(1_200)), ["#SBATCH --nodes=1 --gpus=2", "#SBATCH --time=01:15:00"]);
    let report = observed_from(0);
    assert_eq!(
        lines(&report),
        [
            "#SBATCH --nodes=1 --gpus=2",
            "#SBATCH --mem=12G",
            "#SBATCH --ntasks=1 --cpus-per-task=4",
            "#SBATCH --time=01:15:00"
        ]
    );
    assert_eq!(report.advice[0].text.as_str(), "2 of 4 GPUs were idle for 95 % of the time or more.");
    let text = text(&report, None, &time);
    assert!(
        text.contains(
            "GPU hours     4 GPU hours were observed: 1.82 used, 2.18 unused (2 idle, 0.18 partly busy)"
        ),
        "{text}"
    );
    assert!(markdown(&report, None, &time).contains("`#SBATCH --mem=12G`"));
}

#[test]
fn a_job_that_was_killed_at_its_memory_limit_is_advised_to_request_more_however_short_it_was() {
    let mut reports = reports(1);
    reports.record(&node(1_000, &[(90, 300)]));
    let short = ended(&mut reports, 1, 1_100);
    let killed = |state: &str, oom_kills| {
        let mut report = Report { state: state.into(), node_count: 2, ..short.clone() };
        report.totals.mem_requested_bytes = Some(2 * (100 << 30));
        report.totals.oom_kills = oom_kills;
        advice::of(&report, &[]).into_iter().next()
    };
    let advised = killed("OUT_OF_MEMORY", None).unwrap();
    assert_eq!(advised.sbatch.unwrap().as_str(), "#SBATCH --mem=150G");
    assert!(advised.text.as_str().contains("100 GiB of memory per node"), "{}", advised.text);
    assert!(killed("FAILED", Some(2)).is_some() && killed("FAILED", Some(0)).is_none());
}

#[test]
fn a_job_that_used_what_it_was_given_gets_no_advice() {
    let mut reports = reports(1);
    (0..=80_000).step_by(2).for_each(|second| reports.record(&node(second * 1_000, &[(90, 300)])));
    assert_eq!(ended(&mut reports, 1, 1_000 + 80_000).advice, []);
}

#[test]
fn the_application_is_that_of_the_jobs_own_processes() {
    let mut reports = reports(1);
    let mut picture = node(0, &[(1, 1)]);
    for (job, args) in [(Some(JobId(7)), "python -m torch.distributed.run x.py"), (None, "vllm serve")] {
        let facts = ProcessFacts::new(GpuUuid::new("GPU-0"), 1, ProcessKind::default());
        let facts = ProcessFacts { job, args: Reading::Value(args.into()), ..facts };
        picture.processes.push(ProcessPicture { facts, row: Row::default() });
    }
    reports.detect(&picture);
    assert_eq!(reports.of(JobId(7), 1_000, Until::Now).unwrap().application.as_deref(), Some("PyTorch"));
}

#[test]
fn a_report_states_when_each_note_was_made_and_leaves_out_those_of_an_earlier_job() {
    let mut record = reports(1).running(1_060).remove(0);
    record.job.submitted = Some(900);
    let note = |at_ms, text: &str, rank| Note {
        id: NoteId::from_bits(at_ms),
        job: Some(record.job.id),
        node: None,
        rank,
        at_ms,
        text: text.into(),
        source: NoteSource::Job,
    };
    let notes = vec![
        note(4_900_000, "epoch | 2", None),
        note(1_005_000, "epoch 1", Some(3)),
        note(899_999, "of a job with the same number", None),
    ];
    let report = record.report_with(notes);
    let text = text(&report, None, &time);
    assert!(
        text.ends_with(
            "\nNotes\n        at 1005, after 5 s  epoch 1 (rank 3)\n  at 4900, after 1 h 5 min  epoch | 2\n"
        ),
        "{text}"
    );
    let markdown = markdown(&report, None, &time);
    assert!(markdown.ends_with(
        "### Notes\n\n* at 1005, after 5 s: epoch 1 (rank 3)\n* at 4900, after 1 h 5 min: epoch \\| 2\n"
    ));
    assert!(!report.lacks_notes);
    let unread = record.report_with(ReportNotes::default());
    assert!(unread.lacks_notes && super::text(&unread, None, &time).ends_with("\n\nNotes may be missing.\n"));
    let full: Vec<_> = (0..MAX_PER_JOB as u64).map(|at| note(1_000_000 + at, "x", None)).collect();
    assert!(record.report_with(full).lacks_notes, "further ones were refused");
}

fn finding(key: &str, since_ms: u64, ended_ms: Option<u64>) -> Finding {
    Finding {
        key: key.into(),
        kind: FindingKind::Straggler,
        severity: nodeglass_protocol::finding::FindingSeverity::Warning,
        confidence_pct: 95,
        jobs: vec![JobId(7)],
        nodes: vec![node_name()],
        gpus: Vec::new(),
        title: "Rank 3 runs 12 % slower than its peers".into(),
        reason: "slow".into(),
        evidence: Vec::new(),
        advice: "x".into(),
        since_ms,
        or_earlier: false,
        found_ms: since_ms,
        ended_ms,
        silenced_until_ms: None,
        wasted_gpus: 0,
        capture: None,
        wasted_before: None,
    }
}

#[test]
fn what_was_found_during_the_run_is_in_the_report_with_its_end() {
    let mut reports = reports(2);
    reports.record_findings(&[finding("a", 1_060_000, None)]);
    reports.record_findings(&[finding("a", 1_060_000, Some(1_120_000)), finding("b", 1_200_000, None)]);
    let mut other = finding("c", 1_200_000, None);
    other.jobs = vec![JobId(8)];
    reports.record_findings(&[other]);
    let report = ended(&mut reports, 2, 1_600);
    let found: Vec<_> =
        report.findings.iter().map(|finding| (finding.key.as_str(), finding.ended_ms)).collect();
    assert_eq!(found, [("a", Some(1_120_000)), ("b", Some(1_600_000))], "what lasted ends with the job");
    let text = text(&report, None, &time);
    assert!(text.contains("Findings\n"), "{text}");
    assert!(text.contains("after 1 min  Rank 3 runs 12 % slower than its peers, for 1 min"), "{text}");
    assert!(markdown(&report, None, &time).contains("### Findings"));
}

#[test]
fn an_event_has_no_duration() {
    let mut reports = reports(2);
    let xid = Finding { kind: FindingKind::Xid, title: "Xid 31".into(), ..finding("a", 1_060_000, None) };
    reports.record_findings(&[xid]);
    let text = text(&ended(&mut reports, 2, 1_600), None, &time);
    assert!(text.contains("after 1 min  Xid 31\n"), "{text}");
}

#[test]
fn what_ended_before_the_run_is_of_an_earlier_one() {
    let mut reports = reports(2);
    let [earlier, overlapping] =
        [("a", 990_000), ("b", 1_010_000)].map(|(key, ended_ms)| finding(key, 900_000, Some(ended_ms)));
    reports.record_findings(&[earlier, overlapping]);
    assert_eq!(ended(&mut reports, 2, 2_600).findings.len(), 1);
}

#[test]
fn an_event_that_occurred_before_states_how_often() {
    let mut reports = reports(2);
    let xid = Finding { kind: FindingKind::Xid, title: "Xid 31".into(), ..finding("a", 1_060_000, None) };
    let evidence = vec!["2 times within 14 min".into()];
    reports.record_findings(std::slice::from_ref(&xid));
    reports.record_findings(&[Finding { since_ms: 1_900_000, evidence, ..xid }]);
    let text = text(&ended(&mut reports, 2, 2_600), None, &time);
    assert!(text.contains("after 15 min  Xid 31, 2 times within 14 min\n"), "{text}");
}

#[test]
fn a_hang_takes_of_the_used_hours_what_was_observed_of_it() {
    let mut reports = reports(2);
    // The relay starts ten minutes after the job, while it hangs.
    for second in 600..=1_800u64 {
        reports.record(&node(second * 1_000, &[(100, 400), (100, 400)]));
    }
    let kind = FindingKind::CollectiveHang;
    let hang = Finding { kind, wasted_gpus: 2, ..finding("h", 1_300_000, Some(1_900_000)) };
    reports.record_findings(&[hang]);
    let hours = |report: &Report| (report.totals.gpu_hours_hung, report.totals.gpu_hours_used);
    let expected = (2.0 * 300.0 / 3_600.0, 2.0 * 900.0 / 3_600.0);
    let is_expected = |(hung, used): (f64, f64)| (hung - expected.0).abs() + (used - expected.1).abs() < 1e-6;
    reports.set_jobs(&[job(2)], 2_800, relay_ms, |_| None);
    let running = reports.of(JobId(7), 2_800, Until::Now).unwrap();
    assert!(is_expected(hours(&running.clone().report())), "{:?}", hours(&running.report()));

    let stored = reports.of(JobId(7), 2_800, Until::Now).unwrap();
    let mut second = super::JobReports::default();
    second.restore(vec![stored]);
    second.set_jobs(&[job(2)], 2_900, relay_ms, |_| None);
    let report = ended(&mut second, 2, 2_900);
    assert!(is_expected(hours(&report)), "{:?}", hours(&report));
}

#[test]
fn what_slow_gpus_cost_is_stated_as_a_part_of_the_used_hours_and_a_hang_is_not_counted_again() {
    let mut reports = reports(4);
    for second in 0..=3_600u64 {
        reports.record(&node(second * 1_000, &[(100, 400), (100, 400), (100, 400), (60, 300)]));
    }
    let slow = Finding { wasted_gpus: 2, ..finding("s", 1_600_000, Some(3_400_000)) };
    let kind = FindingKind::CollectiveHang;
    // For ten minutes of the half hour in which three GPUs wait for the fourth, the job hangs.
    let hang = Finding { kind, wasted_gpus: 4, ..finding("h", 2_800_000, Some(3_400_000)) };
    let stated_hours = slow.wasted_gpu_hours(0);
    reports.record_findings(std::slice::from_ref(&slow));
    let alone = reports.of(JobId(7), 4_600, Until::Now).unwrap().report().totals;
    assert_eq!((alone.gpu_hours_slowed, stated_hours), (1.0, 1.0), "as the finding states");
    reports.record_findings(&[hang]);
    let report = ended(&mut reports, 4, 4_600);
    let totals = &report.totals;
    let close = |hours: f64, expected: f64| (hours - expected).abs() < 1e-9;
    assert!(close(totals.gpu_hours_slowed, 2.0 * 1_200.0 / 3_600.0), "{totals:?}");
    assert!(close(totals.gpu_hours_hung, 4.0 * 600.0 / 3_600.0), "{totals:?}");
    assert!(close(totals.gpu_hours_used, 3.6 - totals.gpu_hours_hung), "{totals:?}");
    assert!(close(totals.gpu_hours_used + totals.gpu_hours_unused, totals.gpu_hours_allocated), "{totals:?}");
    let expected =
        "2.93 used (0.67 of them lost to slow GPUs), 1.07 unused (0.67 lost to hangs, 0.4 partly busy)";
    for text in [text(&report, None, &time), markdown(&report, None, &time)] {
        assert!(text.contains(expected), "{text}");
    }
    let newer =
        Report { job: JobId(8), start_s: report.start_s.map(|start_s| start_s + 1), ..report.clone() };
    let usage = usage(&[report.clone(), newer], 30, |_| 0);
    assert_eq!(
        usage.jobs.iter().map(|job| job.job).collect::<Vec<_>>(),
        [JobId(8), JobId(7)],
        "newest first"
    );
    assert!(close(usage.total.gpu_hours_slowed, 2.0 * totals.gpu_hours_slowed));
    assert!(close(usage.jobs[0].gpu_hours_slowed, totals.gpu_hours_slowed));
    // It is never more than what was used.
    let costly = Finding { wasted_gpus: 400, ..slow };
    let record = JobRecord { findings: vec![costly], ..reports_of_an_idle_job() };
    assert_eq!(record.report().totals.gpu_hours_slowed, 0.0);
}

#[test]
fn jobs_are_summed_by_the_weeks_of_the_time_zone() {
    // Sunday 25 October 2026, 23:30 UTC.
    let start_s = 1_792_971_000;
    let report = Report { start_s: Some(start_s), ..reports_of_an_idle_job().report() };
    let monday_s = |offset_h: i64| {
        let usage = usage(std::slice::from_ref(&report), 30, |_| offset_h * 3_600);
        usage.weeks.iter().map(|week| week.monday_s).collect::<Vec<_>>()
    };
    let next_monday_s = start_s + 1_800;
    assert_eq!(monday_s(0), [next_monday_s - 7 * 86_400]);
    // There it was Monday already, and it had begun an hour before.
    assert_eq!(monday_s(1), [next_monday_s - 3_600]);
    assert_eq!(monday_s(-8), [next_monday_s - 7 * 86_400 + 8 * 3_600]);
}

/// The record of an hour in which two GPUs did nothing.
fn reports_of_an_idle_job() -> JobRecord {
    let mut reports = reports(2);
    (0..=3_600u64).for_each(|second| reports.record(&node(second * 1_000, &[(0, 60), (0, 60)])));
    reports.of(JobId(7), 4_600, Until::Now).unwrap()
}

#[test]
fn findings_survive_a_restart_of_the_relay() {
    let mut first = reports(2);
    first.record_findings(&[finding("a", 1_060_000, Some(1_120_000)), finding("b", 1_200_000, None)]);
    let record = first.of(JobId(7), 1_300, Until::Now).unwrap();
    let mut second = reports(2);
    second.restore(vec![record]);
    second.record_findings(&[finding("b", 1_200_000, None)]);
    let record = second.of(JobId(7), 1_400, Until::Now).unwrap();
    let found: Vec<_> =
        record.findings.iter().map(|finding| (finding.key.as_str(), finding.ended_ms)).collect();
    assert_eq!(found, [("a", Some(1_120_000)), ("b", None)]);
    let mut third = reports(2);
    third.restore(vec![record]);
    let record = third.of(JobId(7), 1_500, Until::Now).unwrap();
    assert_eq!(record.findings[1].ended_ms, Some(1_400_000), "it was not found again");
}

#[test]
fn t09_a_guest_sees_of_findings_those_of_the_jobs_work_alone() {
    let mut reports = reports(2);
    let node = Finding { kind: FindingKind::HostMemory, ..finding("n", 1_060_000, None) };
    let both = Finding { jobs: vec![JobId(7), JobId(8)], ..finding("s", 1_060_000, None) };
    let capture = Some(Box::new(FindingCapture { at_ms: 1_060_500, ..FindingCapture::default() }));
    reports.record_findings(&[Finding { capture, ..finding("a", 1_060_000, None) }, node, both]);
    // Lines of logs, and progress that follows from them.
    let log = Finding { kind: FindingKind::LogMessage, ..finding("l", 1_060_000, None) };
    let slow = Finding { kind: FindingKind::TimeLimit, ..finding("t", 1_060_000, None) };
    let evidence = vec!["RuntimeError: secret".into()];
    let failed = Finding { kind: FindingKind::Failed, evidence, ..finding("z", 1_060_000, None) };
    reports.record_findings(&[log, slow, failed]);
    let record = reports.of(JobId(7), 1_300, Until::Now).unwrap();
    assert_eq!(record.findings.len(), 6);
    assert!(record.findings.iter().any(|finding| finding.capture.is_some()));
    let guest = record.for_guest(job(2)).unwrap();
    assert_eq!(guest.findings.iter().map(|finding| finding.key.as_str()).collect::<Vec<_>>(), ["a", "z"]);
    assert_eq!(guest.findings[0].capture, None);
    assert!(guest.findings[1].evidence.is_empty());
}
