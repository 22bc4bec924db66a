//! A WebSocket is words in and words out, each bounded in size, number and time, and an end that says why.

use super::socket::Socket;
use crate::access::doorkeeper::MAX_FIRST_MESSAGE;
use bytes::Bytes;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ClientMessage, Farewell, ServerMessage};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

/// How long a piece of a frame may stay unread before the viewer counts as too slow.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the last words to the holder of a share that ended may take.
const LAST_WORDS_TO_A_GUEST: Duration = Duration::from_millis(500);
/// How many messages a page may send a second, and at once.
const MESSAGES_PER_S: u32 = 20;

/// Close codes of WebSocket that say more than "over".
pub mod close {
    /// The relay ends (RFC 6455).
    pub const GOING_AWAY: u16 = 1001;
    /// Refused, or what was said is no message of this protocol (RFC 6455: policy violation).
    pub const POLICY: u16 = 1008;
    /// The key is right, but not for this user.
    pub const NOT_YOURS: u16 = 4401;
    /// The share ended.
    pub const OVER: u16 = 4403;
    /// The proof did not come in time, or the page stopped reading.
    pub const TOO_SLOW: u16 = 4408;
    /// The page said too much.
    pub const TOO_MUCH: u16 = 4429;
}

/// How a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// With a reason the page knows how to show.
    Bye(Farewell),
    /// With a close frame only.
    Close(u16, &'static str),
    /// The relay ends, and the hub has said so.
    Ending,
    /// There is nobody left to tell.
    Gone,
}

/// A WebSocket that speaks messages.
pub(super) struct Line {
    socket: Socket,
}

impl Line {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket }
    }

    pub(super) fn form(&self) -> Form {
        self.socket.form()
    }

    /// The next message; `None` for a sign of life.
    pub(super) async fn hear(&mut self) -> Result<Option<ClientMessage>, End> {
        let Some(bytes) = self.receive().await? else { return Ok(None) };
        self.form().decode(&bytes).map(Some).map_err(|_| End::Bye(Farewell::Unreadable))
    }

    /// The next message of somebody who has proved nothing: small, and not preceded by many signs of life.
    pub(super) async fn first_message(&mut self) -> Result<ClientMessage, End> {
        for _ in 0..MESSAGES_PER_S {
            match self.receive().await? {
                Some(bytes) if bytes.len() <= MAX_FIRST_MESSAGE => {
                    return self.form().decode(&bytes).map_err(|_| End::Bye(Farewell::Unreadable));
                }
                Some(_) => return Err(End::Bye(Farewell::Unreadable)),
                None => {}
            }
        }
        Err(End::Close(close::TOO_MUCH, "too many messages"))
    }

    /// The bytes of the next message, `None` for a ping or pong.
    async fn receive(&mut self) -> Result<Option<Bytes>, End> {
        match (self.socket.hear().await, self.form()) {
            (Some(Ok(Message::Binary(bytes))), Form::Binary) => Ok(Some(bytes)),
            (Some(Ok(Message::Text(text))), Form::Json) => Ok(Some(text.into())),
            (Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))), _) => Ok(None),
            (Some(Ok(Message::Binary(_) | Message::Text(_))), _) => Err(End::Bye(Farewell::Unreadable)),
            (Some(Ok(Message::Close(_))) | None, _) => Err(End::Gone),
            // Too large, not UTF-8, or no WebSocket frame at all; or the connection broke, and nobody reads this.
            (Some(Err(_)), _) => Err(End::Close(close::POLICY, "this cannot be read")),
        }
    }

    pub(super) async fn say(&mut self, message: &ServerMessage) -> Result<(), End> {
        self.show(self.form().encode(message).into(), || None).await
    }

    /// Sends a frame that is already encoded, and whatever else lies there by then, in one piece.
    pub(super) async fn show(
        &mut self,
        first: Bytes,
        mut more: impl FnMut() -> Option<Bytes>,
    ) -> Result<(), End> {
        let mut next = Some(first);
        while let Some(frame) = next {
            for piece in self.socket.pieces(frame) {
                in_time(self.socket.feed(piece)).await?;
            }
            next = more();
        }
        in_time(self.socket.flush()).await
    }

    pub(super) async fn send(&mut self, message: Message) -> Result<(), End> {
        in_time(self.socket.send(message)).await
    }

    /// Says why, closes, and waits for the page to have read it, but not for long.
    pub(super) async fn hang_up(mut self, end: End) {
        let patience = match &end {
            // Who may not look any more is not waited for.
            End::Bye(Farewell::Revoked | Farewell::Expired) => LAST_WORDS_TO_A_GUEST,
            _ => LAST_WORDS,
        };
        let _ = timeout(patience, async {
            let (code, reason) = match end {
                End::Gone => return,
                End::Close(code, reason) => (code, reason),
                End::Ending => (close::GOING_AWAY, "the relay ends"),
                End::Bye(farewell) => {
                    let why = close_of(&farewell);
                    if self.say(&ServerMessage::Bye(farewell)).await.is_err() {
                        return;
                    }
                    why
                }
            };
            let frame = CloseFrame { code: code.into(), reason: reason.into() };
            if self.socket.send(Message::Close(Some(frame))).await.is_ok() {
                // Until the page's own close frame: a socket shut with unread bytes would lose our last words.
                while let Some(Ok(_)) = self.socket.hear().await {}
            }
        })
        .await;
    }
}

/// Writes, if the page reads.
async fn in_time<E>(writing: impl Future<Output = Result<(), E>>) -> Result<(), End> {
    match timeout(WRITE_PATIENCE, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Gone),
        Err(_) => Err(End::Bye(Farewell::TooSlow)),
    }
}

fn close_of(farewell: &Farewell) -> (u16, &'static str) {
    match farewell {
        Farewell::Refused => (close::POLICY, "the key is not the right one"),
        Farewell::Version { .. } => (close::POLICY, "no version in common"),
        Farewell::Unreadable => (close::POLICY, "not a message of this protocol"),
        Farewell::TooSlow => (close::TOO_SLOW, "the page did not read"),
        Farewell::ShuttingDown => (close::GOING_AWAY, "the relay ends"),
        Farewell::NotTheOwner { .. } => (close::NOT_YOURS, "the owner's key works for its owner only"),
        Farewell::NotByProxy { .. } => (close::NOT_YOURS, "the proxy does not say that you are the owner"),
        Farewell::NotForYou { .. } => (close::NOT_YOURS, "this share is for somebody else"),
        Farewell::Revoked => (close::OVER, "this share was revoked"),
        Farewell::Expired => (close::OVER, "this share's time is over"),
    }
}

/// How much a page may still say: [`MESSAGES_PER_S`] at once, and as many more each second.
pub(super) struct Quota {
    left: f64,
    at: Instant,
}

impl Quota {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: f64::from(MESSAGES_PER_S), at: now }
    }

    pub(super) fn spend(&mut self, now: Instant) -> Result<(), End> {
        let most = f64::from(MESSAGES_PER_S);
        self.left = most.min(self.left + now.duration_since(self.at).as_secs_f64() * most);
        self.at = now;
        if self.left < 1.0 {
            return Err(End::Close(close::TOO_MUCH, "too many messages"));
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_say_twenty_things_a_second_and_no_more() {
        let start = Instant::now();
        let mut quota = Quota::new(start);
        for _ in 0..MESSAGES_PER_S {
            assert!(quota.spend(start).is_ok());
        }
        assert!(quota.spend(start).is_err());
        assert!(quota.spend(start + Duration::from_millis(60)).is_ok());
        assert!(quota.spend(start + Duration::from_millis(61)).is_err());
    }
}
