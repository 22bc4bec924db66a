//! Selections and input of the user. Pure.

use super::cursor::Cursor;
use super::model::World;
use super::rows::{gpus, jobs, processes};
use nodeglass_config::{Layout, TopArgs};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::request::{ProcessRef, Signal};
use nodeglass_protocol::{GpuUuid, JobId, NodeName};
use nodeglass_rules::severity::Severity;
use std::ops::Range;

/// Time for which a notice stays.
const NOTICE_MS: u64 = 8_000;

/// A part of the screen with a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pane {
    /// Jobs.
    #[default]
    Jobs,
    /// Nodes and GPUs.
    Gpus,
    /// Processes.
    Processes,
}

/// Meaning of the next key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// A command.
    #[default]
    Command,
    /// A letter of the filter.
    Filter,
    /// The letter of an order, after `o`.
    Sort,
}

/// Something above the panes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys.
    Help {
        /// First line.
        top: usize,
    },
    /// Whether to send a signal.
    Confirm {
        /// Node of the process.
        node: NodeName,
        /// The process.
        process: ProcessRef,
        /// The signal.
        signal: Signal,
        /// Its command.
        command: String,
    },
    /// Details.
    Detail {
        /// Title.
        title: String,
        /// Lines.
        lines: Vec<String>,
        /// First line.
        top: usize,
    },
}

/// The place of a pane.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The pane.
    pub pane: Pane,
    /// Its first line, which is its title.
    pub top: u16,
    /// Its height.
    pub height: u16,
    /// Lines above its rows: the title, and the heads of columns if there are any.
    pub head: u16,
    /// The rows that it shows.
    pub rows: Range<usize>,
    /// The columns of the list of processes, from left to right.
    pub columns: Vec<(Range<u16>, processes::Key)>,
}

/// A short message at the foot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The message.
    pub text: String,
    /// Severity.
    pub severity: Severity,
    /// Until when it is shown, by the terminal's clock.
    pub until_ms: u64,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub struct View {
    /// The pane that has the keys.
    pub pane: Pane,
    /// The selected job; `None` for all.
    pub jobs: Cursor<Option<JobId>>,
    /// The selected node or GPU.
    pub gpus: Cursor<gpus::LineId>,
    /// The selected process.
    pub processes: Cursor<processes::LineId>,
    /// The node that is opened.
    pub node: Option<NodeName>,
    /// The GPU that is opened.
    pub gpu: Option<GpuUuid>,
    /// The order of processes.
    pub order: processes::Order,
    /// Meaning of the next key.
    pub input: Input,
    /// The overlay above the panes.
    pub overlay: Option<Overlay>,
    /// The message at the foot.
    pub notice: Option<Notice>,
    /// Whether it is printed, without a cursor.
    pub is_printed: bool,
    /// Layout of the lines.
    pub layout: Layout,
    /// Whether ended jobs are left out.
    pub hides_ended: bool,
    /// Indices of the GPUs that are listed; all if empty.
    pub only_gpus: Vec<u32>,
    /// Filter of processes.
    pub only: processes::Only,
    /// Places of the panes of the last frame.
    pub drawn: Vec<Drawn>,
    filters: [String; 3],
    is_placed: bool,
}

/// The rows of all panes.
#[derive(Debug)]
pub struct Contents<'a> {
    /// The jobs; empty without SLURM.
    pub jobs: Vec<jobs::Line<'a>>,
    /// The nodes and GPUs.
    pub gpus: Vec<gpus::Line<'a>>,
    /// The processes.
    pub processes: Vec<processes::Line<'a>>,
}

impl Contents<'_> {
    /// Identities of the jobs.
    pub fn job_ids(&self) -> Vec<Option<JobId>> {
        self.jobs.iter().map(jobs::Line::job).collect()
    }

    /// Identities of nodes and GPUs.
    pub fn gpu_ids(&self) -> Vec<gpus::LineId> {
        self.gpus.iter().map(gpus::Line::id).collect()
    }

    /// Identities of the processes.
    pub fn process_ids(&self) -> Vec<processes::LineId> {
        self.processes.iter().map(processes::Line::id).collect()
    }
}

impl View {
    /// A view as the command line wants it.
    pub fn new(args: &TopArgs) -> Self {
        let only = processes::Only {
            compute: args.compute || args.only_compute,
            graphics: args.graphics || args.only_graphics,
            exactly: args.only_compute || args.only_graphics,
            pids: args.pids.clone(),
            logins: args.logins.clone(),
        };
        Self {
            layout: args.layout,
            hides_ended: args.hide_ended,
            only_gpus: args.only.clone(),
            only,
            ..Self::default()
        }
    }

    /// Returns the view for `--once`: all rows, without a cursor.
    #[must_use]
    pub fn printed(self) -> Self {
        Self { is_printed: true, is_placed: true, ..self }
    }

    /// The filter of a pane.
    pub fn filter(&self, pane: Pane) -> &str {
        &self.filters[pane as usize]
    }

    /// The filter of the pane that has the keys.
    pub fn filter_mut(&mut self) -> &mut String {
        &mut self.filters[self.pane as usize]
    }

    /// Shows a message at the foot.
    pub fn notify(&mut self, text: impl Into<String>, severity: Severity, now_ms: u64) {
        self.notice =
            Some(Notice { text: text.into(), severity, until_ms: now_ms.saturating_add(NOTICE_MS) });
    }

    /// The selected job; `None` for all.
    pub fn job(&self, jobs: &[jobs::Line<'_>]) -> Option<JobId> {
        let ids: Vec<_> = jobs.iter().map(jobs::Line::job).collect();
        ids.get(self.jobs.index(&ids)).copied().flatten()
    }

    /// Selects a user's only job at first.
    pub fn place(&mut self, world: &World<'_>) {
        if self.is_placed || world.overview.relay.jobs == JobsHealth::NotYet {
            return;
        }
        self.is_placed = true;
        if has_no_jobs(world) {
            self.pane = Pane::Gpus;
        }
        let mut active = world.overview.jobs.iter().filter(|job| job.is_active());
        if let (Some(only), None) = (active.next(), active.next()) {
            self.jobs.set(Some(only.id));
        }
    }

    /// The rows of all panes.
    pub fn contents<'a>(&self, world: &World<'a>) -> Contents<'a> {
        let jobs = match has_no_jobs(world) {
            true => Vec::new(),
            false => jobs::lines(world, self.hides_ended, self.filter(Pane::Jobs)),
        };
        let (node, indices) = (self.node.clone(), self.only_gpus.clone());
        let scope = gpus::Scope { job: self.job(&jobs), node, indices };
        let gpus = gpus::lines(world, &scope, self.filter(Pane::Gpus));
        let kept = (&self.only, self.filter(Pane::Processes));
        let processes = processes::lines(world, &gpus, self.gpu.as_ref(), &self.order, kept);
        Contents { jobs, gpus, processes }
    }

    /// The topic that has the details of what is selected: the opened node, the selected job, or the node of the
    /// cursor.
    pub fn detail(&self, world: &World<'_>, contents: &Contents<'_>) -> Option<Topic> {
        if let Some(node) = &self.node {
            return Some(Topic::Node(node.clone()));
        }
        if let Some(id) = self.job(&contents.jobs) {
            let job = world.overview.jobs.iter().find(|job| job.id == id)?;
            return (!job.nodes.is_empty()).then_some(Topic::Job(id));
        }
        let ids = contents.gpu_ids();
        ids.get(self.gpus.index(&ids)).map(|(node, _)| Topic::Node(node.clone()))
    }

    /// The panes of this view, from top to bottom.
    pub fn panes(&self, contents: &Contents<'_>) -> &'static [Pane] {
        match contents.jobs.is_empty() {
            true => &[Pane::Gpus, Pane::Processes],
            false => &[Pane::Jobs, Pane::Gpus, Pane::Processes],
        }
    }
}

/// Returns whether the machine has no SLURM, and so no list of jobs.
fn has_no_jobs(world: &World<'_>) -> bool {
    world.overview.relay.jobs == JobsHealth::NoSlurm && world.overview.jobs.is_empty()
}
