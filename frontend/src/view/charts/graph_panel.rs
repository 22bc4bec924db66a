//! The common beginning of panels with graphs of some GPUs.

use super::export::Export;
use super::gpu_groups::{NodeGroup, gpu_groups};
use crate::domain::metric::GraphMetric;
use crate::state::page::Page;
use crate::state::time::Time;
use crate::view::scope::NodeScope;
use leptos::prelude::*;

/// The GPUs of a panel, the metric that is selected, and the exports of both.
pub struct GraphPanel {
    /// The page.
    pub page: Page,
    /// The range and the cursor that all graphs share.
    pub time: Time,
    /// The GPUs by node.
    pub groups: Memo<Vec<NodeGroup>>,
    /// The selected metric.
    pub metric: Memo<GraphMetric>,
    /// The exports of that metric.
    pub export: Export,
}

impl GraphPanel {
    /// Creates the panel of a scope's GPUs. At a `glance`, the history of few metrics is known, and the default
    /// replaces any other.
    pub fn new(scope: &NodeScope, glance: bool) -> Self {
        let (page, time) = (Page::from_context(), Time::from_context());
        let groups = Memo::new({
            let scope = scope.clone();
            move |_| gpu_groups(&scope)
        });
        let metric = {
            let time = time.clone();
            Memo::new(move |_| {
                let metric = time.metric();
                if glance {
                    GraphMetric::in_overview().find(|known| *known == metric).unwrap_or_default()
                } else {
                    metric
                }
            })
        };
        let export = Export::new(&page, &time, &scope.store, groups, metric);
        Self { page, time, groups, metric, export }
    }
}
