//! A few labelled scenarios of findings (`cargo xtask findings` plays all of them), and notices of them.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_tests::findings::{Play, Summary, all, play};
use nodeglass_tests::relay::TestRelay;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// One of each kind of cause, and jobs that are well.
const CASES: [&str; 10] = [
    "healthy/training/h100x1",
    "healthy/notebook/rtx4090x1",
    "look-alike/wait-of-58-s/l40s",
    "hang/h100x1",
    "slow-gpu/l40sx1",
    "two-idle/l40sx1",
    "notebook/l40s",
    "look-alike/an-hour-of-evaluating/l40s",
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
        summary.add(case, 7, &play(&case.toml(7), case.play)?);
    }
    ensure!(summary.is_clean(), "{}", summary.failures.join("\n"));
    Ok(())
}

#[test]
fn in_a_hang_the_rank_that_the_others_wait_for_is_named() -> Result<()> {
    let case = all().into_iter().find(|case| case.name == "hang/h100x1").context("no such scenario")?;
    let observed = play(&case.toml(7), case.play)?;
    let hang = observed.iter().find(|one| one.kind == FindingKind::CollectiveHang).context("no hang")?;
    let [others, one] = hang.stands.as_slice() else { anyhow::bail!("{hang:?}") };
    ensure!(others.contains(" in all_reduce (torch/distributed/distributed_c10d.py:2501)"), "{others}");
    ensure!(one.starts_with("rank ") && one.contains("DataLoader.__next__"), "{one}");
    Ok(())
}

/// A job whose memory grows until the kernel ends it, two hours after its start.
const LEAK: &str = r#"
cluster = "lab"
user = "alice"
seed = 7
cycle = "1d"
[[node]]
name = "n01"
model = "h100"
gpus = 4
cpus = 64
mem_gib = 512
driver = "570.133.20"
cuda = "12.8"
[[job]]
id = 17
name = "leaky"
partition = "gpu"
submitted = "-1m"
start = "0s"
end = "123m"
ends_as = "OUT_OF_MEMORY"
limit = "1d"
nodes = "n01"
behaviour = "training"
memory_pct = 98
args = "python3 train.py"
[[job.episode]]
behaviour = "leak"
nodes = "n01"
gpus = [1]
from = "0s"
"#;

/// By simulated time: a forecast needs a quarter of an hour of growth.
#[test]
fn a_forecast_of_gpu_memory_precedes_the_end_of_the_job() -> Result<()> {
    let observed = play(LEAK, Play::new(124, 10_000))?;
    let found = |kind| observed.iter().find(|found| found.kind == kind);
    let forecast = found(FindingKind::GpuMemoryForecast).context("a forecast")?;
    let end = found(FindingKind::Failed).context("the end of the job")?;
    ensure!(forecast.title.contains("n01 GPU 1) will run out of memory in about"), "{forecast:?}");
    let ahead_s = end.found_s - forecast.found_s;
    ensure!(ahead_s > 90 * 60, "it was found {ahead_s} s before the end: {observed:#?}");
    Ok(())
}

/// The demo has a GPU that is too hot from its start.
#[test]
fn a_finding_reaches_a_webhook_and_a_command() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/hook/secret", listener.local_addr()?);
    let (bodies, received) = mpsc::channel();
    // It ends with the test's process, or once nobody receives.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let read = stream.map_err(anyhow::Error::from).and_then(|mut stream| {
                let body = read_body(&mut stream)?;
                stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
                Ok(body)
            });
            if read.is_ok_and(|body| bodies.send(body).is_err()) {
                return;
            }
        }
    });
    let dir = tempfile::tempdir()?;
    let out = dir.path().join("notices");
    let command = format!("tee -a {}", out.display());
    let relay = TestRelay::start(&["--demo", "--notify-webhook", &url, "--on-finding", &command])?;
    let deadline = Instant::now() + Duration::from_secs(300);
    let posted: Value = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let body = received.recv_timeout(left).context("no finding was posted")?;
        let posted: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        if posted["finding"]["kind"] == "thermal" {
            break posted;
        }
    };
    ensure!(posted["event"] == "finding", "{posted}");
    ensure!(posted["cluster"] == "juniper" && posted["jobs"][0]["id"] == 48_213, "{posted}");
    ensure!(posted["summary"].as_str().is_some_and(|text| text.contains("too hot")), "{posted}");
    while !fs::read_to_string(&out).unwrap_or_default().contains("\"thermal\"") {
        ensure!(Instant::now() < deadline, "the command was not run: {}", relay.output().text());
        std::thread::sleep(Duration::from_millis(100));
    }
    let lines = fs::read_to_string(&out)?;
    let first: Value = serde_json::from_str(lines.lines().next().context("it is empty")?)?;
    ensure!(first["event"] == "finding", "{first}");
    let (_, output) = relay.terminate()?;
    ensure!(!output.contains("secret"), "the path of the URL is a secret: {output}");
    Ok(())
}

#[test]
fn a_test_notice_states_for_each_way_what_became_of_it() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/hook/secret", listener.local_addr()?);
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        sender.send(read_body(&mut stream)?)?;
        Ok(stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?)
    });
    let home = tempfile::tempdir()?;
    let notify = |args: &[&str]| -> Result<(Option<i32>, String)> {
        let output = TestRelay::command(home.path())?.args(["notify", "--test"]).args(args).output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (code, printed) = notify(&["--notify-webhook", &url, "--on-finding", "sh -c 'echo no >&2; exit 3'"])?;
    ensure!(code == Some(1), "{code:?}: {printed}");
    let lines: Vec<_> = printed.lines().collect();
    ensure!(lines[0].starts_with("notify-webhook") && lines[0].ends_with("accepted"), "{printed}");
    ensure!(
        lines[1].starts_with("on-finding") && lines[1].ends_with("failed: sh ended with exit status 3: no"),
        "{printed}"
    );
    ensure!(!printed.contains("secret"), "{printed}");
    let posted: Value = serde_json::from_str(&received.recv_timeout(Duration::from_secs(10))?)?;
    ensure!(posted["event"] == "test" && posted["summary"] == "test notice of nodeglass", "{posted}");
    ensure!(notify(&["--on-finding", "true"])?.0 == Some(0), "a command that succeeds");
    ensure!(notify(&[])?.0 == Some(3), "nothing is configured");
    Ok(())
}

/// Reads a request and returns its body.
fn read_body(stream: &mut std::net::TcpStream) -> Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4_096];
        let count = stream.read(&mut part)?;
        ensure!(count > 0, "the request ended early");
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.context("a length")? {
            return Ok(body.to_owned());
        }
    }
}
