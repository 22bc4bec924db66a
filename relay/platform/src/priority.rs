//! Priority of threads that nobody waits for.

use rustix::process::nice;

/// Added to the nice value.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread for the CPU (`nice`) and for disks (the lowest of the best-effort class), and
/// that of the programs and threads that it starts. It keeps its priority where the system refuses.
pub fn lower_this_thread() {
    // In Linux, the nice value is a thread's.
    let _ = nice(NICE);
    lower_io_of_this_thread();
}

/// Lowers the priority of the calling thread for disks alone: of one that must keep up with others on a busy machine.
pub fn lower_io_of_this_thread() {
    /// `IOPRIO_WHO_PROCESS`: a thread, of which 0 is the caller.
    const THREAD: libc::c_int = 1;
    /// `IOPRIO_CLASS_BE` and the lowest of its eight levels.
    const LOWEST_BEST_EFFORT: libc::c_int = (2 << 13) | 7;
    #[expect(unsafe_code, reason = "there is no wrapper of this system call")]
    // SAFETY: it takes three numbers.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, THREAD, 0, LOWEST_BEST_EFFORT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Field 19 of the thread's `stat`.
    fn nice_of_this_thread() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_is_lowered_and_others_are_not() {
        let before = nice_of_this_thread();
        let lowered = thread::spawn(|| {
            lower_this_thread();
            nice_of_this_thread()
        });
        assert_eq!(lowered.join().unwrap(), (before + NICE).min(19));
        assert_eq!(nice_of_this_thread(), before);
    }
}
