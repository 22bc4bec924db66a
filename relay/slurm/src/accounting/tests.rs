//! A sacct that answers late, partly, in vain or not at all.

use super::*;
use crate::command::Output;
use async_trait::async_trait;
use nodeglass_protocol::job::{Job, JobState};
use std::sync::{Arc, Mutex};

/// Answers with these lines, whose fields are separated by `|`, and records what it is asked.
#[derive(Clone, Debug, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Result<String, CommandError>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Client for Script {
    async fn run(&mut self, program: Program, args: &[String]) -> Result<Output, CommandError> {
        assert_eq!(program, Program::Sacct);
        let value = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)).unwrap().to_owned();
        let reason = if value("--format=").ends_with(",Reason") { "" } else { " without reason" };
        self.asked.lock().unwrap().push(format!("{}{reason}", value("--jobs=")));
        let answer = self.answers.lock().unwrap().pop_front().expect("an answer is scripted");
        answer.map(|out| Output {
            out: out.replace('|', &value("--delimiter=")).into_bytes(),
            err: String::new(),
        })
    }
}

impl Script {
    fn answer(&self, answer: Result<&str, CommandError>) {
        self.answers.lock().unwrap().push_back(answer.map(str::to_owned));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn record(id: u32) -> JobRecord {
    let job =
        Job { start: Some(100), ..Job::new(JobId(id), "alice".into(), JobState::Ended("FAILED".into())) };
    JobRecord { is_final: true, ..JobRecord::of(job, 200) }
}

fn start() -> (AccountingQueries<Script>, Script) {
    let script = Script::default();
    (AccountingQueries::new(script.clone()), script)
}

const MINUTE: u64 = 60_000;

#[tokio::test]
async fn ended_jobs_are_asked_about_together_and_at_most_once_a_minute() {
    let (mut accountant, script) = start();
    let running = JobRecord { is_final: false, ..record(3) };
    accountant.add([record(1), record(2), running], 0);
    assert!(accountant.join(SETTLING_MS - 1).await.is_empty());
    script.answer(Ok("1|FAILED|3:0|0:0||100|150|50|None\n2|FAILED|0:9|0:0||100|150|50|None\n2.0|FAILED|0:9||16K|100|150|50|\n"));
    let joined = accountant.join(SETTLING_MS).await;
    let found: Vec<_> = joined.iter().map(|record| record.accounting.clone().unwrap()).collect();
    assert_eq!((found[0].exit_code, found[0].signal, found[0].max_rss_bytes), (3, None, None));
    assert_eq!((found[1].exit_code, found[1].signal, found[1].max_rss_bytes), (0, Some(9), Some(16 << 10)));
    accountant.add([record(4)], SETTLING_MS + 1);
    assert!(accountant.join(SETTLING_MS + MINUTE - 1).await.is_empty());
    script.answer(Ok(""));
    accountant.join(SETTLING_MS + MINUTE).await;
    assert_eq!(script.asked(), ["1,2", "4"]);
    // Nothing to ask costs nothing.
    let (mut accountant, script) = start();
    accountant.join(MINUTE).await;
    assert!(script.asked().is_empty());
}

#[tokio::test]
async fn a_record_that_is_not_complete_is_asked_about_a_few_times_only() {
    let (mut accountant, script) = start();
    accountant.add([record(1)], 0);
    let mut minutes = Vec::new();
    for minute in 1..200 {
        script.answer(Ok("1|RUNNING|0:0|0:0||100|Unknown|50|None\n"));
        accountant.join(minute * MINUTE).await;
        if !script.asked().is_empty() {
            minutes.push(minute);
        }
        script.answers.lock().unwrap().clear();
    }
    assert_eq!(minutes, [1, 3, 7, 15, 31]);
}

#[tokio::test]
async fn another_run_of_a_requeued_job_is_not_taken_for_this_one() {
    let (mut accountant, script) = start();
    accountant.add([record(1)], 0);
    script.answer(Ok("1|COMPLETED|0:0|0:0||900|950|50|None\n"));
    assert!(accountant.join(MINUTE).await.is_empty());
}

#[tokio::test]
async fn the_run_of_a_requeued_job_ends_as_accounting_states() {
    let (mut accountant, script) = start();
    accountant.add([record(1)], 0);
    let lines = "1|REQUEUED|0:0|0:0||100|130|30|None\n1.batch|CANCELLED|0:15|||100|131|31|\n\
                 1|RUNNING|0:0|0:0||250|Unknown|9|None\n1.batch|RUNNING|0:0||16K|250|Unknown|9|\n";
    script.answer(Ok(lines));
    let [joined] = accountant.join(MINUTE).await.try_into().unwrap();
    let stated = joined.accounting.unwrap();
    assert_eq!((stated.state.as_str(), stated.ended_s, stated.elapsed_s), ("REQUEUED", 130, Some(30)));
    assert_eq!(stated.max_rss_bytes, None, "that is of the run that follows");
}

#[tokio::test]
async fn where_there_is_no_sacct_nothing_is_tried_again() {
    let (mut accountant, script) = start();
    accountant.add([record(1)], 0);
    script.answer(Err(CommandError::Missing(Program::Sacct)));
    accountant.join(MINUTE).await;
    assert!(accountant.is_off());
    accountant.add([record(2)], MINUTE);
    accountant.join(600 * MINUTE).await;
    assert_eq!(script.asked(), ["1"]);
}

#[tokio::test]
async fn a_sacct_that_hangs_or_refuses_is_tried_ever_more_rarely() {
    let (mut accountant, script) = start();
    accountant.add([record(1)], 0);
    let mut minutes = Vec::new();
    for minute in 1..200 {
        script.answer(Err(CommandError::TimedOut(Program::Sacct, 10)));
        accountant.join(minute * MINUTE).await;
        if !script.asked().is_empty() {
            minutes.push(minute);
        }
        script.answers.lock().unwrap().clear();
    }
    assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 64, 124, 184]);
    // The job is still known, and asked about as soon as sacct answers.
    script.answer(Ok("1|COMPLETED|0:0|0:0||100|150|50|None\n"));
    assert_eq!(accountant.join(500 * MINUTE).await.len(), 1);
}

#[tokio::test]
async fn an_older_slurm_is_asked_without_the_reason() {
    let (mut accountant, script) = start();
    accountant.add([record(1)], 0);
    let why = "error: Invalid field requested: \"Reason\"".to_owned();
    script.answer(Err(CommandError::Failed(Program::Sacct, why)));
    accountant.join(MINUTE).await;
    script.answer(Ok("1|COMPLETED|0:0|0:0||100|150|50\n"));
    assert_eq!(accountant.join(2 * MINUTE).await.len(), 1);
    assert_eq!(script.asked(), ["1", "1 without reason"]);
}

#[tokio::test]
async fn a_job_with_too_many_steps_does_not_keep_others_from_being_joined() {
    let (mut accountant, script) = start();
    accountant.add([record(1), record(2)], 0);
    let mut joined = Vec::new();
    for minute in 1..200 {
        let asked = accountant.queue.due(minute * MINUTE);
        script.answer(match asked.contains(&JobId(1)) {
            true => Err(CommandError::OutputTooLarge(Program::Sacct, 64)),
            false => Ok("2|COMPLETED|0:0|0:0||100|150|50|None\n"),
        });
        joined.extend(accountant.join(minute * MINUTE).await);
        script.answers.lock().unwrap().clear();
    }
    assert_eq!(joined.iter().map(|record| record.job.id).collect::<Vec<_>>(), [JobId(2)]);
    assert!(accountant.queue.waiting.is_empty());
}

#[test]
fn the_number_of_waiting_jobs_is_bounded() {
    let mut queue = Queue::default();
    queue.add((0..2_000).map(record), 0);
    assert_eq!((queue.waiting.len(), queue.waiting[0].record.job.id), (MAX_WAITING, JobId(976)));
    assert_eq!(queue.due(MINUTE).len(), BATCH);
}

/// Answers the list of ended jobs.
struct Lists {
    answers: VecDeque<Result<&'static str, CommandError>>,
    asked: Vec<String>,
}

#[async_trait]
impl Client for Lists {
    async fn run(&mut self, program: Program, args: &[String]) -> Result<Output, CommandError> {
        assert_eq!(program, Program::Sacct);
        let value = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)).unwrap().to_owned();
        self.asked.push(value("--starttime="));
        assert_eq!(value("--user="), "alice");
        let answer = self.answers.pop_front().expect("an answer is scripted");
        let mark = value("--delimiter=");
        answer.map(|out| Output { out: out.replace('|', &mark).into_bytes(), err: String::new() })
    }
}

#[tokio::test]
async fn jobs_that_ended_while_no_relay_ran_are_listed_rarely_and_in_bounds() {
    const ENDED: &str = "7|7|alice|||FAILED|1:0|100|200|300|100|1|1|gres/gpu=2|train\n";
    let too_much = CommandError::OutputTooLarge(Program::Sacct, 64);
    let answers = VecDeque::from([Err(too_much), Ok(ENDED), Ok("")]);
    let mut queries = AccountingQueries::new(Lists { answers, asked: Vec::new() });
    assert_eq!(queries.ended("alice", 0).await, None, "not with the first requests of a relay");
    assert_eq!(queries.ended("alice", MINUTE - 1).await, None);
    let why = queries.ended("alice", MINUTE).await.unwrap().unwrap_err();
    assert!(why.contains("may be missing: sacct printed more than 64 MiB."), "{why}");
    assert_eq!(queries.ended("alice", 60 * MINUTE).await, None);
    let listed = queries.ended("alice", 61 * MINUTE).await.unwrap().unwrap();
    assert_eq!((listed.len(), listed[0].job.id), (1, JobId(7)));
    assert_eq!(queries.ended("alice", 24 * 60 * MINUTE).await, None);
    assert_eq!(queries.ended("alice", 25 * 60 * MINUTE + MINUTE).await, Some(Ok(Vec::new())));
    assert_eq!(queries.client.asked, ["now-30days", "now-7days", "now-2days"]);
}

#[tokio::test]
async fn without_sacct_that_is_stated_once_and_nothing_is_asked_again() {
    let answers = VecDeque::from([Err(CommandError::Missing(Program::Sacct))]);
    let mut queries = AccountingQueries::new(Lists { answers, asked: Vec::new() });
    assert_eq!(queries.ended("alice", 0).await, None);
    let why = queries.ended("alice", MINUTE).await.unwrap().unwrap_err();
    assert!(why.contains("sacct is not on the PATH"), "{why}");
    assert!(queries.is_off() && queries.ended("alice", 999 * MINUTE).await.is_none());
}
