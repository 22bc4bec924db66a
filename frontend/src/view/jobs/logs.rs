//! A job's logs: followed or paused, searched, with errors and warnings marked.

use crate::domain::log_lines::{contains, current_hit, neighbouring_hit, severity, split_matches};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::{Log, LogCell};
use crate::platform;
use crate::state::page::Page;
use crate::view::charts::sparkline::Area;
use crate::view::scope::Scope;
use crate::view::widgets::copy::copy_button;
use leptos::html::{Div, Input};
use leptos::prelude::*;
use nodeglass_protocol::request::{LogRef, LogStream};
use nodeglass_protocol::{GpuField, JobId};

/// One line: its number in the log, and its text.
type Line = (u64, String);

/// The logs of a job.
#[component]
pub fn Logs(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let series = scope.series(&page, GpuField::Util);
    let separate = {
        let page = page.clone();
        Memo::new(move |_| page.job(id).is_none_or(|job| job.stderr.is_some() && job.stderr != job.stdout))
    };
    let leaving = page.clone();
    on_cleanup(move || drop(leaving.follow_logs(&[])));
    let shown = RwSignal::new(LogStream::Stdout);
    let panes = move || {
        let streams: &[LogStream] =
            if separate.get() { &[LogStream::Stdout, LogStream::Stderr] } else { &[LogStream::Stdout] };
        let wanted: Vec<LogRef> = streams.iter().map(|stream| LogRef { job: id, stream: *stream }).collect();
        let cells = page.follow_logs(&wanted);
        let choice =
            streams.iter().zip(&cells).map(|(stream, cell)| tab(shown, *stream, cell, separate.get()));
        let choice = choice.collect_view();
        let path = path(&page, id, shown);
        let pane = move || {
            let index = usize::from(shown.get() == LogStream::Stderr).min(cells.len().saturating_sub(1));
            cells.get(index).map(|cell| view! { <Pane cell=cell.clone()/> })
        };
        view! { <div class="logs__bar">{choice} <span class="logs__path">{path}</span></div> {move || pane()} }
    };
    view! {
        <section class="logs" aria-label="Logs">
            <div class="logs__chart"><span>"GPU utilisation, 0–100 %, last 10 min"</span><Area series hue="hue-util"/></div>
            {move || panes()}
        </section>
    }
}

fn path(page: &Page, id: JobId, stream: RwSignal<LogStream>) -> impl Fn() -> Option<String> + use<> {
    let page = page.clone();
    move || {
        let job = page.job(id)?;
        let path = if stream.get() == LogStream::Stderr { job.stderr.or(job.stdout) } else { job.stdout };
        path.map(|path| path.to_string())
    }
}

/// The button of one log, with its number of errors.
fn tab(shown: RwSignal<LogStream>, stream: LogStream, cell: &LogCell, separate: bool) -> AnyView {
    let name = match (stream, separate) {
        (LogStream::Stdout, true) => "stdout",
        (LogStream::Stderr, _) => "stderr",
        (LogStream::Stdout, false) => "stdout and stderr",
    };
    let cell = cell.clone();
    let errors = move || {
        let count_errors = |log: &Log| {
            log.lines.iter().filter(|line| severity(line.as_str()) == Some(Severity::Error)).count()
        };
        let count = cell.read(count_errors);
        (count > 0).then(|| format!(" ▲ {count}"))
    };
    view! {
        <button class="btn" aria-pressed=move || (shown.get() == stream).to_string() on:click=move |_| shown.set(stream)>
            {name} <span class="logs__errors">{move || errors()}</span>
        </button>
    }
    .into_any()
}

/// One log.
#[component]
fn Pane(cell: LogCell) -> impl IntoView {
    let (follows, wraps) = (RwSignal::new(true), RwSignal::new(true));
    let (query, chosen) = (RwSignal::new(String::new()), RwSignal::new(None::<u64>));
    // Whether the log was followed before it was searched.
    let followed = StoredValue::new(true);
    let lines: Memo<Vec<Line>> = {
        let cell = cell.clone();
        Memo::new(move |_| {
            cell.read(|log| {
                let numbered = log.lines.iter().zip(log.first_line..);
                numbered.map(|(line, number)| (number, line.to_string())).collect()
            })
        })
    };
    // Without a search, one steps from error to error.
    let hits: Memo<Vec<u64>> = Memo::new(move |_| {
        query.with(|query| {
            let found = |(_, line): &&Line| match query.is_empty() {
                true => severity(line) == Some(Severity::Error),
                false => contains(line, query),
            };
            lines.with(|lines| lines.iter().filter(found).map(|(number, _)| *number).collect())
        })
    });
    let current = Memo::new(move |_| {
        let (chosen, is_searching) = (chosen.get(), query.with(|query| !query.is_empty()));
        if is_searching { hits.with(|hits| current_hit(hits, chosen)) } else { chosen }
    });
    let (scroll, field) = (NodeRef::<Div>::new(), NodeRef::<Input>::new());
    Effect::new(move || {
        lines.track();
        if follows.get()
            && let Some(element) = scroll.get()
        {
            platform::on_next_frame(move || element.set_scroll_top(element.scroll_height()));
        }
    });
    Effect::new(move || {
        if let Some(number) = current.get() {
            follows.set(false);
            platform::on_next_frame(move || platform::scroll_to_id(&format!("log-{number}")));
        }
    });
    let step = move |by: isize| {
        let next = hits.with_untracked(|hits| neighbouring_hit(hits, current.get_untracked(), by));
        if next.is_some() {
            chosen.set(next);
        }
    };
    let log_step = Page::from_context().log_step;
    Effect::new(move || {
        if let Some(by) = log_step.get() {
            log_step.set(None);
            step(by);
        }
    });
    let search = move |text: String| {
        let was_searching = query.with_untracked(|query| !query.is_empty());
        let is_searching = !text.is_empty();
        if is_searching && !was_searching {
            followed.set_value(follows.get_untracked());
        }
        query.set(text);
        // Lines that arrive later do not move the search.
        chosen.set(hits.with_untracked(|hits| hits.last().copied()).filter(|_| is_searching));
        if was_searching && !is_searching {
            follows.set(followed.get_value());
        }
    };
    let height = StoredValue::new(0);
    let on_scroll = move |_| {
        if let Some(element) = scroll.get_untracked() {
            // A window that changes its size scrolls too, such as a phone that is turned.
            if height.get_value() != element.client_height() && follows.get_untracked() {
                height.set_value(element.client_height());
                element.set_scroll_top(element.scroll_height());
                return;
            }
            let below = element.scroll_height() - element.scroll_top() - element.client_height();
            if follows.get_untracked() != (below < 12) {
                follows.set(below < 12);
            }
        }
    };
    let on_search_key = move |event: web_sys::KeyboardEvent| match event.key().as_str() {
        "Enter" => step(if event.shift_key() { -1 } else { 1 }),
        "Escape" => {
            search(String::new());
            if let Some(input) = field.get_untracked() {
                input.set_value("");
                let _ = input.blur();
            }
        }
        _ => {}
    };
    let state = {
        let cell = cell.clone();
        move || cell.read(state_text)
    };
    let error = {
        let cell = cell.clone();
        move || {
            cell.read(|log| log.error.clone()).map(
                |why| view! { <div class="notice notice--attention"><span>"◆"</span><div>{why}</div></div> },
            )
        }
    };
    let partial = {
        let cell = cell.clone();
        move || cell.read(|log| log.partial.as_ref().map(ToString::to_string))
    };
    let whole = move || {
        let text = lines.with(|lines| lines.iter().map(|(_, line)| format!("{line}\n")).collect::<String>());
        copy_button(text)
    };
    let found = move || {
        let (is_searching, count) = (query.with(|query| !query.is_empty()), hits.with(Vec::len));
        let at = current.get().and_then(|line| hits.with(|hits| hits.binary_search(&line).ok()));
        match at {
            None if is_searching => "no matches".to_owned(),
            None => String::new(),
            Some(at) => {
                let what = if is_searching { "" } else { "error " };
                format!("{what}{} of {}", text::grouped(at as u64 + 1), text::grouped(count as u64))
            }
        }
    };
    let none = move || hits.with(Vec::is_empty);
    view! {
        {move || error()}
        <div class="logs__bar">
            <button class="btn" aria-pressed=move || follows.get().to_string() on:click=move |_| follows.update(|follows| *follows = !*follows)>
                {move || if follows.get() { "● Following" } else { "‖ Paused" }}
            </button>
            <button class="btn" aria-pressed=move || wraps.get().to_string() on:click=move |_| wraps.update(|wraps| *wraps = !*wraps)>"Wrap"</button>
            <input
                class="field"
                type="search"
                node_ref=field
                placeholder="Search these lines  /"
                aria-label="Search these lines"
                on:input=move |event| search(event_target_value(&event))
                on:keydown=on_search_key
            />
            <span class="logs__found" role="status">{move || found()}</span>
            <button class="btn" title="Match above, or error while nothing is searched (N, or Shift Enter in the search field)" disabled=none on:click=move |_| step(-1)>
                "↑ Previous " <kbd class="hide-s">"N"</kbd>
            </button>
            <button class="btn" title="Match below, or error while nothing is searched (n, or Enter in the search field)" disabled=none on:click=move |_| step(1)>
                "↓ Next " <kbd class="hide-s">"n"</kbd>
            </button>
            <span class="spring"></span>
            <span class="logs__state">{move || state()}</span>
            {move || whole()}
        </div>
        <div
            class="logs__box"
            class:logs__box--wrap=move || wraps.get()
            tabindex="0"
            role="log"
            aria-live="off"
            aria-label="Log lines"
            node_ref=scroll
            on:scroll=on_scroll
        >
            <For each=move || lines.get() key=|line| line.0 children=move |line| row(line, query, current)/>
            <div class="log log--partial">{move || partial()}</div>
        </div>
    }
}

/// Describes how much of the log is shown.
fn state_text(log: &Log) -> String {
    match (log.received, log.lines.len()) {
        (false, _) => "loading".to_owned(),
        (true, 0) if log.error.is_some() => String::new(),
        (true, 0) if log.partial.is_none() => "empty so far".to_owned(),
        (true, count) if log.truncated => format!("the last {}", text::count(count, "line", "lines")),
        (true, count) => text::count(count, "line", "lines"),
    }
}

fn row((number, line): Line, query: RwSignal<String>, current: Memo<Option<u64>>) -> AnyView {
    let class = match severity(&line) {
        Some(Severity::Error) => "log log--error",
        Some(Severity::Warning) => "log log--warning",
        _ => "log",
    };
    let is_current = Memo::new(move |_| current.get() == Some(number));
    let text = move || {
        let cut = query.with(|query| split_matches(&line, query));
        let piece = |(piece, hit): (String, bool)| match hit {
            true => view! { <mark>{piece}</mark> }.into_any(),
            false => view! { {piece} }.into_any(),
        };
        cut.into_iter().map(piece).collect_view()
    };
    view! { <div class=class class:is-here=move || is_current.get() id=format!("log-{number}")>{move || text()}</div> }
        .into_any()
}
