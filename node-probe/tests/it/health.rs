//! Health is sent when it changes: memory errors, the PCIe link, and each NVLink.

use crate::harness::Node;
use nodeglass_protocol::Reading::{self, Failed, Unsupported, Value};
use nodeglass_protocol::gpu::{Vgpu, VgpuLicense, Virtualization};
use nodeglass_protocol::probe::{GpuHealth, ProbeLine};
use serde_json::json;

#[test]
fn every_health_reading_follows_the_driver() {
    let state = |gpu| json!({"driver": "580.90.07", "gpus": [gpu]});
    let node = Node::new(&state(json!({"card": "h100"})));
    let mut probe = node.start(&[]);
    let well = probe.health(|_| true).gpus.remove(0);
    assert_eq!(
        (&well.remapped_uncorrected, &well.remap_pending, &well.pcie_replays),
        (&Value(0), &Value(false), &Value(0))
    );
    node.set(&state(json!({
        "card": "h100", "ecc": {"aggregate_corrected": 40, "aggregate_uncorrected": 5},
        "remapped": {"corrected": 2, "uncorrected": 3, "pending": true, "failed": true},
        "pcie": {"generation": [3, 5, 5], "width": [8, 16], "replays": [12, 0], "bar1_mib": [65536, 7]},
        "nvlink": {
            "links": 4, "down": [2], "rx_kib_s": 3_072_000, "tx_kib_s": 1_536_000,
            "errors": [[1, 2, 3, 4, 0], [0, 0, 0, 0, 0], [9, 0, 0, 0, 0]],
        },
    })));
    probe.health(|report| report.gpus[0].nvlinks.len() == 4);
    let ill = probe
        .health(|report| report.gpus[0].nvlinks[0].rx_mib_s.value().is_some_and(|rate| *rate > 900))
        .gpus
        .remove(0);
    let wanted = GpuHealth {
        ecc_life_corrected: Value(40),
        ecc_life_uncorrected: Value(5),
        retired_corrected: Unsupported,
        retired_uncorrected: Unsupported,
        retired_pending: Unsupported,
        remapped_corrected: Value(2),
        remapped_uncorrected: Value(3),
        remap_pending: Value(true),
        remap_failed: Value(true),
        pcie_gen: Value(3),
        pcie_width: Value(8),
        pcie_replays: Value(12),
        bar1_used_bytes: Value(7 << 20),
        bar1_total_bytes: Value(65_536 << 20),
        nvlinks: ill.nvlinks.clone(),
        vgpus: Vec::new(),
        license: VgpuLicense::unsupported(),
    };
    assert_eq!(ill, wanted);
    let links: Vec<_> = ill.nvlinks.iter().map(|link| (link.link, &link.up, &link.errors)).collect();
    let (up, down) = (Value(true), Value(false));
    assert_eq!(
        links,
        [(0, &up, &Value(10)), (1, &up, &Value(0)), (2, &down, &Value(9)), (3, &up, &Value(0))]
    );
    let first = &ill.nvlinks[0];
    assert_eq!((&first.version, &first.remote), (&Value(4), &Value("switch".into())));
    let near =
        |reading: &Reading<u64>, rate: u64| reading.value().is_some_and(|it| it.abs_diff(rate) < rate / 4);
    assert!(near(&first.rx_mib_s, 1_000) && near(&first.tx_mib_s, 500), "{first:?}");
    assert_eq!((&ill.nvlinks[2].rx_mib_s, &ill.nvlinks[2].tx_mib_s), (&Unsupported, &Unsupported));
}

#[test]
fn gpus_before_ampere_report_retired_pages() {
    let retired = json!({"single_bit": [4096, 8192], "double_bit": [65536], "pending": [true, false]});
    let node = Node::new(&json!({"gpus": [{"card": "t4", "retired": retired}]}));
    let health = node.start(&[]).health(|_| true).gpus.remove(0);
    assert_eq!((health.retired_corrected, health.retired_uncorrected), (Value(2), Value(1)));
    assert_eq!((health.retired_pending, health.remapped_corrected), (Value(true), Unsupported));
    assert!(health.nvlinks.is_empty());
}

#[test]
fn a_link_reports_its_remote_gpu() {
    let nvlink = json!({"remote": "gpu", "links": 2});
    let node = Node::new(&json!({"gpus": [{"nvlink": nvlink}, {"nvlink": nvlink, "bus": 0x4f}]}));
    let health = node.start(&[]).health(|_| true);
    assert_eq!(health.gpus[0].nvlinks[0].remote, Value("GPU 00000000:4F:00.0".into()));
    assert_eq!(health.gpus[0].nvlinks[0].version, Value(3));
}

#[test]
fn a_lost_gpu_is_not_reported_as_healthy() {
    let node = Node::new(&json!({"gpus": [{"lost": true}, {"lost_at_enumeration": true}, {}]}));
    let health = node.start(&[]).health(|_| true);
    for gpu in &health.gpus[..2] {
        assert_eq!(gpu.remap_failed, Failed("GPU is lost".into()));
        assert_eq!(gpu.ecc_life_uncorrected, Failed("GPU is lost".into()));
    }
    assert_eq!(health.gpus[2].remap_failed, Value(false));
}

#[test]
fn health_that_does_not_change_is_not_sent_again() {
    let node = Node::new(&json!({"gpus": [{"card": "t4"}]}));
    let mut probe = node.start(&[]);
    probe.health(|_| true);
    let (mut samples, mut reports) = (0, 0);
    while samples < 6 {
        match probe.line() {
            ProbeLine::Sample(_) => samples += 1,
            ProbeLine::Health(_) => reports += 1,
            _ => {}
        }
    }
    assert_eq!(reports, 0);
}

#[test]
fn the_vgpus_of_a_host_have_their_machines_memory_and_license() {
    let vgpu = |vm: &str, used_mib, licensed| json!({"vm": vm, "profile": "GRID A100-10C", "mem_used_mib": used_mib, "mem_total_mib": 10_240, "licensed": licensed});
    let state = |vgpus: serde_json::Value| json!({"driver": "550.54.15", "gpus": [{"vgpus": vgpus}, {}]});
    let node = Node::new(&state(json!([vgpu("vm-a", 2_048, true), vgpu("vm-b", 99_999, false)])));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|hello| hello.gpus.len() == 2);
    let modes: Vec<_> = hello.gpus.iter().map(|gpu| gpu.virtualization.clone()).collect();
    assert_eq!(modes, [Value(Virtualization::VgpuHost), Value(Virtualization::None)]);
    let health = probe.health(|report| !report.gpus[0].vgpus.is_empty());
    let expected = |vm: &str, used, is_licensed| Vgpu {
        vm: Value(vm.into()),
        profile: Value("GRID A100-10C".into()),
        mem_used_bytes: used,
        mem_total_bytes: Value(10 << 30),
        is_licensed: Value(is_licensed),
    };
    let absurd = Failed("NVML reported 104856551424 of 10737418240 bytes".into());
    assert_eq!(
        health.gpus[0].vgpus,
        [expected("vm-a", Value(2 << 30), true), expected("vm-b", absurd, false)]
    );
    assert_eq!(health.gpus[1].vgpus, []);
    node.set(&state(json!([vgpu("vm-c", 1_024, true)])));
    let health = probe.health(|report| report.gpus[0].vgpus.len() == 1);
    assert_eq!(health.gpus[0].vgpus[0], expected("vm-c", Value(1 << 30), true));
}

#[test]
fn a_guest_states_the_license_of_the_product_in_use() {
    let state = |license: serde_json::Value| {
        let guest = json!({"board": {"virtualization": 2}, "license": license});
        json!({"driver": "550.54.15", "gpus": [guest, {}]})
    };
    let node = Node::new(&state(json!({"expires": [2026, 12, 31, 13, 5, 0]})));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|hello| hello.gpus.len() == 2);
    assert_eq!(hello.gpus[0].virtualization, Value(Virtualization::VgpuGuest));
    let health = probe.health(|report| report.gpus.len() == 2);
    let license = |is_licensed, expires: Option<&str>| {
        let expires = expires.map_or(Unsupported, |expires| Value(expires.into()));
        let product = Value("NVIDIA Virtual Compute Server".into());
        VgpuLicense { is_licensed: Value(is_licensed), product, expires }
    };
    assert_eq!(health.gpus[0].license, license(true, Some("2026-12-31 13:05:00")));
    assert_eq!(health.gpus[1].license.is_licensed, Unsupported, "a driver without licenses");
    node.set(&state(json!({"licensed": false})));
    probe.health(|report| report.gpus[0].license == license(false, None));
}
