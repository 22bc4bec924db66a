//! Who may look and who does: each share with its end, its guests, its link, and a button that revokes it.

use super::share_sheet::link_lines;
use crate::browser;
use crate::page::Page;
use crate::tell::share::{ends_words, hidden_words, looker_words, lookers, scope_words, whom_words};
use leptos::html::H2;
use leptos::prelude::*;
use nodeglass_protocol::ask::{Answer, Ask};
use nodeglass_protocol::share::{Share, ShareId, ShareLink, Sharing};

/// Who may look and who does, as last heard.
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
    /// Whether it is what was asked for, and gets the focus.
    first: bool,
) -> impl IntoView {
    let page = Page::here();
    let sharing = sharing(&page);
    let head = NodeRef::<H2>::new();
    let focus = move || {
        if let Some(head) = head.get_untracked() {
            let _ = head.focus();
        }
    };
    Effect::new(move || {
        if first && head.get().is_some() {
            // After the sheet itself, which gives the focus to whatever comes first in it.
            browser::on_next_frame(focus);
        }
    });
    let said = RwSignal::new(String::new());
    let shares = Memo::new(move |_| sharing.with(|sharing| sharing.shares.clone()));
    let gone = move |words: String| {
        said.try_set(words);
        focus();
    };
    let entry = move |share| entry(&page, share, sharing, gone);
    let none = move || shares.with(Vec::is_empty).then_some("Nothing is shared now.");
    let own = move || {
        let own = sharing.with(|sharing| lookers(&sharing.visitors, None));
        let words: Vec<String> =
            own.iter().map(|looker| looker_words(looker, &browser::time_of_day)).collect();
        (!words.is_empty()).then(|| format!("By the owner's key: {}.", words.join("; ")))
    };
    view! {
        <section class="shares" aria-label="Who may look">
            <h2 class="caption" tabindex="-1" node_ref=head><b>"Who may look"</b></h2>
            <p class="told__note" role="status">{move || said.get()}</p>
            <p class="told__note">{move || none()}</p>
            <ul><For each=move || shares.get() key=|share| share.id.clone() children=entry/></ul>
            <p class="told__note">{own}</p>
        </section>
    }
}

/// What became of a button, in the entry that it is in.
#[derive(Clone, Default)]
enum Told {
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
    let what = scope_words(&terms.scope);
    let (title, its_scope) = match terms.label.as_str() {
        "" => (what.clone(), String::new()),
        label => (label.to_owned(), format!("{what} · ")),
    };
    let hidden = hidden_words(&terms.hides);
    let hidden = if hidden.is_empty() { "nothing hidden".to_owned() } else { format!("hidden: {hidden}") };
    let about = format!("{its_scope}{} · {hidden}", whom_words(&terms));
    let ends = {
        let page = page.clone();
        move || ends_words(&terms, page.wall_s().unsigned_abs() * 1_000, None)
    };
    let who = {
        let id = id.clone();
        move || {
            let lookers = sharing.with(|sharing| lookers(&sharing.visitors, Some(&id)));
            let words: Vec<String> =
                lookers.iter().map(|looker| looker_words(looker, &browser::time_of_day)).collect();
            if words.is_empty() {
                "○ nobody looks now".to_owned()
            } else {
                format!("◉ {}", words.join("; "))
            }
        }
    };
    let told = RwSignal::new(Told::default());
    let show = {
        let (page, id) = (page.clone(), id.clone());
        move |_| {
            let (page, id) = (page.clone(), id.clone());
            leptos::task::spawn_local(async move {
                told.try_set(match page.ask(Ask::ShareLink(id)).await {
                    Answer::Share(link) => Told::Link(*link),
                    Answer::Refused(why) => Told::Refused(why.to_string()),
                    _ => Told::Refused("The relay answered something else.".to_owned()),
                });
            });
        }
    };
    let below = {
        let page = page.clone();
        move || match told.get() {
            Told::Nothing => ().into_any(),
            Told::Link(link) => link_lines(&page, &link),
            Told::Refused(why) => view! { <p class="gate__wrong" role="alert">{why}</p> }.into_any(),
        }
    };
    view! {
        <li class="share-entry">
            <div class="share-entry__head">
                <div>
                    <b>{title}</b>
                    <p class="told__note">{about}</p>
                    <p class="told__note"><span class="num-prose">{move || ends()}</span> " · " <b>{move || who()}</b></p>
                </div>
                <button class="btn btn--small" on:click=show>"Show the link"</button>
                {revoke(page, id, what, told, gone)}
            </div>
            {move || below()}
        </li>
    }
    .into_any()
}

/// The button that revokes a share at its second press.
fn revoke(
    page: &Page,
    id: ShareId,
    what: String,
    told: RwSignal<Told>,
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
            let why = match page.ask(Ask::Revoke(id)).await {
                Answer::Done(_) => {
                    return gone(format!("✓ Taken back: {what}. Who looked through it was sent away."));
                }
                Answer::Refused(why) => why.to_string(),
                _ => "The relay answered something else.".to_owned(),
            };
            told.try_set(Told::Refused(why));
        });
    };
    view! {
        <button class="btn btn--small btn--bad" aria-live="polite" on:click=press on:blur=move |_| armed.set(false)>
            {move || if armed.get() { "Revoke now" } else { "Revoke" }}
        </button>
    }
    .into_any()
}
