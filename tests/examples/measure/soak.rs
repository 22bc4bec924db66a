//! A relay's state over twenty simulated days: what it takes in memory and on disk.

use crate::report::Report;
use anyhow::{Context, Result};
use nodeglass_tests::soak::{Plan, Sizes, Soak};
use std::path::PathBuf;

/// 64 nodes of eight GPUs with the default limits, sampled as without a viewer.
pub const PLAN: Plan =
    Plan { nodes: 64, days: 20, interval_ms: 10_000, history_budget: 64 << 20, disk_cap: 512 << 20 };
/// 25 November 2026.
const WALL_MS: u64 = 1_795_600_000_000;

/// Measures the requested figures.
pub fn measure(report: &Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sizes = run(PLAN, folder.path().join("nodeglass"), "login1", WALL_MS)?;
    let last = |all: &[u64]| all.last().copied().context("a day");
    let note = format!("{} jobs ended; by day: {}", sizes.jobs, by_day(&sizes));
    report.value("soak.history_mb_64n_20d", highest(&sizes.history_bytes) as f64 / 1e6, "the highest");
    report.value(
        "soak.disk_mb_64n_20d",
        sizes.disk_bytes.iter().copied().fold(0, u64::max) as f64 / 1e6,
        "the highest",
    );
    report.value("soak.database_mb_64n_20d", last(&sizes.database_bytes)? as f64 / 1e6, "at the end");
    report.value("soak.rss_mb_64n_20d", last(&sizes.rss_bytes)? as f64 / 1e6, &note);
    Ok(())
}

/// Simulates a plan in a state directory.
pub fn run(plan: Plan, state: PathBuf, host: &str, wall_ms: u64) -> Result<Sizes> {
    Soak::start(plan, state, host, wall_ms)?.run()
}

fn highest(sizes: &[usize]) -> usize {
    sizes.iter().copied().max().unwrap_or(0)
}

/// Resident memory in MB at the end of every fifth day.
fn by_day(sizes: &Sizes) -> String {
    let days = sizes.rss_bytes.iter().enumerate().filter(|(day, _)| (day + 1).is_multiple_of(5));
    let days = days.map(|(day, bytes)| format!("day {} {:.0} MB", day + 1, *bytes as f64 / 1e6));
    days.collect::<Vec<_>>().join(", ")
}
