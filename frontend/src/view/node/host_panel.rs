//! The panel of a node's host: its CPUs, memory, disks and network, and the usage of each job.

use crate::describe::host;
use crate::fleet::{NodeSignals, TopicStore};
use crate::state::page::Page;
use crate::view::widgets::fact_list::fact_groups;
use leptos::prelude::*;

/// The host of a node.
#[component]
pub fn HostPanel(
    /// The store.
    store: TopicStore,
    /// The node.
    node: NodeSignals,
) -> impl IntoView {
    let page = Page::from_context();
    let groups = {
        let (store, node) = (store.clone(), node.clone());
        move || {
            node.samples().track();
            node.head().track();
            node.usage_jobs().track();
            let groups_of_node = store.node(&node, |picture| {
                let used = picture
                    .job_usage
                    .iter()
                    .map(|usage| host::usage(usage, page.job_name_and_label(usage.job)));
                let groups = match host::is_withheld(page.sees_only_jobs(), picture) {
                    true => host::shared_groups(picture),
                    false => host::groups(picture),
                };
                used.chain(groups).collect::<Vec<_>>()
            });
            fact_groups(groups_of_node.unwrap_or_default())
        }
    };
    let cores = move || {
        node.cores().track();
        cores(store.node(&node, |picture| picture.cores.clone()).unwrap_or_default())
    };
    view! {
        <section aria-label="Host">
            <h2 class="caption"><b>"Host"</b></h2>
            {move || cores()}
            <div class="facts-columns facts-columns--page">{groups}</div>
        </section>
    }
}

/// One cell per CPU, brighter for busier; a number on hover, and an alternative text.
fn cores(cores: Vec<u8>) -> AnyView {
    if cores.is_empty() {
        return ().into_any();
    }
    let summary = host::cores_summary(&cores);
    let one = |(number, pct): (usize, u8)| {
        let class = match pct {
            0..10 => "heat-0",
            10..50 => "heat-1",
            50..90 => "heat-2",
            _ => "heat-3",
        };
        view! { <i class=class title=format!("CPU {number}: {pct} %")></i> }
    };
    view! {
        <div class="cores" role="img" aria-label=summary.clone()>{cores.into_iter().enumerate().map(one).collect_view()}</div>
        <p class="facts__note">{summary}</p>
    }
    .into_any()
}
