//! Runs probes as child processes on this machine.

use super::child::ChildCommand;
use super::upload::ProbeBinary;
use super::{LaunchError, Launcher, NodeStream, Tail};
use async_trait::async_trait;
use nodeglass_protocol::NodeName;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use tokio::process::Command;

/// Starts the probe on this machine, for any name of the node.
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
        // By descriptor: the verified file, even if its path refers to another one by now.
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command
            .arg0(self.probe.path())
            .arg("--expect")
            .arg(self.probe.hash16())
            .arg("--relay")
            .arg(format!("{:016x}", self.relay_id));
        let child = ChildCommand::spawn(&mut command, Tail::default()).map_err(|error| {
            let why =
                format!("the probe {} could not be started on {node}: {error}", self.probe.path().display());
            match error.kind() {
                // A limit of processes or memory: the probe itself is sound.
                ErrorKind::WouldBlock | ErrorKind::OutOfMemory => {
                    LaunchError::Unreachable { why: why.into() }
                }
                _ => cannot(why),
            }
        })?;
        drop(file);
        Ok(child.into_stream(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamEnd;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;
    use tokio::sync::mpsc;

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
            StreamEnd { exit: Some(3), stderr: "no GPU".into(), ..StreamEnd::default() }
        );
    }

    #[tokio::test]
    async fn closing_stdin_ends_it_and_a_signal_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut stream = launch(folder.path(), "cat; echo done; kill -9 $$").await;
        stream.stdin = mpsc::channel(1).0;
        assert_eq!(output(&mut stream).await, "done\n");
        let end = stream.end.await.unwrap();
        assert_eq!((end.exit, end.interruption().unwrap().as_str()), (None, "ended by signal 9 (SIGKILL)"));
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
