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
    let attention = page.attention.clone();
    let (dismissed, restorer) = (attention.dismissed(), attention.clone());
    let resolved = attention.resolved();
    let history = RwSignal::new(false);
    let past_count = Memo::new(move |_| if in_job { 0 } else { resolved.with(|items| items.len()) });
    let past_keys = Memo::new(move |_| {
        let is_shown = history.get() && past_count.get() > 0;
        resolved.with(|items| {
            let keys = items.iter().filter(|_| is_shown).map(|item| item.key.clone());
            keys.collect::<Vec<_>>()
        })
    });
    let some = Memo::new(move |_| count.get() > 0 || !in_job && history.get() && past_count.get() > 0);
    let past = move || {
        let count = past_count.get();
        (count > 0).then(|| {
            let label = move || {
                let verb = if history.get() { "Hide" } else { "Show" };
                format!("{verb} {count} resolved within the last hour")
            };
            view! {
                <button class="attention__more attention__restore" aria-expanded=move || history.get().to_string()
                    on:click=move |_| history.update(|open| *open = !*open)>{label}</button>
            }
            .into_any()
        })
    };
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
    let past_store = store.clone();
    let find =
        move |key: &str| entries.with(|entries| entries.iter().find(|entry| entry.item.key == key).cloned());
    let row = move |key: String| {
        let entry = Memo::new(move |_| find(&key));
        view! { <Row entry store=store.clone() in_job/> }.into_any()
    };
    let find_past = move |key: &str| {
        let item = resolved.with(|items| items.iter().find(|item| item.key == key).cloned());
        item.map(|item| Entry { item, is_over: true })
    };
    let past_row = move |key: String| {
        let entry = Memo::new(move |_| find_past(&key));
        view! { <Row entry store=past_store.clone() in_job/> }.into_any()
    };
    let more = move || {
        let rest = folded(count.get());
        (rest > 0).then(|| {
            let label = if unfolded.get() { "Show fewer".to_owned() } else { format!("+ {rest} more") };
            view! { <button class="attention__more" on:click=move |_| unfolded.update(|open| *open = !*open)>{label}</button> }
                .into_any()
        })
    };
    move || {
        let (row, past_row, restore) = (row.clone(), past_row.clone(), restore.clone());
        let (enter, leave, focus, blur) = (enter.clone(), leave.clone(), focus.clone(), blur.clone());
        if !some.get() {
            return view! { {past} {restore} }.into_any();
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
                    {past}
                    <ul><For each=move || past_keys.get() key=String::clone children=past_row/></ul>
                    {restore}
                </section>
            }
            .into_any()
        }
    }
}

/// Returns when something began, or from when to when it lasted: `since 14:02`, `14:02 – 14:20`.
fn when(item: &Item) -> String {
    let at = |at_ms: u64| platform::time_of_day((at_ms / 1_000).cast_signed());
    let since = at(item.since.at_ms);
    match item.ended_ms {
        Some(ended_ms) => format!("{since} – {}", at(ended_ms)),
        None if item.is_past => format!("at {since}"),
        None if item.since.or_earlier => format!("before {since}"),
        None => format!("since {since}"),
    }
}

/// One item.
#[component]
fn Row(entry: Memo<Option<Entry>>, store: TopicStore, in_job: bool) -> impl IntoView {
    let page = Page::from_context();
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
    let since = move || entry.with(|entry| entry.as_ref().map(|entry| when(&entry.item)));
    let attention = page.attention.clone();
    let cost = Memo::new(move |_| {
        let now_ms = u64::try_from(page.wall_s()).unwrap_or_default() * 1_000;
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
    let stands =
        Memo::new(move |_| entry.with(|entry| entry.as_ref().map(|entry| entry.item.stands.clone())));
    let stands = move || {
        let lines = stands.get().unwrap_or_default().into_iter();
        lines
            .map(|line| view! { <small class="attention__stand" title=line.clone()>{line.clone()}</small> })
            .collect_view()
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
                    {stands}
                </span>
                <svg class="spark" viewBox="0 0 200 18" preserveAspectRatio="none" aria-hidden="true"><path class=hue d=line></path></svg>
                <span class="attention__since">
                    <span>{since}</span>
                    <small>{move || cost.get()}</small>
                </span>
                <span class="attention__go" aria-hidden="true">"›"</span>
            </a>
            {dismiss}
        </li>
    }
}
