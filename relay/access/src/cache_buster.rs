//! Gives the page URLs that cannot be in a browser's cache.
//!
//! While no relay runs, any user of the login node can listen on its port. Responses of their program may
//! stay in the browser's HTTP cache for a year (`Cache-Control: immutable`), and the browser does not ask
//! the relay for what it has cached. Therefore each link has a random query, and the page loads its files
//! from a random folder; both change at each start.

use super::{RandomError, random};
use std::fmt;

/// The name of the query parameter.
const PARAMETER: &str = "v";
/// Letters and digits without easily confused ones.
pub(super) const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const LEN: usize = 8;

/// 40 random bits as eight letters and digits. Not secret, only unpredictable before the relay starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheBuster(String);

impl CacheBuster {
    /// Generates a random value.
    ///
    /// # Errors
    /// [`RandomError`]; a predictable value would be useless.
    pub fn random() -> Result<Self, RandomError> {
        Ok(Self(letters(&random()?[..LEN])))
    }

    /// Returns whether a folder has this form: of this relay, or of an earlier one whose page is still
    /// open.
    pub fn is_one(folder: &str) -> bool {
        folder.len() == LEN && folder.bytes().all(|byte| LETTERS.contains(&byte))
    }

    /// Formats it as the query of a URL: `?v=k3jq9xab`.
    pub fn query(&self) -> String {
        format!("?{PARAMETER}={self}")
    }
}

impl fmt::Display for CacheBuster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Encodes five random bits of each byte as a letter.
pub(super) fn letters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t03_each_is_new_and_has_the_form_of_one() {
        let (one, two) = (CacheBuster::random().unwrap(), CacheBuster::random().unwrap());
        assert_ne!(one, two);
        assert!(CacheBuster::is_one(&one.to_string()));
        assert_eq!(one.query(), format!("?v={one}"));
        for other in ["", "job", "healthz", "k3jq9xa", "k3jq9xabc", "k3jq9xaB", "k3jq9x.b"] {
            assert!(!CacheBuster::is_one(other), "{other}");
        }
    }
}
