//! What holds for one run of the relay, told to every viewer that comes in.

use crate::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::live::{Mode, Role, Welcome};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// What holds for one run of the relay.
#[derive(Clone, Debug)]
pub struct About {
    /// Build id of this binary.
    pub build: Text,
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
}

impl About {
    /// The message that lets a viewer in.
    pub fn welcome(&self, proto: u16, role: Role) -> Welcome {
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
            tunnel: self.tunnel.clone(),
        }
    }
}

/// How long `id` may take; where users come from a directory service, that may hang.
const ID_PATIENCE: Duration = Duration::from_secs(5);

/// The login name of whoever runs this, as the system knows it: `$USER` is only what a shell was told.
///
/// Asked of `id`, because names may come from anywhere that the system's libc knows. Where there is no
/// answer, the uid in digits.
pub async fn login_name() -> Text {
    let uid = || Text::from(rustix::process::geteuid().as_raw().to_string());
    let mut id = Command::new("/usr/bin/id");
    id.arg("-un").env_clear().stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(ID_PATIENCE, id.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            let name = Text::from_bytes(&output.stdout);
            if name.is_empty() { uid() } else { name }
        }
        _ => uid(),
    }
}

/// The name of this machine (`uname -n`).
pub fn host_name() -> Text {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "localhost".into(), Text::from)
}
