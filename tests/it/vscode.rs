//! VS Code with Remote-SSH: it recognises the printed link, and the documented task starts a relay.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::documents::example;
use nodeglass_tests::relay::TestRelay;
use nodeglass_tests::skip;
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The document with the task.
const INSTALL: &str = include_str!("../../docs/INSTALL.md");

/// Prints the hosts and ports that VS Code forwards, by its own expressions (`urlFinder.ts`): those of 2021 demand a scheme, those
/// of 2024 take the first host with a port.
const FIND: &str = r"
const data = require('fs').readFileSync(0, 'utf8');
const older = /\b\w{2,20}:\/\/(?:localhost|127\.0\.0\.1|0\.0\.0\.0|:\d{2,5})[\w\-\.\~:\/\?\#[\]\@!\$&\(\)\*\+\,\;\=]*/gim;
const newer = /\b\w{0,20}(?::\/\/)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|:\d{2,5})[\w\-\.\~:\/\?\#[\]\@!\$&\(\)\*\+\,\;\=]*/gim;
const port = /(localhost|127\.0\.0\.1|0\.0\.0\.0):(\d{1,5})/;
for (const match of data.match(older) || []) console.log('older', new URL(match).host);
for (const match of (data.match(newer) || []).map((match) => match.match(port)).filter(Boolean)) console.log('newer', match[0]);
";

#[test]
fn vs_code_forwards_the_port_of_the_printed_link_and_no_other() -> Result<()> {
    let Some([node]) = skip::programs(["node"]) else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let mut find =
        Command::new(node).args(["-e", FIND]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    find.stdin.take().context("its input")?.write_all(relay.output().text().as_bytes())?;
    let found = String::from_utf8(find.wait_with_output()?.stdout)?;
    let authority = &relay.link().authority;
    ensure!(found.lines().any(|line| line == format!("older {authority}")), "{found}");
    ensure!(found.lines().any(|line| line == format!("newer {authority}")), "{found}");
    ensure!(found.lines().all(|line| line.ends_with(authority)), "{found}");
    Ok(())
}

#[test]
fn the_documented_task_of_vs_code_starts_a_relay() -> Result<()> {
    let tasks: Value = serde_json::from_str(example(INSTALL, "## VS Code", "json")?)?;
    ensure!(tasks["version"] == "2.0.0" && tasks["tasks"][0]["type"] == "shell", "{tasks}");
    let command = tasks["tasks"][0]["command"].as_str().context("a command")?;
    let arguments = command.strip_prefix("nodeglass ").context("arguments")?;
    // Another port, as this one may be in use, and no cluster.
    let arguments = arguments.replace(":8080", ":0");
    ensure!(arguments.contains("127.0.0.1:0"), "{command}");
    let arguments: Vec<&str> = arguments.split(' ').chain(["--demo"]).collect();
    TestRelay::start(&arguments)?;
    Ok(())
}
