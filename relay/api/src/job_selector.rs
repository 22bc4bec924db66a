//! A job as users name it: by its raw id or by the label that SLURM prints; pure.

use super::Job;
use nodeglass_protocol::job::{self, Parent};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Maximum length of a label, in bytes: SLURM shortens the list of an array's pending tasks.
const MAX_LABEL: usize = 256;

/// Selects jobs: `48461` by raw id, or all tasks of an array and all components of a heterogeneous job; `48440_16` a task,
/// `48440_[18-23%8]` the tasks that have not started, `48511+0` a component. The cluster may follow, as in `48461.hpc`, where several
/// clusters are shown that have such a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobSelector {
    /// The job with this raw id, or everything that belongs to the array or heterogeneous job with it.
    Id(u32),
    /// A task of an array.
    Task {
        /// Id of the array.
        array: u32,
        /// Number of the task.
        task: u32,
    },
    /// The tasks of an array that have not started.
    Rest {
        /// Id of the array.
        array: u32,
    },
    /// A component of a heterogeneous job.
    Component {
        /// Id of the heterogeneous job.
        job: u32,
        /// Its offset.
        offset: u32,
    },
    /// One of these of a cluster, by the labels of its jobs.
    Of {
        /// The job there.
        job: Box<JobSelector>,
        /// Name of the cluster.
        cluster: String,
    },
}

/// A text that names no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a job id; expected one such as 48461, an array's task 48440_16, or a component 48511+0"
)]
pub struct JobSelectorError(String);

/// Error of selecting a single job. Messages are complete sentences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOneJob {
    /// None of the jobs is meant.
    #[error("there is no job {0} in the list")]
    None(JobSelector),
    /// Jobs of several clusters are.
    #[error("several clusters have a job {selector}; choose {choices}")]
    Clusters {
        /// The selector.
        selector: JobSelector,
        /// Selectors of each of them.
        choices: String,
    },
    /// Several are.
    #[error("{selector} has {count} jobs in the list; choose one, such as {example}")]
    Several {
        /// The selector.
        selector: JobSelector,
        /// Number of jobs.
        count: usize,
        /// The label of one of them.
        example: String,
    },
}

/// Identity of a job in a list.
pub trait Listed {
    /// Its raw id.
    fn id(&self) -> u32;
    /// The array or heterogeneous job that it is a part of.
    fn parent(&self) -> Option<Parent>;
    /// Its id as SLURM prints it.
    fn label(&self) -> &str;
}

impl Listed for job::Job {
    fn id(&self) -> u32 {
        self.id.0
    }

    fn parent(&self) -> Option<Parent> {
        self.part_of
    }

    fn label(&self) -> &str {
        self.label.as_str()
    }
}

impl Listed for Job {
    fn id(&self) -> u32 {
        self.id
    }

    fn parent(&self) -> Option<Parent> {
        let id = nodeglass_protocol::JobId;
        let array = self.array.as_ref().map(|part| Parent::Array { job: id(part.job), task: part.task });
        array.or_else(|| self.het.as_ref().map(|part| Parent::Het { job: id(part.job), offset: part.offset }))
    }

    fn label(&self) -> &str {
        &self.label
    }
}

impl JobSelector {
    /// Returns whether a job is meant. A task that has not started is part of its array's pending rest.
    pub fn selects(&self, job: &impl Listed) -> bool {
        match (self, job.parent()) {
            (Self::Of { job: named, cluster }, _) => {
                let (label, own) = cluster_of(job.label());
                own == Some(cluster) && named.selects_label(label)
            }
            (Self::Id(id), Some(Parent::Array { job: parent, .. } | Parent::Het { job: parent, .. })) => {
                *id == job.id() || *id == parent.0
            }
            (Self::Id(id), None) => *id == job.id(),
            (Self::Task { array, task }, Some(Parent::Array { job: parent, task: own })) => {
                *array == parent.0 && own.map_or_else(|| has_task(job.label(), *task), |own| own == *task)
            }
            (Self::Rest { array }, Some(Parent::Array { job: parent, task: None })) => *array == parent.0,
            (Self::Component { job: id, offset }, Some(Parent::Het { job: parent, offset: own })) => {
                *id == parent.0 && *offset == own
            }
            _ => false,
        }
    }

    /// Returns whether the job with this label, without its cluster, is meant.
    fn selects_label(&self, label: &str) -> bool {
        match (self, label.parse()) {
            (
                Self::Id(id),
                Ok(
                    Self::Id(own)
                    | Self::Task { array: own, .. }
                    | Self::Rest { array: own }
                    | Self::Component { job: own, .. },
                ),
            ) => *id == own,
            (Self::Task { array, task }, Ok(Self::Rest { array: own })) => {
                *array == own && has_task(label, *task)
            }
            (_, Ok(own)) => *self == own,
            (_, Err(_)) => false,
        }
    }

    /// Returns whether a user can mean jobs of one cluster only. A plain number may be the raw id of one cluster's job while others have a
    /// job that SLURM numbers so.
    ///
    /// # Errors
    /// [`NotOneJob::Clusters`], with what selects each.
    pub fn of_one_cluster(&self, jobs: &[impl Listed]) -> Result<(), NotOneJob> {
        let mut choices = BTreeMap::new();
        let mut has_own = false;
        for job in jobs {
            let (label, cluster) = cluster_of(job.label());
            let is_own = self.selects(job);
            has_own |= is_own;
            if is_own || (cluster.is_some() && self.selects_label(label)) {
                let choice = match cluster {
                    Some(cluster) if self.selects_label(label) => format!("{self}.{cluster}"),
                    _ => job.label().to_owned(),
                };
                choices.entry(cluster).or_insert(choice);
            }
        }
        if choices.len() <= usize::from(has_own) {
            return Ok(());
        }
        let choices: Vec<_> = choices.into_values().collect();
        Err(NotOneJob::Clusters { selector: self.clone(), choices: choices.join(" or ") })
    }

    /// Returns a selector that fits into a path: all tasks of an array instead of the list of those that have not started.
    pub fn without_list(&self) -> Self {
        match self {
            Self::Rest { array } => Self::Id(*array),
            Self::Of { job, cluster } => {
                Self::Of { job: Box::new(job.without_list()), cluster: cluster.clone() }
            }
            other => other.clone(),
        }
    }

    /// The jobs of a list that are meant.
    pub fn select<'a, J: Listed>(&self, jobs: &'a [J]) -> Vec<&'a J> {
        jobs.iter().filter(|job| self.selects(*job)).collect()
    }

    /// Returns the selected raw ids, by which GPUs and processes name their jobs, including an id that is not in the
    /// list.
    pub fn ids(&self, jobs: &[impl Listed]) -> BTreeSet<u32> {
        let own = if let Self::Id(id) = self { Some(*id) } else { None };
        self.select(jobs).into_iter().map(Listed::id).chain(own).collect()
    }

    /// The only job that is meant; of several, the one whose raw id was given.
    ///
    /// # Errors
    /// [`NotOneJob`].
    pub fn one<'a, J: Listed>(&self, jobs: &'a [J]) -> Result<&'a J, NotOneJob> {
        let exact = jobs.iter().find(|job| *self == Self::Id(job.id()));
        exact.map_or_else(|| self.only(jobs), Ok)
    }

    /// The only job that is meant, where the id of an array means all of its tasks, although the last of them has the same raw id.
    ///
    /// # Errors
    /// [`NotOneJob`], with a task that has started as the example.
    pub fn only<'a, J: Listed>(&self, jobs: &'a [J]) -> Result<&'a J, NotOneJob> {
        let selected = self.select(jobs);
        let is_rest = |job: &&&J| matches!(job.parent(), Some(Parent::Array { task: None, .. }));
        match &selected[..] {
            [] => Err(NotOneJob::None(self.clone())),
            [only] => Ok(only),
            [first, ..] => Err(NotOneJob::Several {
                selector: self.clone(),
                count: selected.len(),
                example: selected.iter().find(|job| !is_rest(job)).unwrap_or(first).label().to_owned(),
            }),
        }
    }
}

/// The label of a job without its cluster, and the cluster if it has one. SLURM's own labels may have dots: `48440_[1,...]`.
fn cluster_of(label: &str) -> (&str, Option<&str>) {
    let is_name = |name: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        // `48461.0` is a step.
        !name.is_empty() && name.bytes().all(is_known) && !name.bytes().all(|byte| byte.is_ascii_digit())
    };
    match label.rsplit_once('.').filter(|(_, name)| is_name(name)) {
        Some((job, cluster)) => (job, Some(cluster)),
        None => (label, None),
    }
}

/// Returns whether the label of an array's pending rest, such as `48440_[1,4-9:2%8]`, contains a task. SLURM shortens long ones,
/// which may contain any.
fn has_task(label: &str, task: u32) -> bool {
    let list = label.split_once("_[").map_or("", |(_, list)| list).trim_end_matches(']');
    let list = list.split('%').next().unwrap_or_default();
    list.split(',').any(|range| {
        let (range, step) = range.split_once(':').unwrap_or((range, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>(), step.parse::<u32>()) {
            (Ok(first), Ok(last), Ok(step)) => {
                (first..=last).contains(&task) && (task - first).checked_rem(step) == Some(0)
            }
            _ => range.contains("..."),
        }
    })
}

impl FromStr for JobSelector {
    type Err = JobSelectorError;

    fn from_str(raw: &str) -> Result<Self, JobSelectorError> {
        let error = || JobSelectorError(raw.chars().take(80).collect());
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| text.parse().ok().filter(|_| is_number(text)).ok_or_else(error);
        if raw.len() > MAX_LABEL {
            return Err(error());
        }
        if let (job, Some(cluster)) = cluster_of(raw) {
            let job = Box::new(job.parse().map_err(|_| error())?);
            return match *job {
                Self::Of { .. } => Err(error()),
                _ => Ok(Self::Of { job, cluster: cluster.to_owned() }),
            };
        }
        // In the query of a URL, a `+` that is not escaped is a space.
        if let Some((job, offset)) = raw.split_once(['+', ' ']) {
            return Ok(Self::Component { job: number(job)?, offset: number(offset)? });
        }
        match raw.split_once('_') {
            Some((array, rest)) if rest.starts_with('[') && rest.ends_with(']') => {
                Ok(Self::Rest { array: number(array)? })
            }
            Some((array, task)) => Ok(Self::Task { array: number(array)?, task: number(task)? }),
            None => Ok(Self::Id(number(raw)?)),
        }
    }
}

impl From<nodeglass_protocol::JobId> for JobSelector {
    fn from(id: nodeglass_protocol::JobId) -> Self {
        Self::Id(id.0)
    }
}

impl fmt::Display for JobSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Task { array, task } => write!(f, "{array}_{task}"),
            Self::Rest { array } => write!(f, "{array}_[…]"),
            Self::Component { job, offset } => write!(f, "{job}+{offset}"),
            Self::Of { job, cluster } => write!(f, "{job}.{cluster}"),
        }
    }
}

impl Serialize for JobSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = JobSelector;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a job id such as 48461 or \"48440_16\"")
            }

            fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<JobSelector, E> {
                u32::try_from(id)
                    .map(JobSelector::Id)
                    .map_err(|_| E::custom(JobSelectorError(id.to_string())))
            }

            fn visit_str<E: serde::de::Error>(self, raw: &str) -> Result<JobSelector, E> {
                raw.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::JobState;

    fn job(id: u32, label: &str, part_of: Option<Parent>) -> job::Job {
        job::Job {
            label: label.into(),
            part_of,
            ..job::Job::new(JobId(id), "alice".into(), JobState::Pending)
        }
    }

    fn jobs() -> Vec<job::Job> {
        let task = |task| Some(Parent::Array { job: JobId(40), task });
        let component = |offset| Some(Parent::Het { job: JobId(50), offset });
        vec![
            job(17, "17", None),
            job(41, "40_3", task(Some(3))),
            job(42, "40_4", task(Some(4))),
            job(40, "40_[6,8-12:2%2]", task(None)),
            job(50, "50+0", component(0)),
            job(51, "50+1", component(1)),
        ]
    }

    fn ids(selector: &str) -> Vec<u32> {
        selector.parse::<JobSelector>().unwrap().select(&jobs()).into_iter().map(|job| job.id.0).collect()
    }

    #[test]
    fn every_label_that_is_printed_selects_its_job() {
        let all = jobs();
        for job in &all {
            let selector: JobSelector = job.label.as_str().parse().unwrap();
            assert_eq!(selector.one(&all).map(|job| job.id), Ok(job.id), "{}", job.label);
            let by_id = JobSelector::Id(job.id.0);
            assert_eq!(by_id.one(&all).map(|job| job.id), Ok(job.id), "{}", job.id);
        }
    }

    #[test]
    fn an_array_and_a_heterogeneous_job_are_all_of_their_parts() {
        assert_eq!((ids("40"), ids("50"), ids("41")), (vec![41, 42, 40], vec![50, 51], vec![41]));
        assert_eq!(
            (ids("40_3"), ids("50+1"), ids("50 1"), ids("17")),
            (vec![41], vec![51], vec![51], vec![17])
        );
        assert_eq!((ids("99"), ids("99_3"), ids("17_0"), ids("40+3")), (vec![], vec![], vec![], vec![]));
    }

    #[test]
    fn a_task_that_has_not_started_is_in_the_pending_rest() {
        for (task, expected) in [(6, true), (7, false), (8, true), (9, false), (12, true), (14, false)] {
            assert_eq!(ids(&format!("40_{task}")) == [40], expected, "{task}");
        }
        assert!(has_task("40_[1-9,...]", 800) && !has_task("40", 1) && !has_task("40_[1-9:0]", 2));
    }

    #[test]
    fn one_job_is_found_or_the_reason_says_what_to_choose() {
        let mut all = jobs();
        all.retain(|job| job.id.0 != 40);
        let error = |text: &str| text.parse::<JobSelector>().unwrap().one(&all).unwrap_err().to_string();
        assert_eq!(error("40"), "40 has 2 jobs in the list; choose one, such as 40_3");
        assert_eq!(error("40_99"), "there is no job 40_99 in the list");
    }

    #[test]
    fn the_id_of_an_array_is_no_single_job_although_a_task_has_it() {
        let mut all = jobs();
        all.rotate_left(3);
        let array = JobSelector::Id(40);
        assert_eq!(array.one(&all).map(|job| job.id), Ok(JobId(40)));
        let refused = array.only(&all).unwrap_err().to_string();
        assert_eq!(refused, "40 has 3 jobs in the list; choose one, such as 40_3");
        assert_eq!(JobSelector::Id(41).only(&all).map(|job| job.id), Ok(JobId(41)));
    }

    #[test]
    fn a_job_that_several_clusters_have_is_named_with_its_cluster() {
        let task = |job, task| Some(Parent::Array { job: JobId(job), task: Some(task) });
        let all = [
            job(17, "17.hpc", None),
            job(900, "17.ml", None),
            job(18, "18", None),
            job(41, "40_3.hpc", task(40, 3)),
            job(901, "40_3.ml", task(940, 3)),
            job(902, "40_4.ml", task(940, 4)),
            job(19, "19.ml", None),
        ];
        let selector = |text: &str| text.parse::<JobSelector>().unwrap();
        let ids =
            |text: &str| selector(text).select(&all).into_iter().map(|job| job.id.0).collect::<Vec<_>>();
        assert_eq!(
            (ids("17.hpc"), ids("17.ml"), ids("17.x"), ids("18.hpc")),
            (vec![17], vec![900], vec![], vec![])
        );
        assert_eq!((ids("40.ml"), ids("40_3"), ids("900")), (vec![901, 902], vec![41], vec![900]));
        for one in &all {
            assert_eq!(selector(one.label.as_str()).one(&all).map(|job| job.id), Ok(one.id), "{}", one.label);
            assert_eq!(selector(one.label.as_str()).to_string(), one.label.as_str());
        }
        assert_eq!(selector("20.ml").one(&all).unwrap_err().to_string(), "there is no job 20.ml in the list");
        let error = |text: &str| selector(text).of_one_cluster(&all).unwrap_err().to_string();
        assert_eq!(error("17"), "several clusters have a job 17; choose 17.hpc or 17.ml");
        assert_eq!(error("40_3"), "several clusters have a job 40_3; choose 40_3.hpc or 40_3.ml");
        assert_eq!(error("40_4"), "several clusters have a job 40_4; choose 40_4.ml");
        for text in ["18", "19", "900", "17.ml", "40.hpc", "99"] {
            assert_eq!(selector(text).of_one_cluster(&all), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_is_no_job_is_refused_with_examples() {
        for wrong in [
            "",
            "train",
            "-1",
            "+1",
            "1+",
            "1_",
            "_1",
            "1_a",
            "1.2",
            "1_2_3",
            "4294967296",
            "1_[",
            "1;rm",
            ".hpc",
            "x.hpc",
            "1.a.b",
        ] {
            let error = wrong.parse::<JobSelector>().unwrap_err().to_string();
            assert!(error.contains("48440_16"), "{error}");
        }
        assert!(format!("1_[{}]", "9".repeat(300)).parse::<JobSelector>().is_err());
        let read = |text: &str| serde_json::from_str::<JobSelector>(text).ok();
        assert_eq!(read("17"), Some(JobSelector::Id(17)));
        assert_eq!(read("\"40_3\""), Some(JobSelector::Task { array: 40, task: 3 }));
        assert_eq!((read("-1"), read("1e3"), read("\"x\"")), (None, None, None));
    }
}
