//! Expands SLURM's hostlist syntax (`gpu[01-03,07],login`), within bounds, and writes it.

use nodeglass_protocol::NodeName;
use std::collections::BTreeSet;

/// Maximum number of names in one list.
pub const MAX_NODES: usize = 65_536;

/// Error of expanding a hostlist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// Brackets are unbalanced, or contain something other than numbers and ranges.
    #[error("read the node list {0:?}")]
    Malformed(String),
    /// It expands to more than [`MAX_NODES`] names.
    #[error("write out a node list of more than {MAX_NODES} nodes")]
    TooMany,
    /// It contains an invalid node name.
    #[error(transparent)]
    Name(#[from] nodeglass_protocol::IdError),
}

/// Expands a hostlist in SLURM's order: ranges with leading zeros, several brackets in a name
/// (`rack[1-2]n[1-4]`), comma-separated lists. SLURM's spellings of "none" yield an empty list.
///
/// # Errors
/// [`HostlistError`] if it is malformed, too long, or contains an invalid node name.
pub fn expand(text: &str) -> Result<Vec<NodeName>, HostlistError> {
    expand_within(text, &mut ExpansionBudget::default())
}

/// Maximum number of names over all lists of one output: a million, many times what a cluster's jobs
/// have.
#[derive(Clone, Copy, Debug)]
pub struct ExpansionBudget(usize);

impl Default for ExpansionBudget {
    fn default() -> Self {
        Self(1_000_000)
    }
}

/// Like [`expand`], for one of many lists that share `budget`.
///
/// # Errors
/// As [`expand`]; also [`HostlistError::TooMany`] when the budget is used up.
pub fn expand_within(text: &str, budget: &mut ExpansionBudget) -> Result<Vec<NodeName>, HostlistError> {
    let text = text.trim();
    if matches!(text, "" | "(null)" | "None assigned" | "n/a" | "N/A") {
        return Ok(Vec::new());
    }
    let malformed = || HostlistError::Malformed(text.chars().take(80).collect());
    let mut nodes = Vec::new();
    for item in split_outside_brackets(text).ok_or_else(malformed)? {
        let pieces = pieces(item.trim()).ok_or_else(malformed)?;
        let count = pieces.iter().try_fold(1usize, |count, piece| count.checked_mul(piece.len()));
        let count = count.filter(|count| count + nodes.len() <= MAX_NODES && *count <= budget.0);
        // Charged before expansion: a list that is rejected half-way has used the budget too.
        budget.0 -= count.ok_or(HostlistError::TooMany)?;
        write_out(&pieces, &mut String::new(), &mut nodes)?;
    }
    Ok(nodes)
}

/// Writes names as a hostlist, `gpu[01-03,07],login`: names that differ in their last number only, of as many digits,
/// are put together where the first of them is. [`expand`] yields the same names.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<(NameParts<'a>, BTreeSet<u64>)> = Vec::new();
    for name in names {
        let (parts, number) = name_parts(name);
        match groups.iter_mut().find(|(known, _)| *known == parts) {
            Some((_, numbers)) => numbers.extend(number),
            None => groups.push((parts, number.into_iter().collect())),
        }
    }
    let write = |((before, digits, after), numbers): &(NameParts<'_>, BTreeSet<u64>)| {
        let padded = |number: u64| format!("{number:0width$}", width = *digits);
        let ranges = ranges(numbers).into_iter().map(|(low, high)| match low == high {
            true => padded(low),
            false => format!("{}-{}", padded(low), padded(high)),
        });
        let ranges = ranges.collect::<Vec<_>>().join(",");
        if numbers.len() > 1 {
            format!("{before}[{ranges}]{after}")
        } else {
            format!("{before}{ranges}{after}")
        }
    };
    groups.iter().map(write).collect::<Vec<_>>().join(",")
}

/// The text before the last number of a name, the number of its digits, and the text after it.
type NameParts<'a> = (&'a str, usize, &'a str);

fn name_parts(name: &str) -> (NameParts<'_>, Option<u64>) {
    let end = name.rfind(|letter: char| letter.is_ascii_digit()).map_or(0, |last| last + 1);
    let start = name[..end].rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |before| before + 1);
    let digits = &name[start..end];
    // More digits than a range may have.
    match digits.parse().ok().filter(|_| digits.len() <= MAX_DIGITS) {
        Some(number) => ((&name[..start], digits.len(), &name[end..]), Some(number)),
        None => ((name, 0, ""), None),
    }
}

fn ranges(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, high)) if *high + 1 == *number => *high = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}

/// Splits a list at top-level commas; `None` if brackets are unbalanced or nested.
pub fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'(' if inside => return None,
            b'[' | b'(' => inside = true,
            b']' | b')' if !inside => return None,
            b']' | b')' => inside = false,
            b',' if !inside => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    (!inside).then_some(items)
}

/// Maximum number of digits of a number in brackets; a `u64` holds all of them.
const MAX_DIGITS: usize = 18;

/// A component of a name: literal text, or the numbers of a bracket.
enum Piece<'a> {
    Literal(&'a str),
    Ranges(Vec<Range>),
}

/// `low..=high`, with at least `width` digits.
struct Range {
    low: u64,
    high: u64,
    width: usize,
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Literal(_) => 1,
            Self::Ranges(ranges) => ranges.iter().fold(0usize, |sum, range| {
                let len = usize::try_from(range.high - range.low).unwrap_or(usize::MAX);
                sum.saturating_add(len.saturating_add(1))
            }),
        }
    }
}

fn pieces(mut item: &str) -> Option<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    while let Some((before, rest)) = item.split_once('[') {
        let (inside, after) = rest.split_once(']')?;
        if !before.is_empty() {
            pieces.push(Piece::Literal(before));
        }
        pieces.push(Piece::Ranges(inside.split(',').map(range).collect::<Option<_>>()?));
        item = after;
    }
    if !item.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Literal(item));
    }
    Some(pieces)
}

fn range(text: &str) -> Option<Range> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| -> Option<u64> {
        // `parse` alone would accept a sign.
        let ok = (1..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        ok.then(|| digits.parse().ok()).flatten()
    };
    let range = Range { low: number(low)?, high: number(high)?, width: low.len() };
    (range.low <= range.high).then_some(range)
}

fn write_out(
    pieces: &[Piece<'_>],
    name: &mut String,
    nodes: &mut Vec<NodeName>,
) -> Result<(), HostlistError> {
    let Some((piece, rest)) = pieces.split_first() else {
        nodes.push(NodeName::new(name.as_str())?);
        return Ok(());
    };
    let len = name.len();
    match piece {
        Piece::Literal(text) => {
            name.push_str(text);
            write_out(rest, name, nodes)?;
            name.truncate(len);
        }
        Piece::Ranges(ranges) => {
            for range in ranges {
                for number in range.low..=range.high {
                    name.push_str(&format!("{number:0width$}", width = range.width));
                    write_out(rest, name, nodes)?;
                    name.truncate(len);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plain_name_and_a_comma_list_stand_for_themselves() {
        assert_eq!(names("gpu-node-01"), ["gpu-node-01"]);
        assert_eq!(names("a,b-2,c.example"), ["a", "b-2", "c.example"]);
        assert_eq!(names("a, b[1-2].x"), ["a", "b1.x", "b2.x"], "as people write it");
    }

    #[test]
    fn ranges_keep_their_leading_zeros() {
        assert_eq!(names("n[01-03,07]"), ["n01", "n02", "n03", "n07"]);
        assert_eq!(names("n[9-11]"), ["n9", "n10", "n11"]);
        assert_eq!(names("n[099-101]"), ["n099", "n100", "n101"]);
    }

    #[test]
    fn several_brackets_count_like_an_odometer() {
        assert_eq!(names("r[1-2]n[1-2]-ib"), ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]);
        assert_eq!(names("a[1,3],b[2-3]x,c"), ["a1", "a3", "b2x", "b3x", "c"]);
    }

    #[test]
    fn names_are_put_together_by_their_last_number() {
        let compressed = |names: &[&str]| compress(names.iter().copied());
        assert_eq!(compressed(&["gpu-h01", "gpu-h03", "gpu-h02", "gpu-a04"]), "gpu-h[01-03],gpu-a04");
        assert_eq!(compressed(&["n1", "login", "n3-ib", "n2", "n4"]), "n[1-2,4],login,n3-ib");
        assert_eq!(compressed(&["n9", "n10", "n010"]), "n9,n10,n010");
        assert_eq!(compressed(&["10.0.0.1", "10.0.0.2"]), "10.0.0.[1-2]");
        assert_eq!(compressed(&[]), "");
    }

    #[test]
    fn slurms_spellings_of_none_are_an_empty_list() {
        for none in ["", "(null)", " ", "None assigned"] {
            assert_eq!(names(none), [""; 0], "{none:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bad in ["n[1-", "n]1[", "n[[1]]", "n[3-1]", "n[a-b]", "n[]", "n[1-2-3]", "n[-1]", "a,,b", "n[+1]"]
        {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn t16_names_that_ssh_could_misread_are_rejected() {
        for bad in ["-oProxyCommand=x", "a;b", "a b", "a\0b", "$(x)", "a/../b", "[1-2]-\u{202e}x", ".a", "_a"]
        {
            assert!(expand(bad).is_err(), "{bad}");
        }
        for bad in
            ["::1", "fe80::1%eth0", "a@b", "a:22", "é", "a\nb", "a,-b", "n[1-2],-x", "a%h", "'a'", "~a"]
        {
            assert!(expand(bad).is_err(), "{bad}");
        }
        assert!(expand(&"x".repeat(10_000)).is_err());
        assert!(expand(&format!("n[{}]", "1,".repeat(5_000))).is_err());
    }

    #[test]
    fn t18_lists_of_one_output_share_a_budget() {
        let mut budget = ExpansionBudget::default();
        let written = (0..100).filter(|_| expand_within("n[1-65536]", &mut budget).is_ok()).count();
        assert_eq!(written, 15);
        assert_eq!(expand_within("n[1-65536]", &mut budget), Err(HostlistError::TooMany));
        assert!(expand_within("n[1-100]", &mut budget).is_ok());
    }

    #[test]
    fn a_list_of_millions_is_refused_before_it_is_written_out() {
        for bomb in ["n[0-999999999999999999]", "a[1-300]b[1-300]", "a[0-9]b[0-9]c[0-9]d[0-9]e[0-9]"] {
            assert_eq!(expand(bomb), Err(HostlistError::TooMany), "{bomb}");
        }
        assert_eq!(expand("n[00001-65536]").unwrap().len(), MAX_NODES);
    }

    proptest! {
        #[test]
        fn what_is_put_together_expands_to_the_same_names(
            names in prop::collection::vec("[a-b]{1,2}[0-9]{0,3}(-x[0-1]{0,2})?", 0..12),
        ) {
            let wanted: BTreeSet<String> = names.iter().cloned().collect();
            let text = compress(names.iter().map(String::as_str));
            let expanded: Vec<_> = expand(&text).unwrap().iter().map(ToString::to_string).collect();
            prop_assert_eq!(expanded.len(), wanted.len(), "{}", text);
            prop_assert_eq!(expanded.into_iter().collect::<BTreeSet<_>>(), wanted, "{}", text);
        }

        #[test]
        fn t16_any_text_is_read_or_refused_within_bounds(text in "[a-c0-9\\[\\],()-]{0,24}|.*") {
            if let Ok(nodes) = expand(&text) {
                prop_assert!(nodes.len() <= MAX_NODES);
            }
        }
    }
}
