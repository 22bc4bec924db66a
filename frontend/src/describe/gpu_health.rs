//! The details of a GPU's health: memory errors and their repair, its NVLinks, its vGPUs, and its events.

use super::fact::{self, Emphasis, Fact, FactGroup, bytes};
use crate::domain::severity::Severity;
use crate::domain::{text, xid};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::gpu::{GpuHealth, NvLink, Section, Vgpu};
use nodeglass_protocol::picture::{GpuEvent, GpuPicture};
use nodeglass_protocol::{GpuField, Reading, Text};

/// Describes a GPU's memory errors, and what they mean; what to do is the advice of the finding.
pub fn errors(gpu: &GpuPicture) -> FactGroup {
    let row = &gpu.row;
    let has_uncorrected = row.value(GpuField::EccUncorrected).is_some_and(|count| count > 0);
    let note = if has_uncorrected { "results computed since then may be wrong" } else { "" };
    let since_load = |label, field| Fact::cell(label, row, field, text::grouped);
    let counters = [
        since_load("Uncorrected, since driver load", GpuField::EccUncorrected)
            .with_note(note)
            // Whether they occurred during a job, only the finding knows.
            .with_emphasis_if(has_uncorrected, Emphasis::Warning),
        since_load("Corrected, since driver load", GpuField::EccCorrected),
    ];
    let health = fact::listed(GpuHealth::readings(), &gpu.health, Section::Errors);
    FactGroup::new("Memory errors", counters.into_iter().chain(health))
}

/// Describes each NVLink of a GPU; `None` if it has none.
pub fn nvlinks(gpu: &GpuPicture) -> Option<FactGroup> {
    let links = &gpu.health.nvlinks;
    let up = links.iter().filter(|link| link.up.value() == Some(&true)).count();
    let group = FactGroup::new("NVLinks", folded(links));
    (!links.is_empty())
        .then(|| group.with_note(format!("{up} of {} up", text::count(links.len(), "link", "links"))))
}

/// The value of a link that is up, of which no rates are known.
const UP: &str = "up";

/// Describes links one by one, but neighbours of which nothing else is known than that they are up in one line.
fn folded(links: &[NvLink]) -> Vec<Fact> {
    let alike = |one: &Fact, next: &Fact| {
        one.value == UP
            && one.emphasis != Emphasis::Warning
            && Fact { label: one.label.clone(), ..next.clone() } == *one
    };
    let described: Vec<(u32, Fact)> = links.iter().map(|link| (link.link, nvlink(link))).collect();
    let runs = described.chunk_by(|(_, one), (_, next)| alike(one, next));
    let line = |run: &[(u32, Fact)]| match run {
        [(first, fact), .., (last, _)] => Fact { label: format!("Links {first} to {last}"), ..fact.clone() },
        run => run[0].1.clone(),
    };
    runs.map(line).collect()
}

fn nvlink(link: &NvLink) -> Fact {
    let remote = link.remote.value().map_or_else(|| "unknown peer".to_owned(), ToString::to_string);
    let rate =
        |reading: &Reading<u64>| reading.value().map_or(text::ABSENT.to_owned(), |mib| text::grouped(*mib));
    let errors = link.errors.value().copied().unwrap_or(0);
    let value = match &link.up {
        Reading::Value(false) => "down".to_owned(),
        // The rates are only sent to viewers of the node itself.
        Reading::Value(true) if link.rx_mib_s.is_not_yet() && link.tx_mib_s.is_not_yet() => UP.to_owned(),
        Reading::Value(true) => {
            format!("↓ {} ↑ {} MiB/s", rate(&link.rx_mib_s), rate(&link.tx_mib_s))
        }
        other => return Fact::read(&format!("Link {}", link.link), other, |_| String::new()),
    };
    let version = link.version.value().map_or(String::new(), |version| format!(", NVLink {version}"));
    let wrong = if errors > 0 { format!(", {} errors", text::grouped(errors)) } else { String::new() };
    Fact::new(format!("Link {}", link.link), value)
        .with_note(format!("to {remote}{version}{wrong}"))
        .with_emphasis_if(errors > 0 || link.up.value() == Some(&false), Emphasis::Warning)
}

/// The finding that the sheet of a GPU states first.
#[derive(Clone, Copy, Debug)]
pub struct Stated<'a> {
    /// Kind.
    pub kind: FindingKind,
    /// Severity.
    pub severity: Severity,
    /// Its sentence.
    pub title: &'a str,
}

/// Returns the events of a GPU, the latest first, each text once with its count. An event that is part of `stated` is
/// marked like that, and not explained again. `when` formats a time.
pub fn events<'a>(
    all: impl DoubleEndedIterator<Item = &'a GpuEvent>,
    gpu: &GpuPicture,
    stated: Option<Stated<'_>>,
    when: impl Fn(u64) -> String,
) -> Option<FactGroup> {
    let mut folded: Vec<(&GpuEvent, usize)> = Vec::new();
    for event in all.rev().filter(|event| event.gpu.as_ref().is_none_or(|uuid| *uuid == gpu.facts.uuid)) {
        let is_same = |known: &GpuEvent| (known.xid, &known.text) == (event.xid, &event.text);
        match folded.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, count)) => *count += 1,
            None => folded.push((event, 1)),
        }
    }
    let entries: Vec<Fact> =
        folded.iter().map(|(event, count)| event_fact(event, *count, stated, &when)).collect();
    (!entries.is_empty()).then(|| FactGroup::new("Events", entries))
}

/// Describes an event that occurred `count` times, at last then: `18:21`, `Xid 63 · 4 times`, and what that means.
fn event_fact(
    event: &GpuEvent,
    count: usize,
    stated: Option<Stated<'_>>,
    when: impl Fn(u64) -> String,
) -> Fact {
    // The probe explains the numbers that it knows.
    let (name, explanation) = event.text.as_str().split_once(": ").unwrap_or((event.text.as_str(), ""));
    let name = if event.gpu.is_some() { name.split(" on GPU ").next().unwrap_or(name) } else { name };
    let (value, label) = match count {
        1 => (name.to_owned(), when(event.at_ms)),
        count => (format!("{name} · {count} times"), format!("last {}", when(event.at_ms))),
    };
    let Some(number) = event.xid else { return Fact::new(label, value).with_note(explanation) };
    let is_part = |stated: &Stated<'_>| match stated.kind {
        FindingKind::MemoryErrors => xid::is_memory_error(number),
        kind => kind == FindingKind::Xid && stated.title.contains(&format!("Xid {number},")),
    };
    let stated = stated.filter(is_part);
    let meaning = match stated {
        Some(Stated { kind: FindingKind::Xid, .. }) => "",
        _ if explanation.is_empty() => xid::meaning(number).map_or("", |(text, _)| text),
        _ => explanation,
    };
    let severity = stated.map_or_else(|| xid::severity(number), |stated| stated.severity);
    let emphasis = if severity == Severity::Error { Emphasis::Error } else { Emphasis::Warning };
    Fact::new(label, value).with_note(meaning).with_emphasis_if(true, emphasis)
}

/// Returns the vGPUs of a host, if there are any: the virtual machine, and what it uses.
pub fn vgpus(gpu: &GpuPicture) -> Option<FactGroup> {
    let fact = |vgpu: &Vgpu| {
        let vm =
            vgpu.vm.value().map_or_else(|| "unknown virtual machine".to_owned(), |vm| format!("VM {vm}"));
        let used = Fact::read(&vm, &vgpu.mem_used_bytes, |used| match vgpu.mem_total_bytes.value() {
            Some(total) => format!("{} of {}", bytes(*used), bytes(*total)),
            None => bytes(*used),
        });
        let unlicensed = vgpu.is_licensed.value() == Some(&false);
        let license = if unlicensed { "not licensed: its clocks are reduced" } else { "" };
        let profile = vgpu.profile.value().map_or("", Text::as_str);
        let parts = [profile, license].into_iter().filter(|part| !part.is_empty());
        used.with_note(parts.collect::<Vec<_>>().join("; ")).with_emphasis_if(unlicensed, Emphasis::Warning)
    };
    let facts: Vec<Fact> = gpu.health.vgpus.iter().map(fact).collect();
    (!facts.is_empty()).then(|| {
        FactGroup::new("vGPUs", facts).with_note("The processes of virtual machines are not listed here.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_remapping_comes_with_advice() {
        let mut gpu = GpuPicture::default();
        gpu.health.remap_failed = Reading::Value(false);
        let of = |gpu: &GpuPicture| {
            errors(gpu).facts.into_iter().find(|fact| fact.label == "Row remap failed").unwrap()
        };
        assert_eq!(
            (of(&gpu).value.as_str(), of(&gpu).note.as_str(), of(&gpu).emphasis),
            ("no", "", Emphasis::Plain)
        );
        gpu.health.remap_failed = Reading::Value(true);
        assert_eq!(of(&gpu).emphasis, Emphasis::Error);
        assert!(of(&gpu).note.contains("replaced"));
    }

    #[test]
    fn links_show_state_flow_and_errors() {
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
        assert_eq!((group.facts[1].value.as_str(), group.facts[1].emphasis), ("down", Emphasis::Warning));
        assert_eq!(group.facts[2].value, "not read yet");
    }

    #[test]
    fn links_that_differ_in_nothing_share_a_line() {
        let mut gpu = GpuPicture::default();
        let link = |link, up| NvLink { link, up: Reading::Value(up), ..NvLink::default() };
        gpu.health.nvlinks =
            vec![link(0, true), link(1, true), link(2, true), link(3, false), link(4, false), link(5, true)];
        let group = nvlinks(&gpu).unwrap();
        let lines: Vec<(&str, &str)> =
            group.facts.iter().map(|fact| (fact.label.as_str(), fact.value.as_str())).collect();
        let down = [("Link 3", "down"), ("Link 4", "down")];
        assert_eq!(lines, [&[("Links 0 to 2", "up")], &down[..], &[("Link 5", "up")]].concat());
        assert_eq!(group.note, "4 of 6 links up");
    }

    #[test]
    fn events_are_newest_first_and_exclude_other_gpus() {
        let gpu = GpuPicture::default();
        let event = |at_ms, gpu: Option<&str>, xid| GpuEvent {
            at_ms,
            gpu: gpu.map(nodeglass_protocol::GpuUuid::new),
            xid,
            text: "Xid".into(),
        };
        let all = [event(1, None, Some(31)), event(2, Some("GPU-other"), Some(79)), event(3, None, Some(79))];
        let group = events(all.iter(), &gpu, None, |at| at.to_string()).unwrap();
        let entries: Vec<(&str, Emphasis)> =
            group.facts.iter().map(|fact| (fact.label.as_str(), fact.emphasis)).collect();
        assert_eq!(entries, [("3", Emphasis::Error), ("1", Emphasis::Warning)]);
        assert_eq!(events([].iter(), &gpu, None, |at| at.to_string()), None);
    }

    #[test]
    fn a_repeated_event_is_one_line_that_explains_it_once_and_as_severely_as_its_finding() {
        let gpu = GpuPicture::default();
        let uuid = Some(gpu.facts.uuid.clone());
        let event =
            |at_ms, xid, text: &str| GpuEvent { at_ms, gpu: uuid.clone(), xid: Some(xid), text: text.into() };
        let set_aside = "Xid 63 on GPU 6: a faulty piece of its memory is set aside";
        let all = [event(1, 63, set_aside), event(2, 31, "Xid 31"), event(3, 63, set_aside)];
        let facts = |stated| events(all.iter(), &gpu, stated, |at| at.to_string()).unwrap().facts;
        let stated = |kind, severity, title| Some(Stated { kind, severity, title });
        let errors =
            facts(stated(FindingKind::MemoryErrors, Severity::Error, "GPU 6: 1 uncorrected memory error"));
        let [memory, page_fault] = &errors[..] else { panic!("{errors:?}") };
        assert_eq!((memory.label.as_str(), memory.value.as_str()), ("last 3", "Xid 63 · 2 times"));
        assert_eq!(memory.note, "a faulty piece of its memory is set aside");
        assert_eq!((memory.emphasis, page_fault.emphasis), (Emphasis::Error, Emphasis::Warning));
        assert!(page_fault.note.contains("page fault"), "{page_fault:?}");
        assert_eq!(facts(None)[0].emphasis, Emphasis::Warning);
        let xid = facts(stated(FindingKind::Xid, Severity::Warning, "GPU 6: Xid 31, GPU memory page fault"));
        assert_eq!((xid[1].note.as_str(), xid[0].note.is_empty()), ("", false));
    }

    #[test]
    fn each_vgpu_is_shown_with_its_machine_memory_and_license() {
        let mut gpu = GpuPicture::default();
        assert_eq!(vgpus(&gpu), None);
        let vgpu = |is_licensed| Vgpu {
            vm: Reading::Value("vm-7".into()),
            profile: Reading::Value("GRID A100-10C".into()),
            mem_used_bytes: Reading::Value(3 << 30),
            mem_total_bytes: Reading::Value(10 << 30),
            is_licensed: Reading::Value(is_licensed),
        };
        gpu.health.vgpus = vec![vgpu(true), vgpu(false)];
        let facts = vgpus(&gpu).unwrap().facts;
        let shown = |fact: &Fact| (fact.label.clone(), fact.value.clone(), fact.emphasis);
        assert_eq!(shown(&facts[0]), ("VM vm-7".to_owned(), "3 GiB of 10 GiB".to_owned(), Emphasis::Plain));
        assert_eq!(facts[1].emphasis, Emphasis::Warning);
        assert_eq!(facts[1].note, "GRID A100-10C; not licensed: its clocks are reduced");
    }
}
