//! Where a query's answer comes from: the running relay, or its parts within this process.

use crate::api::Snapshot;
use crate::app::embedded::Embedded;
use crate::app::remote::Remote;
use crate::clock::Clock;
use crate::config::Config;
use crate::share::Viewer;
use anyhow::Context;
use hyper::Method;
use nodeglass_rules::health::is_settled;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long an own relay may take until every node has answered or failed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
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
    /// Attaches to the running relay; if there is none, starts to watch what `config` says. What was started runs until
    /// [`Self::close`].
    ///
    /// # Errors
    /// A complete sentence for the user: the relay that was named does not run, or nothing can be watched.
    pub async fn open(relay: Option<u32>, config: Config) -> anyhow::Result<Self> {
        if relay.is_some() || !Remote::list()?.is_empty() {
            return Ok(Self::Running(Box::new(Remote::find(relay)?)));
        }
        Ok(Self::Own(Box::new(Embedded::start(config).await?)))
    }

    /// Waits until every node has answered or failed, or the time is up; a running relay is asked as it is.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let Self::Own(own) = self else { return Ok(()) };
        let started = Instant::now();
        while started.elapsed() < SETTLE_TIMEOUT {
            let picture = own.hub().everything(Viewer::Owner).await.context("the relay has ended")?.0;
            if is_settled(&picture) {
                break;
            }
            sleep(CHECK).await;
        }
        Ok(())
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
