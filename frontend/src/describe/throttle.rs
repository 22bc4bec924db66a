//! The details of throttling: each reason with its share of the time. A power cap and idleness are normal.

use super::fact::{Emphasis, Fact, FactGroup};
use crate::domain::text;
use crate::domain::throttle::ThrottleSummary;
use nodeglass_rules::number;

/// Describes the reasons of the last ten minutes; `since` formats how long ago a moment is.
pub fn group(intervals: &[ThrottleSummary], since: impl Fn(u64) -> String) -> FactGroup {
    let fact = |one: &ThrottleSummary| {
        let value = match one.since_ms {
            Some(at_ms) if one.or_longer => format!("active for {} or longer", since(at_ms)),
            Some(at_ms) => format!("active for {}", since(at_ms)),
            None => "inactive".to_owned(),
        };
        let active = if one.since_ms.is_some() { "" } else { "was active for " };
        let share = number::percent(f64::from(one.share) * 100.0);
        let note = format!("{active}{share} of the last 10 min. {}", one.reason.why);
        let is_odd = !one.reason.is_normal && one.since_ms.is_some();
        Fact::new(text::capitalised(one.reason.name), value)
            .with_note(note)
            .with_emphasis_if(is_odd, Emphasis::Warning)
    };
    let group = FactGroup::new("Throttling", intervals.iter().map(fact));
    if intervals.is_empty() { group.with_note("None known in the last 10 min.") } else { group }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::throttle::summarize;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::trace::Trace;

    fn describe(slots: &[(u64, u32)]) -> FactGroup {
        let mut trace = Trace::default();
        slots.iter().for_each(|(second, bits)| trace.push(second * 1_000, Cell::steps(*bits), 0));
        group(&summarize(&trace, 0, 600_000), |at_ms| format!("{} s", 20 - at_ms / 1_000))
    }

    #[test]
    fn the_power_cap_and_idleness_are_normal_and_heat_is_not() {
        for (bits, emphasis) in [
            (0x1, Emphasis::Plain),
            (0x4, Emphasis::Plain),
            (0x40, Emphasis::Warning),
            (0x80, Emphasis::Warning),
        ] {
            assert_eq!(describe(&[(10, bits), (11, bits)]).facts[0].emphasis, emphasis, "{bits:#x}");
        }
    }

    #[test]
    fn a_reason_has_a_share_and_a_start() {
        let group = describe(&[(10, 0), (11, 0x40), (12, 0x40), (13, 0x40)]);
        assert_eq!(group.facts[0].value, "active for 9 s");
        assert!(group.facts[0].note.starts_with("75 % of the last 10 min."));
        let past = &describe(&[(10, 0x40), (11, 0)]).facts[0];
        assert_eq!(past.value, "inactive");
        assert!(past.note.starts_with("was active for 50 % of the last 10 min."), "{}", past.note);
    }

    #[test]
    fn without_data_the_group_says_so() {
        assert!(describe(&[]).note.contains("None known"));
    }
}
