//! Captures as text: who stands where with which stack, what limits the capture, and which files explain more.

use crate::domain::text;
use nodeglass_protocol::capture::{CaptureGroup, FindingCapture};

/// Returns what a capture has: `Stacks (3 groups, 16 processes)`; `None` if it has nothing.
pub fn summary(capture: &FindingCapture) -> Option<String> {
    let processes = capture.groups.iter().map(|group| group.count).sum::<u32>() + capture.others;
    let files = capture.files.len();
    let (groups, processes, files) = (
        text::count(capture.groups.len(), "group", "groups"),
        text::count(processes as usize, "process", "processes"),
        (files > 0).then(|| text::count(files, "NCCL file", "NCCL files")),
    );
    let has_stacks = capture.groups.iter().any(|group| !group.stack.is_empty());
    let what = if has_stacks { "Stacks" } else { "Positions" };
    match (capture.groups.is_empty(), files) {
        (false, Some(files)) => Some(format!("{what} ({groups}, {processes}) and {files}")),
        (false, None) => Some(format!("{what} ({groups}, {processes})")),
        (true, Some(files)) => Some(files),
        (true, None) => None,
    }
}

/// Returns all of a capture, as `nodeglass findings` prints it.
pub fn lines(capture: &FindingCapture) -> Vec<String> {
    let count = |count: u32| text::count(count as usize, "process", "processes");
    let mut lines: Vec<String> = capture.groups.iter().flat_map(group_lines).collect();
    if capture.others > 0 {
        lines.push(format!("{} more at other positions", count(capture.others)));
    }
    if capture.missing > 0 {
        lines.push(format!("{} could not be captured", count(capture.missing)));
    }
    lines.extend(capture.notes.iter().map(ToString::to_string));
    if !capture.files.is_empty() {
        lines.push("dumps and logs of NCCL:".to_owned());
        lines.extend(capture.files.iter().map(|file| format!("  {file}")));
    }
    lines
}

/// The lines of a group: who stands where, the wait and the stack of the first of them.
fn group_lines(group: &CaptureGroup) -> impl Iterator<Item = String> + '_ {
    let details = group.details.iter().map(|line| format!("  {line}"));
    let stack = group.stack.iter().map(|frame| format!("    at {frame}"));
    [group.line()].into_iter().chain(details).chain(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(count: u32, stack: &[&str]) -> CaptureGroup {
        CaptureGroup {
            count,
            frame: "all_reduce (c10d.py:1)".into(),
            details: vec!["sleeping in futex".into()],
            stack: stack.iter().map(|frame| (*frame).into()).collect(),
            ..CaptureGroup::default()
        }
    }

    #[test]
    fn a_summary_counts_all_processes_and_names_what_there_is() {
        let mut capture = FindingCapture::default();
        assert_eq!(summary(&capture), None);
        capture.files.push("n1: /tmp/nccl_trace_rank_0".into());
        assert_eq!(summary(&capture).as_deref(), Some("1 NCCL file"));
        capture.groups = vec![group(15, &[]), group(1, &[])];
        assert_eq!(summary(&capture).as_deref(), Some("Positions (2 groups, 16 processes) and 1 NCCL file"));
        let stacks = FindingCapture {
            groups: vec![group(1, &["f (a.py:1)"])],
            others: 2,
            ..FindingCapture::default()
        };
        assert_eq!(summary(&stacks).as_deref(), Some("Stacks (1 group, 3 processes)"));
    }

    #[test]
    fn a_capture_is_listed_with_its_stacks_and_files() {
        let capture = FindingCapture {
            groups: vec![group(1, &["f (a.py:1)", "main (a.py:9)"])],
            missing: 1,
            files: vec!["n1: /tmp/nccl_trace_rank_0".into()],
            ..FindingCapture::default()
        };
        let expected = [
            "1 process in all_reduce (c10d.py:1)",
            "  sleeping in futex",
            "    at f (a.py:1)",
            "    at main (a.py:9)",
            "1 process could not be captured",
            "dumps and logs of NCCL:",
            "  n1: /tmp/nccl_trace_rank_0",
        ];
        assert_eq!(lines(&capture), expected);
    }
}
