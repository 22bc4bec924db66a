//! One pane: a title, the heads of its columns, and the rows around its cursor. Pure.

use crate::cursor::Cursor;
use crate::model::World;
use crate::palette::Palette;
use crate::rows::{Spans, gpus, jobs, processes};
use crate::table::{Align, Column, Fitted, cut, fit, place};
use crate::view::{Contents, Drawn, Pane, View};
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::process::ProcessGap;
use nodeglass_rules::health::{self, Freshness};
use nodeglass_rules::text;
use ratatui::text::Span;
use std::ops::Range;
use unicode_width::UnicodeWidthStr;

/// Width of the mark before each row.
const MARK: u16 = 1;

/// The lines of a pane, at most as many as are left for it. The view learns which rows these are.
pub fn lines(
    view: &mut View,
    mut drawn: Drawn,
    contents: &Contents<'_>,
    (world, palette): (&World<'_>, Palette),
    width: u16,
) -> Vec<Spans> {
    let pane = drawn.pane;
    let has_keys = view.pane == pane && !view.is_printed;
    let look = Look { palette, width, has_keys, has_cursor: !view.is_printed, has_heads: drawn.head > 1 };
    let title = title(view, pane, contents, world, look);
    let lines = match pane {
        Pane::Jobs => job_lines(title, view, &mut drawn, contents, world, look),
        Pane::Gpus => gpu_lines(title, view, &mut drawn, contents, world, look),
        Pane::Processes => process_lines(title, view, &mut drawn, contents, world, look),
    };
    view.drawn.push(drawn);
    lines
}

fn job_lines(
    title: Spans,
    view: &mut View,
    drawn: &mut Drawn,
    contents: &Contents<'_>,
    world: &World<'_>,
    look: Look,
) -> Vec<Spans> {
    let columns =
        useful(&jobs::columns(&contents.jobs, world), look, |key| jobs::is_useful(&contents.jobs, key));
    let line = |index: usize| {
        row(&columns, |column| jobs::cell(contents.jobs[index], column.key, world, look.palette))
    };
    drawn.rows = view.jobs.settle(&contents.job_ids(), row_count(drawn));
    let rows = window(&view.jobs, &contents.job_ids(), drawn, line, look);
    frame(title, &columns, rows, look)
}

fn gpu_lines(
    title: Spans,
    view: &mut View,
    drawn: &mut Drawn,
    contents: &Contents<'_>,
    world: &World<'_>,
    look: Look,
) -> Vec<Spans> {
    let (job, palette) = (view.job(&contents.jobs), look.palette);
    let columns =
        useful(&gpus::columns(&contents.gpus), look, |key| gpus::is_useful(&contents.gpus, key, job));
    let line = |index: usize| match contents.gpus[index] {
        gpus::Line::Node(node) => {
            place(gpus::node_line(node, world, palette), look.width - MARK, Align::Left)
        }
        gpus::Line::Gpu(node, gpu) => {
            row(&columns, |column| gpus::cell((node, gpu), (column.key, column.width), world, palette))
        }
    };
    drawn.rows = view.gpus.settle(&contents.gpu_ids(), row_count(drawn));
    let mut rows = window(&view.gpus, &contents.gpu_ids(), drawn, line, look);
    if rows.is_empty() {
        let why = no_match(view.filter(Pane::Gpus)).unwrap_or_else(|| "no node here yet".to_owned());
        rows.push(remark(why, palette));
    }
    frame(title, &columns, rows, look)
}

fn process_lines(
    title: Spans,
    view: &mut View,
    drawn: &mut Drawn,
    contents: &Contents<'_>,
    world: &World<'_>,
    look: Look,
) -> Vec<Spans> {
    let is_one_node = contents.processes.windows(2).all(|two| two[0].node.name == two[1].node.name);
    let has_ranks = contents.processes.iter().any(|line| line.process.facts.rank.is_some());
    let columns = useful(processes::COLUMNS, look, |key| match key {
        processes::Key::Node => !is_one_node,
        processes::Key::Rank => has_ranks,
        _ => true,
    });
    let line = |index: usize| {
        row(&columns, |column| processes::cell(contents.processes[index], column.key, world, look.palette))
    };
    drawn.rows = view.processes.settle(&contents.process_ids(), row_count(drawn));
    drawn.columns = places(&columns);
    let mut rows = window(&view.processes, &contents.process_ids(), drawn, line, look);
    if rows.is_empty() {
        let filter = view.filter(Pane::Processes);
        let why = no_match(filter).unwrap_or_else(|| no_processes(view, contents, world));
        rows.push(remark(why, look.palette));
    }
    frame(title, &columns, rows, look)
}

/// The columns that are useful and fit.
fn useful<K: Copy>(columns: &[Column<K>], look: Look, is_useful: impl Fn(K) -> bool) -> Vec<Fitted<K>> {
    let columns: Vec<_> = columns.iter().copied().filter(|column| is_useful(column.key)).collect();
    fit(&columns, look.width - MARK)
}

/// The number of rows for which there is room.
fn row_count(drawn: &Drawn) -> usize {
    usize::from(drawn.height.saturating_sub(drawn.head))
}

/// Returns the places of the columns of a row.
fn places<K: Copy>(columns: &[Fitted<K>]) -> Vec<(Range<u16>, K)> {
    let mut left = MARK;
    let place = |column: &Fitted<K>| {
        let place = left..left + column.width;
        left = place.end + 1;
        (place, column.key)
    };
    columns.iter().map(place).collect()
}

/// Style of a pane.
#[derive(Clone, Copy)]
struct Look {
    palette: Palette,
    width: u16,
    /// Whether it has the keys.
    has_keys: bool,
    /// Whether there is a cursor at all.
    has_cursor: bool,
    /// Whether its columns have heads.
    has_heads: bool,
}

/// The cells of a row side by side.
fn row<K>(columns: &[Fitted<K>], cell: impl Fn(&Fitted<K>) -> Spans) -> Spans {
    let mut spans = Spans::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            spans.push(Span::raw(" "));
        }
        spans.extend(place(cell(column), column.width, column.align));
    }
    spans
}

/// The rows around the cursor, which has a mark of its own and, in the pane that has the keys, a background.
fn window<K: PartialEq + Clone>(
    cursor: &Cursor<K>,
    keys: &[K],
    drawn: &Drawn,
    row: impl Fn(usize) -> Spans,
    look: Look,
) -> Vec<Spans> {
    let at = cursor.index(keys);
    let line = |index: usize| {
        let is_selected = index == at && look.has_cursor;
        let mark = if is_selected { "▸" } else { " " };
        let mut spans = vec![Span::styled(mark, look.palette.strong())];
        spans.extend(row(index));
        if is_selected && look.has_keys {
            let used: usize = spans.iter().map(|span| span.content.width()).sum();
            spans.push(Span::raw(" ".repeat(usize::from(look.width).saturating_sub(used))));
            spans.iter_mut().for_each(|span| span.style = span.style.patch(look.palette.cursor()));
        }
        spans
    };
    drawn.rows.clone().map(line).collect()
}

fn frame<K>(title: Spans, columns: &[Fitted<K>], rows: Vec<Spans>, look: Look) -> Vec<Spans> {
    if !look.has_heads {
        return [title].into_iter().chain(rows).collect();
    }
    let mut heads = vec![Span::raw(" ")];
    heads.extend(row(columns, |column| {
        vec![Span::styled(cut(column.title, column.width), look.palette.dim())]
    }));
    [title, heads].into_iter().chain(rows).collect()
}

fn remark(text: impl Into<String>, palette: Palette) -> Spans {
    vec![Span::styled(format!("  {}", text.into()), palette.dim())]
}

/// Returns the content and the order of a pane.
fn subject(view: &View, pane: Pane, contents: &Contents<'_>) -> String {
    match pane {
        Pane::Jobs => {
            let hidden = if view.hides_ended { ", ended ones hidden" } else { "" };
            format!("Jobs {}{hidden}", contents.jobs.len().saturating_sub(1))
        }
        Pane::Gpus => {
            let rows = contents.gpus.iter().filter(|line| line.gpu().is_some()).count();
            let nodes = contents.gpus.len() - rows;
            // Instances are parts of GPUs that are listed too, except where a job has only them.
            let whole = |line: &&gpus::Line<'_>| line.gpu().is_some_and(|gpu| gpu.facts.mig_parent.is_none());
            let gpus = match contents.gpus.iter().filter(whole).count() {
                0 => rows,
                whole => whole,
            };
            let what = match &view.node {
                Some(node) => format!(" of {node}"),
                None => view.job(&contents.jobs).map_or_else(String::new, |job| format!(" of job {job}")),
            };
            let nodes = text::count(nodes, "node", "nodes");
            let only: String = view.only_gpus.iter().map(|index| format!(" {index}")).collect();
            let only = if only.is_empty() { only } else { format!(", only{only}") };
            format!("GPUs {gpus}{what} on {nodes}{only}")
        }
        Pane::Processes => {
            let whose = contents.processes.first().map(|line| line.node.name.to_string());
            let is_one = contents.processes.windows(2).all(|two| two[0].node.name == two[1].node.name);
            let place = whose.filter(|_| is_one).map_or_else(String::new, |node| format!(" on {node}"));
            let gpu = view.gpu.as_ref().and_then(|uuid| {
                contents.gpus.iter().find_map(|line| line.gpu().filter(|gpu| gpu.facts.uuid == *uuid))
            });
            let gpu = gpu.map_or_else(String::new, |gpu| format!(" {}", gpu.facts.label()));
            let direction = if view.order.is_reversed { ", reversed" } else { "" };
            let tree = if view.order.is_tree { ", tree" } else { "" };
            let order = view.order.sort.name();
            let only = &view.only;
            format!("Processes {}{place}{gpu} by {order}{direction}{tree}{only}", contents.processes.len())
        }
    }
}

/// The title within a rule: heavy for the pane that has the keys.
fn title(view: &View, pane: Pane, contents: &Contents<'_>, world: &World<'_>, look: Look) -> Spans {
    let mut words = subject(view, pane, contents);
    let filter = view.filter(pane);
    if !filter.is_empty() {
        words.push_str(&format!(", filter \"{filter}\""));
    }
    words.push_str(&match pane {
        Pane::Jobs => jobs_age(world),
        Pane::Gpus => readings_age(contents, world),
        Pane::Processes => String::new(),
    });
    let rule = if look.has_keys { "━" } else { "─" };
    let words = cut(&words, look.width.saturating_sub(5));
    let rest = usize::from(look.width).saturating_sub(words.width() + 4);
    let (rule_style, word_style) = match look.has_keys {
        true => (look.palette.focus(), look.palette.focus()),
        false => (look.palette.dim(), look.palette.strong()),
    };
    vec![
        Span::styled(rule.repeat(2), rule_style),
        Span::styled(format!(" {words} "), word_style),
        Span::styled(rule.repeat(rest), rule_style),
    ]
}

/// The age of SLURM's list, unless the head says what is wrong with it.
fn jobs_age(world: &World<'_>) -> String {
    match &world.overview.relay.jobs {
        JobsHealth::Fresh { at_ms } => {
            format!(", SLURM {} ago", text::span(world.now_ms.saturating_sub(*at_ms) / 1_000))
        }
        _ => String::new(),
    }
}

/// The age of the oldest of the readings that are current; older ones have theirs in their rows.
fn readings_age(contents: &Contents<'_>, world: &World<'_>) -> String {
    let nodes = contents.gpus.iter().filter(|line| line.gpu().is_none()).map(gpus::Line::node);
    let current = nodes.filter(|node| health::freshness(node, world.now_ms) == Freshness::Fresh);
    let oldest_ms = current.filter_map(|node| node.sampled_at_ms).min();
    let age = |at_ms: u64| format!(", read {} ago", text::span(world.now_ms.saturating_sub(at_ms) / 1_000));
    oldest_ms.map_or_else(String::new, age)
}

/// That the filter of a pane hides all rows; `None` without a filter.
fn no_match(filter: &str) -> Option<String> {
    (!filter.is_empty()).then(|| format!("nothing matches \"{filter}\"; Esc clears the filter"))
}

/// Returns why no process is listed.
fn no_processes(view: &View, contents: &Contents<'_>, world: &World<'_>) -> String {
    let mut nodes = contents.gpus.iter().map(|line| line.node());
    let Some(first) = nodes.next() else { return String::new() };
    if world.full_node(&first.name).is_none() && nodes.all(|node| world.full_node(&node.name).is_none()) {
        return "waiting for the list of processes".to_owned();
    }
    let gap = contents.gpus.iter().filter_map(|line| line.gpu()?.gaps.first()).next();
    match gap {
        Some(ProcessGap::Unsupported) => "the driver does not list processes".to_owned(),
        Some(ProcessGap::Failed(why)) => format!("the list could not be read: {why}"),
        Some(ProcessGap::More(_)) | None => match view.only.to_string().trim_start_matches(", ") {
            "" => "no process on these GPUs".to_owned(),
            only => format!("no such process on these GPUs: {only}"),
        },
    }
}
