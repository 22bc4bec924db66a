//! Real and synthetic hosts can be read, and missing values are never zero.

use super::*;
use std::thread;

const SECOND: u64 = 1_000_000_000;

#[test]
fn this_machine_can_be_read() {
    let mut host = Host::new();
    assert_eq!(host.read().host.cpu_pct, Reading::NotYet);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let read = loop {
        thread::sleep(std::time::Duration::from_millis(50));
        let read = host.read();
        if read.host.tmp_total_bytes.value().is_some() || std::time::Instant::now() > deadline {
            break read;
        }
    };
    let sample = read.host;
    assert!(*sample.mem_total_bytes.value().unwrap() > *sample.mem_used_bytes.value().unwrap());
    assert_eq!(*sample.mem_total_bytes.value().unwrap(), mem_total_bytes());
    assert!(sample.load1_centi.value().is_some() && *sample.uptime_s.value().unwrap() > 0);
    assert!(sample.net_rx_bytes_s.value().is_some());
    assert!(sample.tmp_total_bytes.value().unwrap() >= sample.tmp_used_bytes.value().unwrap());
}

#[test]
fn an_unreadable_host_has_no_zeros() {
    let empty = tempfile::tempdir().unwrap();
    let mut host = Host::of(Roots { proc: empty.path().into(), sys: empty.path().into() });
    host.read_at(SECOND);
    let mut read = host.read_at(2 * SECOND);
    assert_eq!((read.cores.len(), read.jobs.len()), (0, 0));
    assert!(
        read.host.readings_mut().all(|reading| matches!(reading, Reading::Unsupported | Reading::NotYet))
    );
}

#[test]
fn rates_of_a_synthetic_host_are_computed_between_readings() {
    let root = tempfile::tempdir().unwrap();
    let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
    fs::create_dir_all(proc.join("net")).unwrap();
    fs::create_dir_all(sys.join("block/sda/device")).unwrap();
    let write = |sectors: u64, bytes: u64| {
        let disk = format!(
            "8 0 sda 1 0 {sectors} 0 0 0 {sectors} 0 0 0 0\n8 1 sda1 1 0 {sectors} 0 0 0 9 0 0 0 0\n"
        );
        fs::write(proc.join("diskstats"), disk).unwrap();
        fs::write(
            proc.join("net/dev"),
            format!("x\n lo: 9 0 0 0 0 0 0 0 9\n eth0: {bytes} 0 0 0 0 0 0 0 7\n"),
        )
        .unwrap();
    };
    let mut host = Host::of(Roots { proc: proc.clone(), sys });
    write(100, 1_000);
    // The files are opened before they exist.
    assert_eq!(host.read_at(SECOND).host.disk_read_bytes_s, Reading::Unsupported);
    let mut host = Host::of(host.roots().clone());
    host.read_at(SECOND);
    write(300, 5_000);
    let sample = host.read_at(3 * SECOND).host;
    assert_eq!(sample.disk_read_bytes_s, Reading::Value(51_200));
    assert_eq!(sample.disk_write_bytes_s, Reading::Value(51_200));
    assert_eq!((sample.net_rx_bytes_s, sample.net_tx_bytes_s), (Reading::Value(2_000), Reading::Value(0)));
    assert_eq!(sample.ib_rx_bytes_s, Reading::Unsupported);
}
