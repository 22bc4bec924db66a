//! GPUs are rows whose sum stands in the same columns: those of a node, or every one of a job.

use super::chart::Spark;
use super::grid::{self, Entry, Marks, Names, Source, Subject, Table};
use super::scope::{Scope, gpu_past};
use crate::flags::{self, Flag, Tone};
use crate::fleet::{GpuCell, NodeCell};
use crate::health::{Freshness, freshness};
use crate::lazy::{memo, part};
use crate::markup::view;
use crate::page::Page;
use crate::query;
use crate::table::{Column, Unit, Value, gpus};
use crate::{browser, roster};
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use std::sync::Arc;

/// The GPUs of a scope, those of the job first.
#[component]
pub fn GpuTable(
    /// The scope.
    scope: Scope,
    /// Whether the node is a column, because there are several; other jobs' GPUs are then left out.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    view! { <Table source=Arc::new(Gpus { scope, several, page: Page::here() })/> }
}

/// GPUs as rows.
#[derive(Clone)]
struct Gpus {
    scope: Scope,
    several: bool,
    page: Page,
}

impl Gpus {
    /// Looks at a GPU in its node; wakes nobody.
    fn at<R>(&self, entry: &Entry, look: impl FnOnce(&NodePicture, &GpuPicture) -> R) -> Option<R> {
        let Subject::Gpu(node, gpu) = &entry.subject else { return None };
        self.scope.scene.node(node, |node| find(node, gpu).map(|gpu| look(node, gpu)))?
    }

    fn entries_of(&self, cell: &NodeCell) -> Vec<Entry> {
        let cells = cell.gpus().get();
        let rows = self.scope.scene.node(cell, |node| {
            let mine = |at: &usize| !self.several || roster::is_of_job(node, &node.gpus[*at], self.scope.job);
            let order: Vec<usize> =
                roster::job_first(node, self.scope.job).into_iter().filter(mine).collect();
            gpus::with_parts(node, &order)
        });
        let entry = |(at, depth): (usize, u8)| {
            let gpu = cells.get(at)?.clone();
            let key = format!("{}/{}", cell.name(), gpu.uuid()).into();
            Some(Entry { key, depth, subject: Subject::Gpu(cell.clone(), gpu) })
        };
        rows.unwrap_or_default().into_iter().filter_map(entry).collect()
    }

    /// Whose a GPU is, if it is not the job's.
    fn stranger(&self, node: &NodePicture, gpu: &GpuPicture) -> Option<String> {
        // A divided card is nobody's: its parts are somebody's.
        let divided = node.gpus.iter().any(|part| part.facts.mig_parent.as_ref() == Some(&gpu.facts.uuid));
        if divided || roster::is_of_job(node, gpu, self.scope.job) {
            return None;
        }
        let owner = gpu.owners.first().map(|owner| owner.job);
        Some(owner.map_or_else(
            || "of no job known here".to_owned(),
            |job| format!("of {}", self.page.job_name(job)),
        ))
    }

    /// What is worth a look of a GPU, its node's driver and its kind of memory included.
    fn flags(&self, node: &NodePicture, gpu: &GpuPicture) -> Vec<Flag> {
        let mut flags: Vec<Flag> = Vec::new();
        if let Some(why) = &gpu.fault {
            flags.push(Flag {
                text: format!("▲ {why}"), why: "The card cannot be read.", tone: Tone::Alarm
            });
        } else {
            flags = flags::of(&gpu.row);
        }
        if node.head.nvml_stuck_ms.is_some() {
            let why = "A call into the driver does not return: the values are those of before.";
            flags.insert(0, Flag { text: "▲ NVML hangs".to_owned(), why, tone: Tone::Alarm });
        }
        if gpu.facts.unified_memory {
            let why = "Its memory is the host's: what is used of it is used of the host's.";
            flags.push(Flag { text: "unified".to_owned(), why, tone: Tone::Quiet });
        }
        flags
    }

    fn title(&self, entry: &Entry) -> String {
        let lines = self.at(entry, |_, gpu| {
            let mut lines = vec![gpu.facts.uuid.to_string()];
            lines.extend(gpu.facts.pci.value().map(|pci| format!("PCI {pci}")));
            lines.extend(gpu.facts.minor.value().map(|minor| format!("/dev/nvidia{minor}")));
            lines.extend(
                gpu.owners.iter().map(|owner| format!("job {}: {}", owner.job, roster::evidence(owner.by))),
            );
            lines.join("\n")
        });
        lines.unwrap_or_default()
    }
}

/// The picture of a GPU in its node.
pub fn find<'a>(node: &'a NodePicture, gpu: &GpuCell) -> Option<&'a GpuPicture> {
    let here = node.gpus.get(gpu.position()).filter(|here| here.facts.uuid == *gpu.uuid());
    here.or_else(|| node.gpus.iter().find(|here| here.facts.uuid == *gpu.uuid()))
}

impl Source for Gpus {
    fn names(&self) -> Names {
        Names {
            id: if self.several { "gpus-of-job" } else { "gpus" },
            title: "GPUs",
            rows: ("GPU", "GPUs"),
            filter: "fg",
            sort: "sg",
            example: "util<50 mem>90% node:gpu-0* !throttle:heat",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = gpus::columns();
        // Of one node there is no need to say which; of many there is no room for what is alike.
        let spare = if self.several { "name" } else { columns[gpus::NODE].id };
        columns
            .iter_mut()
            .filter(|column| column.id == spare)
            .for_each(|column| column.rank = Column::HIDDEN);
        columns
    }

    fn entries(&self) -> Vec<Entry> {
        self.scope.nodes.get().iter().flat_map(|cell| self.entries_of(cell)).collect()
    }

    fn track(&self, entry: &Entry) {
        let Subject::Gpu(node, gpu) = &entry.subject else { return };
        gpu.row().track();
        node.gpus().track();
        node.health().track();
        node.head().track();
    }

    fn value(&self, entry: &Entry, column: usize) -> Value {
        self.at(entry, |node, gpu| gpus::value(&gpus::GpuRow { node, gpu }, column)).unwrap_or(Value::NONE)
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let now_ms = self.page.fleet.relay_ms(browser::now_ms());
        let marks = self.at(entry, |node, gpu| Marks {
            foreign: !roster::is_of_job(node, gpu, self.scope.job),
            lost: gpu.fault.is_some(),
            // A table of one node is dimmed as a whole.
            stale: self.several
                && (node.head.nvml_stuck_ms.is_some() || freshness(node, now_ms) != Freshness::Fresh),
        });
        marks.unwrap_or_default()
    }

    fn draw(&self, entry: &Entry, column: &'static str) -> AnyView {
        match column {
            "temp" => temperature(self, entry),
            "flags" => flag_list(self, entry),
            _ => spark(self, entry),
        }
    }

    fn open(&self, entry: &Entry) {
        if let Subject::Gpu(_, gpu) = &entry.subject {
            self.page.address.push_query(query::GPU, Some(gpu.uuid().to_string()));
        }
    }
}

/// The temperature, marked from 5 °C below where the card slows down.
fn temperature(gpus: &Gpus, entry: &Entry) -> AnyView {
    let (gpus, entry) = (gpus.clone(), entry.clone());
    let now = memo(move || {
        gpus.track(&entry);
        let now = gpus.at(&entry, |_, gpu| {
            let (temp, limit) = (gpu.row.get(GpuField::Temp), gpu.facts.temp_slowdown_c.value().copied());
            let hot = temp.value().zip(limit).is_some_and(|(temp, limit)| temp + 5 >= limit);
            let value = if gpu.fault.is_some() {
                Value::Absent("the card cannot be read")
            } else {
                Value::cell(temp, nodeglass_protocol::cell::Scale::Even(1))
            };
            (value, hot)
        });
        now.unwrap_or((Value::NONE, false))
    });
    grid::marked(move || now.get().0, Unit::Celsius, "is-hot", move || now.get().1)
}

fn flag_list(gpus: &Gpus, entry: &Entry) -> AnyView {
    let (gpus, entry) = (gpus.clone(), entry.clone());
    let title = gpus.title(&entry);
    let now = memo(move || {
        gpus.track(&entry);
        gpus.at(&entry, |node, gpu| (gpus.stranger(node, gpu), gpus.flags(node, gpu))).unwrap_or_default()
    });
    let list = part(move || {
        let (whose, flags) = now.get();
        let whose =
            whose.map(|whose| view! { <small class="whose" title=whose.clone()>{whose.clone()}</small> });
        view! { {whose} {flags.into_iter().map(flag).collect_view()} }
    });
    view! { <span class="flags" title=title>{list}</span> }.into_any()
}

fn flag(flag: Flag) -> impl IntoView {
    let class = match flag.tone {
        Tone::Quiet => "flag flag--quiet",
        Tone::Warn => "flag",
        Tone::Alarm => "flag flag--alarm",
    };
    view! { <span class=class title=flag.why>{flag.text}</span> }
}

fn spark(gpus: &Gpus, entry: &Entry) -> AnyView {
    let Subject::Gpu(node, gpu) = entry.subject.clone() else { return ().into_any() };
    let (scene, page) = (gpus.scope.scene.clone(), gpus.page.clone());
    let past = memo(move || gpu_past(&page, &scene, &node, &gpu, GpuField::Util));
    view! { <Spark series=past hue="stroke-util"/> }.into_any()
}
