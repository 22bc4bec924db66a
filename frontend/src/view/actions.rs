//! Actions are offered, asked back, done, and reported: in a toast at once, and in the list of what was done.

use super::sheet::Sheet;
use crate::browser;
use crate::intent::Intent;
use crate::page::{Page, Toast};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::ask::{Answer, Ask, AuditEntry, RetryTarget};
use std::sync::Arc;

/// How long a toast stays, in ms.
const TOAST_MS: u32 = 9_000;

/// Buttons that offer what may be done; none where the viewer may not act.
pub fn offers(page: &Page, intents: Vec<(&'static str, Intent)>) -> AnyView {
    if !page.may_act() || intents.is_empty() {
        return ().into_any();
    }
    let button = |(key, intent): (&'static str, Intent)| {
        let page = page.clone();
        let offer = intent.offer;
        let key = (!key.is_empty()).then(|| view! { " " <kbd>{key}</kbd> }.into_any());
        view! { <button class="btn" on:click=move |_| page.intend(intent.clone())>{offer} {key}</button> }
    };
    view! { <div class="offers">{intents.into_iter().map(button).collect_view()}</div> }.into_any()
}

/// The question before anything is done; the way back has the focus.
#[component]
pub fn Confirm() -> impl IntoView {
    let page = Page::here();
    let intent = page.intent;
    move || {
        let wanted = intent.get()?;
        let (page, ask) = (page.clone(), wanted.ask.clone());
        let close: super::sheet::Close = Arc::new(move || intent.set(None));
        let question = wanted.question.clone();
        Some(view! {
            <Sheet class="ask" label=question.clone() close>
                <h2>{question}</h2>
                <p>{wanted.effect}</p>
                <div class="ask__ways">
                    <button class="btn btn--primary" autofocus=true on:click=move |_| intent.set(None)>"Keep it as it is"</button>
                    <button class="btn btn--bad" on:click=move |_| {
                        intent.set(None);
                        act(page.clone(), ask.clone());
                    }>{wanted.yes}</button>
                </div>
            </Sheet>
        }.into_any())
    }
}

/// A button that lets the relay try something again now; for the owner only, whether or not they may act.
pub fn retry(page: &Page, target: RetryTarget, word: &'static str) -> Option<AnyView> {
    let page = page.clone();
    page.is_owner().then(|| {
        let ask = Ask::Retry(target);
        view! { <button class="btn btn--small" on:click=move |_| act(page.clone(), ask.clone())>{word}</button> }
            .into_any()
    })
}

/// Orders something and reports what came of it.
fn act(page: Page, ask: Ask) {
    leptos::task::spawn_local(async move {
        let (words, is_good) = match page.ask(ask).await {
            Answer::Done(words) => (words.to_string(), true),
            Answer::Refused(why) => (why.to_string(), false),
            Answer::Process(_) | Answer::Tail(_) | Answer::Share(_) => {
                ("The relay answered something else.".to_owned(), false)
            }
        };
        let number = page.toasts.with_untracked(|toasts| toasts.last().map_or(0, |last| last.number + 1));
        page.toasts.update(|toasts| toasts.push(Toast { number, words, is_good }));
        TimeoutFuture::new(TOAST_MS).await;
        let _ = page.toasts.try_update(|toasts| toasts.retain(|toast| toast.number != number));
    });
}

/// What came of the last actions, read aloud as it comes.
#[component]
pub fn Toasts() -> impl IntoView {
    let toasts = Page::here().toasts;
    let list = move || {
        let one = |toast: Toast| {
            let (class, mark) = if toast.is_good { ("toast", "✓ ") } else { ("toast toast--bad", "▲ ") };
            view! { <p class=class>{mark}{toast.words}</p> }
        };
        toasts.get().into_iter().map(one).collect_view()
    };
    view! { <div class="toasts" role="status" aria-live="polite">{move || list()}</div> }
}

/// Everything that was done for the owner, newest first; nothing where nothing was.
#[component]
pub fn Deeds() -> impl IntoView {
    let overview = Page::here().fleet.overview().clone();
    let deeds = Memo::new(move |_| {
        overview.deeds().track();
        overview.read(|picture| picture.audit_log.clone())
    });
    move || {
        let deeds = deeds.get();
        let one = |deed: AuditEntry| {
            let mark = if deed.done { "✓" } else { "▲" };
            let at = browser::time_of_day((deed.wall_ms / 1_000).cast_signed());
            view! {
                <li class:deed--bad=!deed.done>
                    <span class="num">{at}</span> <b>{mark} " " {deed.what.to_string()}</b> <span>{deed.outcome.to_string()}</span>
                </li>
            }
        };
        (!deeds.is_empty()).then(|| {
            view! {
                <section class="deeds" aria-label="What was done">
                    <h2 class="caption"><b>"What was done"</b></h2>
                    <ul>{deeds.into_iter().rev().map(one).collect_view()}</ul>
                </section>
            }
            .into_any()
        })
    }
}
