//! Shares are made, looked through and ended here; whoever looks is sent away in the moment a share ends.

use super::link::ticket;
use super::policy::{Viewer, Visibility};
use super::store::Store;
use super::table::{Ending, Open, Refusal, Standing, Table};
use crate::access::peer::Peer;
use crate::access::{self, user};
use crate::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::share::{
    Scope, Share, ShareId, ShareLink, ShareRequest, ShareTerms, Sharing, Ticket, Visitor,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Longest time between two looks at what is due; a clock that was set is noticed within it.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where a share's link leads.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// The page's address for a teammate (`http://127.0.0.1:8080/?v=k3jq9xab`); none if they cannot reach it at all.
    pub address: Option<String>,
    /// The `ssh -L` line for a teammate, who logs in as themself.
    pub tunnel: Text,
}

/// All shares of this relay.
#[derive(Debug)]
pub struct Shares {
    table: Mutex<Table>,
    told: watch::Sender<Sharing>,
    key: Key,
    owner: Text,
    door: Door,
    store: Option<Store>,
}

/// Who is let in.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The owner.
    Owner,
    /// The holder of a share.
    Guest(Box<Share>),
}

/// Somebody who looks; dropping it is leaving.
#[derive(Debug)]
pub struct Visit {
    shares: Arc<Shares>,
    number: u64,
    admission: Admission,
    told: watch::Receiver<Sharing>,
}

impl Shares {
    /// The shares of a relay whose owner holds `key`; those in `store` are open again.
    pub fn new(key: Key, owner: Text, door: Door, store: Option<Store>) -> Self {
        let mut table = Table::default();
        for open in store.iter().flat_map(Store::load) {
            table.open(open);
        }
        let told = watch::Sender::new(table.sharing());
        Self { table: Mutex::new(table), told, key, owner, door, store }
    }

    /// Who may look and who does, now and whenever it changes.
    pub fn watch(&self) -> watch::Receiver<Sharing> {
        self.told.subscribe()
    }

    /// Makes a share. That its scope is watched is for the caller to know.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn make(&self, request: ShareRequest) -> Result<ShareLink, Refusal> {
        if self.door.address.is_none() {
            return Err(Refusal::Unreachable);
        }
        let now_ms = Clock::wall_ms();
        let terms = self.table().terms(request, now_ms)?;
        let uid = terms.to.as_ref().map(uid_of).transpose()?;
        let id = access::new_share_id().map_err(|error| Refusal::Failed(error.to_string().into()))?;
        let share = Share { id, made_ms: now_ms, terms };
        let ticket = ticket(&share, &self.key);
        let open = Open::new(share.clone(), uid, &ticket);
        if let Some(store) = &self.store {
            store.keep(&open).map_err(|error| Refusal::Failed(error.to_string().into()))?;
        }
        self.change(|table| table.open(open));
        tracing::info!(share = %share.id, "a share was made");
        Ok(self.linked(share, &ticket))
    }

    /// The link of an open share once more.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such share, or its link is not known any more.
    pub fn link(&self, id: &ShareId) -> Result<ShareLink, Refusal> {
        let open = self.table().get(id).cloned().ok_or_else(|| Refusal::Unknown(id.clone()))?;
        let ticket = ticket(&open.share, &self.key);
        if ticket.proof().verifier() != open.verifier {
            return Err(Refusal::LinkNotKept(id.clone()));
        }
        Ok(self.linked(open.share, &ticket))
    }

    fn linked(&self, share: Share, ticket: &Ticket) -> ShareLink {
        let link = self.door.address.as_ref().map(|address| format!("{address}#s={}", ticket.reveal()));
        ShareLink { share, link, tunnel: self.door.tunnel.clone() }
    }

    /// Revokes a share. Where shares are kept it then writes to a disk, which may be slow.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] if it is not open; [`Refusal::Failed`] if it is revoked now but may be
    /// open again after a restart.
    pub fn revoke(&self, id: &ShareId) -> Result<(), Refusal> {
        // Memory first: whoever looks is gone, whatever becomes of the disk.
        if !self.end(id, Ending::Revoked) {
            return Err(Refusal::Unknown(id.clone()));
        }
        self.forget(id)
    }

    /// Ends a share for whoever holds its link, and tells whether it was open.
    fn end(&self, id: &ShareId, ending: Ending) -> bool {
        let was_open = self.change(|table| table.end(id, ending));
        if was_open {
            tracing::info!(share = %id, ?ending, "a share ended");
        }
        was_open
    }

    /// Sees to it that a share that ended is not open again after a restart.
    fn forget(&self, id: &ShareId) -> Result<(), Refusal> {
        let Some(store) = &self.store else { return Ok(()) };
        store.forget(id).map_err(|error| {
            let why = format!("it is closed now, but would be open again after a restart: {error}");
            Refusal::Failed(why.into())
        })
    }

    /// Closes a share whose terms were altered where they were kept: what its holder proved shows it. It is also
    /// deleted there, or it would be listed as open after a restart.
    pub fn close_altered(&self, id: &ShareId) {
        tracing::warn!(share = %id, "the kept terms of a share were altered, so that it is closed; make a new one");
        self.end(id, Ending::Revoked);
        if let Err(error) = self.forget(id) {
            tracing::warn!(share = %id, %error, "the altered share could not be deleted");
        }
    }

    /// What is known of a share that somebody names.
    pub fn standing(&self, id: &ShareId) -> Option<Standing> {
        self.end_what_is_due();
        self.table().standing(id)
    }

    /// Writes down that somebody looks from now on.
    pub fn visit(self: &Arc<Self>, admission: Admission, peer: Peer) -> Visit {
        let share = match &admission {
            Admission::Owner => None,
            Admission::Guest(share) => Some(share.id.clone()),
        };
        let user = peer.uid().and_then(user::name_of);
        let visitor = Visitor { share, user, since_ms: Clock::wall_ms() };
        let number = self.change(|table| table.come(visitor));
        Visit { shares: self.clone(), number, admission, told: self.told.subscribe() }
    }

    /// What a holder of this share sees.
    pub fn viewer(&self, admission: &Admission) -> Viewer {
        match admission {
            Admission::Owner => Viewer::Owner,
            Admission::Guest(share) => {
                Viewer::Guest(Arc::new(Visibility::new(&share.terms, self.owner.clone())))
            }
        }
    }

    /// Ends shares when their time or their jobs' is over, for as long as the relay runs.
    /// `over` says whether every job of a list has ended; `None` when that is not known now.
    pub async fn keep_time<F: Future<Output = Option<bool>>>(self: Arc<Self>, over: impl Fn(Scope) -> F) {
        loop {
            sleep(LOOK_EVERY).await;
            self.end_what_is_due();
            let bound = self.table().ending_with_jobs();
            for (id, scope) in bound {
                if over(scope).await == Some(true) && self.end(&id, Ending::Expired) {
                    let shares = self.clone();
                    spawn_blocking(move || {
                        if let Err(error) = shares.forget(&id) {
                            tracing::warn!(%error, "a share whose jobs ended could not be forgotten");
                        }
                    });
                }
            }
        }
    }

    /// In memory alone: one whose time is over is not loaded again, whatever is written of it.
    fn end_what_is_due(&self) {
        let due = self.table().due(Clock::wall_ms());
        for id in due {
            self.end(&id, Ending::Expired);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let result = change(&mut table);
        self.told.send_replace(table.sharing());
        result
    }

    /// Each change is one step, so a panic elsewhere cannot have left it half done.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uid of the only user of a share.
fn uid_of(to: &Text) -> Result<u32, Refusal> {
    match user::look_up(to.as_str()) {
        Ok(Some(uid)) => Ok(uid),
        Ok(None) => Err(Refusal::NoSuchUser(to.clone())),
        Err(error) => {
            Err(Refusal::Failed(format!("the list of users cannot be read now ({error}); try again").into()))
        }
    }
}

impl Visit {
    /// What the visitor sees.
    pub fn viewer(&self) -> Viewer {
        self.shares.viewer(&self.admission)
    }

    /// What holds for a guest.
    pub fn terms(&self) -> Option<&ShareTerms> {
        match &self.admission {
            Admission::Owner => None,
            Admission::Guest(share) => Some(&share.terms),
        }
    }

    /// Waits until the share ends; an owner's visit never does. Nothing is lost when the future is dropped.
    pub async fn ended(&mut self) -> Ending {
        let Admission::Guest(share) = &self.admission else { return std::future::pending().await };
        let open = |sharing: &Sharing| sharing.shares.iter().any(|open| open.id == share.id);
        // The sender lives in `shares`, which is held here.
        let _ = self.told.wait_for(|sharing| !open(sharing)).await;
        match self.shares.standing(&share.id).map(|standing| standing.now) {
            Some(Err(ending)) => ending,
            _ => Ending::Revoked,
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.shares.change(|table| table.leave(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::Hides;

    fn shares() -> Arc<Shares> {
        let door = Door { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
        Arc::new(Shares::new(Key::new([7; 32]), "alice".into(), door, None))
    }

    fn request(scope: Scope) -> ShareRequest {
        ShareRequest { label: "".into(), scope, hides: Hides::default(), to: None, lasts_s: None }
    }

    fn guest(shares: &Arc<Shares>, made: &ShareLink) -> Visit {
        shares.visit(Admission::Guest(Box::new(made.share.clone())), Peer::Unknown)
    }

    #[tokio::test]
    async fn t10_a_revoked_share_sends_its_guests_away_and_nobody_else() {
        let shares = shares();
        let one = shares.make(request(Scope::All)).unwrap();
        let other = shares.make(request(Scope::Jobs(vec![JobId(1)]))).unwrap();
        let (mut gone, mut stays) = (guest(&shares, &one), guest(&shares, &other));
        let mut owner = shares.visit(Admission::Owner, Peer::owner());
        shares.revoke(&one.share.id).unwrap();
        assert_eq!(gone.ended().await, Ending::Revoked);
        let moment = Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, stays.ended()).await.is_err());
        assert!(tokio::time::timeout(moment, owner.ended()).await.is_err());
        assert_eq!(shares.revoke(&one.share.id), Err(Refusal::Unknown(one.share.id.clone())));
        assert_eq!(shares.standing(&one.share.id).unwrap().now.unwrap_err(), Ending::Revoked);
    }

    #[tokio::test]
    async fn a_share_of_a_job_ends_with_it_but_not_while_slurm_is_silent() {
        let shares = shares();
        let made = shares.make(request(Scope::Jobs(vec![JobId(1)]))).unwrap();
        let mut visit = guest(&shares, &made);
        let answers = Arc::new(Mutex::new(None));
        let asked = answers.clone();
        let keeping = tokio::spawn(shares.clone().keep_time(move |_| {
            let answer = *asked.lock().unwrap();
            async move { answer }
        }));
        for answer in [None, Some(false)] {
            *answers.lock().unwrap() = answer;
            assert!(tokio::time::timeout(3 * LOOK_EVERY, visit.ended()).await.is_err(), "{answer:?}");
        }
        *answers.lock().unwrap() = Some(true);
        assert_eq!(visit.ended().await, Ending::Expired);
        keeping.abort();
    }

    #[test]
    fn t09_a_share_that_was_altered_where_it_is_kept_is_not_open_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let start = || {
            let store = Store::open(&folder, "login1".into()).unwrap();
            let door = Door { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
            Shares::new(Key::new([7; 32]), "alice".into(), door, Some(store))
        };
        let made = start().make(request(Scope::All)).unwrap();
        let shares = start();
        assert!(shares.standing(&made.share.id).is_some_and(|standing| standing.now.is_ok()));
        shares.close_altered(&made.share.id);
        assert!(shares.standing(&made.share.id).is_some_and(|standing| standing.now.is_err()));
        assert!(start().standing(&made.share.id).is_none());
    }

    #[tokio::test]
    async fn t10_a_share_whose_time_is_over_sends_its_guests_away() {
        let shares = shares();
        let mut made = shares.make(request(Scope::All)).unwrap();
        made.share.terms.expires_ms = Clock::wall_ms() + 300;
        let open = Open::new(made.share.clone(), None, &ticket(&made.share, &Key::new([1; 32])));
        shares.change(|table| table.open(open));
        let mut visit = guest(&shares, &made);
        let keeping = tokio::spawn(shares.clone().keep_time(|_| async { None }));
        assert_eq!(visit.ended().await, Ending::Expired);
        assert!(Clock::wall_ms() >= made.share.terms.expires_ms);
        assert_eq!(shares.link(&made.share.id), Err(Refusal::Unknown(made.share.id)));
        keeping.abort();
    }

    #[tokio::test]
    async fn the_owner_sees_who_looks_until_they_leave() {
        let shares = shares();
        let made = shares.make(request(Scope::All)).unwrap();
        let told = shares.watch();
        let visit = shares.visit(Admission::Guest(Box::new(made.share.clone())), Peer::owner());
        let now = told.borrow().clone();
        assert_eq!(now.shares, std::slice::from_ref(&made.share));
        assert_eq!(now.visitors[0].share, Some(made.share.id));
        assert_eq!(now.visitors[0].user, Peer::owner().uid().and_then(user::name_of));
        drop(visit);
        assert!(told.borrow().visitors.is_empty());
    }

    #[tokio::test]
    async fn a_link_is_told_again_and_for_somebody_who_is_not_there_none_is_made() {
        let shares = shares();
        let made = shares.make(request(Scope::All)).unwrap();
        assert!(made.link.as_ref().is_some_and(|link| link.starts_with("http://127.0.0.1:8080/#s=")));
        assert_eq!(shares.link(&made.share.id).unwrap(), made);
        let to = ShareRequest { to: Some("no-such-user-here".into()), ..request(Scope::All) };
        assert_eq!(shares.make(to), Err(Refusal::NoSuchUser("no-such-user-here".into())));
    }
}
