//! Silences of findings, kept in the state directory.

use nodeglass_api::silenced_jobs;
use nodeglass_findings::silences::{self, SilenceError};
use nodeglass_fleet::Event;
use nodeglass_live::SHUTTING_DOWN;
use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::finding::{FindingKind, Silence, SilenceRequest};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::request::Response;
use nodeglass_protocol::{JobId, Text};
use nodeglass_rules::text;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Name of the file in the state directory.
const FILE: &str = "silences.json";
/// Name of the file that is locked during a change.
const LOCK: &str = "silences.lock";
/// Name of an unreadable file after it is renamed.
const DAMAGED: &str = "silences.json.damaged";
/// Maximum size of the file in bytes; what the relay writes is far smaller.
const MAX_BYTES: u64 = 64 << 10;
/// Maximum number of entries of newer relays that are kept, and of bytes of each.
const MAX_FOREIGN: usize = 64;
const MAX_FOREIGN_BYTES: usize = 512;

/// The silences. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Silences(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    list: Mutex<Vec<Silence>>,
    /// Content of the file when it was last read or written. `None` until it could be read.
    file: Mutex<Option<Content>>,
    /// Held during a change, so that file and fleet get changes in their order.
    changing: tokio::sync::Mutex<()>,
    /// The directory of the file; `None` if silences end with the relay.
    dir: Option<StateDir>,
    /// Reason for which the file could not be read or written, until it could.
    problem: Mutex<Option<Text>>,
}

/// Content of the file.
#[derive(Clone, Debug, Default)]
struct Content {
    known: Vec<Silence>,
    /// Entries that only a newer relay knows; they stay in it.
    foreign: Vec<Value>,
    /// Device and inode of its directory; `None` if there was no file.
    place: Option<(u64, u64)>,
}

/// The silences before and after a change, and whether they were stored.
struct Changed {
    before: Vec<Silence>,
    after: Vec<Silence>,
    stored: io::Result<()>,
}

impl Silences {
    /// Those that are kept in a directory, which need not be usable yet. A damaged file is renamed, and that is logged.
    pub fn open(dir: Option<StateDir>, wall_ms: u64) -> Self {
        let inner = Inner {
            list: Mutex::default(),
            file: Mutex::default(),
            changing: Default::default(),
            dir,
            problem: Mutex::default(),
        };
        let read = inner.merge(wall_ms);
        inner.note(&read);
        Self(Arc::new(inner))
    }

    /// All of them; some may have ended.
    pub fn list(&self) -> Vec<Silence> {
        self.0.list()
    }

    /// Changes a silence, and notifies the fleet. `jobs` are the listed jobs.
    pub(super) async fn change(
        &self,
        request: SilenceRequest,
        jobs: &[Job],
        wall_ms: u64,
        events: &mpsc::Sender<Event>,
    ) -> Response {
        let _changing = self.0.changing.lock().await;
        let (inner, change) = (self.0.clone(), request.clone());
        // A disk may hang.
        let changed = tokio::task::spawn_blocking(move || inner.change(&change, wall_ms)).await;
        let Changed { before, after, stored } = match changed {
            Ok(Ok(changed)) => changed,
            Ok(Err(error)) => return Response::Refused(error.to_string().as_str().into()),
            Err(_) => return Response::Refused(SHUTTING_DOWN.into()),
        };
        let mut done = done(&request, jobs, &before, &after, wall_ms);
        if events.send(Event::Silences(after)).await.is_err() {
            return Response::Refused(SHUTTING_DOWN.into());
        }
        let is_end = request.for_s == 0;
        match stored {
            Err(_) => done.push_str(match is_end {
                true => "; it is not stored yet: until then, the next relay may silence it again",
                false => "; it is not stored yet, and until then ends with the relay",
            }),
            Ok(()) if self.0.dir.is_none() && !is_end => {
                done.push_str("; it is forgotten when the relay stops")
            }
            Ok(()) => {}
        }
        Response::Done(done.as_str().into())
    }

    /// Stores what could not be stored before, or what a directory lacks that took the place of another; reads what could
    /// not be read; and notifies the fleet if that changes anything. Returns why it still fails.
    pub async fn retry(&self, wall_ms: u64, events: &mpsc::Sender<Event>) -> Option<Text> {
        let _changing = self.0.changing.lock().await;
        let (inner, before) = (self.0.clone(), self.list());
        let store = move || {
            if inner.problem().is_some() || inner.is_replaced() {
                inner.store(wall_ms);
            }
        };
        let _ = tokio::task::spawn_blocking(store).await;
        let after = self.list();
        if after != before {
            // It fails only while the relay shuts down.
            let _ = events.send(Event::Silences(after)).await;
        }
        self.0.problem()
    }
}

impl Inner {
    fn problem(&self) -> Option<Text> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps why the file could not be used, and logs that once.
    fn note(&self, used: &io::Result<()>) {
        let new = used
            .as_ref()
            .err()
            .map(|error| Text::new(format!("silences of findings cannot be stored at present: {error}")));
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match &new {
            Some(why) if *problem != new => tracing::warn!("{why}"),
            None if problem.is_some() => tracing::info!("silences of findings are stored again"),
            _ => {}
        }
        *problem = new;
    }

    /// Returns whether the file was deleted, or its directory replaced, since it was read or written.
    fn is_replaced(&self) -> bool {
        let Some(dir) = &self.dir else { return false };
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().and_then(|file| file.place).is_some_and(|known| place(dir) != Some(known))
    }

    /// Reads the file, and writes what it lacks.
    fn store(&self, wall_ms: u64) {
        let stored = self.locked(wall_ms).and_then(|_lock| {
            let list = self.list();
            let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if file.is_some_and(|file| file.known == list) { Ok(()) } else { self.write(&list) }
        });
        self.note(&stored);
    }

    /// Reads the file, which no other relay changes until the result is dropped.
    fn locked(&self, wall_ms: u64) -> io::Result<Option<File>> {
        let lock = self.dir.as_ref().map(lock).transpose()?;
        self.merge(wall_ms)?;
        Ok(lock)
    }

    fn list(&self) -> Vec<Silence> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, request: &SilenceRequest, wall_ms: u64) -> Result<Changed, SilenceError> {
        let read = self.locked(wall_ms);
        let before = self.list();
        let mut after = before.clone();
        silences::change(&mut after, request, wall_ms)?;
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&after);
        let stored = read.and_then(|_lock| self.write(&after));
        self.note(&stored);
        Ok(Changed { before, after, stored })
    }

    /// Reads the file, and takes over what another relay has changed in it.
    fn merge(&self, wall_ms: u64) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        dir.prepare().map_err(io::Error::other)?;
        let mut read = read(dir, wall_ms)?;
        // What was set while the clock was wrong, or was not written by a relay, cannot outlast what may be set.
        let latest_ms = wall_ms.saturating_add(u64::from(Silence::MAX_S) * 1_000);
        read.known.retain(|silence| {
            let has_scope = silence.kind.is_some() || silence.job.is_some();
            has_scope && silence.until_ms > wall_ms && silence.until_ms <= latest_ms
        });
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that was deleted, or restored with its directory, ends no silence.
        let before = file.take().filter(|before| before.place == read.place);
        let before = before.map(|before| before.known).unwrap_or_default();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let merged = merged(&before, &read.known, &list);
        *list = merged;
        *file = Some(read);
        Ok(())
    }

    fn write(&self, list: &[Silence]) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let foreign = file.as_ref().map(|file| file.foreign.clone()).unwrap_or_default();
        write(dir, list, &foreign)?;
        *file = Some(Content { known: list.to_vec(), foreign, place: place(dir) });
        Ok(())
    }
}

/// Returns what the file holds, with the changes since `before` that could not be stored in it.
fn merged(before: &[Silence], file: &[Silence], list: &[Silence]) -> Vec<Silence> {
    let of = |list: &[Silence], silence: &Silence| {
        list.iter().find(|known| (known.kind, known.job) == (silence.kind, silence.job)).cloned()
    };
    let is_unstored = |silence: &&Silence| of(list, silence) != of(before, silence);
    let stored = file.iter().filter(|silence| !is_unstored(silence));
    let mut merged: Vec<Silence> = stored.chain(list.iter().filter(is_unstored)).cloned().collect();
    merged.truncate(Silence::MAX);
    merged
}

/// Excludes changes by other relays until the file is dropped.
fn lock(dir: &StateDir) -> io::Result<File> {
    dir.prepare().map_err(io::Error::other)?;
    let busy = || io::Error::other("another relay of yours is changing the silences");
    dir.lock(LOCK).map_err(io::Error::other)?.ok_or_else(busy)
}

/// Returns what a change has done.
fn done(
    request: &SilenceRequest,
    jobs: &[Job],
    before: &[Silence],
    after: &[Silence],
    wall_ms: u64,
) -> String {
    let asked = Silence { kind: request.kind, job: request.job, until_ms: 0 };
    if request.for_s > 0 {
        let is_listed = |id: JobId| jobs.iter().any(|job| job.id == id || is_part(job, id));
        // A job may be silenced before it is submitted or listed.
        let unknown = match request.job {
            Some(id) if !is_listed(id) => "; there is no such job in the list yet",
            _ => "",
        };
        let time = text::span(u64::from(request.for_s));
        return format!("silenced for {time}: {}{unknown}", scope(&asked, jobs));
    }
    let is_same = |silence: &&Silence| (silence.kind, silence.job) == (request.kind, request.job);
    let existed = before.iter().filter(|silence| silence.until_ms > wall_ms).any(|silence| is_same(&silence));
    let covers = |silence: &&Silence| {
        (silence.kind.is_none() || silence.kind == request.kind)
            && (silence.job.is_none() || silence.job == request.job)
    };
    let first = match existed {
        true => format!("no longer silenced: {}", scope(&asked, jobs)),
        false => format!("there is no silence for {}", scope(&asked, jobs)),
    };
    match after.iter().find(covers) {
        Some(other) => format!("{first}; still silenced: {}", scope(other, jobs)),
        None => first,
    }
}

fn is_part(job: &Job, whole: JobId) -> bool {
    job.part_of.as_ref().is_some_and(|part| part.job() == whole)
}

/// Returns the scope of a silence: `idle_gpus of job 17`, `thermal of all jobs`.
fn scope(silence: &Silence, jobs: &[Job]) -> String {
    let kind = silence.kind.map_or("all findings", FindingKind::name);
    let of = silence.job.map_or_else(|| "all jobs".to_owned(), |job| silenced_jobs(job, jobs));
    format!("{kind} of {of}")
}

/// Reads the file: the silences, and entries that only a newer relay knows, as of its kinds. These do not end the
/// others, and stay in the file until they expire. A damaged file counts as empty, and is renamed.
fn read(dir: &StateDir, wall_ms: u64) -> io::Result<Content> {
    let entries: Vec<Value> = match regular_file::read(&dir.path().join(FILE), MAX_BYTES) {
        Ok(bytes) => serde_json::from_slice(&bytes).or_else(|error| set_aside(dir, &error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let (mut known, mut foreign) = (Vec::new(), Vec::new());
    for entry in entries {
        match serde_json::from_value(entry.clone()) {
            Ok(silence) => known.push(silence),
            Err(error) => {
                tracing::warn!(%error, "an entry of {FILE} is not understood; it is kept, and has no effect");
                foreign.push(entry);
            }
        }
    }
    let is_kept = |entry: &Value| {
        entry["until_ms"].as_u64().is_some_and(|until_ms| until_ms > wall_ms)
            && entry.to_string().len() <= MAX_FOREIGN_BYTES
    };
    foreign.retain(is_kept);
    foreign.truncate(MAX_FOREIGN);
    Ok(Content { known, foreign, place: place(dir) })
}

/// Returns device and inode of the directory of the file; `None` if there is no file.
fn place(dir: &StateDir) -> Option<(u64, u64)> {
    regular_file::identity(&dir.path().join(FILE))?;
    // A symbolic link that is replaced is another place.
    regular_file::identity(&dir.path().canonicalize().ok()?)
}

/// Renames a damaged file, so that the next change does not overwrite it. Returns its entries: none.
fn set_aside(dir: &StateDir, error: &serde_json::Error) -> io::Result<Vec<Value>> {
    let path = dir.path().join(FILE);
    let kept = dir.path().join(DAMAGED);
    std::fs::rename(&path, &kept)?;
    tracing::warn!(
        %error,
        path = %path.display(),
        kept = %kept.display(),
        "the silences of findings cannot be read: no finding is silenced; the file was renamed"
    );
    Ok(Vec::new())
}

/// Stores the silences, and the entries of other versions.
fn write(dir: &StateDir, list: &[Silence], foreign: &[Value]) -> io::Result<()> {
    let entries: serde_json::Result<Vec<Value>> = list.iter().map(serde_json::to_value).collect();
    let mut entries = entries?;
    entries.extend_from_slice(foreign);
    dir.replace(FILE, &serde_json::to_vec(&entries)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn request(for_s: u32) -> SilenceRequest {
        SilenceRequest { kind: None, job: Some(JobId(17)), for_s }
    }

    fn job() -> Job {
        Job::new(JobId(17), "alice".into(), nodeglass_protocol::job::JobState::Running)
    }

    #[tokio::test]
    async fn a_job_that_is_not_listed_is_said_to_be() {
        let (events, _received) = mpsc::channel(4);
        let response = Silences::open(None, 0).change(request(60), &[], 1_000, &events).await;
        let expected = "silenced for 1 min: all findings of job 17; there is no such job in the list yet; it is forgotten when the relay stops";
        assert_eq!(response, Response::Done(expected.into()));
    }

    #[tokio::test]
    async fn silences_survive_a_restart_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let dir = || Some(StateDir::at(folder.path().join("state")).unwrap());
        let (events, mut received) = mpsc::channel(4);
        let silences = Silences::open(dir(), 0);
        let response = silences.change(request(7_200), &[job()], 1_000, &events).await;
        assert_eq!(response, Response::Done("silenced for 2 h: all findings of job 17".into()));
        assert!(matches!(received.recv().await, Some(Event::Silences(list)) if list.len() == 1));
        assert_eq!(Silences::open(dir(), 2_000).list(), silences.list());
        assert!(Silences::open(dir(), 10_000_000).list().is_empty(), "it has ended");
        assert_eq!(
            silences.change(request(0), &[job()], 2_000, &events).await,
            Response::Done("no longer silenced: all findings of job 17".into())
        );
        assert!(Silences::open(dir(), 2_000).list().is_empty());
    }

    #[tokio::test]
    async fn the_end_of_a_silence_states_what_remains() {
        let (events, _received) = mpsc::channel(8);
        let silences = Silences::open(None, 0);
        let change = async |kind, job: Option<u32>, for_s| {
            let request = SilenceRequest { kind, job: job.map(JobId), for_s };
            match silences.change(request, &[], 1_000, &events).await {
                Response::Done(done) => done.to_string(),
                other => format!("{other:?}"),
            }
        };
        let thermal = Some(FindingKind::Thermal);
        change(thermal, None, 60).await;
        change(thermal, Some(17), 60).await;
        assert_eq!(
            change(thermal, Some(17), 0).await,
            "no longer silenced: thermal of job 17; still silenced: thermal of all jobs"
        );
        assert_eq!(
            change(thermal, Some(18), 0).await,
            "there is no silence for thermal of job 18; still silenced: thermal of all jobs"
        );
        assert_eq!(change(None, Some(18), 0).await, "there is no silence for all findings of job 18");
        assert_eq!(change(thermal, None, 0).await, "no longer silenced: thermal of all jobs");
    }

    #[test]
    fn what_could_not_be_set_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state")).unwrap();
        let of = |job: Option<u32>, until_ms| Silence { kind: None, job: job.map(JobId), until_ms };
        write(&dir, &[of(None, 5_000), of(Some(1), u64::MAX), of(Some(2), 5_000)], &[]).unwrap();
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
    async fn what_only_a_newer_relay_knows_stays_in_the_file_until_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state")).unwrap();
        let foreign = r#"{"job":1,"kind":"of_a_newer_relay","until_ms":5000}"#;
        let expired = r#"{"job":1,"kind":"of_a_newer_relay","until_ms":900}"#;
        std::fs::write(dir.path().join(FILE), format!("[{foreign},{expired}]")).unwrap();
        let (events, _received) = mpsc::channel(4);
        Silences::open(Some(dir.clone()), 1_000).change(request(60), &[], 1_000, &events).await;
        let stored = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(stored.contains(foreign) && !stored.contains(expired), "{stored}");
        assert_eq!(Silences::open(Some(dir), 1_000).list().len(), 1);
    }

    #[tokio::test]
    async fn f24_silences_of_a_directory_that_becomes_usable_later_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let dir = StateDir::at(&path).unwrap();
        let older = Silence { kind: None, job: Some(JobId(2)), until_ms: 5_000 };
        write(&dir, std::slice::from_ref(&older), &[]).unwrap();
        let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o777);
        let (events, mut received) = mpsc::channel(8);
        let silences = Silences::open(Some(dir.clone()), 1_000);
        let response = silences.change(request(60), &[job()], 1_000, &events).await;
        let expected = "silenced for 1 min: all findings of job 17; it is not stored yet, and until then ends with the relay";
        assert_eq!(response, Response::Done(expected.into()));
        let response = silences.change(request(0), &[job()], 1_000, &events).await;
        let expected = "no longer silenced: all findings of job 17; it is not stored yet: until then, the next relay may silence it again";
        assert_eq!(response, Response::Done(expected.into()));
        silences.change(request(120), &[job()], 1_000, &events).await;
        let why = silences.retry(1_000, &events).await.unwrap();
        assert!(why.as_str().contains("is not yours alone"), "{why}");
        allow(0o700);
        assert_eq!(silences.retry(1_000, &events).await, None);
        let mut told = Vec::new();
        while let Ok(Event::Silences(list)) = received.try_recv() {
            told = list;
        }
        let stored = Silences::open(Some(dir), 1_000).list();
        assert_eq!((&told, &stored), (&silences.list(), &silences.list()));
        assert_eq!(stored.len(), 2);
        assert!(stored.contains(&older));
    }

    #[tokio::test]
    async fn f24_silences_survive_a_directory_that_is_moved_away_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let [path, away] = ["state", "away"].map(|name| folder.path().join(name));
        let dir = || Some(StateDir::at(&path).unwrap());
        let (events, _received) = mpsc::channel(8);
        let silences = Silences::open(dir(), 1_000);
        let of = |job| SilenceRequest { job: Some(JobId(job)), ..request(60) };
        let jobs = |silences: &Silences| {
            silences.list().iter().filter_map(|silence| Some(silence.job?.0)).collect::<Vec<_>>()
        };
        silences.change(of(1), &[], 1_000, &events).await;
        std::fs::rename(&path, &away).unwrap();
        silences.change(of(2), &[], 1_000, &events).await;
        assert_eq!(jobs(&silences), [1, 2], "a missing file ends nothing");
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert_eq!(silences.retry(1_000, &events).await, None);
        assert_eq!(jobs(&silences), [1, 2]);
        assert_eq!(jobs(&Silences::open(dir(), 1_000)), [1, 2], "what the old file lacks is stored again");
        std::fs::remove_file(path.join(FILE)).unwrap();
        assert_eq!(silences.retry(1_000, &events).await, None);
        assert_eq!(jobs(&Silences::open(dir(), 1_000)), [1, 2]);
    }

    #[tokio::test]
    async fn f27_relays_that_share_a_directory_keep_the_silences_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let dir = || Some(StateDir::at(folder.path().join("state")).unwrap());
        let (events, _received) = mpsc::channel(8);
        let (first, second) = (Silences::open(dir(), 1_000), Silences::open(dir(), 1_000));
        let of = |job| SilenceRequest { job: Some(JobId(job)), ..request(60) };
        first.change(of(1), &[], 1_000, &events).await;
        second.change(of(2), &[], 1_000, &events).await;
        let jobs = |silences: &Silences| {
            silences.list().iter().filter_map(|silence| Some(silence.job?.0)).collect::<Vec<_>>()
        };
        assert_eq!(jobs(&Silences::open(dir(), 1_000)), [1, 2]);
        // What another relay has ended is not stored again.
        second.change(SilenceRequest { for_s: 0, ..of(1) }, &[], 1_000, &events).await;
        first.change(of(3), &[], 1_000, &events).await;
        assert_eq!((jobs(&first), jobs(&Silences::open(dir(), 1_000))), (vec![2, 3], vec![2, 3]));
    }

    #[tokio::test]
    async fn a_damaged_file_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::at(folder.path().join("state")).unwrap();
        std::fs::write(dir.path().join(FILE), "[{").unwrap();
        let silences = Silences::open(Some(dir.clone()), 0);
        assert!(silences.list().is_empty());
        assert_eq!(std::fs::read_to_string(dir.path().join(DAMAGED)).unwrap(), "[{");
        let (events, _received) = mpsc::channel(4);
        silences.change(request(60), &[], 1_000, &events).await;
        assert_eq!(Silences::open(Some(dir), 1_000).list().len(), 1);
    }
}
