//! A source for tests that plays back a script instead of NVML.

use super::{Absent, DriverEvent, GpuProcessList, Inventory, Session, Source};
use nodeglass_protocol::probe::{GpuHealth, GpuSample};
use std::{collections::VecDeque, thread, time::Duration};

/// One attempt to open the source.
#[derive(Clone, Debug)]
pub enum Act {
    /// Opening fails.
    Absent(Absent),
    /// Opening succeeds; each request consumes one scene, after the last of which the driver
    /// becomes unavailable.
    Open(Inventory, VecDeque<Scene>),
}

/// Result of one request.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Duration for which the call hangs first.
    pub hang: Duration,
    /// Readings.
    pub gpus: Vec<GpuSample>,
    /// Processes.
    pub gpu_processes: GpuProcessList,
    /// Health.
    pub health: Vec<GpuHealth>,
    /// Events.
    pub driver_events: Vec<DriverEvent>,
}

/// A script with one act per attempt to open the source.
#[derive(Clone, Debug, Default)]
pub struct ScriptedSource {
    acts: VecDeque<Act>,
}

impl ScriptedSource {
    /// Creates a source from a script.
    pub fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self { acts: acts.into_iter().collect() }
    }
}

impl Source for ScriptedSource {
    fn open(&mut self) -> Result<Box<dyn Session + '_>, Absent> {
        match self.acts.pop_front() {
            Some(Act::Open(inventory, scenes)) => {
                Ok(Box::new(ScriptedSession { inventory, scenes, now: Scene::default() }))
            }
            Some(Act::Absent(absent)) => Err(absent),
            None => Err(Absent::new("the script is over")),
        }
    }
}

struct ScriptedSession {
    inventory: Inventory,
    scenes: VecDeque<Scene>,
    now: Scene,
}

impl Session for ScriptedSession {
    fn inventory(&mut self) -> Inventory {
        self.inventory.clone()
    }

    fn readings(&mut self) -> Result<Vec<GpuSample>, Absent> {
        self.now = self.scenes.pop_front().ok_or_else(|| Absent::new("the script went away"))?;
        thread::sleep(self.now.hang);
        Ok(self.now.gpus.clone())
    }

    fn gpu_processes(&mut self) -> GpuProcessList {
        self.now.gpu_processes.clone()
    }

    fn health(&mut self) -> Vec<GpuHealth> {
        self.now.health.clone()
    }

    fn driver_events(&mut self) -> Vec<DriverEvent> {
        std::mem::take(&mut self.now.driver_events)
    }
}
