//! Tests of [`super`]: polls against a scripted SLURM, and against stubs that misbehave as processes.

use super::*;
use nodeglass_protocol::{LongText, NodeName, job::GpuSet};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

type CommandResult = Result<Output, CommandError>;

/// Answers squeue from a queue, `scontrol show job` from recorded blocks, and records the commands.
#[derive(Clone, Default)]
struct Script {
    lists: Arc<Mutex<VecDeque<CommandResult>>>,
    config: Option<CommandError>,
    cache: Option<CommandError>,
    /// Output of scontrol about jobs instead of the recorded blocks.
    blocks: Option<CommandResult>,
    commands: Arc<Mutex<Vec<String>>>,
}

const LIST: &str = include_str!("../../tests/24.05/scontrol-jobs.out");

const NODES: &str = "NodeName=g01 Gres=gpu:a100:4 GresUsed=gpu:a100:1(IDX:0) State=MIXED Partitions=gpu \n";

#[async_trait]
impl Client for Script {
    async fn run(&mut self, program: Program, args: &[String]) -> CommandResult {
        let args_without_flags: Vec<&str> =
            args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
        self.commands
            .lock()
            .unwrap()
            .push(format!("{program} {}", args_without_flags.join(" ")).trim().to_owned());
        match (program, args_without_flags.as_slice()) {
            (Program::Squeue, _) => self.list(args),
            (_, ["show", "node"]) => Ok(out(NODES)),
            (_, ["show", "config"]) => self.config.clone().map_or(Ok(out("ClusterName = hal\n")), Err),
            _ => match (&self.cache, &self.blocks) {
                (Some(error), _) => Err(error.clone()),
                (None, Some(blocks)) => blocks.clone(),
                (None, None) => Ok(out(LIST)),
            },
        }
    }
}

impl Script {
    /// The next list, with the separator of this query.
    fn list(&self, args: &[String]) -> CommandResult {
        let format = args.last().unwrap().strip_prefix("--format=\u{1e}").unwrap();
        let delimiter = format.split('\u{1f}').next().unwrap().to_owned();
        let mut answer = self.lists.lock().unwrap().pop_front().expect("a list is scripted");
        if let Ok(output) = &mut answer {
            let text = String::from_utf8_lossy(&output.out).replace('\u{1e}', &format!("\u{1e}{delimiter}"));
            output.out = text.replace('\u{1f}', &format!("\u{1f}{delimiter}")).into_bytes();
        }
        answer
    }

    fn commands(&self) -> Vec<String> {
        std::mem::take(&mut self.commands.lock().unwrap())
    }
}

fn out(text: &str) -> Output {
    Output { out: text.into(), err: String::new() }
}

/// The titles of the columns, with separators as in [`record`].
fn titles() -> String {
    let names = "|JOBID|JOBID|ARRAY_JOB_ID|ARRAY_TASK_ID|UID|USER|STATE|REASON|PARTITION|QOS|ACCOUNT|SUBMIT_TIME|START_TIME\
                 |END_TIME|TIME_LIMIT|NODES|CPUS|NODELIST|TRES_PER_NODE|DEPENDENCY|EXEC_HOST|WORK_DIR|COMMAND|NAME\n";
    format!("\u{1e}{}", names.replace('|', "\u{1f}"))
}

/// What squeue prints for these records.
fn listed(records: &str) -> Output {
    out(&(titles() + records))
}

/// A record, with separators that the script replaces by the query's own.
fn record(id: u32, uid: u32, state: &str, nodes: &str) -> String {
    let fields = format!(
        "|{id}|{id}|{id}|N/A|{uid}|alice|{state}|None|gpu|||1|2|3|5:00|2|8|{nodes}|gres:gpu:2|(null)|g01|/w|/w/run.sh|name\n"
    );
    format!("\u{1e}{}", fields.replace('|', "\u{1f}"))
}

async fn slurm(lists: impl IntoIterator<Item = CommandResult>) -> (Slurm<Script>, Script) {
    let script = Script { lists: Arc::new(Mutex::new(lists.into_iter().collect())), ..Script::default() };
    (Slurm::detect_with(script.clone(), Selection::own(2001)).await.unwrap(), script)
}

fn lists(texts: &[String]) -> Vec<CommandResult> {
    texts.iter().map(|text| Ok(listed(text))).collect()
}

#[tokio::test]
async fn the_cluster_is_named_and_a_poll_returns_jobs_with_their_gpus() {
    let (mut slurm, script) =
        slurm(lists(&[record(1, 2001, "PENDING", "g[01-02]"), record(1, 2001, "COMPLETING", "g[01-02]")]))
            .await;
    assert_eq!(slurm.cluster().map(Text::as_str), Some("hal"));
    assert!(slurm.jobs().await.unwrap()[0].gpus.is_empty());
    let jobs = slurm.jobs().await.unwrap();
    let gpus = jobs[0].gpus_on(&NodeName::new("g02").unwrap());
    assert_eq!(gpus, Some(&GpuSet::Indices(vec![0, 5])));
    assert_eq!(jobs[0].gpu_count, Some(4));
    assert_eq!((jobs[0].restarts, jobs[0].mem_bytes), (0, Some(800 << 20)));
    assert_eq!(jobs[0].command.as_ref().map(LongText::as_str), Some("/w/run.sh"));
    let expected = ["scontrol show config", "squeue", "scontrol show job 1", "squeue", "scontrol show job 1"];
    assert_eq!(script.commands(), expected);
}

#[test]
fn a_list_with_an_error_is_not_said_to_have_jobs_that_were_not_requested() {
    let list = |refused, noise| squeue::List { refused, noise, ..squeue::List::default() };
    let output = |err: &str| Output { err: err.to_owned(), ..Output::default() };
    let warning = |list: squeue::List, err| warning(&list, &output(err)).unwrap_or_default();
    assert_eq!(warning(list(0, false), "squeue: warning"), "");
    assert!(warning(list(0, false), "squeue: error: no topology").ends_with("its list: error: no topology"));
    assert!(warning(list(0, true), "").contains("besides its list"));
    assert!(warning(list(2, false), "").contains("2 jobs that were not requested"));
}

#[tokio::test]
async fn an_unchanged_job_costs_one_request_a_poll() {
    let same = record(1, 2001, "SUSPENDED", "g[01-02]");
    let (mut slurm, script) = slurm(lists(&[same.clone(), same.clone(), same])).await;
    for _ in 0..3 {
        slurm.jobs().await.unwrap();
    }
    assert_eq!(script.commands()[2..], ["scontrol show job 1", "squeue", "squeue"]);
}

#[tokio::test]
async fn a_job_met_before_is_listed_as_ended_and_one_that_ended_long_ago_is_not() {
    let now = record(1, 2001, "SUSPENDED", "g01") + &record(2, 2001, "FAILED", "g01");
    let then = record(1, 2001, "TIMEOUT", "g01") + &record(2, 2001, "FAILED", "g01");
    let (mut slurm, _) = slurm(lists(&[now, then, String::new()])).await;
    assert_eq!(slurm.jobs().await.unwrap().len(), 1);
    let jobs = slurm.jobs().await.unwrap();
    assert_eq!((jobs.len(), &jobs[0].state), (1, &JobState::Ended("TIMEOUT".into())));
    assert_eq!(jobs[0].ended, Some(3));
    assert_eq!(slurm.jobs().await.unwrap(), []);
}

#[tokio::test]
async fn a_job_that_starts_and_ends_between_two_lists_is_listed_with_its_exit_code() {
    let ended = record(3, 2001, "FAILED", "g01");
    let just_now = Clock::wall_ms() / 1_000 - 20;
    let recent = record(2, 2001, "TIMEOUT", "g01")
        .replace("\u{1f}3\u{1f}5:00", &format!("\u{1f}{just_now}\u{1f}5:00"));
    let block =
        block(3, "FAILED").replace("Reason=None", "Reason=None\n   Requeue=1 Restarts=0 ExitCode=3:0");
    let script = Script {
        lists: Arc::new(Mutex::new(lists(&[recent.clone(), recent + &ended]).into())),
        blocks: Some(Ok(out(&block))),
        ..Script::default()
    };
    let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
    let jobs = slurm.jobs().await.unwrap();
    assert_eq!(
        jobs.iter().map(|job| job.id).collect::<Vec<_>>(),
        [JobId(2)],
        "it ended before the first list"
    );
    let jobs = slurm.jobs().await.unwrap();
    let states: Vec<_> = jobs.iter().map(|job| (job.id, job.state.clone())).collect();
    let expected =
        [(JobId(2), JobState::Ended("TIMEOUT".into())), (JobId(3), JobState::Ended("FAILED".into()))];
    assert_eq!(states, expected);
    assert_eq!(jobs[1].exit.as_ref().map(Text::as_str), Some("3:0"));
}

#[tokio::test]
async fn a_silent_controller_is_one_sentence_and_the_next_poll_works() {
    let silent = Err(CommandError::TimedOut(Program::Squeue, 10));
    let (mut slurm, _) = slurm([silent.clone(), Ok(listed("")), silent]).await;
    let why = slurm.jobs().await.unwrap_err().to_string();
    assert_eq!(why, "squeue did not respond within 10 s; trying again");
    assert_eq!(slurm.jobs().await.unwrap(), []);
    let why = slurm.jobs().await.unwrap_err().to_string();
    assert_eq!(why, "squeue did not respond within 10 s; showing the last list");
}

#[tokio::test]
async fn a_list_is_shown_even_if_scontrol_fails() {
    let list = record(1, 2001, "SUSPENDED", "g01");
    let script = Script {
        lists: Arc::new(Mutex::new(lists(&[list]).into())),
        cache: Some(CommandError::TimedOut(Program::Scontrol, 10)),
        ..Script::default()
    };
    let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
    assert_eq!(slurm.jobs().await.unwrap()[0].gpus[0].set, GpuSet::Unknown);
}

#[tokio::test]
async fn garbage_is_not_an_empty_list() {
    let other_user = record(1, 2002, "SUSPENDED", "g01");
    let error = Output { out: Vec::new(), err: "squeue: error: Invalid user: 2001\n".into() };
    let answers = [Ok(out("hello\n")), Ok(out(&other_user)), Ok(out("")), Ok(error)];
    let (mut slurm, _) = slurm(answers).await;
    assert!(slurm.jobs().await.unwrap_err().to_string().contains("other than a job list (“hello”)"));
    assert!(slurm.jobs().await.unwrap_err().to_string().contains("other than a job list"));
    assert!(slurm.jobs().await.unwrap_err().to_string().contains("not even column titles"));
    assert_eq!(
        slurm.jobs().await.unwrap_err().to_string(),
        "squeue failed: error: Invalid user: 2001; trying again"
    );
}

#[tokio::test]
async fn t18_invalid_output_keeps_the_last_list_and_reports_why() {
    let good = record(1, 2001, "RUNNING", "g01");
    let huge = Err(CommandError::OutputTooLarge(Program::Squeue, 64));
    let binary = Output { out: vec![0xff; 50 << 20], err: String::new() };
    let json = out("{\"jobs\": [{\"job_id\": 1}]}");
    let columns = out("JOBID PARTITION NAME\n1 gpu x\n");
    let half = out(&good[..good.len() / 2]);
    let answers = [Ok(listed(&good)), huge, Ok(binary), Ok(json), Ok(columns), Ok(half), Ok(listed(&good))];
    let (mut slurm, _) = slurm(answers).await;
    assert_eq!(slurm.jobs().await.unwrap().len(), 1);
    for _ in 0..5 {
        let why = slurm.jobs().await.unwrap_err().to_string();
        assert!(why.contains("squeue printed") && why.len() <= 256, "{why}");
        assert!(!why.chars().any(char::is_control), "{why:?}");
    }
    assert_eq!(slurm.jobs().await.unwrap().len(), 1, "and the next good one is taken");
}

/// A running job as scontrol shows it.
fn block(id: u32, state: &str) -> String {
    format!(
        "JobId={id} JobName=x\n   UserId=alice(2001) GroupId=alice(2001)\n   JobState={state} Reason=None\n\n"
    )
}

/// The result of a second poll of a source with jobs 1 to 9, for which scontrol prints `blocks`.
async fn second(answer: Output, blocks: CommandResult) -> Result<usize, String> {
    second_list(answer, blocks).await.map(|jobs| jobs.len())
}

async fn second_list(answer: Output, blocks: CommandResult) -> Result<Vec<Job>, String> {
    let all: String = (1..10).map(|id| record(id, 2001, "RUNNING", "g01")).collect();
    let answers = [Ok(listed(&all)), Ok(answer)];
    let script = Script {
        lists: Arc::new(Mutex::new(answers.into_iter().collect())),
        blocks: Some(blocks),
        ..Script::default()
    };
    let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
    assert_eq!(slurm.jobs().await.unwrap().len(), 9);
    slurm.jobs().await.map_err(|error| error.to_string())
}

/// Blocks of the jobs of [`second_list`].
fn blocks(state: &str) -> CommandResult {
    Ok(out(&(1..10).map(|id| block(id, state)).collect::<String>()))
}

fn invalid() -> CommandResult {
    Err(CommandError::Failed(Program::Scontrol, "slurm_load_jobs error: Invalid job id specified".into()))
}

#[tokio::test]
async fn f12_a_list_that_is_cut_off_anywhere_ends_no_job() {
    let text = titles() + &record(1, 2001, "RUNNING", "g01") + &record(2, 2001, "RUNNING", "g01");
    let complete = text.len() - record(2, 2001, "RUNNING", "g01").len();
    for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        let why = second(out(&text[..cut]), blocks("RUNNING")).await.unwrap_err();
        assert!(why.contains("squeue"), "{cut}: {why}");
    }
    // Truncated between two lines it seems complete; scontrol shows that a job is missing.
    let cut = || out(&text[..complete]);
    let why = second(cut(), blocks("RUNNING")).await.unwrap_err();
    assert!(why.contains("left out job 2") && why.contains("showing the last list"), "{why}");
    // Nor is an error on standard error overlooked because the exit status is 0.
    let err = "slurm_load_jobs error: Socket timed out on send/recv operation\n".to_owned();
    for out in [cut().out, text.clone().into_bytes(), Vec::new()] {
        let why = second(Output { out, err: err.clone() }, invalid()).await.unwrap_err();
        assert!(why.contains("Socket timed out") && why.contains("showing the last list"), "{why}");
    }
}

#[tokio::test]
async fn f30_a_requeued_job_that_is_completing_is_no_new_run() {
    let run = |state, start: u32| {
        let start = format!("\u{1f}1\u{1f}{start}\u{1f}3\u{1f}");
        record(1, 2001, state, "g01").replace("\u{1f}1\u{1f}2\u{1f}3\u{1f}", &start)
    };
    let texts = [
        run("RUNNING", 200),
        run("COMPLETING", 230),
        run("COMPLETING", 230),
        run("PENDING", 350),
        run("RUNNING", 350),
        run("COMPLETING", 350),
    ];
    let (mut slurm, _) = slurm(lists(&texts)).await;
    let mut seen = Vec::new();
    for _ in texts {
        let [job] = slurm.jobs().await.unwrap().try_into().unwrap();
        seen.push((job.state, job.start, job.ended));
    }
    let requeued = (JobState::Completing, Some(200), Some(230));
    let expected = [
        (JobState::Running, Some(200), None),
        requeued.clone(),
        requeued,
        (JobState::Pending, Some(350), None),
        (JobState::Running, Some(350), None),
        (JobState::Completing, Some(350), None),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn details_are_queried_when_a_job_is_suspended_and_resumed() {
    let states = ["RUNNING", "SUSPENDED", "SUSPENDED", "RUNNING"];
    let (mut slurm, script) = slurm(lists(&states.map(|state| record(1, 2001, state, "g01")))).await;
    let mut queries = Vec::new();
    for _ in states {
        slurm.jobs().await.unwrap();
        queries.push(script.commands().iter().filter(|command| *command == "scontrol show job 1").count());
    }
    assert_eq!(queries, [1, 1, 0, 1]);
}

#[tokio::test]
async fn f30_a_requeued_task_is_listed_with_the_pending_rest_of_its_array() {
    let others: String = (1..9).map(|id| record(id, 2001, "RUNNING", "g01")).collect();
    let rest = record(30, 2001, "PENDING", "")
        .replace("30\u{1f}30\u{1f}30\u{1f}N/A", "30\u{1f}30_[1,6-9]\u{1f}30\u{1f}1,6-9");
    let task = |state| Ok(out(&block(9, state).replace("JobId=9", "JobId=9 ArrayJobId=30 ArrayTaskId=1")));
    let jobs = second_list(listed(&(others.clone() + &rest)), task("PENDING")).await.unwrap();
    let state = |id| jobs.iter().find(|job| job.id == JobId(id)).map(|job| job.state.clone());
    // Its run has ended, and how is known.
    assert_eq!((jobs.len(), state(9)), (10, Some(JobState::Ended("REQUEUED".into()))));
    assert_eq!(state(30), Some(JobState::Pending));
    let why = second(listed(&(others.clone() + &rest)), task("RUNNING")).await.unwrap_err();
    assert!(why.contains("left out job 9"), "{why}");
    assert!(second(listed(&others), task("PENDING")).await.unwrap_err().contains("left out job 9"));
}

#[tokio::test]
async fn f30_a_job_that_changes_its_partition_stays_listed_and_delays_no_other() {
    let job = |id, state: &str| record(id, 2001, state, "g01");
    let texts = [
        job(1, "PENDING"),
        job(2, "RUNNING"),
        job(1, "RUNNING"),
        job(2, "RUNNING"),
        job(1, "COMPLETED"),
        job(2, "RUNNING"),
    ];
    let script = Script {
        lists: Arc::new(Mutex::new(lists(&texts).into())),
        blocks: Some(Ok(out(&format!("{}   Partition=short\n", block(1, "RUNNING"))))),
        ..Script::default()
    };
    let selection = Selection { partitions: vec!["gpu".to_owned()], ..Selection::own(2001) };
    let mut slurm = Slurm::detect_with(script, selection).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut jobs = slurm.jobs().await.expect("a list");
        jobs.sort_by_key(|job| job.id);
        seen.push(jobs.into_iter().map(|job| (job.id.0, job.state)).collect::<Vec<_>>());
    }
    let ended = || JobState::Ended("COMPLETED".into());
    let expected = [
        vec![(1, JobState::Pending)],
        vec![(1, JobState::Running), (2, JobState::Running)],
        vec![(1, ended()), (2, JobState::Running)],
        vec![(2, JobState::Running)],
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn f12_a_job_that_is_said_to_end_in_the_future_has_not_ended() {
    let until = |state, end: u64| {
        record(1, 2001, state, "g01")
            .replace("\u{1f}1\u{1f}2\u{1f}3\u{1f}", &format!("\u{1f}1\u{1f}2\u{1f}{end}\u{1f}"))
    };
    let now_s = Clock::wall_ms() / 1_000;
    let texts = [
        until("RUNNING", now_s + 3_600),
        until("COMPLETED", now_s + 3_600),
        until("RUNNING", now_s + 3_600),
        until("COMPLETED", now_s + 60),
    ];
    let (mut slurm, _) = slurm(lists(&texts)).await;
    let mut seen = Vec::new();
    for _ in texts {
        seen.push(slurm.jobs().await.unwrap()[0].state.clone());
    }
    let ended = JobState::Ended("COMPLETED".into());
    assert_eq!(seen, [JobState::Running, JobState::Running, JobState::Running, ended]);
}

#[tokio::test]
async fn f30_a_run_that_gives_up_the_selected_nodes_has_not_ended() {
    let texts = [("RUNNING", "g[01-02]"), ("RUNNING", "g02"), ("COMPLETED", "g02"), ("COMPLETED", "g02")];
    let script = Script {
        lists: Arc::new(Mutex::new(lists(&texts.map(|(state, nodes)| record(1, 2001, state, nodes))).into())),
        ..Script::default()
    };
    let nodes = [NodeName::new("g01").unwrap()].into();
    let mut slurm = Slurm::detect_with(script, Selection { nodes, ..Selection::own(2001) }).await.unwrap();
    let mut seen = Vec::new();
    for _ in texts {
        seen.push(slurm.jobs().await.expect("a list").into_iter().map(|job| job.state).collect::<Vec<_>>());
    }
    let ended = JobState::Ended("COMPLETED".into());
    assert_eq!(seen, [vec![JobState::Running], vec![JobState::Running], vec![ended], vec![]]);
}

#[tokio::test]
async fn an_empty_list_is_accepted_only_if_scontrol_agrees() {
    assert_eq!(second(listed(""), invalid()).await, Ok(0));
    assert_eq!(second(listed(""), blocks("COMPLETED")).await, Ok(0));
    let silent = Err(CommandError::TimedOut(Program::Scontrol, 10));
    for scontrol in [blocks("RUNNING"), silent] {
        assert!(second(listed(""), scontrol).await.unwrap_err().contains("showing the last list"));
    }
    // Output without the titles is not from squeue, whatever scontrol prints.
    assert!(second(out(""), invalid()).await.unwrap_err().contains("printed nothing"));
}

#[tokio::test]
async fn a_warning_next_to_a_complete_list_does_not_discard_it() {
    let all: String = (1..11).map(|id| record(id, 2001, "RUNNING", "g01")).collect();
    let err = "squeue: error: spank: plugin missing\n".to_owned();
    assert_eq!(second(Output { err, ..listed(&all) }, invalid()).await, Ok(10));
}

#[tokio::test]
async fn f12_an_error_that_squeue_always_prints_keeps_no_job_that_has_ended() {
    let list = |ids: &[u32]| {
        let text: String = ids.iter().map(|id| record(*id, 2001, "RUNNING", "g01")).collect();
        let err = format!("squeue: error: spank: plugin missing (process {})\n", 70 + ids.len());
        Ok(Output { err, ..listed(&text) })
    };
    let script = Script {
        lists: Arc::new(Mutex::new([list(&[1, 2]), list(&[1]), list(&[])].into_iter().collect())),
        blocks: Some(invalid()),
        ..Script::default()
    };
    let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
    for expected in [2, 1, 0] {
        assert_eq!(slurm.jobs().await.unwrap().len(), expected);
    }
}

#[tokio::test]
async fn f12_jobs_that_scontrol_never_shows_are_believed_to_have_ended_after_some_lists() {
    let refused = CommandError::Failed(Program::Scontrol, "only for administrators".to_owned());
    for blocks in [Err(refused), Ok(out("JobId=1 JobName=train\n"))] {
        let mut lists = vec![Ok(listed(&record(1, 2001, "RUNNING", "g01")))];
        lists.resize(7, Ok(listed("")));
        let script = Script {
            lists: Arc::new(Mutex::new(lists.into_iter().collect())),
            blocks: Some(blocks),
            ..Script::default()
        };
        let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(slurm.jobs().await.map(|jobs| jobs.len()).ok());
        }
        assert_eq!(seen, [Some(1), None, None, None, None, Some(0), Some(0)]);
    }
}

#[tokio::test]
async fn t16_no_hostile_name_reaches_a_command_line() {
    let evil = "-oProxyCommand=touch x";
    let lists = [record(1, 2001, "RUNNING", evil), record(1, 2001, "RUNNING", "g01")];
    let (mut slurm, script) = slurm(lists.map(|text| Ok(listed(&text)))).await;
    assert!(slurm.jobs().await.unwrap()[0].nodes.is_empty());
    slurm.jobs().await.unwrap();
    for command in script.commands() {
        let plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(command.split(' ').all(plain), "{command}");
    }
}

#[tokio::test]
async fn no_command_and_no_configuration_are_no_slurm_but_a_dead_controller_is() {
    let detect = async |config: CommandError| {
        let script = Script { config: Some(config), ..Script::default() };
        Slurm::detect_with(script, Selection::own(2001)).await.map(|slurm| slurm.cluster().is_some())
    };
    assert_eq!(detect(CommandError::Missing(Program::Scontrol)).await, Err(NoSlurm::NotInstalled));
    let why = "fatal: Could not establish a configuration source".to_owned();
    assert_eq!(detect(CommandError::Failed(Program::Scontrol, why)).await, Err(NoSlurm::NotConfigured));
    assert_eq!(detect(CommandError::TimedOut(Program::Scontrol, 10)).await, Ok(false));
    let why = "Unable to contact slurm controller (connect failure)".to_owned();
    assert_eq!(detect(CommandError::Failed(Program::Scontrol, why)).await, Ok(false));
}

#[tokio::test]
async fn the_name_of_the_cluster_is_learnt_after_slurm_was_silent_or_stated_to_be_missing() {
    for answers in [true, false] {
        let silent = CommandError::TimedOut(Program::Scontrol, 10);
        let list = Arc::new(Mutex::new((0..CLUSTER_TRIES).map(|_| Ok(listed(""))).collect()));
        let script = Script { lists: list, config: Some(silent), ..Script::default() };
        let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
        assert_eq!(slurm.cluster_name(), None);
        slurm.assume_cluster("hal".into());
        slurm.jobs().await.unwrap();
        assert_eq!(slurm.cluster_name(), None);
        assert_eq!(slurm.cluster().map(Text::as_str), Some("hal"));
        if answers {
            slurm.client.config = None;
            slurm.jobs().await.unwrap();
            assert_eq!(slurm.cluster_name(), Some("hal"));
            assert_eq!(slurm.cluster().map(Text::as_str), Some("hal"));
        } else {
            for _ in 2..CLUSTER_TRIES {
                slurm.jobs().await.unwrap();
            }
            assert_eq!(slurm.cluster_name(), Some(""));
        }
    }
}

#[tokio::test]
async fn t09_the_jobs_of_another_cluster_than_the_assumed_one_are_refused() {
    let silent = CommandError::TimedOut(Program::Scontrol, 10);
    let lists = Arc::new(Mutex::new([Ok(listed(""))].into_iter().collect()));
    let script = Script { lists, config: Some(silent), ..Script::default() };
    let mut slurm = Slurm::detect_with(script, Selection::own(2001)).await.unwrap();
    slurm.assume_cluster("former".into());
    slurm.client.config = None;
    for _ in 0..2 {
        let why = slurm.jobs().await.unwrap_err().to_string();
        assert!(why.contains("“hal”") && why.contains("“former”"), "{why}");
    }
}

/// Every user's jobs, as seen by alice.
fn everyones() -> Selection {
    Selection::of(2001, crate::Owners::All)
}

#[tokio::test]
async fn paths_and_commands_of_other_users_jobs_are_withheld() {
    let list = record(1, 2001, "SUSPENDED", "g[01-02]") + &record(2, 2002, "SUSPENDED", "g01");
    let with_log = |id| format!("{}\n   StdOut=/w/{id}.out\n\n", block(id, "SUSPENDED").trim_end());
    let script = Script {
        lists: Arc::new(Mutex::new(lists(&[list]).into())),
        blocks: Some(Ok(out(&(with_log(1) + &with_log(2))))),
        ..Script::default()
    };
    let mut slurm = Slurm::detect_with(script, everyones()).await.unwrap();
    let jobs = slurm.jobs().await.unwrap();
    assert_eq!(jobs.len(), 2);
    assert!(jobs[0].command.is_some() && jobs[0].workdir.is_some() && jobs[0].stdout.is_some());
    let theirs = &jobs[1];
    assert_eq!(
        (&theirs.command, &theirs.workdir, &theirs.stdout, &theirs.stderr),
        (&None, &None, &None, &None)
    );
    assert_eq!((theirs.name.as_str(), theirs.nodes.len()), ("name", 1), "the rest is shown");
}

#[tokio::test(start_paused = true)]
async fn nodes_are_queried_once_a_minute_in_polls_without_details_and_never_for_own_jobs() {
    let same = record(1, 2002, "RUNNING", "g01");
    let script =
        Script { lists: Arc::new(Mutex::new(lists(&vec![same.clone(); 4]).into())), ..Script::default() };
    let mut slurm = Slurm::detect_with(script.clone(), everyones()).await.unwrap();
    script.commands();
    let mut read = Vec::new();
    for _ in 0..4 {
        slurm.jobs().await.unwrap();
        let cluster = slurm.take_cluster();
        read.push(cluster.map(|cluster| cluster.partitions[0].nodes.mixed));
        tokio::time::advance(std::time::Duration::from_secs(30)).await;
    }
    assert_eq!(read, [None, Some(1), None, Some(1)]);
    let expected = [
        "squeue",
        "scontrol show job 1",
        "squeue",
        "scontrol show node",
        "squeue",
        "squeue",
        "scontrol show node",
    ];
    assert_eq!(script.commands(), expected);
    let (mut own, script) = self::slurm(lists(&vec![same; 3])).await;
    for _ in 0..3 {
        own.jobs().await.unwrap();
        tokio::time::advance(std::time::Duration::from_secs(600)).await;
    }
    assert!(!script.commands().contains(&"scontrol show node".to_owned()));
}

/// Requests to the controller, and the seconds that they are spread over, of each poll of these lists.
async fn load(selection: Selection, texts: Vec<String>) -> Vec<(u32, u64)> {
    let blocks: String = (1..=3_100).map(|id| block(id, "RUNNING")).collect();
    let script = Script {
        lists: Arc::new(Mutex::new(lists(&texts).into())),
        blocks: Some(Ok(out(&blocks))),
        ..Script::default()
    };
    let mut slurm = Slurm::detect_with(script.clone(), selection).await.unwrap();
    let mut poll_schedule = PollSchedule::default().of_many(slurm.is_of_many());
    let (mut load, mut last) = (Vec::new(), Vec::new());
    let mut are_nodes_read = false;
    for _ in texts {
        script.commands();
        let jobs = slurm.jobs().await.unwrap();
        let requests = 2 * script.commands().len() as u32;
        assert_eq!(requests, slurm.requests(), "each command is two requests");
        let now: Vec<_> = jobs.into_iter().map(|job| (job.id, job.state)).collect();
        let changed = std::mem::replace(&mut last, now) != last;
        let wait = poll_schedule.after_success(requests, changed);
        load.push((requests, wait.as_secs()));
        tokio::time::advance(wait).await;
        are_nodes_read |= slurm.take_cluster().is_some();
    }
    let is_of_others = slurm.selection.is_of_others();
    assert_eq!(are_nodes_read, is_of_others, "nodes are read even if every poll has new details");
    load
}

fn is_within_budget(load: &[(u32, u64)]) -> bool {
    load.iter().all(|(requests, seconds)| u64::from(*requests) * 60 <= 4 * seconds)
}

#[tokio::test(start_paused = true)]
async fn f11_own_jobs_cost_at_most_four_requests_a_minute_once_nothing_changes() {
    for count in [1, 30, 3_000] {
        let list: String = (1..=count).map(|id| record(id, 2001, "RUNNING", "g01")).collect();
        let load = load(Selection::own(2001), vec![list; 14]).await;
        assert!(is_within_budget(&load[10..]), "{count} jobs: {load:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_other_users_jobs_and_the_nodes_cost_at_most_four_requests_a_minute() {
    let bobs = Selection::of(2001, crate::Owners::Of { uids: [2002].into(), accounts: [].into() });
    assert!(bobs.is_of_others() && !bobs.is_of_many() && !Selection::own(2001).is_of_others());
    let list: String = (1..=30).map(|id| record(id, 2002, "RUNNING", "g01")).collect();
    let load = load(bobs, vec![list; 20]).await;
    assert!(is_within_budget(&load[10..]), "{load:?}");
}

#[tokio::test(start_paused = true)]
async fn all_users_jobs_cost_at_most_four_requests_a_minute_even_while_they_change() {
    // Two jobs end and two start before each poll.
    let list = |poll: u32| -> String {
        let state = |id| if id <= 2 * poll { "COMPLETED" } else { "RUNNING" };
        (1..=3_000 + 2 * poll).map(|id| record(id, 2001 + id % 7, state(id), "g01")).collect()
    };
    let load = load(everyones(), (0..8).map(list).collect()).await;
    assert!(is_within_budget(&load), "{load:?}");
}
