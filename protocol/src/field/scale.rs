//! Resolution of a field: the mapping between the steps of a cell and values.

/// Mapping between the steps of a cell and values in its field's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All steps are equal to this unit.
    Linear(u64),
    /// Equal steps of this unit up to 32 of them, then 32 steps per doubling. Rates are displayed
    /// with at most three digits, the last of which always fluctuates; the error is at most 1.6 %.
    Logarithmic(u64),
}

impl Scale {
    /// Number of steps per doubling.
    const FINE: u64 = 32;
    /// Its binary logarithm.
    const BITS: u32 = Self::FINE.ilog2();

    /// Quantizes a value to the nearest step.
    pub const fn steps(self, value: u64) -> u64 {
        let (Self::Linear(unit) | Self::Logarithmic(unit)) = self;
        let units = value.saturating_add(unit / 2) / unit;
        if matches!(self, Self::Linear(_)) || units < Self::FINE {
            return units;
        }
        // Truncates to the highest bits and rounds half up.
        let cut = units.ilog2() - Self::BITS;
        let rounded = units.saturating_add((1 << cut) >> 1);
        let cut = rounded.ilog2() - Self::BITS;
        (cut as u64) * Self::FINE + (rounded >> cut)
    }

    /// Returns the value of a number of steps.
    pub const fn value(self, steps: u64) -> u64 {
        match self {
            Self::Linear(unit) => steps.saturating_mul(unit),
            Self::Logarithmic(unit) if steps < Self::FINE => steps.saturating_mul(unit),
            Self::Logarithmic(unit) => {
                let cut = steps / Self::FINE - 1;
                if cut + Self::BITS as u64 >= 63 {
                    return u64::MAX;
                }
                ((Self::FINE + steps % Self::FINE) << cut).saturating_mul(unit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_steps_are_accurate_to_a_sixtieth() {
        let scale = Scale::Logarithmic(1 << 20);
        let mut before = 0;
        for mib in
            (0..4_000u64).chain((12..40).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 7]))
        {
            let value = mib << 20;
            let steps = scale.steps(value);
            assert!(steps >= before, "{mib}");
            before = steps;
            let shown = scale.value(steps);
            assert!(shown.abs_diff(value) <= value / 63, "{value} is shown as {shown}");
            assert_eq!(scale.steps(shown), steps);
        }
        assert_eq!(scale.steps((5 << 20) + 1), 5);
        for steps in [0, 31, 32, 64, 1_000, u64::from(u32::MAX)] {
            let _ = scale.value(steps);
        }
        assert_eq!(scale.value(scale.steps(u64::MAX)), u64::MAX);
    }
}
