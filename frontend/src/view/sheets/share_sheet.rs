//! The owner's sheet for sharing: a form that creates a share, its result, and the list of shares.

use super::share_link::link_lines;
use super::share_list::ShareList;
use crate::describe::share::{
    DURATIONS, HIDEABLE_PARTS, Offer, audience_text, expiry_text, link_to, offers, scope_text,
};
use crate::domain::route::Route;
use crate::platform;
use crate::state::page::{Page, ShareSheetView};
use crate::view::widgets::sheet::Sheet;
use leptos::html::H2;
use leptos::prelude::*;
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::share::{HiddenParts, LoginNameError, Scope, ShareLink, ShareRequest, login_name};
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::{FormData, HtmlFormElement};

/// The sheet, while it is open.
#[component]
pub fn ShareSheet() -> impl IntoView {
    let open = Page::from_context().sharing;
    move || {
        open.get().map(|wanted| {
            view! {
                <Sheet class="sheet sharing" label="Sharing" close=Arc::new(move || open.set(None))>
                    <Create first=wanted == ShareSheetView::Create/>
                    <ShareList first=wanted == ShareSheetView::Viewers/>
                </Sheet>
            }
        })
    }
}

/// The form, replaced by its result.
#[component]
fn Create(first: bool) -> impl IntoView {
    let page = Page::from_context();
    let created: RwSignal<Option<ShareLink>> = RwSignal::new(None);
    move || match created.get() {
        None => form(&page, created, first),
        Some(link) => view! {
            <Created link/>
            <button class="btn" on:click=move |_| created.set(None)>"Share something else"</button>
        }
        .into_any(),
    }
}

fn form(page: &Page, created: RwSignal<Option<ShareLink>>, first: bool) -> AnyView {
    let route = page.route.get_untracked();
    let is_in_view = match &route {
        Route::Compare(compared) => !compared.is_empty(),
        route => matches!(route, Route::Job(..) | Route::Array(_) | Route::Node(_)),
    };
    let offers = untrack(|| page.jobs.with(|jobs| offers(&route, jobs)));
    let scopes: Arc<Vec<Scope>> = Arc::new(offers.iter().map(|offer| offer.scope.clone()).collect());
    let (wrong, waits) = (RwSignal::new(String::new()), RwSignal::new(false));
    let page = page.clone();
    let submit = move |event: web_sys::SubmitEvent| {
        event.prevent_default();
        let form = event.target().and_then(|form| form.dyn_into::<HtmlFormElement>().ok());
        let filled = form.and_then(|form| FormData::new_with_form(&form).ok());
        match filled.and_then(|filled| request(&filled, &scopes)) {
            Some(Ok(request)) => create(page.clone(), request, created, wrong, waits),
            Some(Err(error)) => wrong.set(format!("Failed to {error}.")),
            None => {}
        }
    };
    view! {
        <form class="share settings" on:submit=submit>
            <h2 class="sheet__title">"Share"</h2>
            <p class="settings__why">"Anyone with the link sees this page live, through a tunnel of their own, and cannot change anything."</p>
            {fields(offers, is_in_view, first)}
            <p class="gate__wrong" role="alert">{wrong}</p>
            <button class="btn btn--primary" type="submit" disabled=waits>"Create link"</button>
        </form>
    }
    .into_any()
}

/// Asks the relay for the share, whose link replaces the form.
fn create(
    page: Page,
    request: ShareRequest,
    created: RwSignal<Option<ShareLink>>,
    wrong: RwSignal<String>,
    waits: RwSignal<bool>,
) {
    waits.set(true);
    leptos::task::spawn_local(async move {
        let answer = page.request(Request::Share(Box::new(request))).await;
        // The sheet may be closed by now.
        waits.try_set(false);
        let why = match answer {
            Response::Share(link) => {
                created.try_set(Some(*link));
                return;
            }
            Response::Refused(why) => why.to_string(),
            _ => "Unexpected reply from the relay.".to_owned(),
        };
        wrong.try_set(why);
    });
}

/// The choice of what is shared: the first offer if it is in view, otherwise none, so that no job is shared by accident.
fn scope_fields(offers: Vec<Offer>, is_in_view: bool, first: bool) -> AnyView {
    let offers = offers.into_iter().enumerate();
    if !is_in_view {
        let option =
            |(at, offer): (usize, Offer)| view! { <option value=at.to_string()>{offer.label}</option> };
        return view! {
            <select class="field" name="scope" aria-label="Show" required autofocus=first>
                <option value="">"Choose what to share"</option>
                {offers.map(option).collect_view()}
            </select>
        }
        .into_any();
    }
    let scope = |(at, offer): (usize, Offer)| {
        view! {
            <label class="choice">
                <input type="radio" name="scope" value=at.to_string() checked=at == 0 autofocus=first && at == 0/>
                {offer.label}
            </label>
        }
    };
    offers.map(scope).collect_view().into_any()
}

/// The fields of the form.
fn fields(offers: Vec<Offer>, is_in_view: bool, first: bool) -> AnyView {
    let lasts = |(at, (label, _)): (usize, (&'static str, Option<u64>))| {
        view! { <option value=at.to_string()>{label}</option> }
    };
    let hide = |(name, what): (&'static str, &'static str)| {
        // Notes are written to be read beside the graphs.
        let is_hidden = name != "notes";
        view! { <label class="choice"><input type="checkbox" name=name checked=is_hidden/> {what}</label> }
    };
    view! {
        <fieldset>
            <legend>"Show"</legend>
            {scope_fields(offers, is_in_view, first)}
        </fieldset>
        <fieldset>
            <legend>"Hide"</legend>
            <div class="share__hides">{HIDEABLE_PARTS.map(hide).into_iter().collect_view()}</div>
            <p class="settings__why">"Process environments are never shared."</p>
        </fieldset>
        <div class="share__fields">
            <label><span>"Duration"</span>
                <select class="field" name="lasts">{DURATIONS.into_iter().enumerate().map(lasts).collect_view()}</select>
            </label>
            <label><span>"Restrict to user"</span>
                <input class="field" name="to" maxlength="64" autocomplete="off" autocapitalize="none" spellcheck="false" placeholder="login name; empty: anyone with the link"/>
            </label>
            <label><span>"Label (only you see it)"</span>
                <input class="field" name="label" maxlength="120" autocomplete="off" placeholder="such as: for Bob, slow rank"/>
            </label>
        </div>
    }
    .into_any()
}

/// Returns the request in the form.
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
    let [arguments, paths, other_users, logs, notes] = HIDEABLE_PARTS.map(|(name, _)| filled.has(name));
    Some(Ok(ShareRequest {
        label: field("label").into(),
        scope: scopes.get(chosen("scope")?)?.clone(),
        hidden: HiddenParts { arguments, paths, other_users, logs, notes },
        to,
        lifetime_s: DURATIONS.get(chosen("lasts")?)?.1,
    }))
}

/// The new link; it gets the focus, and is announced to screen readers.
#[component]
fn Created(link: ShareLink) -> impl IntoView {
    let page = Page::from_context();
    let route = page.route.get_untracked();
    // What is compared is in the address.
    let is_compared = matches!(route, Route::Compare(_)) && matches!(link.share.terms.scope, Scope::Jobs(_));
    let link = match &link.link {
        Some(url) if is_compared => ShareLink { link: Some(link_to(url, &route.path())), ..link },
        _ => link,
    };
    let head = NodeRef::<H2>::new();
    platform::effect(move || {
        if let Some(head) = head.get() {
            let _ = head.focus();
        }
    });
    let terms = &link.share.terms;
    let title = format!("✓ Shared: {}", untrack(|| page.jobs.with(|jobs| scope_text(&terms.scope, jobs))));
    let now_ms = untrack(|| page.wall_s()).unsigned_abs() * 1_000;
    let how = format!(
        "Read-only, {}; {}.",
        audience_text(terms),
        expiry_text(terms, now_ms, None, &platform::format_time_or_date)
    );
    let lines = link_lines(&page, &link);
    let not_stored = link.not_stored.map(|why| {
        view! { <p class="facts__note">{format!("Until it can be stored, it ends with the relay: {why}.")}</p> }
    });
    view! {
        <h2 class="sheet__title" tabindex="-1" node_ref=head>{title}</h2>
        <p class="sheet__where">{how}</p>
        {not_stored}
        {lines}
    }
}
