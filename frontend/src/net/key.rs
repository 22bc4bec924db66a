//! Key storage: the key arrives in the link's fragment, stays in the tab, and is shared with other tabs of
//! the origin.
//!
//! If the relay is served below a path of another site, other programs of that site share the origin: there
//! tabs do not exchange keys. A tab that is not connected does not respond either, because the request could
//! come from another program that has taken the relay's port.
//!
//! A tab is either the owner's or a guest's. One that was opened by a share link never becomes the owner's by
//! itself: not if the link was truncated, and not after the share has ended.

use super::credential::Credential;
use super::disconnect::DisconnectReason;
use crate::domain::query::{CACHE_BUSTER, Query};
use crate::platform::{self, Listener};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::window;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use web_sys::{BroadcastChannel, MessageEvent};

/// Time limit for responses of other tabs, in ms.
const ANSWER_TIMEOUT_MS: u32 = 250;
/// The message of a tab without a key.
const QUESTION: &str = "key?";
/// The prefix of the answer; a credential as in a link follows.
const ANSWER: &str = "key=";

/// Reason for a missing key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoKeyReason {
    /// Its address had none.
    NeverHad,
    /// Its address had a truncated one.
    CutOff,
    /// It had the key of a share that ended for this reason.
    ShareOver(DisconnectReason),
}

/// Moves the key from the address bar into this tab's storage before anything else can read it. A malformed link
/// leaves a guest's tab without a key rather than with another one. Returns whether the address was a printed link,
/// which the browser's cache cannot have served.
pub fn take_from_address() -> bool {
    let mut query = Query::parse(&platform::search());
    let was_printed = query.has(CACHE_BUSTER);
    query.set(CACHE_BUSTER, None);
    let fragment = platform::fragment();
    let has_key = Credential::looks_like_key(&fragment);
    if has_key {
        take(&fragment);
    }
    if has_key || was_printed {
        platform::replace_address(&format!("{}{}", platform::path(), query.text()));
    }
    was_printed
}

fn take(fragment: &str) {
    match Credential::from_link(fragment) {
        Some(credential) => keep(&credential),
        None => {
            if fragment.starts_with("s=") {
                give_up_share(&DisconnectReason::NoSuchShare);
            }
            platform::store_item(platform::session(), &cut_off_name(), "1");
        }
    }
}

/// Reloads the page when a link is opened in a tab that shows it already, because only the fragment changes.
pub fn follow_address() -> Listener {
    Listener::new(window(), "hashchange", |_| {
        if Credential::looks_like_key(&platform::fragment()) {
            take_from_address();
            platform::reload();
        }
    })
}

/// Stores the tab's only key. A session is not stored: it ends with the page.
pub fn keep(credential: &Credential) {
    let name = match credential {
        Credential::Owner(_) => owner_name(),
        Credential::Share(_) => share_name(),
        Credential::Tab(_) | Credential::Session { .. } => tab_name(),
        Credential::Person => return,
    };
    let names = [owner_name(), share_name(), tab_name(), cut_off_name()];
    for other in names.iter().filter(|other| **other != name) {
        platform::remove_item(platform::session(), other);
    }
    match credential.reveal() {
        Some(text) => platform::store_item(platform::session(), &name, &text),
        None => platform::remove_item(platform::session(), &name),
    }
}

/// Removes this tab's key: a program that responds in the relay's place may serve a page that could read it.
pub fn forget() {
    for name in [owner_name(), share_name(), tab_name()] {
        platform::remove_item(platform::session(), &name);
    }
}

/// Removes the key of a share that is over, and remembers why for the next reload.
pub fn give_up_share(why: &DisconnectReason) {
    platform::remove_item(platform::session(), &owner_name());
    platform::store_item(platform::session(), &share_name(), &why.share_end());
}

/// Returns the stored key of this tab, or else the answer of another tab.
pub async fn find() -> Option<Credential> {
    if let Some(link) = platform::load_item(platform::session(), &tab_name()) {
        // It is valid once.
        platform::remove_item(platform::session(), &tab_name());
        return Credential::from_link(&link);
    }
    match remembered() {
        Some(text) => Credential::from_link(&text),
        // Not the operator's key, which another tab of this browser may have.
        None if platform::is_keyless() => Some(Credential::Person),
        None => ask_other_tabs().await,
    }
}

/// Returns why [`find`] found none.
pub fn no_key_reason() -> NoKeyReason {
    if platform::load_item(platform::session(), &cut_off_name()).is_some() {
        return NoKeyReason::CutOff;
    }
    let share_end = remembered().and_then(|text| DisconnectReason::from_share_end(&text));
    share_end.map_or(NoKeyReason::NeverHad, NoKeyReason::ShareOver)
}

/// A credential, or how the tab's share ended.
fn remembered() -> Option<String> {
    let load_item = |name: &str| platform::load_item(platform::session(), name);
    load_item(&share_name()).or_else(|| load_item(&owner_name()))
}

/// Relays under different base paths of one origin do not share keys.
fn owner_name() -> String {
    format!("nodeglass-key{}", platform::base())
}

fn cut_off_name() -> String {
    format!("nodeglass-cut-off{}", platform::base())
}

fn tab_name() -> String {
    format!("nodeglass-tab{}", platform::base())
}

fn share_name() -> String {
    format!("nodeglass-share{}", platform::base())
}

/// Answers other tabs' requests for the key while the relay is authenticated, until the channel is dropped.
pub fn answer_other_tabs(is_connected: impl Fn() -> bool + 'static) -> Option<KeyChannel> {
    KeyChannel::listen(move |question, channel| {
        if let (QUESTION, true, Some(credential)) = (question, is_connected(), remembered()) {
            let _ = channel.post_message(&JsValue::from_str(&format!("{ANSWER}{credential}")));
        }
    })
}

/// Requests a key from other tabs; prefers an owner's key to a share's.
async fn ask_other_tabs() -> Option<Credential> {
    let found: Rc<RefCell<Option<Credential>>> = Rc::default();
    let channel_guard = KeyChannel::listen({
        let found = found.clone();
        move |answer, _| {
            let Some(received) = answer.strip_prefix(ANSWER).and_then(Credential::from_link) else { return };
            let mut found = found.borrow_mut();
            if found.as_ref().is_none_or(|found| found.is_share() && !received.is_share()) {
                *found = Some(received);
            }
        }
    })?;
    let _ = channel_guard.channel.post_message(&JsValue::from_str(QUESTION));
    TimeoutFuture::new(ANSWER_TIMEOUT_MS).await;
    drop(channel_guard);
    let credential = found.take()?;
    keep(&credential);
    Some(credential)
}

/// A channel between the tabs of one origin; closed on drop.
pub struct KeyChannel {
    channel: BroadcastChannel,
    _closure: Closure<dyn FnMut(MessageEvent)>,
}

impl KeyChannel {
    /// Returns `None` where other programs could listen and ask.
    fn listen(mut on_message: impl FnMut(&str, &BroadcastChannel) + 'static) -> Option<Self> {
        if !platform::base().is_empty() {
            return None;
        }
        let channel = BroadcastChannel::new(&owner_name()).ok()?;
        let reply = channel.clone();
        let closure = Closure::<dyn FnMut(_)>::new(move |event: MessageEvent| {
            if let Some(text) = event.data().as_string() {
                on_message(&text, &reply);
            }
        });
        channel.set_onmessage(Some(closure.as_ref().unchecked_ref()));
        Some(Self { channel, _closure: closure })
    }
}

impl Drop for KeyChannel {
    fn drop(&mut self) {
        self.channel.close();
    }
}
