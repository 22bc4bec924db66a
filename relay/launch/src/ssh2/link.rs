//! An SSH session over a socket; libssh2 calls wait without blocking a thread.

use super::budget::{self, Beyond};
use ssh2::{BlockDirections, Channel, ErrorCode, Session};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// libssh2 occasionally reports a direction that it no longer waits for; a wait that includes *outbound*
/// is therefore repeated after this long. An idle link waits for *inbound* only and costs nothing.
const OUTBOUND_RECHECK: Duration = Duration::from_millis(200);

/// Receive window of a channel.
const WINDOW: u32 = 256 * 1024;
/// Maximum packet size of a channel.
const PACKET: u32 = 32 * 1024;

/// Maximum number of bytes read per call, after which other tasks run.
const MAX_READ_PER_CALL: usize = 128 * 1024;
/// Maximum input before authentication; a handshake needs some KiB.
const MAX_UNAUTHENTICATED_INPUT: usize = 1024 * 1024;
/// Maximum input besides the output of programs.
const MAX_OTHER_INPUT: usize = 16 * 1024 * 1024;
/// Allowance per chunk of output: packet overhead, and occasional rekeying.
const OVERHEAD_PER_CHUNK: usize = 4 * 1024;

/// Pauses between attempts to open a channel.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LAST_PAUSE: Duration = Duration::from_millis(400);
/// "Channel open failure".
const REFUSED: ErrorCode = ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_CHANNEL_FAILURE);

/// An SSH session and its socket. Dropping it shuts down the connection first: libssh2 sends a disconnect
/// message when it is freed, and must not block on a peer that never responds.
pub struct Link {
    socket: Arc<TcpStream>,
    session: Session,
    /// The remaining input budget.
    allowance: AtomicUsize,
}

/// The result of one call.
struct Step<T> {
    outcome: T,
    /// Whether it left input unread, so that the next call need not wait.
    has_more: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }
}

impl Link {
    /// Creates a session on a connected socket, without sending anything.
    ///
    /// # Errors
    /// If libssh2 is out of memory.
    pub fn new(socket: TcpStream) -> Result<Self, ssh2::Error> {
        let socket = Arc::new(socket);
        let mut session = Session::new()?;
        session.set_tcp_stream(Arc::clone(&socket));
        session.set_blocking(false);
        budget::watch(&session);
        Ok(Self { socket, session, allowance: MAX_UNAUTHENTICATED_INPUT.into() })
    }

    /// Raises the limit: the user is authenticated, and the host verified.
    pub fn trust(&self) {
        self.allowance.store(MAX_OTHER_INPUT, Ordering::Relaxed);
    }

    /// Records bytes of output, which raise the limit.
    pub fn add_allowance(&self, bytes: usize) {
        let more = bytes.saturating_mul(2).saturating_add(OVERHEAD_PER_CHUNK);
        let now = self.allowance.load(Ordering::Relaxed);
        self.allowance.store(now.saturating_add(more).min(MAX_OTHER_INPUT), Ordering::Relaxed);
    }

    /// The remaining input budget.
    pub fn allowance(&self) -> usize {
        self.allowance.load(Ordering::Relaxed)
    }

    /// The socket, to look at input that libssh2 has not read.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The session, for calls that never block.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Repeats a libssh2 call until it no longer returns "again".
    ///
    /// # Errors
    /// The error of the call, or that the host sends far more than it should.
    pub async fn drive<T, E: Again>(&self, mut call: impl FnMut(&Session) -> Result<T, E>) -> Result<T, E> {
        let mut step = self.step(|| call(&self.session));
        while step.outcome.as_ref().is_err_and(E::is_again) {
            step = if step.has_more {
                // Yields to other tasks, so that time limits are checked meanwhile.
                tokio::task::yield_now().await;
                self.step(|| call(&self.session))
            } else {
                self.again(|| call(&self.session)).await?
            };
        }
        step.outcome
    }

    /// Makes one call within the input budget.
    fn step<T, E: Again>(&self, call: impl FnOnce() -> Result<T, E>) -> Step<Result<T, E>> {
        let allowed = self.allowance();
        let (outcome, spent) = budget::within(allowed.min(MAX_READ_PER_CALL), Beyond::Again, call);
        let left = allowed.saturating_sub(spent.cost);
        self.allowance.store(left, Ordering::Relaxed);
        let is_flooded = spent.was_hit && allowed <= MAX_READ_PER_CALL;
        let outcome = if is_flooded && outcome.is_err() { Err(E::flooded()) } else { outcome };
        Step { outcome, has_more: spent.was_hit }
    }

    /// Waits until the socket is ready as libssh2 requests, then makes the call once.
    ///
    /// tokio clears the readiness only if the call still returns "again", and only the readiness from
    /// before the call: data that arrives in between is not missed.
    async fn again<T, E: Again>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<Step<Result<T, E>>, E> {
        let interest = match self.session.block_directions() {
            BlockDirections::None | BlockDirections::Inbound => Interest::READABLE,
            BlockDirections::Outbound => Interest::WRITABLE,
            BlockDirections::Both => Interest::READABLE | Interest::WRITABLE,
        };
        let ready = self.socket.ready(interest);
        let ready = match interest {
            Interest::READABLE => ready.await,
            _ => timeout(OUTBOUND_RECHECK, ready).await.unwrap_or(Ok(Ready::EMPTY)),
        };
        let ready = ready.map_err(|_| E::unwatched())?;
        if ready.is_empty() {
            return Ok(self.step(call));
        }
        // `try_io` handles one direction at a time: given both, it never calls and never clears.
        let direction = if ready.is_writable() { Interest::WRITABLE } else { Interest::READABLE };
        let mut step = None;
        let _ = self.socket.try_io(direction, || {
            let step = step.insert(self.step(call));
            // While there is unread data, the readiness must not be cleared.
            if step.outcome.as_ref().is_err_and(E::is_again) && !step.has_more {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        Ok(step.unwrap_or_else(|| Step { outcome: Err(E::again()), has_more: false }))
    }

    /// Opens a channel and starts `command` on it.
    ///
    /// # Errors
    /// When the server refuses or the link breaks.
    pub async fn exec(&self, command: &str) -> Result<Channel, ssh2::Error> {
        let mut channel = self.open().await?;
        self.drive(|_| channel.exec(command)).await?;
        Ok(channel)
    }

    /// Opens a channel. sshd frees a closed one only after processing everything that came with its
    /// close message, so that with `MaxSessions 1` the next one is refused for a moment.
    async fn open(&self) -> Result<Channel, ssh2::Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.drive(|s| s.channel_open("session", WINDOW, PACKET, None)).await {
                Err(error) if error.code() == REFUSED && pause <= LAST_PAUSE => {
                    tokio::time::sleep(pause).await
                }
                outcome => return outcome,
            }
            pause *= 2;
        }
    }
}

/// The two error types that represent libssh2's "call again with the same arguments".
pub trait Again {
    /// Returns whether it is this error.
    fn is_again(&self) -> bool;
    /// Creates this error.
    fn again() -> Self;
    /// The error for a socket that can no longer be polled.
    fn unwatched() -> Self;
    /// The error for a host that does not stop sending.
    fn flooded() -> Self;
}

const FLOODED: &str = "the host sends far more than was requested";

impl Again for ssh2::Error {
    fn is_again(&self) -> bool {
        self.code() == ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_EAGAIN)
    }

    fn again() -> Self {
        Self::from_errno(ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_EAGAIN))
    }

    fn unwatched() -> Self {
        Self::from_errno(ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_SOCKET_DISCONNECT))
    }

    fn flooded() -> Self {
        Self::new(ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_PROTO), FLOODED)
    }
}

impl Again for io::Error {
    fn is_again(&self) -> bool {
        self.kind() == io::ErrorKind::WouldBlock
    }

    fn again() -> Self {
        io::ErrorKind::WouldBlock.into()
    }

    fn unwatched() -> Self {
        io::ErrorKind::NotConnected.into()
    }

    fn flooded() -> Self {
        io::Error::new(io::ErrorKind::QuotaExceeded, FLOODED)
    }
}
