//! The table of keyboard shortcuts, which the help, the command palette and the keyboard share.

/// The command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Moves the selection in the job list by this many entries; negative is up.
    Job(isize),
    /// Moves by this many node tabs; negative is left.
    Node(isize),
    /// Shows all nodes of the job.
    Overview,
    /// Shows the processes of the job, or goes back.
    Processes,
    /// Shows the logs of the job.
    Logs,
    /// Shows what SLURM knows about the job.
    About,
    /// Shows every job.
    AllJobs,
    /// Shows the item that needs attention this many after the last shown one; negative is before. In a log, moves
    /// between matches; while the search is empty, between errors, and past the last one on to the next item.
    Next(isize),
    /// Notes something at the cursor of the graphs, or now.
    Note,
    /// Switches to the next theme (light or dark).
    Theme,
    /// Switches to the next colour scheme of the charts.
    ColorScheme,
    /// Opens the settings.
    Settings,
    /// Opens the sheet for sharing.
    Share,
    /// Opens the command palette.
    Palette,
    /// Focuses a table's filter, or the search of a log.
    Filter,
    /// Opens a table's menu of columns.
    Columns,
    /// Opens a table's menu for copies and downloads.
    Copy,
    /// Sorts a table by the column this many places to the right; negative is left.
    Sort(isize),
    /// Reverses a table's sort order.
    ReverseSort,
    /// Opens or closes the help.
    Help,
    /// Closes the topmost layer.
    Close,
}

impl Command {
    /// Returns whether the command shows a part of the current job, and does nothing where no job is shown.
    pub fn needs_job(self) -> bool {
        matches!(self, Self::Overview | Self::Processes | Self::Logs | Self::About)
    }
}

/// Keys and their command.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The keys as `KeyboardEvent.key` names them.
    pub keys: &'static [&'static str],
    /// The command that each of them runs.
    pub command: Command,
    /// Description for the help and the command palette.
    pub description: &'static str,
}

const fn binding(keys: &'static [&'static str], command: Command, description: &'static str) -> Binding {
    Binding { keys, command, description }
}

/// The shortcuts that apply everywhere on the page. The arrows are nvnodetop's, the letters vi's.
pub const BINDINGS: &[Binding] = &[
    binding(&["ArrowUp", "k"], Command::Job(-1), "job above"),
    binding(&["ArrowDown", "j"], Command::Job(1), "job below"),
    binding(&["ArrowLeft", ",", "h"], Command::Node(-1), "node to the left"),
    binding(&["ArrowRight", ".", "l"], Command::Node(1), "node to the right"),
    binding(&["o"], Command::Overview, "all nodes of the job"),
    binding(&["p"], Command::Processes, "processes of the job, and back"),
    binding(&["L"], Command::Logs, "logs of the job"),
    binding(&["i"], Command::About, "about the job: what SLURM knows"),
    binding(&["a"], Command::AllJobs, "all jobs"),
    binding(
        &["n"],
        Command::Next(1),
        "next problem that needs attention; in a log, first the next match or error",
    ),
    binding(&["N"], Command::Next(-1), "previous problem; in a log, first the previous match or error"),
    binding(&["m"], Command::Note, "mark a moment with a note, at the time pointed at"),
    binding(
        &["/"],
        Command::Filter,
        "filter a table or search a log: Enter for the next match, Esc to clear",
    ),
    binding(&["C"], Command::Columns, "columns of a table"),
    binding(&["y"], Command::Copy, "copy or download a table"),
    binding(&["<"], Command::Sort(-1), "sort a table by the column to the left"),
    binding(&[">"], Command::Sort(1), "sort a table by the column to the right"),
    binding(&["r"], Command::ReverseSort, "reverse sort"),
    binding(&["t"], Command::Theme, "theme: system, dark, light"),
    binding(&["c"], Command::ColorScheme, "colours: single colour, nvnodetop, nvitop, custom"),
    binding(&["S"], Command::Settings, "settings"),
    binding(&["s"], Command::Share, "share what you see, and list viewers"),
    binding(&["?"], Command::Help, "keyboard shortcuts"),
    binding(&["Escape"], Command::Close, "close"),
];

/// Keys with the same meaning, and a description.
type Keys = (&'static [&'static str], &'static str);

/// Shortcuts that apply only while a part of the page has the focus, for the help: title, then keys.
pub const FOCUS_BINDINGS: &[(&str, &[Keys])] = &[
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
        &[(&["+", "-"], "zoom in and out"), (&["[", "]"], "earlier and later"), (&["0"], "back to live")],
    ),
    (
        "A process's sheet",
        &[(&["I"], "interrupt it"), (&["T"], "terminate it"), (&["K"], "kill it (each asks first)")],
    ),
];

/// Returns the shortcuts available to a viewer, who may see logs or not.
pub fn bindings(is_owner: bool, shows_logs: bool) -> impl Iterator<Item = &'static Binding> {
    let is_available = move |command| match command {
        Command::Share | Command::Note => is_owner,
        Command::Logs => shows_logs,
        _ => true,
    };
    BINDINGS.iter().filter(move |binding| is_available(binding.command))
}

impl Command {
    /// Returns the command of a key as `KeyboardEvent.key` names it.
    pub fn from_key(key: &str) -> Option<Self> {
        let binding = BINDINGS.iter().find(|binding| binding.keys.contains(&key))?;
        Some(binding.command)
    }

    /// Returns the command of a key pressed together with Ctrl or ⌘.
    pub fn from_chord(key: &str) -> Option<Self> {
        matches!(key, "k" | "K").then_some(Self::Palette)
    }
}

/// Returns the label of a key as printed on a keycap.
pub fn keycap(key: &'static str) -> &'static str {
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
    fn no_key_has_two_meanings() {
        let mut keys: Vec<_> = BINDINGS.iter().flat_map(|binding| binding.keys).collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(BINDINGS.iter().all(|binding| Command::from_key(binding.keys[0]) == Some(binding.command)));
    }

    #[test]
    fn a_guest_is_not_offered_the_owners_keys() {
        let shares = |is_owner| bindings(is_owner, true).any(|binding| binding.command == Command::Share);
        assert!(shares(true) && !shares(false));
        assert_eq!(bindings(false, true).count(), BINDINGS.len() - 2);
        let mut without_logs = bindings(false, false);
        assert!(without_logs.all(|binding| binding.command != Command::Logs));
    }

    #[test]
    fn other_keys_are_left_to_the_browser() {
        for key in ["Tab", "Enter", " ", "F5", "x"] {
            assert_eq!(Command::from_key(key), None);
        }
        assert_eq!(Command::from_chord("c"), None, "Ctrl C still copies");
    }
}
