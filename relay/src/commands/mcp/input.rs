//! Lines of a client, and the responses to invalid ones.
//!
//! The library drops a line that is too long or not JSON without a response, for which the client would wait, and responds to
//! an invalid request without the id that JSON-RPC demands.

use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use std::io;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;

/// Maximum length of a message, in bytes. Requests are short: the longest text in them is the text of a note.
pub(super) const MAX_LINE: usize = 1 << 20;
/// Capacity of the channel of responses to invalid messages.
pub(super) const REFUSALS: usize = 16;
/// Length of the end of a message that is too long that is kept, in bytes: some clients write its id there.
const TAIL: usize = 256;

/// Passes messages on until the input ends, or nobody reads them any more; invalid ones are responded to.
pub(super) async fn pass_on(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    refusals: mpsc::Sender<String>,
) {
    let mut input = BufReader::new(input);
    let mut line = Line::default();
    loop {
        let Ok(available) = input.fill_buf().await else { return };
        if available.is_empty() {
            return;
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |at| at + 1);
        line.add(&available[..taken]);
        input.consume(taken);
        if end.is_none() {
            continue;
        }
        let is_sent = match std::mem::take(&mut line).message() {
            Ok(message) => output.write_all(&message).await.is_ok(),
            Err(refusal) => refusals.send(refusal).await.is_ok(),
        };
        if !is_sent {
            return;
        }
    }
}

/// Writes the library's messages and the responses to invalid ones, each as a line, until the former end.
pub(super) async fn write(
    messages: impl AsyncRead + Unpin,
    mut refusals: mpsc::Receiver<String>,
    mut output: impl AsyncWrite + Unpin,
) {
    let mut messages = BufReader::new(messages).lines();
    loop {
        let line = tokio::select! {
            message = messages.next_line() => match message {
                Ok(Some(message)) => message,
                Ok(None) | Err(_) => break,
            },
            Some(refusal) = refusals.recv() => refusal,
        };
        if write_line(&mut output, line).await.is_err() {
            return;
        }
    }
    // What was refused just before the end.
    while let Ok(refusal) = refusals.try_recv() {
        if write_line(&mut output, refusal).await.is_err() {
            return;
        }
    }
}

async fn write_line(output: &mut (impl AsyncWrite + Unpin), mut line: String) -> io::Result<()> {
    line.push('\n');
    output.write_all(line.as_bytes()).await?;
    output.flush().await
}

/// The response to an invalid message.
fn refusal(id: Option<&Value>, code: ErrorCode, why: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.0, "message": why } }).to_string()
}

/// Checks what JSON-RPC demands of a message, and MCP of its parameters; the error is the response.
fn check(bytes: &[u8]) -> Result<(), String> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(());
    }
    let message: Value = serde_json::from_slice(bytes).map_err(|error| {
        let why = format!("a line is not JSON ({error}); each message is one line of JSON");
        refusal(None, ErrorCode::PARSE_ERROR, &why)
    })?;
    let id = message.get("id").filter(|id| is_id(id));
    let invalid = |why| Err(refusal(id, ErrorCode::INVALID_REQUEST, why));
    match &message {
        Value::Array(_) => {
            return invalid("batches are not supported; send each message on a line of its own");
        }
        Value::Object(_) => {}
        _ => return invalid("a message is an object"),
    }
    if message["jsonrpc"] != "2.0" {
        return invalid("a message has \"jsonrpc\": \"2.0\"");
    }
    if message.get("id").is_some() && id.is_none() {
        return invalid("an id is an integer or a text");
    }
    match message.get("method") {
        Some(Value::String(_)) => {}
        // The response to a request of the server.
        None if message.get("result").or(message.get("error")).is_some() => return Ok(()),
        _ => return invalid("a request has a method"),
    }
    let are_valid = message.get("params").is_none_or(Value::is_object);
    // A notification gets no response.
    match id.filter(|_| !are_valid) {
        Some(_) => Err(refusal(id, ErrorCode::INVALID_PARAMS, "parameters are an object")),
        None => Ok(()),
    }
}

/// A line that is being read.
#[derive(Default)]
struct Line {
    /// At most [`MAX_LINE`] bytes of its beginning.
    start: Vec<u8>,
    /// The last bytes, once it is longer.
    tail: Vec<u8>,
}

impl Line {
    fn add(&mut self, bytes: &[u8]) {
        let (start, rest) = bytes.split_at(bytes.len().min(MAX_LINE - self.start.len()));
        self.start.extend_from_slice(start);
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    /// The message; or the response, if it is none.
    fn message(self) -> Result<Vec<u8>, String> {
        if self.tail.is_empty() {
            return check(&self.start).map(|()| self.start);
        }
        let beginning = &self.start[..TAIL.min(self.start.len())];
        let id = id_at_start(beginning).or_else(|| id_at_end(&self.tail));
        let why = format!("the message is longer than {} KiB, and was not read", MAX_LINE / 1024);
        Err(refusal(id.as_ref(), ErrorCode::INVALID_REQUEST, &why))
    }
}

/// The id of a message that begins with it, before its parameters.
fn id_at_start(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    let head = text.split("\"params\"").next()?;
    id(head.split_once("\"id\"")?.1)
}

/// The id of a message that ends with it.
fn id_at_end(bytes: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(bytes);
    // In the parameters, more than one `}` would follow.
    let last = text.rsplit_once("\"id\"")?.1;
    id(last).filter(|_| last.matches('}').count() == 1)
}

/// Returns whether it is an id by MCP, which excludes fractions.
fn is_id(value: &Value) -> bool {
    value.is_i64() || value.is_string()
}

/// The integer or text that follows the name of a member.
fn id(rest: &str) -> Option<Value> {
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let id = serde_json::Deserializer::from_str(value).into_iter::<Value>().next()?.ok()?;
    is_id(&id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is passed on of an input, and the responses.
    async fn passed(input: &str) -> (String, Vec<Value>) {
        let (near, mut far) = tokio::io::duplex(4 * MAX_LINE);
        let (refusals, mut refused) = mpsc::channel(64);
        pass_on(input.as_bytes(), near, refusals).await;
        let mut passed = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut far, &mut passed).await.unwrap();
        let mut responses = Vec::new();
        while let Some(refusal) = refused.recv().await {
            responses.push(serde_json::from_str(&refusal).unwrap());
        }
        (passed, responses)
    }

    #[tokio::test]
    async fn messages_are_passed_on_as_they_are() {
        let valid = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{}}\n\n\
                     {\"jsonrpc\":\"2.0\",\"method\":\"b\",\"params\":[1]}\n\
                     {\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}\n";
        assert_eq!(passed(valid).await, (valid.to_owned(), Vec::new()));
    }

    #[tokio::test]
    async fn what_is_no_message_is_responded_to_with_its_id_or_null() {
        for (line, id, code) in [
            ("no JSON", Value::Null, -32700),
            ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"", Value::Null, -32700),
            ("[]", Value::Null, -32600),
            ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]", Value::Null, -32600),
            ("7", Value::Null, -32600),
            ("{\"id\":1,\"method\":\"a\"}", json!(1), -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":\"x\"}", json!("x"), -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":7}", json!(2), -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}", Value::Null, -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":6.5,\"method\":\"a\"}", Value::Null, -32600),
            ("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"a\",\"params\":[1]}", json!(3), -32602),
        ] {
            let (passed, responses) = passed(&format!("{line}\n")).await;
            let [response] = responses.as_slice() else { panic!("{line}: {responses:?}") };
            assert_eq!((passed.as_str(), &response["error"]["code"]), ("", &json!(code)), "{line}");
            assert!(response.get("id") == Some(&id) && response["jsonrpc"] == "2.0", "{line}: {response}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_by_its_id() {
        let text = "x".repeat(2 * MAX_LINE);
        let next = "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"next\"}\n";
        for (line, id) in [
            (format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"params\":{{\"id\":3,\"t\":\"{text}\"}}}}"), json!(7)),
            (format!("{{\"params\":{{\"t\":\"{text}\"}},\"jsonrpc\":\"2.0\", \"id\": \"a\"}}"), json!("a")),
            (format!("{{\"params\":{{\"t\":\"{text}\",\"id\":3}}}}"), Value::Null),
        ] {
            let (passed, responses) = passed(&format!("{line}\n{next}")).await;
            assert_eq!((passed.as_str(), &responses[0]["id"]), (next, &id));
            assert!(responses[0]["error"]["message"].as_str().unwrap().contains("longer than 1024 KiB"));
        }
    }

    #[tokio::test]
    async fn responses_are_written_as_whole_lines_also_after_the_last_message() {
        let (refusals, refused) = mpsc::channel(4);
        for refusal in ["{\"a\":1}", "{\"a\":2}"] {
            refusals.send(refusal.to_owned()).await.unwrap();
        }
        let mut written = Vec::new();
        write("{\"b\":1}\n".as_bytes(), refused, &mut written).await;
        let mut lines: Vec<&str> = std::str::from_utf8(&written).unwrap().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["{\"a\":1}", "{\"a\":2}", "{\"b\":1}"]);
    }
}
