//! Keys, peers and paths: nothing is served without a key, as any user of a login node can reach loopback.
//!
//! [`peer`] identifies the connecting user, so that one user's attempts cannot lock out another and [`trust`] can reject a
//! stolen key; [`hosts`] lists the accepted host names and [`proxies`] the trusted proxies, which may serve the page below a
//! [`base_path`]; [`key_file`] lets the owner read the link again, in the [`runtime_dir`]. [`safe_path`] rejects what others
//! could have written, [`user`] looks up users, [`people`] those who visit, [`subordinate_uids`] maps the uids that one user was granted to a
//! single one, and [`cache_buster`] makes links of each start differ.

pub mod base_path;
pub mod cache_buster;
pub mod hosts;
pub mod key_file;
pub mod peer;
pub mod people;
pub mod proxies;
pub mod runtime_dir;
pub mod safe_path;
pub mod subordinate_uids;
pub mod trust;
pub mod user;

use base_path::BasePath;
use cache_buster::CacheBuster;
use nodeglass_protocol::handshake::{Key, LEN, Nonce};
use nodeglass_protocol::share::ShareId;

/// The system's random number generator failed.
#[derive(Debug, thiserror::Error)]
#[error("the system's random generator failed ({0}); without it no key is safe")]
pub struct RandomError(getrandom::Error);

/// Generates an owner key.
///
/// # Errors
/// [`RandomError`]; there is no fallback.
pub fn new_key() -> Result<Key, RandomError> {
    random().map(Key::new)
}

/// Generates a nonce.
///
/// # Errors
/// [`RandomError`], as above.
pub fn new_nonce() -> Result<Nonce, RandomError> {
    random().map(Nonce)
}

/// Generates a share id of 50 random bits, so that ids cannot be guessed.
///
/// # Errors
/// [`RandomError`], as above.
pub fn new_share_id() -> Result<ShareId, RandomError> {
    Ok(ShareId::new(cache_buster::letters(&random()?[..10])).expect("lower-case letters and digits"))
}

fn random() -> Result<[u8; LEN], RandomError> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(RandomError)?;
    Ok(bytes)
}

/// The page's address in a link, without the key: `http://127.0.0.1:8080/?v=k3jq9xab`.
pub fn address(origin: &str, base: &BasePath, buster: &CacheBuster) -> String {
    format!("{origin}{base}/{}", buster.query())
}

/// The owner's link. The key is in the fragment, which browsers never send.
pub fn link(address: &str, key: &Key) -> String {
    format!("{address}#k={}", key.reveal())
}
