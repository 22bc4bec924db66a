//! Frames per second to many viewers, and the CPU time per frame compared with a bare loop.

use crate::cpu::CpuClock;
use crate::report::Report;
use crate::series::Series;
use crate::site::{JOB, NodeOptions, SimulatedCluster};
use crate::viewers::Viewers;
use anyhow::{Context, Result};
use futures_util::StreamExt;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::Topic;
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::binary;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A few less than the connection limit.
const VIEWERS: usize = 240;
/// Interval of the nodes' lines; shorter than the relay's flush interval.
const PERIOD_MS: u32 = 10;
const ROUNDS: usize = 3;
const WINDOW: Duration = Duration::from_secs(6);
const SETTLE: Duration = Duration::from_secs(3);
/// Number of frames whose lengths the bare loop repeats.
const RECORDED: usize = 600;

/// Measures the requested figures.
pub async fn measure(report: &Report) -> Result<()> {
    let (mut ours, mut bare, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    let sizes = sizes().await?;
    for _ in 0..ROUNDS {
        let round = of_a_relay().await?;
        frames.push(round.frames_per_s);
        ours.push(round);
        bare.push(of_a_bare_loop(&sizes).await?);
    }
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    let note = format!("{VIEWERS} viewers who share the machine with the relay; frames of {mean} B");
    report.noted("fanout.frames_per_s", &frames.into_iter().collect(), &note);
    let ratios: Series =
        ours.iter().zip(&bare).map(|(ours, bare)| bare.us_per_frame / ours.us_per_frame).collect();
    let median =
        |rounds: &[Round]| rounds.iter().map(|round| round.us_per_frame).collect::<Series>().median();
    let note = format!("{:.1} µs of CPU a frame against {:.1} µs", median(&ours), median(&bare));
    report.noted("fanout.vs_bare_ratio", &ratios, &note);
    Ok(())
}

/// Results of one round.
struct Round {
    frames_per_s: f64,
    us_per_frame: f64,
}

fn topics() -> Result<Vec<Topic>> {
    Ok(vec![Topic::Overview, Topic::Job(JOB), Topic::Node(NodeName::new("n0001")?)])
}

/// Lengths of the frames that the relay sends in a few seconds, in order.
async fn sizes() -> Result<Vec<usize>> {
    let site =
        SimulatedCluster::start(1, NodeOptions { fixed_ms: Some(PERIOD_MS), ..NodeOptions::default() })?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    client.subscribe(&topics()?).await?;
    sleep(SETTLE).await;
    // Changes made meanwhile arrive in one frame.
    for _ in 0..RECORDED {
        client.frame().await?;
    }
    let mut lengths = Vec::new();
    for _ in 0..RECORDED {
        lengths.push(client.frame().await?.len());
    }
    Ok(lengths)
}

async fn of_a_relay() -> Result<Round> {
    let site =
        SimulatedCluster::start(1, NodeOptions { fixed_ms: Some(PERIOD_MS), ..NodeOptions::default() })?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    client.subscribe(&topics()?).await?;
    let mut viewers = Viewers::of(client);
    viewers.grow_with(&site, VIEWERS, &topics()?).await?;
    sleep(SETTLE).await;
    watch(&viewers, site.pid()).await
}

async fn of_a_bare_loop(sizes: &[usize]) -> Result<Round> {
    let mut command = Command::new(binary("examples/bare")?);
    command.arg(PERIOD_MS.to_string()).arg(topics()?.len().to_string());
    command.args(sizes.iter().map(ToString::to_string));
    let mut server = Process::start(&mut command)?;
    let port = server.wait_for("a port", |line| line.strip_prefix("port ")?.parse::<u16>().ok())?;
    let mut viewers = Viewers::default();
    for _ in 0..VIEWERS {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://127.0.0.1:{port}/")).await?;
        let frames = viewers.counter();
        viewers.read(async move {
            while let Some(Ok(_)) = socket.next().await {
                frames.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    sleep(SETTLE).await;
    watch(&viewers, server.pid()).await
}

async fn watch(viewers: &Viewers, pid: u32) -> Result<Round> {
    let clock = CpuClock::of(pid)?;
    let (began, used, read) = (Instant::now(), clock.used()?, viewers.frames());
    sleep(WINDOW).await;
    let frames = (viewers.frames() - read) as f64;
    let used = clock.used().context("the server runs on")? - used;
    let frames_per_s = frames / began.elapsed().as_secs_f64();
    Ok(Round { frames_per_s, us_per_frame: used.as_secs_f64() * 1e6 / frames })
}
