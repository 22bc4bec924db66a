//! A node's host: its CPUs one by one, its memory, disks and network, and what each job uses against its limit.

use super::fact_list::fact_groups;
use crate::fleet::{NodeCell, Scene};
use crate::page::Page;
use crate::tell::host;
use leptos::prelude::*;

/// The host of a node.
#[component]
pub fn HostPanel(
    /// The scene.
    scene: Scene,
    /// The node.
    node: NodeCell,
) -> impl IntoView {
    let page = Page::here();
    let groups = {
        let (scene, node) = (scene.clone(), node.clone());
        move || {
            node.sampled().track();
            node.head().track();
            node.uses().track();
            let told = scene.node(&node, |picture| {
                let used = picture.job_usage.iter().map(|usage| host::usage(usage, page.job_name(usage.job)));
                let groups = match host::is_withheld(page.share().as_ref(), picture) {
                    true => host::shared_groups(picture),
                    false => host::groups(picture),
                };
                used.chain(groups).collect::<Vec<_>>()
            });
            fact_groups(told.unwrap_or_default())
        }
    };
    let cores = move || {
        node.cores().track();
        cores(scene.node(&node, |picture| picture.cores.clone()).unwrap_or_default())
    };
    view! {
        <section aria-label="Host">
            <h2 class="caption"><b>"Host"</b></h2>
            {move || cores()}
            <div class="told-columns told-columns--page">{groups}</div>
        </section>
    }
}

/// One cell a CPU, brighter for busier; a number on hover, and a sentence for who cannot see them.
fn cores(cores: Vec<u8>) -> AnyView {
    if cores.is_empty() {
        return ().into_any();
    }
    let words = host::cores_in_words(&cores);
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
        <div class="cores" role="img" aria-label=words.clone()>{cores.into_iter().enumerate().map(one).collect_view()}</div>
        <p class="told__note">{words}</p>
    }
    .into_any()
}
