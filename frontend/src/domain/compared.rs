//! Compared jobs, or parts of their runs, as an address names them.

use crate::domain::sorting;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
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

/// The start or the end of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Its start.
    From,
    /// Its end.
    To,
}

/// Error of an entered time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// The text is not a time.
    NoTime,
    /// The job did not run then.
    OutsideRun,
    /// The part would not end after its start.
    Reversed,
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

/// Returns the jobs that can be compared with one: jobs of the same user and kind that have started, newest first.
/// Jobs are of a kind if their names differ only at their ends and not in letters: `train-17` and `train-18`.
pub fn alike(own: JobId, user: &str, name: &str, jobs: &[Job]) -> Vec<JobId> {
    let stem = |name: &str| name.trim_end_matches(|letter: char| !letter.is_alphabetic()).to_owned();
    let kind = stem(name);
    let is_alike = |job: &&Job| {
        job.id != own && has_started(job) && job.user.as_str() == user && stem(job.name.as_str()) == kind
    };
    let mut alike: Vec<&Job> = jobs.iter().filter(is_alike).collect();
    sorting::sort_by_key(&mut alike, |job| std::cmp::Reverse((job.start, job.id)));
    alike.into_iter().map(|job| job.id).collect()
}

/// Returns whether a job has used resources: the start of a waiting job is only expected.
pub fn has_started(job: &Job) -> bool {
    job.start.is_some() && job.state != JobState::Pending
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

    /// Returns one of its edges.
    pub fn edge(self, edge: Edge) -> i64 {
        match edge {
            Edge::From => self.from_s,
            Edge::To => self.to_s,
        }
    }

    /// Returns the part with another edge within `run`, as it was entered: `None` for a text that is not a time.
    ///
    /// # Errors
    /// [`TimeError`].
    pub fn with_edge(self, edge: Edge, at_s: Option<i64>, run: Self) -> Result<Self, TimeError> {
        let at_s = at_s.ok_or(TimeError::NoTime)?;
        if !(run.from_s..=run.to_s).contains(&at_s) {
            return Err(TimeError::OutsideRun);
        }
        let part = match edge {
            Edge::From => Self::new(at_s, self.to_s),
            Edge::To => Self::new(self.from_s, at_s),
        };
        part.ok_or(TimeError::Reversed)
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

    fn job(id: u32, name: &str, start: Option<i64>) -> Job {
        Job { name: name.into(), start, ..Job::new(JobId(id), "alice".into(), JobState::Running) }
    }

    #[test]
    fn the_newest_jobs_of_a_kind_are_offered_first() {
        let jobs = [
            job(1, "train-17", Some(10)),
            job(2, "train-18", Some(30)),
            job(3, "serve", Some(40)),
            job(4, "train-19", Some(20)),
            job(5, "train-20", None),
            Job { state: JobState::Pending, ..job(6, "train-21", Some(99)) },
            Job { user: "bob".into(), ..job(7, "train-22", Some(50)) },
        ];
        assert_eq!(alike(JobId(1), "alice", "train-17", &jobs), [JobId(2), JobId(4)]);
        assert_eq!(alike(JobId(3), "alice", "serve", &jobs), []);
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
    fn an_entered_time_is_of_the_run_and_in_order_or_says_why_not() {
        let run = Part { from_s: 500, to_s: 2_500 };
        let entered = |edge, at_s| PART.with_edge(edge, at_s, run);
        assert_eq!(entered(Edge::From, Some(500)), Ok(Part { from_s: 500, to_s: 1_600 }));
        assert_eq!(entered(Edge::To, Some(2_500)), Ok(Part { from_s: 1_000, to_s: 2_500 }));
        assert_eq!(entered(Edge::To, None), Err(TimeError::NoTime));
        assert_eq!(entered(Edge::From, Some(499)), Err(TimeError::OutsideRun));
        assert_eq!(entered(Edge::To, Some(2_501)), Err(TimeError::OutsideRun));
        assert_eq!(entered(Edge::From, Some(1_600)), Err(TimeError::Reversed));
        assert_eq!(entered(Edge::To, Some(1_000)), Err(TimeError::Reversed));
        assert_eq!([PART.edge(Edge::From), PART.edge(Edge::To)], [1_000, 1_600]);
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
