//! The PCIe link of a GPU, from the attributes of the PCI core.

use super::attribute::{self, Attribute, ReadError};
use super::card;
use std::path::{Path, PathBuf};

/// Class code of a PCI bridge, without the programming interface.
const BRIDGE: u32 = 0x0604;

/// The PCIe link between a card and its slot.
#[derive(Debug)]
pub struct PcieLink {
    speed: Attribute,
    width: Attribute,
    /// Folders of the card and its slot, which state what they support.
    ends: [Option<PathBuf>; 2],
}

impl PcieLink {
    /// Opens the attributes of a device's link.
    ///
    /// Large cards have a switch of their own between slot and GPU, behind which the GPU reports the link within the
    /// card. The first bridge of the card reports the link of the slot.
    pub fn of(device: &Path) -> Self {
        let on_slot = on_slot(device);
        let open = |name: &str| Attribute::open(&on_slot.join(name));
        let slot = on_slot.parent().filter(|parent| card::pci_of(parent).is_some()).map(Path::to_owned);
        Self {
            speed: open("current_link_speed"),
            width: open("current_link_width"),
            ends: [Some(on_slot), slot],
        }
    }

    /// Opens an attribute of both ends.
    fn of_ends(&self, name: &str) -> [Attribute; 2] {
        self.ends
            .each_ref()
            .map(|end| end.as_ref().map_or_else(Attribute::missing, |end| Attribute::open(&end.join(name))))
    }

    /// Current generation.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn generation(&self) -> Result<u64, ReadError> {
        generation(&self.speed)
    }

    /// Current width in lanes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn width(&self) -> Result<u64, ReadError> {
        lanes(&self.width)
    }

    /// Highest generation of card and slot.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn max_generation(&self) -> Result<u64, ReadError> {
        lower(self.of_ends("max_link_speed").each_ref().map(generation))
    }

    /// Largest width of card and slot in lanes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn max_width(&self) -> Result<u64, ReadError> {
        lower(self.of_ends("max_link_width").each_ref().map(lanes))
    }
}

/// Returns the first device of the card, seen from the slot.
fn on_slot(device: &Path) -> PathBuf {
    let vendor = |path: &Path| attribute::read_hex(&path.join("vendor"));
    let is_bridge =
        |path: &Path| attribute::read_hex(&path.join("class")).is_some_and(|class| class >> 8 == BRIDGE);
    let own = vendor(device);
    let bridges = device.ancestors().skip(1).take_while(|path| {
        // A bridge right below the host bridge is a root port, which belongs to the board.
        let is_root_port = path.parent().is_none_or(|parent| card::pci_of(parent).is_none());
        card::pci_of(path).is_some() && !is_root_port && is_bridge(path) && vendor(path) == own
    });
    bridges.last().unwrap_or(device).to_owned()
}

/// Returns the lower limit of card and slot; in a virtual machine the slot is unknown.
fn lower([card, slot]: [Result<u64, ReadError>; 2]) -> Result<u64, ReadError> {
    match (card, slot) {
        (Ok(card), Ok(slot)) => Ok(card.min(slot)),
        (card, _) => card,
    }
}

/// A link that is down or of an unknown kind has no width.
fn lanes(attribute: &Attribute) -> Result<u64, ReadError> {
    match attribute.number()? {
        0 | 255 => Err(ReadError::Missing),
        lanes => Ok(lanes),
    }
}

/// Converts `16.0 GT/s PCIe` to 4.
fn generation(attribute: &Attribute) -> Result<u64, ReadError> {
    let mut buffer = [0; 64];
    let text = attribute.text(&mut buffer)?;
    match text.split_whitespace().next() {
        Some("2.5") => Ok(1),
        Some("5.0" | "5") => Ok(2),
        Some("8.0" | "8") => Ok(3),
        Some("16.0" | "16") => Ok(4),
        Some("32.0" | "32") => Ok(5),
        Some("64.0" | "64") => Ok(6),
        Some("Unknown") => Err(ReadError::Missing),
        _ => Err("not the link speed that it should be".into()),
    }
}
