//! Silences of findings. Pure: times come from the caller.

use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{Finding, Silence, SilenceRequest};
use std::collections::BTreeMap;

/// Error of silencing findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SilenceError {
    /// Everything would be silenced.
    #[error("name a kind of finding, a job, or both")]
    Everything,
    /// It is too long.
    #[error("findings can be silenced for at most 30 days")]
    TooLong,
    /// There are too many.
    #[error("there are {max} silences; end some first", max = Silence::MAX)]
    TooMany,
}

/// Replaces the silence of the same kind and job, or ends it. `wall_ms` is the time of day, in ms since 1970.
///
/// # Errors
/// [`SilenceError`]; the list is unchanged.
pub fn change(list: &mut Vec<Silence>, request: &SilenceRequest, wall_ms: u64) -> Result<(), SilenceError> {
    let SilenceRequest { kind, job, for_s } = *request;
    if kind.is_none() && job.is_none() {
        return Err(SilenceError::Everything);
    }
    if for_s > Silence::MAX_S {
        return Err(SilenceError::TooLong);
    }
    let is_other = |known: &&Silence| known.until_ms > wall_ms && (known.kind, known.job) != (kind, job);
    let mut changed: Vec<Silence> = list.iter().filter(is_other).cloned().collect();
    if for_s > 0 {
        if changed.len() >= Silence::MAX {
            return Err(SilenceError::TooMany);
        }
        changed.push(Silence { kind, job, until_ms: wall_ms.saturating_add(u64::from(for_s) * 1_000) });
    }
    *list = changed;
    Ok(())
}

/// Marks the findings that are silenced. `wholes` has the array or heterogeneous job of each job that is a part of one.
pub fn mark(findings: &mut [Finding], silences: &[Silence], wholes: &BTreeMap<JobId, JobId>) {
    let whole = |job| wholes.get(&job).copied();
    for finding in findings {
        let covering = silences.iter().filter(|silence| silence.covers(finding, whole));
        let until = covering.map(|silence| silence.until_ms);
        finding.silenced_until_ms = until.max();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::finding::FindingKind;

    fn request(kind: Option<FindingKind>, job: Option<u32>, for_s: u32) -> SilenceRequest {
        SilenceRequest { kind, job: job.map(JobId), for_s }
    }

    #[test]
    fn a_silence_replaces_the_same_one_and_ends() {
        let mut list = Vec::new();
        change(&mut list, &request(None, Some(17), 60), 1_000).unwrap();
        change(&mut list, &request(Some(FindingKind::Thermal), None, 60), 1_000).unwrap();
        change(&mut list, &request(None, Some(17), 120), 1_000).unwrap();
        assert_eq!(list.iter().map(|silence| silence.until_ms).collect::<Vec<_>>(), [61_000, 121_000]);
        change(&mut list, &request(None, Some(17), 0), 2_000).unwrap();
        assert_eq!(list.len(), 1);
        change(&mut list, &request(None, Some(18), 60), 61_000).unwrap();
        assert_eq!(list.len(), 1, "the other has expired");
    }

    #[test]
    fn what_would_hide_everything_or_is_too_much_is_refused() {
        let mut list = Vec::new();
        assert_eq!(change(&mut list, &request(None, None, 60), 0), Err(SilenceError::Everything));
        assert_eq!(change(&mut list, &request(None, Some(1), u32::MAX), 0), Err(SilenceError::TooLong));
        for job in 0..Silence::MAX as u32 {
            change(&mut list, &request(None, Some(job), 60), 0).unwrap();
        }
        assert_eq!(change(&mut list, &request(None, Some(999), 60), 0), Err(SilenceError::TooMany));
        assert_eq!(list.len(), Silence::MAX);
    }
}
