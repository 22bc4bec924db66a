//! `relay top`: watches in a terminal, attached to the running relay or on its own.
//!
//! Updates flow in one direction: a [`connection`] sends them, the [`model`] applies them to its pictures,
//! [`rows`] makes rows of these, and [`draw`] puts them on the screen. Only this module and [`screen`] touch the
//! terminal.

mod ascii;
pub mod connection;
mod cursor;
mod detail;
pub mod draw;
pub mod keys;
pub mod model;
pub mod mouse;
mod once;
pub use once::line_width;
pub mod palette;
pub mod rows;
mod screen;
mod spark;
mod table;
pub mod view;

use connection::{Attached, Order, Own, Source, SourceError, Update};
use crossterm::event::{Event, EventStream, KeyEventKind};
use draw::Scene;
use futures_util::StreamExt;
use keys::Command;
use model::{Connection, Effect, Model};
use nodeglass_app::Signals;
use nodeglass_app::remote::Remote;
use nodeglass_config::{ColorChoice, Config, Requested, TopArgs};
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_protocol::request::{Request, Response};
use nodeglass_rules::severity::Severity;
use palette::Palette;
use screen::Screen;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};
use view::{Overlay, View};

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// Interval of updating ages, if nothing else changes.
const AGES: Duration = Duration::from_secs(1);
/// Shortest time between two subscriptions, for a cursor that moves through a list.
const SUBSCRIBE: Duration = Duration::from_millis(200);

/// Widest frame that is printed.
const MAX_WIDTH: u16 = 1_000;

/// Error of `relay top`.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Standard output is not a terminal.
    #[error("relay top needs a terminal: {0}; `relay top --once` prints one frame")]
    NoTerminal(&'static str),
    /// The relay cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Another failure.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl TopError {
    /// The exit code: 3 without a usable terminal, 4 for a relay of another version, otherwise 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::NoTerminal(_) => ExitCode::from(3),
            Self::Source(SourceError::OtherVersion { .. }) => ExitCode::from(4),
            Self::Source(SourceError::Refused { .. }) | Self::Other(_) => ExitCode::FAILURE,
        }
    }
}

/// Watches until the user quits, or prints one frame.
///
/// # Errors
/// [`TopError`], a complete sentence for the user.
pub async fn run(args: TopArgs, config: Config, requested: Option<Requested>) -> Result<(), TopError> {
    if !args.once {
        check_terminal()?;
    }
    let signals = Signals::listen()?;
    // On a terminal the log would be written over the screen.
    let _log = (!io::stderr().is_terminal()).then(|| nodeglass_log::start(config.log, None));
    let palette = match args.color {
        ColorChoice::Never => Palette::Plain,
        ColorChoice::Auto if args.light => Palette::detect().on_light(),
        ColorChoice::Auto => Palette::detect(),
    };
    let (source, is_attached) = source(&args, config, requested).await?;
    if args.once {
        return once::run(source, &args, palette).await;
    }
    let screen = Screen::enter(!args.no_mouse)
        .map_err(|error| anyhow::anyhow!("failed to set up the terminal: {error}"))?;
    let mut terminal = Terminal::new(source, screen, palette, &args);
    if is_attached && args.sample_interval.is_some() {
        let why = "attached to a running relay, which samples at its own interval";
        terminal.view.notify(why, Severity::Warning, 0);
    }
    let result = terminal.run(signals).await;
    // The screen first, because probes may take a moment.
    drop(terminal.screen);
    terminal.source.end().await;
    result
}

/// A screen can be drawn only where both ends are a terminal that understands escape sequences.
fn check_terminal() -> Result<(), TopError> {
    if !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal("the output is not one"));
    }
    if !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal("the input is not one"));
    }
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err(TopError::NoTerminal("TERM is not set, or is dumb"));
    }
    Ok(())
}

/// The width to print for, within what makes sense.
fn check_size(width: u16) -> u16 {
    width.clamp(draw::MIN_SIZE.0, MAX_WIDTH)
}

/// Attaches to the relay that is meant, or starts watching; also returns whether it is attached.
async fn source(
    args: &TopArgs,
    config: Config,
    requested: Option<Requested>,
) -> anyhow::Result<(Source, bool)> {
    Ok(match Remote::matching(args.which.relay, requested.as_ref())? {
        Some(relay) => (Source::spawn(|orders, updates| Attached::new(relay).run(orders, updates)), true),
        None => {
            let own = Own::start(config, args.sample_interval).await?;
            (Source::spawn(|orders, updates| own.run(orders, updates)), false)
        }
    })
}

/// The terminal and everything that is shown on it.
struct Terminal {
    source: Source,
    screen: Screen,
    palette: Palette,
    model: Model,
    view: View,
    clock: Instant,
    topics: Vec<Topic>,
    subscribed: Option<Instant>,
    /// Whether something has changed since the last frame.
    is_dirty: bool,
    /// Whether the user waits for the next frame.
    is_urgent: bool,
    /// When the last frame was drawn.
    drawn: Option<Instant>,
    requests: u32,
    /// The request whose details are awaited, and their title.
    awaited: Option<(u32, String)>,
    /// Time between two frames, if it is longer than [`FRAME`].
    frame_interval: Duration,
    /// Whether only ASCII is drawn.
    is_ascii: bool,
}

impl Terminal {
    fn new(source: Source, screen: Screen, palette: Palette, args: &TopArgs) -> Self {
        Self {
            source,
            screen,
            palette,
            model: Model::default(),
            view: View::new(args),
            clock: Instant::now(),
            topics: Vec::new(),
            subscribed: None,
            is_dirty: true,
            is_urgent: true,
            drawn: None,
            requests: 0,
            awaited: None,
            frame_interval: args.frame_interval.unwrap_or_default(),
            is_ascii: args.ascii,
        }
    }

    /// Draws until the user quits, a signal arrives or the source ends.
    async fn run(&mut self, signals: Signals) -> Result<(), TopError> {
        let mut keys = EventStream::new();
        let mut suspensions = screen::Suspensions::listen()?;
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ages = interval(AGES);
        ages.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ending = std::pin::pin!(signals.wait());
        loop {
            tokio::select! {
                // A signal that ends the program.
                _ = &mut ending => return Ok(()),
                // A key, the mouse, or a new size.
                event = keys.next() => match event {
                    Some(Ok(event)) => if self.event(event)? {
                        return Ok(());
                    },
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(()),
                },
                // The source changed.
                update = self.source.updates.recv() => match update {
                    Some(Update::Ended(error)) => return Err(error.into()),
                    Some(update) => self.update(update),
                    None => return Err(anyhow::anyhow!("watching ended; this is a defect").into()),
                },
                // Suspended or continued from outside.
                suspension = suspensions.next() => self.suspend(suspension)?,
                // Ages change.
                _ = ages.tick() => self.is_dirty = true,
                // A frame is due, if there is anything to draw.
                _ = frames.tick(), if self.is_dirty || self.is_subscription_due() => if self.is_frame_due() {
                    self.draw()?;
                },
            }
        }
    }

    fn at_ms(&self) -> u64 {
        self.clock.elapsed().as_millis() as u64
    }

    /// Handles an event of the terminal; returns whether to quit.
    fn event(&mut self, event: Event) -> Result<bool, TopError> {
        (self.is_dirty, self.is_urgent) = (true, true);
        let at_ms = self.at_ms();
        let detail = self.topics.iter().find(|topic| **topic != Topic::Overview);
        let world = self.model.world(detail, at_ms);
        let key = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            Event::Mouse(event) => {
                mouse::handle(&mut self.view, event, world.as_ref());
                return Ok(false);
            }
            _ => return Ok(false),
        };
        match keys::handle(&mut self.view, key, &self.model, world.as_ref(), at_ms) {
            Some(Command::Quit) => return Ok(true),
            Some(Command::Suspend) => self.suspend(screen::Suspension::Stop)?,
            Some(Command::Request(request)) => self.request(request),
            None => {}
        }
        Ok(false)
    }

    fn request(&mut self, request: Request) {
        self.requests = self.requests.wrapping_add(1);
        let number = self.requests;
        let details = match &request {
            Request::Process { node, process, environment } => {
                let what = if *environment { "Environment of pid" } else { "Process" };
                Some((number, format!("{what} {} on {node}", process.pid)))
            }
            _ => None,
        };
        let is_live = self.model.connection == Connection::Live;
        if !is_live || !self.source.send(Order::Request { number, request }) {
            let at_ms = self.at_ms();
            self.view.notify("not sent: there is no connection to the relay", Severity::Warning, at_ms);
        } else if details.is_some() {
            self.awaited = details;
        } else {
            self.model.expect_response(number);
        }
    }

    fn update(&mut self, update: Update) {
        let at_ms = self.at_ms();
        let is_new = matches!(update, Update::Connected(_));
        // What was requested, or a change of the connection; readings wait for their frame.
        self.is_urgent |= match &update {
            Update::Message(message) => {
                matches!(**message, ServerMessage::Snapshot(_) | ServerMessage::Response { .. })
            }
            _ => true,
        };
        match self.model.apply(update, at_ms) {
            Effect::Redraw => self.is_dirty = true,
            Effect::Resync(topic) => {
                if !self.source.send(Order::Resync(topic.clone())) {
                    self.model.resync_was_refused(&topic);
                }
            }
            Effect::Unanswered => {
                let text = "the connection was lost; it is not known whether the action was carried out";
                self.view.notify(text, Severity::Warning, at_ms);
                self.is_dirty = true;
            }
            Effect::Answer(number, response) => self.answer(number, response, at_ms),
            Effect::Nothing => {}
        }
        if is_new {
            self.subscribe(vec![Topic::Overview]);
        }
    }

    fn answer(&mut self, number: u32, response: Response, at_ms: u64) {
        self.is_dirty = true;
        let awaited = self.awaited.take_if(|(awaited, _)| *awaited == number);
        match (response, awaited) {
            (Response::Process(process), Some((_, title))) => {
                let lines = detail::lines(&process);
                self.view.overlay = Some(Overlay::Detail { title, lines, top: 0 });
            }
            (Response::Done(text), _) => self.view.notify(text.to_string(), Severity::Ok, at_ms),
            (Response::Refused(why), _) => self.view.notify(why.to_string(), Severity::Warning, at_ms),
            _ => {}
        }
    }

    fn is_frame_due(&self) -> bool {
        self.is_urgent
            || self.is_subscription_due()
            || self.drawn.is_none_or(|at| at.elapsed() >= self.frame_interval)
    }

    fn is_subscription_due(&self) -> bool {
        self.model.connection == Connection::Live
            && self.topics.is_empty()
            && self.subscribed.is_none_or(|at| at.elapsed() >= SUBSCRIBE)
    }

    fn subscribe(&mut self, topics: Vec<Topic>) {
        if self.source.send(Order::Subscribe(topics.clone())) {
            self.model.retain(&topics);
            self.topics = topics;
            self.subscribed = Some(Instant::now());
        }
    }

    fn draw(&mut self) -> Result<(), TopError> {
        (self.is_dirty, self.is_urgent, self.drawn) = (false, false, Some(Instant::now()));
        let at_ms = self.at_ms();
        let detail = self.topics.iter().find(|topic| **topic != Topic::Overview);
        let world = self.model.world(detail, at_ms);
        let mut wanted = None;
        if let Some(world) = &world {
            self.view.place(world);
            wanted = self.view.detail(world, &self.view.contents(world));
        }
        let (palette, is_ascii) = (self.palette, self.is_ascii);
        let scene = Scene { model: &self.model, world: world.as_ref(), at_ms, palette, is_ascii };
        let view = &mut self.view;
        self.screen
            .draw(|buffer| draw::draw(buffer, view, scene))
            .map_err(|error| anyhow::anyhow!("failed to write to the terminal: {error}"))?;
        let is_other = world.is_some() && wanted.as_ref() != detail;
        if is_other && self.model.connection == Connection::Live {
            if self.subscribed.is_none_or(|at| at.elapsed() >= SUBSCRIBE) {
                self.subscribe([Topic::Overview].into_iter().chain(wanted).collect());
            }
            // If it is too early, the next frame tries again.
            (self.is_dirty, self.is_urgent) = (true, true);
        }
        Ok(())
    }

    fn suspend(&mut self, suspension: screen::Suspension) -> Result<(), TopError> {
        (self.is_dirty, self.is_urgent) = (true, true);
        let done = match suspension {
            screen::Suspension::Stop => self.screen.suspend(),
            screen::Suspension::Continued => self.screen.resume(),
        };
        Ok(done.map_err(|error| anyhow::anyhow!("failed to set up the terminal: {error}"))?)
    }
}

#[cfg(test)]
mod tests;
