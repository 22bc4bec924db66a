//! What is not needed at first sight is a second file: it comes once the first picture stands, and then stays.
//!
//! Everything that only [`rest`] leads to is in it, and nothing that the first file leads to as well; `xtask` cuts
//! them apart. So a view is in the second file if it is named here and nowhere else.

use super::actions::Confirm;
use super::finder::Finder;
use super::gpu_sheet::GpuSheet;
use super::heat_map::HeatMap;
use super::help::Help;
use super::job_about::JobAbout;
use super::job_page::Graphs;
use super::logs::Logs;
use super::node_page::NodePage;
use super::process_sheet::ProcessSheet;
use super::process_table::ProcessTable;
use super::scope::Scope;
use super::settings_panel::SettingsPanel;
use super::share_sheet::ShareSheet;
use super::use_table::UseTable;
use crate::browser;
use crate::feed::Patience;
use crate::fleet::{NodeCell, Phase};
use crate::lazy::{effect, memo, part};
use crate::markup::view;
use crate::page::Page;
use crate::query::{GPU, PROCESS};
use crate::watch;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use wasm_split_helpers::{SplitLoaderError, wasm_split};

/// What the second file draws.
#[derive(Clone, Copy)]
pub struct Rest {
    /// Names the tab and notifies, from now on.
    pub begin: fn(&Page),
    /// All that may lie on top of the page.
    sheets: fn() -> AnyView,
    /// The graphs of a job.
    pub graphs: fn(Scope) -> AnyView,
    /// The heat map of everything, seen from afar.
    pub glance: fn(Scope) -> AnyView,
    /// A node's page.
    pub node: fn(Scope, NodeCell) -> AnyView,
    /// A job's processes.
    pub processes: fn(Scope) -> AnyView,
    /// Who uses a job's GPUs.
    pub uses: fn(Scope) -> AnyView,
    /// A job's logs.
    pub logs: fn(Scope, JobId) -> AnyView,
    /// Everything that is known of a job.
    pub about: fn(JobId) -> AnyView,
}

/// The way into the second file: to call it is to load it.
#[wasm_split(rest, fallible)]
fn rest() -> Result<Rest, SplitLoaderError> {
    Ok(Rest {
        begin: |page| {
            watch::name_tab(page);
            watch::notify(page);
        },
        sheets: || {
            view! { <Help/> <GpuSheet/> <ProcessSheet/> <Confirm/> <Finder/> <SettingsPanel/> <ShareSheet/> }
                .into_any()
        },
        graphs: |scope| view! { <Graphs scope/> }.into_any(),
        glance: |scope| view! { <HeatMap scope glance=true/> }.into_any(),
        node: |scope, cell| view! { <NodePage scope cell/> }.into_any(),
        processes: |scope| view! { <ProcessTable scope several=true/> }.into_any(),
        uses: |scope| view! { <UseTable scope several=true/> }.into_any(),
        logs: |scope, id| view! { <Logs scope id/> }.into_any(),
        about: |id| view! { <JobAbout id/> }.into_any(),
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

/// Loads the second file, as often as that takes.
async fn fetch(coming: RwSignal<Coming>) {
    let mut patience = Patience::default();
    loop {
        match rest().await {
            Ok(rest) => return coming.set(Coming::Here(rest)),
            Err(_) if matches!(coming.get_untracked(), Coming::Awaited) => coming.set(Coming::Failed),
            Err(_) => {}
        }
        TimeoutFuture::new(patience.next_ms(browser::chance())).await;
    }
}

/// A part of the page that the second file draws. Until it is here the place is empty, or says why.
pub fn later(draw: impl Fn(&Rest) -> AnyView + Send + 'static) -> AnyView {
    let coming = Page::here().rest;
    part(move || match coming.get() {
        Coming::Here(rest) => draw(&rest),
        Coming::Awaited => ().into_any(),
        failed => view! { <p class="empty" role="alert">{failed.words()}</p> }.into_any(),
    })
    .into_any()
}

/// The same for a part that shows some nodes.
pub fn later_of(scope: &Scope, which: fn(&Rest) -> fn(Scope) -> AnyView) -> AnyView {
    let scope = scope.clone();
    later(move |rest| which(rest)(scope.clone()))
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
    let (coming, fleet) = (page.rest, page.fleet.clone());
    let wanted = memo(move || {
        let scene = fleet.detail().unwrap_or_else(|| fleet.overview().clone());
        asked.get() || scene.phase() != Phase::Awaited
    });
    let begun = StoredValue::new(false);
    effect(move || {
        if wanted.get() && !begun.get_value() {
            begun.set_value(true);
            leptos::task::spawn_local(fetch(coming));
        }
    });
    part(move || match coming.get() {
        Coming::Here(rest) => (rest.sheets)(),
        coming => {
            let said = asked.get().then(|| view! { <p class="toast" role="alert">{coming.words()}</p> });
            view! { <div class="toasts">{said}</div> }.into_any()
        }
    })
}
