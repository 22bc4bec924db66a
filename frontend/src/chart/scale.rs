//! Places axis labels at round numbers.

use nodeglass_rules::text;

/// Returns label positions on an axis from 0 to `top`: round values, at most five.
pub fn value_ticks(top: f32) -> Vec<f32> {
    if top <= 0.0 || !top.is_finite() {
        return Vec::new();
    }
    let mut unit = 1.0f32;
    while unit * 100.0 < top {
        unit *= 10.0;
    }
    while unit * 10.0 > top {
        unit /= 10.0;
    }
    let fits = |step: &f32| top / step <= 4.5;
    let step = [1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0, 50.0].map(|round| round * unit).into_iter().find(fits);
    let step = step.unwrap_or(top);
    (0..=4).map(|index| index as f32 * step).take_while(|tick| *tick <= top * 1.001).collect()
}

/// Returns label positions on a time axis of `span_s` seconds: seconds before its end, round values, at most
/// `most`.
pub fn time_ticks(span_s: u64, most: usize) -> Vec<u64> {
    const ROUND: [u64; 15] =
        [5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400];
    let step = ROUND.into_iter().find(|step| span_s / step <= most.max(1) as u64).unwrap_or(172_800);
    (0..=span_s / step).map(|index| index * step).collect()
}

/// Formats the time at a tick of [`time_ticks`], which may lie between whole minutes: `30 s`, `1 min`, `1 min 30 s`.
pub fn tick_text(seconds: u64) -> String {
    match seconds {
        60..3_600 if seconds.is_multiple_of(60) => text::span(seconds),
        _ => text::duration(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_labelled_at_round_numbers() {
        assert_eq!(value_ticks(100.0), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(value_ticks(700.0), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!(value_ticks(80.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(value_ticks(1_980.0), [0.0, 500.0, 1_000.0, 1_500.0]);
        assert_eq!(value_ticks(0.0), [] as [f32; 0]);
        assert_eq!(value_ticks(f32::NAN), [] as [f32; 0]);
    }

    #[test]
    fn times_are_labelled_from_the_end_backwards() {
        assert_eq!(time_ticks(600, 5), [0, 120, 240, 360, 480, 600]);
        assert_eq!(time_ticks(600, 2), [0, 300, 600]);
        assert_eq!(time_ticks(45, 5), [0, 10, 20, 30, 40]);
    }

    #[test]
    fn no_two_ticks_of_an_axis_have_the_same_text() {
        for span_s in [30, 45, 75, 90, 100, 179, 600, 1_000, 3_600, 5_000, 21_600, 100_000, 604_800] {
            for most in [2, 3, 5, 8] {
                let mut texts: Vec<_> = time_ticks(span_s, most).into_iter().map(tick_text).collect();
                let all = texts.len();
                texts.dedup();
                assert_eq!(texts.len(), all, "{span_s} s with {most} labels: {texts:?}");
            }
        }
        assert_eq!([30, 60, 90, 7_200].map(tick_text), ["30 s", "1 min", "1 min 30 s", "2 h"]);
    }
}
