//! Chooses among launchers: the first one, until it cannot log in to a host, then the next for the whole site.

use super::{JobLauncher, LaunchError, Launcher, LoginState, NodeStream};
use async_trait::async_trait;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::picture::LauncherStatus;
use std::sync::Arc;
use tokio::sync::watch;

/// Starts probes with the first of several launchers that can log in to the site's nodes.
///
/// Only a [`LaunchError::Capability`] leads to the next launcher: a refused key or an unverified host
/// would be refused again, and is for the user to decide about. The choice holds until the relay ends.
pub struct AutoLauncher {
    launchers: Vec<Box<dyn Launcher>>,
    /// The index of the launcher in use, and its status.
    selected: watch::Sender<usize>,
    status: watch::Sender<LauncherStatus>,
}

impl AutoLauncher {
    /// Tries `launchers` in this order; there must be at least one.
    pub fn new(launchers: Vec<Box<dyn Launcher>>) -> Self {
        assert!(!launchers.is_empty(), "a launcher to choose");
        let name = launchers[0].name().into();
        Self {
            launchers,
            selected: watch::Sender::new(0),
            status: watch::Sender::new(LauncherStatus { name, reason: None }),
        }
    }

    fn current(&self) -> &dyn Launcher {
        &*self.launchers[*self.selected.borrow()]
    }

    /// Selects the next launcher that is installed, because the one at `failed` reported `why`; `false` if
    /// there is none. Another launch may have selected it already.
    fn select_after(&self, failed: usize, why: &LaunchError) -> bool {
        let Some(next) = (failed + 1..self.launchers.len()).find(|at| self.launchers[*at].is_installed())
        else {
            return false;
        };
        let is_new = self.selected.send_if_modified(|selected| {
            let is_new = *selected < next;
            *selected = next.max(*selected);
            is_new
        });
        if is_new {
            let name = self.launchers[next].name();
            tracing::info!(launcher = name, %why, "another launcher is used from now on");
            self.status
                .send_replace(LauncherStatus { name: name.into(), reason: Some(why.to_string().into()) });
        }
        true
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
        loop {
            let selected = *self.selected.borrow();
            match self.launchers[selected].launch(node).await {
                Err(error @ LaunchError::Capability { .. }) => {
                    if !self.select_after(selected, &error) {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
