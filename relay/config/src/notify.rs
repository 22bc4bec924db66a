//! The command line of `relay notify`.

use clap::Args;

/// `relay notify`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct NotifyArgs {
    /// Send one test notice by each configured channel: webhook, command and mail
    // Without it the command has no meaning yet, and must not send by mistake.
    #[arg(long, required = true)]
    pub test: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
