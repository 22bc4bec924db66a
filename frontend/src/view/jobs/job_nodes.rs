//! The tab with all nodes of a job: heat map, tables of nodes and GPUs, and other jobs on them.

use crate::view::charts::heat_map::HeatMap;
use crate::view::charts::overlay::Overlay;
use crate::view::scope::NodeScope;
use crate::view::tables::gpu_table::GpuTable;
use crate::view::tables::job_usage_table::JobUsageTable;
use crate::view::tables::node_list::NodeList;
use crate::view::widgets::later::Later;
use crate::view::widgets::note_list::NoteList;
use leptos::prelude::*;
use nodeglass_protocol::JobId;

/// Numbers of nodes for which the heat map is about as high as the overlay, so that both fit side by side.
const BESIDE: std::ops::RangeInclusive<usize> = 3..=16;

/// The nodes of a job.
#[component]
pub fn JobNodes(
    /// The nodes and the job.
    scope: NodeScope,
    /// The job.
    job: JobId,
) -> impl IntoView {
    let nodes = scope.nodes;
    let beside = Memo::new(move |_| BESIDE.contains(&nodes.with(Vec::len)));
    view! {
        <div class:pair=beside>
            <HeatMap scope=scope.clone()/>
            <Overlay scope=scope.clone()/>
        </div>
        {later(scope, job)}
    }
}

/// The tables, each created in a frame of its own.
fn later(scope: NodeScope, job: JobId) -> impl IntoView {
    let (nodes, gpus, usage) = (scope.nodes, scope.clone(), scope.clone());
    // The tiles and the tab of a single node show what its row would.
    let is_spread = Memo::new(move |_| nodes.with(|nodes| nodes.len() != 1));
    view! {
        <Later>
            {
                let scope = scope.clone();
                move || is_spread.get().then(|| view! { <NodeList scope=scope.clone() job/> })
            }
        </Later>
        <Later><GpuTable scope=gpus.clone() several=true/></Later>
        <Later><JobUsageTable scope=usage.clone() several=true/></Later>
        <Later><NoteList/></Later>
    }
}
