//! Follows the file that lists machines: reads it again when it changes, and keeps the last list while it
//! cannot be read.

use super::entry::Entry;
use super::file::{self, FileError};
use super::list::{Builder, HostList, ThisMachine};
use nodeglass_protocol::Text;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::time::{sleep, timeout};

/// How often files are looked at.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The interval of checks, each of which is one `stat`, which NFS answers from its cache.
    check: Duration,
    /// A file that is being written is read again after this long, until it stays the same.
    settle: Duration,
}

const PACE: Pace = Pace { check: Duration::from_secs(3), settle: Duration::from_millis(400) };
/// A file this young is read even if its times are the same: some file systems count whole seconds.
const YOUNG: Duration = Duration::from_secs(5);
/// Time limit for the first read, so that a file server that is down does not stop the start silently.
const FIRST_READ_LIMIT: Duration = Duration::from_secs(10);
/// Number of problems that page and terminal show.
const SHOWN_PROBLEMS: usize = 6;

/// The machines that the command line and a file list.
#[derive(Debug)]
pub struct HostSource {
    flags: Vec<Entry>,
    path: Option<PathBuf>,
    this_machine: ThisMachine,
    /// The text of the last list, and the file's identity when it was read.
    text: String,
    stamp: Option<Stamp>,
    /// Why the file cannot be read now.
    fault: Option<String>,
    pace: Pace,
}

/// The machines to watch, and what the user should know about the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The list.
    pub list: HostList,
    /// What is not watched and why, and whether the file cannot be read; complete sentences.
    pub notices: Vec<Text>,
}

/// Why there is no first list.
#[derive(Debug, thiserror::Error)]
#[error("the list of machines {} cannot be read: {why}", path.display())]
pub struct UnreadableHosts {
    path: PathBuf,
    why: String,
}

/// Identity and times of a file; another one means that it may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl HostSource {
    /// Machines of flags and of a file, neither of which is read yet.
    pub fn new(flags: Vec<Entry>, path: Option<PathBuf>, this_machine: ThisMachine) -> Self {
        Self { flags, path, this_machine, text: String::new(), stamp: None, fault: None, pace: PACE }
    }

    /// Reads the list for the first time.
    ///
    /// # Errors
    /// [`UnreadableHosts`] if the file cannot be read.
    pub async fn load(&mut self) -> Result<Listed, UnreadableHosts> {
        let Some(path) = self.path.clone() else { return Ok(self.listed()) };
        let read = timeout(FIRST_READ_LIMIT, look(&path)).await;
        let (stamp, text) =
            read.unwrap_or_else(|_| (None, Err("the file system does not answer".to_owned())));
        self.text = text.map_err(|why| UnreadableHosts { path, why })?;
        self.stamp = stamp;
        Ok(self.listed())
    }

    /// Waits until the list or its readability changes. Pending forever without a file. Not cancel safe.
    pub async fn changed(&mut self) -> Listed {
        let Some(path) = self.path.clone() else { return std::future::pending().await };
        loop {
            sleep(self.pace.check).await;
            if self.is_changed(&path).await {
                return self.listed();
            }
        }
    }

    /// Reads the file again if it may have changed; returns whether there is news.
    async fn is_changed(&mut self, path: &Path) -> bool {
        let stamp = stamp(path).await;
        if stamp == self.stamp && !stamp.as_ref().is_some_and(Stamp::is_young) {
            return false;
        }
        let (stamp, text) = settled(path, self.pace.settle).await;
        self.stamp = stamp;
        match text {
            Ok(text) => {
                let was_fault = self.fault.take().is_some();
                let is_new = std::mem::replace(&mut self.text, text.clone()) != text;
                was_fault || is_new
            }
            Err(why) => self.fault.replace(why.clone()) != Some(why),
        }
    }

    /// The list as of the last text.
    fn listed(&self) -> Listed {
        let mut builder = Builder::new(&self.this_machine);
        builder.flags(&self.flags);
        if let Some(path) = &self.path {
            builder.file(path, &self.text);
        }
        let list = builder.finish();
        let mut notices = list.problems.summary(SHOWN_PROBLEMS);
        if let (Some(path), Some(why)) = (&self.path, &self.fault) {
            let path = path.display();
            let notice = format!(
                "the list of machines {path} cannot be read: {why}; the machines that it listed before are still watched"
            );
            notices.insert(0, Text::new(notice));
        } else if let (Some(path), true) = (&self.path, list.hosts.is_empty()) {
            notices.insert(0, Text::new(format!("{} lists no machine that can be watched", path.display())));
        }
        Listed { list, notices }
    }
}

impl Stamp {
    fn is_young(&self) -> bool {
        let modified = Duration::from_secs(self.modified.0.try_into().unwrap_or_default());
        // A time in the future is that of another clock, and says nothing.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + modified).is_ok_and(|age| age < YOUNG)
    }
}

/// Reads the file until it stays the same, so that no half of it is taken for the whole.
async fn settled(path: &Path, rest: Duration) -> (Option<Stamp>, Result<String, String>) {
    let mut last = look(path).await;
    loop {
        sleep(rest).await;
        let again = look(path).await;
        if again == last {
            return again;
        }
        last = again;
    }
}

/// The file's identity, and its text.
async fn look(path: &Path) -> (Option<Stamp>, Result<String, String>) {
    let stamp = stamp(path).await;
    let path = path.to_owned();
    let text = in_background(move || file::read(&path)).await;
    (stamp, text.unwrap_or_else(|error| Err(FileError::Io(error))).map_err(|error| error.to_string()))
}

async fn stamp(path: &Path) -> Option<Stamp> {
    let path = path.to_owned();
    let found = in_background(move || std::fs::metadata(path)).await.and_then(|found| found).ok()?;
    Some(Stamp {
        inode: (found.dev(), found.ino()),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// Runs a call that may hang on a thread that ends with the process: a file server that is down must not
/// delay the relay's exit.
async fn in_background<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (reply, result) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("hosts".to_owned()).spawn(move || reply.send(call()))?;
    result.await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;
    use std::fs;
    use tempfile::TempDir;

    struct Scene {
        dir: TempDir,
        source: HostSource,
    }

    impl Scene {
        async fn new(text: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hosts.txt");
            fs::write(&path, text).unwrap();
            let this_machine = ThisMachine { name: NodeName::new("login1").unwrap(), has_address: |_| false };
            let mut source = HostSource::new(Vec::new(), Some(path), this_machine);
            source.pace = Pace { check: Duration::from_millis(5), settle: Duration::from_millis(5) };
            source.load().await.unwrap();
            Self { dir, source }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("hosts.txt")
        }

        async fn names(&mut self) -> Vec<String> {
            names(&self.source.changed().await)
        }
    }

    fn names(listed: &Listed) -> Vec<String> {
        listed.list.hosts.iter().map(|host| host.node.to_string()).collect()
    }

    #[tokio::test]
    async fn a_changed_or_replaced_file_is_read_again() {
        let mut scene = Scene::new("gpu1\n").await;
        fs::write(scene.path(), "gpu1\ngpu2\n").unwrap();
        assert_eq!(scene.names().await, ["gpu1", "gpu2"]);
        fs::write(scene.dir.path().join("new"), "gpu3\n").unwrap();
        fs::rename(scene.dir.path().join("new"), scene.path()).unwrap();
        assert_eq!(scene.names().await, ["gpu3"]);
    }

    #[tokio::test]
    async fn a_deleted_file_keeps_the_last_list_and_says_so_once() {
        let mut scene = Scene::new("gpu1\n").await;
        fs::remove_file(scene.path()).unwrap();
        let listed = scene.source.changed().await;
        assert_eq!(names(&listed), ["gpu1"]);
        let notice = listed.notices[0].as_str();
        assert!(notice.contains("No such file") && notice.contains("still watched"), "{notice}");
        fs::create_dir(scene.path()).unwrap();
        assert!(scene.source.changed().await.notices[0].as_str().contains("a directory"));
        fs::remove_dir(scene.path()).unwrap();
        fs::write(scene.path(), "gpu1\n").unwrap();
        let listed = loop {
            let listed = scene.source.changed().await;
            if listed.notices.is_empty() {
                break listed;
            }
        };
        assert_eq!(names(&listed), ["gpu1"], "the same list, without the notice");
    }

    #[tokio::test]
    async fn an_emptied_file_stops_everything_and_says_so() {
        let mut scene = Scene::new("gpu1\n").await;
        fs::write(scene.path(), "# nothing\n").unwrap();
        let listed = scene.source.changed().await;
        assert!(listed.list.hosts.is_empty());
        assert!(listed.notices[0].as_str().ends_with("lists no machine that can be watched"));
    }

    #[tokio::test]
    async fn a_list_that_cannot_be_read_at_first_is_an_error() {
        let this_machine = ThisMachine { name: NodeName::new("login1").unwrap(), has_address: |_| false };
        let error =
            HostSource::new(Vec::new(), Some("/nowhere".into()), this_machine).load().await.unwrap_err();
        assert!(
            error.to_string().starts_with("the list of machines /nowhere cannot be read: No such file"),
            "{error}"
        );
    }
}
