//! Every key does one thing, and the help says the same as the keyboard.

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
    /// Help, and back.
    Help,
    /// Whatever lies on top goes away.
    Close,
}

impl Command {
    /// The command of a key as `KeyboardEvent.key` names it.
    pub fn of_key(key: &str) -> Option<Self> {
        Some(match key {
            "ArrowUp" | "k" => Self::Job(-1),
            "ArrowDown" | "j" => Self::Job(1),
            "ArrowLeft" | "," | "h" => Self::Node(-1),
            "ArrowRight" | "." | "l" => Self::Node(1),
            "o" => Self::Overview,
            "p" => Self::Processes,
            "a" => Self::AllJobs,
            "t" => Self::Theme,
            "c" => Self::Scheme,
            "?" => Self::Help,
            "Escape" => Self::Close,
            _ => return None,
        })
    }
}

/// The keys and what they do, for the help.
pub const HELP: [(&[&str], &str); 10] = [
    (&["↑", "k"], "job above"),
    (&["↓", "j"], "job below"),
    (&["←", ","], "node to the left"),
    (&["→", "."], "node to the right"),
    (&["o"], "all nodes of the job"),
    (&["p"], "processes of the job, and back"),
    (&["a"], "all jobs"),
    (&["t"], "theme: of the system, dark, light"),
    (&["c"], "colours: one hue, nvnodetop, nvitop"),
    (&["?"], "this help"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_help_does_something() {
        for (keys, _) in HELP {
            for key in keys {
                let name = match *key {
                    "↑" => "ArrowUp",
                    "↓" => "ArrowDown",
                    "←" => "ArrowLeft",
                    "→" => "ArrowRight",
                    key => key,
                };
                assert!(Command::of_key(name).is_some(), "{key}");
            }
        }
    }

    #[test]
    fn other_keys_are_left_to_the_browser() {
        for key in ["Tab", "Enter", " ", "F5", "x"] {
            assert_eq!(Command::of_key(key), None);
        }
    }
}
