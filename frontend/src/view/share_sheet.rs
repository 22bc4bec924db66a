//! The owner's sheet of sharing: a form that makes a share, what it made, and below who may look and who does.

use super::copy::{commands, copy_button};
use super::share_list::ShareList;
use super::sheet::Sheet;
use crate::browser;
use crate::page::Page;
use crate::tell::commands::Line;
use crate::tell::share::{HIDEABLE, LASTS, ends_words, message, offers, scope_words, whom_words};
use leptos::html::H2;
use leptos::prelude::*;
use nodeglass_protocol::ask::{Answer, Ask};
use nodeglass_protocol::share::{Hides, LoginNameError, Scope, ShareLink, ShareRequest, login_name};
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{FormData, HtmlFormElement};

/// What of the sheet is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// To make a share.
    Make,
    /// To see who looks.
    Watch,
}

/// The sheet, when it is asked for.
#[component]
pub fn ShareSheet() -> impl IntoView {
    let open = Page::here().sharing;
    move || {
        open.get().map(|wanted| {
            view! {
                <Sheet class="sheet sharing" label="Sharing" close=Arc::new(move || open.set(None))>
                    <Make first=wanted == Sharing::Make/>
                    <ShareList first=wanted == Sharing::Watch/>
                </Sheet>
            }
        })
    }
}

/// The form, and in its place what came of it.
#[component]
fn Make(first: bool) -> impl IntoView {
    let page = Page::here();
    let made: RwSignal<Option<ShareLink>> = RwSignal::new(None);
    move || match made.get() {
        None => form(&page, made, first),
        Some(link) => view! {
            <Made link/>
            <button class="btn" on:click=move |_| made.set(None)>"Share something else"</button>
        }
        .into_any(),
    }
}

fn form(page: &Page, made: RwSignal<Option<ShareLink>>, first: bool) -> AnyView {
    let offers = untrack(|| page.jobs.with(|jobs| offers(&page.place.get(), jobs)));
    let scopes: Arc<Vec<Scope>> = Arc::new(offers.iter().map(|offer| offer.scope.clone()).collect());
    let (wrong, waits) = (RwSignal::new(String::new()), RwSignal::new(false));
    let page = page.clone();
    let submit = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let form = event.target().and_then(|form| form.dyn_into::<HtmlFormElement>().ok());
        let filled = form.and_then(|form| FormData::new_with_form(&form).ok());
        let request = match filled.and_then(|filled| request(&filled, &scopes)) {
            Some(Ok(request)) => request,
            Some(Err(error)) => return wrong.set(format!("Failed to {error}.")),
            None => return,
        };
        let page = page.clone();
        waits.set(true);
        leptos::task::spawn_local(async move {
            let answer = page.ask(Ask::Share(Box::new(request))).await;
            // The sheet may be closed by now.
            waits.try_set(false);
            let why = match answer {
                Answer::Share(link) => {
                    made.try_set(Some(*link));
                    return;
                }
                Answer::Refused(why) => why.to_string(),
                _ => "The relay answered something else.".to_owned(),
            };
            wrong.try_set(why);
        });
    };
    let scope = |(at, offer): (usize, crate::tell::share::Offer)| {
        view! {
            <label class="choice">
                <input type="radio" name="scope" value=at.to_string() checked=at == 0 autofocus=first && at == 0/>
                {offer.words}
            </label>
        }
    };
    let lasts = |(at, (words, _)): (usize, (&'static str, Option<u64>))| {
        view! { <option value=at.to_string()>{words}</option> }
    };
    let hide = |(name, what): (&'static str, &'static str)| {
        view! { <label class="choice"><input type="checkbox" name=name checked=true/> {what}</label> }
    };
    view! {
        <form class="share settings" on:submit=submit>
            <h2 class="sheet__title">"Share"</h2>
            <p class="settings__why">"Whoever has the link sees this page live, through a tunnel of their own, and can change nothing."</p>
            <fieldset>
                <legend>"What is shown"</legend>
                {offers.into_iter().enumerate().map(scope).collect_view()}
            </fieldset>
            <fieldset>
                <legend>"What is hidden of it"</legend>
                <div class="share__hides">{HIDEABLE.map(hide).into_iter().collect_view()}</div>
                <p class="settings__why">"Environments of processes are never shared."</p>
            </fieldset>
            <div class="share__fields">
                <label><span>"For how long"</span>
                    <select class="field" name="lasts">{LASTS.into_iter().enumerate().map(lasts).collect_view()}</select>
                </label>
                <label><span>"Only for the user"</span>
                    <input class="field" name="to" maxlength="64" autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="login name; empty: whoever has the link"/>
                </label>
                <label><span>"Label, for yourself"</span>
                    <input class="field" name="label" maxlength="120" autocomplete="off" placeholder="such as: Bob looks at the stall"/>
                </label>
            </div>
            <p class="gate__wrong" role="alert">{move || wrong.get()}</p>
            <button class="btn btn--primary" type="submit" disabled=move || waits.get()>"Make the link"</button>
        </form>
    }
    .into_any()
}

/// What was filled in.
fn request(filled: &FormData, scopes: &[Scope]) -> Option<Result<ShareRequest, LoginNameError>> {
    let field = |name: &str| filled.get(name).as_string().unwrap_or_default();
    let chosen = |name: &str| field(name).parse::<usize>().ok();
    let to = field("to");
    let to = match to.trim() {
        "" => None,
        name => match login_name(name) {
            Ok(name) => Some(name),
            Err(error) => return Some(Err(error)),
        },
    };
    let [arguments, paths, other_users, logs] = HIDEABLE.map(|(name, _)| filled.has(name));
    Some(Ok(ShareRequest {
        label: field("label").into(),
        scope: scopes.get(chosen("scope")?)?.clone(),
        hides: Hides { arguments, paths, other_users, logs },
        to,
        lasts_s: LASTS.get(chosen("lasts")?)?.1,
    }))
}

/// A link just made; it has the focus, and is read aloud.
#[component]
fn Made(link: ShareLink) -> impl IntoView {
    let page = Page::here();
    let head = NodeRef::<H2>::new();
    Effect::new(move || {
        if let Some(head) = head.get() {
            let _ = head.focus();
        }
    });
    let terms = &link.share.terms;
    let title = format!("✓ Shared: {}", scope_words(&terms.scope));
    let now_ms = untrack(|| page.wall_s()).unsigned_abs() * 1_000;
    let how = format!("It is read-only, {}, and {}.", whom_words(terms), ends_words(terms, now_ms, None));
    let lines = link_lines(&page, &link);
    view! {
        <h2 class="sheet__title" tabindex="-1" node_ref=head>{title}</h2>
        <p class="sheet__where">{how}</p>
        {lines}
    }
}

/// The link, the tunnel, and a message with both, each to copy.
pub fn link_lines(page: &Page, link: &ShareLink) -> AnyView {
    let Some(url) = &link.link else {
        return view! {
            <p class="told__note">
                "The key of this link is not kept, so that it cannot be shown again. Create a new one and revoke this one."
            </p>
        }
        .into_any();
    };
    let line = |what: &str, command: String| Line { what: what.to_owned(), command };
    let owner = untrack(|| page.fleet.welcome()).map_or(String::new(), |welcome| welcome.user.to_string());
    let until = browser::time_of_day((link.share.terms.expires_ms / 1_000).cast_signed());
    let message = message(link, url, &owner, &until);
    let lines = vec![line("The link", url.clone()), line("Their tunnel", link.tunnel.to_string())];
    view! {
        {commands(lines)}
        <div class="share__message">
            <pre class="command">{message.clone()}</pre>
            {copy_button(message)}
        </div>
    }
    .into_any()
}
