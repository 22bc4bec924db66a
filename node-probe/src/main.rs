//! The command `node-probe`: streams to a relay, or prints a single report.

mod closed_stdout;

use clap::{Args, CommandFactory, Parser, Subcommand};
use node_probe::{
    build,
    driver_thread::{DriverTimings, SourceConfig, SourceFactory},
    library_exit, once,
    probe::{self, Settings},
    selftest::{self, Conclusion, load},
    source::{
        amd::AmdSource,
        intel::IntelSource,
        nvml::NvmlSource,
        tpu::{self, TpuSource},
        unread::UnreadSource,
    },
    stdout,
    takeover::RelayId,
};
use nodeglass_protocol::Vendor;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

/// Exit status of a failure.
const FAILURE: u8 = 1;
/// Exit status of `--once` if no GPU of the node can be read.
const NO_GPU: u8 = 3;
/// Exit status if another build was expected.
const OTHER_BUILD: u8 = 4;
/// Exit status of `selftest` if a reading differs.
const DIFFERENT: u8 = 5;
/// Description of the exit statuses.
const EXIT_STATUS: &str = "\
Exit status:
  0  ended by the relay, a signal or a closed pipe; with --once: at least one GPU was read;
     selftest: all readings are equal, or their differences explained
  1  failure, including output errors with --once
  2  invalid usage
  3  with --once: no GPU could be read; selftest: nothing to compare; the reason is on stderr
  4  with --expect: the build id differs
  5  selftest: a reading differs";
/// Nice value of the probe.
const NICENESS: i32 = 10;
/// Wanted limit of open files.
const OPEN_FILES: u64 = 65_536;

/// Samples this node's GPUs, processes and host once a second.
///
/// Started by a nodeglass relay, with which it communicates in JSON lines over stdin and stdout;
/// exits when the pipe closes or the relay is silent for 30 s. To inspect a node yourself, use
/// --once.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the state of this node's GPUs, their processes and the host, then exit
    ///
    /// As a table on a terminal, as JSON otherwise. Respects NO_COLOR.
    #[arg(long, conflicts_with = "relay")]
    once: bool,
    /// With --once: print JSON even to a terminal
    #[arg(long, requires = "once", conflicts_with = "table")]
    json: bool,
    /// With --once: print the table even to a pipe or file
    #[arg(long, requires = "once")]
    table: bool,
    /// NVML library to load instead of the driver's libnvidia-ml.so.1
    #[arg(long, value_name = "PATH")]
    nvml: Option<PathBuf>,
    /// libtpuinfo to load for TPUs
    #[arg(long, value_name = "PATH", default_value = "libtpuinfo.so")]
    libtpuinfo: PathBuf,
    /// Load libtpuinfo and respond to lines on stdin, as a child process of the probe
    #[arg(long, hide = true)]
    tpu_worker: bool,
    /// For tests: folder whose sys and proc describe the accelerators other than NVIDIA's
    #[arg(long, env = "NODE_PROBE_SYSROOT", value_name = "PATH", default_value = "/")]
    #[arg(overrides_with = "sysroot", hide = true)]
    sysroot: PathBuf,
    /// Exit with status 4 unless this is the build with the given id
    #[arg(long, value_name = "HASH16")]
    expect: Option<String>,
    /// Take over from an older probe of the same relay
    #[arg(long, value_name = "HEX")]
    relay: Option<RelayId>,
    /// Print the build id and exit
    #[arg(long)]
    build_id: bool,
    /// For tests: exit after this many ms without a control line
    #[arg(long, value_name = "MS", hide = true)]
    silence_ms: Option<u64>,
    /// For tests: interval in ms of driver and inventory checks
    #[arg(long, value_name = "MS", hide = true)]
    retry_ms: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare all readings of NVIDIA GPUs with nvidia-smi and nvidia-ml-py
    ///
    /// At rest, and under a load of its own on a GPU that nobody uses, for up to three minutes. Needs no network; uses
    /// nvidia-ml-py if `python3` can import it, or its wheel is beside this program. Prints a table of what is equal, explained
    /// and different, and writes a report to attach to an issue, without names of the host, its users and their programs.
    Selftest(Selftest),
    /// Print the man page of the probe, or of one of its commands
    #[command(hide = true)]
    Man { command: Option<String> },
    /// Load the GPU at a PCI address until stdin ends
    #[command(name = load::COMMAND, hide = true)]
    Load { cuda: PathBuf, pci: String },
}

#[derive(Debug, Args)]
struct Selftest {
    /// Load a GPU even if all are in use
    #[arg(long, conflicts_with = "no_load")]
    load: bool,
    /// Compare at rest only
    #[arg(long)]
    no_load: bool,
    /// File of the report
    #[arg(long, value_name = "PATH", default_value = "nodeglass-gpu-check.txt")]
    out: PathBuf,
    /// NVML library to load instead of the driver's libnvidia-ml.so.1
    #[arg(long, value_name = "PATH")]
    nvml: Option<PathBuf>,
    /// CUDA driver library to load
    #[arg(long, value_name = "PATH", default_value = "libcuda.so.1")]
    cuda: PathBuf,
    /// For tests: rounds of each comparison
    #[arg(long, value_name = "N", hide = true)]
    rounds: Option<u32>,
}

fn main() {
    let arguments = Arguments::parse();
    let status = closed_stdout::check().and_then(|()| run(&arguments)).unwrap_or_else(|error| {
        // The reader closed the pipe, as `head` does.
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            eprintln!("node-probe: {error}");
        }
        FAILURE
    });
    library_exit::end(status)
}

/// Returns the exit status.
fn run(arguments: &Arguments) -> std::io::Result<u8> {
    if let Some(command) = &arguments.command {
        return run_command(command);
    }
    if arguments.tpu_worker {
        tpu::worker::run(&arguments.libtpuinfo)?;
        return Ok(0);
    }
    if let Some(expected) = &arguments.expect {
        let own = build::own()?;
        if own != *expected {
            eprintln!("node-probe: this is build {own}, not {expected}");
            return Ok(OTHER_BUILD);
        }
    }
    if arguments.build_id {
        writeln!(std::io::stdout(), "{}", build::own()?)?;
        return Ok(0);
    }
    let sources = sources(arguments);
    if arguments.once {
        return print_once(sources, arguments);
    }
    raise_open_files();
    // A failure keeps the inherited priority.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    probe::run(sources, &settings(arguments))?;
    Ok(0)
}

fn run_command(command: &Command) -> std::io::Result<u8> {
    let arguments = match command {
        Command::Load { cuda, pci } => {
            load::run(cuda, pci).map_err(std::io::Error::other)?;
            return Ok(0);
        }
        Command::Man { command } => {
            print_man_page(command.as_deref())?;
            return Ok(0);
        }
        Command::Selftest(arguments) => arguments,
    };
    let conclusion = selftest::run(&selftest::Options {
        nvml: arguments.nvml.clone(),
        cuda: arguments.cuda.clone(),
        load: match arguments {
            Selftest { no_load: true, .. } => load::Policy::Never,
            Selftest { load: true, .. } => load::Policy::Always,
            Selftest { .. } => load::Policy::Idle,
        },
        out: arguments.out.clone(),
        rounds: arguments.rounds,
    })?;
    Ok(match conclusion {
        Conclusion::Agrees => 0,
        Conclusion::Differs => DIFFERENT,
        Conclusion::NothingToCompare => NO_GPU,
    })
}

fn print_man_page(command: Option<&str>) -> std::io::Result<()> {
    let mut all = Arguments::command();
    all.build();
    let page = match command {
        None => Some(&all),
        Some(name) => all.find_subcommand(name),
    };
    let page = page.ok_or_else(|| std::io::Error::other("there is no such command"))?.clone();
    let name = command.map_or_else(|| "node-probe".to_owned(), |name| format!("node-probe-{name}"));
    clap_mangen::Man::new(page.display_name(name.clone()))
        .title(name)
        .section("1")
        .source(format!("nodeglass {}", env!("CARGO_PKG_VERSION")))
        .manual("nodeglass")
        .render(&mut std::io::stdout())
}

/// Raises the limit of open files, which is often 1,024: the probe keeps some forty attributes of each AMD or
/// Intel GPU open.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it, readings beyond the limit fail with a message.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// The sources of this node, in the order of their GPUs.
fn sources(arguments: &Arguments) -> Vec<SourceConfig> {
    let source = |vendor, make: SourceFactory| SourceConfig { vendor, make };
    let (library, libtpuinfo) = (arguments.nvml.clone(), arguments.libtpuinfo.clone());
    let [amd, intel, tpu, unread] = [(); 4].map(|()| arguments.sysroot.clone());
    vec![
        source(
            Vendor::Nvidia,
            Box::new(move |calls| Box::new(NvmlSource::with_calls(library.clone(), calls))),
        ),
        source(Vendor::Amd, Box::new(move |calls| Box::new(AmdSource::new(&amd, calls)))),
        source(Vendor::Intel, Box::new(move |calls| Box::new(IntelSource::new(&intel, calls)))),
        source(Vendor::Tpu, Box::new(move |calls| Box::new(TpuSource::new(&tpu, &libtpuinfo, calls)))),
        source(Vendor::Unknown, Box::new(move |_| Box::new(UnreadSource::new(&unread)))),
    ]
}

fn print_once(sources: Vec<SourceConfig>, arguments: &Arguments) -> std::io::Result<u8> {
    let mut stdout = stdout::take()?;
    let report = once::collect(sources)?;
    let is_table = arguments.table || !arguments.json && stdout.is_terminal();
    if is_table {
        stdout.write_all(once::table::of(&report, &once::table::Style::of(&stdout)).as_bytes())?;
    } else {
        let mut json = serde_json::to_vec_pretty(&report)?;
        json.push(b'\n');
        stdout.write_all(&json)?;
    }
    let why = report.without_gpus().map(|why| why.to_string());
    // The table already contains these problems if both streams go to one terminal.
    let is_shown = is_table && stdout.is_terminal() && std::io::stderr().is_terminal();
    if !is_shown {
        report
            .problems()
            .into_iter()
            .chain(why.clone())
            .for_each(|problem| eprintln!("node-probe: {problem}"));
    }
    Ok(if why.is_some() { NO_GPU } else { 0 })
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
