//! Answers to commands and options that do not exist: what was probably meant.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use nodeglass_api::JobSelector;
use std::fmt;

/// A command or option that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A command.
    Command {
        /// The command that it would belong to; empty for one of the relay.
        of: String,
        /// The word as it was written.
        name: String,
        /// The suggestion.
        instead: Option<String>,
    },
    /// A command that would stop the relay.
    Stop {
        /// The word as it was written.
        name: String,
    },
    /// An argument that is not an option, of a command without such.
    Argument {
        /// The command.
        of: String,
        /// The argument.
        name: String,
        /// The suggestion.
        instead: Option<String>,
    },
    /// An option.
    Option {
        /// The command that was to have it; empty for the relay itself.
        of: String,
        /// With its dashes.
        name: String,
        /// The suggestion.
        instead: Option<String>,
    },
}

/// Commands that stop other servers.
const STOP_NAMES: [&str; 7] = ["stop", "kill", "quit", "exit", "end", "down", "shutdown"];
/// Options of other servers that mean `--bind`.
const BIND_NAMES: [&str; 7] = ["--port", "--listen", "--address", "--addr", "--ip", "--http-port", "-p"];

impl Unknown {
    /// The answer to an error of the command line, if it is about an unknown word. `args` is the whole
    /// command line, `path` the command that it names, and `options` are the long options of this command.
    pub(super) fn of(
        error: &clap::Error,
        args: &[String],
        path: &[String],
        options: &[String],
    ) -> Option<Self> {
        let of = path.join(" ");
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.clone()),
            // The most similar is the last.
            Some(ContextValue::Strings(texts)) => texts.last().cloned(),
            _ => None,
        };
        match error.kind() {
            ErrorKind::InvalidSubcommand => {
                let name = text(ContextKind::InvalidSubcommand)?;
                let similar = || {
                    let words = [path, &[text(ContextKind::SuggestedSubcommand)?]].concat();
                    Some(format!("did you mean `relay {}`?", words.join(" ")))
                };
                if of.is_empty() && STOP_NAMES.contains(&name.as_str()) {
                    return Some(Self::Stop { name });
                }
                let usual = if of.is_empty() { usual_command(&name) } else { None };
                Some(Self::Command { instead: usual.or_else(similar), of, name })
            }
            ErrorKind::UnknownArgument => {
                let name = text(ContextKind::InvalidArg)?;
                if !name.starts_with('-') {
                    let instead = filter(&name, options);
                    return Some(Self::Argument { of, name, instead });
                }
                let value = || {
                    let in_word = args.iter().find_map(|arg| arg.strip_prefix(&name)?.strip_prefix('='));
                    let next = || args.iter().skip_while(|arg| **arg != name).nth(1).map(String::as_str);
                    in_word.or_else(next)
                };
                let similar = || Some(format!("did you mean {}?", text(ContextKind::SuggestedArg)?));
                let instead = match of.is_empty() && BIND_NAMES.contains(&name.as_str()) {
                    true => Some(format!("use --bind {}", address(value()))),
                    false => similar(),
                };
                Some(Self::Option { of, name, instead })
            }
            _ => None,
        }
    }
}

impl Unknown {
    /// The answer, given the process ids of the user's running relays.
    pub fn answer(&self, pids: &[u32]) -> String {
        let (what, of, name, instead) = match self {
            Self::Command { of, name, instead } => ("command", of.as_str(), name, instead.clone()),
            Self::Stop { name } => ("command", "", name, Some(stop_hint(pids))),
            Self::Argument { of, name, instead } => ("argument", of.as_str(), name, instead.clone()),
            Self::Option { of, name, instead } => ("option", of.as_str(), name, instead.clone()),
        };
        let (of, help) = match of {
            "" => (String::new(), "relay --help".to_owned()),
            of => (format!(" of `relay {of}`"), format!("relay help {of}")),
        };
        let instead = instead.unwrap_or_else(|| format!("`{help}` lists them all"));
        match self {
            Self::Argument { .. } => format!("{name} is not an argument{of}; {instead}"),
            _ => format!("there is no {what} {name}{of}; {instead}"),
        }
    }
}

/// Returns the option that filters by what an argument names.
fn filter(name: &str, options: &[String]) -> Option<String> {
    let option = if name.parse::<JobSelector>().is_ok() { "job" } else { "node" };
    options.iter().any(|known| known == option).then(|| format!("use --{option} {name}"))
}

/// Returns the suggestion for a command that other programs have.
fn usual_command(name: &str) -> Option<String> {
    let instead = match name {
        "start" | "run" | "serve" | "up" => "`relay` alone starts one",
        "restart" => "press Ctrl-C in the relay's terminal and start `relay` again",
        "status" | "ps" | "list" | "ls" | "url" | "open" => "`relay link` lists your running relays",
        "version" => "use `relay --version`",
        "demo" => "use `relay --demo`",
        "nodes" | "gpus" | "smi" => "`relay list` lists the GPUs of each node",
        "squeue" => "use `relay jobs`",
        "usage" | "stats" => "use `relay me`",
        "unshare" | "revoke" => "use `relay share revoke`",
        "explain" => "use `relay findings explain`",
        "silence" => "use `relay findings silence`",
        "silences" => "use `relay findings silences`",
        _ => return None,
    };
    Some(instead.to_owned())
}

/// Returns how to stop a relay, given the process ids of the running ones.
pub fn stop_hint(pids: &[u32]) -> String {
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    match pids.as_slice() {
        [] => "press Ctrl-C in the relay's terminal".to_owned(),
        pids => format!("press Ctrl-C in the relay's terminal, or run `kill {}`", pids.join(" ")),
    }
}

/// The value of `--bind` that a port or an address of another program's option stands for.
fn address(value: Option<&str>) -> String {
    match value {
        Some(port) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
        Some(addr) if addr.parse::<super::BindAddr>().is_ok() => addr.to_owned(),
        _ => "127.0.0.1:PORT".to_owned(),
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.answer(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;

    fn answer(line: &str) -> String {
        let args = ["relay"].into_iter().chain(line.split_whitespace()).map(Into::into);
        read(args).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_word_is_answered_with_what_was_meant() {
        for (line, expected) in [
            ("frobnicate", "there is no command frobnicate; `relay --help` lists them all"),
            ("confg", "there is no command confg; did you mean `relay config`?"),
            ("lsit", "there is no command lsit; did you mean `relay list`?"),
            ("stop", "there is no command stop; press Ctrl-C in the relay's terminal"),
            ("status", "there is no command status; `relay link` lists your running relays"),
            ("--port 9", "there is no option --port; use --bind 127.0.0.1:9"),
            ("--port=9000", "there is no option --port; use --bind 127.0.0.1:9000"),
            ("--demo --port 9", "there is no option --port; use --bind 127.0.0.1:9"),
            ("--listen [::1]:80", "there is no option --listen; use --bind [::1]:80"),
            ("--ip", "there is no option --ip; use --bind 127.0.0.1:PORT"),
            ("--bindd x", "there is no option --bindd; did you mean --bind?"),
            ("--frobnicate", "there is no option --frobnicate; `relay --help` lists them all"),
            // Of a command, whose help lists them, and which does not listen.
            (
                "jobs --frobnicate",
                "there is no option --frobnicate of `relay jobs`; `relay help jobs` lists them all",
            ),
            (
                "wait 7 --port 9",
                "there is no option --port of `relay wait`; `relay help wait` lists them all",
            ),
            ("token stop", "there is no command stop of `relay token`; `relay help token` lists them all"),
            ("token lst", "there is no command lst of `relay token`; did you mean `relay token list`?"),
            (
                "share create --jobs 17",
                "there is no option --jobs of `relay share create`; did you mean --job?",
            ),
            ("share lst", "there is no command lst of `relay share`; did you mean `relay share list`?"),
            ("record cuts", "there is no command cuts of `relay record`; did you mean `relay record cut`?"),
            (
                "record cut --frobnicate",
                "there is no option --frobnicate of `relay record cut`; `relay help record cut` lists them all",
            ),
            ("usage", "there is no command usage; use `relay me`"),
            ("help jbos", "there is no command jbos; did you mean `relay jobs`?"),
            ("jobs 48213", "48213 is not an argument of `relay jobs`; use --job 48213"),
            ("ps 48440_16", "48440_16 is not an argument of `relay ps`; use --job 48440_16"),
            ("list gpu-h01", "gpu-h01 is not an argument of `relay list`; use --node gpu-h01"),
            ("me alice", "alice is not an argument of `relay me`; `relay help me` lists them all"),
            ("list --jsn", "there is no option --jsn of `relay list`; did you mean --json?"),
        ] {
            assert_eq!(answer(line), expected, "{line}");
        }
    }

    #[test]
    fn an_invalid_number_is_answered_with_the_valid_ones() {
        for (line, expected) in [
            ("me --days x", "expected a whole number from 1 to 36500\n"),
            ("me --days 0", "expected a whole number from 1 to 36500\n"),
            ("available -l 0", "expected a whole number of at least 1\n"),
        ] {
            assert!(answer(line).contains(expected), "{}", answer(line));
        }
    }

    #[test]
    fn the_processes_to_end_are_named() {
        assert_eq!(super::stop_hint(&[7, 8]), "press Ctrl-C in the relay's terminal, or run `kill 7 8`");
    }
}
