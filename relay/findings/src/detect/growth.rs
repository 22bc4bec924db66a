//! Memory that grows steadily, and when it reaches its limit.

use crate::series::{LONG_STEP_MS, STEP_MS};
use nodeglass_rules::text;

/// Minimum growth, in bytes, that counts as a leak: less is a cache that fills, or fragmentation.
const MIN_GROWTH: f64 = (1u64 << 30) as f64;
/// Share of the minutes in which the peak must grow: allocators grow in steps.
const MIN_RISING: f64 = 0.6;
/// Minimum quality of a line's fit to the peaks (R²).
const MIN_FIT: f64 = 0.9;

/// A line through the peaks.
pub(super) struct Growth {
    /// Bytes a minute, and half the width of its 95 % confidence interval.
    slope: f64,
    margin: f64,
    fit: f64,
    /// Share of the minutes whose peak is above the peak of the minute before.
    rising: f64,
    last: f64,
    minutes: usize,
}

/// When growth reaches a limit, as spans of time from now.
pub(super) struct Forecast {
    /// The most likely one.
    pub likely: String,
    soonest: String,
    latest: String,
}

impl Growth {
    /// Fits a line through the peaks of the last minutes: of that time of `least` minutes or more in which they grow most
    /// steadily. The first minutes of a job that began at `started_ms`, in which everything grows, are left
    /// out: a third of `least`.
    pub(super) fn of(
        peaks: impl Iterator<Item = (u64, f64)>,
        least: u32,
        started_ms: u64,
        now_ms: u64,
    ) -> Option<Self> {
        let skipped_ms = u64::from(least) * LONG_STEP_MS / 3;
        // What grows has its peak at the end of each minute; the newest minute ends with the last complete step.
        let end_ms = |at_ms: u64| (at_ms + LONG_STEP_MS).min(now_ms / STEP_MS * STEP_MS);
        let points: Vec<(u64, f64)> = peaks
            .filter(|(at_ms, _)| *at_ms >= started_ms + skipped_ms)
            .map(|(at_ms, bytes)| (end_ms(at_ms), bytes))
            .collect();
        let windows = [60, 30, 20].into_iter().filter(|minutes| *minutes > least).chain([least]);
        let steady = windows.filter_map(|minutes| {
            // One more than needed: the first peak is that of the next full minute.
            let from_ms = now_ms.saturating_sub(u64::from(minutes + 1) * LONG_STEP_MS);
            let at = points.partition_point(|(at_ms, _)| *at_ms < from_ms);
            let (before, window) = points.split_at(at);
            let most_before = before.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max);
            Self::fit(window, least).filter(|growth| growth.is_steady(most_before))
        });
        // A window in which it began to grow fits worse than one after that.
        steady.max_by(|one, other| one.fit.total_cmp(&other.fit))
    }

    /// Returns whether it grows in most minutes as a line does, and by enough beyond the earlier use: an allocator or
    /// a cache that fills up to its earlier level is not a leak.
    fn is_steady(&self, most_before: f64) -> bool {
        let gained = (self.slope * self.minutes as f64).min(self.last - most_before);
        gained >= MIN_GROWTH && self.fit >= MIN_FIT && self.rising >= MIN_RISING
    }

    /// Fits a line through points of time in ms and bytes, if they span `least` minutes without larger gaps.
    fn fit(points: &[(u64, f64)], least: u32) -> Option<Self> {
        let (first, last) = (points.first()?, points.last()?);
        let minute = |at_ms: u64| (at_ms - first.0) as f64 / LONG_STEP_MS as f64;
        let minutes = minute(last.0).round() as usize;
        if minutes < least as usize || points.len() * 5 < minutes * 4 || points.len() < 3 {
            return None;
        }
        let points: Vec<(f64, f64)> = points.iter().map(|(at_ms, bytes)| (minute(*at_ms), *bytes)).collect();
        let count = points.len() as f64;
        let (mean_x, mean_y) = (
            points.iter().map(|(x, _)| x).sum::<f64>() / count,
            points.iter().map(|(_, y)| y).sum::<f64>() / count,
        );
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if xx <= 0.0 || yy <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let residual = (yy - slope * xy).max(0.0);
        let margin = t_quantile(points.len() - 2) * (residual / (count - 2.0) / xx).sqrt();
        let rises = points.windows(2).filter(|pair| pair[1].1 > pair[0].1).count();
        let rising = rises as f64 / (points.len() - 1) as f64;
        Some(Self { slope, margin, fit: 1.0 - residual / yy, rising, last: last.1, minutes })
    }

    /// Returns when `limit` bytes are reached, if that is certain and within some hours.
    pub(super) fn reaches(&self, limit: f64, within_hours: u32) -> Option<Forecast> {
        let free = (limit - self.last).max(0.0);
        let latest = self.slope - self.margin;
        if latest <= 0.0 || free / self.slope > f64::from(within_hours) * 60.0 {
            return None;
        }
        let span = |slope: f64| text::span((free / slope * 60.0) as u64);
        let (likely, soonest) = (span(self.slope), span(self.slope + self.margin));
        Some(Forecast { likely, soonest, latest: span(latest) })
    }

    /// `has grown by 120 MiB a minute for 20 min`.
    pub(super) fn text(&self) -> String {
        let mib = self.slope / f64::from(1 << 20);
        let amount =
            if mib < 1_000.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1_024.0) };
        format!("has grown by {amount} a minute for {} min", self.minutes)
    }

    /// When it began, in ms of the relay's clock, which may have been earlier.
    pub(super) fn since(&self, now_ms: u64) -> (u64, bool) {
        (now_ms.saturating_sub(self.minutes as u64 * LONG_STEP_MS), true)
    }

    /// The newest peak, in bytes.
    pub(super) fn last_bytes(&self) -> u64 {
        self.last as u64
    }

    /// Returns the confidence of a forecast, in %.
    pub(super) fn confidence_pct(&self) -> u8 {
        if self.minutes >= 30 { 95 } else { 85 }
    }
}

/// The quantile of Student's t distribution for a 95 % confidence interval, by degrees of freedom.
fn t_quantile(freedom: usize) -> f64 {
    const BY_FREEDOM: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    let small = freedom.checked_sub(1).and_then(|at| BY_FREEDOM.get(at));
    // Within 0.5 % of it for more.
    small.copied().unwrap_or(1.96 + 2.5 / freedom.max(1) as f64)
}

impl Forecast {
    /// `between 50 min and 1 h 10 min from now (95 %)`.
    pub(super) fn text(&self) -> String {
        format!("between {} and {} from now (95 %)", self.soonest, self.latest)
    }
}
