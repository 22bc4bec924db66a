//! Xid errors: what the driver's numbers mean, what helps, and how severe they are.
//!
//! After NVIDIA's [Xid catalog](https://docs.nvidia.com/deploy/xid-errors/). An Xid alone rarely proves a cause: the texts
//! state the most likely one, and the first of several Xids is the relevant one.

use crate::severity::Severity;
use Cause::{Gpu, Program, Repaired, ReportedElsewhere, Unclear};

/// Time for which an Xid is stated after it occurred, in ms.
const RECENT_MS: u64 = 3_600_000;

/// Returns whether an Xid that occurred at `at_ms` is stated at `now_ms`, both in ms of one clock.
pub fn is_recent(at_ms: u64, now_ms: u64) -> bool {
    at_ms.saturating_add(RECENT_MS) > now_ms
}

/// An Xid error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Xid {
    /// Its number.
    number: u64,
    cause: Cause,
    /// Meaning and remedy.
    text: &'static str,
}

/// The likely cause of an Xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The program.
    Program,
    /// The GPU, which failed.
    Gpu,
    /// The GPU, whose error the driver or the hardware repaired.
    Repaired,
    /// The GPU; another reading reports the error as well, and how severe it is.
    ReportedElsewhere,
    /// The program, the driver or the GPU.
    Unclear,
}

const fn xid(number: u64, cause: Cause, text: &'static str) -> Xid {
    Xid { number, cause, text }
}

/// The known numbers, in ascending order.
const CATALOGUE: [Xid; 38] = [
    xid(8, Program, "the GPU stopped processing: usually a program that hangs; restart the program"),
    xid(
        11,
        Unclear,
        "the command stream was invalid; restart the program, and update it or its libraries if it returns",
    ),
    xid(
        13,
        Program,
        "graphics engine exception: usually an out-of-bounds access of a kernel; check the program with compute-sanitizer",
    ),
    xid(24, Unclear, "a wait on the GPU timed out; restart the program"),
    xid(
        31,
        Program,
        "GPU memory page fault: a kernel accessed an unmapped address; check the program with compute-sanitizer",
    ),
    xid(32, Unclear, "the command stream was corrupted on its way; check PCIe if it is not one program only"),
    xid(37, Unclear, "the driver met an error of its firmware; restart the program"),
    xid(38, Unclear, "the driver's firmware failed; the GPU needs a reset, and a newer driver if it returns"),
    xid(39, Unclear, "a copy engine failed; restart the program"),
    xid(40, Unclear, "a copy engine failed; restart the program"),
    xid(41, Unclear, "a copy engine failed; restart the program"),
    xid(42, Unclear, "the video decoder failed; restart the program"),
    xid(43, Program, "a program error stopped the program on the GPU; the GPU itself is not affected"),
    xid(44, Unclear, "the graphics engine failed while it switched programs; restart them"),
    xid(45, Program, "the program's work was removed after a kill or another Xid; see the first Xid"),
    xid(46, Unclear, "the GPU stopped processing; restart the program, and reset the GPU if it returns"),
    xid(48, Gpu, "a memory error that could not be corrected; results are lost, and the GPU needs a reset"),
    xid(61, Gpu, "the GPU's microcontroller met a breakpoint; the GPU needs a reset"),
    xid(62, Gpu, "the GPU's microcontroller halted; the GPU needs a reset"),
    xid(63, Repaired, "a row of memory was remapped, or a page retired; takes effect at the next reset"),
    xid(
        64,
        Gpu,
        "a row of memory could not be remapped, or a page retired; the GPU needs a reset and may need replacing",
    ),
    xid(68, Gpu, "the video decoder failed; restart the program"),
    xid(69, Program, "the graphics engine failed on a wrong command of the program; restart it"),
    xid(73, Unclear, "the video encoder failed; restart the program"),
    xid(
        74,
        ReportedElsewhere,
        "an NVLink failed; the GPU needs a reset; check the link and its other end if it returns",
    ),
    xid(
        79,
        Gpu,
        "fell off the bus; the node needs a reboot; check that the card is seated properly and has power",
    ),
    xid(92, Repaired, "many single-bit memory errors were corrected; watch the GPU"),
    xid(94, Gpu, "a memory error hit one program only; restart that one, and reset the GPU when it is free"),
    xid(95, Gpu, "a memory error hit every program on the GPU; it needs a reset before it is used again"),
    xid(109, Program, "switching between programs timed out; restart them, and reset the GPU if it returns"),
    xid(
        119,
        Gpu,
        "the GPU's system processor (GSP) does not respond to the driver; the GPU needs a reset, or the node a reboot",
    ),
    xid(120, Gpu, "the GPU's system processor (GSP) failed; the GPU needs a reset, or the node a reboot"),
    xid(121, Repaired, "a chip-to-chip link had a corrected error; reset the GPU when it is free"),
    xid(140, Gpu, "memory errors that could not be corrected; the GPU needs a reset"),
    xid(143, Unclear, "the GPU could not be initialised; the GPU needs a reset"),
    xid(145, Unclear, "an NVLink had an error; the GPU needs a reset if it returns"),
    xid(149, Unclear, "an NVLink had an error; the GPU needs a reset if it returns"),
    xid(154, Unclear, "what the GPU needs to recover has changed; see `nvidia-smi -q` under recovery action"),
];

fn of(number: u64) -> Option<&'static Xid> {
    let at = CATALOGUE.binary_search_by_key(&number, |xid| xid.number).ok()?;
    CATALOGUE.get(at)
}

/// Returns what an Xid number means, and whether the program rather than the GPU is the likely cause.
pub fn meaning(number: u64) -> Option<(&'static str, bool)> {
    let xid = of(number)?;
    let (meaning, _) = xid.text.split_once("; ").unwrap_or((xid.text, ""));
    Some((meaning, xid.cause == Program))
}

/// Returns what an Xid number means, and what to do about it.
pub fn explanation(number: u64) -> Option<&'static str> {
    of(number).map(|xid| xid.text)
}

/// Returns how severe an Xid is: an error if the GPU failed; a warning if the program did, if the error was repaired or
/// another reading reports it, if the cause is unclear, or if the number is unknown.
pub fn severity(number: u64) -> Severity {
    match of(number).map(|xid| xid.cause) {
        Some(Gpu) => Severity::Error,
        Some(Program | Repaired | ReportedElsewhere | Unclear) | None => Severity::Warning,
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
    fn numbers_are_in_order_and_texts_fit_an_event() {
        assert!(CATALOGUE.is_sorted_by(|a, b| a.number < b.number));
        for Xid { number, text, .. } in CATALOGUE {
            assert!(text.len() < 150 && text.contains("; ") && !text.ends_with('.'), "{text}");
            assert_eq!(explanation(number), Some(text));
        }
    }

    #[test]
    fn an_unknown_number_is_a_warning_without_a_meaning() {
        assert_eq!((meaning(9_999), severity(9_999)), (None, Severity::Warning));
    }
}
