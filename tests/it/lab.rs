//! The cluster in namespaces is a real SLURM cluster, and the relay reads it correctly.

mod accounting;
mod actions;
mod adopting;
mod cluster;
mod confined;
mod divided;
mod doctor;
mod findings;
mod jump_host;
mod new_jobs;
mod notes;
mod page;
mod partition;
mod recovery;
mod sharing;
mod site;
mod srun;

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{GpuSet, Job, JobState, Parent, TimeLimit};
use nodeglass_slurm::{JobSource as _, Slurm};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::lab::{LabOptions, SlurmLab};
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

/// The result of the relay's SLURM code: the cluster's name and the jobs, or why there are none.
type Answer = Result<(Option<String>, Vec<Job>), String>;

/// The other side of [`Watch`]: the relay's code, run as a user on the login host, with one poll
/// per line of stdin.
#[tokio::test]
#[ignore = "it is run by other tests, inside the cluster"]
async fn inside_the_cluster_the_jobs_are_printed() -> Result<()> {
    let mut slurm = Slurm::detect().await?;
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        let jobs = slurm.jobs().await.map_err(|error| error.to_string());
        let answer: Answer = jobs.map(|jobs| (slurm.cluster().map(ToString::to_string), jobs));
        println!("ANSWER {}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

/// The relay's view of SLURM as a user on `login`, poll by poll.
struct Watch {
    child: Child,
    ask: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(lab: &SlurmLab, user: &str) -> Result<Self> {
        let name = "lab::inside_the_cluster_the_jobs_are_printed";
        let mut command = lab.on("login", user, &[PROGRAM, "--exact", name, "--ignored", "--nocapture"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().context("stdout was piped")?).lines();
        Ok(Self { ask: child.stdin.take(), answers, child })
    }

    fn poll(&mut self) -> Result<Answer> {
        self.ask.as_mut().context("stdin was piped")?.write_all(b"\n")?;
        loop {
            let line = self.answers.next().context("it ended without an answer")??;
            if let Some((_, answer)) = line.split_once("ANSWER ") {
                return Ok(serde_json::from_str(answer)?);
            }
        }
    }

    fn jobs(&mut self) -> Result<Vec<Job>> {
        self.poll()?.map(|(_, jobs)| jobs).map_err(anyhow::Error::msg)
    }

    /// Polls until the controller responds again: on a busy machine, its first responses may exceed the limit of a poll.
    fn poll_after_repair(&mut self) -> Result<(Option<String>, Vec<Job>)> {
        let start = Instant::now();
        loop {
            match self.poll()? {
                Ok(answer) => return Ok(answer),
                Err(why) if start.elapsed() > TIMEOUT => bail!("{why}"),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It exits when its stdin closes.
        self.ask.take();
        let _ = self.child.wait();
    }
}

/// Path of this test program on the login host.
const PROGRAM: &str = "/usr/local/bin/nodeglass-it";

/// A cluster with this test program on its login host.
fn lab(nodes: u32) -> Result<Option<SlurmLab>> {
    let Some(lab) = SlurmLab::up_or_skip(&LabOptions { nodes, ..LabOptions::default() })? else {
        return Ok(None);
    };
    // Not by its path, because a concurrent build may replace the file.
    let this = format!("/proc/{}/exe", std::process::id());
    lab.put("login", Path::new(&this), PROGRAM, 0o755)?;
    Ok(Some(lab))
}

fn find(jobs: &[Job], id: JobId) -> Result<&Job> {
    jobs.iter().find(|job| job.id == id).with_context(|| format!("job {id} among {jobs:?}"))
}

/// `gpu-node-01:0,1 gpu-node-02:?`
fn gpus(job: &Job) -> String {
    let words = job.gpus.iter().map(|gpus| match &gpus.set {
        GpuSet::Indices(list) => {
            format!("{}:{}", gpus.node, list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        }
        GpuSet::Count(count) => format!("{}:{count}x", gpus.node),
        GpuSet::Unknown => format!("{}:?", gpus.node),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn jobs_of_every_kind_are_parsed() -> Result<()> {
    let Some(lab) = lab(2)? else { return Ok(()) };
    let alice = |args: &[&str]| lab.sbatch("alice", args, "sleep 600");
    let two = alice(&["-N2", "--gres=gpu:2", "-t", "1:00:00"])?;
    let one =
        alice(&["-w", "gpu-node-02", "--gres=gpu:a100:1", "-J", "we|ird \"näme\"\n\u{1e}\u{1f}\u{1b}[31m"])?;
    let array = alice(&["-a", "0-3%1", "--gres=gpu:1"])?;
    let het = alice(&["--gres=gpu:1", ":", "-c", "2"])?;
    let cpu = alice(&["-t", "UNLIMITED"])?;
    let paused = alice(&["-J", "paused"])?;
    let waiting = alice(&["-N2", "--gres=gpu:4", "--exclusive"])?;
    let bobs = lab.sbatch("bob", &["-J", "x\nJobId=1 JobName=y"], "sleep 600")?;
    for job in [two, one, array, het, cpu, paused, bobs] {
        lab.wait_until(job, "RUNNING")?;
    }
    lab.text("login", "root", &["scontrol", "suspend", &paused.to_string()])?;
    lab.wait_until(paused, "SUSPENDED")?;

    let mut watch = Watch::start(&lab, "alice")?;
    let (cluster, jobs) = watch.poll()?.map_err(anyhow::Error::msg)?;
    assert_eq!(cluster.as_deref(), Some("lab"));
    assert!(jobs.iter().all(|job| job.user.as_str() == "alice" && job.id != bobs), "{jobs:#?}");
    let job = find(&jobs, two)?;
    assert_eq!((gpus(job).as_str(), job.gpu_count), ("gpu-node-01:0,1 gpu-node-02:0,1", Some(4)));
    assert_eq!((&job.state, job.limit, job.node_count), (&JobState::Running, TimeLimit::Seconds(3600), 2));
    let job = find(&jobs, one)?;
    assert_eq!((gpus(job).as_str(), job.name.as_str()), ("gpu-node-02:2", "we|ird \"näme\"    [31m"));
    let task = jobs.iter().find(|job| job.part_of == Some(Parent::Array { job: array, task: Some(0) }));
    assert_eq!(task.map(|job| job.label.as_str()), Some(format!("{array}_0").as_str()));
    let rest = jobs.iter().find(|job| job.part_of == Some(Parent::Array { job: array, task: None }));
    assert_eq!(
        rest.map(|job| (&job.state, job.label.as_str())),
        Some((&JobState::Pending, format!("{array}_[1-3%1]").as_str()))
    );
    let part = find(&jobs, JobId(het.0 + 1))?;
    assert_eq!(part.part_of, Some(Parent::Het { job: het, offset: 1 }));
    assert_eq!((part.gpu_count, part.cpus), (Some(0), Some(2)));
    assert_eq!((find(&jobs, cpu)?.gpu_count, find(&jobs, cpu)?.limit), (Some(0), TimeLimit::Unlimited));
    assert_eq!(find(&jobs, paused)?.state, JobState::Suspended);
    let job = find(&jobs, waiting)?;
    assert_eq!((&job.state, job.nodes.len(), job.gpu_count), (&JobState::Pending, 0, Some(8)));
    ensure!(job.reason.is_some() && job.submitted.is_some(), "{job:?}");

    assert_eq!(Watch::start(&lab, "bob")?.jobs()?.iter().map(|job| job.id).collect::<Vec<_>>(), [bobs]);

    lab.scancel("alice", two)?;
    lab.wait_until(two, "CANCELLED")?;
    let jobs = watch.jobs()?;
    let job = find(&jobs, two)?;
    assert_eq!(
        (&job.state, gpus(job).as_str()),
        (&JobState::Ended("CANCELLED".into()), "gpu-node-01:0,1 gpu-node-02:0,1")
    );
    ensure!(job.ended >= job.start && job.start.is_some(), "{job:?}");
    let newcomer = Watch::start(&lab, "alice")?.jobs()?;
    let job = find(&newcomer, two).context("a relay lists what ended a moment before its start")?;
    assert_eq!(job.state, JobState::Ended("CANCELLED".into()));
    Ok(())
}

#[test]
fn a_job_that_ignores_sigterm_keeps_its_gpus_while_completing() -> Result<()> {
    let Some(lab) = lab(1)? else { return Ok(()) };
    let stubborn = lab.sbatch("alice", &["--gres=gpu:2"], "trap '' TERM; while :; do sleep 1; done")?;
    lab.wait_until(stubborn, "RUNNING")?;
    let mut watch = Watch::start(&lab, "alice")?;
    assert_eq!(gpus(find(&watch.jobs()?, stubborn)?), "gpu-node-01:0,1");
    lab.scancel("alice", stubborn)?;
    lab.wait_until(stubborn, "COMPLETING")?;
    let jobs = watch.jobs()?;
    let job = find(&jobs, stubborn)?;
    assert_eq!((&job.state, gpus(job).as_str()), (&JobState::Completing, "gpu-node-01:0,1"));
    Ok(())
}

#[test]
fn f09_a_dead_controller_is_reported_in_ten_seconds_and_polled_again_once_back() -> Result<()> {
    let Some(lab) = lab(1)? else { return Ok(()) };
    let job = lab.sbatch("alice", &["--gres=gpu:1"], "sleep 600")?;
    lab.wait_until(job, "RUNNING")?;
    let mut watch = Watch::start(&lab, "alice")?;
    assert_eq!(gpus(find(&watch.jobs()?, job)?), "gpu-node-01:0");
    lab.freeze("slurm-ctl", "slurmctld")?;
    let why = watch.poll()?.err().context("a frozen controller returns no jobs")?;
    // SLURM's own limit (`MessageTimeout`) is as long, and may end the command first.
    let reasons =
        ["squeue did not respond within 10 s", "squeue failed: slurm_load_jobs error: Socket timed out"];
    ensure!(reasons.iter().any(|reason| why.starts_with(reason)), "{why}");
    ensure!(why.ends_with("; showing the last list"), "{why}");
    lab.thaw("slurm-ctl", "slurmctld")?;
    let (_, jobs) = watch.poll_after_repair()?;
    assert_eq!(gpus(find(&jobs, job)?), "gpu-node-01:0");
    lab.svc("slurm-ctl", "stop", "slurmctld")?;
    let why = watch.poll()?.err().context("a stopped controller returns no jobs")?;
    ensure!(why.starts_with("squeue "), "{why}");
    // A relay that starts now waits for SLURM, and does not treat this as a machine without SLURM.
    let mut newcomer = Watch::start(&lab, "alice")?;
    ensure!(newcomer.poll()?.is_err());
    lab.svc("slurm-ctl", "start", "slurmctld")?;
    lab.wait_until(job, "RUNNING")?;
    let (cluster, jobs) = newcomer.poll_after_repair()?;
    assert_eq!((cluster.as_deref(), gpus(find(&jobs, job)?).as_str()), (Some("lab"), "gpu-node-01:0"));
    // None of the killed commands is left on the login host.
    let left = lab.exec("login", "root", &["pgrep", "-x", "squeue|scontrol"])?;
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
    Ok(())
}

#[test]
fn the_lab_cuts_cables_crashes_nodes_and_opens_tunnels() -> Result<()> {
    let Some(lab) = lab(2)? else { return Ok(()) };
    let ssh = |host: &str| {
        let argv = ["ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", host, "hostname"];
        lab.exec("login", "alice", &argv)
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    assert_eq!(lab.nodes(), ["gpu-node-01", "gpu-node-02"]);
    assert_eq!(ssh("gpu-node-02")?, "gpu-node-02");
    lab.cut("gpu-node-02")?;
    assert_eq!(ssh("gpu-node-02")?, "");
    lab.mend("gpu-node-02")?;
    assert_eq!(eventually(|| ssh("gpu-node-02"), "gpu-node-02")?, "gpu-node-02");
    lab.crash("gpu-node-01")?;
    assert!(lab.host_path("gpu-node-01").is_err());
    lab.boot("gpu-node-01")?;
    assert_eq!(eventually(|| ssh("gpu-node-01"), "gpu-node-01")?, "gpu-node-01");

    // Copies a file, serves it on loopback of `login`, and reads it from a laptop.
    let note = tempfile::NamedTempFile::new()?;
    std::fs::write(note.path(), "over the wire\n")?;
    lab.put("login", note.path(), "/etc/note", 0o600)?;
    assert_eq!(std::fs::read_to_string(lab.host_path("login")?.join("etc/note"))?, "over the wire\n");
    assert!(lab.text("login", "alice", &["cat", "/etc/note"]).is_err(), "mode 600 is root's");
    let tunnel = lab.tunnel("alice", "127.0.0.1:22")?;
    let mut greeting = [0; 8];
    let mut stream = TcpStream::connect(("127.0.0.1", tunnel.port()))?;
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting, b"SSH-2.0-");
    stream.write_all(b"bye\r\n")?;
    Ok(())
}

#[test]
fn a_dropped_command_and_a_dropped_cluster_leave_no_process() -> Result<()> {
    let Some(lab) = lab(1)? else { return Ok(()) };
    let root: PathBuf = lab.host_path("gpu-node-01")?;
    let sleeper = lab.spawn("gpu-node-01", "bob", &["bash", "-c", "sleep 4242 & sleep 4243"])?;
    let pid = SlurmLab::inner_pid(&sleeper)?;
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let sleeps = || lab.exec("gpu-node-01", "root", &["pgrep", "-x", "sleep", "-u", "bob"]);
    let count = || sleeps().map(|output| String::from_utf8_lossy(&output.stdout).lines().count().to_string());
    assert_eq!(eventually(count, "2")?, "2");
    drop(sleeper);
    // Being dropped half-way through is the harder case.
    for _ in 0..20 {
        drop(lab.spawn("gpu-node-01", "bob", &["sleep", "4244"])?);
    }
    assert_eq!(eventually(count, "0")?, "0");
    drop(lab);
    assert!(!root.exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mine = format!("nodeglass-lab-{}-", std::process::id());
    assert!(!mounts.contains(&mine) || other_labs_are_up(&mine), "{mounts}");
    Ok(())
}

/// Other tests of this process may have clusters at the same time.
fn other_labs_are_up(mine: &str) -> bool {
    let entries = std::fs::read_dir("/run").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with(mine))
}

/// The response once it equals `want`, or the last one.
fn eventually(answer: impl Fn() -> Result<String>, want: &str) -> Result<String> {
    let start = Instant::now();
    loop {
        let now = answer()?;
        if now == want || start.elapsed() > TIMEOUT {
            return Ok(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
