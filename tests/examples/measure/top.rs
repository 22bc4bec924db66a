//! The cost of `relay top` beside the relay that it is attached to.

use crate::cpu::CpuClock;
use crate::report::Report;
use crate::series::Series;
use crate::site::{NodeOptions, SimulatedCluster};
use anyhow::Result;
use nodeglass_tests::TestRelay;
use nodeglass_tests::tmux::Tmux;
use std::time::Duration;
use tokio::time::sleep;

/// Waiting time until start-up work is over.
const SETTLE: Duration = Duration::from_secs(8);
/// Duration of one measurement.
const WINDOW: Duration = Duration::from_secs(10);
const WINDOWS: usize = 3;
/// A large terminal.
const SIZE: (u16, u16) = (200, 50);

/// Measures the requested figure.
pub async fn measure(report: &Report) -> Result<()> {
    if !report.wants(&["top.cpu_pct_64n"]) {
        return Ok(());
    }
    let site = SimulatedCluster::start(64, NodeOptions::default())?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    drop(client);
    let mut command = TestRelay::command(site.home())?;
    command.arg("top");
    let Some(terminal) = Tmux::start(SIZE, &command)? else {
        println!("there is no tmux here, so that relay top is not measured");
        return Ok(());
    };
    terminal.wait_for("64 nodes", |screen| screen.contains("64 nodes") && screen.contains("● n0001"))?;
    sleep(SETTLE).await;
    let clock = CpuClock::of(terminal.pid()?)?;
    let shares = move || (0..WINDOWS).map(|_| clock.share(WINDOW)).collect::<Result<Series>>();
    report.figure("top.cpu_pct_64n", &tokio::task::spawn_blocking(shares).await??);
    Ok(())
}
