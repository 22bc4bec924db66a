//! The shell: top bar, job list, the current route, status bar, and all sheets.

mod command_palette;
mod guest_banner;
pub mod keyboard;
mod link_banner;
mod login;
mod palette_entries;
mod status_bar;
mod top_bar;
mod transport;

use crate::domain::route::{JobTab, Route};
use crate::fleet::{Phase, TopicStore};
use crate::net::LinkState;
use crate::state::page::Page;
use crate::view::jobs::all_jobs::{AllJobs, ArrayTasks};
use crate::view::jobs::attention_list::AttentionList;
use crate::view::jobs::job_list::JobList;
use crate::view::jobs::job_page::JobPage;
use crate::view::jobs::unknown_job::UnknownJob;
use crate::view::node::node_head::NodeHead;
use crate::view::node::node_page::NodeByName;
use crate::view::reports::audit_page::AuditPage;
use crate::view::reports::compare::Compare;
use crate::view::reports::usage_page::UsagePage;
use crate::view::sheets::gpu_sheet::GpuSheet;
use crate::view::sheets::help::Help;
use crate::view::sheets::note_sheet::NoteSheet;
use crate::view::sheets::process_sheet::ProcessSheet;
use crate::view::sheets::settings_panel::SettingsPanel;
use crate::view::sheets::share_sheet::ShareSheet;
use crate::view::widgets::actions::{Confirm, Toasts};
use crate::view::widgets::focus;
use command_palette::CommandPalette;
use guest_banner::GuestBanner;
use leptos::prelude::*;
use link_banner::LinkBanner;
use login::Login;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::Topic;
use status_bar::StatusBar;
use top_bar::TopBar;

/// The page, or the login page without access.
#[component]
pub fn Shell() -> impl IntoView {
    let page = Page::from_context();
    focus::keep();
    let feed = page.feed.clone();
    // Once data was here it stays, also without a connection.
    let fleet = page.fleet.clone();
    let login_reason = Memo::new(move |_| match feed.link() {
        LinkState::NoKey => Some(None),
        LinkState::Stopped(reason) if reason.keeps_picture() && fleet.welcome().is_some() => None,
        LinkState::Stopped(reason) => Some(Some(reason)),
        _ => None,
    });
    let lost = {
        let page = page.clone();
        Memo::new(move |_| page.fleet.welcome().is_some() && !page.feed.is_live())
    };
    let (drawer, sought) = (page.drawer, page.sought);
    let seeking = move || sought.with(Option::is_some);
    let (guest, alone) = {
        let (page, other) = (page.clone(), page.clone());
        (Memo::new(move |_| page.share().is_some()), Memo::new(move |_| other.only_job().is_some()))
    };
    let route = page.route;
    let logs = Memo::new(move |_| route.with(|route| matches!(route, Route::Job(_, JobTab::Logs))));
    move || match login_reason.get() {
        Some(why) => view! { <Login why/> }.into_any(),
        None => view! {
            <a class="skip" href="#main" on:click=skip>"Skip to content"</a>
            <div class="shell" class:drawer-open=drawer
                class:shell--lost=lost class:shell--seeking=seeking
                class:shell--guest=guest class:shell--alone=alone>
                <TopBar/>
                <GuestBanner/>
                <JobList/>
                <main class="main" class:main--logs=logs id="main" tabindex="-1">
                    <LinkBanner/>
                    <RouteView/>
                </main>
                <StatusBar/>
                <Sheets/>
            </div>
        }
        .into_any(),
    }
}

/// Moves the focus to the content. The address stays: its fragment may hold the key.
fn skip(event: web_sys::MouseEvent) {
    event.prevent_default();
    focus::focus_content();
}

/// Everything that may lie above the page.
#[component]
fn Sheets() -> impl IntoView {
    view! { <Toasts/> <Help/> <GpuSheet/> <ProcessSheet/> <NoteSheet/> <Confirm/> <CommandPalette/> <SettingsPanel/> <ShareSheet/> }
}

/// The view of the current route.
#[component]
fn RouteView() -> impl IntoView {
    let page = Page::from_context();
    let fleet = page.fleet.clone();
    // A store is one per topic, so the view is recreated only when the topic changes.
    let subject = Memo::new(move |_| fleet.detail());
    let route = page.route;
    // Only these have no topic and no jobs.
    let other = Memo::new(move |_| match route.get() {
        other @ (Route::Usage | Route::Audit | Route::Array(_)) => other,
        // The view follows the jobs itself, so that its inputs keep the focus.
        Route::Compare(_) => Route::Compare(Vec::new()),
        _ => Route::AllJobs,
    });
    let sharer = {
        let page = page.clone();
        Memo::new(move |_| (page.share().is_some() || page.person().is_some()).then(|| page.owner()))
    };
    let is_person = {
        let page = page.clone();
        Memo::new(move |_| page.person().is_some())
    };
    // A job's label is resolved once the jobs are listed.
    let overview = page.fleet.overview().clone();
    let jobs = page.jobs;
    let missing = Memo::new(move |_| match route.get() {
        Route::Nowhere => Missing::Page,
        other @ (Route::JobLabel(..) | Route::CompareLabels(_)) if overview.phase() != Phase::Pending => {
            let label = jobs.with(|jobs| other.unknown_label(jobs));
            label.map_or(Missing::Unresolved, Missing::Job)
        }
        Route::JobLabel(..) | Route::CompareLabels(_) => Missing::Unresolved,
        _ => Missing::Nothing,
    });
    move || match subject.get() {
        _ if missing.with(|missing| *missing != Missing::Nothing) => match missing.get() {
            Missing::Page => view! { <NotFound/> }.into_any(),
            Missing::Job(label) => view! { <UnknownJob label/> }.into_any(),
            Missing::Unresolved | Missing::Nothing => ().into_any(),
        },
        None => match other.get() {
            Route::Usage if is_person.get() => view! { <UsagePage/> }.into_any(),
            Route::Usage | Route::Audit if sharer.with(Option::is_some) => {
                view! { <OwnerOnly owner=sharer.get().unwrap_or_default()/> }.into_any()
            }
            Route::Usage => view! { <UsagePage/> }.into_any(),
            Route::Audit => view! { <AuditPage/> }.into_any(),
            Route::Compare(_) => view! { <Compare/> }.into_any(),
            Route::Array(id) => view! { <ArrayTasks id/> }.into_any(),
            _ => view! { <AllJobs/> }.into_any(),
        },
        Some(store) => match store.topic().clone() {
            Topic::Job(id) => view! { <JobPage id store/> }.into_any(),
            Topic::Node(name) => view! { <NodeView name store/> }.into_any(),
            Topic::Overview => view! { <AllJobs/> }.into_any(),
        },
    }
}

/// A missing subject of an address.
#[derive(Clone, Debug, PartialEq)]
enum Missing {
    Nothing,
    Page,
    /// No listed job has this label.
    Job(String),
    /// The jobs are not known yet.
    Unresolved,
}

/// An address that leads to nothing.
#[component]
fn NotFound() -> impl IntoView {
    let page = Page::from_context();
    let home = page.href(&Route::AllJobs);
    let overview = if untrack(|| page.has_jobs()) { "Go to all jobs" } else { "Go to all machines" };
    view! {
        <div class="empty">
            <h1>"Page not found"</h1>
            <p>"There is nothing at this address. " <a class="link" href=home>{overview}</a></p>
        </div>
    }
}

/// The view of a guest at an address of the owner's alone.
#[component]
fn OwnerOnly(owner: String) -> impl IntoView {
    let home = Page::from_context().href(&Route::AllJobs);
    view! {
        <div class="empty">
            <h1>{format!("Only {owner} can see this page")}</h1>
            <p>"It is not part of what is shown to others. " <a class="link" href=home>"Go to all jobs"</a></p>
        </div>
    }
}

/// One node, with any jobs.
#[component]
fn NodeView(name: NodeName, store: TopicStore) -> impl IntoView {
    let page = Page::from_context();
    let (entries, silenced) = (page.attention.entries(), page.attention.silenced());
    let overview = page.fleet.overview().clone();
    let head = view! {
        <NodeHead store=store.clone() name=name.clone()/>
        <AttentionList entries silenced store=overview node=name.clone()/>
    };
    let body = move || match store.phase() {
        Phase::Gone => {
            let why = match page.share() {
                Some(_) => format!("{name} is not shared with you."),
                None if page.has_jobs() => format!("No job of yours runs on {name}."),
                None => format!("{name} is not in the list of machines."),
            };
            let overview = if page.has_jobs() { "Go to all jobs" } else { "Go to all machines" };
            view! { <p class="empty">{why} " " <a class="link" href=page.href(&Route::AllJobs)>{overview}</a></p> }
                .into_any()
        }
        Phase::Pending => ().into_any(),
        Phase::Ready => view! { <NodeByName store=store.clone() name=name.clone() job=None/> }.into_any(),
    };
    view! { {head} {move || body()} }
}
