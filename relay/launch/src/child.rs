//! Runs a command as a child process, whose pipes become a probe's stream.

use super::{NodeStream, PIPE_DEPTH, StreamEnd, Tail};
use bytes::{Bytes, BytesMut};
use nodeglass_protocol::Text;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};
use rustix::process::{set_parent_process_death_signal, setsid};
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time limit for a child to exit after its stdin was closed.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for what is left in the stderr pipe of a child that exited: its own children may hold it.
const REST_LIMIT: Duration = Duration::from_millis(50);
/// Read at once; a sample of an 8-GPU node is about 3 KiB.
const CHUNK: usize = 8 * 1024;

/// Reads what a child writes to stderr, and interprets its exit status.
pub(super) trait StderrReader: Send + 'static {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]);

    /// Returns the end of the child; `None` if it had to be killed.
    fn end(&mut self, status: Option<ExitStatus>) -> StreamEnd;
}

impl StderrReader for Tail {
    fn push(&mut self, bytes: &[u8]) {
        Tail::push(self, bytes);
    }

    fn end(&mut self, status: Option<ExitStatus>) -> StreamEnd {
        // The standard library names the signal: `signal: 9 (SIGKILL)`.
        let how = status.filter(|status| status.signal().is_some()).map(|status| status.to_string());
        let signal = how.map(|how| Text::from(how.replacen("signal: ", "signal ", 1)));
        StreamEnd { exit: status.and_then(|status| status.code()), signal, stderr: self.text(), broken: None }
    }
}

/// Starts the command in its own session, and lets it end with the relay.
///
/// Without a controlling terminal neither it nor its children can ask for a password there, and Ctrl-C
/// does not reach them. They form a process group, which is killed as a whole. If the relay is killed, the
/// child receives SIGTERM, on which `ssh` ends its proxy command. The kernel sends it when the thread ends
/// that starts the child: one of tokio's workers, which live as long as the relay.
pub(super) fn isolate(command: &mut Command) {
    let relay = getpid();
    let prepare = move || {
        setsid()?;
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // The relay may have ended before that call.
        if getppid() == Some(relay) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec, it only makes system calls and does not allocate.
    #[expect(unsafe_code, reason = "the standard library has no safe way to start a session")]
    unsafe {
        command.pre_exec(prepare);
    }
}

/// A running child with its pipes. Dropping it kills the child and its process group.
pub(super) struct ChildCommand<E> {
    process: Process,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    /// Output that was read and not yet returned.
    buffer: BytesMut,
    /// Content of stderr.
    pub(super) errors: E,
}

impl<E: StderrReader> ChildCommand<E> {
    /// Starts a command.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub(super) fn spawn(command: &mut Command, errors: E) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("its pipes are missing"));
        };
        let (stdin, stderr) = (Some(stdin), Some(stderr));
        Ok(Self { process: Process(child), stdin, stdout, stderr, buffer: BytesMut::new(), errors })
    }

    /// Waits for the next bytes of stdout; `None` at its end. Cancel safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while self.buffer.is_empty() {
            if !self.read_some().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer.split().freeze()))
    }

    /// Waits until stderr `shows` something, output arrives (returns `true`), or stdout ends (`false`).
    pub(super) async fn until(&mut self, shows: impl Fn(&E) -> bool + Send) -> io::Result<bool> {
        while !shows(&self.errors) && self.buffer.is_empty() {
            if !self.read_some().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads from stdout or stderr; `false` at the end of stdout.
    async fn read_some(&mut self) -> io::Result<bool> {
        self.buffer.reserve(CHUNK);
        tokio::select! {
            read = self.stdout.read_buf(&mut self.buffer) => Ok(read? > 0),
            () = read_errors(&mut self.stderr, &mut self.errors), if self.stderr.is_some() => Ok(true),
        }
    }

    /// Writes `bytes` to stdin, unless the child exits before it has read them all: then returns `false`.
    /// Output meanwhile is discarded.
    pub(super) async fn write_until_end(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some(mut stdin) = self.stdin.take() else { return Ok(false) };
        let written = {
            let writing = stdin.write_all(bytes);
            tokio::pin!(writing);
            loop {
                tokio::select! {
                    written = &mut writing => break written,
                    is_open = self.read_some() => match is_open? {
                        true => self.buffer.clear(),
                        false => return Ok(false),
                    },
                }
            }
        };
        self.stdin = Some(stdin);
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Closes stdin.
    pub(super) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Waits for the exit, which follows the end of the output; kills a child that stays.
    pub(super) async fn finish(mut self) -> (StreamEnd, E) {
        self.stdin = None;
        let group = self.process.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let status = {
            let exit = timeout(LEAVE_LIMIT, self.process.0.wait());
            tokio::pin!(exit);
            loop {
                tokio::select! {
                    status = &mut exit => break status.ok().and_then(Result::ok),
                    () = read_errors(&mut self.stderr, &mut self.errors), if self.stderr.is_some() => {}
                }
            }
        };
        // Processes that it started stay in its group, and as long as one is left, the id is not reused.
        if let Some(group) = group.filter(|_| status.is_some()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let rest = async {
            while self.stderr.is_some() {
                read_errors(&mut self.stderr, &mut self.errors).await;
            }
        };
        let _ = timeout(REST_LIMIT, rest).await;
        (self.errors.end(status), self.errors)
    }

    /// Serves the pipes in a separate task; `received` is the stdout read so far.
    pub(super) fn into_stream(self, received: Vec<Bytes>) -> NodeStream {
        let (stdout, stdout_out) = mpsc::channel(PIPE_DEPTH);
        let (stdin_in, stdin) = mpsc::channel(PIPE_DEPTH);
        let (ended, end) = oneshot::channel();
        tokio::spawn(async move {
            let _ = ended.send(self.serve(received, stdout, stdin).await);
        });
        NodeStream { stdout: stdout_out, stdin: stdin_in, end }
    }

    /// Copies bytes until the child exits or the stream is dropped, then waits for the child.
    async fn serve(
        mut self,
        received: Vec<Bytes>,
        stdout: mpsc::Sender<Bytes>,
        stdin: mpsc::Receiver<Bytes>,
    ) -> StreamEnd {
        let input = self.stdin.take();
        {
            let feeding = feed(input, stdin);
            let reading = self.carry(received, &stdout);
            tokio::pin!(feeding, reading);
            let mut is_fed = false;
            loop {
                tokio::select! {
                    // The output ended, or the stream was dropped.
                    () = &mut reading => break,
                    // The child's stdin was closed; remaining output still counts.
                    () = &mut feeding, if !is_fed => is_fed = true,
                }
            }
        }
        self.finish().await.0
    }

    async fn carry(&mut self, received: Vec<Bytes>, stdout: &mpsc::Sender<Bytes>) {
        for chunk in received {
            if stdout.send(chunk).await.is_err() {
                return;
            }
        }
        loop {
            tokio::select! {
                () = stdout.closed() => return,
                chunk = self.next() => match chunk {
                    Ok(Some(chunk)) => if stdout.send(chunk).await.is_err() {
                        return;
                    },
                    _ => return,
                },
            }
        }
    }
}

async fn feed(input: Option<ChildStdin>, mut stdin: mpsc::Receiver<Bytes>) {
    let Some(mut input) = input else { return };
    while let Some(line) = stdin.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Reads from stderr once; clears it at its end. Cancel safe.
async fn read_errors<E: StderrReader>(stderr: &mut Option<ChildStderr>, errors: &mut E) {
    let mut piece = [0; 1024];
    let Some(pipe) = stderr else { return };
    match pipe.read(&mut piece).await {
        Ok(n) if n > 0 => errors.push(&piece[..n]),
        _ => *stderr = None,
    }
}

/// A child process; killed on drop with its process group, unless it was waited for.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It has an id as long as it was not waited for, so that the id cannot be another process's.
        let Some(pid) = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
        // A child that was not isolated leads no group.
        let _ = kill_process_group(pid, Signal::KILL).or_else(|_| kill_process(pid, Signal::KILL));
    }
}
