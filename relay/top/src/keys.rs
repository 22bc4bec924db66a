//! Effects of keys. Pure: a key changes the view, or results in a command.

use super::cursor::Cursor;
use super::model::{Model, World};
use super::rows::{gpus, processes};
use super::view::{Contents, Input, Overlay, Pane, View};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nodeglass_config::Layout;
use nodeglass_protocol::request::{ProcessRef, Request, RetryTarget, Signal};
use nodeglass_rules::severity::Severity;

/// Maximum length of a filter.
const MAX_FILTER: usize = 200;

/// A command of the terminal besides drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ends.
    Quit,
    /// Returns to the shell until it is continued.
    Suspend,
    /// Sends a request to the relay.
    Request(Request),
}

/// The keys, for the help, in groups: keys, and what they do.
pub const HELP: &[&[(&str, &str)]] = &[
    &[
        ("↑ ↓ · k j", "row above, below"),
        ("PgUp PgDn · [ ]", "page above, below"),
        ("Home End · g G", "first, last row"),
        ("Tab · Shift Tab", "next, previous pane"),
        ("Enter · → · l", "open: job, node, GPU; details of a process"),
        ("Esc · ←", "back"),
        ("a", "all jobs"),
        ("E", "hide or show ended jobs"),
        ("m", "layout: auto, full, compact"),
    ],
    &[
        ("/", "filter the pane; Esc clears"),
        ("o + letter", "sort processes: n node and GPU, p pid, u user,"),
        ("", "g GPU memory, s SM time, b memory bandwidth, c CPU,"),
        ("", "m host memory, t time, r rank; capital: reversed"),
        (", . · r O", "previous, next order · reverse it"),
        ("t", "processes as a tree"),
    ],
    &[
        ("e", "environment of the process"),
        ("I T K", "SIGINT, SIGTERM, SIGKILL to your process; asks first"),
        ("R", "retry nodes that cannot be reached, and SLURM"),
    ],
    &[
        ("mouse", "click: select a row, sort by a column of processes"),
        ("", "wheel: move; Shift: select text"),
    ],
    &[
        ("? · h · F1", "this help"),
        ("Ctrl Z", "suspend"),
        ("q · Ctrl C", "quit; Ctrl C on a process of yours: SIGINT, asks"),
    ],
];

/// Handles a key.
pub fn handle(
    view: &mut View,
    key: KeyEvent,
    model: &Model,
    world: Option<&World<'_>>,
    at_ms: u64,
) -> Option<Command> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') if interrupts(view, model, world) => None,
            KeyCode::Char('c') => Some(Command::Quit),
            KeyCode::Char('z') => Some(Command::Suspend),
            _ => None,
        };
    }
    if view.overlay.is_some() {
        return in_overlay(view, key.code);
    }
    match view.input {
        Input::Filter => {
            in_filter(view, key.code);
            None
        }
        Input::Sort => {
            view.input = Input::Command;
            if let KeyCode::Char(letter) = key.code {
                sort_by(view, letter);
            }
            None
        }
        Input::Command => command(view, key.code, model, world, at_ms),
    }
}

/// Asks whether to interrupt the selected process, as in nvitop; where that is not possible, and while something else is
/// asked or typed, Ctrl C quits.
fn interrupts(view: &mut View, model: &Model, world: Option<&World<'_>>) -> bool {
    if view.overlay.is_some() || view.input != Input::Command || view.pane != Pane::Processes {
        return false;
    }
    let Some(world) = world else { return false };
    let question = confirmation(view, &view.contents(world), model, Signal::Interrupt);
    view.overlay = question.ok();
    view.overlay.is_some()
}

fn in_filter(view: &mut View, code: KeyCode) {
    match code {
        KeyCode::Enter => view.input = Input::Command,
        KeyCode::Esc => {
            view.filter_mut().clear();
            view.input = Input::Command;
        }
        KeyCode::Backspace => drop(view.filter_mut().pop()),
        KeyCode::Char(letter) if view.filter_mut().len() < MAX_FILTER => view.filter_mut().push(letter),
        _ => {}
    }
}

fn sort_by(view: &mut View, letter: char) {
    let lower = letter.to_ascii_lowercase();
    if let Some(sort) = processes::Sort::ALL.into_iter().find(|sort| sort.letter() == lower) {
        view.order.sort = sort;
        view.order.is_reversed = letter.is_ascii_uppercase();
    }
}

fn in_overlay(view: &mut View, code: KeyCode) -> Option<Command> {
    let confirmed = match &mut view.overlay {
        Some(Overlay::Confirm { node, process, signal, .. }) if matches!(code, KeyCode::Char('y' | 'Y')) => {
            Some(Request::Signal { node: node.clone(), process: *process, signal: *signal })
        }
        Some(Overlay::Help { top } | Overlay::Detail { top, .. }) => {
            match code {
                KeyCode::Down | KeyCode::Char('j') => *top = top.saturating_add(1),
                KeyCode::Up | KeyCode::Char('k') => *top = top.saturating_sub(1),
                KeyCode::PageDown | KeyCode::Char(']' | ' ') => *top = top.saturating_add(10),
                KeyCode::PageUp | KeyCode::Char('[') => *top = top.saturating_sub(10),
                KeyCode::Home | KeyCode::Char('g') => *top = 0,
                _ => view.overlay = None,
            }
            return None;
        }
        _ => None,
    };
    view.overlay = None;
    confirmed.map(Command::Request)
}

fn command(
    view: &mut View,
    code: KeyCode,
    model: &Model,
    world: Option<&World<'_>>,
    at_ms: u64,
) -> Option<Command> {
    match code {
        KeyCode::Char('q' | 'Q') => return Some(Command::Quit),
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => view.overlay = Some(Overlay::Help { top: 0 }),
        KeyCode::Char('/') => view.input = Input::Filter,
        KeyCode::Char('o') => view.input = Input::Sort,
        KeyCode::Char('O' | 'r') => view.order.is_reversed = !view.order.is_reversed,
        KeyCode::Char(',' | '<') => view.order.sort = view.order.sort.neighbour(-1),
        KeyCode::Char('.' | '>') => view.order.sort = view.order.sort.neighbour(1),
        KeyCode::Char('t') => view.order.is_tree = !view.order.is_tree,
        KeyCode::Char('E') => view.hides_ended = !view.hides_ended,
        KeyCode::Char('m') => switch_layout(view, at_ms),
        KeyCode::Char('R') => return Some(Command::Request(Request::Retry(RetryTarget::Everything))),
        _ => {
            let world = world?;
            let contents = view.contents(world);
            return in_lists(view, code, model, &contents, at_ms);
        }
    }
    None
}

fn switch_layout(view: &mut View, at_ms: u64) {
    let (layout, name) = match view.layout {
        Layout::Auto => (Layout::Full, "full"),
        Layout::Full => (Layout::Compact, "compact"),
        Layout::Compact => (Layout::Auto, "auto"),
    };
    view.layout = layout;
    view.notify(format!("layout: {name}"), Severity::Ok, at_ms);
}

fn in_lists(
    view: &mut View,
    code: KeyCode,
    model: &Model,
    contents: &Contents<'_>,
    at_ms: u64,
) -> Option<Command> {
    match code {
        KeyCode::Up | KeyCode::Char('k') => go(view, contents, Go::Rows(-1)),
        KeyCode::Down | KeyCode::Char('j') => go(view, contents, Go::Rows(1)),
        KeyCode::PageUp | KeyCode::Char('[') => go(view, contents, Go::Pages(-1)),
        KeyCode::PageDown | KeyCode::Char(']') => go(view, contents, Go::Pages(1)),
        KeyCode::Home | KeyCode::Char('g') => go(view, contents, Go::Rows(isize::MIN)),
        KeyCode::End | KeyCode::Char('G') => go(view, contents, Go::Rows(isize::MAX)),
        KeyCode::Tab => turn(view, contents, 1),
        KeyCode::BackTab => turn(view, contents, -1),
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => return open(view, contents, false, at_ms),
        KeyCode::Esc | KeyCode::Left => back(view, contents),
        KeyCode::Char('a') => {
            view.jobs.set(None);
            (view.node, view.gpu) = (None, None);
        }
        KeyCode::Char('e') if view.pane == Pane::Processes => return open(view, contents, true, at_ms),
        KeyCode::Char('I') => ask(view, contents, model, Signal::Interrupt, at_ms),
        KeyCode::Char('T') => ask(view, contents, model, Signal::Terminate, at_ms),
        KeyCode::Char('K') => ask(view, contents, model, Signal::Kill, at_ms),
        _ => {}
    }
    None
}

/// A movement of the cursor of a list.
#[derive(Clone, Copy)]
pub enum Go {
    /// By a number of rows.
    Rows(isize),
    /// By a number of pages.
    Pages(isize),
    /// To a row.
    To(usize),
}

/// Moves the cursor of the pane that has the keys.
pub fn go(view: &mut View, contents: &Contents<'_>, by: Go) {
    fn step<K: PartialEq + Clone>(cursor: &mut Cursor<K>, keys: &[K], by: Go) {
        match by {
            Go::Rows(by) => cursor.step(keys, by),
            Go::Pages(by) => cursor.page(keys, by),
            Go::To(row) => keys.get(row).into_iter().for_each(|key| cursor.set(key.clone())),
        }
    }
    match view.pane {
        Pane::Jobs => {
            step(&mut view.jobs, &contents.job_ids(), by);
            // What was opened belongs to another job.
            (view.node, view.gpu) = (None, None);
        }
        Pane::Gpus => step(&mut view.gpus, &contents.gpu_ids(), by),
        Pane::Processes => step(&mut view.processes, &contents.process_ids(), by),
    }
}

fn turn(view: &mut View, contents: &Contents<'_>, by: isize) {
    let panes = view.panes(contents);
    let at = panes.iter().position(|pane| *pane == view.pane).unwrap_or(0);
    view.pane = panes[(at + panes.len()).saturating_add_signed(by) % panes.len()];
    pin(view, contents);
}

/// Keeps the node of the cursor while its GPUs or processes are shown, even if other rows are listed above it later.
fn pin(view: &mut View, contents: &Contents<'_>) {
    if view.pane != Pane::Jobs {
        view.gpus.step(&contents.gpu_ids(), 0);
    }
}

/// Opens what the cursor is on; for a process this requests its details.
fn open(view: &mut View, contents: &Contents<'_>, environment: bool, at_ms: u64) -> Option<Command> {
    match view.pane {
        Pane::Jobs => {
            view.pane = Pane::Gpus;
            pin(view, contents);
        }
        Pane::Gpus => {
            let line = selected(&view.gpus, &contents.gpu_ids(), &contents.gpus)?;
            let (node, gpu) = gpus::Line::id(line);
            if gpu.is_some() {
                view.pane = Pane::Processes;
            }
            (view.node, view.gpu) = (Some(node), gpu);
        }
        Pane::Processes => {
            let line = selected(&view.processes, &contents.process_ids(), &contents.processes)?;
            let Some(process) = reference(line) else {
                view.notify("this process has no further details", Severity::Warning, at_ms);
                return None;
            };
            let node = line.node.name.clone();
            return Some(Command::Request(Request::Process { node, process, environment }));
        }
    }
    None
}

/// Undoes the last step: the filter, the opened GPU, the opened node, then the pane.
fn back(view: &mut View, contents: &Contents<'_>) {
    if !view.filter(view.pane).is_empty() {
        view.filter_mut().clear();
    } else if view.gpu.take().is_some() || view.node.take().is_some() {
        view.pane = Pane::Gpus;
    } else {
        view.pane = view.panes(contents)[0];
    }
}

fn selected<'c, K: PartialEq + Clone, L>(cursor: &Cursor<K>, keys: &[K], lines: &'c [L]) -> Option<&'c L> {
    lines.get(cursor.index(keys))
}

/// Identifies a process for a request; `None` if its start time is unknown.
fn reference(line: &processes::Line<'_>) -> Option<ProcessRef> {
    let facts = &line.process.facts;
    Some(ProcessRef { pid: facts.pid, started_ms: *facts.started_ms.value()? })
}

/// Asks whether to send a signal, or says why it cannot be sent.
fn ask(view: &mut View, contents: &Contents<'_>, model: &Model, signal: Signal, at_ms: u64) {
    match confirmation(view, contents, model, signal) {
        Ok(overlay) => view.overlay = Some(overlay),
        Err(why) => view.notify(why, Severity::Warning, at_ms),
    }
}

fn confirmation(
    view: &View,
    contents: &Contents<'_>,
    model: &Model,
    signal: Signal,
) -> Result<Overlay, String> {
    let welcome = model.welcome.as_ref().ok_or("not connected")?;
    if !welcome.may_act {
        return Err("this relay was started with --read-only or --view-only".to_owned());
    }
    if view.pane != Pane::Processes {
        return Err("select a process first (Tab)".to_owned());
    }
    let line = selected(&view.processes, &contents.process_ids(), &contents.processes);
    let line = line.ok_or("no process is selected")?;
    let (pid, user) = (line.process.facts.pid, processes::user(line.process));
    if user != welcome.user.as_str() {
        return Err(format!("pid {pid} is {user}'s, not yours"));
    }
    let process = reference(line).ok_or_else(|| format!("the start time of pid {pid} is unknown"))?;
    let command = processes::command(line.process).to_owned();
    Ok(Overlay::Confirm { node: line.node.name.clone(), process, signal, command })
}
