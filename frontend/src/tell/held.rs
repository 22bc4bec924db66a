//! What holds a card's clocks back is told with its share of the time; a power limit and idleness are normal words.

use super::{Fact, Group, Mood};
use crate::text;
use crate::throttle::Held;

/// The reasons that held in the last ten minutes; `since` tells how long ago a moment is.
pub fn group(held: &[Held], since: impl Fn(u64) -> String) -> Group {
    let fact = |one: &Held| {
        let value = match one.since_ms {
            Some(at_ms) if one.or_longer => format!("now, for {} or longer", since(at_ms)),
            Some(at_ms) => format!("now, for {}", since(at_ms)),
            None => "not now".to_owned(),
        };
        let more = format!("{} of the last 10 min. {}", share(one.share), one.reason.why);
        let is_odd = !one.reason.is_normal && one.since_ms.is_some();
        Fact::new(capitalised(one.reason.name), value).with(more).if_so(is_odd, Mood::Attention)
    };
    let group = Group::new("What holds the clocks back", held.iter().map(fact));
    if held.is_empty() { group.noted("Nothing did in the last 10 min, as far as is known.") } else { group }
}

/// A share as whole per cents; what is there is never told as nothing.
fn share(share: f32) -> String {
    let percent = (share.clamp(0.0, 1.0) * 100.0).round() as u64;
    if percent == 0 { "less than 1 %".to_owned() } else { format!("{} %", text::grouped(percent)) }
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::held;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::trace::Trace;

    fn told(slots: &[(u64, u32)]) -> Group {
        let mut trace = Trace::default();
        slots.iter().for_each(|(second, bits)| trace.push(second * 1_000, Cell::steps(*bits), 0));
        group(&held(&trace, 0, 600_000), |at_ms| format!("{} s", 20 - at_ms / 1_000))
    }

    #[test]
    fn the_power_limit_and_idleness_are_normal_words_and_heat_is_not() {
        for (bits, mood) in
            [(0x1, Mood::Plain), (0x4, Mood::Plain), (0x40, Mood::Attention), (0x80, Mood::Attention)]
        {
            assert_eq!(told(&[(10, bits), (11, bits)]).facts[0].mood, mood, "{bits:#x}");
        }
    }

    #[test]
    fn a_reason_comes_with_its_share_and_since_when() {
        let group = told(&[(10, 0), (11, 0x40), (12, 0x40), (13, 0x40)]);
        assert_eq!(group.facts[0].value, "now, for 9 s");
        assert!(group.facts[0].more.starts_with("75 % of the last 10 min."));
        assert_eq!(told(&[(10, 0x40), (11, 0)]).facts[0].value, "not now");
    }

    #[test]
    fn nothing_known_is_said_as_nothing_known() {
        assert!(told(&[]).note.contains("as far as is known"));
    }
}
