//! The feed is the one task that talks to the relay; it has patience, and the views see how it fares.

mod asks;
mod conversation;
mod credential;
pub mod key;
mod patience;

pub use conversation::Parting;
pub use credential::Credential;
pub use patience::Patience;

use crate::browser::{self, Listener};
use crate::fleet::{Fleet, LogCell};
use asks::{Asks, refusal};
use conversation::Conversation;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt, pin_mut};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::ask::{Answer, Ask, LogRef};
use nodeglass_protocol::live::ClientMessage;
use std::sync::Arc;

/// After so long out of sight a page asks for no more than it needs to notify, and for nothing where nobody wants that,
/// in ms: who only glances at another tab finds everything as it was.
const REST_MS: u32 = 4_000;
/// How long an answer may take, in ms: SLURM's own commands give up after 10 s.
const ANSWER_MS: u32 = 20_000;

/// How the link to the relay fares.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// A key is being looked for.
    Starting,
    /// There is no key; the user must bring one.
    NoKey,
    /// The first connection is being made.
    Connecting,
    /// Pictures are coming in.
    Live,
    /// It broke and is tried again.
    Lost(Parting),
    /// It ended for good until the user does something.
    Stopped(Parting),
}

/// What the views hold of the feed. Clones are the same feed.
#[derive(Clone)]
pub struct Feed {
    link: ArcRwSignal<Link>,
    heard_at_ms: ArcStoredValue<f64>,
    wishes: UnboundedSender<Wish>,
    asks: Arc<Asks>,
}

/// What the views ask the feed for.
#[derive(Debug)]
enum Wish {
    /// Tell the relay something.
    Say(ClientMessage),
    /// Use this key from now on.
    Use(Credential),
    /// Do not wait any longer.
    Hurry,
    /// Let go of the relay: the page is left, and may be kept by the browser for the way back.
    Leave,
}

impl Feed {
    /// Starts the feed; it ends with the reactive owner it was started under.
    pub fn start(fleet: Fleet) -> Self {
        let (wishes, inbox) = unbounded();
        let feed = Self {
            link: ArcRwSignal::new(Link::Starting),
            heard_at_ms: ArcStoredValue::new(0.0),
            wishes,
            asks: Arc::default(),
        };
        let calls = feed.calls(&fleet);
        feed.rest_unseen(&fleet);
        let task = Task { fleet, feed: feed.clone(), inbox, _listeners: calls };
        leptos::task::spawn_local_scoped_with_cancellation(task.run());
        feed
    }

    /// How the link fares.
    pub fn link(&self) -> Link {
        self.link.get()
    }

    /// When the relay was last heard of, by the page's clock.
    pub fn heard_at_ms(&self) -> f64 {
        self.heard_at_ms.get_value()
    }

    fn heard(&self, page_ms: f64) {
        self.heard_at_ms.set_value(page_ms);
    }

    /// Asks for the topics that the fleet looks at now.
    pub fn look(&self, fleet: &Fleet) {
        let _ = self.wishes.unbounded_send(Wish::Say(ClientMessage::Look(fleet.topics())));
    }

    /// Follows these logs from now on, and no others.
    pub fn follow(&self, fleet: &Fleet, wanted: &[LogRef]) -> Vec<LogCell> {
        let cells = fleet.follow(wanted);
        let _ = self.wishes.unbounded_send(Wish::Say(ClientMessage::Follow(wanted.to_vec())));
        cells
    }

    /// Asks, or orders, something once. A link that is down or breaks refuses in words.
    pub async fn ask(&self, ask: Ask) -> Answer {
        if self.link.get_untracked() != Link::Live {
            return Answer::Refused(refusal::NO_LINK.into());
        }
        let (number, answer) = self.asks.begin();
        let _ = self.wishes.unbounded_send(Wish::Say(ClientMessage::Ask { number, ask }));
        match select(answer, TimeoutFuture::new(ANSWER_MS)).await {
            Either::Left((Ok(answer), _)) => answer,
            Either::Left((Err(_), _)) => Answer::Refused(refusal::LINK_LOST.into()),
            Either::Right(_) => {
                self.asks.forget(number);
                Answer::Refused(refusal::NO_ANSWER.into())
            }
        }
    }

    fn answered(&self, number: u32, answer: Answer) {
        self.asks.answered(number, answer);
    }

    /// Tries a key that the user brought.
    pub fn use_key(&self, key: Credential) {
        let _ = self.wishes.unbounded_send(Wish::Use(key));
    }

    /// Tries again now.
    pub fn hurry(&self) {
        let _ = self.wishes.unbounded_send(Wish::Hurry);
    }

    fn leave(&self) {
        let _ = self.wishes.unbounded_send(Wish::Leave);
    }

    /// Looks at as much as somebody sees: the relay need not tell, nor nodes measure, what nobody does.
    fn rest_unseen(&self, fleet: &Fleet) {
        if !browser::is_hidden() {
            if fleet.wake(browser::now_ms()) {
                self.look(fleet);
            }
            return;
        }
        let (feed, fleet) = (self.clone(), fleet.clone());
        leptos::task::spawn_local(async move {
            TimeoutFuture::new(REST_MS).await;
            if browser::is_hidden() {
                fleet.rest();
                feed.look(&fleet);
            }
        });
    }

    /// A tab that is seen again, a page that is gone back to and a network that is back need not wait for
    /// their turn. A page that is left must not go on looking from wherever the browser keeps it.
    fn calls(&self, fleet: &Fleet) -> [Listener; 5] {
        let hurry = |feed: &Self| {
            let feed = feed.clone();
            move |_| feed.hurry()
        };
        let (feed, eyes, fleet) = (self.clone(), self.clone(), fleet.clone());
        [
            Listener::new(document(), "visibilitychange", move |_| eyes.rest_unseen(&fleet)),
            Listener::new(document(), "visibilitychange", hurry(self)),
            Listener::new(window(), "online", hurry(self)),
            Listener::new(window(), "pageshow", hurry(self)),
            Listener::new(window(), "pagehide", move |_| feed.leave()),
        ]
    }
}

/// The running feed.
struct Task {
    fleet: Fleet,
    feed: Feed,
    inbox: UnboundedReceiver<Wish>,
    _listeners: [Listener; 5],
}

impl Task {
    /// Never returns: owns the key and the patience.
    async fn run(mut self) {
        let mut key = key::find().await;
        let link = self.feed.link.clone();
        let is_live = move || link.get_untracked() == Link::Live;
        let (_answering, _following) = (key::answer_other_tabs(is_live), key::follow_address());
        let mut patience = Patience::default();
        self.feed.link.set(Link::Connecting);
        loop {
            let Some(mut known) = key.clone() else {
                self.feed.link.set(Link::NoKey);
                key = Some(self.next_key().await);
                self.feed.link.set(Link::Connecting);
                continue;
            };
            let parting = self.converse(&mut known, &mut patience).await;
            key = Some(known);
            if parting.is_final() {
                let owner = self.fleet.welcome_untracked().map(|welcome| welcome.user.to_string());
                // What may no longer be seen is not kept where it could be looked for.
                self.fleet.forget();
                if parting.ends_share() {
                    key::give_up_share();
                } else if parting == Parting::Stranger {
                    key::forget();
                }
                self.feed.link.set(Link::Stopped(parting.by(owner)));
                key = Some(self.next_key().await);
                self.feed.link.set(Link::Connecting);
                continue;
            }
            self.feed.link.set(Link::Lost(parting));
            if let Some(brought) = self.rest(patience.next_ms(browser::chance())).await {
                key = Some(brought);
            }
        }
    }

    /// One connection, from the first word to the last.
    async fn converse(&mut self, key: &mut Credential, patience: &mut Patience) -> Parting {
        let mut conversation = match Conversation::open(key).await {
            Ok(conversation) => conversation,
            Err(parting) => return parting,
        };
        patience.reset();
        key::keep(key);
        self.fleet.welcomed(conversation.welcome(), browser::now_ms());
        self.feed.link.set(Link::Live);
        let mut wanted = vec![ClientMessage::Look(self.fleet.topics())];
        let followed = self.fleet.followed();
        if !followed.is_empty() {
            wanted.push(ClientMessage::Follow(followed));
        }
        let parting = match conversation.carry_on(wanted, &self.fleet, &self.feed, &mut self.inbox).await {
            Ok(never) => match never {},
            Err(parting) => parting,
        };
        self.feed.asks.give_up(refusal::LINK_LOST);
        parting
    }

    /// Waits until the next try is due and someone looks at the page. A key brought meanwhile ends it.
    async fn rest(&mut self, ms: u32) -> Option<Credential> {
        let due = TimeoutFuture::new(ms).fuse();
        pin_mut!(due);
        let mut is_due = false;
        loop {
            if is_due && !browser::is_hidden() {
                return None;
            }
            let wish = if is_due {
                self.inbox.next().await
            } else {
                match select(self.inbox.next(), &mut due).await {
                    Either::Left((wish, _)) => wish,
                    Either::Right(_) => {
                        is_due = true;
                        continue;
                    }
                }
            };
            match wish {
                Some(Wish::Use(key)) => return Some(key),
                Some(Wish::Hurry) => is_due = true,
                Some(Wish::Say(_) | Wish::Leave) | None => {}
            }
        }
    }

    /// Waits for the user to bring a key, or for another tab to have one.
    async fn next_key(&mut self) -> Credential {
        loop {
            match self.inbox.next().await {
                Some(Wish::Use(key)) => return key,
                Some(Wish::Hurry) if matches!(self.feed.link.get_untracked(), Link::NoKey) => {
                    if let Some(key) = key::find().await {
                        return key;
                    }
                }
                Some(Wish::Hurry | Wish::Say(_) | Wish::Leave) => {}
                // The views are gone, and this task goes with their owner.
                None => std::future::pending::<()>().await,
            }
        }
    }
}
