//! Judges the reading of a probe against a reference that is read before and after it.

use std::collections::BTreeSet;
use std::fmt;

/// Value of a reading by the probe or a reference, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// A number; 1 and 0 for what is so or not.
    Number(f64),
    /// A text in lower case.
    Text(String),
    /// No value, with the reason.
    Absent(String),
}

impl Observed {
    fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Absent(why) => write!(f, "none ({why})"),
        }
    }
}

/// A reading of the probe between two readings of the reference.
#[derive(Clone, Debug)]
pub struct Round {
    /// The reference, before the probe.
    pub before: Observed,
    /// The probe.
    pub probe: Observed,
    /// The reference, after the probe.
    pub after: Observed,
}

/// Differences that the nature of a reading explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Step of the reference in the unit of the probe, to which it rounds or truncates; 0 if it has the same resolution.
    pub step: f64,
    /// Difference that is always explained, if each side computes a mean over a window of its own, such as a rate between two
    /// reads.
    pub own_window: Option<f64>,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All values are equal, or neither side has one.
    Equal,
    /// The values differ for a reason that is not an error.
    Explained(String),
    /// The values differ.
    Different(String),
}

/// Share of the larger value by which means over different windows may differ.
const WINDOW_SHARE: f64 = 0.25;
/// Number of rounds, and share of all rounds, in which a value must be off to the same side to count as biased. For noise
/// that both sides sample, the probability is below 1 in 10,000 with 20 rounds.
const BIASED: (usize, f64) = (12, 0.75);
/// Number of values of a reference that moves.
const MOVES: usize = 3;

/// Reason of a difference if the reference has no value.
pub const ONLY_PROBE: &str = "only the probe has a value";

/// Judges all rounds of one reading.
pub fn judge(rounds: &[Round], tolerance: Tolerance) -> Verdict {
    let absent = |rounds: &[Round], probe: bool| {
        let lacks = |round: &&Round| {
            let by_reference = [round.before.is_absent(), round.after.is_absent()];
            round.probe.is_absent() == probe && by_reference == [!probe; 2]
        };
        rounds.iter().filter(lacks).count()
    };
    let (without, beyond) = (absent(rounds, true), absent(rounds, false));
    if without * 2 > rounds.len() {
        let why = rounds.iter().map(|round| &round.probe).rfind(|observed| observed.is_absent());
        return Verdict::Different(format!("the probe has {}", why.unwrap_or(&Observed::Absent("?".into()))));
    }
    if beyond * 2 > rounds.len() {
        return Verdict::Different(ONLY_PROBE.into());
    }
    let is_present =
        |round: &&Round| !round.probe.is_absent() && !round.before.is_absent() && !round.after.is_absent();
    let present: Vec<&Round> = rounds.iter().filter(is_present).collect();
    let all_absent =
        |round: &Round| round.probe.is_absent() && round.before.is_absent() && round.after.is_absent();
    match values(&present, tolerance) {
        Verdict::Equal if present.len() < rounds.len() && !rounds.iter().all(all_absent) => {
            Verdict::Explained(format!(
                "it appeared or disappeared: both have it in {} of {} rounds",
                present.len(),
                rounds.len()
            ))
        }
        verdict => verdict,
    }
}

fn values(rounds: &[&Round], tolerance: Tolerance) -> Verdict {
    let is_equal = |round: &&Round| round.probe == round.before && round.probe == round.after;
    if rounds.iter().all(is_equal) {
        return Verdict::Equal;
    }
    let numbers: Option<Vec<[f64; 3]>> = rounds
        .iter()
        .map(|round| Some([round.before.number()?, round.probe.number()?, round.after.number()?]))
        .collect();
    match numbers {
        Some(numbers) => judge_numbers(&numbers, tolerance),
        None if rounds.iter().all(|round| round.probe == round.before || round.probe == round.after) => {
            Verdict::Explained("it changed between two reads".into())
        }
        None => Verdict::Different("another text".into()),
    }
}

/// The smallest and the largest value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

fn interval((low, high): (f64, f64)) -> String {
    if low == high { low.to_string() } else { format!("{low}–{high}") }
}

fn judge_numbers(rounds: &[[f64; 3]], Tolerance { step, own_window }: Tolerance) -> Verdict {
    let agree = |a: f64, b: f64| a == b || (a - b).abs() < step;
    if rounds.iter().all(|[before, probe, after]| agree(*before, *probe) && agree(*after, *probe)) {
        return Verdict::Explained(format!("the reference rounds to {step}"));
    }
    let probe = range(rounds.iter().map(|[_, probe, _]| *probe));
    let reference = range(rounds.iter().flat_map(|[before, _, after]| [*before, *after]));
    let between = format!("{} and {}", interval(probe), interval(reference));
    let largest = probe.1.max(reference.1);
    let slack = own_window.map_or(step, |least| least.max(largest * WINDOW_SHARE));
    let gap = (probe.0 - reference.1).max(reference.0 - probe.1);
    match () {
        () if gap > 0.0 && gap >= slack => Verdict::Different(format!("{between} do not overlap")),
        () if own_window.is_some() => {
            Verdict::Explained(format!("each side has the mean of its own window: {between}"))
        }
        () if is_stale(rounds, agree) => {
            Verdict::Different(format!("the probe stays at {} while the reference moves: {between}", probe.0))
        }
        () if is_biased(rounds, agree) => {
            Verdict::Different(format!("always off to the same side: {between}"))
        }
        () => Verdict::Explained(format!("it moved between two reads: {between}")),
    }
}

/// Returns whether the probe repeats one value while no value of the reference is frequent.
fn is_stale(rounds: &[[f64; 3]], agree: impl Fn(f64, f64) -> bool) -> bool {
    let first = rounds[0][1];
    let values: Vec<f64> = rounds.iter().map(|[before, ..]| *before).collect();
    let frequent =
        values.iter().map(|value| values.iter().filter(|other| agree(**other, *value)).count()).max();
    let distinct: BTreeSet<u64> = values.iter().map(|value| value.to_bits()).collect();
    rounds.iter().all(|[_, probe, _]| *probe == first)
        && distinct.len() >= MOVES
        && frequent.is_some_and(|frequent| frequent * 2 <= values.len())
}

/// Returns whether the probe is outside of what the reference had around it, always on the same side.
fn is_biased(rounds: &[[f64; 3]], agree: impl Fn(f64, f64) -> bool) -> bool {
    let (mut above, mut below) = (0, 0);
    for [before, probe, after] in rounds {
        let outside = !agree(*probe, *before) && !agree(*probe, *after);
        above += usize::from(outside && *probe > before.max(*after));
        below += usize::from(outside && *probe < before.min(*after));
    }
    let (count, share) = BIASED;
    let many = count.max((rounds.len() as f64 * share).ceil() as usize);
    above.min(below) == 0 && above.max(below) >= many
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: Tolerance = Tolerance { step: 0.0, own_window: None };
    const WINDOW: Tolerance = Tolerance { own_window: Some(5.0), ..EXACT };

    /// Rounds in which the reference has the values of `reference` and the probe, halfway, those of `probe`.
    fn rounds(count: usize, reference: impl Fn(f64) -> f64, probe: impl Fn(f64) -> f64) -> Vec<Round> {
        let at = |time: usize| time as f64 / 2.0;
        let round = |round: usize| Round {
            before: Observed::Number(reference(at(2 * round))),
            probe: Observed::Number(probe(at(2 * round + 1))),
            after: Observed::Number(reference(at(2 * round + 2))),
        };
        (0..count).map(round).collect()
    }

    fn is_different(rounds: &[Round], tolerance: Tolerance) -> bool {
        matches!(judge(rounds, tolerance), Verdict::Different(_))
    }

    fn is_explained(rounds: &[Round], tolerance: Tolerance) -> bool {
        matches!(judge(rounds, tolerance), Verdict::Explained(_))
    }

    /// Noise without memory, the same for the same time.
    fn noise(time: f64) -> f64 {
        let mut bits = (time * 2.0) as u64 ^ 0x9e37_79b9_7f4a_7c15;
        for _ in 0..3 {
            bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        (bits >> 40) as f64 % 1_000.0
    }

    #[test]
    fn equal_values_are_equal_and_a_constant_difference_is_different() {
        assert_eq!(judge(&rounds(3, |_| 31.0, |_| 31.0), EXACT), Verdict::Equal);
        assert!(is_different(&rounds(3, |_| 31.0, |_| 32.0), EXACT), "off by one step");
        assert!(is_different(&rounds(3, |_| 61_000.0, |_| 61.0), EXACT), "a wrong unit");
    }

    #[test]
    fn values_that_moved_between_two_reads_are_explained() {
        assert!(is_explained(&rounds(20, noise, noise), EXACT));
        assert!(is_explained(&rounds(20, |time| time, |time| time), EXACT), "a counter");
        assert!(
            is_explained(&rounds(20, |time| (time / 7.0).floor(), |time| (time / 7.0).floor()), EXACT),
            "seldom"
        );
    }

    #[test]
    fn a_bias_is_found_in_values_that_move() {
        assert!(is_different(&rounds(20, |time| time, |time| time + 1.0), EXACT), "a counter");
        assert!(is_different(
            &rounds(20, |time| (time / 7.0).floor(), |time| (time / 7.0).floor() + 1.0),
            EXACT
        ));
        assert!(is_different(&rounds(20, noise, |time| noise(time) * 1_000.0), EXACT), "a wrong unit");
    }

    #[test]
    fn a_value_that_does_not_follow_is_different() {
        assert!(is_different(&rounds(20, noise, |_| noise(5.0)), EXACT), "within the range of the reference");
        assert!(is_different(&rounds(20, |time| 90.0 + time, |_| 0.0), EXACT));
    }

    #[test]
    fn a_constant_value_beside_one_outlier_is_explained() {
        let outlier = |time: f64| if time == 3.0 { 31.0 } else { 30.0 };
        assert!(is_explained(&rounds(20, outlier, |_| 30.0), EXACT));
    }

    #[test]
    fn a_reference_of_less_resolution_explains_less_than_one_step() {
        let mib = Tolerance { step: 1_024.0, own_window: None };
        let reference = |_| 10_240.0;
        assert!(is_explained(&rounds(3, reference, |_| 10_240.0 + 1_023.0), mib));
        assert!(is_different(&rounds(9, reference, |_| 10_240.0 + 2_048.0), mib));
        assert!(is_different(&rounds(9, reference, |_| 10_240.0 + 1_024.0), mib), "one step");
    }

    #[test]
    fn means_over_own_windows_may_differ_by_a_quarter() {
        assert!(is_explained(&rounds(3, |_| 8e9, |_| 7e9), WINDOW));
        assert!(is_explained(&rounds(3, |_| 2.0, |_| 0.0), WINDOW));
        assert!(is_different(&rounds(3, |_| 8e9, |_| 8e9 / 1_024.0), WINDOW), "a wrong unit");
        assert!(is_different(&rounds(3, |_| 90.0, |_| 10.0), WINDOW), "another GPU");
    }

    #[test]
    fn a_value_that_one_side_lacks_is_different_unless_it_came_or_went() {
        let lacks = |probe: bool| {
            move |round: Round| match probe {
                true => Round { probe: Observed::Absent("unsupported".into()), ..round },
                false => Round {
                    before: Observed::Absent("n/a".into()),
                    after: Observed::Absent("n/a".into()),
                    ..round
                },
            }
        };
        let equal = || rounds(9, |_| 7.0, |_| 7.0).into_iter();
        let by_probe: Vec<_> = equal().map(lacks(true)).collect();
        assert_eq!(judge(&by_probe, EXACT), Verdict::Different("the probe has none (unsupported)".into()));
        assert!(is_different(&equal().map(lacks(false)).collect::<Vec<_>>(), EXACT));
        let neither: Vec<_> = equal().map(lacks(false)).map(lacks(true)).collect();
        assert_eq!(judge(&neither, EXACT), Verdict::Equal);
        let ended: Vec<_> = equal().take(6).chain(neither.into_iter().take(3)).collect();
        assert!(is_explained(&ended, EXACT), "{:?}", judge(&ended, EXACT));
    }

    #[test]
    fn another_text_is_different() {
        let text = |text: &str| Observed::Text(text.into());
        let round =
            |probe: &str, after: &str| Round { before: text("a"), probe: text(probe), after: text(after) };
        assert_eq!(judge(&[round("a", "a")], EXACT), Verdict::Equal);
        assert!(is_explained(&[round("a", "b")], EXACT));
        assert!(is_different(&[round("b", "a")], EXACT));
        let number = Round { probe: Observed::Number(7.0), ..round("a", "a") };
        assert!(is_different(&[number], EXACT));
    }
}
