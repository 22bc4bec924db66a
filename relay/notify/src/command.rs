//! A command that is run for each notice: its arguments as configured, the event as JSON on standard input.

use nodeglass_platform::program;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, Command};
use tokio::time::timeout;

/// Time limit of the command.
const LIMIT: Duration = Duration::from_secs(30);
/// Time for which its output is read after it has ended.
const LAST_OUTPUT: Duration = Duration::from_millis(200);
/// Maximum length of the end of its standard error that is kept, in bytes.
const MAX_STDERR: usize = 4_096;

/// Program and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyCommand {
    words: Vec<String>,
    /// Syntax that only a shell interprets, such as `>>`.
    shell_syntax: Option<String>,
}

/// Error of running a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It cannot be started.
    #[error("failed to start {0}: {1}")]
    Start(String, std::io::Error),
    /// Its exit status cannot be read.
    #[error("failed to wait for {0}: {1}")]
    Wait(String, std::io::Error),
    /// It ran for too long and was ended.
    #[error("{0} did not exit within {n} s", n = LIMIT.as_secs())]
    TimedOut(String),
    /// It failed.
    #[error("{0} ended with {end}{2}", end = end(*.1))]
    Failed(String, ExitStatus, String),
    /// It failed, perhaps because it needs a shell.
    #[error("{0}; {1}: {ADVICE}")]
    NeedsShell(Box<CommandError>, String),
}

/// Advice on a command that needs a shell.
pub(super) const ADVICE: &str = "write sh -c '…' with the whole command between the quotes";

/// Formats the end of a command: `exit status 3`, `signal 9`.
fn end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

impl CommandError {
    /// Returns whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            // `EX_TEMPFAIL` of sysexits.h.
            Self::Failed(_, status, _) => status.code() == Some(75),
            Self::NeedsShell(error, _) => error.is_transient(),
            Self::Start(..) | Self::Wait(..) | Self::TimedOut(_) => false,
        }
    }
}

impl FromStr for NotifyCommand {
    type Err = String;

    /// Splits words as a shell does; nothing else is interpreted.
    fn from_str(raw: &str) -> Result<Self, String> {
        let words = shlex::split(raw).ok_or("a quote is not closed")?;
        if words.is_empty() {
            return Err("the command is empty".to_owned());
        }
        Ok(Self { shell_syntax: shell_syntax(raw, &words), words })
    }
}

/// The first syntax in a command that only a shell interprets: an operator, a variable, `~`, or an assignment before the
/// program. What is quoted is meant as it is, and so is a variable in the script of `sh -c "…"`.
fn shell_syntax(raw: &str, words: &[String]) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some((name, _)) = words.first().and_then(|program| program.split_once('='))
        && name.chars().all(is_name)
    {
        return Some(format!("{name}="));
    }
    let has_script = words.iter().any(|word| {
        word.strip_prefix('-').is_some_and(|flags| flags.ends_with('c') && !flags.starts_with('-'))
    });
    let (mut quote, mut begins_word) = (None, true);
    let mut chars = raw.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let run = |of: fn(char) -> bool| {
            let rest = raw[at + c.len_utf8()..].chars();
            Some([c].into_iter().chain(rest.take_while(|next| of(*next))).collect())
        };
        let next = chars.peek().map(|(_, next)| *next);
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => drop(chars.next()),
            (None, '\'' | '"') => quote = Some(c),
            (Some(_), _) if has_script => {}
            (_, '`') => return Some("`".to_owned()),
            (_, '$') if next.is_some_and(|next| is_name(next) || "{(".contains(next)) => {
                return run(|c| c.is_ascii_alphanumeric() || "_{(".contains(c));
            }
            (None, '|' | '&' | ';' | '<' | '>') => return run(|c| "|&;<>".contains(c)),
            (None, '~') if begins_word && next.is_none_or(|next| next == '/' || next.is_whitespace()) => {
                return Some("~".to_owned());
            }
            _ => {}
        }
        begins_word = quote.is_none() && c.is_whitespace();
    }
    None
}

impl NotifyCommand {
    /// The program without its arguments, which may be secret.
    pub fn program(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Returns the path of the program: its name if that is a path, else a file on the `PATH`; `None` if no such file
    /// is executable.
    pub fn locate(&self) -> Option<PathBuf> {
        let name = self.program();
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|path| program::is_executable(path));
        }
        program::find(name)
    }

    /// States that the command has syntax that only a shell interprets, if it has.
    pub fn needs_shell(&self) -> Option<String> {
        let syntax = self.shell_syntax.as_ref()?;
        Some(format!("the command is not run by a shell, so {syntax} is passed on literally"))
    }

    /// Runs it once.
    ///
    /// # Errors
    /// It cannot be started, fails, or does not end within 30 s.
    pub async fn run(&self, event: &str, json: &Value) -> Result<(), CommandError> {
        let explained = |error| match self.needs_shell() {
            Some(why) => CommandError::NeedsShell(Box::new(error), why),
            None => error,
        };
        self.run_program(event, json).await.map_err(explained)
    }

    async fn run_program(&self, event: &str, json: &Value) -> Result<(), CommandError> {
        let Some((program, args)) = self.words.split_first() else { return Ok(()) };
        let mut child = Command::new(program)
            .args(args)
            .env("NODEGLASS_EVENT", event)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // With a group of its own, what it starts ends with it at the limit.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| CommandError::Start(program.clone(), error))?;
        let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let input = format!("{json}\n");
        let mut text = Vec::new();
        let run = async {
            let streams = async { tokio::join!(write_all(stdin, &input), read_end(stderr, &mut text)) };
            tokio::pin!(streams);
            tokio::select! {
                _ = &mut streams => child.wait().await,
                status = child.wait() => {
                    // A process that it left in the background may keep its standard error open.
                    let _ = timeout(LAST_OUTPUT, streams).await;
                    status
                }
            }
        };
        let Ok(status) = timeout(LIMIT, run).await else {
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            return Err(CommandError::TimedOut(program.clone()));
        };
        let status = status.map_err(|error| CommandError::Wait(program.clone(), error))?;
        if status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&text);
        let last = stderr.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
        Err(CommandError::Failed(program.clone(), status, last))
    }
}

/// Writes a command's input. A command that does not read it is not at fault.
async fn write_all(stdin: Option<ChildStdin>, input: &str) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input.as_bytes()).await;
    }
}

/// Reads the standard error of a command to its end: it must not wait for a reader, and states last why it fails.
async fn read_end(stderr: Option<ChildStderr>, text: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let mut part = vec![0; MAX_STDERR];
    while let Ok(read @ 1..) = stderr.read(&mut part).await {
        text.extend_from_slice(&part[..read]);
        text.drain(..text.len().saturating_sub(MAX_STDERR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(raw: &str) -> NotifyCommand {
        raw.parse().unwrap()
    }

    #[test]
    fn words_are_split_as_in_a_shell_and_nothing_is_expanded() {
        assert_eq!(command("notify-send 'a b' $HOME `x`").words, ["notify-send", "a b", "$HOME", "`x`"]);
        assert!("".parse::<NotifyCommand>().is_err() && "a 'b".parse::<NotifyCommand>().is_err());
    }

    #[test]
    fn syntax_that_needs_a_shell_is_named_unless_it_is_meant_as_it_is() {
        let syntax = |raw: &str| command(raw).shell_syntax.unwrap_or_default();
        for (raw, named) in [
            ("cat >> findings.log", ">>"),
            ("cat >file", ">"),
            ("jq .summary | mail -s x me", "|"),
            ("true && notify-send x", "&&"),
            ("logger x; true", ";"),
            ("cat 2>&1", ">&"),
            ("notify-send $NODEGLASS_EVENT", "$NODEGLASS_EVENT"),
            ("notify-send \"on ${HOSTNAME}\"", "${HOSTNAME"),
            ("notify-send \"$(hostname)\"", "$(hostname"),
            ("notify-send `hostname`", "`"),
            ("~/bin/hook --x", "~"),
            ("hook ~", "~"),
            ("LANG=C hook", "LANG="),
            ("sh -c 'cat' | mail me", "|"),
        ] {
            assert_eq!(syntax(raw), named, "{raw}");
        }
        for raw in [
            "sh -c 'cat >> findings.log'",
            "bash -lc \"cat > $HOME/findings\"",
            "notify-send 'a | b' \"c & d\" e\\;f",
            "hook --price 5$ a~b --key=x=y https://x/?a=~",
            "/opt/a=b/hook x",
        ] {
            assert_eq!(syntax(raw), "", "{raw}");
        }
    }

    #[tokio::test]
    async fn a_failure_of_a_command_that_needs_a_shell_says_how_to_write_it() {
        let error = command("ls >> /no-such-dir/file").run("finding", &json!({})).await.unwrap_err();
        let (error, is_transient) = (error.to_string(), error.is_transient());
        assert!(error.starts_with("ls ended with exit status") && !is_transient, "{error}");
        assert!(error.ends_with(&format!("so >> is passed on literally: {ADVICE}")), "{error}");
    }

    #[test]
    fn a_program_is_found_by_path_or_name_only_if_it_may_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("notes.txt");
        std::fs::write(&plain, "").unwrap();
        assert_eq!(command(&format!("{} x", plain.display())).locate(), None);
        assert_eq!(command("/bin/sh -c true").locate(), Some("/bin/sh".into()));
        assert!(command("sh -c true").locate().is_some_and(|path| path.ends_with("sh")));
        assert_eq!(command("no-such-program-here").locate(), None);
    }

    #[tokio::test]
    async fn the_event_is_on_standard_input_and_in_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let script = format!("cat > {0}; echo $NODEGLASS_EVENT >> {0}", out.display());
        command(&format!("sh -c '{script}'")).run("finding", &json!({ "x": 1 })).await.unwrap();
        assert_eq!(std::fs::read_to_string(out).unwrap(), "{\"x\":1}\nfinding\n");
    }

    #[tokio::test]
    async fn a_failure_is_reported_with_the_last_line_of_its_output() {
        let error =
            command("sh -c 'echo first >&2; echo last >&2; exit 75'").run("finding", &json!({})).await;
        let error = error.unwrap_err();
        assert!(error.is_transient() && error.to_string().ends_with(": last"), "{error}");
        let error = command("false").run("finding", &json!({})).await.unwrap_err();
        assert!(!error.is_transient());
        assert_eq!(error.to_string(), "false ended with exit status 1");
        command("true").run("finding", &json!({ "long": "x".repeat(1 << 20) })).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_may_leave_a_process_in_the_background() {
        let pids = tempfile::NamedTempFile::new().unwrap();
        let leaving = |end: &str| {
            // Longer than the command may run.
            command(&format!("sh -c 'sleep 40 & echo $! >> {}; {end}'", pids.path().display()))
        };
        leaving("exit 0").run("finding", &json!({})).await.unwrap();
        let error = leaving("echo why >&2; exit 1").run("finding", &json!({})).await.unwrap_err();
        assert!(error.to_string().ends_with(": why"), "{error}");
        for pid in std::fs::read_to_string(pids.path()).unwrap().lines() {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
    }

    #[tokio::test]
    async fn a_command_that_writes_without_end_does_not_fill_the_memory() {
        command("sh -c 'head -c 3000000 /dev/zero >&2'").run("finding", &json!({})).await.unwrap();
    }
}
