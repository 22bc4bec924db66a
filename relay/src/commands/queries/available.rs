//! `relay available` and `relay wait-free`: free GPUs, as `CUDA_VISIBLE_DEVICES` wants them.

use super::source::Source;
use super::{Answer, exit_code, unknown};
use nodeglass_api::{Gpu, Node, Snapshot};
use nodeglass_config::{AvailableArgs, FreeArgs, WaitFreeArgs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval of checks.
const POLL: Duration = Duration::from_secs(2);

/// Free GPUs by node.
type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Gpu>>;

/// The free GPUs.
///
/// # Errors
/// JSON cannot be written.
pub fn answer(snapshot: &Snapshot, args: &AvailableArgs) -> anyhow::Result<Answer> {
    let limit = args.limit.map_or(usize::MAX, |limit| limit as usize);
    if let Some(answer) = unknown(snapshot, args.free.node.as_ref(), args.free.job.as_ref(), None) {
        return answer.into_json_list(args.json);
    }
    let host = this_host();
    let mut free = free(snapshot, &args.free, &host);
    free.values_mut().for_each(|gpus| gpus.truncate(limit));
    if args.json {
        let code = if free.is_empty() { exit_code::NOT_MET } else { 0 };
        return Ok(Answer { code, ..Answer::json(&free.into_values().flatten().collect::<Vec<_>>())? });
    }
    match free.is_empty() {
        true => Ok(Answer::not_met(none(snapshot, &args.free))),
        false => Ok(Answer::text(lines(&free, &args.free, here(snapshot, &host)))),
    }
}

/// Waits until the requested number of GPUs is free on one node.
///
/// # Errors
/// The relay cannot be reached any more.
pub async fn wait(source: &mut Source, args: &WaitFreeArgs) -> anyhow::Result<Answer> {
    anyhow::ensure!(
        args.gpus.kind.is_none(),
        "only SLURM has types of GPUs: add --slurm, which counts the GPUs of whole partitions"
    );
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    // A list that has the job, if there is such a job.
    source.snapshot_with(args.free.job.as_ref()).await?;
    let mut is_known = false;
    loop {
        let snapshot = source.patient_snapshot(end).await?;
        // A node leaves with its job, and may come back.
        if !is_known
            && let Some(answer) = unknown(&snapshot, args.free.node.as_ref(), args.free.job.as_ref(), None)
        {
            return answer.into_json_list(args.json);
        }
        is_known = true;
        let host = this_host();
        let found = first_with(free(&snapshot, &args.free, &host), args.gpus.count as usize);
        if !found.is_empty() {
            return match args.json {
                true => Answer::json(&found.into_values().flatten().collect::<Vec<_>>()),
                false => Ok(Answer::text(lines(&found, &args.free, here(&snapshot, &host)))),
            };
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let late = Answer::not_met(format!("no node had {} free GPUs in time", args.gpus.count));
            return late.into_json_list(args.json);
        }
        sleep(left.map_or(POLL, |left| POLL.min(left))).await;
    }
}

/// The first node with `count` free GPUs, or as many free MIG instances of one profile, and that many of them.
fn first_with(free: ByNode<'_>, count: usize) -> ByNode<'_> {
    let mut alike: BTreeMap<(&str, Option<&str>), Vec<&Gpu>> = BTreeMap::new();
    for (node, gpus) in free {
        for gpu in gpus {
            let profile = gpu.mig.as_ref().map(|mig| mig.profile.as_deref().unwrap_or_default());
            alike.entry((node, profile)).or_default().push(gpu);
        }
    }
    let found = alike.into_iter().find(|(_, gpus)| gpus.len() >= count);
    found.into_iter().map(|((node, _), gpus)| (node, gpus.into_iter().take(count).collect())).collect()
}

/// The name of the node that is this machine, if it is watched.
fn here<'a>(snapshot: &'a Snapshot, this_host: &str) -> Option<&'a str> {
    let is_here = |node: &&Node| {
        let mut names = [Some(node.name.as_str()), node.hostname.as_deref()].into_iter().flatten();
        node.name == "localhost" || names.any(|name| is_same_host(name, this_host))
    };
    snapshot.nodes.iter().find(is_here).map(|node| node.name.as_str())
}

/// Returns whether two names are equal, or equal without the domain of one.
fn is_same_host(one: &str, other: &str) -> bool {
    let is_short_form = |short: &str, long: &str| long.split('.').next() == Some(short);
    one == other || is_short_form(one, other) || is_short_form(other, one)
}

/// The free GPUs by node: of the node that is named, else of this machine, if it is watched, else of all.
fn free<'a>(snapshot: &'a Snapshot, args: &FreeArgs, this_host: &str) -> ByNode<'a> {
    let only = args.node.as_ref().map(|node| node.as_str()).or_else(|| here(snapshot, this_host));
    let jobs = args.job.as_ref().map(|named| named.ids(&snapshot.jobs));
    let mut by_node = ByNode::new();
    let selected = snapshot.gpus.iter().filter(|gpu| only.is_none_or(|only| gpu.node == only));
    for gpu in selected.filter(|gpu| is_free(gpu, jobs.as_ref())) {
        by_node.entry(&gpu.node).or_default().push(gpu);
    }
    by_node
}

/// Returns whether a GPU has no processes, and belongs to no job or to the named one.
fn is_free(gpu: &Gpu, jobs: Option<&BTreeSet<u32>>) -> bool {
    match jobs {
        None => gpu.is_free(),
        Some(ids) => gpu.jobs.iter().any(|owner| ids.contains(&owner.job)) && gpu.is_unused(),
    }
}

/// `0,3` for the node that is named, or for this machine; otherwise `gpu-01: 0,3` for each.
fn lines(free: &ByNode<'_>, args: &FreeArgs, here: Option<&str>) -> String {
    let has_one = free.len() == 1;
    let mut out = String::new();
    for (node, gpus) in free {
        let id = |gpu: &&Gpu| {
            if args.uuid || gpu.mig.is_some() { gpu.uuid.clone() } else { gpu.index.to_string() }
        };
        let ids = gpus.iter().map(id).collect::<Vec<_>>().join(",");
        out += &if has_one && (args.node.is_some() || args.uuid || here == Some(*node)) {
            format!("{ids}\n")
        } else {
            format!("{node}: {ids}\n")
        };
    }
    out
}

fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn none(snapshot: &Snapshot, args: &FreeArgs) -> String {
    let whose = args.job.as_ref().map_or(String::new(), |job| format!(" of job {job}"));
    match snapshot.gpus.is_empty() {
        true => "no GPU is watched: there is no running job, and no listed machine".to_owned(),
        false => format!("no GPU{whose} is free"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;
    use nodeglass_api::{JobSelector, Mig};
    use nodeglass_protocol::NodeName;

    fn args(node: Option<&str>, job: Option<u32>) -> FreeArgs {
        FreeArgs {
            node: node.map(|name| NodeName::new(name).unwrap()),
            job: job.map(JobSelector::Id),
            ..FreeArgs::default()
        }
    }

    #[test]
    fn free_gpus_are_those_of_no_job_or_of_ones_own_without_processes() {
        let snapshot = snapshot();
        let ids = |args: &FreeArgs| {
            let found = free(&snapshot, args, "elsewhere");
            found.into_iter().map(|(node, gpus)| (node.to_owned(), gpus.len())).collect::<Vec<_>>()
        };
        assert_eq!(ids(&args(None, None)), [("n1".to_owned(), 1), ("n2".to_owned(), 2)]);
        assert_eq!(ids(&args(Some("n2"), None)), [("n2".to_owned(), 2)]);
        assert_eq!(ids(&args(None, Some(17))), [("n1".to_owned(), 1)]);
        assert_eq!(ids(&args(None, Some(99))), []);
    }

    #[test]
    fn one_node_is_chosen_that_has_enough() {
        let snapshot = snapshot();
        let all = || free(&snapshot, &args(None, None), "elsewhere");
        assert_eq!(first_with(all(), 2).into_keys().collect::<Vec<_>>(), ["n2"]);
        assert!(first_with(all(), 3).is_empty());
        // Whole GPUs and instances are not mixed.
        let mut divided = snapshot.clone();
        let instance = Mig {
            parent: None,
            gpu_instance: None,
            compute_instance: None,
            profile: Some("1g.10gb".to_owned()),
        };
        let (mut enough, elsewhere) = (Vec::new(), "elsewhere");
        for at in (0..divided.gpus.len()).filter(|at| snapshot.gpus[*at].node == "n2") {
            divided.gpus[at].mig = Some(instance.clone());
            enough.push(!first_with(free(&divided, &args(None, None), elsewhere), 2).is_empty());
        }
        assert_eq!(enough, [false, true]);
        // On a watched machine, its own GPUs count.
        assert_eq!(free(&snapshot, &args(None, None), "n1").into_keys().collect::<Vec<_>>(), ["n1"]);
    }

    #[test]
    fn this_machine_is_a_watched_node_with_or_without_its_domain() {
        let mut snapshot = snapshot();
        for (host, expected) in [("n1", Some("n1")), ("n2.cluster", Some("n2")), ("n11", None), ("n", None)] {
            assert_eq!(here(&snapshot, host), expected, "{host}");
        }
        snapshot.nodes[1].hostname = Some("alias.cluster".to_owned());
        assert_eq!(here(&snapshot, "alias"), Some("n2"));
        // The same rule says whose indices need no name.
        let free = free(&snapshot, &args(None, None), "alias");
        assert_eq!(lines(&free, &args(None, None), here(&snapshot, "alias")), "0,1\n");
        assert_eq!(lines(&free, &args(None, None), None), "n2: 0,1\n");
    }

    #[test]
    fn the_line_is_what_cuda_visible_devices_wants() {
        let snapshot = snapshot();
        let order = |node, limit| AvailableArgs { free: args(node, None), limit, json: false };
        assert_eq!(answer(&snapshot, &order(Some("n2"), None)).unwrap().text, "0,1\n");
        assert_eq!(answer(&snapshot, &order(Some("n2"), Some(1))).unwrap().text, "0\n");
        assert_eq!(answer(&snapshot, &order(None, None)).unwrap().text, "n1: 2\nn2: 0,1\n");
        let json = AvailableArgs { json: true, ..order(Some("n9"), None) };
        let none = answer(&snapshot, &json).unwrap();
        assert_eq!((none.text.as_str(), none.code), ("[]\n", exit_code::NOT_MET));
        let none = answer(&snapshot, &order(Some("n9"), None)).unwrap();
        assert_eq!((none.text.as_str(), none.code), ("", exit_code::NOT_MET));
        assert_eq!(none.notice.as_deref(), Some("no node n9 is watched"));
    }
}
