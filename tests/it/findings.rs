//! A few labelled scenarios of findings; `cargo xtask findings` plays all of them.

use anyhow::{Result, ensure};
use nodeglass_tests::findings::{Summary, all, play};

/// One of each kind of cause, and jobs that are well.
const CASES: [&str; 8] = [
    "healthy/training/h100x1",
    "healthy/notebook/rtx4090x1",
    "look-alike/wait-of-58-s/l40s",
    "hang/h100x1",
    "slow-gpu/l40sx1",
    "two-idle/l40sx1",
    "pcie-narrow/l40s",
    "node-silent/l40s",
];

#[test]
fn causes_are_found_in_time_and_healthy_jobs_are_left_alone() -> Result<()> {
    let cases = all();
    ensure!(cases.len() >= 120, "there are {} scenarios", cases.len());
    let mut summary = Summary::default();
    for name in CASES {
        let case = cases.iter().find(|case| case.name == name);
        let Some(case) = case else { anyhow::bail!("there is no scenario {name}") };
        summary.add(case, 7, &play(&case.toml(7), case.minutes)?);
    }
    ensure!(summary.is_clean(), "{}", summary.failures.join("\n"));
    Ok(())
}
