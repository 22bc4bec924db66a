//! With `pam_slurm_adopt`, the end of a job is not mistaken for a bad key, and is not delayed by
//! another login.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Link, Picture};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::lab::Site;

pub(super) const NODE: &str = "gpu-node-02";

/// Number of logins on a node, from its sshd's log.
fn logins(site: &Site) -> Result<usize> {
    let log = site.lab.host_path(NODE)?.join("var/log/slurm/sshd.log");
    Ok(std::fs::read_to_string(&log).context("read the log of sshd")?.matches("Accepted publickey").count())
}

pub(super) fn link(picture: &Picture) -> Option<&Link> {
    picture.nodes.iter().find(|node| node.name.as_str() == NODE).map(|node| &node.head.link)
}

/// Waits for a state of the node's link; fails at once if it is refused meanwhile.
async fn until_link(client: &mut Client, what: &str, is: impl Fn(Option<&Link>) -> bool) -> Result<()> {
    let refused = |link: Option<&Link>| matches!(link, Some(Link::Refused { .. }));
    let reached = |known: &Known| is(link(&known.picture)) || refused(link(&known.picture));
    let picture = client.until(&Topic::Overview, what, reached).await?;
    let link = link(picture);
    ensure!(!refused(link), "waiting for {what}: {link:?}");
    Ok(())
}

#[tokio::test]
async fn an_ending_job_is_not_delayed_and_the_next_one_is_shown() -> Result<()> {
    let Some(site) = Site::adopting_or_skip(2)? else { return Ok(()) };
    // A job on another node that continues, so that the relay has something to do.
    let other = site.train("alice", &["--gres=gpu:1", "-w", "gpu-node-01"])?;
    let run = || -> Result<JobId> {
        let job = site.train("alice", &["--gres=gpu:1", "-w", NODE])?;
        site.lab.wait_until(job, "RUNNING")?;
        Ok(job)
    };
    let mut job = run()?;
    site.lab.wait_until(other, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview, Topic::Node(NodeName::new(NODE)?)]).await?;
    until_link(&mut client, "a live node", |link| link == Some(&Link::Live)).await?;
    for _ in 0..2 {
        let before = logins(&site)?;
        site.lab.scancel("alice", job)?;
        until_link(&mut client, "the end of the job", |link| matches!(link, None | Some(Link::Ended)))
            .await?;
        site.lab.wait_until(job, "CANCELLED")?;
        ensure!(logins(&site)? == before, "it logged in to a node whose job was ending");
        // The next job there is the user's own.
        job = run()?;
        until_link(&mut client, "the next job's node", |link| link == Some(&Link::Live)).await?;
    }
    let said = site.run_relay("alice", &["retry", NODE]);
    ensure!(said.is_err_and(|error| format!("{error:#}").contains("is already connected")), "a live node");
    let said = site.run_relay("alice", &["retry"])?;
    ensure!(said == "asking SLURM for the job list; no node is waiting to be retried\n", "{said}");
    Ok(())
}
