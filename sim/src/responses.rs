//! Responses of a scripted probe: process details, signals, and log tails.

use crate::processes::{Worker, find};
use crate::scenario::file::FaultKind;
use crate::scenario::interventions::ProcessKey;
use crate::scenario::{Scenario, ScenarioTime};
use crate::{captures, logs};
use nodeglass_protocol::process::{ProcessDetail, ProcessState, RelatedProcess, Variable};
use nodeglass_protocol::request::{ProbeRequest, ProcessRef, Response, Signal, Tail};
use nodeglass_protocol::{LongText, Reading, Text};

/// Mask for secrets.
const MASK: &str = "•••";
/// Number of data loader processes per compute process.
const LOADERS: u32 = 4;

/// Returns the response of a node's probe to a request.
pub(crate) fn respond(
    scenario: &Scenario,
    node: usize,
    at: ScenarioTime,
    request: &ProbeRequest,
) -> Response {
    match request {
        ProbeRequest::Process { process, environment } => match find(scenario, node, *process, at) {
            Some((_, worker)) => Response::Process(Box::new(detail(scenario, node, &worker, *environment))),
            None => gone(scenario, node, process.pid),
        },
        ProbeRequest::Signal { process, signal } => send_signal(scenario, node, at, *process, *signal),
        ProbeRequest::Tail { path, after, .. } => {
            let missing = || Tail {
                error: Some(format!("no such file on {}", scenario.nodes[node].name).into()),
                ..Tail::default()
            };
            Response::Tail(logs::tail(scenario, at, path, *after).unwrap_or_else(missing))
        }
        ProbeRequest::Capture(request) => {
            Response::Capture(Box::new(captures::capture(scenario, node, at, request)))
        }
    }
}

fn gone(scenario: &Scenario, node: usize, pid: u32) -> Response {
    let name = &scenario.nodes[node].name;
    Response::Refused(format!("process {pid} is no longer there on {name}").into())
}

fn send_signal(
    scenario: &Scenario,
    node: usize,
    at: ScenarioTime,
    process: ProcessRef,
    signal: Signal,
) -> Response {
    let name = &scenario.nodes[node].name;
    let pid = process.pid;
    let Some((gres_index, worker)) = find(scenario, node, process, at) else {
        let zombie = scenario.nodes[node].faults.iter().any(|fault| fault.kind == FaultKind::Zombie);
        let is_listed = || {
            let listed = crate::processes::processes(scenario, node, at).processes;
            listed.iter().any(|other| other.facts.pid == pid)
        };
        return if zombie && is_listed() {
            Response::Refused(format!("process {pid} has ended already; no signal can reach it").into())
        } else {
            gone(scenario, node, pid)
        };
    };
    if worker.job.user != scenario.user {
        return Response::Refused(format!("process {pid} is {}'s", worker.job.user).into());
    }
    let process = ProcessKey { job: worker.run.id, node, gres_index, began_ms: worker.began_ms };
    scenario.interventions.end(process, at.t_ms);
    let command = &worker.job.command;
    Response::Done(format!("{} was sent to {command} ({pid}) on {name}", signal.name()).into())
}

fn detail(scenario: &Scenario, node: usize, worker: &Worker<'_>, environment: bool) -> ProcessDetail {
    let own = worker.job.user == scenario.user;
    let run = worker.run.id;
    let ours = |text: String| if own { Reading::Value(LongText::new(text)) } else { denied() };
    let rng = scenario.rng.at(u64::from(worker.pid));
    let args = worker.job.args.as_ref().map_or(worker.job.command.as_str(), Text::as_str).to_owned();
    ProcessDetail {
        ancestors: ancestors(worker, own),
        descendants: descendants(worker),
        args: ours(args),
        cwd: ours(worker.job.workdir()),
        exe: ours(format!("/home/{}/envs/torch/bin/python3.11", worker.job.user)),
        cgroup: Reading::Value(LongText::new(format!(
            "/system.slice/slurmstepd.scope/job_{run}/step_0/user/task_{}",
            worker.slot
        ))),
        open_files: if own { Reading::Value(180 + rng.number(121) % 90) } else { denied() },
        read_bytes: if own { Reading::Value((40 << 30) + rng.number(122) % (90 << 30)) } else { denied() },
        written_bytes: if own { Reading::Value((rng.number(123) % 30) << 20) } else { denied() },
        wait_channel: Reading::Value(if worker.workload.util > 10 { "0" } else { "futex_wait_queue" }.into()),
        environment: match (environment, own) {
            (false, _) => Reading::NotYet,
            (true, true) => Reading::Value(variables(scenario, node, worker)),
            (true, false) => denied(),
        },
    }
}

fn denied<T>() -> Reading<T> {
    Reading::Failed("permission denied".into())
}

/// The batch script runs a launcher, which runs this process.
fn ancestors(worker: &Worker<'_>, own: bool) -> Vec<RelatedProcess> {
    let user = &worker.job.user;
    let run = worker.run.id;
    let (daemon, shell) = (worker.launcher - 12, worker.launcher - 5);
    let args = worker.job.args.as_ref().map_or(worker.job.command.as_str(), Text::as_str);
    let visible = |line: String, name: &str| if own { LongText::new(line) } else { LongText::new(name) };
    let shell_line = format!("/bin/bash /var/spool/slurmd/job{run}/slurm_script");
    let launcher_line = format!("torchrun --nproc-per-node gpu --rdzv-backend c10d {args}");
    vec![
        related(daemon, 1, &"root".into(), LongText::new(format!("slurmstepd: [{run}.0]"))),
        related(shell, daemon, user, visible(shell_line, "slurm_script")),
        related(worker.launcher, shell, user, visible(launcher_line, "torchrun")),
        related(worker.pid, worker.launcher, user, visible(args.to_owned(), worker.job.command.as_str())),
    ]
}

fn descendants(worker: &Worker<'_>) -> Vec<RelatedProcess> {
    let first = worker.pid + 400 + worker.local * (LOADERS - 1);
    let loader = |number| related(first + number, worker.pid, &worker.job.user, "pt_data_worker".into());
    (0..LOADERS).map(loader).collect()
}

fn related(pid: u32, parent: u32, user: &Text, command: LongText) -> RelatedProcess {
    RelatedProcess { pid, parent, user: user.clone(), command, state: ProcessState::Alive as u8 }
}

fn variables(scenario: &Scenario, node: usize, worker: &Worker<'_>) -> Vec<Variable> {
    let job = worker.job;
    let master = job.nodes.first().map_or("localhost", |first| scenario.nodes[*first].name.as_str());
    let user = &job.user;
    let known: [(&str, String); 18] = [
        ("CUDA_VISIBLE_DEVICES", worker.local.to_string()),
        ("HF_HOME", format!("/scratch/{user}/huggingface")),
        ("HF_TOKEN", MASK.to_owned()),
        ("HOME", format!("/home/{user}")),
        ("LOCAL_RANK", worker.local.to_string()),
        ("MASTER_ADDR", master.to_owned()),
        ("MASTER_PORT", "29500".to_owned()),
        ("NCCL_DEBUG", "WARN".to_owned()),
        ("NCCL_SOCKET_IFNAME", "ib0".to_owned()),
        ("OMP_NUM_THREADS", "8".to_owned()),
        ("PATH", format!("/home/{user}/envs/torch/bin:/usr/local/bin:/usr/bin:/bin")),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True".to_owned()),
        ("RANK", worker.slot.to_string()),
        ("SLURMD_NODENAME", scenario.nodes[node].name.to_string()),
        ("SLURM_JOB_ID", worker.run.id.to_string()),
        ("SLURM_JOB_NAME", job.name.to_string()),
        ("WANDB_API_KEY", MASK.to_owned()),
        ("WORLD_SIZE", job.locations.len().to_string()),
    ];
    known
        .into_iter()
        .map(|(name, value)| Variable { name: name.into(), value: LongText::new(value) })
        .collect()
}
