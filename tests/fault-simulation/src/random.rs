//! Random numbers that a seed determines: those of the history, and those that the process gets from the system.

use std::sync::atomic::{AtomicU64, Ordering};

/// The golden ratio in 64 bits, by which SplitMix64 advances.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mixed(seed.wrapping_mul(STEP)))
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0) % bound
    }

    /// A number of a range, both ends included.
    pub fn within(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.below(most - least + 1)
    }
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

static SYSTEM: AtomicU64 = AtomicU64::new(0);

/// Seeds what the process gets from the system: the order of `select!` and of hash maps, and jitter.
pub fn seed_system(seed: u64) {
    SYSTEM.store(mixed(!seed), Ordering::Relaxed);
}

/// Takes the place of libc's function, which std, tokio and the `getrandom` crate call.
///
/// # Safety
/// As for libc's function, `buffer` must be writable for `len` bytes.
#[allow(unsafe_code, reason = "tokio has no stable way to seed the order of select!")]
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, len: usize, _flags: u32) -> isize {
    for position in 0..len {
        let bits = mixed(SYSTEM.fetch_add(STEP, Ordering::Relaxed));
        // SAFETY: the caller guarantees that it is within the buffer.
        unsafe { buffer.add(position).write(bits as u8) };
    }
    len.cast_signed()
}
