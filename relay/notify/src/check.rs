//! Checks of channels that send nothing: whether a notice could be delivered.

use super::Settings;
use super::command::{ADVICE, NotifyCommand};
use super::mail::Mail;
use crate::webhook::Webhook;
use std::path::{Path, PathBuf};

/// Problem of delivering notices on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelProblem {
    /// The setting that configures the channel.
    pub setting: &'static str,
    /// The problem.
    pub text: String,
    /// The remedy.
    pub advice: String,
    /// Whether notices may arrive nevertheless.
    pub may_pass: bool,
}

/// Looks up the addresses of a webhook's host without contacting it.
///
/// # Errors
/// It has no address, or one that may not be contacted.
pub async fn webhook(setting: &'static str, webhook: &Webhook) -> Result<String, ChannelProblem> {
    match webhook.resolve().await {
        Ok(addresses) => Ok(addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        Err(error) => Err(ChannelProblem {
            setting,
            text: format!("failed to {error}"),
            advice: match error.is_transient() {
                true => format!("check that this machine can look up the host of {setting}"),
                false => format!("correct {setting}"),
            },
            may_pass: error.is_transient(),
        }),
    }
}

/// Returns the path of a command's program, without running it.
///
/// # Errors
/// The program does not exist, or the command has syntax that only a shell interprets.
pub fn command(command: &NotifyCommand) -> Result<PathBuf, ChannelProblem> {
    let problem = |text: String, advice: &str, may_pass| ChannelProblem {
        setting: "on-finding",
        text,
        advice: advice.to_owned(),
        may_pass,
    };
    let found = command.locate();
    match (found, command.needs_shell()) {
        (found, Some(why)) => Err(problem(why, ADVICE, found.is_some())),
        (Some(path), None) => Ok(path),
        (None, None) => Err(problem(
            format!("there is no executable file {}", command.program()),
            "write its full path, and check that it is executable (chmod +x)",
            false,
        )),
    }
}

/// Returns the path of `sendmail`.
///
/// # Errors
/// It does not exist.
pub fn mail() -> Result<&'static Path, ChannelProblem> {
    Mail::sendmail().map_err(|error| ChannelProblem {
        setting: "notify-mail",
        text: error.to_string(),
        advice: "use notify-webhook or on-finding, or ask the administrators for a mail server".to_owned(),
        may_pass: false,
    })
}

/// Returns the problems of the configured channels.
pub(super) async fn problems(settings: &Settings) -> Vec<ChannelProblem> {
    let mut problems = Vec::new();
    if let Some(url) = &settings.webhook {
        problems.extend(webhook("notify-webhook", url).await.err());
    }
    problems.extend(settings.command.as_ref().and_then(|program| command(program).err()));
    problems.extend(settings.mail.as_ref().and_then(|_| mail().err()));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::WebhookFormat;
    use nodeglass_protocol::finding::FindingSeverity;

    #[tokio::test]
    async fn what_cannot_be_delivered_is_known_before_the_first_notice() {
        let url = "http://169.254.169.254/latest".parse().unwrap();
        let settings = Settings {
            webhook: Some(Webhook::new(url, WebhookFormat::Json)),
            command: Some("no-such-program-here --key s3cret".parse().unwrap()),
            mail: None,
            on: Vec::new(),
            severity: FindingSeverity::Warning,
        };
        let problems = problems(&settings).await;
        let of: Vec<&str> = problems.iter().map(|problem| problem.setting).collect();
        assert_eq!(of, ["notify-webhook", "on-finding"]);
        assert!(!format!("{problems:?}").contains("s3cret"), "{problems:?}");
    }
}
