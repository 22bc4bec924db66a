//! Recordings: what one relay records, another shows without a cluster, at any time and speed.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{NodePicture, RelayStatus};
use nodeglass_protocol::replay::ReplayCommand;
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::TestRelay;
use rustix::process::Signal;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Records the demo until `watch`, which gets the file's path, has what it needs, then ends the recording relay with a signal.
async fn record<T>(
    end: Signal,
    watch: impl AsyncFnOnce(&mut Client, &Path) -> Result<T>,
) -> Result<(TempDir, PathBuf, T)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("demo.rec");
    let relay = TestRelay::start(&["--demo", "--record", text(&path)])?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    let seen = watch(&mut client, &path).await?;
    rustix::process::kill_process(rustix::process::Pid::from_raw(relay.pid() as i32).context("a pid")?, end)?;
    let (_, _) = (client.close_reason().await, relay.terminate());
    Ok((folder, path, seen))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// The hash of everything that pages show of a node.
fn hash(node: &NodePicture) -> String {
    let json = serde_json::to_vec(node).unwrap_or_default();
    Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn command(client: &mut Client, command: ReplayCommand) -> Result<()> {
    match client.request(Request::Replay(command)).await? {
        Response::Done(_) => Ok(()),
        other => anyhow::bail!("{command:?}: {other:?}"),
    }
}

fn is_paused(known: &Known) -> bool {
    known.picture.relay.replay.as_ref().is_some_and(|replay| replay.speed_pct == 0)
}

#[tokio::test]
async fn a_recording_shows_the_picture_that_the_live_page_had() -> Result<()> {
    let topic = Topic::Node(NodeName::new("gpu-h05")?);
    let sampled = |known: &Known| known.picture.nodes.first().and_then(|node| node.sampled_at_ms);
    let (_folder, path, (node, at_ms, jobs)) = record(Signal::TERM, async |client: &mut Client, _: &Path| {
        client.subscribe(&[Topic::Overview, topic.clone()]).await?;
        client
            .until(&topic, "history", |known| {
                known
                    .picture
                    .nodes
                    .first()
                    .is_some_and(|node| node.history.is_some() && !node.processes.is_empty())
            })
            .await?;
        // Ten more samples, so that late ones are in the history.
        for _ in 0..10 {
            let before_ms = client.known(&topic).and_then(sampled);
            client.until(&topic, "a sample", |known| sampled(known) > before_ms).await?;
        }
        let known = client.known(&topic).context("the node")?;
        let jobs = client.picture(&Topic::Overview).context("jobs")?.jobs.clone();
        Ok((known.picture.nodes[0].clone(), known.picture.at_ms, jobs))
    })
    .await?;

    // On another machine, so to speak: nothing but the file is there.
    let relay = TestRelay::start(&["--replay", text(&path)])?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    ensure!(client.welcome().user.as_str() == "alice" && !client.welcome().may_act);
    command(&mut client, ReplayCommand::Speed(0)).await?;
    command(&mut client, ReplayCommand::Seek(at_ms)).await?;
    client.subscribe(&[Topic::Overview, topic.clone()]).await?;
    let has_history = |known: &Known| known.picture.nodes.first().is_some_and(|node| node.history.is_some());
    client.until(&topic, "the recorded node", has_history).await?;
    let shown = &client.picture(&topic).context("the node")?.nodes[0];
    ensure!(hash(shown) == hash(&node), "live:\n{node:#?}\nreplayed:\n{shown:#?}");
    ensure!(client.picture(&Topic::Overview).context("jobs")?.jobs == jobs);

    // No condition tells that nothing moves while it is paused. It goes back, and plays on faster than it was recorded.
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.resync(&topic).await?;
    client.until(&topic, "the same picture", |known| sampled(known) == node.sampled_at_ms).await?;
    let RelayStatus { replay, .. } = client.picture(&Topic::Overview).context("the relay")?.relay.clone();
    let replay = replay.context("a recording")?;
    command(&mut client, ReplayCommand::Seek(replay.from_ms)).await?;
    // The node may not have been known by then.
    let in_overview = |known: &Known| {
        let then = known.picture.nodes.iter().find(|then| then.name == node.name);
        then.and_then(|then| then.sampled_at_ms)
    };
    client.until(&Topic::Overview, "the beginning", |known| in_overview(known) < node.sampled_at_ms).await?;
    command(&mut client, ReplayCommand::Seek(at_ms)).await?;
    let is_back = |known: &Known| in_overview(known) == node.sampled_at_ms;
    let overview = client.until(&Topic::Overview, "the time of the picture", is_back).await?;
    ensure!(overview.nodes.iter().filter(|node| node.sampled_at_ms.is_some()).count() > 10);
    client.until(&topic, "the same picture", |known| sampled(known) == node.sampled_at_ms).await?;
    command(&mut client, ReplayCommand::Seek(replay.from_ms)).await?;
    command(&mut client, ReplayCommand::Speed(2_000)).await?;
    client.until(&Topic::Overview, "the end", is_paused).await?;
    client.until(&topic, "the last sample", |known| sampled(known) >= node.sampled_at_ms).await?;
    let refused = client.request(Request::Replay(ReplayCommand::Speed(100_000))).await?;
    ensure!(matches!(refused, Response::Refused(_)), "{refused:?}");
    let retried = relay.run(&["retry"]).err().context("nothing to retry")?.to_string();
    ensure!(retried.contains("a recording is played"), "{retried}");
    Ok(())
}

#[tokio::test]
async fn f13_a_relay_that_was_killed_leaves_a_recording_that_opens() -> Result<()> {
    let (_folder, path, ()) = record(Signal::KILL, async |client: &mut Client, path: &Path| {
        client.subscribe(&[Topic::Overview]).await?;
        client.until(&Topic::Overview, "nodes", |known| known.picture.nodes.len() > 10).await?;
        // What had happened by then, and one more block.
        for _ in 0..2 {
            let length = std::fs::metadata(path)?.len();
            client
                .until(&Topic::Overview, "another block of the recording", |_| {
                    std::fs::metadata(path).is_ok_and(|file| file.len() > length)
                })
                .await?;
        }
        Ok(())
    })
    .await?;
    let relay = TestRelay::start(&["--replay", text(&path)])?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "nodes", |known| known.picture.nodes.len() > 10).await?;
    Ok(())
}

#[test]
fn a_file_that_cannot_be_played_or_written_is_refused_in_one_sentence() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "remember the milk")?;
    let refusal = |args: &[&str]| -> Result<String> {
        let mut process = Process::start(TestRelay::command(folder.path())?.args(args))?;
        ensure!(!process.wait()?.success());
        Ok(process.output().text())
    };
    // A port in use hides nothing: files are checked first.
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let bind = taken.local_addr()?.to_string();
    let replay = refusal(&["--bind", &bind, "--replay", text(&path)])?;
    ensure!(replay.contains("notes.txt cannot be replayed: it is not a recording"), "{replay}");
    let record = refusal(&["--demo", "--bind", &bind, "--record", text(&path)])?;
    ensure!(record.contains("choose another name"), "{record}");
    ensure!(std::fs::read_to_string(&path)? == "remember the milk");
    let nowhere = folder.path().join("missing/job.rec");
    let record = refusal(&["--demo", "--bind", &bind, "--record", text(&nowhere)])?;
    ensure!(record.contains("failed to create") && record.contains("missing/job.rec"), "{record}");
    let both = refusal(&["--bind", &bind, "--demo", "--replay", text(&path)])?;
    ensure!(both.contains("--replay shows only a recording"), "{both}");
    Ok(())
}

#[tokio::test]
async fn one_job_is_cut_out_for_a_colleague() -> Result<()> {
    let job = Topic::Job(JobId(48213));
    let has_processes = |known: &Known| known.picture.nodes.iter().any(|node| !node.processes.is_empty());
    let (folder, path, ()) = record(Signal::TERM, async |client: &mut Client, _: &Path| {
        client.subscribe(&[Topic::Overview, job.clone()]).await?;
        client.until(&Topic::Overview, "nodes", |known| known.picture.nodes.len() > 10).await?;
        client.until(&job, "its processes", has_processes).await?;
        let readings = |known: &Known| -> Vec<_> {
            let nodes = known.picture.nodes.iter();
            nodes.flat_map(|node| node.processes.iter().map(|process| process.row.clone())).collect()
        };
        let before = client.known(&job).map(readings);
        client.until(&job, "other readings of them", |known| Some(readings(known)) != before).await?;
        Ok(())
    })
    .await?;
    let cut = folder.path().join("cut.rec");
    let run = |job: &str| -> Result<(bool, String)> {
        let args = ["record", "cut", text(&path), "--job", job, "--out", text(&cut)];
        let mut process = Process::start(TestRelay::command(folder.path())?.args(args))?;
        Ok((process.wait()?.success(), process.output().text()))
    };
    let (is_done, output) = run("1")?;
    ensure!(!is_done && output.contains("job 1 does not run in this recording; it has 48213"), "{output}");
    let (is_done, output) = run("48213")?;
    ensure!(
        is_done && output.contains("llama3-8b-pretrain") && output.contains("relay --replay"),
        "{output}"
    );

    let relay = TestRelay::start(&["--replay", text(&cut)])?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview, job.clone()]).await?;
    let picture = client.until(&job, "its processes", has_processes).await?;
    let processes = picture.nodes.iter().flat_map(|node| &node.processes);
    for process in processes {
        let facts = &process.facts;
        ensure!(
            facts.job == Some(JobId(48213)) && facts.args.value().is_none() && facts.cwd.value().is_none()
        );
    }
    let jobs = &client.picture(&Topic::Overview).context("jobs")?.jobs;
    ensure!(jobs.len() == 1 && jobs[0].workdir.is_none(), "{jobs:?}");
    Ok(())
}
