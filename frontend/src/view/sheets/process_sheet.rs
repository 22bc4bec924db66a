//! The sheet with all details of one process, which the URL names; some are requested from the node.

use crate::chart::{Series, round_top};
use crate::describe::{Emphasis, bytes, commands as shell_commands, process};
use crate::domain::pending_action;
use crate::domain::query::PROCESS;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::{NodeSignals, TopicStore};
use crate::net::LinkState;
use crate::platform;
use crate::state::page::Page;
use crate::table::Now;
use crate::view::charts::sparkline::MiniChart;
use crate::view::widgets::actions::{Toasts, offers};
use crate::view::widgets::copy::{commands, copy_button_of};
use crate::view::widgets::fact_list::fact_groups;
use crate::view::widgets::sheet::{Keys, Sheet};
use crate::view::widgets::status_line::StatusLine;
use leptos::prelude::*;
use nodeglass_protocol::picture::ProcessPicture;
use nodeglass_protocol::process::ProcessDetail;
use nodeglass_protocol::request::{ProcessRef, Request, Response};
use nodeglass_protocol::{NodeName, ProcessField, Reading};
use std::sync::Arc;

/// Title, field, CSS class of its colour, and how its values are formatted.
type SparkField = (&'static str, ProcessField, &'static str, fn(f32) -> String);

/// The fields whose history is recorded while the sheet is open.
const SPARK_FIELDS: [SparkField; 4] = [
    ("SM time", ProcessField::Sm, "stroke-util", percent),
    ("GPU memory", ProcessField::GpuMem, "stroke-mem", bytes_text),
    ("CPU", ProcessField::Cpu, "stroke-host", percent),
    ("Memory", ProcessField::Rss, "stroke-host", bytes_text),
];
/// Length of that history in seconds.
const SECONDS: usize = 300;
/// Minimum width of the charts in seconds.
const MIN_SECONDS: usize = 60;

/// A process as the URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessQuery {
    /// Its node.
    pub node: NodeName,
    /// Its pid and start time.
    pub process: ProcessRef,
}

impl ProcessQuery {
    /// Parses `NODE/PID/STARTED_MS`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let node = parts.next()?.parse().ok()?;
        let process =
            ProcessRef { pid: parts.next()?.parse().ok()?, started_ms: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(Self { node, process })
    }
}

/// State of the request for details.
#[derive(Clone, Default)]
enum DetailState {
    #[default]
    Asked,
    Detail(Arc<ProcessDetail>),
    Refused(String),
}

/// The sheet of the process that the URL names, if any.
#[component]
pub fn ProcessSheet() -> impl IntoView {
    let page = Page::from_context();
    let query = {
        let text = page.address.query(PROCESS);
        Memo::new(move |_| ProcessQuery::parse(&text.get()?))
    };
    move || query.get().map(|query| open(&page, query))
}

fn open(page: &Page, query: ProcessQuery) -> AnyView {
    let address = page.address.clone();
    let close = Arc::new(move || address.set_query(PROCESS, None));
    let found = find_node(page, &query);
    let process = find_process(found, &query);
    let keys = signal_keys(page, process, &query.node);
    let title = {
        let query = query.clone();
        let name = move || text::name_of(&process.get()?.facts);
        move || format!("{} · {}", name().unwrap_or_else(|| "process".to_owned()), query.process.pid)
    };
    let status = Signal::derive(move || {
        process.get().map_or_else(|| absence(found.get().is_some()), |process| status(&process))
    });
    let label = format!("Process {}", query.process.pid);
    let (actions, sparks) = (actions(page, process, &query), sparks(page, process));
    let (facts, where_) = (facts(page, process), query.node.to_string());
    // Only the owner may send requests to the node.
    let detail_view = {
        let page = page.clone();
        move || page.is_owner().then(|| detail_view(&page, process, query.clone()))
    };
    view! {
        <Sheet class="sheet" label close keys=Some(keys)>
            <h2 class="sheet__title">{move || title()}</h2>
            <p class="sheet__where">{where_}</p>
            <StatusLine status/>
            <Toasts/>
            {actions}
            {sparks}
            <div class="facts-columns">{facts}</div>
            {move || detail_view()}
        </Sheet>
    }
    .into_any()
}

/// A node, and the store that has it.
type FoundNode = Memo<Option<(TopicStore, NodeSignals)>>;

/// Returns the node of the process, once it is known.
fn find_node(page: &Page, query: &ProcessQuery) -> FoundNode {
    let (page, name) = (page.clone(), query.node.clone());
    Memo::new(move |_| {
        let store = page.fleet.detail()?;
        let node = store.cell(&name)?;
        Some((store, node))
    })
}

/// Returns the process, while it runs.
fn find_process(found: FoundNode, query: &ProcessQuery) -> Memo<Option<ProcessPicture>> {
    let query = query.clone();
    Memo::new(move |_| {
        let (store, node) = found.get()?;
        node.processes().track();
        store.node(&node, |node| {
            node.processes.iter().find(|process| matches_query(process, &query)).cloned()
        })?
    })
}

/// Returns the keys that propose the signals of a process.
fn signal_keys(page: &Page, process: Memo<Option<ProcessPicture>>, node: &NodeName) -> Keys {
    let (page, node) = (page.clone(), node.clone());
    Arc::new(move |key: &str| {
        let own = process.get_untracked().filter(|process| is_own(&page, process));
        let actions = own.map(|process| pending_action::for_process(&process, &node)).unwrap_or_default();
        if let Some((_, action)) = actions.into_iter().find(|(its, _)| *its == key) {
            page.propose(action);
        }
    })
}

/// Says why there is no process: its node is not known yet, or it has ended.
fn absence(is_node_known: bool) -> (Severity, String) {
    match is_node_known {
        false => (Severity::Pending, "Waiting for the processes of its node".to_owned()),
        true => (Severity::Ended, "No longer among the processes on these GPUs: it has ended".to_owned()),
    }
}

fn matches_query(process: &ProcessPicture, query: &ProcessQuery) -> bool {
    let started = process.facts.started_ms.value();
    process.facts.pid == query.process.pid
        && started.is_none_or(|started| *started == query.process.started_ms)
}

/// Returns whether the process is the viewer's own and actions are enabled, so that it may be signalled.
fn is_own(page: &Page, process: &ProcessPicture) -> bool {
    let user = page.fleet.welcome().map(|welcome| welcome.user.clone());
    page.may_act() && user.as_ref() == process.facts.user.value()
}

fn actions(page: &Page, process: Memo<Option<ProcessPicture>>, query: &ProcessQuery) -> AnyView {
    let (page, node) = (page.clone(), query.node.clone());
    // Buttons are recreated only when they change.
    let offered = {
        let page = page.clone();
        Memo::new(move |_| {
            let process = process.get().filter(|process| is_own(&page, process));
            process.map(|process| pending_action::for_process(&process, &node)).unwrap_or_default()
        })
    };
    (move || offers(&page, offered.get())).into_any()
}

/// Charts of the readings since the sheet was opened, each on its own scale.
fn sparks(page: &Page, process: Memo<Option<ProcessPicture>>) -> AnyView {
    let samples: RwSignal<Vec<[Option<f32>; SPARK_FIELDS.len()]>> = RwSignal::new(Vec::new());
    let second = page.second;
    platform::effect(move || {
        second.track();
        let process = process.get_untracked();
        let value =
            |field| process.as_ref().and_then(|process| process.row.value(field)).map(|value| value as f32);
        let now = SPARK_FIELDS.map(|(_, field, ..)| value(field));
        samples.update(|samples| {
            samples.push(now);
            let surplus = samples.len().saturating_sub(SECONDS);
            samples.drain(..surplus);
        });
    });
    // Untracked: the sheet is not built anew each second, which would forget the samples.
    let cursor = RwSignal::new(None);
    let since = match untrack(|| page.wall_s()) {
        // The page is not connected yet.
        0 => "collecting".to_owned(),
        wall_s => format!("collecting since {}", platform::format_time_or_date(wall_s)),
    };
    let one = |(index, (title, field, hue, format)): (usize, SparkField)| {
        let top = Memo::new(move |_| samples.with(|samples| top(samples, index, field)));
        let series = Memo::new(move |_| samples.with(|samples| series(samples, index, top.get())));
        view! { <MiniChart title series top format hue cursor since=since.clone()/> }
    };
    view! { <div class="minis">{SPARK_FIELDS.into_iter().enumerate().map(one).collect_view()}</div> }
        .into_any()
}

fn percent(value: f32) -> String {
    format!("{} %", text::grouped(value.round() as u64))
}

fn bytes_text(value: f32) -> String {
    bytes(value as u64)
}

/// Returns the top of a chart's scale: 100 %, or the round number above its own maximum, so that it does not read like one.
fn top(samples: &[[Option<f32>; SPARK_FIELDS.len()]], index: usize, field: ProcessField) -> f32 {
    let largest = samples.iter().filter_map(|row| row[index]).fold(0.0f32, f32::max);
    match field {
        ProcessField::Sm => 100.0,
        ProcessField::Cpu => round_top(largest.max(100.0)),
        _ => {
            let units = [1 << 30, 1 << 20, 1 << 10].map(|unit: u32| unit as f32);
            let unit = units.into_iter().find(|unit| largest >= *unit).unwrap_or(1.0);
            unit * round_top(largest / unit)
        }
    }
}

/// Returns one recorded field up to now, as fractions of the top of its scale.
fn series(samples: &[[Option<f32>; SPARK_FIELDS.len()]], index: usize, top: f32) -> Series {
    let values = samples.iter().map(|row| row[index].map(|value| value / top));
    let empty = std::iter::repeat_n(None, MIN_SECONDS.saturating_sub(samples.len()));
    empty.chain(values).collect()
}

/// Returns whether the process runs, and what it uses.
fn status(process: &ProcessPicture) -> (Severity, String) {
    let ((label, meaning), emphasis) =
        process::state_text(process.row.value(ProcessField::State).unwrap_or(0));
    if emphasis != Emphasis::Plain {
        return (Severity::Warning, format!("State: {label} – {meaning}"));
    }
    let part = |(title, field, _, format): SparkField| {
        process.row.value(field).map(|value| format!("{title} {}", format(value as f32)))
    };
    let parts = std::iter::once("Running".to_owned()).chain(SPARK_FIELDS.into_iter().filter_map(part));
    (Severity::Ok, parts.collect::<Vec<_>>().join(" · "))
}

fn facts(page: &Page, process: Memo<Option<ProcessPicture>>) -> AnyView {
    let page = page.clone();
    let groups = move || {
        let process = process.get()?;
        let started_s = process.facts.started_ms.value().map(|ms| (ms / 1_000).cast_signed());
        let now = Now { relay_ms: page.now_ms(), wall_s: page.wall_s() }.until(page.ended_ms.get());
        let ran = started_s.map(|started| now.wall_s.saturating_sub(started).max(0).cast_unsigned());
        Some(fact_groups(process::groups(&process, ran)))
    };
    groups.into_any()
}

/// Details that only the node can report: the whole command line, files, process tree, and the environment on
/// request.
fn detail_view(page: &Page, process: Memo<Option<ProcessPicture>>, query: ProcessQuery) -> AnyView {
    let state = RwSignal::new(DetailState::default());
    let ask = {
        let (page, query) = (page.clone(), query.clone());
        move |environment: bool| request_detail(page.clone(), &query, environment, state)
    };
    // The sheet may be opened by a link before the page is connected.
    let (first, feed) = (ask.clone(), page.feed.clone());
    let was_asked = StoredValue::new(false);
    platform::effect(move || {
        if feed.link() == LinkState::Live && !was_asked.get_value() {
            was_asked.set_value(true);
            first(false);
        }
    });
    let job = Memo::new(move |_| process.get().and_then(|process| process.facts.job));
    let pid = query.process.pid;
    let detail = move || match state.get() {
        DetailState::Asked => {
            view! { <p class="facts__note">"Requesting details from the node …"</p> }.into_any()
        }
        DetailState::Refused(why) => {
            let again = ask.clone();
            view! {
                <div class="notice notice--attention"><span>"◆"</span><div>{why}</div></div>
                <button class="btn" on:click=move |_| again(false)>"Try again"</button>
            }
            .into_any()
        }
        DetailState::Detail(detail) => detail_content(&detail, pid, ask.clone()),
    };
    let tools = move || commands(shell_commands::for_process(pid, &query.node, job.get()));
    view! {
        {move || detail()}
        <h2 class="facts__head">"Debug"</h2>
        {move || tools()}
    }
    .into_any()
}

/// Requests the details of a process, with its environment if `environment`.
fn request_detail(page: Page, query: &ProcessQuery, environment: bool, state: RwSignal<DetailState>) {
    let request = Request::Process { node: query.node.clone(), process: query.process, environment };
    leptos::task::spawn_local(async move {
        let answer = match page.request(request).await {
            Response::Process(detail) => DetailState::Detail(Arc::from(detail)),
            Response::Refused(why) => DetailState::Refused(why.to_string()),
            Response::Done(_)
            | Response::Tail(_)
            | Response::Share(_)
            | Response::Audit(_)
            | Response::Note(_)
            | Response::Capture(_)
            | Response::Processes(_) => DetailState::Refused("Unexpected reply from the relay.".to_owned()),
        };
        // The sheet may be closed by now.
        state.try_set(answer);
    });
}

fn detail_content(detail: &ProcessDetail, pid: u32, ask: impl Fn(bool) + Clone + Send + 'static) -> AnyView {
    let branch = |branch: process::Branch| {
        view! {
            <li class:tree__self=branch.is_self style:--depth=branch.depth.to_string()>
                <span class="num">{branch.pid.to_string()}</span> " " <code>{branch.command}</code>
            </li>
        }
    };
    let tree = process::family(detail, pid).into_iter().map(branch).collect_view();
    let copy = detail
        .args
        .value()
        .map(|args| args.to_string())
        .map(|args| copy_button_of(move || args.clone(), "Copy command line", "✓ Copied"));
    let environment = match &detail.environment {
        Reading::Value(variables) => {
            let variable = |variable: &nodeglass_protocol::process::Variable| {
                view! { <li><b>{variable.name.to_string()}</b> "=" {variable.value.to_string()}</li> }
            };
            view! { <ul class="env">{variables.iter().map(variable).collect_view()}</ul> }.into_any()
        }
        Reading::Failed(why) if why.is_hidden() => {
            view! { <p class="facts__note">{why.to_string()}</p> }.into_any()
        }
        Reading::Failed(why) => view! { <p class="facts__note">{format!("failed: {why}")}</p> }.into_any(),
        Reading::Unsupported => view! { <p class="facts__note">"not supported"</p> }.into_any(),
        Reading::NotYet => view! {
            <button class="btn" on:click=move |_| ask(true)>"Show environment (secrets masked)"</button>
        }
        .into_any(),
    };
    view! {
        <div class="facts-columns facts-columns--one">{fact_groups(vec![process::detail(detail)])}</div>
        {copy}
        <h2 class="facts__head">"Process tree"</h2>
        <ul class="tree">{tree}</ul>
        <h2 class="facts__head">"Environment"</h2>
        {environment}
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_the_url_is_node_pid_and_start() {
        let query = ProcessQuery::parse("gpu-01/4711/1760000000000").unwrap();
        assert_eq!((query.node.as_str(), query.process.pid), ("gpu-01", 4711));
        for text in ["", "n1", "n1/4711", "n1/x/1", "-o/1/2", "n1/1/2/3"] {
            assert_eq!(ProcessQuery::parse(text), None, "{text}");
        }
    }

    #[test]
    fn recorded_samples_end_at_now_and_leave_gaps() {
        let samples = [[Some(50.0), Some(10.0), None, None], [None, Some(20.0), None, None]];
        let sm = series(&samples, 0, top(&samples, 0, ProcessField::Sm));
        assert_eq!((sm.len(), sm[MIN_SECONDS - 2], sm[MIN_SECONDS - 1]), (MIN_SECONDS, Some(0.5), None));
        let memory = series(&samples, 1, top(&samples, 1, ProcessField::GpuMem));
        assert!(memory[MIN_SECONDS - 1].is_some_and(|share| share > 0.9));
    }
}
