//! Upgrades a request to a WebSocket whose messages are sent in fragments, so that a large one is never
//! buffered whole.

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

/// Read buffer size: clients send little, and there may be hundreds.
const READ_BUFFER: usize = 4 * 1024;
/// Write buffer size; the capacity of the largest fragment stays allocated per connection.
const FRAGMENT_BYTES: usize = 16 * 1024;

/// A request to upgrade to a WebSocket in one of the two forms.
#[derive(Debug)]
pub(crate) struct Upgrade {
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
        let mut response = create_response(&request).map_err(|_| {
            (StatusCode::BAD_REQUEST, "this endpoint requires a WebSocket upgrade (RFC 6455)\n")
        })?;
        let form =
            [Form::Binary, Form::Json].into_iter().find(|form| offers(&parts.headers, *form)).ok_or((
                StatusCode::BAD_REQUEST,
                "request the WebSocket subprotocol nodeglass.v1 or nodeglass.v1.json\n",
            ))?;
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(form.subprotocol()));
        let upgraded = parts.extensions.remove();
        let upgraded = upgraded.ok_or((StatusCode::BAD_REQUEST, "this connection cannot be upgraded\n"))?;
        Ok(Self { form, response, upgraded })
    }
}

/// Returns whether a client offers a form as subprotocol.
fn offers(headers: &HeaderMap, form: Form) -> bool {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|name| name.trim() == form.subprotocol())
}

impl Upgrade {
    /// Sends the upgrade response and runs `serve` once the upgrade completes.
    pub(super) fn on_upgrade<F>(self, serve: impl FnOnce(Socket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { form, response, upgraded } = self;
        tokio::spawn(async move {
            // The client closed the connection first.
            let Ok(upgraded) = upgraded.await else { return };
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER)
                .write_buffer_size(FRAGMENT_BYTES)
                .max_write_buffer_size(8 * FRAGMENT_BYTES)
                .max_message_size(Some(MAX_CLIENT_MESSAGE))
                .max_frame_size(Some(MAX_CLIENT_MESSAGE));
            let io = TokioIo::new(upgraded);
            let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            serve(Socket { stream, form }).await;
        });
        response.map(|()| axum::body::Body::empty()).into_response()
    }
}

/// A WebSocket in the form that its subprotocol selected.
pub(super) struct Socket {
    stream: WebSocketStream<TokioIo<Upgraded>>,
    form: Form,
}

impl Socket {
    /// The form that its subprotocol selected.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Receives the next message; `None` once closed.
    pub(super) async fn recv(&mut self) -> Option<Result<Message, Error>> {
        self.stream.next().await
    }

    /// Splits bytes into the fragments of one message.
    pub(super) fn fragments(&self, bytes: Bytes) -> impl Iterator<Item = Message> + use<> {
        fragments(self.form, bytes)
    }

    /// Queues a message or fragment.
    pub(super) async fn feed(&mut self, message: Message) -> Result<(), Error> {
        self.stream.feed(message).await
    }

    /// Sends a message and flushes.
    pub(super) async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.stream.send(message).await
    }

    /// Flushes queued messages.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.stream.flush().await
    }
}

fn fragments(form: Form, bytes: Bytes) -> impl Iterator<Item = Message> {
    let mut data = match form {
        Form::Binary => Data::Binary,
        Form::Json => Data::Text,
    };
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let mut fragment = rest.take()?;
        if fragment.len() > FRAGMENT_BYTES {
            rest = Some(fragment.split_off(FRAGMENT_BYTES));
        }
        let opcode = OpCode::Data(std::mem::replace(&mut data, Data::Continue));
        Some(Message::Frame(Frame::message(fragment, opcode, rest.is_none())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments_of(form: Form, bytes: usize) -> Vec<(usize, OpCode, bool)> {
        let describe = |message| {
            let Message::Frame(frame) = message else { panic!("{message:?} is no fragment") };
            (frame.payload().len(), frame.header().opcode, frame.header().is_final)
        };
        fragments(form, Bytes::from(vec![b'x'; bytes])).map(describe).collect()
    }

    #[test]
    fn a_large_message_is_sent_in_fragments_with_the_opcode_first() {
        let more = OpCode::Data(Data::Continue);
        let (binary, text) = (OpCode::Data(Data::Binary), OpCode::Data(Data::Text));
        assert_eq!(fragments_of(Form::Binary, 0), [(0, binary, true)]);
        assert_eq!(fragments_of(Form::Json, FRAGMENT_BYTES), [(FRAGMENT_BYTES, text, true)]);
        assert_eq!(
            fragments_of(Form::Json, 2 * FRAGMENT_BYTES + 1),
            [(FRAGMENT_BYTES, text, false), (FRAGMENT_BYTES, more, false), (1, more, true)]
        );
    }

    #[test]
    fn the_binary_form_is_preferred_however_it_is_offered() {
        for lists in [&["nodeglass.v1.json, nodeglass.v1"][..], &["chat", "nodeglass.v1"], &["nodeglass.v1"]]
        {
            let headers: HeaderMap =
                lists.iter().map(|list| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(list))).collect();
            assert!(offers(&headers, Form::Binary), "{lists:?}");
        }
        assert!(!offers(&HeaderMap::new(), Form::Binary));
    }
}
