//! A link is one SSH session over one socket; every libssh2 call on it waits without blocking a thread.

use ssh2::{BlockDirections, Channel, ErrorCode, Session};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// libssh2 now and then names a direction that is no longer the one it waits for; a wait that
/// includes *outbound* is therefore looked at again after this long. A quiet link waits for
/// *inbound* only and costs nothing.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// Bytes that the other side may send ahead of us on one channel.
const WINDOW: u32 = 256 * 1024;
/// Largest packet on a channel.
const PACKET: u32 = 32 * 1024;

/// Pauses between tries to open a channel.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LAST_PAUSE: Duration = Duration::from_millis(400);
/// "Channel open failure".
const REFUSED: ErrorCode = ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_CHANNEL_FAILURE);

/// One SSH session and its socket. Dropping it cuts the connection first: libssh2 says farewell to
/// the peer when it is freed, and must not find one that never answers.
pub struct Link {
    socket: Arc<TcpStream>,
    session: Session,
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
    }
}

impl Link {
    /// Puts a session on a connected socket. Nothing is said yet.
    ///
    /// # Errors
    /// When libssh2 has no memory.
    pub fn new(socket: TcpStream) -> Result<Self, ssh2::Error> {
        let socket = Arc::new(socket);
        let mut session = Session::new()?;
        session.set_tcp_stream(Arc::clone(&socket));
        session.set_blocking(false);
        Ok(Self { socket, session })
    }

    /// The session, for calls that never wait.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Repeats one libssh2 call until it no longer says "again".
    ///
    /// # Errors
    /// Whatever the call ends with.
    pub async fn drive<T, E: Again>(&self, mut call: impl FnMut(&Session) -> Result<T, E>) -> Result<T, E> {
        let mut outcome = call(&self.session);
        while outcome.as_ref().is_err_and(E::says_again) {
            outcome = self.again(|| call(&self.session)).await;
        }
        outcome
    }

    /// Waits until the socket is ready the way libssh2 asks, then makes the call once.
    ///
    /// tokio forgets that the socket was ready only if the call still says "again", and only the
    /// readiness from before the call: what arrives in between is not missed.
    async fn again<T, E: Again>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let interest = match self.session.block_directions() {
            BlockDirections::None | BlockDirections::Inbound => Interest::READABLE,
            BlockDirections::Outbound => Interest::WRITABLE,
            BlockDirections::Both => Interest::READABLE | Interest::WRITABLE,
        };
        let ready = self.socket.ready(interest);
        let ready = match interest {
            Interest::READABLE => ready.await,
            _ => timeout(SECOND_LOOK, ready).await.unwrap_or(Ok(Ready::EMPTY)),
        };
        let ready = ready.map_err(|_| E::unwatched())?;
        if ready.is_empty() {
            return call();
        }
        // `try_io` knows one direction at a time: given both, it never calls and never forgets.
        let direction = if ready.is_writable() { Interest::WRITABLE } else { Interest::READABLE };
        let mut outcome = None;
        let _ = self.socket.try_io(direction, || {
            let outcome = outcome.insert(call());
            if outcome.as_ref().is_err_and(E::says_again) {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        outcome.unwrap_or_else(|| Err(E::again()))
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

    /// Opens a channel. sshd frees a closed one only after it has handled everything that came with the
    /// farewell, so that with `MaxSessions 1` the next one is refused for a moment.
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

/// The two error types in which libssh2's "call again with the same arguments" arrives.
pub trait Again {
    /// Whether it is that.
    fn says_again(&self) -> bool;
    /// It.
    fn again() -> Self;
    /// The error for a socket that can no longer be waited for.
    fn unwatched() -> Self;
}

impl Again for ssh2::Error {
    fn says_again(&self) -> bool {
        self.code() == ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_EAGAIN)
    }

    fn again() -> Self {
        Self::from_errno(ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_EAGAIN))
    }

    fn unwatched() -> Self {
        Self::from_errno(ErrorCode::Session(libssh2_sys::LIBSSH2_ERROR_SOCKET_DISCONNECT))
    }
}

impl Again for io::Error {
    fn says_again(&self) -> bool {
        self.kind() == io::ErrorKind::WouldBlock
    }

    fn again() -> Self {
        io::ErrorKind::WouldBlock.into()
    }

    fn unwatched() -> Self {
        io::ErrorKind::NotConnected.into()
    }
}
