//! Login names of uids. A directory service may be slow or hang, so lookups run on a thread with a
//! short timeout.

use nix::unistd::{Uid, User};
use nodeglass_protocol::Text;
use nodeglass_rules::backoff::exponential;
use std::{
    collections::HashMap,
    sync::{
        LazyLock, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Maximum time that a caller waits for a name; zero while an earlier lookup is overdue.
const WAIT: Duration = Duration::from_millis(100);
/// Delay before a failed lookup is repeated, which doubles each time up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// Maximum delay before a failed lookup is repeated.
const LAST_RETRY: Duration = Duration::from_secs(600);
/// Stack size of the thread, on which NSS modules run.
const STACK: usize = 1 << 20;

/// Returns the login name of a uid, or its digits until the user database returns a name. Never
/// blocks for long; the name may be available at a later call.
pub fn name(uid: u32) -> Text {
    static USERS: LazyLock<Mutex<Users>> = LazyLock::new(|| Mutex::new(Users::new(look_up)));
    let known = USERS.lock().unwrap_or_else(PoisonError::into_inner).name(uid, Instant::now());
    known.unwrap_or_else(|| uid.to_string().into())
}

/// Queries the system's user database (`getpwuid_r`), which may block.
fn look_up(uid: u32) -> Option<Text> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name.into())
}

/// Cache of names.
struct Users {
    known: HashMap<u32, Known>,
    requests: Sender<u32>,
    results: Receiver<(u32, Option<Text>)>,
    /// Whether a lookup exceeded [`WAIT`] and none has finished since.
    overdue: bool,
}

/// State of a uid.
#[derive(Default)]
struct Known {
    name: Option<Text>,
    is_asked: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

impl Users {
    fn new(mut look_up: impl FnMut(u32) -> Option<Text> + Send + 'static) -> Self {
        let (requests, inbox) = channel();
        let (outbox, results) = channel();
        let resolve = move || {
            for uid in inbox {
                if outbox.send((uid, look_up(uid))).is_err() {
                    return;
                }
            }
        };
        // Without a thread, uids remain digits.
        let _ = thread::Builder::new().name("users".into()).stack_size(STACK).spawn(resolve);
        Self { known: HashMap::new(), requests, results, overdue: false }
    }

    fn name(&mut self, uid: u32, now: Instant) -> Option<Text> {
        while let Ok((uid, name)) = self.results.try_recv() {
            self.learn(uid, name, now);
        }
        let known = self.known.entry(uid).or_default();
        if known.name.is_some() {
            return known.name.clone();
        }
        if !known.is_asked && known.retry_at.is_none_or(|at| now >= at) {
            known.is_asked = self.requests.send(uid).is_ok();
        }
        self.wait_for(uid, now);
        self.known.get(&uid).and_then(|known| known.name.clone())
    }

    /// Waits briefly for a pending lookup, so that a fast database yields a name immediately.
    fn wait_for(&mut self, uid: u32, now: Instant) {
        let until = Instant::now() + WAIT;
        while !self.overdue && self.known.get(&uid).is_some_and(|known| known.is_asked) {
            match self.results.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((uid, name)) => self.learn(uid, name, now),
                Err(_) => self.overdue = true,
            }
        }
    }

    fn learn(&mut self, uid: u32, name: Option<Text>, now: Instant) {
        self.overdue = false;
        let known = self.known.entry(uid).or_default();
        known.is_asked = false;
        if name.is_none() {
            known.failures += 1;
            known.retry_at = Some(now + exponential(FIRST_RETRY, known.failures, LAST_RETRY));
        }
        known.name = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_users_are_shown_by_uid() {
        assert_eq!(name(0).as_str(), "root");
        assert_eq!(name(3_999_999_999).as_str(), "3999999999");
    }

    #[test]
    fn a_hung_lookup_delays_one_caller_once() {
        let (go, gate) = channel::<()>();
        let mut users = Users::new(move |uid| {
            gate.recv().ok();
            Some(format!("user{uid}").into())
        });
        let now = Instant::now();
        assert_eq!(users.name(7, now), None);
        assert!(users.overdue);
        // No waiting while an earlier lookup is overdue, otherwise this would take a minute and a
        // half.
        for uid in 7..1_000 {
            assert_eq!(users.name(uid, now), None);
        }
        drop(go);
        while users.name(999, now).is_none() {
            thread::yield_now();
        }
        assert_eq!(users.name(7, now), Some("user7".into()));
    }

    #[test]
    fn failed_name_lookups_are_repeated_with_backoff() {
        let mut lookups = 0;
        let mut users = Users::new(move |_| {
            lookups += 1;
            (lookups > 3).then(|| "alice".into())
        });
        let start = Instant::now();
        let mut at = |second: u64| users.name(7, start + Duration::from_secs(second)).is_some();
        // Looked up in vain at 0, 10 and 30 s, then at 70 s.
        assert!([0, 9, 10, 29, 30, 69].iter().all(|second| !at(*second)));
        assert!(at(70) && at(71));
    }
}
