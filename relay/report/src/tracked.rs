//! A running job of which a report is made.

use super::Resized;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::report::MAX_FINDINGS;

/// A running job.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) job: Job,
    pub(super) application: Option<&'static str>,
    /// By their start.
    pub(super) findings: Vec<Finding>,
    /// See [`JobRecord::observed_from_s`].
    pub(super) observed_from_s: Option<i64>,
    /// See [`JobRecord::resized`].
    pub(super) resized: Resized,
    /// See [`JobRecord::false_end_s`].
    pub(super) false_end_s: Option<i64>,
}

impl Tracked {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            job: job.clone(),
            application: None,
            findings: Vec::new(),
            observed_from_s: None,
            resized: Resized::default(),
            false_end_s: None,
        }
    }

    /// Adds a finding, or updates it while it lasts.
    pub(super) fn add(&mut self, finding: &Finding) {
        let same = |known: &&mut Finding| {
            known.key == finding.key && (known.ended_ms.is_none() || known.since_ms == finding.since_ms)
        };
        match self.findings.iter_mut().find(same) {
            Some(known) => known.clone_from(finding),
            None => self.findings.push(finding.clone()),
        }
        self.findings.sort_by_key(|finding| finding.since_ms);
        let over = self.findings.len().saturating_sub(MAX_FINDINGS);
        self.findings.drain(..over);
    }

    /// Adds what an earlier relay found. What lasted when it ended is over, unless it is found again.
    pub(super) fn restore(&mut self, earlier: Vec<Finding>, known_until_ms: u64) {
        for finding in earlier {
            if !self
                .findings
                .iter()
                .any(|known| known.key == finding.key && known.since_ms <= finding.since_ms)
            {
                let ended_ms = finding.ended_ms.or(Some(known_until_ms.max(finding.since_ms)));
                self.add(&Finding { ended_ms, ..finding });
            }
        }
    }
}
