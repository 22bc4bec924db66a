//! A job's logs: followed or paused, searched, with errors and warnings marked.

use super::log_search::{Line, LogSearch};
use crate::chart::Range;
use crate::domain::log_lines::{find_evidence, severity, split_matches};
use crate::domain::query;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::{Log, LogSignals};
use crate::platform;
use crate::state::page::Page;
use crate::view::charts::sparkline::Area;
use crate::view::scope::NodeScope;
use crate::view::widgets::copy::copy_button;
use leptos::html::Div;
use leptos::prelude::*;
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::request::{LogRef, LogStream};
use nodeglass_protocol::{GpuField, JobId};

/// The logs of a job.
#[component]
pub fn Logs(
    /// The nodes and the job.
    scope: NodeScope,
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let series = scope.series(&page, GpuField::Util);
    let run_ms = page.run_ms;
    let time = move || match run_ms.get().filter(|run_ms| *run_ms < Range::RECENT_MS) {
        Some(run_ms) => format!("GPU utilisation, 0–100 %, {} of its run", text::span(run_ms / 1_000)),
        None => "GPU utilisation, 0–100 %, last 10 min".to_owned(),
    };
    let separate = {
        let page = page.clone();
        Memo::new(move |_| page.job(id).is_none_or(|job| job.stderr.is_some() && job.stderr != job.stdout))
    };
    let grows = {
        let page = page.clone();
        Memo::new(move |_| page.job(id).is_some_and(|job| job.is_active()))
    };
    let leaving = page.clone();
    on_cleanup(move || drop(leaving.follow_logs(&[])));
    let shown = RwSignal::new(LogStream::Stdout);
    let chosen = RwSignal::new(None);
    let cause = cause(&page, id);
    let panes = move || {
        let streams: &'static [LogStream] =
            if separate.get() { &[LogStream::Stdout, LogStream::Stderr] } else { &[LogStream::Stdout] };
        let wanted: Vec<LogRef> = streams.iter().map(|stream| LogRef { job: id, stream: *stream }).collect();
        let cells = page.follow_logs(&wanted);
        show_evidence(cause, streams, &cells, shown, chosen);
        let choice = streams
            .iter()
            .zip(&cells)
            .map(|(stream, cell)| tab((shown, chosen), *stream, cell, separate.get()));
        let choice = choice.collect_view();
        let path = path(&page, id, shown);
        let pane = move || {
            let index = usize::from(shown.get() == LogStream::Stderr).min(cells.len().saturating_sub(1));
            cells.get(index).map(|cell| view! { <Pane cell=cell.clone() chosen grows/> })
        };
        view! { <div class="logs__bar">{choice} <span class="logs__path">{path}</span></div> {move || pane()} }
    };
    view! {
        <section class="logs" aria-label="Logs">
            <div class="logs__chart"><span>{time}</span><Area series hue="hue-util"/></div>
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
fn tab(
    (shown, chosen): (RwSignal<LogStream>, RwSignal<Option<u64>>),
    stream: LogStream,
    cell: &LogSignals,
    separate: bool,
) -> AnyView {
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
        <button class="btn" aria-pressed=move || (shown.get() == stream).to_string() on:click=move |_| {
                chosen.set(None);
                shown.set(stream);
            }>
            {name} <span class="logs__errors">{move || errors()}</span>
        </button>
    }
    .into_any()
}

/// The key of the finding in the address, from which the viewer came, or of the failure of the job; and its evidence.
type Cause = (String, Vec<String>);

/// Returns the finding from which the viewer came, or the failure of the job, if it is known.
fn cause(page: &Page, id: JobId) -> Memo<Option<Cause>> {
    let (key, overview) = (page.address.query(query::FINDING), page.fleet.overview().clone());
    let (attention, assessment) = (page.attention.clone(), page.assessment);
    Memo::new(move |_| {
        let key = key.get();
        key.iter().for_each(|key| attention.visit(key));
        assessment.track();
        overview.read(|picture| {
            let is_meant = |finding: &&Finding| match &key {
                Some(key) => finding.key.as_str() == key,
                None => finding.kind == FindingKind::Failed && finding.jobs == [id],
            };
            let finding = picture.findings.iter().find(is_meant)?;
            Some((finding.key.to_string(), finding.evidence.iter().map(ToString::to_string).collect()))
        })
    })
}

/// Shows the log that has the evidence, and its line, once: the viewer may go elsewhere then.
fn show_evidence(
    cause: Memo<Option<Cause>>,
    streams: &'static [LogStream],
    cells: &[LogSignals],
    shown: RwSignal<LogStream>,
    chosen: RwSignal<Option<u64>>,
) {
    let (cells, done) = (cells.to_vec(), StoredValue::new(String::new()));
    platform::effect(move || {
        let Some((key, evidence)) = cause.get().filter(|(key, _)| done.with_value(|done| done != key)) else {
            return;
        };
        let read =
            |log: &Log| (log.first_line, log.lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (first, logs): (Vec<u64>, Vec<Vec<String>>) = cells.iter().map(|cell| cell.read(read)).unzip();
        if let Some((log, line)) = find_evidence(&logs, &evidence) {
            done.set_value(key);
            shown.set(streams[log]);
            chosen.set(Some(first[log] + line as u64));
        }
    });
}

/// One log.
#[component]
fn Pane(
    /// The log.
    cell: LogSignals,
    /// The line at which it is searched.
    chosen: RwSignal<Option<u64>>,
    /// Whether the job still writes to it.
    grows: Memo<bool>,
) -> impl IntoView {
    let lines = numbered_lines(&cell);
    let (follows, wraps) = (RwSignal::new(true), RwSignal::new(true));
    let search = LogSearch::new(lines, follows, chosen);
    let scroll = NodeRef::<Div>::new();
    let on_scroll = follow_end(scroll, lines, follows);
    let (state, failed, last) = (cell.clone(), cell.clone(), cell);
    let error = move || {
        let notice =
            |why| view! { <div class="notice notice--attention"><span>"◆"</span><div>{why}</div></div> };
        failed.read(|log| log.error.clone()).map(notice)
    };
    let page = Page::from_context();
    let now_s = move || grows.get().then(|| page.wall_s());
    let whole = move || {
        let text = lines.with(|lines| lines.iter().map(|(_, line)| format!("{line}\n")).collect::<String>());
        copy_button(text)
    };
    view! {
        {error}
        <div class="logs__bar">
            {move || grows.get().then(|| follow_button(follows))}
            <button class="btn" aria-pressed=move || wraps.get().to_string() on:click=move |_| wraps.update(|wraps| *wraps = !*wraps)>"Wrap"</button>
            {search.controls()}
            <span class="spring"></span>
            <span class="logs__state">{move || state.read(|log| state_text(log, now_s()))}</span>
            {whole}
        </div>
        <div
            class="logs__box"
            class:logs__box--wrap=wraps
            tabindex="0"
            role="log"
            aria-live="off"
            aria-label="Log lines"
            node_ref=scroll
            on:scroll=move |_| on_scroll()
        >
            <For each=move || lines.get() key=|line| line.0 children=move |line| row(line, search)/>
            <div class="log log--partial">{move || last.read(|log| log.partial.as_ref().map(ToString::to_string))}</div>
        </div>
    }
}

/// The button that follows the end of the log, or keeps the lines in view.
fn follow_button(follows: RwSignal<bool>) -> AnyView {
    view! {
        <button class="btn logs__follow" aria-pressed=move || follows.get().to_string() on:click=move |_| follows.update(|follows| *follows = !*follows)>
            {move || if follows.get() { "● Following" } else { "‖ Paused" }}
        </button>
    }
    .into_any()
}

/// Returns the lines of a log with their numbers.
fn numbered_lines(cell: &LogSignals) -> Memo<Vec<Line>> {
    let cell = cell.clone();
    Memo::new(move |_| {
        cell.read(|log| {
            let numbered = log.lines.iter().zip(log.first_line..);
            numbered.map(|(line, number)| (number, line.to_string())).collect()
        })
    })
}

/// Keeps the end in view while the log is followed. Returns what to call when the box scrolls: the log is followed while
/// its end is in view.
fn follow_end(scroll: NodeRef<Div>, lines: Memo<Vec<Line>>, follows: RwSignal<bool>) -> impl Fn() {
    platform::effect(move || {
        lines.track();
        if follows.get()
            && let Some(element) = scroll.get()
        {
            platform::on_next_frame(move || element.set_scroll_top(element.scroll_height()));
        }
    });
    let height = StoredValue::new(0);
    move || {
        let Some(element) = scroll.get_untracked() else { return };
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
}

/// Age of a log in s from which it is stated: a job that hangs writes nothing.
const QUIET_S: i64 = 60;

/// Describes how much of the log is shown, and of a job that runs at `now_s`, for how long it has written nothing.
fn state_text(log: &Log, now_s: Option<i64>) -> String {
    let count = count_text(log);
    let quiet_s = now_s.zip(log.written_s).map(|(now_s, written_s)| now_s.saturating_sub(written_s));
    match quiet_s.filter(|quiet_s| *quiet_s >= QUIET_S && !count.is_empty()) {
        Some(quiet_s) => format!("{count}, written {} ago", text::span(quiet_s.unsigned_abs())),
        None => count,
    }
}

fn count_text(log: &Log) -> String {
    match (log.received, log.lines.len()) {
        (false, _) => "loading".to_owned(),
        (true, 0) if log.error.is_some() => String::new(),
        (true, 0) if log.partial.is_none() => "empty so far".to_owned(),
        (true, count) if log.truncated => format!("the last {}", text::count(count, "line", "lines")),
        (true, count) => text::count(count, "line", "lines"),
    }
}

fn row((number, line): Line, search: LogSearch) -> AnyView {
    let class = match severity(&line) {
        Some(Severity::Error) => "log log--error",
        Some(Severity::Warning) => "log log--warning",
        _ => "log",
    };
    let is_current = Memo::new(move |_| search.current.get() == Some(number));
    let text = move || {
        let cut = search.query.with(|query| split_matches(&line, query));
        let piece = |(piece, hit): (String, bool)| match hit {
            true => view! { <mark>{piece}</mark> }.into_any(),
            false => view! { {piece} }.into_any(),
        };
        cut.into_iter().map(piece).collect_view()
    };
    view! { <div class=class class:is-here=is_current id=format!("log-{number}")>{move || text()}</div> }
        .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::request::Tail;

    #[test]
    fn a_running_job_that_writes_nothing_shows_for_how_long() {
        let mut log = Log::default();
        assert_eq!(state_text(&log, Some(1_000)), "loading");
        log.append(Tail { lines: vec!["step 1".into()], written_s: Some(1_000), ..Tail::default() });
        assert_eq!(state_text(&log, Some(1_020)), "1 line");
        assert_eq!(state_text(&log, Some(1_150)), "1 line, written 2 min ago");
        // An ended job writes no more, and a clock may be ahead.
        assert_eq!([state_text(&log, None), state_text(&log, Some(900))], ["1 line", "1 line"]);
    }
}
