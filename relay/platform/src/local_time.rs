//! Clock times for the terminal, in the time zone of this machine's user.

use crate::clock::Clock;
use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;

/// A moment as a clock shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Days since 1970-01-01 by the local calendar.
    day: i64,
    weekday: usize,
    day_of_month: i32,
    month: usize,
    year: i32,
    hour: i32,
    minute: i32,
    /// Abbreviation of the time zone, such as CET.
    zone: String,
}

const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl LocalTime {
    /// Converts `at_s` seconds after 1970 to the user's time zone (`TZ`, or the time zone of the machine).
    pub fn of(at_s: u64) -> Self {
        #[expect(unsafe_code, reason = "the time zone is only reached through libc")]
        // SAFETY: both pointers are valid for the call.
        Self::read(at_s, |time, tm| unsafe { libc::localtime_r(time, tm) })
    }

    /// Converts `at_s` seconds after 1970 to UTC.
    #[cfg(any(test, feature = "test-support"))]
    pub fn utc(at_s: u64) -> Self {
        #[expect(unsafe_code, reason = "as for the local time")]
        // SAFETY: both pointers are valid for the call.
        Self::read(at_s, |time, tm| unsafe { libc::gmtime_r(time, tm) })
    }

    /// Offset of the user's time zone from UTC at a time, in s.
    pub fn utc_offset_s(at_s: u64) -> i64 {
        let local = Self::of(at_s);
        let of_day = i64::from(local.hour) * 3_600 + i64::from(local.minute) * 60;
        let at_s = i64::try_from(at_s).unwrap_or(i64::MAX);
        local.day * 86_400 + of_day - at_s.div_euclid(60) * 60
    }

    fn read(at_s: u64, convert: impl FnOnce(*const libc::time_t, *mut libc::tm) -> *mut libc::tm) -> Self {
        let time = libc::time_t::try_from(at_s).unwrap_or(libc::time_t::MAX);
        let mut tm = MaybeUninit::<libc::tm>::zeroed();
        convert(&time, tm.as_mut_ptr());
        #[expect(unsafe_code, reason = "the structure is filled in by libc")]
        // SAFETY: all zeros is a valid `tm`, also if the time cannot be converted; `tm_zone` is then null,
        // and otherwise points to a string that libc never frees.
        let (tm, zone) = unsafe {
            let tm = tm.assume_init();
            let zone = (!tm.tm_zone.is_null()).then(|| CStr::from_ptr(tm.tm_zone));
            (tm, zone.map(|zone| zone.to_string_lossy().into_owned()).unwrap_or_default())
        };
        Self {
            day: time.saturating_add(tm.tm_gmtoff).div_euclid(86_400),
            weekday: usize::try_from(tm.tm_wday).unwrap_or(0) % 7,
            day_of_month: tm.tm_mday,
            month: usize::try_from(tm.tm_mon).unwrap_or(0) % 12,
            year: tm.tm_year.saturating_add(1_900),
            hour: tm.tm_hour,
            minute: tm.tm_min,
            zone,
        }
    }

    /// Formats it as short as it is unambiguous on the day of `now`: `18:42`, `Tue 18:42`, `24 Nov 18:42`.
    pub fn seen_from(&self, now: &Self) -> String {
        let clock = format!("{:02}:{:02}", self.hour, self.minute);
        match (self.day - now.day).abs() {
            0 => clock,
            1..=6 => format!("{} {clock}", WEEKDAYS[self.weekday]),
            _ => format!("{} {} {clock}", self.day_of_month, MONTHS[self.month]),
        }
    }

    /// The date, such as `2025-11-24`.
    pub fn date(&self) -> String {
        format!("{}-{:02}-{:02}", self.year, self.month + 1, self.day_of_month)
    }

    /// Abbreviation of the time zone, such as CET.
    pub fn zone(&self) -> &str {
        &self.zone
    }
}

/// Formats a moment, in s since 1970, as it is seen now: `18:42`, `Tue 18:42`.
pub fn here_and_now(at_s: u64) -> String {
    LocalTime::of(at_s).seen_from(&LocalTime::of(Clock::wall_ms() / 1_000))
}

/// When something began, as a clock shows it: `since 14:02`, `since 14:02 or earlier`.
pub fn since(clock: impl fmt::Display, or_earlier: bool) -> String {
    format!("since {clock}{}", if or_earlier { " or earlier" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_as_short_as_it_is_unambiguous() {
        // 2025-11-21 11:40 UTC, a Friday.
        let now = LocalTime::utc(1_763_725_200);
        let seen =
            |after_s: i64| LocalTime::utc(1_763_725_200_u64.saturating_add_signed(after_s)).seen_from(&now);
        assert_eq!(seen(3_600), "12:40");
        assert_eq!(seen(13 * 3_600), "Sat 00:40");
        assert_eq!(seen(-86_400), "Thu 11:40");
        assert_eq!(seen(7 * 86_400), "28 Nov 11:40");
        assert_eq!(seen(-30 * 86_400), "22 Oct 11:40");
    }

    #[test]
    fn the_local_time_has_a_zone_and_no_time_panics() {
        assert!(!LocalTime::of(1_763_725_200).zone().is_empty());
        for at_s in [0, u64::MAX, i64::MAX as u64] {
            let time = LocalTime::of(at_s);
            assert_eq!(time.seen_from(&time).len(), 5);
        }
    }
}
