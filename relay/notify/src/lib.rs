//! Notifications of findings and jobs by webhook, command and mail, also while no page is open.
//!
//! [`Notifier::observe`] compares the fleet with what it was a second ago and passes new notices to each
//! channel's queue; it never waits. One task per channel delivers them, repeats what failed, and limits the rate.
//! [`webhook`] posts JSON to a URL of the owner, and [`report_webhook`] the report of a job.

mod check;
mod command;
mod counts;
mod delivery;
mod mail;
mod notice;
pub mod report_webhook;
mod selector;
pub mod webhook;

use crate::webhook::Webhook;
pub use check::{ChannelProblem, command as check_command, mail as check_mail, webhook as check_webhook};
pub use command::{CommandError, NotifyCommand};
pub use counts::NotificationCounts;
use delivery::{Channel, Failure, Queue};
pub use mail::{Mail, MailError};
use nodeglass_protocol::finding::{Finding, FindingSeverity};
use nodeglass_protocol::job::Job;
use notice::Notice;
pub use notice::Sender;
use selector::{NoticeSelector, Selection};
use serde::Serialize;

/// The kind of an event to notify about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyOn {
    /// New findings, among them jobs that failed.
    Findings,
    /// Findings that are resolved.
    Resolved,
    /// Jobs that start.
    Starts,
    /// Jobs that end.
    Ends,
}

/// The channels of notices, and the events to notify about.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL to which each is posted.
    pub webhook: Option<Webhook>,
    /// The command that is run for each.
    pub command: Option<NotifyCommand>,
    /// The address to which each is mailed.
    pub mail: Option<Mail>,
    /// The events.
    pub on: Vec<NotifyOn>,
    /// Findings below this severity are left out.
    pub severity: FindingSeverity,
}

impl Settings {
    fn channels(&self) -> impl Iterator<Item = Channel> + use<> {
        let channels = [
            self.webhook.clone().map(Channel::Webhook),
            self.command.clone().map(Channel::Command),
            self.mail.clone().map(|mail| Channel::Mail(Box::new(mail))),
        ];
        channels.into_iter().flatten()
    }
}

/// Result of a test notice on one channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TestResult {
    /// The setting that configures the channel: `notify-webhook`, `on-finding` or `notify-mail`.
    pub setting: &'static str,
    /// The destination: the URL without its path, the program, or the address.
    pub to: String,
    /// Reason for the failure; `None` if it was accepted.
    pub error: Option<String>,
}

/// Sends a test notice on every configured channel at once.
pub async fn test(settings: &Settings, sender: &Sender) -> Vec<TestResult> {
    let send = |channel: Channel| {
        let sender = sender.clone();
        let (setting, to) = (channel.name(), channel.destination());
        let sent = tokio::spawn(async move { channel.send(&Notice::Test, &sender).await });
        async move {
            let error = match sent.await {
                Ok(sent) => sent.err().map(Failure::into_reason),
                Err(error) => Some(error.to_string()),
            };
            TestResult { setting, to, error }
        }
    };
    // Each is under way before the first is awaited.
    let sent: Vec<_> = settings.channels().map(send).collect();
    let mut results = Vec::new();
    for sent in sent {
        results.push(sent.await);
    }
    results
}

/// Passes notices to the channels.
#[derive(Debug)]
pub struct Notifier {
    selector: NoticeSelector,
    queues: Vec<Queue>,
}

impl Notifier {
    /// Starts the tasks that deliver; `None` if no channel is configured. `wall_ms` is the current time, in ms since
    /// 1970: findings of an earlier relay up to then are not new.
    pub fn start(settings: Settings, sender: Sender, wall_ms: u64) -> Option<Self> {
        let start = |channel: Channel| delivery::start(channel, sender.clone());
        let queues: Vec<Queue> = settings.channels().map(start).collect();
        if !queues.is_empty() {
            tokio::spawn(warn_of_problems(settings.clone()));
        }
        let selector =
            NoticeSelector::new(Selection { on: settings.on, severity: settings.severity }, wall_ms);
        (!queues.is_empty()).then_some(Self { selector, queues })
    }

    /// Returns the counts of notices, which are updated.
    pub fn counts(&self) -> NotificationCounts {
        NotificationCounts::new(self.queues.iter().map(Queue::counts))
    }

    /// Records the jobs that an earlier relay saw end, so that their failures are not sent again.
    pub fn restore_ended(&mut self, jobs: &[Job]) {
        self.selector.restore_ended(jobs);
    }

    /// Sends what is new about jobs and findings.
    pub fn observe(&mut self, jobs: &[Job], findings: &[Finding]) {
        for notice in self.selector.update(jobs, findings) {
            self.queues.iter().for_each(|queue| queue.push(notice.clone()));
        }
    }
}

/// Logs at the relay's start what the first notice would fail with, perhaps days later.
async fn warn_of_problems(settings: Settings) {
    for ChannelProblem { setting, text, advice, .. } in check::problems(&settings).await {
        tracing::warn!(to = setting, reason = text, advice, "notices cannot be delivered");
    }
}
