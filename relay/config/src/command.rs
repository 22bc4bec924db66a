//! The command line, read together with environment and file.

use super::bind::BindAddrError;
use super::effective::is_switch;
use super::file::File;
use super::help::{ManPage, completions, help, man, man_pages, path};
use super::record::RecordArgs;
use super::share::ShareArgs;
use super::{
    AuditArgs, BindAddr, CommandName, CompletionsArgs, Config, ConfigError, DoctorArgs, Effective,
    HistoryCommand, ListJobsArgs, ManArgs, McpArgs, NoteArgs, NotifyArgs, Query, ReportArgs, Requested,
    ServiceCommand, ServiceSettings, Source, TokenCommand, TopArgs, Unknown, WhichRelay, default_file, site,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, value_parser};
use nodeglass_notify::webhook::Webhook;
use nodeglass_protocol::NodeName;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The end of the help.
const AFTER_HELP: &str = "\
Each option is also an environment variable (--bind: NODEGLASS_BIND) and a key of the configuration file (bind).

Examples:
  relay                               watch your SLURM jobs; prints the link to open
  relay --demo --bind 127.0.0.1:8081  try it on a simulated cluster
  relay top                           watch in this terminal, without a browser
  relay share create --job 48213      let a teammate watch one job
  ssh -L 8080:127.0.0.1:8080 LOGIN    on your laptop, before you open the link";

/// The end of the help of `relay site`.
const AFTER_SITE_HELP: &str = "\
Examples:
  relay site                                     users connect by ssh -L 8080:127.0.0.1:8080 LOGIN
  relay site --admin-users root1,root2           these users see all jobs and nodes
  relay site --trusted-proxy www-data --proxy-user-header X-Forwarded-User --allowed-host gpus.example.org";

/// The command line besides settings.
#[derive(Parser)]
#[command(
    name = "relay",
    display_name = "nodeglass",
    version,
    about = "Shows every GPU of your SLURM jobs in a browser tab",
    after_help = AFTER_HELP,
    disable_help_subcommand = true
)]
struct Cli {
    /// Configuration file [default: ~/.config/nodeglass/config.toml]
    #[arg(long = "config", env = "NODEGLASS_CONFIG", hide_env = true, global = true, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Start a relay even if you already run one
    #[arg(long)]
    new: bool,

    #[command(subcommand)]
    subcommand: Option<Sub>,
}

#[derive(Subcommand)]
enum Sub {
    /// Print the link of your running relay again
    Link {
        /// Print a link that opens a single tab, once, within two minutes; for proxies that do not identify
        /// users
        #[arg(long)]
        tab: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: WhichRelay,
    },
    /// Give a teammate read-only access: create, list, link, revoke
    Share(ShareArgs),
    /// Give your own programs read-only access: create, list, revoke
    Token {
        #[command(subcommand)]
        command: TokenCommand,
        #[command(flatten)]
        which: WhichRelay,
    },
    /// Prepare recordings for others: cut
    Record(RecordArgs),
    /// Retry a node that refused the connection, or all waiting nodes and SLURM
    Retry {
        /// Only this node
        #[arg(value_parser = |name: &str| NodeName::new(name))]
        node: Option<NodeName>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: WhichRelay,
    },
    /// Add a note to the graphs and the report of a job; inside a job, it works without a relay
    Note(NoteArgs),
    /// Print the report of a job: GPU hours, energy, memory, faults, and advice for the next submission
    Report(ReportArgs),
    /// List, show and export past jobs
    History {
        #[command(subcommand)]
        args: HistoryCommand,
    },
    /// Print your GPU hours and your waste by week and by project
    Me(ListJobsArgs),
    /// Print the audit log: views of guests, and actions
    Audit(AuditArgs),
    /// Watch in this terminal: attaches to your running relay, or watches on its own
    ///
    /// It watches on its own if no relay runs, or if the command line names something that no relay watches: the options of
    /// relay --help about what to watch and about nodes apply here too. It stores nothing then. ? shows the keys.
    Top(TopArgs),
    #[command(flatten)]
    Query(Query),
    /// Serve an assistant over the Model Context Protocol, on standard input and output
    Mcp(McpArgs),
    /// Run one relay for all users of a cluster, as an account of its own
    ///
    /// Everyone sees their own jobs, without a key: the relay identifies users of this machine by the kernel, and others by a
    /// proxy that authenticates them (--trusted-proxy, --proxy-user-header). The options of relay --help apply, except for
    /// those about what to watch. --admin-users NAME,… shows these users everything, --account-visibility shows members of an
    /// account its jobs. docs/ADMIN.md describes the installation.
    #[command(after_help = AFTER_SITE_HELP)]
    Site,
    /// Check SLURM, SSH, the probe and this machine, and suggest fixes
    Doctor(DoctorArgs),
    /// Run the relay as a service of your systemd: install, remove, status
    Service {
        #[command(subcommand)]
        command: ServiceCommand,
    },
    /// Send a test notice by every configured channel
    Notify(NotifyArgs),
    /// Print the effective settings and the source of each
    Config {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print version, build and installation of this program, and how to update it
    Version {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the help of a command
    Help(CommandName),
    /// Print completions for a shell, such as: source <(relay completions bash)
    Completions(CompletionsArgs),
    /// Print the man page of a command, such as: relay man share | man -l -
    Man(ManArgs),
}

/// A request of the user.
#[derive(Debug)]
pub enum Request {
    /// Run a relay.
    Run {
        /// Its configuration.
        config: Box<Config>,
        /// The configuration in a form that can be compared with a running relay.
        requested: Requested,
        /// Whether it starts even if this user already runs one.
        new: bool,
    },
    /// Print what this program is.
    ShowVersion {
        /// Whether in JSON.
        json: bool,
    },
    /// Watch in the terminal.
    Top {
        /// The options of the view.
        args: TopArgs,
        /// The settings, for where no relay is attached to.
        config: Box<Config>,
        /// The settings in a form that can be compared with a running relay; `None` if the command line does not say
        /// what to watch, and any relay will do.
        requested: Option<Requested>,
    },
    /// Answer a query of the current state.
    Query {
        /// The query.
        query: Query,
        /// The settings, for where no relay is queried.
        config: Box<Config>,
        /// As [`Self::Top::requested`].
        requested: Option<Requested>,
    },
    /// Serve a client of the Model Context Protocol.
    Mcp(McpArgs),
    /// Check what a relay needs.
    Doctor {
        /// The checks, and the output format.
        args: DoctorArgs,
        /// The settings, or why they are invalid.
        settings: Result<(Box<Config>, Vec<Effective>), ConfigError>,
        /// The settings without any of the user's.
        default: Box<Config>,
    },
    /// Install or remove the service, or describe it.
    Service {
        /// The command.
        command: ServiceCommand,
        /// The settings that it is installed with; none for the other commands.
        settings: ServiceSettings,
    },
    /// Send a test notice.
    Notify {
        /// The output format.
        args: NotifyArgs,
        /// The settings.
        config: Box<Config>,
    },
    /// Print this: completions or a man page.
    Print(Vec<u8>),
    /// Write man pages into a folder.
    WriteManPages {
        /// The folder.
        folder: PathBuf,
        /// The page of each command.
        pages: Vec<ManPage>,
    },
    /// Print the effective settings.
    ShowConfig {
        /// Each setting with its values and their source.
        effective: Vec<Effective>,
        /// Whether they are printed as JSON.
        json: bool,
    },
    /// Print the link of a running relay, or one for a single tab.
    ShowLink {
        /// Whether it is for a single tab.
        for_one_tab: bool,
        /// Whether it is printed as JSON.
        json: bool,
        /// Process id of the relay, if it is named.
        relay: Option<u32>,
    },
    /// Manage shares of a running relay.
    Share(ShareArgs),
    /// Manage tokens of a running relay.
    Token {
        /// The command.
        command: TokenCommand,
        /// Process id of the relay, if it is named.
        relay: Option<u32>,
    },
    /// Prepare recordings for others.
    Record(RecordArgs),
    /// Add, change, delete or list notes.
    Note(NoteArgs),
    /// Print the report of a job, or post it.
    Report {
        /// The job, and the form of the report.
        args: ReportArgs,
        /// The URL to post to, if requested and named or configured.
        webhook: Option<Webhook>,
    },
    /// Read past jobs.
    History(HistoryCommand),
    /// Print the use of the last days.
    Me(ListJobsArgs),
    /// Print the audit log.
    Audit(AuditArgs),
    /// Retry a node of a running relay, or all that wait.
    Retry {
        /// The node.
        node: Option<NodeName>,
        /// Whether the result is printed as JSON.
        json: bool,
        /// Process id of the relay, if it is named.
        relay: Option<u32>,
    },
}

/// Error of reading a request.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Invalid usage, or the help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// A command or option that does not exist.
    #[error("{0}")]
    Unknown(Unknown),
    /// An invalid setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Reads a command line, the environment and the configuration file.
///
/// # Errors
/// [`ReadError`]; its help and version requests are errors too, as `clap` has it.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Request, ReadError> {
    let mut args: Vec<_> = args.into_iter().collect();
    // As nvgpu installs its list under this name; a link to the program is enough.
    if args.first().and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "nvl") {
        args.insert(1, "list".into());
    }
    // A command of its own: the relay's settings do not apply, and would only clutter its help.
    if args.get(1).is_some_and(|word| word == "share") {
        return Ok(Request::Share(of_own(&args)?));
    }
    if args.get(1).is_some_and(|word| word == "record") {
        return Ok(Request::Record(of_own(&args)?));
    }
    // Values are text until their layer is known, which belongs into the error about an invalid one.
    let settings =
        with_settings(Command::new("relay")).mut_args(|arg| arg.value_parser(value_parser!(String)));
    let matches = <Cli as Args>::augment_args(settings)
        .try_get_matches_from(&args)
        .map_err(|error| explained(error, &args))?;
    let cli = Cli::from_arg_matches(&matches)?;
    let read_config = || {
        let effective = effective(&matches, &file(cli.file.as_deref())?);
        Ok((config(&effective)?, effective))
    };
    match cli.subcommand {
        None => {
            let (config, effective) = read_config()?;
            site::check_own(&config)?;
            let requested = Requested::new(&config, &effective);
            Ok(Request::Run { config: Box::new(config), requested, new: cli.new })
        }
        Some(Sub::Site) => {
            let (config, effective) = read_config()?;
            let config = site::of_site(config)?;
            let requested = Requested::new(&config, &effective);
            Ok(Request::Run { config: Box::new(config), requested, new: cli.new })
        }
        Some(Sub::Service { command }) => {
            let settings = match command {
                ServiceCommand::Install { .. } => {
                    let (config, effective) = read_config()?;
                    ServiceSettings::new(&config, &effective, cli.file.as_deref())?
                }
                _ => ServiceSettings::default(),
            };
            Ok(Request::Service { command, settings })
        }
        Some(command) => command_request(command, &read_config),
    }
}

/// The request of a command, which reads the settings only if they apply to it.
fn command_request(
    command: Sub,
    read_config: &dyn Fn() -> Result<(Config, Vec<Effective>), ConfigError>,
) -> Result<Request, ReadError> {
    Ok(match command {
        Sub::Top(args) => {
            let (config, requested) = chosen(read_config()?);
            Request::Top { args, config, requested }
        }
        Sub::Query(query) => {
            let (config, requested) = chosen(read_config()?);
            Request::Query { query, config, requested }
        }
        Sub::Mcp(args) => Request::Mcp(args),
        Sub::Doctor(args) => {
            let settings = read_config().map(|(config, effective)| (Box::new(config), effective));
            Request::Doctor { args, settings, default: Box::new(default_config()?) }
        }
        Sub::Notify(args) => Request::Notify { args, config: Box::new(read_config()?.0) },
        // `read` has answered it.
        Sub::Site => return Err(no_such(&["site".to_owned()])),
        Sub::Version { json } => Request::ShowVersion { json },
        Sub::Help(name) => return Err(help(shown(), &checked(name)?).into()),
        Sub::Completions(args) => Request::Print(completions(shown(), args.shell)),
        Sub::Man(ManArgs { out: Some(folder), .. }) => {
            Request::WriteManPages { folder, pages: man_pages(shown()) }
        }
        Sub::Man(ManArgs { words, out: None }) => match man(shown(), &words) {
            Some(page) => Request::Print(page),
            None => return Err(no_such(&words)),
        },
        Sub::Config { json } => Request::ShowConfig { effective: read_config()?.1, json },
        Sub::Link { tab, json, which } => Request::ShowLink { for_one_tab: tab, json, relay: which.relay },
        Sub::Retry { node, json, which } => Request::Retry { node, json, relay: which.relay },
        Sub::Token { command, which } => Request::Token { command, relay: which.relay },
        Sub::Note(args) => Request::Note(args),
        Sub::Report(args) => Request::Report { webhook: report_webhook(&args, read_config)?, args },
        Sub::History { args } => Request::History(args),
        Sub::Me(args) => Request::Me(args),
        Sub::Audit(args) => Request::Audit(args),
        Sub::Share(args) => Request::Share(args),
        Sub::Record(args) => Request::Record(args),
        Sub::Service { command } => Request::Service { command, settings: ServiceSettings::default() },
    })
}

/// Returns the settings, also in comparable form if the command line says what to watch.
fn chosen((config, effective): (Config, Vec<Effective>)) -> (Box<Config>, Option<Requested>) {
    let is_chosen = effective.iter().any(Effective::chooses_watch);
    let requested = is_chosen.then(|| Requested::new(&config, &effective));
    (Box::new(config), requested)
}

/// Returns the URL to post a report to, if requested: the named URL, or the configured one.
fn report_webhook(
    args: &ReportArgs,
    read_config: &dyn Fn() -> Result<(Config, Vec<Effective>), ConfigError>,
) -> Result<Option<Webhook>, ConfigError> {
    match &args.webhook {
        None => Ok(None),
        Some(Some(url)) => Ok(Some(Webhook::new(url.clone(), args.webhook_format.unwrap_or_default()))),
        Some(None) => {
            let mut config = read_config()?.0;
            config.report_webhook_format = args.webhook_format.unwrap_or(config.report_webhook_format);
            Ok(config.report_webhook())
        }
    }
}

/// Reads the command line of a command of its own.
fn of_own<P: Parser>(args: &[OsString]) -> Result<P, ReadError> {
    P::try_parse_from(args.iter().skip(1)).map_err(|error| unknown(error, args))
}

/// The words of a command that exists.
fn checked(name: CommandName) -> Result<Vec<String>, ReadError> {
    if man(shown(), &name.words).is_some() { Ok(name.words) } else { Err(no_such(&name.words)) }
}

fn no_such(words: &[String]) -> ReadError {
    let args: Vec<OsString> =
        ["relay"].into_iter().chain(words.iter().map(String::as_str)).map(Into::into).collect();
    match shown().try_get_matches_from(&args) {
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => unknown(error, &args),
        _ => ReadError::Unknown(Unknown::Command { of: String::new(), name: words.join(" "), instead: None }),
    }
}

/// The settings where neither command line, environment nor file has any.
fn default_config() -> Result<Config, ConfigError> {
    let effective = |setting: Arg| {
        let default = setting.get_default_values().iter();
        let values = default.map(|value| value.to_string_lossy().into_owned()).collect();
        Effective { setting, values, source: Source::Default }
    };
    config(&settings().into_iter().map(effective).collect::<Vec<_>>())
}

/// Replaces the help by one without the values of switches, and the answer to an unknown word by a
/// suggestion.
fn explained(mut error: clap::Error, args: &[OsString]) -> ReadError {
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if matches!(error.kind(), ErrorKind::DisplayHelp) {
        return help(shown(), &words[1.min(words.len())..]).into();
    }
    let arg = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if arg.starts_with("--webhook ") {
        // The URL may be a secret, so the error does not repeat it.
        error.insert(ContextKind::InvalidValue, ContextValue::String("…".to_owned()));
    }
    unknown(error, args)
}

/// Replaces the answer to an unknown word by a suggestion.
fn unknown(error: clap::Error, args: &[OsString]) -> ReadError {
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let command = shown();
    let path = path(&command, words.iter().skip(1).map(String::as_str));
    let named = path.iter().try_fold(&command, |command, word| command.find_subcommand(word));
    let options = named.into_iter().flat_map(Command::get_arguments).filter_map(Arg::get_long);
    let options: Vec<_> = options.map(str::to_owned).collect();
    Unknown::of(&error, &words, &path, &options).map_or(ReadError::Usage(error), ReadError::Unknown)
}

/// The command line as it is shown: clap would show a switch that accepts a value as `--demo[=<BOOL>]`, so that
/// this command has plain switches. The settings apply to some commands only, and would clutter the help of all.
pub(super) fn shown() -> Command {
    let command = <Cli as Args>::augment_args(Config::augment_args(Command::new("relay"))).mut_args(|arg| {
        let arg = arg.hide_env(true);
        match is_switch(&arg) {
            true => {
                arg.num_args(0).action(ArgAction::SetTrue).value_parser(value_parser!(bool)).required(false)
            }
            false => arg,
        }
    });
    command.mut_arg("file", |arg| arg.global(false))
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
        return Err(list.error("takes a single value, not a list"));
    }
    // Values of all layers are separated and complete.
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
