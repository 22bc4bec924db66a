//! Constants of one run of the relay, sent to every client.

use nodeglass_access::cache_buster::CacheBuster;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::Text;
use nodeglass_protocol::live::{Downtime, Mode, Role, Welcome};
use nodeglass_protocol::share::ShareTerms;
use nodeglass_share::ViewerSession;

/// Constants of one run of the relay.
#[derive(Clone, Debug)]
pub struct About {
    /// Build id of this binary.
    pub build: Text,
    /// Makes the URLs of this run new to every browser.
    pub cache_buster: CacheBuster,
    /// Random number of this run.
    pub epoch: u32,
    /// The relay's clock.
    pub clock: Clock,
    /// Login name of the user who started it.
    pub user: Text,
    /// Hostname.
    pub host: Text,
    /// Name of the cluster, if SLURM has one.
    pub cluster: Option<Text>,
    /// Name of the cluster in the metrics, if the settings state one.
    pub metrics_cluster: Option<Text>,
    /// The kind of watched jobs or machines.
    pub mode: Mode,
    /// The `ssh -L` command that leads here: to the private socket if ssh can reach it.
    pub tunnel: Text,
    /// The `ssh -L` command for a teammate, with their own login.
    pub guests_tunnel: Text,
    /// Whether actions are disabled, even for the owner.
    pub read_only: bool,
    /// When no relay stored the history before this run.
    pub downtimes: Vec<Downtime>,
    /// The host to which reports can be posted, without the secret part of the URL.
    pub report_webhook: Option<Text>,
}

impl About {
    /// The message that follows a successful authentication.
    pub fn welcome(&self, proto: u16, session: &ViewerSession) -> Welcome {
        // The label is the owner's note to themselves.
        let share =
            session.terms().map(|terms| Box::new(ShareTerms { label: Text::default(), ..terms.clone() }));
        let at_ms = self.clock.now_ms();
        let wall_ms = at_ms.saturating_add_signed(self.clock.displayed_wall_ahead_ms());
        let role = if session.grant().is_of_guest() { Role::Guest } else { Role::Owner };
        Welcome {
            proto,
            build: self.build.clone(),
            epoch: self.epoch,
            at_ms,
            wall_ms,
            user: self.user.clone(),
            host: self.host.clone(),
            cluster: self.cluster.clone(),
            mode: self.mode,
            role,
            may_act: role == Role::Owner && !self.read_only,
            // Guests have a login name of their own, so the owner's is left out.
            tunnel: if role == Role::Guest { self.guests_tunnel.clone() } else { self.tunnel.clone() },
            report_webhook: self.report_webhook.clone().filter(|_| role == Role::Owner),
            share,
            downtimes: self.downtimes.clone(),
            utc_offset_min: i32::try_from(LocalTime::utc_offset_s(wall_ms / 1_000) / 60).unwrap_or(0),
            person: session.grant().person().cloned(),
            history_days: 0,
        }
    }
}
