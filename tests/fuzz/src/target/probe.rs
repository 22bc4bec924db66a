//! The probe wire, from a node's bytes to a page's picture: for any input, every page has the relay's state.

use nodeglass_fleet::SessionEvent;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_live::TopicFeed;
use nodeglass_nodes::decoder::{DecodeError, Decoder, Found};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_protocol::share::{HiddenParts, Scope, ShareTerms};
use nodeglass_protocol::{JobId, NodeName, Picture, Reading, Text};
use nodeglass_share::{Viewer, Visibility};
use std::sync::Arc;

/// Start time, by the relay's clock.
const START_MS: u64 = nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
/// The first lines of an ordinary probe, so that the input reaches later states.
const MAGIC: &str = nodeglass_protocol::probe::MAGIC;

/// The bytes of a node's channel.
pub(crate) fn probe_to_relay(bytes: &[u8]) {
    let whole = pieces(&[bytes]);
    // The result does not depend on how the network splits them.
    let size = 1 + bytes.first().map_or(0, |byte| usize::from(*byte) % 61);
    assert!(
        whole == pieces(&bytes.chunks(size).collect::<Vec<_>>()),
        "cut into pieces of {size} it means something else"
    );
    show(whole.0);
    if !bytes.starts_with(MAGIC.as_bytes()) {
        // The same on an established link.
        show(pieces(&[MAGIC.as_bytes(), b"{}\n", bytes]).0);
    }
}

fn pieces(pieces: &[&[u8]]) -> (Vec<Found>, Option<DecodeError>) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    let error = pieces.iter().find_map(|piece| decoder.feed(piece, START_MS, &mut found).err());
    (found, error)
}

/// A page that subscribes to a topic.
struct Page {
    is_restricted: bool,
    feed: TopicFeed,
    picture: Picture,
}

impl Page {
    fn open(topic: Topic, viewer: Viewer, fleet: &Fleet) -> Self {
        let is_restricted = viewer != Viewer::Owner;
        let mut feed =
            TopicFeed::open(topic, viewer, 1, usize::MAX, fleet, START_MS).expect("the topic exists");
        let picture = snapshot(&mut feed, fleet);
        Self { is_restricted, feed, picture }
    }
}

fn snapshot(feed: &mut TopicFeed, fleet: &Fleet) -> Picture {
    let frame = feed.full_snapshot(fleet, Form::Binary).expect("the topic is still there");
    match Form::Binary.decode(&frame).expect("a snapshot can be read") {
        ServerMessage::Snapshot(snapshot) => snapshot.picture,
        other => unreachable!("a snapshot became {other:?}"),
    }
}

/// Feeds all lines to the fleet and its pages; each page must end up with the full picture.
fn show(found: Vec<Found>) {
    let node = NodeName::new("n1").expect("a plain name");
    // SLURM states the start of a running job. Without it, a guest's snapshot has no history before the live readings.
    let job = Job {
        nodes: vec![node.clone()],
        start: Some(0),
        ..Job::new(JobId(17), "alice".into(), JobState::Running)
    };
    let mut fleet = Fleet::new();
    fleet.handle(Event::Jobs { jobs: vec![job], wall_ahead_ms: 0 }, START_MS);
    let topics = [Topic::Overview, Topic::Job(JobId(17)), Topic::Node(node.clone())];
    let viewer = [Viewer::Owner, Viewer::Restricted(Arc::new(visibility()))];
    let mut pages =
        viewer.map(|viewer| topics.clone().map(|topic| Page::open(topic, viewer.clone(), &fleet)));
    fleet.take_changes();
    let mut now_ms = START_MS;
    // A minute of lines covers the states of interest.
    for found in found.into_iter().take(60) {
        now_ms += 1_000;
        let event = match found {
            Found::Line(line) => SessionEvent::Line(line),
            Found::Piece => continue,
            Found::Noise(noise) => SessionEvent::Noise(noise),
            Found::Lost { lines, sample } => SessionEvent::Lost { lines, sample },
        };
        fleet.handle(Event::Node(node.clone(), event), now_ms);
        fleet.handle(Event::Tick, now_ms);
        let changes = fleet.take_changes();
        for page in pages.iter_mut().flatten() {
            let Some(update) = page.feed.advance(&fleet, &changes, now_ms, true) else { continue };
            let json = update.json.expect("JSON was requested");
            let _: ServerMessage = Form::Json.decode(&json).expect("a delta in JSON can be read");
            let message = Form::Binary.decode(&update.binary).expect("a delta can be read");
            let ServerMessage::Delta(delta) = message else { unreachable!("a delta became {message:?}") };
            page.picture.apply(&delta, |_| ()).expect("a delta fits what came before it");
        }
    }
    for page in pages.iter_mut().flatten() {
        let truth = snapshot(&mut page.feed, &fleet);
        if page.is_restricted {
            hides_what_it_should(&page.picture);
        }
        assert!(page.picture == truth, "a page knows {:#?}\nand true is {truth:#?}", page.picture);
    }
}

/// Visibility of a guest of the job, with every part hidden.
fn visibility() -> Visibility {
    let terms = ShareTerms {
        label: Text::default(),
        scope: Scope::Jobs(vec![JobId(17)]),
        hidden: HiddenParts::default(),
        to: None,
        expires_ms: u64::MAX,
        ends_with_job: false,
    };
    Visibility::new(&terms, "alice".into())
}

/// Hidden values appear in no guest's picture, whatever the node sends.
fn hides_what_it_should(picture: &Picture) {
    for process in picture.nodes.iter().flat_map(|node| &node.processes) {
        let facts = &process.facts;
        for hidden in [&facts.args, &facts.cwd] {
            assert!(!matches!(hidden, Reading::Value(_)), "a guest received {hidden:?}");
        }
        assert!(facts.job == Some(JobId(17)), "a guest received a process of {:?}", facts.job);
    }
}
