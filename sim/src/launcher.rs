//! Connects to the nodes of a simulated cluster, as a launcher does to real ones.

use crate::probe::{SimulatedProbe, Streams};
use crate::scenario::file::FaultKind;
use crate::scenario::{Scenario, ScenarioTime};
use nodeglass_protocol::NodeName;
use std::sync::Arc;
use std::time::Duration;

/// The nodes of a scenario, with the sample streams that outlive links.
#[derive(Clone, Debug)]
pub struct Cluster {
    scenario: Arc<Scenario>,
    streams: Arc<Streams>,
}

/// Error of connecting to a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No node of the scenario has this name.
    #[error("cannot find {0}: name or service not known")]
    UnknownNode(NodeName),
    /// It has crashed, or its network is down.
    #[error("cannot connect to {0} port 22: no route to host")]
    NoRoute(NodeName),
    /// Its host key is not recorded.
    #[error("the host key of {0} is not known")]
    UnknownHostKey(NodeName),
}

impl Cluster {
    /// Creates the cluster of a scenario.
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario: Arc::new(scenario), streams: Arc::default() }
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns how long connecting to a node takes, which differs between nodes.
    ///
    /// # Errors
    /// [`ConnectError::UnknownNode`].
    pub fn latency(&self, node: &NodeName) -> Result<Duration, ConnectError> {
        let index = self.index(node)?;
        Ok(Duration::from_millis(120 + self.scenario.rng.at(index as u64).number(41) % 500))
    }

    /// Starts a probe on a node.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&self, node: &NodeName, now: ScenarioTime) -> Result<SimulatedProbe, ConnectError> {
        let index = self.index(node)?;
        let gone = [FaultKind::Dies, FaultKind::Unreachable];
        if gone.iter().any(|kind| self.scenario.fault_age_ms(index, *kind, now.t_ms).is_some()) {
            return Err(ConnectError::NoRoute(node.clone()));
        }
        if self.scenario.fault_age_ms(index, FaultKind::UnknownHostKey, now.t_ms).is_some() {
            return Err(ConnectError::UnknownHostKey(node.clone()));
        }
        Ok(SimulatedProbe::start(self.scenario.clone(), self.streams.clone(), index, now))
    }

    fn index(&self, node: &NodeName) -> Result<usize, ConnectError> {
        let index = self.scenario.by_name.get(node);
        index.copied().ok_or_else(|| ConnectError::UnknownNode(node.clone()))
    }
}
