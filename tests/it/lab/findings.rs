//! Findings about jobs of a real cluster: a slow GPU and a hang are named in time, a checkpoint is not, a webhook
//! receives them, and the page shows them. Meanwhile the memory of a GPU is filled.

mod leak;

use super::page::LabPage;
use anyhow::{Context, Result, ensure};
use leak::Leak;
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Link, Picture};
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::{LoginRelay, Site};
use nodeglass_tests::process::Process;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest checkpoint that is not a hang.
const CHECKPOINT: Duration = Duration::from_secs(58);
/// For how long everything works at first, so that the begin of a cause can be seen.
const HEALTHY_MS: u64 = 25_000;

/// Prints the body of each request.
const LISTENER: &str = r#"
import http.server

class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        print("POSTED", body.replace("\n", " "), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 8099), Hook)
print("LISTENING", flush=True)
server.serve_forever()
"#;

/// Activity of a GPU with an A100's limit of 400 W.
#[derive(Clone, Copy)]
enum Work {
    /// It trains.
    Trains,
    /// It trains at a lower clock.
    TrainsSlowly,
    /// A kernel waits: for a rank that hangs, or for a checkpoint.
    Waits,
}

impl Work {
    fn gpu(self) -> Value {
        let (util, power_mw, sm_clock) = match self {
            Self::Trains => (97, 350_000, 1_410),
            Self::TrainsSlowly => (97, 290_000, 1_095),
            Self::Waits => (100, 105_000, 1_410),
        };
        json!({ "name": "NVIDIA A100-SXM4-80GB", "util": util, "power_mw": power_mw, "sm_clock": sm_clock, "temp": 61 })
    }
}

/// A job on both nodes, and one on each.
struct Jobs {
    slowed: JobId,
    hung: JobId,
    saving: JobId,
}

impl Jobs {
    /// Submits them, so that they have the GPUs 0 and 1 of both nodes, and 2 and 3 of the first and the second.
    fn submit(site: &Site) -> Result<Self> {
        let submit = |args: &[&str]| {
            let job = site.train("alice", args)?;
            site.lab.wait_until(job, "RUNNING")?;
            anyhow::Ok(job)
        };
        Ok(Self {
            slowed: submit(&["-N2", "--ntasks-per-node=1", "--gres=gpu:2", "--job-name=llama-finetune"])?,
            hung: submit(&["-w", "gpu-node-01", "--gres=gpu:2", "--job-name=vit-ddp"])?,
            saving: submit(&["-w", "gpu-node-02", "--gres=gpu:2", "--job-name=whisper"])?,
        })
    }
}

/// Sets the activity of the GPUs of both nodes: the jobs' GPUs on one node, and the first of the second node.
fn set_work(site: &Site, hung: Work, saving: Work, slowed: Work) -> Result<()> {
    site.set_gpus("gpu-node-01", &[Work::Trains, Work::Trains, hung, hung].map(Work::gpu))?;
    site.set_gpus("gpu-node-02", &[slowed, Work::Trains, saving, saving].map(Work::gpu))
}

/// Follows the findings from the begin of the causes on until a straggler and a hang are found, and returns how long
/// each took. Meanwhile the checkpoint ends.
async fn follow(
    site: &Site,
    client: &mut Client,
    jobs: &Jobs,
    leak: &Leak,
) -> Result<BTreeMap<FindingKind, Duration>> {
    let within = |kind: FindingKind| Duration::from_millis(kind.found_within_ms());
    let kinds = [FindingKind::Straggler, FindingKind::CollectiveHang];
    let last = kinds.map(within).into_iter().max().unwrap_or_default();
    let (began, mut saves) = (Instant::now(), true);
    let mut found = BTreeMap::new();
    while found.len() < kinds.len() {
        ensure!(began.elapsed() < last, "found in time: only {found:?}");
        if saves && began.elapsed() >= CHECKPOINT {
            set_work(site, Work::Waits, Work::Trains, Work::TrainsSlowly)?;
            saves = false;
        }
        client.step().await?;
        for finding in findings(client)?.into_iter().filter(|finding| !leak.is_forecast(finding)) {
            ensure!(!finding.jobs.contains(&jobs.saving), "a checkpoint is no finding: {finding:#?}");
            ensure!(kinds.contains(&finding.kind), "it has no cause: {finding:#?}");
            found.entry(finding.kind).or_insert_with(|| began.elapsed());
        }
    }
    for (kind, took) in &found {
        ensure!(*took <= within(*kind), "{kind:?} took {took:?}");
    }
    Ok(found)
}

fn findings(client: &Client) -> Result<Vec<Finding>> {
    Ok(client.picture(&Topic::Overview).context("the overview")?.findings.clone())
}

/// The finding of a kind that a program posted to the webhook.
fn posted(listener: &mut Process, kind: FindingKind) -> Result<Value> {
    listener.wait_for(&format!("a notice of {}", kind.name()), |line| {
        let body: Value = serde_json::from_str(line.strip_prefix("POSTED ")?).ok()?;
        (body["finding"]["kind"] == kind.name()).then_some(body)
    })
}

/// Photographs the list of the cluster and of each job, and a job without a finding.
async fn photograph(relay: &LoginRelay, jobs: &Jobs) -> Result<()> {
    let Some(page) = LabPage::open_or_skip(relay).await? else { return Ok(()) };
    let (slow, hang) = ("slower than its peers", "Looks hung: 2 GPUs");
    page.shows("/", &["Needs attention", slow, hang], "findings-lab-cluster").await?;
    page.shows(&format!("/job/{}", jobs.slowed), &["Needs attention", slow], "findings-lab-straggler")
        .await?;
    page.shows(&format!("/job/{}", jobs.hung), &["Needs attention", hang], "findings-lab-hang").await?;
    page.shows(&format!("/job/{}", jobs.saving), &["All GPUs"], "findings-lab-checkpoint").await?;
    let listed = page.text("document.querySelectorAll('.main .attention').length").await?;
    ensure!(listed == "0", "the job with the checkpoint needs no attention");
    page.close().await
}

#[tokio::test]
async fn a_slow_gpu_a_hang_and_a_leak_are_named_in_time_but_no_checkpoint() -> Result<()> {
    let Some(site) = Site::up_or_skip(3)? else { return Ok(()) };
    set_work(&site, Work::Trains, Work::Trains, Work::Trains)?;
    let jobs = Jobs::submit(&site)?;
    let leak = Leak::start(&site)?;
    let mut listener = site.lab.spawn("login", "alice", &["python3", "-c", LISTENER])?;
    listener.wait_for("a listener", |line| (line == "LISTENING").then_some(()))?;
    let webhook = ["--notify-webhook", "http://127.0.0.1:8099/hook/secret"];
    let relay =
        site.relay_with("alice", &[&webhook[..], &["--finding-threshold", leak::THRESHOLD]].concat())?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let are_live = |picture: &Picture| {
        picture.nodes.iter().filter(|node| node.head.link == Link::Live && node.gpus.len() == 4).count() == 3
    };
    let overview = Topic::Overview;
    let live_ms = client.until(&overview, "live nodes", |known| are_live(&known.picture)).await?.at_ms;
    let healthy = client.until(&overview, "some past", |known| known.picture.at_ms > live_ms + HEALTHY_MS);
    ensure!(healthy.await?.findings.is_empty(), "everything works: {:#?}", findings(&client)?);

    let began_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    set_work(&site, Work::Waits, Work::Waits, Work::TrainsSlowly)?;
    let took = follow(&site, &mut client, &jobs, &leak).await?;
    println!("found after {took:?}");
    for finding in findings(&client)?.into_iter().filter(|finding| !leak.is_forecast(finding)) {
        let (job, title, summary) = match finding.kind {
            FindingKind::Straggler => {
                let title = "Rank 1 (gpu-node-02 GPU 0) runs 22 % slower than its peers";
                (jobs.slowed, title, "llama-finetune (1): rank 1 slower than its peers")
            }
            _ => {
                let title = "Looks hung: 2 GPUs report full utilisation, but draw little power";
                (jobs.hung, title, "vit-ddp (2): looks hung")
            }
        };
        ensure!(finding.jobs == [job] && finding.title.as_str() == title, "{finding:#?}");
        let off_ms = finding.since_ms.abs_diff(began_ms);
        ensure!(off_ms < 20_000 && !finding.or_earlier, "it began {off_ms} ms off: {finding:#?}");
        let body = posted(&mut listener, finding.kind)?;
        ensure!(body["event"] == "finding" && body["jobs"][0]["id"] == job.0, "{body}");
        ensure!(body["finding"]["title"] == title && body["summary"] == summary, "{body}");
    }
    let listed = site.run_relay("alice", &["findings"])?;
    ensure!(listed.contains("slower than its peers") && listed.contains("Looks hung"), "{listed}");
    photograph(&relay, &jobs).await?;
    leak.follow(&mut client, &relay).await
}
