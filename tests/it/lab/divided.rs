//! MIG instances of a cluster's node belong to the jobs whose processes may see them, before these use them.

use super::page::LabPage;
use anyhow::{Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Evidence, Owner, Picture};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::lab::Site;

const NODE: &str = "gpu-node-01";
const INSTANCES: [&str; 4] = [
    "MIG-4f2a7f0e-9c11-5c6e-a3f4-0d5e1d2b7a10",
    "MIG-5a3b8c1f-1d22-5d7f-b4a5-1e6f2e3c8b21",
    "MIG-6b4c9d2a-2e33-5e8a-c5b6-2f7a3f4d9c32",
    "MIG-7c5dae3b-3f44-5f9b-d6c7-3a8b4a5ead43",
];

/// A GPU with as many instances as SLURM has GPUs on the node.
fn divided() -> String {
    let instance = |(uuid, number): (&str, u32)| {
        format!(r#"{{"profile": "1g.10gb", "gi": {number}, "uuid": "{uuid}"}}"#)
    };
    let instances: Vec<_> = INSTANCES.into_iter().zip(7..).map(instance).collect();
    format!(r#"{{"driver": "580.90.07", "gpus": [{{"card": "h100", "mig": [{}]}}]}}"#, instances.join(", "))
}

/// Starts a job of alice whose task waits, with these instances in its environment. SLURM sets them itself if it
/// finds instances with NVIDIA's library, for which Debian's is not built.
fn wait_with(site: &Site, instances: &[&str]) -> Result<JobId> {
    let task = format!("CUDA_VISIBLE_DEVICES={} exec sleep 900", instances.join(","));
    let gres = format!("--gres=gpu:{}", instances.len());
    let job = site.lab.sbatch("alice", &["-w", NODE, &gres], &format!("srun bash -c '{task}'"))?;
    site.lab.wait_until(job, "RUNNING")?;
    Ok(job)
}

/// The owners of the GPU, and of each of its instances.
fn owners(picture: &Picture) -> Vec<Vec<Owner>> {
    let node = picture.nodes.iter().find(|node| node.name.as_str() == NODE);
    node.into_iter().flat_map(|node| &node.gpus).map(|gpu| gpu.owners.clone()).collect()
}

#[tokio::test]
async fn instances_belong_to_the_job_that_may_see_them_before_it_uses_them() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let state = tempfile::NamedTempFile::new()?;
    std::fs::write(state.path(), divided())?;
    site.lab.put(NODE, state.path(), "/etc/fake-nvml.json", 0o644)?;
    let (one, two) = (wait_with(&site, &INSTANCES[..1])?, wait_with(&site, &INSTANCES[2..])?);
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    let topic = Topic::Node(NodeName::new(NODE)?);
    client.subscribe(std::slice::from_ref(&topic)).await?;
    let of = |job| vec![Owner { job, by: Evidence::VisibleDevices }];
    let expected = [vec![], of(one), vec![], of(two), of(two)];
    let is = |known: &Known| owners(&known.picture) == expected;
    let picture = client.until(&topic, "owners of instances", is).await?;
    ensure!(picture.nodes[0].processes.is_empty(), "nothing uses them yet");
    if let Some(page) = LabPage::open_or_skip(&relay).await? {
        let path = format!("/job/{two}/node/{NODE}");
        page.shows(&path, &["1g.10gb", "2 GPUs"], "lab-mig-node").await?;
        let known_by = "the environment of the job's processes names it";
        let sheet = format!("{path}?gpu={}", INSTANCES[2]);
        page.shows(&sheet, &[known_by], "lab-mig-instance").await?;
        page.close().await?;
    }

    // A list that contradicts what SLURM allocated claims nothing, and takes nothing from others.
    let wrong = site.lab.sbatch(
        "alice",
        &["-w", NODE, "--gres=gpu:1"],
        &format!("CUDA_VISIBLE_DEVICES={},{} exec sleep 900", INSTANCES[0], INSTANCES[1]),
    )?;
    site.lab.wait_until(wrong, "RUNNING")?;
    let overview = Topic::Overview;
    client.subscribe(&[topic.clone(), overview.clone()]).await?;
    let is_listed = |known: &Known| known.picture.jobs.iter().any(|job| job.id == wrong);
    client.until(&overview, "the new job", is_listed).await?;
    // The probe read the environment of that job before a later job's, whose instance has an owner only then.
    site.lab.scancel("alice", one)?;
    let later = wait_with(&site, &INSTANCES[1..2])?;
    let expected = [vec![], vec![], of(later), of(two), of(two)];
    let is = |known: &Known| owners(&known.picture).get(2) == Some(&of(later));
    client.until(&topic, "the owner of the second instance", is).await?;
    let is = |known: &Known| owners(&known.picture).get(1) == Some(&vec![]);
    let found = owners(client.until(&topic, "the end of the first job", is).await?);
    ensure!(found == expected, "{found:?}");
    Ok(())
}
