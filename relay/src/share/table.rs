//! The table knows which shares are open, which were and how they ended, and who looks; what it decides needs no clock.

use super::link::seal;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::{Key, Verifier};
use nodeglass_protocol::share::{
    LoginNameError, Scope, Share, ShareId, ShareRequest, ShareTerms, Sharing, Ticket, Visitor, login_name,
};
use std::collections::{BTreeMap, VecDeque};

/// Most shares that may be open at once.
pub const MAX_SHARES: usize = 64;
/// How many shares that ended are remembered, so that their holders are told what became of them.
const REMEMBERED: usize = 256;

/// How a share ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its owner revoked it.
    Revoked,
    /// Its time was over, or its jobs'.
    Expired,
}

/// Why a share is not made. Each is a sentence for the owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It would show nothing, or is too long a list.
    #[error("name the jobs or nodes to share, at most {}", Scope::MAX_NAMED)]
    Scope,
    /// It would last no time, or too long.
    #[error("a share lasts from 1 minute to 30 days")]
    Lasts,
    /// There are enough.
    #[error("{MAX_SHARES} shares are open; revoke one first")]
    TooMany,
    /// What names the user is no name.
    #[error("failed to {0}")]
    User(#[from] LoginNameError),
    /// No such user here.
    #[error("there is no user {0} on this machine, so that nobody could use the share; check the login name")]
    NoSuchUser(Text),
    /// The relay does not watch it.
    #[error("{0}")]
    OutOfSight(Text),
    /// Nobody else could open the link.
    #[error(
        "this relay listens on sockets of yours alone, which nobody else can open; \
         start it with --bind 127.0.0.1:8080 too"
    )]
    Unreachable,
    /// It does not exist.
    #[error("there is no open share {0}")]
    Unknown(ShareId),
    /// It was made by a relay that ended; its key was not kept.
    #[error("the link of {0} was shown when it was made, and its key is not kept; make a new share")]
    LinkNotKept(ShareId),
    /// The system failed.
    #[error("{0}")]
    Failed(Text),
}

/// A share with what the relay checks its holder against.
#[derive(Clone, Debug)]
pub struct Open {
    /// The share.
    pub share: Share,
    /// What its holder's proof is checked against.
    pub verifier: Verifier,
    /// What shows that share and uid are as they were made; see [`super::link`].
    pub seal: Key,
    /// The only user who may use it.
    pub uid: Option<u32>,
}

impl Open {
    /// A share that is opened for the holder of its ticket.
    pub fn new(share: Share, uid: Option<u32>, ticket: &Ticket) -> Self {
        let key = ticket.proof();
        Self { seal: seal(&share, uid, &key.client_key()), verifier: key.verifier(), share, uid }
    }

    /// Whether nothing of it was altered where it was kept; the holder's proof brings the key.
    pub fn is_as_made(&self, client_key: &Key) -> bool {
        self.seal == seal(&self.share, self.uid, client_key)
    }
}

/// What is known of a share whose id somebody names.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What its holder's proof is checked against.
    pub verifier: Verifier,
    /// Of an open one everything, of another how it ended.
    pub now: Result<Open, Ending>,
}

/// Shares and visitors.
#[derive(Debug, Default)]
pub struct Table {
    open: BTreeMap<ShareId, Open>,
    ended: VecDeque<(ShareId, Verifier, Ending)>,
    visitors: BTreeMap<u64, Visitor>,
    next_visitor: u64,
}

impl Table {
    /// The terms that come of a request, if it can be granted at `now_ms`.
    pub fn terms(&self, request: ShareRequest, now_ms: u64) -> Result<ShareTerms, Refusal> {
        if self.open.len() >= MAX_SHARES {
            return Err(Refusal::TooMany);
        }
        let named = match &request.scope {
            Scope::Jobs(jobs) => jobs.len(),
            Scope::Nodes(nodes) => nodes.len(),
            Scope::All => 1,
        };
        if !(1..=Scope::MAX_NAMED).contains(&named) {
            return Err(Refusal::Scope);
        }
        let lasts_s = request.lasts_s.unwrap_or(ShareRequest::DEFAULT_S);
        if !(60..=ShareRequest::MAX_S).contains(&lasts_s) {
            return Err(Refusal::Lasts);
        }
        Ok(ShareTerms {
            label: request.label,
            ends_with_job: request.lasts_s.is_none() && matches!(request.scope, Scope::Jobs(_)),
            scope: request.scope,
            hides: request.hides,
            to: request.to.map(|to| login_name(to.as_str())).transpose()?,
            expires_ms: now_ms + lasts_s * 1_000,
        })
    }

    /// Opens a share.
    pub fn open(&mut self, open: Open) {
        self.open.insert(open.share.id.clone(), open);
    }

    /// An open share.
    pub fn get(&self, id: &ShareId) -> Option<&Open> {
        self.open.get(id)
    }

    /// What is known of a share; `None` of one that never was, or is long forgotten.
    pub fn standing(&self, id: &ShareId) -> Option<Standing> {
        if let Some(open) = self.open.get(id) {
            return Some(Standing { verifier: open.verifier.clone(), now: Ok(open.clone()) });
        }
        let (_, verifier, ending) = self.ended.iter().find(|(ended, ..)| ended == id)?;
        Some(Standing { verifier: verifier.clone(), now: Err(*ending) })
    }

    /// Ends a share; `false` if it was not open.
    pub fn end(&mut self, id: &ShareId, ending: Ending) -> bool {
        let Some(open) = self.open.remove(id) else { return false };
        self.ended.push_back((id.clone(), open.verifier, ending));
        let over = self.ended.len().saturating_sub(REMEMBERED);
        self.ended.drain(..over);
        true
    }

    /// The shares whose time is over at `now_ms`.
    pub fn due(&self, now_ms: u64) -> Vec<ShareId> {
        let due = self.open.values().filter(|open| open.share.terms.expires_ms <= now_ms);
        due.map(|open| open.share.id.clone()).collect()
    }

    /// The shares that end with their jobs.
    pub fn ending_with_jobs(&self) -> Vec<(ShareId, Scope)> {
        let bound = self.open.values().filter(|open| open.share.terms.ends_with_job);
        bound.map(|open| (open.share.id.clone(), open.share.terms.scope.clone())).collect()
    }

    /// Somebody came; the number is for [`Table::leave`].
    pub fn come(&mut self, visitor: Visitor) -> u64 {
        self.next_visitor += 1;
        self.visitors.insert(self.next_visitor, visitor);
        self.next_visitor
    }

    /// They left.
    pub fn leave(&mut self, number: u64) {
        self.visitors.remove(&number);
    }

    /// Shares by age, visitors in the order of their coming.
    pub fn sharing(&self) -> Sharing {
        let mut shares: Vec<_> = self.open.values().map(|open| open.share.clone()).collect();
        shares.sort_by(|a, b| (a.made_ms, &a.id).cmp(&(b.made_ms, &b.id)));
        Sharing { shares, visitors: self.visitors.values().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::Hides;

    fn request(scope: Scope) -> ShareRequest {
        ShareRequest { label: "".into(), scope, hides: Hides::default(), to: None, lasts_s: None }
    }

    fn opened(id: &str, terms: ShareTerms) -> Open {
        let share = Share { id: ShareId::new(id).unwrap(), made_ms: 0, terms };
        let ticket = Ticket::new(share.id.clone(), Key::new([7; 32]));
        Open::new(share, None, &ticket)
    }

    #[test]
    fn a_share_of_a_job_ends_after_a_day_or_with_its_job_unless_a_time_was_said() {
        let table = Table::default();
        let terms = table.terms(request(Scope::Jobs(vec![JobId(1)])), 5).unwrap();
        assert_eq!((terms.expires_ms, terms.ends_with_job), (86_400_005, true));
        let said = ShareRequest { lasts_s: Some(60), ..request(Scope::Jobs(vec![JobId(1)])) };
        let terms = table.terms(said, 5).unwrap();
        assert_eq!((terms.expires_ms, terms.ends_with_job), (60_005, false));
        assert!(!table.terms(request(Scope::All), 5).unwrap().ends_with_job);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let table = Table::default();
        let refused = |request| table.terms(request, 0).unwrap_err();
        assert_eq!(refused(request(Scope::Jobs(Vec::new()))), Refusal::Scope);
        assert_eq!(refused(request(Scope::Jobs(vec![JobId(1); 257]))), Refusal::Scope);
        for lasts_s in [0, 59, ShareRequest::MAX_S + 1, u64::MAX] {
            assert_eq!(
                refused(ShareRequest { lasts_s: Some(lasts_s), ..request(Scope::All) }),
                Refusal::Lasts
            );
        }
    }

    #[test]
    fn t09_a_share_for_an_empty_name_is_refused_rather_than_made_for_everybody() {
        let for_user = |to: &str| ShareRequest { to: Some(to.into()), ..request(Scope::All) };
        assert_eq!(Table::default().terms(for_user(""), 0), Err(Refusal::User(LoginNameError::Empty)));
        assert_eq!(Table::default().terms(for_user("bob"), 0).unwrap().to, Some("bob".into()));
    }

    #[test]
    fn t09_what_was_altered_where_it_was_kept_does_not_carry_its_seal() {
        let terms = Table::default().terms(request(Scope::Jobs(vec![JobId(1)])), 0).unwrap();
        let ticket = Ticket::new(ShareId::new("abc").unwrap(), Key::new([7; 32]));
        let client_key = ticket.proof().client_key();
        let open = opened("abc", terms);
        assert!(open.is_as_made(&client_key));
        let alterations: [fn(&mut Open); 5] = [
            |open| open.share.terms.scope = Scope::All,
            |open| open.share.terms.hides.logs = false,
            |open| open.share.terms.expires_ms += 1,
            |open| open.share.made_ms = 1,
            |open| open.uid = Some(1),
        ];
        for alter in alterations {
            let mut altered = open.clone();
            alter(&mut altered);
            assert!(!altered.is_as_made(&client_key), "{altered:?}");
        }
    }

    #[test]
    fn a_share_that_ended_is_remembered_as_what_it_was_but_not_for_ever() {
        let mut table = Table::default();
        let terms = table.terms(request(Scope::All), 0).unwrap();
        for number in 0..300 {
            let open = opened(&format!("s{number}"), terms.clone());
            let id = open.share.id.clone();
            table.open(open);
            assert!(table.standing(&id).is_some_and(|standing| standing.now.is_ok()));
            assert!(table.end(&id, Ending::Revoked));
            assert!(!table.end(&id, Ending::Expired));
            assert_eq!(table.standing(&id).unwrap().now.unwrap_err(), Ending::Revoked);
        }
        assert!(table.standing(&ShareId::new("s0").unwrap()).is_none());
        assert_eq!(table.ended.len(), REMEMBERED);
    }

    #[test]
    fn what_is_due_is_told_by_the_moment() {
        let mut table = Table::default();
        let terms = table.terms(request(Scope::All), 0).unwrap();
        table.open(opened("a", ShareTerms { expires_ms: 10, ..terms.clone() }));
        table.open(opened("b", ShareTerms { expires_ms: 20, ..terms }));
        assert!(table.due(9).is_empty());
        assert_eq!(table.due(10), [ShareId::new("a").unwrap()]);
        assert_eq!(table.due(99).len(), 2);
    }

    #[test]
    fn only_so_many_are_open_at_once() {
        let mut table = Table::default();
        let terms = table.terms(request(Scope::All), 0).unwrap();
        (0..MAX_SHARES).for_each(|number| table.open(opened(&format!("s{number}"), terms.clone())));
        assert_eq!(table.terms(request(Scope::All), 0), Err(Refusal::TooMany));
    }
}
