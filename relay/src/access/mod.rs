//! Nobody sees anything without a key, and on a login node the loopback is a public place.
//!
//! [`doorkeeper`] decides who comes in, by the key alone and without any socket; [`peer`] asks the kernel
//! who is calling, so that one user's attempts cannot shut out another and [`trust`] can say no to a stolen key; [`hosts`] knows under which
//! names the relay may be reached; [`key_file`] lets the owner, and only the owner, read the link again.

mod attempts;
pub mod cache_buster;
pub mod doorkeeper;
pub mod hosts;
pub mod key_file;
pub mod peer;
pub mod proxies;
pub mod runtime_dir;
pub mod safe_path;
mod tab_links;
pub mod trust;
pub mod user;

use crate::config::BasePath;
use cache_buster::CacheBuster;
use nodeglass_protocol::handshake::{Key, LEN, Nonce};
use nodeglass_protocol::share::ShareId;

/// The system's random generator gave nothing.
#[derive(Debug, thiserror::Error)]
#[error("the system's random generator failed ({0}); without it there can be no safe key")]
pub struct RandomError(getrandom::Error);

/// A new owner key.
///
/// # Errors
/// [`RandomError`]; there is no other source to fall back on.
pub fn new_key() -> Result<Key, RandomError> {
    random().map(Key::new)
}

/// A new nonce.
///
/// # Errors
/// [`RandomError`], as above.
pub fn new_nonce() -> Result<Nonce, RandomError> {
    random().map(Nonce)
}

/// A new id of a share: 50 random bits, so that none is met by chance or by guessing.
///
/// # Errors
/// [`RandomError`], as above.
pub fn new_share_id() -> Result<ShareId, RandomError> {
    Ok(ShareId::new(cache_buster::letters(&random()?[..10])).expect("small letters and digits"))
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

/// The link that lets its holder in. The key is in the fragment, which browsers never send.
pub fn link(address: &str, key: &Key) -> String {
    format!("{address}#k={}", key.reveal())
}
