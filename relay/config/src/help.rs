//! Products of the command line besides its parser: help, completions and man pages. `command` is the command line as
//! it is shown.

use super::{Config, Query};
use clap::{Args, Command, Subcommand as _};
use clap_complete::Shell;
use nodeglass_platform::wrap;
use std::fmt::Write as _;

/// The commands in the order of the help; [`groups`] adds queries that are not listed.
const GROUPS: &[(&str, &[&str])] = &[
    ("See GPUs and jobs", &["findings", "top", "list", "jobs", "ps", "gpu"]),
    ("Find and wait", &["available", "wait-free", "fit", "wait"]),
    ("After a job", &["report", "history", "me", "note", "record"]),
    ("Share", &["link", "share", "token", "mcp", "audit"]),
    ("Set up and repair", &["doctor", "service", "site", "notify", "retry", "config", "version"]),
    ("Learn", &["help", "completions", "man"]),
];
/// Commands to which the settings of `relay` apply, besides queries, which watch by themselves where no relay runs.
const WITH_SETTINGS: &[&str] = &["top", "doctor", "notify", "config", "service", "site"];
/// clap's own template, with the commands in groups.
const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";
/// Width of the help, and where the descriptions of commands begin.
const WIDTH: usize = 80;
const INDENT: usize = 15;

/// The help of the relay or of the command that the line names, as clap returns it.
pub(super) fn help(mut command: Command, words: &[String]) -> clap::Error {
    let path = path(&command, words.iter().map(String::as_str));
    if path.is_empty() {
        let commands = grouped(&command);
        command = command
            .mut_subcommands(|command| command.hide(true))
            .help_template(TEMPLATE)
            .override_usage("relay [OPTIONS] [COMMAND]")
            .before_help(commands);
    }
    let line = ["relay"].into_iter().chain(path.iter().map(String::as_str)).chain(["--help"]);
    let help = command.try_get_matches_from(line);
    help.expect_err("--help is answered with an error")
}

/// The command, and the command of that, that the words of a command line name.
pub(super) fn path<'a>(command: &Command, words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let (mut at, mut path) = (command, Vec::new());
    for word in words {
        if let Some(next) = at.find_subcommand(word) {
            at = next;
            path.push(next.get_name().to_owned());
        }
    }
    path
}

/// The names of all queries.
fn queries() -> Vec<String> {
    let command = Query::augment_subcommands(Command::new("relay"));
    command.get_subcommands().map(|query| query.get_name().to_owned()).collect()
}

/// The commands in the order of the help. A query that no group lists is the last of the first group.
fn groups() -> Vec<(&'static str, Vec<String>)> {
    let named = |(heading, names): &(&'static str, &[&str])| {
        (*heading, names.iter().map(|name| (*name).to_owned()).collect())
    };
    let mut groups: Vec<(&str, Vec<String>)> = GROUPS.iter().map(named).collect();
    let is_listed = |query: &String| GROUPS.iter().any(|(_, names)| names.contains(&query.as_str()));
    if let Some((_, first)) = groups.first_mut() {
        first.extend(queries().into_iter().filter(|query| !is_listed(query)));
    }
    groups
}

/// The list of commands.
fn grouped(command: &Command) -> String {
    let mut out = String::new();
    for (heading, names) in groups() {
        let _ = writeln!(out, "{heading}:");
        for name in names {
            let about = command.find_subcommand(&name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            for (at, line) in wrap::words(&about, WIDTH - INDENT).into_iter().enumerate() {
                let name = if at == 0 { name.as_str() } else { "" };
                let _ = writeln!(out, "  {name:<width$}{line}", width = INDENT - 2);
            }
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}

/// The completions for a shell.
pub(super) fn completions(mut command: Command, shell: Shell) -> Vec<u8> {
    let settings: Vec<_> = Config::augment_args(Command::new("relay")).get_arguments().cloned().collect();
    for name in WITH_SETTINGS.iter().map(|name| (*name).to_owned()).chain(queries()) {
        let plain = settings.iter().filter_map(|setting| {
            command.get_arguments().find(|arg| arg.get_id() == setting.get_id()).cloned()
        });
        let plain: Vec<_> = plain.collect();
        command = command.mut_subcommand(name, |command| command.args(plain));
    }
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, "relay", &mut out);
    out
}

/// Returns the man page of the relay or one of its commands, in roff; `None` if the command does not exist.
pub(super) fn man(command: Command, words: &[String]) -> Option<Vec<u8>> {
    let mut command = command.name("relay").display_name("relay");
    command.build();
    let mut at = &command;
    for word in words {
        at = at.find_subcommand(word)?;
    }
    let name = ["relay"].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    let page = at.clone().display_name(name.clone());
    let source = format!("nodeglass {}", env!("CARGO_PKG_VERSION"));
    let mut out = Vec::new();
    clap_mangen::Man::new(page)
        .title(name)
        .section("1")
        .source(source)
        .manual("nodeglass")
        .render(&mut out)
        .ok()?;
    Some(out)
}

/// A man page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManPage {
    /// Name of its file, such as `relay-share-create.1`.
    pub file: String,
    /// The page in roff.
    pub roff: Vec<u8>,
}

/// The man pages of the relay and of every command.
pub(super) fn man_pages(command: Command) -> Vec<ManPage> {
    let paths = paths(&command, &[]);
    let page = |words: Vec<String>| {
        let file = format!("{}.1", [&["relay".to_owned()][..], &words].concat().join("-"));
        Some(ManPage { file, roff: man(command.clone(), &words)? })
    };
    paths.into_iter().filter_map(page).collect()
}

/// A command and all below it, each as its words.
fn paths(command: &Command, words: &[String]) -> Vec<Vec<String>> {
    let below = command.get_subcommands().flat_map(|below| {
        let words = [words, &[below.get_name().to_owned()]].concat();
        paths(below, &words)
    });
    std::iter::once(words.to_vec()).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::super::command::{settings, shown};
    use super::super::effective::variable;
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_command_is_in_one_group_and_the_help_fits_80_columns() {
        let mut listed: Vec<_> = groups().into_iter().flat_map(|(_, names)| names).collect();
        let command = shown();
        let mut all: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all, "each command that is no query has a place in GROUPS");
        for line in grouped(&command).lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        let help = help(shown(), &[]).to_string();
        assert!(help.contains("After a job:\n  report ") && help.contains("Listen:\n"), "{help}");
    }

    #[test]
    fn every_setting_is_in_the_table_of_the_document() {
        let document = include_str!("../../../docs/OPERATING.md");
        for setting in settings().iter().filter(|setting| setting.get_env().is_some()) {
            let (name, variable) = (setting.get_long().unwrap_or_default(), variable(setting));
            assert_eq!(variable, format!("NODEGLASS_{}", name.to_uppercase().replace('-', "_")));
            let is_row = |line: &&str| {
                line.starts_with(&format!("| `--{name}")) && line.contains(&format!("`{variable}`"))
            };
            assert!(
                document.lines().any(|line| is_row(&line)),
                "docs/OPERATING.md lists no --{name} with {variable}"
            );
        }
    }

    #[test]
    fn the_help_of_a_nested_command_is_its_own() {
        let help_of = |line| help(shown(), &words(line)).to_string();
        assert!(help_of("history export --help").contains("Usage: relay history export"));
        assert!(help_of("--bind x history").contains("Usage: relay history <COMMAND>"));
        assert!(help_of("share create").contains("Usage: relay share create"));
    }

    #[test]
    fn completions_contain_commands_of_commands_and_their_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(completions(shown(), shell)).unwrap();
            for word in ["share", "create", "expires", "cut", "history-mem", "doctor"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn every_command_has_a_man_page() {
        let page = String::from_utf8(man(shown(), &words("share create")).unwrap()).unwrap();
        assert!(page.contains(".TH relay-share-create 1") && page.contains("expires"), "{page}");
        let page = String::from_utf8(man(shown(), &[]).unwrap()).unwrap();
        assert!(page.contains(".TH relay 1") && page.contains("history\\-mem"), "{page}");
        assert_eq!(man(shown(), &words("share frobnicate")), None);
        let pages = man_pages(shown());
        for file in ["relay.1", "relay-top.1", "relay-share-create.1", "relay-history-export.1"] {
            assert!(pages.iter().any(|page| page.file == file && page.roff.starts_with(b".ie")), "{file}");
        }
    }
}
