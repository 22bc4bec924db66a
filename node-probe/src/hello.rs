//! The hello line: identity of the probe and static facts of its node.

use crate::source::confinement;
use crate::{build, host, process};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{Hello, SourceState};
use nodeglass_protocol::version::{PROBE_WIRE, VersionRange};
use std::{fs, path::Path, thread};

/// Creates a hello with the given sources and without GPUs.
pub fn of_this_node(stream: u64, sources: Vec<SourceState>) -> Hello {
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
        user: process::user_name(uid),
        pid: std::process::id(),
        sources,
        gpus: Vec::new(),
        topology: Vec::new(),
        cpu_model: cpu_model(),
        scratch: host::scratch(),
        // A process stays in its cgroup, and a job keeps its GPUs.
        confinement: confinement::of_this_probe(Path::new("/")),
    }
}

/// Number of CPUs of the node, regardless of the probe's cgroup.
fn online_cpus() -> u32 {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    list.and_then(|list| host::job::count(list.trim())).unwrap_or_else(|| {
        thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
    })
}

/// ARM cores of nodes with GPUs, by the part number that replaces a model name.
const ARM_PARTS: [(&str, &str); 6] = [
    ("0xd0c", "ARM Neoverse-N1"),
    ("0xd40", "ARM Neoverse-V1"),
    ("0xd49", "ARM Neoverse-N2"),
    ("0xd4f", "ARM Neoverse-V2"),
    ("0xd84", "ARM Neoverse-V3"),
    ("0xd8e", "ARM Neoverse-N3"),
];

/// Model name of the first CPU; empty if there is none.
fn cpu_model() -> Text {
    let cpuinfo = fs::read("/proc/cpuinfo").unwrap_or_default();
    model_in(&String::from_utf8_lossy(&cpuinfo))
}

fn model_in(cpuinfo: &str) -> Text {
    let value = |name: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines
            .filter(|(this, _)| this.trim() == name)
            .map(|(_, value)| value.trim())
            .find(|value| !value.is_empty())
    };
    // PowerPC has `cpu` only; ARM has part numbers.
    let arm = || {
        let part = value("CPU part").filter(|_| value("CPU implementer") == Some("0x41"))?;
        ARM_PARTS.iter().find(|(number, _)| *number == part).map(|(_, name)| *name)
    };
    value("model name").or_else(|| value("cpu")).or_else(arm).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_names_are_read_on_each_architecture() {
        assert_eq!(
            model_in("processor\t: 0\nmodel name\t: AMD EPYC 7763 64-Core\n").as_str(),
            "AMD EPYC 7763 64-Core"
        );
        let grace = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n";
        assert_eq!(model_in(grace).as_str(), "ARM Neoverse-V2");
        assert_eq!(model_in("cpu\t\t: POWER9, altivec supported\n").as_str(), "POWER9, altivec supported");
        assert_eq!(model_in("processor\t: 0\n"), Text::default());
    }

    #[test]
    fn this_node_has_cpus() {
        assert!(online_cpus() > 0);
    }
}
