//! Requests of relays to a real slurmctld in steady state, with few and many jobs.

use crate::report::Report;
use crate::site::program;
use anyhow::{Context, Result, ensure};
use nodeglass_tests::SlurmLab;
use nodeglass_tests::lab::Site;
use nodeglass_tests::process::Process;
use std::time::Duration;
use tokio::time::sleep;

/// The users whose relays are measured, with the number of their jobs; `root` watches all users.
const USERS: [(&str, &str, u32); 4] =
    [("own_1", "alice", 1), ("own_30", "bob", 30), ("own_3000", "carol", 3_000), ("all_3000", "root", 0)];
/// Until all details were read, and lists are settled.
const SETTLE: Duration = Duration::from_secs(200);
const WATCHED: Duration = Duration::from_secs(300);
/// Requests to slurmctld of each command: the list, and partitions or nodes.
const REQUESTS: u32 = 2;
/// Notes the time of each call of one of SLURM's commands, and runs it.
const COUNTED: &str = "date +%s.%N >> $HOME/requests; exec /usr/bin/${0##*/} \"$@\"";

/// Measures the requests a minute.
pub async fn measure(report: &Report) -> Result<()> {
    if let Some(why) = SlurmLab::why_not() {
        println!("requests to slurmctld are not counted: {why}");
        return Ok(());
    }
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    for name in ["squeue", "scontrol"] {
        let counting = program(folder.path(), name, COUNTED)?;
        site.lab.put("login", &counting, &format!("/opt/counted/{name}"), 0o755)?;
    }
    for (_, user, count) in USERS {
        submit(&site, user, count)?;
    }
    let _relays = USERS.iter().map(|(_, user, _)| start(&site, user)).collect::<Result<Vec<_>>>()?;
    sleep(SETTLE).await;
    site.lab.text("login", "root", &["sdiag", "--reset"])?;
    let before = USERS.iter().map(|(_, user, _)| calls(&site, user)).collect::<Result<Vec<_>>>()?;
    sleep(WATCHED).await;
    let served = site.lab.text("login", "root", &["sdiag"])?;
    for ((name, user, _), before) in USERS.iter().zip(before) {
        let calls = calls(&site, user)?.split_off(before.len());
        let own = if *user == "root" { 1 } else { 0 };
        let served = served_to(&served, user)?.saturating_sub(own);
        let made = REQUESTS * u32::try_from(calls.len())?;
        ensure!(served.abs_diff(made) <= REQUESTS, "{user}: {made} requests were made, {served} were served");
        let note = format!("{served} requests served in {} s, by sdiag", WATCHED.as_secs());
        report.value(&format!("slurm.requests_per_min.{name}"), rate(&calls)?, &note);
    }
    Ok(())
}

/// Submits jobs that never start.
fn submit(site: &Site, user: &str, count: u32) -> Result<()> {
    let script = format!("for i in $(seq {count}); do sbatch --quiet --hold --wrap 'sleep 1'; done");
    site.lab.text("login", user, &["bash", "-c", &script]).map(drop)
}

fn start(site: &Site, user: &str) -> Result<Process> {
    let users: &[&str] = if user == "root" { &["--users", "all"] } else { &[] };
    let port = 8_080 + USERS.iter().position(|(_, name, _)| *name == user).context("a user")?;
    let bind = format!("127.0.0.1:{port}");
    let argv = ["env", "PATH=/opt/counted:/usr/bin:/bin", "/opt/nodeglass/relay", "--new", "--bind", &bind];
    site.lab.spawn("login", user, &[&argv, users].concat())
}

/// Times of a user's calls of SLURM's commands, in s.
fn calls(site: &Site, user: &str) -> Result<Vec<f64>> {
    let home = if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
    let text = site.lab.text("login", "root", &["cat", &format!("{home}/requests")])?;
    text.lines().map(|line| line.parse().with_context(|| format!("{line} is no time"))).collect()
}

/// Requests that slurmctld served to a user since the reset.
fn served_to(sdiag: &str, user: &str) -> Result<u32> {
    let (_, by_user) = sdiag.split_once("statistics by user").context("sdiag names users")?;
    let line =
        by_user.lines().find(|line| line.trim_start().starts_with(user)).context("the user is listed")?;
    let (_, count) = line.split_once("count:").context("a number of requests")?;
    Ok(count.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Requests a minute from the first call to the last, which begins the next interval.
fn rate(calls: &[f64]) -> Result<f64> {
    let (Some(first), Some(last)) = (calls.first(), calls.last()) else { anyhow::bail!("no calls") };
    let between = calls.iter().filter(|at| *at + 1.0 < *last).count();
    ensure!(last > first, "only one poll in {WATCHED:?}");
    Ok(f64::from(REQUESTS) * between as f64 * 60.0 / (last - first))
}
