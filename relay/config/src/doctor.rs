//! The command lines of `relay doctor`, `relay completions`, `relay man`.

use clap::Args;
use clap_complete::Shell;
use nodeglass_protocol::NodeName;
use std::path::PathBuf;

/// `relay doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct DoctorArgs {
    /// The node to log in to and to start the probe on [default: a node of your first running job]
    #[arg(value_name = "NODE", value_parser = |name: &str| NodeName::new(name))]
    pub target: Option<NodeName>,

    /// Print JSON for a ticket; without keys, tokens and values of variables
    #[arg(long)]
    pub json: bool,
}

/// `relay completions`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct CompletionsArgs {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    pub shell: Shell,
}

/// `relay man`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct ManArgs {
    /// The command, such as share or share create [default: relay itself]
    #[arg(value_name = "COMMAND")]
    pub words: Vec<String>,

    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "words")]
    pub out: Option<PathBuf>,
}

/// `relay help`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct CommandName {
    /// The command, such as share or share create [default: relay itself]
    #[arg(value_name = "COMMAND")]
    pub words: Vec<String>,
}
