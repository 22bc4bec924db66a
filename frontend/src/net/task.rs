//! The task that owns the connection to the relay: connects, reconnects with back-off, and reports its state.

use super::backoff::Backoff;
use super::connection::Connection;
use super::credential::Credential;
use super::disconnect::DisconnectReason;
use super::feed::{Feed, FeedCommand, LinkState};
use super::key;
use crate::fleet::FleetStore;
use crate::platform::{self, Listener};
use futures_channel::mpsc::UnboundedReceiver;
use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt, pin_mut};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::live::ClientMessage;

/// Time for which a page stays subscribed after it was hidden, in ms. After that it subscribes only to the topics
/// that notifications need. After a short glance at another tab, all data is still there.
const SUSPEND_AFTER_MS: u32 = 4_000;

/// Starts the feed; it ends with the reactive owner it was started under.
pub fn start(fleet: FleetStore) -> Feed {
    let (feed, inbox) = Feed::new();
    let page_listeners = page_listeners(&feed, &fleet);
    suspend_when_hidden(&feed, &fleet);
    let task = Task { fleet, feed: feed.clone(), inbox, _listeners: page_listeners };
    leptos::task::spawn_local_scoped_with_cancellation(task.run());
    feed
}

/// Reduces the subscription while the page is hidden: the relay need not send, nor nodes measure, what
/// nobody sees.
fn suspend_when_hidden(feed: &Feed, fleet: &FleetStore) {
    if !platform::is_hidden() {
        if fleet.resume(platform::now_ms()) {
            feed.subscribe(fleet);
        }
        return;
    }
    let (feed, fleet) = (feed.clone(), fleet.clone());
    leptos::task::spawn_local(async move {
        TimeoutFuture::new(SUSPEND_AFTER_MS).await;
        if platform::is_hidden() {
            fleet.suspend();
            feed.subscribe(&fleet);
        }
    });
}

/// Reconnects at once when a tab becomes visible, a page is restored or the network returns. Disconnects
/// when the page is left, because the browser may keep it.
fn page_listeners(feed: &Feed, fleet: &FleetStore) -> [Listener; 5] {
    let reconnect_now = |feed: &Feed| {
        let feed = feed.clone();
        move |_| feed.reconnect_now()
    };
    let (leaving, visible, fleet) = (feed.clone(), feed.clone(), fleet.clone());
    [
        Listener::new(document(), "visibilitychange", move |_| suspend_when_hidden(&visible, &fleet)),
        Listener::new(document(), "visibilitychange", reconnect_now(feed)),
        Listener::new(window(), "online", reconnect_now(feed)),
        Listener::new(window(), "pageshow", reconnect_now(feed)),
        Listener::new(window(), "pagehide", move |_| leaving.leave()),
    ]
}

/// The running feed.
struct Task {
    fleet: FleetStore,
    feed: Feed,
    inbox: UnboundedReceiver<FeedCommand>,
    _listeners: [Listener; 5],
}

impl Task {
    /// Never returns: owns the key and the back-off.
    async fn run(mut self) {
        let mut key = key::find().await;
        let feed = self.feed.clone();
        let is_live = move || feed.link_untracked() == LinkState::Live;
        let (_answering, _following) = (key::answer_other_tabs(is_live), key::follow_address());
        let mut backoff = Backoff::default();
        self.feed.set_link(LinkState::Connecting);
        loop {
            let Some(mut credential) = key.clone() else {
                self.feed.set_link(LinkState::NoKey);
                key = Some(self.next_key().await);
                self.feed.set_link(LinkState::Connecting);
                continue;
            };
            let reason = self.run_connection(&mut credential, &mut backoff).await;
            key = Some(credential);
            if reason.is_final() {
                let owner = self.fleet.welcome_untracked().map(|welcome| welcome.user.to_string());
                let reason = reason.with_owner(owner);
                if reason.keeps_picture() {
                    self.fleet.stop_clock(self.feed.last_message_ms());
                } else {
                    // What may no longer be seen is dropped.
                    self.fleet.forget();
                }
                if reason.ends_share() {
                    key::give_up_share(&reason);
                } else if reason == DisconnectReason::Unverified {
                    key::forget();
                }
                self.feed.set_link(LinkState::Stopped(reason));
                key = Some(self.next_key().await);
                self.feed.set_link(LinkState::Connecting);
                continue;
            }
            let earlier = match self.feed.link_untracked() {
                LinkState::Lost(earlier) => Some(earlier),
                _ => None,
            };
            self.fleet.stop_clock(self.feed.last_message_ms());
            self.feed.set_link(LinkState::Lost(reason.after(earlier)));
            if let Some(entered) = self.wait(backoff.next_ms(platform::random())).await {
                key = Some(entered);
            }
        }
    }

    /// Runs one connection from handshake to disconnect.
    async fn run_connection(&mut self, key: &mut Credential, backoff: &mut Backoff) -> DisconnectReason {
        let mut connection = match Connection::open(key).await {
            Ok(connection) => connection,
            Err(reason) => return reason,
        };
        backoff.reset();
        key::keep(key);
        self.fleet.on_welcome(connection.welcome(), platform::now_ms());
        self.feed.set_link(LinkState::Live);
        let mut initial = vec![ClientMessage::Subscribe(self.fleet.topics())];
        let followed = self.fleet.followed();
        if !followed.is_empty() {
            initial.push(ClientMessage::Follow(followed));
        }
        let reason = match connection.run(initial, &self.fleet, &self.feed, &mut self.inbox).await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        self.feed.fail_pending();
        reason
    }

    /// Waits until the next attempt is due and the page is visible. A key that the user enters ends the wait.
    async fn wait(&mut self, ms: u32) -> Option<Credential> {
        let due = TimeoutFuture::new(ms).fuse();
        pin_mut!(due);
        let mut is_due = false;
        loop {
            if is_due && !platform::is_hidden() {
                return None;
            }
            let command = if is_due {
                self.inbox.next().await
            } else {
                match select(self.inbox.next(), &mut due).await {
                    Either::Left((command, _)) => command,
                    Either::Right(_) => {
                        is_due = true;
                        continue;
                    }
                }
            };
            match command {
                Some(FeedCommand::UseKey(key)) => return Some(key),
                Some(FeedCommand::ReconnectNow) => is_due = true,
                Some(FeedCommand::Send(_) | FeedCommand::Leave) | None => {}
            }
        }
    }

    /// Waits until the user enters a key, or another tab has one: the link of a restarted relay may have been
    /// opened there.
    async fn next_key(&mut self) -> Credential {
        let asks_other_tabs = |link: LinkState| match link {
            LinkState::NoKey => true,
            LinkState::Stopped(reason) => reason.keeps_picture(),
            _ => false,
        };
        loop {
            match self.inbox.next().await {
                Some(FeedCommand::UseKey(key)) => return key,
                Some(FeedCommand::ReconnectNow) if asks_other_tabs(self.feed.link_untracked()) => {
                    if let Some(key) = key::find().await {
                        return key;
                    }
                }
                Some(FeedCommand::ReconnectNow | FeedCommand::Send(_) | FeedCommand::Leave) => {}
                // The views are gone, and this task ends with their owner.
                None => std::future::pending::<()>().await,
            }
        }
    }
}
