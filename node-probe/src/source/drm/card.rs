//! The GPUs in `/sys/class/drm`: one `cardN` per device, beside connectors (`card0-DP-1`) and render
//! nodes (`renderD128`).

use super::attribute;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Maximum number of entries of a folder that are looked at.
pub const MAX_ENTRIES: usize = 65_536;

/// One GPU with a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// N of `cardN`.
    pub number: u32,
    /// Its folder, `/sys/class/drm/cardN`.
    pub folder: PathBuf,
    /// Folder of its device, without symbolic links.
    pub device: PathBuf,
    /// PCI address: `0000:03:00.0`.
    pub pci: Option<String>,
    /// Name of its driver: `amdgpu`.
    pub driver: String,
    /// PCI device id.
    pub device_id: Option<u32>,
    /// PCI revision.
    pub revision: Option<u32>,
    /// N of `/dev/dri/renderDN`.
    pub render: Option<u32>,
    /// The part of the device that this entry is, if the device is divided.
    pub partition: Option<Partition>,
}

/// A partition of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 0 on.
    pub number: u32,
    /// Number of partitions of the GPU.
    pub count: u32,
}

impl Card {
    /// Sort key: the order of the device files.
    fn order(&self) -> (u32, u32) {
        (self.render.unwrap_or(u32::MAX), self.number)
    }

    /// Returns its identity while the machine runs: the PCI address, otherwise the card number.
    pub fn identity(&self) -> String {
        let device = self.pci.clone().unwrap_or_else(|| format!("card{}", self.number));
        match self.partition {
            Some(Partition { number, .. }) => format!("{device}/{number}"),
            None => device,
        }
    }

    /// Returns the entries of a device that is divided into `count` partitions. The kernel numbers
    /// their device files in sequence.
    pub fn divided(self, count: u32) -> Vec<Self> {
        let part = |number| Self {
            render: self.render.map(|render| render.saturating_add(number)),
            partition: Some(Partition { number, count }),
            ..self.clone()
        };
        (0..count).map(part).collect()
    }

    /// Returns whether it is the whole device, or the partition that stands for its board.
    pub fn is_first(&self) -> bool {
        self.partition.is_none_or(|partition| partition.number == 0)
    }
}

/// Lists the GPUs with one of these drivers, by device file.
///
/// # Errors
/// If the folder cannot be read. A kernel without DRM has no GPUs, which is not an error.
pub fn cards(root: &Path, drivers: &[&str]) -> io::Result<Vec<Card>> {
    let class = root.join("sys/class/drm");
    let entries = match fs::read_dir(&class) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.take(MAX_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut cards: Vec<_> =
        names.filter_map(|name| card(&class.join(&name), number(&name, "card")?, drivers)).collect();
    cards.sort_by_key(Card::order);
    Ok(cards)
}

/// Counts the partitions of AMD GPUs that have a card of their own, which the first partition of each GPU
/// has not.
pub fn partition_cards(root: &Path) -> u32 {
    let class = root.join("sys/class/drm");
    let entries = fs::read_dir(&class).into_iter().flatten().take(MAX_ENTRIES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_partition = |name: &String| {
        let device =
            number(name, "card").and_then(|_| fs::canonicalize(class.join(name).join("device")).ok());
        let folder = device.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        folder.is_some_and(|folder| folder.starts_with("amdgpu_xcp"))
    };
    u32::try_from(names.filter(is_partition).count()).unwrap_or(0)
}

/// Returns the number after a prefix, if nothing follows it.
pub fn number(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Returns the name of a device's driver.
pub fn driver_of(device: &Path) -> Option<String> {
    fs::read_link(device.join("driver")).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// Returns the PCI address that a device's folder is named after.
pub fn pci_of(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (domain, rest) = name.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (slot, function) = rest.split_once('.')?;
    [domain, bus, slot, function].into_iter().all(is_hex).then(|| name.to_ascii_lowercase())
}

fn card(folder: &Path, number: u32, drivers: &[&str]) -> Option<Card> {
    // Of another vendor's GPUs only this link is read.
    let driver = driver_of(&folder.join("device")).filter(|driver| drivers.contains(&driver.as_str()))?;
    let device = fs::canonicalize(folder.join("device")).ok()?;
    Some(Card {
        number,
        folder: folder.to_owned(),
        pci: pci_of(&device),
        driver,
        device_id: attribute::read_hex(&device.join("device")),
        revision: attribute::read_hex(&device.join("revision")),
        render: render_node(&device),
        device,
        partition: None,
    })
}

fn render_node(device: &Path) -> Option<u32> {
    let entries = fs::read_dir(device.join("drm")).ok()?.take(MAX_ENTRIES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| self::number(&name, "renderD")).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connectors_are_no_cards_and_only_full_addresses_are_pci() {
        assert_eq!([number("card1", "card"), number("card0-DP-1", "card")], [Some(1), None]);
        assert_eq!(pci_of(Path::new("/x/0000:C3:00.0")).as_deref(), Some("0000:c3:00.0"));
        assert_eq!([pci_of(Path::new("/x/amdgpu_xcp.1")), pci_of(Path::new("/x/pci0000:00"))], [None, None]);
    }
}
