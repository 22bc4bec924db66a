//! Actions: offered, confirmed, carried out, and reported in a toast and in the audit log.

use super::focus;
use super::sheet::Sheet;
use crate::domain::pending_action::PendingAction;
use crate::platform;
use crate::state::page::{Page, Toast};
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::request::{AuditEntry, Request, Response, RetryTarget};
use std::sync::Arc;

/// Time for which a toast stays, in ms.
const TOAST_MS: u32 = 9_000;

/// Buttons that offer actions; none if the viewer may not act.
pub fn offers(page: &Page, actions: Vec<(&'static str, PendingAction)>) -> AnyView {
    if !page.may_act() || actions.is_empty() {
        return ().into_any();
    }
    let button = |(key, action): (&'static str, PendingAction)| {
        let page = page.clone();
        let (offer, class) = (action.offer_label, if action.is_destructive { "btn btn--bad" } else { "btn" });
        let key = (!key.is_empty()).then(|| view! { " " <kbd>{key}</kbd> }.into_any());
        view! { <button class=class on:click=move |_| page.propose(action.clone())>{offer} {key}</button> }
    };
    on_cleanup(|| focus::keep_if_within(".offers"));
    view! { <div class="offers">{actions.into_iter().map(button).collect_view()}</div> }.into_any()
}

/// The confirmation dialog; the cancel button has the focus.
#[component]
pub fn Confirm() -> impl IntoView {
    let page = Page::from_context();
    let pending_action = page.pending_action;
    move || {
        let action = pending_action.get()?;
        let (page, request) = (page.clone(), action.request.clone());
        let close: super::sheet::Close = Arc::new(move || pending_action.set(None));
        let question = action.question.clone();
        let class = if action.is_destructive { "btn btn--danger" } else { "btn btn--primary" };
        Some(view! {
            <Sheet class="ask" label=question.clone() close>
                <h2>{question}</h2>
                <p>{action.effect}</p>
                <div class="ask__ways">
                    <button class="btn" autofocus=true on:click=move |_| pending_action.set(None)>"Go back"</button>
                    <button class=class on:click=move |_| {
                        pending_action.set(None);
                        act(page.clone(), request.clone());
                    }>{action.confirm_label}</button>
                </div>
            </Sheet>
        }.into_any())
    }
}

/// A button that makes the relay retry something now; for the owner only, with or without actions enabled.
pub fn retry(page: &Page, target: RetryTarget, label: &'static str) -> Option<AnyView> {
    let page = page.clone();
    page.is_owner().then(|| {
        let request = Request::Retry(target);
        view! { <button class="btn btn--small" on:click=move |_| act(page.clone(), request.clone())>{label}</button> }
            .into_any()
    })
}

/// Sends an action and reports its outcome.
pub fn act(page: Page, request: Request) {
    leptos::task::spawn_local(async move {
        let (text, is_good) = match page.request(request).await {
            Response::Done(text) => (text.to_string(), true),
            Response::Refused(why) => (why.to_string(), false),
            Response::Process(_)
            | Response::Tail(_)
            | Response::Share(_)
            | Response::Audit(_)
            | Response::Note(_)
            | Response::Capture(_)
            | Response::Processes(_) => ("Unexpected reply from the relay.".to_owned(), false),
        };
        show_toast(page, text, is_good);
    });
}

/// Shows an outcome for a while.
pub fn show_toast(page: Page, text: String, is_good: bool) {
    leptos::task::spawn_local(async move {
        let number = page.toasts.with_untracked(|toasts| toasts.last().map_or(0, |last| last.number + 1));
        page.toasts.update(|toasts| toasts.push(Toast { number, text, is_good }));
        TimeoutFuture::new(TOAST_MS).await;
        let _ = page.toasts.try_update(|toasts| toasts.retain(|toast| toast.number != number));
    });
}

/// The outcomes of the last actions, announced to screen readers.
#[component]
pub fn Toasts() -> impl IntoView {
    let toasts = Page::from_context().toasts;
    let list = move || {
        let one = |toast: Toast| {
            let (class, mark) = if toast.is_good { ("toast", "✓ ") } else { ("toast toast--bad", "▲ ") };
            view! { <p class=class>{mark}{toast.text}</p> }
        };
        toasts.get().into_iter().map(one).collect_view()
    };
    view! { <div class="toasts" role="status" aria-live="polite">{move || list()}</div> }
}

/// The audit log, newest first; nothing if it is empty.
#[component]
pub fn AuditLog() -> impl IntoView {
    let overview = Page::from_context().fleet.overview().clone();
    let audit_log = Memo::new(move |_| {
        overview.audit_log().track();
        overview.read(|picture| picture.audit_log.clone())
    });
    move || {
        let audit_log = audit_log.get();
        let one = |deed: AuditEntry| {
            let mark = if deed.succeeded { "✓" } else { "▲" };
            let at = platform::format_time_or_date((deed.wall_ms / 1_000).cast_signed());
            view! {
                <li class:deed--bad=!deed.succeeded>
                    <span class="num">{at}</span> <b>{mark} " " {deed.action.to_string()}</b> <span>{deed.outcome.to_string()}</span>
                </li>
            }
        };
        (!audit_log.is_empty()).then(|| {
            view! {
                <section class="deeds" aria-label="Action log">
                    <h2 class="caption"><b>"Action log"</b></h2>
                    <ul>{audit_log.into_iter().rev().map(one).collect_view()}</ul>
                </section>
            }
            .into_any()
        })
    }
}
