//! After its user fixes the cause, a refused node reconnects: by itself if files changed, otherwise
//! by a button or command.

use super::adopting::{NODE, link};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Link, Picture};
use nodeglass_tests::Browser;
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::Site;

fn is_live(picture: &Picture) -> bool {
    link(picture) == Some(&Link::Live)
}

#[tokio::test]
async fn a_repaired_node_reconnects_by_itself_a_button_or_a_command() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let job = site.train("alice", &["-N2", "--ntasks-per-node=1", "--gres=gpu:1"])?;
    site.lab.wait_until(job, "RUNNING")?;
    // A key that does not exist, and no other.
    let config = |text: &str| {
        let script = format!("mkdir -p ~/.ssh && printf '{text}' > ~/.ssh/config && chmod 600 ~/.ssh/config");
        site.lab.text("login", "alice", &["bash", "-c", &script]).map(drop)
    };
    config(&format!(
        "Host {NODE}\\n IdentityFile ~/.ssh/missing\\n IdentitiesOnly yes\\n IdentityAgent none\\n"
    ))?;
    let relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let refused = |picture: &Picture| matches!(link(picture), Some(Link::Refused { .. }));
    let picture = client.until(&Topic::Overview, "a refusal", |known| refused(&known.picture)).await?;
    let Some(Link::Refused { reason: why, advice }) = link(picture) else {
        unreachable!("it was waited for")
    };
    ensure!(
        why.as_str().contains("there is no key") && advice.as_str().contains(&format!("ssh {NODE}")),
        "{why}; {advice}"
    );
    browser.open(&relay.link.url).await?;
    browser.until("a list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
    browser.open(&relay.link.path(&format!("/node/{NODE}"))).await?;
    let button = "document.querySelector('.notice .btn')?.innerText === 'Try again'";
    browser.until("a button", button).await?;
    browser.photograph("refused-node").await?;
    browser.eval("document.querySelector('.notice .btn').click()").await?;
    let toast = format!("/trying {NODE} again/.test(document.querySelector('.toasts')?.innerText)");
    browser.until("what is tried", &toast).await?;
    // She fixes it, and does nothing else.
    config("")?;
    client.until(&Topic::Overview, "the mended node", |known| is_live(&known.picture)).await?;

    // If nothing changes on the login node, she requests a retry.
    for by_button in [true, false] {
        site.lab.svc(NODE, "stop", "sshd")?;
        site.lab.exec(NODE, "root", &["pkill", "-x", "sshd"])?;
        let down = |picture: &Picture| matches!(link(picture), Some(Link::Down { .. }));
        client.until(&Topic::Overview, "a node that is down", |known| down(&known.picture)).await?;
        site.lab.svc(NODE, "start", "sshd")?;
        if by_button {
            browser.open(&relay.link.url).await?;
            browser.until("a list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
            browser.open(&relay.link.path(&format!("/node/{NODE}"))).await?;
            // It may reconnect before the button appears, which is correct as well.
            let there = "document.querySelector('.notice .btn') || /\\d\\s?%/.test(document.body.innerText)";
            browser.until("a button, or numbers", there).await?;
            browser.eval("document.querySelector('.notice .btn')?.click()").await?;
        } else {
            let said = site.run_relay("alice", &["retry", NODE]);
            let said = said.or_else(|error| anyhow::Ok(format!("{error:#}"))).context("relay retry")?;
            ensure!(
                said.contains("trying gpu-node-02 again") || said.contains("is already connected"),
                "{said}"
            );
        }
        client.until(&Topic::Overview, "the node again", |known| is_live(&known.picture)).await?;
    }
    Ok(())
}
