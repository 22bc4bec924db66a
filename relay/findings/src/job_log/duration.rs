//! Durations and times as programs write them in logs.

use regex::Regex;
use std::sync::LazyLock;

/// Matches a duration: `03:47`, `1:12:25`, `1 day, 2:03:04`, `2.80 hours`, `1h12m`, `25 m, 0 s`, `41s`.
pub(super) const DURATION: &str = r"(?:[0-9]+\s?(?:d|days?),?\s?)?[0-9]+(?::[0-9]{1,2}){1,3}(?:\.[0-9]+)?|(?:[0-9]+(?:\.[0-9]+)?\s?(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms])[,:\s]{0,2})+(?-u:\b)";

/// The longest estimate that is believed, in s.
const MAX_S: f64 = 1e8;

/// Parses what [`DURATION`] matches. Returns seconds.
pub(super) fn parse(text: &str) -> Option<f64> {
    static PART: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)(?P<clock>[0-9]+(?::[0-9]{1,2}){1,3}(?:\.[0-9]+)?)|(?P<number>[0-9]+(?:\.[0-9]+)?)\s?(?P<unit>[dhms])").ok()
    });
    let mut total_s = None;
    for part in PART.as_ref()?.captures_iter(text) {
        let part_s = match part.name("clock") {
            Some(clock) => of_clock(clock.as_str())?,
            None => part["number"].parse::<f64>().ok()? * seconds(&part["unit"]),
        };
        total_s = Some(total_s.unwrap_or(0.0) + part_s);
    }
    total_s.filter(|total_s| *total_s < MAX_S)
}

/// `03:47`, `1:12:25`; with four fields, the first one is days.
fn of_clock(text: &str) -> Option<f64> {
    let (days, clock) = match text.split_once(':') {
        Some((days, clock)) if clock.matches(':').count() == 2 => (days.parse().ok()?, clock),
        _ => (0.0, text),
    };
    let clock_s =
        clock.split(':').try_fold(0.0, |sum, field| Some(60.0 * sum + field.parse::<f64>().ok()?))?;
    Some(86_400.0 * days + clock_s)
}

fn seconds(unit: &str) -> f64 {
    match unit {
        "d" | "D" => 86_400.0,
        "h" | "H" => 3_600.0,
        "m" | "M" => 60.0,
        _ => 1.0,
    }
}

/// Parses a date as `ctime` writes it, `Tue Mar  4 02:11:12 2025`, without its time zone. Returns seconds since
/// 1970-01-01 of the same clock.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [_, month, day, clock, year] = fields.as_slice() else { return None };
    let month = 1 + MONTHS.iter().position(|name| name == month)? as i64;
    let (day, year) = (day.parse::<i64>().ok()?, year.parse::<i64>().ok()?);
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + parse(clock)? as i64)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_programs_are_parsed() {
        let whole = Regex::new(&format!("^(?:{DURATION})$")).unwrap();
        for (text, seconds) in [
            ("03:47", 227.0),
            ("1:12:25", 4_345.0),
            ("100:00:01", 360_001.0),
            ("0:01:29.7", 89.7),
            ("2:5:03:04", 190_984.0),
            ("1 day, 2:03:04", 93_784.0),
            ("2.80 hours", 10_080.0),
            ("1h12m", 4_320.0),
            ("25 m, 0 s", 1_500.0),
            ("01m:38s", 98.0),
            ("2.8min", 168.0),
            ("41s", 41.0),
            ("2m 3s", 123.0),
        ] {
            assert!(whole.is_match(text), "{text}");
            assert!((parse(text).unwrap() - seconds).abs() < 1e-6, "{text} {:?}", parse(text));
        }
        assert_eq!(parse("99999999999999h"), None);
    }

    #[test]
    fn a_date_counts_from_1970() {
        assert_eq!(parse_date("Thu Jan  1 00:00:00 1970"), Some(0));
        assert_eq!(parse_date("Tue Mar  4 02:11:12 2025"), Some(1_741_054_272));
        assert_eq!(parse_date("Thu Feb 29 12:00:00 2024"), Some(1_709_208_000));
        assert_eq!(parse_date("Tue Mar 99 02:11:12 2025"), None);
    }
}
