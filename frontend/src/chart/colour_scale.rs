//! The part of a metric's scale that the colours of a heat map cover: where the values are.

/// A part of a scale, in tenths of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColourScale {
    low: u8,
    high: u8,
}

impl Default for ColourScale {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl ColourScale {
    /// The whole scale.
    pub const WHOLE: Self = Self { low: 0, high: 10 };
    /// The lower half.
    pub const LOWER_HALF: Self = Self { low: 0, high: 5 };
    /// A smaller part would show noise as contrast.
    const MIN_TENTHS: u8 = 2;
    /// A part that is larger than necessary by at most this is kept, so that colours rarely change.
    const SPARE_TENTHS: u8 = 2;
    /// Share of the values at each end that may lie outside.
    const OUTSIDE: f32 = 0.02;
    /// Maximum distance of outside values before the part is enlarged, as a fraction of the scale.
    const TOLERANCE: f32 = 0.02;

    /// Returns the part for new values, fractions of the scale in any order: this one while it fits.
    pub fn adapted(self, mut values: Vec<f32>) -> Self {
        let Some(last) = values.len().checked_sub(1) else { return self };
        let outside = (last as f32 * Self::OUTSIDE) as usize;
        let mut quantile = |at: usize| *values.select_nth_unstable_by(at, f32::total_cmp).1;
        let (least, most) = (quantile(outside).clamp(0.0, 1.0), quantile(last - outside).clamp(0.0, 1.0));
        let covers = self.low() - Self::TOLERANCE <= least && most <= self.high() + Self::TOLERANCE;
        let best = Self::around(least, most);
        if covers && self.high - self.low <= best.high - best.low + Self::SPARE_TENTHS { self } else { best }
    }

    /// Returns the smallest part that contains all from `least` to `most`.
    fn around(least: f32, most: f32) -> Self {
        let (low, high) = ((least * 10.0).floor() as u8, (most * 10.0).ceil() as u8);
        let high = high.max(low + Self::MIN_TENTHS).min(10);
        Self { low: low.min(high.saturating_sub(Self::MIN_TENTHS)), high }
    }

    /// Returns its lower end, 0 to 1.
    pub fn low(self) -> f32 {
        f32::from(self.low) / 10.0
    }

    /// Returns its upper end, 0 to 1.
    pub fn high(self) -> f32 {
        f32::from(self.high) / 10.0
    }

    /// Returns the position of a value within it, 0 to 1.
    pub fn position(self, value: f32) -> f32 {
        ((value - self.low()) / (self.high() - self.low())).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(low: u8, high: u8) -> ColourScale {
        ColourScale { low, high }
    }

    #[test]
    fn the_scale_covers_the_values_and_not_more() {
        let whole = ColourScale::WHOLE;
        assert_eq!(whole.adapted(vec![0.97, 0.99, 0.88, 1.0]), part(8, 10));
        assert_eq!(whole.adapted(vec![0.52, 0.74]), part(5, 8));
        assert_eq!(whole.adapted(vec![0.0, 0.99]), whole);
        assert_eq!(whole.adapted(vec![0.0]), part(0, 2));
        assert_eq!(whole.adapted(vec![1.2]), part(8, 10));
        assert_eq!(whole.adapted(vec![]), whole);
    }

    #[test]
    fn a_few_values_outside_do_not_change_it() {
        let mut values = vec![0.97; 200];
        values.extend([0.0, 0.1, 0.2]);
        assert_eq!(ColourScale::WHOLE.adapted(values), part(8, 10));
    }

    #[test]
    fn it_stays_while_values_move_a_little() {
        let scale = part(8, 10);
        assert_eq!(scale.adapted(vec![0.785, 0.99]), scale);
        assert_eq!(part(6, 10).adapted(vec![0.85, 0.99]), part(6, 10));
        assert_eq!(scale.adapted(vec![0.70, 0.99]), part(7, 10));
        assert_eq!(part(2, 10).adapted(vec![0.85, 0.99]), part(8, 10));
    }

    #[test]
    fn values_outside_have_the_colour_of_the_end() {
        let positions = [0.0, 0.8, 0.9, 1.0, 1.5].map(|value| part(8, 10).position(value));
        assert!(
            positions.iter().zip([0.0, 0.0, 0.5, 1.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-5),
            "{positions:?}"
        );
    }
}
