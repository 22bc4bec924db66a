//! Shell commands to copy, quoted for a POSIX shell.

use crate::domain::text;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::{JobId, NodeName};

/// Maximum number of nodes that the label of a command names.
const MAX_NAMED: usize = 3;

/// A command and its purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellCommand {
    /// Its effect in a few words, as its label on the page.
    pub purpose: String,
    /// The command.
    pub command: String,
}

impl ShellCommand {
    fn new<'a>(purpose: impl Into<String>, words: impl IntoIterator<Item = &'a str>) -> Self {
        let words: Vec<String> = words.into_iter().map(quoted).collect();
        Self { purpose: purpose.into(), command: words.join(" ") }
    }
}

/// Quotes one word for a POSIX shell, if it needs it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the commands that open a shell on a node of a running job: by SSH, and as a step of the job.
pub fn on_node(job: &Job, node: &NodeName) -> Vec<ShellCommand> {
    if !job.is_active() {
        return Vec::new();
    }
    let several = job.nodes.len() > 1;
    let id = job.id.to_string();
    let words = in_job(&id, several.then_some(node), &["--pty", "bash"]);
    let on = if several { format!(" on {node}") } else { String::new() };
    vec![
        ShellCommand::new(format!("Shell on {node}"), ["ssh", node.as_str()]),
        ShellCommand::new(format!("Shell in the job{on}"), words),
    ]
}

/// Returns the commands for a job; `tunnel` is the command line that makes the page reachable from another
/// machine. A shell is offered on the first node only; the pages of the other nodes offer theirs.
pub fn for_job(job: &Job, tunnel: &str) -> Vec<ShellCommand> {
    let id = job.id.to_string();
    let mut commands = job.nodes.first().map(|node| on_node(job, node)).unwrap_or_default();
    commands.push(show_job_command(&id));
    commands.push(match job.state {
        JobState::Ended(_) => ShellCommand::new(
            "Resources used (sacct)",
            ["sacct", "-j", &id, "--format=JobID,State,ExitCode,Elapsed,MaxRSS"],
        ),
        _ => ShellCommand::new("Cancel the job", ["scancel", &id]),
    });
    commands.extend(tunnel_command(tunnel));
    commands
}

/// Returns the commands for a guest of another user's job: read-only ones.
pub fn for_guest(job: &Job, tunnel: &str) -> Vec<ShellCommand> {
    [show_job_command(&job.id.to_string())].into_iter().chain(tunnel_command(tunnel)).collect()
}

/// Returns the command that submits a job's batch script again, to run without these nodes; `None` without nodes or script.
pub fn resubmission_without(job: &Job, nodes: &[NodeName]) -> Option<ShellCommand> {
    // An allocation without a script is not a batch job.
    let script = job.command.as_ref().filter(|command| command.as_str().starts_with('/'))?;
    let names = nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(",");
    if names.is_empty() {
        return None;
    }
    let exclude = format!("--exclude={names}");
    let folder = job.workdir.as_ref().map(|folder| format!("--chdir={folder}"));
    let words = ["sbatch", &exclude].into_iter().chain(folder.as_deref());
    let words = words.chain(script.as_str().split_whitespace());
    let excluded = match nodes.len() {
        ..=MAX_NAMED => nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", "),
        many => text::count(many, "node", "nodes"),
    };
    Some(ShellCommand::new(format!("Submit again without {excluded}"), words))
}

fn show_job_command(id: &str) -> ShellCommand {
    ShellCommand::new("Full SLURM record", ["scontrol", "show", "job", id])
}

/// Returns a tunnel command that makes the page reachable at its own port: a tunnel may have another port here than the
/// relay has on the login node.
pub fn tunnel_to_port(tunnel: &str, port: &str) -> String {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = tunnel.split_once(" -L ").and_then(|(before, rest)| Some((before, rest.split_once(':')?)));
    match parts {
        Some((before, (here, there))) if is_port(here) && is_port(port) => {
            format!("{before} -L {port}:{there}")
        }
        _ => tunnel.to_owned(),
    }
}

/// Returns the tunnel command. It is a complete command line, so it is not quoted again.
fn tunnel_command(tunnel: &str) -> Option<ShellCommand> {
    let command = ShellCommand {
        purpose: "Open this page from another machine".to_owned(),
        command: tunnel.to_owned(),
    };
    (!tunnel.is_empty()).then_some(command)
}

/// Returns commands that inspect a process. Those for a process of a job run as a step of that job, because
/// a login outside the job may not trace it.
pub fn for_process(pid: u32, node: &NodeName, job: Option<JobId>) -> Vec<ShellCommand> {
    let pid = pid.to_string();
    let tools: [(&str, &[&str]); 3] = [
        ("Python stack", &["py-spy", "dump", "--pid", &pid]),
        ("Native stacks of all threads", &["gdb", "-p", &pid, "-batch", "-ex", "thread apply all bt"]),
        ("System calls", &["strace", "-f", "-p", &pid]),
    ];
    let command = |(purpose, tool): (&str, &[&str])| match job {
        Some(job) => ShellCommand::new(purpose, in_job(&job.to_string(), Some(node), tool)),
        // ssh joins the words and the remote shell parses them again, so they are quoted twice.
        None => {
            let words: Vec<String> = tool.iter().map(|word| quoted(word)).collect();
            ShellCommand::new(purpose, ["ssh", "-t", node.as_str(), &words.join(" ")])
        }
    };
    tools.into_iter().map(command).collect()
}

/// Returns the words of an `srun` that runs `tool` as a further step of a job, on its allocated resources.
fn in_job<'a>(job: &'a str, node: Option<&'a NodeName>, tool: &[&'a str]) -> Vec<&'a str> {
    let on = node.into_iter().flat_map(|node| ["-w", node.as_str()]);
    ["srun", "--overlap", "--jobid", job].into_iter().chain(on).chain(tool.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_leads_to_the_port_of_the_page() {
        let tunnel = "ssh -L 8080:127.0.0.1:8080 alice@login";
        assert_eq!(tunnel_to_port(tunnel, "9000"), "ssh -L 9000:127.0.0.1:8080 alice@login");
        assert_eq!(tunnel_to_port(tunnel, ""), tunnel);
        assert_eq!(tunnel_to_port("", "9000"), "");
    }
    use crate::describe::job::tests::job;

    fn commands(lines: &[ShellCommand]) -> Vec<&str> {
        lines.iter().map(|line| line.command.as_str()).collect()
    }

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(quoted("train.py"), "train.py");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("$(rm -rf ~)"), "'$(rm -rf ~)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_node_is_named_only_if_the_job_has_several() {
        let mut job = job(JobState::Running);
        job.nodes = vec![NodeName::new("n1").unwrap()];
        assert_eq!(
            commands(&for_job(&job, "ssh -L 1:x:1 login")),
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
    fn a_job_is_submitted_again_without_the_nodes_that_are_to_blame() {
        let node = |name: &str| NodeName::new(name).unwrap();
        let mut job = job(JobState::Running);
        assert_eq!(resubmission_without(&job, &[node("n1")]), None, "it has no script");
        job.command = Some("/home/alice/train.sh --lr 3e-4".into());
        job.workdir = Some("/home/alice/my runs".into());
        let command = resubmission_without(&job, &[node("n1"), node("n2")]).unwrap();
        assert_eq!(command.purpose, "Submit again without n1, n2");
        let many: Vec<NodeName> = (1..=17).map(|at| node(format!("n{at}").as_str())).collect();
        let command_of_many = resubmission_without(&job, &many).unwrap();
        assert_eq!(command_of_many.purpose, "Submit again without 17 nodes");
        assert_eq!(
            command.command,
            "sbatch --exclude=n1,n2 '--chdir=/home/alice/my runs' /home/alice/train.sh --lr 3e-4"
        );
        assert_eq!(resubmission_without(&job, &[]), None);
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
        let lines = for_job(&job, "");
        assert!(
            commands(&lines)
                .iter()
                .all(|command| !command.starts_with("ssh") && !command.starts_with("scancel"))
        );
    }

    #[test]
    fn a_process_of_a_job_is_inspected_within_the_job() {
        let node = NodeName::new("n1").unwrap();
        assert_eq!(
            commands(&for_process(4711, &node, Some(JobId(17))))[0],
            "srun --overlap --jobid 17 -w n1 py-spy dump --pid 4711"
        );
        assert_eq!(
            commands(&for_process(4711, &node, None))[1],
            r"ssh -t n1 'gdb -p 4711 -batch -ex '\''thread apply all bt'\'''"
        );
    }
}
