//! Runs one history: performs its faults second by second, and lets the oracle check.

use crate::broken::Broken;
use crate::history::{Fault, HEALED_S, Kind, NODES, VIEWERS, node_name};
use crate::oracle::{Oracle, slow_ms};
use crate::relay::Relay;
use crate::slurm::{self, Squeue};
use crate::viewer::{Interest, TestViewer};
use crate::wire::{Action, Condition, Launches, Wire};
use anyhow::Result;
use nodeglass_platform::clock::simulated;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::NodeName;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, advance, sleep, sleep_until};

/// The time of day at the start: 25 November 2026, in ms since 1970.
const WALL_MS: u64 = 1_795_600_000_000;
/// By how much the login node's clock is wrong during a fault, in ms.
const CLOCK_STEP_MS: u64 = 120_000;
/// All nodes are fresh by then, in s.
const QUIET_S: u64 = HEALED_S + 100;
/// All findings have resolved by then, in s.
const END_S: u64 = HEALED_S + 420;
/// Faults begin and end at whole seconds, and checks follow after this time.
const CHECK_AFTER: Duration = Duration::from_millis(600);
/// Interval of comparing pictures, in s.
const COMPARE_S: u64 = 10;

static START: OnceLock<Instant> = OnceLock::new();
static STEP_MS: AtomicU64 = AtomicU64::new(0);

fn wall_ms() -> u64 {
    let elapsed = START.get().map_or(Duration::ZERO, Instant::elapsed);
    WALL_MS + elapsed.as_millis() as u64 + STEP_MS.load(Ordering::Relaxed)
}

/// The state of a run.
struct Run {
    faults: Arc<Vec<Fault>>,
    /// For each fault, whether it has begun, and ended.
    phases: Vec<(bool, bool)>,
    broken: Option<Broken>,
    wire: Arc<Wire>,
    names: Vec<NodeName>,
    squeue: Squeue,
    disk: StateDir,
    relay: Option<Relay>,
    interests: [Interest; VIEWERS],
    viewers: [Option<TestViewer>; VIEWERS],
    /// Updates that viewers of this relay missed.
    missed: u64,
    oracle: Oracle,
    /// Keeps a write beyond the limit of file sizes from ending the process.
    _too_large: Signal,
}

/// Runs a history; returns the violations of guarantees.
///
/// # Errors
/// The simulation itself cannot be set up.
pub async fn run(seed: u64, faults: Vec<Fault>, broken: Option<Broken>) -> Result<Vec<String>> {
    START.get_or_init(Instant::now);
    simulated::replace(wall_ms);
    let folder = tempfile::tempdir()?;
    let mut run = Run::new(seed, faults, broken, StateDir::at(folder.path().join("state"))?)?;
    run.start_relay().await?;
    let start = run.oracle.start;
    let mut at_s = 0;
    while at_s < END_S {
        run.set_faults(at_s).await?;
        at_s = start.elapsed().as_secs();
        sleep_until(start + Duration::from_secs(at_s) + CHECK_AFTER).await;
        run.check(at_s).await;
        if at_s >= QUIET_S && (at_s >= END_S || !run.has_findings().await) {
            break;
        }
        at_s += 1;
        sleep_until(start + Duration::from_secs(at_s)).await;
    }
    run.end().await;
    Ok(run.oracle.violations)
}

impl Run {
    fn new(seed: u64, faults: Vec<Fault>, broken: Option<Broken>, disk: StateDir) -> Result<Self> {
        let faults = Arc::new(faults);
        let cluster = slurm::cluster(&faults, seed, broken)?;
        let wire = Wire::new(cluster.clone(), broken);
        let start = Instant::now();
        let squeue = Squeue { cluster, faults: faults.clone(), start };
        let oracle = Oracle::new(wire.clone(), squeue.clone(), broken);
        Ok(Self {
            phases: vec![(false, false); faults.len()],
            faults,
            broken,
            names: (0..NODES).map(|node| NodeName::new(node_name(node))).collect::<Result<_, _>>()?,
            wire,
            squeue,
            disk,
            relay: None,
            interests: Interest::all(),
            viewers: Default::default(),
            missed: 0,
            oracle,
            _too_large: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    async fn start_relay(&mut self) -> Result<()> {
        self.missed = 0;
        let relay = Relay::start(&self.wire, self.squeue.clone(), &self.disk).await?;
        for (viewer, interest) in self.viewers.iter_mut().zip(&self.interests) {
            *viewer = TestViewer::join(&relay.hub, interest, self.broken == Some(Broken::Picture)).await;
        }
        self.relay = Some(relay);
        Ok(())
    }

    fn drop_viewers(&mut self) {
        self.viewers = Default::default();
    }

    /// Begins and ends faults, and sets the state of the ways to all nodes.
    async fn set_faults(&mut self, at_s: u64) -> Result<()> {
        let faults = self.faults.clone();
        for (index, fault) in faults.iter().enumerate() {
            let (has_begun, has_ended) = self.phases[index];
            if has_begun && !has_ended && fault.to_s <= at_s {
                self.phases[index].1 = true;
                self.end_fault(fault).await?;
            }
            if !has_begun && fault.from_s <= at_s {
                self.phases[index].0 = true;
                self.begin_fault(fault).await;
            }
        }
        for (node, name) in self.names.iter().enumerate() {
            let active = faults.iter().filter(|fault| fault.affects(node) && fault.is_active(at_s));
            let mut condition = active.fold(Condition::default(), condition);
            match self.broken {
                Some(Broken::Fresh) if node == 0 && at_s > HEALED_S => condition.launches = Launches::Refused,
                Some(Broken::Neighbours) if node == 4 && (80..95).contains(&at_s) => condition.is_mute = true,
                _ => {}
            }
            self.wire.set(name, condition);
        }
        self.break_guarantee(at_s).await;
        Ok(())
    }

    async fn break_guarantee(&mut self, at_s: u64) {
        match (self.broken, &self.relay) {
            // Every second, since a suspension skips seconds.
            (Some(Broken::Memory), _) if at_s >= 90 => {
                (0..50).for_each(|_| drop(tokio::spawn(std::future::pending::<()>())));
            }
            (Some(Broken::Load), Some(relay)) => {
                for _ in 0..4 {
                    let _ = relay.probes.retry(None).await;
                    sleep(Duration::from_millis(100)).await;
                }
            }
            (Some(Broken::Fresh), _) if at_s == HEALED_S + 1 => self.wire.act(&self.names[0], Action::Cut),
            _ => {}
        }
    }

    async fn begin_fault(&mut self, fault: &Fault) {
        let action = match fault.kind {
            Kind::Refused | Kind::NoAnswer | Kind::NoHello | Kind::Denied | Kind::KeyRejected | Kind::Cut => {
                Some(Action::Cut)
            }
            Kind::Killed => Some(Action::Kill),
            Kind::Garbage => Some(Action::Garbage(1 + fault.number % 12)),
            Kind::HugeLine => Some(Action::HugeLine),
            Kind::Backfilled => Some(Action::Backfill(fault.number % 40)),
            _ => None,
        };
        if let Some(action) = action {
            fault.of.iter().for_each(|node| self.wire.act(&self.names[*node], action));
        }
        match fault.kind {
            Kind::RelayKilled => self.kill_relay(Action::RelayKilled),
            Kind::LoginNodeLost => self.kill_relay(Action::RelayLost),
            Kind::RelayRestarted => {
                self.drop_viewers();
                if let Some(relay) = self.relay.take()
                    && !relay.stop().await
                {
                    self.oracle.violated("stops", "its parts did not end in time".into());
                }
            }
            Kind::Suspended => advance(Duration::from_secs(fault.to_s - fault.from_s)).await,
            Kind::LoginClock => STEP_MS.store(CLOCK_STEP_MS, Ordering::Relaxed),
            Kind::DiskFull => limit_files(Some(0)),
            Kind::ViewerSlow => self.set_paused(fault, true),
            Kind::ViewerLeaves => {
                for viewer in &fault.of {
                    self.missed += self.viewers[*viewer].take().map_or(0, |viewer| viewer.seen().missed);
                }
            }
            _ => {}
        }
    }

    async fn end_fault(&mut self, fault: &Fault) -> Result<()> {
        match fault.kind {
            Kind::RelayKilled | Kind::LoginNodeLost | Kind::RelayRestarted => self.start_relay().await?,
            Kind::LoginClock => STEP_MS.store(0, Ordering::Relaxed),
            Kind::DiskFull => limit_files(None),
            Kind::ViewerSlow => self.set_paused(fault, false),
            Kind::ViewerLeaves => {
                for viewer in &fault.of {
                    if let Some(relay) = &self.relay
                        && self.viewers[*viewer].is_none()
                    {
                        let interest = &self.interests[*viewer];
                        self.viewers[*viewer] = TestViewer::join(&relay.hub, interest, false).await;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn kill_relay(&mut self, action: Action) {
        self.drop_viewers();
        if let Some(relay) = self.relay.take() {
            relay.kill(&self.wire, action);
        }
    }

    fn set_paused(&self, fault: &Fault, is_paused: bool) {
        for viewer in fault.of.iter().filter_map(|viewer| self.viewers[*viewer].as_ref()) {
            viewer.set_paused(is_paused);
        }
    }

    async fn check(&mut self, at_s: u64) {
        let Some(relay) = &self.relay else { return };
        self.oracle.check(relay).await;
        if !at_s.is_multiple_of(COMPARE_S) {
            return;
        }
        for (number, (viewer, interest)) in self.viewers.iter().zip(&self.interests).enumerate() {
            let is_slow = |fault: &Fault| {
                fault.kind == Kind::ViewerSlow
                    && fault.of.contains(&number)
                    && (fault.from_s..fault.to_s + fault.kind.properties().heals_s).contains(&at_s)
            };
            if let Some(viewer) = viewer
                && !self.faults.iter().any(is_slow)
            {
                self.oracle.compare(relay, number, interest, viewer).await;
            }
        }
    }

    async fn has_findings(&self) -> bool {
        let Some(relay) = &self.relay else { return false };
        let everything = relay.hub.everything(nodeglass_share::Viewer::Owner).await;
        everything.is_some_and(|(picture, _)| picture.findings.iter().any(|finding| finding.is_active()))
    }

    /// The checks at the end, and an orderly shutdown.
    async fn end(&mut self) {
        let Some(relay) = self.relay.take() else {
            return self.oracle.violated("runs", "no relay runs".into());
        };
        let missed: u64 = self.viewers.iter().flatten().map(|viewer| viewer.seen().missed).sum();
        self.oracle.check_end(&relay, self.missed + missed).await;
        if !relay.stop().await {
            self.oracle.violated("stops", "its parts did not end in time".into());
        }
        self.drop_viewers();
        sleep(Duration::from_secs(32)).await;
        self.oracle.check_stopped();
    }
}

/// Adds a fault to the state of a way.
fn condition(mut condition: Condition, fault: &Fault) -> Condition {
    let launches = match fault.kind {
        Kind::Refused => Launches::Refused,
        Kind::NoAnswer => Launches::NoAnswer,
        Kind::NoHello => Launches::NoHello,
        Kind::Denied => Launches::Denied,
        Kind::KeyRejected => Launches::KeyRejected,
        _ => condition.launches,
    };
    condition.launches = launches;
    condition.is_mute |= fault.kind == Kind::HalfOpen;
    if fault.kind == Kind::Slow {
        condition.delay_ms = condition.delay_ms.max(slow_ms(fault));
    }
    condition
}

/// Limits the size of files, as a full disk does; `None` removes the limit.
fn limit_files(bytes: Option<u64>) {
    let limit = getrlimit(Resource::Fsize);
    let _ = setrlimit(Resource::Fsize, Rlimit { current: bytes.or(limit.maximum), ..limit });
}
