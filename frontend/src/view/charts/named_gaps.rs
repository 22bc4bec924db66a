//! Marks the times in which no relay ran, and those before a job started, so that a gap in a graph has a name.

use crate::chart::Window;
use crate::domain::text;
use crate::fleet::FleetStore;
use crate::state::page::Page;
use crate::state::time::Time;
use leptos::prelude::*;
use nodeglass_protocol::live::Downtime;

/// A narrower mark, as a share of the graph's width, has no label.
const LABEL_WIDTH: f64 = 0.12;

/// The times without readings within a window that have a name.
#[component]
pub fn NamedGaps(
    /// The steps.
    window: Memo<Window>,
) -> impl IntoView {
    let page = Time::from_context().page().clone();
    let marks = Memo::new(move |_| {
        let window = window.get();
        let placed = |(span, name): (Downtime, &'static str)| Some((placed(&window, &span)?, name));
        gaps(&page).into_iter().filter_map(placed).collect::<Vec<_>>()
    });
    let mark = |((left, width), name): ((f64, f64), &'static str)| {
        let percent = |share: f64| format!("{}%", text::tenths(share * 100.0));
        let label = (width >= LABEL_WIDTH).then(|| view! { <span>{name}</span> });
        view! { <i class="stage__gap" style:left=percent(left) style:width=percent(width)>{label}</i> }
    };
    move || {
        let marks = marks.get();
        (!marks.is_empty()).then(|| {
            view! { <span class="stage__veil">{marks.into_iter().map(mark).collect_view()}</span> }.into_any()
        })
    }
}

/// Returns a sentence about a moment at which no relay ran, or the job had not started.
pub fn sentence(time: &Time, at_ms: u64) -> Option<String> {
    if time.page().started_ms.get().is_some_and(|started_ms| at_ms < started_ms) {
        return Some("the job had not started".to_owned());
    }
    let all = downtimes(&time.page().fleet);
    let Downtime { from_ms, to_ms } = *all.iter().find(|span| (span.from_ms..span.to_ms).contains(&at_ms))?;
    let span_s = to_ms.saturating_sub(from_ms) / 1_000;
    let clock = |at_ms| time.axis_clock(at_ms, span_s.max(3_600));
    Some(format!("no relay was running, {} – {}", clock(from_ms), clock(to_ms)))
}

fn gaps(page: &Page) -> Vec<(Downtime, &'static str)> {
    let started_ms = page.started_ms.get().unwrap_or_default();
    let of_job = |span: Downtime| Downtime { from_ms: span.from_ms.max(started_ms), ..span };
    let downtimes = downtimes(&page.fleet).into_iter().map(|span| (of_job(span), "relay not running"));
    downtimes.chain([(Downtime { from_ms: 0, to_ms: started_ms }, "before the job")]).collect()
}

fn downtimes(fleet: &FleetStore) -> Vec<Downtime> {
    fleet.welcome().map_or_else(Vec::new, |welcome| welcome.downtimes.clone())
}

/// Returns the left edge and the width of a downtime, as shares of a window; `None` if it is not within it.
fn placed(window: &Window, downtime: &Downtime) -> Option<(f64, f64)> {
    let (start_ms, end_ms) = (window.start_ms(), window.end_ms());
    let from_ms = downtime.from_ms.clamp(start_ms, end_ms);
    let to_ms = downtime.to_ms.clamp(start_ms, end_ms);
    let share = |ms: u64| ms as f64 / (end_ms - start_ms).max(1) as f64;
    (to_ms > from_ms).then(|| (share(from_ms - start_ms), share(to_ms - from_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_downtime_is_cut_to_the_window() {
        let window = Window::over(1_000_000, 100_000, 100);
        let placed = |from_ms, to_ms| placed(&window, &Downtime { from_ms, to_ms });
        assert_eq!(placed(950_000, 975_000), Some((0.5, 0.25)));
        assert_eq!(placed(0, 925_000), Some((0.0, 0.25)));
        assert_eq!(placed(975_000, 2_000_000), Some((0.75, 0.25)));
        assert_eq!((placed(0, 900_000), placed(1_000_000, 1_100_000)), (None, None));
    }
}
