//! Actions on a real cluster: process details, signals, logs, and holding and cancelling jobs.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Evidence, Link, NodePicture, Picture};
use nodeglass_protocol::process::{ProcessFacts, Runtime};
use nodeglass_protocol::request::{JobAction, LogRef, LogStream, ProcessRef, Request, Response, Signal};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::Site;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Two ranks on one GPU each that name themselves, and a loop that writes a line a second.
const RANKS: &str = "echo starting; (while :; do echo tick; sleep 1; done) &\n\
    srun --overlap bash -c 'echo rank $SLURM_PROCID; \
    exec python3 -c \"import time; time.sleep(900)\" --gpus=$SLURM_PROCID --gpu-mem=20G'";

fn job(picture: &Picture, id: JobId) -> Option<&Job> {
    picture.jobs.iter().find(|job| job.id == id)
}

/// The processes of a job on a node, by rank.
fn ranks(node: &NodePicture, id: JobId) -> Vec<&ProcessFacts> {
    let mut facts: Vec<_> = node.processes.iter().map(|process| &process.facts).collect();
    facts.retain(|facts| facts.job == Some(id) && facts.rank.is_some());
    facts.sort_by_key(|facts| facts.rank.map(|rank| rank.global));
    facts
}

fn reference(facts: &ProcessFacts) -> Result<ProcessRef> {
    Ok(ProcessRef { pid: facts.pid, started_ms: *facts.started_ms.value().context("its start")? })
}

fn refused(response: Response) -> Result<String> {
    match response {
        Response::Refused(why) => Ok(why.to_string()),
        other => bail!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn ranks_are_shown_a_log_is_followed_and_a_process_is_killed() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let id = site.lab.sbatch("alice", &["-n2", "--gres=gpu:2", "--mem=300M"], RANKS)?;
    site.lab.wait_until(id, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    ensure!(client.welcome().may_act);
    let (topic, node) = (Topic::Job(id), NodeName::new("gpu-node-01")?);
    client.subscribe(&[Topic::Overview, topic.clone()]).await?;
    let has_log = |picture: &Picture| job(picture, id).is_some_and(|job| job.stdout.is_some());
    let overview =
        client.until(&Topic::Overview, "the path of its log", |known| has_log(&known.picture)).await?;
    let facts = job(overview, id).context("the job")?;
    ensure!(facts.mem_bytes == Some(300 << 20), "{facts:?}");
    ensure!(
        facts.stdout.as_ref().map(|path| path.to_string()) == Some(format!("/home/alice/slurm-{id}.out"))
    );
    ensure!(facts.batch_host.as_ref() == Some(&node) && facts.workdir == Some("/home/alice".into()));
    ensure!(facts.exit.is_none() && facts.restarts == 0, "{facts:?}");

    // Ranks and steps, from the processes' environment.
    let both = |picture: &Picture| picture.nodes.iter().any(|node| ranks(node, id).len() == 2);
    let picture = client.until(&topic, "two ranks", |known| both(&known.picture)).await?.clone();
    let tasks = ranks(&picture.nodes[0], id);
    for (number, task) in (0..).zip(&tasks) {
        let rank = task.rank.context("a rank")?;
        ensure!((rank.global, rank.local, rank.world) == (number, Some(number), Some(2)), "{task:?}");
        ensure!(task.step == Some("0".into()), "{task:?}");
    }
    let (first, second) = (reference(tasks[0])?, reference(tasks[1])?);

    // Details of one of them.
    let request = Request::Process { node: node.clone(), process: first, environment: true };
    let Response::Process(detail) = client.request(request).await? else { bail!("no detail") };
    let environment = detail.environment.value().context("its environment")?;
    let job_id = environment.iter().find(|variable| variable.name.as_str() == "SLURM_JOB_ID");
    ensure!(job_id.is_some_and(|variable| variable.value.as_str() == id.to_string()), "{environment:?}");
    let family: Vec<_> = detail.ancestors.iter().map(|kin| kin.command.as_str()).collect();
    ensure!(family.iter().any(|name| name.contains("slurmstepd")), "{family:?}");

    // Its log, as it is written.
    let log = LogRef { job: id, stream: LogStream::Stdout };
    client.follow(&[log]).await?;
    let has = |lines: &[String], what: &str| lines.iter().any(|line| line == what);
    client.log_until(log, "both ranks", |lines| has(lines, "rank 0") && has(lines, "rank 1")).await?;
    let ticks = |lines: &[String]| lines.iter().filter(|line| *line == "tick").count();
    let before = client.log(log).map(ticks).unwrap_or_default();
    let lines = client.log_until(log, "three more lines", |lines| ticks(lines) >= before + 3).await?;
    ensure!(lines.iter().filter(|line| *line == "rank 0").count() == 1, "each line once: {lines:?}");

    // A process is identified by pid and start time: a process that reused the pid is not signalled.
    let signal = |process| Request::Signal { node: node.clone(), process, signal: Signal::Kill };
    let other = ProcessRef { started_ms: first.started_ms + 60_000, ..second };
    refused(client.request(signal(other)).await?)?;
    let Response::Done(_) = client.request(signal(second)).await? else { bail!("it was not done") };
    let gone = |picture: &Picture| !picture.nodes[0].processes.iter().any(|p| p.facts.pid == second.pid);
    client.until(&topic, "its end", |known| gone(&known.picture)).await?;
    let deeds = |picture: &Picture| picture.audit_log.len() == 2;
    let overview = client.until(&Topic::Overview, "both deeds", |known| deeds(&known.picture)).await?;
    ensure!(!overview.audit_log[0].succeeded && overview.audit_log[1].succeeded, "{:?}", overview.audit_log);
    ensure!(overview.audit_log[1].action.as_str() == format!("SIGKILL to {} on gpu-node-01", second.pid));
    Ok(())
}

/// A cgroup named as Docker names them; removed with the guard once its process has ended.
struct DockersCgroup(PathBuf);

impl DockersCgroup {
    /// Creates one in the hierarchy that this machine has, and lets root of a node put a process into it:
    /// a node has its own pid namespace.
    fn around(site: &Site, node: &str, pid: u32, id: &str) -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchy = ["pids", "unified", ""].map(|name| root.join(name));
        let has_groups = |folder: &&PathBuf| folder.join("cgroup.procs").exists();
        let hierarchy = hierarchy.iter().find(has_groups).context("cgroups are mounted")?;
        let group = Self(hierarchy.join("docker").join(id));
        std::fs::create_dir_all(&group.0)?;
        let put = format!("echo {pid} > {}/cgroup.procs", group.0.display());
        site.lab.text(node, "root", &["bash", "-c", &put])?;
        Ok(group)
    }
}

impl Drop for DockersCgroup {
    fn drop(&mut self) {
        // It is busy until its last process has ended.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                let _ = self.0.parent().map(std::fs::remove_dir);
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[tokio::test]
async fn a_process_in_a_containers_cgroup_is_reported_with_its_container() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let id = site.train("alice", &["--gres=gpu:1"])?;
    site.lab.wait_until(id, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    let topic = Topic::Job(id);
    client.subscribe(&[Topic::Overview, topic.clone()]).await?;
    let first = |picture: &Picture| picture.nodes.first()?.processes.first().map(|one| one.facts.clone());
    let known = client.until(&topic, "its process", |known| first(&known.picture).is_some()).await?;
    let facts = first(known).context("its process")?;
    ensure!(facts.container.is_none(), "{facts:?}");
    let image = "4f".repeat(32);
    let _group = DockersCgroup::around(&site, "gpu-node-01", facts.pid, &image)?;
    // A new relay starts a new probe, which has not inspected the process before.
    drop((client, relay));
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview, topic.clone()]).await?;
    let container_of = |picture: &Picture| first(picture).and_then(|facts| facts.container);
    let known = client.until(&topic, "its container", |known| container_of(&known.picture).is_some()).await?;
    let container = container_of(known).context("its container")?;
    ensure!(container.runtime == Runtime::Docker, "{container:?}");
    ensure!(container.name.is_some_and(|name| image.starts_with(name.as_str())), "its short id");
    site.lab.scancel("alice", id)?;
    site.lab.wait_until(id, "CANCELLED")
}

#[tokio::test]
async fn a_log_on_the_nodes_own_disk_is_read_there() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let script = "for n in $(seq 900); do echo line $n; sleep 1; done";
    let arguments = ["--gres=gpu:1", "--output=/tmp/only-here-%j.out"];
    let id = site.lab.sbatch("alice", &arguments, script)?;
    site.lab.wait_until(id, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let live = |picture: &Picture| picture.nodes.iter().any(|node| node.head.link == Link::Live);
    client.until(&Topic::Overview, "a live node", |known| live(&known.picture)).await?;
    let log = LogRef { job: id, stream: LogStream::Stderr };
    client.follow(&[log]).await?;
    let lines = client.log_until(log, "five lines", |lines| lines.len() >= 5).await?;
    let expected: Vec<_> = (1..=lines.len()).map(|n| format!("line {n}")).collect();
    ensure!(lines == expected, "whole and once: {lines:?}");
    ensure!(!site.lab.host_path("login")?.join(format!("tmp/only-here-{id}.out")).exists());
    Ok(())
}

#[tokio::test]
async fn jobs_are_controlled_from_the_page_unless_the_relay_is_read_only() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let running = site.train("alice", &["--gres=gpu:3", "--no-requeue"])?;
    let waiting = site.train("alice", &["--gres=gpu:4"])?;
    let bobs = site.train("bob", &["--gres=gpu:1"])?;
    site.lab.wait_until(running, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let control = |job, action| Request::Job { job, action };
    let reason = |picture: &Picture| {
        let job = job(picture, waiting)?;
        Some((job.reason.as_ref()?.to_string(), job.reason_text.as_ref()?.to_string()))
    };
    let waits = |picture: &Picture| reason(picture).is_some_and(|(code, _)| code != "JobHeldUser");
    client.until(&Topic::Overview, "why it waits", |known| waits(&known.picture)).await?;

    let Response::Done(_) = client.request(control(waiting, JobAction::Hold)).await? else {
        bail!("not held")
    };
    let held = |picture: &Picture| {
        reason(picture).is_some_and(|(code, words)| code == "JobHeldUser" && words.contains("Release it"))
    };
    client.until(&Topic::Overview, "that it is held", |known| held(&known.picture)).await?;
    let Response::Done(_) = client.request(control(waiting, JobAction::Release)).await? else {
        bail!("not released")
    };
    client.until(&Topic::Overview, "that it waits", |known| waits(&known.picture)).await?;

    // A refusal by SLURM, and one before SLURM is called.
    let why = refused(client.request(control(running, JobAction::Requeue)).await?)?;
    ensure!(why.starts_with("scontrol failed:"), "{why}");
    let why = refused(client.request(control(bobs, JobAction::Cancel)).await?)?;
    ensure!(why.contains("no job"), "{why}");

    let Response::Done(_) = client.request(control(running, JobAction::Cancel)).await? else {
        bail!("not cancelled")
    };
    let ended = |picture: &Picture| {
        job(picture, running).is_some_and(|job| job.state == JobState::Ended("CANCELLED".into()))
    };
    let overview = client.until(&Topic::Overview, "its end", |known| ended(&known.picture)).await?;
    let deeds: Vec<_> =
        overview.audit_log.iter().map(|deed| (deed.action.as_str(), deed.succeeded)).collect();
    let said = |verb: &str, id| format!("{verb} job {id}");
    let (hold, release) = (said("hold", waiting), said("release", waiting));
    let (again, cancel) = (said("requeue", running), said("cancel", running));
    ensure!(deeds == [(&*hold, true), (&*release, true), (&*again, false), (&*cancel, true)], "{deeds:?}");
    drop((client, relay));

    let relay = site.relay_with("alice", &["--read-only"])?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    ensure!(!client.welcome().may_act, "it says so at the door");
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "the jobs", |known| job(&known.picture, waiting).is_some()).await?;
    let why = refused(client.request(control(waiting, JobAction::Cancel)).await?)?;
    ensure!(why.contains("--read-only"), "{why}");
    ensure!(site.lab.text("login", "alice", &["squeue", "-h", "-o", "%A"])?.contains(&waiting.to_string()));
    Ok(())
}

#[tokio::test]
async fn two_jobs_on_one_node_have_their_own_gpus_and_processes() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let ids = [site.train("alice", &["--gres=gpu:1"])?, site.train("alice", &["--gres=gpu:2"])?];
    for id in ids {
        site.lab.wait_until(id, "RUNNING")?;
    }
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    let topic = Topic::Node(NodeName::new("gpu-node-01")?);
    client.subscribe(std::slice::from_ref(&topic)).await?;
    let both = |picture: &Picture| {
        ids.iter().all(|id| picture.nodes[0].processes.iter().any(|process| process.facts.job == Some(*id)))
    };
    let picture = client.until(&topic, "processes of both", |known| both(&known.picture)).await?.clone();
    let node = &picture.nodes[0];
    for (id, count) in ids.into_iter().zip([1, 2]) {
        let own: Vec<_> = node.gpus.iter().filter(|gpu| gpu.owners.iter().any(|o| o.job == id)).collect();
        ensure!(own.len() == count, "job {id} has {count} GPUs: {own:?}");
        ensure!(own.iter().all(|gpu| gpu.owners.len() == 1 && gpu.owners[0].by == Evidence::GresIndex));
        let processes = node.processes.iter().filter(|process| process.facts.job == Some(id));
        for process in processes {
            ensure!(
                own.iter().any(|gpu| gpu.facts.uuid == process.facts.gpu),
                "{process:?} is on its own GPUs"
            );
        }
    }
    ensure!(node.gpus.iter().filter(|gpu| gpu.owners.is_empty()).count() == 1, "and one has no owner");
    Ok(())
}
