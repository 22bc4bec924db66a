//! The signals that end this program: Ctrl-C, `kill`, the end of its terminal, and its limit of CPU time.

use anyhow::Context;
use nodeglass_protocol::Text;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a relay.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the relay was started so as to survive its terminal, as with `nohup`.
    hangup: Option<Signal>,
    cpu_time: Signal,
}

impl Signals {
    /// Installs the handlers; from now on none of these signals kills the process.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        let of = |number: Number| SignalKind::from_raw(number.as_raw());
        // A write beyond the limit of the size of a file (`ulimit -f`) fails like one to a full disk.
        drop(listen(of(Number::XFSZ))?);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: (!is_ignored(SignalKind::hangup())).then(|| listen(SignalKind::hangup())).transpose()?,
            cpu_time: listen(of(Number::XCPU))?,
        })
    }

    /// Waits for the first signal. Returns what to say about it, if the user does not know the reason.
    pub async fn wait(mut self) -> Option<Text> {
        tokio::select! {
            // Ctrl-C.
            _ = self.interrupt.recv() => None,
            // `kill`, or the end of a session.
            _ = self.terminate.recv() => None,
            () = received(self.hangup.as_mut()) => {
                Some("its terminal was closed (SIGHUP): the relay exits; run it in tmux or as a service to keep it".into())
            }
            _ = self.cpu_time.recv() => {
                Some("this machine limits the CPU time of a process (ulimit -t), which is used up: the relay exits".into())
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, kill_process};

    #[tokio::test]
    async fn limits_of_files_and_of_cpu_time_do_not_kill_the_relay() {
        let signals = Signals::listen().unwrap();
        kill_process(getpid(), Number::XFSZ).unwrap();
        kill_process(getpid(), Number::XCPU).unwrap();
        let reason = signals.wait().await.unwrap();
        assert!(reason.as_str().contains("ulimit -t"), "{reason}");
    }
}
