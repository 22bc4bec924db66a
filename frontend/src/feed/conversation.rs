//! A conversation is one connection to the relay: both prove the key, then pictures come and wishes go.

use super::credential::Credential;
use super::{Feed, Wish};
use crate::browser;
use crate::fleet::Fleet;
use futures_channel::mpsc::UnboundedReceiver;
use futures_util::future::{Either, poll_fn, select};
use futures_util::{FutureExt, SinkExt, StreamExt, pin_mut};
use gloo_net::websocket::{Message, State, futures::WebSocket};
use gloo_timers::callback::Timeout;
use gloo_timers::future::TimeoutFuture;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::{Exchange, LEN, Nonce};
use nodeglass_protocol::live::{ClientMessage, Farewell, ServerMessage, Topic, Welcome};
use nodeglass_protocol::version::{LIVE_WIRE, VersionRange};
use std::convert::Infallible;

/// How long the relay may take to answer while keys are proved, in ms.
const ANSWER_MS: u32 = 8_000;
/// After this long without a word the relay is asked for a picture, in ms.
const ASK_MS: u32 = 10_000;
/// After this long without a word a page that is seen again asks at once, in ms.
const STALE_MS: f64 = 3_000.0;

/// Why a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parting {
    /// No connection could be made, or it broke.
    Broken,
    /// The relay fell silent.
    Silent,
    /// Whoever answered could not prove that it holds the key. It was told nothing.
    Stranger,
    /// The relay did not accept the key.
    Refused,
    /// The relay does not know the share (any more).
    NoSuchShare,
    /// The owner's key is right, but the connection is somebody else's: whose, as far as the kernel says.
    NotTheOwner(Option<String>),
    /// The owner's key is right, but it came through a proxy that named nobody, or another user.
    NotByProxy {
        /// Whether it named another user.
        other_user: bool,
    },
    /// The link was for one tab, and is used up or too old; or the session that it became is over.
    TabLinkOver,
    /// The share is for this user only, and the connection is another one's.
    NotForYou(String),
    /// Its owner revoked the share: who, as far as the page was told.
    Revoked(Option<String>),
    /// The share's time is over, or its job's.
    Expired,
    /// Page and relay have no version of the wire in common.
    Version,
    /// Something came that is no message.
    Garbled,
    /// The page did not read fast enough.
    TooSlow,
    /// The relay was ended.
    ShutDown,
    /// The browser gave no random numbers, without which no key can be proved.
    NoRandom,
}

impl Parting {
    /// Whether trying again by itself would be of no use.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Broken | Self::Silent | Self::Garbled | Self::TooSlow | Self::ShutDown)
    }

    /// Whether the share is over for good: then nothing of it stays.
    pub fn ends_share(&self) -> bool {
        matches!(self, Self::NoSuchShare | Self::Revoked(_) | Self::Expired)
    }

    /// Whether it speaks of a share, which has no use for the owner's key.
    pub fn is_of_share(&self) -> bool {
        self.ends_share() || matches!(self, Self::NotForYou(_))
    }

    /// The same with the name of the relay's owner where it says who did it.
    pub fn by(self, owner: Option<String>) -> Self {
        match self {
            Self::Revoked(_) => Self::Revoked(owner),
            parting => parting,
        }
    }

    /// The same as it is meant for who holds this: a share that is not known is no wrong key.
    fn for_holder_of(self, credential: &Credential) -> Self {
        match self {
            // A relay does not say which shares and tabs there are: it then proves a key that fits no link.
            Self::Refused | Self::Stranger if credential.is_share() => Self::NoSuchShare,
            Self::Refused | Self::Stranger if credential.is_for_one_tab() => Self::TabLinkOver,
            parting => parting,
        }
    }
}

impl From<Farewell> for Parting {
    fn from(farewell: Farewell) -> Self {
        match farewell {
            Farewell::Refused => Self::Refused,
            Farewell::NotTheOwner { user } => Self::NotTheOwner(user.map(|user| user.to_string())),
            Farewell::NotByProxy { other_user } => Self::NotByProxy { other_user },
            Farewell::NotForYou { to } => Self::NotForYou(to.to_string()),
            Farewell::Revoked => Self::Revoked(None),
            Farewell::Expired => Self::Expired,
            Farewell::Version { .. } => Self::Version,
            Farewell::Unreadable => Self::Garbled,
            Farewell::TooSlow => Self::TooSlow,
            Farewell::ShuttingDown => Self::ShutDown,
        }
    }
}

/// An open connection on which both sides proved the key.
pub struct Conversation {
    socket: WebSocket,
    welcome: Welcome,
}

impl Conversation {
    /// Connects and proves the key, checking the relay first. The key of a link for one tab becomes that of a session.
    ///
    /// # Errors
    /// A [`Parting`] if it comes to nothing.
    pub async fn open(credential: &mut Credential) -> Result<Self, Parting> {
        let mut opened = Self::try_open(credential).await;
        if let (Err(Parting::Refused | Parting::Stranger), Some(link)) = (&opened, credential.before_proof())
        {
            *credential = link;
            opened = Self::try_open(credential).await;
        }
        opened.map_err(|parting| parting.for_holder_of(credential))
    }

    async fn try_open(credential: &mut Credential) -> Result<Self, Parting> {
        let mut socket =
            WebSocket::open_with_protocol(&address(), FORM.subprotocol()).map_err(|_| Parting::Broken)?;
        let client = fresh_nonce()?;
        let proto = VersionRange::only(LIVE_WIRE);
        say(&mut socket, &ClientMessage::Hello { proto, key: credential.id(), nonce: client }).await?;
        let ServerMessage::Challenge { nonce: server, code } = answer(&mut socket).await? else {
            return Err(Parting::Garbled);
        };
        let authority = browser::authority();
        let exchange = Exchange { client, server, authority: &authority };
        let key = credential.proof();
        if !exchange.accepts_server(&key, &code) {
            return Err(Parting::Stranger);
        }
        *credential = credential.proved(&exchange);
        say(&mut socket, &ClientMessage::Proof { code: exchange.client_code(&key) }).await?;
        match answer(&mut socket).await? {
            ServerMessage::Welcome(welcome) => {
                *credential = credential.clone().accepted();
                Ok(Self { socket, welcome: *welcome })
            }
            _ => Err(Parting::Garbled),
        }
    }

    /// What holds for the connection.
    pub fn welcome(&self) -> Welcome {
        self.welcome.clone()
    }

    /// Takes in pictures and passes on wishes until the connection ends.
    ///
    /// # Errors
    /// The [`Parting`] that ended it; it never ends otherwise.
    pub async fn carry_on(
        &mut self,
        wanted: Vec<ClientMessage>,
        fleet: &Fleet,
        feed: &Feed,
        inbox: &mut UnboundedReceiver<Wish>,
    ) -> Result<Infallible, Parting> {
        for message in &wanted {
            say(&mut self.socket, message).await?;
        }
        let mut asked = false;
        loop {
            let event = {
                let (heard, wished) = (self.socket.next(), inbox.next());
                let quiet = TimeoutFuture::new(ASK_MS).fuse();
                pin_mut!(quiet);
                match select(select(heard, wished), quiet).await {
                    Either::Left((Either::Left((heard, _)), _)) => Event::Heard(heard.and_then(Result::ok)),
                    Either::Left((Either::Right((wish, _)), _)) => Event::Wished(wish),
                    Either::Right(_) => Event::Quiet,
                }
            };
            let reply = match event {
                // A message: the pictures change.
                Event::Heard(message) => {
                    asked = false;
                    let message = read(message)?;
                    feed.heard(browser::now_ms());
                    take_in(message, fleet, feed)?
                }
                // A wish: the user went elsewhere.
                Event::Wished(Some(Wish::Say(message))) => Some(message),
                // The tab is seen again after a pause that the connection may not have survived.
                Event::Wished(Some(Wish::Hurry)) if browser::now_ms() - feed.heard_at_ms() > STALE_MS => {
                    asked = true;
                    Some(ClientMessage::Resync(Topic::Overview))
                }
                // The page is left.
                Event::Wished(Some(Wish::Leave)) => return Err(Parting::Broken),
                // A new key while this one works, or hurry while all is well: nothing to do.
                Event::Wished(_) => None,
                // Nothing was asked for while nobody looks, so nothing comes.
                Event::Quiet if fleet.topics().is_empty() => None,
                // Nothing for a while, twice in a row: there is nobody any more.
                Event::Quiet if asked => return Err(Parting::Silent),
                Event::Quiet => {
                    asked = true;
                    Some(ClientMessage::Resync(Topic::Overview))
                }
            };
            if let Some(reply) = reply {
                say(&mut self.socket, &reply).await?;
            }
        }
    }
}

/// What a conversation wakes up for.
enum Event {
    Heard(Option<Message>),
    Wished(Option<Wish>),
    Quiet,
}

/// The form of the wire the page asks for.
const FORM: Form = Form::Binary;

fn take_in(message: ServerMessage, fleet: &Fleet, feed: &Feed) -> Result<Option<ClientMessage>, Parting> {
    let reply = match message {
        ServerMessage::Bye(farewell) => return Err(farewell.into()),
        ServerMessage::Answer { number, answer } => {
            feed.answered(number, answer);
            return Ok(None);
        }
        message => fleet.receive(message, browser::now_ms()),
    };
    redraw(fleet);
    Ok(reply)
}

/// Lets the views see the change in the next frame; several messages share one, a hidden page has none.
fn redraw(fleet: &Fleet) {
    if fleet.ask_for_frame() {
        let fleet = fleet.clone();
        browser::on_next_frame(move || {
            if let Some(waits_ms) = fleet.frame(browser::now_ms()) {
                Timeout::new(waits_ms, move || redraw(&fleet)).forget();
            }
        });
    }
}

async fn say(socket: &mut WebSocket, message: &ClientMessage) -> Result<(), Parting> {
    // Ready once it is open, or never will be: a browser complains aloud when a closed one is written to.
    poll_fn(|task| socket.poll_ready_unpin(task)).await.map_err(|_| Parting::Broken)?;
    if !matches!(socket.state(), State::Open) {
        return Err(Parting::Broken);
    }
    socket.send(Message::Bytes(FORM.encode(message))).await.map_err(|_| Parting::Broken)
}

async fn answer(socket: &mut WebSocket) -> Result<ServerMessage, Parting> {
    let patience = TimeoutFuture::new(ANSWER_MS);
    match select(socket.next(), patience).await {
        Either::Left((Some(Ok(message)), _)) => match read(Some(message))? {
            ServerMessage::Bye(farewell) => Err(farewell.into()),
            message => Ok(message),
        },
        Either::Left(_) => Err(Parting::Broken),
        Either::Right(_) => Err(Parting::Silent),
    }
}

fn read(message: Option<Message>) -> Result<ServerMessage, Parting> {
    let bytes = match message.ok_or(Parting::Broken)? {
        Message::Bytes(bytes) => bytes,
        Message::Text(text) => text.into_bytes(),
    };
    FORM.decode(&bytes).map_err(|_| Parting::Garbled)
}

fn address() -> String {
    let scheme = if browser::is_secure() { "wss" } else { "ws" };
    format!("{scheme}://{}{}/live", browser::authority(), browser::base())
}

fn fresh_nonce() -> Result<Nonce, Parting> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|_| Parting::NoRandom)?;
    Ok(Nonce(bytes))
}
