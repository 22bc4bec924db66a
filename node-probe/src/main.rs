//! The command `node-probe`: streams for a relay, or looks once for a person.

use clap::Parser;
use node_probe::{
    attendant::Patience,
    build, once,
    probe::{self, Settings},
    source::nvml::NvmlSource,
    takeover::RelayId,
};
use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

/// Exit status of `--once` on a node without GPUs.
const NO_GPU: u8 = 3;
/// Exit status when another build was expected.
const OTHER_BUILD: u8 = 4;
/// How much less urgent than others the probe is.
const NICENESS: i32 = 10;

/// Says once a second what this node's GPUs, processes and host do.
///
/// Started by a nodeglass relay, with which it talks over stdin and stdout in JSON lines; it ends
/// when the pipe closes or the relay has been silent for 30 s. To look at a node yourself, use --once.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Print one look at this node as JSON and exit: 0 with GPUs, 3 without
    #[arg(long, conflicts_with = "relay")]
    once: bool,
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
    /// For tests: look for a driver or another inventory every so many ms
    #[arg(long, value_name = "MS", hide = true)]
    retry_ms: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
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
    let source = Box::new(NvmlSource::new(arguments.nvml.clone()));
    if arguments.once {
        return look_once(source);
    }
    // Whoever may not be nicer is as nice as before.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    probe::run(source, &settings(arguments))?;
    Ok(ExitCode::SUCCESS)
}

fn look_once(source: Box<NvmlSource>) -> std::io::Result<ExitCode> {
    let look = once::look(source)?;
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut stdout, &look)?;
    writeln!(stdout)?;
    Ok(match look.without_gpus() {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("node-probe: {why}");
            ExitCode::from(NO_GPU)
        }
    })
}

fn settings(arguments: &Arguments) -> Settings {
    let patience = match arguments.retry_ms.map(Duration::from_millis) {
        Some(pause) => Patience { first: pause, most: pause, recheck: pause, checkup: pause },
        None => Patience::default(),
    };
    Settings {
        relay: arguments.relay.clone(),
        silence: arguments.silence_ms.map(Duration::from_millis),
        heir: None,
        patience,
    }
}
