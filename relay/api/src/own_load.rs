//! Limits of the relay itself and what it does to keep them, as a resource.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Limits of the relay's process, and what it does to keep them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnLoad {
    /// CPU time in % of a core that it may use (`cpu-max`, or a limit of the site); `null` without a limit.
    pub cpu_max_pct: Option<u32>,
    /// Means of the limit: `cgroup`, `systemd_scope` or `slower_sampling`; `null` without a limit.
    pub cpu_limited_by: Option<LimitedBy>,
    /// Memory in bytes that it may use (`memory-max`, or a limit of the site); `null` without a limit.
    pub memory_max_bytes: Option<u64>,
    /// Means of the limit: `cgroup`, `systemd_scope` or `dropped_history`; `null` without a limit.
    pub memory_limited_by: Option<LimitedBy>,
    /// Reason for sampling nodes more slowly, about CPU time; `null` while they are not.
    pub slower_sampling: Option<String>,
    /// Reason for dropping history, about memory; `null` while it is as large as configured.
    pub dropped_history: Option<String>,
    /// When the relay exits by itself; `null` if it does not (`auto-exit`).
    pub auto_exit: Option<AutoExit>,
}

/// Means by which a process is kept below its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// A control group.
    Cgroup,
    /// A control group that systemd made on request.
    SystemdScope,
    /// The process samples nodes more slowly while it uses more.
    SlowerSampling,
    /// The process drops history while it uses more.
    DroppedHistory,
}

/// When the relay exits by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AutoExit {
    /// Time without jobs, viewers and requests after which it exits, in s.
    pub after_s: u64,
    /// Time without any up to now, in s.
    pub unused_s: u64,
}

impl LimitedBy {
    /// In words, after "by".
    pub fn words(self) -> &'static str {
        match self {
            Self::Cgroup => "its control group",
            Self::SystemdScope => "a systemd scope of its own",
            Self::SlowerSampling => "slower sampling: it may not create a control group",
            Self::DroppedHistory => "dropping history: it may not create a control group",
        }
    }
}

impl OwnLoad {
    /// The limits in words, one line for each; for the start of the relay.
    pub fn lines(&self) -> Vec<String> {
        let cpu = self
            .cpu_max_pct
            .zip(self.cpu_limited_by)
            .map(|(pct, by)| format!("CPU time is limited to {pct} % of a core by {}", by.words()));
        let memory = self
            .memory_max_bytes
            .zip(self.memory_limited_by)
            .map(|(bytes, by)| format!("memory is limited to {} MiB by {}", bytes >> 20, by.words()));
        cpu.into_iter().chain(memory).collect()
    }
}
