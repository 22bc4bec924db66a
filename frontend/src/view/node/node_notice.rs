//! The notice of a node whose current state cannot be shown: the reason, and what to do.

use crate::domain::health::Health;
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::{NodeSignals, TopicStore};
use crate::state::page::{Page, lacks_gpus};
use crate::view::widgets::actions;
use crate::view::widgets::code_text::code_text;
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::Text;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::request::RetryTarget;

/// The notice of a node, if there is one.
#[component]
pub fn NodeNotice(
    /// The store.
    store: TopicStore,
    /// The node.
    node: NodeSignals,
) -> impl IntoView {
    let page = Page::from_context();
    let notice = {
        let (page, store, node) = (page.clone(), store.clone(), node.clone());
        Memo::new(move |_| {
            node.head().track();
            node.samples().track();
            let now_ms = page.now_ms();
            let mut text = store.node(&node, |node| notice(node, now_ms)).flatten();
            if lacks_gpus(&page, &store, &node)
                && let Some(notice) = text.as_mut().filter(|notice| notice.severity == Severity::Pending)
            {
                notice.severity = Severity::Error;
            }
            // While the connection to the relay is lost, only that is reported.
            text.filter(|_| page.feed.is_live())
        })
    };
    let (shown, name) = (page.clone(), node.name().clone());
    let retry = Memo::new(move |_| {
        node.head().track();
        store.node(&node, |node| retry_label(&node.head.link)).flatten()
    });
    move || {
        notice.get().map(|notice| {
            let class = match notice.severity {
                Severity::Error => "notice notice--bad",
                Severity::Warning => "notice notice--attention",
                _ => "notice",
            };
            let health = Health { severity: notice.severity, label: notice.head.clone() };
            view! {
                <div class=class>
                    <Dot health=Signal::stored(health)/>
                    <div><b>{notice.head}</b> " " <span>{code_text(&notice.rest)}</span></div>
                    {retry.get().and_then(|label| actions::retry(&shown, RetryTarget::Node(name.clone()), label))}
                </div>
            }
        })
    }
}

/// Returns the label of the button that retries a node now, if it waits for its turn or for the user.
fn retry_label(link: &Link) -> Option<&'static str> {
    match link {
        Link::Refused { .. } => Some("Try again"),
        Link::Down { .. } => Some("Try now"),
        _ => None,
    }
}

/// A notice and its severity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notice {
    severity: Severity,
    head: String,
    rest: String,
}

impl Notice {
    fn new(severity: Severity, head: impl Into<String>, rest: impl Into<String>) -> Option<Self> {
        Some(Self { severity, head: head.into(), rest: rest.into() })
    }
}

/// Returns the most important notice of a node.
fn notice(node: &NodePicture, now_ms: u64) -> Option<Notice> {
    let name = &node.name;
    let age = node.sampled_at_ms.map(|at| text::span(now_ms.saturating_sub(at) / 1_000));
    let since =
        age.map_or("No sample received yet.".to_owned(), |age| format!("The values below are {age} old."));
    match &node.head.link {
        Link::Waiting => Notice::new(
            Severity::Pending,
            format!("{name} is queued."),
            "Its probe has not been started yet.",
        ),
        Link::Connecting { failures: 0 } => {
            Notice::new(Severity::Pending, format!("Connecting to {name}."), "Waiting for the first sample.")
        }
        Link::Connecting { failures } => Notice::new(
            Severity::Warning,
            format!("Reconnecting to {name}."),
            format!("{} failed. {since}", text::count(*failures as usize, "attempt", "attempts")),
        ),
        Link::Late => Notice::new(Severity::Warning, format!("{name} is late."), since),
        Link::Silent => Notice::new(
            Severity::Error,
            format!("{name} is silent."),
            format!("{since} The relay keeps retrying."),
        ),
        Link::Down { reason: why, retry_at_ms } => {
            let wait = retry_at_ms.saturating_sub(now_ms).div_ceil(1_000);
            let next = if wait == 0 {
                "Retrying now.".to_owned()
            } else {
                format!("Next attempt in {}.", text::span(wait))
            };
            let text = format!("{} {next} {since}", sentences([why]));
            Notice::new(Severity::Error, format!("{name} cannot be reached:"), text)
        }
        Link::Refused { reason: why, advice } => Notice::new(
            Severity::Error,
            format!("The relay cannot log in to {name}:"),
            sentences([why, advice]),
        ),
        Link::Ended => {
            Notice::new(Severity::Ended, "The job has ended on this node.", "These are its last values.")
        }
        Link::Live => of_live(node, now_ms),
    }
}

/// Joins fragments to one sentence; complete sentences stay as they are.
fn sentences<const N: usize>(parts: [&Text; N]) -> String {
    let mut out = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let is_over = out.is_empty() || out.ends_with(['.', '!', '?']);
        out.push_str(match (out.is_empty(), is_over) {
            (true, _) => "",
            (false, true) => " ",
            (false, false) => "; ",
        });
        out.push_str(part.as_str());
    }
    if !out.ends_with(['.', '!', '?']) {
        out.push('.');
    }
    out
}

fn of_live(node: &NodePicture, now_ms: u64) -> Option<Notice> {
    if let Some(stuck_ms) = node.head.driver_stuck_ms {
        let text = format!(
            "A call has not returned for {}. Until it does, GPU readings are old or missing, and processes that use the driver may hang.",
            text::span(stuck_ms / 1_000)
        );
        let title = format!("The {} driver hangs.", node.head.vendor().name());
        return Notice::new(Severity::Error, title, text);
    }
    if let Some(why) = &node.head.no_gpu {
        return Notice::new(Severity::Pending, "No GPUs:", sentences([why]));
    }
    match crate::domain::health::freshness(node, now_ms) {
        crate::domain::health::Freshness::Never => Notice::new(
            Severity::Pending,
            format!("{} is connected.", node.name),
            "Waiting for the first sample.",
        ),
        crate::domain::health::Freshness::Stale(age) => Notice::new(
            Severity::Warning,
            format!("stale {}.", text::span(age / 1_000)),
            "No sample has arrived since.",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;

    fn notice_text(link: Link) -> String {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = link;
        node.sampled_at_ms = Some(10_000);
        notice(&node, 48_000).map(|notice| format!("{} {}", notice.head, notice.rest)).unwrap_or_default()
    }

    #[test]
    fn a_node_that_is_down_shows_the_reason_and_the_next_retry() {
        let link = Link::Down { reason: "SSH timed out.".into(), retry_at_ms: 60_000 };
        assert_eq!(
            notice_text(link),
            "n1 cannot be reached: SSH timed out. Next attempt in 12 s. The values below are 38 s old."
        );
    }

    #[test]
    fn a_refusal_comes_with_advice() {
        let link =
            Link::Refused { reason: "The host key is unknown.".into(), advice: "Run `ssh n1` once.".into() };
        assert_eq!(
            notice_text(link),
            "The relay cannot log in to n1: The host key is unknown. Run `ssh n1` once."
        );
    }

    #[test]
    fn a_waiting_node_can_be_retried_by_a_button() {
        let text = || Text::new("x");
        assert_eq!(retry_label(&Link::Refused { reason: text(), advice: text() }), Some("Try again"));
        assert_eq!(retry_label(&Link::Down { reason: text(), retry_at_ms: 1 }), Some("Try now"));
        for link in [Link::Waiting, Link::Connecting { failures: 3 }, Link::Live, Link::Silent, Link::Ended] {
            assert_eq!(retry_label(&link), None, "{link:?}");
        }
        let advice = "see that `ssh n1` logs in";
        let link = Link::Refused { reason: "there is no key".into(), advice: advice.into() };
        assert_eq!(
            notice_text(link),
            "The relay cannot log in to n1: there is no key; see that `ssh n1` logs in."
        );
    }

    #[test]
    fn a_healthy_node_has_no_notice() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = Link::Live;
        node.sampled_at_ms = Some(10_000);
        assert_eq!(notice(&node, 10_400), None);
    }
}
