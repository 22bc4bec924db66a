//! Xid errors: what the driver's numbers mean, and how severe they are.

use crate::severity::Severity;

/// Explains an Xid number, and whether the program rather than the GPU is the likely cause.
///
/// After NVIDIA's "Xid Errors" catalogue.
pub fn meaning(number: u64) -> Option<(&'static str, bool)> {
    Some(match number {
        8 => ("the GPU stopped answering a channel: usually a program that hangs", true),
        13 => ("graphics engine exception: usually an out-of-bounds access of a kernel", true),
        31 => ("GPU memory page fault: a kernel accessed an unmapped address", true),
        43 => ("the program hung on the GPU and was stopped; the GPU is fine", true),
        45 => ("the program's work was removed after an earlier error or a kill", true),
        48 => ("an uncorrectable double-bit memory error", false),
        61 | 62 => ("the GPU's own firmware halted: it needs a reset", false),
        63 => ("a row of memory was remapped, or a page retired", false),
        64 => ("remapping a row failed: replace the GPU if it happens again", false),
        68 => ("the video engine failed", false),
        69 => ("the graphics engine failed on an illegal command", true),
        74 => ("an NVLink failed: check the other end, too", false),
        79 => ("the GPU has fallen off the bus: the node needs a reboot or a repair", false),
        92 => ("many single-bit memory errors were corrected", false),
        94 => ("a memory error was contained: only the programs that met it were stopped", false),
        95 => ("a memory error was not contained: the GPU needs a reset", false),
        109 => ("switching between programs took too long and was stopped", true),
        119 | 120 => ("the GPU's system processor (GSP) does not respond: it needs a reset", false),
        121 => ("a C2C link corrected an error", false),
        140 => ("memory errors that could not be recovered: the GPU needs a reset", false),
        _ => return None,
    })
}

/// Returns how severe an Xid is: an error if the GPU failed, a warning if the program did, if the driver
/// repaired it, or if the number is unknown.
pub fn severity(number: u64) -> Severity {
    match (number, meaning(number)) {
        // Repaired or corrected, or reported by the link's own reading as well.
        (63 | 74 | 92 | 121, _) | (_, None | Some((_, true))) => Severity::Warning,
        _ => Severity::Error,
    }
}

/// Returns whether an Xid concerns the GPU's memory.
pub fn is_memory_error(number: u64) -> bool {
    matches!(number, 48 | 63 | 64 | 92 | 94 | 95 | 140)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_program_are_warnings_and_failures_of_a_gpu_errors() {
        assert!(meaning(79).is_some_and(|(_, is_program_error)| !is_program_error));
        assert!(meaning(31).is_some_and(|(_, is_program_error)| is_program_error));
        assert_eq!(
            [31, 63, 79, 95].map(severity),
            [Severity::Warning, Severity::Warning, Severity::Error, Severity::Error]
        );
    }

    #[test]
    fn an_unknown_number_is_a_warning_without_a_meaning() {
        assert_eq!((meaning(9_999), severity(9_999)), (None, Severity::Warning));
    }
}
