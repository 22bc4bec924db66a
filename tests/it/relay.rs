//! The relay as a program: its link admits a viewer, its pictures change, and invalid input results
//! in one clear sentence.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::{CloseReason, Mode, Role, Topic};
use nodeglass_protocol::picture::Link as NodeLink;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::{Cell, Field, GpuField, HostField, NodeName, Picture};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::http;
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, TestRelay};
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test]
async fn the_demo_shows_a_changing_cluster() -> Result<()> {
    let relay = TestRelay::demo()?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    assert_eq!(client.welcome().mode, Mode::Demo);
    assert_eq!(client.welcome().role, Role::Owner);
    client.subscribe(&[Topic::Overview]).await?;
    let full = |known: &Known| known.picture.nodes.len() >= 16 && gpus(&known.picture) >= 100;
    client.until(&Topic::Overview, "a cluster of 16 nodes", full).await?;
    let first = utilisation(client.picture(&Topic::Overview).context("a picture")?);
    let picture = client
        .until(&Topic::Overview, "moving numbers", |known| utilisation(&known.picture) != first)
        .await?;
    ensure!(picture.jobs.len() >= 3, "several jobs: {:?}", picture.jobs);
    Ok(())
}

#[tokio::test]
async fn long_term_history_agrees_with_the_samples_that_the_page_has() -> Result<()> {
    let relay = TestRelay::demo()?;
    let mut client = Client::connect(relay.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    // The probes have kept ten minutes, which the relay asks for.
    let trace = |picture: &Picture| {
        let node = picture.nodes.iter().find(|node| node.history.is_some() && !node.gpus.is_empty())?;
        let trace = node.history.as_ref()?.gpu(0, GpuField::Util)?.clone();
        (trace.points().filter(|(_, cell)| cell.is_some()).count() > 500).then_some((node.clone(), trace))
    };
    let known = client
        .until(&Topic::Overview, "ten minutes of history", |known| trace(&known.picture).is_some())
        .await?;
    let ((node, trace), at_ms) = (trace(known).context("a trace")?, known.at_ms);
    let query = RangeQuery {
        topic: Topic::Node(node.name.clone()),
        from_ms: at_ms - 600_000,
        to_ms: at_ms,
        step_ms: 10_000,
        gpu_fields: vec![GpuField::Util.name().into()],
        host_fields: Vec::new(),
    };
    let range = client.range(query.clone()).await?;
    ensure!(range.step_ms == 10_000 && range.nodes.len() == 1);
    let gpu =
        range.nodes[0].gpus.iter().find(|gpu| gpu.uuid == node.gpus[0].facts.uuid).context("its GPU")?;
    let mut compared = 0;
    for (slot, summary) in gpu.fields[0].since(0) {
        let Some(summary) = summary else { continue };
        let slot_ms = slot * 10_000;
        let seconds: Vec<_> = trace
            .since(slot_ms)
            .take_while(|(at_ms, _)| *at_ms < slot_ms + 10_000)
            .filter_map(|(_, cell)| cell.and_then(Cell::value))
            .collect();
        // Complete slots that lie within the trace.
        if seconds.len() < 10 || slot_ms + 12_000 > at_ms {
            continue;
        }
        let mean = f64::from(seconds.iter().sum::<u32>()) / 10.0;
        let value = |cell: Cell| f64::from(cell.value().unwrap_or(u32::MAX));
        let extremes = [summary.min, summary.max].map(value);
        let expected =
            [seconds.iter().min(), seconds.iter().max()].map(|value| f64::from(*value.unwrap_or(&0)));
        ensure!((value(summary.mean) - mean).abs() <= 1.0, "{summary:?} of {seconds:?}");
        ensure!(extremes == expected, "{summary:?} of {seconds:?}");
        compared += 1;
    }
    ensure!(compared > 40, "{compared} slots were compared");
    // A topic that does not exist has no history, and the connection lives on.
    let nowhere = RangeQuery { topic: Topic::Job(nodeglass_protocol::JobId(1)), ..query };
    ensure!(client.range(nowhere).await?.nodes.is_empty());
    Ok(())
}

/// A job on two GPUs at 50 % and 350 W, from 5 s before the relay's start until 30 s after it. It ends between two samples, so that
/// none is taken at its very end.
const ENDING: &str = r#"
cluster = "quiet"
user = "alice"
seed = 1
still = true

[[node]]
name = "q[1-2]"
model = "h100"
gpus = 2
cpus = 8
mem_gib = 64

[[job]]
id = 101
name = "steady pair"
account = "lab"
partition = "gpu"
submitted = "-1m"
start = "-5s"
end = "30s 500ms"
limit = "2h"
nodes = "q[1-2]"
gpus = [0]
behaviour = "steady"
memory_pct = 50
args = "python3 -m torch.distributed.run steady.py"
"#;

#[tokio::test]
async fn the_report_of_an_ended_job_has_what_its_script_implies() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let scenario = folder.path().join("ending.toml");
    std::fs::write(&scenario, ENDING)?;
    let args = ["--scenario", scenario.to_str().context("a path")?];
    let relay =
        TestRelay::start(&[&args[..], &["--gpu-hour-cost", "3.60EUR", "--co2-g-per-kwh", "400"]].concat())?;
    let report = || -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&relay.run(&["report", "101", "--format", "json"])?)?)
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    let report = loop {
        if let Ok(report) = report().and_then(|report| {
            ensure!(report["is_final"] == true, "the job has not ended");
            Ok(report)
        }) {
            break report;
        }
        ensure!(Instant::now() < deadline, "no report of the ended job");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    ensure!(report["state"] == "COMPLETED" && report["application"] == "PyTorch", "{report}");
    ensure!(report["elapsed_s"] == 35 && report["totals"]["gpus"] == 2, "{report}");
    let number = |value: &serde_json::Value| value.as_f64().context("a number");
    let (totals, gpus) = (&report["totals"], report["gpus"].as_array().context("GPUs")?);
    ensure!(number(&totals["gpu_hours_allocated"])? == 2.0 * 35.0 / 3_600.0, "{report}");
    let cost = &totals["cost"];
    ensure!((number(&cost["amount"])? - 0.07).abs() < 1e-9 && cost["currency"] == "EUR", "{cost}");
    ensure!((number(&totals["co2_kg"])? / number(&totals["energy_kwh"])? - 0.4).abs() < 1e-9, "{totals}");
    // Nothing after its end counts: readings never change once its processes have begun, within 3 s.
    let (observed, idle) = (number(&totals["gpu_hours_observed"])?, number(&totals["gpu_hours_idle"])?);
    ensure!(idle <= 2.0 * 3.5 / 3_600.0, "{report}");
    ensure!((number(&totals["util_pct"])? - 50.0 * (1.0 - idle / observed)).abs() < 0.5, "{report}");
    ensure!(gpus.len() == 2 && number(&report["observed_pct"])? > 50.0, "{report}");
    for gpu in gpus {
        let observed_s = number(&gpu["observed_s"])?;
        ensure!((15.0..=35.0).contains(&observed_s) && gpu["index"] == 0, "{gpu}");
        let at_work = 350.0 * (observed_s - number(&gpu["idle_s"])?) / 3.6e6;
        let in_all = 350.0 * observed_s / 3.6e6;
        ensure!((at_work * 0.99..=in_all * 1.01).contains(&number(&gpu["energy_kwh"])?), "{gpu}: {at_work}");
    }
    let percent = format!("{:.0} % on average", number(&totals["util_pct"])?);
    ensure!(relay.run(&["report", "101"])?.contains(&percent), "{percent}");
    let listed = relay.run(&["history", "list"])?;
    ensure!(listed.contains("101") && listed.contains("COMPLETED"), "{listed}");
    // The simulated cluster leaves nothing in the user's own database.
    let pid = rustix::process::Pid::from_raw(relay.pid().cast_signed()).context("a pid")?;
    rustix::process::kill_process(pid, Signal::TERM)?;
    let deadline = Instant::now() + TIMEOUT;
    while !relay.run(&["history", "list"]).is_ok_and(|listed| listed.contains("No jobs in")) {
        ensure!(Instant::now() < deadline, "it is listed without the relay");
    }
    Ok(())
}

#[tokio::test]
async fn a_job_is_shown_with_its_history_and_processes() -> Result<()> {
    let relay = TestRelay::demo()?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let running =
        |known: &Known| known.picture.jobs.iter().any(|job| job.is_active() && !job.nodes.is_empty());
    let overview = client.until(&Topic::Overview, "a running job", running).await?;
    let job =
        overview.jobs.iter().find(|job| job.is_active() && !job.nodes.is_empty()).context("a running job")?;
    let (topic, nodes) = (Topic::Job(job.id), job.nodes.clone());
    client.subscribe(std::slice::from_ref(&topic)).await?;
    let whole = |known: &Known| {
        let picture = &known.picture;
        picture.nodes.len() == nodes.len()
            && picture.nodes.iter().any(|node| !node.processes.is_empty())
            && picture
                .nodes
                .iter()
                .any(|node| node.history.as_ref().is_some_and(|past| !past.gpus.is_empty()))
    };
    client.until(&topic, "its nodes with processes and past", whole).await?;
    Ok(())
}

#[tokio::test]
async fn both_wire_forms_are_equivalent() -> Result<()> {
    let relay = TestRelay::demo()?;
    let mut shapes = Vec::new();
    for form in [Form::Binary, Form::Json] {
        let mut client = Client::connect(relay.link(), form).await?;
        client.subscribe(&[Topic::Overview]).await?;
        // After every node's hello; before that, each viewer may see more hellos than the one before.
        let complete = |picture: &Picture| {
            picture.nodes.len() > 8 && picture.nodes.iter().all(|node| !node.gpus.is_empty())
        };
        let settled = |known: &Known| known.deltas >= 3 && complete(&known.picture);
        let picture = client.until(&Topic::Overview, "a picture and three changes", settled).await?;
        let nodes: Vec<_> = picture.nodes.iter().map(|node| (node.name.clone(), node.gpus.len())).collect();
        shapes.push(nodes);
    }
    assert_eq!(shapes[0], shapes[1]);
    Ok(())
}

#[tokio::test]
async fn a_client_that_resyncs_gets_the_full_snapshot_again() -> Result<()> {
    let relay = TestRelay::demo()?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "a change", |known| known.deltas >= 1).await?;
    client.resync(&Topic::Overview).await?;
    client.until(&Topic::Overview, "a second snapshot", |known| known.snapshots == 2).await?;
    client.until(&Topic::Overview, "changes after it", |known| known.deltas >= 1).await?;
    Ok(())
}

#[tokio::test]
async fn another_key_opens_nothing() -> Result<()> {
    let relay = TestRelay::demo()?;
    let refused = Client::connect_with(relay.link(), &Key::new([9; 32]), Form::Binary).await;
    let error = refused.err().context("a stranger was let in")?;
    ensure!(format!("{error:#}").contains("does not hold the key"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn a_terminated_relay_notifies_clients_and_exits_with_success() -> Result<()> {
    let relay = TestRelay::demo()?;
    let client = Client::connect(relay.link(), Form::Binary).await?;
    let close_reason = tokio::spawn(client.close_reason());
    let (status, output) = tokio::task::spawn_blocking(move || relay.terminate()).await??;
    ensure!(status.success(), "it ended with {status} and output:\n{output}");
    assert_eq!(close_reason.await??, CloseReason::ShuttingDown);
    Ok(())
}

#[test]
fn the_key_appears_only_in_the_link() -> Result<()> {
    let relay = TestRelay::demo()?;
    let key = relay.link().key.reveal();
    let of_process = |file: &str| std::fs::read(format!("/proc/{}/{file}", relay.pid()));
    for file in ["cmdline", "environ"] {
        let bytes = of_process(file)?;
        ensure!(!String::from_utf8_lossy(&bytes).contains(&key), "the key is in {file}");
    }
    let lines = relay.output().lines();
    let with_key: Vec<_> = lines.iter().filter(|line| line.contains(&key)).collect();
    ensure!(with_key.len() == 1, "the key is printed once, in the link: {with_key:?}");
    Ok(())
}

#[test]
fn only_a_relay_started_by_nohup_outlives_its_terminal() -> Result<()> {
    for ignored in [true, false] {
        let home = tempfile::tempdir()?;
        let relay = TestRelay::command(home.path())?;
        // A suite that was started by `nohup` passes on that it ignores the signal.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP", "sh"])
            .env_clear()
            .envs(relay.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let trap = if ignored { "trap '' HUP; " } else { "" };
        command.args(["-c", &format!("{trap}exec \"$@\""), "sh"]).arg(relay.get_program());
        command.args(["--demo", "--bind", "127.0.0.1:0"]);
        let mut process = Process::start(&mut command)?;
        let link = process.wait_for("a link", Link::find)?;
        process.signal(Signal::HUP)?;
        if ignored {
            // If it handled this signal, it would have ended before it handles the next one.
            for _ in 0..3 {
                ensure!(http::get(&link.authority, "/healthz", &[])?.status == 200, "it goes on");
            }
            process.signal(Signal::TERM)?;
        }
        ensure!(process.wait()?.success(), "it ends in order");
    }
    Ok(())
}

fn gpus(picture: &Picture) -> usize {
    picture.nodes.iter().map(|node| node.gpus.len()).sum()
}

fn utilisation(picture: &Picture) -> Vec<Option<u64>> {
    let gpus = picture.nodes.iter().flat_map(|node| &node.gpus);
    gpus.map(|gpu| gpu.row.value(GpuField::Util)).collect()
}

#[tokio::test]
async fn f13_a_restarted_relay_has_the_history_of_the_one_before() -> Result<()> {
    let state = tempfile::tempdir()?;
    let environment = [("XDG_STATE_HOME", state.path().as_os_str())];
    let node = Topic::Node(here()?);
    // The host's CPU in steps of ten seconds, and when the newest sample was taken.
    let history = async |client: &mut Client| -> Result<Vec<(i64, Cell)>> {
        client.subscribe(std::slice::from_ref(&node)).await?;
        client
            .until(&node, "a sample", |known| {
                known.picture.nodes.iter().any(|node| node.sampled_at_ms.is_some())
            })
            .await?;
        let at_ms = client.picture(&node).context("the node")?.at_ms;
        let query = RangeQuery {
            topic: node.clone(),
            from_ms: at_ms - 600_000,
            to_ms: at_ms,
            step_ms: 10_000,
            gpu_fields: Vec::new(),
            host_fields: vec![HostField::Cpu.name().into()],
        };
        let ahead_ms = client.welcome().wall_ms.cast_signed() - client.welcome().at_ms.cast_signed();
        let range = client.range(query).await?;
        let slots = range.nodes.first().context("the node")?.host[0].since(0);
        Ok(slots
            .filter_map(|(slot, summary)| Some(((slot * 10_000).cast_signed() + ahead_ms, summary?.mean)))
            .collect())
    };
    let relay = TestRelay::start_in(&["--local"], environment)?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    let mut before = Vec::new();
    while before.len() < 4 {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        before = history(&mut client).await?;
    }
    ensure!(client.welcome().downtimes.is_empty(), "no relay ran before");
    relay.terminate()?;
    // A shorter time leaves no gap.
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;

    let relay = TestRelay::start_in(&["--local"], environment)?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    let lengths: Vec<_> = client.welcome().downtimes.iter().map(|span| span.to_ms - span.from_ms).collect();
    ensure!(matches!(*lengths, [10_000..60_000]), "the time without a relay is marked: {lengths:?}");
    // The last slot was not complete; each is at most half a slot away.
    let missing = |after: &[(i64, Cell)]| {
        let is_there = |(wall_ms, mean): &&(i64, Cell)| {
            after.iter().any(|(at_ms, there)| (at_ms - wall_ms).abs() <= 5_100 && there == mean)
        };
        before[..before.len() - 2].iter().find(|slot| !is_there(slot)).copied()
    };
    // The relay serves while it reads the history.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let after = history(&mut client).await?;
        let Some((wall_ms, mean)) = missing(&after) else { return Ok(()) };
        ensure!(Instant::now() < deadline, "{wall_ms} {mean:?} is not in {after:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A suspended machine: no process runs, and the clocks go on. It lasts longer than probes wait for their relay.
#[tokio::test]
async fn f35_a_relay_that_was_suspended_is_current_again_and_says_when_it_was_not() -> Result<()> {
    let relay = TestRelay::start(&["--local"])?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let sampled_ms = |known: &Known| {
        let node = known.picture.nodes.first().filter(|node| node.head.link == NodeLink::Live)?;
        node.sampled_at_ms
    };
    client.until(&Topic::Overview, "a sample", |known| sampled_ms(known).is_some()).await?;
    let before_ms = client.known(&Topic::Overview).and_then(sampled_ms).context("a sample")?;
    let pid = rustix::process::Pid::from_raw(relay.pid().cast_signed()).context("a pid")?;
    rustix::process::kill_process(pid, Signal::STOP)?;
    tokio::time::sleep(Duration::from_secs(36)).await;
    rustix::process::kill_process(pid, Signal::CONT)?;
    let resumed = Instant::now();
    let is_current = |known: &Known| sampled_ms(known) > Some(before_ms + 36_000);
    let picture = client.until(&Topic::Overview, "a sample of now", is_current).await?;
    println!("a relay that was suspended for 36 s is current after {:?}", resumed.elapsed());
    // The age of a value is never less than what it is.
    ensure!(picture.at_ms >= picture.nodes[0].sampled_at_ms.unwrap_or(u64::MAX));
    ensure!(resumed.elapsed() < Duration::from_secs(20), "it took {:?}", resumed.elapsed());
    let mut other = Client::connect(relay.link(), Form::Binary).await?;
    other.subscribe(&[Topic::Overview]).await?;
    other.until(&Topic::Overview, "the same on another page", is_current).await?;
    Ok(())
}

/// The name of this machine as a node.
fn here() -> Result<NodeName> {
    Ok(NodeName::new(rustix::system::uname().nodename().to_string_lossy().into_owned())?)
}
