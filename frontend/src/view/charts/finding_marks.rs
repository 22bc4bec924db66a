//! The findings of a graph: above it a line each from its start to its end or to now, with the shape of its severity.

use crate::chart::{SpanMark, Window, holds_at, span_mark};
use crate::describe::finding::in_graph;
use crate::domain::attention::Item;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;
use nodeglass_protocol::GpuUuid;

/// Maximum number of findings in a tooltip.
const NAMED: usize = 2;

/// The only GPU whose findings are marked; a context of the graphs that show it alone.
#[derive(Clone)]
pub struct MarkedGpu(pub GpuUuid);

/// The marks of the findings in view. Each is moved by a transform alone, which costs no layout.
#[component]
pub fn FindingMarks(
    /// The steps.
    window: Memo<Window>,
) -> impl IntoView {
    let page = Page::from_context();
    let marked = page.marked;
    let only = use_context::<MarkedGpu>();
    let keys = Memo::new(move |_| {
        let is_here = |item: &&Item| only.as_ref().is_none_or(|MarkedGpu(gpu)| item.concerns(gpu));
        marked.with(|items| items.iter().filter(is_here).map(|item| item.key.clone()).collect::<Vec<_>>())
    });
    let one = move |key: String| {
        let page = page.clone();
        let item =
            Memo::new(move |_| marked.with(|items| items.iter().find(|item| item.key == key).cloned()));
        let mark = Memo::new(move |_| {
            let (from_ms, to_ms) = item.with(|item| item.as_ref().map(|item| span_ms(&page, item)))?;
            span_mark(&window.get(), from_ms, to_ms)
        });
        let severity = Memo::new(move |_| item.with(|item| item.as_ref().map_or(Severity::Ended, severity)));
        view! { <Mark mark severity/> }
    };
    view! {
        <span class="stage__veil stage__findings" aria-hidden="true">
            <For each=move || keys.get() key=String::clone children=one/>
        </span>
    }
}

/// One mark.
#[component]
fn Mark(mark: Memo<Option<SpanMark>>, severity: Memo<Severity>) -> impl IntoView {
    let percent = |share: f64| text::tenths(share * 100.0);
    let line = move || {
        let SpanMark { left, right, .. } = mark.get()?;
        Some(format!("translateX({}%) scaleX({})", percent(left), text::share(right - left)))
    };
    // Whole at both edges.
    let shape = move || {
        let left = mark.get()?.left;
        Some(format!("translateX(min({}%, calc(100% - 10px)))", percent(left)))
    };
    let end = move || {
        let mark = mark.get().filter(|mark| mark.ends)?;
        Some(format!("translateX({}%)", percent(mark.right)))
    };
    let is_hidden = move || mark.get().is_none();
    view! {
        <i class=move || format!("stage__finding {}", severity.get().text_class()) hidden=is_hidden>
            <i class="stage__line" style:transform=line></i>
            <i class="stage__shape" style:transform=shape><i class=move || severity.get().class()></i></i>
            <i class="stage__end" hidden=move || end().is_none() style:transform=end></i>
        </i>
    }
}

/// Returns the severity of a mark: an ended finding is not a warning any more.
fn severity(item: &Item) -> Severity {
    if item.ended_ms.is_some() { Severity::Ended } else { item.severity }
}

/// Returns the start of an item and its end, if it has one, in ms of the relay's clock. An event ends at once.
fn span_ms(page: &Page, item: &Item) -> (i64, Option<i64>) {
    // The clocks are known with the first message.
    page.fleet.welcome();
    let ahead_ms = page.fleet.wall_ahead_ms();
    let relay_ms = |at_ms: u64| at_ms.cast_signed().saturating_sub(ahead_ms);
    let from_ms = relay_ms(item.since.at_ms);
    (from_ms, if item.kind.is_event() { Some(from_ms) } else { item.ended_ms.map(relay_ms) })
}

/// Returns what was found at a moment, about the highlighted GPU if there is one: a line each, the worst first.
pub fn sentences(time: &Time, window: &Window, at_ms: u64) -> Vec<String> {
    let (page, highlighted) = (time.page(), time.highlighted());
    let is_here = |item: &&Item| {
        let (from_ms, to_ms) = span_ms(page, item);
        holds_at(window, from_ms, to_ms, at_ms)
            && highlighted.as_ref().is_none_or(|gpu_ref| item.concerns(&gpu_ref.gpu))
    };
    page.marked.with(|items| {
        let here: Vec<&Item> = items.iter().rev().filter(is_here).collect();
        let more = here.len().saturating_sub(NAMED);
        let named = here.iter().take(NAMED).map(|item| in_graph(item));
        let more = (more > 0).then(|| format!("and {}", text::count(more, "more finding", "more findings")));
        named.chain(more).collect()
    })
}
