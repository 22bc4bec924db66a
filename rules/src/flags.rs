//! Flags of a GPU: errors, warnings, and remarks that are normal for a healthy job.

use crate::attention;
use crate::severity::Severity;
use crate::text;
use crate::throttle::{self, reason};
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::gpu::Virtualization;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{GpuField, Reading};

/// The kind of a flag, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlagKind {
    /// Uncorrected memory errors.
    EccUncorrected,
    /// A row of memory could not be remapped.
    RemapFailed,
    /// A row of memory waits to be remapped.
    RemapPending,
    /// A page of memory waits to be retired.
    RetirePending,
    /// Clocks are lowered because of heat.
    Thermal,
    /// The power supply requests lower clocks.
    PowerBrake,
    /// The hardware lowers the clocks and reports no reason.
    Slowdown,
    /// NVLinks are down.
    NvLinkDown,
    /// Fewer PCIe lanes than GPU and slot have.
    PcieNarrow,
    /// A vGPU without a license.
    Unlicensed,
    /// The software power cap.
    PowerCap,
    /// Corrected memory errors.
    EccCorrected,
    /// A remark of a view.
    Other,
}

impl FlagKind {
    /// Returns what is wrong in a few words, for where a flag stands alone: `too hot`. `None` for remarks.
    pub fn phrase(self) -> Option<&'static str> {
        Some(match self {
            Self::EccUncorrected => "memory error",
            Self::RemapFailed => "row remap failed",
            Self::RemapPending => "row remap pending",
            Self::RetirePending => "page retirement pending",
            Self::Thermal => "too hot",
            Self::PowerBrake => "power brake",
            Self::Slowdown => "slowed down",
            Self::NvLinkDown => "NVLink down",
            Self::PcieNarrow => "PCIe narrow",
            Self::Unlicensed => "no vGPU license",
            Self::PowerCap | Self::EccCorrected | Self::Other => return None,
        })
    }
}

/// One flag in a GPU's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Kind.
    pub kind: FlagKind,
    /// The text: `!THERM`, `ECC:2`.
    pub text: String,
    /// Meaning, one sentence.
    pub why: &'static str,
    /// Severity.
    pub severity: Severity,
}

impl Flag {
    fn new(kind: FlagKind, text: impl Into<String>, severity: Severity, why: &'static str) -> Self {
        Self { kind, text: text.into(), why, severity }
    }

    /// Returns what is wrong with which GPU: `GPU 1 too hot`.
    pub fn label(&self, gpu: &GpuPicture) -> String {
        format!("{} {}", gpu.facts.label(), self.kind.phrase().unwrap_or(&self.text))
    }
}

/// Returns the label of a GPU that has a fault: `GPU 1 cannot be read`.
pub fn unreadable(gpu: &GpuPicture) -> String {
    format!("{} cannot be read", gpu.facts.label())
}

/// Returns how severe it is that a GPU cannot be read: less if others of its node have jobs, and it has none, as in the
/// finding `gpu_lost`.
pub fn fault_severity(node: &NodePicture, gpu: &GpuPicture) -> Severity {
    let is_unused = gpu.owners.is_empty() && node.gpus.iter().any(|other| !other.owners.is_empty());
    if is_unused { Severity::Warning } else { Severity::Error }
}

/// Returns the flags of a GPU of a node, the most severe first. A reading that is missing raises none.
pub fn for_gpu(node: &NodePicture, gpu: &GpuPicture) -> Vec<Flag> {
    let reasons = gpu.row.value(GpuField::Throttle).unwrap_or(0);
    let errors = |field| gpu.row.value(field).filter(|count| *count > 0);
    let mut flags = Vec::new();
    flags.extend(errors(GpuField::EccUncorrected).map(|count| {
        let why = "Uncorrected memory errors since the driver was loaded; results since then may be wrong.";
        // Most are of earlier jobs; see `judged`.
        Flag::new(FlagKind::EccUncorrected, format!("ECC:{count}"), Severity::Warning, why)
    }));
    add_memory_repairs(gpu, &mut flags);
    add_throttling(reasons, &mut flags);
    add_links(node, gpu, &mut flags);
    if is_unlicensed(gpu) {
        let why =
            "This vGPU has no license: the driver lowers its performance over time and may disable CUDA.";
        flags.push(Flag::new(FlagKind::Unlicensed, "no license", Severity::Warning, why));
    }
    if reasons & u64::from(reason::SW_POWER_CAP) != 0 {
        let why = throttle::meaning(reason::SW_POWER_CAP);
        flags.push(Flag::new(FlagKind::PowerCap, "PWR cap", Severity::Ok, why));
    }
    flags.extend(errors(GpuField::EccCorrected).map(|count| {
        let why = "Memory errors that were corrected since the driver was loaded.";
        Flag::new(FlagKind::EccCorrected, format!("ECC {count} corr"), Severity::Ok, why)
    }));
    flags
}

/// Returns the flags of a GPU as severe as the findings are. Only these know whether a memory error occurred during the job.
pub fn judged(node: &NodePicture, gpu: &GpuPicture, findings: &[Finding]) -> Vec<Flag> {
    let mut flags = for_gpu(node, gpu);
    let is_about = |finding: &Finding| {
        finding.kind == FindingKind::MemoryErrors
            && finding.gpus.iter().any(|named| named.uuid == gpu.facts.uuid)
    };
    judge(&mut flags, attention::worst(findings, is_about).map(|finding| finding.severity.into()));
    flags
}

/// Gives the flag of uncorrected memory errors the severity of the finding about the memory of its GPU, if there is one.
pub fn judge(flags: &mut [Flag], memory_errors: Option<Severity>) {
    let flag = flags.iter_mut().find(|flag| flag.kind == FlagKind::EccUncorrected);
    if let (Some(flag), Some(severity)) = (flag, memory_errors) {
        flag.severity = severity;
    }
}

/// Adds the repairs of memory that failed or wait for a reset.
fn add_memory_repairs(gpu: &GpuPicture, flags: &mut Vec<Flag>) {
    let health = &gpu.health;
    let is_set = |reading: &Reading<bool>| reading.value() == Some(&true);
    if is_set(&health.remap_failed) {
        let why = "Remapping a row of memory failed: the GPU must be replaced.";
        flags.push(Flag::new(FlagKind::RemapFailed, "!REMAP", Severity::Error, why));
    }
    if is_set(&health.remap_pending) {
        let why = "A row of memory waits to be remapped: the GPU needs a reset.";
        flags.push(Flag::new(FlagKind::RemapPending, "REMAP", Severity::Warning, why));
    }
    if is_set(&health.retired_pending) {
        let why = "A page of memory waits to be retired: the node needs a reboot.";
        flags.push(Flag::new(FlagKind::RetirePending, "RETIRE", Severity::Warning, why));
    }
}

/// Adds the throttle reasons that are warnings.
fn add_throttling(reasons: u64, flags: &mut Vec<Flag>) {
    let has = |bits: u32| reasons & u64::from(bits) != 0;
    let mut warn = |kind, text, why| flags.push(Flag::new(kind, text, Severity::Warning, why));
    if has(reason::SW_THERMAL | reason::HW_THERMAL) {
        warn(FlagKind::Thermal, "!THERM", "Clocks are lowered because the GPU is too hot.");
    }
    if has(reason::HW_POWER_BRAKE) {
        warn(FlagKind::PowerBrake, "!PWR", throttle::meaning(reason::HW_POWER_BRAKE));
    }
    let named = reason::SW_THERMAL | reason::HW_THERMAL | reason::HW_POWER_BRAKE;
    if has(reason::HW_SLOWDOWN) && !has(named) {
        warn(FlagKind::Slowdown, "!SLOW", "The hardware lowers the clocks and reports no reason.");
    }
}

/// Returns whether it is a vGPU of this machine without a license. A whole GPU needs one for graphics only.
pub fn is_unlicensed(gpu: &GpuPicture) -> bool {
    let is_guest = gpu.facts.virtualization == Reading::Value(Virtualization::VgpuGuest);
    is_guest && gpu.health.license.is_licensed == Reading::Value(false)
}

/// Returns the numbers of a GPU's wired NVLinks that are down. NVML also reports unconnected links as down, such as
/// the links of a bridge that is not fitted.
pub fn links_down(node: &NodePicture, gpu: &GpuPicture) -> Vec<u32> {
    let is_down = |gpu: &GpuPicture, number: u32| {
        gpu.health.nvlinks.iter().any(|link| link.link == number && link.up.value() == Some(&false))
    };
    let links = &gpu.health.nvlinks;
    let down = || links.iter().map(|link| link.link).filter(|number| is_down(gpu, *number));
    let is_peer = |peer: &&GpuPicture| {
        peer.facts.uuid != gpu.facts.uuid
            && peer.facts.mig_parent.is_none()
            && peer.facts.name == gpu.facts.name
    };
    let peers: Vec<&GpuPicture> = node.gpus.iter().filter(is_peer).collect();
    // A bridge joins two or four GPUs: where one is not fitted, its links are down on several of them.
    let is_up_on_all_peers = |number| !peers.is_empty() && peers.iter().all(|peer| !is_down(peer, number));
    // A fault takes a link or two, a bridge that is not fitted all of its links.
    let has_others_up = links.iter().any(|link| link.up.value() == Some(&true));
    let is_part_of_bridge = has_others_up && down().count() < links_per_bridge(links.len());
    down().filter(|number| is_part_of_bridge || is_up_on_all_peers(*number)).collect()
}

/// Returns how many of `links` NVLinks of a card one bridge joins: 4 of 12 (A100 PCIe), 6 of 18 (H100 NVL), all of up
/// to 4 (A40, RTX A6000).
const fn links_per_bridge(links: usize) -> usize {
    if links <= 4 { links } else { links / 3 }
}

/// Adds links that are down or narrower than they could be.
fn add_links(node: &NodePicture, gpu: &GpuPicture, flags: &mut Vec<Flag>) {
    let down = links_down(node, gpu).len();
    if down > 0 {
        let why = "NVLinks are down: transfers between GPUs are slower, or fail.";
        let text = format!("{} down", text::count(down, "NVLink", "NVLinks"));
        flags.push(Flag::new(FlagKind::NvLinkDown, text, Severity::Warning, why));
    }
    let (now, most) = (gpu.health.pcie_width.value(), gpu.facts.pcie_width_max.value());
    if let Some((now, most)) = now.zip(most)
        && *now > 0
        && *now < u64::from(*most)
    {
        let why = "Fewer PCIe lanes than GPU and slot have: transfers from the host are slower.";
        flags.push(Flag::new(FlagKind::PcieNarrow, format!("PCIe ×{now}"), Severity::Warning, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::gpu::NvLink;

    /// The flags of a GPU that is alone on its node.
    fn of(gpu: &GpuPicture) -> Vec<Flag> {
        for_gpu(&NodePicture::new("n1".parse().unwrap()), gpu)
    }

    fn texts(throttle: u32) -> Vec<String> {
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Throttle, Cell::steps(throttle));
        of(&gpu).into_iter().map(|flag| flag.text).collect()
    }

    #[test]
    fn idle_and_application_clocks_raise_no_flag() {
        for reasons in [0x0, 0x1, 0x2, 0x10, 0x100] {
            assert!(texts(reasons).is_empty(), "{reasons:#x}");
        }
    }

    #[test]
    fn the_power_cap_is_never_a_warning() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Throttle, Cell::steps(0x4));
        let flags = of(&gpu);
        assert_eq!((flags.len(), flags[0].text.as_str(), flags[0].severity), (1, "PWR cap", Severity::Ok));
    }

    #[test]
    fn heat_is_a_warning_whichever_reason_reports_it() {
        assert_eq!(texts(0x20), ["!THERM"]);
        assert_eq!(texts(0x40 | 0x8), ["!THERM"]);
    }

    #[test]
    fn a_power_brake_precedes_the_cap() {
        assert_eq!(texts(0x80 | 0x8 | 0x4), ["!PWR", "PWR cap"]);
    }

    #[test]
    fn a_slowdown_without_a_named_reason_is_flagged() {
        assert_eq!(texts(0x8), ["!SLOW"]);
    }

    #[test]
    fn memory_errors_are_counted_and_zero_is_not_shown() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::EccUncorrected, Cell::steps(0));
        gpu.row.set(GpuField::EccCorrected, Cell::steps(1));
        assert_eq!(of(&gpu)[0].text, "ECC 1 corr");
        gpu.row.set(GpuField::EccUncorrected, Cell::steps(3));
        assert_eq!((of(&gpu)[0].text.as_str(), of(&gpu)[0].severity), ("ECC:3", Severity::Warning));
        let mut flags = of(&gpu);
        judge(&mut flags, Some(Severity::Error));
        assert_eq!(flags[0].severity, Severity::Error, "it occurred during the job");
    }

    #[test]
    fn a_missing_reading_raises_no_flag() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Throttle, Cell::UNSUPPORTED);
        gpu.row.set(GpuField::EccUncorrected, Cell::FAILED);
        assert!(of(&gpu).is_empty());
    }

    #[test]
    fn throttling_is_a_warning_and_uncorrected_errors_precede_it() {
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Throttle, Cell::steps(0x40 | 0x80));
        gpu.row.set(GpuField::EccUncorrected, Cell::steps(1));
        let flags: Vec<_> = of(&gpu).into_iter().map(|flag| (flag.kind, flag.severity)).collect();
        assert_eq!(
            flags,
            [
                (FlagKind::EccUncorrected, Severity::Warning),
                (FlagKind::Thermal, Severity::Warning),
                (FlagKind::PowerBrake, Severity::Warning)
            ]
        );
    }

    #[test]
    fn repairs_that_wait_or_failed_are_flagged() {
        let mut gpu = GpuPicture::default();
        gpu.health.remap_pending = Reading::Value(true);
        gpu.health.retired_pending = Reading::Value(true);
        gpu.health.remap_failed = Reading::Value(false);
        let texts = |gpu: &GpuPicture| of(gpu).into_iter().map(|flag| flag.text).collect::<Vec<_>>();
        assert_eq!(texts(&gpu), ["REMAP", "RETIRE"]);
        gpu.health.remap_failed = Reading::Value(true);
        assert_eq!((texts(&gpu)[0].as_str(), of(&gpu)[0].severity), ("!REMAP", Severity::Error));
    }

    #[test]
    fn links_that_are_down_or_narrow_are_flagged_and_unknown_ones_are_not() {
        let mut gpu = GpuPicture::default();
        let link = |link, up| NvLink { link, up: Reading::Value(up), ..NvLink::default() };
        gpu.health.nvlinks = vec![link(0, true), link(1, false), NvLink::default()];
        gpu.health.pcie_width = Reading::Value(8);
        assert_eq!(of(&gpu)[0].text, "1 NVLink down");
        assert_eq!(of(&gpu).len(), 1, "the maximum width is unknown");
        gpu.facts.pcie_width_max = Reading::Value(16);
        assert_eq!(of(&gpu)[1].text, "PCIe ×8");
        assert_eq!(of(&gpu).len(), 2);
    }

    #[test]
    fn only_a_vgpu_without_a_license_is_flagged() {
        let mut gpu = GpuPicture::default();
        gpu.facts.virtualization = Reading::Value(Virtualization::VgpuGuest);
        assert!(of(&gpu).is_empty(), "it is not known");
        gpu.health.license.is_licensed = Reading::Value(true);
        assert!(of(&gpu).is_empty());
        gpu.health.license.is_licensed = Reading::Value(false);
        assert_eq!((of(&gpu)[0].text.as_str(), of(&gpu)[0].severity), ("no license", Severity::Warning));
        gpu.facts.virtualization = Reading::Value(Virtualization::PassThrough);
        assert!(of(&gpu).is_empty(), "a whole GPU computes without");
    }

    #[test]
    fn a_bridge_that_is_not_fitted_is_no_fault() {
        let links = |up: std::ops::Range<u32>| {
            let link = |link| NvLink { link, up: Reading::Value(up.contains(&link)), ..NvLink::default() };
            (0..12).map(link).collect::<Vec<_>>()
        };
        let mut node = NodePicture::new("n1".parse().unwrap());
        let gpu = |(index, up)| {
            let mut gpu = GpuPicture::default();
            gpu.facts.uuid = nodeglass_protocol::GpuUuid::new(format!("{index}"));
            gpu.health.nvlinks = links(up);
            gpu
        };
        let down =
            |node: &NodePicture| node.gpus.iter().map(|gpu| links_down(node, gpu).len()).collect::<Vec<_>>();
        // One of three bridges between two cards; one of two pairs bridged; one card alone.
        node.gpus = [0..4, 0..4].into_iter().enumerate().map(gpu).collect();
        assert_eq!(down(&node), [0, 0]);
        node.gpus = [0..8, 0..8, 0..0, 0..0].into_iter().enumerate().map(gpu).collect();
        assert_eq!(down(&node), [0, 0, 0, 0]);
        node.gpus = vec![gpu((0, 0..8))];
        assert_eq!(down(&node), [0]);
        // A link of a bridge, which is down at both of its ends, and all links of one of four GPUs.
        node.gpus = [0..11, 0..11].into_iter().enumerate().map(gpu).collect();
        assert_eq!(down(&node), [1, 1]);
        node.gpus = [0..12, 0..12, 0..0, 0..12].into_iter().enumerate().map(gpu).collect();
        assert_eq!(down(&node), [0, 0, 12, 0]);
    }

    #[test]
    fn a_link_that_is_down_on_every_gpu_leads_nowhere() {
        let down = |numbers: &[u32]| {
            let link = |link: &u32| NvLink { link: *link, up: Reading::Value(false), ..NvLink::default() };
            numbers.iter().map(link).collect::<Vec<_>>()
        };
        let mut node = NodePicture::new("n1".parse().unwrap());
        node.gpus = (0..3u32)
            .map(|index| {
                let mut gpu = GpuPicture::default();
                gpu.facts.uuid = nodeglass_protocol::GpuUuid::new(index.to_string());
                gpu.health.nvlinks = down(&[4, 5]);
                gpu
            })
            .collect();
        let count =
            |node: &NodePicture| node.gpus.iter().filter(|gpu| !for_gpu(node, gpu).is_empty()).count();
        assert_eq!(count(&node), 0, "not wired");
        node.gpus[1].health.nvlinks = down(&[4]);
        node.gpus[2].health.nvlinks = down(&[4]);
        assert_eq!(links_down(&node, &node.gpus[0]), [5], "link 5 is up elsewhere");
        assert_eq!(links_down(&node, &node.gpus[1]), [0u32; 0]);
    }
}
