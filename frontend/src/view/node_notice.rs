//! Whatever keeps a node from being shown as it is now is said in a sentence, with what to do about it.

use super::actions;
use super::dot::Dot;
use crate::feed;
use crate::fleet::{NodeCell, Scene};
use crate::health::{Health, Shape};
use crate::page::Page;
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::Text;
use nodeglass_protocol::ask::RetryTarget;
use nodeglass_protocol::picture::{Link, NodePicture};

/// The notice of a node, if there is something to say.
#[component]
pub fn NodeNotice(
    /// The scene.
    scene: Scene,
    /// The node.
    node: NodeCell,
) -> impl IntoView {
    let page = Page::here();
    let notice = {
        let (page, scene, node) = (page.clone(), scene.clone(), node.clone());
        Memo::new(move |_| {
            node.head().track();
            node.sampled().track();
            let now_ms = page.now_ms();
            let said = scene.node(&node, |node| notice(node, now_ms)).flatten();
            // While the link to the relay is lost, that is what there is to say.
            said.filter(|_| !matches!(page.feed.link(), feed::Link::Lost(_)))
        })
    };
    let (shown, name) = (page.clone(), node.name().clone());
    let retry = Memo::new(move |_| {
        node.head().track();
        scene.node(&node, |node| retry_word(&node.head.link)).flatten()
    });
    move || {
        notice.get().map(|notice| {
            let class = match notice.shape {
                Shape::Bad => "notice notice--bad",
                Shape::Attention => "notice notice--attention",
                _ => "notice",
            };
            let health = Health { shape: notice.shape, word: notice.head.clone() };
            view! {
                <div class=class>
                    <Dot health=Signal::stored(health)/>
                    <div><b>{notice.head}</b> " " <span>{notice.rest}</span></div>
                    {retry.get().and_then(|word| actions::retry(&shown, RetryTarget::Node(name.clone()), word))}
                </div>
            }
        })
    }
}

/// The word of the button that tries a node again now, where it waits for its time or for the user.
fn retry_word(link: &Link) -> Option<&'static str> {
    match link {
        Link::Refused { .. } => Some("Try again"),
        Link::Down { .. } => Some("Try now"),
        _ => None,
    }
}

/// What is said, and how loudly.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Notice {
    shape: Shape,
    head: String,
    rest: String,
}

impl Notice {
    fn new(shape: Shape, head: impl Into<String>, rest: impl Into<String>) -> Option<Self> {
        Some(Self { shape, head: head.into(), rest: rest.into() })
    }
}

/// The one thing to say of a node, the most pressing first.
fn notice(node: &NodePicture, now_ms: u64) -> Option<Notice> {
    let name = &node.name;
    let age = node.sampled_at_ms.map(|at| text::span(now_ms.saturating_sub(at) / 1_000));
    let since =
        age.map_or("There was no sample yet.".to_owned(), |age| format!("The values below are {age} old."));
    match &node.head.link {
        Link::Waiting => {
            Notice::new(Shape::Waiting, format!("{name} is next."), "Its probe has not been started yet.")
        }
        Link::Connecting { failures: 0 } => {
            Notice::new(Shape::Waiting, format!("Connecting to {name}."), "The first sample is on its way.")
        }
        Link::Connecting { failures } => Notice::new(
            Shape::Attention,
            format!("Connecting to {name} again."),
            format!("{} failed before. {since}", text::count(*failures as usize, "try", "tries")),
        ),
        Link::Late => Notice::new(Shape::Attention, format!("{name} is late."), since),
        Link::Silent => {
            Notice::new(Shape::Bad, format!("{name} is silent."), format!("{since} The relay keeps trying."))
        }
        Link::Down { why, retry_at_ms } => {
            let wait = retry_at_ms.saturating_sub(now_ms).div_ceil(1_000);
            let next = if wait == 0 {
                "Trying now.".to_owned()
            } else {
                format!("Next try in {}.", text::span(wait))
            };
            let text = format!("{} {next} {since}", sentences([why]));
            Notice::new(Shape::Bad, format!("{name} cannot be reached:"), text)
        }
        Link::Refused { why, advice } => {
            Notice::new(Shape::Bad, format!("The relay cannot log in to {name}:"), sentences([why, advice]))
        }
        Link::Ended => Notice::new(Shape::Ended, "The job has left this node.", "This is its last picture."),
        Link::Live => of_live(node, now_ms),
    }
}

/// One sentence of fragments; those that are sentences already stay as they are.
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
    if let Some(stuck_ms) = node.head.nvml_stuck_ms {
        let text = format!(
            "A call has not returned for {}. Until it does, GPU readings are old or missing; processes that use the driver may hang, too.",
            text::span(stuck_ms / 1_000)
        );
        return Notice::new(Shape::Bad, "The NVIDIA driver hangs.", text);
    }
    if let Some(why) = &node.head.no_gpu {
        return Notice::new(Shape::Waiting, "No GPU to show:", why.to_string());
    }
    match crate::health::freshness(node, now_ms) {
        crate::health::Freshness::Never => Notice::new(
            Shape::Waiting,
            format!("{} is connected.", node.name),
            "The first sample is on its way.",
        ),
        crate::health::Freshness::Stale(age) => Notice::new(
            Shape::Attention,
            format!("stale {}.", text::span(age / 1_000)),
            "No sample has come for that long.",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;

    fn said(link: Link) -> String {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = link;
        node.sampled_at_ms = Some(10_000);
        notice(&node, 48_000).map(|notice| format!("{} {}", notice.head, notice.rest)).unwrap_or_default()
    }

    #[test]
    fn a_node_that_is_down_says_why_and_when_it_is_tried_again() {
        let link = Link::Down { why: "SSH timed out.".into(), retry_at_ms: 60_000 };
        assert_eq!(
            said(link),
            "n1 cannot be reached: SSH timed out. Next try in 12 s. The values below are 38 s old."
        );
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let link =
            Link::Refused { why: "The host key is unknown.".into(), advice: "Run `ssh n1` once.".into() };
        assert_eq!(said(link), "The relay cannot log in to n1: The host key is unknown. Run `ssh n1` once.");
    }

    #[test]
    fn what_waits_can_be_tried_again_by_a_button() {
        let text = || Text::new("x");
        assert_eq!(retry_word(&Link::Refused { why: text(), advice: text() }), Some("Try again"));
        assert_eq!(retry_word(&Link::Down { why: text(), retry_at_ms: 1 }), Some("Try now"));
        for link in [Link::Waiting, Link::Connecting { failures: 3 }, Link::Live, Link::Silent, Link::Ended] {
            assert_eq!(retry_word(&link), None, "{link:?}");
        }
        let advice = "see that `ssh n1` logs in";
        let link = Link::Refused { why: "there is no key".into(), advice: advice.into() };
        assert_eq!(said(link), "The relay cannot log in to n1: there is no key; see that `ssh n1` logs in.");
    }

    #[test]
    fn a_healthy_node_needs_no_words() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = Link::Live;
        node.sampled_at_ms = Some(10_000);
        assert_eq!(notice(&node, 10_400), None);
    }
}
