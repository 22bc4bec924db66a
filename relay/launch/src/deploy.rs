//! Starts the probe on a host where commands can be run: finds it there, or uploads it first.

use super::upload::{ProbeBinary, Turns, UploadDir, UploadScript, Uploaded};
use super::{LaunchError, NodeStream, StreamEnd};
use bytes::Bytes;
use nodeglass_protocol::probe::{MAGIC, MAX_NOISE};
use nodeglass_protocol::{JobId, NodeName};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Time limit from the start to a running probe, if it is installed.
pub(super) const LAUNCH_LIMIT: Duration = Duration::from_secs(20);
/// A login script that has at least this long and does not end hangs; with less, the connection is slow.
const LOGIN_SCRIPT_LIMIT: Duration = Duration::from_secs(10);
/// Delay of this process after a deadline from which the machine, not the node, is too slow.
const STARVED: Duration = Duration::from_secs(1);
/// Time limit for uploading a probe, some MB over any network.
const UPLOAD_LIMIT: Duration = Duration::from_secs(60);

/// A host where commands can be run, one after the other.
pub(super) trait Host: Send + Sized {
    /// A running command.
    type Command: RemoteCommand<Host = Self>;

    /// Starts a command, after a login if each command needs its own; a login must end before `deadline`.
    fn start(
        self,
        command: &str,
        deadline: Instant,
    ) -> impl Future<Output = Result<Self::Command, LaunchError>> + Send;

    /// Returns the error for a command that ran and sent nothing until the deadline.
    fn silent(&self, node: &NodeName) -> LaunchError;
}

/// A command that runs on a host, with its pipes.
pub(super) trait RemoteCommand: Send + Sized {
    /// The host on which it runs.
    type Host: Host;

    /// Waits for the next bytes of stdout; `None` at its end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Bytes>>> + Send;

    /// Writes `bytes` to stdin, unless the command exits before it has read them all: then returns
    /// `false`.
    fn write_until_end(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<bool>> + Send;

    /// Closes stdin.
    fn end_input(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits for the exit status, which follows the end of the output.
    fn finish(self) -> impl Future<Output = Result<(StreamEnd, Self::Host), LaunchError>> + Send;

    /// Moves the pipes to a separate task; `received` is the stdout read so far.
    fn into_stream(self, received: Vec<Bytes>) -> NodeStream;
}

/// Starts probes, and uploads them where they are missing.
pub(super) struct Deployer {
    probe: ProbeBinary,
    relay_id: u64,
    uploads: Turns,
}

/// A probe to be started.
#[derive(Clone, Copy)]
struct Deployment<'a> {
    node: &'a NodeName,
    /// Identifies the probe: of two probes with the same id, the newer takes over from the older.
    id: u64,
}

/// The result of starting the probe.
enum Start<H: Host> {
    /// It responded; its output so far.
    Runs(H::Command, Vec<Bytes>),
    /// It exited without a recognised response, after this output.
    Ended(StreamEnd, Vec<u8>, H),
}

/// Whether a node has the probe.
enum Found<'a, H> {
    Runs(NodeStream),
    Missing(&'a ProbeBinary, H),
}

impl Deployer {
    /// Starts `probe` for the relay with this id.
    pub(super) fn new(probe: ProbeBinary, relay_id: u64) -> Self {
        Self { probe, relay_id, uploads: Turns::default() }
    }

    /// Runs the probe of a node, or of one job there, after an upload if it is missing; an installed one must
    /// respond before `deadline`.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub(super) async fn run<H: Host>(
        &self,
        (node, job): (&NodeName, Option<JobId>),
        host: H,
        deadline: Instant,
    ) -> Result<NodeStream, LaunchError> {
        let this = Deployment { node, id: probe_id(self.relay_id, node, job) };
        let (probe, host) = match self.find(&self.probe, this, host, deadline).await? {
            Found::Runs(stream) => return Ok(stream),
            Found::Missing(probe, host) => (probe, host),
        };
        let turn = self.uploads.take().await;
        let host = match turn.look_again {
            false => host,
            true => match self.find(probe, this, host, Instant::now() + LAUNCH_LIMIT).await? {
                Found::Runs(stream) => return Ok(stream),
                Found::Missing(_, host) => {
                    turn.found_nothing();
                    host
                }
            },
        };
        let host = self.upload(probe, host).await?;
        turn.succeeded();
        drop(turn);
        match self.start(probe, this, host, Instant::now() + LAUNCH_LIMIT).await? {
            Start::Runs(command, received) => Ok(command.into_stream(received)),
            Start::Ended(end, output, _) => Err(LaunchError::Probe { why: probe.complaint(&end, &output) }),
        }
    }

    /// Runs the probe, or the one for the node's processor; or determines that it is missing and that the node
    /// could run it.
    async fn find<'a, H: Host>(
        &self,
        mut probe: &'a ProbeBinary,
        this: Deployment<'_>,
        mut host: H,
        mut deadline: Instant,
    ) -> Result<Found<'a, H>, LaunchError> {
        loop {
            let (end, output) = match self.start(probe, this, host, deadline).await? {
                Start::Runs(command, received) => return Ok(Found::Runs(command.into_stream(received))),
                Start::Ended(end, output, back) => {
                    host = back;
                    (end, output)
                }
            };
            if let Some(other) = probe.for_other_processor(&end) {
                (probe, deadline) = (other, Instant::now() + LAUNCH_LIMIT);
                continue;
            }
            return match probe.unfit(this.node.as_str(), &end) {
                Some(why) => Err(LaunchError::Incompatible {
                    why: why.into(),
                    advice: "use the archive of `cargo xtask dist`, which has a probe for older systems and other processors, or pass a probe that is built for this node with --probe PATH"
                        .into(),
                }),
                None if probe.is_missing(&end) => Ok(Found::Missing(probe, host)),
                None => Err(LaunchError::Probe { why: probe.complaint(&end, &output) }),
            };
        }
    }

    /// Runs the probe if it is installed.
    async fn start<H: Host>(
        &self,
        probe: &ProbeBinary,
        this: Deployment<'_>,
        host: H,
        deadline: Instant,
    ) -> Result<Start<H>, LaunchError> {
        let silent = host.silent(this.node);
        let run_command = probe.run_command(this.id);
        let mut command = match timeout_at(deadline, host.start(&run_command, deadline)).await {
            Ok(started) => started?,
            Err(_) => return Err(silent),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let silent = if left < LOGIN_SCRIPT_LIMIT { slow() } else { silent };
        let starting = async {
            let mut received = Vec::new();
            let mut window = Vec::new();
            while let Some(chunk) = command.next().await.map_err(|error| broken(&error))? {
                window.extend_from_slice(&chunk);
                received.push(chunk);
                // Excessive other output is handled by the reader of the stream.
                if speaks(&window) || window.len() > MAX_NOISE {
                    return Ok(Start::Runs(command, received));
                }
            }
            let (end, host) = command.finish().await?;
            Ok(Start::Ended(end, window.trim_ascii().to_vec(), host))
        };
        let is_starved = || deadline.elapsed() > STARVED;
        timeout_at(deadline, starting).await.map_err(|_| if is_starved() { slow() } else { silent })?
    }

    /// Uploads the probe to the remote user's cache, or another folder from which the node may run it.
    async fn upload<H: Host>(&self, probe: &ProbeBinary, host: H) -> Result<H, LaunchError> {
        timeout(UPLOAD_LIMIT, self.try_places(probe, host))
            .await
            .unwrap_or_else(|_| Err(not_uploaded("it took longer than 60 s")))
    }

    /// Uploads to the first usable folder.
    async fn try_places<H: Host>(&self, probe: &ProbeBinary, mut host: H) -> Result<H, LaunchError> {
        // Read completely before anything is sent: the uploaded bytes must be the verified ones.
        let verified = probe.clone();
        let bytes = tokio::task::spawn_blocking(move || verified.bytes()).await.map_err(not_uploaded)?;
        let bytes = bytes.map_err(not_uploaded)?;
        let (mut first, mut reasons) = (UploadDir::default(), Vec::new());
        loop {
            let random = getrandom::u64().map_err(not_uploaded)?;
            let script = UploadScript::new(probe, first, random);
            let mut command = host.start(&script.command, Instant::now() + LAUNCH_LIMIT).await?;
            let place = send(&mut command, &bytes).await.map_err(not_uploaded)?;
            let (end, back) = command.finish().await?;
            host = back;
            match UploadScript::outcome(&end, place, &reasons) {
                Uploaded::Done => return Ok(host),
                Uploaded::Failed(why) => return Err(not_uploaded(why)),
                Uploaded::TryNext(next, why) => {
                    first = next;
                    reasons.push(why);
                }
            }
        }
    }
}

/// Sends the probe to an upload script once it is ready, and waits for the end of its output.
async fn send(command: &mut impl RemoteCommand, bytes: &[u8]) -> io::Result<Option<UploadDir>> {
    let (mut output, mut place) = (Vec::new(), None);
    while let Some(chunk) = command.next().await? {
        output.extend_from_slice(&chunk);
        place = UploadScript::place(&output);
        if place.is_some() {
            if command.write_until_end(bytes).await? {
                command.end_input().await?;
            }
            break;
        }
        if output.len() > MAX_NOISE {
            return Err(io::Error::other("the login script produces endless output"));
        }
    }
    while command.next().await?.is_some() {}
    Ok(place)
}

/// Identifies the probe of a node, or of one job there, to its successors. Each node has its own, because another
/// node may be the same machine by another name.
fn probe_id(relay_id: u64, node: &NodeName, job: Option<JobId>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (relay_id, node, job.map(|job| job.0)).hash(&mut hasher);
    hasher.finish()
}

fn not_uploaded(why: impl std::fmt::Display) -> LaunchError {
    LaunchError::Probe { why: format!("the probe could not be copied to the node: {why}").into() }
}

fn broken(error: &io::Error) -> LaunchError {
    LaunchError::Unreachable { why: format!("the connection broke: {error}").into() }
}

/// The error for a host that accepted the login and whose login script then hangs.
pub(super) fn login_script_hangs(node: &NodeName) -> LaunchError {
    LaunchError::Hangs {
        why: format!("{node} accepted the login, but its login script did not end within 20 s").into(),
        advice: format!("check that `ssh {node} true` ends at once; ~/.bashrc or a script like it waits")
            .into(),
    }
}

/// The error for a host that takes too long before the login, or that leaves no time after it.
pub(super) fn slow() -> LaunchError {
    LaunchError::Unreachable { why: "the host did not respond within 20 s".into() }
}

fn speaks(received: &[u8]) -> bool {
    received.windows(MAGIC.len()).any(|window| window == MAGIC.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_and_job_has_a_probe_of_its_own() {
        let id =
            |relay, node, job: Option<u32>| probe_id(relay, &NodeName::new(node).unwrap(), job.map(JobId));
        let ids = [
            id(7, "n1", None),
            id(8, "n1", None),
            id(7, "n2", None),
            id(7, "n1", Some(1)),
            id(7, "n1", Some(2)),
            id(7, "n2", Some(1)),
        ];
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
        assert_eq!(id(7, "n1", Some(2)), ids[4], "a new link takes over from a broken one");
    }
}
