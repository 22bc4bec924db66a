//! Programs that use the HTTP API by its own description, and the metrics as Prometheus and Grafana read them.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::documents::example;
use nodeglass_tests::process::Process;
use nodeglass_tests::promql::{self, PromServer};
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::{TIMEOUT, http, skip, test_tools};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The dashboard that is delivered.
const DASHBOARD: &str = include_str!("../../docs/grafana/nodeglass.json");
/// Interval of scrapes; a rate needs two.
const SCRAPE_S: u64 = 1;

/// Creates a token with the command; returns its secret.
fn token(relay: &TestRelay, name: &str) -> Result<String> {
    let printed = relay.run(&["token", "create", name])?;
    Ok(printed.lines().next().context("a secret")?.to_owned())
}

fn get(relay: &TestRelay, path: &str, secret: &str) -> Result<http::Reply> {
    http::get(&relay.link().authority, path, &[("Authorization", &format!("Bearer {secret}"))])
}

/// Waits until the demo's nodes are read.
fn settled(relay: &TestRelay, secret: &str) -> Result<Value> {
    let start = Instant::now();
    loop {
        let reply = get(relay, "/api/v1/snapshot", secret)?;
        ensure!(reply.status == 200, "{reply:?}");
        let snapshot: Value = serde_json::from_str(&reply.body)?;
        let nodes = snapshot["nodes"].as_array().context("nodes")?;
        let is_read = |node: &Value| node["connection"] != "waiting" && node["connection"] != "connecting";
        // A busy machine takes a while from the connection to the first sample.
        let is_sampled = |node: &Value| node["connection"] != "live" || !node["sampled_at"].is_null();
        if nodes.len() > 10 && nodes.iter().all(|node| is_read(node) && is_sampled(node)) {
            return Ok(snapshot);
        }
        ensure!(start.elapsed() < TIMEOUT, "the nodes are not read: {}", reply.body);
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn schemathesis_finds_nothing_against_a_running_relay() -> Result<()> {
    let Some(schemathesis) = test_tools::schemathesis() else { return Ok(()) };
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let output = Command::new(schemathesis)
        .arg("run")
        .arg(relay.link().path("/api/v1/openapi.json"))
        .args(["--header", &format!("Authorization: Bearer {}", relay.link().key.reveal())])
        // A stream of events never ends.
        .args(["--exclude-path", "/api/v1/events"])
        // Requests without a key are refused for a while after the tenth, as they should be; other tests see to them.
        // Free texts such as `fields` and `from` have a grammar that a schema cannot state.
        .args(["--exclude-checks", "ignored_auth,missing_required_header,positive_data_acceptance"])
        // One worker: CPython 3.11 fails to parse source in two threads at once.
        .args(["--max-examples", "20", "--seed", "1", "--workers", "1", "--no-color"])
        .current_dir(relay.home())
        .stdin(Stdio::null())
        .output()?;
    let report = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{report}");
    ensure!(report.contains("Fuzzing") && report.contains("Stateful"), "phases are missing: {report}");
    ensure!(
        relay.output().text().lines().all(|line| !line.contains("panicked")),
        "{}",
        relay.output().text()
    );
    Ok(())
}

#[test]
fn the_api_of_a_running_cluster_is_consistent() -> Result<()> {
    let relay = TestRelay::demo()?;
    let secret = token(&relay, "script")?;
    let snapshot = settled(&relay, &secret)?;
    let list = |name: &str| snapshot[name].as_array().cloned().unwrap_or_default();
    let (jobs, nodes, gpus, processes) = (list("jobs"), list("nodes"), list("gpus"), list("processes"));
    ensure!(jobs.len() > 5 && gpus.len() > 50 && processes.len() > 50, "the demo is larger than that");
    let uuids: Vec<&str> = gpus.iter().filter_map(|gpu| gpu["uuid"].as_str()).collect();
    for job in &jobs {
        for gpu in job["gpus"].as_array().context("GPUs")? {
            ensure!(uuids.contains(&gpu.as_str().unwrap_or_default()), "{gpu} of {}", job["id"]);
        }
    }
    for node in &nodes {
        let of_node = gpus.iter().filter(|gpu| gpu["node"] == node["name"]).count();
        ensure!(node["gpus"].as_array().is_some_and(|gpus| gpus.len() == of_node), "{node}");
    }
    // A pretraining job on 64 GPUs, each with its processes, at work.
    let large = jobs.iter().find(|job| job["gpu_count"] == 64).context("the large job")?;
    ensure!(large["gpus"].as_array().is_some_and(|gpus| gpus.len() == 64), "{large}");
    ensure!(large["totals"]["util_pct"].as_f64().is_some_and(|pct| pct > 10.0), "{large}");
    let path = format!("/api/v1/gpus?job={}&fields=uuid,readings.power_w&limit=3", large["id"]);
    let few: Value = serde_json::from_str(&get(&relay, &path, &secret)?.body)?;
    ensure!(few["total"] == 64 && few["gpus"].as_array().is_some_and(|gpus| gpus.len() == 3), "{few}");
    ensure!(few["gpus"][0]["readings"]["power_w"].is_u64(), "{few}");
    let path = format!("/api/v1/history?job={}&metric=util_pct&from=10m&step=10s", large["id"]);
    let history: Value = serde_json::from_str(&get(&relay, &path, &secret)?.body)?;
    let series = history["series"].as_array().context("series")?;
    ensure!(series.len() == 64, "{} series", series.len());
    // Two of the eight GPUs of a node.
    let shared =
        jobs.iter().find(|job| job["name"] == "vit-ablation-aug").context("a job on a shared node")?;
    let path = format!("/api/v1/history?job={}&metric=util_pct&from=10m&step=10s", shared["id"]);
    let own: Value = serde_json::from_str(&get(&relay, &path, &secret)?.body)?;
    ensure!(own["series"].as_array().is_some_and(|series| series.len() == 2), "{own}");
    for one in series {
        let steps = history["steps"].as_u64().context("steps")? as usize;
        ensure!(one["mean"].as_array().is_some_and(|means| means.len() == steps), "{one}");
    }
    Ok(())
}

/// Starts a Prometheus that scrapes a relay.
fn scraping(folder: &Path, relay: &TestRelay, secret: &str) -> Result<PromServer> {
    fs::write(folder.join("secret"), secret)?;
    let config = format!(
        "scrape_configs:\n- job_name: nodeglass\n  honor_labels: true\n  scrape_interval: {SCRAPE_S}s\n  \
         authorization:\n    credentials_file: {}\n  static_configs:\n  - targets: ['{}']\n",
        folder.join("secret").display(),
        relay.link().authority
    );
    fs::write(folder.join("prometheus.yml"), config)?;
    PromServer::prometheus(folder, promql::free_address()?)
}

/// The queries of the dashboard's panels, with its variables set to everything.
fn dashboard_queries() -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("panels")? {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().context("a query")?;
            let query = ["$cluster", "$job", "$user", "$node"]
                .iter()
                .fold(query.to_owned(), |query, name| query.replace(name, ".*"));
            let query = query.replace("$__rate_interval", "30s");
            ensure!(!query.contains('$'), "an unknown variable: {query}");
            queries.push((panel["title"].as_str().unwrap_or_default().to_owned(), query));
        }
    }
    Ok(queries)
}

#[test]
fn prometheus_scrapes_the_relay_and_each_panel_of_the_dashboard_has_data() -> Result<()> {
    if Command::new("prometheus").arg("--version").output().is_err() {
        skip::skip("prometheus is not installed");
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    let secret = token(&relay, "prometheus")?;
    settled(&relay, &secret)?;
    let folder = tempfile::tempdir()?;
    let prometheus = scraping(folder.path(), &relay, &secret)?;
    let up = prometheus.wait_for("up == 1")?;
    ensure!(up[0]["metric"]["job"] == "nodeglass", "{up:?}");
    // Rates need a second scrape.
    prometheus.wait_for("count_over_time(nodeglass_build_info[1m]) > 3")?;
    let queries = dashboard_queries()?;
    ensure!(queries.len() > 15, "the dashboard has more panels");
    for (panel, query) in queries {
        ensure!(!prometheus.query(&query)?.is_empty(), "the panel {panel:?} is empty: {query}");
    }
    // The labels of a GPU equal the API's.
    let large = prometheus.query("count by (job, user) (DCGM_FI_DEV_GPU_UTIL{job=\"48213\"})")?;
    ensure!(large.len() == 1 && large[0]["value"][1] == "64", "{large:?}");
    // A revoked token ends the scrapes.
    relay.run(&["token", "revoke", "prometheus"])?;
    prometheus.wait_for("up == 0")?;
    Ok(())
}

#[test]
fn promtool_has_no_complaint_about_the_metrics() -> Result<()> {
    if Command::new("promtool").arg("--version").output().is_err() {
        skip::skip("promtool is not installed");
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    let secret = token(&relay, "check")?;
    settled(&relay, &secret)?;
    let reply = get(&relay, "/metrics", &secret)?;
    ensure!(reply.status == 200 && reply.body.contains("DCGM_FI_DEV_GPU_UTIL"), "{}", reply.head);
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    check.stdin.take().context("its input")?.write_all(reply.body.as_bytes())?;
    let output = check.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.trim().is_empty(), "{said}");
    Ok(())
}

#[test]
fn the_alerts_of_the_documents_are_valid_rules() -> Result<()> {
    let Some([promtool]) = skip::programs(["promtool"]) else { return Ok(()) };
    let rules = example(include_str!("../../docs/ADMIN.md"), "## Upgrade, backup, monitoring", "yaml")?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rules.yml");
    let rules = rules.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
    fs::write(&file, rules.collect::<Vec<_>>().join("\n"))?;
    let output = Command::new(promtool).args(["check", "rules"]).arg(file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn queries_answer_from_the_running_relay_with_documented_exit_codes() -> Result<()> {
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let list = relay.run(&["list", "--node", "desk01"])?;
    ensure!(list.contains("[~]") && list.contains("[ ]") && list.contains("sample.py"), "{list}");
    // nvgpu's `available -l 1`.
    ensure!(relay.run(&["available", "--node", "desk01", "-l", "1"])?.trim() == "2");
    ensure!(relay.run(&["wait-free", "2", "--node", "desk01"])?.trim() == "2,3");
    let gpu: Value = serde_json::from_str(&relay.run(&["gpu", "desk01:0", "--json"])?)?;
    ensure!(gpu["node"] == "desk01" && relay.run(&["gpu", "desk01:0"])?.contains("Utilisation"), "{gpu}");
    ensure!(relay.run(&["jobs", "--job", "48213"])?.contains("llama3-8b-pretrain"));
    ensure!(relay.run(&["ps", "--node", "desk01"])?.lines().count() > 2);
    ensure!(relay.run(&["wait", "48213", "--until", "start"])?.contains("RUNNING"));
    let code = |args: &[&str]| -> Result<Option<i32>> {
        Ok(TestRelay::command(relay.home())?.args(args).stdin(Stdio::null()).output()?.status.code())
    };
    ensure!(code(&["wait", "48213", "--timeout", "1s"])? == Some(3));
    ensure!(code(&["wait", "99"])? == Some(3));
    // All GPUs of the notebook are idle.
    ensure!(code(&["wait", "48425", "--stall", "1s"])? == Some(5));
    ensure!(code(&["available", "--node", "nowhere"])? == Some(3));
    for unknown in [
        &["list", "--node", "nowhere"][..],
        &["jobs", "--job", "99"],
        &["ps", "--of", "nobody"],
        &["wait-free", "1", "--node", "nowhere"],
    ] {
        ensure!(code(unknown)? == Some(3), "{unknown:?}");
    }
    // No session, an empty note, and a slip of the finger.
    ensure!(code(&["mcp"])? == Some(1) && code(&["note", ""])? == Some(2) && code(&["lsit"])? == Some(2));
    ensure!(code(&["gpu", "GPU-nothing"])? == Some(1));
    ensure!(code(&["fit", "0"])? == Some(2));
    Ok(())
}

#[test]
fn a_query_that_says_what_to_watch_is_answered_by_such_a_relay_only() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let scenario = folder.path().join("failing.toml");
    std::fs::write(&scenario, FAILING)?;
    let relay = TestRelay::demo()?;
    let jobs = relay.run(&["jobs", "--scenario", &scenario.to_string_lossy()])?;
    ensure!(jobs.contains("train") && !jobs.contains("llama3-8b-pretrain"), "{jobs}");
    ensure!(relay.run(&["jobs", "--demo"])?.contains("llama3-8b-pretrain"));
    Ok(())
}

/// A job that runs out of memory soon after the start of the relay.
const FAILING: &str = r#"
cluster = "juniper"
user = "alice"
seed = 1
cycle = "15m"
[[node]]
name = "n1"
model = "h100"
gpus = 2
[[job]]
id = 17
name = "train"
partition = "gpu"
submitted = "-2h"
start = "-50m"
end = "6s"
ends_as = "OUT_OF_MEMORY"
limit = "2h"
nodes = "n1"
gpus = [0, 1]
behaviour = "training"
"#;

#[test]
fn waiting_for_a_job_that_fails_returns_4() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let scenario = folder.path().join("failing.toml");
    std::fs::write(&scenario, FAILING)?;
    let relay = TestRelay::start(&["--scenario", &scenario.to_string_lossy()])?;
    let output = TestRelay::command(relay.home())?
        .args(["wait", "17", "--timeout", "60s"])
        .stdin(Stdio::null())
        .output()?;
    ensure!(output.status.code() == Some(4), "{output:?}");
    ensure!(output.stdout == b"job 17: OUT_OF_MEMORY, exit code 0:125\n", "{output:?}");
    Ok(())
}

#[test]
fn a_job_id_that_is_printed_is_accepted_by_every_command() -> Result<()> {
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let listed: Value = serde_json::from_str(&relay.run(&["jobs", "--json"])?)?;
    let jobs = listed.as_array().context("jobs")?;
    let running = |part: &str| -> Result<(String, String)> {
        let is_part = |job: &&Value| job["state"] == "RUNNING" && !job[part].is_null();
        let job = jobs.iter().find(is_part).with_context(|| format!("a running part of an {part}"))?;
        Ok((job["label"].as_str().unwrap_or_default().to_owned(), job["id"].to_string()))
    };
    for (label, id) in [running("array")?, running("het")?] {
        let table = relay.run(&["jobs", "--job", &label])?;
        ensure!(table.lines().count() == 2 && table.contains(&label) && table.contains(&id), "{table}");
        relay.run(&["list", "--job", &label])?;
        relay.run(&["ps", "--job", &label])?;
        ensure!(relay.run(&["wait", &label, "--until", "start"])?.contains(&label));
        ensure!(relay.run(&["report", &label])?.contains(&label));
        ensure!(
            relay.run(&["note", "checkpoint", "--job", &label])?.ends_with(&format!(" of job {label}\n"))
        );
        ensure!(relay.run(&["note", "--list", "--job", &label])?.contains("checkpoint"));
        let shared = relay.run(&["share", "create", "--job", &label])?;
        ensure!(shared.contains(&format!("  shared   job {label}, read-only\n")), "{shared}");
    }
    let array = running("array")?.0;
    let (array, _) = array.split_once('_').context("the label of a task")?;
    ensure!(relay.run(&["jobs", "--job", array])?.lines().count() > 2, "all tasks");
    let shared = relay.run(&["share", "create", "--job", array])?;
    for part in [&format!("  shared   array {array}, read-only\n"), "or with the last task of the array"] {
        ensure!(shared.contains(part), "{shared}");
    }
    ensure!(relay.run(&["share", "list"])?.contains(&format!("array {array} ")));
    let refused = relay.run(&["note", "x", "--job", array]).err().context("whose note?")?.to_string();
    ensure!(refused.contains(&format!("choose one, such as {array}_")), "{refused}");
    Ok(())
}

#[test]
fn a_command_that_waits_survives_a_restart_of_the_relay() -> Result<()> {
    let home = tempfile::tempdir()?;
    let start = || -> Result<Process> {
        let mut relay =
            Process::start(TestRelay::command(home.path())?.args(["--demo", "--bind", "127.0.0.1:0"]))?;
        relay.wait_for("a link", Link::find)?;
        Ok(relay)
    };
    let mut relay = start()?;
    let list = || {
        TestRelay::command(home.path())?
            .args(["jobs", "--job", "48425"])
            .output()
            .map_err(anyhow::Error::from)
    };
    ensure!(list()?.status.success(), "the notebook runs");
    // A notebook whose GPUs are idle.
    let mut wait =
        Process::start(TestRelay::command(home.path())?.args(["wait", "48425", "--stall", "12s"]))?;
    // Time for its first look at the relay: it prints nothing while it waits.
    std::thread::sleep(Duration::from_secs(3));
    relay.signal(Signal::TERM)?;
    relay.wait()?;
    wait.wait_for("that it retries", |line| line.contains("trying again").then_some(()))?;
    let _relay = start()?;
    let status = wait.wait()?;
    ensure!(status.code() == Some(5), "{status}: {}", wait.output().text());
    Ok(())
}

#[test]
fn the_running_relay_answers_for_what_is_not_stored() -> Result<()> {
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let history = relay.run(&["history", "list"])?;
    ensure!(history.contains("llama3-8b-pretrain"), "{history}");
    // Of an array that runs, of a task that waits, and of a job that waits.
    for (job, why) in [
        ("48440", "jobs in the list; choose one, such as 48440_"),
        ("48440_23", "job 48440_23 has not started"),
        ("48491", "job 48491 has not started"),
    ] {
        let refused = relay.run(&["report", job]).err().context("no report")?.to_string();
        ensure!(refused.contains(why), "{refused}");
    }
    let usage = relay.run(&["me"])?;
    ensure!(usage.contains("Your jobs of the last 30 days"), "{usage}");
    relay.run(&["share", "create", "--job", "48213"])?;
    let audit = relay.run(&["audit"])?;
    ensure!(audit.contains("48213"), "{audit}");
    let token = relay.run(&["token", "create", "script"])?;
    ensure!(token.contains("until this relay ends"), "{token}");
    Ok(())
}

#[test]
fn every_command_that_prints_data_prints_it_as_json_on_request() -> Result<()> {
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let run = |command: &str| -> Result<Value> {
        let printed = relay.run(&command.split(' ').collect::<Vec<_>>())?;
        serde_json::from_str(&printed).with_context(|| format!("`relay {command}` printed {printed}"))
    };
    let links = run("link --json")?;
    ensure!(links[0]["links"][0] == relay.link().url && links[0]["pid"] == relay.pid(), "{links}");
    ensure!(run("link --tab --json")?["link"].as_str().is_some_and(|link| link.contains("#t=")));
    let made = run("share create --job 48213 --json")?;
    let id = made["share"]["id"].as_str().context("an id")?.to_owned();
    ensure!(run(&format!("share link {id} --json"))?["link"] == made["link"]);
    ensure!(run("share list --json")?["shares"][0]["id"] == id.as_str());
    ensure!(run(&format!("share revoke {id} --json"))?["revoked"][0] == id.as_str());
    ensure!(run("token create script --json")?["secret"].is_string());
    ensure!(run("token list --json")?[0]["name"] == "script");
    ensure!(run("retry --json")?["target"] == "everything");
    ensure!(run("note epoch --job 48213 --json")?["note"]["text"] == "epoch");
    ensure!(run("note --list --json")?.as_array().is_some_and(|notes| !notes.is_empty()));
    ensure!(run("report 48213 --json")?["is_final"] == false);
    ensure!(run("history list --json")?.is_array() && run("history show 48213 --json")?["job"] == 48213);
    ensure!(run("me --json")?["days"] == 30 && run("audit --json")?.is_array());
    ensure!(run("history faults --json")?.is_array());
    ensure!(run("config --json")?["bind"]["source"] == "default");
    ensure!(run("wait 48213 --until start --json")?[0]["state"] == "RUNNING");
    ensure!(run("wait-free 2 --node desk01 --json")?.as_array().map(Vec::len) == Some(2));
    Ok(())
}

/// The examples of a document: each command line after `$`, with the lines that it prints.
fn examples(document: &str) -> Vec<(&str, Vec<&str>)> {
    let mut examples: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut is_inside = false;
    for line in document.lines() {
        match line.strip_prefix("$ ") {
            _ if line.starts_with("```") => is_inside = false,
            Some(command) => {
                examples.push((command, Vec::new()));
                is_inside = true;
            }
            None if is_inside => examples.last_mut().into_iter().for_each(|(_, lines)| lines.push(line)),
            None => {}
        }
    }
    examples
}

/// A line without its spaces, and without what differs between two runs: numbers and secrets.
fn shape(line: &str) -> Vec<String> {
    let word = |word: &str| -> String {
        if word.len() > 40 {
            return "(secret)".to_owned();
        }
        let numbers = word.split(|letter: char| !letter.is_ascii_digit());
        let mut shape: String = word.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        shape.extend(numbers.filter(|number| !number.is_empty()).map(|_| '#'));
        shape
    };
    line.split_whitespace().map(word).collect()
}

/// Runs an example until it succeeds and prints these lines: some findings need seconds of readings.
fn expect_printed(relay: &TestRelay, command: &str, lines: &[&str]) -> Result<()> {
    let start = Instant::now();
    // Documents have the default address.
    let command = command.replace("127.0.0.1:8080", &relay.link().authority);
    let attempt = || {
        let printed = relay.shell(&command)?;
        let shapes: Vec<_> = printed.lines().map(shape).collect();
        let missing = lines.iter().find(|line| !shapes.contains(&shape(line)));
        ensure!(missing.is_none(), "`{command}` does not print {missing:?}:\n{printed}");
        Ok(())
    };
    loop {
        match attempt() {
            Err(_) if start.elapsed() < TIMEOUT => std::thread::sleep(Duration::from_millis(500)),
            result => return result,
        }
    }
}

#[test]
fn every_command_of_a_tutorial_prints_what_it_shows() -> Result<()> {
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorials");
    let mut tutorials = 0;
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let document = fs::read_to_string(&path)?;
        let name = path.display();
        ensure!(document.lines().count() <= 80, "{name} takes longer than five minutes");
        // A command in another form would not be run.
        ensure!(!document.contains("```sh"), "{name} has a command without `$`");
        let examples = examples(&document);
        let has_results = examples.iter().all(|(_, lines)| !lines.is_empty());
        ensure!(has_results, "{name} does not show what a command prints");
        examples.iter().try_for_each(|(command, lines)| expect_printed(&relay, command, lines))?;
        tutorials += usize::from(!examples.is_empty());
    }
    ensure!(tutorials >= 5, "only {tutorials} tutorials have examples");
    Ok(())
}

#[test]
fn every_example_of_the_command_line_prints_what_its_document_shows() -> Result<()> {
    let relay = TestRelay::demo()?;
    settled(&relay, &relay.link().key.reveal())?;
    let document = include_str!("../../docs/CLI.md");
    let examples = examples(document);
    ensure!(examples.len() >= 10, "only {} examples were found", examples.len());
    examples.iter().try_for_each(|(command, lines)| expect_printed(&relay, command, lines))?;
    // Every command that the program has is described.
    let help = relay.run(&["--help"])?;
    let commands: Vec<&str> = help
        .lines()
        .take_while(|line| !line.starts_with("Options:"))
        .filter_map(|line| line.strip_prefix("  ")?.split("  ").next().filter(|name| !name.is_empty()))
        .collect();
    ensure!(commands.len() >= 20, "the help lists {commands:?}");
    for name in commands {
        // `relay wait-free` does not describe `relay wait`.
        let is_described = ['`', ' '].iter().any(|end| document.contains(&format!("`relay {name}{end}")));
        ensure!(is_described, "docs/CLI.md does not describe `relay {name}`");
    }
    Ok(())
}
