//! Reads the configuration file key by key, so that errors have a line number and a suggestion.

use super::value::nearest;
use super::{ConfigError, Source, settings};
use nodeglass_access::safe_path;
use nodeglass_platform::regular_file;
use std::collections::BTreeMap;
use std::env;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Maximum length of a file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The content of a file: values of each setting as text, with line numbers.
#[derive(Debug, Default)]
pub(super) struct File {
    path: PathBuf,
    settings: BTreeMap<String, (Vec<String>, usize)>,
}

impl File {
    /// Reads a file. A missing file is empty unless it was named explicitly.
    pub(super) fn open(path: &Path, by_name: bool) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        // A file named explicitly may be a pipe: `--config <(…)`.
        let opened = if by_name { std::fs::File::open(path) } else { regular_file::open(path) };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !by_name => return Ok(Self::default()),
            Err(error) => return Err(unreadable(error)),
        };
        // A user who can write this file can have the relay accept their key, or run their probe.
        let home = env::var_os("HOME").map(PathBuf::from);
        let found = file.metadata().map_err(unreadable)?;
        safe_path::check_file(path, &found, home.as_deref())
            .map_err(|why| ConfigError::Exposed { path: path.to_owned(), why })?;
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(unreadable(std::io::Error::other("it is larger than 1 MiB; is it the right file?")));
        }
        Self::parse(path, &text)
    }

    /// Parses the text of a file.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            why: error.message().to_owned(),
        })?;
        let mut file = Self { path: path.to_owned(), settings: BTreeMap::new() };
        let known = settings();
        for (key, value) in table.get_ref() {
            let (name, line) = (key.get_ref().as_ref(), line_of(text, key.span().start));
            if !known.iter().any(|setting| setting.get_long() == Some(name)) {
                return Err(unknown(path, line, name));
            }
            let values = texts(value.get_ref()).ok_or_else(|| ConfigError::Value {
                place: format!("{}:{line}: {name}", path.display()),
                why: "the value must be a string, a number, true, false, or a list of strings".to_owned(),
            })?;
            file.settings.insert(name.to_owned(), (values, line));
        }
        Ok(file)
    }

    /// The value of a setting.
    pub(super) fn find(&self, name: &str) -> Option<(Vec<String>, Source)> {
        let (values, line) = self.settings.get(name)?;
        Some((values.clone(), Source::File { path: self.path.clone(), line: *line }))
    }
}

fn unknown(path: &Path, line: usize, key: &str) -> ConfigError {
    let key: String = key.chars().take(60).collect();
    let (kebab, known) = (key.replace('_', "-"), settings());
    let names = known.iter().filter_map(|setting| setting.get_long());
    let nearest = nearest(&kebab, names).map(str::to_owned);
    ConfigError::UnknownKey { path: path.to_owned(), line, key, nearest }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A value as text, in the syntax of a flag.
fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    match value {
        DeValue::String(text) => Some(vec![text.to_string()]),
        DeValue::Boolean(value) => Some(vec![value.to_string()]),
        DeValue::Integer(number) => Some(vec![number.to_string()]),
        DeValue::Array(items) => items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, String> {
        File::parse(Path::new("/etc/ng.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn values_of_every_kind_become_text_with_their_line() {
        let file = parse("# mine\nbind = [\"127.0.0.1:1\", \"[::1]:1\"]\ndemo = true\nslurm-interval = 20\n")
            .unwrap();
        assert_eq!(file.find("bind").unwrap().0, ["127.0.0.1:1", "[::1]:1"]);
        assert_eq!(file.find("demo").unwrap().0, ["true"]);
        let (values, source) = file.find("slurm-interval").unwrap();
        assert_eq!((values[0].as_str(), source.to_string().as_str()), ("20", "/etc/ng.toml:4"));
        assert_eq!(file.find("user"), None);
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line_and_a_suggestion() {
        let error = parse("demo = true\n\nslurm_intervall = \"15s\"\n").unwrap_err();
        assert_eq!(
            error,
            "/etc/ng.toml:3: unknown setting \"slurm_intervall\"; did you mean \"slurm-interval\"?"
        );
        assert!(!parse("colour = 1").unwrap_err().contains("did you mean"));
    }

    #[test]
    fn invalid_toml_is_reported_with_its_line() {
        let error = parse("demo = true\nbind = [\n").unwrap_err();
        assert!(error.starts_with("/etc/ng.toml:"), "{error}");
        assert!(error.contains("not valid TOML"), "{error}");
    }

    #[test]
    fn a_pipe_in_place_of_the_default_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        regular_file::make_pipe(&path);
        let error = File::open(&path, false).unwrap_err().to_string();
        assert!(error.ends_with("config.toml cannot be read: it is a pipe, not a file"), "{error}");
    }

    #[test]
    fn an_endless_file_is_refused() {
        let error = File::open(Path::new("/dev/zero"), true).unwrap_err().to_string();
        assert!(error.contains("larger than 1 MiB"), "{error}");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_reported_with_its_setting() {
        let error = parse("bind = { host = 1 }").unwrap_err();
        assert!(error.starts_with("/etc/ng.toml:1: bind: the value must be"), "{error}");
    }
}
