//! Repeated measurements: median and range.

/// Values of one figure.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Minimum and maximum.
    pub fn range(&self) -> (f64, f64) {
        (self.quantile(0.0), self.quantile(1.0))
    }

    /// The quantile: the value that this share of all values does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}
