//! Wall mode: no bars and no pointer, and the jobs go by by themselves.

use crate::browser;
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::query::KIOSK;
use gloo_timers::future::TimeoutFuture;
use leptos::prelude::*;

/// How long a place is shown when the URL does not say, in s.
const EACH_S: u32 = 20;
/// A value that keeps the page where it is.
const STAY: u32 = 0;

/// Takes bars and pointer away while the URL says so: `?kiosk`.
pub fn dress(page: &Page) {
    let on = page.address.has_query(KIOSK);
    Effect::new(move || browser::set_root_attribute("data-kiosk", on.get().then_some("")));
}

/// Goes from job to job: `?kiosk`, `?kiosk=60` for a minute each, `?kiosk=0` to stay.
pub fn go_round(page: &Page) {
    let (on, wished) = (page.address.has_query(KIOSK), page.address.query(KIOSK));
    let each_s = Memo::new(move |_| {
        let seconds = wished.get().map_or(Some(EACH_S), |text| text.parse().ok());
        if on.get() { seconds.unwrap_or(EACH_S) } else { STAY }
    });
    let page = page.clone();
    leptos::task::spawn_local_scoped_with_cancellation(async move {
        let mut shown_s = 0;
        loop {
            TimeoutFuture::new(1_000).await;
            let each_s = each_s.get_untracked();
            shown_s = if each_s == STAY { 0 } else { shown_s + 1 };
            if each_s != STAY && shown_s >= each_s {
                shown_s = 0;
                let places = untrack(|| places(&page));
                page.address.become_place(next(&places, &page.place.get_untracked()));
            }
        }
    });
}

/// What goes by: all jobs, then each job that runs.
fn places(page: &Page) -> Vec<Place> {
    let running = page.jobs.with(|jobs| {
        let active = jobs.iter().filter(|job| job.is_active());
        active.map(|job| Place::Job(job.id, Tab::Nodes)).collect::<Vec<_>>()
    });
    std::iter::once(Place::AllJobs).chain(running).collect()
}

/// The place after this one, from the beginning after the last, or after one that is gone.
fn next(places: &[Place], here: &Place) -> Place {
    let at = places.iter().position(|place| place == here);
    let next = at.map_or(0, |at| (at + 1) % places.len().max(1));
    places.get(next).cloned().unwrap_or(Place::AllJobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    #[test]
    fn it_goes_round_and_survives_a_job_that_ended() {
        let job = |id| Place::Job(JobId(id), Tab::Nodes);
        let places = [Place::AllJobs, job(1), job(2)];
        assert_eq!(next(&places, &Place::AllJobs), job(1));
        assert_eq!(next(&places, &job(2)), Place::AllJobs);
        assert_eq!(next(&places, &job(9)), Place::AllJobs);
        assert_eq!(next(&[], &job(9)), Place::AllJobs);
    }
}
