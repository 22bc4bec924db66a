//! Silences an item of the list of what needs attention, and shows it again.

use crate::domain::attention::{Entry, Item};
use crate::state::page::Page;
use crate::view::widgets::actions::{act, show_toast};
use leptos::html::{A, Button};
use leptos::prelude::*;
use nodeglass_protocol::finding::SilenceRequest;
use nodeglass_protocol::request::{Request, Response};
use web_sys::KeyboardEvent;

/// For how long an item can be silenced, in s.
const TIMES: [(&str, u32); 3] = [("1 h", 3_600), ("8 h", 8 * 3_600), ("3 days", 3 * 86_400)];

/// The owner's button that offers to silence an item, or shows one that is silenced again.
#[component]
pub fn SilenceButton(
    /// The item; `None` once it is gone.
    entry: Memo<Option<Entry>>,
    /// Until when it is silenced, in ms since 1970.
    until_ms: Memo<Option<u64>>,
    /// The link of the row, which gets the focus of a button that goes.
    link: NodeRef<A>,
) -> impl IntoView {
    let page = Page::from_context();
    let is_open = RwSignal::new(false);
    let state = {
        let page = page.clone();
        Memo::new(move |_| {
            entry.with(|entry| state(entry.as_ref(), until_ms.get().is_some())).filter(|_| page.is_owner())
        })
    };
    let item = move || entry.with_untracked(|entry| entry.as_ref().map(|entry| entry.item.clone()));
    let leave = move || {
        is_open.set(false);
        if let Some(link) = link.get_untracked() {
            let _ = link.focus();
        }
    };
    move || {
        let of = item()?;
        Some(match state.get()? {
            State::Silenced => {
                let page = page.clone();
                let show = move |_| {
                    item().into_iter().for_each(|item| show_again(page.clone(), item.end_silences()));
                    leave();
                };
                let label = format!("Unsilence: {}, {}", of.subject, of.title);
                view! { <button class="btn btn--small silence__again" aria-label=label on:click=show>"Unsilence"</button> }
                    .into_any()
            }
            State::Listed => offer(page.clone(), &of, is_open, leave),
        })
    }
}

/// What can be done about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It can be silenced.
    Listed,
    /// It can be shown again.
    Silenced,
}

fn state(entry: Option<&Entry>, is_silenced: bool) -> Option<State> {
    let entry = entry?;
    match is_silenced {
        true => Some(State::Silenced),
        false => (!entry.is_over && !entry.item.is_past).then_some(State::Listed),
    }
}

/// The button, and the times to choose from, which cover a part of the row so that nothing moves.
fn offer(
    page: Page,
    item: &Item,
    is_open: RwSignal<bool>,
    leave: impl Fn() + Copy + Send + Sync + 'static,
) -> AnyView {
    let first = NodeRef::<Button>::new();
    Effect::new(move |_| first.get().map(|button| button.focus().is_ok()));
    let what = match item.only_job {
        Some(_) => "Silence this kind for this job:",
        None => "Silence this kind everywhere:",
    };
    let choices = {
        let item = item.clone();
        move || {
            let (page, item) = (page.clone(), item.clone());
            let choice = move |(label, for_s): (&'static str, u32)| {
                let (page, request) = (page.clone(), item.silence(for_s));
                let choose = move |_| {
                    act(page.clone(), Request::Silence(request.clone()));
                    leave();
                };
                let about = format!("{what} {label}");
                let node_ref = if for_s == TIMES[0].1 { first } else { NodeRef::new() };
                view! { <button class="btn btn--small" node_ref=node_ref aria-label=about on:click=choose>{label}</button> }
            };
            is_open.get().then(|| {
                view! {
                    <div class="menu__veil" on:click=move |_| is_open.set(false)></div>
                    <div class="silence__choices" role="group" aria-label=what>
                        <span>{what}</span>
                        {TIMES.into_iter().map(choice).collect_view()}
                        <button class="silence__close" aria-label="Close" on:click=move |_| leave()>"×"</button>
                    </div>
                }
                .into_any()
            })
        }
    };
    let handle_key = move |event: KeyboardEvent| {
        // Letters typed in the open menu are not shortcuts of the page.
        if is_open.get_untracked() {
            event.stop_propagation();
            if event.key() == "Escape" {
                leave();
            }
        }
    };
    let label = format!("Silence: {}, {}", item.subject, item.title);
    view! {
        <div class="silence" on:keydown=handle_key>
            <button class="silence__open" title="Silence" aria-label=label aria-expanded=move || is_open.get().to_string()
                on:click=move |_| is_open.update(|open| *open = !*open)>
                <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 14h2M2.5 2.5l11 11"></path></svg>
            </button>
            {choices}
        </div>
    }
    .into_any()
}

/// Ends every silence that may cover an item, and reports the outcome once.
fn show_again(page: Page, requests: Vec<SilenceRequest>) {
    leptos::task::spawn_local(async move {
        for request in requests {
            if let Response::Refused(why) = page.request(Request::Silence(request)).await {
                show_toast(page, why.to_string(), false);
                return;
            }
        }
        show_toast(page, "no longer silenced".to_owned(), true);
    });
}
