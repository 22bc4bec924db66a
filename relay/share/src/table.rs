//! The table of open and recently ended shares and of visitors. Pure: the caller passes the time.

use super::link::seal;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{Key, Verifier};
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::{
    ClosedShare, LoginNameError, Scope, Share, ShareId, ShareRequest, ShareTerms, Sharing, Visitor,
    login_name,
};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of open shares.
pub const MAX_SHARES: usize = 64;
/// Number of ended shares that are remembered, so that their holders learn the reason.
const REMEMBERED: usize = 256;

/// Reason for the end of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The owner revoked it.
    Revoked,
    /// It expired, or its jobs ended.
    Expired,
}

/// Error of a request about a share. Messages are complete sentences for the owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The scope is empty or too large.
    #[error("name the jobs, arrays or nodes to share, at most {}", Scope::MAX_NAMED)]
    Scope,
    /// The duration is out of range.
    #[error("a share lasts from 1 minute to 30 days")]
    Lifetime,
    /// The limit is reached.
    #[error("{MAX_SHARES} shares are open; revoke one first")]
    TooMany,
    /// The login name is invalid.
    #[error("failed to {0}")]
    User(#[from] LoginNameError),
    /// The user does not exist.
    #[error("there is no user {0} on this machine, so no one could use the share; check the login name")]
    NoSuchUser(Text),
    /// The relay does not watch the scope.
    #[error("{0}")]
    NotWatched(Text),
    /// No other user could reach the page.
    #[error(
        "this relay listens only on sockets that no other user can open; \
         start it with --bind 127.0.0.1:8080 too"
    )]
    Unreachable,
    /// The share does not exist.
    #[error("there is no open share {0}")]
    Unknown(ShareId),
    /// The share was created by an earlier relay process, whose key was not stored.
    #[error("the link of {0} was shown when it was created and is not stored; create a new share")]
    LinkNotKept(ShareId),
    /// A system call or the store failed.
    #[error("{0}")]
    Failed(Text),
}

/// An open share and what authenticates its holder.
#[derive(Clone, Debug)]
pub struct OpenShare {
    /// The share.
    pub share: Share,
    /// Verifies the holder's proof.
    pub verifier: Verifier,
    /// Detects altered terms; see [`super::link`].
    pub seal: Key,
    /// The only user who may use it.
    pub uid: Option<u32>,
    /// Description of the jobs and machines that its relay watched; its scope is a part of them.
    pub watches: String,
}

impl OpenShare {
    /// Opens a share of a relay that `watches` these jobs and machines, for the holder of its ticket.
    pub fn new(share: Share, uid: Option<u32>, watches: &str, ticket: &Ticket) -> Self {
        let key = ticket.proof();
        let seal = seal(&share, uid, watches, &key.client_key());
        Self { seal, verifier: key.verifier(), share, uid, watches: watches.to_owned() }
    }

    /// Returns whether the stored share is unaltered, given the key from the holder's proof.
    pub fn is_unaltered(&self, client_key: &Key) -> bool {
        self.seal == seal(&self.share, self.uid, &self.watches, client_key)
    }
}

/// The state of a share whose id a client names.
#[derive(Clone, Debug)]
pub struct ShareState {
    /// Verifies the holder's proof.
    pub verifier: Verifier,
    /// The open share, or why it ended.
    pub status: Result<OpenShare, EndReason>,
}

/// Open and recently ended shares, and visitors.
#[derive(Debug, Default)]
pub struct Table {
    open: BTreeMap<ShareId, OpenShare>,
    ended: VecDeque<(ShareId, Verifier, EndReason)>,
    /// Stored shares of relays that watched something else.
    pub(super) closed: Vec<OpenShare>,
    visitors: BTreeMap<u64, Visitor>,
    next_visitor: u64,
}

impl Table {
    /// The terms for a request, if it can be granted at `now_ms`.
    pub fn terms(&self, request: ShareRequest, now_ms: u64) -> Result<ShareTerms, ShareError> {
        if self.open.len() >= MAX_SHARES {
            return Err(ShareError::TooMany);
        }
        if !request.scope.named_count().is_none_or(|named| (1..=Scope::MAX_NAMED).contains(&named)) {
            return Err(ShareError::Scope);
        }
        let lifetime_s = request.lifetime_s.unwrap_or(ShareRequest::DEFAULT_S);
        if !(60..=ShareRequest::MAX_S).contains(&lifetime_s) {
            return Err(ShareError::Lifetime);
        }
        Ok(ShareTerms {
            label: request.label,
            ends_with_job: request.lifetime_s.is_none() && request.scope.is_of_jobs(),
            scope: request.scope,
            hidden: request.hidden,
            to: request.to.map(|to| login_name(to.as_str())).transpose()?,
            expires_ms: now_ms + lifetime_s * 1_000,
        })
    }

    /// Adds an open share.
    pub fn open(&mut self, open: OpenShare) {
        self.open.insert(open.share.id.clone(), open);
    }

    /// An open share.
    pub fn get(&self, id: &ShareId) -> Option<&OpenShare> {
        self.open.get(id)
    }

    /// The state of a share; `None` if it never existed or is no longer remembered.
    pub fn state(&self, id: &ShareId) -> Option<ShareState> {
        if let Some(open) = self.open.get(id) {
            return Some(ShareState { verifier: open.verifier.clone(), status: Ok(open.clone()) });
        }
        let (_, verifier, reason) = self.ended.iter().find(|(ended, ..)| ended == id)?;
        Some(ShareState { verifier: verifier.clone(), status: Err(*reason) })
    }

    /// Ends a share; returns false if it was not open.
    pub fn end(&mut self, id: &ShareId, reason: EndReason) -> bool {
        let Some(open) = self.open.remove(id) else { return false };
        self.ended.push_back((id.clone(), open.verifier, reason));
        let over = self.ended.len().saturating_sub(REMEMBERED);
        self.ended.drain(..over);
        true
    }

    /// The shares that have expired at `now_ms`.
    pub fn due(&self, now_ms: u64) -> Vec<ShareId> {
        let due = self.open.values().filter(|open| open.share.terms.expires_ms <= now_ms);
        due.map(|open| open.share.id.clone()).collect()
    }

    /// The ids of the open shares.
    pub fn ids(&self) -> impl Iterator<Item = &ShareId> {
        self.open.keys()
    }

    /// The shares of jobs, which may end with them.
    pub fn of_jobs(&self) -> Vec<Share> {
        let of_jobs = self.open.values().filter(|open| open.share.terms.scope.is_of_jobs());
        of_jobs.map(|open| open.share.clone()).collect()
    }

    /// Adds a visitor; returns the id for [`Table::remove_visitor`].
    pub fn add_visitor(&mut self, visitor: Visitor) -> u64 {
        self.next_visitor += 1;
        self.visitors.insert(self.next_visitor, visitor);
        self.next_visitor
    }

    /// Removes a visitor.
    pub fn remove_visitor(&mut self, number: u64) {
        self.visitors.remove(&number);
    }

    /// Shares by age, visitors in order of arrival.
    pub fn sharing(&self) -> Sharing {
        let mut shares: Vec<_> = self.open.values().map(|open| open.share.clone()).collect();
        shares.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        let closed = self
            .closed
            .iter()
            .map(|closed| ClosedShare { share: closed.share.clone(), watches: Text::new(&closed.watches) });
        Sharing { shares, visitors: self.visitors.values().cloned().collect(), closed: closed.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::HiddenParts;

    fn request(scope: Scope) -> ShareRequest {
        ShareRequest { label: "".into(), scope, hidden: HiddenParts::default(), to: None, lifetime_s: None }
    }

    fn opened(id: &str, terms: ShareTerms) -> OpenShare {
        let share = Share { id: ShareId::new(id).unwrap(), created_ms: 0, terms };
        let ticket = Ticket::new(share.id.clone(), Key::new([7; 32]));
        OpenShare::new(share, None, "your jobs", &ticket)
    }

    #[test]
    fn a_share_of_a_job_ends_after_a_day_or_with_its_job_by_default() {
        let table = Table::default();
        let terms = table.terms(request(Scope::Jobs(vec![JobId(1)])), 5).unwrap();
        assert_eq!((terms.expires_ms, terms.ends_with_job), (86_400_005, true));
        let explicit = ShareRequest { lifetime_s: Some(60), ..request(Scope::Jobs(vec![JobId(1)])) };
        let terms = table.terms(explicit, 5).unwrap();
        assert_eq!((terms.expires_ms, terms.ends_with_job), (60_005, false));
        let array = Scope::of_jobs(Vec::new(), vec![JobId(40)]);
        assert_eq!(table.terms(request(array), 5).unwrap().ends_with(), Some("the last task of the array"));
        assert!(!table.terms(request(Scope::All), 5).unwrap().ends_with_job);
    }

    #[test]
    fn invalid_requests_are_refused() {
        let table = Table::default();
        let refused = |request| table.terms(request, 0).unwrap_err();
        assert_eq!(refused(request(Scope::Jobs(Vec::new()))), ShareError::Scope);
        assert_eq!(refused(request(Scope::Jobs(vec![JobId(1); 257]))), ShareError::Scope);
        let mixed = Scope::of_jobs(vec![JobId(1); 200], vec![JobId(40); 57]);
        assert_eq!(refused(request(mixed)), ShareError::Scope);
        let empty = Scope::JobsAndArrays { jobs: Vec::new(), arrays: Vec::new() };
        assert_eq!(refused(request(empty)), ShareError::Scope);
        for lifetime_s in [0, 59, ShareRequest::MAX_S + 1, u64::MAX] {
            assert_eq!(
                refused(ShareRequest { lifetime_s: Some(lifetime_s), ..request(Scope::All) }),
                ShareError::Lifetime
            );
        }
    }

    #[test]
    fn t09_a_share_for_an_empty_name_is_refused() {
        let for_user = |to: &str| ShareRequest { to: Some(to.into()), ..request(Scope::All) };
        assert_eq!(Table::default().terms(for_user(""), 0), Err(ShareError::User(LoginNameError::Empty)));
        assert_eq!(Table::default().terms(for_user("bob"), 0).unwrap().to, Some("bob".into()));
    }

    #[test]
    fn t09_an_altered_share_does_not_match_its_seal() {
        let terms = Table::default().terms(request(Scope::Jobs(vec![JobId(1)])), 0).unwrap();
        let ticket = Ticket::new(ShareId::new("abc").unwrap(), Key::new([7; 32]));
        let client_key = ticket.proof().client_key();
        let open = opened("abc", terms);
        assert!(open.is_unaltered(&client_key));
        let alterations: [fn(&mut OpenShare); 6] = [
            |open| open.share.terms.scope = Scope::All,
            |open| open.share.terms.hidden.logs = false,
            |open| open.share.terms.expires_ms += 1,
            |open| open.share.created_ms = 1,
            |open| open.uid = Some(1),
            |open| open.watches = "all users' jobs".to_owned(),
        ];
        for alter in alterations {
            let mut altered = open.clone();
            alter(&mut altered);
            assert!(!altered.is_unaltered(&client_key), "{altered:?}");
        }
    }

    #[test]
    fn ended_shares_are_remembered_up_to_a_limit() {
        let mut table = Table::default();
        let terms = table.terms(request(Scope::All), 0).unwrap();
        for number in 0..300 {
            let open = opened(&format!("s{number}"), terms.clone());
            let id = open.share.id.clone();
            table.open(open);
            assert!(table.state(&id).is_some_and(|state| state.status.is_ok()));
            assert!(table.end(&id, EndReason::Revoked));
            assert!(!table.end(&id, EndReason::Expired));
            assert_eq!(table.state(&id).unwrap().status.unwrap_err(), EndReason::Revoked);
        }
        assert!(table.state(&ShareId::new("s0").unwrap()).is_none());
        assert_eq!(table.ended.len(), REMEMBERED);
    }

    #[test]
    fn shares_are_due_at_their_expiry_time() {
        let mut table = Table::default();
        let terms = table.terms(request(Scope::All), 0).unwrap();
        table.open(opened("a", ShareTerms { expires_ms: 10, ..terms.clone() }));
        table.open(opened("b", ShareTerms { expires_ms: 20, ..terms }));
        assert!(table.due(9).is_empty());
        assert_eq!(table.due(10), [ShareId::new("a").unwrap()]);
        assert_eq!(table.due(99).len(), 2);
    }

    #[test]
    fn the_number_of_open_shares_is_bounded() {
        let mut table = Table::default();
        let terms = table.terms(request(Scope::All), 0).unwrap();
        (0..MAX_SHARES).for_each(|number| table.open(opened(&format!("s{number}"), terms.clone())));
        assert_eq!(table.terms(request(Scope::All), 0), Err(ShareError::TooMany));
    }
}
