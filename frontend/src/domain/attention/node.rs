//! Problems of a whole node: it does not answer, its driver hangs, or it has no usable GPU.

use super::{Item, Now, Since, job_name, jobs_on};
use crate::domain::severity::Severity;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{Link, NodePicture};

/// Returns whether no GPU can be read on a node where a job has some.
pub fn lacks_gpus(node: &NodePicture, jobs: &[Job]) -> bool {
    let expects =
        |job: &Job| job.gpu_count.is_some_and(|gpus| gpus > 0) && !node.head.without_gpus.contains(&job.id);
    node.head.no_gpu.is_some() && jobs_on(node, jobs).into_iter().any(expects)
}

/// Returns the problem of a node, which affects every job on it.
pub fn problem(node: &NodePicture, jobs: &[Job], now: Now) -> Option<Item> {
    let affected = jobs_on(node, jobs);
    if affected.is_empty() && !jobs.is_empty() {
        return None;
    }
    let name = &node.name;
    let since = |at_ms: u64| Some(Since { at_ms, or_earlier: false });
    let item = |kind, title: String, detail: String, reason: String, since| {
        let mut item = Item::for_node(kind, &affected, node, Severity::Error);
        let several = affected.len() > 1;
        let names = || affected.iter().map(|job| job_name(job)).collect::<Vec<_>>().join(", ");
        item.detail = if several { format!("{detail} · affects {}", names()) } else { detail };
        (item.title, item.reason, item.since) = (title, reason, since);
        Some(item)
    };
    let sampled = node.sampled_at_ms.and_then(since);
    let unreachable = |detail: String| {
        item("link", format!("{name} cannot be reached"), detail, format!("{name} unreachable"), sampled)
    };
    match &node.head.link {
        Link::Silent => item(
            "link",
            format!("{name} does not answer"),
            "It hangs, or the network is interrupted; its values are the last known ones".to_owned(),
            format!("{name} silent"),
            sampled,
        ),
        Link::Down { reason, .. } => unreachable(format!("{reason}; retried automatically")),
        Link::Connecting { failures: 1.. } => unreachable("Connecting again".to_owned()),
        Link::Refused { reason, advice } => item(
            "link",
            format!("{name} refused the connection"),
            if advice.is_empty() { reason.to_string() } else { format!("{reason}; {advice}") },
            format!("{name} refused"),
            sampled,
        ),
        Link::Live | Link::Late => {
            if let Some(stuck_ms) = node.head.driver_stuck_ms {
                let library = node.head.vendor().library();
                return item(
                    "driver",
                    format!("{library} on {name} does not answer"),
                    "A driver call does not return: values are from before, and processes on its GPUs may hang"
                        .to_owned(),
                    format!("{library} hangs on {name}"),
                    since(now.relay_ms.saturating_sub(stuck_ms)),
                );
            }
            let why = node.head.no_gpu.as_ref()?;
            if !lacks_gpus(node, jobs) {
                return None;
            }
            item(
                "no_gpu",
                format!("No GPU can be read on {name}"),
                why.to_string(),
                format!("no GPU on {name}"),
                None,
            )
        }
        Link::Waiting | Link::Connecting { failures: 0 } | Link::Ended => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, job, node};
    use super::*;
    use crate::domain::route::{JobTab, Route};

    #[test]
    fn a_silent_node_affects_every_job_on_it_since_its_last_sample() {
        let mut silent = node("n1", &[1, 2]);
        silent.head.link = Link::Silent;
        silent.sampled_at_ms = Some(NOW.relay_ms - 38_000);
        let item = problem(&silent, &[job(1, "n1"), job(2, "n1"), job(3, "n2")], NOW).unwrap();
        assert_eq!(item.jobs.iter().map(|job| job.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((item.severity, item.title.as_str()), (Severity::Error, "n1 does not answer"));
        assert_eq!((item.subject.as_str(), item.since.unwrap().at_ms), ("n1", NOW.relay_ms - 38_000));
        assert!(item.detail.ends_with("affects job-1, job-2"));
        assert_eq!(problem(&silent, &[job(1, "n1")], NOW).unwrap().target.route, {
            Route::Job(nodeglass_protocol::JobId(1), JobTab::Node(silent.name.clone()))
        });
    }

    #[test]
    fn a_node_that_is_down_or_retried_is_one_item() {
        let mut down = node("n1", &[1]);
        let mut key = |link| {
            down.head.link = link;
            problem(&down, &[job(1, "n1")], NOW).map(|item| item.key)
        };
        let down = key(Link::Down { reason: "no route".into(), retry_at_ms: 1 });
        assert_eq!(down.as_deref(), Some("link/n1"));
        assert_eq!(key(Link::Connecting { failures: 2 }), down);
        assert_eq!(key(Link::Refused { reason: "denied".into(), advice: "".into() }), down);
        for healthy in [Link::Live, Link::Late, Link::Waiting, Link::Connecting { failures: 0 }] {
            assert_eq!(key(healthy), None);
        }
    }

    #[test]
    fn a_hanging_driver_is_an_error_since_its_call() {
        let mut hung = node("n1", &[1]);
        hung.head.driver_stuck_ms = Some(9_000);
        let item = problem(&hung, &[job(1, "n1")], NOW).unwrap();
        assert_eq!((item.key.as_str(), item.since.unwrap().at_ms), ("driver/n1", NOW.relay_ms - 9_000));
    }

    #[test]
    fn missing_gpus_matter_to_a_job_that_has_some() {
        let mut bare = node("n1", &[]);
        bare.head.no_gpu = Some("no NVIDIA driver".into());
        assert_eq!(problem(&bare, &[job(1, "n1")], NOW), None);
        let with_gpus = Job { gpu_count: Some(4), ..job(1, "n1") };
        assert_eq!(problem(&bare, &[with_gpus], NOW).unwrap().reason, "no GPU on n1");
        assert!(!lacks_gpus(&bare, &[job(1, "n1")]), "a node without jobs that have GPUs lacks none");
    }
}
