//! The command line of `relay top`.

use clap::{Args, ValueEnum};

/// `relay top`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct TopArgs {
    /// Print one frame and exit; plain text unless the output is a terminal
    #[arg(long)]
    pub once: bool,

    /// With --once: print the picture as JSON
    #[arg(long, requires = "once")]
    pub json: bool,

    /// When to use colour: auto (on a terminal, unless NO_COLOR is set) or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: ColorChoice,

    /// Process id of the relay to attach to, if you run several
    #[arg(long, value_name = "PID")]
    pub relay: Option<u32>,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Not at all.
    Never,
}
