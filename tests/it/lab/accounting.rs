//! Where slurmdbd is up, the report of an ended job has what sacct states, and slurmdbd is asked rarely.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::lab::Site;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A job that uses 100 MB in a step, and fails after several polls have listed it.
const FAILING: &str = "srun python3 -c 'import time; x = bytearray(100 << 20); time.sleep(20)'; exit 3";

#[tokio::test]
async fn the_report_of_an_ended_job_has_what_sacct_states() -> Result<()> {
    let Some(site) = Site::accounting_or_skip(1)? else { return Ok(()) };
    let _relay = site.relay_with("alice", &["--slurm-interval", "5s"])?;
    let job = site.lab.sbatch("alice", &["--gres=gpu:1"], FAILING)?;
    site.lab.wait_until(job, "FAILED")?;
    let began = Instant::now();
    let report = loop {
        let report = site.run_relay("alice", &["report", &job.to_string(), "--format", "json"]);
        let report = report.and_then(|text| Ok(serde_json::from_str::<Value>(&text)?));
        if let Ok(report) = &report
            && report["is_final"] == true
            && !report["accounting"].is_null()
        {
            break report.clone();
        }
        ensure!(began.elapsed() < 2 * TIMEOUT, "no accounting: {report:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let columns = "State,ExitCode,MaxRSS,ElapsedRaw";
    let format = format!("--format={columns}");
    let id = format!("--jobs={job}");
    let sacct = ["sacct", "--noheader", "--parsable2", "--units=K", &format, &id];
    let stated = site.lab.text("login", "alice", &sacct)?;
    let rows: Vec<Vec<&str>> = stated.lines().map(|line| line.split('|').collect()).collect();
    let first = rows.first().context("a row")?;
    let accounting = &report["accounting"];
    ensure!(accounting["state"] == first[0] && first[1] == "3:0", "{stated}\n{accounting}");
    ensure!(accounting["exit_code"] == 3 && accounting["signal"].is_null(), "{accounting}");
    let elapsed: u64 = first[3].parse()?;
    ensure!(accounting["elapsed_s"] == elapsed, "{stated}\n{accounting}");
    let kilobytes = |row: &Vec<&str>| row[2].strip_suffix('K')?.parse::<u64>().ok();
    let peak = rows.iter().filter_map(kilobytes).max().context("a step with MaxRSS")?;
    ensure!(accounting["max_rss_bytes"] == peak << 10 && peak > 100 << 10, "{stated}\n{accounting}");
    // What both measure differs by the second in which SLURM and the relay begin and end.
    ensure!(report["elapsed_s"].as_u64().context("a run time")?.abs_diff(elapsed) <= 1, "{report}");
    let text = site.run_relay("alice", &["report", &job.to_string()])?;
    ensure!(text.contains("FAILED, exit code 3, MaxRSS"), "{text}");
    Ok(())
}
