//! A real nats-server on a loopback port, and a plain client that counts and sends messages.

use crate::process::Process;
use crate::{TIMEOUT, skip};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running server, with JetStream unless stated; it is killed when dropped.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    dir: TempDir,
    arguments: Vec<String>,
    process: Process,
    port: u16,
}

impl NatsServer {
    /// Starts one on a free port, with these further arguments; `None` if it is not installed.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(arguments: &[&str]) -> Result<Option<Self>> {
        Self::start_with(&[&["-js"], arguments].concat())
    }

    /// Starts one without JetStream on a free port; `None` if it is not installed.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_without_jetstream() -> Result<Option<Self>> {
        Self::start_with(&[])
    }

    /// Starts three that form a cluster, with JetStream on each; `None` if they are not installed.
    ///
    /// # Errors
    /// If one does not start.
    pub fn cluster() -> Result<Option<Vec<Self>>> {
        // Each server must know the addresses of the others before they start: those of loopback with the pid of this test
        // are its own.
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = |number: u8| format!("nats://127.{}.{low}.{number}:6222", 1 + high % 254);
        let routes = [1, 2, 3].map(address).join(",");
        let server = |number: u8| {
            let (name, listen) = (format!("server-{number}"), address(number));
            let cluster = ["--server_name", &name, "--cluster_name", "test", "--cluster", &listen];
            Self::start(&[&cluster, &["--routes", routes.as_str()][..]].concat())
        };
        [1, 2, 3].into_iter().map(server).collect()
    }

    /// Its name in a cluster.
    pub fn name(&self) -> &str {
        let mut named = self.arguments.iter().skip_while(|argument| *argument != "--server_name");
        named.nth(1).map_or("", String::as_str)
    }

    fn start_with(arguments: &[&str]) -> Result<Option<Self>> {
        let Some([program]) = skip::programs(["nats-server"]) else { return Ok(None) };
        let dir = tempfile::tempdir().context("make a folder for nats-server")?;
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = spawn(&program, &dir, "-1", &arguments)?;
        let port = port(&dir, process.pid())?;
        Ok(Some(Self { program, dir, arguments, process, port }))
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.authority())
    }

    /// Its address, as `host:port`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it.
    ///
    /// # Errors
    /// If it has ended before.
    pub fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait().map(drop)
    }

    /// Starts it again, on the same port and with the same storage.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.process = spawn(&self.program, &self.dir, &self.port.to_string(), &self.arguments)?;
        port(&self.dir, self.process.pid()).map(drop)
    }

    /// Deletes what it has stored, while it does not run.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub fn forget(&self) -> Result<()> {
        Ok(fs::remove_dir_all(self.dir.path().join("jetstream"))?)
    }

    /// Connects a plain client.
    ///
    /// # Errors
    /// If the server does not accept it.
    pub fn client(&self) -> Result<NatsClient> {
        NatsClient::connect(self.port)
    }
}

fn spawn(program: &PathBuf, dir: &TempDir, port: &str, arguments: &[String]) -> Result<Process> {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", port, "-sd"]).arg(dir.path().join("jetstream"));
    command.arg("--ports_file_dir").arg(dir.path()).args(arguments);
    Process::start(&mut command)
}

/// Waits for the file in which a server states its port.
fn port(dir: &TempDir, pid: u32) -> Result<u16> {
    let start = Instant::now();
    let file = dir.path().join(format!("nats-server_{pid}.ports"));
    loop {
        let ports: Option<Value> = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let url = ports.as_ref().and_then(|ports| ports["nats"][0].as_str());
        if let Some(port) = url.and_then(|url| url.rsplit(':').next()?.parse().ok())
            && TcpStream::connect(("127.0.0.1", port)).is_ok()
        {
            return Ok(port);
        }
        ensure!(start.elapsed() < TIMEOUT, "nats-server states no port");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Subjects and payloads that have arrived.
type Messages = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A client that speaks the text protocol of NATS.
#[derive(Debug)]
pub struct NatsClient {
    stream: TcpStream,
    messages: Messages,
}

impl NatsClient {
    fn connect(port: u16) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"CONNECT {\"verbose\":false,\"headers\":true}\r\n")?;
        let messages = Messages::default();
        let (found, reader) = (Arc::clone(&messages), stream.try_clone()?);
        let answers = stream.try_clone()?;
        std::thread::spawn(move || drop(receive(reader, answers, &found)));
        Ok(Self { stream, messages })
    }

    /// Subscribes to a subject.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn subscribe(&mut self, subject: &str) -> Result<()> {
        Ok(self.stream.write_all(format!("SUB {subject} 1\r\n").as_bytes())?)
    }

    /// Publishes a message.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn publish(&mut self, subject: &str, headers: &[(&str, &str)], payload: &[u8]) -> Result<()> {
        let mut head = "NATS/1.0\r\n".to_owned();
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str("\r\n");
        let line = format!("HPUB {subject} {} {}\r\n", head.len(), head.len() + payload.len());
        Ok(self.stream.write_all(&[line.as_bytes(), head.as_bytes(), payload, b"\r\n"].concat())?)
    }

    /// Publishes a request, which is answered to the subject `reply`.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn request(&mut self, subject: &str, reply: &str, payload: &[u8]) -> Result<()> {
        let line = format!("PUB {subject} {reply} {}\r\n", payload.len());
        Ok(self.stream.write_all(&[line.as_bytes(), payload, b"\r\n"].concat())?)
    }

    /// Number of messages so far whose subject ends thus.
    pub fn count(&self, suffix: &str) -> usize {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.iter().filter(|(subject, _)| subject.ends_with(suffix)).count()
    }

    /// The payload of the newest message of a subject.
    pub fn newest(&self, subject: &str) -> Option<Vec<u8>> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.iter().rfind(|(known, _)| known == subject).map(|(_, payload)| payload.clone())
    }

    /// Numbers of messages and of payload bytes so far.
    pub fn received(&self) -> (usize, usize) {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        (messages.len(), messages.iter().map(|(_, payload)| payload.len()).sum())
    }

    /// Waits until `count` messages with such a subject have arrived.
    ///
    /// # Errors
    /// If they do not arrive in time.
    pub fn wait_for(&self, suffix: &str, count: usize) -> Result<()> {
        let start = Instant::now();
        while self.count(suffix) < count {
            ensure!(start.elapsed() < TIMEOUT, "{} of {count} messages to {suffix}", self.count(suffix));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Receives messages until the connection ends, and answers pings.
fn receive(stream: TcpStream, mut answers: TcpStream, found: &Mutex<Vec<(String, Vec<u8>)>>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PING"] => answers.write_all(b"PONG\r\n")?,
            ["MSG" | "HMSG", subject, .., bytes] => {
                let mut payload = vec![0; bytes.parse::<usize>()? + 2];
                reader.read_exact(&mut payload)?;
                let subject = (*subject).to_owned();
                found.lock().unwrap_or_else(PoisonError::into_inner).push((subject, payload));
            }
            _ => {}
        }
        line.clear();
    }
    Ok(())
}
