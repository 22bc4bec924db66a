//! The signals that end this program: Ctrl-C, `kill`, and the end of its terminal.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a relay.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the relay was started so as to survive its terminal, as with `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    /// Installs the handlers; from now on none of these signals kills the process.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: (!is_ignored(SignalKind::hangup())).then(|| listen(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for the first signal.
    pub async fn wait(mut self) {
        tokio::select! {
            // Ctrl-C.
            _ = self.interrupt.recv() => {}
            // `kill`, or the end of a session.
            _ = self.terminate.recv() => {}
            // The terminal was closed.
            () = received(self.hangup.as_mut()) => {}
        }
    }
}

/// Waits for a signal; pending forever if it is not handled.
async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns whether this process ignores a signal, as its parent intended. Reads the kernel's list rather
/// than calling a function that could change the disposition.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (kind.as_raw_value() - 1) != 0
}
