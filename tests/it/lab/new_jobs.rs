//! A real SLURM cluster: jobs that are newer than the relay's list, that were over before it, and a controller that does
//! not answer.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::lab::Site;
use std::process::Output;
use std::time::Instant;

/// Returns the output of `relay ARGS…` as alice, for any exit code.
fn run(site: &Site, args: &[&str]) -> Result<(Option<i32>, String, String)> {
    let argv = [&["/opt/nodeglass/relay"], args].concat();
    let Output { status, stdout, stderr } = site.lab.exec("login", "alice", &argv)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status.code(), text(stdout), text(stderr)))
}

/// Repeats a command until its output is as expected.
fn until(site: &Site, args: &[&str], is_expected: impl Fn(&str, &str) -> bool) -> Result<()> {
    let start = Instant::now();
    loop {
        let (code, out, err) = run(site, args)?;
        if is_expected(&out, &err) {
            return Ok(());
        }
        ensure!(start.elapsed() < TIMEOUT, "relay {args:?} exits with {code:?}: {out}{err}");
    }
}

#[tokio::test]
async fn a_job_is_known_to_every_command_as_soon_as_it_is_submitted() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let _relay = site.relay_with("alice", &["--slurm-interval", "10m"])?;
    // The first list is empty, and the next one is due in ten minutes.
    until(&site, &["jobs"], |_, err| err.contains("no jobs"))?;
    let job = site.train("alice", &["--gres=gpu:1"])?;
    site.lab.wait_until(job, "RUNNING")?;
    let (code, out, err) = run(&site, &["wait", &job.to_string(), "--until", "start", "--timeout", "5m"])?;
    ensure!(code == Some(0) && out.contains("RUNNING"), "{out}{err}");
    let job = site.train("alice", &["--gres=gpu:1"])?.to_string();
    let (code, out, err) = run(&site, &["note", "the first epoch", "--job", &job])?;
    ensure!(code == Some(0) && out.contains(&format!("of job {job}")), "{out}{err}");
    let (code, out, err) = run(&site, &["report", "4444"])?;
    ensure!(code == Some(3) && err.contains("no report of job 4444"), "{out}{err}");
    Ok(())
}

#[tokio::test]
async fn a_job_that_fails_between_two_polls_is_listed_with_its_exit_code() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let _relay = site.relay_with("alice", &["--slurm-interval", "5s"])?;
    until(&site, &["jobs"], |_, err| err.contains("no jobs"))?;
    let job = site.lab.sbatch("alice", &["--gres=gpu:1"], "exit 7")?;
    site.lab.wait_until(job, "FAILED")?;
    let job = job.to_string();
    let (code, out, err) = run(&site, &["wait", &job])?;
    ensure!(code == Some(4) && out.contains("FAILED, exit code 7"), "{code:?}: {out}{err}");
    until(&site, &["jobs"], |out, _| out.contains(&job) && out.contains("FAILED"))?;
    until(&site, &["report", &job], |out, _| out.contains("not observed"))?;
    let (_, out, _) = run(&site, &["jobs", "--hide-ended"])?;
    ensure!(!out.contains(&job), "{out}");
    Ok(())
}

#[tokio::test]
async fn a_controller_that_does_not_answer_denies_no_job() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let job = site.train("alice", &["--gres=gpu:1"])?.to_string();
    let _relay = site.relay_with("alice", &["--slurm-interval", "5s"])?;
    until(&site, &["jobs"], |out, _| out.contains(&job))?;
    site.lab.freeze("slurm-ctl", "slurmctld")?;
    let (code, _, err) = run(&site, &["wait", "4444", "--timeout", "10s"])?;
    ensure!(code == Some(3) && err.contains("not in the list of jobs"), "{code:?}: {err}");
    ensure!(!err.contains("there is no job"), "{err}");
    until(&site, &["jobs"], |out, err| out.contains(&job) && err.contains("the list of jobs is"))?;
    let (code, _, err) = run(&site, &["findings", "--job", "4444"])?;
    ensure!(code == Some(1) && err.contains("squeue"), "{code:?}: {err}");
    site.lab.thaw("slurm-ctl", "slurmctld")?;
    let (code, _, err) = run(&site, &["wait", "4444"]).context("after it answers")?;
    ensure!(code == Some(3) && err.contains("there is no job 4444 in the list"), "{code:?}: {err}");
    Ok(())
}
