//! Content of notices: an event as JSON for programs, and as text for chats and mails.

use nodeglass_platform::local_time::{LocalTime, since};
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_rules::job_events::JobEvent;
use nodeglass_rules::node_check::advice_on_nodes;
use nodeglass_rules::text::{MAX_NAMED, some_of};
use nodeglass_rules::{job_names, outcome, text};
use serde::Serialize;
use serde_json::{Value, json};

/// Longest text of a message in characters.
const MAX_CHARS: usize = 2_000;

/// The sender.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// Name of the cluster, or of the machine without SLURM.
    pub cluster: String,
    /// Login name of the user who runs the relay.
    pub user: String,
    /// Host of the relay.
    pub host: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Something was found.
    Found(Box<Finding>, Vec<JobSummary>),
    /// Findings of one kind on several nodes at once; not empty.
    Several(Vec<Finding>, Vec<JobSummary>),
    /// It is over.
    Resolved(Box<Finding>, Vec<JobSummary>),
    /// A job started or ended.
    Job(JobSummary, JobEvent),
    /// The number of notices that were left out, because there were too many or they could not be delivered.
    Dropped(u64),
    /// Nothing happened: the owner tries whether notices arrive.
    Test,
}

/// Identity of a job for people and programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobSummary {
    /// Numeric job id.
    pub id: JobId,
    /// Job id as users write it.
    pub label: Text,
    /// Job name.
    pub name: Text,
    /// Owner.
    pub user: Text,
    /// Partition.
    pub partition: Text,
    /// SLURM's state, in words.
    pub state: String,
    /// Nodes.
    pub nodes: Vec<NodeName>,
    /// Number of GPUs, if SLURM states it.
    pub gpus: Option<u32>,
    /// Exit code and signal as SLURM writes them.
    pub exit: Option<Text>,
    /// The failure, if it failed.
    pub failure: Option<String>,
}

impl JobSummary {
    /// The summary of a job.
    pub fn of(job: &Job) -> Self {
        Self {
            id: job.id,
            label: job.label.clone(),
            name: job.name.clone(),
            user: job.user.clone(),
            partition: job.partition.clone(),
            state: nodeglass_rules::health::state_label(job),
            nodes: job.nodes.clone(),
            gpus: job.gpu_count,
            exit: job.exit.clone(),
            failure: match job.state {
                JobState::Ended(_) => outcome::failure(job).map(|failure| failure.label),
                _ => None,
            },
        }
    }

    fn title(&self) -> String {
        job_names::with_label(self.name.as_str(), self.label.as_str())
    }
}

impl Notice {
    /// Its name in JSON.
    pub fn event(&self) -> &'static str {
        match self {
            Self::Found(..) | Self::Several(..) => "finding",
            Self::Resolved(..) => "finding_resolved",
            Self::Job(_, JobEvent::Started) => "job_started",
            Self::Job(_, JobEvent::Ended) => "job_ended",
            Self::Dropped(_) => "notices_dropped",
            Self::Test => "test",
        }
    }

    /// The event as JSON.
    pub fn json(&self, sender: &Sender) -> Value {
        let mut json = json!({
            "event": self.event(),
            "cluster": sender.cluster,
            "user": sender.user,
            "host": sender.host,
            "summary": self.subject(),
        });
        match self {
            Self::Found(finding, jobs) | Self::Resolved(finding, jobs) => {
                // What processes do is for the owner, and a webhook may be read by others.
                json["finding"] = json!((**finding).clone().without_capture());
                json["jobs"] = json!(jobs);
            }
            Self::Several(findings, jobs) => {
                let findings: Vec<Finding> =
                    findings.iter().map(|finding| finding.clone().without_capture()).collect();
                // A program that knows of one finding alone reads the first.
                json["finding"] = json!(findings.first());
                json["findings"] = json!(findings);
                json["jobs"] = json!(jobs);
            }
            Self::Job(job, _) => json["job"] = json!(job),
            Self::Dropped(count) => json["count"] = json!(count),
            Self::Test => {}
        }
        json
    }

    /// One line: `train (48213): GPU 3 too hot`.
    pub fn subject(&self) -> String {
        match self {
            Self::Found(finding, jobs) => summary_of(finding, jobs),
            Self::Several(findings, _) => summary_of_several(findings),
            Self::Resolved(finding, jobs) => {
                format!("[resolved] {}", summary_of(finding, jobs))
            }
            Self::Job(job, JobEvent::Started) => format!("{} started", job.title()),
            Self::Job(job, JobEvent::Ended) => match &job.failure {
                Some(failure) => format!("{} ended: {failure}", job.title()),
                None => format!("{} {}", job.title(), job.state),
            },
            Self::Dropped(count) => {
                format!(
                    "{} not sent",
                    text::count(usize::try_from(*count).unwrap_or(usize::MAX), "notice", "notices")
                )
            }
            Self::Test => "test notice of nodeglass".to_owned(),
        }
    }

    /// The line with which a text begins: `warning: train (48213): GPU 3 too hot`.
    pub fn headline(&self) -> String {
        let severity = match self {
            Self::Found(finding, _) => Some(finding.severity),
            Self::Several(findings, _) => findings.iter().map(|finding| finding.severity).max(),
            Self::Resolved(..) | Self::Job(..) | Self::Dropped(_) | Self::Test => None,
        };
        match severity {
            Some(severity) => format!("{}: {}", severity.name(), self.subject()),
            None => self.subject(),
        }
    }

    /// The details, a line each.
    pub fn details(&self) -> Vec<String> {
        let of_job = |job: &JobSummary| {
            let nodes: Vec<&str> = job.nodes.iter().map(NodeName::as_str).collect();
            let gpus = job.gpus.map(|gpus| text::count(gpus as usize, "GPU", "GPUs"));
            let place = (!nodes.is_empty()).then(|| format!("on {}", nodes.join(", ")));
            let exit = job.exit.as_ref().map(|exit| format!("exit code {exit}"));
            [gpus, place, exit].into_iter().flatten().collect::<Vec<_>>()
        };
        match self {
            Self::Found(finding, jobs) => {
                let evidence = finding.evidence.iter().map(ToString::to_string);
                let title = std::iter::once(finding.title.to_string());
                let (since, advice) = (since_of(finding), format!("→ {}", finding.advice));
                title.chain(evidence).chain(affected(jobs)).chain([since, advice]).collect()
            }
            Self::Several(findings, jobs) => {
                let titles = findings.iter().take(MAX_NAMED).map(|finding| finding.title.to_string());
                let more = findings.len().saturating_sub(MAX_NAMED);
                let more = (more > 0).then(|| format!("and {more} more"));
                let first = findings.iter().min_by_key(|finding| finding.since_ms);
                let since = first.map(since_of);
                let nodes: Vec<&NodeName> = findings.iter().flat_map(|finding| &finding.nodes).collect();
                let advice = findings.first().map(|finding| advice_on_nodes(finding.advice.as_str(), &nodes));
                let advice = advice.map(|advice| format!("→ {advice}"));
                titles.chain(more).chain(affected(jobs)).chain(since).chain(advice).collect()
            }
            Self::Resolved(finding, jobs) => {
                let lasted_ms = finding.ended_ms.unwrap_or(finding.since_ms).saturating_sub(finding.since_ms);
                let least = if finding.or_earlier { "at least " } else { "" };
                let lasted = format!(
                    "{}, lasted {least}{}, {}",
                    finding.severity.name(),
                    text::span(lasted_ms / 1_000),
                    since_of(finding)
                );
                std::iter::once(finding.title.to_string()).chain(affected(jobs)).chain([lasted]).collect()
            }
            Self::Job(job, _) => of_job(job),
            Self::Dropped(_) => {
                vec!["Too many notices, or delivery failed: run relay findings --all".to_owned()]
            }
            Self::Test => vec!["nodeglass sends notices of findings and jobs here.".to_owned()],
        }
    }

    /// Subject and details as plain text, bounded.
    pub fn text(&self) -> String {
        let lines = std::iter::once(self.headline()).chain(self.details());
        let whole = lines.collect::<Vec<_>>().join("\n");
        if whole.chars().count() <= MAX_CHARS {
            return whole;
        }
        let cut: String = whole.chars().take(MAX_CHARS).collect();
        format!("{cut}…")
    }
}

/// `train (17): GPU 3 too hot`, `n1 unreachable`.
fn summary_of(finding: &Finding, jobs: &[JobSummary]) -> String {
    let (subject, reason) = (subject_of(finding, jobs), finding.reason.as_str());
    // What is about a node as a whole names it.
    if reason.starts_with(&subject) { reason.to_owned() } else { format!("{subject}: {reason}") }
}

/// `3 nodes: not responding (n1, n2, n3)`.
fn summary_of_several(findings: &[Finding]) -> String {
    let node = |finding: &Finding| finding.nodes.first().map(ToString::to_string).unwrap_or_default();
    let what = |finding: &Finding| {
        let reason = finding.reason.as_str();
        reason.strip_prefix(node(finding).as_str()).unwrap_or(reason).trim().to_owned()
    };
    let mut said: Vec<String> = findings.iter().map(what).collect();
    said.dedup();
    let said = match said.as_slice() {
        [same] => same.clone(),
        _ => findings.first().map_or("", |finding| finding.kind.name()).replace('_', " "),
    };
    let names: Vec<String> = findings.iter().map(node).collect();
    format!("{} nodes: {said} ({})", findings.len(), some_of(names.iter().cloned(), names.len()))
}

/// The jobs, where the subject is not the only one.
fn affected(jobs: &[JobSummary]) -> Option<String> {
    let names: Vec<String> = jobs.iter().map(JobSummary::title).collect();
    (names.len() > 1).then(|| format!("jobs: {}", some_of(names.iter().cloned(), names.len())))
}

/// `since 2026-11-26 14:02 CET or earlier`: a mail is read later, and perhaps elsewhere.
fn since_of(finding: &Finding) -> String {
    let time = LocalTime::of(finding.since_ms / 1_000);
    since(format_args!("{} {} {}", time.date(), time.seen_from(&time), time.zone()), finding.or_earlier)
}

fn subject_of(finding: &Finding, jobs: &[JobSummary]) -> String {
    match (jobs, finding.nodes.first()) {
        ([job], _) => job.title(),
        (_, Some(node)) => node.to_string(),
        ([job, ..], None) => job.title(),
        ([], None) => "nodeglass".to_owned(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use nodeglass_api::fixtures::finding;
    use nodeglass_protocol::finding::FindingKind;

    pub fn job(id: u32, state: JobState) -> Job {
        let mut job = Job::new(JobId(id), "alice".into(), state);
        job.name = "train".into();
        job.nodes = vec![NodeName::new("n1").unwrap()];
        job.gpu_count = Some(8);
        job
    }

    #[test]
    fn a_notice_is_json_for_programs_and_text_for_people() {
        let jobs = vec![JobSummary::of(&job(17, JobState::Running))];
        let notice = Notice::Found(Box::new(finding("thermal/17")), jobs.clone());
        let sender = Sender { cluster: "juniper".into(), user: "alice".into(), host: "login1".into() };
        let json = notice.json(&sender);
        assert_eq!((&json["event"], &json["cluster"]), (&json!("finding"), &json!("juniper")));
        assert_eq!((&json["finding"]["kind"], &json["jobs"][0]["id"]), (&json!("thermal"), &json!(17)));
        assert_eq!(json["summary"], "train (17): GPU 3 too hot");
        let captured = Finding { capture: Some(Box::default()), ..finding("thermal/17") };
        assert_eq!(
            Notice::Found(Box::new(captured), Vec::new()).json(&sender)["finding"]["capture"],
            json!(null)
        );
        assert_eq!(
            notice.text(),
            format!(
                "warning: train (17): GPU 3 too hot\nRank 3 (n1 GPU 3) is too hot\n87 °C\n{}\n→ Report it to the administrators",
                since_of(&finding("thermal/17"))
            )
        );
        assert!(since_of(&finding("a")).starts_with("since 19"));
        let over = Finding { ended_ms: Some(180_000), ..finding("thermal/17") };
        let text = Notice::Resolved(Box::new(over), jobs).text();
        let expected = "[resolved] train (17): GPU 3 too hot\nRank 3 (n1 GPU 3) is too hot\nwarning, lasted 2 min, since ";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn what_several_nodes_have_is_one_notice_that_names_some() {
        let node = |number: u32| Finding {
            kind: FindingKind::NodeUnreachable,
            nodes: vec![NodeName::new(format!("n{number}")).unwrap()],
            title: format!("n{number} does not respond").into(),
            reason: format!("n{number} not responding").into(),
            ..finding("a")
        };
        let notice = Notice::Several((1..=6).map(node).collect(), Vec::new());
        assert_eq!(notice.headline(), "warning: 6 nodes: not responding (n1, n2, n3, n4 and 2 more)");
        let json = notice.json(&Sender::default());
        assert_eq!((&json["event"], &json["finding"]["nodes"][0]), (&json!("finding"), &json!("n1")));
        assert_eq!(json["findings"].as_array().map(Vec::len), Some(6));
        assert!(notice.text().contains("n4 does not respond\nand 2 more\nsince "), "{}", notice.text());
    }

    #[test]
    fn a_text_names_each_of_several_jobs() {
        let jobs = [17, 18].map(|id| JobSummary::of(&job(id, JobState::Running)));
        let text = Notice::Found(Box::new(finding("a")), jobs.to_vec()).text();
        assert!(text.starts_with("warning: n1: GPU 3 too hot\n"), "{text}");
        assert!(text.contains("\njobs: train (17), train (18)\n"), "{text}");
    }

    #[test]
    fn the_end_of_a_job_states_how() {
        let mut failed = job(17, JobState::Ended("OUT_OF_MEMORY".into()));
        failed.exit = Some("0:125".into());
        let notice = Notice::Job(JobSummary::of(&failed), JobEvent::Ended);
        assert_eq!(notice.subject(), "train (17) ended: out of host memory");
        assert_eq!(notice.details(), ["8 GPUs", "on n1", "exit code 0:125"]);
        let done =
            Notice::Job(JobSummary::of(&job(17, JobState::Ended("COMPLETED".into()))), JobEvent::Ended);
        assert_eq!(done.subject(), "train (17) completed");
    }

    #[test]
    fn a_text_is_bounded() {
        let long = Finding { title: "x".repeat(5_000).as_str().into(), ..finding("a") };
        assert!(Notice::Found(Box::new(long), Vec::new()).text().chars().count() <= MAX_CHARS + 1);
    }
}
