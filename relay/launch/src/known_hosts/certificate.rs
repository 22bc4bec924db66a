//! Host certificates: valid only if signed by the authority, for this host and time, and of the host
//! type.
//!
//! Parsed by hand: `ssh-key` rejects certificates without an end date, which `ssh-keygen -s` creates by
//! default.

use super::signature;
use super::wire::{Wire, string};
use ssh_key::{PublicKey, Signature};

/// Type number of a host certificate (`SSH2_CERT_TYPE_HOST`).
const HOST: u32 = 2;

/// An unverified certificate.
#[derive(Clone, Debug)]
pub(super) struct HostCertificate {
    /// The host's key alone, as a blob.
    pub(super) plain_key: Vec<u8>,
    /// The signer's key as a blob.
    pub(super) authority: Vec<u8>,
    kind: u32,
    principals: Vec<Vec<u8>>,
    valid_after: u64,
    valid_before: u64,
    critical_options: bool,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl HostCertificate {
    /// Parses a blob of a `…-cert-v01@openssh.com` type (PROTOCOL.certkeys); `None` if it is none.
    pub(super) fn read(blob: &[u8]) -> Option<Self> {
        let mut wire = Wire(blob);
        let name = wire.string()?;
        let key_type = name.strip_suffix(b"-cert-v01@openssh.com".as_slice())?;
        let key_fields = match key_type {
            b"ssh-ed25519" => 1,
            b"ssh-rsa" | b"ecdsa-sha2-nistp256" | b"ecdsa-sha2-nistp384" | b"ecdsa-sha2-nistp521" => 2,
            _ => return None,
        };
        let _nonce = wire.string()?;
        let mut plain_key = string(key_type);
        for _ in 0..key_fields {
            plain_key.extend(string(wire.string()?));
        }
        let _serial = wire.u64()?;
        let kind = wire.u32()?;
        let _key_id = wire.string()?;
        let principals = strings(wire.string()?)?;
        let (valid_after, valid_before) = (wire.u64()?, wire.u64()?);
        let critical_options = !wire.string()?.is_empty();
        let (_extensions, _reserved) = (wire.string()?, wire.string()?);
        let authority = wire.string()?.to_vec();
        let signed = blob[..blob.len() - wire.0.len()].to_vec();
        let signature = wire.string()?.to_vec();
        wire.0.is_empty().then_some(Self {
            plain_key,
            authority,
            kind,
            principals,
            valid_after,
            valid_before,
            critical_options,
            signed,
            signature,
        })
    }

    /// Checks validity for the host `name` at `now` (seconds since 1970), given that its authority is
    /// trusted.
    pub(super) fn check(&self, name: &str, now: u64) -> Result<(), &'static str> {
        if !self.signature_holds() {
            return Err("its signature is not the authority's");
        }
        if self.kind != HOST {
            return Err("it is not a host certificate");
        }
        // No principals means any host, as in OpenSSH.
        if !self.principals.is_empty()
            && !self.principals.iter().any(|p| p.eq_ignore_ascii_case(name.as_bytes()))
        {
            return Err("it is for another host");
        }
        if now < self.valid_after {
            return Err("it is not valid yet");
        }
        if now >= self.valid_before {
            return Err("it has expired");
        }
        if self.critical_options {
            return Err("it has critical options, and none are defined for hosts");
        }
        Ok(())
    }

    fn signature_holds(&self) -> bool {
        let Ok(authority) = PublicKey::from_bytes(&self.authority) else { return false };
        let Ok(signature) = Signature::try_from(self.signature.as_slice()) else { return false };
        signature::holds(authority.key_data(), &self.signed, &signature)
    }
}

fn strings(packed: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut wire = Wire(packed);
    let mut out = Vec::new();
    while !wire.0.is_empty() {
        out.push(wire.string()?.to_vec());
    }
    Some(out)
}
