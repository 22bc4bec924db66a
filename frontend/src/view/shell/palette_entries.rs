//! Content of the command palette: findings, jobs, nodes, GPUs, processes, pages and commands.

use crate::describe::gpu::instance_label;
use crate::domain::attention::Item;
use crate::domain::health::state_label;
use crate::domain::job_groups::{array_of, is_task};
use crate::domain::keys::{Command, bindings, keycap};
use crate::domain::query::{self, Query};
use crate::domain::route::{JobTab, Route};
use crate::domain::text;
use crate::fleet::TopicStore;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::process::ProcessFacts;
use nodeglass_protocol::request::FoundProcess;
use nodeglass_protocol::{JobId, NodeName};

/// Time for which the command of the palette silences a finding, in s.
pub const SILENCE_S: u32 = 3_600;
/// The query parameter of the filter of processes.
const PROCESS_FILTER: &str = "f";
/// The least number that is searched as a PID without the word.
const MIN_PID: u32 = 1_000;

/// An entry of the palette.
#[derive(Clone, Debug, PartialEq)]
pub struct PaletteEntry {
    /// The text that is shown and searched.
    pub name: String,
    /// The hint beside it.
    pub hint: String,
    /// The searched text beside the name.
    pub words: String,
    /// Its target.
    pub target: Target,
}

/// The effect of choosing an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Shows a route, with this query.
    Route(Route, Query),
    /// Opens a sheet on the current page, by its query parameter and its subject.
    Sheet(&'static str, String),
    /// Runs a command.
    Command(Command),
    /// Silences a finding for [`SILENCE_S`].
    Silence(Box<Item>),
}

impl PaletteEntry {
    fn new(name: impl Into<String>, hint: impl Into<String>, target: Target) -> Self {
        Self { name: name.into(), hint: hint.into(), words: String::new(), target }
    }

    fn route(name: impl Into<String>, hint: impl Into<String>, route: Route) -> Self {
        Self::new(name, hint, Target::Route(route, Query::default()))
    }

    /// Returns whether it is about the same process as another entry.
    pub fn is_same_subject(&self, other: &Self) -> bool {
        (&self.name, &self.hint) == (&other.name, &other.hint)
    }

    fn with_words(self, words: impl Into<String>) -> Self {
        Self { words: words.into(), ..self }
    }
}

/// Maximum number of findings that are listed before anything is typed.
const FINDINGS_AT_FIRST: usize = 4;

/// Returns what is listed before anything is typed: the worst findings, then pages and commands. Subscribes to their sources.
pub fn entries_at_first(page: &Page) -> Vec<PaletteEntry> {
    findings(page).into_iter().take(FINDINGS_AT_FIRST).chain(commands(page)).collect()
}

/// Returns every entry; entries of equal matches are in the order of the list. Subscribes to their sources.
pub fn entries(page: &Page) -> Vec<PaletteEntry> {
    let jobs = page.jobs.get();
    let mut arrays: Vec<JobId> = Vec::new();
    for job in jobs.iter() {
        if let Some(array) = array_of(job)
            && !arrays.contains(&array)
        {
            arrays.push(array);
        }
    }
    let array = |id: JobId| {
        let name = jobs.iter().find(|job| is_task(job, id)).map(|job| job.name.to_string());
        PaletteEntry::route(format!("{id} {}", name.unwrap_or_default()), "array", Route::Array(id))
    };
    let job = |job: &Job| {
        let name = format!("{} {}", job.label, job.name);
        PaletteEntry::route(name, format!("job, {}", state_label(job)), Route::Job(job.id, JobTab::Nodes))
    };
    let tabs = page.route.get().job().into_iter().flat_map(|id| {
        let nodes = page.job(id).map(|job| job.nodes).unwrap_or_default();
        let node = move |node: nodeglass_protocol::NodeName| {
            PaletteEntry::route(node.to_string(), "node of this job", Route::Job(id, JobTab::Node(node)))
        };
        let report = PaletteEntry::route("report of this job", "page", Route::Job(id, JobTab::Report));
        nodes.into_iter().map(node).chain([report]).collect::<Vec<_>>()
    });
    let nodes = page.fleet.overview().nodes().get();
    let node = |cell: &crate::fleet::NodeSignals| {
        PaletteEntry::route(cell.name().to_string(), "node", Route::Node(cell.name().clone()))
    };
    let processes = page.fleet.detail().map(|store| processes(&store)).unwrap_or_default();
    let jobs = arrays.into_iter().map(array).chain(jobs.iter().map(job));
    let mut all: Vec<PaletteEntry> = jobs.chain(tabs).chain(nodes.iter().map(node)).collect();
    all.extend(findings(page));
    all.extend(commands(page));
    all.extend(processes);
    all.extend(gpus(page.fleet.overview()));
    all.extend(silences(page));
    all
}

/// Returns the jobs in which a typed rank or PID can be searched: the processes of jobs that are not shown are unknown here.
pub fn processes_elsewhere(page: &Page, typed: &str) -> Vec<PaletteEntry> {
    let Some((column, number)) = column_and_number(typed) else { return Vec::new() };
    // The number of a job is not taken for a PID.
    if page.jobs.with(|jobs| jobs.iter().any(|job| job.label.as_str() == typed.trim())) {
        return Vec::new();
    }
    let here = page.route.get().job();
    let has_rank = |job: &Job| job.gpu_count.is_none_or(|count| count > number);
    let may_have = |job: &&Job| job.is_active() && Some(job.id) != here && (column == "pid" || has_rank(job));
    let entry = |job: &Job| {
        let mut query = Query::default();
        query.set(PROCESS_FILTER, Some(format!("{column}={number}")));
        let target = Target::Route(Route::Job(job.id, JobTab::Processes), query);
        // Whether the job has such a process is not known here.
        let name = if column == "pid" {
            format!("search pid {number} in {}", job.name)
        } else {
            format!("{column} {number} of {}", job.name)
        };
        PaletteEntry::new(name, format!("job {}", job.label), target)
    };
    page.jobs.with(|jobs| jobs.iter().filter(may_have).map(entry).collect())
}

/// Returns the typed PID, unless it is the number of a job.
pub fn typed_pid(page: &Page, typed: &str) -> Option<u32> {
    let is_job = page.jobs.with(|jobs| jobs.iter().any(|job| job.label.as_str() == typed.trim()));
    column_and_number(typed).filter(|(column, _)| *column == "pid" && !is_job).map(|(_, pid)| pid)
}

/// Returns an entry for each process that the relay found, which leads to its sheet on the page of its job, or else of its node.
pub fn found_processes(found: &[FoundProcess]) -> Vec<PaletteEntry> {
    let entry = |one: &FoundProcess| {
        let route = match one.facts.job {
            Some(job) => Route::Job(job, JobTab::Processes),
            None => Route::Node(one.node.clone()),
        };
        let mut query = Query::default();
        query.set(query::PROCESS, Some(process_key(&one.node, &one.facts)));
        let (name, hint) = (process_name(&one.facts), format!("process on {}", one.node));
        PaletteEntry::new(name, hint, Target::Route(route, query))
    };
    let mut entries: Vec<_> = found.iter().map(entry).collect();
    // One that uses several GPUs was found for each.
    entries.dedup();
    entries
}

/// Returns a typed rank or PID with its column in the table of processes: `rank 35` or `pid 41822` among other words, or a
/// number alone that is large enough for a PID.
fn column_and_number(typed: &str) -> Option<(&'static str, u32)> {
    let named = |column| Some((column, number_after(column, typed)?));
    let alone = || typed.trim().parse().ok().filter(|number| *number >= MIN_PID).map(|pid| ("pid", pid));
    named("rank").or_else(|| named("pid")).or_else(alone)
}

/// Returns the number after a word.
fn number_after(word: &str, typed: &str) -> Option<u32> {
    let mut words = typed.split_whitespace().skip_while(|typed| !typed.eq_ignore_ascii_case(word));
    words.nth(1)?.parse().ok()
}

fn items(page: &Page) -> Vec<Item> {
    let entries = page.attention.entries().get();
    entries.iter().filter(|entry| !entry.is_resolved).map(|entry| entry.item.clone()).collect()
}

fn findings(page: &Page) -> Vec<PaletteEntry> {
    let now_ms = untrack(|| page.wall_ms());
    let entry = |item: Item| {
        let target = Target::Route(item.target.route.clone(), item.query(now_ms));
        PaletteEntry::new(item.title, item.subject.clone(), target)
            .with_words(format!("{} {} finding", item.subject, item.reason))
    };
    items(page).into_iter().map(entry).collect()
}

fn silences(page: &Page) -> Vec<PaletteEntry> {
    let entry = |item: Item| {
        let name = format!("silence for 1 h: {}", item.title);
        let (hint, words) = (item.subject.clone(), item.subject.clone());
        PaletteEntry::new(name, hint, Target::Silence(Box::new(item))).with_words(words)
    };
    let can_silence = page.is_owner();
    items(page).into_iter().filter(|item| can_silence && !item.is_past).map(entry).collect()
}

fn commands(page: &Page) -> Vec<PaletteEntry> {
    let is_owner = page.is_owner();
    let has_job = page.route.get().job().is_some();
    let is_listed = move |command: Command| match command {
        Command::Job(_) | Command::Node(_) | Command::Close => false,
        command => has_job || !command.needs_job(),
    };
    let commands = bindings(is_owner, page.shows_logs())
        .filter(move |binding| is_listed(binding.command))
        .map(|binding| {
            let hint = format!("key {}", keycap(binding.keys[0]));
            let words = match binding.command {
                Command::Help => "help",
                Command::Copy => "export csv json",
                Command::Share => "link guest",
                _ => "",
            };
            PaletteEntry::new(binding.description, hint, Target::Command(binding.command)).with_words(words)
        });
    let pages = [
        ("my usage", Route::Usage),
        ("audit log: who viewed and what was done", Route::Audit),
        ("compare jobs", Route::Compare(Vec::new())),
    ];
    let pages = pages.into_iter().filter(|(_, route)| match route {
        Route::Usage => page.has_usage(),
        Route::Audit => is_owner,
        _ => true,
    });
    pages.map(|(name, route)| PaletteEntry::route(name, "page", route)).chain(commands).collect()
}

/// Returns an entry for each GPU, which leads to its sheet on its node.
fn gpus(store: &TopicStore) -> Vec<PaletteEntry> {
    untrack(|| {
        store.read(|picture| {
            let of_node = |node: &NodePicture| {
                let name = node.name.clone();
                let entry = move |gpu: &nodeglass_protocol::picture::GpuPicture| {
                    let mut query = Query::default();
                    query.set(query::GPU, Some(gpu.facts.uuid.to_string()));
                    let target = Target::Route(Route::Node(name.clone()), query);
                    // As the command line and reports write it.
                    let words = format!("{name}:{} {}", gpu.facts.index, gpu.facts.uuid);
                    PaletteEntry::new(format!("{name} {}", instance_label(&gpu.facts)), "GPU", target)
                        .with_words(words)
                };
                node.gpus.iter().map(entry).collect::<Vec<_>>()
            };
            picture.nodes.iter().flat_map(of_node).collect()
        })
    })
}

/// Returns an entry for each process of a topic, which leads to its sheet, and one for each rank, which leads to its GPU.
fn processes(store: &TopicStore) -> Vec<PaletteEntry> {
    let mut ranks: Vec<PaletteEntry> = Vec::new();
    let mut processes: Vec<PaletteEntry> = Vec::new();
    untrack(|| {
        store.read(|picture| {
            for node in &picture.nodes {
                for process in &node.processes {
                    let entry = pid(node, process);
                    // One that uses several GPUs is listed for each.
                    if processes.last() != Some(&entry) {
                        processes.push(entry);
                    }
                    let Some(rank) = process.facts.rank else { continue };
                    let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.facts.gpu);
                    let Some(gpu) = gpu else { continue };
                    let hint = format!("{} {}", node.name, instance_label(&gpu.facts));
                    let target = Target::Sheet(query::GPU, gpu.facts.uuid.to_string());
                    let entry = PaletteEntry::new(format!("rank {}", rank.global), hint, target);
                    // A rank may have several processes on its GPU.
                    if ranks.last() != Some(&entry) {
                        ranks.push(entry);
                    }
                }
            }
        });
    });
    ranks.extend(processes);
    ranks
}

/// The entry of a process of the page.
fn pid(node: &NodePicture, process: &ProcessPicture) -> PaletteEntry {
    let target = Target::Sheet(query::PROCESS, process_key(&node.name, &process.facts));
    PaletteEntry::new(process_name(&process.facts), format!("process on {}", node.name), target)
}

/// `pid 41822 python3`.
fn process_name(facts: &ProcessFacts) -> String {
    let name = format!("pid {} {}", facts.pid, text::name_of(facts).unwrap_or_default());
    name.trim_end().to_owned()
}

/// The subject of the sheet of a process: `n1/41822/9000`.
fn process_key(node: &NodeName, facts: &ProcessFacts) -> String {
    format!("{node}/{}/{}", facts.pid, facts.started_ms.value().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::process::ProcessKind;
    use nodeglass_protocol::{GpuUuid, Reading, Row};

    #[test]
    fn a_rank_or_pid_is_found_among_other_words() {
        assert_eq!(column_and_number("llama rank 35"), Some(("rank", 35)));
        assert_eq!(column_and_number("Rank 7 dpo"), Some(("rank", 7)));
        assert_eq!(column_and_number("PID 812"), Some(("pid", 812)));
        assert_eq!(column_and_number(" 41822 "), Some(("pid", 41_822)));
        assert_eq!(["rank", "35", "rank x", "gpu 7", "llama 41822"].map(column_and_number), [None; 5]);
    }

    #[test]
    fn a_process_is_found_by_its_pid_and_leads_to_its_sheet() {
        let node = NodePicture::new("n1".parse().unwrap());
        let mut facts = ProcessFacts::new(GpuUuid::new("A"), 41_822, ProcessKind::default());
        let entry =
            |facts: &ProcessFacts| pid(&node, &ProcessPicture { facts: facts.clone(), row: Row::default() });
        assert_eq!(entry(&facts).name, "pid 41822");
        facts.started_ms = Reading::Value(9_000);
        facts.command = Reading::Value("python3".into());
        let entry = entry(&facts);
        assert_eq!((entry.name.as_str(), entry.hint.as_str()), ("pid 41822 python3", "process on n1"));
        assert_eq!(entry.target, Target::Sheet(query::PROCESS, "n1/41822/9000".to_owned()));
        facts.job = Some(JobId(17));
        let found = |facts: &ProcessFacts| FoundProcess { node: node.name.clone(), facts: facts.clone() };
        let elsewhere = found_processes(&[found(&facts), found(&facts)]);
        let [PaletteEntry { target: Target::Route(route, query), .. }] = &elsewhere[..] else {
            panic!("{elsewhere:?}")
        };
        assert_eq!(*route, Route::Job(JobId(17), JobTab::Processes));
        assert_eq!(query.get(query::PROCESS), Some("n1/41822/9000"));
    }
}
