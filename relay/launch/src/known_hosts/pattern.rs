//! Host patterns of known_hosts: `*`, `?`, negation and hashed names.

use hmac::{Hmac, Mac};
use sha1::Sha1;
use ssh_key::known_hosts::HostPatterns;

/// The hosts that a line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// `|1|salt|HMAC-SHA1(salt, name)`.
    Hashed {
        /// Key of the HMAC.
        salt: Vec<u8>,
        /// Its value.
        mac: [u8; 20],
    },
    /// A list of patterns, lower case, each negated or not.
    Patterns(Vec<(bool, String)>),
}

impl Hosts {
    /// Prepares the first field of a line for matching.
    pub(super) fn new(parsed: &HostPatterns) -> Self {
        let pattern = |raw: &String| match raw.strip_prefix('!') {
            Some(rest) => (true, rest.to_ascii_lowercase()),
            None => (false, raw.to_ascii_lowercase()),
        };
        match parsed {
            HostPatterns::HashedName { salt, hash } => Self::Hashed { salt: salt.clone(), mac: *hash },
            HostPatterns::Patterns(list) => {
                Self::Patterns(list.iter().filter(|raw| !raw.is_empty()).map(pattern).collect())
            }
        }
    }

    /// Returns whether the line is for `name` (lower case). One negated pattern that fits rules the line out.
    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, mac } => {
                let hmac = Hmac::<Sha1>::new_from_slice(salt).map(|hmac| hmac.chain_update(name.as_bytes()));
                hmac.is_ok_and(|hmac| hmac.verify_slice(mac).is_ok())
            }
            Self::Patterns(patterns) => {
                let fits = |(_, pattern): &&(bool, String)| fits(pattern.as_bytes(), name.as_bytes());
                let mut hits = patterns.iter().filter(fits).peekable();
                hits.peek().is_some() && hits.all(|(negated, _)| !negated)
            }
        }
    }
}

/// Returns whether `name` fits `pattern`, where `*` is any run and `?` any one byte. Takes at most `pattern × name`
/// steps for any pattern.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Backtracking position: the last `*` matches one more byte.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64ct::{Base64, Encoding};

    fn matches(field: &str, name: &str) -> bool {
        field.parse().is_ok_and(|hosts| Hosts::new(&hosts).matches(name))
    }

    #[test]
    fn stars_and_question_marks_fit_as_in_openssh() {
        for (pattern, name) in
            [("*", "a"), ("a*c", "abbc"), ("gpu-??", "gpu-07"), ("*.x.*", "a.b.x.c"), ("a**", "a")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("gpu-??", "gpu-7"), ("a*c", "abcd"), ("?", ""), ("b", "a"), ("*x", "xy")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_negated_pattern_excludes_the_line_at_any_position() {
        assert!(matches("*.x,!bad.x", "good.x"));
        assert!(!matches("*.x,!bad.x", "bad.x"));
        assert!(!matches("!bad.x,*.x", "bad.x"));
        assert!(!matches("!other", "good"), "negation alone fits nothing");
    }

    #[test]
    fn brackets_and_ports_are_ordinary_characters() {
        assert!(matches("[127.0.0.*]:2224", "[127.0.0.1]:2224"));
        assert!(!matches("[127.0.0.*]:2224", "[127.0.0.1]:22"));
        assert!(matches("[Host]:22,other", "[host]:22"));
    }

    #[test]
    fn a_hashed_name_made_by_ssh_keygen_fits() {
        // ssh-keygen -H of "gpu-01.cluster.example"
        let salt = Base64::encode_string(&[7; 20]);
        let mac =
            Hmac::<Sha1>::new_from_slice(&[7; 20]).unwrap().chain_update(b"gpu-01").finalize().into_bytes();
        let field = format!("|1|{salt}|{}", Base64::encode_string(&mac));
        assert!(matches(&field, "gpu-01"));
        assert!(!matches(&field, "gpu-02"));
        assert!(!matches("|1|!!!|x", "gpu-01"));
    }

    #[test]
    fn a_malicious_pattern_takes_no_exponential_time() {
        assert!(!fits("*a".repeat(500).as_bytes(), "a".repeat(400).as_bytes()));
    }
}
