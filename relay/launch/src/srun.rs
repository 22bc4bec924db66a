//! SLURM's `srun`: starts a probe on a node as a step of one of the user's jobs there, where nodes cannot be
//! logged in to.
//!
//! Each node costs a process on the relay's machine and a job step; each command during a launch is a step of
//! its own. The step belongs to the job's cgroup: where SLURM confines devices, the probe sees the GPUs of that
//! job only, and the user's other jobs there get probes of their own, with any launcher of the node's own. A step
//! ends with its job.

use super::child::{self, ChildCommand};
use super::deploy::{Deployer, Host, LAUNCH_LIMIT, RemoteCommand};
use super::upload::ProbeBinary;
use super::{JobLauncher, LaunchError, Launcher, NodeStream, StreamEnd, Tail};
use async_trait::async_trait;
use bytes::Bytes;
use nodeglass_platform::program;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

/// The program.
const SRUN: &str = "srun";
/// The first line of stderr of a command that runs: until then, SLURM is still creating the step.
const STARTED: &str = "nodeglass-step: started";
/// Environment variables that the step gets besides SLURM's.
const EXPORTED: &str = "--export=HOME,USER,LOGNAME,PATH,LANG,TMPDIR,XDG_RUNTIME_DIR,LIBTPUINFO_GRPC_PORT";
/// Prefixes of variables that are options of `srun`, or describe the job of its shell: labels before each line would make
/// the probe's output unreadable, and another cluster has other jobs.
const OPTIONS: [&str; 3] = ["SLURM_", "SLURMD_", "SRUN_"];
/// Variables among them that locate SLURM.
const KEPT_VARIABLES: [&str; 2] = ["SLURM_CONF", "SLURM_CONF_SERVER"];
/// A step is given up this long before the launch's deadline, so that a step that SLURM does not create is
/// distinguished from a probe that does not respond.
const BEFORE_DEADLINE: Duration = Duration::from_millis(100);

/// The running jobs of the user on each node, in SLURM's order.
pub type JobsByNode = BTreeMap<NodeName, Vec<JobId>>;

/// Sorts the running jobs of a user by their nodes.
pub fn jobs_by_node(jobs: &[Job], user: &str) -> JobsByNode {
    let mut by_node = JobsByNode::new();
    for job in jobs.iter().filter(|job| job.state == JobState::Running && job.user.as_str() == user) {
        for node in &job.nodes {
            by_node.entry(node.clone()).or_default().push(job.id);
        }
    }
    by_node
}

/// Maximum number of probes of jobs being started: each costs slurmctld some requests.
const JOB_LAUNCHES_AT_ONCE: usize = 4;

/// Starts probes with `srun --overlap`.
pub struct SrunLauncher {
    jobs: watch::Receiver<Arc<JobsByNode>>,
    steps: Arc<JobSteps>,
}

/// Starts probes as steps of given jobs.
struct JobSteps {
    launches: Semaphore,
    deployer: Deployer,
}

impl SrunLauncher {
    /// A launcher of `probe` in steps of these jobs.
    pub fn new(probe: ProbeBinary, relay_id: u64, jobs: watch::Receiver<Arc<JobsByNode>>) -> Self {
        let deployer = Deployer::new(probe, relay_id);
        let steps = Arc::new(JobSteps { launches: Semaphore::new(JOB_LAUNCHES_AT_ONCE), deployer });
        Self { jobs, steps }
    }
}

#[async_trait]
impl Launcher for SrunLauncher {
    fn name(&self) -> &'static str {
        "srun"
    }

    fn is_installed(&self) -> bool {
        program::find(SRUN).is_some()
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        // The newest job mostly lasts longest.
        let job = self.jobs.borrow().get(node).and_then(|jobs| jobs.iter().max().copied());
        let Some(job) = job else {
            return Err(LaunchError::Denied { why: format!("none of your jobs runs on {node} now").into() });
        };
        let deadline = Instant::now() + LAUNCH_LIMIT;
        self.steps.deployer.run((node, None), Allocation { job, node: node.clone() }, deadline).await
    }

    fn job_launcher(&self) -> Option<Arc<dyn JobLauncher>> {
        self.is_installed().then(|| Arc::clone(&self.steps) as Arc<dyn JobLauncher>)
    }
}

#[async_trait]
impl JobLauncher for JobSteps {
    async fn launch_in(&self, job: JobId, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let _permit = self.launches.acquire().await.expect("never closed");
        let deadline = Instant::now() + LAUNCH_LIMIT;
        self.deployer.run((node, Some(job)), Allocation { job, node: node.clone() }, deadline).await
    }
}

/// A node of a job; each command is a step of its own.
struct Allocation {
    job: JobId,
    node: NodeName,
}

impl Allocation {
    /// `srun … sh -c COMMAND`.
    fn command(&self, remote: &str) -> Command {
        let mut command = Command::new(SRUN);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_option(name)) {
            command.env_remove(name);
        }
        command
            .args(["--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--cpu-bind=none", "--quiet", EXPORTED])
            .arg(format!("--jobid={}", self.job))
            .arg(format!("--nodelist={}", self.node))
            .args(["--job-name=nodeglass", "sh", "-c"])
            .arg(format!("echo '{STARTED}' >&2; {remote}"));
        child::isolate(&mut command);
        command
    }
}

/// Returns whether a variable changes what `srun` prints, or where it runs.
fn is_option(name: &OsStr) -> bool {
    let is_kept = KEPT_VARIABLES.iter().any(|kept| name == *kept);
    !is_kept && OPTIONS.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

impl Host for Allocation {
    type Command = Step;

    fn silent(&self, node: &NodeName) -> LaunchError {
        let job = self.job;
        LaunchError::Hangs {
            why: format!("a step of job {job} started on {node}, but the probe did not respond within 20 s")
                .into(),
            advice: format!(
                "check that `srun --overlap --jobid={job} --nodelist={node} true` ends at once; a file system may hang there"
            )
            .into(),
        }
    }

    async fn start(self, command: &str, deadline: Instant) -> Result<Step, LaunchError> {
        let mut child = ChildCommand::spawn(&mut self.command(command), StepLog::default())
            .map_err(|error| not_started(&error))?;
        match timeout_at(deadline - BEFORE_DEADLINE, child.until(StepLog::has_started)).await {
            Err(_) => Err(unreachable(format!("SLURM did not start a step of job {} within 20 s", self.job))),
            Ok(Err(error)) => Err(unreachable(format!("`srun` could not be read: {error}"))),
            Ok(Ok(true)) => Ok(Step { child, on: self }),
            Ok(Ok(false)) => {
                let (end, log) = child.finish().await;
                match log.has_started() {
                    true => Err(unreachable("the step ended as it started".to_owned())),
                    false => Err(refusal(&self, end.stderr.as_str())),
                }
            }
        }
    }
}

/// A command in a step, and the `srun` that carries its pipes.
struct Step {
    child: ChildCommand<StepLog>,
    on: Allocation,
}

impl RemoteCommand for Step {
    type Host = Allocation;

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.child.next().await
    }

    async fn write_until_end(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.child.write_until_end(bytes).await
    }

    async fn end_input(&mut self) -> io::Result<()> {
        self.child.end_input();
        Ok(())
    }

    async fn finish(self) -> Result<(StreamEnd, Allocation), LaunchError> {
        let (end, _) = self.child.finish().await;
        Ok((end, self.on))
    }

    fn into_stream(self, received: Vec<Bytes>) -> NodeStream {
        self.child.into_stream(received)
    }
}

/// Output of `srun` and the step on stderr.
#[derive(Default)]
struct StepLog {
    tail: Tail,
    /// The beginning, until the step has started.
    head: Vec<u8>,
    started: bool,
}

impl StepLog {
    fn has_started(&self) -> bool {
        self.started
    }
}

impl child::StderrReader for StepLog {
    fn push(&mut self, bytes: &[u8]) {
        if self.started {
            return self.tail.push(bytes);
        }
        self.head.extend_from_slice(bytes);
        let mark = self.head.windows(STARTED.len()).position(|window| window == STARTED.as_bytes());
        if let Some(at) = mark {
            self.started = true;
            let rest = self.head.split_off(at + STARTED.len());
            self.tail = Tail::default();
            self.tail.push(rest.strip_prefix(b"\n").unwrap_or(&rest));
            self.head = Vec::new();
        } else {
            self.tail.push(bytes);
            let over = self.head.len().saturating_sub(2 * STARTED.len());
            self.head.drain(..over);
        }
    }

    fn end(&mut self, status: Option<ExitStatus>) -> StreamEnd {
        child::StderrReader::end(&mut self.tail, status)
    }
}

fn unreachable(why: String) -> LaunchError {
    LaunchError::Unreachable { why: why.into() }
}

/// The error for an `srun` that cannot be started.
fn not_started(error: &io::Error) -> LaunchError {
    match error.kind() {
        io::ErrorKind::NotFound => LaunchError::Capability {
            why: "there is no `srun` program on the relay's machine".into(),
            advice: "run the relay on a login node of the cluster".into(),
        },
        _ => unreachable(format!("`srun` could not be started: {error}")),
    }
}

/// Returns why SLURM created no step, from the output of `srun`.
fn refusal(on: &Allocation, stderr: &str) -> LaunchError {
    let Allocation { job, node } = on;
    let has = |part: &str| stderr.contains(part);
    if has("has expired")
        || has("Invalid job id")
        || has("not a valid job")
        || has("Job/step already completing")
    {
        return LaunchError::Denied { why: format!("job {job} has ended").into() };
    }
    if has("Requested node configuration is not available") || has("not in this job") {
        return LaunchError::Denied { why: format!("job {job} does not run on {node} any more").into() };
    }
    if has("Access/permission denied") {
        return LaunchError::Denied { why: format!("SLURM refuses steps of job {job}").into() };
    }
    let mut lines =
        stderr.lines().map(|line| line.trim().trim_start_matches("srun: ").trim_start_matches("error: "));
    let last = lines.rfind(|line| !line.is_empty()).unwrap_or("it printed no reason");
    LaunchError::Throttled { why: format!("SLURM started no step of job {job}: {last}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use child::StderrReader as _;

    fn allocation() -> Allocation {
        Allocation { job: JobId(22), node: NodeName::new("gpu-01").unwrap() }
    }

    #[test]
    fn the_start_of_a_step_is_found_in_any_chunks_and_what_precedes_it_is_dropped() {
        let text = format!("srun: job 22 queued\n{STARTED}\nno such file\n");
        for size in [1, 7, 1_000] {
            let mut log = StepLog::default();
            text.as_bytes().chunks(size).for_each(|chunk| log.push(chunk));
            assert!(log.has_started(), "{size}");
            assert_eq!(log.end(None).stderr.as_str(), "no such file", "{size}");
        }
    }

    #[test]
    fn a_step_that_does_not_start_keeps_its_reason() {
        let mut log = StepLog::default();
        (0..1_000).for_each(|_| log.push(b"srun: Job step creation temporarily disabled, retrying\n"));
        assert!(!log.has_started() && log.head.len() < 200);
        assert!(log.end(None).stderr.as_str().ends_with("temporarily disabled, retrying"));
    }

    #[test]
    fn options_in_the_environment_of_the_relay_do_not_reach_srun() {
        for option in ["SLURM_LABELIO", "SLURM_CLUSTERS", "SRUN_CONTAINER", "SLURM_JOB_ID", "SLURM_HET_SIZE"]
        {
            assert!(is_option(OsStr::new(option)), "{option}");
        }
        for kept in ["SLURM_CONF", "SLURM_CONF_SERVER", "PATH", "SLURM", "MY_SLURM_CLUSTERS"] {
            assert!(!is_option(OsStr::new(kept)), "{kept}");
        }
    }

    #[test]
    fn a_step_without_a_response_is_not_taken_for_a_login() {
        let on = allocation();
        let LaunchError::Hangs { why, advice } = on.silent(&on.node) else { panic!("another error") };
        assert_eq!(
            why.as_str(),
            "a step of job 22 started on gpu-01, but the probe did not respond within 20 s"
        );
        assert!(advice.as_str().contains("--jobid=22 --nodelist=gpu-01"), "{advice}");
    }

    #[test]
    fn the_end_of_a_job_is_distinguished_from_a_failure() {
        let on = allocation();
        let denied = |why: &str| LaunchError::Denied { why: why.into() };
        let ended = "srun: error: Unable to confirm allocation for job 22: Invalid job id specified\n";
        assert_eq!(refusal(&on, ended), denied("job 22 has ended"));
        assert_eq!(refusal(&on, "srun: error: Slurm job 22 has expired\n"), denied("job 22 has ended"));
        let elsewhere =
            "srun: error: Unable to create step for job 22: Requested node configuration is not available\n";
        assert_eq!(refusal(&on, elsewhere), denied("job 22 does not run on gpu-01 any more"));
        let down = "srun: error: Unable to create step for job 22: Unable to contact slurm controller\n\n";
        let why = "SLURM started no step of job 22: Unable to create step for job 22: Unable to contact slurm controller";
        assert_eq!(refusal(&on, down), LaunchError::Throttled { why: why.into() });
        let silent =
            LaunchError::Throttled { why: "SLURM started no step of job 22: it printed no reason".into() };
        assert_eq!(refusal(&on, ""), silent);
    }
}
