//! Drives a real browser through WebDriver, as a user would.

use crate::TIMEOUT;
use crate::process::Process;
use crate::skip;
use anyhow::{Context, Result, bail};
use base64ct::{Base64, Encoding};
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::http::Method;

/// Time within which an element that exists can be clicked.
const CLICKABLE: Duration = Duration::from_secs(10);

/// Headless Chromium, driven through ChromeDriver.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    driver: Process,
    _profile: TempDir,
    /// Whether a page may violate its policy on purpose.
    tolerates: bool,
}

/// The colour schemes of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `prefers-color-scheme: dark`.
    Dark,
    /// `prefers-color-scheme: light`.
    Light,
}

impl Scheme {
    /// Its name in CSS and in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
        }
    }
}

/// A line of the browser's log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// `SEVERE`, `WARNING`, `INFO`.
    pub level: String,
    /// `security` (such as a violated content security policy), `javascript`, `console-api`, `network`.
    pub source: String,
    /// The message.
    pub message: String,
}

impl Browser {
    /// Starts a browser, or skips the test if there is none.
    ///
    /// # Errors
    /// If it is installed but does not start.
    pub async fn start() -> Result<Option<Self>> {
        Self::start_with(&[]).await
    }

    /// Starts it with additional arguments for Chromium.
    ///
    /// # Errors
    /// As [`Browser::start`].
    pub async fn start_with(arguments: &[&str]) -> Result<Option<Self>> {
        let Some([chromium, chromedriver]) = skip::programs(["chromium", "chromedriver"]) else {
            return Ok(None);
        };
        Self::start_both(&chromium, &chromedriver, arguments).await.map(Some)
    }

    async fn start_both(chromium: &Path, chromedriver: &Path, arguments: &[&str]) -> Result<Self> {
        let profile = tempfile::tempdir().context("make a profile folder")?;
        let (driver, port) = start_driver(chromedriver, profile.path())?;
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(chromium, profile.path(), arguments))
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .with_context(|| format!("start the browser; the driver printed:\n{}", driver.output().text()))?;
        Ok(Self { client, driver, _profile: profile, tolerates: false })
    }

    /// Allows pages to violate their policy: the test does so on purpose, or expects it.
    pub fn tolerate_broken_policies(&mut self) {
        self.tolerates = true;
    }

    /// All violations of the content security policy, in any window or frame.
    pub fn broken_policies(&self) -> Vec<String> {
        let is_one = |line: &String| line.contains("CONSOLE") && line.contains("Content Security Policy");
        self.driver.output().lines().into_iter().filter(is_one).collect()
    }

    /// The WebDriver session, for operations without a method here.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Opens a URL.
    ///
    /// # Errors
    /// If navigation fails.
    pub async fn open(&self, url: &str) -> Result<()> {
        // Its fragment may be a key, which must not appear in a report.
        let without_key = url.split('#').next().unwrap_or_default();
        self.client.goto(url).await.with_context(|| format!("open {without_key}"))
    }

    /// Evaluates a JavaScript expression.
    ///
    /// # Errors
    /// If it throws.
    pub async fn eval(&self, expression: &str) -> Result<Value> {
        let script = format!("return ({expression});");
        self.client.execute(&script, Vec::new()).await.with_context(|| format!("evaluate {expression}"))
    }

    /// The visible text of the page.
    ///
    /// # Errors
    /// If the browser does not respond.
    pub async fn text(&self) -> Result<String> {
        Ok(self.eval("document.body.innerText").await?.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a JavaScript expression is truthy.
    ///
    /// # Errors
    /// If it is not within [`TIMEOUT`]; includes the page's text and the browser's log.
    pub async fn until(&self, what: &str, expression: &str) -> Result<()> {
        let condition = format!("!!({expression})");
        let waited = tokio::time::timeout(TIMEOUT, async {
            while self.eval(&condition).await? != Value::Bool(true) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::Ok(())
        });
        match waited.await {
            Ok(result) => result,
            Err(_) => {
                let (text, log) = (self.text().await?, self.log().await?);
                bail!("no {what} in time; the page shows:\n{text}\n\nthe browser's log: {log:#?}")
            }
        }
    }

    /// Clicks the first element that matches a CSS selector.
    ///
    /// # Errors
    /// If there is none, or it cannot be clicked within [`CLICKABLE`].
    pub async fn click(&self, css: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let element = self.client.find(Locator::Css(css)).await.with_context(|| format!("find {css}"))?;
            match element.click().await {
                // The page replaced or moved it since it was found, as it does with each second's values.
                Err(error)
                    if start.elapsed() < CLICKABLE
                        && (error.is_stale_element_reference() || error.is_element_not_interactable()) => {}
                clicked => return clicked.with_context(|| format!("click on {css}")),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Presses and releases a key.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn press(&self, key: char) -> Result<()> {
        let stroke = KeyActions::new("keyboard".to_owned())
            .then(KeyAction::Down { value: key })
            .then(KeyAction::Up { value: key });
        self.client.perform_actions(stroke).await.with_context(|| format!("press {key:?}"))
    }

    /// Presses a key while another is held.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn press_with(&self, held: char, key: char) -> Result<()> {
        let chord = KeyActions::new("keyboard".to_owned())
            .then(KeyAction::Down { value: held })
            .then(KeyAction::Down { value: key })
            .then(KeyAction::Up { value: key })
            .then(KeyAction::Up { value: held });
        self.client.perform_actions(chord).await.with_context(|| format!("press {key:?} with {held:?}"))
    }

    /// Types text into the focused element.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn write(&self, text: &str) -> Result<()> {
        for letter in text.chars() {
            self.press(letter).await?;
        }
        Ok(())
    }

    /// Sets the viewport size in CSS pixels.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        // Not through the window size: that includes a frame, and is at least 500.
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await.map(drop)
    }

    /// Emulates a colour scheme.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn prefer(&self, scheme: Scheme) -> Result<()> {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme.name() }] });
        self.devtools("Emulation.setEmulatedMedia", features).await.map(drop)
    }

    /// Saves a screenshot as `target/screenshots/NAME.png`.
    ///
    /// # Errors
    /// When the browser or the disk does not take part.
    pub async fn photograph(&self, name: &str) -> Result<PathBuf> {
        let png = self.client.screenshot().await.context("take a screenshot")?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
        let folder = folder.join("target/screenshots");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.png"));
        std::fs::write(&path, png).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Saves a screenshot as `target/screenshots/documents/NAME.webp`: a third of the size of a PNG.
    ///
    /// # Errors
    /// When the browser or the disk does not take part.
    pub async fn photograph_for_documents(&self, name: &str) -> Result<PathBuf> {
        let format = json!({ "format": "webp", "quality": 86 });
        let picture = self.devtools("Page.captureScreenshot", format).await.context("take a screenshot")?;
        let picture = picture["data"].as_str().context("find the picture")?;
        let picture = Base64::decode_vec(picture).context("decode the picture")?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
        let folder = folder.join("target/screenshots/documents");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}.webp"));
        std::fs::write(&path, picture).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Returns new lines of the browser's log.
    ///
    /// # Errors
    /// When the browser does not respond.
    pub async fn log(&self) -> Result<Vec<LogLine>> {
        let lines = self.post("se/log", json!({ "type": "browser" })).await?;
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        Ok(lines
            .as_array()
            .into_iter()
            .flatten()
            .map(|line| LogLine {
                level: text(line, "level"),
                source: text(line, "source"),
                message: text(line, "message"),
            })
            .collect())
    }

    /// Log lines that no correct page causes: errors, and policy violations.
    ///
    /// # Errors
    /// When the browser does not respond.
    pub async fn complaints(&self) -> Result<Vec<LogLine>> {
        let mut lines = self.log().await?;
        lines.retain(|line| line.level == "SEVERE" || line.source == "security");
        Ok(lines)
    }

    /// Calls a method of the Chrome DevTools Protocol.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn devtools(&self, method: &str, params: Value) -> Result<Value> {
        self.post("goog/cdp/execute", json!({ "cmd": method, "params": params })).await
    }

    async fn post(&self, path: &'static str, body: Value) -> Result<Value> {
        let command = Extension { path, body: body.to_string() };
        self.client.issue_cmd(command).await.with_context(|| format!("ask the browser for {path}"))
    }
}

/// No page may violate its policy in any test: a violation fails the test.
impl Drop for Browser {
    fn drop(&mut self) {
        if self.tolerates || std::thread::panicking() {
            return;
        }
        let broken = self.broken_policies();
        assert!(broken.is_empty(), "a page broke its content security policy: {broken:#?}");
    }
}

/// Attempts to start a driver.
const DRIVER_TRIES: usize = 5;

/// Starts ChromeDriver and returns its port. It picks a free one and binds it a moment later, so that
/// another process may take it first.
fn start_driver(chromedriver: &Path, home: &Path) -> Result<(Process, u16)> {
    let start = || {
        let mut command = Command::new(chromedriver);
        // A home of its own, so that the user's browser is neither read nor modified, and temporary files are
        // removed with it. Console messages go to its output, even after the pages are closed.
        command.args(["--port=0", "--enable-chrome-logs"]).env("HOME", home).env("TMPDIR", home);
        let mut driver = Process::start(&mut command)?;
        let port = driver.wait_for("a port", |line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        })?;
        anyhow::Ok((driver, port))
    };
    (1..DRIVER_TRIES).find_map(|_| start().ok()).map_or_else(start, Ok)
}

fn capabilities(chromium: &Path, profile: &Path, more: &[&str]) -> fantoccini::wd::Capabilities {
    let mut args = vec![
        "--headless".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-quic".to_owned(),
        "--no-first-run".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--disable-sync".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        // Screenshots must not depend on the machine.
        "--force-color-profile=srgb".to_owned(),
        "--hide-scrollbars".to_owned(),
        format!("--user-data-dir={}", profile.display()),
    ];
    args.extend(more.iter().map(ToString::to_string));
    if rustix::process::geteuid().is_root() {
        // Chromium's sandbox refuses root; only our own pages are opened.
        args.push("--no-sandbox".to_owned());
    }
    let wanted = json!({
        "browserName": "chrome",
        "goog:chromeOptions": { "binary": chromium, "args": args },
        "goog:loggingPrefs": { "browser": "ALL" },
    });
    wanted.as_object().cloned().unwrap_or_default()
}

/// A ChromeDriver command that is not part of WebDriver.
#[derive(Debug)]
struct Extension {
    path: &'static str,
    body: String,
}

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.clone()))
    }
}
