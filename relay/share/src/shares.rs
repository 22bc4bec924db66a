//! Creates and ends shares, and disconnects viewers as soon as their share ends.

use super::link::ticket;
use super::policy::{Viewer, Visibility};
use super::store::{Store, StoreError};
use super::table::{EndReason, OpenShare, ShareError, ShareState, Table};
use nodeglass_access::peer::Peer;
use nodeglass_access::user;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::{
    ClosedShare, Share, ShareId, ShareLink, ShareRequest, ShareTerms, Sharing, Visitor,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Interval of expiry checks; also bounds how long a changed wall clock goes unnoticed.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which shares that another relay of this user has revoked are noticed, and what failed is repeated.
const STORE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The address to which the link of a share leads.
#[derive(Clone, Debug, Default)]
pub struct ShareEndpoint {
    /// The page's address for a teammate (`http://127.0.0.1:8080/?v=k3jq9xab`); none if they cannot reach it at all.
    pub address: Option<String>,
    /// The `ssh -L` line for a teammate, who logs in as themself.
    pub tunnel: Text,
}

/// All shares of this relay.
#[derive(Debug)]
pub struct Shares {
    table: Mutex<Table>,
    sharing: watch::Sender<Sharing>,
    key: Key,
    owner: Text,
    endpoint: ShareEndpoint,
    store: Option<Store>,
    /// Locked during each change of the store, so that store and table are changed in the same order.
    pending: Mutex<Pending>,
    /// Reason for which shares cannot be stored.
    problem: watch::Sender<Option<Text>>,
}

/// Changes that the store could not take yet.
#[derive(Debug, Default)]
struct Pending {
    /// Whether the shares of earlier relays were read.
    is_loaded: bool,
    /// Open shares that it lacks.
    unstored: BTreeSet<ShareId>,
    /// Ended shares that it may still have: a restart would open them again.
    undeleted: BTreeSet<ShareId>,
}

/// The result of an authentication.
#[derive(Clone, Debug)]
pub enum AccessGrant {
    /// The owner.
    Owner,
    /// The holder of the token of this id: sees what the owner sees, and changes nothing.
    Token(ShareId),
    /// The holder of a share.
    Guest(Box<Share>),
    /// A person whom the relay of a site identified, without a key: sees what their visibility says, and changes
    /// nothing.
    Person(Arc<Visibility>),
}

impl AccessGrant {
    /// Returns whether it admits a guest or a person, rather than the owner or a token.
    pub fn is_of_guest(&self) -> bool {
        match self {
            Self::Owner | Self::Token(_) => false,
            Self::Guest(_) | Self::Person(_) => true,
        }
    }

    /// Returns the name of the person whom it admits, if it admits one.
    pub fn person(&self) -> Option<&Text> {
        match self {
            Self::Person(visibility) => visibility.person(),
            Self::Owner | Self::Token(_) | Self::Guest(_) => None,
        }
    }
}

/// A connected viewer; dropping it ends the session.
#[derive(Debug)]
pub struct ViewerSession {
    shares: Arc<Shares>,
    /// Its number among the visitors; `None` for a person, as the list contains only those with keys.
    number: Option<u64>,
    grant: AccessGrant,
    sharing: watch::Receiver<Sharing>,
}

impl Shares {
    /// The shares of a relay whose owner holds `key`, including those in `store`, once it can be used.
    pub fn new(key: Key, owner: Text, endpoint: ShareEndpoint, store: Option<Store>) -> Self {
        let table = Table::default();
        let (sharing, problem) = (watch::Sender::new(table.sharing()), watch::Sender::default());
        let (table, pending) = (Mutex::new(table), Mutex::default());
        let shares = Self { table, sharing, key, owner, endpoint, store, pending, problem };
        shares.follow_store();
        shares
    }

    /// Subscribes to why shares cannot be stored, beginning with the present reason.
    pub fn problem(&self) -> watch::Receiver<Option<Text>> {
        let mut problem = self.problem.subscribe();
        problem.mark_changed();
        problem
    }

    /// Subscribes to the open shares and current visitors.
    pub fn watch(&self) -> watch::Receiver<Sharing> {
        self.sharing.subscribe()
    }

    /// Creates a share. The caller checks that its scope is watched.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn create(&self, request: ShareRequest) -> Result<ShareLink, ShareError> {
        if self.endpoint.address.is_none() {
            return Err(ShareError::Unreachable);
        }
        let now_ms = Clock::wall_ms();
        let terms = self.table().terms(request, now_ms)?;
        let uid = terms.to.as_ref().map(uid_of).transpose()?;
        let id =
            nodeglass_access::new_share_id().map_err(|error| ShareError::Failed(error.to_string().into()))?;
        let share = Share { id, created_ms: now_ms, terms };
        let ticket = ticket(&share, &self.key);
        let watches = self.store.as_ref().map(|store| store.watches(&share.terms.scope)).unwrap_or_default();
        let open = OpenShare::new(share.clone(), uid, &watches, &ticket);
        let mut pending = self.pending();
        let stored = self.store.as_ref().map_or(Ok(()), |store| store.save(&open));
        if stored.is_err() {
            pending.unstored.insert(share.id.clone());
        }
        self.change(|table| table.open(open));
        self.report(&pending, stored.as_ref().err());
        tracing::info!(share = %share.id, "share created");
        let not_stored = stored.err().map(|error| error.to_string().into());
        Ok(ShareLink { not_stored, ..self.linked(share, &ticket) })
    }

    /// Returns the link of an open share.
    ///
    /// # Errors
    /// [`ShareError`] if the share does not exist, or its key was not stored.
    pub fn link(&self, id: &ShareId) -> Result<ShareLink, ShareError> {
        let open = self.table().get(id).cloned().ok_or_else(|| ShareError::Unknown(id.clone()))?;
        let ticket = ticket(&open.share, &self.key);
        if ticket.proof().verifier() != open.verifier {
            return Err(ShareError::LinkNotKept(id.clone()));
        }
        Ok(self.linked(open.share, &ticket))
    }

    fn linked(&self, share: Share, ticket: &Ticket) -> ShareLink {
        let link = self.endpoint.address.as_ref().map(|address| format!("{address}#s={}", ticket.reveal()));
        ShareLink { share, link, tunnel: self.endpoint.tunnel.clone(), not_stored: None }
    }

    /// Revokes a share. With a store this writes to disk, which may block.
    ///
    /// # Errors
    /// [`ShareError::Unknown`] if it is not open; [`ShareError::Failed`] if it is revoked now but would be open again after a
    /// restart, unless a later attempt to delete it succeeds.
    pub fn revoke(&self, id: &ShareId) -> Result<(), ShareError> {
        // In memory first: viewers are disconnected even if the disk fails.
        if !self.end(id, EndReason::Revoked) {
            let pending = self.pending();
            if !pending.undeleted.contains(id) && !self.closed().iter().any(|closed| closed.share.id == *id) {
                let unread = self.problem.borrow().clone().filter(|_| !pending.is_loaded);
                return Err(unread.map_or_else(|| ShareError::Unknown(id.clone()), ShareError::Failed));
            }
        }
        self.delete_stored(id)
    }

    /// Ends a share, disconnecting its viewers; returns whether it was open.
    fn end(&self, id: &ShareId, reason: EndReason) -> bool {
        let was_open = self.change(|table| table.end(id, reason));
        if was_open {
            tracing::info!(share = %id, ?reason, "share ended");
        }
        was_open
    }

    /// Deletes an ended share from the store.
    fn delete_stored(&self, id: &ShareId) -> Result<(), ShareError> {
        let Some(store) = &self.store else { return Ok(()) };
        let mut pending = self.pending();
        let was_stored = !pending.unstored.remove(id);
        match store.delete(id) {
            Ok(()) => {
                pending.undeleted.remove(id);
                self.change(|table| table.closed.retain(|closed| closed.share.id != *id));
                Ok(())
            }
            Err(error) => {
                pending.undeleted.insert(id.clone());
                self.report(&pending, Some(&error));
                let why = format!(
                    "the share is revoked, but a restart of the relay before it is deleted would open it again: {error}"
                );
                if was_stored { Err(ShareError::Failed(why.into())) } else { Ok(()) }
            }
        }
    }

    /// Repeats the changes that the store could not take, and ends shares that the user, or another relay with the same
    /// file, has deleted. Blocks on the disk.
    fn follow_store(&self) {
        let Some(store) = &self.store else { return };
        let mut pending = self.pending();
        let followed = self.try_follow_store(store, &mut pending);
        self.report(&pending, followed.as_ref().err());
    }

    fn try_follow_store(&self, store: &Store, pending: &mut Pending) -> Result<(), StoreError> {
        if !pending.is_loaded {
            for open in store.load()? {
                // One that was created or ended meanwhile is as the table states.
                if self.table().state(&open.share.id).is_none() {
                    self.change(|table| table.open(open));
                }
            }
            pending.is_loaded = true;
        }
        while let Some(id) = pending.undeleted.first() {
            store.delete(id)?;
            tracing::info!(share = %id, "a share that had been revoked was deleted");
            pending.undeleted.pop_first();
        }
        while let Some(id) = pending.unstored.first() {
            let open = self.table().get(id).cloned();
            if let Some(open) = open {
                store.save(&open)?;
                tracing::info!(share = %id, "a share is stored that could not be stored before");
            }
            pending.unstored.pop_first();
        }
        let closed = store.closed()?;
        self.change(|table| table.closed = closed);
        let stored = store.ids()?;
        let open: Vec<ShareId> = self.table().ids().cloned().collect();
        for id in open.iter().filter(|id| !stored.contains(id.as_str())) {
            self.end(id, EndReason::Revoked);
        }
        // A file that was away for a while may return with shares that ended meanwhile: a later relay would open them.
        for id in stored.iter().filter_map(|id| ShareId::new(id).ok()) {
            let state = self.table().state(&id);
            if state.is_some_and(|state| state.status.is_err_and(|reason| reason == EndReason::Revoked)) {
                store.delete(&id)?;
                tracing::info!(share = %id, "a share that had ended was deleted from a file that returned");
            }
        }
        Ok(())
    }

    /// Reports why shares cannot be stored, each reason once.
    fn report(&self, pending: &Pending, error: Option<&StoreError>) {
        let problem = error.map(|error| match pending.is_loaded {
            true => Text::new(error.to_string()),
            false => Text::new(format!("{error}; shares of earlier relays stay closed until then")),
        });
        self.problem.send_if_modified(|known| {
            let is_new = *known != problem;
            match problem.as_ref().filter(|_| is_new) {
                Some(why) => tracing::warn!("{why}"),
                None if is_new => tracing::info!("shares are stored again"),
                None => {}
            }
            *known = problem;
            is_new
        });
    }

    /// Revokes a share whose stored terms were altered, as its holder's proof reveals, and deletes it
    /// from the store.
    pub fn revoke_altered(&self, id: &ShareId) {
        tracing::warn!(share = %id, "the stored terms of a share were altered, so it was revoked; create a new one");
        self.end(id, EndReason::Revoked);
        if let Err(error) = self.delete_stored(id) {
            tracing::warn!(share = %id, %error, "failed to delete the altered share");
        }
    }

    /// Returns the stored shares of relays that watched other jobs or machines, with a description of these. They stay
    /// closed here.
    pub fn closed(&self) -> Vec<ClosedShare> {
        let now_ms = Clock::wall_ms();
        let mut closed = self.table().sharing().closed;
        closed.retain(|closed| closed.share.terms.expires_ms > now_ms);
        closed
    }

    /// The state of a share, by the id that a client names.
    pub fn state(&self, id: &ShareId) -> Option<ShareState> {
        self.end_expired();
        self.table().state(id)
    }

    /// Registers a viewer until the session is dropped.
    pub fn session(self: &Arc<Self>, grant: AccessGrant, peer: Peer) -> ViewerSession {
        let share = match &grant {
            AccessGrant::Owner | AccessGrant::Token(_) => Some(None),
            AccessGrant::Guest(share) => Some(Some(share.id.clone())),
            AccessGrant::Person(_) => None,
        };
        let number = share.map(|share| {
            let user = peer.uid().and_then(user::name_of);
            let visitor = Visitor { share, user, since_ms: Clock::wall_ms() };
            self.change(|table| table.add_visitor(visitor))
        });
        ViewerSession { shares: self.clone(), number, grant, sharing: self.sharing.subscribe() }
    }

    /// Returns the viewer with this grant.
    pub fn viewer(&self, grant: &AccessGrant) -> Viewer {
        match grant {
            AccessGrant::Owner | AccessGrant::Token(_) => Viewer::Owner,
            AccessGrant::Guest(share) => {
                Viewer::Restricted(Arc::new(Visibility::new(&share.terms, self.owner.clone())))
            }
            AccessGrant::Person(visibility) => Viewer::Restricted(visibility.clone()),
        }
    }

    /// Ends shares when they expire or their jobs end, for as long as the relay runs. `is_over` returns whether a share of
    /// jobs has ended with them, or `None` if that is unknown.
    pub async fn run_expiry<F: Future<Output = Option<bool>>>(self: Arc<Self>, is_over: impl Fn(Share) -> F) {
        let shares = self.clone();
        let follow_store = async move {
            // A file system that hangs delays no expiry.
            while shares.store.is_some() {
                sleep(STORE_CHECK_INTERVAL).await;
                let shares = shares.clone();
                let _ = spawn_blocking(move || shares.follow_store()).await;
            }
        };
        tokio::join!(follow_store, self.end_with_time_and_jobs(is_over));
    }

    async fn end_with_time_and_jobs<F: Future<Output = Option<bool>>>(
        self: Arc<Self>,
        is_over: impl Fn(Share) -> F,
    ) {
        loop {
            sleep(EXPIRY_CHECK_INTERVAL).await;
            self.end_expired();
            let of_jobs = self.table().of_jobs();
            for share in of_jobs {
                let id = share.id.clone();
                if is_over(share).await == Some(true) && self.end(&id, EndReason::Expired) {
                    let shares = self.clone();
                    spawn_blocking(move || {
                        if let Err(error) = shares.delete_stored(&id) {
                            tracing::warn!(%error, "failed to delete a share whose jobs ended");
                        }
                    });
                }
            }
        }
    }

    /// Ends expired shares, in memory only: the store does not load them.
    fn end_expired(&self) {
        let due = self.table().due(Clock::wall_ms());
        for id in due {
            self.end(&id, EndReason::Expired);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let result = change(&mut table);
        self.sharing.send_replace(table.sharing());
        result
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Every change is a single step, so a panic elsewhere cannot leave the table inconsistent.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uid of the only user of a share.
fn uid_of(to: &Text) -> Result<u32, ShareError> {
    match user::look_up(to.as_str()) {
        Ok(Some(uid)) => Ok(uid),
        Ok(None) => Err(ShareError::NoSuchUser(to.clone())),
        Err(error) => {
            Err(ShareError::Failed(format!("the user database cannot be read ({error}); try again").into()))
        }
    }
}

impl ViewerSession {
    /// Returns this visitor as a viewer.
    pub fn viewer(&self) -> Viewer {
        self.shares.viewer(&self.grant)
    }

    /// The grant.
    pub fn grant(&self) -> &AccessGrant {
        &self.grant
    }

    /// The terms of a guest's share.
    pub fn terms(&self) -> Option<&ShareTerms> {
        match &self.grant {
            AccessGrant::Owner | AccessGrant::Token(_) | AccessGrant::Person(_) => None,
            AccessGrant::Guest(share) => Some(&share.terms),
        }
    }

    /// Waits until the share ends; pending forever without one. Cancel safe.
    pub async fn ended(&mut self) -> EndReason {
        let AccessGrant::Guest(share) = &self.grant else { return std::future::pending().await };
        let open = |sharing: &Sharing| sharing.shares.iter().any(|open| open.id == share.id);
        // `shares`, which is held here, owns the sender.
        let _ = self.sharing.wait_for(|sharing| !open(sharing)).await;
        match self.shares.state(&share.id).map(|state| state.status) {
            Some(Err(reason)) => reason,
            _ => EndReason::Revoked,
        }
    }
}

impl Drop for ViewerSession {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shares.change(|table| table.remove_visitor(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_platform::state_dir::StateDir;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::{HiddenParts, Scope};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn shares() -> Arc<Shares> {
        let endpoint = ShareEndpoint { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
        Arc::new(Shares::new(Key::new([7; 32]), "alice".into(), endpoint, None))
    }

    fn request(scope: Scope) -> ShareRequest {
        ShareRequest { label: "".into(), scope, hidden: HiddenParts::default(), to: None, lifetime_s: None }
    }

    fn guest(shares: &Arc<Shares>, made: &ShareLink) -> ViewerSession {
        shares.session(AccessGrant::Guest(Box::new(made.share.clone())), Peer::Unknown)
    }

    #[tokio::test]
    async fn t10_revoking_a_share_disconnects_only_its_guests() {
        let shares = shares();
        let one = shares.create(request(Scope::All)).unwrap();
        let other = shares.create(request(Scope::Jobs(vec![JobId(1)]))).unwrap();
        let (mut gone, mut stays) = (guest(&shares, &one), guest(&shares, &other));
        let mut owner = shares.session(AccessGrant::Owner, Peer::owner());
        shares.revoke(&one.share.id).unwrap();
        assert_eq!(gone.ended().await, EndReason::Revoked);
        let moment = Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, stays.ended()).await.is_err());
        assert!(tokio::time::timeout(moment, owner.ended()).await.is_err());
        assert_eq!(shares.revoke(&one.share.id), Err(ShareError::Unknown(one.share.id.clone())));
        assert_eq!(shares.state(&one.share.id).unwrap().status.unwrap_err(), EndReason::Revoked);
    }

    #[tokio::test]
    async fn a_share_of_a_job_ends_with_it_but_not_while_slurm_does_not_respond() {
        let shares = shares();
        let made = shares.create(request(Scope::Jobs(vec![JobId(1)]))).unwrap();
        let mut session = guest(&shares, &made);
        let answers = Arc::new(Mutex::new(None));
        let current = answers.clone();
        let keeping = tokio::spawn(shares.clone().run_expiry(move |_| {
            let answer = *current.lock().unwrap();
            async move { answer }
        }));
        for answer in [None, Some(false)] {
            *answers.lock().unwrap() = answer;
            assert!(
                tokio::time::timeout(3 * EXPIRY_CHECK_INTERVAL, session.ended()).await.is_err(),
                "{answer:?}"
            );
        }
        *answers.lock().unwrap() = Some(true);
        assert_eq!(session.ended().await, EndReason::Expired);
        keeping.abort();
    }

    #[test]
    fn t09_a_share_altered_on_disk_is_not_open_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let start = || stored_shares(&folder);
        let made = start().create(request(Scope::All)).unwrap();
        let shares = start();
        assert!(shares.state(&made.share.id).is_some_and(|state| state.status.is_ok()));
        shares.revoke_altered(&made.share.id);
        assert!(shares.state(&made.share.id).is_some_and(|state| state.status.is_err()));
        assert!(start().state(&made.share.id).is_none());
    }

    fn stored_shares(folder: &Path) -> Shares {
        stored_shares_of(folder, "your jobs")
    }

    fn stored_shares_of(folder: &Path, watches: &str) -> Shares {
        let store = Store::new(StateDir::at(folder).unwrap(), "login1".into(), watches.to_owned());
        let endpoint = ShareEndpoint { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
        Shares::new(Key::new([7; 32]), "alice".into(), endpoint, Some(store))
    }

    #[test]
    fn t10_shares_that_ended_while_their_file_was_away_stay_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (here, away) = (folder.path().join("nodeglass"), folder.path().join("away"));
        let shares = stored_shares(&here);
        let made = shares.create(request(Scope::All)).unwrap();
        std::fs::rename(&here, &away).unwrap();
        shares.follow_store();
        assert_eq!(shares.state(&made.share.id).unwrap().status.unwrap_err(), EndReason::Revoked);
        std::fs::remove_dir_all(&here).unwrap();
        std::fs::rename(&away, &here).unwrap();
        shares.follow_store();
        assert!(stored_shares(&here).state(&made.share.id).is_none(), "the owner saw it end");
    }

    #[test]
    fn t09_a_share_of_a_job_is_closed_once_another_run_numbers_the_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let of_run = |run: &str| {
            let store =
                Store::new(StateDir::at(&folder).unwrap(), "login1".into(), "all clusters".to_owned());
            let endpoint =
                ShareEndpoint { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
            Shares::new(
                Key::new([7; 32]),
                "alice".into(),
                endpoint,
                Some(store.numbering_jobs(run.to_owned())),
            )
        };
        let first = of_run("as numbered at 9:00");
        let made =
            [Scope::Jobs(vec![JobId(17)]), Scope::All].map(|scope| first.create(request(scope)).unwrap());
        let is_open = |shares: &Shares| {
            made.each_ref().map(|made| shares.state(&made.share.id).is_some_and(|state| state.status.is_ok()))
        };
        assert_eq!(is_open(&first), [true, true]);
        let next = of_run("as numbered at 10:00");
        assert_eq!(is_open(&next), [false, true]);
        let closed = next.watch().borrow().closed.clone();
        assert_eq!(closed[0].watches.as_str(), "all clusters, as numbered at 9:00");
    }

    #[test]
    fn t10_a_share_that_is_revoked_at_one_relay_ends_at_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let one = stored_shares(&folder);
        let made = one.create(request(Scope::All)).unwrap();
        let other = stored_shares(&folder);
        let is_open = || other.state(&made.share.id).is_some_and(|state| state.status.is_ok());
        other.follow_store();
        assert!(is_open());
        one.revoke(&made.share.id).unwrap();
        other.follow_store();
        assert!(!is_open());
    }

    #[test]
    fn t09_a_share_opens_only_at_relays_that_watch_what_was_watched_when_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let made = stored_shares(&folder).create(request(Scope::All)).unwrap().share;
        let wider = stored_shares_of(&folder, "all users' jobs");
        assert!(wider.state(&made.id).is_none());
        let closed = || wider.watch().borrow().closed.clone();
        assert_eq!(closed(), [ClosedShare { share: made.clone(), watches: "your jobs".into() }]);
        let again = stored_shares(&folder);
        assert!(again.state(&made.id).is_some_and(|state| state.status.is_ok()), "it stays stored");
        assert_eq!(again.watch().borrow().closed, []);
        wider.revoke(&made.id).unwrap();
        again.follow_store();
        assert_eq!(again.state(&made.id).unwrap().status.unwrap_err(), EndReason::Revoked);
        assert_eq!(closed(), []);
        assert_eq!(wider.revoke(&made.id), Err(ShareError::Unknown(made.id)));
    }

    #[test]
    fn t10_a_revoked_share_is_deleted_once_the_disk_accepts_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let shares = stored_shares(&folder);
        let [retried, later] = [(); 2].map(|()| shares.create(request(Scope::All)).unwrap().share.id);
        let store = shares.store.as_ref().unwrap();
        store.execute("CREATE TRIGGER disk BEFORE DELETE ON shares BEGIN SELECT RAISE(ABORT, 'full'); END");
        for id in [&retried, &later] {
            assert!(matches!(shares.revoke(id), Err(ShareError::Failed(_))));
        }
        store.execute("DROP TRIGGER disk");
        shares.revoke(&retried).unwrap();
        assert_eq!(shares.revoke(&retried), Err(ShareError::Unknown(retried.clone())));
        shares.follow_store();
        assert!(shares.pending().undeleted.is_empty());
        let after_restart = stored_shares(&folder);
        assert!([retried, later].iter().all(|id| after_restart.state(id).is_none()));
    }

    #[test]
    fn f24_shares_are_stored_again_after_their_file_was_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let shares = stored_shares(&folder);
        let before = shares.create(request(Scope::All)).unwrap().share.id;
        std::fs::remove_file(folder.join("shares.db")).unwrap();
        shares.follow_store();
        let is_open =
            |shares: &Shares, id: &ShareId| shares.state(id).is_some_and(|state| state.status.is_ok());
        assert!(!is_open(&shares, &before), "it was deleted");
        std::fs::remove_dir_all(&folder).unwrap();
        let made = shares.create(request(Scope::All)).unwrap();
        shares.follow_store();
        assert_eq!((made.not_stored, shares.problem().borrow().clone()), (None, None));
        assert!(is_open(&shares, &made.share.id) && is_open(&stored_shares(&folder), &made.share.id));
    }

    #[test]
    fn f24_shares_of_a_directory_that_becomes_usable_later_are_stored_then() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("nodeglass");
        let earlier = stored_shares(&folder).create(request(Scope::All)).unwrap().share.id;
        let allow = |mode| std::fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        let dir = StateDir::at(&folder).unwrap();
        allow(0o777);
        let endpoint = ShareEndpoint { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
        let store = Store::new(dir, "login1".into(), "your jobs".to_owned());
        let shares = Shares::new(Key::new([7; 32]), "alice".into(), endpoint, Some(store));
        let why = shares.problem().borrow().clone().unwrap();
        assert!(why.as_str().ends_with("; shares of earlier relays stay closed until then"), "{why}");
        assert!(shares.state(&earlier).is_none());
        assert_eq!(shares.revoke(&earlier), Err(ShareError::Failed(why)), "it may be open later");
        let [kept, ended] = [(); 2].map(|()| shares.create(request(Scope::All)).unwrap());
        assert!(kept.not_stored.unwrap().as_str().contains("is not yours alone"));
        shares.revoke(&ended.share.id).unwrap();
        shares.follow_store();
        assert!(shares.state(&kept.share.id).is_some_and(|state| state.status.is_ok()));
        allow(0o700);
        shares.follow_store();
        assert_eq!(*shares.problem().borrow(), None);
        let next = stored_shares(&folder);
        for shares in [&shares, &next] {
            let open: BTreeSet<ShareId> = shares.table().ids().cloned().collect();
            assert_eq!(open, BTreeSet::from([earlier.clone(), kept.share.id.clone()]));
        }
    }

    #[tokio::test]
    async fn t10_an_expired_share_disconnects_its_guests() {
        let shares = shares();
        let mut made = shares.create(request(Scope::All)).unwrap();
        made.share.terms.expires_ms = Clock::wall_ms() + 300;
        let open = OpenShare::new(made.share.clone(), None, "", &ticket(&made.share, &Key::new([1; 32])));
        shares.change(|table| table.open(open));
        let mut session = guest(&shares, &made);
        let keeping = tokio::spawn(shares.clone().run_expiry(|_| async { None }));
        assert_eq!(session.ended().await, EndReason::Expired);
        assert!(Clock::wall_ms() >= made.share.terms.expires_ms);
        assert_eq!(shares.link(&made.share.id), Err(ShareError::Unknown(made.share.id)));
        keeping.abort();
    }

    #[tokio::test]
    async fn the_owner_sees_visitors_until_they_disconnect() {
        let shares = shares();
        let made = shares.create(request(Scope::All)).unwrap();
        let sharing = shares.watch();
        let session = shares.session(AccessGrant::Guest(Box::new(made.share.clone())), Peer::owner());
        let now = sharing.borrow().clone();
        assert_eq!(now.shares, std::slice::from_ref(&made.share));
        assert_eq!(now.visitors[0].share, Some(made.share.id));
        assert_eq!(now.visitors[0].user, Peer::owner().uid().and_then(user::name_of));
        drop(session);
        assert!(sharing.borrow().visitors.is_empty());
    }

    #[tokio::test]
    async fn a_link_is_shown_again_and_shares_for_unknown_users_are_refused() {
        let shares = shares();
        let made = shares.create(request(Scope::All)).unwrap();
        assert!(made.link.as_ref().is_some_and(|link| link.starts_with("http://127.0.0.1:8080/#s=")));
        assert_eq!(shares.link(&made.share.id).unwrap(), made);
        let to = ShareRequest { to: Some("no-such-user-here".into()), ..request(Scope::All) };
        assert_eq!(shares.create(to), Err(ShareError::NoSuchUser("no-such-user-here".into())));
    }
}
