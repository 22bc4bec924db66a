//! The command line: reads settings, runs a command, and returns an exit code (2 for usage, 1 for
//! failure).

#![warn(clippy::print_stdout, clippy::print_stderr)]

use anyhow::Context as _;
use nodeglass_access::key_file::{self, Running};
use nodeglass_access::runtime_dir::{Places, RuntimeDir};
use nodeglass_app::remote::{NONE_RUNS, Remote};
use nodeglass_app::terminal;
use nodeglass_app::terminal::{Style, Terminal};
use nodeglass_config::{
    Config, ConfigError, DoctorArgs, Effective, ManPage, McpArgs, NotifyArgs, Query, ReadError,
    RecordCommand, Request, Requested, ServiceCommand, ServiceSettings, TopArgs,
};
use nodeglass_log::ring::Ring;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::memory;
use nodeglass_relay::commands::second_start::{self, SecondStart};
use nodeglass_relay::commands::{
    audit_log, job_reports, mcp, note_command, notify_command, owner_commands, queries, token_command,
};
use nodeglass_relay::{commands, doctor, page};
use nodeglass_top::TopError;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Maximum time for which the end of the relay waits for threads that access a disk.
const DISK_LEAVES: Duration = Duration::from_secs(2);
/// Maximum time for which a start waits for another relay that is shutting down, and the interval of looking.
const ENDING_LIMIT: Duration = Duration::from_secs(15);
const ENDING_INTERVAL: Duration = Duration::from_millis(50);
/// Threads of the runtime: the relay mostly waits.
const THREADS: usize = 2;
/// Stack size of each thread; no recursion depends on external input.
const STACK: usize = 1024 * 1024;

fn main() -> ExitCode {
    memory::use_two_arenas();
    let done = match nodeglass_config::read(std::env::args_os()) {
        Ok(Request::Run { config, requested, new }) => run(*config, requested, new),
        Ok(Request::Doctor { args, settings, default }) => doctor(args, settings, *default),
        Ok(Request::Service { command, settings }) => service(&command, &settings),
        Ok(Request::Notify { args, config }) => notify(&args, &config),
        Ok(Request::ShowVersion { json }) => show_version(json),
        Ok(Request::Print(text)) => terminal::write(text).map(|()| ExitCode::SUCCESS),
        Ok(Request::WriteManPages { folder, pages }) => write_man_pages(&folder, &pages),
        Ok(Request::ShowConfig { effective, json }) => show_config(&effective, json),
        Ok(Request::ShowLink { for_one_tab: false, json, relay }) => show_links(relay, json),
        Ok(Request::ShowLink { for_one_tab: true, json, relay }) => {
            ask(relay, async move |relay| owner_commands::tab_link(relay, json).await)
        }
        Ok(Request::Share(args)) => {
            ask(args.relay, async move |relay| owner_commands::share(relay, args).await)
        }
        Ok(Request::Token { command, relay }) => {
            ask(relay, async move |relay| token_command::token(relay, command).await)
        }
        Ok(Request::Top { args, config, requested }) => return top(args, *config, requested),
        Ok(Request::Query { query, config, requested }) => answer(query, *config, requested),
        Ok(Request::Mcp(args)) => serve_mcp(args),
        Ok(Request::Record(args)) => record(args.command),
        Ok(Request::Retry { node, json, relay }) => {
            ask(relay, async move |relay| owner_commands::retry(relay, node, json).await)
        }
        Ok(Request::Note(args)) => print(note_command::note(args)),
        Ok(Request::Report { args, webhook }) => print(job_reports::report(args, webhook)),
        Ok(Request::History(args)) => print(job_reports::history(args)),
        Ok(Request::Me(args)) => print(job_reports::me(args)),
        Ok(Request::Audit(args)) => print(audit_log::print(args)),
        Err(error) => return refuse(error),
    };
    done.unwrap_or_else(|error| {
        terminal::complain(format_args!("relay: {}", terminal::with_causes(&error)));
        ExitCode::from(commands::exit_code(&error))
    })
}

/// Prints why a command line or a setting is invalid, or the help.
fn refuse(error: ReadError) -> ExitCode {
    match error {
        // The error quotes arguments unescaped; the help quotes none.
        ReadError::Usage(usage) if usage.use_stderr() && terminal::is_harmful(&quoted_args()) => {
            terminal::complain(usage.render().to_string().trim_end());
        }
        ReadError::Usage(usage) => usage.exit(),
        ReadError::Unknown(unknown) => {
            let pids: Vec<_> = running().unwrap_or_default().iter().map(|relay| relay.pid).collect();
            terminal::complain(format_args!("relay: {}", unknown.answer(&pids)));
        }
        ReadError::Config(error) => terminal::complain(format_args!("relay: {error}")),
    }
    ExitCode::from(2)
}

/// The arguments of this program, as a usage error quotes them.
fn quoted_args() -> String {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs a relay, unless this user already runs one here: a second one would only double the load.
fn run(config: Config, requested: Requested, new: bool) -> anyhow::Result<ExitCode> {
    let running = if new { Vec::new() } else { running_once_others_ended()? };
    let args = || std::env::args().skip(1).collect::<Vec<_>>();
    match second_start::decide(&running, &requested) {
        SecondStart::Start => {}
        SecondStart::Found(relay) => {
            let another = second_start::another(&args(), &requested, &running);
            Terminal::new().found(relay, &another, Clock::wall_ms() / 1_000);
            return Ok(ExitCode::SUCCESS);
        }
        SecondStart::Refused(differences) => {
            let style = Style::of(&std::io::stderr());
            let refusal = second_start::refusal(&running, &differences, &requested, &args(), style);
            terminal::complain(refusal.trim_end());
            return Ok(ExitCode::FAILURE);
        }
    }
    // Without a safe directory there is no file; the relay reports that itself when it stores its key.
    let dir = RuntimeDir::open(&Places::from_env()).ok();
    let _log = nodeglass_log::start(config.log, dir.map(|dir| Ring::of(dir, std::process::id())));
    // A core dump would contain the key.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).thread_stack_size(STACK).enable_all().build()?;
    let done = runtime.block_on(nodeglass_app::run(config, requested, page::FILES));
    // A thread may wait for a disk that hangs.
    runtime.shutdown_timeout(DISK_LEAVES);
    done
}

/// Watches in the terminal.
fn top(args: TopArgs, config: Config, requested: Option<Requested>) -> ExitCode {
    // As for a relay: a core dump would contain the key. It watches even where this is not possible.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).thread_stack_size(STACK).enable_all().build();
    let done = runtime.map_err(|error| TopError::Other(error.into()));
    let done = done.and_then(|runtime| {
        let done = runtime.block_on(nodeglass_top::run(args, config, requested));
        // A thread that reads the terminal may be blocked.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::complain(format_args!("relay: {error}"));
            error.exit_code()
        }
    }
}

/// Answers a query of the current state.
fn serve_mcp(args: McpArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(mcp::serve(args))?;
    // A thread that still reads standard input must not delay the end.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

fn answer(query: Query, config: Config, requested: Option<Requested>) -> anyhow::Result<ExitCode> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).thread_stack_size(STACK).enable_all().build()?;
    let answer = runtime.block_on(queries::answer(query, config, requested))?;
    terminal::write(&answer.text)?;
    if let Some(notice) = &answer.notice {
        terminal::complain(notice);
    }
    Ok(answer.exit_code())
}

/// Checks what a relay needs, and prints what was found.
fn doctor(
    args: DoctorArgs,
    settings: Result<(Box<Config>, Vec<Effective>), ConfigError>,
    default: Config,
) -> anyhow::Result<ExitCode> {
    let settings = settings.map(|(config, effective)| (*config, effective));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(THREADS).thread_stack_size(STACK).enable_all().build()?;
    let report = runtime.block_on(doctor::run(args.target, settings, default));
    // A thread may be blocked by a dead file server.
    runtime.shutdown_background();
    terminal::write(match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => doctor::text(&report, Style::of(&std::io::stdout())),
    })?;
    Ok(if report.is_healthy() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints what this program is.
fn show_version(json: bool) -> anyhow::Result<ExitCode> {
    terminal::write(commands::version::text(json)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Installs or removes the service, or describes it.
fn service(command: &ServiceCommand, settings: &ServiceSettings) -> anyhow::Result<ExitCode> {
    terminal::write(commands::service::service(command, settings, &running()?)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a test notice, and prints what became of it.
fn notify(args: &NotifyArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(notify_command::test(args, config))?;
    // The lookup of a name may still block a thread.
    runtime.shutdown_background();
    terminal::write(outcome.text)?;
    Ok(ExitCode::from(outcome.exit_code))
}

/// Prepares a recording for others.
fn record(command: RecordCommand) -> anyhow::Result<ExitCode> {
    let RecordCommand::Cut { from, job, out, json } = command;
    let summary = nodeglass_recording::cut(&from, &out, nodeglass_recording::find_job(&from, &job)?)?;
    terminal::write(match json {
        true => terminal::cut_json(&summary, &out)?,
        false => terminal::cut(&summary, &out),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a request to the running relay with this process id, or the only one, and prints the response.
fn ask(
    pid: Option<u32>,
    request: impl AsyncFnOnce(&Remote) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    let relay = Remote::find(pid)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    terminal::write(runtime.block_on(request(&relay))?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what a command returns.
fn print<T: AsRef<[u8]>>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    terminal::write(runtime.block_on(command)?)?;
    Ok(ExitCode::SUCCESS)
}

/// This user's relays on this machine, once those have ended that are shutting down: the new one may need their port and
/// the lock of the stored history.
fn running_once_others_ended() -> anyhow::Result<Vec<Running>> {
    let began = Instant::now();
    let mut is_stated = false;
    while let Some(ending) = relays(key_file::ending)?.first()
        && began.elapsed() < ENDING_LIMIT
    {
        if !is_stated {
            terminal::complain(format_args!(
                "waiting for the relay that is shutting down (pid {}) …",
                ending.pid
            ));
            is_stated = true;
        }
        thread::sleep(ENDING_INTERVAL);
    }
    running()
}

/// This user's relays on this machine.
fn running() -> anyhow::Result<Vec<Running>> {
    relays(key_file::running)
}

/// Relays in the directories of this user, as `list` finds them in one.
fn relays(list: fn(&RuntimeDir) -> io::Result<Vec<Running>>) -> anyhow::Result<Vec<Running>> {
    let mut found = Vec::new();
    for dir in RuntimeDir::existing(&Places::from_env()) {
        found.extend(list(&dir)?);
    }
    Ok(found)
}

/// Writes man pages into a folder, which is created if it is missing.
fn write_man_pages(folder: &Path, pages: &[ManPage]) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for page in pages {
        let path = folder.join(&page.file);
        fs::write(&path, &page.roff).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the settings with their sources.
fn show_config(effective: &[Effective], json: bool) -> anyhow::Result<ExitCode> {
    terminal::write(match json {
        true => terminal::json(&nodeglass_config::json(effective))?,
        false => nodeglass_config::table(effective),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the links of the relay with this process id, or of all.
fn show_links(pid: Option<u32>, json: bool) -> anyhow::Result<ExitCode> {
    let mut running = running()?;
    anyhow::ensure!(!running.is_empty(), NONE_RUNS);
    running.retain(|relay| pid.is_none_or(|pid| pid == relay.pid));
    match pid {
        Some(pid) if running.is_empty() => {
            anyhow::bail!("no relay of yours has pid {pid}; `relay link` lists those that are running")
        }
        _ if json => Terminal::new().links_json(&running)?,
        _ => Terminal::new().links(&running, Clock::wall_ms() / 1_000)?,
    }
    Ok(ExitCode::SUCCESS)
}
