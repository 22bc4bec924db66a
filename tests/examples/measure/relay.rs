//! The relay's cost on a login node: by number of nodes and viewers, and the latency from a line to
//! its frame.

use crate::cpu::{CpuClock, rss_mb};
use crate::perf::{Target, record};
use crate::report::Report;
use crate::series::Series;
use crate::site::{JOB, NodeOptions, SimulatedCluster};
use crate::soak;
use crate::sshd::Sshd;
use crate::viewers::Viewers;
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::{Field, GpuField};
use nodeglass_tests::client::Client;
use nodeglass_tests::relay::binary;
use nodeglass_tests::soak::Plan;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Waiting time until start-up work is over.
pub const SETTLE: Duration = Duration::from_secs(8);
/// Duration of one CPU measurement: adjacent process lists come every ten seconds.
pub const WINDOW: Duration = Duration::from_secs(10);
pub const WINDOWS: usize = 3;
/// Without viewers, the relay lengthens the interval of its nodes after a minute.
const UNWATCHED: Duration = Duration::from_secs(66);
/// Time limit for reading the history of a week.
const RESTORED_WITHIN: Duration = Duration::from_secs(180);
/// For how long lines are followed from the nodes to a page.
const FOLLOWED: Duration = Duration::from_secs(30);
/// Numbers of viewers, up to the connection limit.
const VIEWER_COUNTS: [usize; 4] = [1, 10, 100, 240];
const FLEETS: [usize; 4] = [250, 500, 1_000, 2_000];
/// Duration of the relay's CPU profile, in s.
const PROFILED_S: u32 = 20;
/// Nodes stamp their lines with the µs of their clock, modulo this.
const STAMPS: u64 = 1_000_000_000;
/// Nodes that are reached through SSH.
const SESSIONS: usize = 200;
/// Nodes that the growing number of viewers watches.
const VIEWER_NODES: usize = 64;

/// Measures the requested figures.
pub async fn measure(report: &Report) -> Result<()> {
    if report.wants(&["relay.cpu_pct_64n_0v", "relay.cpu_pct_64n_1v", "relay.rss_mb_64n"]) {
        a_group(report).await?;
    }
    if report.wants(&["relay.growth.viewers", "relay.growth"]) {
        growing_viewers(report).await?;
    }
    if report.wants(&["relay.rss_mb_64n_7d"]) {
        a_week(report).await?;
    }
    let of_fleets = ["relay.growth.nodes", "relay.growth", "relay.cpu_pct_1000n_1v", "relay.start_1000n_s"];
    let of_thousand = [
        "relay.cpu_pct_1000n_100v",
        "relay.rss_mb_1000n",
        "relay.line_in_to_frame_out_p50_ms",
        "relay.line_in_to_frame_out_p99_ms",
    ];
    if report.wants(&of_fleets) || report.wants(&of_thousand) {
        growing_fleet(report).await?;
    }
    if report.wants(&["relay.ssh2_200_cpu_pct", "relay.ssh2_200_rss_mb", "relay.ssh2_200_start_s"]) {
        over_ssh(report).await?;
    }
    Ok(())
}

/// Two hundred nodes, each over an SSH session as on a cluster.
async fn over_ssh(report: &Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(_sshd) = Sshd::start(folder.path())? else {
        println!("there is no sshd here, so that nothing is measured through SSH");
        return Ok(());
    };
    let probe = binary("examples/node")?.display().to_string();
    let arguments = ["--launcher", "ssh2", "--probe", &probe];
    let site = SimulatedCluster::start_with(SESSIONS, folder, &arguments, NodeOptions::default())?;
    let mut client = site.client().await?;
    let took = site.settled(&mut client).await?;
    let _viewers = Viewers::of(client);
    sleep(SETTLE).await;
    report.figure("relay.ssh2_200_cpu_pct", &shares(&site).await?);
    report.value("relay.ssh2_200_rss_mb", rss_mb(site.pid())?, "with one viewer");
    let note = "sshd, its sessions and the nodes share the machine with the relay";
    report.value("relay.ssh2_200_start_s", took.as_secs_f64(), note);
    Ok(())
}

/// Draws the flame graph of a second of a thousand nodes; the argument is its path.
pub async fn flame(report: &Report) -> Result<()> {
    let path = report.only().context("where to?")?;
    let site = SimulatedCluster::start(1_000, NodeOptions::default())?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    let _viewers = Viewers::of(client);
    sleep(SETTLE).await;
    let pid = site.pid();
    let recorded = tokio::task::spawn_blocking(move || record(&Target::Running(pid, PROFILED_S))).await??;
    let Some(frames) = recorded else { return Ok(()) };
    let title = format!(
        "A second of a relay with 1,000 nodes of eight busy cards, one viewer: {:.1} ms, {PROFILED_S} s together",
        frames.all_ms() / f64::from(PROFILED_S)
    );
    frames.show(path, &title, f64::from(PROFILED_S))
}

/// A research group's jobs: 64 nodes, one tab or none.
async fn a_group(report: &Report) -> Result<()> {
    let site = SimulatedCluster::start(64, NodeOptions::default())?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    let viewers = Viewers::of(client);
    sleep(SETTLE).await;
    report.figure("relay.cpu_pct_64n_1v", &shares(&site).await?);
    report.value("relay.rss_mb_64n", rss_mb(site.pid())?, "with one viewer");
    drop(viewers);
    if report.wants(&["relay.cpu_pct_64n_0v"]) {
        println!("no viewer for a minute …");
        sleep(UNWATCHED).await;
        report.figure("relay.cpu_pct_64n_0v", &shares(&site).await?);
    }
    Ok(())
}

/// Measures it with the history of a week, which an earlier relay stored.
async fn a_week(report: &Report) -> Result<()> {
    let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let wall_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as u64;
    let plan = Plan { days: 7, ..soak::PLAN };
    let week_ms = plan.days * 86_400_000;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    println!("simulating a week of 64 nodes …");
    let sizes = soak::run(plan, state.path().join("nodeglass"), &host, wall_ms - week_ms)?;
    let path = state.path().display().to_string();
    let probe = binary("examples/node")?.display().to_string();
    let arguments = ["--launcher", "local", "--probe", &probe];
    let environment = [("XDG_STATE_HOME", OsStr::new(&path))];
    let site = SimulatedCluster::start_at(64, folder, &arguments, &environment)?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    until_restored(&mut client, week_ms).await?;
    let _viewers = Viewers::of(client);
    sleep(SETTLE).await;
    let stored = sizes.disk_bytes.iter().copied().fold(0, u64::max) as f64 / 1e6;
    let note = format!("with one viewer, after the restart; {stored:.0} MB are stored");
    report.value("relay.rss_mb_64n_7d", rss_mb(site.pid())?, &note);
    Ok(())
}

/// Waits until the relay has read the history of a week, which it does while it serves.
async fn until_restored(client: &mut Client, week_ms: u64) -> Result<()> {
    let began = Instant::now();
    loop {
        let at_ms = client.welcome().at_ms;
        let query = RangeQuery {
            topic: Topic::Overview,
            from_ms: at_ms.saturating_sub(week_ms),
            to_ms: at_ms,
            step_ms: 600_000,
            gpu_fields: vec![GpuField::Util.name().into()],
            host_fields: Vec::new(),
        };
        let begins_ms = client.range(query).await?.begins_ms;
        if begins_ms.is_some_and(|begins_ms| begins_ms + week_ms / 2 < at_ms) {
            println!("the history of a week was read within {:.1} s", began.elapsed().as_secs_f64());
            return Ok(());
        }
        ensure!(began.elapsed() < RESTORED_WITHIN, "the history of a week has not been read: {begins_ms:?}");
        sleep(Duration::from_millis(500)).await;
    }
}

/// A growing number of viewers of the same nodes.
async fn growing_viewers(report: &Report) -> Result<()> {
    let site = SimulatedCluster::start(VIEWER_NODES, NodeOptions::default())?;
    let mut first = site.client().await?;
    site.settled(&mut first).await?;
    let mut viewers = Viewers::of(first);
    let mut points = Vec::new();
    for clients in VIEWER_COUNTS {
        viewers.grow(&site, clients).await?;
        sleep(SETTLE).await;
        let share = shares(&site).await?.median();
        println!("{VIEWER_NODES} nodes, {clients} viewers: {share:.2} % of a core");
        points.push((clients as f64, share));
    }
    let note = format!("{VIEWER_NODES} nodes; {}", summary(&points, "viewers"));
    report.value("relay.growth.viewers", exponent(&points), &note);
    Ok(())
}

/// A growing number of nodes with one viewer; with a thousand, further figures are measured.
async fn growing_fleet(report: &Report) -> Result<()> {
    let mut points = Vec::new();
    let all = report.wants(&["relay.growth.nodes", "relay.growth"]);
    for nodes in FLEETS.into_iter().filter(|nodes| all || *nodes == 1_000) {
        let site = SimulatedCluster::start(
            nodes,
            NodeOptions { stamped: nodes == 1_000, ..NodeOptions::default() },
        )?;
        let mut client = site.client().await?;
        let took = site.settled(&mut client).await?;
        let mut viewers = Viewers::of(client);
        sleep(SETTLE).await;
        let share = shares(&site).await?;
        println!("{nodes} nodes, 1 viewer: {:.2} % of a core", share.median());
        points.push((nodes as f64, share.median()));
        if nodes == 1_000 {
            report.value(
                "relay.start_1000n_s",
                took.as_secs_f64(),
                "all nodes are processes of this same machine",
            );
            report.figure("relay.cpu_pct_1000n_1v", &share);
            thousand_nodes(report, &site, &mut viewers).await?;
        }
    }
    if all {
        report.value("relay.growth.nodes", exponent(&points), &summary(&points, "nodes"));
    }
    Ok(())
}

/// A thousand nodes and a hundred viewers.
async fn thousand_nodes(report: &Report, site: &SimulatedCluster, viewers: &mut Viewers) -> Result<()> {
    viewers.grow(site, 100).await?;
    sleep(SETTLE).await;
    report.figure("relay.cpu_pct_1000n_100v", &shares(site).await?);
    report.value("relay.rss_mb_1000n", rss_mb(site.pid())?, "with a hundred viewers and a minute of history");
    let (delays, _) = delays_ms(site).await?;
    let note = "from a node's write to a page's read, 101 viewers; nodes have the lowest priority, for they are other machines";
    report.value("relay.line_in_to_frame_out_p50_ms", delays.quantile(0.5), note);
    report.value("relay.line_in_to_frame_out_p99_ms", delays.quantile(0.99), note);
    Ok(())
}

/// Shares of a core that the relay uses, window by window.
async fn shares(site: &SimulatedCluster) -> Result<Series> {
    let clock = CpuClock::of(site.pid())?;
    tokio::task::spawn_blocking(move || (0..WINDOWS).map(|_| clock.share(WINDOW)).collect()).await?
}

/// Returns the delay of each sample from the node that stamped it to a page, and the client that received them.
pub async fn delays_ms(site: &SimulatedCluster) -> Result<(Series, Client)> {
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    // The initial history is sent over the same connection and is not measured.
    let settled = Instant::now() + SETTLE;
    let mut stamps: HashMap<usize, u32> = HashMap::new();
    let mut delays = Series::default();
    let follow = async {
        loop {
            let frame = client.frame().await?;
            let now_us = node_probe::clock::mono_ns() / 1_000;
            client.apply(&frame)?;
            let Some(picture) = client.picture(&Topic::Job(JOB)) else { continue };
            for (index, node) in picture.nodes.iter().enumerate() {
                let stamp = node.gpus.first().and_then(|gpu| gpu.row.get(GpuField::EccCorrected).value());
                let Some(stamp) = stamp else { continue };
                let is_new = stamps.insert(index, stamp).is_some_and(|before| before != stamp);
                if is_new && Instant::now() > settled {
                    // Stamps wrap at 10⁹ µs.
                    let took_us = (now_us % STAMPS + STAMPS - u64::from(stamp) % STAMPS) % STAMPS;
                    delays.push(took_us as f64 / 1e3);
                }
            }
        }
    };
    match timeout(SETTLE + FOLLOWED, follow).await {
        Ok(Err::<std::convert::Infallible, anyhow::Error>(error)) => Err(error),
        Err(_) => Ok((delays, client)),
    }
}

/// The slope of the regression line through the logarithms: 1 means that twice as many cost twice as much.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|(x, _)| x).sum::<f64>() / count, logs.iter().map(|(_, y)| y).sum::<f64>() / count);
    let rise: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    rise / logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

fn summary(points: &[(f64, f64)], of: &str) -> String {
    let each: Vec<_> = points.iter().map(|(count, share)| format!("{count} {of}: {share:.2} %")).collect();
    each.join(", ")
}
