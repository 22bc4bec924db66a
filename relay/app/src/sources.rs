//! Sources of nodes and jobs: SLURM, listed machines, a scripted cluster, or a recording.

use super::listed_hosts::{self, ListedHosts};
use super::polling::{account, follow_others, poll};
use super::site;
use super::terminal::Terminal;
use super::watched::{Watched, fleet_settings};
use nodeglass_actions::{JobControl, LogFiles};
use nodeglass_config::Config;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_launch::Launcher;
use nodeglass_launch::srun::JobsByNode;
use nodeglass_launch::target::Targets;
use nodeglass_live::Hub;
use nodeglass_nats::{Publishing, RemoteJobs};
use nodeglass_nodes::{FromNode, Supervisor};
use nodeglass_protocol::Text;
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_recording::{Outputs, Player, PlayerControl};
use nodeglass_share::Shares;
use nodeglass_slurm::accounting::AccountingQueries;
use nodeglass_slurm::command::Commands;
use nodeglass_slurm::{JobSource, PollSchedule, PollTrigger};
use nodeglass_store::JobStore;
use nodeglass_store::archive::EndedJob;
use nodeglass_web::about::About;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Values that several parts use.
pub(super) struct Common<'a> {
    pub(super) config: &'a Config,
    pub(super) about: Arc<About>,
    pub(super) terminal: Terminal,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) hub: Hub,
    pub(super) store: JobStore,
    pub(super) shares: Arc<Shares>,
    pub(super) poll_trigger: PollTrigger,
}

/// The sources of one relay.
pub(super) struct Sources {
    /// Starts probes; none for a recording.
    launcher: Option<Arc<dyn Launcher>>,
    /// Targets of the listed machines.
    targets: Targets,
    /// The jobs of each node, for launchers that start probes within them.
    jobs_by_node: watch::Sender<Arc<JobsByNode>>,
    hosts: Option<ListedHosts>,
    jobs: Option<Box<dyn JobSource>>,
    /// The commands of SLURM, if it is a real one.
    commands: Option<Commands>,
    player: Option<(Box<Player>, PlayerControl)>,
    /// Jobs and nodes of other relays, if only those are shown.
    others: Option<watch::Receiver<RemoteJobs>>,
    /// Controls jobs.
    pub(super) job_control: JobControl,
    /// Locations of job logs besides the nodes.
    pub(super) log_files: LogFiles,
}

impl Sources {
    /// Prepares the sources of the watched nodes and jobs without starting them.
    ///
    /// # Errors
    /// If there is no probe to start.
    pub(super) fn new(
        config: &Config,
        watched: Watched,
        hosts: Option<ListedHosts>,
        nats: Option<&Publishing>,
        host: &Text,
    ) -> anyhow::Result<Self> {
        let targets = Targets::default();
        let (jobs_by_node, jobs_of_nodes) = watch::channel(Arc::default());
        let launcher = match &watched {
            Watched::Replay(..) => None,
            watched => Some(watched.launcher(config, &targets, &jobs_of_nodes)?),
        };
        let launcher = match nats {
            Some(nats) => launcher.map(|launcher| nats.launcher(launcher)),
            None => launcher,
        };
        let others = match &watched {
            Watched::Others(viewing, _) => Some(viewing.jobs()),
            _ => None,
        };
        let (job_control, log_files) = (watched.job_control(), watched.log_files(host));
        let commands = watched.commands();
        let (player, jobs) = match watched {
            Watched::Replay(player, control) => (Some((player, control)), None),
            watched => (None, watched.into_jobs()),
        };
        let jobs = match nats {
            Some(nats) => jobs.map(|jobs| nats.jobs(jobs)),
            None => jobs,
        };
        Ok(Self {
            launcher,
            targets,
            jobs_by_node,
            hosts,
            jobs,
            commands,
            player,
            others,
            job_control,
            log_files,
        })
    }

    /// Returns whether probes run within jobs.
    pub(super) fn has_job_probes(&self) -> bool {
        self.launcher.as_ref().is_some_and(|launcher| launcher.job_launcher().is_some())
    }

    /// Returns the commands of SLURM, if it is a real one.
    pub(super) fn commands(&self) -> Option<&Commands> {
        self.commands.as_ref()
    }

    /// Returns the control of a recording by pages.
    pub(super) fn player_control(&self) -> Option<PlayerControl> {
        self.player.as_ref().map(|(_, control)| control.clone())
    }

    /// Returns whether jobs are listed, and with them the name of the cluster.
    pub(super) fn has_jobs(&self) -> bool {
        self.jobs.is_some()
    }

    /// Returns whether a recording is played.
    pub(super) fn is_recording(&self) -> bool {
        self.player.is_some()
    }

    /// Returns the fleet at the start: the recording's, or one without history, for which earlier relays saw jobs
    /// end.
    pub(super) fn fleet(&self, config: &Config, about: &About, ended: Vec<EndedJob>) -> Fleet {
        let mut fleet = match &self.player {
            Some((player, _)) => player.fleet(),
            None => Fleet::with_settings(fleet_settings(config)),
        };
        if self.has_job_probes() {
            fleet.use_jobs_of(about.user.clone());
        }
        if !ended.is_empty() {
            fleet.restore_ended(ended.into_iter().map(|ended| (ended.job, ended.nodes)));
        }
        self.announce(&mut fleet, about.clock.now_ms());
        fleet
    }

    /// Announces that only machines are watched, if SLURM is not: the listed ones, else this one.
    fn announce(&self, fleet: &mut Fleet, now_ms: u64) {
        if self.jobs.is_some() || self.player.is_some() || self.others.is_some() {
            return;
        }
        fleet.handle(Event::NoSlurm, now_ms);
        if self.hosts.is_none() {
            fleet.handle(listed_hosts::this_machine_only(), now_ms);
        }
    }

    /// Runs all of them; returns what starts probes, if any can be started.
    pub(super) fn run(self, common: &Common<'_>, nodes: mpsc::Sender<FromNode>) -> Option<Supervisor> {
        let Common { config, about, terminal, events, store, poll_trigger, .. } = common;
        let clock = about.clock;
        if let Some(launcher) = &self.launcher {
            tokio::spawn(report_launcher(launcher.status(), events.clone(), *terminal));
        }
        if let Some(jobs) = self.jobs {
            let schedule =
                PollSchedule::new(config.slurm_interval).of_many(jobs.is_of_many()).free(jobs.is_free());
            let found = (events.clone(), self.jobs_by_node);
            let named = store.clone();
            let on_cluster = move |name: &str| named.set_cluster(name);
            tokio::spawn(poll(jobs, schedule, clock, found, on_cluster, poll_trigger.clone()));
        }
        if let Some(others) = self.others {
            tokio::spawn(follow_others(others, clock, events.clone(), *terminal));
        }
        if let Some(commands) = self.commands.clone().filter(|_| config.site) {
            tokio::spawn(site::follow_nodes(commands, events.clone()));
        }
        if let Some(commands) = self.commands {
            let queries = AccountingQueries::new(commands);
            let factors = fleet_settings(config).factors;
            tokio::spawn(account(queries, about.user.clone(), factors, store.clone(), clock));
        }
        if let Some(hosts) = self.hosts {
            tokio::spawn(hosts.run(self.targets, events.clone(), *terminal));
        }
        if let Some((player, _)) = self.player {
            let (nodes, events, hub) = (nodes.clone(), events.clone(), common.hub.clone());
            tokio::spawn(player.run(Outputs { nodes, events, hub }));
        }
        self.launcher.map(|launcher| Supervisor::new(launcher, clock, nodes, poll_trigger.clone()))
    }
}

/// Passes on how probes are started, and shows it in the terminal when it changes.
async fn report_launcher(
    mut status: watch::Receiver<LauncherStatus>,
    events: mpsc::Sender<Event>,
    terminal: Terminal,
) {
    loop {
        let LauncherStatus { name, reason } = status.borrow_and_update().clone();
        if let Some(reason) = &reason {
            terminal.notice(&format!("starting probes with {name} from now on, because {reason}").into());
        }
        if events.send(Event::Launcher(LauncherStatus { name, reason })).await.is_err()
            || status.changed().await.is_err()
        {
            return;
        }
    }
}
