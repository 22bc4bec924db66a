//! Parses SLURM's GRES text for the GPUs of a job on a node; ambiguous text yields no GPUs rather than
//! wrong ones.

use nodeglass_hostlist::split_outside_brackets;
use nodeglass_protocol::job::GpuSet;
use std::collections::BTreeMap;

/// SLURM formats an index list into a buffer of 128 bytes (still so in 26.05); a full one may be
/// truncated.
const CUT_AT: usize = 127;
/// Highest GRES index that is accepted.
const MAX_INDEX: u32 = 1023;

/// The GPUs in `GRES=` of a `Nodes=` line of `scontrol show job -d`.
///
/// `gpu:a100:2(IDX:0,3)`, `gpu:2(IDX:0-1)`, several types with commas; they share one index space.
/// A MIG type's index does not number GPUs, so only its count is used. An index list that contradicts its
/// count, is truncated, or belongs to shards is [`GpuSet::Unknown`].
pub fn gpus(text: &str) -> GpuSet {
    let Some(entries) = split_outside_brackets(text.trim()) else { return GpuSet::Unknown };
    let mut all = GpuSet::Indices(Vec::new());
    for entry in entries.into_iter().filter(|entry| !matches!(*entry, "" | "(null)")) {
        let entry = Entry::new(entry);
        match entry.name {
            "gpu" => all = both(all, entry.gpus()),
            _ if entry.is_shared() => return GpuSet::Unknown,
            _ => {}
        }
    }
    all
}

/// Number of GPUs that a GRES list requests or holds: `JOB_GRES=` or squeue's `%b`.
///
/// `None` if it is not stated, or if shards are parts of GPUs that SLURM does not name; `Some(0)` if there are
/// none.
pub fn count(text: &str) -> Option<u32> {
    let text = text.trim();
    if text == "(null)" {
        return Some(0);
    }
    if text.is_empty() || text == "N/A" {
        return None;
    }
    let entries = split_outside_brackets(text)?;
    let entries: Vec<_> = entries.into_iter().map(Entry::new).collect();
    if entries.iter().any(Entry::is_shared) {
        return None;
    }
    let gpus = entries.iter().filter(|entry| entry.name == "gpu");
    // `--gres=gpu` without a number requests one.
    gpus.map(|entry| entry.count.or(Some(1))).try_fold(0u32, |sum, count| sum.checked_add(count?))
}

/// Numbers of GPUs by type in `Gres=` or `GresUsed=` of a node; the type is empty if the site gives none.
///
/// `None` if the text is malformed or lacks a count.
pub fn by_type(text: &str) -> Option<BTreeMap<String, u32>> {
    let mut counts = BTreeMap::new();
    for entry in node_entries(text)?.iter().filter(|entry| entry.name == "gpu") {
        let count: &mut u32 = counts.entry(entry.kind.to_owned()).or_default();
        *count = count.checked_add(entry.count?)?;
    }
    Some(counts)
}

/// Numbers of GPUs in use by type in `GresUsed=` of a node that has the GPUs `all`. One whose shares are in use
/// is in use, although SLURM does not count it.
///
/// `None` if the text is malformed, or if it does not state the GPUs of shares in use.
pub fn used_by_type(text: &str, all: &BTreeMap<String, u32>) -> Option<BTreeMap<String, u32>> {
    let mut counts = by_type(text)?;
    for entry in node_entries(text)?.iter().filter(|entry| entry.is_shared()) {
        let kind = match all.keys().collect::<Vec<_>>()[..] {
            [only] => only,
            _ => all.get_key_value(entry.kind)?.0,
        };
        let count = counts.entry(kind.clone()).or_default();
        *count = count.checked_add(entry.shared_gpus()?)?;
    }
    Some(counts)
}

fn node_entries(text: &str) -> Option<Vec<Entry<'_>>> {
    match text.trim() {
        "" | "(null)" => Some(Vec::new()),
        "N/A" => None,
        text => Some(split_outside_brackets(text)?.into_iter().map(Entry::new).collect()),
    }
}

/// One GRES: `[gres:]name[:type][:no_consume][:count][(…)]`.
struct Entry<'a> {
    name: &'a str,
    kind: &'a str,
    count: Option<u32>,
    /// Text between `(IDX:` and `)`.
    indices: Option<&'a str>,
    /// Text between `(` and `)` if it is not an index list.
    shares: Option<&'a str>,
}

impl<'a> Entry<'a> {
    fn new(text: &'a str) -> Self {
        let text = text.trim();
        let text = text.strip_prefix("gres:").or_else(|| text.strip_prefix("gres/")).unwrap_or(text);
        // `GresUsed=gpu:(null):2(IDX:0-1)` has no type.
        let after_type = text.find("(null):").map_or(0, |at| at + "(null):".len());
        let at = text[after_type..].find('(').map_or(text.len(), |at| after_type + at);
        let (plain, detail) = (&text[..at], text.get(at + 1..).unwrap_or_default());
        let mut parts = plain.split(':');
        let name = parts.next().unwrap_or_default();
        let (mut kind, mut number) = ("", None);
        for part in parts {
            match part.parse() {
                Ok(count) => number = Some(count),
                Err(_) if matches!(part, "no_consume" | "(null)") => {}
                Err(_) => kind = part,
            }
        }
        let indices = detail.strip_prefix("IDX:").map(|list| list.strip_suffix(')').unwrap_or(list));
        let shares = detail.strip_suffix(')').filter(|_| indices.is_none());
        Self { name, kind, count: number, indices, shares }
    }

    /// Returns whether it is a part of GPUs that SLURM shares between jobs.
    fn is_shared(&self) -> bool {
        matches!(self.name, "shard" | "mps") && self.count != Some(0)
    }

    /// Number of GPUs that have shares in use: `(IDX:1)`, or `(0/4,4/4,-/4)`, where `-` is a GPU that is
    /// allocated as a whole.
    fn shared_gpus(&self) -> Option<u32> {
        let count = match (self.indices, self.shares) {
            (Some(list), _) => indices(list)?.len(),
            (None, Some(list)) => {
                let used: Option<Vec<_>> = list.split(',').map(|gpu| gpu.split_once('/')).collect();
                used?.iter().filter(|(used, _)| !matches!(*used, "0" | "-")).count()
            }
            (None, None) => return None,
        };
        u32::try_from(count).ok()
    }

    fn gpus(&self) -> GpuSet {
        let only_count = || self.count.map_or(GpuSet::Unknown, GpuSet::Count);
        let Some(list) = self.indices.filter(|list| *list != "N/A") else { return only_count() };
        if is_mig(self.kind) {
            return only_count();
        }
        match indices(list) {
            Some(found) if self.count.is_none_or(|count| found.len() == count as usize) => {
                GpuSet::Indices(found)
            }
            _ => GpuSet::Unknown,
        }
    }
}

/// Names that sites use for MIG types: `1g.20gb`, `a100.MIG.20gb`, `nvidia_a100_3g.39gb`.
fn is_mig(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let slice = kind.match_indices("g.").any(|(at, _)| at > 0 && kind.as_bytes()[at - 1].is_ascii_digit());
    slice || kind.contains("mig")
}

/// Expands `0-1,3`; `None` unless strictly ascending and certainly complete.
fn indices(list: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    if list.len() >= CUT_AT {
        return None;
    }
    for range in list.split(',').filter(|_| !list.is_empty()) {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        if low > high || high > MAX_INDEX || found.last().is_some_and(|last| *last >= low) {
            return None;
        }
        found.extend(low..=high);
    }
    Some(found)
}

/// Combines two types on a node, or two lines about a node.
pub fn both(one: GpuSet, other: GpuSet) -> GpuSet {
    let count = |set: &GpuSet| match set {
        GpuSet::Indices(list) => Some(u32::try_from(list.len()).unwrap_or(u32::MAX)),
        GpuSet::Count(count) => Some(*count),
        GpuSet::Unknown => None,
    };
    match (one, other) {
        (GpuSet::Indices(mut one), GpuSet::Indices(other)) => {
            one.extend(other);
            one.sort_unstable();
            one.dedup();
            GpuSet::Indices(one)
        }
        (one, other) => match (count(&one), count(&other)) {
            (Some(one), Some(other)) => GpuSet::Count(one.saturating_add(other)),
            _ => GpuSet::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn indices_of(text: &str) -> Vec<u32> {
        match gpus(text) {
            GpuSet::Indices(list) => list,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn ranges_and_holes_are_written_out() {
        assert_eq!(indices_of("gpu:a100:2(IDX:0-1)"), [0, 1]);
        assert_eq!(indices_of("gpu:a100:2(IDX:1,3)"), [1, 3]);
        assert_eq!(indices_of("gpu:2(IDX:0-1)"), [0, 1]);
        assert_eq!(indices_of("gpu:1080ti:3(IDX:0-1,7)"), [0, 1, 7]);
        assert_eq!(indices_of("gpu(IDX:0-3)"), [0, 1, 2, 3]);
        assert_eq!(indices_of("gpu:a100:no_consume:1(IDX:2)"), [2]);
    }

    #[test]
    fn a_job_without_gpus_has_exactly_none() {
        for none in ["", "(null)", "gpu:0(IDX:)", "craynetwork:1", "nic:2(IDX:0-1)"] {
            assert_eq!(indices_of(none), [0u32; 0], "{none}");
        }
    }

    #[test]
    fn two_types_on_a_node_share_one_index_space() {
        assert_eq!(indices_of("gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:4)"), [0, 1, 4]);
        assert_eq!(indices_of("gpu:a100:1(IDX:5),nic:1(IDX:0)"), [5]);
    }

    #[test]
    fn an_index_of_a_mig_instance_is_no_gpu_number() {
        for mig in
            ["gpu:1g.20gb:2(IDX:0-1)", "gpu:a100.MIG.20gb:2(IDX:4-5)", "gpu:nvidia_a100_3g.39gb:2(IDX:0,9)"]
        {
            assert_eq!(gpus(mig), GpuSet::Count(2), "{mig}");
        }
    }

    #[test]
    fn without_indices_only_the_count_is_known() {
        assert_eq!(gpus("gpu:a100:2(IDX:N/A)"), GpuSet::Count(2));
        assert_eq!(gpus("gpu:2"), GpuSet::Count(2));
        assert_eq!(gpus("gpu:a100:1(IDX:0),gpu:h100:2(IDX:N/A)"), GpuSet::Count(3));
    }

    #[test]
    fn shards_are_parts_of_gpus_that_slurm_does_not_name() {
        for shard in ["shard:4(4/10,0/10)", "gpu:0(IDX:),shard:4(4/10,0/10)", "shard:2", "mps:50(50/100)"] {
            assert_eq!(gpus(shard), GpuSet::Unknown, "{shard}");
        }
    }

    #[test]
    fn a_cut_or_contradicting_list_is_unknown_and_never_short() {
        let full: String = (0..64).step_by(2).map(|n| format!("{n},")).collect();
        let cut = &full[..CUT_AT.min(full.len())];
        for broken in [
            "gpu:a100:4(IDX:0-1".to_owned(),
            "gpu:a100:4(IDX:0-1)".to_owned(),
            "gpu:a100:2(IDX:14,1)".to_owned(),
            "gpu:a100:2(IDX:0-)".to_owned(),
            "gpu:a100:2(IDX:x)".to_owned(),
            "gpu:a100:2(IDX:0,0)".to_owned(),
            format!("gpu:64(IDX:{cut})"),
            format!("gpu(IDX:{})", "1".repeat(127)),
            "gpu:99999(IDX:0-99998)".to_owned(),
        ] {
            assert_eq!(gpus(&broken), GpuSet::Unknown, "{broken}");
        }
    }

    #[test]
    fn a_list_that_fills_the_buffer_is_unknown_even_if_its_count_matches() {
        // 1,3,…,85 is 42 numbers in 127 bytes or more when truncated at a digit: `…,85` could have been
        // `…,851`.
        let mut list: Vec<String> = (0..90).map(|n| (n * 2).to_string()).collect();
        while list.join(",").len() > CUT_AT {
            list.pop();
        }
        let mut text = list.join(",");
        while text.len() < CUT_AT {
            text.insert(0, '0');
        }
        assert_eq!(gpus(&format!("gpu:{}(IDX:{text})", list.len())), GpuSet::Unknown);
    }

    #[test]
    fn a_gpu_with_shares_in_use_is_in_use() {
        let used = |all: &str, used: &str| {
            let used = used_by_type(used, &by_type(all).unwrap())?;
            Some(used.iter().map(|(kind, count)| format!("{kind}:{count}")).collect::<Vec<_>>().join(" "))
        };
        for (text, want) in [
            ("gpu:1,shard:(null):1(IDX:1)", Some(":2")),
            ("gpu:(null):1(IDX:0),shard:(null):4(0/4,4/4,0/4,0/4)", Some(":2")),
            ("gpu:1(IDX:0),shard:4(-/4,4/4,0/4,0/4)", Some(":2")),
            ("gpu:1,mps:0", Some(":1")),
            ("gpu:1,shard:4", None),
            ("gpu:1,shard:4(4)", None),
        ] {
            assert_eq!(used("gpu:4,shard:16", text).as_deref(), want, "{text}");
        }
        let two = "gpu:a100:2,gpu:h100:2,shard:8";
        assert_eq!(used(two, "gpu:a100:1(IDX:0),shard:h100:1(0/2,1/2)").as_deref(), Some("a100:1 h100:1"));
        assert_eq!(used(two, "gpu:a100:1(IDX:0),shard:1(0/2,0/2,1/2,0/2)"), None, "of an unstated type");
    }

    #[test]
    fn requests_are_counted_in_every_spelling() {
        for (text, gpus) in [
            ("gres:gpu:1", Some(1)),
            ("gres/gpu:a100:2", Some(2)),
            ("gpu:a100:2,gpu:h100:2,gpu:2", Some(6)),
            ("gres:gpu", Some(1)),
            ("gres:nic:2", Some(0)),
            ("gres/shard:4", None),
            ("gpu:1,mps:50", None),
            ("gpu:2,shard:0", Some(2)),
            ("(null)", Some(0)),
            ("N/A", None),
            ("", None),
        ] {
            assert_eq!(count(text), gpus, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "(gpu|shard|:|,|\\(|\\)|IDX|[0-9a-z.-]){0,12}|.*") {
            let _ = (gpus(&text), count(&text));
        }
    }
}
