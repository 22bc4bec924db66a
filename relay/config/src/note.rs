//! The command line of `relay note`.

use super::query::WhichRelay;
use super::value::duration;
use clap::{ArgGroup, Args};
use nodeglass_api::JobSelector;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::note::NoteId;

/// `relay note`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
// Outside of a job, a note without a place would be one of the whole cluster.
#[command(group = ArgGroup::new("place").args(["job", "node", "cluster", "list", "edit", "delete"]).required(true).multiple(true))]
pub struct NoteArgs {
    /// Text of the note
    #[arg(value_parser = text, required_unless_present_any = ["list", "delete"], conflicts_with_all = ["list", "delete"])]
    pub text: Option<String>,

    /// The job [default: the job that this command runs in, SLURM_JOB_ID]
    #[arg(long, env = "SLURM_JOB_ID", hide_env = true, value_name = "JOBID")]
    pub job: Option<JobSelector>,

    /// The whole cluster instead of a job
    #[arg(long, conflicts_with = "list")]
    pub cluster: bool,

    /// Only this node
    #[arg(long, value_parser = |name: &str| NodeName::new(name), conflicts_with_all = ["list", "edit"])]
    pub node: Option<NodeName>,

    /// When: 10m (ago), or @SECONDS since 1970 [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true, conflicts_with = "list")]
    pub at: Option<Moment>,

    /// Print the notes, of one job if it is named
    #[arg(long)]
    pub list: bool,

    /// Change this note instead of adding one
    #[arg(long, value_name = "NOTE")]
    pub edit: Option<NoteId>,

    /// Delete this note
    #[arg(long, value_name = "NOTE", conflicts_with_all = ["list", "edit"])]
    pub delete: Option<NoteId>,

    /// Print JSON in the form of the HTTP API
    #[arg(long, conflicts_with = "delete")]
    pub json: bool,

    /// The relay that is asked.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// When a note applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This many ms ago.
    Ago(u64),
    /// At this time, in ms since 1970.
    At(u64),
}

impl Moment {
    /// The time in ms since 1970, given the current one.
    pub fn wall_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::Ago(ago_ms) => now_ms.saturating_sub(ago_ms),
            Self::At(at_ms) => at_ms,
        }
    }
}

fn text(raw: &str) -> Result<String, &'static str> {
    if raw.trim().is_empty() { Err("a note needs a text") } else { Ok(raw.to_owned()) }
}

fn moment(raw: &str) -> Result<Moment, String> {
    let at_s = raw.strip_prefix('@').and_then(|seconds| seconds.parse::<u64>().ok());
    let at = at_s.and_then(|seconds| seconds.checked_mul(1_000)).map(Moment::At);
    // A bare number could be either.
    let duration = || {
        // Some users write an age as `-10m`.
        duration(raw.strip_prefix('-').unwrap_or(raw)).filter(|_| raw.ends_with(['s', 'm', 'h', 'd']))
    };
    let ago = || duration().and_then(|ago| u64::try_from(ago.as_millis()).ok()).map(Moment::Ago);
    at.or_else(ago).ok_or_else(|| {
        format!("{raw:?} is not a time; use an age such as 30s, 10m or 2h, or @SECONDS since 1970")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NoteArgs,
    }

    fn parse(words: &[&str]) -> Result<NoteArgs, String> {
        let line = Line::try_parse_from(["note"].iter().chain(words));
        line.map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_note_is_read_with_job_and_time() {
        let args = parse(&["epoch 3", "--job", "17", "--at", "10m"]).unwrap();
        assert_eq!((args.text.as_deref(), args.job), (Some("epoch 3"), Some(JobSelector::Id(17))));
        assert_eq!(args.at.unwrap().wall_ms(1_700_000_000_000), 1_699_999_400_000);
        assert_eq!(parse(&["x", "--cluster", "--at", "-10m"]).unwrap().at, args.at);
        let at = parse(&["x", "--at", "@1700000000", "--cluster"]).unwrap().at;
        assert_eq!(at.unwrap().wall_ms(0), 1_700_000_000_000);
    }

    #[test]
    fn a_note_needs_a_job_a_node_or_the_cluster() {
        let is_outside = std::env::var_os("SLURM_JOB_ID").is_none();
        let error = parse(&["x"]).err();
        assert_eq!(error.is_some(), is_outside);
        let named =
            |error: &String| ["--job", "--node", "--cluster"].iter().all(|option| error.contains(option));
        assert!(error.as_ref().is_none_or(named), "{error:?}");
        for place in [&["--job", "17"][..], &["--node", "gpu-01"], &["--cluster"]] {
            assert!(parse(&[&["x"], place].concat()).is_ok(), "{place:?}");
        }
        assert!(parse(&["x", "--edit", "5"]).is_ok(), "it stays where it is");
    }

    #[test]
    fn what_is_ambiguous_is_refused() {
        for wrong in [
            &[][..],
            &["", "--cluster"],
            &[" ", "--cluster"],
            &["x", "--list"],
            &["x", "--at", "10"],
            &["x", "--at", "@-1"],
            &["x", "--job", "a"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--delete", "5"]).is_ok() && parse(&["--list"]).is_ok());
        assert!(parse(&["--edit", "5"]).is_err(), "what it should say");
    }
}
