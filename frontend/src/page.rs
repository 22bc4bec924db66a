//! The page is what every view shares: the fleet, the feed, the place, the clock and the settings.

use crate::address::Address;
use crate::browser;
use crate::chart::Window;
use crate::feed::Feed;
use crate::fleet::{Fleet, LogCell, NodeCell, Scene};
use crate::health::{Freshness, freshness};
use crate::intent::Intent;
use crate::place::Place;
use crate::settings::Settings;
use crate::view::{Grids, Sharing};
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::ask::{Answer, Ask, LogRef};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::Role;
use nodeglass_protocol::share::{Scope, ShareTerms};
use std::sync::Arc;

/// What came of an action, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// Its number.
    pub number: u32,
    /// One sentence.
    pub words: String,
    /// Whether it was done.
    pub is_good: bool,
}

/// What every view shares; a context.
#[derive(Clone)]
pub struct Page {
    /// What is known.
    pub fleet: Fleet,
    /// Who talks to the relay.
    pub feed: Feed,
    /// Where the user is.
    pub place: Memo<Place>,
    /// What the user chose.
    pub settings: Settings,
    /// The job list as last heard.
    pub jobs: Memo<Arc<Vec<Job>>>,
    /// Changes once a second while someone looks.
    pub second: RwSignal<u64>,
    /// Changes with every step of the charts.
    pub step: Memo<u64>,
    /// Whether the help lies on top.
    pub help: RwSignal<bool>,
    /// Whether the finder lies on top.
    pub finder: RwSignal<bool>,
    /// Whether the settings lie on top.
    pub settings_open: RwSignal<bool>,
    /// Whether the sheet of sharing lies on top, and what of it is wanted.
    pub sharing: RwSignal<Option<Sharing>>,
    /// Whether the job list is open, where the page is too narrow to show it beside.
    pub drawer: RwSignal<bool>,
    /// What would be done if the user said yes.
    pub intent: RwSignal<Option<Intent>>,
    /// What came of the last actions.
    pub toasts: RwSignal<Vec<Toast>>,
    /// Whether a service worker was found here and removed.
    pub removed_worker: RwSignal<bool>,
    /// The tables that are shown now.
    pub grids: Grids,
    /// Where the place comes from, and how to get elsewhere.
    pub address: Address,
}

impl Page {
    /// Builds it from what was started.
    pub fn new(fleet: Fleet, feed: Feed, address: Address, settings: Settings) -> Self {
        let place = {
            let address = address.clone();
            Memo::new(move |_| address.place())
        };
        let second = RwSignal::from(fleet.second().clone());
        let jobs = Memo::new({
            let overview = fleet.overview().clone();
            move |_| {
                overview.jobs().track();
                Arc::new(overview.read(|picture| picture.jobs.clone()))
            }
        });
        let step = Memo::new({
            let fleet = fleet.clone();
            move |_| {
                second.track();
                fleet.relay_ms(browser::now_ms()) / Window::STEP_MS
            }
        });
        let closed = || RwSignal::new(false);
        let (help, finder, settings_open, drawer) = (closed(), closed(), closed(), closed());
        let (intent, toasts) = (RwSignal::new(None), RwSignal::new(Vec::new()));
        Self {
            fleet,
            feed,
            place,
            settings,
            jobs,
            second,
            step,
            help,
            finder,
            settings_open,
            sharing: RwSignal::new(None),
            drawer,
            intent,
            toasts,
            removed_worker: RwSignal::new(false),
            grids: Grids::default(),
            address,
        }
    }

    /// The page that the calling view is on.
    pub fn here() -> Self {
        expect_context()
    }

    /// The relay's clock, renewed once a second.
    pub fn now_ms(&self) -> u64 {
        self.second.track();
        self.fleet.relay_ms(browser::now_ms())
    }

    /// The cluster's time of day in seconds since 1970, renewed once a second.
    pub fn wall_s(&self) -> i64 {
        self.second.track();
        self.fleet.wall_s(browser::now_ms())
    }

    /// The stretch of time that charts show, renewed with every step.
    pub fn window(&self) -> Window {
        Window::ten_minutes(self.step.get() * Window::STEP_MS)
    }

    /// Asks, or orders, something once; the answer is a sentence when nothing came of it.
    pub async fn ask(&self, ask: Ask) -> Answer {
        self.feed.ask(ask).await
    }

    /// Follows these logs from now on, and no others.
    pub fn follow(&self, wanted: &[LogRef]) -> Vec<LogCell> {
        self.feed.follow(&self.fleet, wanted)
    }

    /// Asks the user whether something is to be done.
    pub fn intend(&self, intent: Intent) {
        self.intent.set(Some(intent));
    }

    /// Whether the viewer may act: only then are actions shown.
    pub fn may_act(&self) -> bool {
        self.fleet.welcome().is_some_and(|welcome| welcome.may_act)
    }

    /// Whether the viewer is the owner: only then may anything be asked, ordered or shared.
    pub fn is_owner(&self) -> bool {
        self.fleet.welcome().is_some_and(|welcome| welcome.role == Role::Owner)
    }

    /// Who started the relay.
    pub fn owner(&self) -> String {
        self.fleet.welcome().map_or(String::new(), |welcome| welcome.user.to_string())
    }

    /// What holds for a guest; none for the owner.
    pub fn share(&self) -> Option<ShareTerms> {
        self.fleet.welcome()?.share.as_deref().cloned()
    }

    /// The one job that a guest may look at, if it is one: then it is the page.
    pub fn only_job(&self) -> Option<JobId> {
        match self.share()?.scope {
            Scope::Jobs(jobs) => jobs.first().copied().filter(|_| jobs.len() == 1),
            Scope::Nodes(_) | Scope::All => None,
        }
    }

    /// Whether what jobs write is shown.
    pub fn shows_logs(&self) -> bool {
        self.share().is_none_or(|terms| !terms.hides.logs)
    }

    /// The link to a place.
    pub fn href(&self, place: &Place) -> String {
        self.address.href(place)
    }

    /// A job, as last heard.
    pub fn job(&self, id: JobId) -> Option<Job> {
        self.jobs.with(|jobs| jobs.iter().find(|job| job.id == id).cloned())
    }

    /// A job's name, or its number when it is not one of those listed.
    pub fn job_name(&self, id: JobId) -> String {
        self.jobs.with(|jobs| {
            let job = jobs.iter().find(|job| job.id == id);
            job.map_or_else(|| format!("job {id}"), |job| job.name.to_string())
        })
    }

    /// A job's name as last heard; wakes nobody.
    pub fn job_name_untracked(&self, id: JobId) -> Option<String> {
        self.jobs.with_untracked(|jobs| jobs.iter().find(|job| job.id == id).map(|job| job.name.to_string()))
    }

    /// The cells of a job's nodes in a scene, in SLURM's order.
    pub fn nodes_of(&self, scene: &Scene, id: JobId) -> Memo<Vec<NodeCell>> {
        let (page, scene) = (self.clone(), scene.clone());
        let names = Memo::new(move |_| page.job(id).map(|job| job.nodes).unwrap_or_default());
        Memo::new(move |_| names.with(|names| names.iter().filter_map(|name| scene.cell(name)).collect()))
    }

    /// Whether a node's values are of before and must not look like those of now.
    pub fn is_stale(&self, scene: &Scene, node: &NodeCell) -> Memo<bool> {
        let (page, scene, node) = (self.clone(), scene.clone(), node.clone());
        Memo::new(move |_| {
            node.head().track();
            is_stale(&page, &scene, &node)
        })
    }
}

/// The same as it is now; wakes nobody.
pub fn is_stale(page: &Page, scene: &Scene, node: &NodeCell) -> bool {
    let now_ms = page.fleet.shown_ms();
    let fresh = scene
        .node(node, |node| node.head.nvml_stuck_ms.is_none() && freshness(node, now_ms) == Freshness::Fresh);
    fresh != Some(true)
}
