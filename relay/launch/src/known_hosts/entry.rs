//! One line of a known_hosts file, parsed by `ssh-key`.

use super::{LineLocation, pattern::Hosts};
use base64ct::{Base64, Encoding};
use ssh_key::known_hosts;
pub(super) use ssh_key::known_hosts::Marker;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `None` for the hosts' key.
    pub(super) marker: Option<Marker>,
    pub(super) hosts: Hosts,
    /// `ssh-ed25519`, …
    pub(super) key_type: String,
    /// The key as an SSH wire blob.
    pub(super) key: Vec<u8>,
    pub(super) place: LineLocation,
}

impl Entry {
    /// Parses a line; `None` for a comment, an empty line or an invalid one.
    pub(super) fn parse(line: &str, place: LineLocation) -> Option<Self> {
        if line.trim_start().starts_with('#') {
            return None;
        }
        // `ssh-key` separates fields by one space; OpenSSH by any number of spaces and tabs.
        let line = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let entry: known_hosts::Entry = line.parse().ok()?;
        let key = entry.public_key();
        let blob = key.to_bytes().ok()?;
        // `ssh-key` accepts some lengths that contradict the key; the line must be the key's only encoding.
        let encoded = Base64::encode_string(&blob);
        line.split(' ').find(|field| *field == encoded)?;
        Some(Self {
            marker: entry.marker().cloned(),
            hosts: Hosts::new(entry.host_patterns()),
            key_type: key.algorithm().as_str().to_owned(),
            key: blob,
            place,
        })
    }
}
