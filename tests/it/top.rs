//! `relay top` in a terminal: attached to a relay, on its own, and next to nvitop.

use anyhow::{Context, Result, ensure};
use futures_util::{SinkExt, StreamExt};
use nodeglass_protocol::Picture;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{CloseReason, ServerMessage};
use nodeglass_protocol::version::{SUBPROTOCOL_BINARY, VersionRange};
use nodeglass_tests::machine::Machine;
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, TestRelay, binary};
use nodeglass_tests::tmux::Tmux;
use nodeglass_tests::{TIMEOUT, test_tools};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// `relay top ARGS…` of the user with this home.
fn top(home: &Path, args: &[&str]) -> Result<Command> {
    let mut command = TestRelay::command(home)?;
    command.arg("top").args(args);
    Ok(command)
}

/// A line of the screen that contains all these words.
fn has_line(screen: &str, words: &[&str]) -> bool {
    screen.lines().any(|line| words.iter().all(|word| line.contains(word)))
}

/// A process that lives as long as the test.
struct Worker(Child);

impl Worker {
    fn start() -> Result<Self> {
        Ok(Self(Command::new("sleep").arg("600").spawn()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn top_attaches_to_the_running_relay_at_every_size() -> Result<()> {
    let relay = TestRelay::demo()?;
    let Some(terminal) = Tmux::start((80, 24), &top(relay.home(), &[])?)? else { return Ok(()) };
    let is_full = |screen: &str| {
        has_line(screen, &["cluster juniper", "● live"])
            && has_line(screen, &["━━ Jobs"])
            && has_line(screen, &["── GPUs 140 on 21 nodes"])
            && has_line(screen, &["── Processes", "on desk01"])
            && has_line(screen, &["GPU 0", "alice", "GiB"])
    };
    let screen = terminal.wait_for("all panes at 80×24", is_full)?;
    ensure!(screen.lines().last().is_some_and(|line| line.starts_with("? keys")), "{screen}");
    ensure!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    ensure!(!screen.contains("MODEL"), "{screen}");
    let jobs = screen
        .lines()
        .skip_while(|line| !line.contains("━━ Jobs"))
        .take_while(|line| !line.contains("── GPUs"));
    ensure!(jobs.count() > 12, "a compact screen shows more than a few jobs: {screen}");

    terminal.resize(200, 50)?;
    let is_large = |screen: &str| {
        screen.lines().count() == 50
            && has_line(screen, &["UTIL", "MEMORY GiB", "POWER W", "FLAGS", "LAST 10 MIN", "MODEL"])
            && has_line(screen, &["48213", "llama3-8b-pretrain", "rank 35 slower than its peers"])
    };
    terminal.wait_for("all columns at 200×50", is_large)?;

    terminal.resize(40, 12)?;
    terminal
        .wait_for("one pane at 40×12", |screen| screen.contains("━━ Jobs") && !screen.contains("── "))?;
    terminal.resize(30, 8)?;
    terminal.wait_for("a note", |screen| {
        screen.contains("40 × 12 needed") && screen.contains("this is 30 × 8")
    })?;
    terminal.resize(80, 24)?;
    terminal.wait_for("all panes again", is_full)?;
    terminal.press(&["q"])?;
    ensure!(terminal.exit_code()? == 0);
    let screen = terminal.screen()?;
    ensure!(!screen.contains("Jobs"), "the shell's screen is back: {screen}");
    Ok(())
}

#[test]
fn a_suspended_top_returns_the_terminal_and_continues() -> Result<()> {
    let relay = TestRelay::demo()?;
    let Some(terminal) = Tmux::start((80, 24), &top(relay.home(), &[])?)? else { return Ok(()) };
    let is_shown = |screen: &str| has_line(screen, &["━━ Jobs"]);
    terminal.wait_for("a screen", is_shown)?;
    terminal.press(&["C-z"])?;
    terminal.wait_for("the shell", |screen| screen.contains("Stopped") && !is_shown(screen))?;
    terminal.line("echo it $((20 + 3)) echoes")?;
    terminal.wait_for("what was typed, and its result", |screen| {
        screen.contains("echo it $((20 + 3)) echoes") && screen.contains("\nit 23 echoes")
    })?;
    terminal.line("fg")?;
    terminal.wait_for("the screen again", is_shown)?;
    terminal.press(&["C-c"])?;
    ensure!(terminal.exit_code()? == 0);
    Ok(())
}

#[test]
fn a_confirmed_signal_ends_a_real_process_and_an_unconfirmed_one_does_not() -> Result<()> {
    let mut worker = Worker::start()?;
    let pid = worker.0.id();
    let machine =
        Machine::start(&json!({"gpus": [{"util": 61, "processes": [{"pid": pid, "mem_mib": 3_000}]}]}))?;
    let Some(terminal) = Tmux::start((100, 30), &top(machine.relay().home(), &[])?)? else { return Ok(()) };
    let own = pid.to_string();
    terminal.wait_for("the process", |screen| has_line(screen, &[&own, "2.9 GiB", "sleep 600"]))?;
    let question = format!("Send SIGTERM to pid {pid}");
    terminal.press(&["Tab", "T"])?;
    terminal.wait_for("a question", |screen| screen.contains(&question))?;
    terminal.press(&["n"])?;
    terminal.wait_for("no question", |screen| !screen.contains(&question))?;
    ensure!(worker.0.try_wait()?.is_none(), "it was not confirmed");
    terminal.press(&["T"])?;
    terminal.wait_for("a question", |screen| screen.contains(&question))?;
    terminal.press(&["y"])?;
    terminal.wait_for("a result", |screen| screen.contains(&format!("● sent SIGTERM to {pid} (sleep)")))?;
    let start = Instant::now();
    while worker.0.try_wait()?.is_none() {
        ensure!(start.elapsed() < TIMEOUT, "the process still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_read_only_relay_sends_no_signal_from_top() -> Result<()> {
    let relay = TestRelay::start(&["--demo", "--read-only"])?;
    let Some(terminal) = Tmux::start((100, 30), &top(relay.home(), &[])?)? else { return Ok(()) };
    terminal.wait_for("processes", |screen| has_line(screen, &["GPU 0", "alice", "GiB"]))?;
    terminal.press(&["Tab", "Tab", "K"])?;
    terminal.wait_for("a refusal", |screen| screen.contains("◆ this relay was started with --read-only"))?;
    Ok(())
}

#[test]
fn top_follows_a_relay_through_its_restart() -> Result<()> {
    let home = tempfile::tempdir()?;
    let start = || -> Result<Process> {
        let mut command = TestRelay::command(home.path())?;
        let mut relay = Process::start(command.args(["--demo", "--bind", "127.0.0.1:0"]))?;
        relay.wait_for("a link", Link::find)?;
        Ok(relay)
    };
    let mut first = start()?;
    let Some(terminal) = Tmux::start((120, 30), &top(home.path(), &[])?)? else { return Ok(()) };
    terminal
        .wait_for("a live screen", |screen| has_line(screen, &["● live"]) && has_line(screen, &["48213"]))?;
    first.signal(Signal::TERM)?;
    let stopped = format!("▲ the relay (pid {}) was stopped; retrying", first.pid());
    let screen = terminal.wait_for("the end of the relay", |screen| screen.contains(&stopped))?;
    ensure!(has_line(&screen, &["48213"]), "the last values stay: {screen}");
    first.wait()?;
    let _second = start()?;
    terminal
        .wait_for("the next relay", |screen| has_line(screen, &["● live"]) && has_line(screen, &["48213"]))?;
    Ok(())
}

/// Files below a folder.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path.display().to_string()),
        }
    }
    Ok(found)
}

/// Pids of the probes that were started with this home.
fn probes(home: &Path) -> Vec<String> {
    let home = format!("HOME={}", home.display());
    let is_ours = |pid: &str| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&read("cmdline")).contains("node-probe")
            && String::from_utf8_lossy(&read("environ")).split('\0').any(|variable| variable == home)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && is_ours(name)).collect()
}

#[test]
fn without_a_relay_top_watches_on_its_own_and_leaves_nothing_behind() -> Result<()> {
    let home = tempfile::tempdir()?;
    let Some(terminal) = Tmux::start((100, 30), &top(home.path(), &["--local"])?)? else { return Ok(()) };
    terminal.wait_for("this machine", |screen| {
        has_line(screen, &["this machine", "● live"]) && has_line(screen, &["RAM"])
    })?;
    ensure!(probes(home.path()).len() == 1, "a probe runs: {:?}", probes(home.path()));
    terminal.press(&["q"])?;
    ensure!(terminal.exit_code()? == 0);
    ensure!(probes(home.path()).is_empty(), "{:?}", probes(home.path()));
    ensure!(files(home.path())?.is_empty(), "{:?}", files(home.path())?);

    // The same where the terminal is closed.
    let Some(terminal) = Tmux::start((100, 30), &top(home.path(), &["--local"])?)? else { return Ok(()) };
    terminal.wait_for("this machine", |screen| has_line(screen, &["RAM"]))?;
    drop(terminal);
    let start = Instant::now();
    while !probes(home.path()).is_empty() {
        ensure!(start.elapsed() < TIMEOUT, "left behind: {:?}", probes(home.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
    ensure!(files(home.path())?.is_empty(), "{:?}", files(home.path())?);
    Ok(())
}

#[test]
fn what_the_command_line_says_is_watched_even_beside_another_relay() -> Result<()> {
    let relay = TestRelay::start(&["--local"])?;
    let once = relay.run(&["top", "--once", "--demo"])?;
    ensure!(once.contains("cluster juniper"), "{once}");
    let once = relay.run(&["top", "--once"])?;
    ensure!(once.contains("this machine"), "{once}");
    Ok(())
}

#[test]
fn one_frame_is_plain_text_of_the_requested_width() -> Result<()> {
    let relay = TestRelay::demo()?;
    for columns in [40, 120] {
        let mut command = top(relay.home(), &["--once"])?;
        let output = command.env("COLUMNS", columns.to_string()).output()?;
        let text = String::from_utf8(output.stdout)?;
        ensure!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(!text.contains('\x1b'), "escape sequences: {text}");
        let longest = text.lines().map(|line| line.chars().count()).max();
        ensure!(longest == Some(columns), "{longest:?} of {columns}: {text}");
        ensure!(
            has_line(&text, &["gpu-h01"]) && has_line(&text, &["GPU 7", "torchtitan"]) == (columns > 40),
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn one_frame_shows_what_the_options_of_nvitop_leave_in_ascii() -> Result<()> {
    let relay = TestRelay::demo()?;
    let some = relay.run(&["top", "-1U", "-o", "1", "--hide-ended", "-u", "alice"])?;
    ensure!(some.is_ascii(), "{some}");
    ensure!(has_line(&some, &[" GPU 1 "]) && !has_line(&some, &[" GPU 0 "]), "{some}");
    ensure!(has_line(&some, &["-- Jobs", "ended ones hidden, SLURM"]), "{some}");
    ensure!(
        has_line(&some, &["-- GPUs", "only 1, read"]) && has_line(&some, &["-- Processes", "of alice"]),
        "{some}"
    );
    Ok(())
}

#[test]
fn a_link_named_nvl_lists_gpus_as_nvgpu_does() -> Result<()> {
    let relay = TestRelay::demo()?;
    let link = relay.home().join("nvl");
    std::os::unix::fs::symlink(binary("relay")?, &link)?;
    let environment = TestRelay::command(relay.home())?;
    let start = Instant::now();
    // Until the node was read, it lists none.
    loop {
        let mut nvl = Command::new(&link);
        nvl.env_clear().envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = nvl.args(["--node", "gpu-h01", "--json"]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let gpus: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        if gpus.len() == 8 && gpus.iter().all(|gpu| gpu["node"] == "gpu-h01") {
            return Ok(());
        }
        ensure!(start.elapsed() < TIMEOUT, "{gpus:?}");
    }
}

#[test]
fn one_picture_as_json_has_every_node_in_full() -> Result<()> {
    let home = tempfile::tempdir()?;
    let output = top(home.path(), &["--once", "--json", "--demo"])?.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let picture: Picture = serde_json::from_slice(&output.stdout)?;
    ensure!(picture.nodes.len() == 21 && picture.jobs.len() > 30, "{} nodes", picture.nodes.len());
    let is_full = |name: &str| {
        let node = picture.nodes.iter().find(|node| node.name.as_str() == name);
        node.is_some_and(|node| node.processes.len() >= 8 && node.gpus.len() == 8)
    };
    ensure!(is_full("gpu-h01") && is_full("gpu-h09"));
    ensure!(files(home.path())?.is_empty(), "{:?}", files(home.path())?);
    Ok(())
}

#[test]
fn a_closed_pipe_ends_top_quietly() -> Result<()> {
    let home = tempfile::tempdir()?;
    let mut command = top(home.path(), &["--once", "--demo"])?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    // A busy machine may start no probe in time, which is stated there.
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_quiet = stderr.lines().all(|line| line.contains("no connection to the node"));
    ensure!(output.status.success() && is_quiet, "{output:?}");
    Ok(())
}

#[test]
fn without_a_terminal_top_says_so_with_its_own_exit_code() -> Result<()> {
    let home = tempfile::tempdir()?;
    let output = top(home.path(), &["--demo"])?.output()?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(3) && output.stdout.is_empty(), "{output:?}");
    ensure!(message.contains("needs a terminal") && message.contains("--once"), "{message}");

    let mut command = top(home.path(), &["--demo"])?;
    command.env("TERM", "dumb");
    let Some(terminal) = Tmux::start((80, 24), &command)? else { return Ok(()) };
    ensure!(terminal.exit_code()? == 3);
    ensure!(terminal.screen()?.contains("TERM is not set, or is dumb"), "{}", terminal.screen()?);
    Ok(())
}

#[test]
fn a_relay_that_does_not_exist_is_an_error() -> Result<()> {
    let home = tempfile::tempdir()?;
    let output = top(home.path(), &["--once", "--relay", "1"])?.output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(message.contains("no relay of yours has pid 1"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_relay_of_another_version_is_named_with_its_own_exit_code() -> Result<()> {
    let relay = TestRelay::demo()?;
    // Another program takes the place of its socket, and responds as a newer relay would.
    let socket = relay.home().join(format!("nodeglass/{}.sock", relay.pid()));
    fs::remove_file(&socket).with_context(|| format!("{:?}", files(relay.home())))?;
    let listener = UnixListener::bind(&socket)?;
    let newer = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        // The library's type.
        #[expect(clippy::result_large_err, reason = "the signature is that of the library's callback")]
        let choose = |_: &Request, mut response: Response| {
            let chosen = HeaderValue::from_static(SUBPROTOCOL_BINARY);
            response.headers_mut().insert("Sec-WebSocket-Protocol", chosen);
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, choose).await?;
        socket.next().await.context("a hello")??;
        let bye = ServerMessage::Bye(CloseReason::Version { relay: VersionRange { min: 3, max: 5 } });
        socket.send(Message::Binary(Form::Binary.encode(&bye).into())).await?;
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
        anyhow::Ok(())
    });
    let mut command = top(relay.home(), &["--once"])?;
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    newer.await??;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(4), "{output:?}");
    ensure!(message.contains("is of another version") && message.contains("versions 3 to 5"), "{message}");
    Ok(())
}

/// A machine with two GPUs, of which one works for a process of ours.
fn gpus(pid: u32) -> Value {
    json!({"gpus": [
        {"util": 97, "temp": 66, "power_mw": 301_000, "processes": [{"pid": pid, "mem_mib": 2_048}]},
        {"util": 12, "temp": 41, "power_mw": 80_000},
    ]})
}

#[test]
fn top_shows_what_nvitop_shows_on_the_same_driver() -> Result<()> {
    let worker = Worker::start()?;
    let pid = worker.0.id().to_string();
    let machine = Machine::start(&gpus(worker.0.id()))?;
    for size in [(80, 24), (200, 50)] {
        let Some(ours) = Tmux::start(size, &top(machine.relay().home(), &[])?)? else { return Ok(()) };
        let readings = |screen: &str| {
            has_line(screen, &["GPU 0", "97 %", "301/", " 66 "])
                && has_line(screen, &["GPU 1", "12 %", "80/", " 41 "])
                && has_line(screen, &[&pid, "2.0 GiB", "sleep 600"])
        };
        ours.wait_for("both GPUs and the process", readings)?;

        let Some(peers) = test_tools::peers() else { return Ok(()) };
        let mut nvitop = Command::new(peers.join("nvitop"));
        nvitop
            .args(["--colorful", "--monitor", "full"])
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        nvitop.envs(machine.environment()).env("HOME", machine.relay().home());
        // Its full view of two GPUs and a process needs more lines than 24.
        let Some(theirs) = Tmux::start((size.0, 60), &nvitop)? else { return Ok(()) };
        theirs.wait_for("the same in nvitop", |screen| {
            has_line(screen, &["66C", "301W"])
                && has_line(screen, &["97%"])
                && has_line(screen, &["41C", "80W"])
                && has_line(screen, &["12%"])
                && has_line(screen, &[&pid, "2048MiB"])
        })?;
    }
    Ok(())
}
