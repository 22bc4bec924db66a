//! The launcher tile of JupyterLab, alone and in JupyterHub: a relay behind Jupyter's authentication, without a port or a key.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::Browser;
use nodeglass_tests::http;
use nodeglass_tests::jupyter::JupyterLab;
use nodeglass_tests::jupyterhub::{JupyterHub, USERS, User};
use nodeglass_tests::other_user::become_user;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The tile.
const TILE: &str = "document.querySelector('.jp-LauncherCard[title^=nodeglass]')";

/// Starts the relay of the launcher, and goes to the tab of its page.
async fn click_the_tile(browser: &Browser) -> Result<()> {
    let before = browser.client().windows().await?;
    browser.eval(&format!("{TILE}.click()")).await?;
    let opened = loop {
        let opened = browser.client().windows().await?.into_iter().find(|one| !before.contains(one));
        match opened {
            Some(opened) => break opened,
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    browser.client().switch_to_window(opened).await?;
    browser.until("the jobs of the demo", "document.querySelectorAll('main table tr').length > 5").await
}

#[tokio::test]
async fn a_tile_of_jupyterlab_opens_the_page_without_a_key() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(jupyter) = JupyterLab::start(&[("NODEGLASS_DEMO", "true")])? else { return Ok(()) };
    browser.resize(1440, 900).await?;
    browser.open(jupyter.url()).await?;
    browser.until("the tile", TILE).await?;
    browser.until("its icon", &format!("{TILE}.querySelector('img')?.naturalWidth > 0")).await?;
    browser.photograph("jupyter-launcher").await?;
    click_the_tile(&browser).await.with_context(|| jupyter.log())?;
    // Values arrive over the WebSocket, and the owner may act.
    let number = "document.querySelector('main').innerText";
    let first = browser.eval(number).await?;
    browser.until("moving numbers", &format!("{number} !== {first}")).await?;
    browser.photograph("jupyter-page").await?;
    let address = browser.client().current_url().await?;
    ensure!(address.path() == "/nodeglass/" && address.fragment().is_none_or(str::is_empty), "{address}");

    // Jupyter's authentication guards it: another browser has no cookie.
    let authority = format!("127.0.0.1:{}", address.port().context("a port")?);
    let reply = http::get(&authority, "/nodeglass/api/v1/jobs", &[])?;
    ensure!(reply.status != 200, "{reply:?}");
    Ok(())
}

/// Signs in to the hub, which starts a server for the user, and opens the page of the relay there.
async fn open_in_hub(browser: &Browser, hub: &JupyterHub, user: User) -> Result<()> {
    let field = |name: &str| format!("document.querySelector('form [name={name}]')");
    browser.resize(1440, 900).await?;
    browser.open(&hub.url("/hub/login")).await?;
    browser.until("the form", &field("username")).await?;
    let (name, password) = (field("username"), field("password"));
    let fill =
        format!("({name}.value = '{}', {password}.value = 'any', {name}.form.requestSubmit())", user.name);
    browser.eval(&fill).await?;
    browser.until("the tile", TILE).await?;
    click_the_tile(browser).await?;
    let address = browser.client().current_url().await?;
    ensure!(address.path() == format!("/user/{}/nodeglass/", user.name), "{address}");
    Ok(())
}

/// What the open page gets from the relay of a user: the status of a request, and whether it can open the live wire.
async fn reached(browser: &Browser, user: User) -> Result<(String, String)> {
    let path = format!("/user/{}/nodeglass", user.name);
    let status = format!("fetch('{path}/api/v1/jobs').then(reply => '' + reply.status)");
    let live = format!(
        "new Promise(done => {{ const live = new WebSocket('{path}/live'); \
         live.onopen = () => done('open'); live.onerror = () => done('refused'); }})"
    );
    let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(browser.eval(&status).await?), text(browser.eval(&live).await?)))
}

#[tokio::test]
async fn neither_user_of_a_jupyterhub_reaches_the_relay_of_the_other() -> Result<()> {
    let (Some(one), Some(two)) = (Browser::start().await?, Browser::start().await?) else { return Ok(()) };
    let Some(hub) = JupyterHub::start()? else { return Ok(()) };
    let browsers = [one, two];
    for (browser, user) in browsers.iter().zip(USERS) {
        open_in_hub(browser, &hub, user).await.with_context(|| hub.log())?;
    }
    for (browser, user) in browsers.iter().zip(USERS) {
        for owner in USERS {
            let expected = if owner.uid == user.uid { ("200", "open") } else { ("403", "refused") };
            let (status, live) = reached(browser, owner).await?;
            ensure!((&status[..], &live[..]) == expected, "{} gets {status}, {live}: {owner:?}", user.name);

            // Past Jupyter, to the socket itself.
            let socket = hub.relay_socket(owner)?;
            let connected = become_user(user.uid, || UnixStream::connect(&socket))?;
            match connected {
                Ok(_) => ensure!(owner.uid == user.uid, "{} reaches {}", user.name, socket.display()),
                Err(error) => ensure!(
                    owner.uid != user.uid && error.kind() == ErrorKind::PermissionDenied,
                    "{}: {error}",
                    user.name
                ),
            }
        }
    }
    Ok(())
}
