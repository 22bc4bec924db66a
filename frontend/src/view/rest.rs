//! What is not needed at first sight is a second file: it comes once the first picture stands, and then stays.
//!
//! Everything that only [`rest`] leads to is in it, and nothing that the first file leads to as well; `xtask` cuts
//! them apart. So a view is in the second file if it is named here and nowhere else.

use super::actions::{Confirm, Toasts};
use super::all_jobs::JobTable;
use super::finder::Finder;
use super::gate::Gate;
use super::gpu_sheet::GpuSheet;
use super::guest_banner::GuestBanner;
use super::help::Help;
use super::job_about::JobAbout;
use super::job_nodes::JobNodes;
use super::link_banner::LinkBanner;
use super::logs::Logs;
use super::node_page::NodePage;
use super::process_sheet::ProcessSheet;
use super::process_table::ProcessTable;
use super::scope::Scope;
use super::settings_panel::SettingsPanel;
use super::share_sheet::ShareSheet;
use super::tiles;
use crate::browser::{self, Listener};
use crate::feed::{Parting, Patience};
use crate::fleet::{NodeCell, Phase, Scene};
use crate::keyboard;
use crate::kiosk;
use crate::lazy::{memo, part};
use crate::markup::view;
use crate::page::Page;
use crate::query::{GPU, PROCESS};
use crate::signal::RwSignal;
use crate::time::Time;
use crate::watch;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use leptos::reactive::owner::Owner;
use nodeglass_protocol::{GpuField, JobId};
use std::cell::Cell;
use std::rc::Rc;
use wasm_split_helpers::{SplitLoaderError, wasm_split};
use web_sys::Event;

/// Draws some nodes of a job.
type OfNodes = fn(Scope, JobId) -> AnyView;

/// What the second file brings.
#[derive(Clone, Copy)]
pub struct Rest {
    /// Begins what goes on beside the page: keys are heard, graphs share their time, the tab is named.
    begin: fn(&Page),
    /// All that may lie on top of the page.
    sheets: fn() -> AnyView,
    /// What stands in the way of somebody without a key, or with one that does not serve.
    pub gate: fn(Option<Parting>) -> AnyView,
    /// What there is to say of the link.
    pub link: fn() -> AnyView,
    /// What holds for a guest.
    pub guest: fn() -> AnyView,
    /// Every job in a row.
    pub jobs: fn() -> AnyView,
    /// All nodes of a job.
    pub nodes: OfNodes,
    /// A node's page.
    pub node: fn(Scope, NodeCell) -> AnyView,
    /// A job's processes.
    pub processes: OfNodes,
    /// A job's logs.
    pub logs: OfNodes,
    /// Everything that is known of a job.
    pub about: fn(JobId) -> AnyView,
    /// The last ten minutes of a sum, in a colour of this class.
    pub past: fn(&Scope, Option<GpuField>, &'static str) -> AnyView,
}

/// The way into the second file: to call it is to load it.
#[wasm_split(rest, fallible)]
fn rest() -> Result<Rest, SplitLoaderError> {
    Ok(Rest {
        begin: |page| {
            let time = Time::start(page);
            provide_context(time.clone());
            keyboard::hear(page, &time);
            kiosk::go_round(page);
            watch::name_tab(page);
            watch::notify(page);
        },
        sheets: || {
            view! { <Toasts/> <Help/> <GpuSheet/> <ProcessSheet/> <Confirm/> <Finder/> <SettingsPanel/> <ShareSheet/> }
                .into_any()
        },
        gate: |why| view! { <Gate why/> }.into_any(),
        link: || view! { <LinkBanner/> }.into_any(),
        guest: || view! { <GuestBanner/> }.into_any(),
        jobs: || view! { <JobTable/> }.into_any(),
        nodes: |scope, job| view! { <JobNodes scope job/> }.into_any(),
        node: |scope, cell| view! { <NodePage scope cell/> }.into_any(),
        processes: |scope, _| view! { <ProcessTable scope several=true/> }.into_any(),
        logs: |scope, id| view! { <Logs scope id/> }.into_any(),
        about: |id| view! { <JobAbout id/> }.into_any(),
        past: tiles::past,
    })
}

/// How far the second file is.
#[derive(Clone, Copy)]
pub enum Coming {
    /// It was not asked for, or is on its way.
    Awaited,
    /// It did not come the last time; it is asked for again and again.
    Failed,
    /// It is here, and nothing more is ever to be loaded.
    Here(Rest),
}

impl Coming {
    fn words(self) -> &'static str {
        match self {
            Self::Failed => {
                "▲ This part of the page did not come. It is asked for again by itself; is the tunnel up?"
            }
            _ => "This part of the page is on its way.",
        }
    }
}

/// Loads the second file, as often as that takes: at once, for the first one is here.
pub fn load(page: &Page) {
    let (page, owner) = (page.clone(), Owner::current().unwrap_or_default());
    leptos::task::spawn_local(async move {
        let early = Early::hear();
        let rest = fetch(page.rest).await;
        // What it draws finds there what it begins.
        owner.with(|| (rest.begin)(&page));
        page.rest.set(Coming::Here(rest));
        // What keys speak of is drawn first.
        TimeoutFuture::new(0).await;
        early.repeat();
    });
}

async fn fetch(coming: RwSignal<Coming>) -> Rest {
    let mut patience = Patience::default();
    loop {
        match rest().await {
            Ok(rest) => return rest,
            Err(_) if matches!(coming.get_untracked(), Coming::Awaited) => coming.set(Coming::Failed),
            Err(_) => {}
        }
        TimeoutFuture::new(patience.next_ms(browser::chance())).await;
    }
}

/// The key that was pressed last before the second file is here, which hears keys.
struct Early {
    key: Rc<Cell<Option<Event>>>,
    listener: Listener,
}

impl Early {
    fn hear() -> Self {
        let key: Rc<Cell<Option<Event>>> = Rc::default();
        let heard = key.clone();
        Self { key, listener: Listener::new(document(), "keydown", move |event| heard.set(Some(event))) }
    }

    fn repeat(self) {
        drop(self.listener);
        self.key.take().into_iter().for_each(|key| drop(document().dispatch_event(&key)));
    }
}

/// A part of the page that the second file draws. Until it is here the place is empty, or says why.
pub fn later(draw: impl Fn(&Rest) -> AnyView + Send + 'static) -> AnyView {
    later_or(draw, |failed| view! { <p class="empty" role="alert">{failed.words()}</p> }.into_any())
}

/// The same for a part beside another one that says why.
pub fn later_beside(draw: impl Fn(&Rest) -> AnyView + Send + 'static) -> AnyView {
    later_or(draw, |_| ().into_any())
}

fn later_or(draw: impl Fn(&Rest) -> AnyView + Send + 'static, without: fn(Coming) -> AnyView) -> AnyView {
    let coming = Page::here().rest;
    part(move || match coming.get() {
        Coming::Here(rest) => draw(&rest),
        Coming::Awaited => ().into_any(),
        failed => without(failed),
    })
    .into_any()
}

/// A part that the second file draws of a scene, and of all that is in it: were it drawn without, it would move when that
/// comes, and say of what is awaited that there is none.
pub fn later_here(scene: &Scene, draw: impl Fn(&Rest) -> AnyView + Send + 'static) -> AnyView {
    let scene = scene.clone();
    let awaited = memo(move || scene.phase() == Phase::Awaited);
    later(move |rest| if awaited.get() { ().into_any() } else { draw(rest) })
}

/// The same for a part that shows nodes of a job.
pub fn later_of(scope: &Scope, job: JobId, which: fn(&Rest) -> OfNodes) -> AnyView {
    let scope = scope.clone();
    later_here(&scope.scene.clone(), move |rest| which(rest)(scope.clone(), job))
}

/// All that may lie on top of the page. Whoever asks for some of it before it is here is told so.
#[component]
pub fn Sheets() -> impl IntoView {
    let page = Page::here();
    let asked = memo({
        let (gpu, process) = (page.address.query(GPU), page.address.query(PROCESS));
        let (help, finder, settings) = (page.help, page.finder, page.settings_open);
        let (sharing, intent) = (page.sharing, page.intent);
        move || {
            gpu.with(Option::is_some)
                || process.with(Option::is_some)
                || help.get()
                || finder.get()
                || settings.get()
                || sharing.with(Option::is_some)
                || intent.with(Option::is_some)
        }
    });
    let coming = page.rest;
    part(move || match coming.get() {
        Coming::Here(rest) => (rest.sheets)(),
        coming => {
            let said = asked.get().then(|| view! { <p class="toast" role="alert">{coming.words()}</p> });
            view! { <div class="toasts">{said}</div> }.into_any()
        }
    })
}
