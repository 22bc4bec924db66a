//! Reports to webhooks: `relay report JOBID --webhook`, and the button of the page.

use crate::webhook::{Payload, Webhook, WebhookFormat};
use nodeglass_platform::local_time;
use nodeglass_protocol::finding::Finding;
use nodeglass_report::{Chat, Report};
use serde_json::json;

/// Returns the body of a post about a report.
pub fn payload(report: &Report, format: WebhookFormat, chat: Chat) -> Payload {
    let mut report = report.clone();
    // Stacks and arguments are for the owner, and a webhook may be read by others.
    report.findings = report.findings.into_iter().map(Finding::without_capture).collect();
    match format {
        // Other events may follow, which their receivers tell apart by it.
        WebhookFormat::Json => Payload::Json(json!({ "event": "job_report", "report": report })),
        WebhookFormat::Message => {
            Payload::Message { text: nodeglass_report::message(&report, chat, &local_time::here_and_now) }
        }
    }
}

/// Posts a report; returns a sentence for the user.
///
/// # Errors
/// A complete sentence for the user.
pub async fn post(webhook: &Webhook, report: &Report) -> Result<String, String> {
    let url = webhook.display_url();
    match webhook.post(&payload(report, webhook.format(), webhook.chat())).await {
        Ok(()) => Ok(format!("the report of job {} was sent to {url}", report.label)),
        Err(error) => Err(format!("failed to {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_report::JobRecord;

    #[test]
    fn a_report_is_posted_as_an_event_or_as_a_message() {
        let job = Job::new(JobId(17), "alice".into(), JobState::Ended("COMPLETED".into()));
        let report = JobRecord { is_final: true, ..JobRecord::of(job, 0) }.report();
        let sent = serde_json::to_value(payload(&report, WebhookFormat::Json, Chat::Slack)).unwrap();
        assert_eq!((&sent["event"], &sent["report"]["job"]), (&"job_report".into(), &17.into()));
        let sent = serde_json::to_value(payload(&report, WebhookFormat::Message, Chat::Slack)).unwrap();
        assert!(sent["text"].as_str().unwrap().contains("Job 17"), "{sent}");
        assert_eq!(sent.as_object().unwrap().len(), 1);
    }
}
