//! `relay top --once`: waits until everything is known, prints one frame or the picture, and ends.

use super::connection::{Order, Source, Update};
use super::draw::{self, Scene};
use super::model::{Effect, Model, World};
use super::palette::Palette;
use super::view::View;
use super::{TopError, check_size};
use nodeglass_app::terminal;
use nodeglass_config::TopArgs;
use nodeglass_protocol::live::{MAX_TOPICS, Topic};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{NodeName, Picture};
use nodeglass_rules::health::is_settled;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time for nodes to send their first sample. Data that is missing then is shown as missing.
const FIRST_SAMPLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Width of a line where neither `COLUMNS` nor a terminal says it.
const WIDTH: u16 = 120;

/// Prints one frame.
pub async fn run(mut source: Source, args: &TopArgs, palette: Palette) -> Result<(), TopError> {
    let known = Known::collect(&mut source).await;
    source.end().await;
    let known = known?;
    let out = if args.json { known.json()? } else { known.text(args, palette) };
    Ok(terminal::write(out)?)
}

/// Everything that is to be printed.
struct Known {
    model: Model,
    /// Nodes in full.
    nodes: BTreeMap<NodeName, NodePicture>,
    started: Instant,
}

impl Known {
    /// Receives the overview until all nodes have a sample, then the details of each node, as many at once as may be
    /// subscribed to.
    async fn collect(source: &mut Source) -> Result<Self, TopError> {
        let started = Instant::now();
        let due = started + FIRST_SAMPLE_TIMEOUT;
        let mut known = Self { model: Model::default(), nodes: BTreeMap::new(), started };
        known
            .until(source, due, &[Topic::Overview], |model| {
                model.picture(&Topic::Overview).is_some_and(is_settled)
            })
            .await?;
        let names: Vec<NodeName> = known.overview()?.nodes.iter().map(|node| node.name.clone()).collect();
        for names in names.chunks(MAX_TOPICS - 1) {
            let mut topics = vec![Topic::Overview];
            topics.extend(names.iter().cloned().map(Topic::Node));
            known
                .until(source, due, &topics, |model| {
                    topics.iter().all(|topic| model.picture(topic).is_some())
                })
                .await?;
            for name in names {
                let picture = known.model.picture(&Topic::Node(name.clone()));
                let node = picture.and_then(|picture| picture.node(name)).cloned();
                known.nodes.extend(node.map(|node| (name.clone(), node)));
            }
        }
        Ok(known)
    }

    /// Subscribes, and applies updates until `is_done` or the time is up.
    async fn until(
        &mut self,
        source: &mut Source,
        due: Instant,
        topics: &[Topic],
        is_done: impl Fn(&Model) -> bool,
    ) -> Result<(), TopError> {
        let mut is_subscribed =
            self.model.welcome.is_some() && source.send(Order::Subscribe(topics.to_vec()));
        if is_subscribed {
            self.model.retain(topics);
        }
        while !is_done(&self.model) {
            let Ok(update) = timeout_at(due, source.updates.recv()).await else { return Ok(()) };
            let at_ms = self.at_ms();
            match update {
                Some(Update::Ended(error)) => return Err(error.into()),
                Some(Update::Lost(why)) => return Err(anyhow::anyhow!("{why}").into()),
                Some(update) => {
                    if let Effect::Resync(topic) = self.model.apply(update, at_ms)
                        && !source.send(Order::Resync(topic.clone()))
                    {
                        self.model.resync_was_refused(&topic);
                    }
                }
                None => return Err(anyhow::anyhow!("watching ended; this is a defect").into()),
            }
            if !is_subscribed && self.model.welcome.is_some() {
                is_subscribed = source.send(Order::Subscribe(topics.to_vec()));
            }
        }
        Ok(())
    }

    fn at_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn overview(&self) -> Result<&Picture, TopError> {
        let picture = self.model.picture(&Topic::Overview);
        Ok(picture.ok_or_else(|| anyhow::anyhow!("the relay sent no picture within 20 s"))?)
    }

    /// The overview with its nodes in full.
    fn picture(&self) -> Result<Picture, TopError> {
        let overview = self.overview()?;
        let full = |node: &NodePicture| self.nodes.get(&node.name).unwrap_or(node).clone();
        Ok(Picture { nodes: overview.nodes.iter().map(full).collect(), ..overview.clone() })
    }

    fn json(&self) -> Result<String, TopError> {
        Ok(serde_json::to_string(&self.picture()?).map_err(anyhow::Error::from)? + "\n")
    }

    fn text(&self, args: &TopArgs, palette: Palette) -> String {
        let Ok(picture) = self.picture() else { return String::new() };
        let at_ms = self.at_ms();
        let now_ms = self.model.now_ms(at_ms);
        let wall_s = self.model.wall_s(now_ms);
        let world = World { overview: &picture, details: vec![&picture], now_ms, wall_s };
        let palette = if io::stdout().is_terminal() { palette } else { Palette::Plain };
        let scene = Scene { model: &self.model, world: Some(&world), at_ms, palette, is_ascii: args.ascii };
        let lines = draw::everything(&mut View::new(args).printed(), &world, scene, width());
        let is_plain = !io::stdout().is_terminal();
        lines.iter().map(|line| printed(line, is_plain)).collect()
    }
}

/// Returns the width of a line of the terminal; `None` if the output goes elsewhere.
pub fn line_width() -> Option<usize> {
    io::stdout().is_terminal().then(|| width().into())
}

/// The width of a line: of `COLUMNS`, or else of the terminal.
fn width() -> u16 {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<u16>().ok());
    // Not `size`, which asks `tput` without a terminal, and panics if that prints a number above 65,535.
    let terminal = || Some(crossterm::terminal::window_size().ok()?.columns).filter(|columns| *columns > 0);
    check_size(set.or_else(|| terminal().filter(|_| io::stdout().is_terminal())).unwrap_or(WIDTH))
}

/// A line for a terminal, or without attributes.
fn printed(line: &Line<'_>, is_plain: bool) -> String {
    let mut out = String::new();
    for span in &line.spans {
        let codes = if is_plain { Vec::new() } else { codes(span.style) };
        if codes.is_empty() {
            out.push_str(&span.content);
        } else {
            out.push_str(&format!("\x1b[{}m{}\x1b[0m", codes.join(";"), span.content));
        }
    }
    let mut out = if is_plain { out.trim_end().to_owned() } else { out };
    out.push('\n');
    out
}

/// The codes of ECMA-48 for a style that this program uses.
fn codes(style: Style) -> Vec<String> {
    let mut codes = Vec::new();
    codes.extend(style.add_modifier.contains(Modifier::BOLD).then(|| "1".to_owned()));
    codes.extend(style.add_modifier.contains(Modifier::DIM).then(|| "2".to_owned()));
    codes.extend(match style.fg {
        Some(Color::Indexed(index)) => Some(format!("38;5;{index}")),
        Some(Color::Red) => Some("31".to_owned()),
        Some(Color::Green) => Some("32".to_owned()),
        Some(Color::Yellow) => Some("33".to_owned()),
        Some(Color::Blue) => Some("34".to_owned()),
        Some(Color::Magenta) => Some("35".to_owned()),
        Some(Color::Cyan) => Some("36".to_owned()),
        _ => None,
    });
    codes
}
