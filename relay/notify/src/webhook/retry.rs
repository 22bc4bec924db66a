//! Decides when an attempt is repeated: twice at most, each time after a longer pause. Pure.

use nodeglass_http_client::HttpError;
use std::time::Duration;

/// Maximum number of attempts.
const ATTEMPTS: u32 = 3;
/// Pause before the second attempt; the next is four times as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that a server may request: all attempts together must end while somebody waits for them.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Counts attempts.
#[derive(Debug)]
pub(super) struct Retries {
    failures: u32,
    first_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { failures: 0, first_pause: FIRST_PAUSE }
    }
}

/// Decision after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The error is final.
    GiveUp,
    /// Another attempt.
    RetryAfter(Duration),
}

impl Retries {
    /// Sets another pause before the second attempt.
    #[cfg(test)]
    pub(super) fn pausing(first_pause: Duration) -> Self {
        Self { first_pause, ..Self::default() }
    }

    /// Decides after a failure.
    pub(super) fn decide(&mut self, error: &HttpError) -> Decision {
        self.failures += 1;
        // What timed out may have been accepted; a message must not appear twice.
        let is_unknown = matches!(error, HttpError::TimedOut(..));
        if !error.is_transient() || is_unknown || self.failures >= ATTEMPTS {
            return Decision::GiveUp;
        }
        let pause = self.first_pause * 4_u32.pow(self.failures - 1);
        match error.retry_after() {
            // A server that requests a longer pause will refuse an earlier retry.
            Some(requested) if requested > LONGEST_PAUSE => Decision::GiveUp,
            Some(requested) => Decision::RetryAfter(requested.max(pause)),
            None => Decision::RetryAfter(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, retry_after_s: Option<u64>) -> HttpError {
        let retry_after = retry_after_s.map(Duration::from_secs);
        HttpError::Status { host: "h".into(), status, text: String::new(), retry_after }
    }

    fn pauses(error: &HttpError) -> Vec<u64> {
        let mut retries = Retries::default();
        std::iter::from_fn(|| match retries.decide(error) {
            Decision::RetryAfter(pause) => Some(pause.as_secs()),
            Decision::GiveUp => None,
        })
        .collect()
    }

    #[test]
    fn what_may_pass_is_tried_three_times_with_longer_pauses() {
        assert_eq!(pauses(&status(500, None)), [1, 4]);
        assert_eq!(pauses(&status(429, Some(3))), [3, 4]);
    }

    #[test]
    fn what_will_not_pass_is_tried_once() {
        for error in [
            status(404, None),
            status(429, Some(3_600)),
            HttpError::TimedOut("h".into(), 10),
            HttpError::Redirect("h".into(), 302),
            HttpError::Destination("h".into(), "leads nowhere"),
            HttpError::Tls("h".into(), "unknown issuer".into()),
        ] {
            assert!(pauses(&error).is_empty(), "{error}");
        }
    }
}
