//! The key comes in the link's fragment, stays in the tab, and is shared with other tabs of the same origin only.

use crate::browser;
use gloo_timers::future::TimeoutFuture;
use nodeglass_protocol::handshake::Key;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use web_sys::{BroadcastChannel, MessageEvent};

/// How long other tabs have to answer, in ms.
const ASK_MS: u32 = 250;
/// What a tab without a key asks.
const QUESTION: &str = "key?";
/// What the answer begins with.
const ANSWER: &str = "key=";

/// The key in a fragment (`k=…`), in a link that ends in one, or by itself.
pub fn of_link(text: &str) -> Option<Key> {
    let text = text.trim();
    let fragment = text.rsplit_once('#').map_or(text, |(_, fragment)| fragment);
    fragment.strip_prefix("k=").unwrap_or(fragment).parse().ok()
}

/// Takes the key out of the address bar into this tab's memory, before anything else can see it.
pub fn take_from_address() {
    let fragment = browser::fragment();
    if !fragment.starts_with("k=") {
        return;
    }
    if let Some(key) = of_link(&fragment) {
        keep(&key);
    }
    browser::drop_fragment();
}

/// Remembers a key for this tab.
pub fn keep(key: &Key) {
    browser::remember(browser::session(), &name(), &key.reveal());
}

/// The key this tab remembers, or else what another tab answers.
pub async fn find() -> Option<Key> {
    match remembered() {
        Some(key) => Some(key),
        None => ask_other_tabs().await,
    }
}

fn remembered() -> Option<Key> {
    browser::recall(browser::session(), &name())?.parse().ok()
}

/// Relays under several base paths of one origin do not share keys.
fn name() -> String {
    format!("nodeglass-key{}", browser::base())
}

/// Answers other tabs that ask for the key, for as long as the channel is held.
pub fn answer_other_tabs() -> Option<Ear> {
    Ear::listen(|question, channel| {
        if let (QUESTION, Some(key)) = (question, remembered()) {
            let _ = channel.post_message(&JsValue::from_str(&format!("{ANSWER}{}", key.reveal())));
        }
    })
}

async fn ask_other_tabs() -> Option<Key> {
    let found = Rc::new(RefCell::new(None));
    let ear = Ear::listen({
        let found = found.clone();
        move |answer, _| {
            if let Some(key) = answer.strip_prefix(ANSWER).and_then(|key| key.parse::<Key>().ok()) {
                found.replace(Some(key));
            }
        }
    })?;
    let _ = ear.channel.post_message(&JsValue::from_str(QUESTION));
    TimeoutFuture::new(ASK_MS).await;
    drop(ear);
    let key = found.take()?;
    keep(&key);
    Some(key)
}

/// A channel between the tabs of one origin that is closed with its guard.
pub struct Ear {
    channel: BroadcastChannel,
    _closure: Closure<dyn FnMut(MessageEvent)>,
}

impl Ear {
    fn listen(mut hear: impl FnMut(&str, &BroadcastChannel) + 'static) -> Option<Self> {
        let channel = BroadcastChannel::new(&name()).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_a_link_a_fragment_and_by_itself() {
        let key = Key::new([7; 32]);
        let text = key.reveal();
        for given in [
            text.clone(),
            format!("k={text}"),
            format!("#k={text}"),
            format!("  http://127.0.0.1:8080/job/17#k={text}\n"),
        ] {
            assert_eq!(of_link(&given), Some(key.clone()), "{given}");
        }
    }

    #[test]
    fn what_is_no_key_is_none() {
        for given in ["", "k=", "http://127.0.0.1:8080/", "k=short", "x=AAAA"] {
            assert_eq!(of_link(given), None, "{given}");
        }
    }
}
