//! The foot of a table sums up the rows that are shown; what cannot be read is left out, not taken for zero.

use super::column::Sum;
use super::value::Value;

/// What the values of a column come to.
pub fn of<'a>(sum: Sum, values: impl Iterator<Item = &'a Value>) -> Value {
    let (mut part, mut whole, mut count, mut wholes) = (0u64, 0u64, 0u64, 0u64);
    for value in values {
        let Some(number) = value.as_number() else { continue };
        part = if sum == Sum::Most { part.max(number) } else { part.saturating_add(number) };
        count += 1;
        if let Value::Of(_, of) = value {
            whole = whole.saturating_add(*of);
            wholes += 1;
        }
    }
    match (sum, count) {
        (Sum::None, _) => Value::NONE,
        (_, 0) => Value::Absent("none of them tells"),
        (Sum::Mean, _) => Value::Number((part + count / 2) / count),
        // A whole of which some are missing would make the part look larger than it is.
        (Sum::Total, _) if wholes == count => Value::Of(part, whole),
        (Sum::Total | Sum::Most, _) => Value::Number(part),
    }
}

/// What the sum is, for a title.
pub fn word(sum: Sum) -> &'static str {
    match sum {
        Sum::None => "",
        Sum::Total => "sum",
        Sum::Mean => "mean",
        Sum::Most => "the largest",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_tell_changes_neither_mean_nor_sum() {
        let all = [Value::Number(90), Value::NOT_YET, Value::Number(95)];
        let values = || all.iter();
        assert_eq!(of(Sum::Mean, values()), Value::Number(93));
        assert_eq!(of(Sum::Total, values()), Value::Number(185));
        assert_eq!(of(Sum::Most, values()), Value::Number(95));
        assert!(of(Sum::Mean, [Value::NOT_YET].iter()).why_absent().is_some());
    }

    #[test]
    fn wholes_are_summed_only_when_all_are_known() {
        assert_eq!(of(Sum::Total, [Value::Of(3, 8), Value::Of(4, 8)].iter()), Value::Of(7, 16));
        assert_eq!(of(Sum::Total, [Value::Of(3, 8), Value::Number(4)].iter()), Value::Number(7));
    }
}
