//! A node's GPUs are rows whose sum stands in the same columns.

use super::gpu_row::GpuRow;
use super::meter::Meter;
use super::scope::Scope;
use crate::fleet::NodeCell;
use crate::page::Page;
use crate::text;
use crate::totals::Totals;
use leptos::prelude::*;

/// The GPUs of a node, those of the job first.
#[component]
pub fn GpuTable(
    /// The scope; only its job matters here.
    scope: Scope,
    /// The node.
    node: NodeCell,
) -> impl IntoView {
    let label = format!("GPUs of {}", node.name());
    let gpus = Memo::new({
        let (scope, node) = (scope.clone(), node.clone());
        move |_| scope.ordered(&node).into_iter().map(Keyed).collect::<Vec<_>>()
    });
    let totals = Memo::new({
        let scope = scope.only(node.clone());
        move |_| scope.totals()
    });
    let row = move |gpu: Keyed| view! { <GpuRow scope=scope.clone() node=node.clone() gpu=gpu.0/> };
    view! {
        <div class="table-box">
            <table class="table gpus" aria-label=label>
                <thead>
                    <tr>
                        <th class="gpus__index right" scope="col">"GPU"</th>
                        <th class="gpus__name hide-m" scope="col">"Name"</th>
                        <th class="gpus__temp right" scope="col"><abbr title="temperature in °C">"°C"</abbr></th>
                        <th class="gpus__meter" scope="col">"Utilisation"</th>
                        <th class="gpus__pct right" scope="col">"%"</th>
                        <th class="gpus__meter gpus__mem hide-s" scope="col">"Memory"</th>
                        <th class="gpus__gib right" scope="col">"GiB"</th>
                        <th class="gpus__power right hide-s" scope="col">"Power W"</th>
                        <th class="gpus__clock right hide-m" scope="col">"SM MHz"</th>
                        <th class="gpus__clock right hide-m" scope="col">"Mem MHz"</th>
                        <th class="gpus__spark hide-s" scope="col">"Last 10 min"</th>
                        <th class="gpus__flags" scope="col">"Flags"</th>
                    </tr>
                </thead>
                <tbody><For each=move || gpus.get() key=Keyed::key children=row/></tbody>
                <tfoot>
                    <tr><SumCells totals/></tr>
                </tfoot>
            </table>
        </div>
    }
}

/// A GPU's cell, compared by identity and place so that a list of them is a memo.
#[derive(Clone)]
struct Keyed(crate::fleet::GpuCell);

impl Keyed {
    fn key(&self) -> String {
        self.0.uuid().to_string()
    }
}

impl PartialEq for Keyed {
    fn eq(&self, other: &Self) -> bool {
        self.0.uuid() == other.0.uuid()
    }
}

#[component]
fn SumCells(totals: Memo<Totals>) -> impl IntoView {
    let scheme = Page::here().settings;
    let util = move || totals.get().util_pct();
    let mem = move || totals.get().mem;
    let power = move || totals.get().power;
    view! {
        <th class="right" scope="row"><abbr title="sum, and mean of utilisation">"Σ"</abbr></th>
        <td class="hide-m">{move || text::count(totals.get().gpus, "GPU", "GPUs")}</td>
        <td class="right num" title="hottest">{move || text::or_absent(totals.get().hottest_c.map(|c| c.to_string()))}</td>
        <td>
            <Meter
                share=Signal::derive(move || util().map(|util| util as f64 / 100.0))
                label="mean utilisation"
                hue=Signal::derive(move || scheme.scheme().class(util()))
            />
        </td>
        <td class="right num" title="mean">{move || text::or_absent(util().map(|util| util.to_string()))}</td>
        <td class="hide-s">
            <Meter share=Signal::derive(move || mem().share()) label="memory of all" hue="hue-mem"/>
        </td>
        <td class="right num">
            {move || text::or_absent(mem().used.map(text::gib))}
            <span class="of">{move || mem().whole.map(|whole| format!("/{}", text::whole_gib(whole)))}</span>
        </td>
        <td class="right num hide-s">
            {move || text::or_absent(power().used.map(text::grouped))}
            <span class="of">{move || power().whole.map(|whole| format!("/{}", text::grouped(whole)))}</span>
        </td>
        <td class="hide-m"></td>
        <td class="hide-m"></td>
        <td class="hide-s"></td>
        <td></td>
    }
}
