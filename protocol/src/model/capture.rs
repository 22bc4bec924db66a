//! Captures: states of a job's processes at the moment when a finding began.
//!
//! A probe reads a [`Capture`] on request; the relay summarises the captures of all nodes as a [`FindingCapture`].

use crate::process::ProcessState;
use crate::request::ProcessRef;
use crate::{JobId, Reading, Text};
use serde::{Deserialize, Serialize};

/// Maximum number of processes that a probe captures at once.
pub const MAX_PROCESSES: usize = 64;
/// Maximum number of Python stacks that a probe captures at once.
pub const MAX_STACKS: usize = 16;
/// Maximum number of frames of a stack, innermost first.
pub const MAX_FRAMES: usize = 32;
/// Maximum number of peers of a process's connections, those with most connections first.
pub const MAX_PEERS: usize = 8;
/// Maximum number of files with further evidence of a process.
pub const MAX_FILES: usize = 4;
/// Maximum number of groups of a finding; further processes are counted.
pub const MAX_GROUPS: usize = 6;
/// Maximum number of details and of frames of a group.
pub const MAX_LINES: usize = 8;
/// Maximum number of limitations and of files of a finding's capture.
pub const MAX_NOTES: usize = 4;
/// Maximum length of the name of a file in a frame, in bytes; of a longer path, the end is kept.
pub const MAX_FILE_NAME: usize = 160;

/// A request to capture processes of this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// The job. Without `processes`, the probe captures the processes of the job that used most CPU time.
    pub job: JobId,
    /// The processes; at most [`MAX_PROCESSES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessRef>,
    /// Reader of Python stacks.
    #[serde(default)]
    pub stacks: StackReader,
}

/// The reader of Python stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackReader {
    /// With py-spy, if it is on the probe's `PATH`.
    #[default]
    OnPath,
    /// With py-spy at this absolute path, not sanitized.
    At(String),
    /// Not at all.
    Off,
}

/// The response to a [`CaptureRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// The processes, in the order of the request; at most [`MAX_PROCESSES`].
    pub processes: Vec<ProcessCapture>,
    /// Number of processes that were left out because there are more.
    #[serde(default)]
    pub omitted: u32,
}

/// One process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCapture {
    /// Its pid.
    pub pid: u32,
    /// Its start time, see [`ProcessRef::started_ms`].
    pub started_ms: u64,
    /// The reason if the process was not read: it ended, or belongs to another user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Text>,
    /// Name (`/proc/PID/comm`).
    #[serde(default)]
    pub command: Text,
    /// Beginning of the command line with secrets masked. Not read of a process in uninterruptible sleep, as reading
    /// may wait with it.
    #[serde(default)]
    pub args: Reading<Text>,
    /// Rank in a parallel program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// State of its main thread.
    #[serde(default)]
    pub state: ThreadState,
    /// Kernel function in which the main thread waits (`/proc/PID/wchan`).
    #[serde(default)]
    pub wait_channel: Reading<Text>,
    /// System call in which the main thread is (`/proc/PID/syscall`), by name or number; `running` if in none.
    #[serde(default)]
    pub system_call: Reading<Text>,
    /// Context switches of the main thread because it waited, since its start.
    #[serde(default)]
    pub voluntary_switches: Reading<u64>,
    /// Context switches of the main thread because its time slice ended or another thread preempted it.
    #[serde(default)]
    pub involuntary_switches: Reading<u64>,
    /// Number of threads in each state, most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadCount>,
    /// Number of established TCP connections.
    #[serde(default)]
    pub connections: Reading<u32>,
    /// Their peers, those with most connections first; at most [`MAX_PEERS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
    /// Python frames of the main thread, innermost first, at most [`MAX_FRAMES`]; `NotYet` if stacks were not
    /// requested.
    #[serde(default)]
    pub stack: Reading<Vec<Frame>>,
    /// Files that may explain more: dumps of PyTorch's NCCL flight recorder, and NCCL's log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<EvidenceFile>,
}

/// State of a thread (`State` of `/proc/PID/status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// On a CPU, or ready to run (`R`).
    Running,
    /// Waits, and can be interrupted (`S`, `I`).
    Sleeping,
    /// Waits for a device or a file system, and cannot be killed (`D`).
    Uninterruptible,
    /// Stopped by a signal or a debugger (`T`, `t`).
    Stopped,
    /// Ended, but not reaped (`Z`, `X`).
    Zombie,
    /// Any other state, or unreadable.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ThreadState {
    /// Returns the state for a letter of `/proc`.
    pub fn of_letter(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' | b'I' => Self::Sleeping,
            b'T' | b't' => Self::Stopped,
            letter => match ProcessState::of_letter(letter) {
                ProcessState::Uninterruptible => Self::Uninterruptible,
                ProcessState::Zombie => Self::Zombie,
                ProcessState::Alive | ProcessState::Stopped => Self::Unknown,
            },
        }
    }

    /// Returns its name in a sentence: `sleeping`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "in uninterruptible sleep",
            Self::Stopped => "stopped",
            Self::Zombie => "a zombie",
            Self::Unknown => "in an unknown state",
        }
    }
}

/// Number of threads in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCount {
    /// The state.
    pub state: ThreadState,
    /// Number of connections.
    pub count: u32,
}

/// The other end of TCP connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Address and port: `10.0.0.7:29500`.
    pub address: Text,
    /// Number of connections to it.
    pub count: u32,
}

/// One frame of a Python stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the function.
    pub function: Text,
    /// Path of its file, at most [`MAX_FILE_NAME`] bytes of its end.
    pub file: Text,
    /// Line number; 0 if unknown.
    pub line: u32,
}

/// A file that may explain more; its content is not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceFile {
    /// Its path on the node.
    pub path: Text,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change, in ms since 1970 by the node's clock.
    pub modified_ms: u64,
}

/// The places where the processes of a job stood when a finding began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FindingCapture {
    /// When it was captured, in ms since 1970 by the login node's clock.
    pub at_ms: u64,
    /// Processes that stand at the same place, most first; at most [`MAX_GROUPS`].
    pub groups: Vec<CaptureGroup>,
    /// Number of processes in further groups.
    pub others: u32,
    /// Number of processes without any information.
    pub missing: u32,
    /// Limits of the capture with their reasons; complete sentences, at most [`MAX_NOTES`].
    pub notes: Vec<Text>,
    /// Files that may explain more, with node, size and age; at most [`MAX_NOTES`].
    pub files: Vec<Text>,
}

/// Processes that stand at the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CaptureGroup {
    /// Number of processes.
    pub count: u32,
    /// Their ranks in short: `0-34, 36-63`; empty if unknown.
    pub ranks: Text,
    /// Places of some of them: `gpu-h05 GPU 3`.
    pub places: Vec<Text>,
    /// The frame: `all_reduce (torch/distributed/distributed_c10d.py:2501)`, or `futex_wait_queue (system call
    /// futex), sleeping` without a Python stack.
    pub frame: Text,
    /// Innermost frame of the user's own code above it: `train_step (train.py:88)`; empty if unknown.
    pub caller: Text,
    /// State, threads and connections of the first of them, a statement each; at most [`MAX_LINES`].
    pub details: Vec<Text>,
    /// Stack of the first of them, innermost frame first; at most [`MAX_LINES`].
    pub stack: Vec<Text>,
}

impl FindingCapture {
    /// Returns one line per group: `63 ranks in all_reduce (…), rank 35 in DataLoader.__next__ (…)`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().map(CaptureGroup::line)
    }
}

impl CaptureGroup {
    /// Returns who stands where: `63 ranks (0-34, 36-63) in all_reduce (…), called from train_step (train.py:88)`.
    pub fn line(&self) -> String {
        let caller =
            if self.caller.is_empty() { String::new() } else { format!(", called from {}", self.caller) };
        format!("{} in {}{caller}", self.who(), self.frame)
    }

    /// Returns who they are: `63 ranks (0-34, 36-63)`, `rank 35 (gpu-h05 GPU 3)`, `2 processes (n1 pid 7, n1 pid 9)`.
    pub fn who(&self) -> String {
        let places: Vec<&str> = self.places.iter().map(Text::as_str).collect();
        let more = if self.count as usize > places.len() { ", …" } else { "" };
        let places =
            if places.is_empty() { String::new() } else { format!(" ({}{more})", places.join(", ")) };
        match (self.count, self.ranks.is_empty()) {
            (1, false) => format!("rank {}{places}", self.ranks),
            (count, false) => format!("{count} ranks ({})", self.ranks),
            (1, true) => format!("1 process{places}"),
            (count, true) => format!("{count} processes{places}"),
        }
    }
}

/// Cuts the beginning of a path that is longer than [`MAX_FILE_NAME`].
pub fn file_name(path: &str) -> Text {
    let mut start = path.len().saturating_sub(MAX_FILE_NAME);
    while !path.is_char_boundary(start) {
        start += 1;
    }
    if start == 0 { Text::new(path) } else { Text::new(format!("…{}", &path[start..])) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_states_who_stands_where() {
        let group = CaptureGroup {
            count: 63,
            ranks: "0-34, 36-63".into(),
            places: vec!["gpu-h01 GPU 0".into()],
            frame: "all_reduce (torch/distributed/distributed_c10d.py:2501)".into(),
            caller: "train_step (train.py:88)".into(),
            ..CaptureGroup::default()
        };
        assert_eq!(
            group.line(),
            "63 ranks (0-34, 36-63) in all_reduce (torch/distributed/distributed_c10d.py:2501), called from \
             train_step (train.py:88)"
        );
        let one = CaptureGroup { count: 1, ranks: "35".into(), caller: Text::default(), ..group.clone() };
        assert_eq!(one.who(), "rank 35 (gpu-h01 GPU 0)");
        let unknown = CaptureGroup { count: 2, ranks: Text::default(), ..group };
        assert_eq!(unknown.who(), "2 processes (gpu-h01 GPU 0, …)");
    }

    #[test]
    fn of_a_long_path_the_end_is_kept() {
        let path = format!("/home/ä/{}/train.py", "ä".repeat(200));
        let name = file_name(&path);
        assert!(name.as_str().starts_with('…') && name.as_str().ends_with("/train.py"), "{name}");
        assert!(name.as_str().len() <= MAX_FILE_NAME + '…'.len_utf8());
        assert_eq!(file_name("/a/train.py").as_str(), "/a/train.py");
    }
}
