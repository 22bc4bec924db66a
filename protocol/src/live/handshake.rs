//! Mutual authentication: both ends prove possession of the key, which is never transmitted.
//!
//! ```text
//! client_key = derive(key, "client key")        server_key = derive(key, "server key")        stored = SHA-256(client_key)
//!
//! page  → relay   hello     { key_id, nonce_c }
//! relay → page    challenge { nonce_s, HMAC(server_key, "srv" ‖ nonce_c ‖ nonce_s ‖ authority) }
//! page  → relay   proof     { client_key XOR HMAC(stored, "cli" ‖ nonce_s ‖ nonce_c ‖ authority) }
//! ```
//!
//! The relay authenticates first: a process that took over the port after a crash learns nothing
//! from a tab that reconnects. A relay needs only `stored` and `server_key`, from which no proof
//! can be computed, as in SCRAM (RFC 5802).

use base64ct::{Base64UrlUnpadded, Encoding};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};
use subtle::ConstantTimeEq;

/// Length of keys, nonces and codes in bytes.
pub const LEN: usize = 32;

/// A 256-bit key. Its `Debug` output does not reveal it.
#[derive(Clone)]
pub struct Key([u8; LEN]);

impl Key {
    /// Wraps key bytes, which must come from the system's random generator or from [`Key::derive`].
    pub const fn new(bytes: [u8; LEN]) -> Self {
        Self(bytes)
    }

    /// Derives a key for a context; the original key cannot be recovered from it.
    pub fn derive(&self, context: &[u8]) -> Self {
        Self(mac(self, &[b"nodeglass.v1 derive", context]))
    }

    /// Returns the key bytes, for storage in a place that others cannot read.
    pub const fn expose(&self) -> &[u8; LEN] {
        &self.0
    }

    /// The key whose possession the page proves; the relay recovers it from the proof.
    pub fn client_key(&self) -> Self {
        self.derive(b"client key")
    }

    /// The verifier that a relay checks a holder of this key against.
    pub fn verifier(&self) -> Verifier {
        Verifier { stored: stored(&self.client_key()), server: self.server_key() }
    }

    fn server_key(&self) -> Self {
        self.derive(b"server key")
    }

    /// The key in base64url, 43 characters; only for the fragment of a link.
    pub fn reveal(&self) -> String {
        Base64UrlUnpadded::encode_string(&self.0)
    }
}

/// Error of parsing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the key: it must be 43 characters of base64url, as printed by the relay")]
pub struct KeyError;

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut bytes = [0; LEN];
        let decoded = Base64UrlUnpadded::decode(text, &mut bytes).map_err(|_| KeyError)?;
        if decoded.len() != LEN {
            return Err(KeyError);
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl PartialEq for Key {
    /// Constant-time comparison.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

/// The values that a relay needs to verify a client and to authenticate itself. They do not suffice to compute the
/// key or a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    stored: Key,
    server: Key,
}

impl Verifier {
    /// Restores a verifier from [`Verifier::expose`].
    pub const fn new(stored: [u8; LEN], server: [u8; LEN]) -> Self {
        Self { stored: Key(stored), server: Key(server) }
    }

    /// `stored` and `server_key`, for storage in a place that others cannot read: they allow
    /// impersonating the relay.
    pub const fn expose(&self) -> (&[u8; LEN], &[u8; LEN]) {
        (&self.stored.0, &self.server.0)
    }
}

/// Digest of a client key. It needs no salt, because the key is 256 random bits.
fn stored(client_key: &Key) -> Key {
    Key(Sha256::digest(client_key.0).into())
}

/// A random number used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce(pub [u8; LEN]);

/// A message authentication code of the handshake.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Code([u8; LEN]);

/// The two nonces and the authority (`host:port` as the browser sees it), which prevents relaying
/// the messages to the real relay.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The page's nonce.
    pub client: Nonce,
    /// The relay's nonce.
    pub server: Nonce,
    /// The `Host` that the page connected to.
    pub authority: &'a str,
}

impl Exchange<'_> {
    /// The relay's code.
    pub fn server_code(&self, verifier: &Verifier) -> Code {
        self.code_by(&verifier.server)
    }

    /// The page's code.
    pub fn client_code(&self, key: &Key) -> Code {
        let client = key.client_key();
        Code(xor(client.0, self.signature(&stored(&client))))
    }

    /// Session key of a link for one tab, derived from the link's key and both nonces, so that only
    /// the tab that redeemed the link knows it.
    pub fn session_key(&self, key: &Key) -> Key {
        key.derive(&[b"tab session".as_slice(), &self.client.0, &self.server.0].concat())
    }

    /// Returns whether `code` is what a relay with this verifier would send. Constant time.
    pub fn accepts_server(&self, key: &Key, code: &Code) -> bool {
        self.code_by(&key.server_key()).0.ct_eq(&code.0).into()
    }

    /// Returns the [`Key::client_key`] of the sender of `code`, if it is what a page with the key
    /// would send. Constant time.
    pub fn accepts_client(&self, verifier: &Verifier, code: &Code) -> Option<Key> {
        let client = Key(xor(code.0, self.signature(&verifier.stored)));
        let is_right: bool = stored(&client).0.ct_eq(&verifier.stored.0).into();
        is_right.then_some(client)
    }

    fn code_by(&self, server_key: &Key) -> Code {
        Code(mac(server_key, &[b"srv", &self.client.0, &self.server.0, self.authority.as_bytes()]))
    }

    fn signature(&self, stored: &Key) -> [u8; LEN] {
        mac(stored, &[b"cli", &self.server.0, &self.client.0, self.authority.as_bytes()])
    }
}

fn xor(one: [u8; LEN], other: [u8; LEN]) -> [u8; LEN] {
    std::array::from_fn(|at| one[at] ^ other[at])
}

/// HMAC-SHA-256 over length-prefixed parts, so that different lists of parts never collide.
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

    /// The vector of PROTOCOL.md, computed by an independent implementation.
    #[test]
    fn codes_are_those_of_the_document() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let key = Key::new(std::array::from_fn(|at| at as u8));
        let exchange =
            Exchange { client: Nonce([1; LEN]), server: Nonce([2; LEN]), authority: "127.0.0.1:8080" };
        let document = include_str!("../../PROTOCOL.md");
        for (name, code) in [
            ("challenge.code = ", exchange.server_code(&key.verifier())),
            ("proof.code     = ", exchange.client_code(&key)),
        ] {
            let line = format!("{name}{}\n", hex(&code.0));
            assert!(document.contains(&line), "{line}");
        }
    }

    #[test]
    fn each_side_accepts_the_other_with_the_same_key_only() {
        let (key, other) = (Key::new([3; LEN]), Key::new([4; LEN]));
        assert!(EXCHANGE.accepts_server(&key, &EXCHANGE.server_code(&key.verifier())));
        let proved = EXCHANGE.accepts_client(&key.verifier(), &EXCHANGE.client_code(&key));
        assert_eq!(proved, Some(key.client_key()));
        assert!(!EXCHANGE.accepts_server(&key, &EXCHANGE.server_code(&other.verifier())));
        assert_eq!(EXCHANGE.accepts_client(&key.verifier(), &EXCHANGE.client_code(&other)), None);
    }

    #[test]
    fn a_proof_cannot_be_reflected_or_replayed() {
        let key = Key::new([3; LEN]);
        let verifier = key.verifier();
        assert_eq!(EXCHANGE.accepts_client(&verifier, &EXCHANGE.server_code(&verifier)), None);
        let elsewhere = Exchange { authority: "evil:8080", ..EXCHANGE };
        assert!(!EXCHANGE.accepts_server(&key, &elsewhere.server_code(&verifier)));
        assert_eq!(EXCHANGE.accepts_client(&verifier, &elsewhere.client_code(&key)), None);
    }

    #[test]
    fn t09_what_a_relay_keeps_of_a_key_proves_nothing() {
        let key = Key::new([3; LEN]);
        let verifier = key.verifier();
        let (stored, server) = verifier.expose();
        assert_eq!(Verifier::new(*stored, *server), verifier);
        // Every way to use the stored verifier as if it were the key or the client key.
        for kept in [Key::new(*stored), Key::new(*server)] {
            assert_eq!(EXCHANGE.accepts_client(&verifier, &EXCHANGE.client_code(&kept)), None);
            for code in [xor(kept.0, EXCHANGE.signature(&verifier.stored)), EXCHANGE.signature(&kept), kept.0]
            {
                assert_eq!(EXCHANGE.accepts_client(&verifier, &Code(code)), None);
            }
            assert!(kept != key && kept != key.client_key());
        }
    }

    #[test]
    fn a_key_is_not_shown_by_debug() {
        assert_eq!(format!("{:?}", Key::new([3; LEN])), "Key(…)");
    }
}
