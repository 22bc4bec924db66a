//! Loads the answer to a query or request, and again while what it is about changes.

use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::report::{ReportAnswer, ReportQuery};
use nodeglass_protocol::request::{Request, Response};

/// Interval of loading an answer again, in ms: reports are sums over minutes and hours.
const REFRESH_MS: u64 = 30_000;

/// State of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Loading<T> {
    /// The relay has not responded yet.
    Pending,
    /// No answer, for this reason.
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
    reloaded(move || {
        let (query, feed) = (query(), page.feed.clone());
        async move {
            Some(match feed.report(query).await? {
                ReportAnswer::Refused(why) => Loading::Failed(why.to_string()),
                answer => read(answer).map_or(Loading::Pending, Loading::Ready),
            })
        }
    })
}

/// Loads the response to a request.
pub fn load_response<T: Clone + PartialEq + Send + Sync + 'static>(
    request: impl Fn() -> Request + Send + Sync + 'static,
    read: impl Fn(Response) -> Option<T> + Copy + Send + Sync + 'static,
) -> Memo<Loading<T>> {
    let page = Page::from_context();
    reloaded(move || {
        let (request, page) = (request(), page.clone());
        async move {
            Some(match page.request(request).await {
                Response::Refused(why) => Loading::Failed(why.to_string()),
                response => read(response).map_or(Loading::Pending, Loading::Ready),
            })
        }
    })
}

/// Returns the result of `send` now, when signals that it reads have changed, and every [`REFRESH_MS`]; `None`
/// changes nothing.
fn reloaded<
    T: Clone + PartialEq + Send + Sync + 'static,
    F: Future<Output = Option<Loading<T>>> + 'static,
>(
    send: impl Fn() -> F + Send + Sync + 'static,
) -> Memo<Loading<T>> {
    let page = Page::from_context();
    let answer = RwSignal::new(Loading::Pending);
    let newest = StoredValue::new(0_u64);
    let turn = {
        let page = page.clone();
        Memo::new(move |_| {
            page.second.track();
            page.fleet.relay_ms(platform::now_ms()) / REFRESH_MS
        })
    };
    platform::effect(move || {
        // A memo is computed when it is read, and subscribes to nothing before that.
        turn.get();
        let sent = send();
        if !page.feed.is_live() {
            return;
        }
        newest.update_value(|number| *number += 1);
        let number = newest.get_value();
        leptos::task::spawn_local(async move {
            // Not the answer to an earlier request, nor for a view that is gone.
            if let Some(loaded) = sent.await
                && newest.try_get_value() == Some(number)
            {
                answer.try_set(loaded);
            }
        });
    });
    Memo::new(move |_| answer.get())
}
