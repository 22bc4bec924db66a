//! The state of a node or a job is one shape and one word, decided in one place.

use crate::flags::{self, Tone};
use crate::text;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{Link, NodePicture};

/// A state by its shape, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// ● all is well.
    Well,
    /// – over.
    Ended,
    /// ○ nothing known yet.
    Waiting,
    /// ◆ worth a look.
    Attention,
    /// ▲ something is wrong.
    Bad,
}

impl Shape {
    /// The class that draws it.
    pub fn class(self) -> &'static str {
        match self {
            Self::Well => "dot dot--well",
            Self::Ended => "dot dot--ended",
            Self::Waiting => "dot dot--waiting",
            Self::Attention => "dot dot--attention",
            Self::Bad => "dot dot--bad",
        }
    }
}

/// A state with the word that goes with its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How it is drawn.
    pub shape: Shape,
    /// The word: `live`, `stale 12 s`, `refused`.
    pub word: String,
}

impl Health {
    fn new(shape: Shape, word: impl Into<String>) -> Self {
        Self { shape, word: word.into() }
    }
}

/// How far a node's values can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// They are of now.
    Fresh,
    /// They are this many ms old and shown dimmed.
    Stale(u64),
    /// The job is over; they are its last.
    Last,
    /// There never were any.
    Never,
}

/// When values count as stale: as the relay does, after three intervals.
fn late_after_ms(node: &NodePicture) -> u64 {
    3 * u64::from(node.head.interval_ms.max(1_000)) + 500
}

/// How old a node's values are, by the relay's clock, whatever became of the link to the relay.
pub fn freshness(node: &NodePicture, now_ms: u64) -> Freshness {
    let Some(sampled) = node.sampled_at_ms else { return Freshness::Never };
    let age = now_ms.saturating_sub(sampled);
    match node.head.link {
        Link::Ended => Freshness::Last,
        Link::Live if age < late_after_ms(node) => Freshness::Fresh,
        _ => Freshness::Stale(age),
    }
}

/// The state of a node.
pub fn of_node(node: &NodePicture, now_ms: u64) -> Health {
    let stale = || match freshness(node, now_ms) {
        Freshness::Stale(age) => format!("stale {}", text::span(age / 1_000)),
        _ => "no sample yet".to_owned(),
    };
    match &node.head.link {
        Link::Waiting => Health::new(Shape::Waiting, "waiting"),
        Link::Connecting { failures: 0 } => Health::new(Shape::Waiting, "connecting"),
        Link::Connecting { .. } => Health::new(Shape::Bad, "connecting again"),
        Link::Late => Health::new(Shape::Attention, stale()),
        Link::Silent => Health::new(Shape::Bad, format!("silent, {}", stale())),
        Link::Down { .. } => Health::new(Shape::Bad, "down"),
        Link::Refused { .. } => Health::new(Shape::Bad, "refused"),
        Link::Ended => Health::new(Shape::Ended, "ended"),
        Link::Live => of_live_node(node, now_ms),
    }
}

fn of_live_node(node: &NodePicture, now_ms: u64) -> Health {
    if node.head.nvml_stuck_ms.is_some() {
        return Health::new(Shape::Bad, "NVML hangs");
    }
    if node.gpus.iter().any(|gpu| gpu.fault.is_some()) {
        return Health::new(Shape::Bad, "a GPU cannot be read");
    }
    match freshness(node, now_ms) {
        Freshness::Never => return Health::new(Shape::Waiting, "first sample is on its way"),
        Freshness::Stale(age) => {
            return Health::new(Shape::Attention, format!("stale {}", text::span(age / 1_000)));
        }
        Freshness::Fresh | Freshness::Last => {}
    }
    if let Some(word) = raised_flag(node) {
        return Health::new(Shape::Attention, word);
    }
    if node.head.no_gpu.is_some() {
        return Health::new(Shape::Waiting, "no GPU to show");
    }
    Health::new(Shape::Well, "live")
}

/// The loudest flag of a node's GPUs, if it is worth a look: `GPU 1 !THERM`.
fn raised_flag(node: &NodePicture) -> Option<String> {
    let flags = node.gpus.iter().filter_map(|gpu| Some((gpu, flags::of(&gpu.row).into_iter().next()?)));
    let (gpu, flag) = flags.filter(|(_, flag)| flag.tone >= Tone::Warn).max_by_key(|(_, flag)| flag.tone)?;
    Some(format!("GPU {} {}", gpu.facts.index, flag.text))
}

/// The state of a job: SLURM's word, and the worst of its nodes while it runs.
pub fn of_job<'a>(job: &Job, nodes: impl Iterator<Item = &'a NodePicture>, now_ms: u64) -> Health {
    let word = state_word(&job.state);
    match job.state {
        JobState::Pending => return Health::new(Shape::Waiting, word),
        JobState::Ended(_) => return Health::new(Shape::Ended, word),
        _ => {}
    }
    let worst = nodes.map(|node| (of_node(node, now_ms), node)).max_by_key(|(health, _)| health.shape);
    match worst {
        Some((health, node)) if health.shape > Shape::Ended => {
            Health::new(health.shape, format!("{word}; {}: {}", node.name, health.word))
        }
        _ => Health::new(Shape::Well, word),
    }
}

/// A job's state as a word.
pub fn state_word(state: &JobState) -> String {
    match state {
        JobState::Pending => "waiting".to_owned(),
        JobState::Configuring => "nodes are being prepared".to_owned(),
        JobState::Running => "running".to_owned(),
        JobState::Suspended => "suspended".to_owned(),
        JobState::Completing => "completing".to_owned(),
        JobState::Ended(how) if how.is_empty() => "ended".to_owned(),
        JobState::Ended(how) | JobState::Other(how) => how.as_str().to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::picture::GpuPicture;
    use nodeglass_protocol::{Cell, GpuField, NodeName};

    fn node(link: Link, sampled_at_ms: Option<u64>) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = link;
        node.head.interval_ms = 1_000;
        node.sampled_at_ms = sampled_at_ms;
        node.gpus = vec![GpuPicture::default()];
        node
    }

    #[test]
    fn a_silent_node_is_shown_as_silent_not_idle() {
        let health = of_node(&node(Link::Silent, Some(10_000)), 48_000);
        assert_eq!((health.shape, health.word.as_str()), (Shape::Bad, "silent, stale 38 s"));
    }

    #[test]
    fn values_age_even_when_nobody_says_that_the_node_is_late() {
        let node = node(Link::Live, Some(10_000));
        assert_eq!(freshness(&node, 12_000), Freshness::Fresh);
        assert_eq!(freshness(&node, 22_000), Freshness::Stale(12_000));
        assert_eq!(of_node(&node, 22_000).word, "stale 12 s");
    }

    #[test]
    fn an_ended_node_keeps_its_last_picture_without_an_age() {
        let node = node(Link::Ended, Some(10_000));
        assert_eq!(freshness(&node, 900_000), Freshness::Last);
        assert_eq!(of_node(&node, 900_000).shape, Shape::Ended);
    }

    #[test]
    fn a_power_cap_leaves_a_node_well_and_heat_does_not() {
        let mut node = node(Link::Live, Some(10_000));
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x4));
        assert_eq!(of_node(&node, 10_100).shape, Shape::Well);
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
        let hot = of_node(&node, 10_100);
        assert_eq!((hot.shape, hot.word.as_str()), (Shape::Attention, "GPU 0 !THERM"));
    }

    #[test]
    fn a_hanging_driver_and_a_lost_card_are_bad() {
        let mut hung = node(Link::Live, Some(10_000));
        hung.head.nvml_stuck_ms = Some(9_000);
        assert_eq!(of_node(&hung, 10_100).word, "NVML hangs");
        let mut lost = node(Link::Live, Some(10_000));
        lost.gpus[0].fault = Some("GPU is lost".into());
        assert_eq!(of_node(&lost, 10_100).shape, Shape::Bad);
    }

    #[test]
    fn a_clock_that_ran_ahead_gives_no_negative_age() {
        assert_eq!(freshness(&node(Link::Live, Some(10_000)), 9_000), Freshness::Fresh);
    }
}
