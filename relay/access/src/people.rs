//! People by uid or login name, as NSS states them. A lookup may wait for a directory service, so that it runs on a
//! thread of its own; its result is kept for a while.

use super::user;
use nodeglass_protocol::Text;
use nodeglass_protocol::share::login_name;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// Time for which a person is known. A user who was removed is refused after it.
pub const KEEP: Duration = Duration::from_secs(60);
/// Time for which the absence of a user is known.
const KEEP_ABSENCE: Duration = Duration::from_secs(5);
/// Time limit for a lookup.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of lookups at the same time; those of a directory service that hangs occupy a thread each.
const MAX_LOOKUPS: usize = 8;
/// Maximum number of kept results.
const MAX_KNOWN: usize = 4_096;

/// A user of this machine. The name is the one that NSS states for the uid, as SLURM does for the owner of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The uid.
    pub uid: u32,
    /// The login name.
    pub name: Text,
}

/// A person before the lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The uid, which the kernel states.
    Uid(u32),
    /// The login name, which a trusted proxy states.
    Name(String),
}

/// Finds a person, and may block.
type LookUp = dyn Fn(&Question) -> Option<Person> + Send + Sync;

/// Looks people up.
pub struct People {
    look_up: Arc<LookUp>,
    known: Mutex<HashMap<Question, Known>>,
    lookups: Arc<Semaphore>,
}

/// The result of a lookup.
struct Known {
    person: Option<Person>,
    until: Instant,
}

impl Default for People {
    fn default() -> Self {
        Self::by(look_up)
    }
}

impl fmt::Debug for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("People").finish_non_exhaustive()
    }
}

impl People {
    /// Looks people up by this function, which may block.
    pub fn by(look_up: impl Fn(&Question) -> Option<Person> + Send + Sync + 'static) -> Self {
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        Self { look_up: Arc::new(look_up), known: Mutex::default(), lookups }
    }

    /// Finds a person; `None` if there is no such user, or if that is not known in time.
    pub async fn find(&self, question: Question) -> Option<Person> {
        let now = Instant::now();
        if let Some(known) = self.known().get(&question).filter(|known| known.until > now) {
            return known.person.clone();
        }
        let looked_up = timeout(TIME_LIMIT, async {
            let permit = self.lookups.clone().acquire_owned().await.ok()?;
            let (look_up, question) = (self.look_up.clone(), question.clone());
            // The thread holds the permit for as long as it waits, also after the time limit.
            spawn_blocking(move || {
                let _permit = permit;
                look_up(&question)
            })
            .await
            .ok()
        });
        let Ok(Some(person)) = looked_up.await else {
            tracing::warn!("the user database does not respond, so that a visitor was not identified");
            return None;
        };
        self.keep(question, person.clone());
        person
    }

    fn keep(&self, question: Question, person: Option<Person>) {
        let now = Instant::now();
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, known| known.until > now);
        }
        if known.len() < MAX_KNOWN {
            let keep = if person.is_some() { KEEP } else { KEEP_ABSENCE };
            known.insert(question, Known { person, until: now + keep });
        }
    }

    // Every change is a single step, so a panic elsewhere cannot leave the map inconsistent.
    fn known(&self) -> MutexGuard<'_, HashMap<Question, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks NSS. Of a name that a text would change, two users could have the same one, so that it is nobody's.
fn look_up(question: &Question) -> Option<Person> {
    let uid = match question {
        Question::Uid(uid) => *uid,
        Question::Name(name) => user::uid_of(login_name(name).ok()?.as_str())?,
    };
    let name = user::exact_name_of(uid)?;
    Some(Person { uid, name: login_name(&name).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn alice() -> Person {
        Person { uid: 2_001, name: "alice".into() }
    }

    #[tokio::test]
    async fn root_is_found_by_uid_and_by_name_and_nobody_else_is_made_up() {
        let people = People::default();
        let root = Person { uid: 0, name: "root".into() };
        for (question, person) in [
            (Question::Uid(0), Some(&root)),
            (Question::Name("root".into()), Some(&root)),
            (Question::Uid(4_000_000_000), None),
            (Question::Name("no-such-user-here".into()), None),
            (Question::Name("root\u{202e}".into()), None),
            (Question::Name(String::new()), None),
            (Question::Name(" root".into()), None),
        ] {
            assert_eq!(people.find(question.clone()).await.as_ref(), person, "{question:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_is_looked_up_again_after_a_while_and_an_absent_one_sooner() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let people = People::by(move |question| {
            counted.fetch_add(1, Ordering::Relaxed);
            (*question == Question::Uid(2_001)).then(alice)
        });
        let count = async |uid| {
            people.find(Question::Uid(uid)).await;
            calls.load(Ordering::Relaxed)
        };
        assert_eq!((count(2_001).await, count(2_001).await, count(7).await, count(7).await), (1, 1, 2, 2));
        tokio::time::advance(KEEP_ABSENCE).await;
        assert_eq!((count(7).await, count(2_001).await), (3, 3));
        tokio::time::advance(KEEP).await;
        assert_eq!(count(2_001).await, 4);
    }

    #[tokio::test]
    async fn the_number_of_kept_results_is_limited() {
        let people = People::by(|_| None);
        for uid in 0..MAX_KNOWN as u32 + 100 {
            people.find(Question::Uid(uid)).await;
        }
        assert_eq!(people.known().len(), MAX_KNOWN);
    }

    /// A directory service that hangs identifies nobody, and occupies a bounded number of threads.
    #[tokio::test(start_paused = true)]
    async fn a_directory_that_hangs_identifies_nobody_and_recovers() {
        let (release, wait) = mpsc::channel::<()>();
        let (wait, calls) = (Mutex::new(wait), Arc::new(AtomicUsize::new(0)));
        let counted = calls.clone();
        let people = Arc::new(People::by(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
            Some(alice())
        }));
        let visitors: Vec<_> = (0..20)
            .map(|uid| {
                tokio::spawn({
                    let people = people.clone();
                    async move { people.find(Question::Uid(uid)).await }
                })
            })
            .collect();
        while calls.load(Ordering::Relaxed) < MAX_LOOKUPS {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(TIME_LIMIT).await;
        for visitor in visitors {
            assert_eq!(visitor.await.unwrap(), None);
        }
        assert_eq!(calls.load(Ordering::Relaxed), MAX_LOOKUPS);
        drop(release);
        assert_eq!(people.find(Question::Uid(99)).await, Some(alice()));
    }
}
