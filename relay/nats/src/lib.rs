//! Shares nodes and jobs between relays over NATS.
//!
//! A relay that runs probes is [`Publishing`]: it forwards their lines while another relay is interested. A relay that is
//! [`Viewing`] runs none, and receives the lines of others through a launcher, so that everything behind it is as for its own
//! probes. [`lease`] decides which relay runs the probe of a node. Subjects and messages are in PROTOCOL, § 7.

mod bounds;
mod clusters;
mod connection;
mod jobs;
mod launcher;
mod lease;
mod lines;
mod message;
mod names;
mod others;
mod publisher;
mod relays;
mod tap;
mod viewer;

use clusters::Clusters;
use connection::Bus;
pub use connection::{Connection, NatsUrl, NatsUrlError, Settings, StartError};
use jobs::PublishedJobs;
pub use jobs::RemoteJobs;
use launcher::{SharedLauncher, keep_leases};
use lease::Leases;
pub use message::{ClusterName, ClusterNameError};
use nodeglass_launch::Launcher;
use nodeglass_protocol::Text;
use nodeglass_slurm::JobSource;
use publisher::Publisher;
use std::fmt;
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
    /// Connects in the background. `controller` is the first one of the cluster's SLURM, if it has one: nothing is shared while another
    /// cluster has the name.
    ///
    /// # Errors
    /// If the credentials or certificates cannot be read.
    pub async fn start(
        settings: &Settings,
        cluster: ClusterName,
        controller: Option<Text>,
        user: Text,
    ) -> Result<Self, StartError> {
        let bus = Bus::start(settings).await?.of(&cluster);
        let viewer = Viewer::start(bus.clone(), false, controller.clone());
        let leases = Leases::start(bus.clone(), cluster, controller.clone(), viewer.relays());
        let publisher = Publisher::start(bus.clone(), user, controller, leases.standing());
        tokio::spawn(keep_leases(leases.clone(), publisher.clone()));
        Ok(Self { bus, publisher, viewer, leases })
    }

    /// The state of the connection.
    pub fn state(&self) -> watch::Receiver<Connection> {
        self.bus.state.clone()
    }

    /// States that another cluster has this one's name, while one has; a complete sentence.
    pub fn conflict(&self) -> watch::Receiver<Option<Text>> {
        self.leases.conflict()
    }

    /// States what the servers do not permit; a complete sentence.
    pub fn denied(&self) -> watch::Receiver<Option<Text>> {
        self.bus.denied()
    }

    /// States why there are no leases, while there are none; a complete sentence.
    pub fn problem(&self) -> watch::Receiver<Option<Text>> {
        self.leases.problem()
    }

    /// The connection and the leases for metrics.
    pub fn health(&self) -> Health {
        Health { bus: self.bus.clone(), standing: Some(self.leases.standing()) }
    }

    /// Returns a launcher that starts probes by `inner`, on nodes that no other relay watches.
    pub fn launcher(&self, inner: Arc<dyn Launcher>) -> Arc<dyn Launcher> {
        let Self { publisher, viewer, leases, .. } = self.clone();
        Arc::new(SharedLauncher { inner, leases, publisher, viewer })
    }

    /// Returns a source of jobs whose lists are published.
    pub fn jobs(&self, jobs: Box<dyn JobSource>) -> Box<dyn JobSource> {
        self.publisher.announce_jobs();
        Box::new(PublishedJobs { jobs, publisher: self.publisher.clone() })
    }

    /// Gives all leases up, at the end of this relay.
    pub async fn leave(&self) {
        self.leases.leave().await;
    }
}

/// Whether there is a connection, and leases.
#[derive(Clone)]
pub struct Health {
    bus: Bus,
    /// None if this relay runs no probes.
    standing: Option<watch::Receiver<lease::Standing>>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Returns whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.bus.is_up()
    }

    /// Returns whether this relay holds leases; `None` if it needs none.
    pub fn has_leases(&self) -> Option<bool> {
        self.standing.as_ref().map(|standing| *standing.borrow() == lease::Standing::Member)
    }
}

/// A relay that runs no probes.
pub struct Viewing {
    bus: Bus,
    clusters: Clusters,
    jobs: watch::Receiver<RemoteJobs>,
}

impl Viewing {
    /// Connects in the background, and views these clusters; all that publish if none is named.
    ///
    /// # Errors
    /// If the credentials or certificates cannot be read.
    pub async fn start(settings: &Settings, named: &[ClusterName]) -> Result<Self, StartError> {
        let bus = Bus::start(settings).await?;
        let (clusters, jobs) = Clusters::start(bus.clone(), named);
        Ok(Self { bus, clusters, jobs })
    }

    /// The state of the connection.
    pub fn state(&self) -> watch::Receiver<Connection> {
        self.bus.state.clone()
    }

    /// States what the servers do not permit; a complete sentence.
    pub fn denied(&self) -> watch::Receiver<Option<Text>> {
        self.bus.denied()
    }

    /// The connection for metrics.
    pub fn health(&self) -> Health {
        Health { bus: self.bus.clone(), standing: None }
    }

    /// Returns the launcher that receives nodes from other relays.
    pub fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::new(self.clusters.clone())
    }

    /// The jobs and nodes that the relays of the clusters watch.
    pub fn jobs(&self) -> watch::Receiver<RemoteJobs> {
        self.jobs.clone()
    }
}
