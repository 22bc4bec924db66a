//! Many lines become a band: the lowest, the middle and the highest of each moment, and who leaves it.

use super::Series;
use super::timeline::go_on;

/// The lowest, the median and the highest of many series in each step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Band {
    /// The lowest.
    pub low: Series,
    /// The median; of an even number the lower one of the two in the middle.
    pub mid: Series,
    /// The highest.
    pub high: Series,
}

impl Band {
    /// Takes over what stays when a window goes on: so many steps are gone at the left, and those from the second number
    /// on are made anew of some series of it. A step that nobody tells of is a gap.
    pub fn go_on<'a>(
        &mut self,
        step: (usize, usize),
        all: impl IntoIterator<Item = &'a [Option<f32>]> + Clone,
    ) {
        let steps = all.clone().into_iter().map(<[_]>::len).max().unwrap_or(0);
        for row in [&mut self.low, &mut self.mid, &mut self.high] {
            go_on(row, step, []);
        }
        let mut told: Vec<f32> = Vec::new();
        for step in step.1..steps {
            told.clear();
            told.extend(all.clone().into_iter().filter_map(|series| series.get(step).copied().flatten()));
            let (low, mid, high) = match spread(&mut told) {
                Some((low, mid, high)) => (Some(low), Some(mid), Some(high)),
                None => (None, None, None),
            };
            self.low.push(low);
            self.mid.push(mid);
            self.high.push(high);
        }
    }
}

/// The lowest, the median and the highest of some values, if there are any; their order is lost.
pub fn spread(values: &mut [f32]) -> Option<(f32, f32, f32)> {
    let middle = values.len().checked_sub(1)? / 2;
    let (low, high) =
        values.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let (_, mid, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    Some((low, *mid, high))
}

/// Who leaves the median: positions and mean distance over the last `recent` steps, the farthest first, at most three.
///
/// Near is less than `near`, which is of the same kind as the values.
pub fn outliers<'a>(
    all: impl IntoIterator<Item = &'a [Option<f32>]>,
    mid: &[Option<f32>],
    recent: usize,
    near: f32,
) -> Vec<(usize, f32)> {
    let from = mid.len().saturating_sub(recent);
    let distance = |series: &[Option<f32>]| {
        let pairs = series.iter().zip(mid).skip(from).filter_map(|(value, mid)| Some((*value)? - (*mid)?));
        let (sum, count) = pairs.fold((0.0, 0u16), |(sum, count), away| (sum + away, count + 1));
        (count > 0).then(|| sum / f32::from(count))
    };
    let mut found: Vec<(usize, f32)> = all
        .into_iter()
        .enumerate()
        .filter_map(|(index, series)| Some((index, distance(series)?)))
        .filter(|(_, away)| away.abs() >= near)
        .collect();
    found.sort_unstable_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
    found.truncate(3);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band<'a>(all: impl IntoIterator<Item = &'a [Option<f32>]> + Clone) -> Band {
        let mut band = Band::default();
        band.go_on((0, 0), all);
        band
    }

    #[test]
    fn a_band_is_made_of_those_who_tell() {
        let all = [[Some(1.0), None], [Some(5.0), None], [Some(3.0), None]];
        let made = band(all.iter().map(|series| &series[..]));
        assert_eq!(
            (made.low, made.mid, made.high),
            (vec![Some(1.0), None], vec![Some(3.0), None], vec![Some(5.0), None])
        );
        assert_eq!(band([]), Band::default());
    }

    #[test]
    fn a_band_that_goes_on_is_what_it_would_be_from_the_beginning() {
        let all = [[1.0, 9.0, 3.0, 5.0], [2.0, 0.0, 7.0, 6.0], [3.0, 4.0, 5.0, 4.0]].map(|row| row.map(Some));
        let rows = |from: usize| all.iter().map(move |row| &row[from..]);
        let mut made = band(all.iter().map(|row| &row[..3]));
        made.go_on((1, 2), rows(1));
        assert_eq!(made, band(rows(1)));
    }

    #[test]
    fn the_one_that_lags_is_found_and_the_others_are_not() {
        let steady = [Some(0.95); 4];
        let late = [Some(0.95), Some(0.95), Some(0.60), Some(0.62)];
        let all = [&steady[..], &late, &steady, &[None; 4]];
        let mid = band(all).mid;
        let found = outliers(all, &mid, 2, 0.15);
        assert_eq!(found.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
        assert!(found[0].1 < -0.3);
        assert_eq!(outliers(all, &mid, 4, 0.2), []);
    }

    #[test]
    fn at_most_three_are_named_the_farthest_first() {
        let flat = |value: f32| [Some(value); 2];
        let series = [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.2, 0.3, 0.4].map(flat);
        let all = series.iter().map(|series| &series[..]);
        let mid = band(all.clone()).mid;
        let found: Vec<usize> = outliers(all, &mid, 2, 0.15).into_iter().map(|(index, _)| index).collect();
        assert_eq!(found, [6, 7, 8]);
    }
}
