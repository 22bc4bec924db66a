//! Where a query's answer comes from: the running relay, or its parts within this process.

use crate::api::Snapshot;
use crate::app::embedded::Embedded;
use crate::app::remote::Remote;
use crate::clock::Clock;
use crate::config::Config;
use crate::share::Viewer;
use anyhow::Context;
use hyper::Method;
use nodeglass_protocol::Picture;
use nodeglass_protocol::picture::{JobsHealth, Link};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long an own relay may take until every node has answered or failed.
const SETTLES: Duration = Duration::from_secs(20);
/// Interval of checks whether it has.
const CHECK: Duration = Duration::from_millis(100);

/// Where snapshots come from.
pub enum Source {
    /// The owner's running relay.
    Running(Box<Remote>),
    /// A relay of this process alone.
    Own(Box<Embedded>),
}

impl Source {
    /// Attaches to the running relay; if there is none, starts to watch what `config` says.
    ///
    /// # Errors
    /// A complete sentence for the user: the relay that was named does not run, or nothing can be watched.
    pub async fn open(relay: Option<u32>, config: Config) -> anyhow::Result<Self> {
        if relay.is_some() || !Remote::list()?.is_empty() {
            return Ok(Self::Running(Box::new(Remote::find(relay)?)));
        }
        let own = Embedded::start(config).await?;
        let started = Instant::now();
        while started.elapsed() < SETTLES {
            let picture = own.hub().everything(Viewer::Owner).await.context("the relay has ended")?.0;
            if has_settled(&picture) {
                break;
            }
            sleep(CHECK).await;
        }
        Ok(Self::Own(Box::new(own)))
    }

    /// The current state.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        match self {
            Self::Running(relay) => relay.json(Method::GET, "/api/v1/snapshot", String::new()).await,
            Self::Own(own) => {
                let picture = own.hub().everything(Viewer::Owner).await.context("the relay has ended")?.0;
                let wall_ahead_ms =
                    Clock::wall_ms().cast_signed().saturating_sub(picture.at_ms.cast_signed());
                Ok(Snapshot::new(&picture, wall_ahead_ms))
            }
        }
    }

    /// Ends what was started.
    pub async fn close(self) {
        match self {
            Self::Running(_) => {}
            Self::Own(own) => own.stop().await,
        }
    }
}

/// Whether every node has answered or failed.
fn has_settled(picture: &Picture) -> bool {
    let is_pending = |link: &Link| matches!(link, Link::Waiting | Link::Connecting { .. });
    let is_empty = picture.nodes.is_empty() && matches!(picture.relay.jobs, JobsHealth::NoSlurm);
    !matches!(picture.relay.jobs, JobsHealth::NotYet)
        && !is_empty
        && picture.nodes.iter().all(|node| {
            // The first line of a probe has no readings yet.
            !is_pending(&node.head.link) && (node.sampled_at_ms.is_some() || node.head.link != Link::Live)
        })
}
