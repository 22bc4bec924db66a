//! Copies bytes between a remote command and a `NodeStream` until either side ends.

use super::failure;
use super::link::Link;
use crate::deploy::{self, Host, RemoteCommand};
use crate::{LaunchError, NodeStream, PIPE_DEPTH, StreamEnd, Tail};
use bytes::Bytes;
use nodeglass_protocol::{NodeName, Text};
use ssh2::{Channel, DisconnectCode};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// Read at once; a sample of an 8-GPU node is about 3 KiB.
const CHUNK: usize = 8 * 1024;
/// Maximum pieces of stderr per read, so that a flood of it cannot delay stdout.
const STDERR_PIECES: usize = 8;
/// Time limit for the exit status after the end of the output.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for the disconnect message.
const FAREWELL_LIMIT: Duration = Duration::from_millis(300);

/// A running remote command, with its stderr.
pub struct Remote {
    pub(super) channel: Channel,
    pub(super) errors: Tail,
    // Freed last, after its channel.
    pub(super) link: Link,
}

/// Reads available stdout (`None` at its end), and stderr on the way. Stdout comes last: reading stderr
/// takes packets for both off the socket, and one for stdout must not be left while we wait for the next.
fn read_available(channel: &mut Channel, errors: &mut Tail, link: &Link) -> io::Result<Option<Bytes>> {
    let mut buffer = [0; CHUNK];
    for _ in 0..STDERR_PIECES {
        match channel.stderr().read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                link.add_allowance(n);
                errors.push(&buffer[..n]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    match channel.read(&mut buffer)? {
        0 if channel.eof() => Ok(None),
        0 => Err(ErrorKind::WouldBlock.into()),
        n => {
            link.add_allowance(n);
            Ok(Some(Bytes::copy_from_slice(&buffer[..n])))
        }
    }
}

impl Host for Link {
    type Command = Remote;

    fn silent(&self, node: &NodeName) -> LaunchError {
        deploy::login_script_hangs(node)
    }

    async fn start(self, command: &str, _: Instant) -> Result<Remote, LaunchError> {
        Remote::start(self, command).await.map_err(|error| failure::broken("starting the probe", &error))
    }
}

impl RemoteCommand for Remote {
    type Host = Link;

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Self { channel, errors, link } = self;
        link.drive(|_| read_available(channel, errors, link)).await
    }

    async fn write_until_end(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        // A command that exited reads nothing more, and the window stays closed; waiting for it would never
        // end. With the window closed no packet is left half written, so that reading in between is safe.
        while !bytes.is_empty() {
            let Self { channel, errors, link } = self;
            let write = |_: &ssh2::Session| {
                let blocked = match channel.write(bytes) {
                    Ok(0) => ErrorKind::WouldBlock.into(),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => error,
                    outcome => return outcome.map(Some),
                };
                if channel.write_window().remaining > 0 {
                    return Err(blocked);
                }
                // Reads everything available: nothing would wake us for an end of stream that follows it.
                while read_available(channel, errors, link)?.is_some() {}
                Ok(None)
            };
            match link.drive(write).await? {
                Some(written) => bytes = &bytes[written..],
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    async fn end_input(&mut self) -> io::Result<()> {
        let channel = &mut self.channel;
        Ok(self.link.drive(|_| channel.send_eof()).await?)
    }

    async fn finish(self) -> Result<(StreamEnd, Link), LaunchError> {
        Ok(self.exit().await)
    }

    fn into_stream(self, received: Vec<Bytes>) -> NodeStream {
        let (stdout, stdout_out) = mpsc::channel(PIPE_DEPTH);
        let (stdin_in, stdin) = mpsc::channel(PIPE_DEPTH);
        let (ended, end) = oneshot::channel();
        let pump = Pump { remote: self, stdout, stdin, stdin_open: true };
        tokio::spawn(async move {
            let _ = ended.send(pump.run(received).await);
        });
        NodeStream { stdout: stdout_out, stdin: stdin_in, end }
    }
}

impl Remote {
    /// Starts `command`.
    async fn start(link: Link, command: &str) -> Result<Self, ssh2::Error> {
        let channel = link.exec(command).await?;
        Ok(Self { channel, errors: Tail::default(), link })
    }

    /// Writes all of `bytes` to the command's stdin.
    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let channel = &mut self.channel;
            // With its window used up libssh2 returns 0, not "again": the host must read first.
            let write = |_: &ssh2::Session| match channel.write(bytes) {
                Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                outcome => outcome,
            };
            let written: usize = self.link.drive(write).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Waits for the exit status, which follows the end of the output, and returns the link.
    async fn exit(mut self) -> (StreamEnd, Link) {
        let channel = &mut self.channel;
        let closing = async {
            self.link.drive(|_| channel.wait_close()).await?;
            // Closed here rather than on drop: sshd counts the session (`MaxSessions`) until then.
            self.link.drive(|_| channel.close()).await
        };
        let _ = timeout(STATUS_LIMIT, closing).await;
        let signal = self.channel.exit_signal().ok().and_then(|signal| signal.exit_signal);
        // libssh2 returns 0 if there was no status.
        let exit = self.channel.exit_status().ok().filter(|_| signal.is_none());
        let signal = signal.map(|signal| Text::from(format!("signal {signal}")));
        (StreamEnd { exit, signal, stderr: self.errors.text(), broken: None }, self.link)
    }

    /// Disconnects properly, so that the host's log shows no broken connection.
    async fn farewell(&mut self) -> io::Result<()> {
        self.end_input().await?;
        let leave = |s: &ssh2::Session| {
            s.disconnect(Some(DisconnectCode::ByApplication), "nodeglass has seen enough", None)
        };
        Ok(self.link.drive(leave).await?)
    }
}

/// Copies bytes in both directions.
struct Pump {
    remote: Remote,
    stdout: mpsc::Sender<Bytes>,
    stdin: mpsc::Receiver<Bytes>,
    stdin_open: bool,
}

/// Reason for the end of copying.
enum Stop {
    /// The command closed its output.
    OutputClosed,
    /// The stream was dropped.
    StreamDropped,
}

impl Pump {
    async fn run(mut self, received: Vec<Bytes>) -> StreamEnd {
        match self.carry(received).await {
            Ok(Stop::OutputClosed) => self.remote.exit().await.0,
            Ok(Stop::StreamDropped) => {
                let _ = timeout(FAREWELL_LIMIT, self.remote.farewell()).await;
                StreamEnd::default()
            }
            Err(error) => {
                let broken = Some(Text::from(format!("the connection broke: {error}")));
                StreamEnd { stderr: self.remote.errors.text(), broken, ..StreamEnd::default() }
            }
        }
    }

    async fn carry(&mut self, received: Vec<Bytes>) -> io::Result<Stop> {
        for chunk in received {
            if self.stdout.send(chunk).await.is_err() {
                return Ok(Stop::StreamDropped);
            }
        }
        loop {
            tokio::select! {
                // The stream was dropped.
                () = self.stdout.closed() => return Ok(Stop::StreamDropped),
                // A line for the probe, or the end of its stdin.
                line = self.stdin.recv(), if self.stdin_open => {
                    if !self.pass_on(line).await? {
                        return Ok(Stop::StreamDropped);
                    }
                }
                // Output, or its end.
                chunk = self.remote.next() => match chunk? {
                    None => return Ok(Stop::OutputClosed),
                    // Waits for the reader: the channel's window then holds the host back.
                    Some(chunk) => if self.stdout.send(chunk).await.is_err() {
                        return Ok(Stop::StreamDropped);
                    },
                },
            }
        }
    }

    /// Writes a piece of stdin, or closes it. No other libssh2 call may run meanwhile: an incomplete
    /// write must be repeated unchanged. Returns `false` if the stream was dropped.
    async fn pass_on(&mut self, line: Option<Bytes>) -> io::Result<bool> {
        let Some(line) = line else {
            self.stdin_open = false;
            self.remote.end_input().await?;
            return Ok(true);
        };
        tokio::select! {
            () = self.stdout.closed() => Ok(false),
            written = self.remote.write(&line) => written.map(|()| true),
        }
    }
}
