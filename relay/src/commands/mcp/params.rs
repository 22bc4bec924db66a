//! Parameters of the tools. Their documentation is what a client reads.

use nodeglass_api::{JobSelector, JobSelectorError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A job: its raw id, or as SLURM prints it: 48440_16 for a task of an array, 48511+0 for a component. The id of an array
/// means all of its tasks in a filter.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum JobName {
    /// Its raw id
    Id(u32),
    /// As SLURM prints it
    Label(String),
}

impl JobName {
    /// The job that it selects.
    pub fn selector(&self) -> Result<JobSelector, JobSelectorError> {
        match self {
            Self::Id(id) => Ok(JobSelector::Id(*id)),
            Self::Label(label) => label.parse(),
        }
    }
}

/// Of `jobs`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsParams {
    /// Only jobs of this user (login name)
    user: Option<String>,
    /// Only jobs in this SLURM state, such as RUNNING or PENDING
    state: Option<String>,
    /// Only jobs of this partition
    partition: Option<String>,
    /// Only jobs on this node
    node: Option<String>,
    /// Fields to send, separated by commas; a dot leads into an object: id,name,user,totals.util_pct
    fields: Option<String>,
    /// Maximum number of rows
    limit: Option<u32>,
    /// Number of rows to skip
    offset: Option<u32>,
}

/// Of `nodes`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodesParams {
    /// Only nodes of this job
    job: Option<JobName>,
    /// Only nodes with this connection, such as live, late, silent, down or refused
    connection: Option<String>,
    /// Fields to send, separated by commas; a dot leads into an object: name,connection,readings.cpu_pct
    fields: Option<String>,
    /// Maximum number of rows
    limit: Option<u32>,
    /// Number of rows to skip
    offset: Option<u32>,
}

/// Of `gpus`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpusParams {
    /// Only GPUs of this job
    job: Option<JobName>,
    /// Only GPUs of this node
    node: Option<String>,
    /// true: only GPUs that no job has and nothing uses; false: only the others
    free: Option<bool>,
    /// Fields to send, separated by commas; a dot leads into an object: uuid,node,readings.util_pct
    fields: Option<String>,
    /// Maximum number of rows
    limit: Option<u32>,
    /// Number of rows to skip
    offset: Option<u32>,
}

/// Of `processes`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessesParams {
    /// Only processes of this job
    job: Option<JobName>,
    /// Only processes on this node
    node: Option<String>,
    /// Only processes on this GPU (UUID)
    gpu: Option<String>,
    /// Only processes of this user (login name)
    user: Option<String>,
    /// Fields to send, separated by commas; a dot leads into an object: pid,user,gpu,readings.gpu_mem_bytes
    fields: Option<String>,
    /// Maximum number of rows
    limit: Option<u32>,
    /// Number of rows to skip
    offset: Option<u32>,
}

/// Of `findings`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingsParams {
    /// Only findings that affect this job
    job: Option<JobName>,
    /// Only findings on this node
    node: Option<String>,
    /// Only findings of this kind, such as straggler or gpu_memory_forecast
    kind: Option<String>,
    /// Only findings of this severity or a higher one: info, warning or error
    severity: Option<String>,
    /// true: only active ones; false: only those that ended within the last hour; both if absent
    active: Option<bool>,
    /// Fields to send, separated by commas: kind,title,since,evidence,advice
    fields: Option<String>,
    /// Maximum number of rows
    limit: Option<u32>,
    /// Number of rows to skip
    offset: Option<u32>,
}

/// Of `history`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryParams {
    /// GPUs of this job
    job: Option<JobName>,
    /// GPUs and host of this node
    node: Option<String>,
    /// Metrics of GPUs, separated by commas, such as util_pct,power_w,temp_c; util_pct if absent
    metric: Option<String>,
    /// Metrics of hosts, separated by commas
    host_metric: Option<String>,
    /// Start: RFC 3339, or an age such as 90m; an hour before the end if absent
    from: Option<String>,
    /// End, like the start; now if absent
    to: Option<String>,
    /// Length of a step, such as 60s
    step: Option<String>,
}

/// Parameters of tools about one job.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobParams {
    /// The job
    pub job: JobName,
}

/// Of `usage`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageParams {
    /// Number of days, 1 to 366; 30 if absent
    days: Option<u32>,
}

/// Of `notes`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotesParams {
    /// Only notes of this job
    job: Option<JobName>,
}

/// Of `add_note`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddNoteParams {
    /// The text, at most 240 bytes
    pub text: String,
    /// The job that it is of; the whole cluster if absent
    pub job: Option<JobName>,
}

/// Of `retry`.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryParams {
    /// Only this node; all nodes that wait and SLURM if absent
    pub node: Option<String>,
}
