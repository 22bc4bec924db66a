//! How well a card is: memory errors and what became of them, its NVLinks, and what happened to it.

use super::{Fact, Group, Mood};
use crate::text;
use nodeglass_protocol::gpu::NvLink;
use nodeglass_protocol::picture::{GpuEvent, GpuPicture};
use nodeglass_protocol::{GpuField, Reading};

/// What is known of a card's memory errors, with what to do about them.
pub fn errors(gpu: &GpuPicture) -> Group {
    let (row, health) = (&gpu.row, &gpu.health);
    let count = |label, reading: &Reading<u64>| Fact::read(label, reading, |count| text::grouped(*count));
    let some = |reading: &Reading<u64>| reading.value().is_some_and(|count| *count > 0);
    let is = |reading: &Reading<bool>| reading.value() == Some(&true);
    let wrong = row.value(GpuField::EccUncorrected).is_some_and(|count| count > 0);
    let yes = |value: &bool| if *value { "yes" } else { "no" }.to_owned();
    let advice = |is_so, words: &'static str| if is_so { words } else { "" };
    let now = |label, field| Fact::cell(label, row, field, text::grouped);
    Group::new(
        "Memory errors",
        [
            now("Uncorrected, since driver load", GpuField::EccUncorrected)
                .with(advice(wrong, "results may be wrong: check them, and tell the administrators"))
                .if_so(wrong, Mood::Bad),
            now("Corrected, since driver load", GpuField::EccCorrected),
            count("Uncorrected, in its life", &health.ecc_life_uncorrected),
            count("Corrected, in its life", &health.ecc_life_corrected),
            count("Pages retired, uncorrected", &health.retired_uncorrected),
            count("Pages retired, corrected", &health.retired_corrected),
            Fact::read("Pages wait to be retired", &health.retired_pending, yes)
                .with(advice(
                    is(&health.retired_pending),
                    "the node needs a reboot; until then the page is used",
                ))
                .if_so(is(&health.retired_pending), Mood::Attention),
            count("Rows remapped, uncorrected", &health.remapped_uncorrected)
                .if_so(some(&health.remapped_uncorrected), Mood::Attention),
            count("Rows remapped, corrected", &health.remapped_corrected),
            Fact::read("A row waits to be remapped", &health.remap_pending, yes)
                .with(advice(is(&health.remap_pending), "the card needs a reset: tell the administrators"))
                .if_so(is(&health.remap_pending), Mood::Attention),
            Fact::read("Remapping failed", &health.remap_failed, yes)
                .with(advice(is(&health.remap_failed), "the card is to be replaced: move the job away"))
                .if_so(is(&health.remap_failed), Mood::Bad),
        ],
    )
}

/// Each NVLink of a card; none where it has none.
pub fn nvlinks(gpu: &GpuPicture) -> Option<Group> {
    let links = &gpu.health.nvlinks;
    let up = links.iter().filter(|link| link.up.value() == Some(&true)).count();
    let group = Group::new("NVLinks", links.iter().map(nvlink));
    (!links.is_empty())
        .then(|| group.noted(format!("{up} of {} up", text::count(links.len(), "link", "links"))))
}

fn nvlink(link: &NvLink) -> Fact {
    let remote = link.remote.value().map_or_else(|| "peer not told".to_owned(), ToString::to_string);
    let flow =
        |reading: &Reading<u64>| reading.value().map_or(text::ABSENT.to_owned(), |mib| text::grouped(*mib));
    let errors = link.errors.value().copied().unwrap_or(0);
    let value = match &link.up {
        Reading::Value(false) => "down".to_owned(),
        // Flows are told to who looks at the node itself.
        Reading::Value(true) if link.rx_mib_s.is_not_yet() && link.tx_mib_s.is_not_yet() => "up".to_owned(),
        Reading::Value(true) => {
            format!("↓ {} ↑ {} MiB/s", flow(&link.rx_mib_s), flow(&link.tx_mib_s))
        }
        other => return Fact::read(&format!("Link {}", link.link), other, |_| String::new()),
    };
    let version = link.version.value().map_or(String::new(), |version| format!(", NVLink {version}"));
    let wrong = if errors > 0 { format!(", {} errors", text::grouped(errors)) } else { String::new() };
    Fact::new(format!("Link {}", link.link), value)
        .with(format!("to {remote}{version}{wrong}"))
        .if_so(errors > 0 || link.up.value() == Some(&false), Mood::Attention)
}

/// What happened to a card, newest first; `when` tells how long ago a moment is.
pub fn events<'a>(
    all: impl DoubleEndedIterator<Item = &'a GpuEvent>,
    gpu: &GpuPicture,
    when: impl Fn(u64) -> String,
) -> Option<Group> {
    let mine = all.rev().filter(|event| event.gpu.as_ref().is_none_or(|uuid| *uuid == gpu.facts.uuid));
    let told: Vec<Fact> = mine
        .map(|event| {
            let meaning = event.xid.and_then(xid);
            let fact = Fact::new(when(event.at_ms), event.text.as_str());
            match meaning {
                Some((words, is_program)) => {
                    fact.with(words).if_so(true, if is_program { Mood::Attention } else { Mood::Bad })
                }
                None => fact.if_so(event.xid.is_some(), Mood::Attention),
            }
        })
        .collect();
    (!told.is_empty()).then(|| Group::new("What happened", told))
}

/// What an Xid number means, and whether it is rather the program's fault than the card's.
///
/// After NVIDIA's "Xid Errors" catalogue.
pub fn xid(number: u64) -> Option<(&'static str, bool)> {
    Some(match number {
        8 => ("the card stopped answering a channel: mostly a program that hangs", true),
        13 => ("a kernel did something illegal, mostly an index out of bounds", true),
        31 => ("a kernel reached for memory that is not mapped", true),
        43 => ("the program hung on the card and was stopped; the card is well", true),
        45 => ("the program's work was removed after an earlier error or a kill", true),
        48 => ("memory error of two bits that could not be corrected", false),
        61 | 62 => ("the card's own firmware halted: it needs a reset", false),
        63 => ("a row of memory was remapped, or a page retired", false),
        64 => ("remapping a row failed: the card is to be replaced if it comes again", false),
        68 => ("the video engine failed", false),
        69 => ("the graphics engine failed on an illegal command", true),
        74 => ("an NVLink failed: look at the other end, too", false),
        79 => ("the card has fallen off the bus: the node needs a reboot or a repair", false),
        92 => ("many single-bit memory errors were corrected", false),
        94 => ("a memory error was contained: only the programs that met it were stopped", false),
        95 => ("a memory error was not contained: the card needs a reset", false),
        109 => ("switching between programs took too long and was stopped", true),
        119 | 120 => ("the card's system processor (GSP) does not answer: it needs a reset", false),
        121 => ("a C2C link corrected an error", false),
        140 => ("memory errors that could not be recovered: the card needs a reset", false),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remapping_that_failed_says_what_to_do_and_one_that_did_not_says_nothing() {
        let mut gpu = GpuPicture::default();
        gpu.health.remap_failed = Reading::Value(false);
        let of = |gpu: &GpuPicture| {
            errors(gpu).facts.into_iter().find(|fact| fact.label == "Remapping failed").unwrap()
        };
        assert_eq!((of(&gpu).value.as_str(), of(&gpu).more.as_str(), of(&gpu).mood), ("no", "", Mood::Plain));
        gpu.health.remap_failed = Reading::Value(true);
        assert_eq!(of(&gpu).mood, Mood::Bad);
        assert!(of(&gpu).more.contains("replaced"));
    }

    #[test]
    fn links_tell_state_flow_and_faults() {
        let mut gpu = GpuPicture::default();
        assert_eq!(nvlinks(&gpu), None);
        let up = NvLink {
            link: 0,
            up: Reading::Value(true),
            rx_mib_s: Reading::Value(1_200),
            ..NvLink::default()
        };
        let down =
            NvLink { link: 1, up: Reading::Value(false), errors: Reading::Value(3), ..NvLink::default() };
        gpu.health.nvlinks = vec![up, down, NvLink { link: 2, ..NvLink::default() }];
        let group = nvlinks(&gpu).unwrap();
        assert_eq!(group.note, "1 of 3 links up");
        assert_eq!(group.facts[0].value, "↓ 1,200 ↑ – MiB/s");
        assert_eq!((group.facts[1].value.as_str(), group.facts[1].mood), ("down", Mood::Attention));
        assert_eq!(group.facts[2].value, "not read yet");
    }

    #[test]
    fn events_are_told_newest_first_and_those_of_other_cards_are_not() {
        let gpu = GpuPicture::default();
        let event = |at_ms, gpu: Option<&str>, xid| GpuEvent {
            at_ms,
            gpu: gpu.map(nodeglass_protocol::GpuUuid::new),
            xid,
            text: "Xid".into(),
        };
        let all = [event(1, None, Some(31)), event(2, Some("GPU-other"), Some(79)), event(3, None, Some(79))];
        let group = events(all.iter(), &gpu, |at| at.to_string()).unwrap();
        let told: Vec<(&str, Mood)> =
            group.facts.iter().map(|fact| (fact.label.as_str(), fact.mood)).collect();
        assert_eq!(told, [("3", Mood::Bad), ("1", Mood::Attention)]);
        assert_eq!(events([].iter(), &gpu, |at| at.to_string()), None);
    }

    #[test]
    fn an_xid_without_words_is_still_told_by_its_number() {
        assert_eq!(xid(9_999), None);
        assert!(xid(79).is_some_and(|(_, is_program)| !is_program));
        assert!(xid(31).is_some_and(|(_, is_program)| is_program));
    }
}
