//! Everything that is known of a process: what it does now, who it is, its family, its files.

use super::{Fact, Group, Mood, bytes};
use crate::text;
use nodeglass_protocol::picture::ProcessPicture;
use nodeglass_protocol::process::{ProcessDetail, ProcessState, Rank, RelatedProcess, Runtime};
use nodeglass_protocol::{ProcessField as F, Reading};

/// What it does now and who it is, by what is known without asking.
pub fn groups(process: &ProcessPicture, ran: Option<u64>) -> Vec<Group> {
    vec![now(process, ran), identity(process)]
}

fn now(process: &ProcessPicture, ran: Option<u64>) -> Group {
    let row = &process.row;
    let share = |label, field| Fact::percent(label, row, field, "hue-busy");
    let (words, mood) = state_words(row.value(F::State).unwrap_or(0));
    Group::new(
        "Now",
        [
            Fact::cell("State", row, F::State, |_| words.0.to_owned())
                .with(words.1)
                .if_so(mood != Mood::Plain, mood),
            share("SM time", F::Sm),
            share("Memory bandwidth", F::MemBw),
            Fact::cell("GPU memory", row, F::GpuMem, bytes),
            Fact::cell("CPU", row, F::Cpu, |pct| format!("{pct} %")).with("of one core"),
            Fact::cell("Memory", row, F::Rss, bytes).with("resident on the host"),
            Fact::cell("Threads", row, F::Threads, text::grouped),
            share("Encoder", F::Encoder),
            share("Decoder", F::Decoder),
            match ran {
                Some(seconds) => Fact::new("Runs for", text::span(seconds)),
                None => Fact::read("Runs for", &process.facts.started_ms, |_| String::new()),
            },
        ],
    )
}

/// A state as a word, what it means, and whether it is worth a look.
pub fn state_words(number: u64) -> ((&'static str, &'static str), Mood) {
    match ProcessState::of_number(number) {
        ProcessState::Alive => (("alive", ""), Mood::Plain),
        ProcessState::Uninterruptible => (
            ("waits for a device", "cannot be interrupted meanwhile; mostly a slow file system"),
            Mood::Attention,
        ),
        ProcessState::Zombie => (("has ended", "its parent has not taken notice"), Mood::Attention),
        ProcessState::Stopped => (("stopped", "by a signal or a debugger"), Mood::Attention),
    }
}

fn identity(process: &ProcessPicture) -> Group {
    let facts = &process.facts;
    let said =
        |label, reading: &Reading<nodeglass_protocol::Text>| Fact::read(label, reading, ToString::to_string);
    let mut told = vec![
        Fact::new("Pid", facts.pid.to_string()),
        Fact::read("Parent", &facts.parent, u32::to_string),
        said("User", &facts.user),
        Fact::new("Kind", kind_words(facts.kind)),
    ];
    if let Some(job) = facts.job {
        let step = facts.step.as_ref().map_or(String::new(), |step| format!("step {step}"));
        told.push(Fact::new("Job", job.to_string()).with(step));
    }
    told.extend(facts.rank.map(|rank| Fact::new("Rank", rank_words(rank))));
    told.extend(facts.container.as_ref().map(|container| {
        let name = container.name.as_ref().map_or(String::new(), ToString::to_string);
        Fact::new("Container", runtime(container.runtime)).with(name)
    }));
    Group::new("Who it is", told)
}

/// Which of NVML's lists it is in, as words.
pub fn kind_words(kind: nodeglass_protocol::process::ProcessKind) -> String {
    let words = [(kind.compute, "compute"), (kind.graphics, "graphics"), (kind.mps, "client of MPS")];
    let named: Vec<&str> = words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
    if named.is_empty() { "not told".to_owned() } else { named.join(", ") }
}

/// A place among the tasks: `5 of 16, local 1`.
pub fn rank_words(rank: Rank) -> String {
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
        Runtime::Other => "of a kind that is not known",
    }
}

/// What only the node could tell.
pub fn detail(detail: &ProcessDetail) -> Group {
    let said = |label, reading: &Reading<nodeglass_protocol::LongText>| {
        Fact::read(label, reading, ToString::to_string)
    };
    Group::new(
        "Files",
        [
            said("Command line", &detail.args),
            said("Working directory", &detail.cwd),
            said("Program", &detail.exe),
            said("Cgroup", &detail.cgroup),
            Fact::read("Open files", &detail.open_files, |count| text::grouped(*count)),
            Fact::read("Read from storage", &detail.read_bytes, |count| bytes(*count))
                .with("since it started"),
            Fact::read("Written to storage", &detail.written_bytes, |count| bytes(*count))
                .with("since it started"),
            Fact::read("Waits in the kernel", &detail.waits_in, |place| waits(place.as_str())),
        ],
    )
}

/// Where it waits; the kernel writes a zero when it does not.
fn waits(place: &str) -> String {
    if matches!(place, "" | "0") { "no" } else { place }.to_owned()
}

/// One process of a family tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// How deep it stands.
    pub depth: usize,
    /// Its pid.
    pub pid: u32,
    /// Its command line or name.
    pub command: String,
    /// Whether it is the process itself.
    pub is_self: bool,
}

/// The family as a tree: ancestors, the process, descendants, each below its parent.
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
    fn a_family_is_a_tree_with_the_process_in_it() {
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
    fn a_process_that_does_not_wait_is_not_said_to_wait_in_zero() {
        assert_eq!([waits("0"), waits("futex_wait_queue")], ["no", "futex_wait_queue"].map(String::from));
    }

    #[test]
    fn a_rank_is_told_as_far_as_it_is_known() {
        assert_eq!(rank_words(Rank { global: 5, local: Some(1), world: Some(16) }), "5 of 16, local 1");
        assert_eq!(rank_words(Rank { global: 5, local: None, world: None }), "5");
    }

    #[test]
    fn states_other_than_alive_are_worth_a_look() {
        assert_eq!(state_words(0).1, Mood::Plain);
        for number in 1..=3 {
            assert_eq!(state_words(number).1, Mood::Attention);
        }
    }

    #[test]
    fn what_another_user_hides_is_said_and_not_blank() {
        let told =
            detail(&ProcessDetail { args: Reading::Failed("not yours".into()), ..ProcessDetail::default() });
        assert_eq!(told.facts[0].value, "failed: not yours");
        assert!(told.facts.iter().all(|fact| !fact.value.is_empty()));
    }
}
