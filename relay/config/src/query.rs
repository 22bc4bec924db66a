//! The command lines of queries: what the cluster does now, for terminals and scripts.

use super::value::{count_up_to, duration, nearest_kind};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use nodeglass_api::JobSelector;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::{FindingKind, Silence};
use std::str::FromStr;
use std::time::Duration;

/// A query of the current state.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Query {
    /// Show which job needs attention, why, and what to do
    Findings(FindingsArgs),
    /// List free and used GPUs, with their users and since when
    List(ListArgs),
    /// Print the indices of free GPUs, for CUDA_VISIBLE_DEVICES
    Available(AvailableArgs),
    /// Wait until GPUs are free on one node, then print their indices
    WaitFree(WaitFreeArgs),
    /// Show where SLURM would start a job with this many GPUs, and the line for sbatch; --partition narrows it
    Fit(FitArgs),
    /// List jobs and the activity of their GPUs
    Jobs(JobsArgs),
    /// List processes on GPUs
    Ps(ListArgs),
    /// Show everything about one GPU
    Gpu(GpuArgs),
    /// Wait until a job starts, ends or stalls
    Wait(WaitArgs),
}

impl Query {
    /// Returns the job that the query names, if any.
    pub fn job(&self) -> Option<&JobSelector> {
        match self {
            Self::List(args) | Self::Jobs(JobsArgs { list: args, .. }) | Self::Ps(args) => args.job.as_ref(),
            Self::Findings(args) => args.job.as_ref(),
            Self::Available(args) => args.free.job.as_ref(),
            Self::WaitFree(args) => args.free.job.as_ref(),
            Self::Wait(args) => Some(&args.job),
            Self::Gpu(_) | Self::Fit(_) => None,
        }
    }

    /// Process id of the relay, if it is named.
    pub fn relay(&self) -> Option<u32> {
        match self {
            Self::List(args) | Self::Jobs(JobsArgs { list: args, .. }) | Self::Ps(args) => args.which.relay,
            Self::Findings(args) => args.which.relay,
            Self::Available(args) => args.free.which.relay,
            Self::WaitFree(args) => args.free.which.relay,
            Self::Gpu(args) => args.which.relay,
            Self::Wait(args) => args.which.relay,
            Self::Fit(_) => None,
        }
    }
}

/// Selects a running relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct WhichRelay {
    /// Process id of the relay, if you run several
    // Also after the commands of `relay token`.
    #[arg(long, value_name = "PID", global = true)]
    pub relay: Option<u32>,
}

/// Filters of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct ListArgs {
    /// Only this node
    #[arg(long, value_name = "NAME", value_parser = |name: &str| NodeName::new(name))]
    pub node: Option<NodeName>,

    /// Only this job, as 48461, 48440_16 or 48511+0; an array's id means all of its tasks
    #[arg(long, value_name = "JOBID")]
    pub job: Option<JobSelector>,

    /// Only this user
    #[arg(long = "of", value_name = "LOGIN")]
    pub login: Option<String>,

    /// Print JSON in the form of the HTTP API
    #[arg(long)]
    pub json: bool,

    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// `relay jobs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct JobsArgs {
    /// Filters.
    #[command(flatten)]
    pub list: ListArgs,

    /// Omit ended jobs
    #[arg(long)]
    pub hide_ended: bool,
}

/// `relay findings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FindingsArgs {
    /// The command, if it does something else than listing findings.
    #[command(subcommand)]
    pub command: Option<FindingsCommand>,

    /// Only this job
    #[arg(long, value_name = "JOBID")]
    pub job: Option<JobSelector>,

    /// Only this node
    #[arg(long, value_name = "NAME", value_parser = |name: &str| NodeName::new(name))]
    pub node: Option<NodeName>,

    /// Also list findings that ended within the last hour, and silenced ones
    #[arg(long)]
    pub all: bool,

    /// Keep running, and print each finding that begins or ends
    #[arg(long)]
    pub watch: bool,

    /// Print JSON in the form of the HTTP API; with --watch one object per line
    #[arg(long)]
    pub json: bool,

    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// Commands of `relay findings` besides listing.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum FindingsCommand {
    /// Describe kinds of findings; without NAME list all kinds
    Explain {
        /// Names of kinds, as the list shows them: straggler
        #[arg(value_name = "NAME")]
        kinds: Vec<ExplainedKind>,
    },
    /// Silence findings for a time: they send no notices and are not listed as needing attention
    Silence(SilenceArgs),
    /// List silences
    Silences {
        /// Print JSON in the form of the HTTP API
        #[arg(long)]
        json: bool,

        /// The relay.
        #[command(flatten)]
        which: WhichRelay,
    },
}

/// `relay findings silence`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("scope").args(["kind", "job"]).required(true).multiple(true))]
pub struct SilenceArgs {
    /// Kind of finding, such as idle_gpus; without it all kinds of the job
    #[arg(value_name = "KIND")]
    pub kind: Option<ExplainedKind>,

    /// Silence findings of this job only; an array's id means all of its tasks
    #[arg(long, value_name = "JOBID")]
    pub job: Option<JobSelector>,

    /// Duration: 30m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = time_to_silence, default_value = "24h")]
    pub time: Duration,

    /// End the silence
    #[arg(long, conflicts_with = "time")]
    pub end: bool,

    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// The kind of a finding on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainedKind(pub FindingKind);

/// Error of naming a kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such kind of finding; {}", suggestion(*nearest))]
pub struct ExplainedKindError {
    /// The most similar kind.
    nearest: Option<&'static str>,
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!("did you mean {name:?}?"),
        None => "`relay findings explain` lists all".to_owned(),
    }
}

impl FromStr for ExplainedKind {
    type Err = ExplainedKindError;

    fn from_str(name: &str) -> Result<Self, ExplainedKindError> {
        let name = name.replace('-', "_");
        let unknown = || ExplainedKindError { nearest: nearest_kind(&name) };
        FindingKind::from_name(&name).map(Self).ok_or_else(unknown)
    }
}

/// Filters of free GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[group(skip)]
pub struct FreeArgs {
    /// Only this node
    #[arg(long, value_name = "NAME", value_parser = |name: &str| NodeName::new(name))]
    pub node: Option<NodeName>,

    /// GPUs of this job without a process, instead of GPUs without a job [default: the job that this command runs in]
    #[arg(long, value_name = "JOBID", env = "SLURM_JOB_ID", hide_env = true)]
    pub job: Option<JobSelector>,

    /// Print UUIDs, which are valid in containers and for MIG instances
    #[arg(long)]
    pub uuid: bool,

    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// `relay available`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct AvailableArgs {
    /// Filters of free GPUs.
    #[command(flatten)]
    pub free: FreeArgs,

    /// Maximum number of GPUs
    #[arg(short = 'l', long, value_name = "N", value_parser = count_up_to(u32::MAX))]
    pub limit: Option<u32>,

    /// Print JSON in the form of the HTTP API
    #[arg(long)]
    pub json: bool,
}

/// `relay wait-free`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct WaitFreeArgs {
    /// Number of GPUs; with --slurm also their type in SLURM: 8, 8:h100
    #[arg(value_name = "N[:TYPE]")]
    pub gpus: GpuDemand,

    /// Ask SLURM about a whole partition, including nodes that are not watched; --partition selects one
    #[arg(long, conflicts_with_all = ["node", "uuid"])]
    pub slurm: bool,

    /// Filters of free GPUs.
    #[command(flatten)]
    pub free: FreeArgs,

    /// Give up after this time: 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,

    /// Print JSON in the form of the HTTP API
    #[arg(long)]
    pub json: bool,
}

/// `relay fit`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct FitArgs {
    /// Number of GPUs, and their type in SLURM: 8, 8:h100
    #[arg(value_name = "N[:TYPE]")]
    pub gpus: GpuDemand,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A number of GPUs, of any or of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDemand {
    /// Number of GPUs.
    pub count: u32,
    /// Their type in SLURM's GRES.
    pub kind: Option<String>,
}

fn time_to_silence(raw: &str) -> Result<Duration, &'static str> {
    if raw != "0" && raw.ends_with(|last: char| last.is_ascii_digit()) {
        return Err("state a unit: 30m, 2h or 7d");
    }
    let time = time(raw)?;
    match time.as_secs() {
        0 => Err("a silence lasts at least 1s; --end ends one"),
        s if s > u64::from(Silence::MAX_S) => Err("a silence lasts at most 30d"),
        _ => Ok(time),
    }
}

fn time(raw: &str) -> Result<Duration, &'static str> {
    duration(raw).ok_or("expected a time such as 90s, 30m or 2h")
}

/// Error of parsing a number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of GPUs from 1 to 100000, and a type after a colon: 8, 8:h100")]
pub struct GpuDemandError;

impl FromStr for GpuDemand {
    type Err = GpuDemandError;

    fn from_str(raw: &str) -> Result<Self, GpuDemandError> {
        let (count, kind) = raw.split_once(':').map_or((raw, None), |(count, kind)| (count, Some(kind)));
        let is_type = |kind: &str| {
            !kind.is_empty()
                && kind.len() <= 64
                && kind.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        };
        if kind.is_some_and(|kind| !is_type(kind)) {
            return Err(GpuDemandError);
        }
        let count = count.parse().ok().filter(|count| (1..=100_000).contains(count)).ok_or(GpuDemandError)?;
        Ok(Self { count, kind: kind.map(str::to_owned) })
    }
}

/// `relay gpu`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct GpuArgs {
    /// UUID or its beginning, or NODE:INDEX; NODE alone lists its GPUs
    #[arg(value_name = "GPU")]
    pub gpu: String,

    /// Print JSON in the form of the HTTP API
    #[arg(long)]
    pub json: bool,

    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// `relay wait`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(skip)]
pub struct WaitArgs {
    /// Job id, as 48461, 48440_16 or 48511+0; an array's id means all of its tasks
    #[arg(value_name = "JOBID")]
    pub job: JobSelector,

    /// The event to wait for
    #[arg(long, value_name = "WHAT", default_value = "end")]
    pub until: Until,

    /// Also return once all of its GPUs have been idle for this long: 10m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub stall: Option<Duration>,

    /// Give up after this time: 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,

    /// Print the job as JSON, in the form of the HTTP API
    #[arg(long)]
    pub json: bool,

    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// An event of a job to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// It runs.
    Start,
    /// It has ended.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_kind_is_answered_with_the_most_similar_one() {
        let error = |name: &str| name.parse::<ExplainedKind>().unwrap_err().to_string();
        assert!(error("straglr").ends_with("did you mean \"straggler\"?"), "{}", error("straglr"));
        assert!(error("zebra").ends_with("lists all"), "{}", error("zebra"));
        assert_eq!("idle-gpus".parse(), Ok(ExplainedKind(FindingKind::IdleGpus)));
    }

    #[test]
    fn a_silence_has_a_unit_and_an_end() {
        assert_eq!(time_to_silence("30d").map(|time| time.as_secs()), Ok(30 * 86_400));
        for wrong in ["90d", "0", "0s", "15", "x"] {
            assert!(time_to_silence(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_demand_is_a_number_and_perhaps_a_type() {
        let demand = |count, kind: Option<&str>| Ok(GpuDemand { count, kind: kind.map(str::to_owned) });
        assert_eq!("8".parse(), demand(8, None));
        assert_eq!("2:h100-80gb".parse(), demand(2, Some("h100-80gb")));
        for wrong in ["", "0", "-1", "8:", "8:h 100", "x", "8:;rm", "100001", "8:h100:2"] {
            assert_eq!(wrong.parse::<GpuDemand>(), Err(GpuDemandError), "{wrong}");
        }
    }
}
