//! The details of a process: its readings, its identity, its process tree, its files.

use super::fact::{Emphasis, Fact, FactGroup, bytes};
use crate::domain::text;
use nodeglass_protocol::picture::ProcessPicture;
use nodeglass_protocol::process::{ProcessDetail, ProcessState, Rank, RelatedProcess, Runtime};
use nodeglass_protocol::{ProcessField as F, Reading};

/// Returns its readings and identity that are known without a request.
pub fn groups(process: &ProcessPicture, ran: Option<u64>) -> Vec<FactGroup> {
    vec![now(process, ran), identity(process)]
}

fn now(process: &ProcessPicture, ran: Option<u64>) -> FactGroup {
    let row = &process.row;
    let share = |label, field| Fact::percent(label, row, field, "hue-busy");
    let ((label, meaning), emphasis) = state_text(row.value(F::State).unwrap_or(0));
    FactGroup::new(
        "Now",
        [
            Fact::cell("State", row, F::State, |_| label.to_owned())
                .with_note(meaning)
                .with_emphasis_if(emphasis != Emphasis::Plain, emphasis),
            share("SM time", F::Sm),
            share("Memory bandwidth", F::MemBw),
            Fact::cell("GPU memory", row, F::GpuMem, bytes),
            Fact::cell("CPU", row, F::Cpu, |pct| format!("{pct} %")).with_note("of one core"),
            Fact::cell("Memory", row, F::Rss, bytes).with_note("resident on the host"),
            Fact::cell("Threads", row, F::Threads, text::grouped),
            share("Encoder", F::Encoder),
            share("Decoder", F::Decoder),
            match ran {
                Some(seconds) => Fact::new("Running for", text::span(seconds)),
                None => Fact::read("Running for", &process.facts.started_ms, |_| String::new()),
            },
        ],
    )
}

/// Returns the label and meaning of a state, and its emphasis.
pub fn state_text(number: u64) -> ((&'static str, &'static str), Emphasis) {
    match ProcessState::of_number(number) {
        ProcessState::Alive => (("alive", ""), Emphasis::Plain),
        ProcessState::Uninterruptible => {
            (("blocked on I/O", "uninterruptible; usually a slow file system"), Emphasis::Warning)
        }
        ProcessState::Zombie => {
            (("zombie", "ended, but its parent has not collected its exit status"), Emphasis::Warning)
        }
        ProcessState::Stopped => (("stopped", "by a signal or a debugger"), Emphasis::Warning),
    }
}

fn identity(process: &ProcessPicture) -> FactGroup {
    let facts = &process.facts;
    let text_fact =
        |label, reading: &Reading<nodeglass_protocol::Text>| Fact::read(label, reading, ToString::to_string);
    let mut entries = vec![
        Fact::new("PID", facts.pid.to_string()),
        Fact::read("Parent", &facts.parent, u32::to_string),
        text_fact("User", &facts.user),
        Fact::new("Kind", kind_text(facts.kind)),
    ];
    if let Some(job) = facts.job {
        let step = facts.step.as_ref().map_or(String::new(), |step| format!("step {step}"));
        entries.push(Fact::new("Job", job.to_string()).with_note(step));
    }
    entries.extend(facts.rank.map(|rank| Fact::new("Rank", rank_text(rank))));
    entries.extend(facts.container.as_ref().map(|container| {
        let name = container.name.as_ref().map_or(String::new(), ToString::to_string);
        Fact::new("Container", runtime(container.runtime)).with_note(name)
    }));
    FactGroup::new("Identity", entries)
}

/// Names the NVML lists that contain it.
pub fn kind_text(kind: nodeglass_protocol::process::ProcessKind) -> String {
    let lists = [(kind.compute, "compute"), (kind.graphics, "graphics"), (kind.mps, "MPS client")];
    let named: Vec<&str> = lists.into_iter().filter_map(|(is, label)| is.then_some(label)).collect();
    if named.is_empty() { "not reported".to_owned() } else { named.join(", ") }
}

/// Formats a rank: `5 of 16, local 1`.
pub fn rank_text(rank: Rank) -> String {
    let world = rank.world.map_or(String::new(), |world| format!(" of {world}"));
    let local = rank.local.map_or(String::new(), |local| format!(", local {local}"));
    format!("{}{world}{local}", rank.global)
}

fn runtime(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Apptainer => "Apptainer",
        Runtime::Enroot => "Enroot",
        Runtime::Docker => "Docker",
        Runtime::Podman => "Podman",
        Runtime::Kubernetes => "Kubernetes",
        Runtime::Other => "unknown runtime",
    }
}

/// Describes what only the node can report.
pub fn detail(detail: &ProcessDetail) -> FactGroup {
    let text_fact = |label, reading: &Reading<nodeglass_protocol::LongText>| {
        Fact::read(label, reading, ToString::to_string)
    };
    FactGroup::new(
        "Files",
        [
            text_fact("Command line", &detail.args),
            text_fact("Working directory", &detail.cwd),
            text_fact("Program", &detail.exe),
            text_fact("Cgroup", &detail.cgroup),
            Fact::read("Open files", &detail.open_files, |count| text::grouped(*count)),
            Fact::read("Read from storage", &detail.read_bytes, |count| bytes(*count))
                .with_note("since it started"),
            Fact::read("Written to storage", &detail.written_bytes, |count| bytes(*count))
                .with_note("since it started"),
            Fact::read("Blocked in kernel", &detail.wait_channel, |place| waits(place.as_str())),
        ],
    )
}

/// Formats what it waits for; the kernel writes a zero if it does not wait.
fn waits(place: &str) -> String {
    if matches!(place, "" | "0") { "no" } else { place }.to_owned()
}

/// One process of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its depth.
    pub depth: usize,
    /// Its pid.
    pub pid: u32,
    /// Its command line or name.
    pub command: String,
    /// Whether it is the process itself.
    pub is_self: bool,
}

/// Returns the process tree: ancestors, the process, descendants, each below its parent.
pub fn family(detail: &ProcessDetail, pid: u32) -> Vec<Branch> {
    let mut depths: Vec<(u32, usize)> = Vec::new();
    let mut tree = Vec::new();
    for kin in detail.ancestors.iter().chain(&detail.descendants) {
        let depth = depth_of(kin, &depths);
        depths.push((kin.pid, depth));
        tree.push(Branch { depth, pid: kin.pid, command: kin.command.to_string(), is_self: kin.pid == pid });
    }
    tree
}

fn depth_of(kin: &RelatedProcess, above: &[(u32, usize)]) -> usize {
    above.iter().find(|(pid, _)| *pid == kin.parent).map_or(0, |(_, depth)| depth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kin(pid: u32, parent: u32) -> RelatedProcess {
        RelatedProcess { pid, parent, user: "alice".into(), command: format!("c{pid}").into(), state: 0 }
    }

    #[test]
    fn a_family_is_a_tree_that_contains_the_process() {
        let detail = ProcessDetail {
            ancestors: vec![kin(1, 0), kin(10, 1), kin(20, 10)],
            descendants: vec![kin(30, 20), kin(31, 30), kin(32, 20)],
            ..ProcessDetail::default()
        };
        let tree: Vec<(u32, usize, bool)> =
            family(&detail, 20).iter().map(|branch| (branch.pid, branch.depth, branch.is_self)).collect();
        assert_eq!(
            tree,
            [(1, 0, false), (10, 1, false), (20, 2, true), (30, 3, false), (31, 4, false), (32, 3, false)]
        );
    }

    #[test]
    fn a_process_that_does_not_wait_shows_no_wait_channel() {
        assert_eq!([waits("0"), waits("futex_wait_queue")], ["no", "futex_wait_queue"].map(String::from));
    }

    #[test]
    fn a_rank_is_shown_as_far_as_it_is_known() {
        assert_eq!(rank_text(Rank { global: 5, local: Some(1), world: Some(16) }), "5 of 16, local 1");
        assert_eq!(rank_text(Rank { global: 5, local: None, world: None }), "5");
    }

    #[test]
    fn states_other_than_alive_are_emphasised() {
        assert_eq!(state_text(0).1, Emphasis::Plain);
        for number in 1..=3 {
            assert_eq!(state_text(number).1, Emphasis::Warning);
        }
    }

    #[test]
    fn what_another_user_hides_has_a_reason_and_is_not_blank() {
        let entries =
            detail(&ProcessDetail { args: Reading::Failed("not yours".into()), ..ProcessDetail::default() });
        assert_eq!(entries.facts[0].value, "failed: not yours");
        assert!(entries.facts.iter().all(|fact| !fact.value.is_empty()));
    }
}
