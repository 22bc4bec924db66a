//! Everything that is known of a GPU, in groups: who it is, how busy, how full, how warm, how fast, whose.

use super::{Fact, Group, Mood, bytes, on, rate};
use crate::{roster, text};
use nodeglass_protocol::picture::{GpuPicture, NodeFacts};
use nodeglass_protocol::{GpuField as F, Reading, Text};

/// What a sheet needs beside the GPU itself.
pub struct Around<'a> {
    /// The facts of its node, once known.
    pub node: Option<&'a NodeFacts>,
    /// Names of jobs.
    pub job_name: &'a dyn Fn(nodeglass_protocol::JobId) -> String,
}

/// The groups of readings and facts of a GPU.
pub fn groups(gpu: &GpuPicture) -> Vec<Group> {
    vec![
        busy(gpu),
        memory(gpu),
        power(gpu),
        temperature(gpu),
        clocks(gpu),
        engines(gpu),
        traffic(gpu),
        modes(gpu),
    ]
}

/// The jobs that have it, and how that is known.
pub fn owners(gpu: &GpuPicture, around: &Around<'_>) -> Group {
    let owner = |owner: &nodeglass_protocol::picture::Owner| {
        Fact::new(format!("Job {}", owner.job), (around.job_name)(owner.job)).with(roster::evidence(owner.by))
    };
    let group = Group::new("Whose", gpu.owners.iter().map(owner));
    if gpu.owners.is_empty() { group.noted("Of no job known here.") } else { group }
}

fn busy(gpu: &GpuPicture) -> Group {
    let share = |label, field, more: &str| Fact::percent(label, &gpu.row, field, "hue-busy").with(more);
    let group = Group::new(
        "Busy, honestly",
        [
            share("Utilisation", F::Util, "of the time some kernel ran, however small"),
            share("SM active", F::SmActive, "of the multiprocessors had work"),
            share("SM occupancy", F::SmOccupancy, "of the warps that would fit were there"),
            share("Tensor cores", F::TensorActive, "of the cycles they worked"),
            share("DRAM bandwidth", F::DramActive, "of what the memory can move"),
            share("FP64", F::Fp64Active, "of the cycles its units worked"),
            share("FP32", F::Fp32Active, "of the cycles its units worked"),
            share("FP16", F::Fp16Active, "of the cycles its units worked"),
            share("Graphics", F::GraphicsActive, "of the time graphics or compute was active"),
            share("Memory utilisation", F::MemUtil, "of the time memory was read or written"),
        ],
    );
    if gpu.row.get(F::SmActive) == nodeglass_protocol::Cell::UNSUPPORTED {
        return group.noted(
            "This card counts only whether anything ran at all; from Hopper on it also counts how much (GPM).",
        );
    }
    group
}

fn memory(gpu: &GpuPicture) -> Group {
    let health = &gpu.health;
    let bar1 = Fact::read("BAR1", &health.bar1_used_bytes, |used| match health.bar1_total_bytes.value() {
        Some(total) => format!("{} of {}", bytes(*used), bytes(*total)),
        None => bytes(*used),
    });
    let group = Group::new(
        "Memory",
        [
            Fact::part("Used", &gpu.row, F::MemUsed, F::MemTotal, "hue-mem"),
            Fact::cell("Reserved", &gpu.row, F::MemReserved, bytes).with("by driver and firmware"),
            bar1.with("window through which the host reaches it"),
        ],
    );
    if gpu.facts.unified_memory {
        return group.noted("It shares its memory with the host: what is used here is used there.");
    }
    group
}

fn power(gpu: &GpuPicture) -> Group {
    let (row, facts) = (&gpu.row, &gpu.facts);
    let limit = row.value(F::PowerLimit).filter(|limit| *limit > 0);
    let share = row.value(F::Power).zip(limit).map(|(power, limit)| power as f64 / limit as f64);
    let watts = |value: u64| format!("{} W", text::grouped(value));
    let milli = |value: &u32| watts(u64::from(*value).div_ceil(1_000));
    let set_lower = limit.zip(facts.power_default_mw.value().map(|mw| u64::from(*mw) / 1_000));
    let lowered = set_lower.is_some_and(|(limit, default)| limit + 1 < default);
    Group::new(
        "Power",
        [
            Fact { bar: share.map(|share| (share, "hue-power")), ..Fact::cell("Draw", row, F::Power, watts) },
            Fact::cell("At this moment", row, F::PowerInstant, watts),
            Fact::cell("Limit in force", row, F::PowerLimit, watts).with(if lowered {
                "set lower than as delivered"
            } else {
                ""
            }),
            Fact::read("Limit as delivered", &facts.power_default_mw, milli),
            Fact::read("Smallest limit", &facts.power_min_mw, milli),
            Fact::read("Largest limit", &facts.power_max_mw, milli),
            Fact::cell("Energy", row, F::Energy, energy).with("since the driver was loaded"),
        ],
    )
}

/// Watt hours on the scale that suits them.
pub fn energy(wh: u64) -> String {
    match wh {
        0..10_000 => format!("{} Wh", text::grouped(wh)),
        _ => format!("{} kWh", text::tenths(wh as f64 / 1_000.0)),
    }
}

fn temperature(gpu: &GpuPicture) -> Group {
    let (row, facts) = (&gpu.row, &gpu.facts);
    let degrees = |value: u64| format!("{value} °C");
    let threshold = |value: &u32| format!("{value} °C");
    let near = |field, limit: &Reading<u32>| {
        let limit = limit.value().map(|limit| u64::from(*limit));
        row.value(field).zip(limit).is_some_and(|(now, limit)| now + 5 >= limit)
    };
    Group::new(
        "Temperature",
        [
            Fact::cell("Core", row, F::Temp, degrees)
                .if_so(near(F::Temp, &facts.temp_slowdown_c), Mood::Attention),
            Fact::cell("Memory", row, F::MemTemp, degrees)
                .if_so(near(F::MemTemp, &facts.temp_mem_max_c), Mood::Attention),
            Fact::read("Slows down at", &facts.temp_slowdown_c, threshold),
            Fact::read("Shuts down at", &facts.temp_shutdown_c, threshold),
            Fact::read("Core in normal use up to", &facts.temp_gpu_max_c, threshold),
            Fact::read("Memory in normal use up to", &facts.temp_mem_max_c, threshold),
            Fact::cell("Fan", row, F::Fan, |value| format!("{value} %")),
        ],
    )
}

fn clocks(gpu: &GpuPicture) -> Group {
    let (row, facts) = (&gpu.row, &gpu.facts);
    let clock = |label, field, max: &Reading<u32>| {
        Fact::cell(label, row, field, |now| match max.value() {
            Some(max) => format!("{now} of {max} MHz"),
            None => format!("{now} MHz"),
        })
    };
    Group::new(
        "Clocks",
        [
            clock("SM", F::SmClock, &facts.sm_clock_max_mhz),
            clock("Memory", F::MemClock, &facts.mem_clock_max_mhz),
            clock("Graphics", F::GraphicsClock, &facts.graphics_clock_max_mhz),
            clock("Video", F::VideoClock, &facts.video_clock_max_mhz),
            Fact::cell("Performance state", row, F::PState, |state| format!("P{state}"))
                .with("P0 is the fastest"),
        ],
    )
}

fn engines(gpu: &GpuPicture) -> Group {
    let share = |label, field| Fact::percent(label, &gpu.row, field, "hue-busy");
    Group::new(
        "Other engines",
        [
            share("Encoder", F::Encoder),
            share("Decoder", F::Decoder),
            share("JPEG", F::Jpeg),
            share("Optical flow", F::Ofa),
        ],
    )
}

fn traffic(gpu: &GpuPicture) -> Group {
    let flow = |label, field| Fact::cell(label, &gpu.row, field, rate);
    let health = &gpu.health;
    let link = Fact::read("PCIe link", &health.pcie_gen, |generation| {
        let width = health.pcie_width.value().map_or(String::new(), |width| format!(" ×{width}"));
        format!("generation {generation}{width}")
    });
    let facts = &gpu.facts;
    let best = Fact::read("PCIe link at best", &facts.pcie_gen_max, |generation| {
        let width = facts.pcie_width_max.value().map_or(String::new(), |width| format!(" ×{width}"));
        format!("generation {generation}{width}")
    });
    let (words, mood) = pcie_words(gpu);
    let replays = health.pcie_replays.value().is_some_and(|count| *count > 0);
    Group::new(
        "Links",
        [
            link.with(words).if_so(mood != Mood::Plain, mood),
            best,
            Fact::read("PCIe replays", &health.pcie_replays, |count| text::grouped(*count)).with(
                if replays { "sent again since the driver was loaded; many mean a bad contact" } else { "" },
            ),
            flow("PCIe received", F::PcieRx),
            flow("PCIe sent", F::PcieTx),
            flow("NVLink received", F::NvlinkRx),
            flow("NVLink sent", F::NvlinkTx),
        ],
    )
}

/// What a link that is slower or narrower than it could be means.
fn pcie_words(gpu: &GpuPicture) -> (&'static str, Mood) {
    let less = |now: &Reading<u64>, max: &Reading<u32>| {
        now.value().zip(max.value()).is_some_and(|(now, max)| *now < u64::from(*max))
    };
    let busy = gpu.row.value(F::Util).is_some_and(|util| util >= 20);
    if less(&gpu.health.pcie_width, &gpu.facts.pcie_width_max) {
        return (
            "fewer lanes than card and slot can do: copies to and from the host are slower",
            Mood::Attention,
        );
    }
    match (less(&gpu.health.pcie_gen, &gpu.facts.pcie_gen_max), busy) {
        (true, true) => ("slower than card and slot can do, though it is busy", Mood::Attention),
        (true, false) => ("slower while idle, which is normal", Mood::Plain),
        _ => ("", Mood::Plain),
    }
}

fn modes(gpu: &GpuPicture) -> Group {
    let facts = &gpu.facts;
    let said = |label, reading: &Reading<Text>| Fact::read(label, reading, ToString::to_string);
    let mut told = vec![
        said("Compute mode", &facts.compute_mode),
        Fact::read("Persistence", &facts.persistence, on),
        Fact::read("ECC", &facts.ecc_mode, on),
        Fact::read("MIG", &facts.mig_mode, on),
        Fact::read("Confidential computing", &facts.confidential, on),
    ];
    if let Some(mig) = &facts.mig {
        told.push(Fact::new(
            "MIG instance",
            format!("GPU instance {}, compute instance {}", mig.gpu_instance, mig.compute_instance),
        ));
        told.extend(mig.profile.as_ref().map(|profile| Fact::new("Profile", profile.as_str())));
        told.extend(mig.multiprocessors.map(|count| Fact::new("Multiprocessors", count.to_string())));
        told.extend(facts.mig_parent.as_ref().map(|parent| Fact::new("Part of", parent.as_str())));
    }
    Group::new("Modes", told)
}

/// Who it is, and what drives it.
pub fn identity(gpu: &GpuPicture, around: &Around<'_>) -> Group {
    let facts = &gpu.facts;
    let said = |label, reading: &Reading<Text>| Fact::read(label, reading, ToString::to_string);
    let mut told = vec![
        said("Model", &facts.name),
        Fact::new("UUID", facts.uuid.as_str()),
        said("Serial number", &facts.serial),
        Fact::new("NVML index", facts.index.to_string()),
        Fact::read("Device file", &facts.minor, |minor| format!("/dev/nvidia{minor}")),
        said("PCI address", &facts.pci),
        said("Architecture", &facts.architecture),
        said("Compute capability", &facts.compute_capability),
        Fact::read("CUDA cores", &facts.cores, |cores| text::grouped(u64::from(*cores))),
        Fact::read("NUMA node", &facts.numa_node, u32::to_string),
        said("Nearest CPUs", &facts.cpu_affinity),
        said("VBIOS", &facts.vbios),
    ];
    if let Some(node) = around.node {
        told.push(said("Driver", &node.driver));
        told.push(said("CUDA of the driver", &node.cuda));
    }
    Group::new("Identity", told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::picture::{Evidence, Owner};

    fn around() -> Around<'static> {
        Around { node: None, job_name: &|job| format!("name of {job}") }
    }

    fn find<'a>(groups: &'a [Group], label: &str) -> &'a Fact {
        groups.iter().flat_map(|group| &group.facts).find(|fact| fact.label == label).unwrap()
    }

    #[test]
    fn a_card_that_told_nothing_yet_has_no_zero_anywhere() {
        let groups =
            [groups(&GpuPicture::default()), vec![identity(&GpuPicture::default(), &around())]].concat();
        let readings = groups.iter().flat_map(|group| &group.facts);
        let named = ["UUID", "NVML index"];
        for fact in readings.filter(|fact| !named.contains(&fact.label.as_str())) {
            assert_eq!((fact.value.as_str(), fact.mood), ("not read yet", Mood::Absent), "{}", fact.label);
        }
    }

    #[test]
    fn a_card_without_gpm_says_so() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(F::SmActive, Cell::UNSUPPORTED);
        assert!(busy(&gpu).note.contains("GPM"));
        gpu.row.set(F::SmActive, Cell::steps(40));
        assert_eq!(busy(&gpu).note, "");
    }

    #[test]
    fn a_slow_link_is_normal_when_idle_and_worth_a_look_when_busy() {
        let mut gpu = GpuPicture::default();
        gpu.facts.pcie_gen_max = Reading::Value(5);
        gpu.health.pcie_gen = Reading::Value(1);
        gpu.row.set(F::Util, Cell::steps(0));
        assert_eq!(pcie_words(&gpu).1, Mood::Plain);
        gpu.row.set(F::Util, Cell::steps(90));
        assert_eq!(pcie_words(&gpu).1, Mood::Attention);
        gpu.health.pcie_gen = Reading::Value(5);
        assert_eq!(pcie_words(&gpu), ("", Mood::Plain));
        gpu.facts.pcie_width_max = Reading::Value(16);
        gpu.health.pcie_width = Reading::Value(8);
        assert_eq!(pcie_words(&gpu).1, Mood::Attention);
    }

    #[test]
    fn heat_is_worth_a_look_near_the_point_where_the_card_slows_down() {
        let mut gpu = GpuPicture::default();
        gpu.facts.temp_slowdown_c = Reading::Value(90);
        gpu.row.set(F::Temp, Cell::steps(84));
        assert_eq!(find(&[temperature(&gpu)], "Core").mood, Mood::Plain);
        gpu.row.set(F::Temp, Cell::steps(86));
        assert_eq!(find(&[temperature(&gpu)], "Core").mood, Mood::Attention);
    }

    #[test]
    fn owners_come_with_how_that_is_known() {
        let mut gpu = GpuPicture::default();
        assert_eq!(owners(&gpu, &around()).note, "Of no job known here.");
        gpu.owners.push(Owner { job: nodeglass_protocol::JobId(17), by: Evidence::GresIndex });
        let group = owners(&gpu, &around());
        assert_eq!(group.facts[0].value, "name of 17");
        assert_eq!(group.facts[0].more, "SLURM gave it to the job");
    }

    #[test]
    fn energy_chooses_its_scale() {
        assert_eq!(
            [812, 9_999, 1_234_567].map(energy),
            ["812 Wh", "9,999 Wh", "1234.6 kWh"].map(String::from)
        );
    }
}
