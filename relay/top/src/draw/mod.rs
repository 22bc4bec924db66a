//! Draws the screen: head, panes, foot and what is above them. Pure, into a buffer of any size.

mod overlay;
mod pane;

use super::ascii;
use super::model::{Model, World};
use super::palette::{Palette, symbol};
use super::rows::header;
use super::table::cut;
use super::view::{Contents, Drawn, Input, Pane, View};
use nodeglass_config::Layout;
use nodeglass_rules::severity::Severity;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

/// The smallest screen.
pub const MIN_SIZE: (u16, u16) = (40, 12);
/// Minimum height for all panes; below it, only the pane that has the keys is shown.
const ALL_PANES_FROM: u16 = 18;
/// Minimum height at which `auto` divides the lines among all lists.
const FULL_FROM: u16 = 30;
/// Lines of a pane besides its rows: title and heads of columns.
const PANE_HEAD: u16 = 2;
/// The height of a title without the heads of columns.
const TITLE: u16 = 1;
/// Fewest rows of a pane.
const MIN_ROWS: u16 = 2;

/// Input of drawing a frame.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The model.
    pub model: &'a Model,
    /// The pictures; `None` before the first.
    pub world: Option<&'a World<'a>>,
    /// The terminal's clock.
    pub at_ms: u64,
    /// Colours.
    pub palette: Palette,
    /// Whether only ASCII is drawn.
    pub is_ascii: bool,
}

/// Draws a frame that fills the buffer.
pub fn draw(buffer: &mut Buffer, view: &mut View, scene: Scene<'_>) {
    let area = buffer.area;
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        return too_small(buffer);
    }
    let head = header::first(scene.model, scene.at_ms, area.width, scene.palette);
    put(buffer, 0, head);
    match scene.world {
        Some(world) => body(buffer, view, world, scene),
        None => put(buffer, 2, vec![Span::styled(waiting(scene), scene.palette.dim())]),
    }
    let foot = foot(view, area.width, scene);
    put(buffer, area.height - 1, foot);
    if let Some(overlay) = &mut view.overlay {
        overlay::draw(buffer, overlay, scene.palette);
    }
    if scene.is_ascii {
        ascii::buffer(buffer);
    }
}

fn waiting(scene: Scene<'_>) -> String {
    match scene.model.welcome {
        Some(_) => "waiting for the first picture …".to_owned(),
        None => "connecting to the relay …".to_owned(),
    }
}

fn body(buffer: &mut Buffer, view: &mut View, world: &World<'_>, scene: Scene<'_>) {
    let (width, height) = (buffer.area.width, buffer.area.height);
    put(buffer, 1, header::second(world, width, scene.palette));
    let mut top = 2;
    if let Some(notice) = world.overview.relay.notices.first().filter(|_| height >= ALL_PANES_FROM) {
        put(buffer, top, notice_line(notice.as_str(), width, scene.palette));
        top += 1;
    }
    let contents = view.contents(world);
    let room = height - top - 1;
    let panes = view.panes(&contents).iter();
    let all: u32 = panes.map(|pane| u32::from(needed(rows(&contents, *pane), PANE_HEAD))).sum();
    let is_compact = match view.layout {
        _ if all <= u32::from(room) => false,
        Layout::Auto => height < FULL_FROM,
        Layout::Full => false,
        Layout::Compact => true,
    };
    view.drawn.clear();
    let heights = match (height < ALL_PANES_FROM, is_compact) {
        (true, _) => vec![(view.pane, room)],
        (false, true) => compact_heights(view, &contents, room),
        (false, false) => heights(view, &contents, room),
    };
    for (pane, height) in heights {
        let head = if is_compact && pane != view.pane { TITLE } else { PANE_HEAD };
        let drawn = Drawn { pane, top, height, head, rows: 0..0, columns: Vec::new() };
        let lines = pane::lines(view, drawn, &contents, (world, scene.palette), width);
        for (index, line) in lines.into_iter().take(usize::from(height)).enumerate() {
            put(buffer, top + index as u16, line);
        }
        top += height;
    }
}

fn notice_line(text: &str, width: u16, palette: Palette) -> Vec<Span<'static>> {
    let text = cut(&format!("{} {text}", symbol(Severity::Warning)), width);
    vec![Span::styled(text, palette.severity(Severity::Warning))]
}

/// Returns the layout of the lines between head and foot. Jobs get up to a fifth, processes up to a third; GPUs get
/// the rest. Lines that they do not need go to the jobs.
fn heights(view: &View, contents: &Contents<'_>, room: u16) -> Vec<(Pane, u16)> {
    let needed = |rows| needed(rows, PANE_HEAD);
    let jobs = match contents.jobs.len() {
        0 => 0,
        rows => needed(rows).min((room / 5).max(MIN_ROWS + PANE_HEAD + 1)),
    };
    let rest = room - jobs;
    let (gpus, processes) = (needed(contents.gpus.len()), needed(contents.processes.len()));
    let processes = processes.min((rest / 3).max(rest.saturating_sub(gpus)));
    let gpus = gpus.min(rest - processes);
    // Lines that no list needs stay below the last.
    let wanted = if contents.jobs.is_empty() { 0 } else { needed(contents.jobs.len()) };
    let spare = (rest - gpus - processes).min(wanted.saturating_sub(jobs));
    let (jobs, rest) = (jobs + spare, rest - spare);
    let panes = view.panes(contents).iter().map(|pane| match pane {
        Pane::Jobs => (*pane, jobs),
        Pane::Gpus => (*pane, gpus),
        Pane::Processes => (*pane, rest - gpus),
    });
    panes.collect()
}

/// The pane that has the keys gets all lines that it needs, except for a few rows of each other one. Lines that it does
/// not need go to the others, the GPUs first.
fn compact_heights(view: &View, contents: &Contents<'_>, room: u16) -> Vec<(Pane, u16)> {
    let panes = view.panes(contents);
    let others = u16::try_from(panes.len().saturating_sub(1)).unwrap_or(0) * (MIN_ROWS + TITLE);
    let own = needed(rows(contents, view.pane), PANE_HEAD).min(room.saturating_sub(others));
    let mut spare = room.saturating_sub(own + others);
    let mut heights: Vec<(Pane, u16)> =
        panes.iter().map(|pane| (*pane, if *pane == view.pane { own } else { MIN_ROWS + TITLE })).collect();
    for wanted in [Pane::Gpus, Pane::Processes, Pane::Jobs] {
        for (pane, height) in heights.iter_mut().filter(|(pane, _)| *pane == wanted && wanted != view.pane) {
            let more = needed(rows(contents, *pane), TITLE).saturating_sub(*height).min(spare);
            (*height, spare) = (*height + more, spare - more);
        }
    }
    heights
}

/// The height with which a list shows all of its rows.
fn needed(rows: usize, head: u16) -> u16 {
    u16::try_from(rows).unwrap_or(u16::MAX).max(MIN_ROWS).saturating_add(head)
}

fn rows(contents: &Contents<'_>, pane: Pane) -> usize {
    match pane {
        Pane::Jobs => contents.jobs.len(),
        Pane::Gpus => contents.gpus.len(),
        Pane::Processes => contents.processes.len(),
    }
}

/// All rows of all panes below each other, for a frame that is printed.
pub fn everything(view: &mut View, world: &World<'_>, scene: Scene<'_>, width: u16) -> Vec<Line<'static>> {
    let contents = view.contents(world);
    let mut lines = vec![
        Line::from(header::first(scene.model, scene.at_ms, width, scene.palette)),
        Line::from(header::second(world, width, scene.palette)),
    ];
    let notices = world.overview.relay.notices.iter();
    lines.extend(notices.map(|notice| Line::from(notice_line(notice.as_str(), width, scene.palette))));
    for pane in view.panes(&contents) {
        let rows = rows(&contents, *pane).max(1);
        let height = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(PANE_HEAD);
        let drawn = Drawn { pane: *pane, top: 0, height, head: PANE_HEAD, rows: 0..0, columns: Vec::new() };
        let pane = pane::lines(view, drawn, &contents, (world, scene.palette), width);
        lines.extend(pane.into_iter().map(Line::from));
    }
    if scene.is_ascii {
        ascii::lines(&mut lines);
    }
    lines
}

fn put(buffer: &mut Buffer, y: u16, spans: Vec<Span<'static>>) {
    let width = buffer.area.width;
    buffer.set_line(0, y, &Line::from(spans), width);
}

fn too_small(buffer: &mut Buffer) {
    let Rect { width, height, .. } = buffer.area;
    let lines = [
        "too small".to_owned(),
        format!("{} × {} needed", MIN_SIZE.0, MIN_SIZE.1),
        format!("this is {width} × {height}"),
    ];
    for (y, line) in (0..height).zip(lines) {
        buffer.set_stringn(0, y, line, usize::from(width), Style::new());
    }
}

/// The last line: what is being typed, a message, or the most important keys.
fn foot(view: &mut View, width: u16, scene: Scene<'_>) -> Vec<Span<'static>> {
    let palette = scene.palette;
    view.notice = view.notice.take().filter(|notice| scene.at_ms < notice.until_ms);
    match (view.input, &view.notice) {
        (Input::Filter, _) => {
            let filter = view.filter(view.pane).to_owned();
            vec![
                Span::styled(format!("/{filter}▏"), palette.strong()),
                Span::styled("  Enter keeps, Esc clears", palette.dim()),
            ]
        }
        (Input::Sort, _) => {
            let text = "sort by: n p u g s b c m t r (capital: reversed)";
            vec![Span::styled(cut(text, width), palette.strong())]
        }
        (Input::Command, Some(notice)) => {
            let text = cut(&format!("{} {}", symbol(notice.severity), notice.text), width);
            vec![Span::styled(text, palette.severity(notice.severity))]
        }
        (Input::Command, None) => hints(width, palette),
    }
}

fn hints(width: u16, palette: Palette) -> Vec<Span<'static>> {
    // The most important first; the last ones are left out if they do not fit.
    const HINTS: [(&str, &str); 10] = [
        ("?", "keys"),
        ("q", "quit"),
        ("↑↓", "move"),
        ("Tab", "pane"),
        ("Enter", "open"),
        ("/", "filter"),
        ("m", "layout"),
        ("o", "sort"),
        ("t", "tree"),
        ("I T K", "signal"),
    ];
    let (mut spans, mut used) = (Vec::new(), 0);
    for (key, what) in HINTS {
        let needed = key.width() + what.width() + 3;
        if used + needed > usize::from(width) + 2 {
            break;
        }
        used += needed;
        spans.push(Span::styled(key, palette.strong()));
        spans.push(Span::styled(format!(" {what}  "), palette.dim()));
    }
    spans
}
