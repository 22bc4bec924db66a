//! Decides at start-up what to watch, from the configuration and what is available.

use crate::last_cluster::LastCluster;
use anyhow::Context;
use nodeglass_access::user;
use nodeglass_actions::{JobControl, LogFiles, SimulatedFiles};
use nodeglass_config::{Config, LauncherChoice, Script, Watch, Who, whose};
use nodeglass_fleet::FleetSettings;
use nodeglass_launch::auto::AutoLauncher;
use nodeglass_launch::local::LocalLauncher;
use nodeglass_launch::openssh::OpensshLauncher;
use nodeglass_launch::scripted::ScriptedCluster;
use nodeglass_launch::srun::{JobsByNode, SrunLauncher};
use nodeglass_launch::ssh_config::Local;
use nodeglass_launch::ssh2::Ssh2Launcher;
use nodeglass_launch::target::{ByTarget, Targets};
use nodeglass_launch::upload::ProbeBinary;
use nodeglass_launch::{Launcher, SshOptions};
use nodeglass_nats::Viewing;
use nodeglass_protocol::Text;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::Mode;
use nodeglass_protocol::request::Tail;
use nodeglass_recording::{Player, PlayerControl};
use nodeglass_report::Factors;
use nodeglass_slurm::command::Commands;
use nodeglass_slurm::{JobSource, NoSlurm, Owners, Selection, Slurm, SlurmJobControl};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Time limit for reading or storing the name of the cluster.
const RECALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The watched jobs or machines.
pub enum Watched {
    /// SLURM jobs, and whose they are in words.
    Jobs(Box<Slurm>, String),
    /// This machine, and why nothing else.
    ThisMachine(Option<Text>),
    /// Listed machines only, with the reason for the lack of jobs.
    Hosts(Option<Text>),
    /// A scripted cluster.
    Demo(ScriptedCluster),
    /// A recording, and how pages control it.
    Replay(Box<Player>, PlayerControl),
    /// Jobs and nodes that other relays publish over NATS, of these clusters; of all if none is named.
    Others(Box<Viewing>, Vec<String>),
}

impl Watched {
    /// Detects what is available.
    ///
    /// # Errors
    /// If what was configured is not available.
    pub async fn choose(config: &Config) -> anyhow::Result<Self> {
        Ok(match config.watch() {
            Watch::Demo(script) => Self::Demo(scripted(&script)?),
            Watch::Replay(path) => {
                let settings = fleet_settings(config);
                let opened = tokio::task::spawn_blocking(move || Player::open(&path, settings)).await?;
                let (player, control) = opened.context("--replay")?;
                Self::Replay(Box::new(player), control)
            }
            Watch::Others(clusters) => {
                let settings = config.nats().context("--view-only needs --nats")?;
                let named: Result<Vec<_>, _> = clusters.iter().map(|name| name.parse()).collect();
                let viewing = Viewing::start(&settings, &named.context("--cluster")?).await?;
                Self::Others(Box::new(viewing), clusters)
            }
            Watch::Local if config.has_hosts() => Self::Hosts(None),
            Watch::Local => Self::ThisMachine(None),
            Watch::Auto => match slurm(config).await? {
                Ok(slurm) => Self::Jobs(Box::new(slurm), whose(&config.watched_users())),
                Err(none) if config.site => anyhow::bail!("relay site needs SLURM: {none}"),
                Err(none) if config.has_hosts() => Self::Hosts(Some(no_jobs(&none, config))),
                Err(none) => Self::ThisMachine(Some(no_jobs(&none, config))),
            },
        })
    }

    /// Describes the watched jobs or machines for the terminal; `requested` describes the request, and `hosts` the
    /// listed machines.
    pub fn description(&self, requested: &str, hosts: Option<String>) -> Text {
        match (self, hosts) {
            (Self::Jobs(slurm, whose), Some(hosts)) => {
                Text::new(format!("{}, and {hosts}", jobs_of(whose, slurm.cluster())))
            }
            (Self::Hosts(Some(none)), Some(hosts)) => Text::new(format!("{hosts} ({none})")),
            (Self::Hosts(_), hosts) => Text::new(hosts.unwrap_or_default()),
            (other, _) => other.description_without_hosts(requested),
        }
    }

    fn description_without_hosts(&self, requested: &str) -> Text {
        match self {
            Self::Jobs(slurm, whose) => jobs_of(whose, slurm.cluster()),
            Self::ThisMachine(Some(none)) => Text::new(format!("this machine ({none})")),
            Self::ThisMachine(None) | Self::Hosts(_) => "this machine".into(),
            Self::Demo(_) | Self::Replay(..) | Self::Others(..) => Text::new(requested),
        }
    }

    /// Returns the owners of the watched jobs, if any.
    pub fn jobs_description(&self) -> Option<Text> {
        match self {
            Self::Jobs(slurm, whose) => Some(jobs_of(whose, slurm.cluster())),
            _ => None,
        }
    }

    /// Describes everything that is watched, with the settings that select it. Independent of the jobs and nodes that are
    /// found, so that relays that watch the same have the same description.
    pub fn extent(&self, config: &Config) -> String {
        let what = match self {
            Self::Jobs(slurm, whose) => jobs_of(whose, slurm.cluster()).to_string(),
            Self::ThisMachine(_) => "this machine".to_owned(),
            Self::Hosts(_) => "listed machines".to_owned(),
            Self::Demo(_) => "a simulated cluster".to_owned(),
            Self::Replay(..) => "a recording".to_owned(),
            Self::Others(_, clusters) => {
                let servers: Vec<_> = config.nats.iter().map(ToString::to_string).collect();
                let whose = if clusters.is_empty() { "all clusters".to_owned() } else { clusters.join(", ") };
                format!("what the relays of {whose} publish at {}", servers.join(", "))
            }
        };
        what + &selecting_settings(config)
    }

    /// Returns whether the relay numbers jobs itself, because several clusters may have the same number.
    pub fn numbers_jobs(&self) -> bool {
        matches!(self, Self::Others(_, clusters) if clusters.len() != 1)
    }

    /// Returns the mode for the page.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Jobs(..) | Self::Others(..) => Mode::Slurm,
            Self::ThisMachine(_) => Mode::Local,
            Self::Hosts(_) => Mode::Hosts,
            Self::Demo(_) => Mode::Demo,
            Self::Replay(player, _) => player.info().mode,
        }
    }

    /// Name of the cluster, if it has one.
    pub fn cluster(&self) -> Option<Text> {
        match self {
            Self::Jobs(slurm, _) => slurm.cluster().cloned(),
            Self::ThisMachine(_) | Self::Hosts(_) => None,
            Self::Demo(cluster) => Some(cluster.scenario().cluster().clone()),
            Self::Replay(player, _) => player.info().cluster.clone(),
            Self::Others(_, clusters) => (!clusters.is_empty()).then(|| Text::new(clusters.join(", "))),
        }
    }

    /// The first controller of its SLURM, if it has one.
    pub fn controller(&self) -> Option<Text> {
        match self {
            Self::Jobs(slurm, _) => slurm.controller().cloned(),
            Self::Demo(cluster) => cluster.scenario().controller().cloned(),
            Self::ThisMachine(_) | Self::Hosts(_) | Self::Replay(..) | Self::Others(..) => None,
        }
    }

    /// The user who runs the relay; the owner of the jobs of a scripted cluster.
    pub fn user(&self) -> Text {
        match self {
            Self::Demo(cluster) => cluster.scenario().user().clone(),
            Self::Replay(player, _) => player.info().user.clone(),
            Self::Jobs(..) | Self::ThisMachine(_) | Self::Hosts(_) | Self::Others(..) => {
                Text::new(Local::from_env().user)
            }
        }
    }

    /// Returns the launcher of its probes, which reaches nodes by their targets, or by the jobs that run there.
    ///
    /// # Errors
    /// If there is no probe to start.
    pub fn launcher(
        &self,
        config: &Config,
        targets: &Targets,
        jobs_by_node: &watch::Receiver<Arc<JobsByNode>>,
    ) -> anyhow::Result<Arc<dyn Launcher>> {
        match self {
            Self::Demo(cluster) => Ok(Arc::new(cluster.launcher())),
            Self::ThisMachine(_) => ProbeHosts::ThisMachine.launcher(config, targets, jobs_by_node),
            Self::Hosts(_) => ProbeHosts::Hosts.launcher(config, targets, jobs_by_node),
            Self::Others(viewing, _) => Ok(viewing.launcher()),
            Self::Jobs(..) | Self::Replay(..) => ProbeHosts::Jobs.launcher(config, targets, jobs_by_node),
        }
    }

    /// The commands of its SLURM, if it is a real one.
    pub fn commands(&self) -> Option<Commands> {
        match self {
            Self::Jobs(slurm, _) => Some(slurm.client().clone()),
            Self::ThisMachine(_) | Self::Hosts(_) | Self::Demo(_) | Self::Replay(..) | Self::Others(..) => {
                None
            }
        }
    }

    /// Controls its jobs.
    pub fn job_control(&self) -> JobControl {
        match self {
            Self::Jobs(slurm, _) => {
                JobControl::Enabled(Arc::new(SlurmJobControl::new(slurm.client().clone())))
            }
            Self::ThisMachine(_) | Self::Hosts(_) => {
                JobControl::Disabled("there is no SLURM on this machine")
            }
            Self::Demo(cluster) => JobControl::Enabled(Arc::new(cluster.jobs())),
            Self::Replay(..) => JobControl::Disabled("this is a recording"),
            Self::Others(..) => JobControl::Disabled("this relay only views what others publish"),
        }
    }

    /// Returns where job logs are besides the nodes; `host` is the name of this machine.
    pub fn log_files(&self, host: &Text) -> LogFiles {
        match self {
            Self::Jobs(..) | Self::ThisMachine(_) | Self::Hosts(_) => LogFiles::Here(host.clone()),
            Self::Demo(cluster) => LogFiles::Simulated(Arc::new(ScriptedFiles(cluster.clone()))),
            Self::Replay(..) | Self::Others(..) => LogFiles::OnNodes,
        }
    }

    /// Its job source; `None` if only machines are watched.
    pub fn into_jobs(self) -> Option<Box<dyn JobSource>> {
        match self {
            Self::Jobs(slurm, _) => Some(slurm),
            Self::ThisMachine(_) | Self::Hosts(_) | Self::Replay(..) | Self::Others(..) => None,
            Self::Demo(cluster) => Some(Box::new(cluster.jobs())),
        }
    }
}

/// The shared file system of a scripted cluster.
#[derive(Debug)]
struct ScriptedFiles(ScriptedCluster);

impl SimulatedFiles for ScriptedFiles {
    fn tail(&self, job: &Job, path: &str, after: u64) -> Option<Tail> {
        self.0.log_tail(job, path, after)
    }
}

/// The machines on which probes are started, which decides what the setting `auto` tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeHosts {
    /// Nodes of the user's jobs, and listed machines.
    Jobs,
    /// Listed machines.
    Hosts,
    /// This machine.
    ThisMachine,
}

impl ProbeHosts {
    /// Creates the launcher that the settings choose.
    ///
    /// # Errors
    /// If there is no probe to start.
    pub fn launcher(
        self,
        config: &Config,
        targets: &Targets,
        jobs_by_node: &watch::Receiver<Arc<JobsByNode>>,
    ) -> anyhow::Result<Arc<dyn Launcher>> {
        // A job id of another cluster may be the id of another job here.
        let is_other_cluster = config.cluster.is_some();
        if is_other_cluster && config.launcher == LauncherChoice::Srun {
            anyhow::bail!(
                "--launcher srun reaches jobs of this machine's cluster only: omit it or --cluster"
            );
        }
        let probe = ProbeBinary::find(config.probe.as_deref())?;
        let relay_id = relay_id(config)?;
        let options =
            || SshOptions { probe: probe.clone(), relay_id, config: None, local: Local::from_env() };
        let ssh2 = || Ssh2Launcher::new(options()).with_targets(targets.clone());
        let openssh = || OpensshLauncher::new(options()).with_targets(targets.clone());
        let by_ssh = || -> Arc<dyn Launcher> {
            Arc::new(AutoLauncher::new(vec![Box::new(ssh2()), Box::new(openssh())]))
        };
        let srun = || SrunLauncher::new(probe.clone(), relay_id, jobs_by_node.clone());
        let site: Arc<dyn Launcher> = match config.launcher {
            LauncherChoice::Auto if self == Self::ThisMachine => {
                return Ok(Arc::new(LocalLauncher::new(probe, relay_id)));
            }
            LauncherChoice::Local => return Ok(Arc::new(LocalLauncher::new(probe, relay_id))),
            LauncherChoice::Ssh2 => Arc::new(ssh2()),
            LauncherChoice::Openssh => Arc::new(openssh()),
            LauncherChoice::Srun => Arc::new(srun()),
            // srun reaches nodes of this machine's cluster only.
            LauncherChoice::Auto if is_other_cluster || self == Self::Hosts => by_ssh(),
            LauncherChoice::Auto => {
                Arc::new(AutoLauncher::new(vec![Box::new(ssh2()), Box::new(openssh()), Box::new(srun())]))
            }
        };
        let listed = match config.launcher {
            LauncherChoice::Auto if self != Self::Hosts => by_ssh(),
            _ => Arc::clone(&site),
        };
        // Another id: a listed address may lead back to this machine, and of two probes with the same id the
        // newer replaces the older.
        let local = LocalLauncher::new(probe, !relay_id);
        Ok(Arc::new(ByTarget::new(targets.clone(), local, listed, site)))
    }
}

/// The settings that add machines, or select some of the jobs.
fn selecting_settings(config: &Config) -> String {
    let hosts = config.host.iter().flat_map(|entries| &entries.0).map(|entry| entry.host.to_string());
    let file =
        config.hosts.as_deref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let settings: [(&str, BTreeSet<String>); 5] = [
        ("partition", config.partitions.iter().cloned().collect()),
        ("nodes", config.nodes.iter().flatten().map(ToString::to_string).collect()),
        ("host", hosts.collect()),
        ("hosts", file.iter().map(|path| path.display().to_string()).collect()),
        ("tpu-pod", config.tpu_pod.then(|| "yes".to_owned()).into_iter().collect()),
    ];
    let given = settings.into_iter().filter(|(_, values)| !values.is_empty());
    given.map(|(name, values)| format!(", --{name} {}", Vec::from_iter(values).join(","))).collect()
}

/// The jobs of users, who need not be the owner.
fn jobs_of(whose: &str, cluster: Option<&Text>) -> Text {
    match cluster {
        Some(cluster) => Text::new(format!("{whose} jobs on {cluster}")),
        None => Text::new(format!("{whose} SLURM jobs")),
    }
}

/// Returns the reason for the lack of jobs, with the settings that have no effect therefore.
fn no_jobs(none: &NoSlurm, config: &Config) -> Text {
    let settings = [
        ("--users", !config.watched_users().is_empty()),
        ("--partition", !config.partitions.is_empty()),
        ("--nodes", config.nodes.is_some()),
        ("--cluster", config.cluster.is_some()),
    ];
    let given: Vec<_> =
        settings.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect();
    Text::new(match &*given {
        [] => none.to_string(),
        [one] => format!("{none}; {one} has no effect"),
        several => format!("{none}; {} have no effect", several.join(", ")),
    })
}

/// Returns the settings of each fleet.
pub(super) fn fleet_settings(config: &Config) -> FleetSettings {
    FleetSettings {
        history_budget: config.history_mem,
        thresholds: config.thresholds(),
        factors: Factors { gpu_hour: config.gpu_hour_cost.clone(), co2_g_per_kwh: config.co2_g_per_kwh },
    }
}

/// The cluster of a scenario.
fn scripted(script: &Script) -> anyhow::Result<ScriptedCluster> {
    Ok(match script {
        Script::Demo => ScriptedCluster::demo(),
        Script::Large => ScriptedCluster::from_toml(nodeglass_sim::LARGE)?,
        Script::File(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--scenario: cannot read {}", path.display()))?;
            ScriptedCluster::from_toml(&text).with_context(|| format!("--scenario: {}", path.display()))?
        }
    })
}

/// SLURM with the configured selection of jobs.
async fn slurm(config: &Config) -> anyhow::Result<Result<Slurm, NoSlurm>> {
    let selection = selection(config)?;
    let mut commands = Commands::new().for_cluster(config.cluster.clone());
    let mut slurm = Slurm::detect_with(commands.clone(), selection.clone()).await;
    if let Ok(slurm) = &mut slurm {
        selection.check(&mut commands).await?;
        name_cluster(slurm, config.cluster.clone()).await;
    }
    Ok(slurm)
}

/// Stores the name of the cluster, or assumes the one that was stored last if the controller does not respond.
async fn name_cluster(slurm: &mut Slurm, selected: Option<String>) {
    let known = slurm.cluster().cloned();
    let recall = move || {
        let last = LastCluster::of_this_machine(selected)?;
        match known {
            Some(name) => {
                last.store(&name);
                None
            }
            None => last.name(),
        }
    };
    // A home directory that does not respond must not delay the start.
    let recalled = timeout(RECALL_TIMEOUT, tokio::task::spawn_blocking(recall)).await;
    if let Ok(Ok(Some(name))) = recalled {
        slurm.assume_cluster(name);
    }
}

/// The configured selection of jobs.
fn selection(config: &Config) -> anyhow::Result<Selection> {
    let viewer = rustix::process::getuid().as_raw();
    let setting = if config.user.is_some() { "--user" } else { "--users" };
    let users = config.watched_users();
    let (mut uids, mut accounts) = (BTreeSet::new(), BTreeSet::new());
    for who in &users {
        match who {
            Who::All => {}
            Who::User(name) => {
                let uid = user::uid_of(name)
                    .with_context(|| format!("{setting}: there is no user {name:?} on this machine"))?;
                uids.insert(uid);
            }
            Who::Account(name) => {
                accounts.insert(name.clone());
            }
        }
    }
    if users.is_empty() {
        uids.insert(viewer);
    }
    let owners = if users.contains(&Who::All) { Owners::All } else { Owners::Of { uids, accounts } };
    Ok(Selection {
        partitions: config.partitions.clone(),
        nodes: config.nodes.clone().unwrap_or_default(),
        ..Selection::of(viewer, owners)
    })
}

/// Identifies this run to probes, so that a new link takes over from a dead one. Not secret. Relays that share nodes over
/// NATS have one id for a cluster, so that the probe of one takes over from the probe of another, with its samples.
fn relay_id(config: &Config) -> anyhow::Result<u64> {
    if !config.nats.is_empty() {
        let mut hasher = DefaultHasher::new();
        ("nodeglass over NATS", &config.cluster).hash(&mut hasher);
        return Ok(hasher.finish());
    }
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system's random generator failed: {error}"))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_config::{Request, read};

    #[test]
    fn the_terminal_names_the_user_whose_jobs_are_watched() {
        let cluster = Text::from("hpc");
        assert_eq!(jobs_of(&whose(&[]), Some(&cluster)).as_str(), "your jobs on hpc");
        assert_eq!(jobs_of(&whose(&[]), None).as_str(), "your SLURM jobs");
        let users = [Who::User("nobody".to_owned()), Who::Account("ml".to_owned())];
        assert_eq!(jobs_of(&whose(&users), Some(&cluster)).as_str(), "account ml's, nobody's jobs on hpc");
        assert_eq!(whose(&[Who::User("nobody".to_owned()), Who::All]), "all users'");
    }

    #[test]
    fn t09_what_is_watched_differs_with_each_setting_that_selects_it() {
        let extent = |line: &str| {
            let args = ["relay", "--config", "/dev/null"].into_iter().chain(line.split_whitespace());
            let Ok(Request::Run { config, .. }) = read(args.map(Into::into)) else { panic!("{line}") };
            Watched::Hosts(None).extent(&config)
        };
        let lines =
            ["", "--partition gpu", "--nodes n1", "--host n1", "--host n1,n2", "--hosts /list", "--tpu-pod"];
        let found: BTreeSet<String> = lines.into_iter().map(extent).collect();
        assert_eq!(found.len(), lines.len(), "{found:?}");
        assert_eq!(
            extent("--partition b,a --nodes n[1-2]"),
            extent("--nodes n2,n1 --partition a --partition b")
        );
        assert_eq!(extent("--host n[1-2] --bind 127.0.0.1:0"), "listed machines, --host n1,n2");
    }

    #[test]
    fn settings_that_need_slurm_are_named_where_there_is_none() {
        let reason = |line: &str| {
            let args = ["relay", "--config", "/dev/null"].into_iter().chain(line.split_whitespace());
            let Ok(Request::Run { config, .. }) = read(args.map(Into::into)) else { panic!("{line}") };
            no_jobs(&NoSlurm::NotInstalled, &config).to_string()
        };
        let none = "no SLURM: squeue is not in PATH";
        assert_eq!(reason(""), none);
        assert_eq!(reason("--partition gpu"), format!("{none}; --partition has no effect"));
        assert_eq!(reason("--users all --nodes n1"), format!("{none}; --users, --nodes have no effect"));
    }
}
