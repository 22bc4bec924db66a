//! Time that a relay of a thousand nodes takes to answer a scrape of `/metrics`.

use crate::report::Report;
use crate::series::Series;
use crate::site::{NodeOptions, SimulatedCluster};
use crate::viewers::Viewers;
use anyhow::{Result, ensure};
use nodeglass_tests::http;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const NODES: usize = 1_000;
/// Waiting time until start-up work is over.
const SETTLE: Duration = Duration::from_secs(8);
const SCRAPES: usize = 15;
/// Between two scrapes: each meets another phase of the nodes' samples.
const PAUSE: Duration = Duration::from_millis(370);

/// Measures the requested figure.
pub async fn measure(report: &Report) -> Result<()> {
    if !report.wants(&["api.metrics_ms_1000n"]) {
        return Ok(());
    }
    let site = SimulatedCluster::start(NODES, NodeOptions::default())?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    // With a viewer, nodes send once a second: the scrape competes with the relay's usual work.
    let _viewers = Viewers::of(client);
    sleep(SETTLE).await;
    let authority = site.link().authority.clone();
    let bearer = format!("Bearer {}", site.link().key.reveal());
    let scrapes = tokio::task::spawn_blocking(move || scrapes(&authority, &bearer)).await??;
    let note = format!(
        "{:.1} MB, {} series; on the cores of a thousand nodes",
        scrapes.bytes as f64 / 1e6,
        scrapes.series
    );
    report.noted("api.metrics_ms_1000n", &scrapes.took_ms, &note);
    Ok(())
}

/// Duration of the scrapes, and the size of the last one.
struct Scrapes {
    took_ms: Series,
    bytes: usize,
    series: usize,
}

fn scrapes(authority: &str, bearer: &str) -> Result<Scrapes> {
    let mut scrapes = Scrapes { took_ms: Series::default(), bytes: 0, series: 0 };
    for _ in 0..SCRAPES {
        std::thread::sleep(PAUSE);
        let began = Instant::now();
        let reply = http::get(authority, "/metrics", &[("Authorization", bearer)])?;
        scrapes.took_ms.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(reply.status == 200, "/metrics answered {}", reply.status);
        let body = reply.body.as_str();
        scrapes.bytes = body.len();
        scrapes.series = body.lines().filter(|line| !line.starts_with('#')).count();
    }
    Ok(scrapes)
}
