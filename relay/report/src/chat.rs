//! A report as a message for a chat: text in a block of code, bounded, without what a chat would interpret.

use super::text::FormatTime;
use super::{Report, text};

/// Longest message in characters; Mattermost accepts 16,383.
const MAX_CHARS: usize = 12_000;

/// The service that shows a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chat {
    /// Slack, which decodes entities, also within code.
    Slack,
    /// Mattermost, and others that accept its incoming webhooks. They show entities within code as they are written.
    Mattermost,
}

/// The message.
pub fn message(report: &Report, chat: Chat, clock: FormatTime<'_>) -> String {
    let plain = text(report, None, clock);
    if plain.chars().count() <= MAX_CHARS {
        return code_block(&plain, chat);
    }
    let cut: String = plain.chars().take(MAX_CHARS).collect();
    code_block(&format!("{cut}\n… ('relay report' prints the rest)"), chat)
}

/// A text as a block of code, which chats show as it is: names of jobs cannot mention anyone or end it.
pub fn code_block(text: &str, chat: Chat) -> String {
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.trim_end().chars() {
        match (letter, chat) {
            // Both end a block of code at backticks.
            ('`', _) => shown.push('\''),
            // Slack reads `<!channel>` and `&lt;` even within code, and requires these three entities.
            ('&', Chat::Slack) => shown.push_str("&amp;"),
            ('<', Chat::Slack) => shown.push_str("&lt;"),
            ('>', Chat::Slack) => shown.push_str("&gt;"),
            // Mattermost replaces `<!channel>` and `<URL|text>`, and knows no escape for them.
            ('<', Chat::Mattermost) => shown.push('‹'),
            ('>', Chat::Mattermost) => shown.push('›'),
            (other, _) => shown.push(other),
        }
    }
    format!("```\n{shown}\n```")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advice, JobRecord};
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::{Job, JobState};

    fn report(name: &str) -> Report {
        let state = JobState::Ended("COMPLETED".into());
        let job = Job { name: name.into(), ..Job::new(JobId(17), "alice".into(), state) };
        JobRecord { is_final: true, ..JobRecord::of(job, 0) }.report()
    }

    #[test]
    fn names_cannot_end_the_block_or_mention_a_channel() {
        for (chat, name) in [
            (Chat::Slack, "x ''' &lt;!channel&gt; R&amp;D &amp;lt;"),
            (Chat::Mattermost, "x ''' ‹!channel› R&D &lt;"),
        ] {
            let message = message(&report("x ``` <!channel> R&D &lt;"), chat, &|_| String::new());
            assert!(message.starts_with("```\nJob") && message.ends_with("\n```"), "{message}");
            assert_eq!(message.matches("```").count(), 2);
            assert!(message.contains(name) && !message.contains(['<', '>']), "{message}");
        }
    }

    #[test]
    fn a_long_report_is_cut() {
        let mut report = report("x");
        let advice = Advice { text: "y".repeat(250).as_str().into(), sbatch: None };
        report.advice = vec![advice; 100];
        let message = message(&report, Chat::Mattermost, &|_| String::new());
        assert!(message.chars().count() < MAX_CHARS + 60 && message.contains("prints the rest"));
        assert!(message.ends_with("\n```"));
    }
}
