//! A WebSocket connection with bounded message size, rate and write time, closed with a reason.

use super::socket::Socket;
use bytes::Bytes;
use nodeglass_auth::authenticator::MAX_FIRST_MESSAGE;
use nodeglass_platform::token_bucket::TokenBucket;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ClientMessage, CloseReason, ServerMessage};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

/// Maximum time for which a write may block before the client counts as too slow.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the close handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the close handshake after a share ended.
const ENDED_SHARE_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum message rate of a client, and its burst.
const MESSAGES_PER_S: u32 = 20;

/// WebSocket close codes that carry a reason.
pub mod close {
    /// The relay is shutting down (RFC 6455).
    pub const GOING_AWAY: u16 = 1001;
    /// Rejected, or not a message of this protocol (RFC 6455: policy violation).
    pub const POLICY: u16 = 1008;
    /// The key is valid, but not for this user.
    pub const WRONG_USER: u16 = 4401;
    /// The share ended.
    pub const SHARE_ENDED: u16 = 4403;
    /// The proof timed out, or the client stopped reading.
    pub const TOO_SLOW: u16 = 4408;
    /// The client exceeded a rate or connection limit.
    pub const RATE_LIMIT: u16 = 4429;
}

/// The close reason at shutdown. Retrying is of no use: the key ends with the relay.
const STOPPED: &str = "the relay was stopped for good; the next one has a new link";

/// Reason for the end of a connection.
#[derive(Debug)]
pub(super) enum ConnectionEnd {
    /// With a reason that the page displays.
    Bye(CloseReason),
    /// With a close frame only.
    Close(u16, &'static str),
    /// The relay is shutting down; the hub already sent the reason.
    ShuttingDown,
    /// The peer is gone.
    Disconnected,
}

/// A WebSocket that carries protocol messages.
pub(super) struct WsConnection {
    socket: Socket,
}

impl WsConnection {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket }
    }

    pub(super) fn form(&self) -> Form {
        self.socket.form()
    }

    /// Receives the next message; `None` for a ping or pong.
    pub(super) async fn recv(&mut self) -> Result<Option<ClientMessage>, ConnectionEnd> {
        let Some(bytes) = self.recv_bytes().await? else { return Ok(None) };
        self.form().decode(&bytes).map(Some).map_err(|_| ConnectionEnd::Bye(CloseReason::Unreadable))
    }

    /// Receives a message of an unauthenticated client: small, and preceded by few pings.
    pub(super) async fn recv_first(&mut self) -> Result<ClientMessage, ConnectionEnd> {
        for _ in 0..MESSAGES_PER_S {
            match self.recv_bytes().await? {
                Some(bytes) if bytes.len() <= MAX_FIRST_MESSAGE => {
                    return self
                        .form()
                        .decode(&bytes)
                        .map_err(|_| ConnectionEnd::Bye(CloseReason::Unreadable));
                }
                Some(_) => return Err(ConnectionEnd::Bye(CloseReason::Unreadable)),
                None => {}
            }
        }
        Err(ConnectionEnd::Close(close::RATE_LIMIT, "too many messages"))
    }

    /// Receives the bytes of the next message, `None` for a ping or pong.
    async fn recv_bytes(&mut self) -> Result<Option<Bytes>, ConnectionEnd> {
        match (self.socket.recv().await, self.form()) {
            (Some(Ok(Message::Binary(bytes))), Form::Binary) => Ok(Some(bytes)),
            (Some(Ok(Message::Text(text))), Form::Json) => Ok(Some(text.into())),
            (Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))), _) => Ok(None),
            (Some(Ok(Message::Binary(_) | Message::Text(_))), _) => {
                Err(ConnectionEnd::Bye(CloseReason::Unreadable))
            }
            (Some(Ok(Message::Close(_))) | None, _) => Err(ConnectionEnd::Disconnected),
            // Too large, not UTF-8 or no valid frame; or the connection broke, and the client does not receive the
            // reason.
            (Some(Err(_)), _) => Err(ConnectionEnd::Close(close::POLICY, "unreadable message")),
        }
    }

    pub(super) async fn send(&mut self, message: &ServerMessage) -> Result<(), ConnectionEnd> {
        self.send_frame(self.form().encode(message).into(), || None).await
    }

    /// Sends an encoded frame, and all further ones that are queued by then, with a single flush.
    pub(super) async fn send_frame(
        &mut self,
        first: Bytes,
        mut more: impl FnMut() -> Option<Bytes>,
    ) -> Result<(), ConnectionEnd> {
        let mut next = Some(first);
        while let Some(frame) = next {
            for fragment in self.socket.fragments(frame) {
                with_timeout(self.socket.feed(fragment)).await?;
            }
            next = more();
        }
        with_timeout(self.socket.flush()).await
    }

    pub(super) async fn send_raw(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        with_timeout(self.socket.send(message)).await
    }

    /// Sends the reason and the close frame, and waits briefly for the peer's.
    pub(super) async fn close(mut self, reason: ConnectionEnd) {
        let time_limit = match &reason {
            // Do not wait long for a client whose access has just ended.
            ConnectionEnd::Bye(CloseReason::Revoked | CloseReason::Expired) => ENDED_SHARE_CLOSE_TIMEOUT,
            _ => CLOSE_TIMEOUT,
        };
        let _ = timeout(time_limit, async {
            let (code, text) = match reason {
                ConnectionEnd::Disconnected => return,
                ConnectionEnd::Close(code, text) => (code, text),
                ConnectionEnd::ShuttingDown => (close::GOING_AWAY, STOPPED),
                ConnectionEnd::Bye(close_reason) => {
                    let why = close_frame_of(&close_reason);
                    if self.send(&ServerMessage::Bye(close_reason)).await.is_err() {
                        return;
                    }
                    why
                }
            };
            let frame = CloseFrame { code: code.into(), reason: text.into() };
            if self.socket.send(Message::Close(Some(frame))).await.is_ok() {
                // Until the peer's close frame: shutting down a socket with unread bytes would discard
                // what we sent.
                while let Some(Ok(_)) = self.socket.recv().await {}
            }
        })
        .await;
    }
}

/// Applies the write time limit.
async fn with_timeout<E>(writing: impl Future<Output = Result<(), E>>) -> Result<(), ConnectionEnd> {
    match timeout(WRITE_TIMEOUT, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(ConnectionEnd::Disconnected),
        Err(_) => Err(ConnectionEnd::Bye(CloseReason::TooSlow)),
    }
}

fn close_frame_of(close_reason: &CloseReason) -> (u16, &'static str) {
    match close_reason {
        CloseReason::Refused => (close::POLICY, "wrong key"),
        CloseReason::Version { .. } => (close::POLICY, "no version in common"),
        CloseReason::Unreadable => (close::POLICY, "not a message of this protocol"),
        CloseReason::TooSlow => (close::TOO_SLOW, "the page did not read"),
        CloseReason::ShuttingDown => (close::GOING_AWAY, STOPPED),
        CloseReason::NotTheOwner { .. } => (close::WRONG_USER, "the owner's key works for its owner only"),
        CloseReason::NotIdentified => (close::WRONG_USER, "the relay cannot identify you"),
        CloseReason::NotByProxy { .. } => (close::WRONG_USER, "the proxy does not identify you as the owner"),
        CloseReason::NotForYou { .. } => (close::WRONG_USER, "this share is for another user"),
        CloseReason::Revoked => (close::SHARE_ENDED, "this share was revoked"),
        CloseReason::Expired => (close::SHARE_ENDED, "this share has expired"),
    }
}

/// Message quota of a client: a burst of [`MESSAGES_PER_S`], refilled at that rate.
pub(super) struct MessageQuota(TokenBucket);

impl MessageQuota {
    pub(super) fn new(now: Instant) -> Self {
        let rate = f64::from(MESSAGES_PER_S);
        Self(TokenBucket::full(rate, rate, now))
    }

    pub(super) fn spend(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        match self.0.take(1.0, now) {
            true => Ok(()),
            false => Err(ConnectionEnd::Close(close::RATE_LIMIT, "too many messages")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_send_twenty_messages_a_second() {
        let start = Instant::now();
        let mut quota = MessageQuota::new(start);
        for _ in 0..MESSAGES_PER_S {
            assert!(quota.spend(start).is_ok());
        }
        assert!(quota.spend(start + Duration::from_millis(60)).is_ok());
        assert!(quota.spend(start + Duration::from_millis(61)).is_err());
    }
}
