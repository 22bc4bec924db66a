//! Silences an item of the list of what needs attention, and shows it again.

use crate::describe::finding::{request_scope, silence_scope};
use crate::domain::attention::{Entry, Item};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::actions::show_toast;
use leptos::html::{A, Button};
use leptos::prelude::*;
use nodeglass_protocol::finding::SilenceRequest;
use nodeglass_protocol::request::{Request, Response};
use web_sys::KeyboardEvent;

/// For how long an item can be silenced, in s.
const TIMES: [(&str, u32); 3] = [("1 h", 3_600), ("8 h", 8 * 3_600), ("3 days", 3 * 86_400)];

/// The owner's button that offers to silence an item, or to show a silenced one again.
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
                    item().into_iter().for_each(|item| show_again(page.clone(), item));
                    leave();
                };
                let (label, scope) = (format!("Unsilence: {}, {}", of.subject, of.title), end_scope(&of));
                view! { <button class="btn btn--small silence__again" aria-label=label title=scope on:click=show>"Unsilence"</button> }
                    .into_any()
            }
            State::Listed => offer(page.clone(), &of, is_open, leave),
        })
    }
}

/// Possible actions on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can be silenced.
    Listed,
    /// It can be shown again.
    Silenced,
}

/// Returns what the owner can do with an item.
pub(super) fn state(entry: Option<&Entry>, is_silenced: bool) -> Option<State> {
    let entry = entry?;
    match is_silenced {
        true => Some(State::Silenced),
        false => (!entry.is_resolved && !entry.item.is_past).then_some(State::Listed),
    }
}

/// Returns what the end of an item's silences covers. Whether one of them is of all jobs is not part of the picture.
fn end_scope(item: &Item) -> String {
    let scope = silence_scope(item);
    match item.only_job() {
        Some(_) => {
            format!("Unsilence {scope}; also ends silences of the whole job and of all jobs that cover it")
        }
        None => format!("Unsilence {scope}"),
    }
}

/// The button, and the times to choose from: below the button, or below the row of a narrow window.
fn offer(
    page: Page,
    item: &Item,
    is_open: RwSignal<bool>,
    leave: impl Fn() + Copy + Send + Sync + 'static,
) -> AnyView {
    let (first, bell) = (NodeRef::<Button>::new(), NodeRef::<Button>::new());
    platform::effect(move || first.get().into_iter().for_each(|button| drop(button.focus())));
    let close = move || {
        is_open.set(false);
        if let Some(bell) = bell.get_untracked() {
            let _ = bell.focus();
        }
    };
    let choices = {
        let item = item.clone();
        move || is_open.get().then(|| choices(&page, &item, first, close, leave))
    };
    let handle_key = move |event: KeyboardEvent| {
        // Letters typed in the open menu are not shortcuts of the page.
        if is_open.get_untracked() {
            event.stop_propagation();
            if event.key() == "Escape" {
                close();
            }
        }
    };
    let label = format!("Silence: {}, {}", item.subject, item.title);
    view! {
        <div class="silence" on:keydown=handle_key>
            <button class="silence__open" title="Silence" aria-label=label aria-expanded=move || is_open.get().to_string()
                node_ref=bell on:click=move |_| is_open.update(|open| *open = !*open)>
                <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 14h2M2.5 2.5l11 11"></path></svg>
            </button>
            {choices}
        </div>
    }
    .into_any()
}

/// The open menu: for how long the item can be silenced.
fn choices(
    page: &Page,
    item: &Item,
    first: NodeRef<Button>,
    close: impl Fn() + Copy + Send + Sync + 'static,
    leave: impl Fn() + Copy + Send + Sync + 'static,
) -> AnyView {
    let what = format!("Silence {}", silence_scope(item));
    let choice = |(label, for_s): (&'static str, u32)| {
        let (page, item) = (page.clone(), item.clone());
        let choose = move |_| {
            silence(page.clone(), &item, for_s);
            leave();
        };
        let about = format!("{what} for {label}");
        let node_ref = if for_s == TIMES[0].1 { first } else { NodeRef::new() };
        view! { <button class="btn btn--small" node_ref=node_ref aria-label=about on:click=choose>{label}</button> }
    };
    let times = TIMES.into_iter().map(choice).collect_view();
    view! {
        <div class="menu__veil" on:click=move |_| close()></div>
        <div class="silence__choices" role="group" aria-label=what.clone()>
            <span class="silence__what">{what.clone()}</span>
            <span class="silence__times">
                {times}
                <button class="silence__close" aria-label="Close" on:click=move |_| close()>"×"</button>
            </span>
        </div>
    }
    .into_any()
}

/// Silences an item, which may be several findings, and reports the relay's responses at once.
pub fn silence(page: Page, item: &Item, for_s: u32) {
    let (requests, scope) = (item.silences(for_s), silence_scope(item));
    leptos::task::spawn_local(async move {
        let mut answers: Vec<String> = Vec::new();
        for request in requests {
            match answer(&page, request).await {
                Ok(answer) => answers.push(answer),
                Err(why) => return show_toast(page, why, false),
            }
        }
        show_toast(page, silenced(&answers, &scope), true);
    });
}

/// Returns what the relay answered, such as `silenced for 1 h: straggler of job 17; it is forgotten when the relay stops`, in
/// the words of the page.
fn silenced(answers: &[String], scope: &str) -> String {
    let done = answers.first().and_then(|answer| answer.split(": ").next()).unwrap_or("silenced");
    let mut text = format!("{done}: {scope}");
    let mut remarks: Vec<&str> = Vec::new();
    for remark in answers.iter().flat_map(|answer| answer.split("; ").skip(1)) {
        if !remarks.contains(&remark) {
            text.extend(["; ", remark]);
            remarks.push(remark);
        }
    }
    text
}

/// Begins the relay's answer about a silence that did not exist.
const NO_SILENCE: &str = "there is no silence for";

/// Ends every silence that may cover an item, and reports once which ones there were.
fn show_again(page: Page, item: Item) {
    leptos::task::spawn_local(async move {
        let (mut ended, mut last) = (Vec::new(), String::new());
        for request in item.end_silences() {
            match answer(&page, request.clone()).await {
                Ok(answer) if answer.starts_with(NO_SILENCE) => last = answer,
                Ok(_) => ended.push(request_scope(&item, &request)),
                Err(why) => return show_toast(page, why, false),
            }
        }
        match ended.is_empty() {
            true => show_toast(page, last, false),
            false => show_toast(page, format!("no longer silenced: {}", ended.join("; ")), true),
        }
    });
}

/// Sends a request and returns the answer.
///
/// # Errors
/// Why it was refused.
async fn answer(page: &Page, request: SilenceRequest) -> Result<String, String> {
    match page.request(Request::Silence(request)).await {
        Response::Refused(why) => Err(why.to_string()),
        Response::Done(text) => Ok(text.to_string()),
        _ => Err("Unexpected reply from the relay.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_relay_answers_about_several_findings_is_stated_once() {
        let rest = "; it is forgotten when the relay stops";
        let answers = ["thermal", "straggler"]
            .map(|kind| format!("silenced for 1 h: {kind} of job 17; it is not listed{rest}"));
        assert_eq!(
            silenced(&answers, "“GPU too hot” of a"),
            format!("silenced for 1 h: “GPU too hot” of a; it is not listed{rest}")
        );
    }
}
