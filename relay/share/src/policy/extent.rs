//! The extent of a viewer's access: the jobs and nodes in scope, and the parts that are hidden.

use super::{Extent, Visibility};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::share::{HiddenParts, Scope, ShareTerms};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::BTreeSet;

/// Parts of their own jobs that people do not see: the relay of a site runs as another user, and must not read files on
/// their behalf.
const HIDDEN_FROM_ONESELF: HiddenParts =
    HiddenParts { arguments: false, paths: false, other_users: true, logs: true, notes: false };

impl Visibility {
    /// Returns the visibility that these terms grant of the jobs of `owner`.
    pub fn new(terms: &ShareTerms, owner: Text) -> Self {
        let extent = Extent::Scope(terms.scope.clone());
        Self { extent, hidden: terms.hidden, user: owner, is_person: false }
    }

    /// Returns the visibility of a person: their own jobs, and those of `accounts` without arguments, paths, logs and
    /// notes.
    pub fn of_person(user: Text, accounts: BTreeSet<Text>) -> Self {
        let hidden = HiddenParts { notes: true, ..HiddenParts::default() };
        Self { extent: Extent::Person { accounts }, hidden, user, is_person: true }
    }

    /// Returns the visibility of an administrator: everything, without arguments, paths, logs and notes of others.
    pub fn of_admin(user: Text) -> Self {
        let hidden = HiddenParts { other_users: false, notes: true, ..HiddenParts::default() };
        Self { extent: Extent::Scope(Scope::All), hidden, user, is_person: true }
    }

    /// Returns the name of the person or administrator; `None` of a share.
    pub fn person(&self) -> Option<&Text> {
        self.is_person.then_some(&self.user)
    }

    /// Returns a job that is not listed any more as a person sees it: their own, or any for an administrator. The account
    /// does not count, as the job may have been one of another cluster.
    pub fn ended_job(&self, job: &Job) -> Option<Job> {
        let is_shown = self.is_person && job.user == self.user || self.shows_all_ended_jobs();
        if is_shown { self.job(job) } else { None }
    }

    /// Returns whether jobs of all users that are not listed any more are shown, as to an administrator.
    pub fn shows_all_ended_jobs(&self) -> bool {
        self.is_person && self.covers_all()
    }

    /// Returns whether a job is in scope. Unless the scope names it, a job that is not in the job list is hidden.
    pub fn shows_job(&self, id: JobId, jobs: &[Job]) -> bool {
        match &self.extent {
            Extent::Scope(Scope::Jobs(shown)) => shown.contains(&id),
            Extent::Scope(Scope::JobsAndArrays { jobs: shown, .. }) if shown.contains(&id) => true,
            _ => jobs.iter().any(|job| job.id == id && self.covers(job)),
        }
    }

    /// Returns whether a job of the job list is in scope.
    pub(super) fn covers(&self, job: &Job) -> bool {
        match &self.extent {
            Extent::Scope(scope @ (Scope::Jobs(_) | Scope::JobsAndArrays { .. })) => scope.names_job(job),
            Extent::Scope(Scope::Nodes(shown)) => job.nodes.iter().any(|node| shown.contains(node)),
            Extent::Scope(Scope::All) => true,
            Extent::Person { accounts } => {
                job.user == self.user
                    || job.account.as_ref().is_some_and(|account| accounts.contains(account))
            }
        }
    }

    /// Returns whether everything is in scope.
    pub(super) fn covers_all(&self) -> bool {
        self.extent == Extent::Scope(Scope::All)
    }

    /// Returns whether single jobs are in scope, not the nodes on which they run.
    pub(super) fn is_of_jobs(&self) -> bool {
        match &self.extent {
            Extent::Scope(scope) => scope.is_of_jobs(),
            Extent::Person { .. } => true,
        }
    }

    /// The nodes of a share of nodes.
    pub(super) fn shared_nodes(&self) -> Option<&[NodeName]> {
        match &self.extent {
            Extent::Scope(Scope::Nodes(shown)) => Some(shown),
            _ => None,
        }
    }

    /// Returns what is hidden of the jobs and processes of a user.
    pub(super) fn hidden_of(&self, user: Option<&Text>) -> HiddenParts {
        if self.is_person && user == Some(&self.user) { HIDDEN_FROM_ONESELF } else { self.hidden }
    }

    /// Returns whether a node's current state is in scope.
    pub(super) fn shows_node(&self, name: &NodeName, jobs: &[Job]) -> bool {
        if self.is_of_jobs() {
            return jobs.iter().any(|job| self.covers(job) && job.is_active() && job.nodes.contains(name));
        }
        self.shares_node(name)
    }

    /// Returns whether a node is in scope, given that a job in scope runs or ran there: a share of nodes does not
    /// show the other nodes of their jobs.
    pub(super) fn shares_node(&self, name: &NodeName) -> bool {
        self.shared_nodes().is_none_or(|shown| shown.contains(name))
    }

    /// The nodes on which jobs in scope run; `None` if the scope is not jobs. For many nodes at once: a site has
    /// thousands of nodes and of jobs.
    pub(super) fn current_nodes<'a>(&self, jobs: &'a [Job]) -> Option<BTreeSet<&'a NodeName>> {
        let active = || jobs.iter().filter(|job| job.is_active() && self.covers(job));
        self.is_of_jobs().then(|| active().flat_map(|job| &job.nodes).collect())
    }
}
