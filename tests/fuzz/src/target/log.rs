//! Growing logs of any bytes: shown lines are clean and bounded, and lost lines are reported.

use nodeglass_protocol::LongText;
use nodeglass_protocol::request::Tail;
use nodeglass_redact::log::Window;

/// The first two bytes choose the steps in which the file grows; the rest is the file.
pub(crate) fn log(bytes: &[u8]) {
    let Some((step, file)) = bytes.split_first_chunk::<2>() else { return };
    let step = usize::from(u16::from_le_bytes(*step)).max(1);
    let mut after = 0;
    // A thousand reads reach the end.
    let sizes = (0..file.len()).step_by(step.max(file.len() / 1_000 + 1)).chain([file.len(), file.len()]);
    for size in sizes {
        let window = Window::of(after, size as u64, true);
        let (from, length) = (window.from as usize, window.length as usize);
        let tail = window.tail(&file[from..from + length]);
        assert!(tail.end >= after && tail.end <= size as u64, "{} is not in {after}..={size}", tail.end);
        assert!(tail.lines.len() <= Tail::MAX_LINES && !tail.restarted);
        tail.lines.iter().chain(&tail.partial).for_each(clean);
        after = tail.end;
    }
    // A truncated or replaced file is read from its start.
    let window = Window::of(file.len() as u64 + 1, file.len() as u64, true);
    let tail = window.tail(&file[window.from as usize..]);
    assert!(tail.restarted && tail.end <= file.len() as u64);
    // One that is shorter than announced.
    let window = Window::of(0, u64::MAX, false);
    let _ = window.tail(file);
}

pub(super) fn clean(text: &LongText) {
    let text = text.as_str();
    assert!(text.len() <= LongText::MAX_BYTES, "{} bytes in a line", text.len());
    assert!(!text.chars().any(super::names::is_hostile), "{text:?}");
}
