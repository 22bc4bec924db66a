//! With slurmdbd, the report of an ended job has sacct's statements, also if no relay watched it, and slurmdbd is
//! queried rarely.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::JobId;
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::lab::Site;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A job that uses 100 MB in a step, and fails after several polls have listed it.
const FAILING: &str = "srun python3 -c 'import time; x = bytearray(100 << 20); time.sleep(20)'; exit 3";

/// Waits until the program of [`FAILING`] runs on the node, or is stopped there: srun waits for minutes if its job is suspended
/// before it has begun its step, and a job stays stopped that is resumed before slurmd has stopped it.
async fn wait_for_program(site: &Site, state: &[char]) -> Result<()> {
    let began = Instant::now();
    let of_program =
        |line: &str| line.split_once("(python3) ").is_some_and(|(_, rest)| rest.starts_with(state));
    let list = ["sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null; true"];
    while !site.lab.text("gpu-node-01", "root", &list)?.lines().any(of_program) {
        ensure!(began.elapsed() < TIMEOUT, "the program is not {state:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Suspends a job until the relay has known it for some seconds, and checks that its run time stands still meanwhile.
async fn suspend(site: &Site, job: JobId) -> Result<()> {
    let scontrol = |verb: &str| site.lab.text("slurm-ctl", "root", &["scontrol", verb, &job.to_string()]);
    wait_for_program(site, &['R', 'S']).await?;
    scontrol("suspend")?;
    wait_for_program(site, &['T']).await?;
    let began = Instant::now();
    let mut known_for = None;
    let elapsed = loop {
        let jobs: Value = serde_json::from_str(&site.run_relay("alice", &["jobs", "--json"])?)?;
        if jobs[0]["state"] == "SUSPENDED" {
            let since = *known_for.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_secs(4) {
                break jobs[0]["suspension"]["ran_s"].as_u64().context("its run time")?;
            }
        }
        ensure!(began.elapsed() < TIMEOUT, "not suspended: {jobs}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let stated = site.lab.text("login", "alice", &["squeue", "--noheader", "--format=%M", "--states=all"])?;
    ensure!(stated.trim() == format!("0:{elapsed:02}"), "{elapsed} s, squeue states {stated}");
    let text = site.run_relay("alice", &["jobs"])?;
    ensure!(text.contains(stated.trim()), "{stated}\n{text}");
    scontrol("resume").map(drop)
}

#[tokio::test]
async fn the_report_of_an_ended_job_has_what_sacct_states() -> Result<()> {
    let Some(site) = Site::accounting_or_skip(1)? else { return Ok(()) };
    let _relay = site.relay_with("alice", &["--slurm-interval", "5s"])?;
    let job = site.lab.sbatch("alice", &["--gres=gpu:1"], FAILING)?;
    site.lab.wait_until(job, "RUNNING")?;
    suspend(&site, job).await?;
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

/// Has slurmctld forget jobs soon after their end, and waits until it has forgotten this one.
async fn forget(site: &Site, job: JobId) -> Result<()> {
    let soon = "sed -i s/MinJobAge=.*/MinJobAge=2/ /etc/slurm/slurm.conf && scontrol reconfigure";
    site.lab.text("slurm-ctl", "root", &["sh", "-c", soon])?;
    let (began, id) = (Instant::now(), job.to_string());
    let listed = ["squeue", "--noheader", "--states=all", "--format=%i"];
    while site.lab.text("login", "root", &listed)?.lines().any(|line| line.trim() == id) {
        ensure!(began.elapsed() < 3 * TIMEOUT, "slurmctld still lists job {job}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_job_that_ended_before_the_relay_started_is_listed_by_sacct() -> Result<()> {
    let Some(site) = Site::accounting_or_skip(1)? else { return Ok(()) };
    let job = site.lab.sbatch("alice", &["--gres=gpu:2", "--job-name=earlier"], "srun sleep 6")?;
    site.lab.wait_until(job, "COMPLETED")?;
    forget(&site, job).await?;
    let _relay = site.relay("alice")?;
    let began = Instant::now();
    let report = loop {
        let report = site.run_relay("alice", &["report", &job.to_string(), "--format", "json"]);
        match report.and_then(|text| Ok(serde_json::from_str::<Value>(&text)?)) {
            Ok(report) => break report,
            // The list is read a minute after the start.
            Err(error) => ensure!(began.elapsed() < 3 * TIMEOUT, "sacct's job has no report: {error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let id = format!("--jobs={job}");
    let sacct = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=ElapsedRaw", &id];
    let elapsed: f64 = site.lab.text("login", "alice", &sacct)?.trim().parse()?;
    let totals = &report["totals"];
    let allocated = totals["gpu_hours_allocated"].as_f64().context("GPU hours")?;
    ensure!((allocated - 2.0 * elapsed / 3_600.0).abs() < 1e-6, "{elapsed} s: {totals}");
    ensure!(totals["gpu_hours_observed"] == 0.0 && report["is_final"] == true, "{report}");
    ensure!(report["name"] == "earlier" && report["state"] == "COMPLETED", "{report}");
    let usage: Value = serde_json::from_str(&site.run_relay("alice", &["me", "--days", "1", "--json"])?)?;
    ensure!(usage["total"]["jobs"] == 1 && usage["total"]["jobs_unobserved"] == 1, "{usage}");
    ensure!(usage["jobs"][0]["job"] == job.0 && usage["incomplete"].is_null(), "{usage}");
    Ok(())
}
