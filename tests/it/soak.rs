//! Twenty simulated days of a relay: what it keeps stays within its limits.

use anyhow::{Result, ensure};
use nodeglass_tests::soak::{Plan, Soak};

/// 25 November 2026.
const WALL_MS: u64 = 1_795_600_000_000;

/// One node, few samples and small limits, so that each limit is reached and the test is fast;
/// `cargo xtask bench soak` takes 64 nodes and the default limits.
#[test]
fn twenty_days_stay_within_the_limits_of_memory_and_disk() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let plan =
        Plan { nodes: 1, days: 20, interval_ms: 60_000, history_budget: 256 << 10, disk_cap: 512 << 10 };
    let sizes = Soak::start(plan, folder.path().join("nodeglass"), "login1", WALL_MS)?.run()?;
    // The budget is applied once a minute.
    let limit = plan.history_budget + plan.history_budget / 4;
    ensure!(sizes.history_bytes.iter().all(|bytes| *bytes <= limit), "{:?}", sizes.history_bytes);
    // Each kind of segment may have an open one above the limit.
    ensure!(sizes.disk_bytes.iter().all(|bytes| *bytes <= 2 * plan.disk_cap), "{:?}", sizes.disk_bytes);
    // Both limits were nearly reached.
    ensure!(sizes.history_bytes[19] > plan.history_budget / 2, "{:?}", sizes.history_bytes);
    ensure!(sizes.disk_bytes[19] > plan.disk_cap / 2, "{:?}", sizes.disk_bytes);
    let database = sizes.database_bytes.last().copied().unwrap_or(0);
    ensure!(database < 3 << 20, "the database has {database} bytes");
    ensure!(sizes.jobs > 40, "{} jobs ended", sizes.jobs);
    Ok(())
}
