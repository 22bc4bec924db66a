//! The table of GPUs, of one node or of a whole job, with totals.

use super::grid::{self, CustomCell, RowEntry, RowFlags, RowSource, RowSubject, Table, TableNames};
use crate::describe::gpu::instance_name;
use crate::domain::attention;
use crate::domain::deviation::{Comparison, Deviation};
use crate::domain::flags::{self, Flag, FlagKind};
use crate::domain::health::{Freshness, freshness};
use crate::domain::ownership;
use crate::domain::query;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::{GpuSignals, NodeSignals};
use crate::state::page::Page;
use crate::table::gpus::Peers;
use crate::table::{CellUnit, Column, Value, gpus};
use crate::view::charts::sparkline::{spark, spark_line};
use crate::view::scope::{NodeScope, gpu_series, is_left_out};
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;
use nodeglass_protocol::field::Vendors;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{GpuField, JobId, Vendor};
use std::cell::Cell;
use std::sync::Arc;

/// The GPUs of a scope, the job's first.
#[component]
pub fn GpuTable(
    /// The scope.
    scope: NodeScope,
    /// Whether the node is a column because there are several; GPUs of other jobs are then left out.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    view! { <Table source=Arc::new(Gpus { scope, several, page: Page::from_context() })/> }
}

/// Rows of GPUs.
#[derive(Clone)]
struct Gpus {
    scope: NodeScope,
    several: bool,
    page: Page,
}

impl Gpus {
    /// Reads a GPU and its node; does not subscribe.
    fn at<R>(&self, entry: &RowEntry, read: impl FnOnce(&NodePicture, &GpuPicture) -> R) -> Option<R> {
        let RowSubject::Gpu(node, gpu) = &entry.subject else { return None };
        self.scope.store.node(node, |node| find(node, gpu).map(|gpu| read(node, gpu)))?
    }

    fn node_entries(&self, cell: &NodeSignals) -> Vec<RowEntry> {
        let cells = cell.gpus().get();
        let rows = self.scope.store.node(cell, |node| {
            let is_included = |at: &usize| {
                !self.several || ownership::belongs_to_job(node, &node.gpus[*at], self.scope.job)
            };
            let order: Vec<usize> =
                ownership::job_gpus_first(node, self.scope.job).into_iter().filter(is_included).collect();
            gpus::with_instances(node, &order)
        });
        let entry = |(at, depth): (usize, u8)| {
            let gpu = cells.get(at)?.clone();
            let key = format!("{}/{}", cell.name(), gpu.uuid()).into();
            Some(RowEntry { key, depth, subject: RowSubject::Gpu(cell.clone(), gpu) })
        };
        rows.unwrap_or_default().into_iter().filter_map(entry).collect()
    }

    /// Returns the owner of a GPU that is not the job's. Outside a job, a column names the owners.
    fn foreign_owner(&self, node: &NodePicture, gpu: &GpuPicture) -> Option<String> {
        // A partitioned GPU has no owner: its instances have.
        let divided = node.gpus.iter().any(|part| part.facts.mig_parent.as_ref() == Some(&gpu.facts.uuid));
        let is_own = ownership::belongs_to_job(node, gpu, self.scope.job);
        if self.scope.job.is_none() || divided || is_own {
            return None;
        }
        let owner = gpu.owners.first().map(|owner| owner.job);
        Some(owner.map_or_else(|| "no known job".to_owned(), |job| format!("of {}", self.numbered_job(job))))
    }

    /// Returns a job's number and name, because several jobs may have the same name.
    fn numbered_job(&self, id: JobId) -> String {
        match untrack(|| self.page.job(id)) {
            Some(job) => format!("{} · {}", job.label, job.name),
            None => format!("job {id}"),
        }
    }

    /// Returns the jobs of a GPU by number and name.
    fn job(&self, entry: &RowEntry) -> Option<String> {
        let owners = self.at(entry, |_, gpu| gpu.owners.iter().map(|owner| owner.job).collect::<Vec<_>>())?;
        Some(owners.iter().map(|id| self.numbered_job(*id)).collect::<Vec<_>>().join(", "))
            .filter(|jobs| !jobs.is_empty())
    }

    /// Returns the flags of a GPU, including the flags of its driver and its kind of memory.
    fn flags(&self, node: &NodePicture, gpu: &GpuPicture) -> Vec<Flag> {
        let mut flags: Vec<Flag> = Vec::new();
        if let Some(why) = &gpu.fault {
            let severity = flags::fault_severity(node, gpu);
            flags.push(Flag {
                kind: FlagKind::Other,
                text: format!("{} {}", severity.symbol(), gpus::short_fault(why.as_str())),
                why: "The card cannot be read.",
                severity,
            });
        } else {
            flags = flags::for_gpu(node, gpu);
            let entries = self.page.attention.entries().get_untracked();
            flags::judge(&mut flags, attention::memory_errors(&entries, &gpu.facts.uuid));
        }
        if node.head.driver_stuck_ms.is_some() {
            let why = "A call into the driver does not return: the values are from before.";
            flags.insert(
                0,
                Flag {
                    kind: FlagKind::Other,
                    text: format!("▲ {} hangs", gpu.facts.vendor.library()),
                    why,
                    severity: Severity::Error,
                },
            );
        }
        if gpus::lacks_process(&gpus::GpuRow { node, gpu, deviation: gpus::Peers::TooFew }) {
            flags.push(Flag {
                kind: FlagKind::Other,
                text: gpus::NO_PROCESS.to_owned(),
                why: "No process of its job uses it now.",
                severity: Severity::Ok,
            });
        }
        if gpu.facts.unified_memory {
            let why = "Its memory is the host's memory.";
            flags.push(Flag {
                kind: FlagKind::Other,
                text: "unified".to_owned(),
                why,
                severity: Severity::Ok,
            });
        }
        flags
    }

    /// Returns the temperature, and whether it is within 5 °C of the slowdown temperature.
    fn temperature(&self, entry: &RowEntry) -> (Value, bool) {
        let now = self.at(entry, |_, gpu| {
            let (temp, limit) = (gpu.row.get(GpuField::Temp), gpu.facts.temp_slowdown_c.value().copied());
            let is_hot = temp.value().zip(limit).is_some_and(|(temp, limit)| temp + 5 >= limit);
            let value = if gpu.fault.is_some() {
                Value::Absent("the card cannot be read")
            } else {
                Value::cell(temp, nodeglass_protocol::field::Scale::Linear(1))
            };
            (value, is_hot)
        });
        now.unwrap_or((Value::NONE, false))
    }

    /// Returns the owner of a GPU that is not the job's, and its flags.
    fn owner_and_flags(&self, entry: &RowEntry) -> (Option<String>, Vec<Flag>) {
        self.at(entry, |node, gpu| (self.foreign_owner(node, gpu), self.flags(node, gpu))).unwrap_or_default()
    }

    /// Returns whether a GPU has peers, and how far it is from them.
    fn deviation(&self, entry: &RowEntry) -> (bool, Option<Deviation>) {
        let RowSubject::Gpu(node, gpu) = &entry.subject else { return (false, None) };
        let (node, gpu) = (node.position(), gpu.position());
        self.scope.store.comparison(|comparison| {
            (comparison.has_peers(node, gpu), comparison.deviation(node, gpu).copied())
        })
    }

    /// Returns the value of the column `deviation`, and the text of an outlier.
    fn deviation_cell(&self, entry: &RowEntry) -> (Value, Option<String>) {
        let RowSubject::Gpu(node, gpu) = &entry.subject else { return (Value::NONE, None) };
        let (node, gpu) = (node.position(), gpu.position());
        let outlier = |comparison: &Comparison| Some(comparison.outlier(node, gpu)?.label.clone());
        (gpus::deviation(peers(&self.deviation(entry))), self.scope.store.comparison(outlier))
    }

    /// Returns the path of its sparkline.
    fn spark(&self, entry: &RowEntry) -> String {
        let RowSubject::Gpu(node, gpu) = &entry.subject else { return String::new() };
        spark_line(&gpu_series(&self.page, &self.scope.store, node, gpu, GpuField::Util))
    }

    fn title(&self, entry: &RowEntry) -> String {
        let lines = self.at(entry, |_, gpu| {
            let mut lines = vec![gpu.facts.uuid.to_string()];
            lines.extend(gpu.facts.pci.value().map(|pci| format!("PCI {pci}")));
            let minor = gpu.facts.minor.value().filter(|_| gpu.facts.vendor == Vendor::Nvidia);
            lines.extend(minor.map(|minor| format!("/dev/nvidia{minor}")));
            lines.extend(
                gpu.owners
                    .iter()
                    .map(|owner| format!("job {}: {}", owner.job, ownership::evidence_text(owner.by))),
            );
            lines.join("\n")
        });
        lines.unwrap_or_default()
    }
}

fn peers((has_peers, deviation): &(bool, Option<Deviation>)) -> Peers<'_> {
    match deviation {
        Some(deviation) => Peers::Known(deviation),
        None if *has_peers => Peers::Unknown,
        None => Peers::TooFew,
    }
}

/// Returns the picture of a GPU in its node.
pub fn find<'a>(node: &'a NodePicture, gpu: &GpuSignals) -> Option<&'a GpuPicture> {
    let here = node.gpus.get(gpu.position()).filter(|here| here.facts.uuid == *gpu.uuid());
    here.or_else(|| node.gpus.iter().find(|here| here.facts.uuid == *gpu.uuid()))
}

impl RowSource for Gpus {
    fn names(&self) -> TableNames {
        TableNames {
            id: if self.several { "gpus-of-job" } else { "gpus" },
            title: "GPUs",
            rows: ("GPU", "GPUs"),
            filter: "fg",
            sort: "sg",
            example: "rank:35 deviation>10 util<50 mem>90% !throttle:heat",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = gpus::columns();
        // One node needs no column for its name; several nodes leave no space for columns with equal values. The name of
        // an instance includes its profile.
        let spare = if self.several { vec!["name"] } else { vec![columns[gpus::NODE].id, "instance"] };
        columns
            .iter_mut()
            .filter(|column| spare.contains(&column.id))
            .for_each(|column| column.rank = Column::HIDDEN);
        // The GPUs of a whole node are of unrelated jobs.
        let is_of_job = self.scope.job.is_some();
        columns
            .iter_mut()
            .filter(|column| !is_of_job && matches!(column.id, "rank" | "deviation"))
            .for_each(|column| column.rank = Column::HIDDEN);
        let has_jobs = untrack(|| self.page.has_jobs());
        columns
            .iter_mut()
            .filter(|column| column.id == "owners" && (is_of_job || !has_jobs))
            .for_each(|column| column.rank = Column::HIDDEN);
        columns
    }

    fn vendors(&self) -> Vendors {
        self.scope.vendors()
    }

    fn entries(&self) -> Vec<RowEntry> {
        self.scope.nodes.get().iter().flat_map(|cell| self.node_entries(cell)).collect()
    }

    fn track(&self) {
        self.scope.store.changed().track();
    }

    fn revision(&self, entry: &RowEntry) -> u64 {
        let RowSubject::Gpu(node, gpu) = &entry.subject else { return 0 };
        let compared = self.scope.store.comparison(Comparison::revision);
        gpu.row().count()
            + node.gpu_health().count()
            + node.head().count()
            + node.history().count()
            + node.process_set().count()
            + compared
    }

    fn values(&self, entry: &RowEntry, columns: &[usize], into: &mut Vec<Value>) {
        let known = self.deviation(entry);
        let deviation = peers(&known);
        let values = self.at(entry, |node, gpu| {
            let row = gpus::GpuRow { node, gpu, deviation };
            into.extend(columns.iter().map(|column| gpus::value(&row, *column)));
        });
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::NONE));
        }
    }

    fn row_flags(&self, entry: &RowEntry) -> RowFlags {
        let now_ms = self.page.fleet.shown_ms();
        let row_flags = self.at(entry, |node, gpu| RowFlags {
            foreign: !ownership::belongs_to_job(node, gpu, self.scope.job),
            lost: gpu.fault.is_some(),
            // A table of one node is dimmed as a whole.
            stale: self.several
                && (node.head.driver_stuck_ms.is_some() || freshness(node, now_ms) != Freshness::Fresh),
            ..RowFlags::default()
        });
        row_flags.unwrap_or_default()
    }

    /// The same GPUs as in the tiles above: on a shared node the job's.
    fn counts_in_totals(&self, entry: &RowEntry) -> bool {
        let (now_ms, all) = (self.page.fleet.shown_ms(), self.scope.nodes.with_untracked(Vec::len));
        let counts_in_totals = |node: &NodePicture, gpu: &GpuPicture| {
            ownership::counts(node, gpu, self.scope.job) && !is_left_out(node, all, now_ms)
        };
        self.at(entry, counts_in_totals) == Some(true)
    }

    fn counted(&self, entries: &[RowEntry]) -> String {
        let is_part = |entry: &&RowEntry| {
            self.at(entry, |_, gpu| gpu.facts.mig_parent.is_some()).unwrap_or(entry.depth > 0)
        };
        let parts = entries.iter().filter(is_part).count();
        text::gpu_count(entries.len() - parts, parts)
    }

    fn second_line(&self, entry: &RowEntry, is_shown: &dyn Fn(&str) -> bool) -> Option<String> {
        let (owner, flags) = self.owner_and_flags(entry);
        let flag = flags.into_iter().find(|flag| flag.severity >= Severity::Warning);
        let rest =
            flag.map(|flag| format!("{} – {}", flag.text, flag.why)).or(owner.filter(|_| !is_shown("flags")));
        // Instances of a GPU share its index.
        let instance = self.at(entry, |_, gpu| gpu.facts.mig.as_ref().map(instance_name)).flatten();
        let instance = instance.filter(|_| !is_shown("name") && !is_shown("instance"));
        let parts: Vec<String> = instance.into_iter().chain(rest).collect();
        (!parts.is_empty()).then(|| parts.join(" · "))
    }

    fn custom_cell(&self, entry: &RowEntry, column: &'static str) -> CustomCell {
        match column {
            "temp" => watched_cell(self, entry, Self::temperature, |(value, is_hot)| {
                let class = if *is_hot { "is-hot" } else { "" };
                view! { <span class=class>{grid::figure(value, CellUnit::Celsius)}</span> }.into_any()
            }),
            "deviation" => {
                watched_cell(self, entry, Self::deviation_cell, |(value, outlier)| {
                    match outlier {
                    Some(label) => view! { <span class="deviation">"◆ " {label.clone()}</span> }.into_any(),
                    None => {
                        view! { <span class="deviation--usual">{grid::figure(value, CellUnit::Percent)}</span> }
                            .into_any()
                    }
                }
                })
            }
            "owners" => watched_cell(self, entry, Self::job, |jobs| match jobs {
                Some(jobs) => {
                    view! { <span class="said" title=jobs.clone()>{jobs.clone()}</span> }.into_any()
                }
                None => {
                    view! { <span class="absent" title="of an unknown job">{text::ABSENT}</span> }.into_any()
                }
            }),
            "flags" => {
                let title = self.title(entry);
                let flags = watched_cell(self, entry, Self::owner_and_flags, |(whose, flags)| {
                    flag_list(whose.as_ref(), flags)
                });
                CustomCell {
                    view: view! { <span class="flags" title=title>{flags.view}</span> }.into_any(),
                    ..flags
                }
            }
            _ => spark_cell(self, entry),
        }
    }

    fn open(&self, entry: &RowEntry) {
        if let RowSubject::Gpu(_, gpu) = &entry.subject {
            self.page.address.push_query(query::GPU, Some(gpu.uuid().to_string()));
        }
    }
}

/// Creates a cell that is redrawn when the value it shows changes.
fn watched_cell<T: PartialEq + Send + Sync + 'static>(
    gpus: &Gpus,
    entry: &RowEntry,
    read: fn(&Gpus, &RowEntry) -> T,
    custom_cell: fn(&T) -> AnyView,
) -> CustomCell {
    let (gpus, entry) = (gpus.clone(), entry.clone());
    let shown = RwSignal::new(read(&gpus, &entry));
    CustomCell::updated_by_row(
        move || shown.with(custom_cell),
        move || {
            let now = read(&gpus, &entry);
            if shown.with_untracked(|shown| *shown != now) {
                shown.set(now);
            }
        },
    )
}

/// Creates the sparkline cell, redrawn when the charts take a step.
fn spark_cell(gpus: &Gpus, entry: &RowEntry) -> CustomCell {
    let RowSubject::Gpu(node, _) = entry.subject.clone() else { return CustomCell::self_updating(()) };
    let (gpus, entry) = (gpus.clone(), entry.clone());
    let version = move |gpus: &Gpus| (gpus.page.step.get_untracked(), node.history().count());
    let last = Cell::new(version(&gpus));
    let line = RwSignal::new(gpus.spark(&entry));
    CustomCell::updated_by_row(spark(move || line.get(), "stroke-util"), move || {
        let now = version(&gpus);
        if last.replace(now) != now {
            line.set(gpus.spark(&entry));
        }
    })
}

fn flag_list(whose: Option<&String>, flags: &[Flag]) -> AnyView {
    let whose = whose.map(|whose| view! { <small class="whose" title=whose.clone()>{whose.clone()}</small> });
    // The owner gives way where both do not fit.
    view! { {flags.iter().cloned().map(flag).collect_view()} {whose} }.into_any()
}

fn flag(flag: Flag) -> impl IntoView {
    view! { <span class=flag.severity.tag_class() title=flag.why>{flag.text}</span> }
}
