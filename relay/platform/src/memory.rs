//! Memory of this process: its size, and returning what is free, which the allocator does by itself for the end of the
//! heap only.

/// Returns free pages of all arenas to the system. Takes some ms if much is free.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator's own function is only reached through libc")]
    // SAFETY: it takes no pointer and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Limits the number of heaps of the allocator to two, which is the number of busy threads. By default there are up to
/// eight for each CPU, and each keeps what its threads have freed.
pub fn use_two_arenas() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator's own function is only reached through libc")]
    // SAFETY: it takes two numbers, and is called before other threads start.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Memory of this process in RAM, in bytes (`/proc/self/statm`, field 2).
pub fn resident_bytes() -> Option<u64> {
    statm_bytes(1)
}

/// Memory of this process in RAM without its program and other files, in bytes (`/proc/self/statm`, field 2 without 3).
pub fn private_bytes() -> Option<u64> {
    Some(statm_bytes(1)?.saturating_sub(statm_bytes(2)?))
}

fn statm_bytes(field: usize) -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(field)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> usize {
        resident_bytes().unwrap() as usize
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn free_pages_between_used_ones_are_returned_to_the_system() {
        const BLOCK: usize = 8 * 1024;
        const BLOCKS: usize = 16 * 1024;
        let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
        // One block in 64 stays allocated, including the last.
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 64 == 0
        });
        let free = BLOCK * (BLOCKS - blocks.len());
        let before = resident();
        trim();
        let given_back = before.saturating_sub(resident());
        assert!(given_back > free / 2, "{given_back} of {free} bytes");
        assert_eq!(blocks.len(), BLOCKS / 64);
    }
}
