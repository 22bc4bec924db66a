//! The load on one GPU: which GPU may be loaded, and the child process that loads it.

use super::cuda::{CudaError, Kernel};
use super::snapshot::OnceReport;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::{
    io,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

/// Name of the command that loads a GPU, which only this program starts.
pub const COMMAND: &str = "selftest-load";
/// Line of the child when its kernel has run.
const RUNNING: &str = "running";
/// Maximum duration of a load.
const MAX_LOAD: Duration = Duration::from_secs(90);
/// Duration of one run of the kernel that is aimed at: an interruption waits for no more.
const RUN: Duration = Duration::from_millis(20);
/// Number of rounds in the first run, and in any.
const ROUNDS: (u32, u32) = (64, 1 << 20);
/// Time that the driver has to create a context and compile the kernel.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Memory in use of a GPU that nobody uses: what the driver itself holds.
const IDLE_BYTES: u64 = 1 << 30;

/// When a GPU is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// If a GPU is idle, and no process uses it.
    #[default]
    Idle,
    /// Also if none is.
    Always,
    /// Never.
    Never,
}

/// A GPU that may be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// UUID.
    pub gpu: String,
    /// PCI address, as CUDA understands it.
    pub pci: String,
}

/// Chooses the GPU to load: the first that was idle in all reports; or the reason why there is none.
pub fn target(reports: &[OnceReport], policy: Policy) -> Result<Target, String> {
    if policy == Policy::Never {
        return Err("--no-load".into());
    }
    let last = reports.last().ok_or("no report")?;
    let allowed: Vec<Target> = last
        .gpus()
        .filter(|(_, facts)| facts["mig_mode"] != true && facts["mig_parent"].is_null())
        .filter(|(_, facts)| facts["compute_mode"] != "prohibited")
        .filter_map(|(_, facts)| {
            let (gpu, pci) = (facts["uuid"].as_str()?, facts["pci"].as_str()?);
            // NVML states the domain with eight digits, CUDA usually with four.
            let pci = pci.strip_prefix("0000").filter(|rest| rest.len() == 12).unwrap_or(pci);
            Some(Target { gpu: gpu.to_owned(), pci: pci.to_owned() })
        })
        .collect();
    let idle = allowed.iter().find(|target| reports.iter().all(|report| is_idle(report, &target.gpu)));
    match (idle, allowed.first()) {
        (Some(idle), _) => Ok(idle.clone()),
        (None, Some(busy)) if policy == Policy::Always => Ok(busy.clone()),
        (None, Some(_)) => Err("every GPU is in use, or it is unknown; --load loads one all the same".into()),
        (None, None) => Err("no GPU runs CUDA programs: each is divided (MIG) or prohibits them".into()),
    }
}

/// Returns whether a GPU is known to have no process, no utilisation, and hardly any memory in use.
fn is_idle(report: &OnceReport, gpu: &str) -> bool {
    let position = report.gpus().find(|(_, facts)| facts["uuid"] == gpu).map(|(at, _)| at);
    let gaps = report.0["process_gaps"].as_array().into_iter().flatten();
    let is_listed = !gaps.into_iter().any(|gap| gap["gpu"] == gpu);
    position.and_then(|at| report.0.pointer(&format!("/sample/gpus/{at}"))).is_some_and(|sample| {
        let memory = sample["mem_used_bytes"].as_u64();
        is_listed
            && sample["util_pct"] == 0
            && memory.is_some_and(|bytes| bytes <= IDLE_BYTES)
            && report.processes().all(|(of, ..)| of != gpu)
    })
}

/// A load that runs until it is dropped.
pub struct Load(Child);

impl Load {
    /// Starts this program again, and waits until its kernel has run.
    ///
    /// # Errors
    /// The reason why there is no load.
    pub fn start(cuda: &Path, target: &Target) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).arg(cuda).arg(&target.pci);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut load = Self(command.spawn()?);
        let stdout = load.0.stdout.take();
        let (lines, inbox) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.map(|stdout| BufReader::new(stdout.take(64)).read_line(&mut line));
            let _ = lines.send(read.is_some_and(|read| read.is_ok()) && line.trim_end() == RUNNING);
        });
        match inbox.recv_timeout(START_TIMEOUT) {
            Ok(true) => Ok(load),
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::other("the driver did not start the load in 30 s"))
            }
            Ok(false) | Err(RecvTimeoutError::Disconnected) => {
                let stderr = load.0.stderr.take().map(io::read_to_string).transpose()?;
                Err(io::Error::other(stderr.unwrap_or_default().trim().to_owned()))
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Its end alone frees the GPU; it has nothing to store.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads a GPU until stdin ends, the parent ends, or the maximum duration has passed.
///
/// # Errors
/// If the driver refuses a call.
pub fn run(cuda: &Path, pci: &str) -> Result<(), CudaError> {
    // A parent that is killed closes stdin, too, but the kernel would run until that is noticed.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_none_or(|parent| parent.is_init()) {
        return Ok(());
    }
    let (open, ended) = channel::<()>();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(open);
    });
    let kernel = Kernel::on(cuda, pci)?;
    let (start, mut rounds) = (Instant::now(), ROUNDS.0);
    while start.elapsed() < MAX_LOAD && ended.try_recv() == Err(TryRecvError::Empty) {
        let before = Instant::now();
        kernel.run(rounds)?;
        if rounds == ROUNDS.0 {
            let _ = writeln!(io::stdout(), "{RUNNING}");
        }
        match before.elapsed() {
            took if took < RUN / 2 => rounds = (rounds * 2).min(ROUNDS.1),
            took if took > RUN * 2 => rounds = (rounds / 2).max(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn report(samples: Value, processes: Value) -> OnceReport {
        let gpu = |uuid: &str, mode: &str| {
            json!({"uuid": uuid, "vendor": "nvidia", "pci": "00000000:4F:00.0", "mig_parent": null, "mig_mode": false,
                "compute_mode": mode})
        };
        let gpus = [gpu("a", "prohibited"), gpu("b", "default"), gpu("c", "default")];
        OnceReport(json!({"hello": {"gpus": gpus}, "sample": {"gpus": samples}, "processes": processes,
            "process_gaps": []}))
    }

    fn sample(util: u64, mib: u64) -> Value {
        json!({"util_pct": util, "mem_used_bytes": mib << 20})
    }

    fn chosen(reports: &[OnceReport], policy: Policy) -> Option<String> {
        target(reports, policy).ok().map(|target| target.gpu)
    }

    #[test]
    fn a_gpu_that_anybody_uses_is_loaded_on_request_only() {
        let idle = || report(json!([sample(0, 1), sample(0, 1), sample(0, 1)]), json!([]));
        assert_eq!(
            target(&[idle()], Policy::Idle),
            Ok(Target { gpu: "b".into(), pci: "0000:4F:00.0".into() })
        );
        assert_eq!(chosen(&[idle()], Policy::Never), None);
        let of = |uuid: &str| json!([{"facts": {"gpu": uuid, "pid": 7}}]);
        let used = [
            report(json!([sample(0, 1), sample(3, 1), sample(0, 1)]), json!([])),
            report(json!([sample(0, 1), sample(0, 9_000), sample(0, 1)]), json!([])),
            report(json!([sample(0, 1), sample(0, 1), sample(0, 1)]), of("b")),
            report(json!([sample(0, 1), {"util_pct": "unsupported"}, sample(0, 1)]), json!([])),
        ];
        for used in used {
            // Once in use is in use.
            assert_eq!(chosen(&[used, idle()], Policy::Idle), Some("c".into()));
        }
        let busy = || report(json!([sample(0, 1), sample(3, 1), sample(3, 1)]), json!([]));
        assert_eq!(chosen(&[busy()], Policy::Idle), None);
        assert_eq!(chosen(&[busy()], Policy::Always), Some("b".into()));
    }

    #[test]
    fn a_gpu_whose_processes_cannot_be_listed_is_not_known_to_be_idle() {
        let mut unknown = report(json!([sample(0, 1), sample(0, 1), sample(0, 1)]), json!([]));
        unknown.0["process_gaps"] = json!([{"gpu": "b", "gap": "unsupported"}]);
        assert_eq!(chosen(&[unknown], Policy::Idle), Some("c".into()));
    }
}
