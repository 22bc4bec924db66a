//! The list of what needs attention: one line per problem, worst first, each a link to where and when it shows.

use super::attention_row::Row;
use crate::domain::attention::{Entry, Item};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::attention::Attention;
use crate::state::page::Page;
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::job::Job;
use std::sync::Arc;

/// Maximum number of items of a list that is not folded: a button that hides one is not worth its line.
const MAX_UNFOLDED: usize = 4;
/// Number of items of a folded list.
const FOLDED: usize = 3;
/// Height of the viewport, in pixels, from which the first item initially shows its evidence and advice.
pub const TALL_PX: f64 = 800.0;

/// Returns how many of `count` items are behind the button.
fn folded(count: usize) -> usize {
    if count > MAX_UNFOLDED { count - FOLDED } else { 0 }
}

/// The list; empty without items.
#[component]
pub fn AttentionList(
    /// The items.
    entries: Memo<Arc<Vec<Entry>>>,
    /// The silenced items.
    silenced: Memo<Arc<Vec<Item>>>,
    /// The store whose traces the sparklines show.
    store: TopicStore,
    /// Whether it is about one job, whose name need not be repeated.
    #[prop(optional)]
    in_job: bool,
    /// The only node that it is about, with any jobs.
    #[prop(optional, into)]
    node: Option<NodeName>,
    /// The only jobs that it is about.
    #[prop(optional, into)]
    jobs: Option<Memo<Vec<Job>>>,
) -> impl IntoView {
    let attention = Page::from_context().attention;
    let is_open = RwSignal::new(false);
    let is_overview = !in_job && node.is_none() && jobs.is_none();
    let (entries, silenced, resolved) = match (node, jobs) {
        (Some(node), _) => of_node(&attention, node),
        (_, Some(jobs)) => of_jobs(&attention, jobs),
        _ => (entries, silenced, attention.resolved()),
    };
    let resolved_count = Memo::new(move |_| if in_job { 0 } else { resolved.with(|items| items.len()) });
    let is_silenced_open = RwSignal::new(false);
    let silenced_count = Memo::new(move |_| silenced.with(|items| items.len()));
    let shows_silenced = Memo::new(move |_| is_silenced_open.get() && silenced_count.get() > 0);
    let shows_resolved = Memo::new(move |_| is_open.get() && resolved_count.get() > 0);
    let has_rows = Memo::new(move |_| {
        entries.with(|entries| !entries.is_empty()) || shows_resolved.get() || shows_silenced.get()
    });
    on_cleanup({
        let attention = attention.clone();
        move || attention.hold(false)
    });
    move || {
        let quiet = silenced_button(is_silenced_open, silenced_count);
        let ended = resolved_button(is_open, resolved_count);
        let restore = restore_button(&attention, is_overview);
        if !has_rows.get() {
            return view! { {quiet} {ended} {restore} }.into_any();
        }
        let inside = view! {
            <Heading entries/>
            <Current entries store=store.clone() in_job/>
            {quiet}
            <Others items=silenced store=store.clone() in_job is_resolved=false is_shown=shows_silenced/>
            {ended}
            <Others items=resolved store=store.clone() in_job is_resolved=true is_shown=shows_resolved/>
            {restore}
        };
        held_section(&attention, in_job, inside.into_any())
    }
}

/// The current, silenced and resolved items.
type Items = (Memo<Arc<Vec<Entry>>>, Memo<Arc<Vec<Item>>>, Memo<Arc<Vec<Item>>>);

/// Returns the items that affect a node, of any job; not how jobs ended there.
fn of_node(attention: &Attention, node: NodeName) -> Items {
    // The notice of the node states these, with the way to try again.
    let is_stated = |item: &Item| {
        matches!(item.kind, FindingKind::NodeUnreachable | FindingKind::LoginRefused | FindingKind::NoGpu)
    };
    selected(attention, move |item| !item.is_past && !is_stated(item) && item.nodes.contains(&node))
}

/// Returns the items about some jobs.
fn of_jobs(attention: &Attention, jobs: Memo<Vec<Job>>) -> Items {
    selected(attention, move |item| jobs.with(|jobs| jobs.iter().any(|job| item.jobs.contains(&job.id))))
}

/// Returns the items that are as `is_meant` says.
fn selected(
    attention: &Attention,
    is_meant: impl Fn(&Item) -> bool + Clone + Send + Sync + 'static,
) -> Items {
    let of = |items: Memo<Arc<Vec<Item>>>| {
        let is_meant = is_meant.clone();
        Memo::new(move |_| {
            items.with(|items| {
                Arc::new(items.iter().filter(|item| is_meant(item)).cloned().collect::<Vec<_>>())
            })
        })
    };
    let (silenced, resolved) = (of(attention.silenced()), of(attention.resolved()));
    let entries = attention.entries();
    let entries = Memo::new(move |_| {
        let is_meant = |entry: &&Entry| is_meant(&entry.item);
        entries.with(|entries| Arc::new(entries.iter().filter(is_meant).cloned().collect::<Vec<_>>()))
    });
    (entries, silenced, resolved)
}

/// The section of the list, which keeps its rows in place while the pointer or the focus is in it.
fn held_section(attention: &Attention, in_job: bool, inside: AnyView) -> AnyView {
    let hold = |is_held: bool| {
        let attention = attention.clone();
        move || attention.hold(is_held)
    };
    let (enter, leave, focus, blur) = (hold(true), hold(false), hold(true), hold(false));
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
            {inside}
        </section>
    }
    .into_any()
}

/// The heading, with the symbol of the worst item.
#[component]
fn Heading(entries: Memo<Arc<Vec<Entry>>>) -> impl IntoView {
    // What ended or was silenced keeps its place for a while, and does not count.
    let lasting = move |entries: &Arc<Vec<Entry>>| {
        let lasting = entries.iter().filter(|entry| !entry.is_resolved);
        (lasting.clone().map(|entry| entry.item.severity).max().unwrap_or(Severity::Ok), lasting.count())
    };
    let worst = Memo::new(move |_| entries.with(lasting).0);
    let count = move || entries.with(lasting).1;
    view! { <h2><i class=move || worst.get().class() aria-hidden="true"></i> "Needs attention " <small>"(" {count} ")"</small></h2> }
}

/// The current items, and the button that unfolds them.
#[component]
fn Current(entries: Memo<Arc<Vec<Entry>>>, store: TopicStore, in_job: bool) -> impl IntoView {
    let is_unfolded = RwSignal::new(false);
    let count = Memo::new(move |_| entries.with(|entries| entries.len()));
    let keys = Memo::new(move |_| {
        let shown = count.get() - if is_unfolded.get() { 0 } else { folded(count.get()) };
        entries.with(|entries| {
            entries.iter().take(shown).map(|entry| entry.item.key.clone()).collect::<Vec<_>>()
        })
    });
    let is_tall = platform::height() >= TALL_PX;
    let row = move |key: String| {
        // The worst one is open. It stays so when another one becomes worse: nothing closes under the pointer.
        let is_first =
            entries.with_untracked(|entries| entries.first().is_some_and(|first| first.item.key == key));
        let find =
            move |entries: &Arc<Vec<Entry>>| entries.iter().find(|entry| entry.item.key == key).cloned();
        let entry = Memo::new(move |_| entries.with(&find));
        view! { <Row entry store=store.clone() in_job is_open={is_first && (in_job || is_tall)}/> }.into_any()
    };
    let folded_failures = Memo::new(move |_| {
        let shown = count.get() - folded(count.get());
        entries.with(|entries| {
            let failures = entries.iter().skip(shown).filter(|entry| entry.item.is_past);
            failures.map(|entry| entry.item.jobs.len().max(1)).sum::<usize>()
        })
    });
    let more = move || {
        let rest = folded(count.get());
        (rest > 0).then(|| {
            let label = if is_unfolded.get() {
                "Show fewer".to_owned()
            } else {
                more_label(rest, folded_failures.get())
            };
            view! { <button class="attention__more" on:click=move |_| is_unfolded.update(|open| *open = !*open)>{label}</button> }
                .into_any()
        })
    };
    view! {
        <ul><For each=move || keys.get() key=String::clone children=row/></ul>
        {more}
    }
}

/// The label of the button that unfolds `count` items, some of which are jobs that failed: these are not to be missed
/// because running jobs have errors.
fn more_label(count: usize, failures: usize) -> String {
    match failures {
        0 => format!("+ {count} more"),
        _ => format!("+ {count} more, {} failed", text::count(failures, "job", "jobs")),
    }
}

/// Items that are silenced or ended within the last hour, while they are shown.
#[component]
fn Others(
    items: Memo<Arc<Vec<Item>>>,
    store: TopicStore,
    in_job: bool,
    is_resolved: bool,
    is_shown: Memo<bool>,
) -> impl IntoView {
    let keys = Memo::new(move |_| {
        let is_shown = is_shown.get();
        items.with(|items| items.iter().filter(|_| is_shown).map(|item| item.key.clone()).collect::<Vec<_>>())
    });
    let row = move |key: String| {
        let find = move |items: &Arc<Vec<Item>>| {
            let item = items.iter().find(|item| item.key == key).cloned();
            item.map(|item| Entry { item, is_resolved })
        };
        let entry = Memo::new(move |_| items.with(&find));
        view! { <Row entry store=store.clone() in_job is_open=false/> }.into_any()
    };
    view! { <ul><For each=move || keys.get() key=String::clone children=row/></ul> }
}

/// The line that unfolds silenced items, if any.
fn silenced_button(is_open: RwSignal<bool>, count: Memo<usize>) -> impl Fn() -> Option<AnyView> + Clone {
    move || {
        let count = count.get();
        (count > 0).then(|| {
            let mark = move || if is_open.get() { "▾" } else { "▸" };
            view! {
                <button class="attention__more attention__restore attention__silenced" aria-expanded=move || is_open.get().to_string()
                    on:click=move |_| is_open.update(|open| *open = !*open)><span aria-hidden="true">{mark}</span> {count} " silenced"</button>
            }
            .into_any()
        })
    }
}

/// The button that shows what ended; nothing if nothing did.
fn resolved_button(is_open: RwSignal<bool>, count: Memo<usize>) -> impl Fn() -> Option<AnyView> + Clone {
    move || {
        let count = count.get();
        (count > 0).then(|| {
            let label = move || {
                let verb = if is_open.get() { "Hide" } else { "Show" };
                format!("{verb} {count} resolved within the last hour")
            };
            view! {
                <button class="attention__more attention__restore" aria-expanded=move || is_open.get().to_string()
                    on:click=move |_| is_open.update(|open| *open = !*open)>{label}</button>
            }
            .into_any()
        })
    }
}

/// The button that lists dismissed items again, if any.
fn restore_button(attention: &Attention, is_overview: bool) -> impl Fn() -> Option<AnyView> + Clone + use<> {
    let attention = attention.clone();
    move || {
        let (attention, dismissed) = (attention.clone(), attention.dismissed());
        (is_overview && dismissed.get() > 0).then(|| {
            let label = move || format!("Show {} dismissed", dismissed.get());
            view! { <button class="attention__more attention__restore" on:click=move |_| attention.restore()>{label}</button> }
                .into_any()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_button_that_unfolds_the_list_names_failed_jobs_among_the_rest() {
        assert_eq!(more_label(4, 0), "+ 4 more");
        assert_eq!(more_label(4, 1), "+ 4 more, 1 job failed");
        assert_eq!(more_label(9, 2), "+ 9 more, 2 jobs failed");
    }
}
