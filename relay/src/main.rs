//! The command line: reads settings, runs a command, and returns an exit code (2 for usage, 1 for
//! failure).

use nodeglass_protocol::NodeName;
use nodeglass_relay::access::key_file::{self, Running};
use nodeglass_relay::access::runtime_dir::{Places, RuntimeDir};
use nodeglass_relay::app::{self, owner_commands, terminal};
use nodeglass_relay::clock::Clock;
use nodeglass_relay::config::{self, Config, ReadError, Request, ShareOrder};
use nodeglass_relay::log;
use nodeglass_relay::log::ring::Ring;
use std::process::ExitCode;

/// Threads of the runtime: the relay mostly waits.
const THREADS: usize = 2;
/// Stack size of each thread; no recursion depends on external input.
const STACK: usize = 1024 * 1024;

fn main() -> ExitCode {
    let done = match config::read(std::env::args_os()) {
        Ok(Request::Run { config, new }) => run(*config, new),
        Ok(Request::ShowConfig(effective)) => {
            terminal::print(&config::table(&effective));
            Ok(ExitCode::SUCCESS)
        }
        Ok(Request::ShowLink { for_one_tab: false }) => show_link(),
        Ok(Request::ShowLink { for_one_tab: true }) => show_tab_link(),
        Ok(Request::Share(order)) => share(order),
        Ok(Request::Retry(node)) => retry(node),
        Err(ReadError::Usage(usage)) => usage.exit(),
        Err(ReadError::Config(error)) => {
            eprintln!("relay: {error}");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("relay: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a relay, unless this user already runs one here: a second one would only double the load.
fn run(config: Config, new: bool) -> anyhow::Result<ExitCode> {
    let running = if new { Vec::new() } else { running()? };
    if !running.is_empty() {
        terminal::Terminal::new().found(&running, Clock::wall_ms() / 1_000);
        return Ok(ExitCode::SUCCESS);
    }
    // Without a safe directory there is no file; the relay reports that itself when it stores its key.
    let dir = RuntimeDir::open(&Places::from_env()).ok();
    let _log = log::start(config.log, dir.map(|dir| Ring::of(dir, std::process::id())));
    // A core dump would contain the key.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).thread_stack_size(STACK).enable_all().build()?;
    runtime.block_on(app::run(config))
}

/// Executes `relay share`.
fn share(order: ShareOrder) -> anyhow::Result<ExitCode> {
    let dir = dir_of(order.relay)?;
    terminal::print(&client_runtime()?.block_on(owner_commands::share(&dir, order))?);
    Ok(ExitCode::SUCCESS)
}

/// Requests a link for one tab from the running relay.
fn show_tab_link() -> anyhow::Result<ExitCode> {
    terminal::print(&client_runtime()?.block_on(owner_commands::tab_link(&dir_of(None)?))?);
    Ok(ExitCode::SUCCESS)
}

fn client_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Makes the running relay retry nodes.
fn retry(node: Option<NodeName>) -> anyhow::Result<ExitCode> {
    terminal::print(&client_runtime()?.block_on(owner_commands::retry(&dir_of(None)?, node))?);
    Ok(ExitCode::SUCCESS)
}

/// This user's relays on this machine.
fn running() -> anyhow::Result<Vec<Running>> {
    let mut running = Vec::new();
    for dir in RuntimeDir::existing(&Places::from_env()) {
        running.extend(key_file::running(&dir)?);
    }
    Ok(running)
}

/// The runtime directory of the relay with this process id, or of any that runs.
fn dir_of(pid: Option<u32>) -> anyhow::Result<RuntimeDir> {
    let places = Places::from_env();
    let is_there = |dir: &RuntimeDir| {
        let running = key_file::running(dir).unwrap_or_default();
        running.iter().any(|relay| pid.is_none_or(|pid| pid == relay.pid))
    };
    let found = RuntimeDir::existing(&places).into_iter().find(is_there);
    found.map_or_else(|| Ok(RuntimeDir::open(&places)?), Ok)
}

fn show_link() -> anyhow::Result<ExitCode> {
    let running = running()?;
    if running.is_empty() {
        eprintln!("relay: no relay of yours runs on this machine; start one with `relay`");
        return Ok(ExitCode::FAILURE);
    }
    for link in running.iter().flat_map(|relay| &relay.links) {
        terminal::print(&format!("{link}\n"));
    }
    Ok(ExitCode::SUCCESS)
}
