//! Explanations of Xid errors and remedies, after NVIDIA's Xid catalog.
//!
//! The catalog: <https://docs.nvidia.com/deploy/xid-errors/>. An Xid alone rarely proves a cause:
//! the text states the most likely one, and the first of several Xids is the relevant one.

/// Xid numbers in ascending order with their explanations.
const EXPLANATIONS: [(u64, &str); 38] = [
    (8, "the GPU stopped processing; restart the program"),
    (11, "the command stream was invalid; restart the program, and update it or its libraries if it returns"),
    (
        13,
        "the program broke a rule of the GPU, mostly an access out of bounds; check it with compute-sanitizer",
    ),
    (24, "a wait on the GPU timed out; restart the program"),
    (31, "the program touched memory that it has not allocated; check it with compute-sanitizer"),
    (32, "the command stream was corrupted on its way; check PCIe if it is not one program only"),
    (37, "the driver met an error of its firmware; restart the program"),
    (38, "the driver's firmware failed; the GPU needs a reset, and a newer driver if it returns"),
    (39, "a copy engine failed; restart the program"),
    (40, "a copy engine failed; restart the program"),
    (41, "a copy engine failed; restart the program"),
    (42, "the video decoder failed; restart the program"),
    (43, "a program error stopped the program on the GPU; the GPU itself is not affected"),
    (44, "the graphics engine failed while it switched programs; restart them"),
    (45, "a program's work was removed, usually because it was killed or after another Xid"),
    (46, "the GPU stopped processing; restart the program, and reset the GPU if it returns"),
    (48, "its memory has an error that could not be corrected; results are lost and the GPU needs a reset"),
    (61, "its internal microcontroller met a breakpoint; the GPU needs a reset"),
    (62, "its internal microcontroller halted; the GPU needs a reset"),
    (63, "a faulty piece of its memory is set aside; takes effect at the next reset"),
    (64, "a faulty piece of its memory could not be set aside; the GPU needs a reset and may need replacing"),
    (68, "the video decoder failed; restart the program"),
    (69, "the graphics engine met a wrong command of the program; restart it"),
    (73, "the video encoder failed; restart the program"),
    (74, "an NVLink failed; the GPU needs a reset, and the link or its neighbour a check if it returns"),
    (79, "fell off the bus; the node needs a reboot; check that the card is seated properly and has power"),
    (92, "its memory has very many corrected errors; watch it"),
    (94, "a memory error hit one program only; restart that one, and reset the GPU when it is free"),
    (95, "a memory error hit every program on it; the GPU needs a reset before it is used again"),
    (109, "switching between programs timed out; restart them, and reset the GPU if it returns"),
    (
        119,
        "its system processor (GSP) does not respond to the driver; the GPU needs a reset, or the node a reboot",
    ),
    (120, "its system processor (GSP) failed; the GPU needs a reset, or the node a reboot"),
    (121, "a chip-to-chip link had a corrected error; reset the GPU when it is free"),
    (140, "an error of its memory was found that could not be corrected; the GPU needs a reset"),
    (143, "it could not be initialised; the GPU needs a reset"),
    (145, "an NVLink had an error; the GPU needs a reset if it returns"),
    (149, "an NVLink had an error; the GPU needs a reset if it returns"),
    (154, "what the GPU needs to recover has changed; see `nvidia-smi -q` under recovery action"),
];

/// Returns the explanation of an Xid, if the catalog has a useful one.
pub fn explanation(xid: u64) -> Option<&'static str> {
    let at = EXPLANATIONS.binary_search_by_key(&xid, |(number, _)| *number).ok()?;
    Some(EXPLANATIONS[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xid_numbers_are_sorted_and_texts_fit_an_event() {
        assert!(EXPLANATIONS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(EXPLANATIONS.iter().all(|(_, text)| text.len() < 150 && !text.ends_with('.')));
    }

    #[test]
    fn common_xids_are_explained_and_unknown_ones_are_not() {
        for xid in [13, 31, 32, 38, 43, 45, 48, 61, 62, 63, 64, 68, 69, 74, 79, 92, 94, 95, 109, 119, 120] {
            assert!(explanation(xid).is_some(), "{xid}");
        }
        assert_eq!(
            explanation(79),
            Some(
                "fell off the bus; the node needs a reboot; check that the card is seated properly and has power"
            )
        );
        assert_eq!(explanation(7), None);
    }
}
