//! Terminal output of the relay: the link, and little else. All that commands print passes through [`write`] or
//! [`complain`].

mod escape;

use escape::escaped;
use nodeglass_access::key_file::Running;
use nodeglass_config::BindAddr;
use nodeglass_launch::ssh_config::Local;
use nodeglass_platform::disk_thread::DiskThread;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::Text;
use nodeglass_recording::CutSummary;
use nodeglass_rules::text::{aligned, span};
use rustix::fs::FileType;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write as _, stderr, stdout};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Maximum time for which the relay waits for a text to be written.
const MAX_WRITE_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of texts that wait for a terminal that does not take them.
const MAX_WAITING: usize = 16;

/// Whether to use colour, which only repeats what the text says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// The style for a stream: no colour if `NO_COLOR` is set, or the stream or `TERM` does not support it.
    pub fn of(stream: &impl IsTerminal) -> Self {
        let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colour: !is_set && !is_dumb && stream.is_terminal() }
    }

    /// Less important text.
    pub fn dim(self, text: &str) -> String {
        self.paint(DIM, text)
    }

    /// Text in an SGR colour.
    pub fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The terminal, and which of its streams support colour.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    stdout: Style,
    stderr: Style,
    /// Whether notices and warnings are left out, because the screen has another purpose.
    is_silent: bool,
}

impl Terminal {
    /// The terminal of this process.
    pub fn new() -> Self {
        Self { stdout: Style::of(&stdout()), stderr: Style::of(&stderr()), is_silent: false }
    }

    /// A terminal that shows no notices and warnings.
    pub fn silent() -> Self {
        Self { is_silent: true, ..Self::new() }
    }

    /// Shows that the relay is ready, and how to reach it.
    ///
    /// Warns if stdout is a file that others can read, as batch systems create them.
    pub fn open(&self, running: &Running) {
        show(print, start_message(&kept_out_of_journal(running), self.stdout));
        self.warn_about_readers(std::slice::from_ref(running));
    }

    /// Shows a relay of this user that runs already, and how to start another one beside it.
    pub fn found(&self, running: &Running, another: &str, now_s: u64) {
        print(found(&kept_out_of_journal(running), another, now_s, self.stdout));
        self.warn_about_readers(std::slice::from_ref(running));
    }

    /// Shows the links of all running relays.
    ///
    /// # Errors
    /// As [`write`].
    pub fn links(&self, running: &[Running], now_s: u64) -> anyhow::Result<()> {
        write(links(running, now_s, LocalTime::of, self.stdout))?;
        self.warn_about_readers(running);
        Ok(())
    }

    /// Shows the same as JSON.
    ///
    /// # Errors
    /// As [`write`].
    pub fn links_json(&self, running: &[Running]) -> anyhow::Result<()> {
        write(links_json(running)?)?;
        self.warn_about_readers(running);
        Ok(())
    }

    /// Warns if the links of these relays are in a file that others can read.
    fn warn_about_readers(&self, shown: &[Running]) {
        if exposes_links(shown, stdout()) {
            self.warn(
                &"the output file is readable by others and contains the link; run `chmod 600` on it".into(),
            );
        }
    }

    /// Shows a notice.
    pub fn notice(&self, text: &Text) {
        if !self.is_silent {
            show(print, format!("  {}\n", self.stdout.dim(text.as_str())));
        }
    }

    /// Shows a warning on stderr.
    pub fn warn(&self, text: &Text) {
        if !self.is_silent {
            show(complain, format!("{} {text}", self.stderr.paint(YELLOW, "warning:")));
        }
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
        BindAddr::Tls(_) | BindAddr::Owner(_) => None,
        BindAddr::Unix(path) => Some(tunnel_to_socket(UNIX_PORT, path, user, host)),
    }
}

/// Returns the tunnel command for a teammate, with their own login; `None` for a socket that only its owner may open.
pub fn guests_tunnel(addr: &BindAddr, host: &Text) -> Option<Text> {
    match addr {
        BindAddr::Tcp(addr) => Some(format!("ssh -L {0}:{addr} {host}", addr.port()).into()),
        BindAddr::Tls(_) | BindAddr::Unix(_) | BindAddr::Owner(_) => None,
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
        (BindAddr::Unix(_) | BindAddr::Owner(_), _) => format!("http://127.0.0.1:{UNIX_PORT}"),
    }
}

/// The local port of a tunnel to a Unix socket, which has none itself.
const UNIX_PORT: u16 = 8080;

const BOLD: &str = "1";
const DIM: &str = "2";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// The message shown when the relay is ready.
fn start_message(running: &Running, style: Style) -> String {
    let mut out = title(running, "", style);
    watched(running, style, &mut out);
    out.push_str(&row("stop", "press Ctrl-C; no process is left behind on the nodes", style));
    out.push('\n');
    out
}

/// A relay that runs already; `another` is the command that starts another one.
fn found(running: &Running, another: &str, now_s: u64, style: Style) -> String {
    let up = span(now_s.saturating_sub(running.since_s));
    let mut out = title(running, &format!("  already running (pid {}, up {up})", running.pid), style);
    watched(running, style, &mut out);
    out.push_str(&row("stop", &format!("press Ctrl-C in its terminal, or run kill {}", running.pid), style));
    out.push_str(&row("another", another, style));
    out.push('\n');
    out
}

fn title(running: &Running, note: &str, style: Style) -> String {
    format!("\n  {} {}{note}\n\n", style.paint(BOLD, "nodeglass"), style.dim(&running.version))
}

/// Prints the watched jobs or machines, the links, best first, and the tunnels.
fn watched(running: &Running, style: Style, out: &mut String) {
    let mut line = |name: &str, value: &str| out.push_str(&row(name, value, style));
    line("watching", &running.watches);
    for link in &running.links {
        line("link", &style.paint(CYAN, link));
    }
    // The socket first: any user could bind the port while no relay runs, and receive what a browser then
    // sends there.
    match (&running.own_tunnel, running.tunnel.is_empty()) {
        (Some(own), false) => {
            let note = match running.is_socket_in_shared_place {
                false => "(on your laptop; no other user can listen there)",
                // After a restart, or on another login node of the same name.
                true => "(on your laptop; no other user can listen there while this relay runs)",
            };
            line("tunnel", &format!("{own}   {}", style.dim(note)));
            let note = style.dim("(a port that others can bind while no relay runs)");
            line("or", &format!("{}   {note}", running.tunnel));
        }
        (Some(own), true) => line("tunnel", &format!("{own}   {}", style.dim("(on your laptop)"))),
        (None, false) => line("tunnel", &format!("{}   {}", running.tunnel, style.dim("(on your laptop)"))),
        (None, true) => {}
    }
    if running.read_only {
        line("actions", "disabled (--read-only)");
    }
}

fn row(name: &str, value: &str, style: Style) -> String {
    format!("  {} {value}\n", style.dim(&format!("{name:<8}")))
}

/// Prints the link of a single relay as it is, for scripts; the links of several relays with a line that names each.
fn links(running: &[Running], now_s: u64, local: fn(u64) -> LocalTime, style: Style) -> String {
    if let [only] = running {
        return only.links.iter().map(|link| format!("{link}\n")).collect();
    }
    let lines = overview(running, now_s, local);
    let relays = running.iter().zip(lines).map(|(relay, line)| {
        let links = relay.links.iter().map(|link| format!("  {}\n", style.paint(CYAN, link)));
        format!("{line}\n{}", links.collect::<String>())
    });
    relays.collect::<Vec<_>>().join("\n")
}

/// One line for each relay: what it watches, its process, its addresses and since when it runs.
pub fn overview(running: &[Running], now_s: u64, local: fn(u64) -> LocalTime) -> Vec<String> {
    let now = local(now_s);
    let rows: Vec<_> = running
        .iter()
        .map(|relay| {
            let up = span(now_s.saturating_sub(relay.since_s));
            [
                relay.watches.clone(),
                format!("pid {}", relay.pid),
                relay.addresses.join(", "),
                format!("since {} ({up})", local(relay.since_s).seen_from(&now)),
            ]
        })
        .collect();
    aligned(&rows, |_| false)
}

/// Lets a thread write a text while the relay runs, and waits for it [`MAX_WRITE_WAIT`] at most: a terminal that is paused, or
/// a pipe that nobody reads, must not stop the relay. Texts beyond [`MAX_WAITING`] are dropped.
fn show(write: fn(String), text: String) {
    static THREAD: OnceLock<Option<DiskThread<Shown>>> = OnceLock::new();
    let start =
        || DiskThread::start("terminal", MAX_WAITING, |shown| shown.iter().for_each(Shown::write)).ok();
    let (done, written) = sync_channel(1);
    let shown = Shown { write, text, done };
    let Some(thread) = THREAD.get_or_init(start) else { return shown.write() };
    if thread.pass(shown).is_ok() && !IS_STALLED.load(Ordering::Relaxed) {
        let is_late = written.recv_timeout(MAX_WRITE_WAIT).is_err();
        IS_STALLED.store(is_late, Ordering::Relaxed);
    }
}

/// Whether the thread did not write the last text in time.
static IS_STALLED: AtomicBool = AtomicBool::new(false);

/// A text to show.
struct Shown {
    write: fn(String),
    text: String,
    /// Receives an item once it is written.
    done: SyncSender<()>,
}

impl Shown {
    fn write(self) {
        (self.write)(self.text);
        IS_STALLED.store(false, Ordering::Relaxed);
        // Nobody may wait for it any more.
        let _ = self.done.try_send(());
    }
}

/// Prints to stdout, ignoring errors: a closed stdout does not stop the relay.
fn print(output: String) {
    let _ = write(output);
}

/// Writes the output of a command to stdout, with escaped control characters.
///
/// # Errors
/// It cannot be written, a complete sentence; not if the reader has closed the pipe, as `| head` does.
pub fn write(output: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(output.as_ref());
    let mut out = stdout().lock();
    match out.write_all(printable(&text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::anyhow!("cannot write the output: {error}"))
        }
        _ => Ok(()),
    }
}

/// A text for stdout, with escaped control characters; on a terminal, colours are kept.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, stdout().is_terminal())
}

/// Writes a line about what goes wrong to stderr, with escaped control characters.
pub fn complain(text: impl Display) {
    let text = format!("{text}\n");
    let mut out = stderr().lock();
    // There is nowhere else to report that this fails.
    let _ = out.write_all(escaped(&text, out.is_terminal()).as_bytes());
}

/// Formats an error with its causes, without those that a message already ends with.
pub fn with_causes(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Returns whether a text contains characters that a terminal would obey.
pub fn is_harmful(text: &str) -> bool {
    text.contains(escape::is_harmful)
}

/// A value as indented JSON, with a newline at its end.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Returns the report of `relay record cut`, for programs.
pub fn cut_json(summary: &CutSummary, to: &Path) -> serde_json::Result<String> {
    let CutSummary { job, gpus, length_ms, bytes, lost_bytes } = summary;
    json(&serde_json::json!({
        "job": job.label,
        "name": job.name,
        "nodes": job.nodes.len(),
        "gpus": gpus,
        "length_ms": length_ms,
        "bytes": bytes,
        "is_cut_short": *lost_bytes > 0,
        "lost_bytes": lost_bytes,
        "file": to,
    }))
}

/// The running relays with their links, for programs.
///
/// # Errors
/// It cannot be written as JSON.
pub fn links_json(running: &[Running]) -> serde_json::Result<String> {
    let relay = |relay: &Running| {
        serde_json::json!({
            "pid": relay.pid,
            "version": relay.version,
            "since_s": relay.since_s,
            "watches": relay.watches,
            "addresses": relay.addresses,
            "read_only": relay.read_only,
            "links": relay.links,
            "tunnel": relay.tunnel,
            "own_tunnel": relay.own_tunnel,
        })
    };
    json(&running.iter().map(relay).collect::<Vec<_>>())
}

fn file_size(bytes: u64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} B"),
        1_000..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Returns the report of `relay record cut`.
pub fn cut(summary: &CutSummary, to: &Path) -> String {
    let CutSummary { job, gpus, length_ms, bytes, lost_bytes } = summary;
    let size = file_size(*bytes);
    let incomplete = match *lost_bytes {
        0 => String::new(),
        lost => format!(
            "  note     the last {} of the recording are damaged or incomplete, and left out\n",
            file_size(lost)
        ),
    };
    format!(
        "\n  job      {} ({}), {gpus} {} on {} {}, {}\n  hidden   arguments, paths, other users' processes\n  \
         file     {} ({size})\n{incomplete}  play     relay --replay {}\n\n",
        job.label,
        job.name,
        if *gpus == 1 { "GPU" } else { "GPUs" },
        job.nodes.len(),
        if job.nodes.len() == 1 { "node" } else { "nodes" },
        span(length_ms / 1_000),
        to.display(),
        to.display(),
    )
}

/// The same relay for the message at the start: where stdout is the journal, which administrators and others read for months, the
/// command that prints the link takes its place.
fn kept_out_of_journal(running: &Running) -> Cow<'_, Running> {
    let journal = std::env::var("JOURNAL_STREAM").ok();
    let stdout = rustix::fs::fstat(stdout()).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    if running.links.is_empty() || journal.is_none() || journal != stdout.ok() {
        return Cow::Borrowed(running);
    }
    let runtime_dir = std::env::var("XDG_RUNTIME_DIR").ok();
    Cow::Owned(without_link(running, runtime_dir.as_deref(), &Local::from_env().user))
}

fn without_link(running: &Running, runtime_dir: Option<&str>, user: &str) -> Running {
    let dir = runtime_dir.map(|dir| format!("env XDG_RUNTIME_DIR={dir} ")).unwrap_or_default();
    let command =
        format!("run as {user}: {dir}relay link   (it contains a key, which this log must not keep)");
    Running { links: vec![command], ..running.clone() }
}

/// Returns whether relays that were shown have links, and the output is a file that its group or everybody may read. A relay that only
/// its owner's proxy reaches has none.
fn exposes_links(shown: &[Running], output: impl AsFd) -> bool {
    shown.iter().any(|relay| !relay.links.is_empty())
        && rustix::fs::fstat(output).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o077 != 0
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    const PLAIN: Style = Style { colour: false };
    const COLOUR: Style = Style { colour: true };

    #[test]
    fn a_cause_that_a_message_contains_is_printed_once() {
        let denied = || std::io::Error::other("permission denied");
        let context = |text: &'static str| anyhow::Error::new(denied()).context(text);
        assert_eq!(with_causes(&context("read it")), "read it: permission denied");
        assert_eq!(with_causes(&context("~/x: permission denied")), "~/x: permission denied");
    }

    #[test]
    fn a_terminal_that_is_paused_does_not_stop_the_relay() {
        let hangs = |_| loop {
            std::thread::park();
        };
        (0..MAX_WAITING + 4).for_each(|_| show(hangs, "a notice\n".into()));
    }

    fn running() -> Running {
        Running {
            pid: 4711,
            version: "0.1.0".into(),
            since_s: 1_000,
            watches: "your jobs on lab".into(),
            requested_watch: "your SLURM jobs".into(),
            settings: Default::default(),
            addresses: vec!["127.0.0.1:8080".into()],
            links: vec!["http://127.0.0.1:8080/#k=secret".into()],
            tunnel: "ssh -L 8080:127.0.0.1:8080 alice@login1".into(),
            own_tunnel: Some("ssh -L 8080:/run/user/1001/nodeglass/4711.sock alice@login1".into()),
            is_socket_in_shared_place: false,
            read_only: false,
        }
    }

    #[test]
    fn the_start_message_names_target_link_and_how_to_stop() {
        assert_eq!(
            start_message(&running(), PLAIN),
            "
  nodeglass 0.1.0

  watching your jobs on lab
  link     http://127.0.0.1:8080/#k=secret
  tunnel   ssh -L 8080:/run/user/1001/nodeglass/4711.sock alice@login1   (on your laptop; no other user can listen there)
  or       ssh -L 8080:127.0.0.1:8080 alice@login1   (a port that others can bind while no relay runs)
  stop     press Ctrl-C; no process is left behind on the nodes

"
        );
    }

    #[test]
    fn t03_a_socket_in_a_shared_place_is_not_called_safe_for_longer_than_the_relay_runs() {
        let running = Running { is_socket_in_shared_place: true, ..running() };
        let text = start_message(&running, PLAIN);
        assert!(
            text.contains("(on your laptop; no other user can listen there while this relay runs)"),
            "{text}"
        );
    }

    #[test]
    fn t08_the_journal_gets_the_command_that_prints_the_link_instead_of_it() {
        let text = start_message(&without_link(&running(), Some("/run/nodeglass"), "nodeglass"), PLAIN);
        let command = "link     run as nodeglass: env XDG_RUNTIME_DIR=/run/nodeglass relay link ";
        assert!(text.contains(command) && !text.contains("secret"), "{text}");
        assert!(
            found(&without_link(&running(), None, "alice"), "", 0, PLAIN)
                .contains("run as alice: relay link ")
        );
    }

    #[test]
    fn a_running_relay_is_shown_with_its_age_and_link() {
        assert_eq!(
            found(&running(), "relay --new --bind 127.0.0.1:8081", 8_980, PLAIN),
            "
  nodeglass 0.1.0  already running (pid 4711, up 2 h 13 min)

  watching your jobs on lab
  link     http://127.0.0.1:8080/#k=secret
  tunnel   ssh -L 8080:/run/user/1001/nodeglass/4711.sock alice@login1   (on your laptop; no other user can listen there)
  or       ssh -L 8080:127.0.0.1:8080 alice@login1   (a port that others can bind while no relay runs)
  stop     press Ctrl-C in its terminal, or run kill 4711
  another  relay --new --bind 127.0.0.1:8081

"
        );
    }

    #[test]
    fn the_link_of_one_relay_is_bare_and_those_of_several_are_named() {
        let demo = Running {
            pid: 99,
            since_s: 7_900,
            watches: "a simulated cluster (demo)".into(),
            addresses: vec!["127.0.0.1:8091".into()],
            links: vec!["http://127.0.0.1:8091/#k=other".into()],
            ..running()
        };
        let links = |running: &[Running]| links(running, 8_980, LocalTime::utc, PLAIN);
        assert_eq!(links(&[running()]), "http://127.0.0.1:8080/#k=secret\n");
        assert_eq!(
            links(&[running(), demo]),
            "\
your jobs on lab            pid 4711  127.0.0.1:8080  since 00:16 (2 h 13 min)
  http://127.0.0.1:8080/#k=secret

a simulated cluster (demo)  pid 99    127.0.0.1:8091  since 02:11 (18 min)
  http://127.0.0.1:8091/#k=other
"
        );
    }

    #[test]
    fn only_a_link_in_a_file_that_others_can_read_is_exposed() {
        let file = tempfile::tempfile().unwrap();
        let exposes = |mode: u32, shown: &[Running]| {
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            exposes_links(shown, &file)
        };
        let of_proxy = Running { links: Vec::new(), ..running() };
        assert!(exposes(0o644, &[running()]) && exposes(0o640, &[of_proxy.clone(), running()]));
        assert!(!exposes(0o600, &[running()]), "nobody else can read it");
        assert!(!exposes(0o644, &[of_proxy]), "there is no link");
        assert!(!exposes_links(&[running()], std::io::pipe().unwrap().1), "a pipe is no file");
    }

    #[test]
    fn a_read_only_relay_is_announced() {
        let lines = start_message(&Running { read_only: true, ..running() }, PLAIN);
        assert!(lines.contains("\n  actions  disabled (--read-only)\n"), "{lines}");
    }

    #[test]
    fn colour_changes_nothing_but_the_colour() {
        let (plain, painted) = (start_message(&running(), PLAIN), start_message(&running(), COLOUR));
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
