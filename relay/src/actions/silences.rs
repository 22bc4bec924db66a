//! Silences of findings, kept in the state directory.

use crate::findings::silences;
use crate::fleet::Event;
use crate::regular_file;
use crate::state_dir::StateDir;
use nodeglass_protocol::finding::{FindingKind, Silence, SilenceRequest};
use nodeglass_protocol::request::Response;
use nodeglass_rules::text;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Name of the file in the state directory.
const FILE: &str = "silences.json";
/// Maximum size of the file in bytes; what the relay writes is far smaller.
const MAX_BYTES: u64 = 64 << 10;

/// The silences. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Silences(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    list: Mutex<Vec<Silence>>,
    /// Held during a change, so that file and fleet get changes in their order.
    changing: tokio::sync::Mutex<()>,
    /// Where they are kept; `None` if they end with the relay.
    dir: Option<StateDir>,
}

impl Silences {
    /// Those that are kept in a directory. A file that cannot be read is logged, and replaced by the next change.
    pub fn open(dir: Option<StateDir>, wall_ms: u64) -> Self {
        let read = dir.as_ref().map_or(Ok(Vec::new()), read).unwrap_or_else(|error| {
            tracing::warn!(%error, "the silences of findings cannot be read");
            Vec::new()
        });
        // What was set while the clock was wrong, or was not written by a relay, cannot outlast what may be set.
        let latest_ms = wall_ms.saturating_add(u64::from(Silence::MAX_S) * 1_000);
        let is_valid = |silence: &Silence| {
            let has_scope = silence.kind.is_some() || silence.job.is_some();
            has_scope && silence.until_ms > wall_ms && silence.until_ms <= latest_ms
        };
        let current = read.into_iter().filter(is_valid).take(Silence::MAX);
        let list = Mutex::new(current.collect());
        Self(Arc::new(Inner { list, changing: tokio::sync::Mutex::default(), dir }))
    }

    /// All of them; some may have ended.
    pub fn list(&self) -> Vec<Silence> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes one, and lets the fleet know.
    pub(super) async fn change(
        &self,
        request: SilenceRequest,
        wall_ms: u64,
        events: &mpsc::Sender<Event>,
    ) -> Response {
        let _changing = self.0.changing.lock().await;
        let before = self.list();
        let mut list = before.clone();
        if let Err(error) = silences::change(&mut list, &request, wall_ms) {
            return Response::Refused(error.to_string().as_str().into());
        }
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&list);
        let mut done = done(&request, &before, &list, wall_ms);
        let (inner, stored) = (self.0.clone(), list.clone());
        let write = move || inner.dir.as_ref().map_or(Ok(()), |dir| write(dir, &stored));
        // Without the lock of the list: a disk may hang.
        let stored =
            tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        if events.send(Event::Silences(list)).await.is_err() {
            return Response::Refused("the relay is ending".into());
        }
        if let Err(error) = stored {
            tracing::warn!(%error, "the silences of findings cannot be stored");
            done.push_str("; it could not be stored, and ends with the relay");
        }
        Response::Done(done.as_str().into())
    }
}

/// Returns what a change has done.
fn done(request: &SilenceRequest, before: &[Silence], after: &[Silence], wall_ms: u64) -> String {
    if request.for_s > 0 {
        let silenced = Silence { kind: request.kind, job: request.job, until_ms: 0 };
        return format!("silenced for {}: {}", text::span(u64::from(request.for_s)), scope(&silenced));
    }
    let is_same = |silence: &&Silence| (silence.kind, silence.job) == (request.kind, request.job);
    let existed = before.iter().filter(|silence| silence.until_ms > wall_ms).any(|silence| is_same(&silence));
    let covers = |silence: &&Silence| {
        (silence.kind.is_none() || silence.kind == request.kind)
            && (silence.job.is_none() || silence.job == request.job)
    };
    match (existed, after.iter().find(covers).map(scope)) {
        (true, None) => "no longer silenced".to_owned(),
        (true, Some(other)) => format!("this silence has ended; {other} remains silenced"),
        (false, None) => "there is no such silence".to_owned(),
        (false, Some(other)) => format!("there is no such silence, but {other} is silenced"),
    }
}

/// What a silence covers: `idle_gpus of job 17`, `thermal of all jobs`.
fn scope(silence: &Silence) -> String {
    let kind = silence.kind.map_or("all findings", FindingKind::name);
    silence.job.map_or_else(|| format!("{kind} of all jobs"), |job| format!("{kind} of job {job}"))
}

/// Reads the file. One silence that cannot be read, as of a kind that only a newer relay knows, does not end the others.
fn read(dir: &StateDir) -> io::Result<Vec<Silence>> {
    let entries: Vec<serde_json::Value> = match regular_file::read(&dir.path().join(FILE), MAX_BYTES) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let silence = |entry| {
        serde_json::from_value(entry)
            .inspect_err(|error| tracing::warn!(%error, "a silence in {FILE} cannot be read; it is left out"))
            .ok()
    };
    Ok(entries.into_iter().filter_map(silence).collect())
}

/// Replaces the file, so that it is always complete.
fn write(dir: &StateDir, list: &[Silence]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".silences.json.").tempfile_in(dir.path())?;
    file.write_all(&serde_json::to_vec(list)?)?;
    file.as_file().sync_all()?;
    file.persist(dir.path().join(FILE)).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    fn request(for_s: u32) -> SilenceRequest {
        SilenceRequest { kind: None, job: Some(JobId(17)), for_s }
    }

    #[tokio::test]
    async fn silences_survive_a_restart_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let dir = || Some(StateDir::at(folder.path().join("state")).unwrap());
        let (events, mut received) = mpsc::channel(4);
        let silences = Silences::open(dir(), 0);
        let response = silences.change(request(7_200), 1_000, &events).await;
        assert_eq!(response, Response::Done("silenced for 2 h: all findings of job 17".into()));
        assert!(matches!(received.recv().await, Some(Event::Silences(list)) if list.len() == 1));
        assert_eq!(Silences::open(dir(), 2_000).list(), silences.list());
        assert!(Silences::open(dir(), 10_000_000).list().is_empty(), "it has ended");
        assert_eq!(
            silences.change(request(0), 2_000, &events).await,
            Response::Done("no longer silenced".into())
        );
        assert!(Silences::open(dir(), 2_000).list().is_empty());
    }

    #[tokio::test]
    async fn the_end_of_a_silence_states_what_remains() {
        let (events, _received) = mpsc::channel(8);
        let silences = Silences::open(None, 0);
        let change = async |kind, job: Option<u32>, for_s| {
            let request = SilenceRequest { kind, job: job.map(JobId), for_s };
            match silences.change(request, 1_000, &events).await {
                Response::Done(done) => done.to_string(),
                other => format!("{other:?}"),
            }
        };
        let thermal = Some(FindingKind::Thermal);
        change(thermal, None, 60).await;
        change(thermal, Some(17), 60).await;
        assert_eq!(
            change(thermal, Some(17), 0).await,
            "this silence has ended; thermal of all jobs remains silenced"
        );
        assert_eq!(
            change(thermal, Some(18), 0).await,
            "there is no such silence, but thermal of all jobs is silenced"
        );
        assert_eq!(change(None, Some(18), 0).await, "there is no such silence");
        assert_eq!(change(thermal, None, 0).await, "no longer silenced");
    }

    #[test]
    fn what_could_not_be_set_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state")).unwrap();
        let of = |job: Option<u32>, until_ms| Silence { kind: None, job: job.map(JobId), until_ms };
        write(&dir, &[of(None, 5_000), of(Some(1), u64::MAX), of(Some(2), 5_000)]).unwrap();
        assert_eq!(Silences::open(Some(dir), 1_000).list(), [of(Some(2), 5_000)]);
    }

    #[test]
    fn a_silence_of_an_unknown_kind_does_not_end_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state")).unwrap();
        let stored = r#"[{"kind":"of_a_newer_relay","job":1,"until_ms":5000},{"job":2,"until_ms":5000}]"#;
        std::fs::write(dir.path().join(FILE), stored).unwrap();
        let expected = Silence { kind: None, job: Some(JobId(2)), until_ms: 5_000 };
        assert_eq!(Silences::open(Some(dir), 1_000).list(), [expected]);
    }

    #[tokio::test]
    async fn a_damaged_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state")).unwrap();
        std::fs::write(dir.path().join(FILE), "[{").unwrap();
        let silences = Silences::open(Some(dir.clone()), 0);
        assert!(silences.list().is_empty());
        let (events, _received) = mpsc::channel(4);
        silences.change(request(60), 1_000, &events).await;
        assert_eq!(Silences::open(Some(dir), 1_000).list().len(), 1);
    }
}
