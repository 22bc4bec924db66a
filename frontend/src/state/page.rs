//! The context that all views share: fleet, feed, route, clock and settings.

use crate::chart::Window;
use crate::domain::attention;
use crate::domain::health::{Freshness, Health, freshness};
use crate::domain::job_names;
use crate::domain::other_users;
use crate::domain::pending_action::PendingAction;
use crate::domain::route::Route;
use crate::domain::severity::Severity;
use crate::fleet::{FleetStore, LogSignals, NodeSignals, TopicStore};
use crate::net::Feed;
use crate::platform::{self, FrameQueue};
use crate::state::address::Address;
use crate::state::attention::Attention;
use crate::state::settings::Settings;
use leptos::prelude::*;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Role;
use nodeglass_protocol::note::{Note, NoteId};
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::replay::ReplayStatus;
use nodeglass_protocol::request::{LogRef, Request, Response};
use nodeglass_protocol::share::{Scope, ShareTerms};
use nodeglass_protocol::{JobId, NodeName};
use std::sync::Arc;

/// The outcome of an action, shown for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// Its number.
    pub number: u32,
    /// One sentence.
    pub text: String,
    /// Whether the action succeeded.
    pub is_good: bool,
}

/// A note that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteDraft {
    /// The note that is edited; `None` for a new one.
    pub id: Option<NoteId>,
    /// Its job.
    pub job: Option<JobId>,
    /// Its node.
    pub node: Option<NodeName>,
    /// When it applies, in ms since 1970.
    pub at_ms: u64,
    /// Its text so far.
    pub text: String,
}

/// The part of the sheet for sharing that gets the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareSheetView {
    /// The form.
    Create,
    /// The list of viewers.
    Viewers,
}

/// State that all views share; a Leptos context.
#[derive(Clone)]
pub struct Page {
    /// The state of the fleet.
    pub fleet: FleetStore,
    /// The connection to the relay.
    pub feed: Feed,
    /// The current route.
    pub route: Memo<Route>,
    /// The user's settings.
    pub settings: Settings,
    /// The job list as last received.
    pub jobs: Memo<Arc<Vec<Job>>>,
    /// Whether the jobs belong to more than one user.
    pub several_users: Memo<bool>,
    /// Changes once a second while the page is visible.
    pub second: RwSignal<u64>,
    /// Changes with every step of the charts, some frames after `second`, once the comparisons are updated.
    pub step: RwSignal<u64>,
    /// Changes once a second, in the frame after that of `step`: for the health of nodes and what needs attention,
    /// which visit every GPU.
    pub assessment: RwSignal<u64>,
    /// When the job of the route ended, by the relay's clock in ms: its graphs end there. `None` while it runs.
    pub ended_ms: Memo<Option<u64>>,
    /// When the job of the route started, by the relay's clock in ms: graphs show nothing before, as its GPUs had other work.
    pub started_ms: Memo<Option<u64>>,
    /// Run time of the job of the route in ms, if it has ended: before it, there is nothing to show.
    pub run_ms: Memo<Option<u64>>,
    /// The moment under the cursor of the graphs, in ms of the relay's clock.
    pub cursor: RwSignal<Option<u64>>,
    /// The time to which the page goes in a recording, in ms of the relay's clock.
    pub sought: RwSignal<Option<u64>>,
    /// Number of matches or errors by which the shown log has still to move; negative is up.
    pub log_step: RwSignal<Option<isize>>,
    /// Work that is spread over frames.
    pub frames: FrameQueue,
    /// Whether the help is open.
    pub help: RwSignal<bool>,
    /// Whether the command palette is open.
    pub command_palette: RwSignal<bool>,
    /// Whether the settings are open.
    pub settings_open: RwSignal<bool>,
    /// Whether the sheet for sharing is open, and which part of it has the focus.
    pub sharing: RwSignal<Option<ShareSheetView>>,
    /// Whether the job list is open, where the page is too narrow to show it permanently.
    pub drawer: RwSignal<bool>,
    /// Whether the job list shows the jobs that ended.
    pub lists_ended: RwSignal<bool>,
    /// Whether the job list shows waiting jobs, if there are many.
    pub lists_waiting: RwSignal<bool>,
    /// The action that awaits confirmation.
    pub pending_action: RwSignal<Option<PendingAction>>,
    /// The notes of the topic that is shown in full, or else of the whole cluster, by time.
    pub notes: Memo<Arc<Vec<Note>>>,
    /// Their times, in ms of the relay's clock.
    pub note_times: Memo<Arc<Vec<i64>>>,
    /// The note that is being written.
    pub note_draft: RwSignal<Option<NoteDraft>>,
    /// The outcomes of the last actions.
    pub toasts: RwSignal<Vec<Toast>>,
    /// Whether a service worker was found here and removed.
    pub removed_worker: RwSignal<bool>,
    /// The attention list.
    pub attention: Attention,
    /// The items that the graphs of the route mark, the most important last.
    pub marked: Memo<Arc<Vec<attention::Item>>>,
    /// Source of the route, and the way to navigate.
    pub address: Address,
}

impl Page {
    /// Creates the context.
    pub fn new(fleet: FleetStore, feed: Feed, address: Address, settings: Settings) -> Self {
        let route = {
            let address = address.clone();
            Memo::new(move |_| address.route())
        };
        let second = RwSignal::from(fleet.second().clone());
        let frames = FrameQueue::new();
        let (step, assessment) = spread_over_frames(&fleet, second, frames);
        let jobs = listed_jobs(&fleet);
        address.set_jobs(jobs);
        let notes = shown_notes(&fleet);
        let closed = || RwSignal::new(false);
        Self {
            route,
            settings,
            jobs,
            several_users: Memo::new(move |_| jobs.with(|jobs| other_users::are_of_several(jobs))),
            second,
            step,
            assessment,
            ended_ms: end_of_job(&fleet, route, jobs),
            started_ms: start_of_job(&fleet, route, jobs),
            run_ms: run_time(route, jobs),
            cursor: RwSignal::new(None),
            sought: RwSignal::new(None),
            log_step: RwSignal::new(None),
            frames,
            help: closed(),
            command_palette: closed(),
            settings_open: closed(),
            sharing: RwSignal::new(None),
            drawer: closed(),
            lists_ended: closed(),
            lists_waiting: closed(),
            pending_action: RwSignal::new(None),
            notes,
            note_times: relay_times(&fleet, notes),
            note_draft: RwSignal::new(None),
            toasts: RwSignal::new(Vec::new()),
            removed_worker: closed(),
            attention: Attention::new(&fleet, &feed, assessment),
            marked: marked_items(&fleet, route, jobs, assessment),
            address,
            fleet,
            feed,
        }
    }

    /// Returns the context of the calling view.
    pub fn from_context() -> Self {
        expect_context()
    }

    /// Returns the relay's clock; changes once a second.
    pub fn now_ms(&self) -> u64 {
        self.second.track();
        self.fleet.relay_ms(platform::now_ms())
    }

    /// Returns Unix time by the login node's clock, in s; changes once a second.
    pub fn wall_s(&self) -> i64 {
        self.second.track();
        self.fleet.wall_s(platform::now_ms())
    }

    /// Returns Unix time by the login node's clock, in ms; changes once a second.
    pub fn wall_ms(&self) -> u64 {
        u64::try_from(self.wall_s()).unwrap_or_default() * 1_000
    }

    /// Returns the last ten minutes, or those of its run before the end of an ended job; changes with every step.
    pub fn window(&self) -> Window {
        let end_ms = self.ended_ms.get().unwrap_or_else(|| self.step.get() * Window::STEP_MS);
        let window = Window::ten_minutes(end_ms).at_most(self.run_ms.get().unwrap_or(u64::MAX));
        window.since(self.started_ms.get().unwrap_or_default())
    }

    /// Sends a request; a refusal is a sentence for the user.
    pub async fn request(&self, request: Request) -> Response {
        self.feed.request(request).await
    }

    /// Sends a request that may take any time, and awaits its response.
    pub async fn long_request(&self, request: Request) -> Response {
        self.feed.long_request(request).await
    }

    /// Follows these logs from now on, and no others.
    pub fn follow_logs(&self, wanted: &[LogRef]) -> Vec<LogSignals> {
        self.feed.follow_logs(&self.fleet, wanted)
    }

    /// Navigates to the item of the attention list `by` places after the last one.
    pub fn go_to_problem(&self, by: isize) {
        if let Some(item) = self.attention.next(by) {
            let query = item.query(untrack(|| self.wall_ms()));
            self.address.navigate_with(item.target.route, query);
        }
    }

    /// Asks the user to confirm an action.
    pub fn propose(&self, pending_action: PendingAction) {
        self.pending_action.set(Some(pending_action));
    }

    /// Returns the state of the recording that is being played, if one is.
    pub fn replay(&self) -> Memo<Option<ReplayStatus>> {
        let overview = self.fleet.overview().clone();
        Memo::new(move |_| {
            overview.relay().track();
            overview.read(|picture| picture.relay.replay.clone())
        })
    }

    /// Returns whether the viewer may write notes: the owner, unless a recording is played.
    pub fn may_note(&self) -> bool {
        let overview = self.fleet.overview();
        overview.relay().track();
        self.is_owner() && overview.read(|picture| picture.relay.replay.is_none())
    }

    /// Returns whether a note is later than the end of the job that the page shows, or of its own.
    pub fn is_after_end(&self, note: &Note) -> bool {
        let Some(id) = self.route.get().job().or(note.job) else { return false };
        let at_s = (note.at_ms / 1_000).cast_signed();
        self.jobs.with(|jobs| {
            let job = jobs.iter().find(|job| job.id == id);
            job.is_some_and(|job| {
                matches!(job.state, JobState::Ended(_)) && job.ended.is_some_and(|ended_s| at_s > ended_s)
            })
        })
    }

    /// Begins a note at a moment, in ms of the relay's clock, or at the end of the graphs: about the job or the node of
    /// the route, if there is one.
    pub fn draft_note(&self, at_ms: Option<u64>) {
        if !untrack(|| self.may_note()) {
            return;
        }
        let route = self.route.get_untracked();
        let job = route.job();
        let node = match &route {
            Route::Node(name) if job.is_none() => Some(name.clone()),
            _ => None,
        };
        let end_ms =
            || self.ended_ms.get_untracked().unwrap_or_else(|| self.fleet.relay_ms(platform::now_ms()));
        let at_ms = at_ms.unwrap_or_else(end_ms).cast_signed();
        let at_ms = at_ms.saturating_add(self.fleet.wall_ahead_ms()).max(0).unsigned_abs();
        self.note_draft.set(Some(NoteDraft { id: None, job, node, at_ms, text: String::new() }));
    }

    /// Returns whether the viewer may act: only then are actions shown.
    pub fn may_act(&self) -> bool {
        self.fleet.welcome().is_some_and(|welcome| welcome.may_act)
    }

    /// Returns whether the viewer is the owner: only the owner may request details, act or share.
    pub fn is_owner(&self) -> bool {
        self.fleet.welcome().is_some_and(|welcome| welcome.role == Role::Owner)
    }

    /// Returns the name of the person as whom the relay of a site identified the viewer.
    pub fn person(&self) -> Option<String> {
        self.fleet.welcome()?.person.as_ref().map(ToString::to_string)
    }

    /// Returns whether the viewer's own usage is shown: to the owner, and to a person of a site.
    pub fn has_usage(&self) -> bool {
        self.is_owner() || self.person().is_some()
    }

    /// Returns whether the viewer sees single jobs, and of nodes only what belongs to them.
    pub fn sees_only_jobs(&self) -> bool {
        self.person().is_some() || self.share().is_some_and(|terms| terms.scope.is_of_jobs())
    }

    /// Returns the user who runs the relay.
    pub fn owner(&self) -> String {
        self.fleet.welcome().map_or(String::new(), |welcome| welcome.user.to_string())
    }

    /// Returns a guest's share terms; `None` for the owner.
    pub fn share(&self) -> Option<ShareTerms> {
        self.fleet.welcome()?.share.as_deref().cloned()
    }

    /// Returns the only job that a guest may see, if it is a single one.
    pub fn only_job(&self) -> Option<JobId> {
        match self.share()?.scope {
            Scope::Jobs(jobs) => jobs.first().copied().filter(|_| jobs.len() == 1),
            Scope::Nodes(_) | Scope::All | Scope::JobsAndArrays { .. } => None,
        }
    }

    /// Returns whether there are jobs, now or later: with SLURM, or simulated.
    pub fn has_jobs(&self) -> bool {
        self.fleet.welcome().is_none_or(|welcome| welcome.mode.has_jobs())
    }

    /// Returns whether job logs are shown.
    pub fn shows_logs(&self) -> bool {
        self.person().is_none() && self.share().is_none_or(|terms| !terms.hidden.logs)
    }

    /// Returns the link to a route.
    pub fn href(&self, route: &Route) -> String {
        self.address.href(route)
    }

    /// Returns a job as last received.
    pub fn job(&self, id: JobId) -> Option<Job> {
        self.jobs.with(|jobs| jobs.iter().find(|job| job.id == id).cloned())
    }

    /// Returns a job's name, or its number if the job is not listed.
    pub fn job_name(&self, id: JobId) -> String {
        self.jobs.with(|jobs| {
            let job = jobs.iter().find(|job| job.id == id);
            job.map_or_else(|| format!("job {id}"), job_names::within)
        })
    }

    /// Returns a job's name with its number: `eval (48440_7)`.
    pub fn job_name_and_label(&self, id: JobId) -> String {
        self.jobs.with(|jobs| {
            let job = jobs.iter().find(|job| job.id == id);
            job.map_or_else(
                || format!("job {id}"),
                |job| job_names::with_label(job.name.as_str(), job.label.as_str()),
            )
        })
    }

    /// Returns a job's name as last received; does not subscribe.
    pub fn job_name_untracked(&self, id: JobId) -> Option<String> {
        self.jobs.with_untracked(|jobs| jobs.iter().find(|job| job.id == id).map(job_names::within))
    }

    /// Returns the cells of a job's nodes in a store, in SLURM's order.
    pub fn job_nodes(&self, store: &TopicStore, id: JobId) -> Memo<Vec<NodeSignals>> {
        let (page, store) = (self.clone(), store.clone());
        let names = Memo::new(move |_| page.job(id).map(|job| job.nodes).unwrap_or_default());
        Memo::new(move |_| names.with(|names| names.iter().filter_map(|name| store.cell(name)).collect()))
    }

    /// Returns whether a node's values are stale and must not look current.
    pub fn is_stale(&self, store: &TopicStore, node: &NodeSignals) -> Memo<bool> {
        let (page, store, node) = (self.clone(), store.clone(), node.clone());
        Memo::new(move |_| {
            node.head().track();
            is_stale(&page, &store, &node)
        })
    }
}

/// Spreads the work of each second over frames, because all of it at once would be one long task: after the frame of rows
/// and sums, comparisons, then the returned step of the charts, then the returned number of the assessment.
fn spread_over_frames(
    fleet: &FleetStore,
    second: RwSignal<u64>,
    frames: FrameQueue,
) -> (RwSignal<u64>, RwSignal<u64>) {
    let step = RwSignal::new(fleet.relay_ms(platform::now_ms()) / Window::STEP_MS);
    let assessment = RwSignal::new(0);
    let fleet = fleet.clone();
    platform::effect(move || {
        second.track();
        let (compared, fleet) = (fleet.clone(), fleet.clone());
        frames.push(move || compared.update_comparisons());
        frames.push(move || {
            let now = fleet.relay_ms(platform::now_ms()) / Window::STEP_MS;
            if step.try_get_untracked().is_some_and(|shown| shown != now) {
                step.set(now);
            }
        });
        frames.push(move || _ = assessment.try_update(|number| *number += 1));
    });
    (step, assessment)
}

fn listed_jobs(fleet: &FleetStore) -> Memo<Arc<Vec<Job>>> {
    let overview = fleet.overview().clone();
    Memo::new(move |_| {
        overview.jobs().track();
        Arc::new(overview.read(|picture| picture.jobs.clone()))
    })
}

/// Returns the notes of the topic that is shown in full, or else of the whole cluster, by time.
fn shown_notes(fleet: &FleetStore) -> Memo<Arc<Vec<Note>>> {
    let fleet = fleet.clone();
    Memo::new(move |_| {
        let store = fleet.detail().unwrap_or_else(|| fleet.overview().clone());
        store.notes().track();
        Arc::new(store.read(|picture| picture.notes.clone()))
    })
}

/// Returns the times of notes, in ms of the relay's clock.
fn relay_times(fleet: &FleetStore, notes: Memo<Arc<Vec<Note>>>) -> Memo<Arc<Vec<i64>>> {
    let fleet = fleet.clone();
    Memo::new(move |_| {
        // The clocks are known with the first message.
        fleet.welcome();
        let ahead_ms = fleet.wall_ahead_ms();
        let relay_ms = |note: &Note| note.at_ms.cast_signed().saturating_sub(ahead_ms);
        Arc::new(notes.with(|notes| notes.iter().map(relay_ms).collect::<Vec<_>>()))
    })
}

/// Returns what the graphs of the route mark, updated with each assessment.
fn marked_items(
    fleet: &FleetStore,
    route: Memo<Route>,
    jobs: Memo<Arc<Vec<Job>>>,
    assessment: RwSignal<u64>,
) -> Memo<Arc<Vec<attention::Item>>> {
    let fleet = fleet.clone();
    Memo::new(move |_| {
        assessment.track();
        let (route, store) = (route.get(), fleet.detail());
        let items = jobs
            .with(|jobs| store.map(|store| store.read(|picture| attention::marked(&route, jobs, picture))));
        Arc::new(items.unwrap_or_default())
    })
}

/// Returns when the job of the route ended, by the relay's clock in ms: the time of the last sample of its nodes, or
/// the end time that SLURM reports if the nodes run other jobs by now.
fn end_of_job(fleet: &FleetStore, route: Memo<Route>, jobs: Memo<Arc<Vec<Job>>>) -> Memo<Option<u64>> {
    let fleet = fleet.clone();
    Memo::new(move |_| {
        let id = route.get().job()?;
        let ended_s = jobs.with(|jobs| {
            let job = jobs.iter().find(|job| job.id == id)?;
            matches!(job.state, JobState::Ended(_)).then_some(job.ended)
        })?;
        let last_ms = fleet.detail().and_then(|store| {
            let last_ms = |node: NodeSignals| {
                node.head().track();
                let last_ms =
                    |node: &NodePicture| (node.head.link == Link::Ended).then_some(node.sampled_at_ms);
                store.node(&node, last_ms)?
            };
            let last_ms = store.nodes().get().into_iter().map(last_ms).collect::<Option<Vec<_>>>();
            last_ms?.into_iter().flatten().max()
        });
        last_ms.or_else(|| {
            let page_ms = platform::now_ms();
            let ago_s = fleet.wall_s(page_ms).saturating_sub(ended_s?).max(0).cast_unsigned();
            Some(fleet.relay_ms(page_ms).saturating_sub(ago_s * 1_000))
        })
    })
}

/// Returns when the job of the route started, by the relay's clock in ms. One in the future is an error of a clock.
fn start_of_job(fleet: &FleetStore, route: Memo<Route>, jobs: Memo<Arc<Vec<Job>>>) -> Memo<Option<u64>> {
    let fleet = fleet.clone();
    Memo::new(move |_| {
        let id = route.get().job()?;
        let start_s = jobs.with(|jobs| jobs.iter().find(|job| job.id == id)?.start)?;
        let start_ms = u64::try_from(start_s.checked_mul(1_000)?.checked_sub(fleet.wall_ahead_ms())?).ok()?;
        (start_ms <= fleet.relay_ms(platform::now_ms())).then_some(start_ms / 1_000 * 1_000)
    })
}

/// Returns how long the job of the route ran, in ms, if it has ended.
fn run_time(route: Memo<Route>, jobs: Memo<Arc<Vec<Job>>>) -> Memo<Option<u64>> {
    Memo::new(move |_| {
        let id = route.get().job()?;
        jobs.with(|jobs| {
            let job = jobs.iter().find(|job| job.id == id)?;
            let ran_s = job.ended?.checked_sub(job.start?)?;
            matches!(job.state, JobState::Ended(_))
                .then_some(u64::try_from(ran_s).ok()?.saturating_mul(1_000))
        })
    })
}

/// Like [`Page::is_stale`], without subscribing the caller.
pub fn is_stale(page: &Page, store: &TopicStore, node: &NodeSignals) -> bool {
    let now_ms = page.fleet.shown_ms();
    let fresh = store.node(node, |node| {
        node.head.driver_stuck_ms.is_none() && freshness(node, now_ms) == Freshness::Fresh
    });
    fresh != Some(true)
}

/// Returns the current health of a node; does not subscribe.
pub fn node_health(page: &Page, store: &TopicStore, node: &NodeSignals) -> Arc<Health> {
    let now_ms = page.fleet.shown_ms();
    let unknown = || Arc::new(Health { severity: Severity::Pending, label: "not known".to_owned() });
    let health = store.health(node, now_ms).unwrap_or_else(unknown);
    // What a node without GPUs means depends on its jobs.
    if health.severity == Severity::Pending && lacks_gpus(page, store, node) {
        return Arc::new(Health::new(Severity::Error, "no GPU can be read"));
    }
    health
}

/// Returns the current health of a node, in the views of a job, if there is one: no node of a job that hangs is well.
/// Does not subscribe.
pub fn node_health_in(
    page: &Page,
    store: &TopicStore,
    job: Option<JobId>,
    node: &NodeSignals,
) -> Arc<Health> {
    let entries = page.attention.entries().get_untracked();
    attention::node_health_in(node_health(page, store, node), &entries, job, node.name())
}

/// Returns whether no GPU can be read on a node where a job has some; does not subscribe.
pub fn lacks_gpus(page: &Page, store: &TopicStore, node: &NodeSignals) -> bool {
    store
        .node(node, |node| page.jobs.with_untracked(|jobs| attention::lacks_gpus(node, jobs)))
        .unwrap_or_default()
}
