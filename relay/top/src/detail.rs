//! The details of a process as lines of text. Pure.

use nodeglass_protocol::Reading;
use nodeglass_protocol::process::{ProcessDetail, ProcessState, RelatedProcess};
use nodeglass_rules::text;
use std::fmt::Display;

/// Maximum number of descendants that are listed.
const MAX_RELATED: usize = 100;

/// The details; with the environment first if it was requested.
pub fn lines(detail: &ProcessDetail) -> Vec<String> {
    let mut lines = Vec::new();
    if let Reading::Value(environment) = &detail.environment {
        lines.extend(environment.iter().map(|variable| format!("{}={}", variable.name, variable.value)));
        return lines;
    }
    if let Reading::Failed(why) = &detail.environment {
        lines.push(format!("environment  {why}"));
    }
    let mut fact = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{name:<12} {value}")));
    };
    fact("command", shown(&detail.args, ToString::to_string));
    fact("directory", shown(&detail.cwd, ToString::to_string));
    fact("executable", shown(&detail.exe, ToString::to_string));
    fact("cgroup", shown(&detail.cgroup, ToString::to_string));
    // The kernel writes 0 for a process that does not wait.
    let waits =
        Some(&detail.wait_channel).filter(|channel| channel.value().is_none_or(|name| name.as_str() != "0"));
    fact("waits in", waits.and_then(|channel| shown(channel, ToString::to_string)));
    fact("open files", shown(&detail.open_files, |count| text::grouped(*count)));
    fact("read", shown(&detail.read_bytes, |bytes| format!("{} GiB", text::gib(*bytes))));
    fact("written", shown(&detail.written_bytes, |bytes| format!("{} GiB", text::gib(*bytes))));
    lines.push(String::new());
    for (depth, process) in detail.ancestors.iter().enumerate() {
        lines.push(related(process, depth));
    }
    let depth = detail.ancestors.len();
    lines.extend(detail.descendants.iter().take(MAX_RELATED).map(|process| related(process, depth)));
    lines
}

fn shown<T: Display>(reading: &Reading<T>, value: impl Fn(&T) -> String) -> Option<String> {
    match reading {
        Reading::Value(of) => Some(value(of)),
        Reading::Failed(why) => Some(format!("({why})")),
        Reading::Unsupported | Reading::NotYet => None,
    }
}

fn related(process: &RelatedProcess, depth: usize) -> String {
    let state = match ProcessState::of_number(u64::from(process.state)) {
        ProcessState::Alive => "",
        ProcessState::Uninterruptible => " (waits for a device)",
        ProcessState::Zombie => " (zombie)",
        ProcessState::Stopped => " (stopped)",
    };
    let branch = if depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat((depth - 1).min(10))) };
    format!("{branch}{} {}{state}  {}", process.pid, process.user, process.command)
}
