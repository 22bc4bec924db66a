//! A relay within another program: the same parts, without listeners, key file or stored state.

use super::listed_hosts::ListedHosts;
use super::relay::{PROBES_LEAVE, Relay, Setup, end_store};
use super::terminal::Terminal;
use super::watched::Watched;
use super::{about, raise_open_files};
use nodeglass_access::peer::Peer;
use nodeglass_actions::ActionService;
use nodeglass_config::Config;
use nodeglass_event_loop::Options;
use nodeglass_live::Hub;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::live::Welcome;
use nodeglass_protocol::version::LIVE_WIRE;
use nodeglass_share::{AccessGrant, ShareEndpoint};
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for the parts to end: for probes, and a moment more.
const STOP_TIMEOUT: Duration = PROBES_LEAVE.saturating_add(Duration::from_secs(1));

/// A relay that only this process watches.
pub struct Embedded {
    relay: Relay,
}

impl Embedded {
    /// Starts watching as the settings say, without listeners and without writing files.
    ///
    /// # Errors
    /// Any failure of the start, as a complete sentence for the user.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_sampling(config, None).await
    }

    /// Starts with one sampling interval for all nodes.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub async fn start_sampling(config: Config, interval: Option<Duration>) -> anyhow::Result<Self> {
        raise_open_files();
        let config = Config {
            history_disk: 0,
            record: None,
            remote_write: None,
            persist_shares: false,
            no_audit: true,
            no_captures: true,
            ..config
        };
        let hosts = ListedHosts::load(&config).await?;
        let watched = Watched::choose(&config).await?;
        let about = about(&config, &watched, Default::default(), &[])?;
        let relay = Relay::start(Setup {
            config: &config,
            about,
            watched,
            hosts,
            nats: None,
            // Nobody connects, so that the key is never used.
            key: nodeglass_access::new_key()?,
            endpoint: ShareEndpoint { address: None, tunnel: Default::default() },
            terminal: Terminal::silent(),
            stores: false,
            page: &[],
            sampling: interval.map_or_else(Options::default, Options::sampling_every),
            limits: None,
        })?;
        Ok(Self { relay })
    }

    /// Parameters of the connection, as a page of the owner receives them.
    pub fn welcome(&self) -> Welcome {
        let web = &self.relay.web;
        self.relay.about.welcome(LIVE_WIRE, &web.shares.session(AccessGrant::Owner, Peer::owner()))
    }

    /// The clock of its pictures.
    pub fn clock(&self) -> Clock {
        self.relay.about.clock
    }

    /// Returns the hub of its pictures.
    pub fn hub(&self) -> &Hub {
        &self.relay.web.hub
    }

    /// Executes requests.
    pub fn actions(&self) -> &ActionService {
        &self.relay.web.actions
    }

    /// Stops all probes, and waits until they have ended.
    pub async fn stop(self) {
        let Relay { store, shutdown, core, nodes, .. } = self.relay;
        let _ = shutdown.send(true);
        let _ = timeout(STOP_TIMEOUT, async { tokio::join!(core, nodes) }).await;
        end_store(&store).await;
    }
}
