//! Selection of the watched jobs: jobs of some users and accounts, in some partitions, on some nodes.

use super::command::{Client, CommandError, Program};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::job::Job;
use std::collections::{BTreeSet, HashSet};

/// Owners of the watched jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Every user's.
    All,
    /// Those of these users, and those charged to these accounts.
    Of {
        /// Uids of the users.
        uids: BTreeSet<u32>,
        /// Accounts in lower case, as SLURM stores them.
        accounts: BTreeSet<String>,
    },
}

/// Selects jobs. Owners and nodes are checked here again, independent of squeue's own selection; partitions are not,
/// because a pending job may list several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Uid of the user who runs the relay: paths and commands of other users' jobs are withheld.
    pub viewer: u32,
    /// The owners.
    pub owners: Owners,
    /// Only jobs in these partitions, if there are any.
    pub partitions: Vec<String>,
    /// Only jobs that have one of these nodes, if there are any.
    pub nodes: HashSet<NodeName>,
}

impl Selection {
    /// The jobs of the user who runs the relay.
    pub fn own(viewer: u32) -> Self {
        Self::of(viewer, Owners::Of { uids: [viewer].into(), accounts: BTreeSet::new() })
    }

    /// The jobs of these owners in all partitions, on all nodes.
    pub fn of(viewer: u32, owners: Owners) -> Self {
        Self { viewer, owners, partitions: Vec::new(), nodes: HashSet::new() }
    }

    /// Returns whether it contains the jobs of more than one user.
    pub fn is_of_many(&self) -> bool {
        match &self.owners {
            Owners::All => true,
            Owners::Of { uids, accounts } => uids.len() > 1 || !accounts.is_empty(),
        }
    }

    /// Returns whether it may contain jobs of other users than the viewer.
    pub fn is_of_others(&self) -> bool {
        match &self.owners {
            Owners::All => true,
            Owners::Of { uids, accounts } => {
                uids.iter().any(|uid| *uid != self.viewer) || !accounts.is_empty()
            }
        }
    }

    /// Returns options of squeue that narrow its list: it shows jobs that match both `--user` and `--account`,
    /// whereas a selection contains jobs that match either.
    pub(super) fn squeue_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        match &self.owners {
            Owners::Of { uids, accounts } if accounts.is_empty() => {
                let uids: Vec<_> = uids.iter().map(ToString::to_string).collect();
                options.push(format!("--user={}", uids.join(",")));
            }
            Owners::Of { uids, accounts } if uids.is_empty() => {
                let accounts: Vec<_> = accounts.iter().map(String::as_str).collect();
                options.push(format!("--account={}", accounts.join(",")));
            }
            Owners::All | Owners::Of { .. } => {}
        }
        if !self.partitions.is_empty() {
            options.push(format!("--partition={}", self.partitions.join(",")));
        }
        options
    }

    /// Returns whether squeue leaves out a job with these partitions, separated by commas, or this account.
    pub(super) fn leaves_out(&self, partitions: Option<&str>, account: Option<&str>) -> bool {
        let is_elsewhere =
            |names: &str| names.split(',').all(|name| !self.partitions.iter().any(|own| own == name));
        let is_others = |account: &str| match &self.owners {
            Owners::Of { uids, accounts } => {
                uids.is_empty() && !accounts.contains(&account.to_ascii_lowercase())
            }
            Owners::All => false,
        };
        !self.partitions.is_empty() && partitions.is_some_and(is_elsewhere) || account.is_some_and(is_others)
    }

    /// Returns whether squeue prints jobs that are not selected, which is then no error.
    pub(super) fn exceeds_squeue(&self) -> bool {
        let is_mixed = match &self.owners {
            Owners::All => false,
            Owners::Of { uids, accounts } => !uids.is_empty() && !accounts.is_empty(),
        };
        is_mixed || !self.nodes.is_empty()
    }

    /// Returns whether it contains a job of the user `uid`.
    pub(super) fn contains(&self, job: &Job, uid: u32) -> bool {
        let is_owner = match &self.owners {
            Owners::All => true,
            Owners::Of { uids, accounts } => {
                let account = job.account.as_ref().map(|account| account.as_str().to_ascii_lowercase());
                uids.contains(&uid) || account.is_some_and(|account| accounts.contains(&account))
            }
        };
        is_owner && (self.nodes.is_empty() || job.nodes.iter().any(|node| self.nodes.contains(node)))
    }

    /// Returns whether it may contain jobs of this user.
    pub(super) fn may_contain(&self, uid: u32) -> bool {
        match &self.owners {
            Owners::All => true,
            Owners::Of { uids, accounts } => !accounts.is_empty() || uids.contains(&uid),
        }
    }

    /// Checks that its partitions and accounts exist, with one request each. What cannot be checked,
    /// because SLURM does not respond or keeps no accounts, is accepted.
    ///
    /// # Errors
    /// [`UnknownName`] for the first name that SLURM does not know.
    pub async fn check(&self, client: &mut impl Client) -> Result<(), UnknownName> {
        if !self.partitions.is_empty() {
            let args = ["--all", "--oneliner", "show", "partition"].map(str::to_owned);
            let partitions = client.run(Program::Scontrol, &args).await;
            let known = partitions.map(|output| names_after(&output.out, "PartitionName="));
            first_unknown(&self.partitions, known).map_or(Ok(()), |(name, known)| {
                Err(UnknownName::Partition { name, known: known.into_iter().collect::<Vec<_>>().join(", ") })
            })?;
        }
        let Owners::Of { accounts, .. } = &self.owners else { return Ok(()) };
        if !accounts.is_empty() {
            let args = ["--noheader", "--parsable2", "show", "account", "format=account"].map(str::to_owned);
            let known = client.run(Program::Sacctmgr, &args).await;
            let known = known.map(|output| names_after(&output.out, ""));
            let unknown = first_unknown(accounts, known);
            unknown.map_or(Ok(()), |(name, _)| Err(UnknownName::Account { name }))?;
        }
        Ok(())
    }
}

/// A name that SLURM does not know; a complete sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownName {
    /// A partition.
    #[error("--partition: SLURM has no partition {name:?}; it has {known}")]
    Partition {
        /// Its name.
        name: String,
        /// The partitions that exist.
        known: String,
    },
    /// An account.
    #[error(
        "--users: SLURM shows you no account {name:?}; `sacctmgr show account` lists those that it shows"
    )]
    Account {
        /// Its name.
        name: String,
    },
}

/// Returns the first of `wanted` that is not among the known names, with the known names; `None` if no names are
/// known.
fn first_unknown<'a>(
    wanted: impl IntoIterator<Item = &'a String>,
    known: Result<BTreeSet<String>, CommandError>,
) -> Option<(String, BTreeSet<String>)> {
    let known = known.inspect_err(|error| tracing::warn!("{error}; names are not checked")).ok()?;
    let unknown = wanted.into_iter().find(|name| !known.contains(*name)).filter(|_| !known.is_empty())?;
    Some((unknown.clone(), known))
}

/// The first word of each line that starts with `prefix`, without it.
fn names_after(out: &[u8], prefix: &str) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(out);
    let rests = text.lines().filter_map(|line| line.strip_prefix(prefix));
    rests.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Output;
    use async_trait::async_trait;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::JobState;

    fn owners(uids: &[u32], accounts: &[&str]) -> Owners {
        let accounts = accounts.iter().map(ToString::to_string).collect();
        Owners::Of { uids: uids.iter().copied().collect(), accounts }
    }

    fn job(account: &str, node: &str) -> Job {
        let nodes = vec![NodeName::new(node).unwrap()];
        Job { account: Some(account.into()), nodes, ..Job::new(JobId(1), "bob".into(), JobState::Running) }
    }

    #[test]
    fn squeue_narrows_its_list_unless_that_would_lose_jobs() {
        let options = |owners| Selection::of(1, owners).squeue_options();
        assert_eq!(options(owners(&[3, 2], &[])), ["--user=2,3"]);
        assert_eq!(options(owners(&[], &["ml", "nlp"])), ["--account=ml,nlp"]);
        assert!(options(owners(&[2], &["ml"])).is_empty() && options(Owners::All).is_empty());
        let narrowed = Selection { partitions: vec!["a".into(), "b".into()], ..Selection::own(7) };
        assert_eq!(narrowed.squeue_options(), ["--user=7", "--partition=a,b"]);
    }

    #[test]
    fn a_selection_contains_jobs_of_its_users_or_accounts_on_its_nodes() {
        let mixed = Selection::of(1, owners(&[2], &["ml"]));
        assert!(mixed.contains(&job("nlp", "n1"), 2) && mixed.contains(&job("ML", "n1"), 3));
        assert!(!mixed.contains(&job("nlp", "n1"), 3) && mixed.exceeds_squeue());
        let on_nodes = Selection {
            nodes: ["n1", "n2"].map(|name| NodeName::new(name).unwrap()).into(),
            ..Selection::of(1, Owners::All)
        };
        assert!(on_nodes.contains(&job("ml", "n2"), 9) && !on_nodes.contains(&job("ml", "n3"), 9));
        assert!(!Selection::own(1).contains(&job("ml", "n1"), 2) && !Selection::own(1).exceeds_squeue());
    }

    /// Answers every command alike.
    struct Answer(Result<&'static str, CommandError>);

    #[async_trait]
    impl Client for Answer {
        async fn run(&mut self, _: Program, _: &[String]) -> Result<Output, CommandError> {
            self.0.clone().map(|out| Output { out: out.into(), err: String::new() })
        }
    }

    #[tokio::test]
    async fn an_unknown_partition_or_account_is_one_sentence() {
        let wanted = Selection { partitions: vec!["gpu".into(), "cpu".into()], ..Selection::own(1) };
        let check = async |selection: &Selection, answer| {
            selection.check(&mut Answer(answer)).await.map_err(|error| error.to_string())
        };
        let listed = Ok("PartitionName=gpu AllowGroups=ALL\nPartitionName=long State=UP\n");
        let why = check(&wanted, listed).await.unwrap_err();
        assert_eq!(why, "--partition: SLURM has no partition \"cpu\"; it has gpu, long");
        let accounts = Selection::of(1, owners(&[], &["ml", "nlp"]));
        assert!(check(&accounts, Ok("ml\nroot\n")).await.unwrap_err().contains("no account \"nlp\""));
        assert_eq!(check(&accounts, Ok("ml\nnlp\n")).await, Ok(()));
        // Without accounting, or while SLURM does not respond, nothing is known about names.
        for selection in [&wanted, &accounts] {
            let silent = Err(CommandError::TimedOut(Program::Sacctmgr, 10));
            assert_eq!(check(selection, silent).await, Ok(()));
        }
    }
}
