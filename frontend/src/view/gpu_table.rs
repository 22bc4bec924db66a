//! GPUs are rows whose sum stands in the same columns: those of a node, or every one of a job.

use super::chart::{spark, spark_line};
use super::grid::{self, Entry, Marks, Names, Own, Source, Subject, Table};
use super::scope::{Scope, gpu_past, is_left_out};
use crate::flags::{self, Flag, Tone};
use crate::fleet::{GpuCell, NodeCell};
use crate::health::{Freshness, freshness};
use crate::page::Page;
use crate::query;
use crate::roster;
use crate::table::{Column, Unit, Value, gpus};
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use std::cell::Cell;
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

    /// The temperature, and whether it is hot: from 5 °C below where the card slows down.
    fn temperature(&self, entry: &Entry) -> (Value, bool) {
        let now = self.at(entry, |_, gpu| {
            let (temp, limit) = (gpu.row.get(GpuField::Temp), gpu.facts.temp_slowdown_c.value().copied());
            let is_hot = temp.value().zip(limit).is_some_and(|(temp, limit)| temp + 5 >= limit);
            let value = if gpu.fault.is_some() {
                Value::Absent("the card cannot be read")
            } else {
                Value::cell(temp, nodeglass_protocol::cell::Scale::Linear(1))
            };
            (value, is_hot)
        });
        now.unwrap_or((Value::NONE, false))
    }

    /// Whose a GPU is, if it is not the job's, and what is worth a look.
    fn marked(&self, entry: &Entry) -> (Option<String>, Vec<Flag>) {
        self.at(entry, |node, gpu| (self.stranger(node, gpu), self.flags(node, gpu))).unwrap_or_default()
    }

    /// The path of its last ten minutes.
    fn spark(&self, entry: &Entry) -> String {
        let Subject::Gpu(node, gpu) = &entry.subject else { return String::new() };
        spark_line(&gpu_past(&self.page, &self.scope.scene, node, gpu, GpuField::Util))
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

    fn track(&self) {
        self.scope.scene.pulse().track();
    }

    fn stamp(&self, entry: &Entry) -> u64 {
        let Subject::Gpu(node, gpu) = &entry.subject else { return 0 };
        gpu.row().count() + node.cards().count() + node.head().count() + node.past().count()
    }

    fn values(&self, entry: &Entry, columns: &[usize], into: &mut Vec<Value>) {
        let values = self.at(entry, |node, gpu| {
            let row = gpus::GpuRow { node, gpu };
            into.extend(columns.iter().map(|column| gpus::value(&row, *column)));
        });
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::NONE));
        }
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let now_ms = self.page.fleet.shown_ms();
        let marks = self.at(entry, |node, gpu| Marks {
            foreign: !roster::is_of_job(node, gpu, self.scope.job),
            lost: gpu.fault.is_some(),
            // A table of one node is dimmed as a whole.
            stale: self.several
                && (node.head.nvml_stuck_ms.is_some() || freshness(node, now_ms) != Freshness::Fresh),
        });
        marks.unwrap_or_default()
    }

    /// The same GPUs as in the tiles above: on a node that several share those of the job.
    fn adds(&self, entry: &Entry) -> bool {
        let (now_ms, all) = (self.page.fleet.shown_ms(), self.scope.nodes.with_untracked(Vec::len));
        let adds = |node: &NodePicture, gpu: &GpuPicture| {
            roster::counts(node, gpu, self.scope.job) && !is_left_out(node, all, now_ms)
        };
        self.at(entry, adds) == Some(true)
    }

    fn draw(&self, entry: &Entry, column: &'static str) -> Own {
        match column {
            "temp" => own(self, entry, Self::temperature, |(value, is_hot)| {
                let class = if *is_hot { "is-hot" } else { "" };
                view! { <span class=class>{grid::figure(value, Unit::Celsius)}</span> }.into_any()
            }),
            "flags" => {
                let title = self.title(entry);
                let flags = own(self, entry, Self::marked, |(whose, flags)| flag_list(whose.as_ref(), flags));
                Own {
                    view: view! { <span class="flags" title=title>{flags.view}</span> }.into_any(),
                    ..flags
                }
            }
            _ => own_spark(self, entry),
        }
    }

    fn open(&self, entry: &Entry) {
        if let Subject::Gpu(_, gpu) = &entry.subject {
            self.page.address.push_query(query::GPU, Some(gpu.uuid().to_string()));
        }
    }
}

/// A cell that is drawn anew when what it shows is something else.
fn own<T: PartialEq + Send + Sync + 'static>(
    gpus: &Gpus,
    entry: &Entry,
    look: fn(&Gpus, &Entry) -> T,
    draw: fn(&T) -> AnyView,
) -> Own {
    let (gpus, entry) = (gpus.clone(), entry.clone());
    let shown = RwSignal::new(look(&gpus, &entry));
    Own::written(
        move || shown.with(draw),
        move || {
            let now = look(&gpus, &entry);
            if shown.with_untracked(|shown| *shown != now) {
                shown.set(now);
            }
        },
    )
}

/// The last ten minutes, drawn anew when the charts take a step.
fn own_spark(gpus: &Gpus, entry: &Entry) -> Own {
    let Subject::Gpu(node, _) = entry.subject.clone() else { return Own::by_itself(()) };
    let (gpus, entry) = (gpus.clone(), entry.clone());
    let version = move |gpus: &Gpus| (gpus.page.step.get_untracked(), node.past().count());
    let last = Cell::new(version(&gpus));
    let line = RwSignal::new(gpus.spark(&entry));
    Own::written(spark(move || line.get(), "stroke-util"), move || {
        let now = version(&gpus);
        if last.replace(now) != now {
            line.set(gpus.spark(&entry));
        }
    })
}

fn flag_list(whose: Option<&String>, flags: &[Flag]) -> AnyView {
    let whose = whose.map(|whose| view! { <small class="whose" title=whose.clone()>{whose.clone()}</small> });
    view! { {whose} {flags.iter().cloned().map(flag).collect_view()} }.into_any()
}

fn flag(flag: Flag) -> impl IntoView {
    let class = match flag.tone {
        Tone::Quiet => "flag flag--quiet",
        Tone::Warn => "flag",
        Tone::Alarm => "flag flag--alarm",
    };
    view! { <span class=class title=flag.why>{flag.text}</span> }
}
