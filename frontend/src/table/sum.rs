//! Aggregates in a table's footer, over the rows that are shown. Missing values are left out, not taken as
//! zero.

use super::column::Sum;
use super::value::Value;

/// Returns the aggregate of a column's values.
pub fn aggregate<'a>(sum: Sum, values: impl Iterator<Item = &'a Value>) -> Value {
    let (mut part, mut whole, mut count, mut wholes) = (0u64, 0u64, 0u64, 0u64);
    for value in values {
        let Some(number) = value.as_number() else { continue };
        part = if sum == Sum::Max { part.max(number) } else { part.saturating_add(number) };
        count += 1;
        if let Value::Part(_, aggregate) = value {
            whole = whole.saturating_add(*aggregate);
            wholes += 1;
        }
    }
    match (sum, count) {
        (Sum::None, _) => Value::NONE,
        (_, 0) => Value::Absent("not known for any row"),
        (Sum::Mean, _) => Value::Number((part + count / 2) / count),
        // A maximum that is missing for some rows would make the fraction look too large.
        (Sum::Total, _) if wholes == count => Value::Part(part, whole),
        (Sum::Total | Sum::Max, _) => Value::Number(part),
    }
}

/// Returns the name of the aggregate, beside its figure.
pub fn label(sum: Sum) -> &'static str {
    match sum {
        Sum::None => "",
        Sum::Total => "Σ",
        Sum::Mean => "mean",
        Sum::Max => "max",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_change_neither_mean_nor_sum() {
        let all = [Value::Number(90), Value::NOT_YET, Value::Number(95)];
        let values = || all.iter();
        assert_eq!(aggregate(Sum::Mean, values()), Value::Number(93));
        assert_eq!(aggregate(Sum::Total, values()), Value::Number(185));
        assert_eq!(aggregate(Sum::Max, values()), Value::Number(95));
        assert!(aggregate(Sum::Mean, [Value::NOT_YET].iter()).why_absent().is_some());
    }

    #[test]
    fn maxima_are_summed_only_if_all_are_known() {
        assert_eq!(aggregate(Sum::Total, [Value::Part(3, 8), Value::Part(4, 8)].iter()), Value::Part(7, 16));
        assert_eq!(aggregate(Sum::Total, [Value::Part(3, 8), Value::Number(4)].iter()), Value::Number(7));
    }
}
