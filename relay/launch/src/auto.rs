//! Chooses among launchers, for each node: the first one that can log in there, beginning with what the site's other nodes need.

use super::{JobLauncher, LaunchError, Launcher, LoginState, NodeStream};
use async_trait::async_trait;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::picture::LauncherStatus;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A launcher that cannot log in to this many nodes, and has logged in to none, is not tried with others: a site mostly
/// configures its nodes alike.
const SITE_NODES: usize = 3;
/// Time for which it is remembered that a launcher cannot log in to a node, whose configuration may change.
const REMEMBER_FOR: Duration = Duration::from_secs(3_600);

/// Starts probes with the first of several launchers that can log in to a node.
///
/// Only a [`LaunchError::Capability`] leads to the next launcher: a refused key or an unverified host
/// would be refused again, and is for the user to decide about.
pub struct AutoLauncher {
    launchers: Vec<Box<dyn Launcher>>,
    known: Mutex<Vec<Known>>,
    /// The launcher of most nodes.
    status: watch::Sender<LauncherStatus>,
}

/// Results of one launcher so far.
#[derive(Default)]
struct Known {
    /// The nodes that it cannot log in to, and when that was found.
    unable: BTreeMap<NodeName, (Instant, LaunchError)>,
    /// Whether it has started a probe.
    has_started: bool,
}

impl Known {
    /// Returns whether it is worth trying on a node.
    fn may_start(&self, node: &NodeName) -> bool {
        !self.unable.contains_key(node) && (self.has_started || self.unable.len() < SITE_NODES)
    }
}

impl AutoLauncher {
    /// Tries `launchers` in this order; there must be at least one.
    pub fn new(launchers: Vec<Box<dyn Launcher>>) -> Self {
        assert!(!launchers.is_empty(), "a launcher to choose");
        let name = launchers[0].name().into();
        let known = Mutex::new(launchers.iter().map(|_| Known::default()).collect());
        Self { launchers, known, status: watch::Sender::new(LauncherStatus { name, reason: None }) }
    }

    /// The launcher that is tried for a node; the last one that is installed if none is worth trying.
    fn choose(&self, node: &NodeName) -> usize {
        let mut known = self.known();
        known.iter_mut().for_each(|known| known.unable.retain(|_, (at, _)| at.elapsed() < REMEMBER_FOR));
        let is_worth = |at: &usize| known[*at].may_start(node);
        self.installed(0).find(is_worth).or_else(|| self.installed(0).last()).unwrap_or(0)
    }

    /// The launchers from this one on whose programs are installed; the first of all needs none.
    fn installed(&self, from: usize) -> impl Iterator<Item = usize> {
        (from..self.launchers.len()).filter(|at| *at == 0 || self.launchers[*at].is_installed())
    }

    /// Records that a launcher has started a probe.
    fn started(&self, at: usize) {
        self.known()[at].has_started = true;
        self.update_status(at);
    }

    /// Records that the launcher at `failed` cannot log in to a node; returns the next one that is installed.
    fn select_after(&self, failed: usize, node: &NodeName, why: &LaunchError) -> Option<usize> {
        let next = self.installed(failed + 1).next()?;
        let launcher = self.launchers[next].name();
        tracing::info!(node.name = %node, launcher, %why, "another launcher is used for the node");
        self.known()[failed].unable.insert(node.clone(), (Instant::now(), why.clone()));
        self.update_status(next);
        Some(next)
    }

    /// States the first launcher that has started a probe; while none has, the one `in_use`.
    fn update_status(&self, in_use: usize) {
        let known = self.known();
        let at = known.iter().position(|known| known.has_started).unwrap_or(in_use);
        let newest =
            |known: &Known| known.unable.values().max_by_key(|(at, _)| *at).map(|(_, why)| why.to_string());
        let reason = known[..at].iter().rev().find_map(newest).map(Into::into);
        let status = LauncherStatus { name: self.launchers[at].name().into(), reason };
        self.status.send_if_modified(|last| {
            // One reason suffices: it may be another one for each node.
            let is_other = last.name != status.name;
            if is_other {
                *last = status;
            }
            is_other
        });
    }

    /// The launcher that the status names.
    fn current(&self) -> &dyn Launcher {
        let name = self.status.borrow().name.clone();
        let named = self.launchers.iter().find(|launcher| launcher.name() == name.as_str());
        &**named.unwrap_or(&self.launchers[0])
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Launcher for AutoLauncher {
    fn name(&self) -> &'static str {
        self.current().name()
    }

    fn status(&self) -> watch::Receiver<LauncherStatus> {
        self.status.subscribe()
    }

    fn job_launcher(&self) -> Option<Arc<dyn JobLauncher>> {
        self.launchers.iter().find_map(|launcher| launcher.job_launcher())
    }

    async fn login_state(&self) -> Option<LoginState> {
        self.current().login_state().await
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let mut at = self.choose(node);
        loop {
            match self.launchers[at].launch(node).await {
                Err(error @ LaunchError::Capability { .. }) => match self.select_after(at, node, &error) {
                    Some(next) => at = next,
                    None => return Err(error),
                },
                Err(error) => return Err(error),
                Ok(stream) => {
                    self.started(at);
                    return Ok(stream);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Starts probes on nodes whose names begin with its own, and counts the attempts on others.
    struct Only(&'static str, Arc<AtomicUsize>);

    #[async_trait]
    impl Launcher for Only {
        fn name(&self) -> &'static str {
            self.0
        }

        async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
            if node.as_str().starts_with(self.0) {
                let (stdout, stdin) = (tokio::sync::mpsc::channel(1).1, tokio::sync::mpsc::channel(1).0);
                return Ok(NodeStream { stdout, stdin, end: tokio::sync::oneshot::channel().1 });
            }
            self.1.fetch_add(1, Ordering::Relaxed);
            Err(capability(&format!("{node} needs another")))
        }
    }

    /// Two launchers, and how often the first one could not log in.
    fn two() -> (AutoLauncher, Arc<AtomicUsize>) {
        let (first, second) = (Arc::<AtomicUsize>::default(), Arc::default());
        let auto =
            AutoLauncher::new(vec![Box::new(Only("a", Arc::clone(&first))), Box::new(Only("b", second))]);
        (auto, first)
    }

    async fn starts(auto: &AutoLauncher, node: &str) {
        auto.launch(&NodeName::new(node).unwrap()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_odd_node_does_not_change_the_launcher_of_others() {
        let (auto, unable) = two();
        starts(&auto, "b1").await;
        let odd = LauncherStatus { name: "b".into(), reason: Some("b1 needs another".into()) };
        assert_eq!(*auto.status().borrow(), odd);
        starts(&auto, "a1").await;
        assert_eq!(*auto.status().borrow(), LauncherStatus { name: "a".into(), reason: None });
        for _ in 0..9 {
            starts(&auto, "b1").await;
        }
        assert_eq!(unable.load(Ordering::Relaxed), 1, "that is remembered");
        for node in 2..9 {
            starts(&auto, &format!("b{node}")).await;
        }
        starts(&auto, "a2").await;
        assert_eq!((unable.load(Ordering::Relaxed), auto.name()), (8, "a"));
        // The node is configured as others.
        tokio::time::sleep(REMEMBER_FOR).await;
        starts(&auto, "b1").await;
        assert_eq!(unable.load(Ordering::Relaxed), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_whose_first_nodes_need_another_launcher_is_left_to_it_for_an_hour() {
        let (auto, unable) = two();
        for node in 1..20 {
            starts(&auto, &format!("b{node}")).await;
        }
        assert_eq!((unable.load(Ordering::Relaxed), auto.name()), (SITE_NODES, "b"));
        tokio::time::sleep(REMEMBER_FOR).await;
        starts(&auto, "a1").await;
        assert_eq!(auto.name(), "a");
    }

    /// Fails with `error`, and counts.
    struct Fails(&'static str, LaunchError, bool, Arc<AtomicUsize>);

    #[async_trait]
    impl Launcher for Fails {
        fn name(&self) -> &'static str {
            self.0
        }

        fn is_installed(&self) -> bool {
            self.2
        }

        async fn launch(&self, _: &NodeName) -> Result<NodeStream, LaunchError> {
            self.3.fetch_add(1, Ordering::Relaxed);
            Err(self.1.clone())
        }
    }

    fn capability(why: &str) -> LaunchError {
        LaunchError::Capability { why: why.into(), advice: "".into() }
    }

    /// Launches three times; returns the last error, the status, and how often each launcher was tried.
    async fn thrice(errors: [(LaunchError, bool); 3]) -> (LaunchError, LauncherStatus, [usize; 3]) {
        let counts = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let launchers = ["ssh2", "openssh", "third"].into_iter().zip(errors).zip(&counts);
        let launchers = launchers.map(|((name, (error, is_installed)), count)| {
            Box::new(Fails(name, error, is_installed, Arc::clone(count))) as Box<dyn Launcher>
        });
        let auto = AutoLauncher::new(launchers.collect());
        let node = NodeName::new("n1").unwrap();
        let mut last = None;
        for _ in 0..3 {
            last = auto.launch(&node).await.err();
        }
        let status = auto.status().borrow().clone();
        assert_eq!(status.name.as_str(), auto.name());
        (last.unwrap(), status, counts.map(|count| count.load(Ordering::Relaxed)))
    }

    #[tokio::test]
    async fn a_site_that_a_launcher_cannot_log_in_to_is_left_to_the_next_one() {
        let denied = LaunchError::Denied { why: "no job".into() };
        let errors = [(capability("a jump host"), true), (denied.clone(), true), (capability(""), true)];
        let (last, status, tries) = thrice(errors).await;
        assert_eq!((last, tries), (denied, [1, 3, 0]));
        assert_eq!(status, LauncherStatus { name: "openssh".into(), reason: Some("a jump host".into()) });
    }

    #[tokio::test]
    async fn a_launcher_that_is_not_installed_is_skipped_and_the_last_error_stays() {
        let errors = [(capability("a jump host"), true), (capability(""), false), (capability("no"), true)];
        let (last, status, tries) = thrice(errors).await;
        assert_eq!((last, status.name.as_str(), tries), (capability("no"), "third", [1, 0, 3]));
        let errors = [(capability("a jump host"), true), (capability(""), false), (capability(""), false)];
        let (last, status, tries) = thrice(errors).await;
        assert_eq!((last, tries), (capability("a jump host"), [3, 0, 0]));
        assert_eq!(status, LauncherStatus { name: "ssh2".into(), reason: None });
    }

    #[tokio::test]
    async fn other_errors_are_no_reason_to_change_the_launcher() {
        let (why, advice) = ("w".into(), "a".into());
        for error in [
            LaunchError::Auth { why, advice },
            LaunchError::HostKey { why: "w".into(), advice: "a".into() },
            LaunchError::Incompatible { why: "w".into(), advice: "a".into() },
            LaunchError::Unreachable { why: "w".into() },
        ] {
            let (last, status, tries) =
                thrice([(error.clone(), true), (capability(""), true), (capability(""), true)]).await;
            assert_eq!((last, status.reason, tries), (error, None, [3, 0, 0]));
        }
    }
}
