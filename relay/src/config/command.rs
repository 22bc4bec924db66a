//! The command line, generated from the list of settings and read together with environment and file.

use super::bind::BindAddrError;
use super::file::File;
use super::share::{self, ShareOrder};
use super::{BindAddr, Config, ConfigError, Effective, Source, TlsFiles, Watch, default_file, value};
use crate::access::peer::Peer;
use crate::access::proxies::Proxies;
use crate::access::user;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use nodeglass_protocol::{NodeName, Text};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One setting: `name` is its flag and its key in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, in kebab case.
    pub name: &'static str,
    /// Its environment variable: the name in capitals, after `NODEGLASS_`.
    pub variable: &'static str,
    /// The placeholder of its value in the help; empty for a switch.
    pub value: &'static str,
    /// The default in the syntax of the file; empty for none.
    pub default: &'static str,
    /// Whether it may be repeated.
    pub many: bool,
    /// One line of help.
    pub help: &'static str,
}

/// Every setting, in the order of the help.
#[rustfmt::skip]
pub static SETTINGS: [Setting; 18] = [
    Setting { name: "bind", variable: "NODEGLASS_BIND",
        value: "ADDR", default: "127.0.0.1:8080", many: true,
        help: "Listen here: 127.0.0.1:PORT, [::1]:PORT, unix:PATH, or any address with --tls-cert and --tls-key" },
    Setting { name: "tls-cert", variable: "NODEGLASS_TLS_CERT",
        value: "FILE", default: "", many: false,
        help: "Certificate (PEM) for addresses that other machines can reach" },
    Setting { name: "tls-key", variable: "NODEGLASS_TLS_KEY",
        value: "FILE", default: "", many: false,
        help: "Private key (PEM), readable by you only" },
    Setting { name: "demo", variable: "NODEGLASS_DEMO",
        value: "", default: "false", many: false,
        help: "Show a scripted cluster, without SLURM, SSH or GPUs" },
    Setting { name: "scenario", variable: "NODEGLASS_SCENARIO",
        value: "WHICH", default: "", many: false,
        help: "Show this scripted cluster: demo, large (one job of 512 GPUs), or a file" },
    Setting { name: "local", variable: "NODEGLASS_LOCAL",
        value: "", default: "false", many: false,
        help: "Watch this machine, even if it has SLURM" },
    Setting { name: "user", variable: "NODEGLASS_USER",
        value: "NAME", default: "", many: false,
        help: "User whose jobs to show [default: you]" },
    Setting { name: "slurm-interval", variable: "NODEGLASS_SLURM_INTERVAL",
        value: "TIME", default: "15s", many: false,
        help: "Interval between polls of SLURM, at least 5s" },
    Setting { name: "launcher", variable: "NODEGLASS_LAUNCHER",
        value: "HOW", default: "auto", many: false,
        help: "How to start probes: auto, ssh2 or local" },
    Setting { name: "probe", variable: "NODEGLASS_PROBE",
        value: "PATH", default: "", many: false,
        help: "The node-probe to run [default: next to relay]" },
    Setting { name: "allowed-host", variable: "NODEGLASS_ALLOWED_HOST",
        value: "NAME", default: "", many: true,
        help: "Additional host name that browsers may use, besides localhost" },
    Setting { name: "base-path", variable: "NODEGLASS_BASE_PATH",
        value: "PATH", default: "", many: false,
        help: "The path below which a proxy serves the relay, such as /rnode/login1/8080" },
    Setting { name: "trusted-proxy", variable: "NODEGLASS_TRUSTED_PROXY",
        value: "WHO", default: "", many: true,
        help: "Trust this proxy's forwarded headers: its user on this machine, or its address if it connects over TLS" },
    Setting { name: "proxy-user-header", variable: "NODEGLASS_PROXY_USER_HEADER",
        value: "NAME", default: "", many: false,
        help: "Accept your key through trusted proxies that send your login name in this header, such as X-Forwarded-User" },
    Setting { name: "trust-uid", variable: "NODEGLASS_TRUST_UID",
        value: "WHO", default: "", many: true,
        help: "Also accept your key from connections of this user: a login name or uid, unknown (the kernel cannot say, as in containers), or remote (other machines, over TLS)" },
    Setting { name: "read-only", variable: "NODEGLASS_READ_ONLY",
        value: "", default: "false", many: false,
        help: "Disable actions: signals to processes and job control" },
    Setting { name: "persist-shares", variable: "NODEGLASS_PERSIST_SHARES",
        value: "", default: "false", many: false,
        help: "Store shares over a restart, without their keys, in ~/.local/state/nodeglass" },
    Setting { name: "log", variable: "NODEGLASS_LOG",
        value: "LEVEL", default: "warn", many: false,
        help: "Log level: error, warn, info, debug or trace" },
];

impl Setting {
    /// Its flag. A switch also accepts `--demo=false`, so that a flag can override the file.
    fn arg(&'static self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).env(self.variable).hide_env(true).global(true);
        if self.value.is_empty() {
            let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
            return arg.value_name("BOOL").help(self.help);
        }
        let arg = arg.value_name(self.value).help(match self.default {
            "" => self.help.to_owned(),
            default => format!("{} [default: {default}]", self.help),
        });
        if self.many { arg.action(ArgAction::Append).value_delimiter(',') } else { arg }
    }
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
/// [`ReadError`]; its help and version requests are errors too, as `clap` has it.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Request, ReadError> {
    let args: Vec<_> = args.into_iter().collect();
    // A command of its own: the relay's settings do not apply, and would only clutter its help.
    if args.get(1).is_some_and(|word| word == "share") {
        return Ok(Request::Share(share::read(args.into_iter().skip(1))?));
    }
    let matches = command().try_get_matches_from(args)?;
    if let Some(("link", link)) = matches.subcommand() {
        return Ok(Request::ShowLink { for_one_tab: link.get_flag("tab") });
    }
    if let Some(("retry", given)) = matches.subcommand() {
        return Ok(Request::Retry(given.get_one("node").cloned()));
    }
    let layers = Layers { file: file(&matches)?, matches: &matches };
    let config = layers.config()?;
    match matches.subcommand_name() {
        Some(_) => {
            Ok(Request::ShowConfig(SETTINGS.iter().map(|setting| layers.effective(setting)).collect()))
        }
        None => Ok(Request::Run { config: Box::new(config), new: matches.get_flag("new") }),
    }
}

fn command() -> Command {
    Command::new("relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Shows every GPU of your SLURM jobs in a browser tab")
        .after_help(
            "Each option is also a variable (NODEGLASS_BIND) and a key of the configuration file (bind).\n\
             On your laptop: ssh -L 8080:127.0.0.1:8080 LOGIN-NODE, then open the link that relay prints.",
        )
        .args(SETTINGS.iter().map(Setting::arg))
        .arg(
            Arg::new("config")
                .long("config")
                .env("NODEGLASS_CONFIG")
                .hide_env(true)
                .global(true)
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("The configuration file [default: ~/.config/nodeglass/config.toml]"),
        )
        .arg(
            Arg::new("new")
                .long("new")
                .action(ArgAction::SetTrue)
                .help("Start a relay even if one of yours runs already"),
        )
        .subcommand(Command::new("config").about("Print the effective settings and where each comes from"))
        .subcommand(Command::new("share").about("Give a teammate read-only access: create, list, link, revoke"))
        .subcommand(Command::new("link").about("Print the link of your running relay again").arg(
            Arg::new("tab").long("tab").action(ArgAction::SetTrue).help(
                "Print a link that opens one tab, once, within two minutes: for proxies that do not identify users",
            ),
        ))
        .subcommand(
            Command::new("retry")
                .about("Retry a node that refused, or all waiting nodes and SLURM")
                .arg(Arg::new("node").value_name("NODE").value_parser(|name: &str| NodeName::new(name))),
        )
        .disable_help_subcommand(true)
}

fn file(matches: &ArgMatches) -> Result<File, ConfigError> {
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        return File::open(path, true);
    }
    let (xdg, home) = (env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
    match default_file(xdg.as_deref().map(Path::new), home.as_deref().map(Path::new)) {
        Some(path) => File::open(&path, false),
        None => Ok(File::default()),
    }
}

/// The login name of the current user.
fn own_name() -> Option<Text> {
    Peer::owner().uid().and_then(user::name_of)
}

fn to_message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The layers that a value may come from.
struct Layers<'a> {
    matches: &'a ArgMatches,
    file: File,
}

impl Layers<'_> {
    /// The values of a setting from the nearest layer that has any. "" or [] requests the default.
    fn find(&self, setting: &'static Setting) -> (Vec<String>, Source) {
        let (mut values, source) = self.value_of(setting).unwrap_or((Vec::new(), Source::Default));
        values.retain(|value| !value.is_empty());
        if values.is_empty() && !setting.default.is_empty() {
            values.push(setting.default.to_owned());
        }
        (values, source)
    }

    fn value_of(&self, setting: &'static Setting) -> Option<(Vec<String>, Source)> {
        let source = match self.matches.value_source(setting.name) {
            Some(ValueSource::CommandLine) => Source::Flag,
            Some(ValueSource::EnvVariable) => Source::Env,
            _ => return self.file.find(setting.name),
        };
        let values = self.matches.get_many::<String>(setting.name).unwrap_or_default();
        Some((values.cloned().collect(), source))
    }

    fn all<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, ConfigError> {
        let setting =
            SETTINGS.iter().find(|setting| setting.name == name).expect("only settings of the list are read");
        let (values, source) = self.find(setting);
        let wrong = |why| ConfigError::Value { place: source.place(setting), why };
        if values.len() > 1 && !setting.many {
            return Err(wrong("it takes one value, not a list".to_owned()));
        }
        values.iter().map(|raw| parse(raw).map_err(wrong)).collect()
    }

    fn one<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        Ok(self.all(name, parse)?.pop())
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let on = |name| Ok::<_, ConfigError>(self.one(name, value::switch)?.unwrap_or_default());
        let scenario = self.one("scenario", value::scenario)?;
        let watch = match (on("demo")? || scenario.is_some(), on("local")?) {
            (true, true) => return Err(ConfigError::DemoAndLocal),
            (true, false) => Watch::Demo,
            (false, true) => Watch::Local,
            (false, false) => Watch::Auto,
        };
        let path = |name| self.one(name, |raw| Ok(PathBuf::from(raw)));
        let tls = match (path("tls-cert")?, path("tls-key")?) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
            (None, None) => None,
            _ => return Err(ConfigError::HalfTls),
        };
        let allowed_hosts = self.all("allowed-host", value::host)?;
        let bind = |raw: &str| {
            let addr = raw.parse::<BindAddr>()?;
            addr.check(tls.is_some(), !allowed_hosts.is_empty())?;
            Ok::<_, BindAddrError>(addr)
        };
        let bind = self.all("bind", |raw| bind(raw).map_err(to_message))?;
        if tls.is_some() && !bind.iter().any(|addr| matches!(addr, BindAddr::Tls(_))) {
            return Err(ConfigError::UnusedTls);
        }
        let (proxies, header) =
            (self.all("trusted-proxy", value::proxy)?, self.one("proxy-user-header", value::header)?);
        let proxies = match header {
            Some(_) if proxies.is_empty() => return Err(ConfigError::HeaderWithoutProxy),
            Some(header) => Proxies::new(proxies).naming_visitors(header, own_name()),
            None => Proxies::new(proxies),
        };
        Ok(Config {
            bind,
            tls,
            watch,
            scenario: scenario.unwrap_or_default(),
            user: self.one("user", value::user)?,
            slurm_interval: self
                .one("slurm-interval", value::slurm_interval)?
                .unwrap_or(super::MIN_SLURM_INTERVAL),
            probe: self.one("probe", value::probe)?,
            allowed_hosts,
            trusted: self.all("trust-uid", value::trusted)?,
            base_path: self.one("base-path", |raw| raw.parse().map_err(to_message))?.unwrap_or_default(),
            proxies,
            persist_shares: on("persist-shares")?,
            launcher: self.one("launcher", value::launcher)?.unwrap_or_default(),
            read_only: on("read-only")?,
            log: self.one("log", value::log)?.unwrap_or_default(),
        })
    }

    fn effective(&self, setting: &'static Setting) -> Effective {
        let (values, source) = self.find(setting);
        let quoted: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
        let value = match (setting.many, setting.value.is_empty()) {
            (true, _) => format!("[{}]", quoted.join(", ")),
            (false, true) => values.concat(),
            (false, false) => quoted.first().cloned().unwrap_or_else(|| "\"\"".to_owned()),
        };
        Effective { setting, value, source }
    }
}
