//! A request becomes a WebSocket whose messages leave in fragments, so that a large one never lies in its buffer as a whole.

use axum::extract::FromRequestParts;
use axum::http::header::SEC_WEBSOCKET_PROTOCOL;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::MAX_CLIENT_MESSAGE;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::handshake::server::create_response;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

/// Read in pieces of this size; a page says little, and there may be hundreds of them.
const READ_BUFFER: usize = 4 * 1024;
/// Written in pieces of this size; the room that the largest one took stays with its connection.
const FRAGMENT: usize = 16 * 1024;

/// A request to become a WebSocket of one of the two forms.
#[derive(Debug)]
pub(super) struct Upgrade {
    form: Form,
    response: Response<()>,
    upgraded: OnUpgrade,
}

impl<S: Sync> FromRequestParts<S> for Upgrade {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let mut request = Request::new(());
        *request.method_mut() = parts.method.clone();
        *request.version_mut() = parts.version;
        request.headers_mut().clone_from(&parts.headers);
        let mut response = create_response(&request)
            .map_err(|_| (StatusCode::BAD_REQUEST, "this address speaks WebSocket (RFC 6455)\n"))?;
        let form =
            [Form::Binary, Form::Json].into_iter().find(|form| offers(&parts.headers, *form)).ok_or((
                StatusCode::BAD_REQUEST,
                "ask for the WebSocket subprotocol nodeglass.v1 or nodeglass.v1.json\n",
            ))?;
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(form.subprotocol()));
        let upgraded = parts.extensions.remove();
        let upgraded = upgraded.ok_or((StatusCode::BAD_REQUEST, "this connection cannot be upgraded\n"))?;
        Ok(Self { form, response, upgraded })
    }
}

/// Whether a client speaks a form.
fn offers(headers: &HeaderMap, form: Form) -> bool {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|name| name.trim() == form.subprotocol())
}

impl Upgrade {
    /// Answers that it will be one, and calls when it is.
    pub(super) fn then<F>(self, visit: impl FnOnce(Socket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { form, response, upgraded } = self;
        tokio::spawn(async move {
            // A client that is gone by now asks for nothing any more.
            let Ok(upgraded) = upgraded.await else { return };
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER)
                .write_buffer_size(FRAGMENT)
                .max_write_buffer_size(8 * FRAGMENT)
                .max_message_size(Some(MAX_CLIENT_MESSAGE))
                .max_frame_size(Some(MAX_CLIENT_MESSAGE));
            let io = TokioIo::new(upgraded);
            let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            visit(Socket { stream, form }).await;
        });
        response.map(|()| axum::body::Body::empty()).into_response()
    }
}

/// A WebSocket in the form its subprotocol chose.
pub(super) struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    form: Form,
}

impl Socket {
    /// The form that its subprotocol chose.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// What the other side says next; `None` when it says nothing any more.
    pub(super) async fn hear(&mut self) -> Option<Result<Message, Error>> {
        self.stream.next().await
    }

    /// The pieces in which these bytes leave as one message.
    pub(super) fn pieces(&self, bytes: Bytes) -> impl Iterator<Item = Message> + use<> {
        pieces(self.form, bytes)
    }

    /// Writes a message or a piece of one, sooner or later.
    pub(super) async fn feed(&mut self, message: Message) -> Result<(), Error> {
        self.stream.feed(message).await
    }

    /// Writes a message, and whatever waits, now.
    pub(super) async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.stream.send(message).await
    }

    /// Writes whatever waits.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.stream.flush().await
    }
}

fn pieces(form: Form, bytes: Bytes) -> impl Iterator<Item = Message> {
    let mut data = match form {
        Form::Binary => Data::Binary,
        Form::Json => Data::Text,
    };
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let mut piece = rest.take()?;
        if piece.len() > FRAGMENT {
            rest = Some(piece.split_off(FRAGMENT));
        }
        let opcode = OpCode::Data(std::mem::replace(&mut data, Data::Continue));
        Some(Message::Frame(Frame::message(piece, opcode, rest.is_none())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(form: Form, bytes: usize) -> Vec<(usize, OpCode, bool)> {
        let told = |message| {
            let Message::Frame(frame) = message else { panic!("{message:?} is no piece") };
            (frame.payload().len(), frame.header().opcode, frame.header().is_final)
        };
        pieces(form, Bytes::from(vec![b'x'; bytes])).map(told).collect()
    }

    #[test]
    fn a_large_message_leaves_in_fragments_of_which_the_first_says_what_it_is() {
        let more = OpCode::Data(Data::Continue);
        let (binary, text) = (OpCode::Data(Data::Binary), OpCode::Data(Data::Text));
        assert_eq!(taken_apart(Form::Binary, 0), [(0, binary, true)]);
        assert_eq!(taken_apart(Form::Json, FRAGMENT), [(FRAGMENT, text, true)]);
        assert_eq!(
            taken_apart(Form::Json, 2 * FRAGMENT + 1),
            [(FRAGMENT, text, false), (FRAGMENT, more, false), (1, more, true)]
        );
    }

    #[test]
    fn the_binary_form_is_chosen_when_both_are_offered_in_whatever_way() {
        for lists in [&["nodeglass.v1.json, nodeglass.v1"][..], &["chat", "nodeglass.v1"], &["nodeglass.v1"]]
        {
            let headers: HeaderMap =
                lists.iter().map(|list| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(list))).collect();
            assert!(offers(&headers, Form::Binary), "{lists:?}");
        }
        assert!(!offers(&HeaderMap::new(), Form::Binary));
    }
}
