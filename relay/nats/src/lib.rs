//! Shares nodes and jobs between relays over NATS.
//!
//! A relay that runs probes is [`Publishing`]: it forwards their lines while another relay is interested. A relay that is
//! [`Viewing`] runs none, and receives the lines of others through a launcher, so that everything behind it is as for its own
//! probes. [`lease`] decides which relay runs the probe of a node. Subjects and messages are in PROTOCOL, § 7.

mod connection;
mod jobs;
mod launcher;
mod lease;
mod lines;
mod message;
mod others;
mod publisher;
mod tap;
mod viewer;

use connection::Bus;
pub use connection::{Connection, NatsUrl, NatsUrlError, Settings, StartError};
pub use jobs::RemoteJobs;
use jobs::{PublishedJobs, follow};
use launcher::{SharedLauncher, ViewLauncher, keep_leases};
use lease::Leases;
pub use message::{ClusterName, ClusterNameError};
use nodeglass_launch::Launcher;
use nodeglass_protocol::Text;
use nodeglass_slurm::JobSource;
use publisher::Publisher;
use std::sync::Arc;
use tokio::sync::watch;
use viewer::Viewer;

/// A relay that runs probes, and shares them. Cheap to clone.
#[derive(Clone)]
pub struct Publishing {
    bus: Bus,
    publisher: Publisher,
    viewer: Viewer,
    leases: Leases,
}

impl Publishing {
    /// Connects in the background.
    ///
    /// # Errors
    /// If the credentials or certificates cannot be read.
    pub async fn start(settings: &Settings, user: Text) -> Result<Self, StartError> {
        let bus = Bus::start(settings).await?;
        let viewer = Viewer::start(bus.clone(), false);
        let leases = Leases::start(bus.clone(), &settings.cluster.to_string(), viewer.relays());
        let publisher = Publisher::start(bus.clone(), user, leases.standing());
        tokio::spawn(keep_leases(leases.clone(), publisher.clone()));
        Ok(Self { bus, publisher, viewer, leases })
    }

    /// The state of the connection.
    pub fn state(&self) -> watch::Receiver<Connection> {
        self.bus.state.clone()
    }

    /// Returns a launcher that starts probes by `inner`, on nodes that no other relay watches.
    pub fn launcher(&self, inner: Arc<dyn Launcher>) -> Arc<dyn Launcher> {
        let Self { publisher, viewer, leases, .. } = self.clone();
        Arc::new(SharedLauncher { inner, leases, publisher, viewer })
    }

    /// Returns a source of jobs whose lists are published.
    pub fn jobs(&self, jobs: Box<dyn JobSource>) -> Box<dyn JobSource> {
        self.publisher.lists_jobs();
        Box::new(PublishedJobs { jobs, publisher: self.publisher.clone() })
    }

    /// Gives all leases up, at the end of this relay.
    pub async fn leave(&self) {
        self.leases.leave().await;
    }
}

/// A relay that runs no probes.
pub struct Viewing {
    bus: Bus,
    viewer: Viewer,
    jobs: watch::Receiver<RemoteJobs>,
    cluster: ClusterName,
}

impl Viewing {
    /// Connects in the background.
    ///
    /// # Errors
    /// If the credentials or certificates cannot be read.
    pub async fn start(settings: &Settings) -> Result<Self, StartError> {
        let bus = Bus::start(settings).await?;
        let viewer = Viewer::start(bus.clone(), true);
        let (joined, jobs) = watch::channel(RemoteJobs::default());
        let cluster = settings.cluster.clone();
        tokio::spawn(follow(bus.clone(), cluster.to_string(), viewer.relays(), joined));
        Ok(Self { bus, viewer, jobs, cluster })
    }

    /// The state of the connection.
    pub fn state(&self) -> watch::Receiver<Connection> {
        self.bus.state.clone()
    }

    /// The cluster that is viewed.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Returns the launcher that receives nodes from other relays.
    pub fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::new(ViewLauncher(self.viewer.clone()))
    }

    /// The jobs and nodes that the relays of the cluster watch.
    pub fn jobs(&self) -> watch::Receiver<RemoteJobs> {
        self.jobs.clone()
    }
}
