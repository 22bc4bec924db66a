//! What a remote command prints becomes chunks of a `NodeStream`, what is sent becomes its stdin, until either side ends.

use super::link::Link;
use crate::launch::{NodeStream, PIPE_DEPTH, StreamEnd, Tail};
use bytes::Bytes;
use nodeglass_protocol::Text;
use ssh2::{Channel, DisconnectCode};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Read at once; a sample of an 8-GPU node is about 3 KiB.
const CHUNK: usize = 8 * 1024;
/// Pieces of stderr taken in one look, so that a flood of it cannot hold up the rest.
const STDERR_PIECES: usize = 8;
/// How long the exit status may come after the end of the output.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
/// How long the farewell may take; a peer that is gone gets none.
const FAREWELL_LIMIT: Duration = Duration::from_millis(300);

/// A command that runs on the other side, and what it said on stderr.
pub(super) struct Remote {
    pub(super) channel: Channel,
    pub(super) errors: Tail,
    // Freed last, after its channel.
    pub(super) link: Link,
}

/// Reads what is there of stdout (`None`: it has ended), and of stderr on the way. Stdout comes last: reading stderr
/// takes packets for both off the socket, and one for stdout must not be left lying while we wait for the next.
fn look(channel: &mut Channel, errors: &mut Tail, link: &Link) -> io::Result<Option<Bytes>> {
    let mut buffer = [0; CHUNK];
    for _ in 0..STDERR_PIECES {
        match channel.stderr().read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                link.heard(n);
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
            link.heard(n);
            Ok(Some(Bytes::copy_from_slice(&buffer[..n])))
        }
    }
}

impl Remote {
    /// Starts `command`.
    pub(super) async fn start(link: Link, command: &str) -> Result<Self, ssh2::Error> {
        let channel = link.exec(command).await?;
        Ok(Self { channel, errors: Tail::default(), link })
    }

    /// Waits for the next bytes of stdout; `None` at its end. Nothing is lost if it is dropped while it waits.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Self { channel, errors, link } = self;
        link.drive(|_| look(channel, errors, link)).await
    }

    /// Writes all of `bytes` to the command's stdin.
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let channel = &mut self.channel;
            // With its window used up libssh2 says 0, not "again": the host must read before it takes more.
            let write = |_: &ssh2::Session| match channel.write(bytes) {
                Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                outcome => outcome,
            };
            let written: usize = self.link.drive(write).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Writes `bytes` to the command's stdin, unless the command ends before it has read them all: then it says `false`.
    ///
    /// A command that ended takes nothing more, and the host's window for it stays closed; waiting for it would never
    /// end. With the window closed no packet is left half written, so that reading in between is safe.
    pub(super) async fn write_until_end(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
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
                // All that is there: nothing would wake us for the end that lies behind it.
                while look(channel, errors, link)?.is_some() {}
                Ok(None)
            };
            match link.drive(write).await? {
                Some(written) => bytes = &bytes[written..],
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Ends the command's stdin.
    pub(super) async fn end_input(&mut self) -> io::Result<()> {
        let channel = &mut self.channel;
        Ok(self.link.drive(|_| channel.send_eof()).await?)
    }

    /// Leaves politely, so that the host's log has no broken connection.
    async fn farewell(&mut self) -> io::Result<()> {
        self.end_input().await?;
        let leave = |s: &ssh2::Session| {
            s.disconnect(Some(DisconnectCode::ByApplication), "nodeglass has seen enough", None)
        };
        Ok(self.link.drive(leave).await?)
    }

    /// Waits for the exit status, which comes after the end of the output, and gives the link back.
    pub(super) async fn finish(mut self) -> (StreamEnd, Link) {
        let channel = &mut self.channel;
        let closing = async {
            self.link.drive(|_| channel.wait_close()).await?;
            // Said here and not left to `drop`: sshd counts the session (`MaxSessions`) until it hears this.
            self.link.drive(|_| channel.close()).await
        };
        let _ = timeout(STATUS_LIMIT, closing).await;
        let signal = self.channel.exit_signal().ok().and_then(|signal| signal.exit_signal);
        // libssh2 says 0 where no status came.
        let exit = self.channel.exit_status().ok().filter(|_| signal.is_none());
        let broken = signal.map(|signal| Text::from(format!("ended by signal {signal}")));
        (StreamEnd { exit, stderr: self.errors.text(), broken }, self.link)
    }

    /// Hands the command's pipes over to a task of their own; `heard` is what was read of stdout already.
    pub(super) fn into_stream(self, heard: Vec<Bytes>) -> NodeStream {
        let (stdout, stdout_out) = mpsc::channel(PIPE_DEPTH);
        let (stdin_in, stdin) = mpsc::channel(PIPE_DEPTH);
        let (ended, end) = oneshot::channel();
        let pump = Pump { remote: self, stdout, stdin, stdin_open: true };
        tokio::spawn(async move {
            let _ = ended.send(pump.run(heard).await);
        });
        NodeStream { stdout: stdout_out, stdin: stdin_in, end }
    }
}

/// Carries bytes both ways.
struct Pump {
    remote: Remote,
    stdout: mpsc::Sender<Bytes>,
    stdin: mpsc::Receiver<Bytes>,
    stdin_open: bool,
}

/// Why the pump stopped.
enum Stop {
    /// The command ended its output.
    Output,
    /// Nobody listens any more.
    Deserted,
}

impl Pump {
    async fn run(mut self, heard: Vec<Bytes>) -> StreamEnd {
        match self.carry(heard).await {
            Ok(Stop::Output) => self.remote.finish().await.0,
            Ok(Stop::Deserted) => {
                let _ = timeout(FAREWELL_LIMIT, self.remote.farewell()).await;
                StreamEnd::default()
            }
            Err(error) => {
                let broken = Some(Text::from(format!("the connection broke: {error}")));
                StreamEnd { exit: None, stderr: self.remote.errors.text(), broken }
            }
        }
    }

    async fn carry(&mut self, heard: Vec<Bytes>) -> io::Result<Stop> {
        for chunk in heard {
            if self.stdout.send(chunk).await.is_err() {
                return Ok(Stop::Deserted);
            }
        }
        loop {
            tokio::select! {
                // The owner dropped the stream.
                () = self.stdout.closed() => return Ok(Stop::Deserted),
                // A line for the probe, or the end of its stdin.
                line = self.stdin.recv(), if self.stdin_open => {
                    if !self.pass_on(line).await? {
                        return Ok(Stop::Deserted);
                    }
                }
                // Something came in, or the output ended.
                chunk = self.remote.next() => match chunk? {
                    None => return Ok(Stop::Output),
                    // Waits when nobody takes it: the host is then held back by the channel's window.
                    Some(chunk) => if self.stdout.send(chunk).await.is_err() {
                        return Ok(Stop::Deserted);
                    },
                },
            }
        }
    }

    /// Writes one piece of stdin, or ends it. Nothing else may be asked of libssh2 meanwhile: a write
    /// that did not fit must be repeated as it was. `false`: the owner left.
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
