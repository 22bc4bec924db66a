//! Requests that silence an item and show it again.

use super::Item;
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{Finding, FindingKind, SilenceRequest};

/// A finding that an item stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its identity.
    pub key: String,
    /// Kind.
    pub kind: FindingKind,
    /// The only job that it affects in the whole cluster, if there is one: a silence of that job covers it.
    pub only_job: Option<JobId>,
}

impl Source {
    /// The source of a finding.
    pub fn of(finding: &Finding) -> Self {
        let only_job = match finding.jobs.as_slice() {
            [job] => Some(*job),
            _ => None,
        };
        Self { key: finding.key.to_string(), kind: finding.kind, only_job }
    }
}

impl Item {
    /// Returns whether it stands for a finding.
    pub fn stands_for(&self, key: &str) -> bool {
        self.sources.iter().any(|source| source.key == key)
    }

    /// Returns the only job that it affects, if there is one, whose silences cover all that it stands for.
    pub fn only_job(&self) -> Option<JobId> {
        let first = self.sources.first()?.only_job;
        first.filter(|_| self.sources.iter().all(|source| source.only_job == first))
    }

    /// The requests that silence what is of its kinds for its job, or everywhere if it is of several jobs or of none.
    /// Its own kind is the last: until then it stands for what is not silenced yet.
    pub fn silences(&self, for_s: u32) -> Vec<SilenceRequest> {
        let request =
            |source: &Source| SilenceRequest { kind: Some(source.kind), job: source.only_job, for_s };
        without_repetition(self.sources.iter().rev().map(request))
    }

    /// The requests that end every silence that may cover it, its own kind first; which silences exist is not part of
    /// the picture.
    pub fn end_silences(&self) -> Vec<SilenceRequest> {
        let scopes = self.sources.iter().flat_map(|source| {
            let kind = Some(source.kind);
            let whole_job = self.whole_job.filter(|_| source.only_job.is_some());
            let of_jobs = [source.only_job, whole_job].into_iter().flatten();
            [(kind, None)]
                .into_iter()
                .chain(of_jobs.flat_map(move |job| [(kind, Some(job)), (None, Some(job))]))
        });
        without_repetition(scopes.map(|(kind, job)| SilenceRequest { kind, job, for_s: 0 }))
    }
}

fn without_repetition(requests: impl Iterator<Item = SilenceRequest>) -> Vec<SilenceRequest> {
    let mut all = Vec::new();
    for request in requests {
        if !all.contains(&request) {
            all.push(request);
        }
    }
    all
}
