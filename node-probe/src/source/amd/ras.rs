//! Memory errors that amdgpu's RAS (reliability, availability, serviceability) counts.

use crate::source::drm::attribute::{Attribute, ReadError, Reader};
use nodeglass_protocol::Reading;
use std::{fs, path::Path};

/// Maximum size of the list of bad pages.
const MAX_PAGES_BYTES: usize = 64 << 10;
/// Maximum number of blocks that count errors.
const MAX_BLOCKS: usize = 64;

/// The counters of one GPU.
#[derive(Debug)]
pub struct Ras {
    /// `ras/*_err_count`: `umc` for the memory, others for caches and links.
    counts: Vec<Attribute>,
    has_memory: bool,
    pages: Attribute,
}

/// Number of errors since the driver was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Corrected ones.
    pub corrected: Reading<u64>,
    /// Uncorrected ones.
    pub uncorrected: Reading<u64>,
}

/// Pages that are not used any more because of errors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BadPages {
    /// Number of retired pages.
    pub retired: Reading<u64>,
    /// Whether more will be retired.
    pub is_pending: Reading<bool>,
}

impl Ras {
    /// Opens the counters of a device, unless another entry counts its errors.
    pub fn of(device: &Path, is_counted: bool) -> Self {
        let folder = device.join("ras");
        let names = fs::read_dir(&folder).into_iter().flatten().take(MAX_BLOCKS);
        let names: Vec<_> = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        let has_memory = names.iter().any(|name| name == "umc_err_count");
        if !is_counted {
            return Self { counts: Vec::new(), has_memory, pages: Attribute::missing() };
        }
        let counts = names.iter().filter(|name| name.ends_with("_err_count"));
        Self {
            counts: counts.map(|name| Attribute::open(&folder.join(name))).collect(),
            has_memory,
            pages: Attribute::open(&folder.join("gpu_vram_bad_pages")),
        }
    }

    /// Returns whether the memory is protected.
    pub const fn has_memory(&self) -> bool {
        self.has_memory
    }

    /// Reads the sums of all blocks. Each read queries the hardware.
    pub fn errors(&self, reader: &mut Reader) -> Errors {
        let mut sum = Ok((0_u64, 0_u64));
        for attribute in &self.counts {
            let mut buffer = [0; 256];
            let counts = attribute.text(&mut buffer).and_then(counts);
            sum = match (sum, counts) {
                (Ok((corrected, uncorrected)), Ok((more_corrected, more_uncorrected))) => Ok((
                    corrected.saturating_add(more_corrected),
                    uncorrected.saturating_add(more_uncorrected),
                )),
                // A block that is switched off has no counters.
                (sum, Err(ReadError::Missing)) | (sum @ Err(_), _) => sum,
                (Ok(_), Err(error)) => Err(error),
            };
        }
        let sum = if self.counts.is_empty() { Err(ReadError::Missing) } else { sum };
        match reader.take(sum) {
            Reading::Value((corrected, uncorrected)) => {
                Errors { corrected: Reading::Value(corrected), uncorrected: Reading::Value(uncorrected) }
            }
            Reading::Failed(why) => {
                Errors { corrected: Reading::Failed(why.clone()), uncorrected: Reading::Failed(why) }
            }
            _ => Errors { corrected: Reading::Unsupported, uncorrected: Reading::Unsupported },
        }
    }

    /// Reads the list of bad pages: `0x0000… : 0x00001000 : R`, where R is retired, P pending and F
    /// failed to be retired.
    pub fn bad_pages(&self, reader: &mut Reader) -> BadPages {
        if !self.pages.is_open() {
            return BadPages { retired: Reading::Unsupported, is_pending: Reading::Unsupported };
        }
        let mut buffer = vec![0; MAX_PAGES_BYTES];
        let flags = self.pages.text(&mut buffer).map(|text| {
            let count = |flag: &str| {
                text.lines()
                    .filter(|line| line.rsplit(':').next().is_some_and(|end| end.trim() == flag))
                    .count()
            };
            (count("R") as u64, count("P") > 0)
        });
        match reader.take(flags) {
            Reading::Value((retired, is_pending)) => {
                BadPages { retired: Reading::Value(retired), is_pending: Reading::Value(is_pending) }
            }
            Reading::Failed(why) => {
                BadPages { retired: Reading::Failed(why.clone()), is_pending: Reading::Failed(why) }
            }
            _ => BadPages { retired: Reading::Unsupported, is_pending: Reading::Unsupported },
        }
    }
}

/// Parses `ue: 0`, `ce: 3`; returns corrected and uncorrected errors.
fn counts(text: &str) -> Result<(u64, u64), ReadError> {
    let count = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse::<u64>().ok()
    };
    match (count("ce"), count("ue")) {
        (Some(corrected), Some(uncorrected)) => Ok((corrected, uncorrected)),
        _ => Err("not the error counts that they should be".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_all_blocks_add_up_and_an_invalid_count_fails() {
        let device = tempfile::tempdir().unwrap();
        let ras = device.path().join("ras");
        fs::create_dir(&ras).unwrap();
        fs::write(ras.join("umc_err_count"), "ue: 1\nce: 5\n").unwrap();
        fs::write(ras.join("gfx_err_count"), "ue: 0\nce: 2\n").unwrap();
        fs::write(
            ras.join("gpu_vram_bad_pages"),
            "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n",
        )
        .unwrap();
        let read = || Ras::of(device.path(), true).errors(&mut Reader::default());
        assert_eq!(read(), Errors { corrected: Reading::Value(7), uncorrected: Reading::Value(1) });
        let pages = Ras::of(device.path(), true).bad_pages(&mut Reader::default());
        assert_eq!(pages, BadPages { retired: Reading::Value(1), is_pending: Reading::Value(true) });
        fs::write(ras.join("gfx_err_count"), "ue: many\n").unwrap();
        assert!(matches!(read().corrected, Reading::Failed(_)));
        fs::remove_dir_all(&ras).unwrap();
        assert_eq!(read(), Errors { corrected: Reading::Unsupported, uncorrected: Reading::Unsupported });
    }
}
