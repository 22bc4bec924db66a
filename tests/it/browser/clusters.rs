//! Two clusters on one page.

use crate::nats::clusters::TwoClusters;
use anyhow::{Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};

/// Whether list and table have all jobs, under names that differ.
const JOBS: &str = "['101.alpha', '101.beta', '102', '103'].every(label => \
    [...document.querySelectorAll('a.job')].some(job => job.innerText.includes(label)))";

#[tokio::test]
async fn two_clusters_are_on_one_page() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(clusters) = TwoClusters::start(&[])? else { return Ok(()) };
    browser.resize(1440, 900).await?;
    browser.open(&clusters.viewer.link().url).await?;
    browser.until("the jobs of both", JOBS).await?;
    browser.until("samples of all nodes", "document.body.innerText.includes('4 of 4 nodes')").await?;
    let header = "document.querySelector('.top__whose')?.innerText.endsWith(' · clusters alpha, beta')";
    browser.until("the names of both in the header", header).await?;
    browser.photograph("two-clusters").await?;
    for (width, scheme) in [(1440, Scheme::Dark), (1024, Scheme::Light), (390, Scheme::Dark)] {
        browser.resize(width, 900).await?;
        browser.prefer(scheme).await?;
        browser.photograph(&format!("two-clusters-{width}-{}", scheme.name())).await?;
    }
    for node in ["n1", "n2.alpha", "n2.beta", "n3"] {
        browser.open(&clusters.viewer.link().path(&format!("/node/{node}"))).await?;
        let shown = format!("document.querySelector('main')?.innerText.includes('{node}')");
        browser
            .until(
                &format!("readings of {node}"),
                &format!("{shown} && /\\d\\s?%/.test(document.body.innerText)"),
            )
            .await?;
    }
    browser.photograph("two-clusters-node").await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}
