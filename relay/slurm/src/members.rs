//! Members of accounts, as slurmdbd lists its associations: asked rarely, and forgotten when it no longer answers.

use super::command::{Client, CommandError, Output, Program};
use nodeglass_protocol::Text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The accounts of each user.
pub type Members = BTreeMap<Text, BTreeSet<Text>>;

/// Time between two queries. slurmdbd serves the whole site.
const INTERVAL: Duration = Duration::from_secs(600);
/// Largest random addition to it, so that the relays of several clusters do not ask at the same time.
const JITTER: Duration = Duration::from_secs(60);
/// Time between two queries while they fail.
const RETRY: Duration = Duration::from_secs(120);
/// Age at which the last list no longer applies.
const MAX_AGE: Duration = Duration::from_secs(1_800);
/// Time limit of a query; a site may have a hundred thousand associations.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Largest output of a query, in bytes. A larger one is refused.
pub const MAX_BYTES: usize = 32 << 20;

/// Keeps `members` up to date for as long as it is watched. Only associations of this cluster count: an account of another
/// one may have the same name and other members.
pub async fn follow(mut client: impl Client, cluster: Text, members: watch::Sender<Arc<Members>>) {
    let mut known_at = None;
    let mut failure = None;
    loop {
        let asked = Instant::now();
        let pause = match client.run(Program::Sacctmgr, &args()).await {
            Ok(Output { out, .. }) => {
                known_at = Some(asked);
                failure = None;
                let listed = Arc::new(read(&out, &cluster));
                // Sessions end when the accounts of their person change, so that equal lists are not sent.
                members.send_if_modified(|members| {
                    let changed = **members != *listed;
                    *members = listed;
                    changed
                });
                INTERVAL + jitter()
            }
            Err(error) => {
                if known_at.is_none_or(|at: Instant| at.elapsed() >= MAX_AGE) {
                    members.send_if_modified(|members| {
                        let changed = !members.is_empty();
                        *members = Arc::default();
                        changed
                    });
                }
                report(&error, &mut failure);
                RETRY
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = members.closed() => return,
        }
    }
}

/// States a failure once.
fn report(error: &CommandError, failure: &mut Option<String>) {
    let why = error.to_string();
    if failure.as_ref() != Some(&why) {
        tracing::warn!("{why}; the members of accounts are not known, so they see their own jobs only");
        *failure = Some(why);
    }
}

fn jitter() -> Duration {
    let mut byte = [0];
    // Without random numbers, all ask at the same time.
    let _ = getrandom::fill(&mut byte);
    JITTER * u32::from(byte[0]) / 255
}

fn args() -> Vec<String> {
    ["--noheader", "--parsable2", "show", "associations", "format=cluster,account,user"]
        .map(str::to_owned)
        .into()
}

/// Reads lines of `cluster|account|user`. Lines without a user are those of the accounts themselves. A line with more
/// fields is of a name that contains the separator, and counts for nobody.
fn read(out: &[u8], cluster: &Text) -> Members {
    let mut members = Members::new();
    // Invalid UTF-8 is nobody's name either.
    for line in out.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
        let mut fields = line.split('|');
        let (Some(of), Some(account), Some(user), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let exact =
            |name: &str| Some(Text::from(name)).filter(|text| text.as_str() == name && !name.is_empty());
        if let (true, Some(account), Some(user)) = (of == cluster.as_str(), exact(account), exact(user)) {
            members.entry(user).or_default().insert(account);
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use std::sync::Mutex;

    fn members(of: &[(&str, &[&str])]) -> Members {
        let of = of.iter().map(|(user, accounts)| {
            (Text::from(*user), accounts.iter().map(|account| Text::from(*account)).collect())
        });
        of.collect()
    }

    #[test]
    fn only_users_of_this_cluster_are_members() {
        let out = b"hpc|root|\nhpc|root|root\nhpc|ml|\nhpc|ml|alice\nhpc|nlp|alice\nold|ml|bob\nhpc|ml\nhpc|ml|eve|x\n\
            hpc||eve\nhpc|ml|\xff\nhpcx|ml|eve\n|ml|eve\n\n";
        let expected = members(&[("alice", &["ml", "nlp"]), ("root", &["root"])]);
        assert_eq!(read(out, &"hpc".into()), expected);
        assert_eq!(read(b"", &"hpc".into()), Members::new());
    }

    /// Returns these answers one after the other, the last one repeatedly.
    struct Answers(Arc<Mutex<Vec<Result<&'static str, CommandError>>>>);

    #[async_trait]
    impl Client for Answers {
        async fn run(&mut self, _: Program, _: &[String]) -> Result<Output, CommandError> {
            let mut answers = self.0.lock().unwrap();
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            answer.map(|out| Output { out: out.into(), err: String::new() })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn members_are_forgotten_when_slurmdbd_does_not_respond_for_half_an_hour() {
        let late = || Err(CommandError::TimedOut(Program::Sacctmgr, 30));
        let answers = Arc::new(Mutex::new(vec![late(), Ok("hpc|ml|alice\n"), late()]));
        let (sender, mut watched) = watch::channel(Arc::default());
        let began = Instant::now();
        let following = tokio::spawn(follow(Answers(answers.clone()), "hpc".into(), sender));
        assert!(watched.borrow().is_empty(), "nobody is a member before the first answer");
        watched.changed().await.unwrap();
        let known_at = Instant::now();
        assert!(known_at - began >= RETRY);
        assert_eq!(**watched.borrow_and_update(), members(&[("alice", &["ml"])]));
        watched.changed().await.unwrap();
        let (age, longest) = (known_at.elapsed(), MAX_AGE + RETRY);
        assert!(watched.borrow_and_update().is_empty() && age >= MAX_AGE && age <= longest, "{age:?}");
        *answers.lock().unwrap() = vec![Ok("hpc|ml|bob\n")];
        watched.changed().await.unwrap();
        assert_eq!(**watched.borrow_and_update(), members(&[("bob", &["ml"])]));
        drop(watched);
        following.await.unwrap();
    }
}
