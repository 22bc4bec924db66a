//! All nodes of a job: every GPU over time, each node and each GPU in a row, and who else uses them.

use super::gpu_table::GpuTable;
use super::heat_map::HeatMap;
use super::node_list::NodeList;
use super::overlay::Overlay;
use super::scope::Scope;
use super::use_table::UseTable;
use leptos::prelude::*;
use nodeglass_protocol::JobId;

/// Up to this many nodes leave room for the ranks beside the heat map.
const MOST_BESIDE: usize = 16;

/// The nodes of a job.
#[component]
pub fn JobNodes(
    /// The nodes and the job.
    scope: Scope,
    /// The job.
    job: JobId,
) -> impl IntoView {
    let nodes = scope.nodes;
    let beside = Memo::new(move |_| nodes.with(Vec::len) <= MOST_BESIDE);
    view! {
        <div class:pair=move || beside.get()>
            <HeatMap scope=scope.clone()/>
            <Overlay scope=scope.clone()/>
        </div>
        <NodeList scope=scope.clone() job/>
        <GpuTable scope=scope.clone() several=true/>
        <UseTable scope several=true/>
    }
}
