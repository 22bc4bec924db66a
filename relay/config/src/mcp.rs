//! The command line of `relay mcp`.

use clap::Args;

/// `relay mcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct McpArgs {
    /// Process id of the relay, if you run several
    #[arg(long, value_name = "PID")]
    pub relay: Option<u32>,

    /// Also offer tools that change something: add_note and retry
    #[arg(long)]
    pub allow_actions: bool,
}
