//! Posts to URLs that the owner configured: bounded in time and size, without redirects and proxies.
//!
//! The client is hyper on a connection of its own, because the checked address must be the used one: [`resolve`]
//! resolves the name once and decides which addresses may be contacted.

mod client;
mod destination;
mod error;
#[cfg(any(test, feature = "test-support"))]
pub mod test_server;
mod tls;
mod url;

pub use client::Client;
pub use destination::resolve;
pub use error::HttpError;
pub use url::{Host, HttpUrl, HttpUrlError};

#[cfg(test)]
mod tests;
