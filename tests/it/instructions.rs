//! Each step of a sample's path takes as many instructions as recorded, within 10 %.
//!
//! Instruction counts do not depend on the load of the machine. They are of the build that all other tests use, in
//! which the crates of a sample's path are optimised a little: a release of the relay alone takes minutes on two cores,
//! and a step that does more work takes more instructions in both. `cargo xtask bench` measures the release build. The baseline is
//! `tests/instructions.json`; after an intended change, `NODEGLASS_COUNT=1` records a new one. It is of a build as in
//! CI, with `CARGO_INCREMENTAL=0`: incremental builds divide the code otherwise, and take up to 15 % more.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_tests::{relay::binary, skip};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The steps that `examples/count` measures.
const STEPS: [&str; 5] = ["tick", "parse", "apply", "encode", "page_apply"];
/// Maximum relative deviation from the baseline.
const BAND: f64 = 0.1;
/// Eight idle GPUs, without GPM, which needs time between two samples.
const CARDS: &str = r#"{"gpus": [{}, {}, {}, {}, {}, {}, {}, {}]}"#;

#[test]
fn no_step_takes_ten_percent_more_instructions_than_recorded() -> Result<()> {
    let Some([valgrind]) = skip::programs(["valgrind"]) else { return Ok(()) };
    let counts =
        STEPS.iter().map(|step| Ok((*step, count(&valgrind, step)?))).collect::<Result<BTreeMap<_, _>>>()?;
    if std::env::var_os("NODEGLASS_COUNT").is_some() {
        return Ok(std::fs::write(baseline_file(), serde_json::to_string_pretty(&counts)? + "\n")?);
    }
    let text = std::fs::read_to_string(baseline_file()).context("read tests/instructions.json")?;
    let baseline: BTreeMap<String, u64> =
        serde_json::from_str(&text).context("read tests/instructions.json")?;
    let far: Vec<_> =
        counts.iter().filter_map(|(step, now)| judge(step, *now, baseline.get(*step).copied())).collect();
    ensure!(
        far.is_empty(),
        "{}\nCompare with a build that is not incremental: CARGO_INCREMENTAL=0 cargo xtask test instructions\n\
         If the change is meant, or the compiler is another one, take the baseline anew and commit it:\n\
         CARGO_INCREMENTAL=0 NODEGLASS_COUNT=1 cargo xtask test instructions",
        far.join("\n")
    );
    Ok(())
}

/// Describes a count that deviates from the baseline.
fn judge(step: &str, now: u64, before: Option<u64>) -> Option<String> {
    let Some(before) = before else { return Some(format!("{step}: {now} instructions, and no baseline")) };
    let change = now as f64 / before as f64 - 1.0;
    let percent = 100.0 * change;
    (change.abs() > BAND).then(|| format!("{step}: {now} instructions, {percent:+.0} % against {before}"))
}

/// Instructions of one step.
fn count(valgrind: &Path, step: &str) -> Result<u64> {
    let program =
        binary("examples/count").map_err(|_| anyhow::anyhow!("`cargo xtask test` builds what is counted"))?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state.json");
    std::fs::write(&state, CARDS)?;
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .args(["--toggle-collect=*counted*"])
        .arg(program)
        .arg(step)
        .env("FAKE_NVML_STATE", state)
        // Never expires: on a slow machine the state would be rebuilt more often.
        .env("FAKE_NVML_FRESH_MS", "3600000")
        .output()
        .context("run callgrind")?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let rounds: u64 = stdout.trim().parse().with_context(|| format!("{step}: {stderr}"))?;
    let collected =
        stderr.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    match collected {
        Some(0) | None => bail!("callgrind counted nothing of {step}: {stderr}"),
        Some(collected) => Ok(collected / rounds),
    }
}

fn baseline_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
}

/// A comparison that cannot find a difference would show nothing.
#[test]
fn a_step_that_changed_by_more_than_ten_percent_is_named() {
    assert_eq!(judge("parse", 1_090, Some(1_000)), None);
    assert!(judge("parse", 1_110, Some(1_000)).is_some_and(|why| why.contains("+11 %")));
    assert!(judge("parse", 880, Some(1_000)).is_some_and(|why| why.contains("-12 %")));
    assert!(judge("parse", 1, None).is_some());
}
