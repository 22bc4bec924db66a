//! The TPU chips that the PCI core lists.

use crate::source::drm::attribute;
use crate::source::drm::card::{self, MAX_ENTRIES};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// PCI vendor id of Google.
const GOOGLE: u32 = 0x1ae0;

/// A generation of chips.
#[derive(Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its name: `TPU v5e`.
    pub name: &'static str,
    /// Number of devices that the TPU runtime counts on a chip.
    pub devices: u32,
    device_id: u32,
    /// PCI subsystem, where it distinguishes generations.
    subsystem: Option<u32>,
}

const fn generation(name: &'static str, device_id: u32, subsystem: Option<u32>, devices: u32) -> Generation {
    Generation { name, devices, device_id, subsystem }
}

/// The generations that Google's `tpu-info` knows, by PCI id.
const GENERATIONS: [Generation; 7] = [
    generation("TPU v2", 0x27, Some(0x4e), 2),
    generation("TPU v3", 0x27, Some(0x4f), 2),
    generation("TPU v4", 0x5e, None, 1),
    generation("TPU v5p", 0x62, None, 1),
    generation("TPU v5e", 0x63, None, 1),
    generation("TPU v6e", 0x6f, None, 1),
    generation("TPU v7x", 0x76, None, 2),
];

/// A chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chip {
    /// PCI address: `0000:00:05.0`.
    pub pci: String,
    /// Folder of its device, without symbolic links.
    pub folder: PathBuf,
    /// Its generation.
    pub generation: &'static Generation,
    /// Name of its device file below `/dev`: `accel0`, or `vfio/0` on newer TPU VMs.
    pub file: Option<String>,
}

impl Chip {
    /// Sort key: the number of the device file, then the address.
    fn order(&self) -> (u32, String) {
        let digits = |file: &String| file.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
        (self.file.as_ref().and_then(digits).unwrap_or(u32::MAX), self.pci.clone())
    }
}

/// Returns whether a PCI device is a chip that this source lists.
pub fn is_chip(device: &Path) -> bool {
    generation_of(device).is_some()
}

fn generation_of(device: &Path) -> Option<&'static Generation> {
    if attribute::read_hex(&device.join("vendor")) != Some(GOOGLE) {
        return None;
    }
    let id = attribute::read_hex(&device.join("device"))?;
    let subsystem = attribute::read_hex(&device.join("subsystem_device"));
    GENERATIONS
        .iter()
        .find(|one| one.device_id == id && (one.subsystem.is_none() || one.subsystem == subsystem))
}

/// Lists the chips, by device file.
///
/// # Errors
/// If the PCI devices cannot be listed. A machine without PCI has no chips, which is not an error.
pub fn chips(root: &Path) -> io::Result<Vec<Chip>> {
    let devices = root.join("sys/bus/pci/devices");
    let entries = match fs::read_dir(&devices) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.take(MAX_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found: Vec<_> = names.filter_map(|pci| Some((generation_of(&devices.join(&pci))?, pci))).collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let files = accel_files(root);
    let mut chips: Vec<_> = found
        .into_iter()
        .map(|(generation, pci)| {
            let folder = devices.join(&pci);
            let folder = fs::canonicalize(&folder).unwrap_or(folder);
            let accel = files.iter().find(|(device, _)| *device == folder).map(|(_, name)| name.clone());
            Chip { file: accel.or_else(|| vfio_file(&folder)), pci, folder, generation }
        })
        .collect();
    chips.sort_by_key(Chip::order);
    Ok(chips)
}

/// Devices of `/sys/class/accel` with the names of their files.
fn accel_files(root: &Path) -> Vec<(PathBuf, String)> {
    let class = root.join("sys/class/accel");
    let entries = fs::read_dir(&class).into_iter().flatten().take(MAX_ENTRIES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.filter(|name| card::number(name, "accel").is_some());
    names.filter_map(|name| Some((fs::canonicalize(class.join(&name).join("device")).ok()?, name))).collect()
}

/// The file of a device that user space drives: `vfio/` and the number of its IOMMU group.
fn vfio_file(device: &Path) -> Option<String> {
    let is_vfio = card::driver_of(device).is_some_and(|driver| driver.starts_with("vfio"));
    let group = fs::read_link(device.join("iommu_group")).ok().filter(|_| is_vfio)?;
    let number: u32 = group.file_name()?.to_str()?.parse().ok()?;
    Some(format!("vfio/{number}"))
}
