//! Accelerators that Linux lists and no source or not this probe can read: stated as the reason of a source that never
//! becomes available, so that they are not omitted.

use super::confinement;
use super::drm::attribute;
use super::drm::card::{self, MAX_ENTRIES};
use super::tpu;
use super::{Absent, PCI_EVERY, Session, Source};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// DRM drivers that other sources read.
const READ: [&str; 5] = ["amdgpu", "i915", "xe", "nvidia", "nvidia-drm"];
/// Beginnings of the names of DRM drivers for GPUs that compute nothing: partitions of AMD GPUs, which
/// are read with their GPU, management processors, virtual and software displays.
const DISPLAYS: [&str; 17] = [
    "amdgpu_xcp",
    "ast",
    "bochs",
    "cirrus",
    "gud",
    "hibmc",
    "hyperv",
    "matrox",
    "mgag200",
    "qxl",
    "simple",
    "udl",
    "vboxvideo",
    "vgem",
    "virtio",
    "vkms",
    "vmwgfx",
];
/// Accelerators by their driver.
const DRIVERS: [(&str, &str); 10] = [
    ("amdxdna", "AMD NPU"),
    ("apex", "Google Edge TPU"),
    ("habanalabs", "Intel Gaudi"),
    ("intel_vpu", "Intel NPU"),
    ("ivpu", "Intel NPU"),
    ("nouveau", "NVIDIA GPU"),
    ("qaic", "Qualcomm Cloud AI"),
    ("radeon", "AMD GPU"),
    ("rocket", "Rockchip NPU"),
    ("tenstorrent", "Tenstorrent accelerator"),
];
/// Vendors of accelerators by PCI id. NVIDIA's GPUs are the NVML source's concern.
const VENDORS: [(u32, &str); 5] =
    [(0x1002, "AMD"), (0x8086, "Intel"), (0x1ae0, "Google"), (0x1da3, "Habana"), (0x1e52, "Tenstorrent")];
/// PCI class of display controllers, the subclass of those without a display, and the class of
/// processing accelerators.
const DISPLAY: u32 = 0x03;
const ACCELERATOR: u32 = 0x12;

/// The source of what no source reads. Opening it always fails.
pub struct UnreadSource {
    root: PathBuf,
    attempts: u32,
    /// PCI devices without a driver at the last look.
    unbound: BTreeMap<String, u32>,
}

impl UnreadSource {
    /// Creates a source of the `/sys` below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), attempts: 0, unbound: BTreeMap::new() }
    }
}

impl Source for UnreadSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        if self.attempts.is_multiple_of(PCI_EVERY) {
            self.unbound = unbound(&self.root);
        }
        self.attempts = self.attempts.wrapping_add(1);
        let mut counts = self.unbound.clone();
        for text in gpus(&self.root).into_iter().chain(accelerators(&self.root)) {
            *counts.entry(text).or_default() += 1;
        }
        let unread = counts.into_iter().map(|(text, count)| numbered(&text, count));
        let unread: Vec<_> = unread.collect();
        let confinement = confinement::of_this_probe(&self.root).map(|found| found.to_string().into());
        Err(Absent { reason: unread.join("; ").into(), confinement })
    }
}

fn numbered(text: &str, count: u32) -> String {
    if count == 1 { text.to_owned() } else { format!("{count} × {text}") }
}

/// GPUs with a render node whose driver no source reads.
fn gpus(root: &Path) -> Vec<String> {
    let class = root.join("sys/class/drm");
    let is_unread = |driver: &String| {
        !READ.contains(&driver.as_str()) && !DISPLAYS.iter().any(|display| driver.starts_with(display))
    };
    let renders = names(&class).into_iter().filter(|name| card::number(name, "renderD").is_some());
    let drivers =
        renders.filter_map(|name| card::driver_of(&class.join(name).join("device"))).filter(is_unread);
    drivers.map(|driver| unread(&driver, "GPU")).collect()
}

/// Devices of the kernel's class for compute accelerators.
fn accelerators(root: &Path) -> Vec<String> {
    let class = root.join("sys/class/accel");
    let devices = names(&class).into_iter().filter(|name| card::number(name, "accel").is_some());
    let devices = devices.filter(|name| !tpu::is_chip(&class.join(name).join("device")));
    let driver = |name: String| card::driver_of(&class.join(name).join("device"));
    devices
        .map(|name| unread(&driver(name).unwrap_or_else(|| "without a driver".into()), "accelerator"))
        .collect()
}

/// PCI devices that compute, have no driver or were given to a virtual machine.
fn unbound(root: &Path) -> BTreeMap<String, u32> {
    let devices = root.join("sys/bus/pci/devices");
    let mut counts = BTreeMap::new();
    for name in names(&devices) {
        let device = devices.join(name);
        let Some(class) = attribute::read_hex(&device.join("class")).map(|class| class >> 16) else {
            continue;
        };
        if class != DISPLAY && class != ACCELERATOR || tpu::is_chip(&device) {
            continue;
        }
        let vendor = attribute::read_hex(&device.join("vendor"));
        let vendor = VENDORS.iter().find(|(id, _)| Some(*id) == vendor).map(|(_, name)| *name);
        let kind = if class == DISPLAY { "GPU" } else { "accelerator" };
        let Some(vendor) = vendor else { continue };
        let why = match card::driver_of(&device).as_deref() {
            None => "no driver is bound to it",
            Some("vfio-pci") => "it is passed to a virtual machine (vfio-pci)",
            Some(_) => continue,
        };
        *counts.entry(format!("{vendor} {kind}: {why}")).or_default() += 1;
    }
    counts
}

fn unread(driver: &str, kind: &str) -> String {
    let name = DRIVERS.iter().find(|(known, _)| *known == driver).map_or(kind, |(_, name)| *name);
    format!("{name} ({driver}): no source reads it")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES);
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}
