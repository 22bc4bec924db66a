//! Amounts, durations and columns as text.

use nodeglass_rules::text;

/// Columns of text, the first `texts` of them aligned to the left and the others to the right.
pub fn aligned(rows: &[Vec<String>], texts: usize) -> String {
    let lines = text::aligned(rows, |column| column >= texts);
    lines.into_iter().map(|line| format!("  {line}\n")).collect()
}

/// An amount of bytes with a binary unit: `12.3 GiB`.
pub fn amount_bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut amount, mut unit) = (bytes, 0);
    while amount >= 1_000.0 && unit + 1 < UNITS.len() {
        amount /= 1_024.0;
        unit += 1;
    }
    let digits = if unit == 0 || amount >= 100.0 { 0 } else { 1 };
    format!("{amount:.digits$} {}", UNITS[unit])
}

/// A duration of at most two units: `2 d 5 h`, `3 min 20 s`.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds % 86_400 / 3_600, seconds % 3_600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
