//! The metadata service of Google Cloud, reduced to the list of the workers of a TPU pod.

use anyhow::Result;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// A running service; it responds until the test ends.
#[derive(Debug)]
pub struct MetadataService {
    address: String,
}

impl MetadataService {
    /// Starts one whose attribute `worker-network-endpoints` has this value.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(workers: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, workers) = (listener.local_addr()?.to_string(), workers.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that breaks off loses its response only.
                let _ = respond(&stream, &workers);
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        Ok(Self { address })
    }

    /// Its `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }
}

fn respond(mut stream: &TcpStream, workers: &str) -> std::io::Result<()> {
    let head: Vec<String> =
        BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let has = |text: &str| head.iter().any(|line| line.to_ascii_lowercase().contains(text));
    let (status, body) =
        match (has("/instance/attributes/worker-network-endpoints "), has("metadata-flavor: google")) {
            (true, true) => ("200 OK", workers),
            (false, true) => ("404 Not Found", ""),
            (_, false) => ("403 Forbidden", ""),
        };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nMetadata-Flavor: Google\r\nContent-Length: {length}\r\n\r\n{body}")
}
