//! Nodes behind one sshd, each through a port that fails as a network or a host does.

use crate::relay::TestRelay;
use crate::sshd::Sshd;
use anyhow::{Context, Result};
use nodeglass_protocol::NodeName;
use rustix::process::Pid;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The behaviour of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It forwards.
    None,
    /// Nothing arrives, in either direction, as without a network. A connection that is open continues afterwards.
    Cut,
    /// New connections receive these words and are closed; open ones are closed at once.
    Says(&'static str),
}

/// A relay that watches a list of nodes.
#[derive(Debug)]
pub struct Rack {
    relay: TestRelay,
    ports: Vec<Port>,
    sshd: Sshd,
}

#[derive(Debug)]
struct Port {
    fault: watch::Sender<Fault>,
    /// Ports from which sshd is reached; sshd tells its sessions.
    sources: Sources,
    task: JoinHandle<()>,
}

type Sources = Arc<Mutex<Vec<u16>>>;

impl Rack {
    /// Starts a relay that watches `count` nodes, with these further arguments; `None` if OpenSSH is not installed.
    ///
    /// # Errors
    /// If sshd or the relay does not start.
    pub async fn start(count: usize, args: &[&str]) -> Result<Option<Self>> {
        let Some(sshd) = Sshd::start()? else { return Ok(None) };
        let (mut ports, mut list) = (Vec::new(), String::new());
        for number in 0..count {
            let ((fault, state), sources) = (watch::channel(Fault::None), Sources::default());
            let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a port")?;
            let port = listener.local_addr()?.port();
            sshd.trust(port)?;
            list.push_str(&format!("{}:{port}\n", name(number)));
            let task = tokio::spawn(serve(listener, sshd.port(), state, Arc::clone(&sources)));
            ports.push(Port { fault, sources, task });
        }
        let file = sshd.path().join("hosts.txt");
        std::fs::write(&file, list)?;
        let hosts = file.display().to_string();
        let args = [&["--hosts", &hosts], args].concat();
        let relay = TestRelay::start_in(&args, [("PATH", sshd.path().as_os_str())])?;
        Ok(Some(Self { relay, ports, sshd }))
    }

    /// The relay.
    pub fn relay(&self) -> &TestRelay {
        &self.relay
    }

    /// The names of these nodes.
    ///
    /// # Errors
    /// Never: the names are valid.
    pub fn names(&self, nodes: Range<usize>) -> Result<Vec<NodeName>> {
        nodes.map(|number| Ok(NodeName::new(name(number))?)).collect()
    }

    /// Lets the ports of these nodes fail, or forward again.
    pub fn set(&self, nodes: Range<usize>, fault: Fault) {
        for port in &self.ports[nodes] {
            port.fault.send_replace(fault);
        }
    }

    /// Pids of the probes of a node.
    pub fn probes(&self, number: usize) -> Vec<Pid> {
        let sources = self.ports[number].sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connection = |source| format!("SSH_CONNECTION=127.0.0.1 {source} 127.0.0.1 {}", self.sshd.port());
        let connections: Vec<_> = sources.into_iter().map(connection).collect();
        let is_of_it = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut entries = environment.split(|byte| *byte == 0);
            let is_probe = std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| is_probe(&String::from_utf8_lossy(&line)));
            is_probe
                && entries.any(|entry| connections.iter().any(|connection| entry == connection.as_bytes()))
        };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(is_of_it);
        pids.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).collect()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn name(number: usize) -> String {
    format!("rack-{number:02}")
}

/// Returns whether the program of a command line is the probe.
fn is_probe(command_line: &str) -> bool {
    command_line.split('\0').next().is_some_and(|program| program.contains("node-probe"))
}

async fn serve(listener: TcpListener, to: u16, fault: watch::Receiver<Fault>, sources: Sources) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        connections.spawn(connection(near, to, fault.clone(), Arc::clone(&sources)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(
    mut near: TcpStream,
    to: u16,
    mut fault: watch::Receiver<Fault>,
    sources: Sources,
) -> io::Result<()> {
    if let Fault::Says(words) = not_cut(&mut fault).await {
        return near.write_all(words.as_bytes()).await;
    }
    let far = TcpStream::connect(("127.0.0.1", to)).await?;
    sources.lock().unwrap_or_else(PoisonError::into_inner).push(far.local_addr()?.port());
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let mut closing = fault.clone();
    tokio::select! {
        ended = one_way(near_in, far_out, fault.clone()) => ended,
        ended = one_way(far_in, near_out, fault) => ended,
        _ = closing.wait_for(|fault| matches!(fault, Fault::Says(_))) => Ok(()),
    }
}

/// Waits until the port is not cut; returns how it behaves.
async fn not_cut(fault: &mut watch::Receiver<Fault>) -> Fault {
    // The rack ends with its connections.
    fault.wait_for(|fault| *fault != Fault::Cut).await.map_or(Fault::None, |fault| *fault)
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut fault: watch::Receiver<Fault>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        // The end of a connection does not arrive either.
        not_cut(&mut fault).await;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
    }
}
