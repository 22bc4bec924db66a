//! Memory that is free goes back to the system, which the allocator by itself does for the end of its heap only.

/// Gives free pages back, in every arena. Takes some ms where much is free.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator's own function is only reached through libc")]
    // SAFETY: it takes no pointer and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
