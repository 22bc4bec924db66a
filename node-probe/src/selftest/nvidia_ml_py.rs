//! The reference nvidia-ml-py: NVIDIA's own bindings of NVML, in a Python process that runs a script of this program.

use super::judge::Observed;
use super::snapshot::{self, Key, OF_PROCESSES, Snapshot};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs, io,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// The script; it answers each line with the readings of all GPUs.
const SCRIPT: &str = include_str!("nvidia_ml_py.py");
/// Maximum length of an answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// A running Python.
pub struct NvidiaMlPy {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Version of nvidia-ml-py.
    pub version: String,
}

impl NvidiaMlPy {
    /// Starts Python with the wheel beside this program, if there is one; `library` is the NVML library to load instead of
    /// the driver's.
    ///
    /// # Errors
    /// If there is no Python, no nvidia-ml-py, or NVML fails.
    pub fn start(library: Option<&Path>) -> io::Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).env("PYTHONPATH", path_with("PYTHONPATH", wheels()));
        if let Some(folder) = library.and_then(Path::parent) {
            command.env("LD_LIBRARY_PATH", path_with("LD_LIBRARY_PATH", vec![folder.to_owned()]));
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = BufReader::new(stdout.ok_or_else(|| io::Error::other("no pipe"))?);
        let mut it = Self { child, stdin, stdout, version: String::new() };
        it.version = it.answer()?["version"].as_str().unwrap_or_default().to_owned();
        Ok(it)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads all GPUs and instances.
    ///
    /// # Errors
    /// If Python ended.
    pub fn snapshot(&mut self) -> io::Result<Snapshot> {
        let stdin = self.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe"))?;
        writeln!(stdin)?;
        let answer = self.answer()?;
        let mut snapshot = Snapshot::new();
        for device in answer.as_array().into_iter().flatten() {
            let gpu = device["readings"]["uuid"].as_str().unwrap_or_default();
            let key = |pid, name: &str| Key { gpu: gpu.to_owned(), pid, name: name.to_owned() };
            let readings = device["readings"].as_object().into_iter().flatten();
            snapshot.extend(readings.map(|(name, value)| (key(None, name), observed(value))));
            for (pid, process) in device["processes"].as_object().into_iter().flatten() {
                let pid = pid.parse().ok();
                snapshot.extend(OF_PROCESSES.map(|name| (key(pid, name), observed(&process[name]))));
            }
        }
        Ok(snapshot)
    }

    fn answer(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        io::Read::take(&mut self.stdout, MAX_ANSWER).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|_| self.failure())
    }

    /// The last line that a Python wrote that ended.
    fn failure(&mut self) -> io::Error {
        self.stdin = None;
        let _ = self.child.wait();
        let stderr = self.child.stderr.take().map(|stderr| io::read_to_string(stderr).unwrap_or_default());
        let last = stderr.as_deref().unwrap_or_default().lines().next_back().unwrap_or("it ended").to_owned();
        io::Error::other(last)
    }
}

impl Drop for NvidiaMlPy {
    fn drop(&mut self) {
        // It ends with its stdin; a call of the driver may hang.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number of the script is rounded as the probe rounds.
fn observed(value: &Value) -> Observed {
    match snapshot::observed(value) {
        Observed::Number(number) => Observed::Number(number.round()),
        seen => seen,
    }
}

/// Wheels of nvidia-ml-py beside this program; Python imports from them without installing.
fn wheels() -> Vec<PathBuf> {
    let folder = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let is_wheel = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("nvidia_ml_py-") && name.ends_with(".whl")
    };
    entries.map(|entry| entry.path()).filter(is_wheel).collect()
}

/// The value of a variable of paths, after other paths.
fn path_with(variable: &str, mut paths: Vec<PathBuf>) -> OsString {
    paths.extend(std::env::split_paths(&std::env::var_os(variable).unwrap_or_default()));
    // A path with a colon cannot be in such a variable.
    std::env::join_paths(paths.iter().filter(|path| !path.as_os_str().is_empty())).unwrap_or_default()
}
