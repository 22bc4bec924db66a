//! The command line of `relay share`, a client of the running relay without settings of its own.

use super::value::seconds;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use nodeglass_protocol::share::{Hides, Scope, ShareId, ShareRequest, login_name};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::ffi::OsString;

/// A `relay share` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareOrder {
    /// The process id of the relay; `None` for the oldest that runs.
    pub relay: Option<u32>,
    /// What to do.
    pub what: ShareWhat,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareWhat {
    /// Create a share.
    Create(ShareRequest),
    /// List shares and visitors.
    List,
    /// Print the link of a share.
    Link(ShareId),
    /// Revoke these shares; all if empty.
    Revoke(Vec<ShareId>),
}

/// Parses what follows `relay share`.
///
/// # Errors
/// Usage and help, as `clap` has it.
pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<ShareOrder, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    let (name, given) = matches.subcommand().expect("clap demands a subcommand");
    let what = match name {
        "create" => ShareWhat::Create(request(given)),
        "link" => ShareWhat::Link(given.get_one::<ShareId>("id").expect("clap demands it").clone()),
        "revoke" => ShareWhat::Revoke(given.get_many("id").unwrap_or_default().cloned().collect()),
        _ => ShareWhat::List,
    };
    Ok(ShareOrder { relay: given.get_one("relay").copied(), what })
}

/// The subcommands, also for the main command's list.
pub fn command() -> Command {
    let relay = Arg::new("relay")
        .long("relay")
        .value_name("PID")
        .value_parser(clap::value_parser!(u32))
        .help("Process id of the relay, if several run");
    let id = || Arg::new("id").value_name("ID").value_parser(|raw: &str| raw.parse::<ShareId>());
    Command::new("relay share")
        .about("Give a teammate read-only access")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(create().arg(relay.clone()))
        .subcommand(Command::new("list").about("Print the open shares and their viewers").arg(relay.clone()))
        .subcommand(
            Command::new("link")
                .about("Print the link of a share again")
                .arg(id().required(true))
                .arg(relay.clone()),
        )
        .subcommand(
            Command::new("revoke")
                .about("Revoke shares; their viewers are disconnected at once")
                .arg(id().action(ArgAction::Append).required_unless_present("all"))
                .arg(
                    Arg::new("all")
                        .long("all")
                        .action(ArgAction::SetTrue)
                        .conflicts_with("id")
                        .help("Every share"),
                )
                .arg(relay),
        )
}

/// Tasks of an array have an id of their own besides that of the array.
const NO_JOB: &str = "write the number of a job; that of a task of an array is what `squeue -r -o %A` prints";

fn create() -> Command {
    let list = |name: &'static str, value: &'static str| {
        Arg::new(name).long(name).value_name(value).action(ArgAction::Append).value_delimiter(',')
    };
    Command::new("create")
        .about("Make a link for a teammate")
        .arg(
            list("job", "JOB")
                .value_parser(|raw: &str| raw.parse::<JobId>().map_err(|_| NO_JOB))
                .help("Share these jobs, and of their nodes only what belongs to them"),
        )
        .arg(
            list("node", "NODE")
                .value_parser(|raw: &str| raw.parse::<NodeName>().map_err(|_| "write the name of a node"))
                .help("Share these nodes, and your jobs on them"),
        )
        .arg(
            Arg::new("everything")
                .long("everything")
                .action(ArgAction::SetTrue)
                .help("Share everything that you see"),
        )
        .group(ArgGroup::new("scope").args(["job", "node", "everything"]).required(true))
        .arg(
            Arg::new("expires")
                .long("expires")
                .value_name("TIME")
                .value_parser(time)
                .help("How long it lasts: 90m, 8h, 3d [default: 24h or the job's end]"),
        )
        .arg(
            list("show", "WHAT")
                .value_parser(["arguments", "paths", "users", "logs"])
                .help("Also show: arguments, paths, other users' processes (users), logs [default: none]"),
        )
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("USER")
                .value_parser(|raw: &str| login_name(raw).map_err(|error| format!("failed to {error}")))
                .help("Only this user of the login node may use the link"),
        )
        .arg(
            Arg::new("label").long("label").value_name("TEXT").default_value("").help("A label for yourself"),
        )
}

fn request(given: &ArgMatches) -> ShareRequest {
    let scope = match (given.get_many::<JobId>("job"), given.get_many::<NodeName>("node")) {
        (Some(jobs), _) => Scope::Jobs(jobs.copied().collect()),
        (None, Some(nodes)) => Scope::Nodes(nodes.cloned().collect()),
        (None, None) => Scope::All,
    };
    let shown: Vec<&String> = given.get_many("show").unwrap_or_default().collect();
    let hidden = |what: &str| !shown.iter().any(|shown| *shown == what);
    ShareRequest {
        label: given.get_one::<String>("label").map(Text::new).unwrap_or_default(),
        scope,
        hides: Hides {
            arguments: hidden("arguments"),
            paths: hidden("paths"),
            other_users: hidden("users"),
            logs: hidden("logs"),
        },
        to: given.get_one::<Text>("to").cloned(),
        lasts_s: given.get_one("expires").copied(),
    }
}

/// Parses a duration such as 90m, 8h or 3d, within the limits of a share.
fn time(raw: &str) -> Result<u64, String> {
    // A bare number could mean minutes or hours.
    let duration_s = seconds(raw).filter(|_| raw.ends_with(['m', 'h', 'd']));
    let fits = duration_s.filter(|seconds| (60..=ShareRequest::MAX_S).contains(seconds));
    fits.ok_or_else(|| format!("{raw:?} is not a time for a share; write 90m, 8h or 3d, up to 30d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ShareOrder, clap::Error> {
        read(["share"].into_iter().chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn a_share_is_made_as_it_was_asked_for() {
        let order = parse("create --job 17,18 --expires 8h --show logs --show paths --to bob --label x");
        let ShareWhat::Create(request) = order.unwrap().what else { panic!() };
        assert_eq!(request.scope, Scope::Jobs(vec![JobId(17), JobId(18)]));
        assert_eq!(request.hides, Hides { arguments: true, paths: false, other_users: true, logs: false });
        assert_eq!((request.to, request.lasts_s), (Some("bob".into()), Some(28_800)));
        let ShareWhat::Create(request) = parse("create --everything").unwrap().what else { panic!() };
        assert_eq!((request.scope, request.hides, request.lasts_s), (Scope::All, Hides::default(), None));
    }

    #[test]
    fn t09_an_unset_variable_after_to_makes_no_share_for_everybody() {
        for to in ["", " ", "\u{202e}", "bob\u{200b}", "bob "] {
            let line = ["share", "create", "--job", "17", "--to", to];
            let error = read(line.map(OsString::from)).unwrap_err().to_string();
            assert!(error.contains("whom the share is for"), "{to:?}: {error}");
        }
    }

    #[test]
    fn what_is_not_clear_is_not_done() {
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
        assert_eq!(parse("revoke --all").unwrap().what, ShareWhat::Revoke(Vec::new()));
        assert_eq!(parse("list --relay 7").unwrap(), ShareOrder { relay: Some(7), what: ShareWhat::List });
    }
}
