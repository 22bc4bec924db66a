//! The measuring program of `cargo xtask bench`: `measure SUBJECT [NAME…]` prints each figure as a line `= NAME VALUE …`.

mod api;
mod cgroup;
mod cluster;
mod cpu;
mod endurance;
mod fanout;
mod findings;
mod flame;
mod history;
mod nats;
mod page;
mod perf;
mod probe;
mod relay;
mod report;
mod series;
mod site;
mod slurm;
mod soak;
mod sshd;
mod storage;
mod top;
mod viewers;
mod wire;

use anyhow::{Context, Result, bail};
use report::Report;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let subject = words.next().context("measure what? It is run by `cargo xtask bench`")?;
    let report = Report::of(words.collect());
    match subject.as_str() {
        "api" => in_time(api::measure(&report)),
        "probe-flame" => probe::flame(&report),
        "relay-flame" => in_time(relay::flame(&report)),
        "probe" => probe::measure(&report).and_then(|()| in_time(cluster_too(&report))),
        "endurance" => in_time(endurance::run(&report)),
        "fanout" => in_time(fanout::measure(&report)),
        "findings" => findings::measure(&report),
        "history" => {
            history::measure(&report)?;
            if report.wants(&["history.disk_bytes_per_sample", "history.victoria_metrics_bytes_per_sample"]) {
                storage::measure(&report)?;
            }
            if report.wants(&["history.replay_speed_max"]) {
                in_time(storage::replay(&report))
            } else {
                Ok(())
            }
        }
        "nats" => in_time(nats::measure(&report)),
        "page" => in_time(page::measure(&report)),
        "page-flame" => in_time(page::flame(&report)),
        "relay" => in_time(relay::measure(&report)),
        "slurm" => in_time(slurm::measure(&report)),
        "soak" => soak::measure(&report),
        "top" => in_time(top::measure(&report)),
        "wire" => wire::measure(&report),
        other => bail!("nothing is known of how to measure {other:?}"),
    }
}

/// Runs what waits for sockets and timers.
fn in_time(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Runtime::new().context("start a runtime")?.block_on(work)
}

/// The part of the probe's cost that needs a cluster, if it is selected.
async fn cluster_too(report: &Report) -> Result<()> {
    if report.wants(&["probe.vs_nvnodetop_poll_cpu_ratio"]) {
        cluster::measure(report).await?;
    }
    Ok(())
}
