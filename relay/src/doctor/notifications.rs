//! Checks where notices and reports are sent, without sending any.

use super::{CheckResult, Context, limited};
use crate::notify::{Mail, NotifyCommand};
use crate::webhook::Webhook;
use std::time::Duration;

const SECTION: &str = "Notifications";
/// For the lookup of a name.
const LIMIT: Duration = Duration::from_secs(10);
const TRY_IT: &str = "`relay notify --test` sends a notice";

/// The configured webhooks, command and mail; nothing if there are none.
pub(super) async fn check(context: &Context) -> Vec<CheckResult> {
    let settings = context.config.notifications();
    let mut results = Vec::new();
    let webhooks =
        [("notify-webhook", settings.webhook), ("report-webhook", context.config.report_webhook())];
    for (name, webhook) in webhooks {
        if let Some(webhook) = webhook {
            results.extend(limited((SECTION, name), LIMIT, check_webhook(name, &webhook)).await);
        }
    }
    results.extend(settings.command.as_ref().map(check_command));
    results.extend(settings.mail.as_ref().map(check_mail));
    results
}

async fn check_webhook(name: &'static str, webhook: &Webhook) -> Vec<CheckResult> {
    let url = webhook.display_url();
    vec![match webhook.resolve().await {
        Ok(addresses) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            CheckResult::ok(SECTION, name, format!("{url} is {}; not contacted", addresses.join(", ")))
        }
        Err(error) if error.is_transient() => {
            let advice = format!("see that this machine can look up the host of {name}");
            CheckResult::warn(SECTION, name, format!("failed to {error}"), advice)
        }
        Err(error) => {
            CheckResult::fail(SECTION, name, format!("failed to {error}"), format!("correct {name}"))
        }
    }]
}

fn check_command(command: &NotifyCommand) -> CheckResult {
    const NAME: &str = "on-finding";
    match command.locate() {
        Some(path) => CheckResult::ok(SECTION, NAME, format!("{}; not run: {TRY_IT}", path.display())),
        None => {
            let text = format!("there is no executable file {}", command.program());
            CheckResult::fail(
                SECTION,
                NAME,
                text,
                "write its full path, and see that it is executable (chmod +x)",
            )
        }
    }
}

fn check_mail(mail: &Mail) -> CheckResult {
    const NAME: &str = "notify-mail";
    match Mail::sendmail() {
        Ok(path) => {
            let text = format!("{} by {}; not sent: {TRY_IT}", mail.address(), path.display());
            CheckResult::ok(SECTION, NAME, text)
        }
        Err(error) => CheckResult::fail(
            SECTION,
            NAME,
            error,
            "use notify-webhook or on-finding, or ask the administrators for a mail server",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::webhook::WebhookFormat;

    #[tokio::test]
    async fn a_webhook_is_resolved_and_judged_but_not_contacted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/hooks/s3cret", listener.local_addr().unwrap());
        let webhook = |url: &str| Webhook::new(url.parse().unwrap(), WebhookFormat::Json);
        let [found] = &check_webhook("notify-webhook", &webhook(&url)).await[..] else { panic!() };
        assert_eq!(found.level, Level::Ok, "{found:?}");
        assert!(found.text.contains("127.0.0.1; not contacted") && !found.text.contains("s3cret"));
        assert!(listener.accept().is_err(), "it was contacted");
        let metadata = webhook("http://169.254.169.254/latest");
        let [found] = &check_webhook("notify-webhook", &metadata).await[..] else { panic!() };
        assert_eq!(found.level, Level::Fail, "{found:?}");
    }

    #[test]
    fn a_command_that_cannot_be_executed_fails_without_its_arguments() {
        let found = check_command(&"no-such-program-here --key s3cret".parse().unwrap());
        assert_eq!(found.level, Level::Fail);
        assert!(!format!("{found:?}").contains("s3cret"), "{found:?}");
        assert_eq!(check_command(&"sh -c true".parse().unwrap()).level, Level::Ok);
    }
}
