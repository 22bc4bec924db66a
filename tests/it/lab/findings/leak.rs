//! A job whose GPU memory grows until its program dies as PyTorch does: the forecast is listed before.

use super::super::page::LabPage;
use super::{Work, findings};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::live::Topic;
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::{LoginRelay, Site};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The node of the job, which no other job has.
const NODE: &str = "gpu-node-03";
/// The minutes of growth that a forecast needs: the fewest that are allowed.
pub(super) const THRESHOLD: &str = "forecast-minutes=3";
/// When the program has filled the GPU, with time for a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(480);
/// Maximum error of a forecast, in s: it states whole minutes.
const MARGIN_S: i64 = 75;

/// Allocates 10 GiB a minute on an A100 with 80 GiB. The stand-in for NVML reads what a process uses from its arguments,
/// so that the program executes itself again with others.
const PROGRAM: &str = r#"export CODE='
import os, sys, time
began = float(os.environ.setdefault("BEGAN", str(time.time())))
mib = 20480 + int((time.time() - began) / 60 * 10240)
if mib > 79 * 1024:
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", file=sys.stderr)
    sys.exit(1)
time.sleep(1)
os.execv(sys.executable, ["python3", "-c", os.environ["CODE"], sys.argv[1], f"--gpu-mem={mib}M"])
'
exec srun bash -c 'exec python3 -c "$CODE" --gpus=${SLURM_STEP_GPUS:-$CUDA_VISIBLE_DEVICES} --gpu-mem=20480M'"#;

/// The job, and what is known of it so far.
pub(super) struct Leak {
    job: JobId,
    began: Instant,
}

impl Leak {
    pub(super) fn start(site: &Site) -> Result<Self> {
        site.set_gpus(NODE, &[Work::Trains; 4].map(Work::gpu))?;
        let job = site.lab.sbatch("alice", &["-w", NODE, "--gres=gpu:1", "--job-name=gnn-sweep"], PROGRAM)?;
        site.lab.wait_until(job, "RUNNING")?;
        Ok(Self { job, began: Instant::now() })
    }

    /// Returns whether a finding is expected of this job while it runs.
    pub(super) fn is_forecast(&self, finding: &Finding) -> bool {
        finding.jobs == [self.job] && finding.kind == FindingKind::GpuMemoryForecast
    }

    /// Waits for the forecast and then for the end of the job, and compares them.
    pub(super) async fn follow(self, client: &mut Client, relay: &LoginRelay) -> Result<()> {
        let forecast = self.wait(client, FindingKind::GpuMemoryForecast).await?;
        let title = forecast.title.as_str();
        ensure!(forecast.is_active() && forecast.nodes[0].as_str() == NODE, "{forecast:#?}");
        let (_, in_words) =
            title.split_once(" will run out of memory in about ").context(title.to_owned())?;
        let seconds = match in_words.split_once(' ').context(in_words.to_owned())? {
            (number, "min") => number.parse::<i64>()? * 60,
            (number, "s") => number.parse()?,
            _ => anyhow::bail!("{title}"),
        };
        let (found_s, forecast_s) = (wall_s()?, wall_s()? + seconds);
        if let Some(page) = LabPage::open_or_skip(relay).await? {
            let path = format!("/job/{}", self.job);
            page.shows(&path, &["Needs attention", "will run out of memory"], "findings-lab-forecast")
                .await?;
            page.close().await?;
        }
        let failed = self.wait(client, FindingKind::Failed).await?;
        let overview = client.picture(&Topic::Overview).context("the overview")?;
        let job = overview.jobs.iter().find(|job| job.id == self.job).context("the job")?;
        let ended_s = job.ended.context("it has ended")?;
        println!("a forecast {} s before the end, {} s off", ended_s - found_s, ended_s - forecast_s);
        ensure!(found_s + 5 < ended_s, "the forecast came {} s before the end", ended_s - found_s);
        ensure!(ended_s.abs_diff(forecast_s) <= MARGIN_S.unsigned_abs(), "{title}, but {ended_s} {found_s}");
        let is_explained = |line: &str| line.contains("CUDA out of memory");
        ensure!(failed.evidence.iter().any(|line| is_explained(line.as_str())), "{failed:#?}");
        Ok(())
    }

    async fn wait(&self, client: &mut Client, kind: FindingKind) -> Result<Finding> {
        loop {
            let found = findings(client)?.into_iter();
            if let Some(finding) = { found }.find(|one| one.jobs == [self.job] && one.kind == kind) {
                return Ok(finding);
            }
            ensure!(self.began.elapsed() < ENDS_WITHIN, "no {}: {:#?}", kind.name(), findings(client)?);
            client.step().await?;
        }
    }
}

fn wall_s() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().cast_signed())
}
