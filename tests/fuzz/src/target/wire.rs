//! The live wire, decoded at both ends: messages round-trip, and no message breaks the page's picture.

use nodeglass_protocol::Picture;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ClientMessage, Delta, ServerMessage};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::LazyLock;

const FORMS: [Form; 2] = [Form::Binary, Form::Json];
/// A picture with every kind of content.
static KNOWN: LazyLock<Picture> = LazyLock::new(|| {
    let bytes = include_bytes!("../../../../protocol/tests/frozen/v2/snapshot.bin");
    match Form::Binary.decode(bytes) {
        Ok(ServerMessage::Snapshot(snapshot)) => snapshot.picture,
        other => unreachable!("the frozen snapshot is none: {other:?}"),
    }
});

/// A message of a page.
pub(crate) fn page_to_relay(bytes: &[u8]) {
    for form in FORMS {
        let _ = read::<ClientMessage>(form, bytes);
    }
}

/// One message of a relay, to a page with a picture.
pub(crate) fn relay_to_page(bytes: &[u8]) {
    for message in FORMS.into_iter().filter_map(|form| read(form, bytes)) {
        match message {
            ServerMessage::Snapshot(snapshot) => query_all(snapshot.picture),
            ServerMessage::Delta(delta) => {
                let mut picture = KNOWN.clone();
                apply(&mut picture, &delta);
                query_all(picture);
            }
            ServerMessage::Histories(pasts) => {
                let mut picture = KNOWN.clone();
                let _ = picture.apply_histories(pasts, |_| ());
                query_all(picture);
            }
            _ => {}
        }
    }
}

/// Several messages of a relay, each after its length in two bytes, applied by one page.
pub(crate) fn relay_to_page_for_long(mut bytes: &[u8]) {
    let mut picture = KNOWN.clone();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (frame, rest) = rest.split_at(length);
        bytes = rest;
        match Form::Binary.decode(frame) {
            Ok(ServerMessage::Snapshot(snapshot)) => picture = snapshot.picture,
            Ok(ServerMessage::Delta(delta)) => apply(&mut picture, &delta),
            Ok(ServerMessage::Histories(pasts)) => drop(picture.apply_histories(pasts, |_| ())),
            _ => {}
        }
    }
    query_all(picture);
}

/// Decoding, encoding and decoding again yields the same message.
fn read<M: Serialize + DeserializeOwned>(form: Form, bytes: &[u8]) -> Option<M> {
    let message: M = form.decode(bytes).ok()?;
    let written = form.encode(&message);
    let again: M = form.decode(&written).expect("what was written can be read");
    assert!(form.encode(&again) == written, "it changes each time it is read");
    Some(message)
}

fn apply(picture: &mut Picture, delta: &Delta) {
    let mut touched = Vec::new();
    let outcome = picture.apply(delta, |what| touched.push(what));
    if outcome.is_ok() {
        // The page updates its rows after all changes, so that the last change of a node wins.
        assert!(touched.len() <= 1_000_000, "{} things touched by one delta", touched.len());
    }
}

/// Everything that a page queries from a picture.
fn query_all(mut picture: Picture) {
    let at_ms = picture.at_ms;
    for node in &mut picture.nodes {
        for index in 0..node.row_count() {
            assert!(node.row(index).is_some(), "row {index} of {}", node.row_count());
        }
        assert!(node.row(node.row_count()).is_none());
        if let Some(past) = &node.history {
            let summary = past.summary();
            let gpus = summary
                .gpus
                .iter()
                .chain(&past.gpus)
                .flat_map(|traces| traces.iter().map(|(_, trace)| trace));
            for trace in gpus.chain(past.host.iter().map(|(_, trace)| trace)) {
                assert!(trace.since(at_ms).count() <= trace.points().count());
            }
        }
        node.sampled(at_ms);
        node.rewind(at_ms / 2);
        node.rewind(0);
    }
}
