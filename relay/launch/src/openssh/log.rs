//! Reads the stderr of `ssh -o LogLevel=DEBUG1`: how far the login came, and what the host's command printed.
//!
//! Its log shows what its exit status 255 does not: whether the host was reached, its key verified, the
//! user's key accepted. The lines are the same from OpenSSH 7.4 to 10.

use crate::child::StderrReader;
use crate::{StreamEnd, Tail};
use nodeglass_protocol::Text;
use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Precedes lines of ssh's log.
const DEBUG: &str = "debug1: ";
/// Lines that ssh prints without that at the end of a session.
const STATISTICS: [&str; 2] = ["Transferred: sent ", "Bytes per second: sent "];
/// Precede the type and the fingerprint of the host's key.
const HOST_KEY: [&str; 2] = ["Server host key: ", "Server host certificate: "];
/// ssh's exit status for its own errors.
const SSH_FAILED: i32 = 255;
/// Longer lines are passed on in pieces.
const MAX_LINE: usize = 4 * 1024;

/// Progress of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// No data was received from an SSH server, also through a jump host.
    #[default]
    Connecting,
    /// The host speaks SSH.
    Greeted,
    /// The host's key was verified, and keys are offered.
    Authenticating,
    /// The host accepted a key, or another method that needs no more from the user.
    Accepted,
    /// The login succeeded.
    LoggedIn,
}

/// The end of the command on the host, if ssh learnt it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemoteExit {
    Status,
    Signal,
}

/// Messages of ssh so far.
#[derive(Clone, Debug, Default)]
pub(super) struct SshLog {
    pub(super) progress: Progress,
    /// Number of keys that were offered.
    pub(super) offered_keys: usize,
    /// The host key's fingerprint, as `SHA256:…`.
    pub(super) fingerprint: Option<String>,
    /// The key that the host accepted: its file, type and fingerprint.
    accepted: Option<String>,
    /// The end of the command; `None` if the connection broke before.
    remote_exit: Option<RemoteExit>,
    /// An incomplete line.
    line: Vec<u8>,
    /// Other lines since the last progress: errors, banners, and the host's stderr once logged in.
    text: Tail,
}

impl SshLog {
    /// Returns whether the command has been started.
    pub(super) fn is_logged_in(&self) -> bool {
        self.progress == Progress::LoggedIn
    }

    /// The key that the host accepted: its file, type and fingerprint, all of them public.
    pub(super) fn accepted_key(&self) -> Option<&str> {
        self.accepted.as_deref()
    }

    /// Returns whether the session ended, or will end, without the command's exit.
    pub(super) fn is_connection_lost(&self) -> bool {
        self.remote_exit.is_none()
    }

    /// The lines that are not part of the log.
    pub(super) fn text(&self) -> Cow<'_, str> {
        self.text.as_str()
    }

    fn take_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\r', '\n']);
        // The host's stderr may have ended within a line.
        let (other, entry) = match line.split_once(DEBUG) {
            Some((other, entry)) => (other, Some(entry)),
            None => (line, None),
        };
        if let Some(entry) = entry {
            self.take_entry(entry);
        }
        let is_only_entry = other.is_empty() && entry.is_some();
        if other.starts_with("Authenticated to ") && !self.is_logged_in() {
            self.advance(Progress::LoggedIn);
        } else if !is_only_entry && !STATISTICS.iter().any(|prefix| other.starts_with(prefix)) {
            self.text.push(other.as_bytes());
            self.text.push(b"\n");
        }
    }

    /// Takes a line of ssh's log.
    fn take_entry(&mut self, entry: &str) {
        if self.is_logged_in() {
            if entry.contains(" rtype exit-status ") {
                self.remote_exit = Some(RemoteExit::Status);
            } else if entry.contains(" rtype exit-signal ") {
                self.remote_exit = Some(RemoteExit::Signal);
            }
        } else if let Some((_, line)) = entry.split_once(": banner line ") {
            // What a server says instead of speaking SSH, such as `0: Exceeded MaxStartups`.
            self.text.push(line.split_once(": ").map_or(line, |(_, line)| line).as_bytes());
            self.text.push(b"\n");
        } else if entry.starts_with("Remote protocol version ") {
            self.advance(Progress::Greeted);
        } else if let Some(key) = HOST_KEY.iter().find_map(|prefix| entry.strip_prefix(prefix)) {
            self.fingerprint = key.split([' ', ',']).nth(1).map(str::to_owned);
        } else if entry.starts_with("Authentications that can continue: ") {
            // Also after a method that failed.
            self.advance(Progress::Authenticating);
        } else if entry.starts_with("Offering ") && entry.contains("public key: ") {
            self.offered_keys += 1;
        } else if let Some(key) = entry.strip_prefix("Server accepts key: ") {
            self.accepted = Some(key.chars().take(200).collect());
            self.advance(Progress::Accepted);
        } else if ["gssapi", "hostbased"]
            .iter()
            .any(|method| entry.starts_with(&format!("Next authentication method: {method}")))
        {
            self.advance(Progress::Accepted);
        } else if entry.starts_with("mux_client_request_session") {
            // Through a connection of the user's own; a login took place before. Its exit status is only
            // logged by the other process.
            self.advance(Progress::LoggedIn);
            self.remote_exit = Some(RemoteExit::Status);
        }
    }

    fn advance(&mut self, progress: Progress) {
        self.progress = progress;
        self.text = Tail::default();
    }
}

impl StderrReader for SshLog {
    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > MAX_LINE {
                self.take_line();
            }
        }
    }

    fn end(&mut self, status: Option<ExitStatus>) -> StreamEnd {
        if !self.line.is_empty() {
            self.take_line();
        }
        let stderr = self.text.text();
        let last = stderr.as_str().lines().last().unwrap_or("ssh ended").to_owned();
        let code = status.and_then(|status| status.code());
        let broken = match (code, self.remote_exit, status.and_then(|status| status.signal())) {
            (_, _, Some(signal)) => Some(format!("ssh was ended by signal {signal}")),
            (Some(SSH_FAILED), None, _) => Some(format!("the connection broke: {last}")),
            _ => None,
        };
        let is_killed = code == Some(SSH_FAILED) && self.remote_exit == Some(RemoteExit::Signal);
        let exit = code.filter(|_| broken.is_none() && !is_killed);
        let signal = is_killed.then(|| "a signal".into());
        StreamEnd { exit, signal, stderr, broken: broken.map(Text::from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> SshLog {
        let mut log = SshLog::default();
        // In pieces that end anywhere.
        text.as_bytes().chunks(7).for_each(|piece| log.push(piece));
        log
    }

    fn end(log: &mut SshLog, code: i32) -> StreamEnd {
        log.end(Some(ExitStatus::from_raw(code << 8)))
    }

    const LOGIN: &str = "debug1: Remote protocol version 2.0, remote software version OpenSSH_9.2p1\r\n\
        debug1: Server host key: ssh-ed25519 SHA256:lPywWk\r\n\
        a banner\r\n\
        debug1: Authentications that can continue: publickey\r\n\
        debug1: Offering RSA public key: /home/ann/.ssh/id_rsa\r\n\
        debug1: Offering public key: /home/ann/.ssh/id_ed25519 ED25519 SHA256:HkCPI8 explicit\r\n\
        debug1: Server accepts key: /home/ann/.ssh/id_ed25519 ED25519 SHA256:HkCPI8 explicit\r\n";

    #[test]
    fn the_log_shows_how_far_a_login_came() {
        let accepted = log(LOGIN);
        assert_eq!((accepted.progress, accepted.offered_keys), (Progress::Accepted, 2));
        assert_eq!(accepted.fingerprint.as_deref(), Some("SHA256:lPywWk"));
        assert_eq!(accepted.text(), "", "the banner is not an error");
        let refused = log(&format!("{LOGIN}debug1: Authentications that can continue: publickey\r\n"));
        assert_eq!(refused.progress, Progress::Authenticating);
        let shared = log("debug1: mux_client_request_session: master session id: 2\r\n");
        assert!(shared.is_logged_in());
    }

    #[test]
    fn what_the_host_prints_is_told_from_the_log() {
        let session = "Authenticated to node-1 ([10.0.0.1]:22) using \"publickey\".\r\n\
            debug1: Sending command: exec sh\r\nmotd\nnode-probe: no GPU\n\
            no newlinedebug1: client_input_channel_req: channel 0 rtype exit-status reply 0\r\n\
            debug1: channel 0: free: client-session, nchannels 1\r\n\
            Transferred: sent 3496, received 3320 bytes, in 0.1 seconds\r\n\
            Bytes per second: sent 61262.4, received 58178.3\r\ndebug1: Exit status 255\r\n";
        let mut log = log(&format!("{LOGIN}{session}"));
        let stderr = "motd\nnode-probe: no GPU\nno newline".into();
        assert_eq!(end(&mut log, 255), StreamEnd { exit: Some(255), stderr, ..StreamEnd::default() });
    }

    #[test]
    fn a_lost_connection_and_a_signal_are_told_from_an_exit_with_255() {
        let begin = format!("{LOGIN}Authenticated to node-1 ([10.0.0.1]:22).\r\n");
        let mut lost = log(&format!("{begin}Timeout, server node-1 not responding.\r\n"));
        let lost = end(&mut lost, 255);
        assert_eq!(
            (lost.exit, lost.broken.unwrap().as_str()),
            (None, "the connection broke: Timeout, server node-1 not responding.")
        );
        let signal = "debug1: client_input_channel_req: channel 0 rtype exit-signal reply 0\r\n";
        let killed = end(&mut log(&format!("{begin}{signal}")), 255);
        assert_eq!((killed.exit, killed.signal.unwrap().as_str(), killed.broken), (None, "a signal", None));
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut log = log(&format!("{LOGIN}Authenticated to node-1\r\n"));
        (0..1_000).for_each(|_| log.push(&[b'x'; 1024]));
        assert!(log.line.len() <= MAX_LINE + 1024);
        assert!(log.text().trim_end().ends_with("xxx"));
    }
}
