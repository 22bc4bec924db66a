//! Relays that share nodes over a real NATS server: one that runs the probes, and view-only ones with a hundred viewers each.
//!
//! `NODEGLASS_BENCH_NODES` and `NODEGLASS_BENCH_VIEWERS` replace the numbers of nodes and of viewers for a quick check.

use crate::cpu::{CpuClock, rss_mb};
use crate::relay::{SETTLE, WINDOW, WINDOWS, delays_ms, exponent};
use crate::report::Report;
use crate::series::Series;
use crate::site::{JOB, NodeOptions, SimulatedCluster};
use crate::viewers::Viewers;
use anyhow::{Context, Result};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::NodePicture;
use nodeglass_tests::client::Client;
use nodeglass_tests::nats::NatsServer;
use nodeglass_tests::relay::binary;
use std::time::Duration;
use tokio::time::sleep;

/// Number of view-only relays.
const RELAYS: usize = 3;
/// Number of seconds before the newest ones in which nothing may be missing.
const CHECKED: usize = 60;
/// Newest slots, whose samples may be on their way.
const ON_THE_WAY: usize = 3;

/// The programs under load.
struct Load {
    server: NatsServer,
    publisher: SimulatedCluster,
    views: Vec<(SimulatedCluster, Viewers)>,
    nodes: usize,
    viewers: usize,
}

/// Shares of a core of each program.
struct Shares {
    server: Series,
    publisher: Series,
    views: Vec<Series>,
}

/// Measures the requested figures.
pub async fn measure(report: &Report) -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else {
        println!("there is no nats-server here, so that nothing is measured over NATS");
        return Ok(());
    };
    let (nodes, viewers) = (number("NODEGLASS_BENCH_NODES", 1_000)?, number("NODEGLASS_BENCH_VIEWERS", 100)?);
    let probe = binary("examples/node")?.display().to_string();
    let arguments = ["--launcher", "local", "--probe", &probe, "--nats", &server.url()];
    let options = NodeOptions { stamped: true, ..NodeOptions::default() };
    let publisher = SimulatedCluster::start_with(nodes, tempfile::tempdir()?, &arguments, options)?;
    publisher.settled(&mut publisher.client().await?).await?;
    let mut load = Load { server, publisher, views: Vec::new(), nodes, viewers };

    let mut points = Vec::new();
    for relays in 1..=RELAYS {
        load.add_view().await?;
        sleep(SETTLE).await;
        let shares = load.shares().await?;
        let all = shares.server.median() + shares.views.iter().map(Series::median).sum::<f64>();
        println!(
            "{nodes} nodes, {relays} view-only relays with {viewers} viewers each: publisher {:.1} %, server {:.1} %, \
             server and view-only relays together {all:.1} % of a core",
            shares.publisher.median(),
            shares.server.median()
        );
        points.push((relays as f64, all));
        if relays == RELAYS {
            load.report_shares(report, &shares)?;
        }
    }
    let note = "of the CPU of server and view-only relays with the number of relays";
    report.value("nats.growth", exponent(&points), note);
    load.report_traffic(report).await?;
    load.report_delays(report).await
}

impl Load {
    /// Starts one more view-only relay with its viewers.
    async fn add_view(&mut self) -> Result<()> {
        let site = SimulatedCluster::viewing(self.nodes, &self.server.url())?;
        let mut client = site.client().await?;
        site.settled(&mut client).await?;
        let mut viewers = Viewers::of(client);
        viewers.grow(&site, self.viewers).await?;
        self.views.push((site, viewers));
        Ok(())
    }

    /// Measures all programs at the same time.
    async fn shares(&self) -> Result<Shares> {
        let pids = [self.server.pid(), self.publisher.pid()];
        let pids = pids.into_iter().chain(self.views.iter().map(|(site, _)| site.pid()));
        let clocks: Vec<_> = pids.map(CpuClock::of).collect::<Result<_>>()?;
        let mut all: Vec<_> = clocks.iter().map(|_| Series::default()).collect();
        for _ in 0..WINDOWS {
            let before: Vec<_> = clocks.iter().map(|clock| clock.used()).collect::<Result<_>>()?;
            sleep(WINDOW).await;
            for ((series, clock), before) in all.iter_mut().zip(&clocks).zip(before) {
                series.push(100.0 * (clock.used()? - before).as_secs_f64() / WINDOW.as_secs_f64());
            }
        }
        let mut all = all.into_iter();
        let (server, publisher) = (all.next().context("a server")?, all.next().context("a publisher")?);
        Ok(Shares { server, publisher, views: all.collect() })
    }

    fn report_shares(&self, report: &Report, shares: &Shares) -> Result<()> {
        let Self { nodes, viewers, .. } = self;
        let note = format!("{nodes} nodes, {RELAYS} view-only relays with {viewers} viewers each");
        report.noted("nats.publisher_cpu_pct_1000n_3r", &shares.publisher, &note);
        report.noted("nats.server_cpu_pct_1000n_3r", &shares.server, &note);
        let mut each = Series::default();
        shares.views.iter().for_each(|series| each.push(series.median()));
        report.noted("nats.view_cpu_pct_1000n_100v", &each, &format!("{note}; the median relay"));
        let (site, _) = self.views.first().context("a view-only relay")?;
        report.value("nats.view_rss_mb_1000n_100v", rss_mb(site.pid())?, &note);
        report.value("nats.server_rss_mb_1000n_3r", rss_mb(self.server.pid())?, &note);
        Ok(())
    }

    /// Counts what the publisher sends, by one more subscriber.
    async fn report_traffic(&self, report: &Report) -> Result<()> {
        let mut monitor = self.server.client()?;
        monitor.subscribe("nodeglass.>")?;
        sleep(Duration::from_secs(1)).await;
        let before = monitor.received();
        sleep(WINDOW).await;
        let after = monitor.received();
        let note = format!("{} nodes, once for all relays", self.nodes);
        let a_second = |after: usize, before: usize| (after - before) as f64 / WINDOW.as_secs_f64();
        report.value("nats.messages_per_s_1000n", a_second(after.0, before.0), &note);
        report.value("nats.kb_per_s_1000n", a_second(after.1, before.1) / 1e3, &note);
        Ok(())
    }

    async fn report_delays(&self, report: &Report) -> Result<()> {
        let (site, _) = self.views.last().context("a view-only relay")?;
        let (delays, client) = delays_ms(site).await?;
        let note =
            "from a node's write to the read of a page of a view-only relay; all programs share this machine";
        report.value("nats.line_in_to_frame_out_p50_ms", delays.quantile(0.5), note);
        report.value("nats.line_in_to_frame_out_p99_ms", delays.quantile(0.99), note);
        let note = format!("of {} nodes in {CHECKED} s, and {} lagging updates", self.nodes, client.missed());
        report.value("nats.lost_samples", lost(&client) as f64 + f64::from(client.missed()), &note);
        Ok(())
    }
}

/// Number of seconds without a sample in the newest minute of all nodes, as a page of a view-only relay shows them.
fn lost(client: &Client) -> usize {
    let Some(picture) = client.picture(&Topic::Job(JOB)) else { return usize::MAX };
    let of_node = |node: &NodePicture| {
        let trace = node.history.as_ref().and_then(|history| history.gpu(0, GpuField::Util));
        let points: Vec<_> = trace.into_iter().flat_map(|trace| trace.points()).collect();
        let checked = points.iter().rev().skip(ON_THE_WAY).take(CHECKED);
        CHECKED - checked.filter(|(_, cell)| cell.is_some()).count()
    };
    picture.nodes.iter().map(of_node).sum()
}

fn number(variable: &str, default: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable} is not a number")),
        Err(_) => Ok(default),
    }
}
