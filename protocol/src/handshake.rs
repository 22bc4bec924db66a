//! Both ends prove that they hold the key before anything else is said, and the key itself never travels.
//!
//! ```text
//! page  → relay   hello     { key_id, nonce_c }
//! relay → page    challenge { nonce_s, mac = HMAC(key, "srv" ‖ nonce_c ‖ nonce_s ‖ authority) }
//! page  → relay   proof     { mac = HMAC(key, "cli" ‖ nonce_s ‖ nonce_c ‖ authority) }
//! ```
//!
//! The page checks the relay first: a stranger that grabbed the port after a crash learns nothing
//! from a tab that reconnects.

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::{fmt, str::FromStr};
use subtle::ConstantTimeEq;

/// Length of keys, nonces and codes in bytes.
pub const LEN: usize = 32;

/// A 256-bit key. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Key([u8; LEN]);

impl Key {
    /// Wraps key bytes; they must come from the system's random generator or from [`Key::derive`].
    pub const fn new(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// A key that follows from this one and a context, and from which this one cannot be found.
    pub fn derive(&self, context: &[u8]) -> Self {
        Self(mac(self, &[b"nodeglass.v1 derive", context]))
    }

    /// The key's bytes: for a keeper of keys that others cannot read, and nothing else.
    pub const fn expose(&self) -> &[u8; LEN] {
        &self.0
    }

    /// The key in base64url, 43 characters: for the link's fragment and nothing else.
    pub fn reveal(&self) -> String {
        let mut out = String::with_capacity(43);
        for chunk in self.0.chunks(3) {
            let n = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
            for i in 0..=chunk.len() {
                out.push(char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize]));
            }
        }
        out
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Why a string is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the key: it must be 43 characters of base64url, as printed by the relay")]
pub struct KeyError;

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.len() != 43 {
            return Err(KeyError);
        }
        let mut bytes = Vec::with_capacity(33);
        for chunk in text.as_bytes().chunks(4) {
            let mut n = 0u32;
            for c in chunk {
                let digit = ALPHABET.iter().position(|a| a == c).ok_or(KeyError)?;
                n = n << 6 | digit as u32;
            }
            n <<= 6 * (4 - chunk.len());
            // Bits behind the last byte would make several spellings of one key.
            if n.trailing_zeros() < 8 * (4 - chunk.len()) as u32 {
                return Err(KeyError);
            }
            bytes.extend_from_slice(&n.to_be_bytes()[1..chunk.len()]);
        }
        bytes.try_into().map(Self).map_err(|_| KeyError)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl PartialEq for Key {
    /// Takes the same time wherever the keys differ.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

/// A random number used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(pub [u8; LEN]);

/// A code that only a holder of the key can make.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Code([u8; LEN]);

/// The two nonces and the place they were meant for (`host:port` as the browser sees it), which
/// stops a stranger from passing the messages on to the real relay.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The page's nonce.
    pub client: Nonce,
    /// The relay's nonce.
    pub server: Nonce,
    /// The `Host` the page connected to.
    pub authority: &'a str,
}

impl Exchange<'_> {
    /// The relay's answer.
    pub fn server_code(&self, key: &Key) -> Code {
        Code(mac(key, &[b"srv", &self.client.0, &self.server.0, self.authority.as_bytes()]))
    }

    /// The page's answer.
    pub fn client_code(&self, key: &Key) -> Code {
        Code(mac(key, &[b"cli", &self.server.0, &self.client.0, self.authority.as_bytes()]))
    }

    /// Whether `code` is what a relay with the key would send. Constant time.
    pub fn accepts_server(&self, key: &Key, code: &Code) -> bool {
        self.server_code(key).0.ct_eq(&code.0).into()
    }

    /// Whether `code` is what a page with the key would send. Constant time.
    pub fn accepts_client(&self, key: &Key, code: &Code) -> bool {
        self.client_code(key).0.ct_eq(&code.0).into()
    }
}

/// HMAC-SHA-256 over length-prefixed parts, so that no two lists of parts look alike.
fn mac(key: &Key, parts: &[&[u8]]) -> [u8; LEN] {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCHANGE: Exchange<'_> =
        Exchange { client: Nonce([1; LEN]), server: Nonce([2; LEN]), authority: "127.0.0.1:8080" };

    #[test]
    fn a_key_survives_its_link_form() {
        for fill in [0u8, 7, 255] {
            let mut bytes = [fill; LEN];
            bytes[31] = 0x5a;
            let key = Key::new(bytes);
            assert_eq!(key.reveal().len(), 43);
            assert_eq!(key.reveal().parse::<Key>().unwrap(), key);
        }
        assert!("short".parse::<Key>().is_err());
        assert!("!".repeat(43).parse::<Key>().is_err());
        let key = Key::new([7; LEN]).reveal();
        let twin = key[..42].to_owned() + "d";
        assert!(key.ends_with('c') && twin.parse::<Key>().is_err(), "one key, one spelling");
    }

    #[test]
    fn each_side_accepts_the_other_with_the_same_key_only() {
        let (key, other) = (Key::new([3; LEN]), Key::new([4; LEN]));
        assert!(EXCHANGE.accepts_server(&key, &EXCHANGE.server_code(&key)));
        assert!(EXCHANGE.accepts_client(&key, &EXCHANGE.client_code(&key)));
        assert!(!EXCHANGE.accepts_server(&key, &EXCHANGE.server_code(&other)));
        assert!(!EXCHANGE.accepts_client(&key, &EXCHANGE.client_code(&other)));
    }

    #[test]
    fn an_answer_cannot_be_reflected_or_replayed_elsewhere() {
        let key = Key::new([3; LEN]);
        assert!(!EXCHANGE.accepts_client(&key, &EXCHANGE.server_code(&key)));
        let elsewhere = Exchange { authority: "evil:8080", ..EXCHANGE };
        assert!(!EXCHANGE.accepts_server(&key, &elsewhere.server_code(&key)));
    }

    #[test]
    fn a_key_is_not_shown_by_debug() {
        assert_eq!(format!("{:?}", Key::new([3; LEN])), "Key(…)");
    }
}
