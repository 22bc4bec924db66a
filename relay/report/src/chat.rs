//! A report as a message for a chat: text in a block of code, bounded, without what a chat would interpret.

use super::{Report, text};

/// Longest message in characters; Mattermost accepts 16,383.
const MAX_CHARS: usize = 12_000;

/// The message.
pub fn message(report: &Report) -> String {
    let plain = text(report, None);
    if plain.chars().count() <= MAX_CHARS {
        return code_block(&plain);
    }
    let cut: String = plain.chars().take(MAX_CHARS).collect();
    code_block(&format!("{cut}\n… ('relay report' prints the rest)"))
}

/// A text as a block of code, which Slack and Mattermost show as it is: names of jobs cannot mention anyone or end it.
pub fn code_block(text: &str) -> String {
    let shown: String = text.trim_end().chars().map(plain_letter).collect();
    format!("```\n{shown}\n```")
}

/// Slack reads `<!channel>` even within code; both end a block of code at backticks.
fn plain_letter(letter: char) -> char {
    match letter {
        '<' => '‹',
        '>' => '›',
        '`' => '\'',
        other => other,
    }
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
        let message = message(&report("x ``` <!channel>"));
        assert!(message.starts_with("```\nJob") && message.ends_with("\n```"), "{message}");
        assert_eq!(message.matches("```").count(), 2);
        assert!(!message.contains(['<', '>']), "{message}");
    }

    #[test]
    fn a_long_report_is_cut() {
        let mut report = report("x");
        let advice = Advice { text: "y".repeat(250).as_str().into(), sbatch: None };
        report.advice = vec![advice; 100];
        let message = message(&report);
        assert!(message.chars().count() < MAX_CHARS + 60 && message.contains("prints the rest"));
        assert!(message.ends_with("\n```"));
    }
}
