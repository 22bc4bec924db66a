//! `relay notify`: sends a test notice by every configured way.

use nodeglass_app::{addresses::own_login, terminal};
use nodeglass_config::{Config, NotifyArgs};
use nodeglass_notify::{Sender, TestResult};
use nodeglass_protocol::Text;
use nodeglass_report::aligned;
use serde::Serialize;

/// The output as JSON.
#[derive(Debug, Serialize)]
struct Tested {
    channels: Vec<TestResult>,
}

/// The outcome of a test.
#[derive(Debug)]
pub struct Outcome {
    /// The output.
    pub text: String,
    /// 0 if every channel accepted the notice, 1 if one did not, 3 if no channel is configured.
    pub exit_code: u8,
}

/// Executes `relay notify`.
///
/// # Errors
/// The results cannot be written as JSON.
pub async fn test(args: &NotifyArgs, config: &Config) -> anyhow::Result<Outcome> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let cluster = config.cluster.as_ref().map_or_else(|| host.clone(), ToString::to_string);
    let sender = Sender { cluster, user: own_login().to_string(), host };
    let results = nodeglass_notify::test(&config.notifications(), &sender).await;
    let exit_code = match &*results {
        [] => 3,
        results => u8::from(results.iter().any(|result| result.error.is_some())),
    };
    let text = if args.json { terminal::json(&Tested { channels: results })? } else { table(&results) };
    Ok(Outcome { text, exit_code })
}

fn table(results: &[TestResult]) -> String {
    if results.is_empty() {
        return "no notifications are configured; set notify-webhook, on-finding or notify-mail\n".to_owned();
    }
    let row = |result: &TestResult| {
        let outcome = match (&result.error, result.setting) {
            // Its text may come from another host.
            (Some(error), _) => failed(&Text::new(error)),
            (None, "on-finding") => "ran".to_owned(),
            (None, "notify-mail") => {
                "passed to sendmail, which states later if it is not delivered".to_owned()
            }
            (None, _) => "accepted".to_owned(),
        };
        vec![result.setting.to_owned(), Text::new(&result.to).to_string(), outcome]
    };
    let rows: Vec<_> = results.iter().map(row).collect();
    aligned(&rows, 3).lines().map(|line| format!("{}\n", line.trim())).collect()
}

fn failed(error: &Text) -> String {
    let error = error.as_str();
    if error.starts_with("failed") { error.to_owned() } else { format!("failed: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_a_line_that_states_what_its_success_means() {
        let result = |setting, to: &str, error: Option<&str>| TestResult {
            setting,
            to: to.to_owned(),
            error: error.map(str::to_owned),
        };
        let results = [
            result(
                "notify-webhook",
                "https://chat.example.org/…",
                Some("failed to post:\u{1b}[2J it is 404"),
            ),
            result("on-finding", "notify-send", None),
            result("notify-mail", "alice@example.org", None),
        ];
        let text = table(&results);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("notify-webhook  https://chat.example.org/…  failed to post:"));
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(lines[1], "on-finding      notify-send                 ran");
        assert!(lines[2].contains("passed to sendmail"), "{text}");
        assert!(table(&[]).contains("no notifications are configured"));
    }
}
