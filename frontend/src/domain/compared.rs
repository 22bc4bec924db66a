//! What is compared: whole jobs, or parts of their runs, as an address names them.

use nodeglass_protocol::JobId;
use std::fmt;
use std::str::FromStr;

/// A job in a comparison, or a part of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The job.
    pub job: JobId,
    /// The part; `None` for the whole run.
    pub part: Option<Part>,
}

/// A part of a run, in s since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its start.
    pub from_s: i64,
    /// Its end, later than its start.
    pub to_s: i64,
}

impl Compared {
    /// A job's whole run.
    pub fn whole(job: JobId) -> Self {
        Self { job, part: None }
    }

    /// Returns the time that is compared of a job that ran at `run`; `None` if it has not started.
    pub fn time(&self, run: Option<Part>) -> Option<Part> {
        self.part.or(run)
    }

    /// Returns another time of the same job to compare with: as long a time before the part, or the first half of
    /// the run.
    pub fn another_time(&self, run: Option<Part>) -> Option<Self> {
        let Part { from_s, to_s } = self.time(run)?;
        let length_s = to_s - from_s;
        let part = match self.part {
            Some(_) => Part::new(from_s - length_s, from_s),
            None => Part::new(from_s, from_s + (length_s / 2).max(1)),
        };
        Some(Self { part: Some(part?), ..*self })
    }
}

impl Part {
    /// A part; `None` if it does not end after its start, or not after 1970.
    pub fn new(from_s: i64, to_s: i64) -> Option<Self> {
        (0 <= from_s && from_s < to_s).then_some(Self { from_s, to_s })
    }

    /// Returns what follows a moment within it; `None` if the moment is not within it.
    pub fn since(self, at_s: i64) -> Option<Self> {
        (self.from_s <= at_s).then(|| Self::new(at_s, self.to_s)).flatten()
    }

    /// Length in s.
    pub fn length_s(self) -> u64 {
        (self.to_s - self.from_s).unsigned_abs()
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        self.part.map_or(Ok(()), |Part { from_s, to_s }| write!(f, "@{from_s}..{to_s}"))
    }
}

impl FromStr for Compared {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (job, part) = text.split_once('@').map_or((text, None), |(job, part)| (job, Some(part)));
        let parsed = |part: &str| -> Option<Part> {
            let (from, to) = part.split_once("..")?;
            Part::new(from.parse().ok()?, to.parse().ok()?)
        };
        let part = part.map(|part| parsed(part).ok_or(())).transpose()?;
        Ok(Self { job: job.parse().map_err(drop)?, part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { from_s: 1_000, to_s: 1_600 };

    #[test]
    fn jobs_and_parts_round_trip_through_their_text() {
        for compared in [Compared::whole(JobId(17)), Compared { job: JobId(17), part: Some(PART) }] {
            assert_eq!(compared.to_string().parse(), Ok(compared));
        }
        for text in ["", "x", "17@", "17@5", "17@5..", "17@9..5", "17@5..5", "17@-5..5", "@1..2"] {
            assert_eq!(text.parse::<Compared>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_part_is_followed_from_a_moment_within_it() {
        assert_eq!(PART.since(1_200), Part::new(1_200, 1_600));
        assert_eq!([PART.since(999), PART.since(1_600)], [None, None]);
    }

    #[test]
    fn another_time_is_before_a_part_or_the_first_half_of_a_run() {
        let part =
            |compared: Compared| compared.another_time(Part::new(500, 2_500)).and_then(|other| other.part);
        let of_part = Compared { job: JobId(17), part: Some(PART) };
        assert_eq!(part(of_part), Some(Part { from_s: 400, to_s: 1_000 }));
        assert_eq!(part(Compared::whole(JobId(17))), Some(Part { from_s: 500, to_s: 1_500 }));
        assert_eq!(Compared::whole(JobId(17)).another_time(None), None);
    }
}
