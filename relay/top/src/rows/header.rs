//! The head: whose cluster, the sums over all that is watched, and the state of the connection. Pure.

use super::Spans;
use super::jobs;
use crate::model::{Connection, Model, World};
use crate::palette::{Palette, symbol};
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::live::{Mode, Topic};
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_rules::severity::Severity;
use nodeglass_rules::text;
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

/// The first line: whose cluster at the left, the connection at the right.
pub fn first(model: &Model, at_ms: u64, width: u16, palette: Palette) -> Spans {
    let (severity, words) = connection(model, at_ms);
    let state = format!("{} {words}", symbol(severity));
    let state = crate::table::cut(&state, width);
    let left = title(model);
    let room = usize::from(width).saturating_sub(state.width() + 1);
    let mut spans = Spans::new();
    let mut used = 0;
    for (index, part) in left.into_iter().enumerate() {
        let part = if index == 0 { part } else { format!("  {part}") };
        if used + part.width() > room {
            break;
        }
        used += part.width();
        spans.push(Span::styled(part, if index == 0 { palette.strong() } else { Style::new() }));
    }
    spans.push(Span::raw(" ".repeat(usize::from(width).saturating_sub(used + state.width()))));
    spans.push(Span::styled(state, palette.severity(severity)));
    spans
}

fn title(model: &Model) -> Vec<String> {
    let mut parts = vec!["nodeglass".to_owned()];
    if let Some(welcome) = &model.welcome {
        parts.push(format!("{}@{}", welcome.user, welcome.host));
        parts.extend(welcome.cluster.as_ref().map(|cluster| format!("cluster {cluster}")));
        parts.extend(match welcome.mode {
            Mode::Demo => Some("simulated".to_owned()),
            Mode::Local => Some("this machine".to_owned()),
            Mode::Slurm | Mode::Hosts => None,
        });
    }
    parts
}

/// The state of the connection in words.
pub fn connection(model: &Model, at_ms: u64) -> (Severity, String) {
    match &model.connection {
        Connection::Connecting => (Severity::Pending, "connecting".to_owned()),
        Connection::Live => {
            let overview = model.picture(&Topic::Overview);
            match overview.and_then(|picture| picture.relay.replay.as_ref()) {
                Some(replay) if replay.speed_pct == 0 => (Severity::Pending, "recording, paused".to_owned()),
                Some(_) => (Severity::Ok, "recording".to_owned()),
                None => (Severity::Ok, "live".to_owned()),
            }
        }
        Connection::Lost { since_ms, why } => {
            let age = text::span(at_ms.saturating_sub(*since_ms) / 1_000);
            (Severity::Error, format!("{why}; retrying for {age}"))
        }
    }
}

/// A part of the second line, with the order in which parts are left out.
type Part = (u8, String, Style);

/// The second line: counts and sums; parts that do not fit are left out in a fixed order.
pub fn second(world: &World<'_>, width: u16, palette: Palette) -> Spans {
    let mut parts = parts(world, palette);
    let needed =
        |parts: &[Part]| parts.iter().map(|part| part.1.width() + 3).sum::<usize>().saturating_sub(3);
    while needed(&parts) > usize::from(width)
        && parts.len() > 1
        && let Some((at, _)) = parts.iter().enumerate().max_by_key(|(at, part)| (part.0, *at))
    {
        parts.remove(at);
    }
    let mut spans = Spans::new();
    for (index, (_, text, style)) in parts.into_iter().enumerate() {
        if index > 0 {
            spans.push(Span::styled(" · ", palette.dim()));
        }
        spans.push(Span::styled(text, style));
    }
    spans
}

fn parts(world: &World<'_>, palette: Palette) -> Vec<Part> {
    let picture = world.overview;
    let totals = jobs::all_totals(world);
    let waiting = picture.jobs.iter().filter(|job| job.state == JobState::Pending).count();
    let active = picture.jobs.iter().filter(|job| job.is_active()).count();
    let plain = Style::new();
    let mut parts: Vec<Part> = Vec::new();
    if picture.relay.jobs != JobsHealth::NoSlurm {
        let waiting = if waiting > 0 { format!(" + {waiting} waiting") } else { String::new() };
        parts.push((4, format!("{}{waiting}", text::count(active, "job", "jobs")), plain));
    }
    parts.push((5, text::count(picture.nodes.len(), "node", "nodes"), plain));
    let gpus = if totals.gpus == 1 { "GPU" } else { "GPUs" };
    // The list of GPUs has all of the nodes.
    let all =
        picture.nodes.iter().flat_map(|node| &node.gpus).filter(|gpu| gpu.facts.mig_parent.is_none()).count();
    let whose = if all > totals.gpus { " of jobs" } else { "" };
    parts.push((3, format!("{} {gpus}{whose}", totals.counted()), plain));
    let util = totals.util_pct();
    let words = util.map_or_else(|| text::ABSENT.to_owned(), |pct| format!("{pct} %"));
    parts.push((2, format!("util {words}"), util.map_or(plain, |pct| palette.util(pct))));
    if let Some(used) = totals.mem.used {
        let (used, whole) = text::memory_parts(used, totals.mem.capacity);
        parts.push((7, format!("memory {used} {whole}"), palette.memory()));
    }
    if let Some(watts) = totals.power.used {
        let (used, limit) = text::power_parts(watts, totals.power.capacity);
        parts.push((6, format!("{used} {limit}"), palette.power()));
    }
    if let Some(hottest) = totals.hottest_c {
        parts.push((9, format!("hottest {hottest} °C"), plain));
    }
    if let Some((severity, words)) = jobs::failures(world) {
        parts.push((0, format!("{} {words}", symbol(severity)), palette.severity(severity)));
    }
    let (severity, words) = slurm(&picture.relay.jobs, world.now_ms);
    if let Some(words) = words {
        let is_problem = severity.needs_attention();
        let style = if is_problem { palette.severity(severity) } else { palette.dim() };
        let sign = if is_problem { format!("{} ", symbol(severity)) } else { String::new() };
        parts.push((if is_problem { 1 } else { 8 }, format!("{sign}{words}"), style));
    }
    parts
}

/// Returns the problem of SLURM's data; its age is in the title of the jobs.
fn slurm(health: &JobsHealth, now_ms: u64) -> (Severity, Option<String>) {
    let age = |at_ms: u64| text::span(now_ms.saturating_sub(at_ms) / 1_000);
    match health {
        JobsHealth::NotYet => (Severity::Pending, Some("waiting for SLURM".to_owned())),
        JobsHealth::NoSlurm | JobsHealth::Fresh { .. } => (Severity::Ok, None),
        JobsHealth::Stale { last_ms: Some(last_ms), .. } => {
            (Severity::Warning, Some(format!("SLURM stale {}", age(*last_ms))))
        }
        JobsHealth::Stale { last_ms: None, .. } => (Severity::Error, Some("no list of jobs".to_owned())),
    }
}
