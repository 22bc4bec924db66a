//! Playing a recording in words: speeds and positions.

use nodeglass_protocol::replay::{REAL_TIME_PCT, ReplayStatus};

/// The speeds to choose from, in % of real time.
pub const SPEEDS_PCT: [u32; 6] = [100, 200, 500, 1_000, 3_000, 6_000];

/// Formats a speed: `10×`.
pub fn speed_text(speed_pct: u32) -> String {
    format!("{}×", speed_pct / REAL_TIME_PCT)
}

/// Formats a position in a recording: `2:05 of 1:00:00`.
pub fn position_text(at_ms: u64, length_ms: u64) -> String {
    format!("{} of {}", duration(at_ms), duration(length_ms))
}

/// Returns whether the relay has gone to a time: it states its position then, and not again until another command.
pub fn is_at(status: &ReplayStatus, at_ms: u64) -> bool {
    let passed_ms = u64::from(status.speed_pct.max(REAL_TIME_PCT)) * 10;
    (at_ms..=at_ms + passed_ms).contains(&status.at_ms)
}

fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_at_a_time_once_the_relay_says_so() {
        let status = |at_ms, speed_pct| ReplayStatus { at_ms, speed_pct, ..Default::default() };
        assert!(is_at(&status(60_000, 0), 60_000) && is_at(&status(60_700, 100), 60_000));
        assert!(is_at(&status(90_000, 6_000), 60_000) && !is_at(&status(90_000, 100), 60_000));
        assert!(!is_at(&status(20_000, 100), 60_000), "the time before");
    }

    #[test]
    fn a_position_reads_as_in_a_player() {
        assert_eq!(position_text(125_900, 3_600_000), "2:05 of 1:00:00");
        assert_eq!(position_text(0, 59_999), "0:00 of 0:59");
        assert_eq!(SPEEDS_PCT.map(speed_text)[..3], ["1×", "2×", "5×"]);
    }
}
