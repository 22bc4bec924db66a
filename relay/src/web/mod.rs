//! The relay's face to browsers: a page, a WebSocket, one answer for scripts, and nothing without the key.
//!
//! [`router`] shows every way in on one screen. Before any of them stands [`gate`], behind each of them
//! [`headers`]; `serve` bounds what a stranger can make the relay spend.

pub mod api;
pub mod assets;
mod connection_limit;
mod errands;
mod forwarded;
pub mod gate;
pub mod headers;
mod line;
pub mod listen;
pub mod live;
mod pace;
pub mod router;
mod serve;
mod socket;
mod throttle;
pub mod tls;

pub use connection_limit::Connection;
pub use listen::{BindError, Listeners, bind};
pub use router::router;

use crate::about::About;
use crate::access::doorkeeper::Doorkeeper;
use crate::access::hosts::AllowedHosts;
use crate::access::proxies::Proxies;
use crate::config::BasePath;
use crate::desk::Desk;
use crate::hub::Hub;
use crate::share::Shares;
use assets::Assets;
use std::sync::Arc;

/// What every route can reach. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebState {
    /// This run of the relay.
    pub about: Arc<About>,
    /// The way to the pictures.
    pub hub: Hub,
    /// Where questions, actions and logs are seen to.
    pub desk: Desk,
    /// Who may look.
    pub door: Arc<Doorkeeper>,
    /// What is shared, and with whom.
    pub shares: Arc<Shares>,
    /// Under which names.
    pub hosts: Arc<AllowedHosts>,
    /// Below which path, besides the root.
    pub base: BasePath,
    /// The proxies that speak for others.
    pub proxies: Arc<Proxies>,
    /// The page.
    pub assets: Arc<Assets>,
}
