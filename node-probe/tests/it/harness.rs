//! A node with a fake driver, and a running probe on it that is killed on drop.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's own machinery fails as its test does")]

use fake_nvml::install;
use nodeglass_protocol::probe::{
    Control, HealthReport, Hello, MAGIC, MAX_LINE, ProbeLine, ProcessList, Sample,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longer than any wait on a busy machine; reached only if a test fails.
pub const TIMEOUT: Duration = Duration::from_secs(40);

/// A driver library, and the state file that it reads.
pub struct Node {
    folder: TempDir,
    library: PathBuf,
}

impl Node {
    /// A node with a current driver.
    pub fn new(state: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = install::install(&folder.path().join("lib")).unwrap();
        let node = Self { folder, library };
        node.set(state);
        node
    }

    /// A node with a driver before 510.
    pub fn with_old_driver(state: &Value) -> Self {
        let mut node = Self::new(state);
        node.library = install::install_old_driver(&node.folder.path().join("old")).unwrap();
        node
    }

    /// Replaces the state file.
    pub fn set(&self, state: &Value) {
        let state = serde_json::from_value(state.clone()).unwrap();
        install::write_state(&self.state_path(), &state).unwrap();
    }

    /// Unloads the driver.
    pub fn unload(&self) {
        fs::remove_file(self.state_path()).unwrap();
    }

    /// The file that describes its GPUs.
    pub fn state_path(&self) -> PathBuf {
        self.folder.path().join("state.json")
    }

    /// The probe's command on this node.
    pub fn command(&self) -> Command {
        let mut command = probe();
        command.arg("--nvml").arg(&self.library).env("FAKE_NVML_STATE", self.state_path());
        // The GPUs of this machine do not matter.
        command.arg("--sysroot").arg(self.folder.path());
        command
    }

    /// The same, with its driver calls logged for [`Node::wait_for_calls`].
    pub fn logged_command(&self) -> Command {
        let mut command = self.command();
        command.env("FAKE_NVML_CALLS", self.calls_path());
        command
    }

    /// `node-probe selftest` on this node.
    pub fn selftest_command(&self) -> Command {
        let mut command = probe();
        command.arg("selftest").arg("--nvml").arg(&self.library).env("FAKE_NVML_STATE", self.state_path());
        command
    }

    fn calls_path(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    /// Waits until the number of calls of a function is greater than `seen` and then stays the same for 300 ms;
    /// returns it.
    pub fn wait_for_calls(&self, function: &str, seen: usize) -> usize {
        let start = Instant::now();
        let (mut count, mut since) = (seen, start);
        while count <= seen || since.elapsed() < Duration::from_millis(300) {
            assert!(start.elapsed() < TIMEOUT, "{function} was not called");
            let calls = fs::read_to_string(self.calls_path()).unwrap_or_default();
            let now = calls.lines().filter(|symbol| symbol.starts_with(function)).count();
            if now != count {
                (count, since) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(10));
        }
        count
    }

    /// A probe that samples twice a second and retries as slowly as on a cluster: it takes an inventory
    /// every 30 s, unless it has a reason to take one sooner.
    pub fn start_patient(&self) -> Probe {
        let mut probe = Probe::start(self.command());
        probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
        probe
    }

    /// Installs the same driver again, as an update does: a new file of the same name.
    pub fn reinstall(&self) {
        let new = install::install(&self.folder.path().join("new")).unwrap();
        fs::rename(new, &self.library).unwrap();
    }

    /// A probe that samples twice a second and retries a missing driver ten times a second.
    pub fn start(&self, arguments: &[&str]) -> Probe {
        let mut command = self.command();
        command.args(["--retry-ms", "100"]).args(arguments);
        let mut probe = Probe::start(command);
        probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
        probe
    }
}

/// The probe's command, without a node.
pub fn probe() -> Command {
    Command::new(env!("CARGO_BIN_EXE_node-probe"))
}

/// The last values, which following lines omit while they do not change.
#[derive(Default)]
struct Known {
    sample: Value,
    health: Vec<Value>,
    listed: Value,
    list_ns: Value,
}

impl Known {
    /// Adds the omitted values to a line.
    fn completed(&mut self, mut line: Value) -> Value {
        if let Some(sample) = line.get_mut("sample").filter(|sample| sample.get("replay").is_none()) {
            if let Some(since) = sample.get("since") {
                assert_eq!(*since, self.sample["seq"], "it continues another sample");
                *sample = merged(self.sample.clone(), sample.take());
            }
            self.sample = sample.clone();
        }
        if let Some(list) = line.pointer("/processes/processes").and_then(Value::as_array) {
            self.list_ns = line["processes"]["mono_ns"].clone();
            self.listed = list.iter().map(|process| process["now"].clone()).collect();
        }
        if let Some(gpus) = line.pointer("/health/gpus").and_then(Value::as_array) {
            self.health.clone_from(gpus);
        }
        if let Some(gpus) = line.pointer("/link_rates/gpus").and_then(Value::as_array) {
            for (health, rates) in self.health.iter_mut().zip(gpus) {
                for (at, link) in health["nvlinks"].as_array_mut().unwrap().iter_mut().enumerate() {
                    for name in ["rx_mib_s", "tx_mib_s"] {
                        link[name] = rates[name][at].clone();
                    }
                }
            }
            return json!({"health": {"gpus": self.health}});
        }
        if let Some(now) = line.pointer_mut("/process_readings/now") {
            assert_eq!(now.as_array().map(Vec::len), self.listed.as_array().map(Vec::len));
            *now = merged(self.listed.clone(), now.take());
        }
        if let Some(vitals) = line.get("process_readings") {
            assert_eq!(vitals["list_ns"], self.list_ns, "it belongs to another list");
        }
        line
    }
}

/// Merges `new` into `old`: objects by key, lists element by element if they have the same length.
fn merged(old: Value, new: Value) -> Value {
    match (old, new) {
        (Value::Object(mut all), Value::Object(new)) => {
            for (name, value) in new {
                let before = all.remove(&name).unwrap_or_default();
                all.insert(name, merged(before, value));
            }
            Value::Object(all)
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            old.into_iter().zip(new).map(|(old, new)| merged(old, new)).collect()
        }
        (_, new) => new,
    }
}

/// A running probe.
pub struct Probe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    lines: Option<Receiver<ProbeLine>>,
}

impl Probe {
    /// Starts and reads stdout.
    pub fn start(command: Command) -> Self {
        let mut probe = Self::start_unread(command);
        let stdout = probe.stdout.take().unwrap();
        let (lines, inbox) = channel();
        thread::spawn(move || {
            let mut magic = Some(MAGIC);
            let (mut known, mut whole) = (Known::default(), String::new());
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let line =
                    line.strip_prefix(magic.take().unwrap_or("")).expect("the first line has the magic");
                assert!(line.len() < MAX_LINE, "a line of {} bytes", line.len());
                let mut line: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if let Some(piece) = line.get("piece") {
                    whole += piece["text"].as_str().unwrap();
                    if piece["part"].as_u64().unwrap() + 1 < piece["parts"].as_u64().unwrap() {
                        continue;
                    }
                    line = serde_json::from_str(&std::mem::take(&mut whole)).unwrap();
                }
                let line = serde_json::from_value(known.completed(line)).unwrap();
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        probe.lines = Some(inbox);
        probe
    }

    /// Reads a stdout that was unread so far and joins pieces; omitted values are not added.
    pub fn read_raw(&mut self) -> impl Iterator<Item = Value> + use<> {
        let stdout = self.stdout.take().unwrap();
        let mut whole = String::new();
        BufReader::new(stdout).lines().map_while(Result::ok).filter_map(move |line| {
            let line: Value = serde_json::from_str(line.trim_start_matches(MAGIC)).unwrap();
            let Some(piece) = line.get("piece") else { return Some(line) };
            whole += piece["text"].as_str().unwrap();
            let is_last = piece["part"].as_u64().unwrap() + 1 == piece["parts"].as_u64().unwrap();
            is_last.then(|| serde_json::from_str(&std::mem::take(&mut whole)).unwrap())
        })
    }

    /// Starts without reading stdout.
    pub fn start_unread(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Self { child, stdin, stdout, lines: None }
    }

    /// Waits until its unread stdout has been full for three samples, twice a second.
    pub fn wait_until_blocked(&self) {
        let stdout = self.stdout.as_ref().expect("an unread probe");
        let start = Instant::now();
        let (mut unread, mut since) = (0, start);
        while unread == 0 || since.elapsed() < Duration::from_millis(1_600) {
            assert!(start.elapsed() < TIMEOUT, "the pipe did not fill");
            let now_unread = rustix::io::ioctl_fionread(stdout).unwrap();
            if now_unread != unread {
                (unread, since) = (now_unread, Instant::now());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a control line; one to a probe that has just ended is lost.
    pub fn send(&mut self, control: &Control) {
        self.send_line(&serde_json::to_string(control).unwrap());
    }

    pub fn send_line(&mut self, line: &str) {
        let _ = writeln!(self.stdin.as_mut().unwrap(), "{line}");
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub fn close_stdout(&mut self) {
        (self.stdout, self.lines) = (None, None);
    }

    /// The next line.
    pub fn line(&mut self) -> ProbeLine {
        self.lines.as_ref().unwrap().recv_timeout(TIMEOUT).expect("a line in time")
    }

    /// Waits for the first line for which `pick` returns a value.
    pub fn until<T>(&mut self, mut pick: impl FnMut(ProbeLine) -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(found) = pick(self.line()) {
                return found;
            }
        }
        panic!("the expected line did not arrive");
    }

    /// The next hello that satisfies a predicate.
    pub fn hello(&mut self, wanted: impl Fn(&Hello) -> bool) -> Hello {
        self.until(|line| match line {
            ProbeLine::Hello(hello) if wanted(&hello) => Some(*hello),
            _ => None,
        })
    }

    /// The next sample that satisfies a predicate.
    pub fn sample(&mut self, wanted: impl Fn(&Sample) -> bool) -> Sample {
        self.until(|line| match line {
            ProbeLine::Sample(sample) if wanted(&sample) => Some(*sample),
            _ => None,
        })
    }

    /// The next process list that satisfies a predicate.
    pub fn processes(&mut self, wanted: impl Fn(&ProcessList) -> bool) -> ProcessList {
        self.until(|line| match line {
            ProbeLine::Processes(list) if wanted(&list) => Some(list),
            _ => None,
        })
    }

    /// The next health report that satisfies a predicate.
    pub fn health(&mut self, wanted: impl Fn(&HealthReport) -> bool) -> HealthReport {
        self.until(|line| match line {
            ProbeLine::Health(report) if wanted(&report) => Some(report),
            _ => None,
        })
    }

    /// The next process list with processes and the next health report, which arrive in either order.
    pub fn processes_and_health(&mut self) -> (ProcessList, HealthReport) {
        let (mut list, mut health) = (None, None);
        self.until(|line| {
            match line {
                ProbeLine::Processes(next) if !next.processes.is_empty() => list = Some(next),
                ProbeLine::Health(next) => health = Some(next),
                _ => {}
            }
            if list.is_some() && health.is_some() { list.take().zip(health.take()) } else { None }
        })
    }

    /// The reason in its `bye` line.
    pub fn bye(&mut self) -> String {
        self.until(|line| match line {
            ProbeLine::Bye(bye) => Some(bye.reason.to_string()),
            _ => None,
        })
    }

    /// Waits until it exits.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the probe did not end");
    }

    /// Its stderr, after it has exited.
    pub fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
