//! The tab with all nodes of a job: heat map, tables of nodes and GPUs, and other jobs on them.

use crate::view::charts::heat_map::HeatMap;
use crate::view::charts::overlay::Overlay;
use crate::view::scope::Scope;
use crate::view::tables::gpu_table::GpuTable;
use crate::view::tables::job_usage_table::JobUsageTable;
use crate::view::tables::node_list::NodeList;
use leptos::prelude::*;
use nodeglass_protocol::JobId;

/// With so many nodes the heat map is about as high as the overlay, and leaves space for it beside.
const BESIDE: std::ops::RangeInclusive<usize> = 3..=16;

/// The nodes of a job.
#[component]
pub fn JobNodes(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    job: JobId,
) -> impl IntoView {
    let nodes = scope.nodes;
    let beside = Memo::new(move |_| BESIDE.contains(&nodes.with(Vec::len)));
    view! {
        <div class:pair=move || beside.get()>
            <HeatMap scope=scope.clone()/>
            <Overlay scope=scope.clone()/>
        </div>
        <NodeList scope=scope.clone() job/>
        <GpuTable scope=scope.clone() several=true/>
        <JobUsageTable scope several=true/>
    }
}
