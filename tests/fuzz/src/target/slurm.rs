//! SLURM's output contains other users' bytes: parsing it yields the user's jobs or none, never another's.

use nodeglass_protocol::job::Job;
use nodeglass_protocol::{NodeName, Text};
use nodeglass_slurm::squeue::{self, Delimiter};
use nodeglass_slurm::{Selection, expand, explain, explanation, scontrol};
use std::collections::HashSet;

/// The separator of the recorded output, so that it is a seed.
const ALICE: u32 = 2001;
const MARK: u64 = 0x0123_4567_89ab;
/// A larger result from a few kilobytes is a decompression bomb.
const MANY_NODES: usize = 1 << 20;

/// Output of squeue.
pub(crate) fn squeue(bytes: &[u8]) {
    let mut list = squeue::read(bytes, &Selection::own(ALICE), &Delimiter::of(MARK));
    let ids: HashSet<_> = list.jobs.iter().map(|job| job.id).collect();
    assert_eq!(ids.len(), list.jobs.len(), "each job once");
    let nodes: usize = list.jobs.iter().map(|job| job.nodes.len()).sum();
    assert!(nodes <= MANY_NODES, "{nodes} nodes of {} bytes", bytes.len());
    list.jobs.iter_mut().for_each(explain);
    // With another separator the same bytes are no list: nothing in a job can imitate it.
    let other = squeue::read(bytes, &Selection::own(ALICE), &Delimiter::of(MARK ^ 1));
    assert!(other.jobs.is_empty() || contains(bytes, format!("{:012x}", MARK ^ 1).as_bytes()));
    // Other users' jobs are never among them.
    let digits = ALICE.to_string();
    assert!(list.jobs.is_empty() || contains(bytes, digits.as_bytes()));
}

/// Output of scontrol, about jobs and the configuration.
pub(crate) fn scontrol(bytes: &[u8]) {
    let found = scontrol::read(bytes, &Selection::own(ALICE));
    for detail in found.values().flatten() {
        let mut job = Job::new(
            nodeglass_protocol::JobId(1),
            Text::default(),
            nodeglass_protocol::job::JobState::Running,
        );
        detail.facts.fill(&mut job);
        explain(&mut job);
        assert!(detail.gpus.len() <= MANY_NODES);
    }
    if let Some(name) = scontrol::cluster_name(bytes) {
        assert!(!name.contains('\n'), "{name:?}");
    }
}

/// Values within SLURM's output: a hostlist, a pending reason.
pub(crate) fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for waits in [true, false] {
        let _ = explanation(&text, waits);
    }
    if let Ok(hosts) = expand(&text) {
        for host in &hosts {
            assert!(NodeName::new(host.as_str()).is_ok(), "{host:?} is no name for ssh");
            assert!(!host.as_str().starts_with('-'), "{host:?} would be a flag of ssh");
        }
    }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}
