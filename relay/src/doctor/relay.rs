//! Checks the user's running relay.

use super::{CheckResult, limited};
use hyper::Method;
use nodeglass_api::ChannelStatus;
use nodeglass_app::remote::Remote;
use nodeglass_protocol::Text;
use serde::Deserialize;
use std::time::Duration;

const SECTION: &str = "Running relay";
const LIMIT: Duration = Duration::from_secs(10);

/// The part of `/status` about problems.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    notifications: Vec<ChannelStatus>,
    #[serde(default)]
    notices: Vec<Text>,
}

/// Checks the user's running relay, if there is one: the delivery of its notices, and the problems that its page states.
pub(super) async fn check() -> Vec<CheckResult> {
    limited((SECTION, "status"), LIMIT, read()).await
}

async fn read() -> Vec<CheckResult> {
    let Ok(relay) = Remote::find(None) else { return Vec::new() };
    let Ok(status) = relay.json::<Status>(Method::GET, "/status", String::new()).await else {
        return Vec::new();
    };
    let problem = |notice: &Text| CheckResult::warn(SECTION, "notice", notice, "see its log for more");
    status.notifications.iter().map(delivered).chain(status.notices.iter().map(problem)).collect()
}

fn delivered(status: &ChannelStatus) -> CheckResult {
    const NAME: &str = "delivery";
    let ChannelStatus { channel, delivered, failed, dropped } = status;
    let text = format!(
        "{channel}: {delivered} delivered, {failed} failed, {dropped} dropped since the relay's start"
    );
    match failed + dropped {
        0 => CheckResult::ok(SECTION, NAME, text),
        _ => CheckResult::warn(SECTION, NAME, text, "see the relay's log for the reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn notices_that_did_not_arrive_are_a_warning() {
        let status = |failed| ChannelStatus { channel: "mail".to_owned(), delivered: 3, failed, dropped: 0 };
        assert_eq!(delivered(&status(0)).level, Level::Ok);
        let found = delivered(&status(2));
        assert!(found.level == Level::Warn && found.text.contains("2 failed"), "{found:?}");
    }
}
