//! Captures of scripted processes: in a hang, all ranks wait in a collective for one that loads data.

use crate::cluster::activity::behaviour;
use crate::processes::{Worker, find};
use crate::scenario::file::Behaviour;
use crate::scenario::{Scenario, ScenarioTime};
use nodeglass_protocol::capture::{
    Capture, CaptureRequest, EvidenceFile, Frame, MAX_PROCESSES, Peer, ProcessCapture, StackReader,
    ThreadCount, ThreadState,
};
use nodeglass_protocol::{Reading, Text};

/// Folder of installed packages.
const PACKAGES: &str = "envs/torch/lib/python3.11/site-packages";

/// Returns what a node's probe captures.
pub(crate) fn capture(
    scenario: &Scenario,
    node: usize,
    at: ScenarioTime,
    request: &CaptureRequest,
) -> Capture {
    let processes = request.processes.iter().take(MAX_PROCESSES).map(|process| {
        let base =
            ProcessCapture { pid: process.pid, started_ms: process.started_ms, ..ProcessCapture::default() };
        match find(scenario, node, *process, at) {
            None => ProcessCapture { refused: Some("there is no such process any more".into()), ..base },
            Some((_, worker)) if worker.job.user != scenario.user => {
                ProcessCapture { refused: Some("it belongs to another user".into()), ..base }
            }
            Some((_, worker)) => of_worker(scenario, &worker, at, &request.stacks, base),
        }
    });
    Capture { processes: processes.collect(), omitted: 0 }
}

fn of_worker(
    scenario: &Scenario,
    worker: &Worker<'_>,
    at: ScenarioTime,
    stacks: &StackReader,
    base: ProcessCapture,
) -> ProcessCapture {
    let job = worker.job;
    let stands = Stand::of(worker, at);
    let rng = scenario.rng.at(u64::from(worker.pid));
    let (channel, call) = match stands {
        Stand::Loading => ("do_sys_poll", "poll"),
        Stand::Collective | Stand::Waiting => ("futex_wait_queue", "futex"),
        Stand::Computing => ("0", "running"),
    };
    let is_running = stands == Stand::Computing;
    let threads = 90 + u32::try_from(rng.number(131) % 20).unwrap_or(0);
    let master = job.nodes.first().map_or("10.0.0.1", |_| "10.20.0.11");
    let peers = u32::try_from(job.locations.len().min(8)).unwrap_or(1);
    let file = EvidenceFile {
        path: Text::new(format!("/tmp/nccl_trace_rank_{}", worker.slot)),
        size_bytes: 2_400_000 + rng.number(132) % 300_000,
        modified_ms: at.wall_ms(),
    };
    ProcessCapture {
        command: job.command.clone(),
        args: Reading::Value(job.args.clone().unwrap_or_else(|| job.command.clone())),
        rank: u32::try_from(worker.slot).ok(),
        state: if is_running { ThreadState::Running } else { ThreadState::Sleeping },
        wait_channel: if is_running { Reading::Unsupported } else { Reading::Value(channel.into()) },
        system_call: Reading::Value(call.into()),
        voluntary_switches: Reading::Value(80_000 + rng.number(133) % 9_000),
        involuntary_switches: Reading::Value(900 + rng.number(134) % 300),
        threads: vec![
            ThreadCount { state: ThreadState::Sleeping, count: threads - 2 },
            ThreadCount { state: ThreadState::Running, count: 2 },
        ],
        connections: Reading::Value(peers + 2),
        peers: vec![Peer { address: Text::new(format!("{master}:29500")), count: 2 }],
        stack: match stacks {
            StackReader::Off => Reading::NotYet,
            StackReader::OnPath | StackReader::At(_) => Reading::Value(stands.stack(worker)),
        },
        // Its flight recorder writes what it knows when the watchdog notices.
        files: if stands == Stand::Collective { vec![file] } else { Vec::new() },
        ..base
    }
}

/// Activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Waits in a collective for the others.
    Collective,
    /// Waits for its input.
    Loading,
    /// Has nothing to do.
    Waiting,
    /// Computes.
    Computing,
}

impl Stand {
    fn of(worker: &Worker<'_>, at: ScenarioTime) -> Self {
        let ranks = worker.job.locations.len();
        match behaviour(worker.job, worker.slot, at.t_ms) {
            // One rank is why the others wait.
            Behaviour::Hang if ranks > 1 && worker.slot == worker.run.id.0 as usize % ranks => Self::Loading,
            Behaviour::Hang => Self::Collective,
            _ if worker.workload.util > 10 => Self::Computing,
            _ => Self::Waiting,
        }
    }

    /// The stack of the main thread, innermost frame first.
    fn stack(self, worker: &Worker<'_>) -> Vec<Frame> {
        let user = &worker.job.user;
        let program = worker.job.args.as_ref().map_or("", Text::as_str);
        let program = program.split(' ').find(|word| word.ends_with(".py")).unwrap_or("main.py");
        let program = format!("{}/{program}", worker.job.workdir());
        let frame = |function: &str, file: String, line| Frame {
            function: function.into(),
            file: Text::new(file),
            line,
        };
        let torch = |function, file: &str, line| {
            frame(function, format!("/home/{user}/{PACKAGES}/torch/{file}"), line)
        };
        let python =
            |function, file: &str, line| frame(function, format!("/usr/lib/python3.11/{file}"), line);
        let main = |line| frame("<module>", program.clone(), line);
        match self {
            Self::Collective => vec![
                torch("all_reduce", "distributed/distributed_c10d.py", 2_501),
                torch("wrapper", "distributed/c10d_logger.py", 83),
                frame("train_step", program.clone(), 88),
                main(140),
            ],
            Self::Loading => vec![
                python("PollSelector.select", "selectors.py", 415),
                python("wait", "multiprocessing/connection.py", 947),
                torch("_MultiProcessingDataLoaderIter._try_get_data", "utils/data/dataloader.py", 1_131),
                torch("_MultiProcessingDataLoaderIter._next_data", "utils/data/dataloader.py", 1_301),
                torch("_BaseDataLoaderIter.__next__", "utils/data/dataloader.py", 701),
                main(131),
            ],
            Self::Waiting => {
                vec![python("Condition.wait", "threading.py", 327), frame("serve", program.clone(), 61)]
            }
            Self::Computing => vec![
                torch("_engine_run_backward", "autograd/graph.py", 825),
                torch("backward", "autograd/__init__.py", 347),
                frame("train_step", program.clone(), 84),
                main(140),
            ],
        }
    }
}
