//! Lines of a client. A line that is too long is replaced by a request that is refused.
//!
//! The library would drop it without a response, for which the client would wait.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

/// Maximum length of a message, in bytes. Requests are short: the longest text in them is the text of a note.
pub(super) const MAX_LINE: usize = 1 << 20;
/// The method of the request that replaces a message that is too long.
pub(super) const TOO_LONG: &str = "nodeglass/message_too_long";
/// Length of the end of such a message that is kept, in bytes: some clients write its id there.
const TAIL: usize = 256;

/// Passes lines on until the input ends, or nobody reads them any more.
pub(super) async fn pass_on(input: impl AsyncRead + Unpin, mut output: impl AsyncWrite + Unpin) {
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
        if end.is_some() && output.write_all(&std::mem::take(&mut line).passed()).await.is_err() {
            return;
        }
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

    /// The line, or what replaces it.
    fn passed(self) -> Vec<u8> {
        if self.tail.is_empty() {
            return self.start;
        }
        let beginning = &self.start[..TAIL.min(self.start.len())];
        let replacement = match id_at_start(beginning).or_else(|| id_at_end(&self.tail)) {
            Some(id) => serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": TOO_LONG }),
            // The library responds to an invalid message with an error without an id.
            None => serde_json::json!({ "jsonrpc": "2.0" }),
        };
        format!("{replacement}\n").into_bytes()
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

/// The number or text that follows the name of a member.
fn id(rest: &str) -> Option<Value> {
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let id = serde_json::Deserializer::from_str(value).into_iter::<Value>().next()?.ok()?;
    (id.is_number() || id.is_string()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(input: &str) -> String {
        let (near, far) = tokio::io::duplex(4 * MAX_LINE);
        pass_on(input.as_bytes(), near).await;
        let mut lines = BufReader::new(far).lines();
        let mut out = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            out += &format!("{line}\n");
        }
        out
    }

    #[tokio::test]
    async fn short_lines_are_passed_on_as_they_are() {
        assert_eq!(passed("{\"a\":1}\n\nno JSON\n").await, "{\"a\":1}\n\nno JSON\n");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_becomes_a_request_with_its_id() {
        let text = "x".repeat(2 * MAX_LINE);
        for (line, id) in [
            (format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"params\":{{\"id\":3,\"t\":\"{text}\"}}}}"), "7"),
            (format!("{{\"params\":{{\"t\":\"{text}\"}},\"jsonrpc\":\"2.0\", \"id\": \"a\"}}"), "\"a\""),
        ] {
            let expected = format!("{{\"id\":{id},\"jsonrpc\":\"2.0\",\"method\":\"{TOO_LONG}\"}}\nnext\n");
            assert_eq!(passed(&format!("{line}\nnext\n")).await, expected);
        }
        let without = format!("{{\"params\":{{\"t\":\"{text}\",\"id\":3}}}}\n");
        assert_eq!(passed(&without).await, "{\"jsonrpc\":\"2.0\"}\n");
    }
}
