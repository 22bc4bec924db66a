//! `relay share`, `relay retry` and `relay link --tab`: what only the owner may request of the running relay.

use crate::{commands::named_job, commands::share_output};
use anyhow::Context;
use hyper::Method;
use nodeglass_api::{Job, ShareList};
use nodeglass_app::remote::{Remote, lines};
use nodeglass_app::terminal;
use nodeglass_config::{ShareArgs, ShareCommand};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::request::RetryTarget;
use nodeglass_protocol::share::{ShareId, ShareLink};
use nodeglass_protocol::{NodeName, Text};

const SHARES: &str = "/api/v1/shares";

/// Executes a `relay share` command and returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn share(relay: &Remote, ShareArgs { command, json, .. }: ShareArgs) -> anyhow::Result<String> {
    let now_ms = Clock::wall_ms();
    let created = |made: &ShareLink, jobs: &[Job]| match json {
        true => terminal::json(made),
        false => Ok(share_output::created(made, jobs, &relay.option(), now_ms, LocalTime::of)),
    };
    Ok(match command {
        ShareCommand::Create(args) => {
            let listed = relay.jobs_with(args.jobs()).await?;
            let (jobs, arrays) = named_job::jobs_and_arrays(&listed, args.jobs())?;
            let body = serde_json::to_string(&args.request(jobs, arrays))?;
            created(&relay.json(Method::POST, SHARES, body).await?, &listed)?
        }
        ShareCommand::Link { id } => {
            let made = relay.json(Method::GET, &format!("{SHARES}/{id}"), String::new()).await?;
            created(&made, &relay.jobs().await?)?
        }
        ShareCommand::List => {
            let sharing = sharing(relay).await?;
            match json {
                true => terminal::json(&sharing)?,
                false => share_output::list(&sharing, &relay.jobs().await?, now_ms, LocalTime::of),
            }
        }
        ShareCommand::Revoke { ids, all } => {
            let ids = if all { all_shares(relay).await? } else { ids };
            for id in &ids {
                relay.request(Method::DELETE, &format!("{SHARES}/{id}"), String::new()).await?;
            }
            match json {
                true => terminal::json(&serde_json::json!({ "revoked": ids }))?,
                false => share_output::revoked(&ids),
            }
        }
    })
}

async fn sharing(relay: &Remote) -> anyhow::Result<ShareList> {
    relay.json(Method::GET, SHARES, String::new()).await
}

async fn all_shares(relay: &Remote) -> anyhow::Result<Vec<ShareId>> {
    let ShareList { shares, closed, .. } = sharing(relay).await?;
    let all = shares.into_iter().chain(closed.into_iter().map(|closed| closed.share));
    Ok(all.map(|share| share.id).collect())
}

/// Requests a link for one tab from the running relay. Returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn tab_link(relay: &Remote, json: bool) -> anyhow::Result<String> {
    let ticket = relay.request(Method::POST, "/api/v1/tab", String::new()).await?;
    let link = relay.running().links.first().and_then(|link| link.rsplit_once('#'));
    let (address, _) = link.context("the running relay has no link")?;
    let link = format!("{address}#t={}", Text::from_bytes(&ticket).as_str().trim());
    Ok(if json { terminal::json(&serde_json::json!({ "link": link }))? } else { link + "\n" })
}

/// Requests that the running relay retry a node, or without one all waiting nodes and the job list; returns
/// what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn retry(relay: &Remote, node: Option<NodeName>, json: bool) -> anyhow::Result<String> {
    let target = node.map_or(RetryTarget::Everything, RetryTarget::Node);
    let answer = relay.request(Method::POST, RETRY, serde_json::to_string(&target)?).await?;
    let result = lines(&answer);
    Ok(match json {
        true => terminal::json(&serde_json::json!({ "target": target, "result": result.trim_end() }))?,
        false => result,
    })
}

const RETRY: &str = "/api/v1/retry";
