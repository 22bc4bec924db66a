//! Turns the pipes of a child process into a probe's stream.

use super::{NodeStream, PIPE_DEPTH, StreamEnd, Tail};
use bytes::{Bytes, BytesMut};
use nodeglass_protocol::Text;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time limit for a child to exit after its stdin was closed.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Serves the pipes of `child` in a separate task; `None` unless all three are piped.
pub(super) fn stream(mut child: Child) -> Option<NodeStream> {
    let (input, output, errors) = (child.stdin.take()?, child.stdout.take()?, child.stderr.take()?);
    let (stdout, stdout_out) = mpsc::channel(PIPE_DEPTH);
    let (stdin_in, stdin) = mpsc::channel(PIPE_DEPTH);
    let (ended, end) = oneshot::channel();
    tokio::spawn(async move {
        let _ = ended.send(watch(child, input, output, errors, stdout, stdin).await);
    });
    Some(NodeStream { stdout: stdout_out, stdin: stdin_in, end })
}

/// Copies bytes until the probe exits or the stream is dropped, then waits for the probe.
async fn watch(
    mut child: Child,
    input: ChildStdin,
    output: ChildStdout,
    mut errors: ChildStderr,
    stdout: mpsc::Sender<Bytes>,
    stdin: mpsc::Receiver<Bytes>,
) -> StreamEnd {
    let mut tail = Tail::default();
    let mut piece = [0; 1024];
    let mut errors_open = true;
    {
        let feeding = feed(input, stdin);
        let reading = carry(output, &stdout);
        tokio::pin!(feeding, reading);
        let mut fed = false;
        loop {
            tokio::select! {
                // The output ended, or the stream was dropped.
                () = &mut reading => break,
                // The probe's stdin was closed; remaining output still counts.
                () = &mut feeding, if !fed => fed = true,
                // Output on stderr.
                read = errors.read(&mut piece), if errors_open => match read {
                    Ok(n) if n > 0 => tail.push(&piece[..n]),
                    _ => errors_open = false,
                },
            }
        }
    }
    // Its stdin is closed now, so that it exits by itself; if not, dropping the child kills it.
    let status = timeout(LEAVE_LIMIT, child.wait()).await;
    while let Ok(Ok(n)) = timeout(Duration::from_millis(50), errors.read(&mut piece)).await {
        if n == 0 {
            break;
        }
        tail.push(&piece[..n]);
    }
    let status = status.ok().and_then(Result::ok);
    let signal = status.and_then(|status| status.signal());
    let broken = signal.map(|signal| Text::from(format!("ended by signal {signal}")));
    StreamEnd { exit: status.and_then(|status| status.code()), stderr: tail.text(), broken }
}

async fn carry(mut output: ChildStdout, stdout: &mpsc::Sender<Bytes>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(8 * 1024);
        tokio::select! {
            () = stdout.closed() => return,
            read = output.read_buf(&mut buffer) => match read {
                Ok(n) if n > 0 => {}
                _ => return,
            },
        }
        if stdout.send(buffer.split().freeze()).await.is_err() {
            return;
        }
    }
}

async fn feed(mut input: ChildStdin, mut stdin: mpsc::Receiver<Bytes>) {
    while let Some(line) = stdin.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}
