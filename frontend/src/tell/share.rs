//! What a share shows, what it hides, how long it lasts and who looks through it, in words for its owner and its guest.

use crate::place::{Place, Tab};
use crate::text;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::share::{Hides, Scope, ShareId, ShareLink, ShareTerms, Sharing, Visitor};

/// So many jobs or nodes are named before the rest is counted.
const NAMED: usize = 3;
/// So many jobs are offered to be shared where none is in view.
const OFFERED: usize = 8;
/// Below this many seconds the time left is worth a warning.
pub const SHORT_S: u64 = 600;

/// For how long a share may be wished, in words and in s; none is what holds when nothing is said.
pub const LASTS: [(&str, Option<u64>); 6] = [
    ("24 h, or until the job ends", None),
    ("1 h", Some(3_600)),
    ("8 h", Some(8 * 3_600)),
    ("24 h", Some(24 * 3_600)),
    ("3 days", Some(3 * 86_400)),
    ("7 days", Some(7 * 86_400)),
];

/// What may be hidden: the field's name in a form, and what it is.
pub const HIDEABLE: [(&str, &str); 4] = [
    ("arguments", "arguments of processes"),
    ("paths", "folders and files"),
    ("other_users", "processes of other users"),
    ("logs", "logs"),
];

/// Something that may be shared from where one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What is read.
    pub words: String,
    /// What would be shared.
    pub scope: Scope,
}

/// What may be shared, the least first: what is in view, then everything.
pub fn offers(place: &Place, jobs: &[Job]) -> Vec<Offer> {
    let mut offers = Vec::new();
    match place {
        Place::Job(id, tab) => {
            let job = jobs.iter().find(|job| job.id == *id);
            offers.push(Offer { words: job_words(*id, job), scope: Scope::Jobs(vec![*id]) });
            let nodes = match tab {
                Tab::Node(name) => vec![name.clone()],
                _ => job.map(|job| job.nodes.clone()).unwrap_or_default(),
            };
            if (1..=Scope::MAX_NAMED).contains(&nodes.len()) {
                let scope = Scope::Nodes(nodes);
                let their = if scope_counts(&scope) == 1 { "its" } else { "their" };
                offers.push(Offer {
                    words: format!("{}, with all of {their} jobs", scope_words(&scope)),
                    scope,
                });
            }
        }
        Place::Node(name) => {
            let scope = Scope::Nodes(vec![name.clone()]);
            offers.push(Offer { words: format!("{}, with all of its jobs", scope_words(&scope)), scope });
        }
        Place::AllJobs | Place::Nowhere => {
            let running = jobs.iter().filter(|job| job.is_active()).take(OFFERED);
            offers.extend(
                running.map(|job| Offer {
                    words: job_words(job.id, Some(job)),
                    scope: Scope::Jobs(vec![job.id]),
                }),
            );
        }
    }
    offers.push(Offer { words: "everything, also what comes later".to_owned(), scope: Scope::All });
    offers
}

fn job_words(id: JobId, job: Option<&Job>) -> String {
    match job {
        Some(job) if !job.name.is_empty() => format!("job {} {}", job.label, job.name),
        _ => format!("job {id}"),
    }
}

fn scope_counts(scope: &Scope) -> usize {
    match scope {
        Scope::Jobs(jobs) => jobs.len(),
        Scope::Nodes(nodes) => nodes.len(),
        Scope::All => usize::MAX,
    }
}

/// What is in scope: `job 4711`, `nodes gpu-01, gpu-02, gpu-03 and 5 more`, `everything`.
pub fn scope_words(scope: &Scope) -> String {
    match scope {
        Scope::Jobs(jobs) => named("job", jobs.iter().map(ToString::to_string)),
        Scope::Nodes(nodes) => named("node", nodes.iter().map(ToString::to_string)),
        Scope::All => "everything".to_owned(),
    }
}

fn named(what: &str, names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    let few = names.take(NAMED).collect::<Vec<_>>().join(", ");
    let plural = if count == 1 { "" } else { "s" };
    match count.saturating_sub(NAMED) {
        0 => format!("{what}{plural} {few}"),
        more => format!("{what}{plural} {few} and {more} more"),
    }
}

/// What is hidden: `arguments of processes, folders and files`; empty when nothing is.
pub fn hidden_words(hides: &Hides) -> String {
    let is = [hides.arguments, hides.paths, hides.other_users, hides.logs];
    let hidden = HIDEABLE.into_iter().zip(is).filter(|(_, is)| *is).map(|((_, what), _)| what);
    hidden.collect::<Vec<_>>().join(", ")
}

/// What a guest is told of what they do not see.
pub fn unseen_sentence(terms: &ShareTerms) -> String {
    let hidden = hidden_words(&terms.hides);
    if hidden.is_empty() {
        return "Nothing of it is hidden but environments of processes, which are never shared.".to_owned();
    }
    format!("Hidden: {hidden}. Environments of processes are never shared.")
}

/// How long a share may still last, in s: by its terms, or by its job's own limit if that comes first.
pub fn left_s(terms: &ShareTerms, now_ms: u64, job_left_s: Option<u64>) -> u64 {
    let left_s = terms.expires_ms.saturating_sub(now_ms) / 1_000;
    job_left_s.filter(|_| terms.ends_with_job).map_or(left_s, |job_left_s| job_left_s.min(left_s))
}

/// When a share ends: `ends in 3 h 12, or with the job`.
pub fn ends_words(terms: &ShareTerms, now_ms: u64, job_left_s: Option<u64>) -> String {
    let (by_terms, left_s) = (left_s(terms, now_ms, None), left_s(terms, now_ms, job_left_s));
    let job = if scope_counts(&terms.scope) == 1 { "the job" } else { "its last job" };
    match left_s {
        0 => "ends now".to_owned(),
        left_s if left_s < by_terms => format!("ends with {job}, in {} at most", text::span(left_s)),
        left_s if terms.ends_with_job => format!("ends in {}, or with {job}", text::span(left_s)),
        left_s => format!("ends in {}", text::span(left_s)),
    }
}

/// For whom it is.
pub fn whom_words(terms: &ShareTerms) -> String {
    match &terms.to {
        Some(user) => format!("only for {user}"),
        None => "for whoever has the link".to_owned(),
    }
}

/// A message to paste, with all that a teammate needs; `until` is the moment of its end.
pub fn message(link: &ShareLink, url: &str, owner: &str, until: &str) -> String {
    let terms = &link.share.terms;
    let only = terms.to.as_ref().map_or(String::new(), |user| format!(" and works only for {user}"));
    let job = if terms.ends_with_job { ", or with the job" } else { "" };
    format!(
        "{owner} shares {} with you in nodeglass, to look at live.\n\
         1. On your own machine, and leave it running: {}\n\
         2. In a browser there: {url}\n\
         The link is read-only{only}. It ends {until}{job}.\n",
        scope_words(&terms.scope),
        link.tunnel,
    )
}

/// Somebody who looks, in however many tabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looker {
    /// Who; none where the kernel does not say.
    pub user: Option<String>,
    /// In how many tabs.
    pub tabs: usize,
    /// Since when at least one, in ms since 1970.
    pub since_ms: u64,
}

/// Who looks through a share, or by the owner's key; in the order of their coming.
pub fn lookers(visitors: &[Visitor], share: Option<&ShareId>) -> Vec<Looker> {
    let mut lookers: Vec<Looker> = Vec::new();
    for visitor in visitors.iter().filter(|visitor| visitor.share.as_ref() == share) {
        let user = visitor.user.as_ref().map(ToString::to_string);
        match lookers.iter_mut().find(|looker| looker.user == user) {
            Some(looker) => {
                looker.tabs += 1;
                looker.since_ms = looker.since_ms.min(visitor.since_ms);
            }
            None => lookers.push(Looker { user, tabs: 1, since_ms: visitor.since_ms }),
        }
    }
    lookers
}

/// `bob since 14:03, 2 tabs`; `when` writes a moment in seconds since 1970.
pub fn looker_words(looker: &Looker, when: &dyn Fn(i64) -> String) -> String {
    let who = looker.user.as_deref().unwrap_or("an unknown user");
    let since = when((looker.since_ms / 1_000).cast_signed());
    let tabs = if looker.tabs > 1 { format!(", {} tabs", looker.tabs) } else { String::new() };
    format!("{who} since {since}{tabs}")
}

/// How many look that are not the owner.
pub fn guests(sharing: &Sharing) -> usize {
    sharing.shares.iter().map(|share| lookers(&sharing.visitors, Some(&share.id)).len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;
    use nodeglass_protocol::job::JobState;
    use nodeglass_protocol::share::Share;

    const H: u64 = 3_600_000;

    fn terms(scope: Scope) -> ShareTerms {
        ShareTerms {
            label: "for bob".into(),
            scope,
            hides: Hides::default(),
            to: None,
            expires_ms: 10 * H,
            ends_with_job: true,
        }
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn job(id: u32, state: JobState) -> Job {
        Job {
            name: "train".into(),
            label: id.to_string().into(),
            nodes: vec![node("n1"), node("n2")],
            ..Job::new(JobId(id), "alice".into(), state)
        }
    }

    #[test]
    fn a_scope_is_named_and_a_long_one_counted() {
        assert_eq!(scope_words(&Scope::Jobs(vec![JobId(4711)])), "job 4711");
        let nodes = ["a", "b", "c", "d", "e"].map(node).to_vec();
        assert_eq!(scope_words(&Scope::Nodes(nodes)), "nodes a, b, c and 2 more");
        assert_eq!(scope_words(&Scope::All), "everything");
    }

    #[test]
    fn the_time_left_is_that_of_the_terms_or_of_the_job_whichever_is_less() {
        let mut terms = terms(Scope::Jobs(vec![JobId(17)]));
        assert_eq!(ends_words(&terms, 7 * H, None), "ends in 3 h, or with the job");
        assert_eq!(ends_words(&terms, 7 * H, Some(86_400)), "ends in 3 h, or with the job");
        assert_eq!(ends_words(&terms, 7 * H, Some(1_800)), "ends with the job, in 30 min at most");
        terms.ends_with_job = false;
        assert_eq!(ends_words(&terms, 7 * H, Some(1_800)), "ends in 3 h");
        assert_eq!(ends_words(&terms, 10 * H, None), "ends now");
        assert_eq!(ends_words(&terms, 99 * H, None), "ends now");
        assert_eq!(left_s(&terms, 10 * H - 1_500, None), 1);
    }

    #[test]
    fn what_is_hidden_is_said_and_environments_always_are() {
        let mut terms = terms(Scope::All);
        assert_eq!(
            unseen_sentence(&terms),
            "Hidden: arguments of processes, folders and files, processes of other users, logs. \
             Environments of processes are never shared."
        );
        terms.hides = Hides { logs: true, arguments: false, paths: false, other_users: false };
        assert!(unseen_sentence(&terms).starts_with("Hidden: logs."));
        terms.hides.logs = false;
        assert!(unseen_sentence(&terms).contains("environments"));
    }

    #[test]
    fn the_least_is_offered_first_and_everything_last() {
        let jobs = [job(17, JobState::Running), job(18, JobState::Pending)];
        let scopes =
            |place: &Place| offers(place, &jobs).into_iter().map(|offer| offer.scope).collect::<Vec<_>>();
        let (one, all) = (Scope::Jobs(vec![JobId(17)]), Scope::All);
        let nodes = Scope::Nodes(vec![node("n1"), node("n2")]);
        assert_eq!(scopes(&Place::Job(JobId(17), Tab::Processes)), [one.clone(), nodes, all.clone()]);
        let second = Scope::Nodes(vec![node("n2")]);
        assert_eq!(
            scopes(&Place::Job(JobId(17), Tab::Node(node("n2")))),
            [one.clone(), second.clone(), all.clone()]
        );
        assert_eq!(scopes(&Place::Node(node("n2"))), [second, all.clone()]);
        assert_eq!(scopes(&Place::AllJobs), [one, all.clone()]);
        // A job that is not listed may be shared: it may only be a matter of a moment.
        assert_eq!(scopes(&Place::Job(JobId(9), Tab::Nodes)), [Scope::Jobs(vec![JobId(9)]), all]);
        assert_eq!(offers(&Place::AllJobs, &jobs)[0].words, "job 17 train");
    }

    #[test]
    fn a_message_has_all_that_a_teammate_needs() {
        let share = Share {
            id: ShareId::new("abc").unwrap(),
            made_ms: 0,
            terms: ShareTerms { to: Some("bob".into()), ..terms(Scope::Jobs(vec![JobId(17)])) },
        };
        let link = ShareLink { share, link: None, tunnel: "ssh -L 8080:127.0.0.1:8080 login".into() };
        let message = message(&link, "http://127.0.0.1:8080/#s=abc.KEY", "alice", "Sat 18:20");
        for part in
            ["alice", "job 17", "ssh -L 8080", "/#s=abc.KEY\n", "only for bob", "Sat 18:20, or with the job"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn the_tabs_of_one_user_are_one_looker_and_the_owners_are_no_guests() {
        let id = ShareId::new("abc").unwrap();
        let visitor = |share: Option<&ShareId>, user: Option<&str>, since_ms| Visitor {
            share: share.cloned(),
            user: user.map(Into::into),
            since_ms,
        };
        let share = Share { id: id.clone(), made_ms: 0, terms: terms(Scope::All) };
        let visitors = vec![
            visitor(None, Some("alice"), 1),
            visitor(Some(&id), Some("bob"), 9_000),
            visitor(Some(&id), Some("bob"), 5_000),
            visitor(Some(&id), None, 7_000),
        ];
        let when = |at: i64| format!("{at} s");
        let words: Vec<String> =
            lookers(&visitors, Some(&id)).iter().map(|looker| looker_words(looker, &when)).collect();
        assert_eq!(words, ["bob since 5 s, 2 tabs", "an unknown user since 7 s"]);
        assert_eq!(lookers(&visitors, None).len(), 1);
        assert_eq!(guests(&Sharing { shares: vec![share], visitors }), 2);
    }
}
