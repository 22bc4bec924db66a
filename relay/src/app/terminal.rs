//! Terminal output of the relay: the link, and little else.

use crate::access::key_file::Running;
use crate::config::BindAddr;
use nodeglass_protocol::Text;
use rustix::fs::FileType;
use std::io::{IsTerminal, Write as _, stderr, stdout};
use std::path::Path;

/// The message shown when the relay is ready.
pub struct StartMessage<'a> {
    /// What it stored for `relay link`. Contains the key.
    pub running: &'a Running,
    /// Whether actions are disabled.
    pub read_only: bool,
}

/// The terminal, and whether it supports colour.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    colour: bool,
    colour_of_warnings: bool,
}

impl Terminal {
    /// The terminal of this process. No colour if `NO_COLOR` is set or stdout is not a terminal.
    pub fn new() -> Self {
        let welcome = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            colour: welcome && stdout().is_terminal(),
            colour_of_warnings: welcome && stderr().is_terminal(),
        }
    }

    /// Shows that the relay is ready, and how to reach it.
    ///
    /// Warns if stdout is a file that others can read, as batch systems create them.
    pub fn open(&self, start_message: &StartMessage<'_>) {
        print(&start_message.lines(self.colour));
        if is_read_by_others() {
            self.warn(
                &"others can read the file that stdout is redirected to, which contains the link; run `chmod 600` on it".into(),
            );
        }
    }

    /// Shows this user's running relays, and how to reach them.
    pub fn found(&self, running: &[Running], now_s: u64) {
        let relays: String = running.iter().map(|relay| found(relay, now_s, self.colour)).collect();
        let hint = "The running relay keeps its options; `relay --new` starts another one.";
        print(&format!("{relays}  {}\n\n", paint(self.colour, DIM, hint)));
    }

    /// Shows a notice.
    pub fn notice(&self, text: &Text) {
        print(&format!("  {} {text}\n", paint(self.colour, DIM, "·")));
    }

    /// Shows a warning on stderr.
    pub fn warn(&self, text: &Text) {
        let mark = paint(self.colour_of_warnings, YELLOW, "[warning]");
        let _ = writeln!(stderr(), "{mark} {text}");
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

/// The `ssh -L` command from a laptop to a relay that listens on `addr`, if one is needed.
pub fn tunnel(addr: &BindAddr, user: &Text, host: &Text) -> Option<Text> {
    match addr {
        BindAddr::Tcp(addr) => Some(format!("ssh -L {0}:{addr} {user}@{host}", addr.port()).into()),
        BindAddr::Tls(_) => None,
        BindAddr::Unix(path) => Some(tunnel_to_socket(UNIX_PORT, path, user, host)),
    }
}

/// The same for a teammate, with their own login; `None` for a socket that only its owner may open.
pub fn guests_tunnel(addr: &BindAddr, host: &Text) -> Option<Text> {
    match addr {
        BindAddr::Tcp(addr) => Some(format!("ssh -L {0}:{addr} {host}", addr.port()).into()),
        BindAddr::Tls(_) | BindAddr::Unix(_) => None,
    }
}

/// The `ssh -L` command from a port of a laptop to a Unix socket.
pub fn tunnel_to_socket(port: u16, path: &Path, user: &Text, host: &Text) -> Text {
    format!("ssh -L {port}:{} {user}@{host}", path.display()).into()
}

/// The origin of a relay that listens on `addr`, as the browser sees it: at the local end of a tunnel, or
/// by name without one.
pub fn origin(addr: &BindAddr, name: Option<&str>) -> String {
    match (addr, name) {
        (BindAddr::Tcp(addr), _) => format!("http://{addr}"),
        (BindAddr::Tls(addr), Some(name)) => format!("https://{name}:{}", addr.port()),
        (BindAddr::Tls(addr), None) => format!("https://{addr}"),
        (BindAddr::Unix(_), _) => format!("http://127.0.0.1:{UNIX_PORT}"),
    }
}

/// The local port of a tunnel to a Unix socket, which has none itself.
const UNIX_PORT: u16 = 8080;

const BOLD: &str = "1";
const DIM: &str = "2";
const YELLOW: &str = "33";
const CYAN: &str = "36";

impl StartMessage<'_> {
    fn lines(&self, colour: bool) -> String {
        let mut out = title(&self.running.version, colour);
        let mut line = |name: &str, value: &str| out.push_str(&row(name, value, colour));
        line("watching", &self.running.watches);
        ways_in(self.running, colour, &mut line);
        if self.read_only {
            line("actions", "disabled (--read-only)");
        }
        line("stop", "Ctrl-C; leaves nothing behind on the nodes");
        out.push('\n');
        out
    }
}

/// The links of a relay, best first, and the tunnels to it.
fn ways_in(running: &Running, colour: bool, line: &mut impl FnMut(&str, &str)) {
    for link in &running.links {
        line("link", &paint(colour, CYAN, link));
    }
    // The socket first: any user could bind the port while no relay runs, and receive what a browser then
    // sends there.
    match (&running.own_tunnel, running.tunnel.is_empty()) {
        (Some(own), false) => {
            line("tunnel", &format!("{own}   (on your laptop; no other user can listen there)"));
            line("or", &format!("{}   (a port that others can bind while no relay runs)", running.tunnel));
        }
        (Some(own), true) => line("tunnel", &format!("{own}   (on your laptop)")),
        (None, false) => line("tunnel", &format!("{}   (on your laptop)", running.tunnel)),
        (None, true) => {}
    }
}

/// A running relay.
fn found(running: &Running, now_s: u64, colour: bool) -> String {
    let mut out = title(&running.version, colour);
    let mut line = |name: &str, value: &str| out.push_str(&row(name, value, colour));
    let since = duration(now_s.saturating_sub(running.since_s));
    line("running", &format!("for {since}, as process {}", running.pid));
    line("watching", &running.watches);
    ways_in(running, colour, &mut line);
    out.push('\n');
    out
}

fn title(version: &str, colour: bool) -> String {
    format!("\n  {} {}\n\n", paint(colour, BOLD, "nodeglass"), paint(colour, DIM, version))
}

fn row(name: &str, value: &str, colour: bool) -> String {
    format!("  {} {value}\n", paint(colour, DIM, &format!("{name:<8}")))
}

/// A duration in its two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Prints to stdout, ignoring errors: a closed stdout is no reason to stop.
pub fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns whether stdout is a file that its group or everybody may read.
fn is_read_by_others() -> bool {
    rustix::fs::fstat(stdout()).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o077 != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Running {
        Running {
            pid: 4711,
            version: "0.1.0".into(),
            since_s: 1_000,
            watches: "your jobs on lab".into(),
            links: vec!["http://127.0.0.1:8080/#k=secret".into()],
            tunnel: "ssh -L 8080:127.0.0.1:8080 alice@login1".into(),
            own_tunnel: Some("ssh -L 8080:/run/user/1001/nodeglass/4711.sock alice@login1".into()),
        }
    }

    fn start_message(colour: bool) -> String {
        StartMessage { running: &running(), read_only: false }.lines(colour)
    }

    #[test]
    fn the_start_message_names_target_link_and_how_to_stop() {
        assert_eq!(
            start_message(false),
            "
  nodeglass 0.1.0

  watching your jobs on lab
  link     http://127.0.0.1:8080/#k=secret
  tunnel   ssh -L 8080:/run/user/1001/nodeglass/4711.sock alice@login1   (on your laptop; no other user can listen there)
  or       ssh -L 8080:127.0.0.1:8080 alice@login1   (a port that others can bind while no relay runs)
  stop     Ctrl-C; leaves nothing behind on the nodes

"
        );
    }

    #[test]
    fn a_running_relay_is_shown_with_its_age_and_link() {
        assert_eq!(
            found(&running(), 8_980, false),
            "
  nodeglass 0.1.0

  running  for 2 h 13 min, as process 4711
  watching your jobs on lab
  link     http://127.0.0.1:8080/#k=secret
  tunnel   ssh -L 8080:/run/user/1001/nodeglass/4711.sock alice@login1   (on your laptop; no other user can listen there)
  or       ssh -L 8080:127.0.0.1:8080 alice@login1   (a port that others can bind while no relay runs)

"
        );
    }

    #[test]
    fn durations_are_shown_in_their_two_largest_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_660, "1 h 1 min"), (180_000, "2 d 2 h")]
        {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn a_read_only_relay_is_announced() {
        let lines = StartMessage { running: &running(), read_only: true }.lines(false);
        assert!(lines.contains("\n  actions  disabled (--read-only)\n"), "{lines}");
    }

    #[test]
    fn colour_changes_nothing_but_the_colour() {
        let (plain, painted) = (start_message(false), start_message(true));
        assert!(painted.contains("\x1b[36mhttp://127.0.0.1:8080/#k=secret\x1b[0m"));
        let stripped = [BOLD, DIM, CYAN, "0"]
            .iter()
            .fold(painted, |text, code| text.replace(&format!("\x1b[{code}m"), ""));
        assert_eq!(stripped, plain);
    }

    #[test]
    fn a_tunnel_leads_to_a_port_or_to_a_socket() {
        let (user, host) = ("alice".into(), "login1".into());
        let line = |addr: &str| tunnel(&addr.parse().unwrap(), &user, &host).unwrap_or_default().to_string();
        assert_eq!(line("127.0.0.1:9000"), "ssh -L 9000:127.0.0.1:9000 alice@login1");
        assert_eq!(line("[::1]:9000"), "ssh -L 9000:[::1]:9000 alice@login1");
        assert_eq!(line("unix:/run/x.sock"), "ssh -L 8080:/run/x.sock alice@login1");
        assert_eq!(line("10.0.0.7:8443"), "");
    }

    #[test]
    fn a_link_starts_with_the_address_that_the_browser_uses() {
        let of = |addr: &str, name| origin(&addr.parse().unwrap(), name);
        assert_eq!(of("[::1]:9000", Some("login1.example.org")), "http://[::1]:9000");
        assert_eq!(of("unix:/run/x.sock", None), "http://127.0.0.1:8080");
        assert_eq!(of("[2001:db8::7]:8443", None), "https://[2001:db8::7]:8443");
        assert_eq!(of("0.0.0.0:8443", Some("login1.example.org")), "https://login1.example.org:8443");
    }
}
