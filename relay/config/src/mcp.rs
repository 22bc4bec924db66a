//! The command line of `relay mcp`.

use super::query::WhichRelay;
use clap::Args;

/// `relay mcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct McpArgs {
    /// The relay that is asked.
    #[command(flatten)]
    pub which: WhichRelay,

    /// Also offer tools that change something: add_note and retry
    #[arg(long)]
    pub allow_actions: bool,
}
