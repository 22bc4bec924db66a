//! Parses the fields of `scontrol show job` that squeue lacks: memory, logs, exit code, restarts, suspension.

use super::once::Once;
use nodeglass_protocol::job::{Job, JobState, Parent, Suspension};
use nodeglass_protocol::{LongText, NodeName, Text};
use nodeglass_redact::mask;

/// Fields of a job besides its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFields {
    mem_bytes: Option<u64>,
    batch_host: Option<NodeName>,
    workdir: Option<LongText>,
    command: Option<LongText>,
    stdout: Option<String>,
    stderr: Option<String>,
    exit: Option<Text>,
    restarts: Option<u32>,
    suspension: Option<Suspension>,
}

impl JobFields {
    /// Fills the fields into a job; values from squeue take precedence.
    pub fn fill(&self, job: &mut Job) {
        job.mem_bytes = self.mem_bytes.or(job.mem_bytes);
        job.restarts = self.restarts.unwrap_or(job.restarts);
        // It may be of the run before.
        job.suspension =
            self.suspension.filter(|suspension| job.start.is_some_and(|start| start <= suspension.at));
        // Before the end it reads `0:0`, which would be wrong.
        job.exit = self.exit.clone().filter(|_| matches!(job.state, JobState::Ended(_)));
        job.batch_host = job.batch_host.take().or_else(|| self.batch_host.clone());
        job.workdir = job.workdir.take().or_else(|| self.workdir.clone());
        job.command = job.command.take().or_else(|| self.command.clone());
        job.stdout = self.stdout.as_deref().and_then(|path| log_path(path, job));
        job.stderr = self.stderr.as_deref().and_then(|path| log_path(path, job));
    }
}

/// Maximum length of a path or command in bytes; longer values are ignored.
const MAX_VALUE: usize = 64 << 10;

/// The lines of a block; a field that occurs twice is ignored.
#[derive(Default)]
pub(super) struct JobFieldLines<'a> {
    restarts: Once<&'a str>,
    exit: Once<&'a str>,
    suspended: Once<&'a str>,
    ran: Once<&'a str>,
    batch: Once<bool>,
    batch_host: Once<&'a str>,
    workdir: Once<&'a str>,
    command: Once<&'a str>,
    stdout: Once<&'a str>,
    stderr: Once<&'a str>,
}

impl<'a> JobFieldLines<'a> {
    /// Reads a line without indentation.
    pub(super) fn read(&mut self, line: &'a str) {
        let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
        if line.starts_with("Requeue=") {
            field("Restarts=").into_iter().for_each(|value| self.restarts.set(value));
            field("ExitCode=").into_iter().for_each(|value| self.exit.set(value));
            field("BatchFlag=").into_iter().for_each(|value| self.batch.set(value != "0"));
        }
        if line.starts_with("SuspendTime=") {
            field("SuspendTime=").into_iter().for_each(|value| self.suspended.set(value));
            field("SecsPreSuspend=").into_iter().for_each(|value| self.ran.set(value));
        }
        let fields = [
            ("BatchHost=", &mut self.batch_host),
            ("WorkDir=", &mut self.workdir),
            ("Command=", &mut self.command),
            ("StdOut=", &mut self.stdout),
            ("StdErr=", &mut self.stderr),
        ];
        for (name, field) in fields {
            if let Some(value) = line.strip_prefix(name) {
                field.set(value);
            }
        }
    }

    /// The parsed fields; `tres` is the block's list of resources.
    pub(super) fn facts(&self, tres: Option<&str>) -> JobFields {
        let text = |field: Once<&'a str>| {
            let is_set = |value: &&str| !matches!(*value, "" | "(null)") && value.len() <= MAX_VALUE;
            field.get().flatten().map(str::trim).filter(is_set)
        };
        let stdout = text(self.stdout).map(str::to_owned);
        // Both go to one file unless stated otherwise; only batch jobs have log files.
        let same = stdout.clone().filter(|_| self.batch.get().flatten() == Some(true));
        JobFields {
            mem_bytes: tres.and_then(mem_in_tres),
            batch_host: text(self.batch_host).and_then(|host| NodeName::new(host).ok()),
            workdir: text(self.workdir).map(LongText::from),
            command: text(self.command).map(|command| mask::command(command).into()),
            stderr: text(self.stderr).map(str::to_owned).or(same),
            stdout,
            exit: text(self.exit).map(Text::from),
            restarts: text(self.restarts).and_then(|count| count.parse().ok()),
            suspension: suspension(text(self.suspended), text(self.ran)),
        }
    }
}

/// `SuspendTime`, which is `None` for a job that never was suspended, and `SecsPreSuspend`.
fn suspension(at: Option<&str>, ran: Option<&str>) -> Option<Suspension> {
    let at = at?.parse().ok().filter(|at| (1..253_402_300_800).contains(at))?;
    Some(Suspension { at, ran_s: ran?.parse().ok()? })
}

/// `mem=800M` in a list of TRES, in bytes; MiB without a unit.
fn mem_in_tres(tres: &str) -> Option<u64> {
    let list = tres.split_whitespace().next()?;
    let value = list.split(',').find_map(|item| item.strip_prefix("mem="))?;
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &value[number.len()..] {
        "K" => 10,
        "M" | "" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

/// The absolute path of a log, expanding patterns that SLURM left unexpanded.
///
/// `None` for the pending rest of an array, whose tasks have no ids yet.
fn log_path(raw: &str, job: &Job) -> Option<LongText> {
    let path = expand(raw, job)?;
    if path.starts_with('/') {
        return Some(path.into());
    }
    Some(format!("{}/{path}", job.workdir.as_ref()?).into())
}

/// The task id that SLURM writes for jobs without one (`NO_VAL`).
const NO_TASK: &str = "4294967294";

/// Expands `%j`, `%A`, `%a`, `%x`, `%u`, `%N`, `%n`, `%t`, `%%` and their padded forms (`%5j`) as sbatch(1) has them.
fn expand(raw: &str, job: &Job) -> Option<String> {
    if raw.contains(NO_TASK) {
        return None;
    }
    if raw.contains('\\') {
        return Some(raw.replace('\\', ""));
    }
    // Every scontrol has replaced `%x`, so that a pattern in the job's name is part of the path.
    let name = job.name.as_str();
    if !name.contains('%') {
        return Some(expand_patterns(raw, job));
    }
    let parts: Vec<_> = raw.split(name).map(|part| expand_patterns(part, job)).collect();
    Some(parts.join(name))
}

fn expand_patterns(raw: &str, job: &Job) -> String {
    let (mut out, mut rest) = (String::new(), raw);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let letter_at = after.find(|c: char| !c.is_ascii_digit());
        let known = letter_at.and_then(|letter_at| {
            let letter = after[letter_at..].chars().next()?;
            Some((
                value_of(letter, job)?,
                after[..letter_at].parse().unwrap_or(0),
                letter_at + letter.len_utf8(),
            ))
        });
        match known {
            Some((value, width, length)) => {
                // SLURM limits the width to ten.
                let width: usize = usize::min(width, 10);
                let number = value.bytes().all(|byte| byte.is_ascii_digit());
                out.push_str(&if number { format!("{value:0>width$}") } else { value });
                rest = &after[length..];
            }
            None => {
                out.push('%');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The value of a pattern letter; `None` if unknown.
fn value_of(letter: char, job: &Job) -> Option<String> {
    let (array, task) = match job.part_of {
        Some(Parent::Array { job, task }) => (job, task),
        _ => (job.id, None),
    };
    Some(match letter {
        '%' => "%".to_owned(),
        'j' | 'J' => job.id.to_string(),
        'A' => array.to_string(),
        'a' => task?.to_string(),
        'b' => (task? % 10).to_string(),
        'x' => job.name.to_string(),
        'u' => job.user.to_string(),
        'N' => job.batch_host.as_ref()?.as_str().split('.').next()?.to_owned(),
        'n' | 't' => "0".to_owned(),
        's' => "batch".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    fn job() -> Job {
        Job {
            name: "train".into(),
            part_of: Some(Parent::Array { job: JobId(3), task: Some(12) }),
            batch_host: NodeName::new("gpu-01.cluster").ok(),
            workdir: Some("/home/alice".into()),
            ..Job::new(JobId(17), "alice".into(), JobState::Running)
        }
    }

    fn path(raw: &str) -> Option<String> {
        log_path(raw, &job()).map(|path| path.to_string())
    }

    #[test]
    fn unexpanded_patterns_of_slurm_are_expanded() {
        for (raw, whole) in [
            ("/home/alice/slurm-17.out", "/home/alice/slurm-17.out"),
            ("/scratch/%u/%x-%j.out", "/scratch/alice/train-17.out"),
            ("logs/%A_%a.log", "/home/alice/logs/3_12.log"),
            ("/x/%5j-%3a-%b-%N-%n-%t", "/x/00017-012-2-gpu-01-0-0"),
            ("/x/100%%-%q-%", "/x/100%-%q-%"),
            ("/x/\\%j", "/x/%j"),
        ] {
            assert_eq!(path(raw).as_deref(), Some(whole), "{raw}");
        }
        assert_eq!(path("/home/alice/slurm-3_4294967294.out"), None);
    }

    #[test]
    fn a_pattern_in_the_name_of_a_job_is_not_expanded() {
        for (name, raw, whole) in [
            ("50%unet", "/x/50%unet.out", "/x/50%unet.out"),
            ("run%j", "/x/run%j-%N/run%j.%4j", "/x/run%j-gpu-01/run%j.0017"),
            ("100%", "/x/other-%N", "/x/other-gpu-01"),
        ] {
            let job = Job { name: name.into(), ..job() };
            assert_eq!(log_path(raw, &job), Some(whole.into()), "{raw}");
        }
    }

    #[test]
    fn a_relative_path_without_a_folder_is_no_path() {
        let job = Job { workdir: None, ..job() };
        assert_eq!(log_path("out.log", &job), None);
    }

    #[test]
    fn memory_is_read_in_every_unit() {
        for (tres, bytes) in [
            ("cpu=1,mem=100M,node=1", Some(100 << 20)),
            ("mem=1.50G", Some(3 << 29)),
            ("mem=2T", Some(2 << 40)),
            ("mem=512K", Some(512 << 10)),
            ("mem=16", Some(16 << 20)),
            ("cpu=1", None),
            ("mem=xG", None),
            ("mem=1X", None),
            ("(null)", None),
        ] {
            assert_eq!(mem_in_tres(tres), bytes, "{tres}");
        }
    }

    fn read(block: &str) -> JobFields {
        let mut lines = JobFieldLines::default();
        block.lines().for_each(|line| lines.read(line.trim()));
        lines.facts(Some("mem=1G"))
    }

    #[test]
    fn a_batch_job_without_stderr_writes_errors_to_stdout() {
        let batch = read("Requeue=1 Restarts=2 BatchFlag=1 ExitCode=0:9\nStdOut=/x/out\nStdErr=");
        assert_eq!((batch.stderr.as_deref(), batch.restarts), (Some("/x/out"), Some(2)));
        let other = read("Requeue=1 Restarts=0 BatchFlag=0 ExitCode=0:0\nStdOut=/x/out");
        assert_eq!(other.stderr, None);
    }

    #[test]
    fn a_field_that_occurs_twice_is_ignored() {
        let facts = read("StdOut=/etc/shadow\nStdOut=/x/out\nWorkDir=/x");
        assert_eq!((facts.stdout, facts.workdir.as_ref().map(LongText::as_str)), (None, Some("/x")));
    }

    #[test]
    fn a_suspension_is_of_this_run() {
        let of = |line: &str, start| {
            let mut job = Job { start: Some(start), ..job() };
            read(line).fill(&mut job);
            job.suspension
        };
        let line = "SuspendTime=1795493956 SecsPreSuspend=1 LastSchedEval=1795493955 Scheduler=Backfill";
        let suspension = Some(Suspension { at: 1_795_493_956, ran_s: 1 });
        assert_eq!((of(line, 1_795_493_955), of(line, 1_795_494_000)), (suspension, None));
        assert_eq!(of("SuspendTime=None SecsPreSuspend=0 LastSchedEval=1795230797", 1_795_230_797), None);
    }

    #[test]
    fn an_exit_code_is_reported_only_for_ended_jobs() {
        let facts = read("Requeue=1 Restarts=0 BatchFlag=1 ExitCode=0:9");
        let mut running = job();
        facts.fill(&mut running);
        assert_eq!(running.exit, None);
        let mut ended = Job { state: JobState::Ended("FAILED".into()), ..job() };
        facts.fill(&mut ended);
        assert_eq!((ended.exit, ended.mem_bytes), (Some("0:9".into()), Some(1 << 30)));
    }
}
