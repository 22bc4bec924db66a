//! Every key does one thing, and help, palette and keyboard read it from one table.

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The job so many places further in the list.
    Job(isize),
    /// The node so many places further in the tabs.
    Node(isize),
    /// All nodes of the job.
    Overview,
    /// The processes of the job, and back.
    Processes,
    /// Every job.
    AllJobs,
    /// Another theme.
    Theme,
    /// Another colour scheme.
    Scheme,
    /// What this browser remembers, to change.
    Settings,
    /// A link for somebody else, and who looks.
    Share,
    /// A word leads anywhere.
    Palette,
    /// The cursor goes to a table's filter.
    Filter,
    /// A table is sorted by the column so many places further.
    Sort(isize),
    /// A table is sorted the other way round.
    TurnSort,
    /// Help, and back.
    Help,
    /// Whatever lies on top goes away.
    Close,
}

/// One line of the table: keys and the command they give.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The keys as `KeyboardEvent.key` names them.
    pub keys: &'static [&'static str],
    /// What they do.
    pub command: Command,
    /// The same in words, as help and palette say it.
    pub what: &'static str,
}

const fn binding(keys: &'static [&'static str], command: Command, what: &'static str) -> Binding {
    Binding { keys, command, what }
}

/// Every key of the page as a whole. The arrows are nvnodetop's, the letters of a home row vi's.
pub const BINDINGS: &[Binding] = &[
    binding(&["ArrowUp", "k"], Command::Job(-1), "job above"),
    binding(&["ArrowDown", "j"], Command::Job(1), "job below"),
    binding(&["ArrowLeft", ",", "h"], Command::Node(-1), "node to the left"),
    binding(&["ArrowRight", ".", "l"], Command::Node(1), "node to the right"),
    binding(&["o"], Command::Overview, "all nodes of the job"),
    binding(&["p"], Command::Processes, "processes of the job, and back"),
    binding(&["a"], Command::AllJobs, "all jobs"),
    binding(&["/"], Command::Filter, "filter a table; Esc clears it, Enter goes to its rows"),
    binding(&["<"], Command::Sort(-1), "sort a table by the column to the left"),
    binding(&[">"], Command::Sort(1), "sort a table by the column to the right"),
    binding(&["r"], Command::TurnSort, "sort a table the other way round"),
    binding(&["t"], Command::Theme, "theme: of the system, dark, light"),
    binding(&["c"], Command::Scheme, "colours: one hue, nvnodetop, nvitop, your own"),
    binding(&["S"], Command::Settings, "settings"),
    binding(&["s"], Command::Share, "share what you see, and who looks"),
    binding(&["?"], Command::Help, "this help"),
    binding(&["Escape"], Command::Close, "close what lies on top"),
];

/// Keys that do the same, and what.
type Keys = (&'static [&'static str], &'static str);

/// Keys that only mean something where a part of the page has the focus, for the help: title, then keys and words.
pub const LOCAL: &[(&str, &[Keys])] = &[
    (
        "A table",
        &[
            (&["↑", "↓"], "row above and below"),
            (&["Enter"], "open it"),
            (&["Home", "End"], "first and last row"),
        ],
    ),
    (
        "Graphs",
        &[
            (&["+", "-"], "less and more time"),
            (&["[", "]"], "earlier and later"),
            (&["0"], "now again, ten minutes"),
        ],
    ),
    (
        "A process's sheet",
        &[(&["I"], "interrupt it"), (&["T"], "terminate it"), (&["K"], "kill it; each asks first")],
    ),
];

/// The keys that mean something to a viewer.
pub fn bindings(is_owner: bool) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |binding| is_owner || binding.command != Command::Share)
}

impl Command {
    /// The command of a key as `KeyboardEvent.key` names it.
    pub fn of_key(key: &str) -> Option<Self> {
        let binding = BINDINGS.iter().find(|binding| binding.keys.contains(&key))?;
        Some(binding.command)
    }

    /// The command of a key held together with Ctrl or ⌘.
    pub fn of_chord(key: &str) -> Option<Self> {
        matches!(key, "k" | "K").then_some(Self::Palette)
    }
}

/// A key as people write it.
pub fn cap(key: &'static str) -> &'static str {
    match key {
        "ArrowUp" => "↑",
        "ArrowDown" => "↓",
        "ArrowLeft" => "←",
        "ArrowRight" => "→",
        "Escape" => "Esc",
        key => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things() {
        let mut keys: Vec<_> = BINDINGS.iter().flat_map(|binding| binding.keys).collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(BINDINGS.iter().all(|binding| Command::of_key(binding.keys[0]) == Some(binding.command)));
    }

    #[test]
    fn a_guest_is_told_no_key_that_is_the_owners() {
        let shares = |is_owner| bindings(is_owner).any(|binding| binding.command == Command::Share);
        assert!(shares(true) && !shares(false));
        assert_eq!(bindings(false).count(), BINDINGS.len() - 1);
    }

    #[test]
    fn other_keys_are_left_to_the_browser() {
        for key in ["Tab", "Enter", " ", "F5", "x"] {
            assert_eq!(Command::of_key(key), None);
        }
        assert_eq!(Command::of_chord("c"), None, "copying stays copying");
    }
}
