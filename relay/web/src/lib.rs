//! The web server: the page, a WebSocket, and a small HTTP API; every response needs the key.
//!
//! [`router`] lists every route. [`origin_check`] runs before each of them and [`headers`] after; `server` bounds the
//! cost of unauthenticated clients.

pub mod about;
pub mod api;
pub mod assets;
mod forwarded;
pub mod headers;
pub mod origin_check;
mod pacing;
mod reports;
pub mod router;
mod server;
pub mod site;
pub mod status;
mod ws;

use crate::about::About;
pub use api::series;
use assets::Assets;
use nodeglass_access::base_path::BasePath;
use nodeglass_access::hosts::AllowedHosts;
use nodeglass_access::proxies::Proxies;
use nodeglass_actions::ActionService;
use nodeglass_auth::authenticator::Authenticator;
use nodeglass_live::Hub;
use nodeglass_nats::Health;
use nodeglass_notify::NotificationCounts;
use nodeglass_remote_write::Counts as RemoteWriteCounts;
use nodeglass_remote_write::promql::PromQl;
use nodeglass_share::{AccessGrant, Shares};
use nodeglass_store::{AuditRecorder, JobStore};
pub use router::router;
pub use server::{BindError, Connection, Listeners, bind, serve, tls};
use site::Site;
use std::sync::Arc;

/// Shared state of all routes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebState {
    /// This run of the relay.
    pub about: Arc<About>,
    /// Access to pictures.
    pub hub: Hub,
    /// Usage of jobs.
    pub store: JobStore,
    /// Records what guests view.
    pub audit: AuditRecorder,
    /// Handles requests, actions and logs.
    pub actions: ActionService,
    /// Authenticates clients.
    pub authenticator: Arc<Authenticator>,
    /// The open shares.
    pub shares: Arc<Shares>,
    /// Host names that the relay accepts.
    pub hosts: Arc<AllowedHosts>,
    /// The base path, besides the root.
    pub base: BasePath,
    /// The trusted proxies.
    pub proxies: Arc<Proxies>,
    /// The people of a site, who need no key; `None` if this is a user's relay.
    pub site: Option<Arc<Site>>,
    /// The page.
    pub assets: Arc<Assets>,
    /// Delivery of notices.
    pub notifications: NotificationCounts,
    /// Delivery of the metrics by remote write, if configured.
    pub remote_write: Option<RemoteWriteCounts>,
    /// Storage of the site for ranges that the relay does not keep, if configured.
    pub long_term: Option<PromQl>,
    /// The connection to other relays, if there is one.
    pub nats: Option<Health>,
}

impl WebState {
    /// The label `cluster` of the metrics, empty if there is no cluster; `None` while SLURM has not stated its name.
    pub(crate) fn cluster_label(&self) -> Option<String> {
        self.about
            .metrics_cluster
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| self.store.cluster().map(str::to_owned))
    }

    /// Returns whether a connection may need no key: that of a proxy of the owner, or any to the relay of a site.
    pub(crate) fn is_keyless(&self, connection: &Connection) -> bool {
        connection.is_owners() || self.site.is_some()
    }

    /// Returns the grant of who is at the other end of a connection without a key; `None` if nobody is identified.
    pub(crate) async fn keyless_grant(&self, connection: &Connection) -> Option<AccessGrant> {
        match &self.site {
            _ if connection.is_owners() => Some(AccessGrant::Owner),
            Some(site) => site.grant(connection).await,
            None => None,
        }
    }
}
