//! Summarises in the log the links of many nodes that break or return together.

use nodeglass_protocol::{NodeName, Text};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Number of nodes that are named within [`WINDOW`]; the others are counted.
const NAMED: u32 = 5;
/// Time for which nodes are counted before their number is logged.
const WINDOW: Duration = Duration::from_secs(30);

/// Writes messages about links to the log. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkLog {
    broken: Arc<Gate>,
    restored: Arc<Gate>,
}

impl LinkLog {
    /// Logs that the link to a node is broken.
    pub fn broken(&self, node: &NodeName, why: &Text) {
        let summary = |count| {
            tracing::warn!(nodes = count, "further nodes have lost their connection; the page shows why")
        };
        if self.broken.admits(summary) {
            tracing::warn!(node.name = %node, reason = %why, "no connection to the node");
        } else {
            tracing::debug!(node.name = %node, reason = %why, "no connection to the node");
        }
    }

    /// Logs that a node is linked after [`LinkLog::broken`].
    pub fn restored(&self, node: &NodeName) {
        let summary = |count| tracing::warn!(nodes = count, "further nodes are connected again");
        if self.restored.admits(summary) {
            tracing::warn!(node.name = %node, "the node is connected again");
        } else {
            tracing::debug!(node.name = %node, "the node is connected again");
        }
    }
}

/// Admits a few messages per window and counts the others.
#[derive(Debug, Default)]
struct Gate(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    end: Option<Instant>,
    admitted: u32,
    counted: u64,
}

impl Gate {
    /// Returns whether a message is written. If others are not, calls `summary` with their number at the end
    /// of the window.
    fn admits(self: &Arc<Self>, summary: fn(u64)) -> bool {
        let now = Instant::now();
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.end.is_none_or(|end| end <= now) {
            *window = Window { end: Some(now + WINDOW), admitted: 0, counted: 0 };
        }
        if window.admitted < NAMED {
            window.admitted += 1;
            return true;
        }
        window.counted += 1;
        if window.counted == 1 {
            let (gate, end) = (Arc::clone(self), window.end.unwrap_or(now));
            tokio::spawn(async move {
                sleep_until(end).await;
                let count =
                    std::mem::take(&mut gate.0.lock().unwrap_or_else(PoisonError::into_inner).counted);
                if count > 0 {
                    summary(count);
                }
            });
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn five_hundred_nodes_that_are_down_are_five_lines_and_a_number() {
        static COUNTED: AtomicU64 = AtomicU64::new(0);
        fn summary(count: u64) {
            COUNTED.fetch_add(count, Ordering::Relaxed);
        }
        let gate = Arc::new(Gate::default());
        let admitted = (0..500).filter(|_| gate.admits(summary)).count();
        assert_eq!((admitted, COUNTED.load(Ordering::Relaxed)), (5, 0));
        // The task that counts must have started before the clock moves.
        tokio::task::yield_now().await;
        advance(WINDOW + Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
        assert_eq!(COUNTED.load(Ordering::Relaxed), 495);
        assert!(gate.admits(summary), "the next window names nodes again");
    }
}
