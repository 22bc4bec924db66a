//! Jobs, nodes, GPUs and processes: lists with filters and field selection, and each by its identity.

use super::caller::Caller;
use super::everything::everything;
use super::named_job;
use super::problem::Problem;
use super::reply::{self, Page};
use crate::WebState;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use nodeglass_api::{
    ConnectionState, Fields, Finding, Gpu, Job, JobSelector, Node, NotOneJob, Process, Snapshot,
};
use nodeglass_protocol::Text;
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Filters of jobs. A job must match all that are given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct JobFilter {
    /// Login name of the owner.
    user: Option<String>,
    /// SLURM's state, such as `RUNNING`; in any case.
    state: Option<String>,
    /// Partition.
    partition: Option<String>,
    /// Name of a node that it runs on.
    node: Option<String>,
    /// Fields of each job, separated by commas: `id,state,totals.power_w`.
    fields: Option<String>,
    /// Maximum number of jobs.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
    /// Number of jobs to skip.
    #[param(maximum = 100000)]
    offset: Option<usize>,
}

/// Filters of nodes. A node must match all that are given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NodeFilter {
    /// Id of a job that runs on it, as `48461`, `48440_16` or `48511+0`.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
    /// State of its connection: `live`, `late`, `silent`, `down`, `refused`, …
    connection: Option<String>,
    /// Fields of each node, separated by commas: `name,readings.cpu_pct`.
    fields: Option<String>,
    /// Maximum number of nodes.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
    /// Number of nodes to skip.
    #[param(maximum = 100000)]
    offset: Option<usize>,
}

/// Filters of GPUs. A GPU must match all that are given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct GpuFilter {
    /// Id of a job that it belongs to, as `48461`, `48440_16` or `48511+0`; an array's id means all of its tasks.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
    /// Name of its node.
    node: Option<String>,
    /// Vendor: `nvidia`, `amd`, `intel`, `tpu`.
    vendor: Option<String>,
    /// Whether it is free: readable, without processes, and of no job.
    free: Option<bool>,
    /// Fields of each GPU, separated by commas: `uuid,node,readings.util_pct`.
    fields: Option<String>,
    /// Maximum number of GPUs.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
    /// Number of GPUs to skip.
    #[param(maximum = 100000)]
    offset: Option<usize>,
}

/// Filters of processes. A process must match all that are given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ProcessFilter {
    /// Id of its job, as `48461`, `48440_16` or `48511+0`; an array's id means all of its tasks.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
    /// Name of its node.
    node: Option<String>,
    /// UUID of its GPU.
    gpu: Option<String>,
    /// Login name of its owner.
    user: Option<String>,
    /// Fields of each process, separated by commas: `node,pid,readings.gpu_mem_bytes`.
    fields: Option<String>,
    /// Maximum number of processes.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
    /// Number of processes to skip.
    #[param(maximum = 100000)]
    offset: Option<usize>,
}

/// Filters of findings. A finding must match all that are given.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FindingFilter {
    /// Id of a job that it affects, as `48461`, `48440_16` or `48511+0`; an array's id means all of its tasks.
    #[param(value_type = Option<String>, example = "48440_16")]
    job: Option<JobSelector>,
    /// Name of a node on which it was found.
    node: Option<String>,
    /// Kind of finding.
    kind: Option<FindingKind>,
    /// The least severity.
    severity: Option<FindingSeverity>,
    /// Whether it lasts.
    active: Option<bool>,
    /// Fields of each finding, separated by commas: `kind,title,since`.
    fields: Option<String>,
    /// Maximum number of findings.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
    /// Number of findings to skip.
    #[param(maximum = 100000)]
    offset: Option<usize>,
}

/// Selection of the fields of a single resource.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Selection {
    /// Fields, separated by commas.
    fields: Option<String>,
}

/// A list of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Jobs {
    /// Number of jobs that match, of which `limit` and `offset` select some.
    pub total: usize,
    /// Running jobs first.
    pub jobs: Vec<Job>,
}

/// A list of nodes.
#[derive(Debug, Serialize, ToSchema)]
pub struct Nodes {
    /// Number of nodes that match.
    pub total: usize,
    /// The nodes, by name.
    pub nodes: Vec<Node>,
}

/// A list of GPUs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Gpus {
    /// Number of GPUs that match.
    pub total: usize,
    /// The GPUs, by node and index.
    pub gpus: Vec<Gpu>,
}

/// A list of processes.
#[derive(Debug, Serialize, ToSchema)]
pub struct Processes {
    /// Number of entries that match.
    pub total: usize,
    /// The processes, by node and GPU.
    pub processes: Vec<Process>,
}

/// A list of findings.
#[derive(Debug, Serialize, ToSchema)]
pub struct Findings {
    /// Number of findings that match.
    pub total: usize,
    /// Active findings, the worst first, then those that ended within the last hour.
    pub findings: Vec<Finding>,
}

/// Takes a snapshot for the caller, and responds with what `make` selects of it.
///
/// The event loop only copies what the caller may see; everything else runs beside it.
pub(super) async fn from_snapshot<T: Serialize + Send + 'static>(
    web: &WebState,
    caller: Caller,
    headers: &HeaderMap,
    make: impl FnOnce(Snapshot) -> Result<T, Problem> + Send + 'static,
) -> Result<Response, Response> {
    let (viewer, mut charge) = caller.begin(web).await?;
    let picture = everything(web, viewer, &mut charge).await?;
    let wall_ahead_ms = web.about.clock.displayed_wall_ahead_ms();
    let body = tokio::task::spawn_blocking(move || {
        let made = make(Snapshot::new(&picture, wall_ahead_ms))?;
        Ok::<_, Problem>(reply::body(&made))
    });
    let body = body.await.map_err(|_| Problem::shutting_down())??;
    charge.sends(body.len());
    Ok(reply::json(headers, body))
}

/// Reduces items to the page and the fields that the query asks for.
fn list<T: Serialize>(name: &'static str, items: Vec<T>, page: &Page) -> Result<serde_json::Value, Problem> {
    let total = items.len();
    let selected = items.into_iter().skip(page.offset).take(page.limit);
    let values = selected.map(|item| {
        let value = serde_json::to_value(item).unwrap_or_default();
        page.fields.select(value).map_err(|error| Problem::bad_request(error.to_string()))
    });
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let mut object = serde_json::Map::new();
    object.insert("total".to_owned(), total.into());
    object.insert(name.to_owned(), values.into());
    Ok(object.into())
}

fn fields(list: Option<&str>) -> Result<Fields, Problem> {
    Fields::parse(list.unwrap_or_default())
        .ok_or_else(|| Problem::bad_request("at most 64 fields can be selected"))
}

fn one<T: Serialize>(
    item: Option<T>,
    missing: String,
    fields: &Fields,
) -> Result<serde_json::Value, Problem> {
    let item = item.ok_or_else(|| Problem::not_found(missing))?;
    let value = serde_json::to_value(item).unwrap_or_default();
    fields.select(value).map_err(|error| Problem::bad_request(error.to_string()))
}

/// Everything that the caller may see at one moment.
#[utoipa::path(get, path = "/api/v1/snapshot", tag = "state", operation_id = "snapshot",
    responses((status = 200, body = Snapshot), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn snapshot(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Response> {
    from_snapshot(&web, caller, &headers, Ok).await
}

/// The jobs that the caller may see.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "state", operation_id = "jobs", params(JobFilter),
    responses((status = 200, body = Jobs), (status = 304, description = "Unchanged since `If-None-Match`"),
              (status = 503, description = "SLURM has not listed the jobs yet")))]
pub async fn jobs(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<JobFilter>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(filter) = query
        .map_err(|error| Problem::query(&error, "user, state, partition, node, fields, limit, offset"))?;
    let page = Page::new(fields(filter.fields.as_deref())?, filter.limit, filter.offset)?;
    named_job::require_list(&web).await?;
    from_snapshot(&web, caller, &headers, move |mut snapshot| {
        if let Some(state) = &filter.state {
            check_state(state, &snapshot.jobs)?;
        }
        snapshot.jobs.retain(|job| {
            filter.user.as_ref().is_none_or(|user| *user == job.user)
                && filter.state.as_ref().is_none_or(|state| state.eq_ignore_ascii_case(&job.state))
                && filter.partition.as_ref().is_none_or(|partition| *partition == job.partition)
                && filter.node.as_ref().is_none_or(|node| job.nodes.contains(node))
        });
        list("jobs", snapshot.jobs, &page)
    })
    .await
}

/// SLURM's states of jobs. A later version may add one, so a state that a job has is accepted too.
const JOB_STATES: [&str; 22] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "COMPLETING",
    "CONFIGURING",
    "DEADLINE",
    "ENDED",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "RUNNING",
    "SIGNALING",
    "STAGE_OUT",
    "SUSPENDED",
    "TIMEOUT",
];

/// Refuses an unknown state, because an empty list would mislead.
fn check_state(state: &str, jobs: &[Job]) -> Result<(), Problem> {
    let is_known = JOB_STATES.iter().copied().chain(jobs.iter().map(|job| job.state.as_str()));
    match is_known.into_iter().any(|known| known.eq_ignore_ascii_case(state)) {
        true => Ok(()),
        false => Err(unknown("state", state, &JOB_STATES)),
    }
}

fn unknown(what: &str, word: &str, known: &[&str]) -> Problem {
    Problem::bad_request(format!(
        "there is no {what} {:?}; there are: {}",
        Text::new(word).as_str(),
        known.join(", ")
    ))
}

/// A job by its id: the raw one, or as SLURM prints it, `48440_16` or `48511+0`.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "state", operation_id = "job",
    params(("id" = String, Path, description = "Job id, as 48461, 48440_16 or 48511+0"), Selection),
    responses((status = 200, body = Job), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn job(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Response> {
    let fields = selection(query)?;
    let named: JobSelector = id.parse().map_err(Problem::from)?;
    if !caller.is_restricted() {
        named_job::await_listed(&web, &named).await?;
    }
    from_snapshot(&web, caller, &headers, move |snapshot| {
        let job = match named.one(&snapshot.jobs) {
            Err(error @ NotOneJob::Several { .. }) => return Err(Problem::bad_request(error.to_string())),
            found => found.ok(),
        };
        one(job, format!("there is no job {named} in the list; its report may still exist"), &fields)
    })
    .await
}

/// The nodes that the caller may see.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "state", operation_id = "nodes", params(NodeFilter),
    responses((status = 200, body = Nodes), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn nodes(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<NodeFilter>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(filter) =
        query.map_err(|error| Problem::query(&error, "job, connection, fields, limit, offset"))?;
    let page = Page::new(fields(filter.fields.as_deref())?, filter.limit, filter.offset)?;
    let names = ConnectionState::ALL.map(ConnectionState::name);
    if let Some(connection) = filter.connection.as_deref().filter(|name| !names.contains(name)) {
        return Err(unknown("connection", connection, &names).into());
    }
    from_snapshot(&web, caller, &headers, move |mut snapshot| {
        let jobs = filter.job.as_ref().map(|named| named.ids(&snapshot.jobs));
        snapshot.nodes.retain(|node| {
            jobs.as_ref().is_none_or(|ids| node.jobs.iter().any(|job| ids.contains(&job.job)))
                && filter.connection.as_ref().is_none_or(|state| state == node.connection.name())
        });
        list("nodes", snapshot.nodes, &page)
    })
    .await
}

/// A node by its name.
#[utoipa::path(get, path = "/api/v1/nodes/{name}", tag = "state", operation_id = "node",
    params(("name" = String, Path, description = "Name of the node"), Selection),
    responses((status = 200, body = Node), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn node(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    Path(name): Path<String>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Response> {
    let fields = selection(query)?;
    from_snapshot(&web, caller, &headers, move |snapshot| {
        let node = snapshot.nodes.into_iter().find(|node| node.name == name);
        one(node, "this relay watches no such node".to_owned(), &fields)
    })
    .await
}

/// The GPUs and MIG instances that the caller may see.
#[utoipa::path(get, path = "/api/v1/gpus", tag = "state", operation_id = "gpus", params(GpuFilter),
    responses((status = 200, body = Gpus), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn gpus(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<GpuFilter>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(filter) =
        query.map_err(|error| Problem::query(&error, "job, node, vendor, free, fields, limit, offset"))?;
    let page = Page::new(fields(filter.fields.as_deref())?, filter.limit, filter.offset)?;
    from_snapshot(&web, caller, &headers, move |mut snapshot| {
        let jobs = filter.job.as_ref().map(|named| named.ids(&snapshot.jobs));
        snapshot.gpus.retain(|gpu| {
            jobs.as_ref().is_none_or(|ids| gpu.jobs.iter().any(|job| ids.contains(&job.job)))
                && filter.node.as_ref().is_none_or(|node| *node == gpu.node)
                && filter.vendor.as_ref().is_none_or(|vendor| *vendor == gpu.vendor)
                && filter.free.is_none_or(|free| free == gpu.is_free())
        });
        list("gpus", snapshot.gpus, &page)
    })
    .await
}

/// A GPU or MIG instance by its UUID.
#[utoipa::path(get, path = "/api/v1/gpus/{uuid}", tag = "state", operation_id = "gpu",
    params(("uuid" = String, Path, description = "UUID of the GPU"), Selection),
    responses((status = 200, body = Gpu), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn gpu(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    Path(uuid): Path<String>,
    query: Result<Query<Selection>, QueryRejection>,
) -> Result<Response, Response> {
    let fields = selection(query)?;
    from_snapshot(&web, caller, &headers, move |snapshot| {
        let gpu = snapshot.gpus.into_iter().find(|gpu| gpu.uuid == uuid);
        one(gpu, "this relay watches no such GPU".to_owned(), &fields)
    })
    .await
}

/// The processes on GPUs that the caller may see.
#[utoipa::path(get, path = "/api/v1/processes", tag = "state", operation_id = "processes", params(ProcessFilter),
    responses((status = 200, body = Processes), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn processes(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<ProcessFilter>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(filter) =
        query.map_err(|error| Problem::query(&error, "job, node, gpu, user, fields, limit, offset"))?;
    let page = Page::new(fields(filter.fields.as_deref())?, filter.limit, filter.offset)?;
    from_snapshot(&web, caller, &headers, move |mut snapshot| {
        let jobs = filter.job.as_ref().map(|named| named.ids(&snapshot.jobs));
        snapshot.processes.retain(|process| {
            jobs.as_ref().is_none_or(|ids| process.job.is_some_and(|id| ids.contains(&id)))
                && filter.node.as_ref().is_none_or(|node| *node == process.node)
                && filter.gpu.as_ref().is_none_or(|gpu| *gpu == process.gpu)
                && filter.user.as_ref().is_none_or(|user| Some(user) == process.user.as_ref())
        });
        list("processes", snapshot.processes, &page)
    })
    .await
}

/// Returns the findings of the relay from the readings that the caller may see.
#[utoipa::path(get, path = "/api/v1/findings", tag = "state", operation_id = "findings", params(FindingFilter),
    responses((status = 200, body = Findings), (status = 304, description = "Unchanged since `If-None-Match`")))]
pub async fn findings(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<FindingFilter>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(filter) = query.map_err(|error| {
        Problem::query(&error, "job, node, kind, severity, active, fields, limit, offset")
    })?;
    let page = Page::new(fields(filter.fields.as_deref())?, filter.limit, filter.offset)?;
    from_snapshot(&web, caller, &headers, move |mut snapshot| {
        let jobs = filter.job.as_ref().map(|named| named.ids(&snapshot.jobs));
        snapshot.findings.retain(|finding| {
            jobs.as_ref().is_none_or(|ids| finding.jobs.iter().any(|id| ids.contains(id)))
                && filter.node.as_ref().is_none_or(|node| finding.nodes.contains(node))
                && filter.kind.is_none_or(|kind| finding.kind == kind)
                && filter.severity.is_none_or(|least| finding.severity >= least)
                && filter.active.is_none_or(|active| finding.is_active == active)
        });
        list("findings", snapshot.findings, &page)
    })
    .await
}

fn selection(query: Result<Query<Selection>, QueryRejection>) -> Result<Fields, Problem> {
    let Query(selection) = query.map_err(|error| Problem::query(&error, "fields"))?;
    fields(selection.fields.as_deref())
}
