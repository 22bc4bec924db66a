//! known_hosts, certificates and ssh's configuration come from files and hosts of others and are
//! not trusted without a match.

use base64ct::{Base64, Encoding};
use nodeglass_launch::known_hosts::{HostId, KnownHosts, Verdict};
use nodeglass_launch::ssh_config::{self, Local};
use std::path::Path;

/// January 2026.
const NOW: u64 = 1_768_435_200;

/// The lines of a file, then a zero byte, then the host's key or certificate.
pub(crate) fn known_hosts(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (file, key) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    for host in [HostId::new("gpu-01", 22), HostId::new("gpu-01", 2222), HostId::alias("gpu-01")] {
        let known = hosts(&[file]);
        let verdict = known.verdict(&host, key, NOW);
        assert!(!known.algorithms(&host).is_empty());
        assert!(hosts(&[]).verdict(&host, key, NOW) == Verdict::Unknown, "no line has this key");
        // A key in no line is unknown, except for a certificate or the key inside one.
        let encoded = Base64::encode_string(key);
        if verdict == Verdict::Known && !is_certificate(key) {
            assert!(String::from_utf8_lossy(file).contains(&encoded), "known from nowhere");
        }
        // A key that is revoked for all hosts is not accepted, whatever else the file contains.
        let revoked = format!("\n@revoked * ssh-ed25519 {encoded}\n");
        let again = hosts(&[file, revoked.as_bytes()]).verdict(&host, key, NOW);
        assert!(again != Verdict::Known || !is_key(key), "a revoked key was accepted");
    }
}

fn hosts(files: &[&[u8]]) -> KnownHosts {
    let mut known = KnownHosts::default();
    known.read(Path::new("known_hosts"), &files.concat());
    known
}

/// Returns whether the bytes begin with their own type, as every key does.
fn is_key(key: &[u8]) -> bool {
    name(key) == Some(b"ssh-ed25519".as_slice())
}

fn is_certificate(key: &[u8]) -> bool {
    name(key).is_some_and(|name| name.ends_with(b"-cert-v01@openssh.com"))
}

fn name(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Output of `ssh -G`.
pub(crate) fn config(bytes: &[u8]) {
    let local = Local { home: "/home/alice".into(), user: "alice".into(), agent: None };
    let text = String::from_utf8_lossy(bytes);
    let settings = ssh_config::read(&text, "gpu-01", &local);
    // An unknown host is accepted only if the user's own settings permit it.
    assert!(!settings.accept_unknown || text.contains("stricthostkeychecking"));
}
