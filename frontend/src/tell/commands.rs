//! Commands ready to paste into a terminal, quoted so that a shell reads them as they are meant.

use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName};

/// A command, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it does, in a few words.
    pub what: String,
    /// The command.
    pub command: String,
}

impl Line {
    fn new<'a>(what: impl Into<String>, words: impl IntoIterator<Item = &'a str>) -> Self {
        let words: Vec<String> = words.into_iter().map(quoted).collect();
        Self { what: what.into(), command: words.join(" ") }
    }
}

/// One word of a POSIX shell's command line, in single quotes where it needs them.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Ways onto a node of a running job: by itself, and within the job.
pub fn on_node(job: &Job, node: &NodeName) -> Vec<Line> {
    if !job.is_active() {
        return Vec::new();
    }
    let several = job.nodes.len() > 1;
    let id = job.id.to_string();
    let words = in_job(&id, several.then_some(node), &["--pty", "bash"]);
    let on = if several { format!(" on {node}") } else { String::new() };
    vec![
        Line::new(format!("Shell on {node}"), ["ssh", node.as_str()]),
        Line::new(format!("Shell in the job{on}"), words),
    ]
}

/// What one may want to do with a job; `tunnel` is the line by which the page is reached. Of its nodes the first
/// is named; the others' own pages name them.
pub fn of_job(job: &Job, tunnel: &str) -> Vec<Line> {
    let id = job.id.to_string();
    let mut lines = job.nodes.first().map(|node| on_node(job, node)).unwrap_or_default();
    lines.push(all_of(&id));
    lines.push(match job.state {
        JobState::Ended(_) => {
            Line::new("What it used", ["sacct", "-j", &id, "--format=JobID,State,ExitCode,Elapsed,MaxRSS"])
        }
        _ => Line::new("Cancel it", ["scancel", &id]),
    });
    lines.extend(to_page(tunnel));
    lines
}

/// What a guest may want to do with somebody else's job: look.
pub fn for_guest(job: &Job, tunnel: &str) -> Vec<Line> {
    [all_of(&job.id.to_string())].into_iter().chain(to_page(tunnel)).collect()
}

fn all_of(id: &str) -> Line {
    Line::new("All that SLURM knows", ["scontrol", "show", "job", id])
}

/// The line is a whole command line already.
fn to_page(tunnel: &str) -> Option<Line> {
    let line = Line { what: "This page from elsewhere".to_owned(), command: tunnel.to_owned() };
    (!tunnel.is_empty()).then_some(line)
}

/// Ways to look into a process: within its job where it has one, for only there may one look.
pub fn of_process(pid: u32, node: &NodeName, job: Option<JobId>) -> Vec<Line> {
    let pid = pid.to_string();
    let tools: [(&str, &[&str]); 3] = [
        ("What Python does now", &["py-spy", "dump", "--pid", &pid]),
        ("What every thread does now", &["gdb", "-p", &pid, "-batch", "-ex", "thread apply all bt"]),
        ("What it asks of the system", &["strace", "-f", "-p", &pid]),
    ];
    let line = |(what, tool): (&str, &[&str])| match job {
        Some(job) => Line::new(what, in_job(&job.to_string(), Some(node), tool)),
        // The shell of the other side reads the words once more.
        None => {
            let words: Vec<String> = tool.iter().map(|word| quoted(word)).collect();
            Line::new(what, ["ssh", "-t", node.as_str(), &words.join(" ")])
        }
    };
    tools.into_iter().map(line).collect()
}

/// The words that run something beside a job's own steps.
fn in_job<'a>(job: &'a str, node: Option<&'a NodeName>, what: &[&'a str]) -> Vec<&'a str> {
    let on = node.into_iter().flat_map(|node| ["-w", node.as_str()]);
    ["srun", "--overlap", "--jobid", job].into_iter().chain(on).chain(what.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tell::job::tests::job;

    fn commands(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.command.as_str()).collect()
    }

    #[test]
    fn words_that_a_shell_would_take_apart_are_quoted() {
        assert_eq!(quoted("train.py"), "train.py");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("$(rm -rf ~)"), "'$(rm -rf ~)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_job_of_one_node_needs_no_node_named_and_one_of_several_does() {
        let mut job = job(JobState::Running);
        job.nodes = vec![NodeName::new("n1").unwrap()];
        assert_eq!(
            commands(&of_job(&job, "ssh -L 1:x:1 login")),
            [
                "ssh n1",
                "srun --overlap --jobid 17 --pty bash",
                "scontrol show job 17",
                "scancel 17",
                "ssh -L 1:x:1 login"
            ]
        );
        job.nodes.push(NodeName::new("n2").unwrap());
        assert_eq!(
            commands(&on_node(&job, &job.nodes[1])),
            ["ssh n2", "srun --overlap --jobid 17 -w n2 --pty bash"]
        );
    }

    #[test]
    fn a_guest_is_offered_no_command_that_enters_or_ends_the_job() {
        let mut job = job(JobState::Running);
        job.nodes = vec![NodeName::new("n1").unwrap()];
        assert_eq!(
            commands(&for_guest(&job, "ssh -L 1:x:1 login")),
            ["scontrol show job 17", "ssh -L 1:x:1 login"]
        );
        assert_eq!(commands(&for_guest(&job, "")), ["scontrol show job 17"]);
    }

    #[test]
    fn an_ended_job_is_neither_entered_nor_cancelled() {
        let job = job(JobState::Ended("COMPLETED".into()));
        let lines = of_job(&job, "");
        assert!(
            commands(&lines)
                .iter()
                .all(|command| !command.starts_with("ssh") && !command.starts_with("scancel"))
        );
    }

    #[test]
    fn a_process_of_a_job_is_looked_into_from_within_it() {
        let node = NodeName::new("n1").unwrap();
        assert_eq!(
            commands(&of_process(4711, &node, Some(JobId(17))))[0],
            "srun --overlap --jobid 17 -w n1 py-spy dump --pid 4711"
        );
        assert_eq!(
            commands(&of_process(4711, &node, None))[1],
            r"ssh -t n1 'gdb -p 4711 -batch -ex '\''thread apply all bt'\'''"
        );
    }
}
