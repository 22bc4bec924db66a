//! Without a key, or with one that does not fit, the page says how to get in, and takes the link by hand.

use crate::browser;
use crate::feed::{Parting, key};
use crate::lazy::{lazy, words};
use crate::page::Page;
use leptos::ev::SubmitEvent;
use leptos::html::Input;
use leptos::prelude::*;

/// The way in.
#[component]
pub fn Gate(
    /// Why an attempt failed; none when there was no key to try.
    why: Option<Parting>,
) -> impl IntoView {
    let (head, rest) = said(why.as_ref(), &browser::authority());
    let needs_key = !matches!(why, Some(Parting::Version | Parting::NoRandom));
    view! {
        <main class="gate">
            <div class="gate__card">
                <p class="brand">"nodeglass"</p>
                <h1>{head}</h1>
                <p>{rest}</p>
                {needs_key.then(|| view! { <Ask/> })}
                {(!needs_key).then(|| view! {
                    <button class="btn btn--primary" on:click=|_| browser::reload()>"Load the page again"</button>
                })}
            </div>
        </main>
    }
}

#[component]
fn Ask() -> impl IntoView {
    let (feed, input) = (Page::here().feed, NodeRef::<Input>::new());
    let wrong = RwSignal::new(false);
    let submit = move |event: SubmitEvent| {
        event.prevent_default();
        let text = input.get_untracked().map(|input| input.value()).unwrap_or_default();
        match key::of_link(&text) {
            Some(key) => feed.use_key(key),
            None => wrong.set(true),
        }
    };
    view! {
        <ol class="gate__steps">
            <li>"On the login node, as the user who started the relay:" <code class="command">"relay link"</code></li>
            <li>"Open the link it prints, or paste it here:"
                <form class="gate__form" on:submit=submit>
                    <input type="password" class="field" node_ref=input autocomplete="off" autofocus
                        aria-label="Link or key" placeholder="http://…/#k=…" aria-invalid=lazy(move || wrong.get().to_string())/>
                    <button class="btn btn--primary" type="submit">"Open"</button>
                </form>
                <p class="gate__wrong" role="alert">
                    {words(move || wrong.get().then_some("That is no link of a relay: it ends in #k= and 43 characters."))}
                </p>
            </li>
        </ol>
    }
}

/// What happened, and what it means.
fn said(why: Option<&Parting>, authority: &str) -> (String, String) {
    match why {
        None => (
            "This tab has no key.".to_owned(),
            "The picture of your jobs is yours alone: the link that the relay prints carries a key, and this address came without one."
                .to_owned(),
        ),
        Some(Parting::Stranger) => (
            format!("What answers at {authority} is not your relay."),
            "It could not prove that it holds your key, so it was told nothing. Either the relay was started anew with another key, or another program took its port."
                .to_owned(),
        ),
        Some(Parting::Version) => (
            "Page and relay do not understand each other.".to_owned(),
            "They are of different versions. Load the page again; if that does not help, end the old relay and start the new one."
                .to_owned(),
        ),
        Some(Parting::NoRandom) => (
            "This browser gives no random numbers.".to_owned(),
            "Without them no key can be proved. Try a current Firefox, Chromium or Safari.".to_owned(),
        ),
        Some(_) => (
            "The relay did not accept the key.".to_owned(),
            "The relay was started anew with another key, or this user may not use it.".to_owned(),
        ),
    }
}
