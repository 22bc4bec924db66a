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

/// Returns what an address compares: `Compare jobs`, or of a single job `Compare times of job 17`. One entry alone is
/// not compared with anything. `label_of` returns the label of a job.
pub fn heading(all: &[Compared], label_of: impl Fn(JobId) -> String) -> String {
    match all {
        [one] if one.part.is_some() => format!("Part of job {}", label_of(one.job)),
        [one] => format!("Job {}", label_of(one.job)),
        [one, others @ ..] if others.iter().all(|other| other.job == one.job) => {
            format!("Compare times of job {}", label_of(one.job))
        }
        _ => "Compare jobs".to_owned(),
    }
}

impl Compared {
    /// A job's whole run.
    pub fn whole(job: JobId) -> Self {
        Self { job, part: None }
    }

    /// Returns the time that is compared of a job that ran at `run`: of a part, what lies within the run. `None` if
    /// that is nothing, or if the job has not started.
    pub fn time(&self, run: Option<Part>) -> Option<Part> {
        self.part.map_or(run, |part| part.within(run?))
    }

    /// Returns another time of the same job to compare with: the first half of a whole run, else as long a time before
    /// the part, or after it.
    pub fn another_time(&self, run: Option<Part>) -> Option<Self> {
        let run = run?;
        let other = match self.part.and_then(|part| part.within(run)) {
            None => Part::new(run.from_s, run.from_s + ((run.to_s - run.from_s) / 2).max(1)),
            Some(Part { from_s, to_s }) => {
                let length_s = to_s - from_s;
                let before = Part::new(from_s - length_s, from_s).and_then(|part| part.within(run));
                before.or_else(|| Part::new(to_s, to_s + length_s)?.within(run))
            }
        };
        Some(Self { part: Some(other?), ..*self })
    }
}

impl Part {
    /// A part; `None` if it does not end after its start, or not after 1970.
    pub fn new(from_s: i64, to_s: i64) -> Option<Self> {
        (0 <= from_s && from_s < to_s).then_some(Self { from_s, to_s })
    }

    /// Returns the common time of two parts, if there is one.
    pub fn within(self, other: Self) -> Option<Self> {
        Self::new(self.from_s.max(other.from_s), self.to_s.min(other.to_s))
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
    fn the_heading_says_what_is_compared() {
        let (whole, part) = (Compared::whole(JobId(17)), Compared { job: JobId(17), part: Some(PART) });
        let heading = |all: &[Compared]| super::heading(all, |job| format!("{job}_2"));
        assert_eq!(heading(&[whole, Compared::whole(JobId(18))]), "Compare jobs");
        assert_eq!(heading(&[whole, part]), "Compare times of job 17_2");
        assert_eq!([heading(&[whole]), heading(&[part])], ["Job 17_2", "Part of job 17_2"]);
    }

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
    fn a_part_is_limited_to_the_run() {
        let part = Compared { job: JobId(17), part: Some(PART) };
        assert_eq!(part.time(Part::new(1_200, 9_000)), Part::new(1_200, 1_600));
        assert_eq!([part.time(Part::new(2_000, 9_000)), part.time(None)], [None, None]);
        assert_eq!(Compared::whole(JobId(17)).time(Part::new(5, 9)), Part::new(5, 9));
    }

    #[test]
    fn another_time_is_beside_a_part_or_the_first_half_of_a_run() {
        let run = Part::new(500, 2_500);
        let other = |part: Option<Part>| Compared { job: JobId(17), part }.another_time(run)?.part;
        assert_eq!(other(Some(PART)), Part::new(500, 1_000));
        assert_eq!(other(Part::new(500, 1_000)), Part::new(1_000, 1_500));
        assert_eq!(other(Part::new(0, 100)), Part::new(500, 1_500));
        assert_eq!(other(None), Part::new(500, 1_500));
        assert_eq!(other(run), None);
        assert_eq!(Compared::whole(JobId(17)).another_time(None), None);
    }
}
