//! The processes of GPUs, on one node or of a job on all its nodes, and memory that no visible one holds.

use super::gpu_table::find;
use super::grid::{Entry, Marks, Names, Own, ProcessKey, Source, Subject, Table};
use super::scope::Scope;
use crate::browser;
use crate::fleet::NodeCell;
use crate::page::Page;
use crate::table::processes::{self, ProcessRow, Who};
use crate::table::{Column, Now, Value, unseen};
use crate::{query, roster};
use leptos::prelude::*;
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::share;
use std::sync::Arc;

/// The processes of a scope.
#[component]
pub fn ProcessTable(
    /// The scope.
    scope: Scope,
    /// Whether the node is a column, because there are several.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    view! { <Table source=Arc::new(Processes { scope, several, page: Page::here() })/> }
}

/// Processes as rows.
struct Processes {
    scope: Scope,
    several: bool,
    page: Page,
}

/// A row before it is one, with what it is ordered by.
type Placed = ((bool, u32, u32), Entry);

impl Processes {
    /// Reads a row; wakes nobody.
    fn at<R>(&self, entry: &Entry, read: impl FnOnce(&ProcessRow<'_>) -> R) -> Option<R> {
        let page_ms = browser::now_ms();
        let now =
            Now { relay_ms: self.page.fleet.relay_ms(page_ms), wall_s: self.page.fleet.wall_s(page_ms) };
        match &entry.subject {
            Subject::Process(cell, key, place) => self.scope.scene.node(cell, |node| {
                let process = process(node, key, *place)?;
                let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == key.gpu);
                Some(read(&ProcessRow { node, gpu, who: Who::Process(process), now }))
            })?,
            Subject::Unseen(cell, gpu) => self.scope.scene.node(cell, |node| {
                let bytes = unseen::of(node, gpu.position()).unwrap_or(0);
                read(&ProcessRow { node, gpu: find(node, gpu), who: Who::Unseen(bytes), now })
            }),
            Subject::Gap(cell, gpu, place) => self.scope.scene.node(cell, |node| {
                let gpu = find(node, gpu);
                let who = Who::Gap(gpu?.gaps.get(*place)?);
                Some(read(&ProcessRow { node, gpu, who, now }))
            })?,
            _ => None,
        }
    }

    fn is_foreign(&self, node: &NodePicture, process: &ProcessPicture) -> bool {
        let Some(job) = self.scope.job else { return false };
        if let Some(whose) = process.facts.job {
            return whose != job;
        }
        let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.facts.gpu);
        !gpu.is_none_or(|gpu| roster::is_of_job(node, gpu, Some(job)))
    }

    fn entries_of(&self, cell: &NodeCell) -> Vec<Entry> {
        cell.members().track();
        let gpus = cell.gpus().get();
        let mut rows: Vec<Placed> = Vec::new();
        // Where processes are hidden, memory that none of those that are shown holds says nothing.
        let sees_all = self
            .page
            .share()
            .is_none_or(|terms| terms.scope == share::Scope::All && !terms.hides.other_users);
        self.scope.scene.node(cell, |node| {
            for (place, process) in node.processes.iter().enumerate() {
                let (gpu, pid) = (process.facts.gpu.clone(), process.facts.pid);
                let index = node.gpus.iter().position(|known| known.facts.uuid == gpu);
                let key = format!("{}/{gpu}/{pid}", cell.name()).into();
                let subject = Subject::Process(cell.clone(), ProcessKey { gpu, pid }, place);
                let by = (self.is_foreign(node, process), index.map_or(u32::MAX, |index| index as u32), pid);
                rows.push((by, Entry { key, depth: 0, subject }));
            }
            for (gpu, picture) in gpus.iter().filter_map(|gpu| Some((gpu, find(node, gpu)?))) {
                let foreign = !roster::is_of_job(node, picture, self.scope.job);
                for place in 0..picture.gaps.len() {
                    let key = format!("{}/{}/gap-{place}", cell.name(), gpu.uuid()).into();
                    let subject = Subject::Gap(cell.clone(), gpu.clone(), place);
                    // No process has this pid: before those that are listed.
                    rows.push(((foreign, gpu.position() as u32, 0), Entry { key, depth: 0, subject }));
                }
            }
            for gpu in gpus.iter().filter(|_| sees_all) {
                let Some(picture) = find(node, gpu).filter(|_| unseen::of(node, gpu.position()).is_some())
                else {
                    continue;
                };
                let foreign = !roster::is_of_job(node, picture, self.scope.job);
                let key = format!("{}/{}/unseen", cell.name(), gpu.uuid()).into();
                let subject = Subject::Unseen(cell.clone(), gpu.clone());
                rows.push(((foreign, gpu.position() as u32, u32::MAX), Entry { key, depth: 0, subject }));
            }
        });
        // Unstable sorting is less code, and no two rows are alike.
        rows.sort_unstable_by_key(|(by, _)| *by);
        rows.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// A process in the list of its node.
fn process<'a>(node: &'a NodePicture, key: &ProcessKey, place: usize) -> Option<&'a ProcessPicture> {
    let is = |process: &&ProcessPicture| process.facts.pid == key.pid && process.facts.gpu == key.gpu;
    node.processes.get(place).filter(is).or_else(|| node.processes.iter().find(is))
}

impl Source for Processes {
    fn names(&self) -> Names {
        Names {
            id: if self.several { "processes-of-job" } else { "processes" },
            title: "Processes",
            rows: ("process", "processes"),
            filter: "f",
            sort: "s",
            example: "user:alice sm>50 mem>10g node:gpu-0* state:zombie rank:3 !docker \"free text\"",
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = processes::columns();
        if !self.several {
            columns[processes::NODE].rank = Column::HIDDEN;
        }
        columns
    }

    fn entries(&self) -> Vec<Entry> {
        // Memory that nobody holds comes and goes without any process doing so.
        self.page.step.track();
        self.scope.nodes.get().iter().flat_map(|cell| self.entries_of(cell)).collect()
    }

    fn track(&self) {
        self.scope.scene.pulse().track();
        self.page.second.track();
    }

    fn stamp(&self, entry: &Entry) -> u64 {
        let (Subject::Process(cell, ..) | Subject::Unseen(cell, _) | Subject::Gap(cell, ..)) = &entry.subject
        else {
            return 0;
        };
        // Some of it is told as a length of time.
        cell.processes().count() + self.page.second.get_untracked()
    }

    fn values(&self, entry: &Entry, columns: &[usize], into: &mut Vec<Value>) {
        let values =
            self.at(entry, |row| into.extend(columns.iter().map(|column| processes::value(row, *column))));
        if values.is_none() {
            into.extend(columns.iter().map(|_| Value::Absent("it has ended")));
        }
    }

    fn marks(&self, entry: &Entry) -> Marks {
        let foreign = self.at(entry, |row| match row.who {
            Who::Process(process) => self.is_foreign(row.node, process),
            Who::Unseen(_) | Who::Gap(_) => {
                row.gpu.is_some_and(|gpu| !roster::is_of_job(row.node, gpu, self.scope.job))
            }
        });
        Marks {
            foreign: foreign.unwrap_or(true),
            lost: matches!(entry.subject, Subject::Unseen(..) | Subject::Gap(..)),
            stale: false,
        }
    }

    fn about(&self, entry: &Entry) -> Option<&'static str> {
        match entry.subject {
            Subject::Unseen(..) => Some(unseen::ABOUT),
            Subject::Gap(..) => Some(processes::ABOUT_GAPS),
            _ => None,
        }
    }

    fn draw(&self, _: &Entry, _: &'static str) -> Own {
        Own::by_itself(())
    }

    fn open(&self, entry: &Entry) {
        let Subject::Process(cell, key, _) = &entry.subject else { return };
        let started = self.at(entry, |row| match row.who {
            Who::Process(process) => process.facts.started_ms.value().copied(),
            Who::Unseen(_) | Who::Gap(_) => None,
        });
        let started = started.flatten().unwrap_or(0);
        let process = format!("{}/{}/{started}", cell.name(), key.pid);
        self.page.address.push_query(query::PROCESS, Some(process));
    }
}
