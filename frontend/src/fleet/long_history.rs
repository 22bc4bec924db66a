//! Long-term history of a topic's GPUs for the graphs: one range at a time.

use crate::chart::Window;
use leptos::prelude::*;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::{GpuRange, RangeHistory, RangeQuery, Summaries};
use nodeglass_protocol::{Field, GpuField, GpuUuid, NodeName, Text};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

/// The loaded part of a topic's long-term history. Clones share the same state.
#[derive(Clone, Default)]
pub struct LongHistory(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The fields that graphs show.
    wanted: ArcRwSignal<BTreeSet<GpuField>>,
    loaded: RwLock<Loaded>,
    /// Changes with `loaded`.
    revision: ArcRwSignal<u64>,
}

#[derive(Default)]
struct Loaded {
    /// The request; `None` before the first response.
    request: Option<LoadRequest>,
    range: RangeHistory,
    /// When it was requested, in ms of the relay's clock.
    at_ms: u64,
}

/// A range, its step length, and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRequest {
    from_ms: u64,
    to_ms: u64,
    step_ms: u64,
    fields: Vec<GpuField>,
}

impl LoadRequest {
    /// Start, in ms of the relay's clock.
    pub fn start_ms(&self) -> u64 {
        self.from_ms
    }

    /// Returns the query for a topic.
    pub fn query(&self, topic: &Topic) -> RangeQuery {
        RangeQuery {
            topic: topic.clone(),
            from_ms: self.from_ms,
            to_ms: self.to_ms,
            step_ms: self.step_ms,
            gpu_fields: self.fields.iter().map(|field| field.name().into()).collect(),
            host_fields: Vec::new(),
        }
    }
}

impl Loaded {
    /// Returns when to load what was requested again, in ms of the relay's clock; `None` if it is complete.
    fn due_ms(&self, request: &LoadRequest) -> Option<u64> {
        let is_old = RangeQuery::needs_storage(request.from_ms, self.at_ms);
        let max_age_ms = if is_old { LongHistory::STORAGE_MAX_AGE_MS } else { LongHistory::MAX_AGE_MS };
        let age_ms = match self.range.problem {
            Some(_) => LongHistory::RETRY_MS,
            None if request.to_ms > self.at_ms => request.step_ms.min(max_age_ms),
            None => return None,
        };
        Some(self.at_ms.saturating_add(age_ms))
    }
}

impl LongHistory {
    /// An incomplete step is loaded again after this time.
    pub const MAX_AGE_MS: u64 = 30_000;
    /// Maximum age of an incomplete step of a range beyond a week: a long-term storage reads millions of samples for it.
    const STORAGE_MAX_AGE_MS: u64 = 600_000;
    /// A long-term storage that could not be read is tried again after this time.
    const RETRY_MS: u64 = 60_000;

    /// Requests a field for as long as the page shows the topic.
    pub fn want(&self, field: GpuField) {
        if !self.0.wanted.with_untracked(|wanted| wanted.contains(&field)) {
            self.0.wanted.update(|wanted| _ = wanted.insert(field));
        }
    }

    /// Returns what to request for a window at a time of the relay's clock, unless it is loaded; subscribes to
    /// the wanted fields.
    pub fn missing(&self, window: &Window, now_ms: u64) -> Option<LoadRequest> {
        let fields: Vec<_> = self.0.wanted.with(|wanted| wanted.iter().copied().collect());
        let request = LoadRequest {
            from_ms: window.start_ms(),
            to_ms: window.end_ms(),
            step_ms: window.step_ms(),
            fields,
        };
        let is_loaded = self.read(|loaded| {
            loaded.request.as_ref() == Some(&request)
                && loaded.due_ms(&request).is_none_or(|due_ms| now_ms < due_ms)
        });
        (!is_loaded && !request.fields.is_empty()).then_some(request)
    }

    /// Stores the response to a request that was sent at `at_ms` of the relay's clock.
    pub fn set(&self, request: LoadRequest, range: RangeHistory, at_ms: u64) {
        let loaded = Loaded { request: Some(request), range, at_ms };
        *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        self.0.revision.update(|revision| *revision += 1);
    }

    /// Drops everything, because another relay or viewer may follow.
    pub fn clear(&self) {
        *self.0.loaded.write().unwrap_or_else(PoisonError::into_inner) = Loaded::default();
        self.0.revision.update(|revision| *revision += 1);
    }

    /// Grows with each response.
    pub fn revision(&self) -> u64 {
        self.0.revision.get()
    }

    /// Returns when the history that the relay keeps begins, in ms of its clock; `None` before the first
    /// response.
    pub fn begins_ms(&self) -> Option<u64> {
        self.read(|loaded| loaded.range.begins_ms)
    }

    /// Returns why the loaded range could not be read; subscribes to responses.
    pub fn problem(&self) -> Option<Text> {
        self.0.revision.track();
        self.read(|loaded| loaded.range.problem.clone())
    }

    /// Returns whether the part of a field's history that the relay has is loaded for a window.
    pub fn covers(&self, field: GpuField, window: &Window) -> bool {
        self.read(|loaded| {
            let covers = |request: &LoadRequest| {
                // The end of a window that follows the clock is loaded with a delay.
                let slack_ms = 2 * request.step_ms.max(window.step_ms()) + Self::MAX_AGE_MS;
                request.fields.contains(&field)
                    && request.from_ms <= window.start_ms() + slack_ms
                    && request.to_ms + slack_ms >= window.end_ms()
            };
            loaded.request.as_ref().is_some_and(covers)
        })
    }

    /// Reads the summaries of a GPU's field, and the length of their slots in ms; `None` if they are not
    /// loaded.
    pub fn with<R>(
        &self,
        node: &NodeName,
        uuid: &GpuUuid,
        field: GpuField,
        read: impl FnOnce(&Summaries, u64) -> R,
    ) -> Option<R> {
        self.read(|loaded| {
            let at = loaded.request.as_ref()?.fields.iter().position(|known| *known == field)?;
            let range = loaded.range.nodes.iter().find(|range| range.node == *node)?;
            let gpu: &GpuRange = range.gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
            Some(read(gpu.fields.get(at)?, loaded.range.step_ms.max(1)))
        })
    }

    fn read<R>(&self, read: impl FnOnce(&Loaded) -> R) -> R {
        read(&self.0.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Range;

    /// The history of a window that ends at `end_ms`, and what to request for it.
    fn request(end_ms: u64) -> (LongHistory, Window, LoadRequest) {
        let (history, window) = (LongHistory::default(), Range::last(3_600_000).window(end_ms, 600));
        assert_eq!(history.missing(&window, end_ms), None, "no graph wants a field");
        history.want(GpuField::Util);
        let request = history.missing(&window, end_ms).expect("nothing is loaded");
        (history, window, request)
    }

    #[test]
    fn a_range_that_could_not_be_read_is_requested_again_a_minute_after_the_attempt() {
        let at_ms = 1_000_000_000;
        let (history, window, request) = request(at_ms);
        let failed =
            RangeHistory { problem: Some("the storage does not respond".into()), ..Default::default() };
        history.set(request.clone(), failed, at_ms);
        let missing = |after_ms: u64| history.missing(&window, at_ms + after_ms);
        assert_eq!((missing(1), missing(59_999)), (None, None));
        assert_eq!(missing(60_000), Some(request.clone()));
        // Once it was read, the interval of an incomplete step applies again.
        history.set(request, RangeHistory::default(), at_ms + 60_000);
        assert_eq!(missing(60_001), None);
    }

    #[test]
    fn an_incomplete_step_is_loaded_again_and_a_complete_range_is_not() {
        let at_ms = 1_000_000_000;
        let (history, window, request) = request(at_ms);
        let step_ms = window.step_ms().min(LongHistory::MAX_AGE_MS);
        history.set(request.clone(), RangeHistory::default(), window.end_ms() - 1);
        assert_eq!(history.missing(&window, window.end_ms() - 2 + step_ms), None);
        assert_eq!(history.missing(&window, window.end_ms() - 1 + step_ms), Some(request.clone()));
        history.set(request, RangeHistory::default(), window.end_ms());
        assert_eq!(history.missing(&window, u64::MAX), None);
    }
}
