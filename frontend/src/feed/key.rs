//! The key comes in the link's fragment, stays in the tab, and is shared with other tabs of the same origin only.
//!
//! Where the relay is shown below a path of another site, other programs of that site are of the same origin, too:
//! there no tab asks another for the key. Nor does one answer that is not connected, because then whoever has the
//! relay's port can be who asks.
//!
//! A tab is the owner's or a guest's. One that came by the link of a share never becomes the owner's by
//! itself: not when the link was cut off, and not after the share has ended.

use super::credential::Credential;
use crate::browser::{self, Listener};
use crate::query::{CACHE_BUSTER, Query};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::window;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use web_sys::{BroadcastChannel, MessageEvent};

/// How long other tabs have to answer, in ms.
const ASK_MS: u32 = 250;
/// What a tab without a key asks.
const QUESTION: &str = "key?";
/// What the answer begins with; a credential as in a link follows.
const ANSWER: &str = "key=";
/// What a guest's tab remembers when it has no key (any more).
const OVER: &str = "over";

/// Why a tab has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// Its address had none.
    NeverHad,
    /// Its address had a part of one.
    CutOff,
    /// It had that of a share, which is over.
    ShareOver,
}

/// Takes the key out of the address bar into this tab's memory, before anything else can see it.
/// A link that cannot be read leaves a guest's tab without a key rather than with another one. Returns whether the
/// address was that of a printed link, which the browser's cache cannot have answered.
pub fn take_from_address() -> bool {
    let mut query = Query::parse(&browser::search());
    let was_printed = query.has(CACHE_BUSTER);
    query.set(CACHE_BUSTER, None);
    let fragment = browser::fragment();
    let has_key = Credential::is_meant(&fragment);
    if has_key {
        take(&fragment);
    }
    if has_key || was_printed {
        browser::replace_address(&format!("{}{}", browser::path(), query.text()));
    }
    was_printed
}

fn take(fragment: &str) {
    match Credential::of_link(fragment) {
        Some(credential) => keep(&credential),
        None => {
            if fragment.starts_with("s=") {
                give_up_share();
            }
            browser::remember(browser::session(), &cut_off_name(), "1");
        }
    }
}

/// A link that is opened where the page is already only changes the fragment: the page starts anew with it.
pub fn follow_address() -> Listener {
    Listener::new(window(), "hashchange", |_| {
        if Credential::is_meant(&browser::fragment()) {
            take_from_address();
            browser::reload();
        }
    })
}

/// Remembers a key for this tab, which has one only. A session is not remembered: it ends with the page.
pub fn keep(credential: &Credential) {
    let name = match credential {
        Credential::Owner(_) => owner_name(),
        Credential::Share(_) => share_name(),
        Credential::Tab(_) | Credential::Session { .. } => tab_name(),
    };
    let names = [owner_name(), share_name(), tab_name(), cut_off_name()];
    for other in names.iter().filter(|other| **other != name) {
        browser::forget(browser::session(), other);
    }
    match credential.reveal() {
        Some(text) => browser::remember(browser::session(), &name, &text),
        None => browser::forget(browser::session(), &name),
    }
}

/// Forgets the key of this tab: what answers in the relay's place may send a page of its own, which could read it.
pub fn forget() {
    for name in [owner_name(), share_name(), tab_name()] {
        browser::forget(browser::session(), &name);
    }
}

/// Forgets the key of a share that is over.
pub fn give_up_share() {
    browser::forget(browser::session(), &owner_name());
    browser::remember(browser::session(), &share_name(), OVER);
}

/// The key this tab remembers, or else what another tab answers.
pub async fn find() -> Option<Credential> {
    if let Some(link) = browser::recall(browser::session(), &tab_name()) {
        // It is good once.
        browser::forget(browser::session(), &tab_name());
        return Credential::of_link(&link);
    }
    match remembered() {
        Some(text) => Credential::of_link(&text),
        None => ask_other_tabs().await,
    }
}

/// Why [`find`] found none.
pub fn why_none() -> NoKey {
    match remembered().as_deref() {
        _ if browser::recall(browser::session(), &cut_off_name()).is_some() => NoKey::CutOff,
        Some(OVER) => NoKey::ShareOver,
        _ => NoKey::NeverHad,
    }
}

/// A credential, or [`OVER`].
fn remembered() -> Option<String> {
    let recall = |name: &str| browser::recall(browser::session(), name);
    recall(&share_name()).or_else(|| recall(&owner_name()))
}

/// Relays under several base paths of one origin do not share keys.
fn owner_name() -> String {
    format!("nodeglass-key{}", browser::base())
}

fn cut_off_name() -> String {
    format!("nodeglass-cut-off{}", browser::base())
}

fn tab_name() -> String {
    format!("nodeglass-tab{}", browser::base())
}

fn share_name() -> String {
    format!("nodeglass-share{}", browser::base())
}

/// Answers other tabs that ask for the key while the relay has proved that it is there, for as long as the
/// channel is held.
pub fn answer_other_tabs(is_connected: impl Fn() -> bool + 'static) -> Option<Ear> {
    Ear::listen(move |question, channel| {
        if let (QUESTION, true, Some(credential)) = (question, is_connected(), remembered()) {
            let _ = channel.post_message(&JsValue::from_str(&format!("{ANSWER}{credential}")));
        }
    })
}

/// A tab that knows nothing yet takes what the others have: an owner's key before that of a share.
async fn ask_other_tabs() -> Option<Credential> {
    let found: Rc<RefCell<Option<Credential>>> = Rc::default();
    let ear = Ear::listen({
        let found = found.clone();
        move |answer, _| {
            let Some(heard) = answer.strip_prefix(ANSWER).and_then(Credential::of_link) else { return };
            let mut found = found.borrow_mut();
            if found.as_ref().is_none_or(|found| found.is_share() && !heard.is_share()) {
                *found = Some(heard);
            }
        }
    })?;
    let _ = ear.channel.post_message(&JsValue::from_str(QUESTION));
    TimeoutFuture::new(ASK_MS).await;
    drop(ear);
    let credential = found.take()?;
    keep(&credential);
    Some(credential)
}

/// A channel between the tabs of one origin that is closed with its guard.
pub struct Ear {
    channel: BroadcastChannel,
    _closure: Closure<dyn FnMut(MessageEvent)>,
}

impl Ear {
    /// None where other programs could hear it and ask.
    fn listen(mut hear: impl FnMut(&str, &BroadcastChannel) + 'static) -> Option<Self> {
        if !browser::base().is_empty() {
            return None;
        }
        let channel = BroadcastChannel::new(&owner_name()).ok()?;
        let reply = channel.clone();
        let closure = Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| {
            if let Some(text) = event.data().as_string() {
                hear(&text, &reply);
            }
        });
        channel.set_onmessage(Some(closure.as_ref().unchecked_ref()));
        Some(Self { channel, _closure: closure })
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.channel.close();
    }
}
