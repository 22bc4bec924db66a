//! Verifies SSH signatures with ring, which TLS brings along; `ssh-key` only parses them.
//!
//! Formats: RFC 5656 (ECDSA), RFC 8332 (RSA with SHA-2), RFC 8709 (Ed25519), and OpenSSH's PROTOCOL.u2f
//! (keys in hardware).

use super::wire::Wire;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use sha2::{Digest, Sha256};
use ssh_key::public::{EcdsaPublicKey, KeyData, RsaPublicKey};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, Signature};

/// Length of the flags and the counter behind a signature by hardware.
const HARDWARE_TRAILER: usize = 5;

/// Returns whether `signature` is a valid signature of `message` by `key`. RSA with SHA-1 or less than 2048 bits, DSA
/// and P-521 are not accepted.
pub(super) fn holds(key: &KeyData, message: &[u8], signature: &Signature) -> bool {
    let bytes = signature.as_bytes();
    match (key, signature.algorithm()) {
        (KeyData::Ed25519(key), Algorithm::Ed25519) => verify(&ED25519, &key.0, message, bytes),
        (
            KeyData::Ecdsa(EcdsaPublicKey::NistP256(point)),
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
        ) => fixed(bytes, 32)
            .is_some_and(|rs| verify(&ECDSA_P256_SHA256_FIXED, point.as_bytes(), message, &rs)),
        (
            KeyData::Ecdsa(EcdsaPublicKey::NistP384(point)),
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
        ) => fixed(bytes, 48)
            .is_some_and(|rs| verify(&ECDSA_P384_SHA384_FIXED, point.as_bytes(), message, &rs)),
        (KeyData::Rsa(key), Algorithm::Rsa { hash: Some(hash) }) => rsa(key, hash, message, bytes),
        (KeyData::SkEd25519(key), Algorithm::SkEd25519) => by_hardware(key.application(), message, bytes)
            .is_some_and(|(message, bytes)| verify(&ED25519, &key.public_key().0, &message, bytes)),
        (KeyData::SkEcdsaSha2NistP256(key), Algorithm::SkEcdsaSha2NistP256) => {
            by_hardware(key.application(), message, bytes).is_some_and(|(message, bytes)| {
                let point = key.ec_point().as_bytes();
                fixed(bytes, 32).is_some_and(|rs| verify(&ECDSA_P256_SHA256_FIXED, point, &message, &rs))
            })
        }
        _ => false,
    }
}

fn verify(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
}

fn rsa(key: &RsaPublicKey, hash: HashAlg, message: &[u8], signature: &[u8]) -> bool {
    let algorithm = match hash {
        HashAlg::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        HashAlg::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        _ => return false,
    };
    let components = key.n.as_positive_bytes().zip(key.e.as_positive_bytes());
    components
        .is_some_and(|(n, e)| RsaPublicKeyComponents { n, e }.verify(algorithm, message, signature).is_ok())
}

/// The two integers of an ECDSA signature, each in `len` bytes.
fn fixed(signature: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut wire = Wire(signature);
    let mut out = Vec::with_capacity(2 * len);
    for _ in 0..2 {
        let integer = wire.string()?;
        let digits = &integer[integer.iter().take_while(|byte| **byte == 0).count()..];
        out.resize(out.len() + len.checked_sub(digits.len())?, 0);
        out.extend_from_slice(digits);
    }
    wire.0.is_empty().then_some(out)
}

/// Returns the data that a key in hardware signs for a message, and its signature without flags and counter.
fn by_hardware<'a>(application: &str, message: &[u8], signature: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
    let (signature, trailer) = signature.split_at_checked(signature.len().checked_sub(HARDWARE_TRAILER)?)?;
    let signed = [Sha256::digest(application).as_slice(), trailer, &Sha256::digest(message)].concat();
    Some((signed, signature))
}

#[cfg(test)]
mod tests {
    use super::super::wire::string;
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
        KeyPair,
    };
    use ssh_key::PublicKey;

    const MESSAGE: &[u8] = b"a certificate";

    fn key(fields: &[&[u8]]) -> KeyData {
        let blob: Vec<u8> = fields.iter().flat_map(|field| string(field)).collect();
        PublicKey::from_bytes(&blob).unwrap().key_data().clone()
    }

    fn signature(name: &str, bytes: &[u8], trailer: &[u8]) -> Signature {
        let wire = [string(name.as_bytes()), string(bytes), trailer.to_vec()].concat();
        Signature::try_from(wire.as_slice()).unwrap()
    }

    /// A fixed ECDSA signature as two integers of SSH.
    fn integers(fixed: &[u8]) -> Vec<u8> {
        let integer = |bytes: &[u8]| {
            let digits: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
            let sign = digits.first().filter(|first| **first >= 0x80).map(|_| 0);
            string(&sign.into_iter().chain(digits).collect::<Vec<u8>>())
        };
        let (r, s) = fixed.split_at(fixed.len() / 2);
        [integer(r), integer(s)].concat()
    }

    #[test]
    fn t22_signatures_by_keys_in_hardware_hold_for_their_message_only() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let name = "sk-ssh-ed25519@openssh.com";
        let authority = key(&[name.as_bytes(), pair.public_key().as_ref(), b"ssh:"]);
        let trailer = [1, 0, 0, 0, 9];
        let signed =
            [Sha256::digest("ssh:").as_slice(), trailer.as_slice(), &Sha256::digest(MESSAGE)].concat();
        let right = signature(name, pair.sign(&signed).as_ref(), &trailer);
        assert!(holds(&authority, MESSAGE, &right));
        assert!(!holds(&authority, b"another", &right));
        let other_counter = signature(name, pair.sign(&signed).as_ref(), &[1, 0, 0, 0, 8]);
        assert!(!holds(&authority, MESSAGE, &other_counter));
    }

    #[test]
    fn t22_ecdsa_signatures_of_any_length_hold() {
        let random = SystemRandom::new();
        for (algorithm, curve) in
            [(&ECDSA_P256_SHA256_FIXED_SIGNING, "nistp256"), (&ECDSA_P384_SHA384_FIXED_SIGNING, "nistp384")]
        {
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
            let name = format!("ecdsa-sha2-{curve}");
            let authority = key(&[name.as_bytes(), curve.as_bytes(), pair.public_key().as_ref()]);
            // One integer in 128 is shorter than its curve.
            for number in 0..300_u32 {
                let message = number.to_be_bytes();
                let signed = pair.sign(&random, &message).unwrap();
                let signature = signature(&name, &integers(signed.as_ref()), &[]);
                assert!(holds(&authority, &message, &signature));
                assert!(!holds(&authority, MESSAGE, &signature));
            }
        }
    }
}
