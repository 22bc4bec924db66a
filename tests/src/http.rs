//! Sends HTTP requests byte by byte, and reads responses to the end.

use crate::TIMEOUT;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status; 0 if it is not HTTP.
    pub status: u16,
    /// Its head, as it came.
    pub head: String,
    /// Its body.
    pub body: String,
}

impl Reply {
    /// Parses a response.
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
        Self { status: status.unwrap_or(0), head: head.to_owned(), body: body.to_owned() }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Requests a path of a local server with these headers, and `Host` unless given.
///
/// # Errors
/// If the connection breaks before a response.
pub fn get(authority: &str, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
    send_raw(authority, request(authority, path, headers).as_bytes())
}

/// The text of a request.
pub(crate) fn request(authority: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {authority}\r\n");
    }
    // HTTP/1.0, so that no server uses chunked encoding.
    format!("GET {path} HTTP/1.0\r\n{head}\r\n")
}

/// Sends exactly these bytes and reads until the server closes.
///
/// # Errors
/// If the connection breaks before a response.
pub fn send_raw(authority: &str, bytes: &[u8]) -> Result<Reply> {
    let mut stream = TcpStream::connect(authority).with_context(|| format!("connect to {authority}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // A server may have responded and closed before reading everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if answer.is_empty() => return Err(error).context("read the answer"),
        _ => {}
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(Reply::of(&answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_headers_and_a_body() {
        let reply = Reply::of(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\n\r\nlater");
        assert_eq!(
            (reply.status, reply.header("retry-after"), reply.body.as_str()),
            (503, Some("10"), "later")
        );
        assert_eq!(Reply::of(b"\x15\x03\x03").status, 0);
    }
}
