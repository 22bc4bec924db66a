//! GPUs are rows whose sum stands in the same columns: those of a node, or every one of a job.

use super::gpu_row::GpuRow;
use super::meter::Meter;
use super::scope::Scope;
use crate::fleet::{GpuCell, NodeCell};
use crate::lazy::{memo, part, rows, words};
use crate::page::Page;
use crate::text;
use crate::totals::Totals;
use leptos::prelude::*;

/// Above this many GPUs a table of all of a job's is shown only when it is asked for.
const MOST_ROWS: usize = 64;

/// The GPUs of a scope, those of the job first.
#[component]
pub fn GpuTable(
    /// The scope.
    scope: Scope,
    /// Whether the node is a column, because there are several; other jobs' GPUs are then left out.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    let lines = memo({
        let scope = scope.clone();
        move || lines(&scope, several)
    });
    let totals = memo({
        let (scope, page) = (scope.clone(), Page::here());
        move || scope.totals(&page)
    });
    let list = rows(lines, Line::key, move |line| {
        view! { <GpuRow scope=scope.clone() node=line.node gpu=line.gpu several/> }.into_any()
    });
    view! {
        <div class="table-box">
            <table class="table gpus" aria-label="GPUs">
                <thead>
                    <tr>
                        {several.then(|| view! { <th class="gpus__node" scope="col">"Node"</th> })}
                        <th class="gpus__index right" scope="col">"GPU"</th>
                        {(!several).then(|| view! { <th class="gpus__name hide-m" scope="col">"Name"</th> })}
                        <th class="gpus__temp right" scope="col"><abbr title="temperature in °C">"°C"</abbr></th>
                        <th class="gpus__util" scope="col">"Utilisation"</th>
                        <th class="gpus__pct right" scope="col">"%"</th>
                        <th class="gpus__mem hide-s" scope="col">"Memory"</th>
                        <th class="gpus__gib right" scope="col">"GiB"</th>
                        <th class="gpus__power right hide-s" scope="col">"Power W"</th>
                        <th class="gpus__clock right hide-m" scope="col">"SM/Mem MHz"</th>
                        <th class="gpus__spark hide-s" scope="col">"Last 10 min"</th>
                        <th class="gpus__flags" scope="col">"Flags"</th>
                    </tr>
                </thead>
                <tbody>{list}</tbody>
                <tfoot>
                    <tr>
                        <SumCells totals several/>
                    </tr>
                </tfoot>
            </table>
        </div>
    }
}

/// Every GPU of a job under the overview of its nodes; of a very large one only on demand.
#[component]
pub fn EveryGpu(
    /// The nodes and the job.
    scope: Scope,
) -> impl IntoView {
    let gpus = memo({
        let scope = scope.clone();
        move || lines(&scope, true).len()
    });
    let asked = RwSignal::new(false);
    let shown = memo(move || asked.get() || gpus.get() <= MOST_ROWS);
    let table = part(move || match shown.get() {
        true => view! { <GpuTable scope=scope.clone() several=true/> }.into_any(),
        false => view! {
            <button class="btn" on:click=move |_| asked.set(true)>
                {words(move || format!("Show all {} GPUs", text::grouped(gpus.get() as u64)))}
            </button>
        }
        .into_any(),
    });
    view! {
        <section>
            <h2 class="caption"><b>"GPUs"</b> " · " {words(move || format!("{} of this job", text::grouped(gpus.get() as u64)))}</h2>
            {table}
        </section>
    }
}

/// A row's cells.
#[derive(Clone, PartialEq)]
struct Line {
    node: NodeCell,
    gpu: GpuCell,
}

impl Line {
    fn key(&self) -> String {
        format!("{}/{}", self.node.name(), self.gpu.uuid())
    }
}

fn lines(scope: &Scope, only_the_jobs: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    for node in scope.nodes.get() {
        let gpus = if only_the_jobs { scope.of_job(&node) } else { scope.ordered(&node) };
        lines.extend(gpus.into_iter().map(|gpu| Line { node: node.clone(), gpu }));
    }
    lines
}

#[component]
fn SumCells(totals: Memo<Totals>, several: bool) -> impl IntoView {
    let scheme = Page::here().settings;
    let count =
        move || format!("{} {}", totals.get().counted(), if totals.get().gpus == 1 { "GPU" } else { "GPUs" });
    let util = move || totals.get().util_pct();
    let mem = move || totals.get().mem;
    let power = move || totals.get().power;
    view! {
        {several.then(|| view! { <td>{count}</td> })}
        <th class="right" scope="row"><abbr title="sum, and mean of utilisation">"Σ"</abbr></th>
        {(!several).then(|| view! { <td class="hide-m">{count}</td> })}
        <td class="right num" title="hottest">{words(move || text::or_absent(totals.get().hottest_c.map(|c| c.to_string())))}</td>
        <td>
            <Meter
                share=Signal::derive(move || util().map(|util| util as f64 / 100.0))
                label="mean utilisation"
                hue=Signal::derive(move || scheme.scheme().class(util()))
            />
        </td>
        <td class="right num" title="mean">{words(move || text::or_absent(util().map(|util| util.to_string())))}</td>
        <td class="hide-s">
            <Meter share=Signal::derive(move || mem().share()) label="memory of all" hue="hue-mem"/>
        </td>
        <td class="right num">
            {words(move || text::or_absent(mem().used.map(text::gib)))}
            <span class="of">{words(move || mem().whole.map(|whole| format!("/{}", text::whole_gib(whole))))}</span>
        </td>
        <td class="right num hide-s">
            {words(move || text::or_absent(power().used.map(text::grouped)))}
            <span class="of">{words(move || power().whole.map(|whole| format!("/{}", text::grouped(whole))))}</span>
        </td>
        <td class="hide-m"></td>
        <td class="hide-s"></td>
        <td></td>
    }
}
