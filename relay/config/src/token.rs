//! The command line of `relay token`.

use super::value::count_up_to;
use clap::Subcommand;

/// A command about tokens.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print its secret, once
    Create {
        /// Name: letters, digits, '.', '_' and '-'
        name: String,
        /// Lifetime in days [default: 90]
        #[arg(long, value_name = "DAYS", value_parser = count_up_to(3_650))]
        days: Option<u32>,
        /// The only user of this machine whose programs may use it [default: you]
        #[arg(long, value_name = "USER", conflicts_with = "any_user")]
        to: Option<String>,
        /// Let programs of every user who has the secret use it
        #[arg(long)]
        any_user: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the tokens that are valid
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token at once
    Revoke {
        /// Its name
        name: String,
    },
}
