//! A share: read-only access for a teammate, restricted by terms and limited in time.

use crate::job::{Job, Parent};
use crate::{JobId, NodeName, Text};
use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, str::FromStr};

/// Public id of a share: 1 to [`ShareId::MAX_BYTES`] of `a-z0-9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ShareId(String);

/// Error of parsing a share id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "read the id of a share: it consists of lower-case letters and digits, as `relay share list` shows it"
)]
pub struct ShareIdError;

impl ShareId {
    /// Longest id, in bytes.
    pub const MAX_BYTES: usize = 32;

    /// Validates and wraps an id.
    ///
    /// # Errors
    /// [`ShareIdError`] if it is empty, too long, or contains anything but lowercase letters and
    /// digits.
    pub fn new(raw: impl Into<String>) -> Result<Self, ShareIdError> {
        let raw = raw.into();
        let ok = (1..=Self::MAX_BYTES).contains(&raw.len())
            && raw.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if ok { Ok(Self(raw)) } else { Err(ShareIdError) }
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ShareId {
    type Err = ShareIdError;
    fn from_str(raw: &str) -> Result<Self, ShareIdError> {
        Self::new(raw)
    }
}

impl<'de> Deserialize<'de> for ShareId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The scope that the holder of a share may view.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Scope {
    /// These jobs: only their GPUs, processes and usage on their nodes.
    Jobs(Vec<JobId>),
    /// These nodes, and the jobs on them.
    Nodes(Vec<NodeName>),
    /// Everything that the relay monitors, including future jobs.
    All,
    /// These jobs, and all tasks of these arrays, including those that start later. The id of an array is also the raw id of its last
    /// task: among `jobs`, it means that task alone.
    JobsAndArrays {
        /// Single jobs and tasks.
        #[serde(default)]
        jobs: Vec<JobId>,
        /// Arrays.
        arrays: Vec<JobId>,
    },
}

impl Scope {
    /// Maximum number of jobs, arrays or nodes in a scope.
    pub const MAX_NAMED: usize = 256;
    /// Number of jobs, arrays or nodes that [`fmt::Display`] names.
    const MAX_SHOWN: usize = 3;

    /// The scope of these jobs, and of all tasks of these arrays.
    pub fn of_jobs(jobs: Vec<JobId>, arrays: Vec<JobId>) -> Self {
        if arrays.is_empty() { Self::Jobs(jobs) } else { Self::JobsAndArrays { jobs, arrays } }
    }

    /// The jobs and the arrays that it names.
    pub fn jobs_and_arrays(&self) -> (&[JobId], &[JobId]) {
        match self {
            Self::Jobs(jobs) => (jobs, &[]),
            Self::JobsAndArrays { jobs, arrays } => (jobs, arrays),
            Self::Nodes(_) | Self::All => (&[], &[]),
        }
    }

    /// Returns whether it names jobs, so that of their nodes only what belongs to them is shown.
    pub fn is_of_jobs(&self) -> bool {
        matches!(self, Self::Jobs(_) | Self::JobsAndArrays { .. })
    }

    /// Returns whether it names this job, or the array whose task it is.
    pub fn names_job(&self, job: &Job) -> bool {
        let (jobs, arrays) = self.jobs_and_arrays();
        let array = match job.part_of {
            Some(Parent::Array { job, .. }) => Some(job),
            Some(Parent::Het { .. }) | None => None,
        };
        jobs.contains(&job.id) || array.is_some_and(|array| arrays.contains(&array))
    }

    /// Number of jobs, arrays and nodes that it names; `None` if it is everything.
    pub fn named_count(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Nodes(nodes) => Some(nodes.len()),
            Self::Jobs(jobs) => Some(jobs.len()),
            Self::JobsAndArrays { jobs, arrays } => Some(jobs.len() + arrays.len()),
        }
    }

    /// Describes it like [`fmt::Display`], with the jobs as `label` names them.
    pub fn describe(&self, label: impl Fn(JobId) -> String) -> String {
        let (jobs, arrays) = self.jobs_and_arrays();
        let all = match self {
            Self::All => return "everything".to_owned(),
            Self::Nodes(nodes) => vec![names("node", nodes.iter().map(NodeName::to_string))],
            Self::Jobs(_) | Self::JobsAndArrays { .. } => vec![
                names("job", jobs.iter().map(|job| label(*job))),
                names("array", arrays.iter().map(JobId::to_string)),
            ],
        };
        all.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

/// `job 4711`, `array 48440`, `nodes gpu-01, gpu-02, gpu-03 and 5 more`, or `everything`.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.describe(|job| job.to_string()))
    }
}

/// `jobs 1, 2, 3 and 5 more`; `None` if there are none.
fn names(what: &str, names: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let (plural, more) =
        (if names.len() == 1 { "" } else { "s" }, names.len().saturating_sub(Scope::MAX_SHOWN));
    let shown = names.take(Scope::MAX_SHOWN).collect::<Vec<_>>().join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!shown.is_empty()).then(|| format!("{what}{plural} {shown}{more}"))
}

/// The parts that a share hides within its scope. Process environments are never shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HiddenParts {
    /// Process arguments; only the name is shown.
    pub arguments: bool,
    /// Paths of processes, jobs and nodes.
    pub paths: bool,
    /// Processes of other users on the same nodes.
    pub other_users: bool,
    /// Job logs.
    pub logs: bool,
    /// Notes. Those of a shared job are shown by default: they are written to be read beside its graphs.
    pub notes: bool,
}

impl Default for HiddenParts {
    fn default() -> Self {
        Self { arguments: true, paths: true, other_users: true, logs: true, notes: false }
    }
}

/// Request for a new share. Unknown fields are an error, because a misspelt restriction must not
/// widen a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ShareRequest {
    /// Description by the owner; may be empty.
    #[serde(default)]
    pub label: Text,
    /// The scope that its holder may view.
    pub scope: Scope,
    /// Hidden parts.
    #[serde(default)]
    pub hidden: HiddenParts,
    /// Login name of the only permitted user; see [`login_name`].
    #[serde(default, deserialize_with = "some_login_name")]
    pub to: Option<Text>,
    /// Lifetime in s. The default is [`ShareRequest::DEFAULT_S`] or the end of its jobs, if that is earlier.
    #[serde(default)]
    pub lifetime_s: Option<u64>,
}

impl ShareRequest {
    /// Default lifetime: 24 h.
    pub const DEFAULT_S: u64 = 24 * 3_600;
    /// Maximum lifetime: 30 days.
    pub const MAX_S: u64 = 30 * 24 * 3_600;
}

/// Error of parsing a login name. Messages read well after "failed to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginNameError {
    /// Empty, such as an unset variable.
    #[error(
        "read whom the share is for: the name is empty; leave it out only if anyone with the link may use it"
    )]
    Empty,
    /// Sanitizing would change it.
    #[error(
        "read whom the share is for: a login name contains no invisible characters, and no spaces around it"
    )]
    Strange,
}

/// Validates the login name of the only permitted user. It is accepted verbatim or not at all: a
/// name that sanitizing empties would create a share for everybody.
///
/// # Errors
/// [`LoginNameError`].
pub fn login_name(raw: &str) -> Result<Text, LoginNameError> {
    let name = Text::new(raw);
    match raw.trim() {
        "" => Err(LoginNameError::Empty),
        trimmed if trimmed == raw && name.as_str() == raw => Ok(name),
        _ => Err(LoginNameError::Strange),
    }
}

fn some_login_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    let raw = Option::<String>::deserialize(deserializer)?;
    raw.map(|raw| login_name(&raw)).transpose().map_err(serde::de::Error::custom)
}

/// Terms of a share, fixed at its creation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareTerms {
    /// Description by the owner; may be empty.
    pub label: Text,
    /// The scope that its holder may view.
    pub scope: Scope,
    /// Hidden parts.
    pub hidden: HiddenParts,
    /// Login name of the only permitted user.
    pub to: Option<Text>,
    /// Expiry in ms since 1970 by the login node's clock.
    pub expires_ms: u64,
    /// Whether it also ends with its last job.
    pub ends_with_job: bool,
}

impl ShareTerms {
    /// Returns with what it ends, if it does before it expires: `the job`, `the last task of the array`, or `its last job`.
    pub fn ends_with(&self) -> Option<&'static str> {
        let what = match self.scope.jobs_and_arrays() {
            ([_], []) => "the job",
            ([], [_]) => "the last task of the array",
            _ => "its last job",
        };
        self.ends_with_job.then_some(what)
    }
}

/// An active share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    /// Its id.
    pub id: ShareId,
    /// Creation time in ms since 1970 by the login node's clock.
    pub created_ms: u64,
    /// Its terms.
    pub terms: ShareTerms,
}

/// A connected viewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Visitor {
    /// The share used; none for the owner's key.
    pub share: Option<ShareId>,
    /// Login name of the peer, if the kernel reports it.
    pub user: Option<Text>,
    /// Connection time in ms since 1970 by the login node's clock.
    pub since_ms: u64,
}

/// Active shares and connected viewers; sent to the owner only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sharing {
    /// Active shares, oldest first.
    pub shares: Vec<Share>,
    /// Connected pages in order of connection.
    pub visitors: Vec<Visitor>,
    /// Stored shares of relays that watched something else, which open at those only.
    #[serde(default)]
    pub closed: Vec<ClosedShare>,
}

/// A stored share that stays closed at this relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClosedShare {
    /// The share.
    pub share: Share,
    /// The jobs and machines that the relay watched which made it.
    pub watches: Text,
}

/// A share with its link, which contains the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareLink {
    /// The share.
    pub share: Share,
    /// The link for a machine with the tunnel; none if the relay stores only a verifier.
    pub link: Option<String>,
    /// The `ssh -L` command for the teammate, with their own login.
    pub tunnel: Text,
    /// Reason for which it could not be stored when it was created, although the relay stores shares (`--persist-shares`). It
    /// is stored once that is possible.
    pub not_stored: Option<Text>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_named_and_a_long_one_counted() {
        let nodes =
            |names: &[&str]| Scope::Nodes(names.iter().map(|name| NodeName::new(*name).unwrap()).collect());
        assert_eq!(Scope::Jobs(vec![JobId(4711)]).to_string(), "job 4711");
        assert_eq!(nodes(&["a", "b", "c"]).to_string(), "nodes a, b, c");
        assert_eq!(nodes(&["a", "b", "c", "d", "e"]).to_string(), "nodes a, b, c and 2 more");
        assert_eq!(Scope::All.to_string(), "everything");
        let mixed = |jobs: &[u32], arrays: &[u32]| {
            Scope::of_jobs(
                jobs.iter().copied().map(JobId).collect(),
                arrays.iter().copied().map(JobId).collect(),
            )
        };
        assert_eq!(mixed(&[], &[40]).to_string(), "array 40");
        assert_eq!(mixed(&[17], &[40, 50]).to_string(), "job 17 and arrays 40, 50");
        assert_eq!(mixed(&[17, 41], &[]).describe(|id| format!("40_{id}")), "jobs 40_17, 40_41");
        assert_eq!(mixed(&[1, 2], &[3]).named_count(), Some(3));
    }

    #[test]
    fn t09_an_array_names_all_of_its_tasks_and_its_last_task_only_itself() {
        let task = |id, array, task| Job {
            part_of: Some(Parent::Array { job: JobId(array), task }),
            ..Job::new(JobId(id), "alice".into(), crate::job::JobState::Running)
        };
        // The last task has the raw id of the array, as the rest has before it.
        let (first, last, rest) = (task(41, 40, Some(0)), task(40, 40, Some(1)), task(40, 40, None));
        let (other, alone) = (task(43, 42, Some(0)), Job::new(JobId(40), "bob".into(), first.state.clone()));
        let named = |scope: &Scope| [&first, &last, &rest, &other, &alone].map(|job| scope.names_job(job));
        let array = Scope::of_jobs(Vec::new(), vec![JobId(40)]);
        assert_eq!(named(&array), [true, true, true, false, false]);
        assert_eq!(named(&Scope::Jobs(vec![JobId(40)])), [false, true, true, false, true]);
        assert_eq!(
            named(&Scope::of_jobs(vec![JobId(43)], vec![JobId(41)])),
            [false, false, false, true, false]
        );
        assert_eq!(named(&Scope::All), [false; 5]);
        let json = r#"{"jobs_and_arrays":{"arrays":[40]}}"#;
        assert_eq!(serde_json::from_str::<Scope>(json).unwrap(), array);
        for wrong in
            [r#"{"jobs_and_arrays":{"array":[40]}}"#, r#"{"jobs_and_arrays":{"arrays":[40],"job":[1]}}"#]
        {
            assert!(serde_json::from_str::<Scope>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_consists_of_lowercase_letters_and_digits() {
        assert!(ShareId::new("k3jq9x0a2b").is_ok());
        for wrong in ["", "A", "a b", "a/b", "../a", "ä", &"a".repeat(33)] {
            assert!(ShareId::new(wrong).is_err(), "{wrong}");
            assert!(serde_json::from_value::<ShareId>(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn t09_a_share_for_an_invalid_user_or_with_a_misspelt_term_is_invalid() {
        for wrong in [
            r#"{"scope":"all","to":""}"#,
            r#"{"scope":"all","to":" "}"#,
            r#"{"scope":"all","to":"\u202e"}"#,
            r#"{"scope":"all","to":"bob\u200b"}"#,
            r#"{"scope":"all","to":"bob "}"#,
            r#"{"scope":"all","To":"bob"}"#,
            r#"{"scope":"all","expires_s":60}"#,
            r#"{"scope":"all","hidden":{"args":true}}"#,
        ] {
            assert!(serde_json::from_str::<ShareRequest>(wrong).is_err(), "{wrong}");
        }
        let request: ShareRequest = serde_json::from_str(r#"{"scope":"all","to":"AD\\bob smith"}"#).unwrap();
        assert_eq!(request.to, Some("AD\\bob smith".into()));
        let request: ShareRequest = serde_json::from_str(r#"{"scope":"all","to":null}"#).unwrap();
        assert_eq!(request.to, None);
    }

    #[test]
    fn everything_is_hidden_by_default() {
        let request: ShareRequest =
            serde_json::from_str(r#"{"scope":{"jobs":[17]},"hidden":{"logs":false}}"#).unwrap();
        assert_eq!(request.hidden, HiddenParts { logs: false, ..HiddenParts::default() });
        assert!(request.hidden.arguments && request.hidden.paths && request.hidden.other_users);
    }
}
