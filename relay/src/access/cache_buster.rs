//! Links name the page by a URL that the browser cannot have in its cache.
//!
//! While no relay runs, any user of the login node can listen on its port. What their program answers may stay in the
//! browser's HTTP cache for a year (`Cache-Control: immutable`), and the browser does not ask the relay for what it has
//! there. Therefore each link carries a random query, and the page loads its files from a random folder; both are new at
//! each start.

use super::{RandomError, random};
use std::fmt;

/// The name of the query parameter.
const PARAMETER: &str = "v";
/// Letters and digits that are not mistaken for one another.
pub(super) const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const LEN: usize = 8;

/// 40 random bits in eight letters and digits. Not a secret: it must only be unknown before the relay starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheBuster(String);

impl CacheBuster {
    /// A new one.
    ///
    /// # Errors
    /// [`RandomError`]; one that can be predicted is of no use.
    pub fn random() -> Result<Self, RandomError> {
        Ok(Self(letters(&random()?[..LEN])))
    }

    /// Whether the folder of a URL may be one, of this relay or of an earlier one whose page is still open.
    pub fn is_one(folder: &str) -> bool {
        folder.len() == LEN && folder.bytes().all(|byte| LETTERS.contains(&byte))
    }

    /// As the query of a URL: `?v=k3jq9xab`.
    pub fn query(&self) -> String {
        format!("?{PARAMETER}={self}")
    }
}

impl fmt::Display for CacheBuster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One letter for each byte, five random bits of it.
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
