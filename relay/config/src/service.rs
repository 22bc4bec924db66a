//! The command line of `relay service`, and the settings that a service starts with.

use super::{Config, ConfigError, Effective, Source, effective};
use clap::Subcommand;
use std::path::{Path, PathBuf};

/// Settings whose values other users must not see, as they would in a command line.
const SECRET: [&str; 2] = ["notify-webhook", "report-webhook"];
/// Settings that name files, which a service finds by absolute paths only.
const PATHS: [&str; 6] = ["hosts", "probe", "replay", "scenario", "tls-cert", "tls-key"];

/// A command about the service.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ServiceCommand {
    /// Install a unit of your systemd that runs the relay with the settings of this command line, and start it
    Install {
        /// Print the unit and change nothing
        #[arg(long)]
        print: bool,
    },
    /// Stop the relay of the service and remove the unit
    Remove,
    /// Print whether the service is installed and runs, and whether it outlives your sessions
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The settings of a service: those of command line and environment. The configuration file is read at each start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Variables of its environment, of settings that are secret.
    pub environment: Vec<(String, String)>,
    /// Limit of CPU time in % of a core.
    pub cpu_max: Option<u32>,
    /// Limit of memory in bytes.
    pub memory_max: Option<usize>,
}

impl ServiceSettings {
    /// Takes them from the effective settings; `file` is the named configuration file.
    ///
    /// # Errors
    /// [`ConfigError::ServiceRecords`].
    pub(super) fn new(config: &Config, all: &[Effective], file: Option<&Path>) -> Result<Self, ConfigError> {
        if config.record.is_some() {
            return Err(ConfigError::ServiceRecords);
        }
        let mut settings = Self { cpu_max: config.cpu_max, memory_max: config.memory_max, ..Self::default() };
        settings.arguments.extend(file.map(|file| format!("--config={}", absolute(file).display())));
        for set in all.iter().filter(|set| matches!(set.source, Source::Flag | Source::Env)) {
            for value in &set.values {
                if SECRET.contains(&set.name()) {
                    settings.environment.push((effective::variable(&set.setting), value.clone()));
                    continue;
                }
                let path = Path::new(value);
                let value = match PATHS.contains(&set.name()) && path.exists() {
                    true => absolute(path).display().to_string(),
                    false => value.clone(),
                };
                settings.arguments.push(format!("--{}={value}", set.name()));
            }
        }
        Ok(settings)
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
