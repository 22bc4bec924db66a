//! The first line: who the probe is and where it runs.

use crate::{build, host, process};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{Hello, NvmlState};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use std::{fs, thread};

/// Everything but the source's part, which is absent for the reason given.
pub fn of_this_node(stream: u64, why: Text) -> Hello {
    let system = rustix::system::uname();
    let uid = rustix::process::geteuid().as_raw();
    Hello {
        proto: VersionRange::only(PROBE_WIRE),
        build: build::own().unwrap_or_default().into(),
        stream,
        host: Text::from_bytes(system.nodename().to_bytes()),
        boot_id: fs::read("/proc/sys/kernel/random/boot_id")
            .map(|id| Text::from_bytes(&id))
            .unwrap_or_default(),
        kernel: Text::from_bytes(system.release().to_bytes()),
        cpus: online_cpus(),
        mem_total_bytes: host::mem_total_bytes(),
        user: process::look_up(uid),
        pid: std::process::id(),
        nvml: NvmlState::Absent { why },
        gpus: Vec::new(),
        topology: Vec::new(),
        cpu_model: Text::default(),
        scratch: None,
    }
}

/// CPUs of the node, not those that a cgroup leaves to the probe.
fn online_cpus() -> u32 {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    list.and_then(|list| count(list.trim())).unwrap_or_else(|| {
        thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
    })
}

/// `0-3,8,10-11` is seven.
fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cpus_are_counted() {
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("3-0"), None);
        assert_eq!(count(""), None);
    }
}
