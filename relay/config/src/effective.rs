//! The effective settings, each with the layer that its value comes from.

use super::{ConfigError, NODES, SWITCH, WATCH};
use clap::{Arg, ArgAction};
use std::fmt;
use std::path::PathBuf;

/// The layer of a value's source, nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag on the command line.
    Flag,
    /// An environment variable.
    Env,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The default.
    Default,
}

/// One line of `relay config`.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The setting.
    pub setting: Arg,
    /// Its values; the default where no layer has any.
    pub values: Vec<String>,
    /// The source.
    pub source: Source,
}

impl Effective {
    /// The name of the setting: its flag without dashes, and its key in the file.
    pub fn name(&self) -> &str {
        self.setting.get_long().expect("every setting has a flag")
    }

    /// Its value as it would be written in the file.
    pub fn value(&self) -> String {
        let quoted: Vec<_> = self.values.iter().map(|value| format!("{value:?}")).collect();
        match (self.is_list(), is_switch(&self.setting)) {
            (true, _) => format!("[{}]", quoted.join(", ")),
            (false, true) => self.values.concat(),
            (false, false) => quoted.first().cloned().unwrap_or_else(|| "\"\"".to_owned()),
        }
    }

    /// Returns whether this command line sets it, and it says what to watch or how.
    pub(super) fn chooses_watch(&self) -> bool {
        let headings = [WATCH, NODES];
        let is_about_it = self.setting.get_help_heading().is_some_and(|name| headings.contains(&name));
        self.source == Source::Flag && (is_about_it || self.name() == "replay")
    }

    /// Returns whether it may have several values.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.setting.get_action(), ArgAction::Append)
    }

    /// An error about its value, with the place where the user can change it.
    pub(super) fn error(&self, why: impl ToString) -> ConfigError {
        let name = self.name();
        let place = match &self.source {
            Source::Flag => format!("--{name}"),
            Source::Env => variable(&self.setting),
            Source::File { path, line } => format!("{}:{line}: {name}", path.display()),
            Source::Default => format!("default of {name}"),
        };
        ConfigError::Value { place, why: why.to_string() }
    }
}

pub(super) fn is_switch(setting: &Arg) -> bool {
    setting.get_value_names().is_some_and(|names| names == [SWITCH])
}

pub(super) fn variable(setting: &Arg) -> String {
    setting.get_env().unwrap_or_default().to_string_lossy().into_owned()
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Env => f.write_str("environment"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The effective settings as a table, in the form of a configuration file with the source as a comment.
pub fn table(effective: &[Effective]) -> String {
    let lines: Vec<_> = effective
        .iter()
        .map(|setting| (format!("{} = {}", setting.name(), setting.value()), &setting.source))
        .collect();
    let width = lines.iter().map(|(text, _)| text.chars().count()).max().unwrap_or(0).min(60);
    lines.iter().map(|(text, source)| format!("{text:width$}  # {source}\n")).collect()
}

/// The effective settings for programs: by name, the values as text, and their source.
pub fn json(effective: &[Effective]) -> serde_json::Value {
    let setting = |setting: &Effective| {
        let value = match (setting.is_list(), is_switch(&setting.setting)) {
            (true, _) => serde_json::json!(setting.values),
            (false, true) => serde_json::json!(setting.values.iter().any(|value| value == "true")),
            (false, false) => serde_json::json!(setting.values.first()),
        };
        let source = setting.source.to_string();
        (setting.name().to_owned(), serde_json::json!({ "value": value, "source": source }))
    };
    serde_json::Value::Object(effective.iter().map(setting).collect())
}
