//! Aggregates many series into a band (minimum, median, maximum of each step).

use super::Series;
use super::timeline::advance;
use nodeglass_rules::peers::median_of;

/// Minimum, median and maximum of many series in each step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Band {
    /// Minimum.
    pub low: Series,
    /// Median.
    pub mid: Series,
    /// Maximum.
    pub high: Series,
}

impl Band {
    /// Advances with the window of `all_series`: drops `gone` steps at the left and recomputes those from
    /// `first` on. A step without any value is a gap.
    pub fn advance<'a>(
        &mut self,
        (gone, first): (usize, usize),
        all_series: impl IntoIterator<Item = &'a [Option<f32>]> + Clone,
    ) {
        let steps = all_series.clone().into_iter().map(<[_]>::len).max().unwrap_or(0);
        for row in [&mut self.low, &mut self.mid, &mut self.high] {
            advance(row, (gone, first), []);
        }
        let mut values_at_step: Vec<f32> = Vec::new();
        for step in first..steps {
            values_at_step.clear();
            values_at_step.extend(
                all_series.clone().into_iter().filter_map(|series| series.get(step).copied().flatten()),
            );
            let (low, mid, high) = match spread(&mut values_at_step) {
                Some((low, mid, high)) => (Some(low), Some(mid), Some(high)),
                None => (None, None, None),
            };
            self.low.push(low);
            self.mid.push(mid);
            self.high.push(high);
        }
    }
}

impl Band {
    /// Widens minimum and maximum to the lowest and highest values of each step, given by series.
    pub fn widen<'a>(&mut self, extremes: impl IntoIterator<Item = (&'a [Option<f32>], &'a [Option<f32>])>) {
        for (lows, highs) in extremes {
            let pairs = self.low.iter_mut().zip(&mut self.high).zip(lows.iter().zip(highs));
            for ((low, high), extreme) in pairs {
                if let ((Some(low), Some(high)), (Some(lowest), Some(highest))) = ((low, high), extreme) {
                    (*low, *high) = (low.min(*lowest), high.max(*highest));
                }
            }
        }
    }
}

/// Returns minimum, median and maximum of some values, if there are any; reorders them.
pub fn spread(values: &mut [f32]) -> Option<(f32, f32, f32)> {
    let (low, high) =
        values.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    Some((low, median_of(values)?, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band<'a>(all: impl IntoIterator<Item = &'a [Option<f32>]> + Clone) -> Band {
        let mut band = Band::default();
        band.advance((0, 0), all);
        band
    }

    #[test]
    fn a_band_ignores_series_without_a_value() {
        let all = [[Some(1.0), None], [Some(5.0), None], [Some(3.0), None]];
        let made = band(all.iter().map(|series| &series[..]));
        assert_eq!(
            (made.low, made.mid, made.high),
            (vec![Some(1.0), None], vec![Some(3.0), None], vec![Some(5.0), None])
        );
        assert_eq!(band([]), Band::default());
    }

    #[test]
    fn an_advanced_band_equals_a_recomputed_one() {
        let all = [[1.0, 9.0, 3.0, 5.0], [2.0, 0.0, 7.0, 6.0], [3.0, 4.0, 5.0, 4.0]].map(|row| row.map(Some));
        let rows = |from: usize| all.iter().map(move |row| &row[from..]);
        let mut made = band(all.iter().map(|row| &row[..3]));
        made.advance((1, 2), rows(1));
        assert_eq!(made, band(rows(1)));
    }
}
