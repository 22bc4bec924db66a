//! A relay with a thousand nodes for minutes or hours, with faults, findings, notices, and viewers that come and go: what it
//! uses stays flat.

use crate::cpu::{CpuClock, rss_mb};
use crate::report::Report;
use crate::site::{NodeOptions, SimulatedCluster, program};
use anyhow::{Context, Result, ensure};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::live::Topic;
use nodeglass_tests::relay::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const NODES: usize = 1_000;
const VIEWERS: u64 = 50;
/// Interval of the figures.
const EVERY: Duration = Duration::from_secs(10);
/// Interval of faults of nodes, and for how long a node is stopped.
const FAULT_EVERY: Duration = Duration::from_secs(5);
const STOPPED: Duration = Duration::from_secs(25);
/// SLURM fails in one of so many faults.
const SLURM_FAILS: u64 = 12;
/// The rings, the history, and the series of findings, which reach two hours back, fill during the warm-up, which is
/// half of a shorter run.
const WARM_UP: Duration = Duration::from_secs(7_200);
/// Growth that is not a leak: a share of the mean, and an absolute amount for small figures, within an hour.
const GROWTH_SHARE: f64 = 0.05;
/// Growth is judged over this time at least: a slope of a few minutes says little about an hour.
const JUDGED_MIN: f64 = 10.0;

/// The figures of a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    rss_mb: f64,
    descriptors: f64,
    threads: f64,
    disk_mb: f64,
    nodes: f64,
}

/// What is judged: name, unit, the figure, and its growth in an hour that is allowed in any case.
type Judged = (&'static str, &'static str, fn(&Figures) -> f64, f64);
const JUDGED: [Judged; 4] = [
    ("memory", "MB", |figures| figures.rss_mb, 8.0),
    ("descriptors", "", |figures| figures.descriptors, 40.0),
    ("threads", "", |figures| figures.threads, 4.0),
    ("disk", "MB", |figures| figures.disk_mb, 16.0),
];

/// Runs for the number of minutes that the report names.
pub async fn run(report: &Report) -> Result<()> {
    let minutes: u64 = report.only().context("for how many minutes?")?.parse()?;
    let folder = tempfile::tempdir()?;
    let fails = folder.path().join("slurm-fails");
    let notices = folder.path().join("notices");
    let notify =
        program(folder.path(), "notify", &format!("cat >/dev/null; echo notice >> {}", notices.display()))?;
    let (probe, notify) = (binary("examples/node")?.display().to_string(), notify.display().to_string());
    // Limits that are reached within the warm-up.
    let limits = ["--history-mem", "16M", "--history-disk", "16M"];
    let starts = ["--launcher", "local", "--probe", &probe, "--on-finding", &notify];
    let arguments: Vec<&str> = starts.into_iter().chain(limits).collect();
    let site = Arc::new(SimulatedCluster::start_with(NODES, folder, &arguments, NodeOptions::default())?);
    let mut client = site.client().await?;
    let took = site.settled(&mut client).await?;
    println!("{NODES} nodes are live after {:.0} s; running for {minutes} min", took.as_secs_f64());
    drop(client);
    let joined = Arc::<AtomicU64>::default();
    let mut tasks = JoinSet::new();
    for number in 0..VIEWERS {
        tasks.spawn(view(site.clone(), number, joined.clone()));
    }
    tasks.spawn(disturb(site.pid(), fails));
    let figures = watch(&site, Duration::from_secs(minutes * 60)).await;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    let (figures, cpu_pct) = figures?;
    let noticed = fs::read_to_string(&notices).unwrap_or_default().lines().count();
    println!(
        "{} viewers joined, {noticed} notices were sent, {cpu_pct:.1} % of a core",
        joined.load(Ordering::Relaxed)
    );
    judge(&figures, &std::env::var("NODEGLASS_SOAK").unwrap_or_else(|_| "target/soak.json".to_owned()))
}

/// Collects figures for some time.
async fn watch(site: &SimulatedCluster, during: Duration) -> Result<(Vec<(f64, Figures)>, f64)> {
    let (began, clock) = (Instant::now(), CpuClock::of(site.pid())?);
    let used = clock.used()?;
    let mut figures = Vec::new();
    println!("   min  memory MB  descriptors  threads  disk MB  nodes");
    while began.elapsed() < during {
        let now = figures_of(site.pid(), site.home())?;
        ensure!(now.nodes > 0.0, "none of the relay's children is a node, so that none would fail");
        let minute = began.elapsed().as_secs_f64() / 60.0;
        if figures.len() % 6 == 0 {
            println!(
                "{minute:>6.1} {:>10.1} {:>12} {:>8} {:>8.1} {:>6}",
                now.rss_mb, now.descriptors, now.threads, now.disk_mb, now.nodes
            );
        }
        figures.push((minute, now));
        sleep(EVERY).await;
    }
    let cpu_pct = 100.0 * (clock.used()? - used).as_secs_f64() / began.elapsed().as_secs_f64();
    Ok((figures, cpu_pct))
}

/// The figures of a relay, from `/proc` and its home.
fn figures_of(pid: u32, home: &Path) -> Result<Figures> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).context("it has threads")?;
    Ok(Figures {
        rss_mb: rss_mb(pid)?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as f64,
        threads: threads.trim().parse()?,
        disk_mb: size(home) as f64 / 1e6,
        nodes: nodes(pid).len() as f64,
    })
}

/// The length of all files below a folder, in bytes.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let length = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(length).sum()
}

/// The processes that are nodes: the relay's children, from `/proc/PID/task/TID/children`.
fn nodes(relay: u32) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{relay}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<i32> = children
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .flat_map(|pid| pid.parse())
        .collect();
    // A probe is started by its descriptor, which is the name of the process then.
    let is_node = |pid: &i32| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program.ends_with("examples/node"))
    };
    pids.into_iter().filter(is_node).filter_map(Pid::from_raw).collect()
}

/// Joins, reads for some time, pauses at times, and leaves, again and again.
async fn view(site: Arc<SimulatedCluster>, number: u64, joined: Arc<AtomicU64>) {
    for round in number.. {
        // A relay that refuses a viewer for a moment does not end the run.
        if let Ok(mut client) = site.client().await {
            joined.fetch_add(1, Ordering::Relaxed);
            let reads = Duration::from_secs(20 + (round * 37) % 100);
            if round % 3 == 0 {
                let _ = client.subscribe(&[Topic::Overview]).await;
            }
            let _ = timeout(reads, async { while client.frame().await.is_ok() {} }).await;
            if round % 5 == 0 {
                // It stops reading, until it lags.
                sleep(Duration::from_secs(15)).await;
                let _ =
                    timeout(Duration::from_secs(5), async { while client.frame().await.is_ok() {} }).await;
            }
        }
        sleep(Duration::from_secs(1 + (round * 13) % 10)).await;
    }
}

/// Kills nodes, stops others for a while, and lets SLURM fail at times.
async fn disturb(relay: u32, fails: PathBuf) {
    for round in 0_u64.. {
        sleep(FAULT_EVERY).await;
        let nodes = nodes(relay);
        let Some(pid) = nodes.get((round as usize * 373) % nodes.len().max(1)).copied() else { continue };
        match round % SLURM_FAILS {
            0 => {
                let _ = fs::write(&fails, "");
                sleep(STOPPED).await;
                let _ = fs::remove_file(&fails);
            }
            turn if turn % 2 == 0 => drop(kill_process(pid, Signal::KILL)),
            _ => {
                let _ = kill_process(pid, Signal::STOP);
                tokio::spawn(async move {
                    sleep(STOPPED).await;
                    let _ = kill_process(pid, Signal::CONT);
                });
            }
        }
    }
}

/// Writes a summary and fails if something grows.
fn judge(figures: &[(f64, Figures)], path: &str) -> Result<()> {
    let last = figures.last().context("no figures")?.0;
    let warm_up = (WARM_UP.as_secs_f64() / 60.0).min(last / 2.0);
    let judged: Vec<_> = figures.iter().filter(|(minute, _)| *minute >= warm_up).collect();
    let (mut lines, mut growing) = (Vec::new(), Vec::new());
    for (name, unit, figure, allowed) in JUDGED {
        let points: Vec<(f64, f64)> = judged.iter().map(|(minute, at)| (*minute, figure(at))).collect();
        let mean = points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64;
        let highest = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let per_hour = slope(&points) * 60.0;
        let is_flat = per_hour <= allowed.max(mean * GROWTH_SHARE);
        let note = if is_flat { "flat" } else { "GROWS" };
        println!("{name:<12} mean {mean:.1} {unit}, highest {highest:.1}, {per_hour:+.2} an hour: {note}");
        lines.push(format!(
            "  \"{name}\": {{ \"mean\": {mean:.1}, \"highest\": {highest:.1}, \"per_hour\": {per_hour:.3}, \"is_flat\": {is_flat} }}"
        ));
        if !is_flat {
            growing.push(name);
        }
    }
    let head =
        format!("  \"at_ms\": {}, \"minutes\": {last:.1}, \"warm_up_min\": {warm_up:.1}", Clock::wall_ms());
    fs::write(path, format!("{{\n{head},\n{}\n}}\n", lines.join(",\n")))
        .with_context(|| format!("write {path}"))?;
    println!("written: {path}");
    if last - warm_up < JUDGED_MIN {
        println!("too short to be judged: {JUDGED_MIN} min after a warm-up of {warm_up:.1} min are needed");
        return Ok(());
    }
    ensure!(growing.is_empty(), "these grow: {}", growing.join(", "));
    Ok(())
}

/// The slope of the regression line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let rise: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    rise / points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}
