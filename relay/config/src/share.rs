//! The command line of `relay share`, a client of the running relay without settings of its own.

use super::value::duration;
use clap::{Args, Parser, Subcommand};
use nodeglass_api::JobSelector;
use nodeglass_protocol::share::{HiddenParts, Scope, ShareId, ShareRequest, login_name};
use nodeglass_protocol::{JobId, NodeName, Text};

/// Give a teammate read-only access
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(
    name = "relay share",
    bin_name = "relay share",
    arg_required_else_help = true,
    after_help = "Example: relay share create --job 48213 --expires 8h --to bob",
    disable_help_subcommand = true
)]
pub struct ShareArgs {
    /// Process id of the relay, if you run several
    #[arg(long, value_name = "PID", global = true, display_order = 100)]
    pub relay: Option<u32>,

    /// Print JSON in the form of the HTTP API
    #[arg(long, global = true, display_order = 100)]
    pub json: bool,

    /// The command.
    #[command(subcommand)]
    pub command: ShareCommand,
}

/// A command about shares.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ShareCommand {
    /// Create a link for a teammate
    Create(CreateShareArgs),
    /// List open shares and who is viewing
    List,
    /// Print the link of a share again
    Link {
        /// The share.
        #[arg(help = None)]
        id: ShareId,
    },
    /// Revoke shares; their viewers are disconnected at once
    Revoke {
        /// The shares.
        #[arg(value_name = "ID", required_unless_present = "all", help = None)]
        ids: Vec<ShareId>,
        /// Every share
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
}

/// The terms of a new share.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct CreateShareArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Lifetime: 90m, 8h, 3d [default: 24h, or until the job ends]
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<u64>,

    /// Also show arguments, paths, users (other users' processes) or logs [default: none]
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    #[arg(value_parser = ["arguments", "paths", "users", "logs"], hide_possible_values = true)]
    show: Vec<String>,

    /// Do not show the notes of what is shared
    #[arg(long)]
    hide_notes: bool,

    /// Restrict the link to this user of the login node
    #[arg(long, value_name = "USER", value_parser = user)]
    to: Option<Text>,

    /// Note that only you see
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[group(required = true, multiple = false)]
struct ScopeArgs {
    /// Share these jobs, and only their part of each node; an array's id means all of its tasks, also later ones
    #[arg(long = "job", value_name = "JOB", value_delimiter = ',')]
    jobs: Vec<JobSelector>,

    /// Share these nodes, and your jobs on them
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',')]
    #[arg(value_parser = |raw: &str| raw.parse::<NodeName>().map_err(|_| "not a node name"))]
    nodes: Vec<NodeName>,

    /// Share everything, including future jobs
    #[arg(long)]
    everything: bool,
}

impl CreateShareArgs {
    /// The jobs that are shared, as they are named.
    pub fn jobs(&self) -> &[JobSelector] {
        &self.scope.jobs
    }

    /// The request, with the raw ids of the jobs and the arrays.
    pub fn request(self, jobs: Vec<JobId>, arrays: Vec<JobId>) -> ShareRequest {
        let args = self;
        let ScopeArgs { nodes, everything, jobs: named } = args.scope;
        let hidden = |what: &str| !args.show.iter().any(|shown| shown == what);
        ShareRequest {
            label: Text::new(args.label),
            scope: match (everything, named.is_empty()) {
                (true, _) => Scope::All,
                (false, false) => Scope::of_jobs(jobs, arrays),
                (false, true) => Scope::Nodes(nodes),
            },
            hidden: HiddenParts {
                arguments: hidden("arguments"),
                paths: hidden("paths"),
                other_users: hidden("users"),
                logs: hidden("logs"),
                notes: args.hide_notes,
            },
            to: args.to,
            lifetime_s: args.expires,
        }
    }
}

fn user(raw: &str) -> Result<Text, String> {
    login_name(raw).map_err(|error| format!("failed to {error}"))
}

/// Parses a duration such as 90m, 8h or 3d, within the limits of a share.
fn time(raw: &str) -> Result<u64, String> {
    // A bare number could mean minutes or hours.
    let duration = duration(raw).filter(|_| raw.ends_with(['m', 'h', 'd']));
    let duration_s = duration.map(|duration| duration.as_secs());
    let fits = duration_s.filter(|seconds| (60..=ShareRequest::MAX_S).contains(seconds));
    fits.ok_or_else(|| format!("{raw:?} is not a lifetime; use 90m, 8h or 3d, up to 30d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ShareArgs, clap::Error> {
        ShareArgs::try_parse_from(["share"].into_iter().chain(line.split_whitespace()))
    }

    fn request(line: &str) -> ShareRequest {
        let ShareCommand::Create(args) = parse(line).unwrap().command else { panic!() };
        let jobs = args.jobs().iter().flat_map(|job| job.ids(&[] as &[nodeglass_api::Job]));
        let jobs = jobs.map(JobId).collect();
        args.request(jobs, Vec::new())
    }

    #[test]
    fn a_share_is_created_with_the_requested_terms() {
        let one = request("create --job 17,18 --expires 8h --show logs --show paths --to bob --label x");
        assert_eq!(one.scope, Scope::Jobs(vec![JobId(17), JobId(18)]));
        let shown = HiddenParts { paths: false, logs: false, ..HiddenParts::default() };
        assert_eq!(one.hidden, shown);
        assert!(!one.hidden.notes && request("create --job 17 --hide-notes").hidden.notes);
        assert_eq!((one.label, one.to, one.lifetime_s), ("x".into(), Some("bob".into()), Some(28_800)));
        let all = request("create --everything");
        assert_eq!((all.scope, all.hidden, all.lifetime_s), (Scope::All, HiddenParts::default(), None));
        let node = NodeName::new("n1").unwrap();
        assert_eq!(request("create --node n1").scope, Scope::Nodes(vec![node]));
    }

    #[test]
    fn t09_an_unset_variable_after_to_makes_no_share_for_everybody() {
        for to in ["", " ", "\u{202e}", "bob\u{200b}", "bob "] {
            let line = ["share", "create", "--job", "17", "--to", to];
            let error = ShareArgs::try_parse_from(line).unwrap_err().to_string();
            assert!(error.contains("whom the share is for"), "{to:?}: {error}");
        }
    }

    #[test]
    fn an_ambiguous_share_command_is_refused() {
        for wrong in [
            "",
            "create",
            "create --job x",
            "create --node -oProxyCommand=x",
            "create --job 1 --node n1",
            "create --job 1 --everything",
            "create --job 1 --expires 8",
            "create --job 1 --expires 90",
            "create --job 1 --expires 31d",
            "create --job 1 --expires 99999999999999999999d",
            "create --job 1 --show environment",
            "revoke",
            "revoke ../x",
            "revoke abc --all",
            "link",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let revoked = parse("revoke --all").unwrap().command;
        assert_eq!(revoked, ShareCommand::Revoke { ids: Vec::new(), all: true });
        let args = ShareArgs { relay: Some(7), json: true, command: ShareCommand::List };
        assert_eq!(parse("list --relay 7 --json").unwrap(), args);
    }
}
