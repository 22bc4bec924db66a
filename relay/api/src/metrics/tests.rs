//! Metrics of a snapshot.

use super::*;
use crate::ConnectionLosses;
use crate::fixtures::finding;
use crate::tests::picture;
use crate::{ConnectionState, UnstoredRecords};
use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind};
use nodeglass_protocol::insight::{JobInsight, JobProgress, ProgressEnd};
use nodeglass_protocol::{Cell, Field, GpuField, JobId, Reading, Vendor};

fn snapshot(change: impl FnOnce(&mut nodeglass_protocol::Picture)) -> Snapshot {
    let mut picture = picture();
    for gpu in &mut picture.nodes[0].gpus {
        gpu.facts.vendor = Vendor::Nvidia;
    }
    change(&mut picture);
    Snapshot::new(&picture, 0)
}

fn text(snapshot: &Snapshot, relay: &RelayMetrics, collectors: &[Collector]) -> String {
    let mut text = Vec::new();
    write(snapshot, relay, collectors, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn all(snapshot: &Snapshot) -> String {
    text(snapshot, &RelayMetrics::default(), &Collector::ALL)
}

#[test]
fn a_gpu_of_nvidia_has_the_names_of_dcgm_and_others_have_ours() {
    let nvidia = all(&snapshot(|_| ()));
    let labels = "{job=\"17\",user=\"alice\",node=\"n1\",gpu=\"0\",uuid=\"GPU-0\"}";
    assert!(nvidia.contains(&format!("DCGM_FI_DEV_GPU_UTIL{labels} 90\n")), "{nvidia}");
    assert!(
        nvidia.contains("DCGM_FI_DEV_POWER_USAGE{node=\"n1\",gpu=\"1\",uuid=\"GPU-1\"} 300\n"),
        "{nvidia}"
    );
    assert!(!nvidia.contains("nodeglass_gpu_power_watts"));
    let amd = all(&snapshot(|picture| {
        picture.nodes[0].gpus.iter_mut().for_each(|gpu| gpu.facts.vendor = Vendor::Amd);
    }));
    assert!(amd.contains(&format!("nodeglass_gpu_util_ratio{labels} 0.9\n")), "{amd}");
    assert!(!amd.contains("DCGM_FI_DEV_GPU_UTIL"), "{amd}");
}

#[test]
fn what_is_not_known_has_no_sample_and_a_silent_node_no_readings() {
    let live = all(&snapshot(|_| ()));
    assert!(!live.contains("DCGM_FI_DEV_FB_RESERVED"), "{live}");
    assert!(live.contains("DCGM_FI_DEV_XID_ERRORS"), "{live}");
    let silent = snapshot(|picture| picture.nodes[0].head.link = nodeglass_protocol::picture::Link::Silent);
    assert_eq!(silent.nodes[0].connection, ConnectionState::Silent);
    let silent = all(&silent);
    assert!(!silent.contains("DCGM_") && !silent.contains("nodeglass_process"), "{silent}");
    assert!(silent.contains("nodeglass_node_up{node=\"n1\"} 0\n"), "{silent}");
    assert!(
        silent.contains("nodeglass_gpu_up{")
            && silent.contains("nodeglass_relay_nodes{state=\"silent\"} 1\n")
    );
}

#[test]
fn free_memory_is_unknown_where_the_reserved_amount_is() {
    let free = |reserved: Cell| {
        let snapshot = snapshot(|picture| {
            let row = &mut picture.nodes[0].gpus[0].row;
            row.set(GpuField::MemTotal, GpuField::MemTotal.cell(&Reading::Value(8 << 30)));
            row.set(GpuField::MemUsed, GpuField::MemUsed.cell(&Reading::Value(3 << 30)));
            row.set(GpuField::MemReserved, reserved);
        });
        dcgm::free_mib(&snapshot.gpus[0])
    };
    assert_eq!(free(GpuField::MemReserved.cell(&Reading::Value(1 << 30))), Some(4_096.0));
    assert_eq!(
        (free(Cell::UNSUPPORTED), free(Cell::FAILED), free(Cell::NOT_YET)),
        (Some(5_120.0), None, None)
    );
}

#[test]
fn series_of_a_job_end_with_it() {
    let ended = all(&snapshot(|picture| {
        let job = &mut picture.jobs[0];
        job.state = nodeglass_protocol::job::JobState::Ended("COMPLETED".into());
        job.ended = Some(1);
    }));
    assert!(all(&snapshot(|_| ())).contains("nodeglass_job_info{job=\"17\""));
    assert!(!ended.contains("nodeglass_job_info"), "{ended}");
}

#[test]
fn a_job_has_the_progress_that_its_log_states_and_its_latest_end() {
    let progress = all(&snapshot(|picture| {
        let end = ProgressEnd { earliest_at_ms: 9_000, latest_at_ms: 10_000 };
        let progress = JobProgress {
            label: "epoch".into(),
            done: 3.0,
            total: Some(10.0),
            epoch: None,
            rate_per_s: Some(1.0),
            advanced_at_ms: 2_000,
            end: Some(end),
            part_end: None,
        };
        picture.insights = vec![JobInsight { job: JobId(17), progress: Some(progress), bottleneck: None }];
    }));
    let labels = "{job=\"17\",user=\"alice\"}";
    assert!(progress.contains(&format!("nodeglass_job_progress_ratio{labels} 0.3\n")), "{progress}");
    let end = format!("nodeglass_job_expected_end_timestamp_seconds{labels} 10\n");
    assert!(progress.contains(&end), "{progress}");
    assert!(!all(&snapshot(|_| ())).contains("nodeglass_job_progress_ratio{"));
}

#[test]
fn collectors_are_selected_by_name() {
    let only = text(&snapshot(|_| ()), &RelayMetrics::default(), &[Collector::Relay]);
    assert!(
        only.contains("nodeglass_build_info") && !only.contains("DCGM") && !only.contains("nodeglass_job")
    );
    for collector in Collector::ALL {
        assert_eq!(Collector::from_name(collector.name()), Some(collector));
    }
    assert_eq!(Collector::from_name("gpus"), None);
}

#[test]
fn probes_state_what_they_use_beside_the_relay() {
    let probe = |node: &str, job| ProbeStatus { node: node.into(), job, cpu_ms: 5_210, rss_bytes: 9 << 20 };
    let relay =
        RelayMetrics { probes: vec![probe("n1", None), probe("n1", Some(17))], ..RelayMetrics::default() };
    let text = text(&snapshot(|_| ()), &relay, &[Collector::Relay]);
    assert!(text.contains("nodeglass_probe_cpu_seconds_total{node=\"n1\"} 5.21\n"), "{text}");
    assert!(
        text.contains("nodeglass_probe_resident_memory_bytes{node=\"n1\",job=\"17\"} 9437184\n"),
        "{text}"
    );
}

#[test]
fn losses_are_counted_by_node_and_by_part() {
    let of = |node: &str, job| ConnectionLosses {
        node: node.into(),
        job,
        attempts: 3,
        unreadable_lines: 2,
        lost_samples: 7,
    };
    let unstored = UnstoredRecords { history: 4, audit: 5, ..UnstoredRecords::default() };
    let losses = Losses { connections: vec![of("n1", None), of("n1", Some(17))], unstored };
    let text =
        text(&snapshot(|_| ()), &RelayMetrics { losses, ..RelayMetrics::default() }, &[Collector::Relay]);
    for line in [
        "nodeglass_node_connection_attempts_total{node=\"n1\"} 3\n",
        "nodeglass_node_unreadable_lines_total{node=\"n1\",job=\"17\"} 2\n",
        "nodeglass_node_lost_samples_total{node=\"n1\"} 7\n",
        "nodeglass_relay_unstored_records_total{part=\"history\"} 4\n",
        "nodeglass_relay_unstored_records_total{part=\"audit\"} 5\n",
        "nodeglass_relay_unstored_records_total{part=\"jobs\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// dcgm-exporter has one meaning per name, and so have we.
#[test]
fn no_two_readings_have_one_name() {
    let mut names: Vec<_> = GpuField::ALL.iter().filter_map(|field| Some(dcgm::of(*field)?.name)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_finding_has_a_series_for_each_gpu_and_one_more_while_it_is_silenced() {
    let found = |silenced_until_ms| {
        all(&snapshot(|picture| {
            let gpus: Vec<_> = picture.nodes[0].gpus.iter().map(|gpu| gpu.facts.uuid.clone()).collect();
            let node = picture.nodes[0].name.clone();
            let gpus = gpus.into_iter().map(|uuid| FindingGpu { node: node.clone(), uuid, metric: None });
            picture.findings = vec![Finding {
                kind: FindingKind::CollectiveHang,
                jobs: vec![JobId(17)],
                gpus: gpus.collect(),
                silenced_until_ms,
                ..finding("a")
            }];
        }))
    };
    let text = found(None);
    for uuid in ["GPU-0", "GPU-1"] {
        let labels = format!(
            "{{kind=\"collective_hang\",severity=\"warning\",job=\"17\",user=\"alice\",node=\"n1\",uuid=\"{uuid}\"}}"
        );
        assert!(text.contains(&format!("nodeglass_finding{labels} 1\n")), "{text}");
        assert!(!text.contains("nodeglass_finding_silenced{"), "{text}");
        assert!(found(Some(9_000)).contains(&format!("nodeglass_finding_silenced{labels} 1\n")));
    }
}

#[test]
fn a_finding_without_gpus_has_a_series_for_each_node_or_job() {
    let text = all(&snapshot(|picture| {
        let nodes = vec![picture.nodes[0].name.clone(), nodeglass_protocol::NodeName::new("n9").unwrap()];
        let of = |kind, nodes| Finding { kind, nodes, gpus: Vec::new(), ..finding("a") };
        picture.findings = vec![
            Finding { jobs: vec![JobId(17), JobId(18)], ..of(FindingKind::NodeUnreachable, nodes) },
            of(FindingKind::PendingForever, Vec::new()),
        ];
    }));
    for labels in [
        "kind=\"node_unreachable\",severity=\"warning\",job=\"17\",user=\"alice\",node=\"n1\"",
        "kind=\"node_unreachable\",severity=\"warning\",node=\"n9\"",
        "kind=\"pending_forever\",severity=\"warning\",job=\"17\",user=\"alice\"",
    ] {
        assert!(text.contains(&format!("nodeglass_finding{{{labels}}} 1\n")), "{text}");
    }
}

#[test]
fn notices_are_counted_by_channel_and_outcome() {
    let status = ChannelStatus { channel: "webhook".into(), delivered: 4, failed: 1, dropped: 0 };
    let relay = RelayMetrics { notifications: vec![status], ..RelayMetrics::default() };
    let text = text(&snapshot(|_| ()), &relay, &[Collector::Relay]);
    let sample = |outcome: &str, count| {
        format!("nodeglass_notifications_total{{channel=\"webhook\",outcome=\"{outcome}\"}} {count}\n")
    };
    for (outcome, count) in [("delivered", 4), ("failed", 1), ("dropped", 0)] {
        assert!(text.contains(&sample(outcome, count)), "{text}");
    }
}

#[test]
fn every_series_names_the_cluster() {
    let relay = RelayMetrics { cluster: "hpc".into(), nats_connected: Some(true), ..RelayMetrics::default() };
    let text = text(&snapshot(|_| ()), &relay, &Collector::ALL);
    assert!(text.contains("nodeglass_relay_nats_up{cluster=\"hpc\",part=\"connection\"} 1\n"), "{text}");
    for sample in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(sample.contains("{cluster=\"hpc\""), "{sample}");
    }
}
