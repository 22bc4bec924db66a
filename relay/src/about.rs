//! What holds for one run of the relay, told to every viewer that comes in.

use crate::access::cache_buster::CacheBuster;
use crate::clock::Clock;
use crate::share::ViewerSession;
use nodeglass_protocol::Text;
use nodeglass_protocol::live::{Mode, Role, Welcome};

/// What holds for one run of the relay.
#[derive(Clone, Debug)]
pub struct About {
    /// Build id of this binary.
    pub build: Text,
    /// What makes the URLs of this run new to every browser.
    pub cache_buster: CacheBuster,
    /// Random number of this run.
    pub epoch: u32,
    /// The relay's clock.
    pub clock: Clock,
    /// Login name of whoever started it.
    pub user: Text,
    /// Where it runs.
    pub host: Text,
    /// Name of the cluster, if SLURM has one.
    pub cluster: Option<Text>,
    /// What it watches.
    pub mode: Mode,
    /// The `ssh -L` line that leads here.
    pub tunnel: Text,
    /// The `ssh -L` line for somebody who logs in as themself.
    pub guests_tunnel: Text,
    /// Whether nobody may act, not even the owner.
    pub read_only: bool,
}

impl About {
    /// The message that lets a viewer in.
    pub fn welcome(&self, proto: u16, session: &ViewerSession) -> Welcome {
        let share = session.terms().cloned().map(Box::new);
        let role = if share.is_some() { Role::Guest } else { Role::Owner };
        Welcome {
            proto,
            build: self.build.clone(),
            epoch: self.epoch,
            at_ms: self.clock.now_ms(),
            wall_ms: Clock::wall_ms(),
            user: self.user.clone(),
            host: self.host.clone(),
            cluster: self.cluster.clone(),
            mode: self.mode,
            role,
            may_act: role == Role::Owner && !self.read_only,
            // The owner's login name is of no use to a guest, who has one of their own.
            tunnel: if share.is_some() { self.guests_tunnel.clone() } else { self.tunnel.clone() },
            share,
        }
    }
}
