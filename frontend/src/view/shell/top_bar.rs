//! The top bar: whose cluster this is, and the page's buttons.

use crate::describe::share::guests;
use crate::domain::route::Route;
use crate::state::page::{Page, ShareSheetView};
use crate::view::sheets::share_list::sharing;
use leptos::prelude::*;
use nodeglass_protocol::Text;
use nodeglass_protocol::live::Mode;

/// Maximum number of clusters that the top bar names.
const MAX_NAMED: usize = 3;

/// The top bar.
#[component]
pub fn TopBar() -> impl IntoView {
    let page = Page::from_context();
    let (help, drawer) = (page.help, page.drawer);
    let (finder, settings_open) = (page.command_palette, page.settings_open);
    let fleet = page.fleet.clone();
    let found = Memo::new(move |_| {
        let overview = fleet.overview();
        overview.relay().track();
        overview.read(|picture| picture.relay.clusters.clone())
    });
    let fleet = page.fleet.clone();
    let title = move || {
        fleet.welcome().map(|welcome| {
            let cluster = match found.with(|found| clusters_text(found)) {
                Some(found) => format!(" · {found}"),
                None => welcome.cluster.as_ref().map(|name| format!(" · cluster {name}")).unwrap_or_default(),
            };
            let mode = match welcome.mode {
                Mode::Slurm | Mode::Hosts => "",
                Mode::Local => " · this machine, no SLURM",
                Mode::Demo => " · demo, a simulated cluster",
            };
            match &welcome.person {
                Some(person) => format!("signed in as {person} · {}{cluster}{mode}", welcome.host),
                None => format!("{} @ {}{cluster}{mode}", welcome.user, welcome.host),
            }
        })
    };
    view! {
        <header class="top">
            <button class="btn top__drawer" aria-label="Jobs" aria-expanded=move || drawer.get().to_string()
                on:click=move |_| drawer.update(|open| *open = !*open)>"☰"</button>
            <a class="brand" href=page.href(&Route::AllJobs) aria-label="nodeglass: all jobs">
                <svg viewBox="0 0 18 18" fill="none" stroke="currentColor" stroke-width="1.6" aria-hidden="true">
                    <rect x="2" y="2" width="14" height="14" rx="3.2"></rect>
                    <path class="brand__line" d="M5 11.5 7.6 8l2.3 2.4L13 6"></path>
                </svg>
                "nodeglass"
            </a>
            <span class="top__whose" title=move || found.with(|found| unnamed_clusters(found))>{move || title()}</span>
            <span class="spring"></span>
            <Shares/>
            <button class="btn" title="Search jobs, nodes, ranks, PIDs, commands (Ctrl K)" on:click=move |_| finder.set(true)>
                <span class="top__icon top__icon--find" aria-hidden="true">"⌕"</span> <span class="hide-s">"Find "</span> <kbd>"Ctrl"</kbd> " " <kbd>"K"</kbd>
            </button>
            <button class="btn" title="Settings (S)" aria-label="Settings" on:click=move |_| settings_open.set(true)>
                <span class="top__icon" aria-hidden="true">"⚙\u{fe0e}"</span> <span class="hide-s">"Settings"</span>
            </button>
            <button class="btn" title="Help (?)" aria-label="Help" on:click=move |_| help.update(|open| *open = !*open)>"?"</button>
        </header>
    }
}

/// The clusters of a view-only relay: few by their names, many by their number.
fn clusters_text(found: &[Text]) -> Option<String> {
    match found {
        [] => None,
        [one] => Some(format!("cluster {one}")),
        few if few.len() <= MAX_NAMED => Some(format!("clusters {}", names(few))),
        many => Some(format!("{} clusters", many.len())),
    }
}

/// The names of all clusters where only their number is shown.
fn unnamed_clusters(found: &[Text]) -> Option<String> {
    (found.len() > MAX_NAMED).then(|| names(found))
}

fn names(clusters: &[Text]) -> String {
    clusters.iter().map(Text::as_str).collect::<Vec<_>>().join(", ")
}

/// The owner's button to share, and the number of viewers, if there are any.
#[component]
fn Shares() -> impl IntoView {
    let page = Page::from_context();
    let (open, sharing) = (page.sharing, sharing(&page));
    let watching = Memo::new(move |_| sharing.with(guests));
    let indicator = move || {
        let count = watching.get();
        (count > 0).then(|| {
            view! {
                <button class="btn top__watching" title="Viewers" on:click=move |_| open.set(Some(ShareSheetView::Viewers))>
                    "◉ " {count.to_string()} <span class="hide-s">" watching"</span>
                </button>
            }.into_any()
        })
    };
    let share = move || {
        page.is_owner().then(|| {
            view! {
                <button class="btn" title="Share what you see (s)" aria-label="Share" on:click=move |_| open.set(Some(ShareSheetView::Create))>
                    <span class="top__icon" aria-hidden="true">"↗\u{fe0e}"</span> <span class="hide-s">"Share"</span>
                </button>
            }.into_any()
        })
    };
    view! { {move || indicator()} {move || share()} }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_clusters_are_named_and_many_are_counted() {
        let found: Vec<Text> = ["bio", "hpc", "ml", "test"].map(Text::from).into();
        let shown = |count: usize| (clusters_text(&found[..count]), unnamed_clusters(&found[..count]));
        assert_eq!(shown(0), (None, None));
        assert_eq!(shown(1), (Some("cluster bio".into()), None));
        assert_eq!(shown(3), (Some("clusters bio, hpc, ml".into()), None));
        assert_eq!(shown(4), (Some("4 clusters".into()), Some("bio, hpc, ml, test".into())));
    }
}
