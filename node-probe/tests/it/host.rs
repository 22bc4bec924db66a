//! Host readings of a sample match the machine.

use crate::harness::Node;
use nodeglass_protocol::Reading;
use serde_json::json;
use std::fs;

#[test]
fn a_sample_contains_cores_memory_and_file_system_usage() {
    let node = Node::new(&json!({"gpus": [{}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
    assert!(
        hello.cpu_model.is_empty()
            || cpuinfo.contains(hello.cpu_model.as_str())
            || cfg!(target_arch = "aarch64")
    );
    let sample = probe.sample(|sample| {
        !sample.cores.is_empty()
            && sample.host.tmp_total_bytes.value().is_some()
            && sample.host.net_rx_bytes_s.value().is_some()
    });
    assert_eq!(sample.cores.len(), hello.cpus as usize);
    assert!(sample.cores.iter().all(|share| *share <= 100));
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    assert!((*sample.host.uptime_s.value().unwrap() as f64 - uptime).abs() < 60.0);
    assert_eq!(sample.host.swap_total_bytes.value().is_some(), sample.host.swap_used_bytes.value().is_some());
    let links = fs::read_dir("/sys/class/infiniband").is_ok();
    assert!(links || sample.host.ib_rx_bytes_s == Reading::Unsupported);
    assert_eq!(hello.scratch.is_some(), sample.host.scratch_total_bytes.value().is_some());
}
