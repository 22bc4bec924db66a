//! Identity of a GPU or an instance, if the state file does not state it: derived from its position.

use super::{Gpu, Mig};

/// PCI bus number of a GPU.
pub fn bus(index: usize, gpu: &Gpu) -> u32 {
    gpu.bus.unwrap_or(index as u32 + 7)
}

/// A GPU's serial number.
pub fn serial(index: usize, gpu: &Gpu) -> Option<String> {
    gpu.board.serial.as_ref().map(|serial| serial.replace('*', &format!("{index:04}")))
}

/// A UUID if the state file has none: derived from the host's name, so that nodes differ.
fn made_up_uuid(kind: &str, index: usize, mig: usize) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let seed = host
        .trim()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let (high, low) = (seed >> 32, seed & 0xffff_ffff);
    format!("{kind}-{high:08x}-{:04x}-{:04x}-{index:04x}-{mig:04x}{low:08x}", low >> 16, low & 0xffff)
}

/// The UUID of a GPU.
pub fn gpu_uuid(index: usize, gpu: &Gpu) -> String {
    gpu.uuid.clone().unwrap_or_else(|| made_up_uuid("GPU", index, 0))
}

/// The UUID of an instance.
pub fn mig_uuid(index: usize, position: usize, mig: &Mig) -> String {
    mig.uuid.clone().unwrap_or_else(|| made_up_uuid("MIG", index, position + 1))
}
