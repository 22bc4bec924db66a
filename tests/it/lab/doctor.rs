//! Commands that query SLURM itself: `relay doctor` finds no fault in a healthy cluster, and names each fault with
//! its remedy; `relay fit` finds where a job would start.

use super::adopting::NODE;
use anyhow::{Context, Result, ensure};
use nodeglass_tests::lab::Site;
use serde_json::Value;

const HEALTHY: &str = "gpu-node-01";

/// The exit code and the JSON form of `relay doctor ARGS…` as alice.
fn doctor(site: &Site, args: &[&str]) -> Result<(Option<i32>, Value)> {
    let argv = [&["/opt/nodeglass/relay", "doctor", "--json"], args].concat();
    let output = site.lab.exec("login", "alice", &argv)?;
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((output.status.code(), report))
}

/// Level, text and advice of a check.
fn find(report: &Value, check: &str) -> Result<String> {
    let results = report["results"].as_array().context("results")?;
    let found = results.iter().find(|result| result["check"] == check);
    let found = found.with_context(|| format!("{check} in {report:#}"))?;
    let of = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Ok(format!("{}: {}; {}", of("level"), of("text"), of("advice")))
}

/// `relay fit` finds free GPUs and a start that SLURM confirms, and submits nothing.
fn fits(site: &Site) -> Result<()> {
    let fit = |gpus: &str| -> Result<(Option<i32>, Value)> {
        let output = site.lab.exec("login", "alice", &["/opt/nodeglass/relay", "fit", gpus, "--json"])?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), serde_json::from_slice(&output.stdout).context(printed)?))
    };
    let (code, places) = fit("2")?;
    let first = &places[0];
    ensure!(code == Some(0) && first["fits_now"] == true && first["gpus_per_node"] == 2, "{places:#}");
    ensure!(first["sbatch"].as_str().is_some_and(|line| line.starts_with("sbatch --partition=")), "{first}");
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let starts_in_s = first["starts_at_s"].as_u64().context(first.to_string())?.abs_diff(now_s);
    ensure!(starts_in_s < 120, "it starts in {starts_in_s} s: {first}");
    let (code, places) = fit("1000")?;
    ensure!(code == Some(3) && places.as_array().is_some_and(Vec::is_empty), "{places:#}");
    let queue = site.lab.text("login", "alice", &["squeue", "-h", "-o", "%A"])?;
    ensure!(queue.lines().count() == 1, "something was submitted: {queue}");
    Ok(())
}

#[test]
fn doctor_names_each_fault_and_its_remedy() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let job = site.train("alice", &["-w", HEALTHY, "--gres=gpu:1"])?;
    site.lab.wait_until(job, "RUNNING")?;
    let alice = |host: &str, script: &str| site.lab.text(host, "alice", &["bash", "-c", script]);

    // Without an argument: the node of the job.
    let (code, report) = doctor(&site, &[])?;
    // The lab's SLURM tracks processes without control groups.
    ensure!(code == Some(0) && report["level"] == "warn" && report["node"] == HEALTHY, "{report:#}");
    for (check, text) in [
        ("controller", "ok: cluster lab"),
        ("ProctrackType", "warn: proctrack/linuxproc"),
        ("login", "ok: accepted the key "),
        ("clock", "ok: agrees with login's"),
        ("driver", "ok: NVIDIA driver "),
        ("GPUs", "ok: 4 GPUs"),
    ] {
        let found = find(&report, check)?;
        ensure!(found.starts_with(text), "{check}: {found}");
    }

    fits(&site)?;

    // A noisy shell, a home that cannot be written, and a clock that is behind.
    alice(NODE, "echo 'echo Welcome to the node' > ~/.bashrc")?;
    alice(NODE, "mkdir -p ~/.cache/nodeglass")?;
    let date = "printf '#!/bin/sh\\necho $(( $(/usr/bin/date +%%s) - 400 ))\\n' > /usr/local/bin/date; chmod 755 /usr/local/bin/date";
    site.lab.text(NODE, "root", &["sh", "-c", date])?;
    alice(NODE, "chmod 500 ~")?;
    let (code, report) = doctor(&site, &[NODE])?;
    ensure!(code == Some(1), "{report:#}");
    for (check, level, texts) in [
        ("shell", "warn", ["Welcome to the node", "~/.bashrc"]),
        ("home", "warn", ["Permission denied", "quota"]),
        ("clock", "fail", [" s behind login's", "synchronise gpu-node-02"]),
    ] {
        let found = find(&report, check)?;
        ensure!(
            found.starts_with(level) && texts.iter().all(|text| found.contains(text)),
            "{check}: {found}"
        );
    }
    alice(NODE, "chmod 700 ~; rm ~/.bashrc")?;

    // Another host key than the recorded one.
    alice(
        "login",
        "mkdir -p ~/.ssh && chmod 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/other \
         && echo \"gpu-node-02 $(cut -d' ' -f1,2 ~/other.pub)\" > ~/.ssh/wrong \
         && printf 'Host gpu-node-02\\n UserKnownHostsFile ~/.ssh/wrong\\n GlobalKnownHostsFile /dev/null\\n' > ~/.ssh/config \
         && chmod 600 ~/.ssh/config",
    )?;
    let (code, report) = doctor(&site, &[NODE])?;
    let found = find(&report, "host key")?;
    ensure!(code == Some(1) && found.starts_with("fail: the host key of gpu-node-02 "), "{found}");
    ensure!(found.contains("attack or a reinstalled node"), "{found}");

    // No key, and no controller: both are named, since one does not hide the other.
    alice(
        "login",
        "printf 'Host gpu-node-02\\n IdentityFile ~/.ssh/missing\\n IdentitiesOnly yes\\n IdentityAgent none\\n' > ~/.ssh/config",
    )?;
    site.lab.svc("slurm-ctl", "stop", "slurmctld")?;
    let (code, report) = doctor(&site, &[NODE])?;
    let (login, keys, controller) =
        (find(&report, "login")?, find(&report, "keys")?, find(&report, "controller")?);
    ensure!(code == Some(1) && keys.starts_with("warn: no agent"), "{keys}");
    ensure!(login.starts_with("fail: there is no key ") && login.contains("ssh gpu-node-02"), "{login}");
    ensure!(controller.starts_with("fail: scontrol ") && controller.contains("slurmctld"), "{controller}");
    Ok(())
}
