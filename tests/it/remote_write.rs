//! Remote write to real servers: VictoriaMetrics and Prometheus, down at the start and killed in between.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::promql::{self, PromServer};
use nodeglass_tests::relay::TestRelay;
use nodeglass_tests::{TIMEOUT, http, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Start = fn(&Path, String) -> Result<PromServer>;

pub(crate) fn get(relay: &TestRelay, path: &str) -> Result<String> {
    let key = format!("Bearer {}", relay.link().key.reveal());
    let reply = http::get(&relay.link().authority, path, &[("Authorization", &key)])?;
    ensure!(reply.status == 200, "{path}: {reply:?}");
    Ok(reply.body)
}

/// Waits until the status of the relay meets a condition.
fn wait_for_status(relay: &TestRelay, what: &str, is_met: impl Fn(&Value) -> bool) -> Result<Value> {
    let start = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&get(relay, "/status")?)?;
        if is_met(&status) {
            return Ok(status);
        }
        ensure!(start.elapsed() < TIMEOUT, "{what}: {}, {}", status["remote_write"], status["notices"]);
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn count(status: &Value, name: &str) -> u64 {
    status["remote_write"][name].as_u64().unwrap_or_default()
}

fn now_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Names of the families at `/metrics`.
fn families(relay: &TestRelay) -> Result<BTreeSet<String>> {
    let text = get(relay, "/metrics")?;
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

fn delivers_everything_across_outages(start: Start) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("prometheus.yml"), "")?;
    let address = promql::free_address()?;
    let url = format!("http://{address}/api/v1/write");
    let relay = TestRelay::start(&["--demo", "--remote-write", &url, "--remote-write-interval", "1s"])?;
    let down = wait_for_status(&relay, "samples wait", |status| count(status, "pending") > 0)?;
    let says_why = |status: &Value| {
        let notices = status["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
        notices.iter().any(|notice| notice.as_str().is_some_and(|text| text.contains("remote storage")))
    };
    ensure!(count(&down, "sent") == 0, "{down}");
    wait_for_status(&relay, "a notice", says_why)?;

    let server = start(folder.path(), address.clone())?;
    wait_for_status(&relay, "all is sent", |status| {
        count(status, "sent") > 0 && count(status, "pending") == 0 && !says_why(status)
    })?;
    let instance = server.wait_for("nodeglass_build_info")?[0]["metric"]["instance"].clone();
    let instance = instance.as_str().context("the label instance")?;
    ensure!(instance.contains('@'), "{instance}");
    server.wait_for("count(DCGM_FI_DEV_GPU_UTIL{cluster=\"juniper\",job=\"48213\"}) == 64")?;
    let unlabelled =
        server.query("{cluster=\"\",__name__=~\"nodeglass_.*|process_.*|DCGM_.*\",instance=~\".+@.+\"}")?;
    ensure!(unlabelled.is_empty(), "without a cluster: {unlabelled:?}");
    for family in families(&relay)? {
        // It may have begun after the last round, and ended since.
        server.wait_for(&format!("last_over_time({family}{{instance=~\".+@.+\"}}[10m])"))?;
    }

    // Killed, as `Process` does on drop.
    drop(server);
    let killed_at = now_s()?;
    let missed = wait_for_status(&relay, "it is missed", says_why)?;
    let (sent, waiting) = (count(&missed, "sent"), count(&missed, "pending"));
    // The round that was not sent may have been sampled before the kill, the next one was not.
    wait_for_status(&relay, "another round waits", |status| count(status, "pending") > waiting)?;
    let restarted_at = now_s()?;
    let server = start(folder.path(), address)?;
    let status = wait_for_status(&relay, "the backlog is sent", |status| {
        count(status, "sent") > sent && count(status, "pending") == 0
    })?;
    ensure!(count(&status, "dropped") == 0 && count(&status, "refused") == 0, "{status}");
    let start = Instant::now();
    // The server may answer queries for what it received a moment later.
    loop {
        server.wait_for("process_cpu_seconds_total")?;
        let series = server.query("process_cpu_seconds_total[10m]")?;
        let values = series[0]["values"].as_array().context("values")?;
        let times: Vec<f64> = values.iter().filter_map(|value| value[0].as_f64()).collect();
        if times.iter().any(|at| (killed_at..restarted_at).contains(at)) {
            return Ok(());
        }
        let waited = start.elapsed();
        ensure!(waited < TIMEOUT, "nothing of the outage from {killed_at} to {restarted_at}: {times:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn victoria_metrics_has_every_series_after_it_was_down_and_killed() -> Result<()> {
    let Some(_) = skip::programs(["victoria-metrics"]) else { return Ok(()) };
    delivers_everything_across_outages(PromServer::victoria_metrics)
}

#[test]
fn prometheus_has_every_series_after_it_was_down_and_killed() -> Result<()> {
    let Some(_) = skip::programs(["prometheus"]) else { return Ok(()) };
    delivers_everything_across_outages(PromServer::prometheus)
}

/// Writes the last days of GPUs that were 40 % busy, each given by its labels, with a sample per `step_s`.
pub(crate) fn import(server: &PromServer, gpus: &[&str], days: u64, step_s: u64) -> Result<()> {
    let now_s = now_s()? as u64;
    let mut text = String::new();
    for (gpu, step) in gpus.iter().flat_map(|gpu| (0..days * 86_400 / step_s).map(move |step| (gpu, step))) {
        let at_ms = (now_s - step_s * step) * 1_000;
        writeln!(text, "DCGM_FI_DEV_GPU_UTIL{{{gpu}}} 40 {at_ms}")?;
    }
    let head = format!(
        "POST /api/v1/import/prometheus HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        server.authority(),
        text.len()
    );
    let reply = http::send_raw(server.authority(), (head + &text).as_bytes())?;
    ensure!(reply.status == 204, "{reply:?}");
    for gpu in gpus {
        server.wait_for(&format!("DCGM_FI_DEV_GPU_UTIL{{{gpu}}}"))?;
    }
    Ok(())
}

#[test]
fn a_month_of_a_forgotten_job_is_read_back_from_the_storage_and_none_of_other_clusters() -> Result<()> {
    let Some(_) = skip::programs(["victoria-metrics"]) else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let server = PromServer::victoria_metrics(folder.path(), promql::free_address()?)?;
    server.wait_for("vector(1)")?;
    let gpu = |cluster: &str, uuid: &str| {
        format!("{cluster}job=\"4242\",user=\"alice\",node=\"gpu-old1\",gpu=\"0\",uuid=\"{uuid}\"")
    };
    let own = gpu("cluster=\"juniper\",", "GPU-old");
    let others = [gpu("cluster=\"ml\",", "GPU-other"), gpu("", "GPU-unlabelled")];
    import(&server, &[&own, &others[0], &others[1]], 14, 600)?;
    let url = format!("http://{}", server.authority());
    let relay = TestRelay::start(&["--demo", "--history-url", &url])?;
    let path = "/api/v1/history?job=4242&metric=util_pct&from=30d";
    let history: Value = serde_json::from_str(&get(&relay, path)?)?;
    let series = history["series"].as_array().context("series")?;
    ensure!(
        series.len() == 1 && series[0]["gpu"] == "GPU-old" && series[0]["node"] == "gpu-old1",
        "{history}"
    );
    let step_s = history["step_s"].as_u64().context("step_s")?;
    for stat in ["mean", "min", "max"] {
        let values = series[0][stat].as_array().context("values")?;
        let known = values.iter().filter(|value| **value == 40).count() as u64;
        let expected = 14 * 86_400 / step_s;
        ensure!((expected - 2..=expected + 2).contains(&known), "{known} of {expected} steps: {stat}");
        ensure!(values.iter().all(|value| value.is_null() || *value == 40), "{history}");
    }
    // A storage that has gone is one sentence, and the relay's own week is served all the same.
    drop(server);
    let key = format!("Bearer {}", relay.link().key.reveal());
    let reply = http::get(&relay.link().authority, path, &[("Authorization", &key)])?;
    ensure!(reply.status == 502 && reply.body.contains("failed to connect to 127.0.0.1"), "{reply:?}");
    get(&relay, "/api/v1/history?metric=util_pct&from=6d").map(drop)
}
