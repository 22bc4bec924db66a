//! The list of shares: each with its end, its viewers, its link, and a button that revokes it.

use super::share_link::link_lines;
use crate::describe::share::{audience_text, expiry_text, hidden_text, scope_text, viewer_text, viewers};
use crate::domain::route::Route;
use crate::platform;
use crate::state::page::Page;
use leptos::html::H2;
use leptos::prelude::*;
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::share::{ClosedShare, Share, ShareId, ShareLink, Sharing};

/// Returns the shares and visitors as last received.
pub fn sharing(page: &Page) -> Memo<Sharing> {
    let overview = page.fleet.overview().clone();
    Memo::new(move |_| {
        overview.sharing().track();
        overview.read(|picture| picture.sharing.clone())
    })
}

/// The list.
#[component]
pub fn ShareList(
    /// Whether it gets the focus.
    first: bool,
) -> impl IntoView {
    let page = Page::from_context();
    let sharing = sharing(&page);
    let head = NodeRef::<H2>::new();
    let focus = move || {
        if let Some(head) = head.get_untracked() {
            let _ = head.focus();
        }
    };
    platform::effect(move || {
        if first && head.get().is_some() {
            // After the sheet itself, which focuses its first element.
            platform::on_next_frame(focus);
        }
    });
    let status = RwSignal::new(String::new());
    let shares = Memo::new(move |_| sharing.with(|sharing| sharing.shares.clone()));
    let gone = move |text: String| {
        status.try_set(text);
        focus();
    };
    let (audit, sheet) = (page.href(&Route::Audit), page.sharing);
    let closed = {
        let page = page.clone();
        Memo::new(move |_| {
            let lasts = |closed: &ClosedShare| closed.share.terms.expires_ms > page.wall_ms();
            sharing.with(|sharing| {
                sharing.closed.iter().filter(|closed| lasts(closed)).cloned().collect::<Vec<_>>()
            })
        })
    };
    let closed_entry = {
        let page = page.clone();
        move |closed| closed_entry(&page, closed, gone)
    };
    let entry = move |share| entry(&page, share, sharing, gone);
    let none = move || shares.with(Vec::is_empty).then_some("Nothing is shared.");
    let own = move || {
        let text = sharing.with(|sharing| viewers_text(sharing, None));
        (!text.is_empty()).then(|| format!("With your own key: {text}."))
    };
    view! {
        <section class="shares" aria-label="Shares and viewers">
            <h2 class="caption" tabindex="-1" node_ref=head><b>"Shares and viewers"</b></h2>
            <p class="facts__note" role="status">{status}</p>
            <p class="facts__note">{move || none()}</p>
            <ul><For each=move || shares.get() key=|share| share.id.clone() children=entry/></ul>
            <ul><For each=move || closed.get() key=|closed| closed.share.id.clone() children=closed_entry/></ul>
            <p class="facts__note">{own}</p>
            <p><a class="btn btn--small" href=audit on:click=move |_| sheet.set(None)>"Audit log"</a></p>
        </section>
    }
}

/// State of an entry after one of its buttons was used.
#[derive(Clone, Default)]
enum EntryState {
    #[default]
    Nothing,
    Link(ShareLink),
    Refused(String),
}

fn entry(
    page: &Page,
    share: Share,
    sharing: Memo<Sharing>,
    gone: impl Fn(String) + Copy + Send + Sync + 'static,
) -> AnyView {
    let (id, terms) = (share.id, share.terms);
    let what = untrack(|| page.jobs.with(|jobs| scope_text(&terms.scope, jobs)));
    let (title, its_scope) = match terms.label.as_str() {
        "" => (what.clone(), String::new()),
        label => (label.to_owned(), format!("{what} · ")),
    };
    let hidden = hidden_text(&terms.hidden);
    let hidden = if hidden.is_empty() { "nothing hidden".to_owned() } else { format!("hidden: {hidden}") };
    let about = format!("{its_scope}{} · {hidden}", audience_text(&terms));
    let ends = {
        let page = page.clone();
        move || {
            expiry_text(&terms, page.wall_s().unsigned_abs() * 1_000, None, &platform::format_time_or_date)
        }
    };
    let who = {
        let id = id.clone();
        move || match sharing.with(|sharing| viewers_text(sharing, Some(&id))) {
            text if text.is_empty() => "○ no viewers".to_owned(),
            text => format!("◉ {text}"),
        }
    };
    let state = RwSignal::new(EntryState::default());
    let show = {
        let (page, id) = (page.clone(), id.clone());
        move |_| show_link(page.clone(), id.clone(), state)
    };
    let below = {
        let page = page.clone();
        move || match state.get() {
            EntryState::Nothing => ().into_any(),
            EntryState::Link(link) => link_lines(&page, &link),
            EntryState::Refused(why) => view! { <p class="gate__wrong" role="alert">{why}</p> }.into_any(),
        }
    };
    view! {
        <li class="share-entry">
            <div class="share-entry__head">
                <div>
                    <b>{title}</b>
                    <p class="facts__note">{about}</p>
                    <p class="facts__note"><span class="num-prose">{move || ends()}</span> " · " <b>{move || who()}</b></p>
                </div>
                <button class="btn btn--small" on:click=show>"Show link"</button>
                {revoke(page, id, what, state, gone)}
            </div>
            {move || below()}
        </li>
    }
    .into_any()
}

/// A share that opens only at a relay that watches what was watched when it was made.
fn closed_entry(
    page: &Page,
    closed: ClosedShare,
    gone: impl Fn(String) + Copy + Send + Sync + 'static,
) -> AnyView {
    let ClosedShare { share, watches } = closed;
    let what = untrack(|| page.jobs.with(|jobs| scope_text(&share.terms.scope, jobs)));
    let state = RwSignal::new(EntryState::default());
    let title =
        if share.terms.label.as_str().is_empty() { what.clone() } else { share.terms.label.to_string() };
    let refused = move || match state.get() {
        EntryState::Refused(why) => view! { <p class="gate__wrong" role="alert">{why}</p> }.into_any(),
        _ => ().into_any(),
    };
    view! {
        <li class="share-entry">
            <div class="share-entry__head">
                <div>
                    <b>{title}</b>
                    <p class="facts__note">{format!("Closed here: made while the relay watched {watches}.")}</p>
                </div>
                {revoke(page, share.id, what, state, gone)}
            </div>
            {refused}
        </li>
    }
    .into_any()
}

/// Requests the link of a share.
fn show_link(page: Page, id: ShareId, state: RwSignal<EntryState>) {
    leptos::task::spawn_local(async move {
        state.try_set(match page.request(Request::ShareLink(id)).await {
            Response::Share(link) => EntryState::Link(*link),
            Response::Refused(why) => EntryState::Refused(why.to_string()),
            _ => EntryState::Refused("Unexpected reply from the relay.".to_owned()),
        });
    });
}

/// Describes the viewers of a share, or those with the owner's key.
fn viewers_text(sharing: &Sharing, share: Option<&ShareId>) -> String {
    let viewers = viewers(&sharing.visitors, share);
    let text: Vec<String> =
        viewers.iter().map(|viewer| viewer_text(viewer, &platform::format_time_or_date)).collect();
    text.join("; ")
}

/// The button that revokes a share when pressed twice.
fn revoke(
    page: &Page,
    id: ShareId,
    what: String,
    state: RwSignal<EntryState>,
    gone: impl Fn(String) + Copy + Send + Sync + 'static,
) -> AnyView {
    let (page, armed) = (page.clone(), RwSignal::new(false));
    let press = move |_| {
        if !armed.get_untracked() {
            armed.set(true);
            return;
        }
        armed.set(false);
        let (page, id, what) = (page.clone(), id.clone(), what.clone());
        leptos::task::spawn_local(async move {
            let why = match page.request(Request::Revoke(id)).await {
                Response::Done(_) => {
                    return gone(format!("✓ Revoked: {what}. Viewers were disconnected."));
                }
                Response::Refused(why) => why.to_string(),
                _ => "Unexpected reply from the relay.".to_owned(),
            };
            state.try_set(EntryState::Refused(why));
        });
    };
    view! {
        <button class="btn btn--small btn--bad" aria-live="polite" on:click=press on:blur=move |_| armed.set(false)>
            {move || if armed.get() { "Revoke now" } else { "Revoke" }}
        </button>
    }
    .into_any()
}
