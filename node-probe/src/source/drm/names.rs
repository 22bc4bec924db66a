//! Model names: as the card states it, from libdrm's list of AMD cards, or from the PCI id database.

use super::attribute;
use super::card::Card;
use nodeglass_protocol::Vendor;
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
};

/// libdrm's names by device and revision.
const AMD_NAMES: &str = "usr/share/libdrm/amdgpu.ids";
/// Places of the PCI id database.
const PCI_NAMES: [&str; 2] = ["usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"];
/// Maximum size of such a list.
const MAX_BYTES: u64 = 8 << 20;

/// Returns the model of a card, at worst its PCI device id.
pub fn of(root: &Path, vendor: Vendor, card: &Card) -> String {
    // From the card's own EEPROM: "AMD INSTINCT MI210".
    let own = attribute::read_text(&card.device.join("product_name")).ok().filter(|name| !name.is_empty());
    own.or_else(|| listed(root, vendor, card)).unwrap_or_else(|| match card.device_id {
        Some(id) => format!("{} GPU {id:04x}", vendor.name()),
        None => format!("{} GPU", vendor.name()),
    })
}

fn listed(root: &Path, vendor: Vendor, card: &Card) -> Option<String> {
    let id = card.device_id?;
    let pci_vendor = match vendor {
        Vendor::Amd => "1002",
        Vendor::Intel => "8086",
        _ => return None,
    };
    let by_revision = (vendor == Vendor::Amd)
        .then(|| lines(&root.join(AMD_NAMES))?.find_map(|line| amd_name(&line, id, card.revision?)))
        .flatten();
    by_revision.or_else(|| {
        let names = PCI_NAMES.iter().find_map(|path| lines(&root.join(path)))?;
        Some(format!("{} {}", vendor.name(), pci_name(names, pci_vendor, id)?))
    })
}

/// Returns the lines of a list, without lines that are not UTF-8.
fn lines(path: &Path) -> Option<impl Iterator<Item = String> + use<>> {
    let mut reader = BufReader::new(attribute::open(path).ok()?.take(MAX_BYTES));
    let mut bytes = Vec::new();
    Some(std::iter::from_fn(move || {
        bytes.clear();
        reader.read_until(b'\n', &mut bytes).ok().filter(|count| *count > 0)?;
        Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }))
}

/// Parses a line of libdrm's list: `744C, C8, AMD Radeon RX 7900 XTX`, with tabs.
fn amd_name(line: &str, id: u32, revision: u32) -> Option<String> {
    let mut fields = line.splitn(3, ',').map(str::trim);
    let mut is = |value: u32| fields.next().is_some_and(|hex| u32::from_str_radix(hex, 16) == Ok(value));
    (is(id) && is(revision))
        .then(|| fields.next().map(str::to_owned))
        .flatten()
        .filter(|name| !name.is_empty())
}

/// Finds a device below its vendor: `1002  AMD/ATI`, then, after a tab,
/// `74a1  Aqua Vanjaram [Instinct MI300X]`. The
/// market name is the one in brackets.
fn pci_name(lines: impl Iterator<Item = String>, vendor: &str, id: u32) -> Option<String> {
    let id = format!("{id:04x}");
    let below =
        lines.skip_while(|line| line.split_whitespace().next() != Some(vendor) || line.starts_with('\t'));
    let mut devices = below.skip(1).take_while(|line| line.is_empty() || line.starts_with(['\t', '#']));
    let name = devices.find_map(|line| {
        let (device, name) = line.strip_prefix('\t')?.split_once("  ")?;
        (device == id).then(|| name.to_owned())
    })?;
    let market = name.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    Some(market.unwrap_or(&name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn market_names_are_found_by_device_and_revision() {
        assert_eq!(
            amd_name("744C,\tC8,\tAMD Radeon RX 7900 XTX", 0x744c, 0xc8).unwrap(),
            "AMD Radeon RX 7900 XTX"
        );
        assert_eq!(amd_name("744C,\tC8,\tAMD Radeon RX 7900 XTX", 0x744c, 0xcc), None);
        assert_eq!(amd_name("# List of AMDGPU IDs", 0x744c, 0xc8), None);
        let ids = "1001  Kolter\n1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t74a1  Aqua Vanjaram [Instinct MI300X]\n\t\t1002 74a1  x\n1003  ULSI\n\t74a2  Other\n";
        let lines = || ids.lines().map(str::to_owned);
        assert_eq!(pci_name(lines(), "1002", 0x74a1).unwrap(), "Instinct MI300X");
        assert_eq!(pci_name(lines(), "1002", 0x74a2), None);
    }
}
