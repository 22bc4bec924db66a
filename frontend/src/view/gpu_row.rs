//! One GPU is one row; its readings come from one cell, and a card that is lost says so in its place.

use super::chart::Spark;
use super::figure::Figure;
use super::meter::Meter;
use super::scope::{Scope, gpu_past};
use crate::flags::{self, Tone};
use crate::fleet::{GpuCell, NodeCell};
use crate::lazy::{lazy, memo, part, words};
use crate::page::Page;
use crate::{roster, text};
use leptos::prelude::*;
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::{Cell, GpuField};

/// Reads a GPU on behalf of its row, and wakes the row when it changes.
#[derive(Clone)]
struct Look {
    scope: Scope,
    node: NodeCell,
    gpu: GpuCell,
}

impl Look {
    fn at<R: Default>(&self, look: impl FnOnce(&GpuPicture) -> R) -> R {
        self.scope.scene.gpu(&self.node, &self.gpu, look).unwrap_or_default()
    }

    fn cell(&self, field: GpuField) -> Signal<Cell> {
        let look = self.clone();
        Signal::derive(move || look.at(|gpu| gpu.row.get(field)))
    }

    fn value(&self, field: GpuField) -> Option<u64> {
        self.at(|gpu| gpu.row.value(field))
    }

    /// Whose it is, if it is not the job's.
    fn stranger(&self, page: &Page) -> Option<String> {
        let job = self.scope.job?;
        self.node.gpus().track();
        let mine = self.scope.scene.node(&self.node, |node| {
            node.gpus.get(self.gpu.position()).is_none_or(|gpu| roster::is_of_job(node, gpu, Some(job)))
        });
        if mine.unwrap_or(true) {
            return None;
        }
        let owner = self.at(|gpu| gpu.owners.first().map(|owner| owner.job));
        Some(
            owner.map_or_else(
                || "of no job known here".to_owned(),
                |job| format!("of {}", page.job_name(job)),
            ),
        )
    }

    fn name_title(&self) -> String {
        self.at(|gpu| {
            let mut lines = vec![gpu.facts.uuid.to_string()];
            lines.extend(gpu.facts.pci.value().map(|pci| format!("PCI {pci}")));
            lines.extend(gpu.facts.minor.value().map(|minor| format!("/dev/nvidia{minor}")));
            lines.extend(
                gpu.owners.iter().map(|owner| format!("job {}: {}", owner.job, roster::evidence(owner.by))),
            );
            lines.join("\n")
        })
    }
}

/// The row of a GPU.
#[component]
pub fn GpuRow(
    /// The scope; its job decides whose the GPU is.
    scope: Scope,
    /// The node it is in.
    node: NodeCell,
    /// The GPU.
    gpu: GpuCell,
    /// Whether the node is a column.
    several: bool,
) -> impl IntoView {
    let page = Page::here();
    let name_of_node = several.then(|| view! { <td class="gpus__node">{node.name().to_string()}</td> });
    // A table of one node is dimmed as a whole.
    let stale = several.then(|| page.is_stale(&scope.scene, &node));
    let look = Look { scope, node, gpu };
    let fault = memo({
        let look = look.clone();
        move || look.at(|gpu| gpu.fault.clone())
    });
    let stranger = memo({
        let (look, page) = (look.clone(), page.clone());
        move || look.stranger(&page)
    });
    let (index, name, title) = (look.clone(), look.clone(), look.clone());
    let readings = part(move || match fault.get() {
        Some(why) => view! { <Lost why=why.to_string()/> }.into_any(),
        None => view! { <Readings look=look.clone() stranger/> }.into_any(),
    });
    let name = words(move || {
        name.at(|gpu| gpu.facts.name.value().map(|name| text::model(name.as_str()).to_owned()))
            .unwrap_or_else(|| text::ABSENT.to_owned())
    });
    let name = (!several).then(|| {
        view! {
            <td class="gpus__name hide-m" title=lazy(move || title.name_title())>
                {name}
            </td>
        }
    });
    view! {
        <tr
            class:is-foreign=lazy(move || stranger.get().is_some())
            class:is-lost=lazy(move || fault.get().is_some())
            class:is-stale=lazy(move || stale.is_some_and(|stale| stale.get()))
        >
            {name_of_node}
            <th class="right num" scope="row">{words(move || index.at(|gpu| gpu.facts.index))}</th>
            {name}
        {readings}
        </tr>
    }
}

/// A card that cannot be read says why where its readings would be; the cells stay, so that columns do.
#[component]
fn Lost(why: String) -> impl IntoView {
    view! {
        <td class="gpus__fault">"▲ " {why}</td>
        <td></td>
        <td></td>
        <td class="hide-s"></td>
        <td></td>
        <td class="hide-s"></td>
        <td class="hide-m"></td>
        <td class="hide-s"></td>
        <td></td>
    }
}

#[component]
fn Readings(look: Look, stranger: Memo<Option<String>>) -> impl IntoView {
    let page = Page::here();
    let settings = page.settings;
    let util = {
        let look = look.clone();
        Signal::derive(move || look.value(GpuField::Util))
    };
    let hue = Signal::derive(move || settings.scheme().class(util.get()));
    let hot = {
        let look = look.clone();
        move || {
            let limit = look.at(|gpu| gpu.facts.temp_slowdown_c.value().copied());
            look.value(GpuField::Temp).zip(limit).is_some_and(|(temp, limit)| temp + 5 >= u64::from(limit))
        }
    };
    let past = {
        let look = look.clone();
        memo(move || gpu_past(&page, &look.scope.scene, &look.node, &look.gpu, GpuField::Util))
    };
    view! {
        <td class="right" class:is-hot=hot>
            <Figure cell=look.cell(GpuField::Temp) write=|c| c.to_string()/>
        </td>
        <td><Meter share=Signal::derive(move || util.get().map(|util| util as f64 / 100.0)) label="utilisation" hue/></td>
        <td class="right"><Figure cell=look.cell(GpuField::Util) write=|pct| pct.to_string()/></td>
        <Memory look=look.clone()/>
        <td class="right hide-s">
            <Figure cell=look.cell(GpuField::Power) write=|w| w.to_string()/>
            <Limit cell=look.cell(GpuField::PowerLimit) write=|w| format!("/{w}")/>
        </td>
        <td class="right hide-m">
            <Figure cell=look.cell(GpuField::SmClock) write=|steps| (steps * 15).to_string()/>
            <Limit cell=look.cell(GpuField::MemClock) write=|mhz| format!("/{mhz}")/>
        </td>
        <td class="gpus__spark hide-s"><Spark series=past hue="stroke-util"/></td>
        <td class="gpus__flags">
            {part(move || stranger.get().map(|whose| view! { <small class="whose" title=whose.clone()>{whose.clone()}</small> }))}
            <Flags look/>
        </td>
    }
}

/// 64 MiB, a step of the memory cells, in bytes.
const MEM_STEP: u64 = 64 << 20;

#[component]
fn Memory(look: Look) -> impl IntoView {
    let share = {
        let look = look.clone();
        Signal::derive(move || {
            let (used, total) = (look.value(GpuField::MemUsed)?, look.value(GpuField::MemTotal)?);
            (total > 0).then(|| used as f64 / total as f64)
        })
    };
    view! {
        <td class="hide-s"><Meter share label="memory" hue="hue-mem"/></td>
        <td class="right">
            <Figure cell=look.cell(GpuField::MemUsed) write=|steps| text::gib(u64::from(steps) * MEM_STEP)/>
            <Limit cell=look.cell(GpuField::MemTotal) write=|steps| format!("/{}", text::whole_gib(u64::from(steps) * MEM_STEP))/>
        </td>
    }
}

/// The whole that a reading is a part of; left out where it is not known.
#[component]
fn Limit(cell: Signal<Cell>, write: fn(u32) -> String) -> impl IntoView {
    view! { <span class="of num">{words(move || cell.get().value().map(write))}</span> }
}

#[component]
fn Flags(look: Look) -> impl IntoView {
    let flags = memo(move || look.at(|gpu| flags::of(&gpu.row)));
    part(move || {
        let flag = |flag: flags::Flag| {
            let class = match flag.tone {
                Tone::Quiet => "flag flag--quiet",
                Tone::Warn => "flag",
                Tone::Alarm => "flag flag--alarm",
            };
            view! { <span class=class title=flag.why>{flag.text}</span> }
        };
        flags.get().into_iter().map(flag).collect_view()
    })
}
