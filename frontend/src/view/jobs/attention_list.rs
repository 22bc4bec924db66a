//! The list of what needs attention: one line per problem, worst first, each a link to where it shows.

use crate::domain::attention::{Entry, Item, Spark as SparkOf};
use crate::domain::health::Health;
use crate::domain::severity::Severity;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::attention;
use crate::state::page::Page;
use crate::view::charts::sparkline::spark_line;
use crate::view::scope::gpu_series;
use crate::view::widgets::dot::dot;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use std::sync::Arc;

/// Number of items that are shown until the list is unfolded; one more takes no more room than the button.
const FOLDED: usize = 5;

/// Returns how many of `count` items are behind the button.
fn folded(count: usize) -> usize {
    if count > FOLDED + 1 { count - FOLDED } else { 0 }
}

/// The list; nothing if there are no items.
#[component]
pub fn AttentionList(
    /// The items.
    entries: Memo<Arc<Vec<Entry>>>,
    /// The store whose traces the sparklines show.
    store: TopicStore,
    /// Whether it is about one job, whose name need not be repeated.
    #[prop(optional)]
    in_job: bool,
) -> impl IntoView {
    let page = Page::from_context();
    let unfolded = RwSignal::new(false);
    let count = Memo::new(move |_| entries.with(|entries| entries.len()));
    let keys = Memo::new(move |_| {
        entries.with(|entries| {
            let shown = entries.len() - if unfolded.get() { 0 } else { folded(entries.len()) };
            entries.iter().take(shown).map(|entry| entry.item.key.clone()).collect::<Vec<_>>()
        })
    });
    let worst = Memo::new(move |_| {
        entries.with(|entries| entries.iter().map(|entry| entry.item.severity).max().unwrap_or(Severity::Ok))
    });
    let some = Memo::new(move |_| count.get() > 0);
    let attention = page.attention.clone();
    let (dismissed, restorer) = (attention.dismissed(), attention.clone());
    let restore = move || {
        let attention = restorer.clone();
        (!in_job && dismissed.get() > 0).then(|| {
            let label = move || format!("Show {} dismissed", dismissed.get());
            view! { <button class="attention__more attention__restore" on:click=move |_| attention.restore()>{label}</button> }
                .into_any()
        })
    };
    on_cleanup({
        let attention = attention.clone();
        move || attention.hold(false)
    });
    let hold = move |is_held: bool| {
        let attention = attention.clone();
        move || attention.hold(is_held)
    };
    let (enter, leave, focus, blur) = (hold(true), hold(false), hold(true), hold(false));
    let row = move |key: String| view! { <Row key entries store=store.clone() in_job/> }.into_any();
    let more = move || {
        let rest = folded(count.get());
        (rest > 0).then(|| {
            let label = if unfolded.get() { "Show fewer".to_owned() } else { format!("+ {rest} more") };
            view! { <button class="attention__more" on:click=move |_| unfolded.update(|open| *open = !*open)>{label}</button> }
                .into_any()
        })
    };
    move || {
        let (row, more, restore) = (row.clone(), more, restore.clone());
        let (enter, leave, focus, blur) = (enter.clone(), leave.clone(), focus.clone(), blur.clone());
        if !some.get() {
            return view! { {restore} }.into_any();
        }
        {
            view! {
                <section
                    class="attention"
                    class:attention--job=in_job
                    aria-label="Needs attention"
                    on:pointerenter=move |_| enter()
                    on:pointerleave=move |_| leave()
                    on:focusin=move |_| focus()
                    on:focusout=move |_| blur()
                >
                    <h2><i class=move || worst.get().class() aria-hidden="true"></i> "Needs attention " <small>"(" {move || count.get()} ")"</small></h2>
                    <ul><For each=move || keys.get() key=String::clone children=row/></ul>
                    {more}
                    {restore}
                </section>
            }
            .into_any()
        }
    }
}

/// One item.
#[component]
fn Row(key: String, entries: Memo<Arc<Vec<Entry>>>, store: TopicStore, in_job: bool) -> impl IntoView {
    let page = Page::from_context();
    let entry = Memo::new(move |_| {
        entries.with(|entries| entries.iter().find(|entry| entry.item.key == key).cloned())
    });
    let text = move |read: fn(&Item) -> String| {
        move || entry.with(|entry| entry.as_ref().map(|entry| read(&entry.item)))
    };
    let symbol = Memo::new(move |_| {
        entry.with(|entry| {
            let current = entry.as_ref().filter(|entry| !entry.is_over);
            let severity = current.map_or(Severity::Ended, |entry| entry.item.severity);
            let label = match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                _ => "over",
            };
            Health::new(severity, label)
        })
    });
    let href = {
        let page = page.clone();
        move || {
            entry.with(|entry| {
                entry.as_ref().map(|entry| attention::href(&entry.item, |route| page.href(route)))
            })
        }
    };
    let spark =
        Memo::new(move |_| entry.with(|entry| entry.as_ref().and_then(|entry| entry.item.spark.clone())));
    let line = {
        let page = page.clone();
        move || {
            let SparkOf { node, gpu, field } = spark.get()?;
            let node = store.cell(&node)?;
            let cell = node.gpus().with(|gpus| gpus.iter().find(|cell| *cell.uuid() == gpu).cloned())?;
            Some(spark_line(&gpu_series(&page, &store, &node, &cell, field)))
        }
    };
    let hue = move || match spark.get().map(|spark| spark.field) {
        Some(GpuField::Power) => "stroke-power",
        _ => "stroke-util",
    };
    let since = {
        let page = page.clone();
        Memo::new(move |_| {
            let since = entry.with(|entry| entry.as_ref()?.item.since)?;
            let ago_s = page.now_ms().saturating_sub(since.at_ms) / 1_000;
            let at = platform::time_of_day(page.wall_s() - ago_s.cast_signed());
            Some(if since.or_earlier { format!("before {at}") } else { format!("since {at}") })
        })
    };
    let attention = page.attention.clone();
    let cost = Memo::new(move |_| {
        let now_ms = page.now_ms();
        entry.with(|entry| entry.as_ref()?.item.cost_text(now_ms))
    });
    let dismiss = {
        let past = Memo::new(move |_| {
            entry.with(|entry| {
                entry.as_ref().filter(|entry| entry.item.is_past).map(|entry| entry.item.clone())
            })
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
    };
    let subject =
        (!in_job).then(|| view! { <b class="attention__subject">{text(|item| item.subject.clone())}</b> });
    view! {
        <li>
            <a href=href class:is-over=move || entry.with(|entry| entry.as_ref().is_none_or(|entry| entry.is_over))>
                {move || symbol.with(dot)}
                {subject}
                <span class="attention__what">
                    <span>{text(|item| item.title.clone())}</span>
                    <small>{text(|item| item.detail.clone())}</small>
                </span>
                <svg class="spark" viewBox="0 0 200 18" preserveAspectRatio="none" aria-hidden="true"><path class=hue d=line></path></svg>
                <span class="attention__since">
                    <span>{move || since.get()}</span>
                    <small>{move || cost.get()}</small>
                </span>
                <span class="attention__go" aria-hidden="true">"›"</span>
            </a>
            {dismiss}
        </li>
    }
}
