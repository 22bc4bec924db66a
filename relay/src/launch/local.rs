//! Runs probes as child processes on this machine.

use super::upload::ProbeBinary;
use super::{LaunchError, Launcher, NodeStream, PIPE_DEPTH, StreamEnd, Tail};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use nodeglass_protocol::{NodeName, Text};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time limit for a probe to exit after its stdin was closed.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Starts the probe on this machine, whatever the node's name.
#[derive(Clone, Debug)]
pub struct LocalLauncher {
    probe: ProbeBinary,
    relay_id: u64,
}

impl LocalLauncher {
    /// A launcher of `probe`.
    pub fn new(probe: ProbeBinary, relay_id: u64) -> Self {
        Self { probe, relay_id }
    }
}

#[async_trait]
impl Launcher for LocalLauncher {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let probe = self.probe.clone();
        let verified = tokio::task::spawn_blocking(move || probe.verified()).await;
        let cannot = |why: String| LaunchError::Probe { why: why.into() };
        let file = verified.map_err(|error| cannot(error.to_string()))?;
        let file = file.map_err(|error| cannot(error.to_string()))?;
        // By descriptor: the verified file, whatever its path refers to by now.
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command
            .arg0(self.probe.path())
            .arg("--expect")
            .arg(self.probe.hash16())
            .arg("--relay")
            .arg(format!("{:016x}", self.relay_id));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| LaunchError::Probe {
            why: format!("the probe {} could not be started on {node}: {error}", self.probe.path().display())
                .into(),
        })?;
        drop(file);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(LaunchError::Probe { why: "the probe's pipes are missing".into() });
        };
        let (stdout, stdout_out) = mpsc::channel(PIPE_DEPTH);
        let (stdin_in, stdin) = mpsc::channel(PIPE_DEPTH);
        let (ended, end) = oneshot::channel();
        tokio::spawn(async move {
            let _ = ended.send(watch(child, input, output, errors, stdout, stdin).await);
        });
        Ok(NodeStream { stdout: stdout_out, stdin: stdin_in, end })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    async fn launch(folder: &Path, script: &str) -> NodeStream {
        let path = folder.join("node-probe");
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let launcher = LocalLauncher::new(ProbeBinary::find(Some(&path)).unwrap(), 0xf);
        launcher.launch(&NodeName::new("here").unwrap()).await.unwrap()
    }

    async fn output(stream: &mut NodeStream) -> String {
        let mut output = Vec::new();
        while let Some(chunk) = stream.stdout.recv().await {
            output.extend_from_slice(&chunk);
        }
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn it_is_called_like_a_remote_one_and_its_end_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut stream =
            launch(folder.path(), "echo \"$*\"; read -r x; echo $x; echo no GPU >&2; exit 3").await;
        stream.stdin.send("word\n".into()).await.unwrap();
        let output = output(&mut stream).await;
        assert!(
            output.starts_with("--expect ") && output.ends_with(" --relay 000000000000000f\nword\n"),
            "{output}"
        );
        assert_eq!(
            stream.end.await.unwrap(),
            StreamEnd { exit: Some(3), stderr: "no GPU".into(), broken: None }
        );
    }

    #[tokio::test]
    async fn closing_stdin_ends_it_and_a_signal_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut stream = launch(folder.path(), "cat; echo done; kill -9 $$").await;
        stream.stdin = mpsc::channel(1).0;
        assert_eq!(output(&mut stream).await, "done\n");
        let end = stream.end.await.unwrap();
        assert_eq!((end.exit, end.broken.unwrap().as_str()), (None, "ended by signal 9"));
    }

    #[tokio::test]
    async fn a_probe_that_ignores_the_end_of_stdin_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut stream = launch(folder.path(), "echo $$; exec sleep 600").await;
        let pid = stream.stdout.recv().await.unwrap();
        let proc = format!("/proc/{}", String::from_utf8_lossy(&pid).trim());
        assert!(Path::new(&proc).exists());
        let NodeStream { stdout, stdin, end } = stream;
        drop((stdout, stdin));
        end.await.unwrap();
        for _ in 0..200 {
            if !Path::new(&proc).exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the probe still runs");
    }
}
