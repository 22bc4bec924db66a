//! Verifies host keys against the user's known_hosts files, read the way OpenSSH reads them.
//!
//! libssh2's own check accepts `@revoked` keys and supports neither patterns nor certificate authorities,
//! so it is not used. Everything here is pure: bytes in, a verdict out.

mod certificate;
mod entry;
mod pattern;
mod signature;
mod wire;

use certificate::HostCertificate;
use entry::{Entry, Marker};
use std::path::{Path, PathBuf};

/// A host as known_hosts files name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostId {
    /// Names to look for, the best first: `[host]:port` before `host`.
    names: Vec<String>,
    /// The bare name, as certificates list it.
    principal: String,
}

impl HostId {
    /// A host by name and port. As in OpenSSH, a line without the port counts where none with it is found.
    pub fn new(host: &str, port: u16) -> Self {
        let host = host.to_ascii_lowercase();
        let names =
            if port == 22 { vec![host.clone()] } else { vec![format!("[{host}]:{port}"), host.clone()] };
        Self { names, principal: host }
    }

    /// A host with a `HostKeyAlias`; the port does not matter then.
    pub fn alias(alias: &str) -> Self {
        let alias = alias.to_ascii_lowercase();
        Self { names: vec![alias.clone()], principal: alias }
    }

    /// The name as `ssh-keygen -R` expects it.
    pub fn display(&self) -> &str {
        &self.names[0]
    }
}

/// A line of a known_hosts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineLocation {
    /// The file.
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: usize,
}

/// The verdict of the known_hosts files on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is this host's key.
    Known,
    /// The host is unknown.
    Unknown,
    /// The host has another key.
    Changed(LineLocation),
    /// The key is revoked.
    Revoked(LineLocation),
    /// The host presented a certificate of a trusted authority, but it is invalid.
    BadCertificate(&'static str),
}

/// The lines of all known_hosts files.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
}

impl KnownHosts {
    /// Adds a file's lines, skipping invalid ones as OpenSSH does.
    pub fn read(&mut self, file: &Path, bytes: &[u8]) {
        let lines = bytes.split(|byte| *byte == b'\n').enumerate();
        self.entries.extend(lines.filter_map(|(index, line)| {
            let place = LineLocation { file: file.to_owned(), line: index + 1 };
            Entry::parse(std::str::from_utf8(line).ok()?, place)
        }));
    }

    /// The verdict on `key` (an SSH wire blob, plain or a certificate) presented by `host` at `now`
    /// (seconds since 1970).
    pub fn verdict(&self, host: &HostId, key: &[u8], now: u64) -> Verdict {
        let certificate = HostCertificate::read(key);
        if let Some(place) = self.revoked(host, key, certificate.as_ref()) {
            return Verdict::Revoked(place.clone());
        }
        match &certificate {
            Some(certificate) => self.certified(host, certificate, now),
            None => self.listed(host, key),
        }
    }

    /// Returns the algorithms to offer for this host, verifiable ones first. Never empty.
    pub fn algorithms(&self, host: &HostId) -> String {
        let mut chosen: Vec<&str> = Vec::new();
        if self.of(host, Some(Marker::CertAuthority)).next().is_some() {
            chosen.extend(CERTIFIED);
        }
        for entry in self.of(host, None) {
            chosen.extend(algorithms_of(&entry.key_type));
        }
        // Unlisted algorithms come last: a host that has only such keys is then distinguished from one
        // without a common algorithm.
        chosen.extend(PLAIN);
        let mut seen = Vec::new();
        chosen.retain(|name| {
            !seen.contains(name) && {
                seen.push(name);
                true
            }
        });
        chosen.join(",")
    }

    fn of(&self, host: &HostId, marker: Option<Marker>) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| {
            entry.marker == marker && host.names.iter().any(|name| entry.hosts.matches(name))
        })
    }

    fn revoked(
        &self,
        host: &HostId,
        key: &[u8],
        certificate: Option<&HostCertificate>,
    ) -> Option<&LineLocation> {
        let bad = |entry: &&Entry| match certificate {
            Some(c) => entry.key == c.plain_key || entry.key == c.authority || entry.key == key,
            None => entry.key == key,
        };
        self.of(host, Some(Marker::Revoked)).find(bad).map(|entry| &entry.place)
    }

    fn certified(&self, host: &HostId, certificate: &HostCertificate, now: u64) -> Verdict {
        let trusted =
            self.of(host, Some(Marker::CertAuthority)).any(|entry| entry.key == certificate.authority);
        if !trusted {
            // Without its authority a certificate is worth as much as the key inside.
            return self.listed(host, &certificate.plain_key);
        }
        match certificate.check(&host.principal, now) {
            Ok(()) => Verdict::Known,
            Err(why) => Verdict::BadCertificate(why),
        }
    }

    /// The first name that any line has decides, as in OpenSSH: `[host]:port` before `host`. A line
    /// that only has the bare name may vouch for another port but not accuse it.
    fn listed(&self, host: &HostId, key: &[u8]) -> Verdict {
        for (rank, name) in host.names.iter().enumerate() {
            let mut other = None;
            for entry in self.entries.iter().filter(|e| e.marker.is_none() && e.hosts.matches(name)) {
                if entry.key == key {
                    return Verdict::Known;
                }
                other = other.or(Some(&entry.place));
            }
            if let (0, Some(place)) = (rank, other) {
                return Verdict::Changed(place.clone());
            }
        }
        Verdict::Unknown
    }
}

const PLAIN: [&str; 6] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];
const CERTIFIED: [&str; 6] = [
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
];

/// An RSA key has several signature algorithms; SHA-1 is not among them.
fn algorithms_of(key_type: &str) -> impl Iterator<Item = &'static str> {
    let rsa = key_type == "ssh-rsa";
    let key_type = key_type.to_owned();
    PLAIN.into_iter().filter(move |name| *name == key_type || rsa && name.starts_with("rsa-"))
}

#[cfg(test)]
mod tests;
