//! The terminal's modes: entered, left for a suspension, and restored however the program ends.

use anyhow::Context;
use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use rustix::process::Signal as KernelSignal;
use std::io::{self, Stdout, stdout};
use std::sync::Once;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The terminal in full-screen mode; restored on drop and on a panic.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    has_mouse: bool,
}

impl Screen {
    /// Enters full-screen mode, in which the terminal reports the mouse if `has_mouse`.
    ///
    /// # Errors
    /// If the terminal's modes cannot be changed.
    pub fn enter(has_mouse: bool) -> io::Result<Self> {
        restore_on_panic();
        enter(has_mouse)?;
        // From here on the drop restores it.
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        terminal.map(|terminal| Self { terminal, has_mouse }).inspect_err(|_| leave())
    }

    /// Draws a frame, of which only changes are written.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }

    /// Restores the terminal, and stops until the shell continues the program.
    ///
    /// # Errors
    /// If the terminal's modes cannot be changed.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        // The whole pipeline, as the terminal itself would. SIGSTOP, because SIGTSTP is handled here.
        rustix::process::kill_current_process_group(KernelSignal::STOP)?;
        self.resume()
    }

    /// Enters full-screen mode again.
    ///
    /// # Errors
    /// If the terminal's modes cannot be changed.
    pub fn resume(&mut self) -> io::Result<()> {
        enter(self.has_mouse)?;
        execute!(stdout(), Clear(ClearType::All))?;
        // The last frame is forgotten, so that the next one is written as a whole. `Terminal::clear` would query the
        // position of the cursor, whose answer the reader of keys may consume.
        self.terminal.swap_buffers();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter(has_mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    let entered = execute!(stdout(), EnterAlternateScreen, Hide);
    let entered =
        entered.and_then(|()| if has_mouse { execute!(stdout(), EnableMouseCapture) } else { Ok(()) });
    entered.inspect_err(|_| leave())
}

/// Restores the terminal if it still exists.
fn leave() {
    let _ = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Restores the terminal before the message of a panic, which would otherwise be lost with the alternate screen.
fn restore_on_panic() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            previous(panic);
        }));
    });
}

/// A request of the shell, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Stop (`SIGTSTP`).
    Stop,
    /// Continued after a stop (`SIGCONT`).
    Continued,
}

/// Signals that suspend and continue the program.
pub struct Suspensions {
    stop: Signal,
    continued: Signal,
}

impl Suspensions {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        Ok(Self {
            stop: listen(SignalKind::from_raw(KernelSignal::TSTP.as_raw()))?,
            continued: listen(SignalKind::from_raw(KernelSignal::CONT.as_raw()))?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Suspension {
        tokio::select! {
            // Such as `kill -TSTP`.
            _ = self.stop.recv() => Suspension::Stop,
            // `fg`, also after a SIGSTOP that nobody could handle.
            _ = self.continued.recv() => Suspension::Continued,
        }
    }
}
