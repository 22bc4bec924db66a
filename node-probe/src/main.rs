//! The command `node-probe`: streams for a relay, or looks once for a person.

use clap::Parser;
use node_probe::{
    build,
    driver_thread::{DriverTimings, SourceFactory},
    once,
    probe::{self, Settings},
    source::nvml::NvmlSource,
    takeover::RelayId,
};
use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// Exit status of `--once` on a node of which no GPU can be read.
const NO_GPU: u8 = 3;
/// Exit status when another build was expected.
const OTHER_BUILD: u8 = 4;
/// What the exit statuses mean.
const EXIT_STATUS: &str = "\
Exit status:
  0  a relay, a signal or the closed pipe ended it; with --once: at least one GPU was read
  1  it failed (with --once also: the output could not be written)
  2  wrong usage
  3  with --once: no GPU, or none that can be read; why is on stderr
  4  with --expect: this is another build";
/// How much less urgent than others the probe is.
const NICENESS: i32 = 10;

/// Says once a second what this node's GPUs, processes and host do.
///
/// Started by a nodeglass relay, with which it talks over stdin and stdout in JSON lines; it ends
/// when the pipe closes or the relay has been silent for 30 s. To report at a node yourself, use --once.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct Arguments {
    /// Print the state of this node's GPUs, their processes and the host, then exit
    ///
    /// As a table on a terminal, as JSON otherwise. NO_COLOR is honoured.
    #[arg(long, conflicts_with = "relay")]
    once: bool,
    /// With --once: print JSON even on a terminal
    #[arg(long, requires = "once", conflicts_with = "table")]
    json: bool,
    /// With --once: print the table even into a pipe or file
    #[arg(long, requires = "once")]
    table: bool,
    /// Library to use instead of the installed driver's libnvidia-ml.so.1
    #[arg(long, value_name = "PATH")]
    nvml: Option<PathBuf>,
    /// Exit with status 4 at once unless this is the build with that id
    #[arg(long, value_name = "HASH16")]
    expect: Option<String>,
    /// Go on in place of an older probe of the same relay
    #[arg(long, value_name = "HEX")]
    relay: Option<RelayId>,
    /// Print the build id and exit
    #[arg(long)]
    build_id: bool,
    /// For tests: end after so many ms without a control line
    #[arg(long, value_name = "MS", hide = true)]
    silence_ms: Option<u64>,
    /// For tests: report for a driver or another inventory every so many ms
    #[arg(long, value_name = "MS", hide = true)]
    retry_ms: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        // The reader of a pipe has seen enough, as `head` has.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("node-probe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> std::io::Result<ExitCode> {
    if let Some(expected) = &arguments.expect {
        let own = build::own()?;
        if own != *expected {
            eprintln!("node-probe: this is build {own}, not {expected}");
            return Ok(ExitCode::from(OTHER_BUILD));
        }
    }
    if arguments.build_id {
        writeln!(std::io::stdout(), "{}", build::own()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let library = arguments.nvml.clone();
    let source: SourceFactory =
        Box::new(move |calls| Box::new(NvmlSource::with_calls(library.clone(), calls)));
    if arguments.once {
        return print_once(source, arguments);
    }
    // Whoever may not be nicer is as nice as before.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    probe::run(source, &settings(arguments))?;
    Ok(ExitCode::SUCCESS)
}

fn print_once(source: SourceFactory, arguments: &Arguments) -> std::io::Result<ExitCode> {
    let report = once::collect(source)?;
    let mut stdout = std::io::stdout().lock();
    let is_table = arguments.table || !arguments.json && stdout.is_terminal();
    if is_table {
        write!(stdout, "{}", once::table::of(&report, &once::table::Style::of_stdout()))?;
    } else {
        serde_json::to_writer_pretty(&mut stdout, &report)?;
        writeln!(stdout)?;
    }
    stdout.flush()?;
    let why = report.without_gpus().map(|why| why.to_string());
    // On one terminal the table has said all this already.
    let is_shown = is_table && stdout.is_terminal() && std::io::stderr().is_terminal();
    if !is_shown {
        report
            .problems()
            .into_iter()
            .chain(why.clone())
            .for_each(|problem| eprintln!("node-probe: {problem}"));
    }
    Ok(if why.is_some() { ExitCode::from(NO_GPU) } else { ExitCode::SUCCESS })
}

fn settings(arguments: &Arguments) -> Settings {
    let timings = match arguments.retry_ms.map(Duration::from_millis) {
        Some(pause) => DriverTimings {
            initial_backoff: pause,
            max_backoff: pause,
            inventory_interval: pause,
            health_interval: pause,
        },
        None => DriverTimings::default(),
    };
    Settings {
        relay: arguments.relay.clone(),
        control_timeout: arguments.silence_ms.map(Duration::from_millis),
        successor: None,
        timings,
    }
}
