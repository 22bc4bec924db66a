//! Texts about a share for its owner and its guest: what it shows and hides, how long it lasts, and who uses
//! it.

use crate::domain::job_groups;
use crate::domain::route::{JobTab, Route};
use crate::domain::text;
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::share::{HiddenParts, Scope, ShareId, ShareLink, ShareTerms, Sharing, Visitor};
use nodeglass_protocol::{JobId, Text};

/// Remaining time, in seconds, below which the expiry is shown as a warning.
pub const SHORT_S: u64 = 600;

/// Offered durations, with their length in s; `None` is the relay's default.
pub const DURATIONS: [(&str, Option<u64>); 6] = [
    ("24 h, or until the job ends", None),
    ("1 h", Some(3_600)),
    ("8 h", Some(8 * 3_600)),
    ("24 h", Some(24 * 3_600)),
    ("3 days", Some(3 * 86_400)),
    ("7 days", Some(7 * 86_400)),
];

/// Parts that may be hidden: the field's name in a form, and a description.
pub const HIDEABLE_PARTS: [(&str, &str); 5] = [
    ("arguments", "process arguments"),
    ("paths", "paths of folders and files"),
    ("other_users", "other users' processes"),
    ("logs", "logs"),
    ("notes", "notes"),
];

/// Something that may be shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The text of the choice.
    pub label: String,
    /// The scope of the share.
    pub scope: Scope,
}

/// Returns what may be shared: what is in view, the smallest scope first, then everything; where nothing is in view,
/// everything, then each job.
pub fn offers(route: &Route, jobs: &[Job]) -> Vec<Offer> {
    let mut offers = Vec::new();
    match route {
        Route::Job(id, tab) => {
            let job = jobs.iter().find(|job| job.id == *id);
            // Tasks that have not started have no ids of their own.
            if !job.is_some_and(is_rest) {
                offers.push(Offer { label: job_label(*id, job), scope: Scope::Jobs(vec![*id]) });
            }
            offers.extend(job.and_then(job_groups::array_of).map(all_tasks));
            let nodes = match tab {
                JobTab::Node(name) => vec![name.clone()],
                _ => job.map(|job| job.nodes.clone()).unwrap_or_default(),
            };
            if (1..=Scope::MAX_NAMED).contains(&nodes.len()) {
                let scope = Scope::Nodes(nodes);
                let their = if scope.named_count() == Some(1) { "its" } else { "their" };
                offers.push(Offer { label: format!("{scope}, with all of {their} jobs"), scope });
            }
        }
        Route::Array(id) => offers.push(all_tasks(*id)),
        Route::Node(name) => {
            let scope = Scope::Nodes(vec![name.clone()]);
            offers.push(Offer { label: format!("{scope}, with all of its jobs"), scope });
        }
        Route::Compare(compared) if !compared.is_empty() => {
            let mut jobs: Vec<JobId> = Vec::new();
            for one in compared {
                if jobs.len() < Scope::MAX_NAMED && !jobs.contains(&one.job) {
                    jobs.push(one.job);
                }
            }
            let scope = Scope::Jobs(jobs);
            offers.push(Offer { label: format!("this comparison: {scope}"), scope });
        }
        Route::AllJobs
        | Route::JobLabel(..)
        | Route::CompareLabels(_)
        | Route::Usage
        | Route::Compare(_)
        | Route::Audit
        | Route::Nowhere => {
            offers.push(everything());
            for job in jobs.iter().filter(|job| job.is_active()) {
                let array = job_groups::array_of(job).map(all_tasks);
                offers.extend(array.filter(|array| !offers.contains(array)));
                offers.push(Offer { label: job_label(job.id, Some(job)), scope: Scope::Jobs(vec![job.id]) });
            }
            return offers;
        }
    }
    offers.push(everything());
    offers
}

fn everything() -> Offer {
    Offer { label: "everything, including future jobs".to_owned(), scope: Scope::All }
}

/// Returns a link of a share that opens the page at `path`.
pub fn link_to(url: &str, path: &str) -> String {
    let (page, rest) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    format!("{}{path}{rest}", page.trim_end_matches('/'))
}

fn all_tasks(array: JobId) -> Offer {
    let label = format!("all tasks of array {array}, including later ones");
    Offer { label, scope: Scope::of_jobs(Vec::new(), vec![array]) }
}

fn is_rest(job: &Job) -> bool {
    matches!(job.part_of, Some(Parent::Array { task: None, .. }))
}

/// Describes a scope, with the jobs as SLURM prints them if they are listed: `jobs 48440_14, 48440_15 and array 48461`.
pub fn scope_text(scope: &Scope, jobs: &[Job]) -> String {
    let listed = |id: JobId| jobs.iter().find(|job| job.id == id);
    scope.describe(|id| listed(id).map_or_else(|| id.to_string(), |job| job.label.to_string()))
}

fn job_label(id: JobId, job: Option<&Job>) -> String {
    match job {
        Some(job) if !job.name.is_empty() => format!("job {} {}", job.label, job.name),
        _ => format!("job {id}"),
    }
}

/// Describes the hidden parts: `process arguments, logs`; empty if there are none.
pub fn hidden_text(parts: &HiddenParts) -> String {
    let is_hidden = [parts.arguments, parts.paths, parts.other_users, parts.logs, parts.notes];
    let hidden = HIDEABLE_PARTS
        .into_iter()
        .zip(is_hidden)
        .filter(|(_, is_hidden)| *is_hidden)
        .map(|((_, what), _)| what);
    hidden.collect::<Vec<_>>().join(", ")
}

/// Describes to a guest what is hidden.
pub fn hidden_sentence(terms: &ShareTerms) -> String {
    let hidden = hidden_text(&terms.hidden);
    if hidden.is_empty() {
        return "Everything is visible except process environments, which are never shared.".to_owned();
    }
    format!("Hidden: {hidden}. Process environments are never shared.")
}

/// Returns how long a share lasts, in s: until its terms or its job's limit end it.
pub fn remaining_s(terms: &ShareTerms, now_ms: u64, job_left_s: Option<u64>) -> u64 {
    let remaining_s = terms.expires_ms.saturating_sub(now_ms) / 1_000;
    job_left_s.filter(|_| terms.ends_with_job).map_or(remaining_s, |job_left_s| job_left_s.min(remaining_s))
}

/// Describes when a share ends: `ends in 59 min, at 18:36, or with the job`; `when` formats a time in seconds
/// since 1970.
pub fn expiry_text(
    terms: &ShareTerms,
    now_ms: u64,
    job_left_s: Option<u64>,
    when: &dyn Fn(i64) -> String,
) -> String {
    let at = |remaining_s: u64| {
        let end_s = (now_ms / 1_000).saturating_add(remaining_s).cast_signed();
        format!("{}, at {}", text::span(remaining_s), when(end_s))
    };
    let (by_terms, remaining_s) = (remaining_s(terms, now_ms, None), remaining_s(terms, now_ms, job_left_s));
    match (remaining_s, terms.ends_with()) {
        (0, _) => "ends now".to_owned(),
        (_, Some(job)) if remaining_s < by_terms => {
            format!("ends with {job}, at the latest in {}", at(remaining_s))
        }
        (_, Some(job)) => format!("ends in {}, or with {job}", at(remaining_s)),
        (_, None) => format!("ends in {}", at(remaining_s)),
    }
}

/// Describes who may use it.
pub fn audience_text(terms: &ShareTerms) -> String {
    match &terms.to {
        Some(user) => format!("only for {user}"),
        None => "for anyone with the link".to_owned(),
    }
}

/// Returns a message with everything a teammate needs; `what` is shared, and `until` is the formatted end.
pub fn message(link: &ShareLink, what: &str, url: &str, owner: &str, until: &str) -> String {
    let terms = &link.share.terms;
    let only = terms.to.as_ref().map_or(String::new(), |user| format!("; it works only for {user}"));
    let job = terms.ends_with().map_or(String::new(), |job| format!(", or with {job}"));
    format!(
        "{owner} shares {what} with you in nodeglass, live and read-only.\n\
         1. On your own machine (leave it running): {}\n\
         2. In a browser there: {url}\n\
         The link expires at {until}{job}{only}.\n",
        link.tunnel,
    )
}

/// A user who views, in however many tabs and terminals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareViewer {
    /// The user; `None` if the kernel does not name one.
    pub user: Option<String>,
    /// Number of tabs and terminals.
    pub connections: usize,
    /// Since when at least one is open, in ms since 1970.
    pub since_ms: u64,
    /// The user's relation to the owner.
    pub relation: Relation,
}

/// Relation of a viewer to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Views with the owner's key.
    Owner,
    /// Views by a share as the owner's user of the login node, but may be another person.
    SameAccount,
    /// Another user, or an unknown one.
    Guest,
}

/// Groups the visitors of a share, or those with the owner's key, by user, in the order of their arrival.
pub fn viewers(visitors: &[Visitor], share: Option<&ShareId>) -> Vec<ShareViewer> {
    let relation = |user: &Option<String>| {
        let is_same = |visitor: &Visitor| {
            visitor.share.is_none() && visitor.user.as_ref().map(Text::as_str) == user.as_deref()
        };
        match share {
            None => Relation::Owner,
            Some(_) if user.is_some() && visitors.iter().any(is_same) => Relation::SameAccount,
            Some(_) => Relation::Guest,
        }
    };
    let mut viewers: Vec<ShareViewer> = Vec::new();
    for visitor in visitors.iter().filter(|visitor| visitor.share.as_ref() == share) {
        let user = visitor.user.as_ref().map(ToString::to_string);
        match viewers.iter_mut().find(|viewer| viewer.user == user) {
            Some(viewer) => {
                viewer.connections += 1;
                viewer.since_ms = viewer.since_ms.min(visitor.since_ms);
            }
            None => {
                let relation = relation(&user);
                viewers.push(ShareViewer { user, connections: 1, since_ms: visitor.since_ms, relation });
            }
        }
    }
    viewers
}

/// Describes a viewer: `bob since 14:03, 2 connections`; `when` formats a time in seconds since 1970.
pub fn viewer_text(viewer: &ShareViewer, when: &dyn Fn(i64) -> String) -> String {
    let who = match (viewer.relation, viewer.user.as_deref()) {
        (Relation::Owner, _) => "you".to_owned(),
        (Relation::SameAccount, Some(user)) => format!("{user} (your account)"),
        (_, Some(user)) => user.to_owned(),
        (_, None) => "an unknown user".to_owned(),
    };
    let since = when((viewer.since_ms / 1_000).cast_signed());
    let several = match viewer.connections {
        0 | 1 => String::new(),
        count => format!(", {count} connections"),
    };
    format!("{who} since {since}{several}")
}

/// Returns the number of viewers besides the owner.
pub fn guests(sharing: &Sharing) -> usize {
    sharing.shares.iter().map(|share| viewers(&sharing.visitors, Some(&share.id)).len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::compared::Compared;
    use nodeglass_protocol::NodeName;
    use nodeglass_protocol::job::JobState;
    use nodeglass_protocol::share::Share;

    const H: u64 = 3_600_000;

    fn terms(scope: Scope) -> ShareTerms {
        ShareTerms {
            label: "for bob".into(),
            scope,
            hidden: HiddenParts::default(),
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
    fn the_time_left_is_the_lesser_of_terms_and_job_limit() {
        let mut terms = terms(Scope::Jobs(vec![JobId(17)]));
        let expiry_text = |terms: &ShareTerms, now_ms, job_left_s| {
            expiry_text(terms, now_ms, job_left_s, &|at_s| format!("{}:{:02}", at_s / 3_600, at_s / 60 % 60))
        };
        assert_eq!(expiry_text(&terms, 7 * H, None), "ends in 3 h, at 10:00, or with the job");
        assert_eq!(expiry_text(&terms, 7 * H, Some(86_400)), "ends in 3 h, at 10:00, or with the job");
        assert_eq!(
            expiry_text(&terms, 7 * H, Some(1_800)),
            "ends with the job, at the latest in 30 min, at 7:30"
        );
        terms.ends_with_job = false;
        assert_eq!(expiry_text(&terms, 7 * H, Some(1_800)), "ends in 3 h, at 10:00");
        assert_eq!(expiry_text(&terms, 10 * H, None), "ends now");
        assert_eq!(expiry_text(&terms, 99 * H, None), "ends now");
        assert_eq!(remaining_s(&terms, 10 * H - 1_500, None), 1);
        terms.scope = Scope::of_jobs(Vec::new(), vec![JobId(40)]);
        terms.ends_with_job = true;
        assert_eq!(
            expiry_text(&terms, 7 * H, None),
            "ends in 3 h, at 10:00, or with the last task of the array"
        );
    }

    #[test]
    fn a_link_to_a_comparison_keeps_the_key() {
        let path = "/compare/17-18";
        assert_eq!(
            link_to("http://localhost:8090/?v=3#key", path),
            "http://localhost:8090/compare/17-18?v=3#key"
        );
        assert_eq!(link_to("http://h/base/#key", path), "http://h/base/compare/17-18#key");
        assert_eq!(link_to("http://h", path), "http://h/compare/17-18");
    }

    #[test]
    fn hidden_parts_are_named_and_environments_always_are() {
        let mut terms = terms(Scope::All);
        assert_eq!(
            hidden_sentence(&terms),
            "Hidden: process arguments, paths of folders and files, other users' processes, logs. \
             Process environments are never shared."
        );
        terms.hidden =
            HiddenParts { logs: true, arguments: false, paths: false, other_users: false, notes: false };
        assert!(hidden_sentence(&terms).starts_with("Hidden: logs."));
        terms.hidden.logs = false;
        assert!(hidden_sentence(&terms).contains("environments"));
    }

    #[test]
    fn what_is_in_view_is_offered_first_and_where_nothing_is_everything() {
        let jobs = [job(17, JobState::Running), job(18, JobState::Pending)];
        let scopes =
            |route: &Route| offers(route, &jobs).into_iter().map(|offer| offer.scope).collect::<Vec<_>>();
        let (one, all) = (Scope::Jobs(vec![JobId(17)]), Scope::All);
        let nodes = Scope::Nodes(vec![node("n1"), node("n2")]);
        assert_eq!(scopes(&Route::Job(JobId(17), JobTab::Processes)), [one.clone(), nodes, all.clone()]);
        let second = Scope::Nodes(vec![node("n2")]);
        assert_eq!(
            scopes(&Route::Job(JobId(17), JobTab::Node(node("n2")))),
            [one.clone(), second.clone(), all.clone()]
        );
        assert_eq!(scopes(&Route::Node(node("n2"))), [second, all.clone()]);
        assert_eq!(scopes(&Route::AllJobs), [all.clone(), one.clone()]);
        assert_eq!(scopes(&Route::Compare(Vec::new())), [all.clone(), one]);
        let both = [17, 18, 17].map(|id| Compared::whole(JobId(id))).to_vec();
        assert_eq!(scopes(&Route::Compare(both)), [Scope::Jobs(vec![JobId(17), JobId(18)]), all.clone()]);
        // A job that is not listed yet may be shared.
        assert_eq!(scopes(&Route::Job(JobId(9), JobTab::Nodes)), [Scope::Jobs(vec![JobId(9)]), all]);
        assert_eq!(offers(&Route::AllJobs, &jobs)[1].label, "job 17 train");
    }

    #[test]
    fn an_array_is_offered_with_its_later_tasks_and_named_as_such() {
        let task = |id: u32, task: Option<u32>, state| Job {
            part_of: Some(Parent::Array { job: JobId(40), task }),
            label: task.map_or("40_[2-3]".to_owned(), |task| format!("40_{task}")).into(),
            ..job(id, state)
        };
        let jobs = [
            task(41, Some(0), JobState::Running),
            task(42, Some(1), JobState::Running),
            task(40, None, JobState::Pending),
            job(17, JobState::Running),
        ];
        let array = Scope::of_jobs(Vec::new(), vec![JobId(40)]);
        let offered = offers(&Route::Job(JobId(42), JobTab::Nodes), &jobs);
        assert_eq!(offered[0].scope, Scope::Jobs(vec![JobId(42)]));
        assert_eq!(offered[1].label, "all tasks of array 40, including later ones");
        assert_eq!(offered[1].scope, array);
        assert_eq!(offers(&Route::Array(JobId(40)), &jobs)[0], offered[1]);
        // The tasks that wait are no job of their own.
        assert_eq!(offers(&Route::Job(JobId(40), JobTab::Nodes), &jobs)[0], offered[1]);
        let all: Vec<_> = offers(&Route::AllJobs, &jobs).into_iter().map(|offer| offer.label).collect();
        let array_label = offered[1].label.as_str();
        let everything = "everything, including future jobs";
        assert_eq!(all, [everything, array_label, "job 40_0 train", "job 40_1 train", "job 17 train"]);
        let offered = offers(&Route::Job(JobId(17), JobTab::Nodes), &jobs);
        assert!(!offered.iter().any(|offer| offer.label.contains("tasks")), "{offered:?}");
        assert_eq!(scope_text(&array, &jobs), "array 40");
        let single = Scope::Jobs(vec![JobId(42), JobId(99)]);
        assert_eq!(scope_text(&single, &jobs), "jobs 40_1, 99");
    }

    #[test]
    fn a_message_has_everything_a_teammate_needs() {
        let share = Share {
            id: ShareId::new("abc").unwrap(),
            created_ms: 0,
            terms: ShareTerms { to: Some("bob".into()), ..terms(Scope::Jobs(vec![JobId(17)])) },
        };
        let link = ShareLink {
            share,
            link: None,
            tunnel: "ssh -L 8080:127.0.0.1:8080 login".into(),
            not_stored: None,
        };
        let message = message(&link, "job 17", "http://127.0.0.1:8080/#s=abc.KEY", "alice", "Sat 18:20");
        for part in
            ["alice", "job 17", "ssh -L 8080", "/#s=abc.KEY\n", "only for bob", "Sat 18:20, or with the job;"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn the_tabs_of_one_user_are_one_viewer_and_the_owner_is_no_guest() {
        let id = ShareId::new("abc").unwrap();
        let visitor = |share: Option<&ShareId>, user: Option<&str>, since_ms| Visitor {
            share: share.cloned(),
            user: user.map(Into::into),
            since_ms,
        };
        let share = Share { id: id.clone(), created_ms: 0, terms: terms(Scope::All) };
        let visitors = vec![
            visitor(None, Some("alice"), 1),
            visitor(Some(&id), Some("bob"), 9_000),
            visitor(Some(&id), Some("bob"), 5_000),
            visitor(Some(&id), None, 7_000),
        ];
        let when = |at: i64| format!("{at} s");
        let label = |visitors: &[Visitor], share: Option<&ShareId>| -> Vec<String> {
            viewers(visitors, share).iter().map(|viewer| viewer_text(viewer, &when)).collect()
        };
        assert_eq!(
            label(&visitors, Some(&id)),
            ["bob since 5 s, 2 connections", "an unknown user since 7 s"]
        );
        assert_eq!(label(&visitors, None), ["you since 0 s"]);
        let mut same = visitors.clone();
        same.push(visitor(Some(&id), Some("alice"), 8_000));
        assert_eq!(label(&same, Some(&id))[2], "alice (your account) since 8 s");
        assert_eq!(viewers(&visitors, None).len(), 1);
        assert_eq!(guests(&Sharing { shares: vec![share], visitors, ..Sharing::default() }), 2);
    }
}
