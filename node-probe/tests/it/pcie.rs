//! PCIe throughput uses the best source of each GPU, and never a counter that may have overflowed.

use crate::harness::Node;
use nodeglass_protocol::Reading::{self, Failed, NotYet, Unsupported, Value};
use nodeglass_protocol::probe::{GpuSample, Sample};
use serde_json::{Value as Json, json};

/// A driver that has the byte counters (fields 197 and 198).
const DRIVER: &str = "580.90.07";

fn with(gpu: Json) -> Node {
    Node::new(&json!({"driver": DRIVER, "gpus": [gpu]}))
}

/// A sample in which every rate is known.
fn settled(node: &Node) -> GpuSample {
    node.start(&[]).sample(|sample| sample.seq > 3 && !sample.gpus.is_empty()).gpus.remove(0)
}

fn is_near(reading: &Reading<u64>, rate: u64) -> bool {
    reading.value().is_some_and(|it| it.abs_diff(rate) < rate / 4)
}

#[test]
fn rates_beyond_the_counter_range_are_measured_correctly() {
    // 12 and 25 GB/s: the counter alone would yield these values modulo 2^32.
    let pcie = json!({"tx_kib_s": 11_718_750, "rx_kib_s": 24_414_062});
    let gpu = settled(&with(json!({"card": "a100-80g", "pcie": pcie})));
    assert!(is_near(&gpu.pcie_tx_bytes_s, 12_000_000_000), "{:?}", gpu.pcie_tx_bytes_s);
    assert!(is_near(&gpu.pcie_rx_bytes_s, 25_000_000_000), "{:?}", gpu.pcie_rx_bytes_s);
}

#[test]
fn an_ambiguous_counter_without_an_alternative_is_reported() {
    let pcie = json!({"tx_kib_s": 11_718_750, "rx_kib_s": 1});
    let gpu = settled(&with(
        json!({"card": "a100-80g", "pcie": pcie, "errors": {"nvmlDeviceGetPcieThroughput": 3}}),
    ));
    let why = Failed("the card's PCIe counter wraps faster than it is read".into());
    assert_eq!((&gpu.pcie_tx_bytes_s, &gpu.pcie_rx_bytes_s), (&why, &why));
}

#[test]
fn the_counter_of_a_slow_link_is_used_without_a_measurement() {
    let pcie = json!({"generation": [1, 1, 1], "width": [4, 4], "tx_kib_s": 200_000, "rx_kib_s": 100_000});
    let gpu =
        settled(&with(json!({"card": "t4", "pcie": pcie, "numbers": {"nvmlDeviceGetPcieThroughput": 1}})));
    assert!(
        is_near(&gpu.pcie_tx_bytes_s, 204_800_000) && is_near(&gpu.pcie_rx_bytes_s, 102_400_000),
        "{gpu:?}"
    );
}

#[test]
fn a_gpu_without_the_counter_is_measured() {
    let pcie = json!({"tx_kib_s": 2_000_000, "rx_kib_s": 1_000_000, "counted": null});
    for card in ["a100-80g", "t4"] {
        let gpu = settled(&with(json!({"card": card, "pcie": pcie})));
        assert_eq!(gpu.pcie_tx_bytes_s, Value(2_048_000_000), "{card}");
        assert_eq!(gpu.pcie_rx_bytes_s, Value(1_024_000_000), "{card}");
    }
    let neither = json!({"card": "t4", "pcie": pcie, "errors": {"nvmlDeviceGetPcieThroughput": 3}});
    assert_eq!(settled(&with(neither)).pcie_tx_bytes_s, Unsupported);
}

#[test]
fn rates_above_the_link_maximum_are_rejected() {
    let gpu = json!({"card": "a100-80g", "numbers": {"nvmlDeviceGetPcieThroughput": u32::MAX}});
    let sample = settled(&with(gpu));
    let why = "NVML reported 4398046510080 bytes/s, of at most 31520000000";
    assert_eq!(sample.pcie_tx_bytes_s, Failed(why.into()));
}

#[test]
fn a_gpu_with_gpm_is_not_measured() {
    let pcie = json!({"tx_kib_s": 30_000_000, "rx_kib_s": 1_000_000, "measure_ms": 60_000});
    let node = with(json!({"card": "h100", "pcie": pcie}));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| !sample.gpus.is_empty());
    assert_eq!(first.gpus[0].pcie_tx_bytes_s, NotYet);
    probe.sample(|sample| is_near(&sample.gpus[0].pcie_tx_bytes_s, 30_720_000_000));
}

#[test]
fn eight_gpus_are_measured_in_turn() {
    let gpus = |kib_s: u64| {
        let gpu = json!({"card": "a100-80g", "pcie": {"counted": null, "tx_kib_s": kib_s}});
        json!({"driver": DRIVER, "gpus": vec![gpu; 8]})
    };
    let node = Node::new(&gpus(1_000));
    let mut probe = node.start(&[]);
    let all = |rate: u64| {
        move |sample: &Sample| {
            sample.gpus.len() == 8 && sample.gpus.iter().all(|gpu| gpu.pcie_tx_bytes_s == Value(rate))
        }
    };
    let first = probe.sample(all(1_024_000));
    node.set(&gpus(5_000));
    let moved = probe.sample(all(5_120_000));
    assert!(moved.seq - first.seq <= 8, "{} samples", moved.seq - first.seq);
}
