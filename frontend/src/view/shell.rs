//! The shell holds everything: the bar above, the jobs at the left, the place, the foot.

use super::actions::{Confirm, Toasts};
use super::all_jobs::AllJobs;
use super::finder::Finder;
use super::foot::Foot;
use super::gate::Gate;
use super::gpu_sheet::GpuSheet;
use super::guest_banner::GuestBanner;
use super::help::Help;
use super::job_list::JobList;
use super::job_page::JobPage;
use super::link_banner::LinkBanner;
use super::node_page::NodeByName;
use super::process_sheet::ProcessSheet;
use super::settings_panel::SettingsPanel;
use super::share_sheet::ShareSheet;
use super::top_bar::TopBar;
use crate::feed::Link;
use crate::fleet::{Phase, Scene};
use crate::page::Page;
use crate::place::Place;
use leptos::prelude::*;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::Topic;

/// The page, or the gate where there is no way in.
#[component]
pub fn Shell() -> impl IntoView {
    let page = Page::here();
    let feed = page.feed.clone();
    // Once pictures were here they stay, whatever happens to the link.
    let shut = Memo::new(move |_| match feed.link() {
        Link::NoKey => Some(None),
        Link::Stopped(parting) => Some(Some(parting)),
        _ => None,
    });
    let drawer = page.drawer;
    let (guest, alone) = {
        let (page, other) = (page.clone(), page.clone());
        (Memo::new(move |_| page.share().is_some()), Memo::new(move |_| other.only_job().is_some()))
    };
    move || match shut.get() {
        Some(why) => view! { <Gate why/> }.into_any(),
        None => view! {
            <div class="shell" class:drawer-open=move || drawer.get()
                class:shell--guest=move || guest.get() class:shell--alone=move || alone.get()>
                <TopBar/>
                <GuestBanner/>
                <JobList/>
                <main class="main" id="main" tabindex="-1">
                    <LinkBanner/>
                    <Here/>
                </main>
                <Foot/>
                <Sheets/>
            </div>
        }
        .into_any(),
    }
}

/// All that may lie on top of the page.
#[component]
fn Sheets() -> impl IntoView {
    view! { <Toasts/> <Help/> <GpuSheet/> <ProcessSheet/> <Confirm/> <Finder/> <SettingsPanel/> <ShareSheet/> }
}

/// What the place shows.
#[component]
fn Here() -> impl IntoView {
    let page = Page::here();
    let fleet = page.fleet.clone();
    // A scene is one per topic, so the view is drawn anew when the topic changes and not before.
    let subject = Memo::new(move |_| fleet.detail());
    let place = page.place;
    let nowhere = Memo::new(move |_| place.get() == Place::Nowhere);
    move || match subject.get() {
        _ if nowhere.get() => {
            view! { <p class="empty">"This address leads nowhere. The jobs are at the left."</p> }.into_any()
        }
        None => view! { <AllJobs/> }.into_any(),
        Some(scene) => match scene.topic().clone() {
            Topic::Job(id) => view! { <JobPage id scene/> }.into_any(),
            Topic::Node(name) => view! { <Machine name scene/> }.into_any(),
            Topic::Overview => view! { <AllJobs/> }.into_any(),
        },
    }
}

/// One machine, whatever runs there.
#[component]
fn Machine(name: NodeName, scene: Scene) -> impl IntoView {
    let page = Page::here();
    let title = name.to_string();
    let body = move || match scene.phase() {
        Phase::Gone => {
            let why =
                if page.share().is_some() { "is not shared with you" } else { "is not watched by the relay" };
            view! { <p class="empty">{format!("{name} {why}.")}</p> }.into_any()
        }
        Phase::Awaited => ().into_any(),
        Phase::Here => view! { <NodeByName scene=scene.clone() name=name.clone() job=None/> }.into_any(),
    };
    view! { <div class="head head--line"><h1>{title}</h1></div> {move || body()} }
}
