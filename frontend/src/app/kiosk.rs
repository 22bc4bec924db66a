//! Kiosk mode: hides bars and pointer, and rotates through the jobs.

use crate::domain::query::KIOSK;
use crate::domain::route::{JobTab, Route};
use crate::platform;
use crate::state::page::Page;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;

/// Time per route unless the URL sets one, in s.
const DEFAULT_INTERVAL_S: u32 = 20;
/// The value that disables the rotation.
const NO_ROTATION: u32 = 0;

/// Hides bars and pointer while the URL contains `?kiosk`.
pub fn hide_controls(page: &Page) {
    let on = page.address.has_query(KIOSK);
    platform::effect(move || platform::set_root_attribute("data-kiosk", on.get().then_some("")));
}

/// Rotates through the jobs: `?kiosk`, `?kiosk=60` for a minute each, `?kiosk=0` to stay.
pub fn rotate(page: &Page) {
    let (on, interval_text) = (page.address.has_query(KIOSK), page.address.query(KIOSK));
    let interval_s = Memo::new(move |_| {
        let seconds = interval_text.get().map_or(Some(DEFAULT_INTERVAL_S), |text| text.parse().ok());
        if on.get() { seconds.unwrap_or(DEFAULT_INTERVAL_S) } else { NO_ROTATION }
    });
    let page = page.clone();
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        let mut shown_s = 0;
        loop {
            TimeoutFuture::new(1_000).await;
            let interval_s = interval_s.get_untracked();
            shown_s = if interval_s == NO_ROTATION { 0 } else { shown_s + 1 };
            if interval_s != NO_ROTATION && shown_s >= interval_s {
                shown_s = 0;
                let routes = untrack(|| routes(&page));
                page.address.replace_route(next(&routes, &page.route.get_untracked()));
            }
        }
    });
}

/// Returns the routes to rotate through: all jobs, then each running job.
fn routes(page: &Page) -> Vec<Route> {
    let running = page.jobs.with(|jobs| {
        let active = jobs.iter().filter(|job| job.is_active());
        active.map(|job| Route::Job(job.id, JobTab::Nodes)).collect::<Vec<_>>()
    });
    std::iter::once(Route::AllJobs).chain(running).collect()
}

/// Returns the route after this one; the first after the last one, or after a route that no longer exists.
fn next(routes: &[Route], here: &Route) -> Route {
    let at = routes.iter().position(|route| route == here);
    let next = at.map_or(0, |at| (at + 1) % routes.len().max(1));
    routes.get(next).cloned().unwrap_or(Route::AllJobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    #[test]
    fn the_rotation_wraps_and_survives_an_ended_job() {
        let job = |id| Route::Job(JobId(id), JobTab::Nodes);
        let routes = [Route::AllJobs, job(1), job(2)];
        assert_eq!(next(&routes, &Route::AllJobs), job(1));
        assert_eq!(next(&routes, &job(2)), Route::AllJobs);
        assert_eq!(next(&routes, &job(9)), Route::AllJobs);
        assert_eq!(next(&[], &job(9)), Route::AllJobs);
    }
}
