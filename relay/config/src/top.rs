//! The command line of `relay top`. Letters and names are nvitop's where the meaning is the same; the two intervals are
//! nvnodetop's.
use super::query::WhichRelay;

use clap::{Args, ValueEnum};
use std::time::Duration;

/// `relay top`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct TopArgs {
    /// Seconds between two samples of a node, 1 to 10, if top watches on its own [default: 1 for the nodes whose
    /// processes are shown, otherwise 2]
    #[arg(value_name = "SAMPLE_SECONDS", value_parser = sample_interval)]
    pub sample_interval: Option<Duration>,

    /// Seconds between two frames, 0.1 to 60; keys are answered at once [default: 0.1]
    #[arg(value_name = "FRAME_SECONDS", value_parser = frame_interval)]
    pub frame_interval: Option<Duration>,

    /// Print one frame and exit; plain text unless the output is a terminal
    #[arg(long, short = '1')]
    pub once: bool,

    /// With --once: print the picture as JSON
    #[arg(long, requires = "once", conflicts_with_all = ["only", "compute", "only_compute", "graphics", "only_graphics", "pids", "logins"])]
    pub json: bool,

    /// Layout of the lists: full (each as long as it needs), compact (most lines for the focused list), or auto
    /// (compact below 30 lines)
    #[arg(long = "monitor", short = 'm', value_name = "MODE", num_args = 0..=1, default_value = "auto", default_missing_value = "auto", hide_possible_values = true, hide_default_value = true)]
    pub layout: Layout,

    /// Hide jobs that have ended
    #[arg(long)]
    pub hide_ended: bool,

    /// Only GPUs with these indices, on every node
    #[arg(long, short = 'o', value_name = "INDEX", num_args = 1..)]
    pub only: Vec<u32>,

    /// Only processes that compute (type C or C+G)
    #[arg(long, short = 'c')]
    pub compute: bool,

    /// Only processes that compute and draw nothing (type C)
    #[arg(long, short = 'C')]
    pub only_compute: bool,

    /// Only processes that draw (type G or C+G)
    #[arg(long, short = 'g')]
    pub graphics: bool,

    /// Only processes that draw and do not compute (type G)
    #[arg(long, short = 'G')]
    pub only_graphics: bool,

    /// Only processes with these ids
    #[arg(long = "pid", short = 'p', value_name = "PID", num_args = 1..)]
    pub pids: Vec<u32>,

    /// Only processes of these users
    #[arg(long = "of", short = 'u', value_name = "LOGIN", num_args = 1..)]
    pub logins: Vec<String>,

    /// Draw with ASCII characters only
    #[arg(long, short = 'U', visible_alias = "no-unicode")]
    pub ascii: bool,

    /// Use colours for a light background
    #[arg(long)]
    pub light: bool,

    /// Leave the mouse to the terminal, so that it selects text
    #[arg(long)]
    pub no_mouse: bool,

    /// When to use colour: auto (on a terminal, unless NO_COLOR is set) or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: ColorChoice,

    /// The relay that is asked.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Not at all.
    Never,
}

/// Layout of the lists on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// By the height of the screen.
    #[default]
    Auto,
    /// Each list gets a share.
    Full,
    /// The list that has the keys gets the most.
    Compact,
}

fn sample_interval(text: &str) -> Result<Duration, String> {
    seconds(text, 1.0, 10.0)
}

fn frame_interval(text: &str) -> Result<Duration, String> {
    seconds(text, 0.1, 60.0)
}

/// A number of seconds within bounds.
fn seconds(text: &str, least: f64, most: f64) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
    let number = number.ok_or_else(|| format!("expected seconds from {least} to {most}"))?;
    Ok(Duration::from_secs_f64(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        top: TopArgs,
    }

    fn parse(line: &str) -> Option<TopArgs> {
        Cli::try_parse_from(["top"].into_iter().chain(line.split_whitespace())).ok().map(|cli| cli.top)
    }

    #[test]
    fn the_options_of_nvitop_and_the_intervals_of_nvnodetop_are_accepted() {
        let args = parse("3 0.5 -m compact -o 0 2 -cU --light -p 17 18 -u alice").unwrap();
        let intervals = (args.sample_interval, args.frame_interval);
        assert_eq!(intervals, (Some(Duration::from_secs(3)), Some(Duration::from_millis(500))));
        assert_eq!((args.only, args.pids, args.logins), (vec![0, 2], vec![17, 18], vec!["alice".to_owned()]));
        assert!(args.layout == Layout::Compact && args.compute && args.ascii && args.light && !args.graphics);
        assert_eq!(parse("-m").unwrap().layout, Layout::Auto);
        assert_eq!(parse("").unwrap(), TopArgs::default());
    }

    #[test]
    fn intervals_that_would_flood_or_freeze_are_refused() {
        for line in ["0", "0.5", "11", "1 0", "1 61", "1 NaN", "fast", "1 1 1"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
