//! The command line, read together with environment and file.

use super::bind::BindAddrError;
use super::file::File;
use super::share::ShareOrder;
use super::{BindAddr, Config, ConfigError, Effective, Source, default_file, is_switch};
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, value_parser};
use nodeglass_protocol::NodeName;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The command line besides settings.
#[derive(Parser)]
#[command(
    name = "relay",
    version,
    about = "Shows every GPU of your SLURM jobs in a browser tab",
    after_help = "Each option can also be set by a variable (NODEGLASS_BIND) or in the configuration file (bind).\n\
                  On your laptop, run ssh -L 8080:127.0.0.1:8080 LOGIN-NODE and open the link that relay prints.",
    disable_help_subcommand = true
)]
struct Cli {
    /// The configuration file [default: ~/.config/nodeglass/config.toml]
    #[arg(long = "config", env = "NODEGLASS_CONFIG", hide_env = true, global = true, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Start another relay even if you already run one
    #[arg(long)]
    new: bool,

    #[command(subcommand)]
    subcommand: Option<Sub>,
}

#[derive(Subcommand)]
enum Sub {
    /// Print the effective settings and where each comes from
    Config,
    /// Give a teammate read-only access: create, list, link, revoke
    Share(ShareOrder),
    #[command(flatten)]
    Client(ClientCommand),
}

/// The command line of a [`ClientCommand`].
#[derive(Parser)]
#[command(name = "relay", disable_help_subcommand = true)]
struct ClientCli {
    #[command(subcommand)]
    command: ClientCommand,
}

/// Commands for a running relay.
#[derive(Subcommand)]
enum ClientCommand {
    /// Print the link of your running relay again
    Link {
        /// Print a link that opens one tab, once, within two minutes: for proxies that do not identify users
        #[arg(long)]
        tab: bool,
    },
    /// Retry the connection to a node now, or to all waiting nodes and SLURM
    Retry {
        /// The node [default: all waiting nodes, and SLURM]
        #[arg(value_parser = |name: &str| NodeName::new(name))]
        node: Option<NodeName>,
    },
}

/// A request of the user.
#[derive(Debug)]
pub enum Request {
    /// Run a relay.
    Run {
        /// Its configuration.
        config: Box<Config>,
        /// Whether it starts even if this user already runs one.
        new: bool,
    },
    /// Print the effective settings.
    ShowConfig(Vec<Effective>),
    /// Print the link of a running relay, or one for a single tab.
    ShowLink {
        /// Whether it is for a single tab.
        for_one_tab: bool,
    },
    /// Manage shares of a running relay.
    Share(ShareOrder),
    /// Retry a node of a running relay, or all that wait.
    Retry(Option<NodeName>),
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Invalid usage, or the help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// An invalid setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Reads a command line, the environment and the configuration file.
///
/// # Errors
/// [`ReadError`]; as in `clap`, requests for help or the version are errors too.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Request, ReadError> {
    let args: Vec<_> = args.into_iter().collect();
    // Commands for a running relay have their own parsers: settings do not apply to them, and would
    // clutter their help.
    match args.get(1).and_then(|command| command.to_str()) {
        Some("share") => return Ok(Request::Share(ShareOrder::try_parse_from(args.into_iter().skip(1))?)),
        Some("link" | "retry") => return Ok(ClientCli::try_parse_from(args)?.command.into()),
        _ => {}
    }
    // Values remain text until their layer is known, because errors about invalid values name it.
    let settings =
        with_settings(Command::new("relay")).mut_args(|arg| arg.value_parser(value_parser!(String)));
    let matches = <Cli as Args>::augment_args(settings).try_get_matches_from(args)?;
    let cli = Cli::from_arg_matches(&matches)?;
    let read_config = || -> Result<_, ConfigError> {
        let effective = effective(&matches, &file(cli.file.as_deref())?);
        Ok((config(&effective)?, effective))
    };
    Ok(match cli.subcommand {
        None => Request::Run { config: Box::new(read_config()?.0), new: cli.new },
        Some(Sub::Config) => Request::ShowConfig(read_config()?.1),
        Some(Sub::Share(order)) => Request::Share(order),
        Some(Sub::Client(command)) => command.into(),
    })
}

impl From<ClientCommand> for Request {
    fn from(command: ClientCommand) -> Self {
        match command {
            ClientCommand::Link { tab } => Self::ShowLink { for_one_tab: tab },
            ClientCommand::Retry { node } => Self::Retry(node),
        }
    }
}

/// Every setting, in the order of the help.
pub fn settings() -> Vec<Arg> {
    with_settings(Command::new("relay")).get_arguments().cloned().collect()
}

fn with_settings(command: Command) -> Command {
    Config::augment_args(command).mut_args(|arg| {
        let arg = arg.hide_env(true).global(true);
        match is_switch(&arg) {
            // It also accepts `--demo=false`, so that a flag can override the file.
            true => arg
                .required(false)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .default_value("false")
                .hide_default_value(true),
            false => arg,
        }
    })
}

fn file(named: Option<&Path>) -> Result<File, ConfigError> {
    if let Some(path) = named {
        return File::open(path, true);
    }
    let (xdg, home) = (env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
    match default_file(xdg.as_deref().map(Path::new), home.as_deref().map(Path::new)) {
        Some(path) => File::open(&path, false),
        None => Ok(File::default()),
    }
}

/// The values of each setting from the nearest layer that has any. "" or [] requests the default.
fn effective(matches: &ArgMatches, file: &File) -> Vec<Effective> {
    let of = |setting: Arg| {
        let id = setting.get_id().as_str();
        let given = || matches.get_many::<String>(id).unwrap_or_default().cloned().collect();
        let in_file = || setting.get_long().and_then(|name| file.find(name));
        let (mut values, source): (Vec<String>, _) = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => (given(), Source::Flag),
            Some(ValueSource::EnvVariable) => (given(), Source::Env),
            _ => in_file().unwrap_or((Vec::new(), Source::Default)),
        };
        values.retain(|value| !value.is_empty());
        if values.is_empty() {
            let default = setting.get_default_values().iter();
            values.extend(default.map(|value| value.to_string_lossy().into_owned()));
        }
        Effective { setting, values, source }
    };
    settings().into_iter().map(of).collect()
}

/// Parses and checks effective values.
fn config(effective: &[Effective]) -> Result<Config, ConfigError> {
    let of = |name: &str| {
        effective.iter().find(|setting| setting.name() == name).expect("every name is a setting's")
    };
    if let Some(list) = effective.iter().find(|setting| setting.values.len() > 1 && !setting.is_list()) {
        return Err(list.error("it takes one value, not a list"));
    }
    // Values are separated and complete, whichever layer they are from.
    let command = with_settings(Command::new("relay").no_binary_name(true));
    let command = command.mut_args(|arg| arg.env(None).value_delimiter(None));
    let args = effective
        .iter()
        .flat_map(|setting| setting.values.iter().map(|value| format!("--{}={value}", setting.name())));
    let invalid = |error: clap::Error| {
        // Such as `--bind <ADDR>`.
        let arg = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
        let name = arg.trim_start_matches('-').split([' ', '=', '[']).next().unwrap_or_default();
        of(name).error(error.source().map_or_else(|| error.to_string(), ToString::to_string))
    };
    let config = command.try_get_matches_from(args).and_then(|matches| Config::from_arg_matches(&matches));
    let config = config.map_err(invalid)?;
    config.check()?;
    let has_name = !config.allowed_hosts.is_empty();
    let check = |addr| BindAddr::check(addr, config.tls().is_some(), has_name);
    config.bind.iter().try_for_each(check).map_err(|error: BindAddrError| of("bind").error(error))?;
    Ok(config)
}
