//! Follows the file that lists machines: reads it again when it changes, and keeps the last list while it
//! cannot be read, or is empty.

use super::entry::Entry;
use super::file;
use super::list::{Builder, HostList, ThisMachine};
use nodeglass_protocol::Text;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Intervals of reading files.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The interval of checks, each of which is one `stat`, which NFS serves from its cache.
    check: Duration,
    /// A file that is being written is read again after this long, until it stays the same.
    settle: Duration,
    /// Maximum number of reads: a file that is rewritten all the time is used as it is.
    most_reads: u32,
    /// Time limit for a look at the file, so that a file server that is down is reported.
    limit: Duration,
}

const PACE: Pace = Pace {
    check: Duration::from_secs(3),
    settle: Duration::from_millis(400),
    most_reads: 6,
    limit: Duration::from_secs(10),
};
/// A file this young is read even if its times are the same: some file systems count whole seconds.
const YOUNG: Duration = Duration::from_secs(5);
/// Reason for keeping the last list of a file without any content: an editor or a script has truncated it.
const EMPTY: &str = "it is empty (write a comment into it if no machine is meant)";
/// Reason for not reading a file whose file server is down.
const NO_ANSWER: &str = "the file system does not respond";
/// Number of problems that the page shows, and that the terminal prints.
const ON_PAGE: usize = 6;
const ON_TERMINAL: usize = 64;

/// The machines that the command line and a file list.
#[derive(Debug)]
pub struct HostSource {
    flags: Vec<Entry>,
    path: Option<PathBuf>,
    this_machine: ThisMachine,
    /// The text of the last list, and the file's identity when it was read.
    text: String,
    stamp: Option<Stamp>,
    /// Reason for not reading the file now.
    fault: Option<String>,
    files: Files,
    pace: Pace,
}

/// The machines to watch, and what the user should know about the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The list.
    pub list: HostList,
    /// Entries that are not watched, with the reasons, and whether the file cannot be read; complete sentences.
    pub notices: Vec<Text>,
    /// The notices with fewer problems of single lines, for the page.
    pub short_notices: Vec<Text>,
}

/// Error of reading the first list.
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
        Self {
            flags,
            path,
            this_machine,
            text: String::new(),
            stamp: None,
            fault: None,
            files: Files::new(look),
            pace: PACE,
        }
    }

    /// Reads the list for the first time.
    ///
    /// # Errors
    /// [`UnreadableHosts`] if the file cannot be read.
    pub async fn load(&mut self) -> Result<Listed, UnreadableHosts> {
        let Some(path) = self.path.clone() else { return Ok(self.listed()) };
        let look = self.files.look(&path, None, self.pace.limit).await;
        let text = look.text.unwrap_or_else(|| Err(NO_ANSWER.to_owned()));
        self.text = text.map_err(|why| UnreadableHosts { path, why })?;
        self.stamp = look.stamp;
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
        let Some((stamp, text)) = self.settled(path).await else { return false };
        self.stamp = stamp;
        let is_blank = |text: &str| text.trim().is_empty();
        match text {
            Ok(text) if is_blank(&text) && !is_blank(&self.text) => {
                self.fault.replace(EMPTY.to_owned()).as_deref() != Some(EMPTY)
            }
            Ok(text) => {
                let was_fault = self.fault.take().is_some();
                let is_new = std::mem::replace(&mut self.text, text.clone()) != text;
                was_fault || is_new
            }
            Err(why) => self.fault.replace(why.clone()) != Some(why),
        }
    }

    /// Reads the file until it stays the same, because it may be half written. `None` if it has not changed since it
    /// was read.
    async fn settled(&mut self, path: &Path) -> Option<(Option<Stamp>, Result<String, String>)> {
        let mut last = self.files.look(path, self.stamp.clone(), self.pace.limit).await;
        last.text.as_ref()?;
        for _ in 1..self.pace.most_reads {
            sleep(self.pace.settle).await;
            let again = self.files.look(path, None, self.pace.limit).await;
            if again == last {
                break;
            }
            last = again;
        }
        last.text.map(|text| (last.stamp, text))
    }

    /// The list as of the last text.
    fn listed(&self) -> Listed {
        let mut builder = Builder::new(&self.this_machine);
        builder.flags(&self.flags);
        if let Some(path) = &self.path {
            builder.file(path, &self.text);
        }
        let list = builder.finish();
        let fault = self.fault_notice(&list);
        let with_fault = |problems: Vec<Text>| fault.iter().cloned().chain(problems).collect();
        let notices = with_fault(list.problems.summary(ON_TERMINAL, "correct these first"));
        let short_notices = with_fault(list.problems.summary(ON_PAGE, "the relay's terminal shows them"));
        Listed { list, notices, short_notices }
    }

    /// Explains why the file, or the whole list, is of no use now.
    fn fault_notice(&self, list: &HostList) -> Option<Text> {
        if let (Some(path), Some(why)) = (&self.path, &self.fault) {
            let path = path.display();
            let notice = format!(
                "the list of machines {path} cannot be read: {why}; the machines that it listed before are still watched"
            );
            Some(Text::new(notice))
        } else if let (Some(path), true) = (&self.path, list.hosts.is_empty()) {
            Some(Text::new(format!("{} lists no machine that can be watched", path.display())))
        } else {
            None
        }
    }
}

impl Stamp {
    fn is_young(&self) -> bool {
        let modified = Duration::from_secs(self.modified.0.try_into().unwrap_or_default());
        // A time in the future is from another clock, and is not comparable.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + modified).is_ok_and(|age| age < YOUNG)
    }
}

/// Result of a look at a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    stamp: Option<Stamp>,
    /// Its text, or why it cannot be read; `None` if it has not changed.
    text: Option<Result<String, String>>,
}

/// Looks at a file; reads it unless it is `known` and old.
type LookFn = fn(&Path, known: Option<&Stamp>) -> Look;

/// Looks at files on threads that end with the process: a file server that is down must not delay the relay's exit.
/// At most one call is in progress, so a hanging call does not leave a thread behind with every check.
#[derive(Debug)]
struct Files {
    look: LookFn,
    pending: Option<oneshot::Receiver<Look>>,
}

impl Files {
    fn new(look: LookFn) -> Self {
        Self { look, pending: None }
    }

    /// Looks at a file, or waits for the call that hangs. Without an answer within the limit, the text is an error.
    async fn look(&mut self, path: &Path, known: Option<Stamp>, limit: Duration) -> Look {
        let failed = |why: String| Look { stamp: None, text: Some(Err(why)) };
        let pending = match self.pending.take().map_or_else(|| self.begin(path.to_owned(), known), Ok) {
            Ok(pending) => self.pending.insert(pending),
            Err(error) => return failed(format!("a thread cannot be started: {error}")),
        };
        let Ok(result) = timeout(limit, pending).await else { return failed(NO_ANSWER.to_owned()) };
        self.pending = None;
        result.unwrap_or_else(|_| failed("reading it failed".to_owned()))
    }

    fn begin(&self, path: PathBuf, known: Option<Stamp>) -> io::Result<oneshot::Receiver<Look>> {
        let ((reply, result), look) = (oneshot::channel(), self.look);
        let call = move || drop(reply.send(look(&path, known.as_ref())));
        thread::Builder::new().name("hosts".to_owned()).spawn(call)?;
        Ok(result)
    }
}

fn look(path: &Path, known: Option<&Stamp>) -> Look {
    let stamp = stamp(path);
    let is_known = stamp.is_some() && stamp.as_ref() == known && !stamp.as_ref().is_some_and(Stamp::is_young);
    let text = (!is_known).then(|| file::read(path).map_err(|error| error.to_string()));
    Look { stamp, text }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some(Stamp {
        inode: (found.dev(), found.ino()),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    };
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
            source.pace = Pace { check: Duration::from_millis(5), settle: Duration::from_millis(5), ..PACE };
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
    async fn an_emptied_file_keeps_the_last_list_and_one_with_comments_alone_has_none() {
        let mut scene = Scene::new("gpu1\n").await;
        for content in ["", " \n\n"] {
            fs::write(scene.path(), content).unwrap();
            let listed = scene.source.changed().await;
            assert_eq!(names(&listed), ["gpu1"]);
            let notice = listed.notices[0].as_str();
            assert!(notice.contains("it is empty (") && notice.contains("still watched"), "{notice}");
            fs::write(scene.path(), "gpu1\n").unwrap();
            assert!(scene.source.changed().await.notices.is_empty());
        }
        fs::write(scene.path(), "# none at present\n").unwrap();
        let listed = scene.source.changed().await;
        assert!(names(&listed).is_empty());
        assert!(listed.notices[0].as_str().ends_with("lists no machine that can be watched"));
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
    async fn a_file_that_is_rewritten_all_the_time_is_read_nevertheless() {
        let mut scene = Scene::new("gpu1\n").await;
        let (path, is_over) = (scene.path(), Arc::new(AtomicBool::new(false)));
        let writer = thread::spawn({
            let is_over = is_over.clone();
            move || {
                for turn in (2..).take_while(|_| !is_over.load(Relaxed)) {
                    fs::write(&path, format!("gpu1\ngpu{turn}\n")).unwrap();
                }
            }
        });
        let listed = timeout(Duration::from_secs(60), scene.source.changed()).await;
        is_over.store(true, Relaxed);
        writer.join().unwrap();
        listed.expect("it is never read");
    }

    /// Held by the test while looks at the file hang, and their number.
    static FILE_SERVER: Mutex<()> = Mutex::new(());
    static LOOKS: AtomicUsize = AtomicUsize::new(0);

    #[tokio::test]
    async fn a_look_that_hangs_is_reported_and_waited_for_by_later_ones() {
        let mut scene = Scene::new("gpu1\n").await;
        scene.source.pace.limit = Duration::from_millis(20);
        scene.source.files = Files::new(|path, known| {
            LOOKS.fetch_add(1, Relaxed);
            drop(FILE_SERVER.lock());
            look(path, known)
        });
        let down = FILE_SERVER.lock();
        let listed = scene.source.changed().await;
        assert_eq!(names(&listed), ["gpu1"]);
        assert!(listed.notices[0].as_str().contains(NO_ANSWER), "{:?}", listed.notices);
        fs::write(scene.path(), "gpu1\ngpu2\n").unwrap();
        // More checks report nothing new, and start no other thread.
        assert!(timeout(Duration::from_millis(200), scene.source.changed()).await.is_err());
        assert_eq!(LOOKS.load(Relaxed), 1);
        drop(down);
        let mut listed = scene.source.changed().await;
        while names(&listed) != ["gpu1", "gpu2"] {
            listed = scene.source.changed().await;
        }
        assert_eq!(listed.notices, [] as [Text; 0]);
    }

    #[tokio::test]
    async fn the_terminal_shows_every_problem_and_the_page_the_first_ones() {
        let lines: String = (0..30).map(|line| format!("bad host {line}\n")).collect();
        let scene = Scene::new(&format!("gpu1\n{lines}")).await;
        let listed = scene.source.listed();
        assert_eq!(listed.notices.len(), 30);
        assert_eq!(listed.short_notices.len(), ON_PAGE + 1);
        let last = listed.short_notices.last().unwrap().as_str();
        assert_eq!(last, "and 24 more problems in the list of machines; the relay's terminal shows them");
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
