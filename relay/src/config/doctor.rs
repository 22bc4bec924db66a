//! The command lines of `relay doctor`, `relay completions`, `relay man` and `relay help`.

use clap::Args;
use clap_complete::Shell;
use nodeglass_protocol::NodeName;

/// `relay doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct DoctorOrder {
    /// The node to log in to and to start the probe on [default: that of your first running job]
    #[arg(value_name = "NODE", value_parser = |name: &str| NodeName::new(name))]
    pub target: Option<NodeName>,

    /// As JSON, for a ticket; without keys, tokens and values of variables
    #[arg(long)]
    pub json: bool,
}

/// `relay completions`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct CompletionsOrder {
    /// The shell: bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    pub shell: Shell,
}

/// `relay man` and `relay help`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct CommandName {
    /// The command, such as share or share create [default: relay itself]
    #[arg(value_name = "COMMAND")]
    pub words: Vec<String>,
}
