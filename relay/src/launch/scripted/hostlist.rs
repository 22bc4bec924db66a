//! Node name patterns in SLURM's notation: `gpu-h[01-08,12]`, `login`, or a comma-separated list.

use nodeglass_protocol::NodeName;

/// Maximum number of nodes per pattern.
const MAX_NODES: usize = 10_000;

/// Expands a pattern in order; `None` if it is not a pattern of at most [`MAX_NODES`] valid names.
pub fn expand(pattern: &str) -> Option<Vec<NodeName>> {
    let mut names = Vec::new();
    for part in split_outside_brackets(pattern) {
        expand_part(part.trim(), &mut names)?;
    }
    names.into_iter().map(|name| NodeName::new(name).ok()).collect()
}

/// Splits at commas outside brackets.
fn split_outside_brackets(pattern: &str) -> Vec<&str> {
    let mut inside = false;
    pattern
        .split(|c| {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                _ => {}
            }
            c == ',' && !inside
        })
        .collect()
}

fn expand_part(part: &str, names: &mut Vec<String>) -> Option<()> {
    let Some((before, rest)) = part.split_once('[') else {
        names.push(part.to_owned());
        return (names.len() <= MAX_NODES).then_some(());
    };
    let (ranges, after) = rest.split_once(']')?;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let width = low.len();
        let (low, high): (usize, usize) = (low.parse().ok()?, high.parse().ok()?);
        if high < low || high - low >= MAX_NODES - names.len() {
            return None;
        }
        names.extend((low..=high).map(|number| format!("{before}{number:0width$}{after}")));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Option<Vec<String>> {
        Some(expand(pattern)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ranges_keep_their_leading_zeros_and_order() {
        assert_eq!(names("n[08-10,1]").unwrap(), ["n08", "n09", "n10", "n1"]);
        assert_eq!(names("a, b[1-2].x").unwrap(), ["a", "b1.x", "b2.x"]);
    }

    #[test]
    fn malformed_patterns_are_rejected() {
        for pattern in ["", "n[", "n[1", "n[2-1]", "n[a-b]", "n[0-99999999]", "-x", "n[1][2]", "a b"] {
            assert_eq!(expand(pattern), None, "{pattern}");
        }
    }
}
