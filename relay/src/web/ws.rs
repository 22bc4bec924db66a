//! A WebSocket connection with bounded message size, rate and write time, closed with a reason.

use super::socket::Socket;
use crate::access::authenticator::MAX_FIRST_MESSAGE;
use bytes::Bytes;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ClientMessage, Farewell, ServerMessage};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

/// How long a write may block before the client counts as too slow.
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

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// With a reason that the page displays.
    Bye(Farewell),
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
    pub(super) async fn recv(&mut self) -> Result<Option<ClientMessage>, CloseReason> {
        let Some(bytes) = self.recv_bytes().await? else { return Ok(None) };
        self.form().decode(&bytes).map(Some).map_err(|_| CloseReason::Bye(Farewell::Unreadable))
    }

    /// Receives a message of an unauthenticated client: small, and preceded by few pings.
    pub(super) async fn recv_first(&mut self) -> Result<ClientMessage, CloseReason> {
        for _ in 0..MESSAGES_PER_S {
            match self.recv_bytes().await? {
                Some(bytes) if bytes.len() <= MAX_FIRST_MESSAGE => {
                    return self.form().decode(&bytes).map_err(|_| CloseReason::Bye(Farewell::Unreadable));
                }
                Some(_) => return Err(CloseReason::Bye(Farewell::Unreadable)),
                None => {}
            }
        }
        Err(CloseReason::Close(close::RATE_LIMIT, "too many messages"))
    }

    /// Receives the bytes of the next message, `None` for a ping or pong.
    async fn recv_bytes(&mut self) -> Result<Option<Bytes>, CloseReason> {
        match (self.socket.recv().await, self.form()) {
            (Some(Ok(Message::Binary(bytes))), Form::Binary) => Ok(Some(bytes)),
            (Some(Ok(Message::Text(text))), Form::Json) => Ok(Some(text.into())),
            (Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))), _) => Ok(None),
            (Some(Ok(Message::Binary(_) | Message::Text(_))), _) => {
                Err(CloseReason::Bye(Farewell::Unreadable))
            }
            (Some(Ok(Message::Close(_))) | None, _) => Err(CloseReason::Disconnected),
            // Too large, not UTF-8 or no valid frame; or the connection broke, and nobody receives the
            // reason.
            (Some(Err(_)), _) => Err(CloseReason::Close(close::POLICY, "unreadable message")),
        }
    }

    pub(super) async fn send(&mut self, message: &ServerMessage) -> Result<(), CloseReason> {
        self.send_frame(self.form().encode(message).into(), || None).await
    }

    /// Sends an encoded frame, and all further ones that are queued by then, with a single flush.
    pub(super) async fn send_frame(
        &mut self,
        first: Bytes,
        mut more: impl FnMut() -> Option<Bytes>,
    ) -> Result<(), CloseReason> {
        let mut next = Some(first);
        while let Some(frame) = next {
            for fragment in self.socket.fragments(frame) {
                with_timeout(self.socket.feed(fragment)).await?;
            }
            next = more();
        }
        with_timeout(self.socket.flush()).await
    }

    pub(super) async fn send_raw(&mut self, message: Message) -> Result<(), CloseReason> {
        with_timeout(self.socket.send(message)).await
    }

    /// Sends the reason and the close frame, and waits briefly for the peer's.
    pub(super) async fn close(mut self, reason: CloseReason) {
        let time_limit = match &reason {
            // Do not wait long for a client whose access has just ended.
            CloseReason::Bye(Farewell::Revoked | Farewell::Expired) => ENDED_SHARE_CLOSE_TIMEOUT,
            _ => CLOSE_TIMEOUT,
        };
        let _ = timeout(time_limit, async {
            let (code, text) = match reason {
                CloseReason::Disconnected => return,
                CloseReason::Close(code, text) => (code, text),
                CloseReason::ShuttingDown => (close::GOING_AWAY, "the relay is shutting down"),
                CloseReason::Bye(farewell) => {
                    let why = close_frame_of(&farewell);
                    if self.send(&ServerMessage::Bye(farewell)).await.is_err() {
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
async fn with_timeout<E>(writing: impl Future<Output = Result<(), E>>) -> Result<(), CloseReason> {
    match timeout(WRITE_TIMEOUT, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(CloseReason::Disconnected),
        Err(_) => Err(CloseReason::Bye(Farewell::TooSlow)),
    }
}

fn close_frame_of(farewell: &Farewell) -> (u16, &'static str) {
    match farewell {
        Farewell::Refused => (close::POLICY, "wrong key"),
        Farewell::Version { .. } => (close::POLICY, "no version in common"),
        Farewell::Unreadable => (close::POLICY, "not a message of this protocol"),
        Farewell::TooSlow => (close::TOO_SLOW, "the page did not read"),
        Farewell::ShuttingDown => (close::GOING_AWAY, "the relay is shutting down"),
        Farewell::NotTheOwner { .. } => (close::WRONG_USER, "the owner's key works for its owner only"),
        Farewell::NotByProxy { .. } => (close::WRONG_USER, "the proxy does not say that you are the owner"),
        Farewell::NotForYou { .. } => (close::WRONG_USER, "this share is for another user"),
        Farewell::Revoked => (close::SHARE_ENDED, "this share was revoked"),
        Farewell::Expired => (close::SHARE_ENDED, "this share has expired"),
    }
}

/// Message quota of a client: a burst of [`MESSAGES_PER_S`], refilled at that rate.
pub(super) struct MessageQuota {
    left: f64,
    at: Instant,
}

impl MessageQuota {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: f64::from(MESSAGES_PER_S), at: now }
    }

    pub(super) fn spend(&mut self, now: Instant) -> Result<(), CloseReason> {
        let most = f64::from(MESSAGES_PER_S);
        self.left = most.min(self.left + now.duration_since(self.at).as_secs_f64() * most);
        self.at = now;
        if self.left < 1.0 {
            return Err(CloseReason::Close(close::RATE_LIMIT, "too many messages"));
        }
        self.left -= 1.0;
        Ok(())
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
        assert!(quota.spend(start).is_err());
        assert!(quota.spend(start + Duration::from_millis(60)).is_ok());
        assert!(quota.spend(start + Duration::from_millis(61)).is_err());
    }
}
