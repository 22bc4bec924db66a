//! The processes of GPUs: on one node, or of a job on all its nodes.

use super::scope::Scope;
use crate::fleet::NodeCell;
use crate::lazy::{lazy, memo, rows, words};
use crate::page::Page;
use crate::{roster, text};
use leptos::prelude::*;
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::probe::ProcessKind;
use nodeglass_protocol::{ProcessField, Reading, Text};

/// The processes of a scope.
#[component]
pub fn ProcessTable(
    /// The scope.
    scope: Scope,
    /// Whether the node is a column, because there are several.
    #[prop(optional)]
    several: bool,
) -> impl IntoView {
    let lines = memo(move || lines(&scope));
    let caption = words(move || match (lines.with(Vec::len), several) {
        (0, _) => "none that can be seen".to_owned(),
        (count, true) => format!("{} on all nodes", text::grouped(count as u64)),
        (count, false) => format!("{} on this node", text::grouped(count as u64)),
    });
    // The place of a line is not its identity: a process that ends must not turn into its neighbour.
    let line = move |line: Line| {
        let key = line.key.clone();
        let now = memo(move || lines.with(|lines| lines.iter().find(|line| line.key == key).cloned()));
        view! { <ProcessRow line=Signal::derive(move || now.get().unwrap_or_else(|| line.clone())) several/> }
            .into_any()
    };
    let list = rows(lines, |line| line.key.clone(), line);
    view! {
        <section class="processes">
            <h2 class="caption"><b>"Processes"</b> " · " {caption}</h2>
            <div class="table-box" hidden=lazy(move || lines.with(Vec::is_empty))>
                <table class="table procs" class:procs--several=several aria-label="Processes">
                    <thead>
                        <tr>
                            {several.then(|| view! { <th class="procs__node" scope="col">"Node"</th> })}
                            <th class="procs__gpu right" scope="col">"GPU"</th>
                            <th class="procs__pid right" scope="col">"PID"</th>
                            <th class="procs__user" scope="col">"User"</th>
                            <th class="procs__kind hide-s" scope="col">
                                <abbr title="C compute, G graphics, M multi-process service">"Type"</abbr>
                            </th>
                            <th class="procs__mem right" scope="col">"GPU GiB"</th>
                            <th class="procs__time right hide-s" scope="col">"Run time"</th>
                            <th scope="col">"Command"</th>
                        </tr>
                    </thead>
                    <tbody>{list}</tbody>
                </table>
            </div>
        </section>
    }
}

/// What is shown of a process.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    key: String,
    node: String,
    gpu: Option<u32>,
    process: ProcessPicture,
    foreign: bool,
}

fn lines(scope: &Scope) -> Vec<Line> {
    let mut lines = Vec::new();
    for cell in scope.nodes.get() {
        cell.processes().track();
        cell.gpus().track();
        scope.scene.node(&cell, |node| lines.extend(of_node(scope, &cell, node)));
    }
    lines
}

fn of_node(scope: &Scope, cell: &NodeCell, node: &NodePicture) -> Vec<Line> {
    let line = |process: &ProcessPicture| {
        let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == process.facts.gpu);
        let of_gpu = gpu.is_none_or(|gpu| roster::is_of_job(node, gpu, scope.job));
        let foreign =
            scope.job.is_some() && (process.facts.job.is_some() && process.facts.job != scope.job || !of_gpu);
        Line {
            key: format!("{}/{}/{}", cell.name(), process.facts.gpu, process.facts.pid),
            node: cell.name().to_string(),
            gpu: gpu.map(|gpu| gpu.facts.index),
            process: process.clone(),
            foreign,
        }
    };
    let mut lines: Vec<Line> = node.processes.iter().map(line).collect();
    // Unstable sorting is less code, and no two lines are alike.
    lines.sort_unstable_by_key(|line| (line.foreign, line.gpu, line.process.facts.pid));
    lines
}

#[component]
fn ProcessRow(line: Signal<Line>, several: bool) -> impl IntoView {
    let page = Page::here();
    let process = move |look: &dyn Fn(&ProcessPicture) -> String| line.with(|line| look(&line.process));
    let run_time = words(move || {
        let started = line.with(|line| line.process.facts.started_ms.value().copied());
        let seconds = started.map(|ms| page.wall_s().saturating_sub((ms / 1_000).cast_signed()).max(0));
        text::or_absent(seconds.map(|seconds| text::clock(seconds.cast_unsigned())))
    });
    let memory = words(move || {
        line.with(|line| text::or_absent(line.process.row.value(ProcessField::GpuMem).map(text::gib)))
    });
    let memory_title =
        lazy(move || line.with(|line| text::absence(line.process.row.get(ProcessField::GpuMem))));
    view! {
        <tr class:is-foreign=lazy(move || line.with(|line| line.foreign))>
            {several.then(|| view! { <td class="procs__node">{words(move || line.with(|line| line.node.clone()))}</td> })}
            <td class="right num">{words(move || line.with(|line| text::or_absent(line.gpu.map(|gpu| gpu.to_string()))))}</td>
            <td class="right num">{words(move || process(&|process| process.facts.pid.to_string()))}</td>
            <td class="procs__user">{words(move || process(&|process| said(&process.facts.user)))}</td>
            <td class="num hide-s">{words(move || process(&|process| kind(process.facts.kind)))}</td>
            <td class="right num" title=memory_title>{memory}</td>
            <td class="right num hide-s">{run_time}</td>
            <td class="cmd" title=lazy(move || process(&command))>
                <b>{words(move || process(&|process| split(process).0))}</b>
                {words(move || process(&|process| split(process).1))}
            </td>
        </tr>
    }
}

fn said(reading: &Reading<Text>) -> String {
    text::or_absent(reading.value().map(ToString::to_string))
}

fn command(process: &ProcessPicture) -> String {
    let whole = process.facts.args.value().or(process.facts.command.value());
    text::or_absent(whole.map(ToString::to_string))
}

/// The program's name, and what follows it.
fn split(process: &ProcessPicture) -> (String, String) {
    let whole = command(process);
    match whole.split_once(' ') {
        Some((program, rest)) => (text::program(program).to_owned(), format!(" {rest}")),
        None => (text::program(&whole).to_owned(), String::new()),
    }
}

fn kind(kind: ProcessKind) -> String {
    let letters = [(kind.compute, 'C'), (kind.graphics, 'G'), (kind.mps, 'M')];
    letters.into_iter().filter_map(|(is, letter)| is.then_some(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_the_lists_it_is_in() {
        assert_eq!(kind(ProcessKind { compute: true, graphics: true, mps: false }), "CG");
        assert_eq!(kind(ProcessKind { mps: true, ..ProcessKind::default() }), "M");
    }
}
