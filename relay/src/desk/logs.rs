//! Each log that somebody follows is looked at once a second, once for all who follow it, where it can be read.

use super::reader::{Look, Reader, Unread};
use super::scroll::{Mark, Scroll};
use crate::access::user;
use crate::hub::Hub;
use crate::nodes::Probes;
use nodeglass_logfile::FileId;
use nodeglass_protocol::Text;
use nodeglass_protocol::ask::{Answer, Audience, LogRef, LogStream, ProbeAsk, Tail};
use nodeglass_protocol::job::{Job, JobState};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Time between two looks at a log.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A file that was last written so long before its job started is another job's.
const OLDER_S: i64 = 120;

/// The logs that are followed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Logs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hub: Hub,
    probes: Probes,
    /// Name of this machine, if logs may lie on it.
    here: Option<Text>,
    /// The login name of the owner.
    owner: Text,
    reader: Reader,
    shared: Mutex<HashMap<(LogRef, Recipient), Arc<Shared>>>,
}

/// Who follows a log. What the owner may read is not a guest's to see, so that each has a look of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recipient {
    /// The owner of the relay.
    Owner,
    /// The holders of shares that show the log.
    Guest,
}

/// What all who follow a log share.
#[derive(Debug)]
struct Shared {
    scroll: Mutex<Scroll>,
    changed: watch::Sender<()>,
}

/// A log that is followed; dropping it is leaving.
#[derive(Debug)]
pub struct Followed {
    of: LogRef,
    shared: Arc<Shared>,
    changed: watch::Receiver<()>,
    mark: Mark,
}

impl Followed {
    /// Which log.
    pub fn of(&self) -> LogRef {
        self.of
    }

    /// What came to its end since the last time. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Tail {
        loop {
            let told = lock(&self.shared.scroll).read(&mut self.mark);
            if let Some(tail) = told {
                return tail;
            }
            if self.changed.changed().await.is_err() {
                // The sender lives in `shared`, which is held here.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Logs {
    /// No logs yet; `here` is the name of this machine if logs may lie on it, `owner` whose relay this is.
    pub fn new(hub: Hub, probes: Probes, here: Option<Text>, owner: Text) -> Self {
        let (reader, shared) = (Reader::default(), Mutex::default());
        Self(Arc::new(Inner { hub, probes, here, owner, reader, shared }))
    }

    /// Follows a log. Whether its job is in sight of a guest is for the caller to know.
    pub fn follow(&self, of: LogRef, recipient: Recipient) -> Followed {
        let mut all = lock(&self.0.shared);
        let shared = all.entry((of, recipient)).or_insert_with(|| {
            let shared = Arc::new(Shared { scroll: Mutex::default(), changed: watch::channel(()).0 });
            tokio::spawn(Tailing::new(self.clone(), of, recipient, shared.clone()).keep());
            shared
        });
        Followed { of, shared: shared.clone(), changed: shared.changed.subscribe(), mark: Mark::default() }
    }

    /// Whether nobody follows a log any more; it is forgotten then.
    fn is_left(&self, of: LogRef, recipient: Recipient, shared: &Shared) -> bool {
        let mut all = lock(&self.0.shared);
        let left = shared.changed.receiver_count() == 0;
        if left {
            all.remove(&(of, recipient));
        }
        left
    }

    /// How many logs are looked at.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        lock(&self.0.shared).len()
    }
}

impl Inner {
    /// Whether a job is the owner's; `None` while the system cannot tell. By uid, for the name of who runs a relay comes
    /// from the environment; a script has names only.
    async fn is_owners(&self, job: &Job) -> Option<bool> {
        if self.here.is_none() {
            return Some(job.user == self.owner);
        }
        let user = job.user.clone();
        let looked_up = tokio::task::spawn_blocking(move || user::look_up(user.as_str())).await;
        let uid = looked_up.ok()?.ok()?;
        Some(uid == Some(rustix::process::geteuid().as_raw()))
    }
}

/// A panic while the lock was held cannot leave what it guards half-changed: each change is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the last look found the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Here(FileId),
    OnNode,
}

/// The task that looks at one log.
struct Tailing {
    logs: Logs,
    of: LogRef,
    recipient: Recipient,
    shared: Arc<Shared>,
    place: Place,
    /// Where the last look ended.
    after: u64,
    /// Whether the job is the owner's, once that is known.
    is_owners: Option<bool>,
    /// Why guests were refused last: the relay's log has each reason once.
    refused: Option<Text>,
}

impl Tailing {
    fn new(logs: Logs, of: LogRef, recipient: Recipient, shared: Arc<Shared>) -> Self {
        let place = Place::Nowhere;
        Self { logs, of, recipient, shared, place, after: 0, is_owners: None, refused: None }
    }

    /// Looks until nobody follows the log any more.
    async fn keep(mut self) {
        let mut looks = interval(LOOK_EVERY);
        // A look that took long is not made up for.
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if self.logs.is_left(self.of, self.recipient, &self.shared) {
                return;
            }
            let tail = match self.look().await {
                Ok(tail) => tail,
                Err(why) => {
                    self.note_refusal(&why);
                    Tail { trouble: Some(why), end: self.after, ..Tail::default() }
                }
            };
            if lock(&self.shared.scroll).take(tail) {
                self.shared.changed.send_replace(());
            }
        }
    }

    /// One look, here or by the probe of the node where the script runs.
    async fn look(&mut self) -> Result<Tail, Text> {
        let inner = self.logs.0.clone();
        let Some(job) = inner.hub.job(self.of.job).await else {
            return Err(format!("there is no job {} in the list", self.of.job).into());
        };
        let stream = match self.of.stream {
            LogStream::Stdout => &job.stdout,
            LogStream::Stderr => &job.stderr,
        };
        let path = stream.as_ref().ok_or_else(|| unknown(&job))?.to_string();
        if path == "/dev/null" {
            return Err("the job keeps nothing of this: SLURM was told to write it to /dev/null".into());
        }
        let audience = self.audience(&inner, &job).await?;
        let not_here = match self.look_here(&inner, &path, &job, audience).await {
            Ok(tail) => return Ok(tail),
            Err(why) => why,
        };
        self.look_there(&inner, path, &job, not_here, audience).await
    }

    /// What holds for this look. The owner's rights show guests the logs of the owner's own jobs and nothing else.
    async fn audience(&mut self, inner: &Inner, job: &Job) -> Result<Audience, Text> {
        if self.recipient == Recipient::Owner {
            return Ok(Audience::Owner);
        }
        if self.is_owners.is_none() {
            self.is_owners = inner.is_owners(job).await;
        }
        match self.is_owners {
            Some(true) => {}
            Some(false) => return Err("guests are not shown the logs of other users' jobs".into()),
            None => return Err("the system does not tell now whose job it is".into()),
        }
        // The start of a pending job is only expected.
        let since_s = job.start.filter(|_| job.state != JobState::Pending).ok_or_else(|| unknown(job))?;
        Ok(Audience::Guest { since_s })
    }

    /// Tells the owner, in the relay's log, why guests do not see a log that the owner may see.
    fn note_refusal(&mut self, why: &Text) {
        if self.recipient == Recipient::Guest && self.refused.as_ref() != Some(why) {
            tracing::info!(job.id = %self.of.job, %why, "a log is not shown to guests");
            self.refused = Some(why.clone());
        }
    }

    async fn look_here(
        &mut self,
        inner: &Inner,
        path: &str,
        job: &Job,
        audience: Audience,
    ) -> Result<Tail, NotHere> {
        let Some(here) = &inner.here else { return Err(NotHere::default()) };
        // Once its node has told it, this machine is not asked for another file of that name.
        if self.place == Place::OnNode && job.is_active() {
            return Err(NotHere::default());
        }
        let (after, before) = match self.place {
            Place::Here(file) => (self.after, Some(file)),
            Place::Nowhere | Place::OnNode => (0, None),
        };
        match inner.reader.look(path.to_owned(), after, before, audience).await {
            // A file that took the name of the one before may be another job's as well.
            Ok(look) if before != Some(look.file) && is_of_another(&look, job) => {
                Err(NotHere { older: Some(look), why: None })
            }
            Ok(look) => Ok(self.found(look)),
            Err(Unread::Missing) => {
                Err(NotHere { older: None, why: Some(format!("no such file on {here}")) })
            }
            Err(Unread::Because(why)) => Err(NotHere { older: None, why: Some(format!("on {here} {why}")) }),
        }
    }

    async fn look_there(
        &mut self,
        inner: &Inner,
        path: String,
        job: &Job,
        not_here: NotHere,
        audience: Audience,
    ) -> Result<Tail, Text> {
        let why_not = not_here.why.unwrap_or_default();
        let Some(node) = job.batch_host.as_ref().or(job.nodes.first()).filter(|_| job.is_active()) else {
            return match not_here.older {
                Some(look) => Ok(self.found(look)),
                None => Err(sentence(&path, &[&why_not])),
            };
        };
        let after = if self.place == Place::OnNode { self.after } else { 0 };
        let ask = ProbeAsk::Tail { path: path.clone(), after, audience };
        let why = match inner.probes.ask(node, ask).await {
            Answer::Tail(Tail { trouble: Some(why), .. }) | Answer::Refused(why) => why.to_string(),
            Answer::Tail(mut tail) => {
                tail.restarted |= matches!(self.place, Place::Here(_));
                (self.place, self.after) = (Place::OnNode, tail.end);
                return Ok(tail);
            }
            Answer::Done(_) | Answer::Process(_) | Answer::Share(_) => {
                "its probe answered another question".to_owned()
            }
        };
        match not_here.older {
            Some(look) => Ok(self.found(look)),
            None => Err(sentence(&path, &[&why_not, &format!("on {node}: {why}")])),
        }
    }

    /// Goes on with a file of this machine.
    fn found(&mut self, mut look: Look) -> Tail {
        look.tail.restarted |= self.place == Place::OnNode;
        (self.place, self.after) = (Place::Here(look.file), look.tail.end);
        look.tail
    }
}

/// Why a log is not read on this machine.
#[derive(Default)]
struct NotHere {
    why: Option<String>,
    /// A file of that name which is older than the job: better than nothing.
    older: Option<Look>,
}

/// Whether a file was written last long before the job that is to write it started.
fn is_of_another(look: &Look, job: &Job) -> bool {
    job.start.is_some_and(|start| job.is_active() && look.written_s < start - OLDER_S)
}

fn unknown(job: &Job) -> Text {
    match job.state {
        JobState::Pending => "it has written nothing yet: it waits to be started".into(),
        _ => "SLURM does not say where it writes".into(),
    }
}

/// `/path: no such file on login1; on gpu-01: …`
fn sentence(path: &str, whys: &[&str]) -> Text {
    let whys: Vec<&str> = whys.iter().copied().filter(|why| !why.is_empty()).collect();
    let whys = if whys.is_empty() { "it cannot be read from here".to_owned() } else { whys.join("; ") };
    // The reason counts; a path may be longer than a text.
    let path: String = path.chars().rev().take(100).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{path}: {whys}").into()
}

#[cfg(test)]
mod tests;
