//! A line of the list of what needs attention.

use super::finding_tools::FindingTools;
use super::silence::{self, SilenceButton, State};
use crate::describe::finding::{silenced_until, when};
use crate::domain::attention::{Entry, GpuTrace, Item};
use crate::domain::health::Health;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::state::attention;
use crate::state::page::Page;
use crate::view::charts::sparkline::spark_line;
use crate::view::scope::gpu_series;
use crate::view::widgets::capture::Stacks;
use crate::view::widgets::code_text::code_text;
use crate::view::widgets::dot::dot;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;

/// One item.
#[component]
pub fn Row(
    /// The item; `None` once it is gone.
    entry: Memo<Option<Entry>>,
    /// The store whose traces the sparkline shows.
    store: TopicStore,
    /// Whether the list is about one job, whose name need not be repeated.
    in_job: bool,
    /// Whether its evidence and advice are shown at first. A click on its line shows them, then where it is; one on the
    /// symbol at its end folds them again.
    is_open: bool,
) -> impl IntoView {
    let is_open = RwSignal::new(is_open);
    let page = Page::from_context();
    let attention = page.attention.clone();
    let unfold = move |event: web_sys::MouseEvent| {
        // With a modifier, the link opens in another tab.
        let is_plain = !event.ctrl_key() && !event.meta_key() && !event.shift_key();
        if is_plain && !is_open.get_untracked() {
            event.prevent_default();
            is_open.set(true);
        } else if is_plain
            && let Some(key) = entry.with_untracked(|entry| Some(entry.as_ref()?.item.key.clone()))
        {
            attention.visit(&key);
        }
    };
    let text = move |read: fn(&Item) -> String| {
        move || entry.with(|entry| entry.as_ref().map(|entry| read(&entry.item)))
    };
    let symbol = Memo::new(move |_| entry.with(|entry| symbol(entry.as_ref())));
    let href = {
        let page = page.clone();
        Memo::new(move |_| {
            let now_ms = page.wall_ms();
            let link = |entry: &Entry| attention::href(&entry.item, now_ms, |route| page.href(route));
            entry.with(|entry| entry.as_ref().map(link))
        })
    };
    let until_ms = silenced_until_ms(&page, entry);
    let link = NodeRef::new();
    let capture = Memo::new(move |_| entry.with(|entry| entry.as_ref()?.item.capture.clone()));
    let subject =
        (!in_job).then(|| view! { <b class="attention__subject">{text(|item| item.subject.clone())}</b> });
    let title =
        text(if in_job { |item| item.title.clone() } else { |item| without(&item.subject, &item.title) });
    let is_resolved = move || entry.with(|entry| entry.as_ref().is_none_or(|entry| entry.is_resolved));
    let tool = {
        let page = page.clone();
        Memo::new(move |_| {
            entry.with(|entry| tool_class(entry.as_ref(), until_ms.get().is_some(), page.is_owner()))
        })
    };
    let spark = Memo::new(move |_| entry.with(|entry| entry.as_ref().and_then(|entry| entry.item.spark())));
    let line = trace_line(&page, spark, store);
    let has_line = move || line.with(|line| line.as_ref().is_some_and(|line| line.starts_with('M')));
    view! {
        <li class=tool>
            <a class="attention__line" class:has-spark=has_line href=href node_ref=link class:is-folded=move || !is_open.get()
                aria-expanded=move || is_open.get().to_string() on:click=unfold class:is-resolved=is_resolved
                class:is-silenced=move || until_ms.get().is_some()>
                {move || symbol.with(dot)}
                {subject}
                <span class="attention__what">
                    <span>{title}</span>
                    {details(entry)}
                </span>
                <Spark spark line/>
                {since_and_cost(page, entry, until_ms)}
                <span class="attention__go" aria-hidden="true" on:click=move |event| fold(&event, is_open)>{move || if is_open.get() { "▾" } else { "▸" }}</span>
            </a>
            {dismiss_button(entry)}
            <SilenceButton entry until_ms link/>
            <Show when=move || is_open.get()><Stacks capture/> <FindingTools entry/></Show>
        </li>
    }
}

/// Folds an open line.
fn fold(event: &web_sys::MouseEvent, is_open: RwSignal<bool>) {
    if is_open.get_untracked() {
        event.prevent_default();
        event.stop_propagation();
        is_open.set(false);
    }
}

/// Returns when the silence of an item ends. An item that was just silenced keeps its place while the pointer or the
/// focus is in the list.
fn silenced_until_ms(page: &Page, entry: Memo<Option<Entry>>) -> Memo<Option<u64>> {
    let attention = page.attention.clone();
    Memo::new(move |_| {
        let key = entry.with(|entry| entry.as_ref().map(|entry| entry.item.key.clone()))?;
        let silenced = attention.silenced();
        silenced.with(|items| items.iter().find(|item| item.key == key)?.silenced_until_ms)
    })
}

/// The details below the title: the evidence, the positions, and the advice while the item is active.
fn details(entry: Memo<Option<Entry>>) -> AnyView {
    let evidence = Memo::new(move |_| {
        let evidence = entry.with(|entry| entry.as_ref().map(|entry| entry.item.evidence.clone()));
        evidence.filter(|evidence| !evidence.is_empty())
    });
    let positions =
        Memo::new(move |_| entry.with(|entry| entry.as_ref().map(|entry| entry.item.positions.clone())));
    let positions = move || {
        let lines = positions.get().unwrap_or_default().into_iter();
        lines.map(|line| small("attention__position", line)).collect_view()
    };
    let advice = Memo::new(move |_| {
        let advice = |entry: &Entry| entry.item.advice.clone();
        entry.with(|entry| entry.as_ref().filter(|entry| !entry.is_resolved).map(advice))
    });
    view! {
        {move || evidence.get().map(|evidence| small("attention__evidence", evidence))}
        {positions}
        {move || advice.get().map(|advice| view! {
            <small class="attention__advice" title=advice.clone()>"→ " {code_text(&advice)}</small>
        })}
    }
    .into_any()
}

/// When the item began and what it has cost, or until when it is silenced.
fn since_and_cost(page: Page, entry: Memo<Option<Entry>>, until_ms: Memo<Option<u64>>) -> AnyView {
    let since = move || match until_ms.get() {
        Some(until_ms) => Some(silenced_until(until_ms)),
        None => entry.with(|entry| entry.as_ref().map(|entry| when(&entry.item))),
    };
    let cost = Memo::new(move |_| {
        let now_ms = page.wall_ms();
        let entry = entry.get().filter(|_| until_ms.get().is_none());
        entry?.item.cost_text(now_ms)
    });
    view! {
        <span class="attention__since">
            <span>{since}</span>
            <small>{cost}</small>
        </span>
    }
    .into_any()
}

/// Returns a title without its subject, which the line has already: `Failed 2 times: out of memory`.
fn without(subject: &str, title: &str) -> String {
    let rest = title.strip_prefix(subject).and_then(|rest| rest.strip_prefix(' '));
    rest.map_or_else(|| title.to_owned(), text::capitalised)
}

/// A line below the title, whole as a tooltip where it is cut.
fn small(class: &'static str, line: String) -> AnyView {
    view! { <small class=class title=line.clone()>{line.clone()}</small> }.into_any()
}

/// Returns the symbol of an item.
fn symbol(entry: Option<&Entry>) -> Health {
    let current = entry.filter(|entry| !entry.is_resolved);
    let severity = current.map_or(Severity::Ended, |entry| entry.item.severity);
    let label = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        _ => "resolved",
    };
    Health::new(severity, label)
}

/// Returns the class that leaves room for a button beside the line.
fn tool_class(entry: Option<&Entry>, is_silenced: bool, is_owner: bool) -> &'static str {
    match silence::state(entry, is_silenced).filter(|_| is_owner) {
        Some(State::Silenced) => "attention__tool attention__tool--wide",
        Some(State::Listed) => "attention__tool",
        // It can be dismissed.
        None if entry.is_some_and(|entry| entry.item.is_past) => "attention__tool",
        None => "",
    }
}

/// Returns a GPU's trace over the last ten minutes as a path, if it has one.
fn trace_line(page: &Page, spark: Memo<Option<GpuTrace>>, store: TopicStore) -> Memo<Option<String>> {
    let page = page.clone();
    Memo::new(move |_| {
        let GpuTrace { node, gpu, field } = spark.get()?;
        let node = store.cell(&node)?;
        let cell = node.gpus().with(|gpus| gpus.iter().find(|cell| *cell.uuid() == gpu).cloned())?;
        Some(spark_line(&gpu_series(&page, &store, &node, &cell, field)))
    })
}

/// The trace of the GPU over the last ten minutes.
#[component]
fn Spark(spark: Memo<Option<GpuTrace>>, line: Memo<Option<String>>) -> impl IntoView {
    let hue = move || match spark.get().map(|spark| spark.field) {
        Some(GpuField::Power) => "stroke-power",
        _ => "stroke-util",
    };
    view! { <svg class="spark" viewBox="0 0 200 18" preserveAspectRatio="none" aria-hidden="true"><path class=hue d=line></path></svg> }
}

/// The button that removes an item of the past from the list.
fn dismiss_button(entry: Memo<Option<Entry>>) -> impl Fn() -> Option<AnyView> {
    let attention = Page::from_context().attention;
    let past = Memo::new(move |_| {
        entry.with(|entry| entry.as_ref().filter(|entry| entry.item.is_past).map(|entry| entry.item.clone()))
    });
    move || {
        let attention = attention.clone();
        past.get().map(|item| {
            let label = format!("Dismiss: {}, {}", item.subject, item.title);
            view! {
                <button class="attention__dismiss" title="Dismiss, in this browser" aria-label=label
                    on:click=move |_| attention.dismiss(&item.key)>"×"</button>
            }
            .into_any()
        })
    }
}
