//! Places axis labels at round numbers.

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

/// Returns the smallest of 1, 2, 5, 10, 20, … that is not below a value.
pub fn round_top(value: f32) -> f32 {
    let decades = std::iter::successors(Some(1.0f32), |decade| Some(decade * 10.0)).take(30);
    let mut round = decades.flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade]);
    round.find(|round| *round >= value).unwrap_or(value)
}

/// Returns label positions on a time axis of `span_s` seconds: seconds before its end, round values, at most
/// `most`.
pub fn time_ticks(span_s: u64, most: usize) -> Vec<u64> {
    const DAY: u64 = 86_400;
    const ROUND: [u64; 20] = [
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        1_800,
        3_600,
        7_200,
        14_400,
        21_600,
        43_200,
        DAY,
        2 * DAY,
        5 * DAY,
        10 * DAY,
        30 * DAY,
        60 * DAY,
    ];
    let step = ROUND.into_iter().find(|step| span_s / step <= most.max(1) as u64).unwrap_or(120 * DAY);
    (0..=span_s / step).map(|index| index * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_number() {
        assert_eq!(
            [0.0, 1.0, 5.7, 74.7, 110.0, 2_000.0].map(round_top),
            [1.0, 1.0, 10.0, 100.0, 200.0, 2_000.0]
        );
        assert!(round_top(f32::INFINITY).is_infinite());
    }

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
        let days = |days: u64, most| {
            time_ticks(days * 86_400, most).into_iter().map(|s| s / 86_400).collect::<Vec<_>>()
        };
        assert_eq!(days(30, 6), [0, 5, 10, 15, 20, 25, 30]);
        assert_eq!(days(365, 6), [0, 60, 120, 180, 240, 300, 360]);
        assert_eq!(days(366, 2), [0, 120, 240, 360]);
    }
}
