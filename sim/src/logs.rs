//! Logs of a scripted job: training steps, occasional warnings, a progress bar, and what killed it.

use crate::scenario::file::Behaviour;
use crate::scenario::window::Window as Period;
use crate::scenario::{JobScript, OUT_OF_MEMORY, Scenario, ScenarioTime};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::request::Tail;
use nodeglass_redact::log::Window;

/// Length of a line in bytes; equal for all lines, so that offsets can be computed.
const LINE: u64 = 160;
/// Time between two of the first lines, in ms.
const FIRST_MS: i64 = 6_000;
/// Time in which a progress bar fills up, in s, and the longest run of a job that has one for its whole run.
const ROUND_S: i64 = 417;
const LONGEST_ROUND_S: i64 = 1_200;
/// Items of a progress bar.
const ITEMS: i64 = 1_251;

/// Returns the tail of a file after an offset; `None` if there is no such file.
pub(crate) fn tail(scenario: &Scenario, at: ScenarioTime, path: &str, after: u64) -> Option<Tail> {
    let log = Log::find(scenario, at, path)?;
    let window = Window::of(after, log.size(), true);
    // While the job hangs, nothing is written.
    let written_s = Some(log.wall_ms(log.age_ms) / 1_000);
    Some(Tail { written_s, ..window.tail(&log.bytes(window.from, window.from + window.length)) })
}

/// One of a job's logs at one time.
struct Log<'a> {
    script: &'a JobScript,
    is_stderr: bool,
    /// Time since the start of the job, up to its end, in which it did not hang.
    age_ms: i64,
    /// Start time in ms since the scenario's start, and that in ms since 1970.
    start_ms: i64,
    start_wall_ms: i64,
    /// When the whole job hangs.
    hang: Option<Period>,
    first: Vec<String>,
    /// A line that the program writes instead of another one: its number, the line, and whether it is the last one.
    message: Option<(i64, &'a str, bool)>,
    /// Lines that SLURM adds at the end.
    last: Option<String>,
}

impl<'a> Log<'a> {
    fn find(scenario: &'a Scenario, at: ScenarioTime, path: &str) -> Option<Self> {
        let is = |known: &Option<nodeglass_protocol::LongText>| {
            known.as_ref().is_some_and(|known| known.as_str() == path)
        };
        let jobs = scenario.jobs(at);
        let job = jobs.iter().find(|job| is(&job.stdout) || is(&job.stderr))?;
        let script = scenario.jobs.iter().find(|script| script.name == job.name)?;
        let start_ms = job.start? * 1_000 - at.start_wall_ms;
        let until_ms = job.ended.map_or(at.t_ms, |ended| ended * 1_000 - at.start_wall_ms).max(start_ms);
        let is_stderr = is(&job.stderr) && !is(&job.stdout);
        let first = if is_stderr { warnings(script) } else { greeting(script, job) };
        // The batch script ends a little later.
        let is_killed = script.is_killed_at(at.t_ms) || is_out_of_memory(&job.state);
        let is_hang = |episode: &&crate::scenario::Episode| {
            episode.behaviour == Behaviour::Hang && episode.slots.iter().all(|slot| *slot)
        };
        let hang = script.episodes.iter().find(is_hang).map(|episode| episode.window);
        let age_ms = match hang {
            Some(hang) => hang.outside_ms(until_ms) - hang.outside_ms(start_ms),
            None => until_ms - start_ms,
        };
        let log = Self {
            script,
            is_stderr,
            age_ms,
            start_ms,
            start_wall_ms: at.start_wall_ms,
            hang,
            first,
            message: None,
            last: (is_stderr && is_killed).then(|| killed(job)),
        };
        let message = script.message.as_ref().filter(|_| !is_stderr);
        let message =
            message.map(|entry| (log.next_line(entry.at.ms - start_ms), entry.line.as_str(), entry.is_last));
        (job.is_active() || job.ended.is_some()).then_some(Self { message, ..log })
    }

    /// Number of the first line that the program writes at an age or later, not counting [`Self::first`].
    fn next_line(&self, age_ms: i64) -> i64 {
        let first = self.first.len() as i64;
        let into_ms = (age_ms - first * FIRST_MS).max(1);
        first - 1 + (into_ms as u64).div_ceil(self.step_ms().unwrap_or(FIRST_MS) as u64) as i64
    }

    /// Time of day at an age, in ms since 1970.
    fn wall_ms(&self, age_ms: i64) -> i64 {
        // What was written just when a hang began was not written at its end.
        let last_ms = age_ms - 1;
        let at_ms = self.hang.and_then(|hang| hang.time_at(hang.outside_ms(self.start_ms) + last_ms));
        let at_ms = at_ms.map(|at_ms| at_ms + 1);
        self.start_wall_ms + at_ms.unwrap_or(self.start_ms + age_ms)
    }

    /// Number of complete lines.
    fn lines(&self) -> i64 {
        self.written() + i64::from(self.last.is_some())
    }

    /// Number of complete lines of the program.
    fn written(&self) -> i64 {
        let latest = match self.message {
            Some((number, _, true)) => number + 1,
            _ => i64::MAX,
        };
        self.written_by_age().min(latest)
    }

    /// Returns the length at its age if it did not stop.
    fn written_by_age(&self) -> i64 {
        let first = self.first.len() as i64;
        let into_ms = self.age_ms - first * FIRST_MS;
        match self.step_ms() {
            Some(step_ms) if into_ms > 0 => first + into_ms / step_ms,
            _ => (self.age_ms / FIRST_MS).min(first),
        }
    }

    /// Time between two lines; `None` after the last one.
    fn step_ms(&self) -> Option<i64> {
        match (self.is_stderr, self.script.behaviour) {
            (true, Behaviour::Bursty | Behaviour::InputBound) => None,
            (true, _) => Some(780_000),
            (false, Behaviour::Notebook) => Some(120_000),
            (false, Behaviour::Inference) => Some(10_000),
            (false, Behaviour::Bursty) => Some(20_000),
            (false, Behaviour::IdleGpu) => None,
            (false, _) => Some(2_000),
        }
    }

    fn size(&self) -> u64 {
        self.lines() as u64 * LINE + self.bar().len() as u64
    }

    /// Returns the bytes of a range.
    fn bytes(&self, from: u64, upto: u64) -> Vec<u8> {
        let lines = self.lines();
        let first = (from / LINE) as i64;
        let last = upto.div_ceil(LINE) as i64;
        let mut bytes = Vec::new();
        for number in first..last.min(lines) {
            let mut line = self.line(number).into_bytes();
            line.resize(LINE as usize - 1, b' ');
            line.push(b'\n');
            bytes.extend_from_slice(&line);
        }
        if last > lines {
            bytes.extend_from_slice(self.bar().as_bytes());
        }
        let skip = (from - first as u64 * LINE) as usize;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate((upto - from) as usize);
        bytes
    }

    fn line(&self, number: i64) -> String {
        let first = self.first.len() as i64;
        if let Some(line) = usize::try_from(number).ok().and_then(|number| self.first.get(number)) {
            return line.clone();
        }
        if let Some(last) = self.last.as_ref().filter(|_| number >= self.written()) {
            return last.clone();
        }
        if let Some((_, message, _)) = self.message.filter(|(at, ..)| *at == number) {
            return message.to_owned();
        }
        let step = number - first + 1;
        let clock = clock(self.wall_ms(first * FIRST_MS + step * self.step_ms().unwrap_or(FIRST_MS)));
        if self.is_stderr {
            return format!(
                "{clock} UserWarning: the gradient norm was clipped in {} of the last 400 steps",
                3 + step % 11
            );
        }
        self.output(step, &clock)
    }

    fn output(&self, step: i64, clock: &str) -> String {
        let wobble = ((step * 7_919) % 97) as f64 / 97.0;
        let loss = 1.62 + 6.4 / (1.0 + step as f64 / 160.0).sqrt() + 0.06 * wobble;
        match self.script.behaviour {
            Behaviour::Notebook => format!("[I {clock} ServerApp] Saving file at /probe-attention.ipynb"),
            Behaviour::Inference => format!(
                "INFO {clock} metrics.py:417] prompt {:.1} tokens/s, generation {:.1} tokens/s, running {} reqs, pending 0, KV cache {:.1}%",
                2_400.0 + 1_900.0 * wobble,
                610.0 + 380.0 * wobble,
                12 + step % 31,
                34.0 + 41.0 * wobble
            ),
            Behaviour::Bursty => format!(
                "{clock} task {step:>3}: acc {:.4}  acc_norm {:.4}",
                0.5 + 0.3 * wobble,
                0.52 + 0.3 * wobble
            ),
            _ if step % 150 == 0 => {
                format!("{clock} saving checkpoint to checkpoints/step-{step} ... done in 24.6 s")
            }
            _ => format!(
                "{clock} {}  loss {loss:.4}  grad_norm {:.3}  lr {:.2e}  {:>6.0} tokens/s  mfu {:.1}%",
                self.count(step),
                0.3 + 0.4 * wobble,
                3e-4 / (1.0 + step as f64 / 20_000.0),
                41_200.0 - 900.0 * wobble,
                43.0 - 1.4 * wobble
            ),
        }
    }

    /// A step of the run if the log states how many that has; within an epoch, it would be a step of that.
    fn count(&self, step: i64) -> String {
        match self.script.steps {
            Some(steps) => format!("step {step}/{steps}"),
            None => format!("epoch {} step {step:>6}", step / 18_000),
        }
    }

    /// A progress bar that is redrawn in place, without a newline.
    fn bar(&self) -> String {
        let draws = matches!(
            (self.is_stderr, self.script.behaviour),
            (true, Behaviour::Bursty | Behaviour::InputBound)
        );
        if !draws || self.last.is_some() || self.lines() < self.first.len() as i64 {
            return String::new();
        }
        let round_s = self.round_s();
        let begins_s = self.first.len() as i64 * FIRST_MS / 1_000;
        let into_s = (self.age_ms / 1_000 - begins_s).rem_euclid(round_s);
        let done = into_s * ITEMS / round_s;
        let full = (done * 20 / ITEMS) as usize;
        format!(
            "{:>3}%|{}{}| {done}/{ITEMS} [{:02}:{:02}<{:02}:{:02}, {:.2}it/s]",
            done * 100 / ITEMS,
            "█".repeat(full),
            " ".repeat(20 - full),
            into_s / 60,
            into_s % 60,
            (round_s - into_s) / 60,
            (round_s - into_s) % 60,
            ITEMS as f64 / round_s as f64,
        )
    }

    /// Time in which the progress bar fills up, in s: the run of a short job that completes, else one epoch.
    fn round_s(&self) -> i64 {
        let JobScript { array, start_ms, end_ms, .. } = self.script;
        let run_ms = array.map(|array| array.task_ms).or_else(|| Some((*end_ms)? - (*start_ms)?));
        let run_s = run_ms.unwrap_or(0) / 1_000 - self.first.len() as i64 * FIRST_MS / 1_000;
        let completes = self.script.ends_as.as_str() == "COMPLETED";
        if completes && (1..=LONGEST_ROUND_S).contains(&run_s) { run_s } else { ROUND_S }
    }
}

fn greeting(script: &JobScript, job: &Job) -> Vec<String> {
    let gpus = job.gpu_count.unwrap_or_default();
    let nodes: Vec<&str> = job.nodes.iter().map(nodeglass_protocol::NodeName::as_str).take(8).collect();
    let mut args = script.args.as_ref().map_or_else(String::new, ToString::to_string);
    args.truncate(args.char_indices().map(|(at, _)| at).take_while(|at| *at <= 140).last().unwrap_or(0));
    vec![
        format!("== job {} on {} ({gpus} GPUs) ==", job.label, nodes.join(" ")).chars().take(140).collect(),
        format!("+ {args}"),
        format!("torch 2.6.0+cu126, NCCL 2.21.5, world size {gpus}"),
        "loading weights: 30 shards from /scratch/models".to_owned(),
    ]
}

fn warnings(script: &JobScript) -> Vec<String> {
    vec![
        "[W socket.cpp:697] the IPv6 network address of the rendezvous cannot be retrieved (No such file or directory)".to_owned(),
        format!("{}: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated; use `torch.amp.autocast('cuda', args...)`", script.command),
    ]
}

fn is_out_of_memory(state: &JobState) -> bool {
    matches!(state, JobState::Ended(state) if state.as_str() == OUT_OF_MEMORY)
}

/// Returns SLURM's lines after the kernel has killed a process of a job at its memory limit.
fn killed(job: &Job) -> String {
    format!(
        "slurmstepd: error: Detected 1 oom_kill event in StepId={}.batch. Some of the step tasks have been OOM Killed.",
        job.id
    )
}

/// Formats the time of day.
fn clock(wall_ms: i64) -> String {
    let of_day = wall_ms.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}
