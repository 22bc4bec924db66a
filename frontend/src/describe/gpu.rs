//! The details of a GPU in groups: utilisation, memory, power, temperature, clocks, traffic, modes, identity.

use super::fact::{self, Emphasis, Fact, FactGroup, bytes, rate};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::domain::throttle::ThrottleSummary;
use crate::domain::{flags, ownership, xid};
use nodeglass_protocol::field::{Field as _, Group, Unit, Vendors, Wording};
use nodeglass_protocol::gpu::{GpuFacts, MigFacts, Section, VgpuLicense};
use nodeglass_protocol::picture::{GpuPicture, NodeFacts, NodePicture};
use nodeglass_protocol::{GpuField as F, Reading, Text, Vendor};

/// Context of the details besides the GPU itself.
pub struct GpuContext<'a> {
    /// The facts of its node, once known.
    pub node: Option<&'a NodeFacts>,
    /// Returns a job's name.
    pub job_name: &'a dyn Fn(nodeglass_protocol::JobId) -> String,
}

/// Returns the groups of readings and facts of a GPU.
pub fn groups(gpu: &GpuPicture) -> Vec<FactGroup> {
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

/// Returns what matters most about a GPU in one line: that it cannot be read, an error, an Xid of the last hour, why its
/// clocks are lowered now, a warning among `groups`, or that it is healthy. `throttle` is what applied up to `now_ms`.
pub fn status(
    node: &NodePicture,
    gpu: &GpuPicture,
    groups: &[FactGroup],
    throttle: &[ThrottleSummary],
    now_ms: u64,
) -> (Severity, String) {
    if let Some(why) = &gpu.fault {
        return (flags::fault_severity(node, gpu), format!("Cannot be read: {why}"));
    }
    let worst = |emphasis| {
        let facts = groups.iter().flat_map(|group| group.facts.iter().map(move |fact| (group.title, fact)));
        let (title, fact) = facts.into_iter().find(|(_, fact)| fact.emphasis == emphasis)?;
        let note = if fact.note.is_empty() { String::new() } else { format!(" – {}", fact.note) };
        Some(format!("{title}: {}: {}{note}", fact.label, fact.value))
    };
    if let Some(text) = worst(Emphasis::Error) {
        return (Severity::Error, text);
    }
    if let Some(xid) = recent_xid(node, gpu, now_ms) {
        return xid;
    }
    if let Some(text) = throttle.iter().find_map(|one| throttle_status(gpu, one, now_ms)) {
        return (Severity::Warning, text);
    }
    match worst(Emphasis::Warning) {
        Some(text) => (Severity::Warning, text),
        None => (Severity::Ok, "Healthy".to_owned()),
    }
}

/// Describes the latest Xid of the last hour that the GPU rather than a program caused: `Xid 79, 9 min ago: fell off the bus`.
/// Findings are about GPUs of jobs; one without a job is not healthy either.
fn recent_xid(node: &NodePicture, gpu: &GpuPicture, now_ms: u64) -> Option<(Severity, String)> {
    let (event, number, meaning) = node.head.events.iter().rev().find_map(|event| {
        let number = event.xid.filter(|_| event.gpu.as_ref() == Some(&gpu.facts.uuid))?;
        let (meaning, is_by_program) = xid::meaning(number)?;
        let is_recent = xid::is_recent(event.at_ms, now_ms);
        (is_recent && !is_by_program).then_some((event, number, meaning))
    })?;
    let age = text::span(now_ms.saturating_sub(event.at_ms) / 1_000);
    Some((xid::severity(number), format!("Xid {number}, {age} ago: {meaning}")))
}

/// Describes a reason that lowers the clocks now and is not normal: `Too hot: clocks 1,095 of 1,980 MHz for 9 min`.
fn throttle_status(gpu: &GpuPicture, one: &ThrottleSummary, now_ms: u64) -> Option<String> {
    let since_ms = one.since_ms.filter(|_| !one.reason.is_normal)?;
    // The driver and the hardware report the same causes.
    let cause = one.reason.name.split(" (").next().unwrap_or(one.reason.name);
    let clock = |mhz: u64| text::grouped(mhz);
    let clocks = match (gpu.row.value(F::SmClock), gpu.facts.sm_clock_max_mhz.value()) {
        (Some(now), Some(max)) => format!("clocks {} of {} MHz", clock(now), clock(u64::from(*max))),
        (Some(now), None) => format!("clocks {} MHz", clock(now)),
        _ => "clocks lowered".to_owned(),
    };
    let more = if one.or_longer { "at least " } else { "" };
    let (first, rest) = cause.split_at_checked(1)?;
    let span = text::span(now_ms.saturating_sub(since_ms) / 1_000);
    Some(format!("{}{rest}: {clocks} for {more}{span}", first.to_ascii_uppercase()))
}

/// Returns the jobs that own it, and how that is known.
pub fn owners(gpu: &GpuPicture, around: &GpuContext<'_>) -> FactGroup {
    let owner = |owner: &nodeglass_protocol::picture::Owner| {
        Fact::new(format!("Job {}", owner.job), (around.job_name)(owner.job))
            .with_note(ownership::evidence_text(owner.by))
    };
    let group = FactGroup::new("Jobs", gpu.owners.iter().map(owner));
    if gpu.owners.is_empty() { group.with_note("No known job owns it.") } else { group }
}

/// Returns the names and meaning of a field as the vendor of the GPU uses them.
fn wording(gpu: &GpuPicture, field: F) -> Wording {
    field.metric().wording(Vendors::One(gpu.facts.vendor))
}

/// Returns whether the words of NVIDIA apply.
fn is_nvidia(gpu: &GpuPicture) -> bool {
    matches!(gpu.facts.vendor, Vendor::Nvidia | Vendor::Unknown)
}

/// Appends what else the catalogue lists in a group.
fn with_catalogue(gpu: &GpuPicture, group: Group, hue: &'static str, facts: Vec<Fact>) -> Vec<Fact> {
    fact::with_catalogue(facts, group, &gpu.row, |field| gpu.full_scale(field), hue)
}

fn busy(gpu: &GpuPicture) -> FactGroup {
    let share = |label, field, note: &str| Fact::percent(label, &gpu.row, field, "hue-busy").with_note(note);
    let util = wording(gpu, F::Util);
    let meaning = if is_nvidia(gpu) { "of the time at least one kernel was running" } else { util.help };
    let group = FactGroup::new(
        "How busy it really is",
        with_catalogue(
            gpu,
            Group::Activity,
            "hue-busy",
            vec![
                share(util.label, F::Util, meaning),
                share("SM active", F::SmActive, "of the multiprocessors had work"),
                share("SM occupancy", F::SmOccupancy, "of the maximum resident warps"),
                share("Tensor cores", F::TensorActive, "of the cycles they were active"),
                share("DRAM bandwidth", F::DramActive, "of the peak memory bandwidth"),
                share("FP64", F::Fp64Active, "of the cycles its units were active"),
                share("FP32", F::Fp32Active, "of the cycles its units were active"),
                share("FP16", F::Fp16Active, "of the cycles its units were active"),
                share("Graphics", F::GraphicsActive, "of the time graphics or compute was active"),
                share("Memory utilisation", F::MemUtil, "of the time memory was read or written"),
            ],
        ),
    );
    if is_nvidia(gpu) && gpu.row.get(F::SmActive) == nodeglass_protocol::Cell::UNSUPPORTED {
        return group.with_note(
            "This GPU reports only whether a kernel was running; from Hopper on, GPUs also report how busy they are (GPM).",
        );
    }
    group
}

fn memory(gpu: &GpuPicture) -> FactGroup {
    let health = &gpu.health;
    let bar1 = Fact::read("BAR1", &health.bar1_used_bytes, |used| match health.bar1_total_bytes.value() {
        Some(total) => format!("{} of {}", bytes(*used), bytes(*total)),
        None => bytes(*used),
    });
    let group = FactGroup::new(
        "Memory",
        with_catalogue(
            gpu,
            Group::Memory,
            "hue-mem",
            vec![
                Fact::part("Used", &gpu.row, F::MemUsed, F::MemTotal, "hue-mem"),
                Fact::cell("Reserved", &gpu.row, F::MemReserved, bytes).with_note("by driver and firmware"),
                bar1.with_note("the window that the host maps"),
            ],
        ),
    );
    if gpu.facts.unified_memory {
        return group.with_note("It shares its memory with the host.");
    }
    group
}

fn power(gpu: &GpuPicture) -> FactGroup {
    let (row, facts) = (&gpu.row, &gpu.facts);
    let limit = row.value(F::PowerLimit).filter(|limit| *limit > 0);
    let share = row.value(F::Power).zip(limit).map(|(power, limit)| power as f64 / limit as f64);
    let watts = |value: u64| format!("{} W", text::grouped(value));
    let set_lower = limit.zip(facts.power_default_mw.value().map(|mw| u64::from(*mw) / 1_000));
    let lowered = set_lower.is_some_and(|(limit, default)| limit + 1 < default);
    FactGroup::new(
        "Power",
        with_catalogue(
            gpu,
            Group::Power,
            "hue-power",
            vec![
                Fact {
                    bar: share.map(|share| (share, "hue-power")),
                    ..Fact::cell("Draw", row, F::Power, watts)
                },
                Fact::cell("Instantaneous", row, F::PowerInstant, watts),
                Fact::cell("Current limit", row, F::PowerLimit, watts).with_note(if lowered {
                    "lower than the default"
                } else {
                    ""
                }),
            ]
            .into_iter()
            .chain(fact::listed(GpuFacts::readings(), &gpu.facts, Section::Power))
            .chain([Fact::cell("Energy", row, F::Energy, |wh| fact::format_value(Unit::WattHour, wh))
                .with_note("since the driver was loaded")])
            .collect(),
        ),
    )
}

fn temperature(gpu: &GpuPicture) -> FactGroup {
    let (row, facts) = (&gpu.row, &gpu.facts);
    let degrees = |value: u64| format!("{value} °C");
    let near = |field, limit: &Reading<u32>| {
        let limit = limit.value().map(|limit| u64::from(*limit));
        row.value(field).zip(limit).is_some_and(|(now, limit)| now + 5 >= limit)
    };
    FactGroup::new(
        "Temperature",
        with_catalogue(
            gpu,
            Group::Temperature,
            "hue-busy",
            vec![
                Fact::cell("Core", row, F::Temp, degrees)
                    .with_emphasis_if(near(F::Temp, &facts.temp_slowdown_c), Emphasis::Warning),
                Fact::cell("Memory", row, F::MemTemp, degrees)
                    .with_emphasis_if(near(F::MemTemp, &facts.temp_mem_max_c), Emphasis::Warning),
            ]
            .into_iter()
            .chain(fact::listed(GpuFacts::readings(), &gpu.facts, Section::Temperature))
            .chain([Fact::cell("Fan", row, F::Fan, |value| format!("{value} %"))])
            .collect(),
        ),
    )
}

fn clocks(gpu: &GpuPicture) -> FactGroup {
    let (row, facts) = (&gpu.row, &gpu.facts);
    let clock = |label, field, max: &Reading<u32>| {
        Fact::cell(label, row, field, |now| match max.value() {
            Some(max) => format!("{} of {} MHz", text::grouped(now), text::grouped(u64::from(*max))),
            None => format!("{} MHz", text::grouped(now)),
        })
    };
    FactGroup::new(
        "Clocks",
        with_catalogue(
            gpu,
            Group::Clocks,
            "hue-busy",
            vec![
                clock(wording(gpu, F::SmClock).label, F::SmClock, &facts.sm_clock_max_mhz),
                clock("Memory", F::MemClock, &facts.mem_clock_max_mhz),
                clock("Graphics", F::GraphicsClock, &facts.graphics_clock_max_mhz),
                clock("Video", F::VideoClock, &facts.video_clock_max_mhz),
                Fact::cell("Performance state", row, F::PState, |state| format!("P{state}"))
                    .with_note("P0 is the fastest"),
            ],
        ),
    )
}

fn engines(gpu: &GpuPicture) -> FactGroup {
    let share = |label, field| Fact::percent(label, &gpu.row, field, "hue-busy");
    FactGroup::new(
        "Other engines",
        with_catalogue(
            gpu,
            Group::Engines,
            "hue-busy",
            vec![
                share("Encoder", F::Encoder),
                share("Decoder", F::Decoder),
                share("JPEG", F::Jpeg),
                share("Optical flow", F::Ofa),
            ],
        ),
    )
}

fn traffic(gpu: &GpuPicture) -> FactGroup {
    let flow = |label, field| Fact::cell(label, &gpu.row, field, rate);
    let health = &gpu.health;
    let link = Fact::read("PCIe link", &health.pcie_gen, |generation| {
        let width = health.pcie_width.value().map_or(String::new(), |width| format!(" ×{width}"));
        format!("generation {generation}{width}")
    });
    let facts = &gpu.facts;
    let best = Fact::read("PCIe link, maximum", &facts.pcie_gen_max, |generation| {
        let width = facts.pcie_width_max.value().map_or(String::new(), |width| format!(" ×{width}"));
        format!("generation {generation}{width}")
    });
    let (text, emphasis) = pcie_note(gpu);
    let replays = health.pcie_replays.value().is_some_and(|count| *count > 0);
    FactGroup::new(
        "Links",
        with_catalogue(
            gpu,
            Group::Links,
            "hue-busy",
            vec![
                link.with_note(text).with_emphasis_if(emphasis != Emphasis::Plain, emphasis),
                best,
                Fact::read("PCIe replays", &health.pcie_replays, |count| text::grouped(*count)).with_note(
                    if replays {
                        "retransmissions since the driver was loaded; high counts suggest a poor connection"
                    } else {
                        ""
                    },
                ),
                flow("PCIe received", F::PcieRx),
                flow("PCIe sent", F::PcieTx),
                flow(wording(gpu, F::NvlinkRx).label, F::NvlinkRx),
                flow(wording(gpu, F::NvlinkTx).label, F::NvlinkTx),
            ],
        ),
    )
}

/// Explains a link that is slower or narrower than its maximum.
fn pcie_note(gpu: &GpuPicture) -> (&'static str, Emphasis) {
    let less = |now: &Reading<u64>, max: &Reading<u32>| {
        now.value().zip(max.value()).is_some_and(|(now, max)| *now < u64::from(*max))
    };
    let busy = gpu.row.value(F::Util).is_some_and(|util| util >= 20);
    if less(&gpu.health.pcie_width, &gpu.facts.pcie_width_max) {
        return (
            "fewer lanes than GPU and slot support: copies to and from the host are slower",
            Emphasis::Warning,
        );
    }
    match (less(&gpu.health.pcie_gen, &gpu.facts.pcie_gen_max), busy) {
        (true, true) => ("slower than GPU and slot support, although the GPU is busy", Emphasis::Warning),
        (true, false) => ("slower while idle, which is normal", Emphasis::Plain),
        _ => ("", Emphasis::Plain),
    }
}

/// Returns the label of a GPU on its node; that of a MIG instance includes its profile and ids: `GPU 0 · 2g.20gb · 2/0`.
pub fn instance_label(facts: &GpuFacts) -> String {
    let part = facts.mig.as_ref().map(|mig| format!(" · {}", instance_name(mig)));
    format!("{}{}", facts.label(), part.unwrap_or_default())
}

/// Returns the profile of a MIG instance with its ids: `2g.20gb · 2/0`.
pub fn instance_name(mig: &MigFacts) -> String {
    let profile = mig.profile.as_ref().map_or("MIG", Text::as_str);
    format!("{profile} · {}/{}", mig.gpu_instance, mig.compute_instance)
}

fn modes(gpu: &GpuPicture) -> FactGroup {
    let facts = &gpu.facts;
    let mut entries: Vec<Fact> =
        fact::listed(GpuFacts::readings(), &gpu.facts, Section::Modes).chain(license(gpu)).collect();
    if let Some(mig) = &facts.mig {
        entries.push(Fact::new(
            "MIG instance",
            format!("GPU instance {}, compute instance {}", mig.gpu_instance, mig.compute_instance),
        ));
        entries.extend(mig.profile.as_ref().map(|profile| Fact::new("Profile", profile.as_str())));
        entries.extend(mig.multiprocessors.map(|count| Fact::new("Multiprocessors", count.to_string())));
        entries.extend(facts.mig_parent.as_ref().map(|parent| Fact::new("Part of", parent.as_str())));
    }
    FactGroup::new("Modes", entries)
}

/// Returns the license for the vGPU software, if the driver has a licensable product.
fn license(gpu: &GpuPicture) -> Option<Fact> {
    let VgpuLicense { is_licensed, product, expires } = &gpu.health.license;
    let state = |is_licensed: &bool| match (is_licensed, expires) {
        (false, _) => "not licensed".to_owned(),
        (true, Reading::Value(expires)) => format!("licensed until {expires} GMT"),
        (true, _) => "licensed".to_owned(),
    };
    let is_missing = flags::is_unlicensed(gpu);
    let consequence = "the driver lowers the performance over time and may disable CUDA";
    let parts = [product.value().map_or("", Text::as_str), if is_missing { consequence } else { "" }];
    let note: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let fact = Fact::read("vGPU license", is_licensed, state).with_note(note.join(": "));
    let is_known = matches!(is_licensed, Reading::Value(_) | Reading::Failed(_));
    is_known.then(|| fact.with_emphasis_if(is_missing, Emphasis::Warning))
}

/// Returns its identity, and its driver.
pub fn identity(gpu: &GpuPicture, around: &GpuContext<'_>) -> FactGroup {
    let facts = &gpu.facts;
    let text_fact = |label, reading: &Reading<Text>| Fact::read(label, reading, ToString::to_string);
    let mut entries: Vec<Fact> = fact::listed(GpuFacts::readings(), facts, Section::Identity).collect();
    entries.extend([
        Fact::new("UUID", facts.uuid.as_str()),
        Fact::new(format!("{} index", facts.vendor.library()), facts.index.to_string()),
        Fact::read(
            "Device file",
            if is_nvidia(gpu) { &facts.minor } else { &Reading::Unsupported },
            |minor| format!("/dev/nvidia{minor}"),
        ),
    ]);
    let drivers = around.node.into_iter().flat_map(|node| node.drivers());
    for (vendor, versions) in drivers.filter(|(vendor, _)| *vendor == facts.vendor) {
        entries.push(text_fact("Driver", &versions.driver));
        entries.push(Fact::read(
            &format!("{} (driver)", vendor.platform()),
            &versions.platform,
            ToString::to_string,
        ));
    }
    FactGroup::new("Identity", entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::gpu::Virtualization;
    use nodeglass_protocol::picture::{Evidence, GpuEvent, Owner};

    fn around() -> GpuContext<'static> {
        GpuContext { node: None, job_name: &|job| format!("name of {job}") }
    }

    fn find<'a>(groups: &'a [FactGroup], label: &str) -> &'a Fact {
        groups.iter().flat_map(|group| &group.facts).find(|fact| fact.label == label).unwrap()
    }

    #[test]
    fn every_field_of_the_catalogue_is_shown_unless_another_section_does() {
        use nodeglass_protocol::field::Field as _;
        let mut gpu = GpuPicture::default();
        F::ALL.iter().for_each(|field| gpu.row.set(*field, Cell::steps(1)));
        let shown: Vec<_> = groups(&gpu).into_iter().flat_map(|group| group.facts).collect();
        let elsewhere = [F::Throttle, F::MemTotal];
        for field in F::ALL.iter().filter(|field| field.metric().group != Group::Errors) {
            let is_shown = shown.iter().any(|fact| fact.field == Some(field.name()));
            assert_eq!(is_shown, !elsewhere.contains(field), "{field:?}");
        }
    }

    #[test]
    fn a_gpu_without_readings_shows_no_zero_anywhere() {
        let groups =
            [groups(&GpuPicture::default()), vec![identity(&GpuPicture::default(), &around())]].concat();
        let readings = groups.iter().flat_map(|group| &group.facts);
        let named = ["UUID", "GPU driver index"];
        for fact in readings.filter(|fact| !named.contains(&fact.label.as_str())) {
            assert_eq!(
                (fact.value.as_str(), fact.emphasis),
                ("not read yet", Emphasis::Absent),
                "{}",
                fact.label
            );
        }
    }

    #[test]
    fn a_device_is_described_in_the_words_of_its_vendor() {
        let mut gpu = GpuPicture::default();
        F::ALL.iter().for_each(|field| gpu.row.set(*field, Cell::steps(1)));
        gpu.facts.vendor = Vendor::Amd;
        assert_eq!(find(&groups(&gpu), "XGMI received").field, Some(F::NvlinkRx.name()));
        assert_eq!(find(&groups(&gpu), "Shader").field, Some(F::SmClock.name()));
        gpu.facts.vendor = Vendor::Tpu;
        let duty = find(&groups(&gpu), "Duty cycle").clone();
        assert!(duty.note.contains("TensorCores") && !duty.note.contains("kernel"), "{}", duty.note);
        gpu.row.set(F::SmActive, Cell::UNSUPPORTED);
        assert_eq!(busy(&gpu).note, "", "GPM is of NVIDIA");
    }

    #[test]
    fn a_gpu_without_gpm_is_described_as_such() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(F::SmActive, Cell::UNSUPPORTED);
        assert!(busy(&gpu).note.contains("GPM"));
        gpu.row.set(F::SmActive, Cell::steps(40));
        assert_eq!(busy(&gpu).note, "");
    }

    #[test]
    fn a_slow_link_is_normal_when_idle_and_a_warning_when_busy() {
        let mut gpu = GpuPicture::default();
        gpu.facts.pcie_gen_max = Reading::Value(5);
        gpu.health.pcie_gen = Reading::Value(1);
        gpu.row.set(F::Util, Cell::steps(0));
        assert_eq!(pcie_note(&gpu).1, Emphasis::Plain);
        gpu.row.set(F::Util, Cell::steps(90));
        assert_eq!(pcie_note(&gpu).1, Emphasis::Warning);
        gpu.health.pcie_gen = Reading::Value(5);
        assert_eq!(pcie_note(&gpu), ("", Emphasis::Plain));
        gpu.facts.pcie_width_max = Reading::Value(16);
        gpu.health.pcie_width = Reading::Value(8);
        assert_eq!(pcie_note(&gpu).1, Emphasis::Warning);
    }

    #[test]
    fn heat_is_a_warning_near_the_slowdown_temperature() {
        let mut gpu = GpuPicture::default();
        gpu.facts.temp_slowdown_c = Reading::Value(90);
        gpu.row.set(F::Temp, Cell::steps(84));
        assert_eq!(find(&[temperature(&gpu)], "Core").emphasis, Emphasis::Plain);
        gpu.row.set(F::Temp, Cell::steps(86));
        assert_eq!(find(&[temperature(&gpu)], "Core").emphasis, Emphasis::Warning);
    }

    fn status_of(gpu: &GpuPicture, throttle: &[(u64, u32)]) -> (Severity, String) {
        let mut trace = nodeglass_protocol::trace::Trace::default();
        throttle.iter().for_each(|(second, bits)| trace.push(second * 1_000, Cell::steps(*bits), 0));
        let throttle = crate::domain::throttle::summarize(&trace, 0, 600_000);
        status(
            &NodePicture::new(nodeglass_protocol::NodeName::new("n1").unwrap()),
            gpu,
            &groups(gpu),
            &throttle,
            552_000,
        )
    }

    #[test]
    fn the_status_says_why_clocks_are_lowered_and_since_when() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(F::SmClock, Cell::steps(73));
        gpu.facts.sm_clock_max_mhz = Reading::Value(1_980);
        let hot = status_of(&gpu, &[(11, 0), (12, 0x40), (13, 0x40)]);
        assert_eq!(hot, (Severity::Warning, "Too hot: clocks 1,095 of 1,980 MHz for 9 min".to_owned()));
        let capped = status_of(&gpu, &[(11, 0), (12, 0x4), (13, 0x4)]);
        assert_eq!(capped, (Severity::Ok, "Healthy".to_owned()), "a power cap is normal");
        let cool = status_of(&gpu, &[(12, 0x40), (13, 0)]);
        assert_eq!(cool.0, Severity::Ok, "it was too hot before");
    }

    #[test]
    fn the_status_prefers_a_lost_gpu_to_a_warning() {
        let mut gpu = GpuPicture::default();
        gpu.facts.pcie_width_max = Reading::Value(16);
        gpu.health.pcie_width = Reading::Value(8);
        gpu.health.pcie_gen = Reading::Value(5);
        let narrow = status_of(&gpu, &[]);
        assert_eq!(narrow.0, Severity::Warning);
        assert!(narrow.1.starts_with("Links: PCIe link: generation 5 ×8"), "{}", narrow.1);
        gpu.fault = Some("GPU is lost".into());
        assert_eq!(status_of(&gpu, &[]), (Severity::Error, "Cannot be read: GPU is lost".to_owned()));
    }

    #[test]
    fn a_gpu_that_had_an_xid_within_the_hour_is_not_healthy() {
        let gpu = GpuPicture::default();
        let status_after = |number: u64, age_ms: u64| {
            let mut node = NodePicture::new(nodeglass_protocol::NodeName::new("n1").unwrap());
            let gpu_uuid = Some(gpu.facts.uuid.clone());
            node.head.events.push(GpuEvent {
                at_ms: 8_000_000 - age_ms,
                gpu: gpu_uuid,
                xid: Some(number),
                text: "Xid".into(),
            });
            status(&node, &gpu, &groups(&gpu), &[], 8_000_000)
        };
        assert_eq!(
            status_after(79, 540_000),
            (Severity::Error, "Xid 79, 9 min ago: fell off the bus".to_owned())
        );
        assert_eq!(status_after(79, 3_600_000).1, "Healthy");
        assert_eq!(status_after(31, 540_000).1, "Healthy", "a program caused it");
    }

    #[test]
    fn owners_are_shown_with_their_evidence() {
        let mut gpu = GpuPicture::default();
        assert_eq!(owners(&gpu, &around()).note, "No known job owns it.");
        gpu.owners.push(Owner { job: nodeglass_protocol::JobId(17), by: Evidence::GresIndex });
        let group = owners(&gpu, &around());
        assert_eq!(group.facts[0].value, "name of 17");
        assert_eq!(group.facts[0].note, "allocated by SLURM");
    }

    #[test]
    fn a_missing_license_is_a_warning_that_says_what_it_costs() {
        let mut gpu = GpuPicture::default();
        assert!(license(&gpu).is_none());
        gpu.facts.virtualization = Reading::Value(Virtualization::VgpuGuest);
        gpu.health.license = VgpuLicense {
            is_licensed: Reading::Value(true),
            product: Reading::Value("NVIDIA Virtual Compute Server".into()),
            expires: Reading::Value("2026-12-31 13:05:00".into()),
        };
        let fact = license(&gpu).unwrap();
        assert_eq!(
            (fact.value.as_str(), fact.emphasis),
            ("licensed until 2026-12-31 13:05:00 GMT", Emphasis::Plain)
        );
        assert_eq!(fact.note, "NVIDIA Virtual Compute Server");
        gpu.health.license.is_licensed = Reading::Value(false);
        let fact = license(&gpu).unwrap();
        assert_eq!((fact.value.as_str(), fact.emphasis), ("not licensed", Emphasis::Warning));
        let note =
            "NVIDIA Virtual Compute Server: the driver lowers the performance over time and may disable CUDA";
        assert_eq!(fact.note, note);
        assert_eq!(status_of(&gpu, &[]).0, Severity::Warning);
        gpu.health.license.is_licensed = Reading::Unsupported;
        assert!(license(&gpu).is_none(), "a driver without vGPUs");
    }
}
