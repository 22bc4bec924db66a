//! The command line of `relay record`, which works on files and needs no running relay.

use clap::{Parser, Subcommand};
use nodeglass_api::JobSelector;
use std::path::PathBuf;

/// Prepare recordings for others
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(
    name = "relay record",
    bin_name = "relay record",
    arg_required_else_help = true,
    after_help = "Examples:\n  relay --record run.rec\n  relay record cut run.rec --job 48213 --out 48213.rec\n  \
                  relay --replay 48213.rec",
    disable_help_subcommand = true
)]
pub struct RecordArgs {
    /// The command.
    #[command(subcommand)]
    pub command: RecordCommand,
}

/// A command about recordings.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum RecordCommand {
    /// Extract one job, without arguments, paths and other users' processes, for a colleague or a ticket
    Cut {
        /// The recording
        #[arg(value_name = "FILE")]
        from: PathBuf,
        /// The job
        #[arg(long, value_name = "JOB")]
        job: JobSelector,
        /// The new recording
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Print what was cut out as JSON
        #[arg(long)]
        json: bool,
    },
}
