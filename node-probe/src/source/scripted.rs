//! A source that says what a test wrote down: the twin of NVML for whoever has no GPU and no library.

use super::{Absent, DriverEvent, GpuProcessList, Inventory, Session, Source};
use nodeglass_protocol::probe::{GpuHealth, GpuSample};
use std::{collections::VecDeque, thread, time::Duration};

/// One act of a script: how one opening of the source goes.
#[derive(Clone, Debug)]
pub enum Act {
    /// Opening fails.
    Absent(Absent),
    /// Opening succeeds; each tick takes one scene, and when there is none left the driver goes away.
    Open(Inventory, VecDeque<Scene>),
}

/// What one tick reads.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// How long the call hangs first.
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

/// A script: one act per opening; the last absence stays.
#[derive(Clone, Debug, Default)]
pub struct ScriptedSource {
    acts: VecDeque<Act>,
}

impl ScriptedSource {
    /// A source that goes through these acts.
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
            None => Err(Absent("the script is over".into())),
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
        self.now = self.scenes.pop_front().ok_or_else(|| Absent("the script went away".into()))?;
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
