//! A real SLURM cluster: the user's jobs and only their nodes, a lost connection, a relay that ends
//! or is killed.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Evidence, GpuPicture, Link, NodePicture, Picture};
use nodeglass_protocol::request::{JobAction, Request, Response};
use nodeglass_protocol::{GpuField, JobId, NodeName};
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::Site;
use nodeglass_tests::oracle::Oracle;
use rustix::process::Signal;
use std::time::{Duration, Instant};

fn named(name: &str) -> Result<NodeName> {
    Ok(NodeName::new(name)?)
}

fn job(picture: &Picture, id: JobId) -> Option<&Job> {
    picture.jobs.iter().find(|job| job.id == id)
}

/// Returns whether a node has values that are updated.
fn is_live(node: &NodePicture) -> bool {
    node.head.link == Link::Live && node.sampled_at_ms.is_some() && !node.gpus.is_empty()
}

/// Minor numbers of a node's GPUs that belong to a job, with the reason for the assignment.
fn owned(node: &NodePicture, id: JobId) -> Vec<(u32, Evidence)> {
    let of_job = |gpu: &GpuPicture| {
        let by = gpu.owners.iter().find(|owner| owner.job == id)?.by;
        Some((*gpu.facts.minor.value()?, by))
    };
    node.gpus.iter().filter_map(of_job).collect()
}

#[tokio::test]
async fn an_admin_sees_bobs_job_without_its_paths_and_cannot_cancel_it() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let own = site.train("alice", &["--gres=gpu:1", "-w", "gpu-node-01"])?;
    let bobs = site.train("bob", &["--gres=gpu:2", "-w", "gpu-node-02"])?;
    for id in [own, bobs] {
        site.lab.wait_until(id, "RUNNING")?;
    }
    let relay = site.relay_with("alice", &["--users", "all"])?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let both_live = |picture: &Picture| picture.nodes.len() == 2 && picture.nodes.iter().all(is_live);
    let overview =
        client.until(&Topic::Overview, "both nodes", |known| both_live(&known.picture)).await?.clone();
    let (mine, theirs) =
        (job(&overview, own).context("alice's job")?, job(&overview, bobs).context("bob's job")?);
    ensure!(mine.workdir.is_some() && mine.stdout.is_some(), "{mine:?}");
    ensure!(theirs.user.as_str() == "bob" && theirs.gpu_count == Some(2), "{theirs:?}");
    let hidden = [&theirs.workdir, &theirs.command, &theirs.stdout, &theirs.stderr];
    ensure!(hidden.iter().all(|path| path.is_none()), "{theirs:?}");
    let cancel = Request::Job { job: bobs, action: JobAction::Cancel };
    let response = client.request(cancel).await?;
    ensure!(matches!(&response, Response::Refused(why) if why.as_str().contains("bob's")), "{response:?}");
    site.lab.wait_until(bobs, "RUNNING")?;

    for (args, why) in [
        (["--users", "alice,nobody-here"], "there is no user \"nobody-here\""),
        (["--partition", "nowhere"], "no partition \"nowhere\""),
    ] {
        let argv = [&["--new", "--bind", "127.0.0.1:8090"], &args[..]].concat();
        let error = site.run_relay("alice", &argv).err().context("it started")?;
        ensure!(format!("{error:#}").contains(why), "{error:#}");
    }
    Ok(())
}

#[tokio::test]
async fn alice_sees_her_jobs_their_nodes_and_nothing_of_bob() -> Result<()> {
    let Some(site) = Site::up_or_skip(4)? else { return Ok(()) };
    let single = site.train("alice", &["--gres=gpu:2", "--job-name=one node"])?;
    let double =
        site.train("alice", &["-N2", "--ntasks-per-node=1", "--gres=gpu:2", "--job-name=two | nodes"])?;
    let array = site.train("alice", &["--array=0-1", "--gres=gpu:1"])?;
    let bobs = site.train("bob", &["--gres=gpu:4", "-w", "gpu-node-04"])?;
    let waiting = site.train("alice", &["-N4", "--gres=gpu:4"])?;
    for id in [single, double, bobs] {
        site.lab.wait_until(id, "RUNNING")?;
    }
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let all_live = |picture: &Picture| !picture.nodes.is_empty() && picture.nodes.iter().all(is_live);
    let overview =
        client.until(&Topic::Overview, "live nodes", |known| all_live(&known.picture)).await?.clone();

    ensure!(job(&overview, bobs).is_none(), "bob's job is not alice's business");
    ensure!(overview.nodes.iter().all(|node| node.name.as_str() != "gpu-node-04"), "nor is his node");
    ensure!(job(&overview, single).context("the job")?.name.as_str() == "one node");
    ensure!(job(&overview, double).context("the job")?.nodes.len() == 2);
    ensure!(matches!(job(&overview, waiting).context("the job")?.state, JobState::Pending));
    let parts = overview.jobs.iter().filter(|job| job.label.as_str().starts_with(&format!("{array}_")));
    ensure!(parts.count() == 2, "an array's tasks are there: {:?}", overview.jobs);

    let topic = Topic::Job(double);
    client.subscribe(&[Topic::Overview, topic.clone()]).await?;
    let has_process =
        |node: &NodePicture| node.processes.iter().any(|process| process.facts.job == Some(double));
    let picture = client
        .until(&topic, "processes on both nodes", |known| known.picture.nodes.iter().all(has_process))
        .await?
        .clone();
    for node in &picture.nodes {
        let gpus = owned(node, double);
        ensure!(gpus.len() == 2, "two GPUs of {}: {gpus:?}", node.name);
        ensure!(gpus.iter().all(|(_, by)| *by == Evidence::GresIndex), "{gpus:?}");
        let process =
            node.processes.iter().find(|process| process.facts.job == Some(double)).context("its process")?;
        ensure!(process.facts.user.value().is_some_and(|user| user.as_str() == "alice"), "{process:?}");
        ensure!(
            process.facts.command.value().is_some_and(|name| name.as_str().starts_with("python")),
            "{process:?}"
        );
    }
    let before: Vec<_> = picture.nodes.iter().map(|node| node.gpus[0].row.clone()).collect();
    client
        .until(&topic, "moving numbers", |known| {
            known.picture.nodes.iter().zip(&before).all(|(node, before)| node.gpus[0].row != *before)
        })
        .await?;
    Ok(())
}

/// A user of nvnodetop: jobs are found, each of their nodes has its GPUs with the processes on them, and jobs that end
/// do not vanish. A name with a space, which shifts nvnodetop's columns, changes nothing.
#[tokio::test]
async fn f30_an_nvnodetop_users_jobs_come_and_go_while_the_page_is_open() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let mut relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "an empty list", |known| known.picture.jobs.is_empty()).await?;

    let submitted = Instant::now();
    let id = site.train("alice", &["--gres=gpu:1", "--job-name=train the llm"])?;
    client.until(&Topic::Overview, "the new job", |known| job(&known.picture, id).is_some()).await?;
    let listed = client.picture(&Topic::Overview).and_then(|picture| job(picture, id)).context("the job")?;
    ensure!(listed.name.as_str() == "train the llm" && listed.nodes.len() <= 1, "{listed:?}");
    println!("the job appeared after {:?}", submitted.elapsed());
    client.subscribe(&[Topic::Overview, Topic::Job(id)]).await?;
    let live =
        |picture: &Picture| picture.nodes.iter().any(|node| is_live(node) && !owned(node, id).is_empty());
    client.until(&Topic::Job(id), "its GPUs", |known| live(&known.picture)).await?;

    let process = |node: &NodePicture| node.processes.iter().any(|process| process.facts.job == Some(id));
    let topic = Topic::Job(id);
    let has_process = |picture: &Picture| picture.nodes.iter().any(process);
    let since_ms = client.until(&topic, "its process", |known| has_process(&known.picture)).await?.at_ms;
    client.until(&Topic::Job(id), "some past", |known| known.picture.at_ms > since_ms + 8_000).await?;
    site.lab.scancel("alice", id)?;
    let ended = |job: &Job| matches!(job.state, JobState::Ended(_));
    client.until(&Topic::Overview, "its end", |known| job(&known.picture, id).is_some_and(ended)).await?;
    let kept = client
        .until(&Topic::Job(id), "its last picture", |known| {
            known.picture.nodes.iter().any(|node| node.head.link == Link::Ended && !node.gpus.is_empty())
        })
        .await?;
    let busy = |gpu: &GpuPicture| gpu.row.value(GpuField::Util) > Some(20);
    ensure!(kept.nodes[0].gpus.iter().any(busy), "as it was before its end: {:?}", kept.nodes[0].gpus);
    ensure!(process(&kept.nodes[0]), "with its process");
    ensure!(kept.nodes[0].history.is_some(), "and its past");
    let node = kept.nodes[0].name.clone();
    none_left(&site, &[node.as_str()], Duration::from_secs(30)).await?;

    // The next relay shows the job as the one before did, with its graphs.
    relay.stop()?;
    relay.process.wait()?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview, Topic::Job(id)]).await?;
    client
        .until(&Topic::Overview, "the ended job", |known| job(&known.picture, id).is_some_and(ended))
        .await?;
    let restored =
        client.until(&Topic::Job(id), "its picture", |known| !known.picture.nodes.is_empty()).await?;
    ensure!(restored.nodes[0].gpus == kept.nodes[0].gpus, "the same GPUs: {:?}", restored.nodes[0].gpus);
    let util = |node: &NodePicture| -> Option<Vec<_>> {
        let trace = node.history.as_ref()?.gpu(0, GpuField::Util)?;
        Some(trace.points().map(|(_, cell)| cell).collect())
    };
    ensure!(util(&restored.nodes[0]) == util(&kept.nodes[0]), "with the same past");
    Ok(())
}

/// Mounts another file system over a folder of a node, but keeps the files that SSH logins need.
fn cover(site: &Site, node: &str, folder: &str, options: &str) -> Result<()> {
    let mount = format!(
        "kept=$(mktemp -d); cp -a {folder}/.ssh $kept 2>/dev/null; mkdir -p {folder}; \
         mount -t tmpfs -o size=64k tmpfs {folder} && chown alice: {folder} && chmod 700 {folder} && \
         {{ [ -z \"$(ls -A $kept)\" ] || cp -a $kept/.ssh {folder}; }} && mount -o remount,{options} {folder}; \
         status=$?; rm -rf $kept; exit $status"
    );
    site.lab.text(node, "root", &["bash", "-c", &mount]).map(drop)
}

#[tokio::test]
async fn f24_a_full_or_read_only_home_does_not_prevent_a_connection() -> Result<()> {
    let Some(site) = Site::up_or_skip(4)? else { return Ok(()) };
    let elsewhere = ["-N4", "--ntasks-per-node=1", "--gres=gpu:1", "--chdir=/tmp", "--output=/dev/null"];
    let id = site.train("alice", &elsewhere)?;
    site.lab.wait_until(id, "RUNNING")?;
    // Full after a few files, read-only, and `noexec`.
    cover(&site, "gpu-node-01", "/home/alice", "rw")?;
    cover(&site, "gpu-node-02", "/home/alice", "ro")?;
    cover(&site, "gpu-node-03", "/home/alice", "noexec")?;
    for folder in ["/home/alice", "/dev/shm", "/run/user", "/tmp"] {
        cover(&site, "gpu-node-04", folder, "ro")?;
    }
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    let topic = Topic::Job(id);
    client.subscribe(&[Topic::Overview, topic.clone()]).await?;
    let others = ["gpu-node-01", "gpu-node-02", "gpu-node-03"];
    let live = |picture: &Picture| picture.nodes.iter().filter(|node| is_live(node)).count() == others.len();
    client.until(&topic, "three live nodes", |known| live(&known.picture)).await?;
    let why = |node: &NodePicture| match &node.head.link {
        Link::Down { reason: why, .. } => Some(why.to_string()),
        _ => None,
    };
    let said = |picture: &Picture| picture.nodes.iter().find_map(why);
    let picture = client.until(&topic, "a reason", |known| said(&known.picture).is_some()).await?;
    let said = said(picture).context("a reason")?;
    // After some attempts it says first that this has happened before.
    ensure!(said.contains("the probe could not be copied to the node: ~/.cache/nodeglass: "), "{said}");
    ensure!(said.contains("Read-only file system"), "{said}");
    for node in others {
        let uploaded = site.lab.text(node, "root", &["bash", "-c", "ls -ld /tmp/nodeglass-2001"])?;
        ensure!(uploaded.starts_with("drwx------"), "{node}: {uploaded}");
    }
    Ok(())
}

#[tokio::test]
async fn f01_an_interrupted_connection_is_shown_and_backfilled() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let id = site.train("alice", &["-N2", "--ntasks-per-node=1", "--gres=gpu:1"])?;
    site.lab.wait_until(id, "RUNNING")?;
    let relay = site.relay("alice")?;
    let cut = named("gpu-node-02")?;
    // Shorter than the limit of a link, and longer than a probe waits for a relay that it could reach.
    for seconds in [8, 45] {
        let mut oracle = Oracle::watch(&relay.link, Topic::Job(id), 2).await?;
        let of_cut = |nodes: &[NodePicture]| nodes.iter().find(|node| node.name == cut).cloned();
        oracle.fault(std::slice::from_ref(&cut)).await?;
        site.lab.cut(cut.as_str())?;
        let noticed = oracle.until("a late node", |node| node.head.link != Link::Live).await?;
        oracle.pass(Duration::from_secs(seconds).saturating_sub(noticed)).await?;
        let last_ms = of_cut(oracle.nodes()?).and_then(|node| node.sampled_at_ms).context("a sample")?;
        site.lab.mend(cut.as_str())?;
        let healed = oracle.healed().await?;
        oracle.until("a past without a gap", |node| longest_gap_s(node, last_ms) < 3).await?;
        println!(
            "{seconds} s without a cable: noticed after {noticed:?}, live {healed:?} after it was mended"
        );
    }
    Ok(())
}

/// The most seconds in a row since `from_ms` without utilisation, except the newest two. On a busy machine, a probe may miss
/// a second or two by itself.
fn longest_gap_s(node: &NodePicture, from_ms: u64) -> usize {
    let Some(trace) = node.history.as_ref().and_then(|past| past.gpu(0, GpuField::Util)) else {
        return usize::MAX;
    };
    let points: Vec<_> = trace.points().filter(|(at_ms, _)| *at_ms >= from_ms).collect();
    let settled = &points[..points.len().saturating_sub(2)];
    settled.split(|(_, cell)| !cell.is_none()).map(<[_]>::len).max().unwrap_or_default()
}

#[tokio::test]
async fn f13_a_relay_that_ends_or_is_killed_leaves_no_probe() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let id = site.train("alice", &["-N2", "--ntasks-per-node=1", "--gres=gpu:1"])?;
    site.lab.wait_until(id, "RUNNING")?;
    let nodes = ["gpu-node-01", "gpu-node-02"];
    for signal in [Signal::TERM, Signal::KILL] {
        let relay = site.relay("alice")?;
        let mut client = Client::connect(&relay.link, Form::Binary).await?;
        client.subscribe(&[Topic::Overview]).await?;
        client
            .until(&Topic::Overview, "both nodes", |known| {
                known.picture.nodes.len() == 2 && known.picture.nodes.iter().all(is_live)
            })
            .await?;
        for node in nodes {
            ensure!(site.probes(node)?.len() == 1, "one probe on {node}, however many look");
        }
        relay.signal(signal)?;
        none_left(&site, &nodes, Duration::from_secs(30))
            .await
            .with_context(|| format!("after {signal:?}"))?;
    }
    Ok(())
}

/// Waits until these nodes have no probe.
pub(super) async fn none_left(site: &Site, nodes: &[&str], limit: Duration) -> Result<()> {
    let since = Instant::now();
    loop {
        let left: Vec<_> = nodes.iter().map(|node| site.probes(node)).collect::<Result<Vec<_>>>()?;
        if left.iter().all(Vec::is_empty) {
            return Ok(());
        }
        ensure!(since.elapsed() < limit, "probes are left: {left:?} on {nodes:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
