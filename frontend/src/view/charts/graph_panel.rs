//! The common beginning of panels with graphs of some GPUs.

use super::export::Export;
use super::gpu_groups::{NodeGroup, gpu_groups, is_unsupported};
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
    /// replaces any other. Otherwise, memory is the default where no GPU reports its utilisation, as MIG instances.
    pub fn new(scope: &NodeScope, glance: bool) -> Self {
        let (page, time) = (Page::from_context(), Time::from_context());
        let groups = Memo::new({
            let scope = scope.clone();
            move |_| gpu_groups(&scope)
        });
        let metric = {
            let (time, store, step) = (time.clone(), scope.store.clone(), page.step);
            Memo::new(move |_| match time.metric() {
                selected if glance => {
                    GraphMetric::in_overview().find(|known| Some(*known) == selected).unwrap_or_default()
                }
                Some(selected) => selected,
                None => {
                    step.track();
                    let default = GraphMetric::default();
                    let lacks = groups.with(|groups| is_unsupported(&store, groups, default));
                    if lacks { GraphMetric::MEMORY } else { default }
                }
            })
        };
        let export = Export::new(&page, &time, &scope.store, groups, metric);
        Self { page, time, groups, metric, export }
    }
}
