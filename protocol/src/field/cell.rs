//! A cell is one reading quantized to the resolution of the page, so that invisible changes cost
//! nothing.

use super::Field;
use crate::Reading;

/// One reading, quantized for display, as a code: 0 not yet taken, 1 unsupported, 2 failed, `n + 3`
/// the value `n` in steps of its field's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cell(u32);

impl Cell {
    /// Not taken yet.
    pub const NOT_YET: Self = Self(0);
    /// The source does not offer this reading.
    pub const UNSUPPORTED: Self = Self(1);
    /// The reading failed this time.
    pub const FAILED: Self = Self(2);
    const FIRST: u32 = 3;

    /// Returns the cell of a value in steps of the field's scale; saturates.
    pub const fn steps(steps: u32) -> Self {
        Self(steps.saturating_add(Self::FIRST))
    }

    /// The value in steps, if there is one.
    pub const fn value(self) -> Option<u32> {
        self.0.checked_sub(Self::FIRST)
    }

    /// Returns the wire code.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// Returns the cell of a wire code.
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// Rounds a reading to the nearest step of `field`.
    pub fn quantize<F: Field>(field: F, reading: &Reading<u64>) -> Self {
        match reading {
            Reading::NotYet => Self::NOT_YET,
            Reading::Unsupported => Self::UNSUPPORTED,
            Reading::Failed(_) => Self::FAILED,
            Reading::Value(value) => {
                Self::steps(u32::try_from(field.scale().steps(*value)).unwrap_or(u32::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GpuField;

    #[test]
    fn absence_is_never_zero() {
        let zero = Cell::quantize(GpuField::Util, &Reading::Value(0));
        for absent in [Reading::NotYet, Reading::Unsupported, Reading::Failed("x".into())] {
            assert_ne!(Cell::quantize(GpuField::Util, &absent), zero);
        }
        assert_eq!(zero.value(), Some(0));
    }

    #[test]
    fn values_round_to_the_nearest_step() {
        assert_eq!(Cell::quantize(GpuField::SmClock, &Reading::Value(1410)).value(), Some(94));
        assert_eq!(Cell::quantize(GpuField::SmClock, &Reading::Value(1417)).value(), Some(94));
        assert_eq!(Cell::quantize(GpuField::SmClock, &Reading::Value(1418)).value(), Some(95));
        assert_eq!(Cell::quantize(GpuField::MemUsed, &Reading::Value(u64::MAX)), Cell::steps(u32::MAX));
    }
}
