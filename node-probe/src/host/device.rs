//! Distinguishes physical disks and network interfaces from partitions, mirrors and bridges, which
//! would count twice.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Sector size of `/proc/diskstats` in bytes, independent of the disk.
const SECTOR: u64 = 512;

/// Cache of which devices of one class are physical.
#[derive(Debug)]
pub struct Devices {
    class: PathBuf,
    real: HashMap<String, bool>,
}

impl Devices {
    /// Creates a cache for a folder such as `/sys/block` or `/sys/class/net`.
    pub fn of(class: PathBuf) -> Self {
        Self { class, real: HashMap::new() }
    }

    /// Returns whether a device is physical: virtual devices have no `device` link, and partitions no
    /// folder.
    pub fn is_real(&mut self, name: &str) -> bool {
        if let Some(real) = self.real.get(name) {
            return *real;
        }
        let real = !name.contains('/') && self.class.join(name).join("device").exists();
        self.real.insert(name.to_owned(), real);
        real
    }

    /// Clears the cache, because names can be reused.
    pub fn forget(&mut self) {
        self.real.clear();
    }
}

/// Returns whether the kernel's device classes are visible.
pub fn has_any(class: &Path) -> bool {
    std::fs::read_dir(class).is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns the bytes read from and written to each physical disk, from `/proc/diskstats`.
pub fn disks(diskstats: &str, devices: &mut Devices) -> HashMap<String, [u64; 2]> {
    let lines = diskstats.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let name = fields.next()?;
        let (read, written) = (fields.nth(2)?.parse::<u64>().ok()?, fields.nth(3)?.parse::<u64>().ok()?);
        devices
            .is_real(name)
            .then(|| (name.to_owned(), [read, written].map(|count| count.saturating_mul(SECTOR))))
    });
    lines.collect()
}

/// Returns the bytes received and sent by each physical interface, from `/proc/net/dev`, or by all
/// except loopback in a container without physical ones.
pub fn interfaces(net_dev: &str, devices: &mut Devices) -> HashMap<String, [u64; 2]> {
    let lines = net_dev.lines().filter_map(|line| {
        let (name, counters) = line.split_once(':')?;
        let mut fields = counters.split_ascii_whitespace();
        let (received, sent) = (fields.next()?.parse().ok()?, fields.nth(7)?.parse().ok()?);
        Some((name.trim().to_owned(), [received, sent]))
    });
    let mut all: HashMap<String, [u64; 2]> = lines.filter(|(name, _)| name != "lo").collect();
    if all.keys().any(|name| devices.is_real(name)) {
        all.retain(|name, _| devices.is_real(name));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn devices(real: &[&str], made: &[&str]) -> (tempfile::TempDir, Devices) {
        let class = tempfile::tempdir().unwrap();
        real.iter().for_each(|name| fs::create_dir_all(class.path().join(name).join("device")).unwrap());
        made.iter().for_each(|name| fs::create_dir_all(class.path().join(name)).unwrap());
        let devices = Devices::of(class.path().into());
        (class, devices)
    }

    const DISKSTATS: &str = "\
   7       0 loop0 9 0 9 0 9 0 9 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 100 5 2000 30 7 1 64 9 0 1 2 0 0 0 0 0 0
 259       1 nvme0n1p1 100 5 2000 30 7 1 64 9 0 1 2
   8       0 sda 1 0 8 0 0 0 0 0 0 0 0
 253       0 dm-0 100 5 2008 30 7 1 64 9 0 1 2
   9       0 md0 1 2
";

    #[test]
    fn only_whole_disks_are_counted_and_each_once() {
        let (_class, mut devices) = devices(&["nvme0n1", "sda"], &["loop0", "dm-0", "md0"]);
        let disks = disks(DISKSTATS, &mut devices);
        assert_eq!(disks.len(), 2);
        assert_eq!(disks["nvme0n1"], [1_024_000, 32_768]);
        assert_eq!(disks["sda"], [4_096, 0]);
    }

    const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
  eth0: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0
 bond0:7000 1 0 0 0 0 0 0 7000 1 0 0 0 0 0 0
";

    #[test]
    fn only_physical_interfaces_count_outside_containers() {
        let (_class, mut real) = devices(&["eth0"], &["bond0", "lo"]);
        let found = interfaces(NET_DEV, &mut real);
        assert_eq!((found.len(), found["eth0"]), (1, [100, 200]));
        let (_class, mut none) = devices(&[], &["eth0", "bond0", "lo"]);
        let found = interfaces(NET_DEV, &mut none);
        assert_eq!((found.len(), found["bond0"]), (2, [7_000, 7_000]));
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text in "(?s).{0,300}") {
            let (_class, mut devices) = devices(&["eth0"], &[]);
            let _ = (disks(&text, &mut devices), interfaces(&text, &mut devices));
            let _ = disks(&format!("8 0 eth0 {text}"), &mut devices);
        }
    }
}
