//! Words for a metric: vendors name the same reading differently.

use crate::Vendor;

/// The vendors of some accelerators, which decide about the words for their metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vendors {
    /// No vendor is known.
    #[default]
    Unknown,
    /// All are of this vendor.
    One(Vendor),
    /// There are several vendors.
    Several,
}

impl FromIterator<Vendor> for Vendors {
    fn from_iter<I: IntoIterator<Item = Vendor>>(vendors: I) -> Self {
        let mut known = vendors.into_iter().filter(|vendor| *vendor != Vendor::Unknown);
        match known.next() {
            None => Self::Unknown,
            Some(first) if known.all(|vendor| vendor == first) => Self::One(first),
            Some(_) => Self::Several,
        }
    }
}

/// Names and meaning of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wording {
    /// Title on its own: `SM clock`.
    pub title: &'static str,
    /// Title within its group: `SM`.
    pub label: &'static str,
    /// Title of a narrow column.
    pub short: &'static str,
    /// Meaning, as a phrase.
    pub help: &'static str,
}

/// A wording for accelerators of these vendors.
pub type VendorWording = (Vendors, Wording);

/// Returns the wording for vendors, unless they use the default one.
pub fn find(variants: &[VendorWording], vendors: Vendors) -> Option<Wording> {
    variants.iter().find(|(whose, _)| *whose == vendors).map(|(_, wording)| *wording)
}

/// Shorthands of the catalogue, which lists the words in the order title, label, short title, meaning.
pub(super) const fn words(
    title: &'static str,
    label: &'static str,
    short: &'static str,
    help: &'static str,
) -> Wording {
    Wording { title, label, short, help }
}

/// Words for AMD GPUs.
pub(super) const AMD: Vendors = Vendors::One(Vendor::Amd);
/// Words for Intel GPUs.
pub(super) const INTEL: Vendors = Vendors::One(Vendor::Intel);
/// Words for TPUs.
pub(super) const TPU: Vendors = Vendors::One(Vendor::Tpu);
/// Words for accelerators of several vendors.
pub(super) const SEVERAL: Vendors = Vendors::Several;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::{GpuField, ProcessField};

    #[test]
    fn one_known_vendor_decides_and_two_are_several() {
        let of = |vendors: &[Vendor]| vendors.iter().copied().collect::<Vendors>();
        assert_eq!(of(&[]), Vendors::Unknown);
        assert_eq!(of(&[Vendor::Unknown]), Vendors::Unknown);
        assert_eq!(of(&[Vendor::Tpu, Vendor::Unknown, Vendor::Tpu]), Vendors::One(Vendor::Tpu));
        assert_eq!(of(&[Vendor::Amd, Vendor::Tpu, Vendor::Amd]), Vendors::Several);
    }

    /// Returns the words of the shown columns that other vendors have, for some vendors.
    fn spoken(vendors: Vendors) -> Vec<&'static str> {
        let gpu = [
            GpuField::Util,
            GpuField::SmClock,
            GpuField::NvlinkRx,
            GpuField::NvlinkTx,
            GpuField::GraphicsActive,
            GpuField::MemUsed,
        ];
        let gpu = gpu.iter().map(|field| field.metric().wording(vendors));
        let process = [ProcessField::Sm].into_iter().map(|field| field.metric().wording(vendors));
        gpu.chain(process).flat_map(|words| [words.title, words.label, words.short, words.help]).collect()
    }

    #[test]
    fn no_name_of_nvidia_is_used_for_other_vendors() {
        let is_nvidias = |word: &&str| {
            word.split(|letter: char| !letter.is_alphanumeric())
                .any(|word| ["SM", "SMs", "NVLink", "NVLinks", "GPM", "kernel"].contains(&word))
        };
        for vendors in [AMD, INTEL, TPU, SEVERAL] {
            let found: Vec<_> = spoken(vendors).into_iter().filter(is_nvidias).collect();
            assert_eq!(found, Vec::<&str>::new(), "{vendors:?}");
        }
        assert!(spoken(Vendors::One(Vendor::Nvidia)).iter().any(is_nvidias));
        assert_eq!(GpuField::Util.metric().wording(TPU).title, "Duty cycle");
    }
}
