//! Checks where notices and reports are sent, without sending any.

use super::{CheckResult, Context, limited};
use nodeglass_notify::webhook::Webhook;
use nodeglass_notify::{ChannelProblem, Mail, NotifyCommand};
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
    let found = nodeglass_notify::check_webhook(name, webhook).await;
    vec![judged(name, found.map(|addresses| format!("{url} is {addresses}; not contacted")))]
}

fn check_command(command: &NotifyCommand) -> CheckResult {
    let found = nodeglass_notify::check_command(command);
    judged("on-finding", found.map(|path| format!("{}; not run: {TRY_IT}", path.display())))
}

fn check_mail(mail: &Mail) -> CheckResult {
    let by = |path: &std::path::Path| format!("{} by {}; not sent: {TRY_IT}", mail.address(), path.display());
    judged("notify-mail", nodeglass_notify::check_mail().map(by))
}

fn judged(name: &'static str, found: Result<String, ChannelProblem>) -> CheckResult {
    match found {
        Ok(text) => CheckResult::ok(SECTION, name, text),
        Err(ChannelProblem { text, advice, may_pass: true, .. }) => {
            CheckResult::warn(SECTION, name, text, advice)
        }
        Err(ChannelProblem { text, advice, .. }) => CheckResult::fail(SECTION, name, text, advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use nodeglass_notify::webhook::WebhookFormat;

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
        let found = check_command(&"cat >> s3cret".parse().unwrap());
        assert!(found.level == Level::Warn && !format!("{found:?}").contains("s3cret"), "{found:?}");
        assert_eq!(check_command(&"no-such-program-here && cat".parse().unwrap()).level, Level::Fail);
    }
}
