//! Loads the answer to a query for reports, and again while what it is about changes.

use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::report::{ReportAnswer, ReportQuery};

/// How often an answer is loaded again, in ms: reports are sums over minutes and hours.
const REFRESH_MS: u64 = 30_000;

/// What is known of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Loading<T> {
    /// The relay has not answered yet.
    Pending,
    /// There is no answer, for this reason.
    Failed(String),
    /// The answer.
    Ready(T),
}

/// Loads the answer to a query, which may depend on signals. `read` returns what is wanted of it. An earlier
/// answer stays while a later one is loaded, or if there is none.
pub fn load<T: Clone + PartialEq + Send + Sync + 'static>(
    query: impl Fn() -> ReportQuery + Send + Sync + 'static,
    read: impl Fn(ReportAnswer) -> Option<T> + Copy + Send + Sync + 'static,
) -> Memo<Loading<T>> {
    let page = Page::from_context();
    let answer = RwSignal::new(Loading::Pending);
    let turn = {
        let page = page.clone();
        Memo::new(move |_| {
            page.second.track();
            page.fleet.relay_ms(platform::now_ms()) / REFRESH_MS
        })
    };
    Effect::new(move || {
        // A memo is computed when it is read, and subscribes to nothing before that.
        turn.get();
        let (query, feed) = (query(), page.feed.clone());
        if !feed.is_live() {
            return;
        }
        leptos::task::spawn_local(async move {
            let loaded = match feed.report(query).await {
                Some(ReportAnswer::Refused(why)) => Loading::Failed(why.to_string()),
                Some(answer) => read(answer).map_or(Loading::Pending, Loading::Ready),
                None => return,
            };
            // The view may be gone by then.
            answer.try_set(loaded);
        });
    });
    Memo::new(move |_| answer.get())
}
