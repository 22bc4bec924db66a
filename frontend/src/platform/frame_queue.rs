//! Work that is spread over frames, so that many small updates do not add up to one long task.

use super::on_next_frame;
use leptos::prelude::*;
use std::collections::VecDeque;

type Work = Box<dyn FnOnce()>;

/// A queue of which one job runs per frame. Copies share the same queue.
#[derive(Clone, Copy)]
pub struct FrameQueue(StoredValue<VecDeque<Work>, LocalStorage>);

impl FrameQueue {
    /// Creates an empty queue that lasts as long as the calling view.
    pub fn new() -> Self {
        Self(StoredValue::new_local(VecDeque::new()))
    }

    /// Runs a job in a frame of its own, after the waiting ones. A hidden page draws no frames.
    pub fn push(self, job: impl FnOnce() + 'static) {
        let is_idle = self.0.try_update_value(|jobs| {
            jobs.push_back(Box::new(job));
            jobs.len() == 1
        });
        if is_idle == Some(true) {
            self.run_next();
        }
    }

    fn run_next(self) {
        on_next_frame(move || {
            // The job stays in the queue while it runs: what it pushes waits for the next frame.
            let job = self
                .0
                .try_update_value(|jobs| jobs.front_mut().map(|job| std::mem::replace(job, Box::new(|| ()))));
            if let Some(Some(job)) = job {
                job();
            }
            let more = self.0.try_update_value(|jobs| {
                jobs.pop_front();
                !jobs.is_empty()
            });
            if more == Some(true) {
                self.run_next();
            }
        });
    }
}
