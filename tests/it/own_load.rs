//! A relay among other users of a login node: throttled, short of memory, unused, and away from its home directory.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, TestRelay, binary};
use nodeglass_tests::{TIMEOUT, http, skip};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// `GET /status` of a relay.
fn status(link: &Link) -> Result<serde_json::Value> {
    let bearer = format!("Bearer {}", link.key.reveal());
    let reply = http::get(&link.authority, "/status", &[("Authorization", &bearer)])?;
    ensure!(reply.status == 200, "{}", reply.head);
    Ok(serde_json::from_str(&reply.body)?)
}

/// Waits until a text of `/status` is there, and returns it.
fn until_said(link: &Link, pointer: &str) -> Result<String> {
    let began = Instant::now();
    loop {
        let status = status(link)?;
        if let Some(said) = status.pointer(pointer).and_then(serde_json::Value::as_str) {
            println!("{pointer} after {:?}: {said}", began.elapsed());
            return Ok(said.to_owned());
        }
        ensure!(began.elapsed() < TIMEOUT, "{pointer} is still empty: {status}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// A control group of version 1, which is removed with its guard once no process is in it.
struct Group(PathBuf);

impl Group {
    /// Creates one; `None`, with a skip, where this machine has no such hierarchy or this is not root.
    fn new(controller: &str) -> Result<Option<Self>> {
        let root = Path::new("/sys/fs/cgroup").join(controller);
        if !skip::root() {
            return Ok(None);
        }
        if !root.join("cgroup.procs").exists() {
            skip::skip("this machine has no control groups of version 1");
            return Ok(None);
        }
        let group = Self(root.join(format!("nodeglass-test-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        Ok(Some(group))
    }

    /// A command that runs in the group.
    fn around(&self, inner: &Command) -> Command {
        let mut command = Command::new("/bin/sh");
        command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(["-c", "echo $$ > \"$GROUP/cgroup.procs\" && exec \"$0\" \"$@\""]);
        command.env("GROUP", &self.0).arg(inner.get_program()).args(inner.get_args());
        command
    }

    /// Memory of the group in bytes, once it hardly grows any more.
    fn settled_bytes(&self) -> Result<u64> {
        let (began, mut before) = (Instant::now(), 0);
        loop {
            let now: u64 = fs::read_to_string(self.0.join("memory.usage_in_bytes"))?.trim().parse()?;
            if now < before + (1 << 20) || began.elapsed() > TIMEOUT {
                return Ok(now);
            }
            before = now;
            thread::sleep(Duration::from_secs(3));
        }
    }

    fn set(&self, file: &str, value: impl ToString) -> Result<()> {
        fs::write(self.0.join(file), value.to_string()).with_context(|| format!("write {file}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let began = Instant::now();
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn f21_a_control_group_that_throttles_the_relay_is_noticed_and_nodes_are_sampled_slower() -> Result<()> {
    let Some(group) = Group::new("cpu")? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let mut demo = TestRelay::command(home.path())?;
    demo.args(["--demo", "--bind", "127.0.0.1:0"]);
    let mut relay = Process::start(&mut group.around(&demo))?;
    let link = relay.wait_for("a link", Link::find)?;
    ensure!(status(&link)?["own_load"]["slower_sampling"].is_null());
    // A hundredth of a core: less than the simulated cluster needs.
    group.set("cpu.cfs_period_us", 100_000)?;
    group.set("cpu.cfs_quota_us", 1_000)?;
    let said = until_said(&link, "/own_load/slower_sampling")?;
    group.set("cpu.cfs_quota_us", -1)?;
    ensure!(said.contains("was throttled for") && said.contains("nodes are sampled every"), "{said}");
    ensure!(status(&link)?["notices"].to_string().contains("nodes are sampled every"));
    drop(relay);
    Ok(())
}

#[test]
fn f20_a_control_group_whose_memory_is_used_up_makes_the_relay_drop_history_and_serve() -> Result<()> {
    let Some(group) = Group::new("memory")? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let mut demo = TestRelay::command(home.path())?;
    demo.args(["--demo", "--bind", "127.0.0.1:0"]);
    let mut relay = Process::start(&mut group.around(&demo))?;
    let link = relay.wait_for("a link", Link::find)?;
    ensure!(status(&link)?["own_load"]["dropped_history"].is_null());
    let used = group.settled_bytes()?;
    // A ninth more than it uses.
    group.set("memory.limit_in_bytes", used + used / 9)?;
    let said = until_said(&link, "/own_load/dropped_history")?;
    ensure!(said.starts_with("memory is short ("), "{said}");
    ensure!(status(&link)?["notices"].to_string().contains("memory is short"));
    drop(relay);
    Ok(())
}

#[test]
fn f20_a_limit_of_memory_that_a_relay_exceeds_is_stated_and_ends_nothing() -> Result<()> {
    // It holds the simulated nodes, too.
    let relay = TestRelay::start(&["--scenario", "large", "--memory-max", "64M", "--history-mem", "16M"])?;
    let limits = status(relay.link())?["own_load"].clone();
    ensure!(limits["memory_max_bytes"].as_u64() == Some(64 << 20), "{limits}");
    let by = limits["memory_limited_by"].as_str().context("how it is limited")?;
    relay.wait_for_text("memory is limited to 64 MiB by")?;
    if by != "dropped_history" {
        // The kernel would end it.
        return Ok(());
    }
    let said = until_said(relay.link(), "/own_load/dropped_history")?;
    ensure!(said.starts_with("memory is short ("), "{said}");
    let began = Instant::now();
    let private_kib = || -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", relay.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    // More than `RLIMIT_DATA` once allowed, which ended it.
    while private_kib()? < 128 << 10 {
        ensure!(began.elapsed() < TIMEOUT, "{} KiB", private_kib()?);
        std::thread::sleep(Duration::from_millis(200));
    }
    ensure!(status(relay.link())?["own_load"]["dropped_history"].is_string());
    Ok(())
}

#[test]
fn a_relay_that_nobody_uses_exits_by_itself_and_says_why() -> Result<()> {
    let home = tempfile::tempdir()?;
    let mut command = TestRelay::command(home.path())?;
    command.args(["--local", "--auto-exit", "10s", "--bind", "127.0.0.1:0"]);
    command.arg("--probe").arg(binary("node-probe")?);
    let mut relay = Process::start(&mut command)?;
    relay.wait_for("when it exits", |line| line.contains("exits after 10 s without jobs").then_some(()))?;
    let began = Instant::now();
    let exit = relay.wait()?;
    ensure!(exit.success() && began.elapsed() > Duration::from_secs(9), "{exit} after {:?}", began.elapsed());
    ensure!(
        relay.output().text().contains("no jobs, viewers or requests for 10 s"),
        "{}",
        relay.output().text()
    );
    Ok(())
}

/// Limit of what a relay of one machine holds, besides its program, in KiB: 6 MiB without a viewer.
const ONE_MACHINE_KIB: u64 = 16 * 1024;

#[test]
fn a_relay_of_one_machine_holds_little_memory_besides_its_program() -> Result<()> {
    let probe = binary("node-probe")?;
    let relay = TestRelay::start(&["--local", "--probe", probe.to_str().context("a path of letters")?])?;
    until_live(relay.link())?;
    let status = fs::read_to_string(format!("/proc/{}/status", relay.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
    let held: u64 = line.trim().trim_end_matches(" kB").parse()?;
    println!("{held} KiB");
    ensure!(held < ONE_MACHINE_KIB, "{held} KiB");
    Ok(())
}

/// Waits for the first sample.
fn until_live(link: &Link) -> Result<()> {
    let began = Instant::now();
    while status(link)?["nodes"]["live"].as_u64() != Some(1) {
        ensure!(began.elapsed() < TIMEOUT, "no node is live");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// For how long the system calls of a relay are traced.
const TRACED: Duration = Duration::from_secs(15);

/// Where the home directory is on a file server that hangs, a thread that touches it hangs as well.
#[test]
fn f25_in_steady_state_only_threads_of_the_disk_touch_the_home_directory() -> Result<()> {
    let Some([strace]) = skip::programs(["strace"]) else { return Ok(()) };
    let runtime = tempfile::tempdir()?;
    let probe = binary("node-probe")?;
    let probe = probe.to_str().context("a path of letters")?;
    let relay = TestRelay::start_in(
        &["--local", "--probe", probe],
        [("XDG_RUNTIME_DIR", runtime.path().as_os_str())],
    )?;
    // And with it all that is done once.
    until_live(relay.link())?;
    let trace = runtime.path().join("trace");
    let mut command = Command::new(strace);
    command.args(["-f", "-qq", "-y", "-e", "trace=file,desc", "-o"]).arg(&trace);
    command.args(["-p", &relay.pid().to_string()]);
    let mut tracer = Process::start(&mut command)?;
    thread::sleep(TRACED);
    let threads = names_of_threads(relay.pid())?;
    tracer.signal(rustix::process::Signal::INT)?;
    let _ = tracer.wait()?;
    let home = relay.home().to_str().context("a path of letters")?;
    let text = fs::read_to_string(&trace)?;
    ensure!(text.lines().count() > 20, "little was traced: {text}");
    let of_disk = ["history", "job-store", "stderr"];
    // The home is the relay's current folder, too, which an absolute path does not touch.
    let current = format!("AT_FDCWD<{home}>, \"/");
    let touching = text.lines().filter(|line| line.replace(&current, "").contains(home)).filter_map(|line| {
        let (thread, call) = line.split_once(' ')?;
        let name = threads.iter().find(|(id, _)| id == thread).map_or("", |(_, name)| name);
        // Checked on threads of their own. The file of the link is in the home only in this test.
        let is_checked = [".key>", ".key\"", "/tokens.json"].iter().any(|name| call.contains(name));
        (!of_disk.contains(&name) && !is_checked).then(|| format!("{name}: {}", call.trim()))
    });
    let touching: BTreeSet<String> = touching.collect();
    ensure!(touching.is_empty(), "{touching:#?}");
    Ok(())
}

/// The threads of a process, by id.
fn names_of_threads(pid: u32) -> Result<Vec<(String, String)>> {
    let folder = fs::read_dir(format!("/proc/{pid}/task"))?;
    folder
        .map(|thread| {
            let thread = thread?;
            let name = fs::read_to_string(thread.path().join("comm"))?;
            Ok((thread.file_name().to_string_lossy().into_owned(), name.trim().to_owned()))
        })
        .collect()
}
