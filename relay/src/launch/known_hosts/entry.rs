//! One line of a known_hosts file.

use super::{Place, pattern::Hosts};
use base64ct::{Base64, Encoding};

/// What a line says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// It is the hosts' key.
    None,
    /// `@cert-authority`: it signs the hosts' certificates.
    Authority,
    /// `@revoked`: never accept it.
    Revoked,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) marker: Marker,
    pub(super) hosts: Hosts,
    /// `ssh-ed25519`, …
    pub(super) key_type: String,
    /// The key as an SSH wire blob.
    pub(super) key: Vec<u8>,
    pub(super) place: Place,
}

impl Entry {
    /// Reads a line; `None` for a comment, an empty line or one that makes no sense.
    pub(super) fn parse(line: &str, place: Place) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().peekable();
        let marker = match *fields.peek()? {
            first if first.starts_with('#') => return None,
            "@cert-authority" => Marker::Authority,
            "@revoked" => Marker::Revoked,
            unknown if unknown.starts_with('@') => return None,
            _ => Marker::None,
        };
        if marker != Marker::None {
            fields.next();
        }
        let hosts = Hosts::parse(fields.next()?)?;
        let key_type = fields.next()?.to_owned();
        let key = Base64::decode_vec(fields.next()?).ok()?;
        (inner_type(&key) == Some(key_type.as_bytes())).then_some(Self {
            marker,
            hosts,
            key_type,
            key,
            place,
        })
    }
}

/// The type that a key blob itself names: its first string.
fn inner_type(blob: &[u8]) -> Option<&[u8]> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    rest.get(..u32::from_be_bytes(*length) as usize)
}
