//! The store: what a restart continues, and what waits for its thread.

use super::*;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::note::{NoteId, NoteSource};
use nodeglass_protocol::request::AuditEntry;
use std::sync::LazyLock;

pub(super) fn record(job: u32, is_final: bool) -> JobRecord {
    let job = Job { start: Some(100), ..Job::new(JobId(job), "alice".into(), JobState::Running) };
    // The same at each call, so that records can be compared.
    static NOW_S: LazyLock<i64> = LazyLock::new(|| i64::try_from(Clock::wall_ms() / 1_000).unwrap());
    JobRecord { is_final, ..JobRecord::of(job, *NOW_S) }
}

/// A store in this directory, and what it passes on.
fn start(dir: &StateDir) -> (JobStore, oneshot::Receiver<Restored>) {
    let (restored, receiver) = oneshot::channel();
    let origin = Origin { cluster: "hpc".into(), host: "login1".into() };
    let pass_on = |stored| restored.send(stored).unwrap();
    (JobStore::start(Location::Dir(dir.clone()), origin, pass_on).unwrap(), receiver)
}

#[tokio::test]
async fn a_restarted_relay_gets_the_jobs_that_had_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let (store, restored) = start(&dir);
    assert_eq!(restored.await.unwrap().jobs, []);
    let (running, ended) = (record(7, false), record(8, true));
    assert_eq!(store.save(vec![running.clone(), ended.clone()]), None);
    store.flush().await;
    let (again, restored) = start(&dir);
    assert_eq!(restored.await.unwrap().jobs, [running]);
    assert_eq!(again.job(JobId(8)).await, Some(ended));
    assert_eq!(again.job(JobId(9)).await, None);
}

#[tokio::test]
async fn f09_what_a_relay_stores_while_slurm_is_silent_gets_the_name_stated_later() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let (store, restored) = start(&dir);
    restored.await.unwrap();
    let (running, ended) = (record(7, false), record(8, true));
    assert_eq!(store.save(vec![running.clone(), ended.clone()]), None);
    store.flush().await;
    drop(store);
    let unnamed = || {
        let (restored, receiver) = oneshot::channel();
        let pass_on = |stored| drop(restored.send(stored));
        let place = Location::Dir(dir.clone());
        (JobStore::start_unnamed(place, "login1".into(), pass_on).unwrap(), receiver)
    };
    let (store, mut restored) = unnamed();
    // The list arrives before the name.
    let newer = JobRecord { at_s: running.at_s + 60, ..running.clone() };
    assert_eq!(store.save(vec![newer.clone()]), None);
    assert_eq!(store.add_ended(vec![record(9, true)]), Some(vec![record(9, true)]));
    assert_eq!(store.take_unaccounted().await, []);
    assert!(restored.try_recv().is_err());
    store.restored().await;
    store.set_cluster("hpc");
    assert_eq!(restored.await.unwrap().jobs, [running]);
    assert_eq!(store.take_unaccounted().await, [ended]);
    store.flush().await;
    drop(store);
    assert_eq!(start(&dir).1.await.unwrap().jobs, std::slice::from_ref(&newer));
    // SLURM does not respond while this one runs, and the next one finds what it left.
    let (store, _restored) = unnamed();
    let silent = record(10, false);
    assert_eq!(store.save(vec![silent.clone()]), None);
    store.flush().await;
    drop(store);
    let mut jobs = start(&dir).1.await.unwrap().jobs;
    jobs.sort_by_key(|record| record.job.id);
    assert_eq!(jobs, [newer, silent]);
}

/// A store whose thread does not run, with its channel of this capacity.
pub(super) fn halted(capacity: usize) -> (JobStore, mpsc::Receiver<Request>) {
    let (requests, receiver) = mpsc::sync_channel(capacity);
    (
        JobStore {
            requests,
            cluster: Arc::new("hpc".to_owned().into()),
            audit: Arc::default(),
            waiting_notes: Arc::default(),
            lost: LossCount::default(),
            problem: watch::channel(None).1,
            damage: Arc::default(),
            is_restored: watch::channel(false).1,
            incomplete: Arc::default(),
            is_durable: true,
        },
        receiver,
    )
}

#[tokio::test]
async fn a_flush_waits_for_room_in_the_channel() {
    let (store, receiver) = halted(1);
    assert_eq!(store.save(vec![record(7, true)]), None);
    let flushed = tokio::spawn(async move { store.flush().await });
    tokio::task::yield_now().await;
    assert!(matches!(receiver.recv().unwrap(), Request::Save(_)));
    let next = tokio::task::spawn_blocking(move || receiver.recv()).await.unwrap();
    let Ok(Request::Flush { reply }) = next else { panic!("{next:?}") };
    reply.send(()).unwrap();
    flushed.await.unwrap();
}

#[test]
fn records_of_the_audit_log_take_one_place_in_the_channel() {
    let (store, receiver) = halted(REQUESTS);
    let entry = AuditEntry { wall_ms: 0, action: "x".into(), outcome: "".into(), succeeded: true };
    (0..2 * REQUESTS).for_each(|_| store.audit().action(entry.clone()));
    assert_eq!(store.save(vec![record(7, true)]), None);
    assert!(matches!(receiver.try_recv(), Ok(Request::Audit)));
    assert!(matches!(receiver.try_recv(), Ok(Request::Save(_))));
    assert!(receiver.try_recv().is_err());
    store.audit.wake_received();
    store.audit().action(entry);
    assert!(matches!(receiver.try_recv(), Ok(Request::Audit)));
}

#[tokio::test]
async fn ended_jobs_are_taken_for_accounting_once_and_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let (store, _restored) = start(&dir);
    store.save(vec![record(7, false), record(8, true)]);
    assert_eq!(store.take_unaccounted().await, [record(8, true)]);
    assert_eq!(store.take_unaccounted().await, []);
    store.save(vec![record(7, true)]);
    assert_eq!(store.take_unaccounted().await, [record(7, true)]);
    let accounting = nodeglass_report::Accounting {
        state: "FAILED".into(),
        exit_code: 3,
        signal: None,
        step_exit_code: None,
        max_rss_bytes: None,
        ended_s: 200,
        elapsed_s: None,
        reason: None,
    };
    let joined = JobRecord { accounting: Some(accounting), ..record(8, true) };
    store.save(vec![joined.clone()]);
    assert_eq!(store.take_unaccounted().await, []);
    store.flush().await;
    let (again, _restored) = start(&dir);
    assert_eq!(again.take_unaccounted().await, [record(7, true)]);
    assert_eq!(again.job(JobId(8)).await, Some(joined));
}

#[tokio::test]
async fn a_note_is_acknowledged_once_it_is_stored_and_restored_later() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let (store, restored) = start(&dir);
    assert_eq!(restored.await.unwrap().notes, []);
    let note = Note {
        id: NoteId::from_bits(1),
        job: Some(JobId(7)),
        node: None,
        rank: None,
        at_ms: 5,
        text: "epoch 3".into(),
        source: NoteSource::Api,
    };
    let change = NoteChange::Put(note.clone());
    store.save_notes(vec![change.clone()]).unwrap().await.unwrap();
    assert_eq!(store.notes(JobId(7)).await, Some(vec![note]));
    drop(store);
    assert_eq!(start(&dir).1.await.unwrap().notes, [change]);
}

#[tokio::test]
async fn a_newer_database_turns_the_store_off_and_nothing_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let (store, restored) = start(&dir);
    restored.await.unwrap();
    store.flush().await;
    drop(store);
    Database::open(&dir).unwrap().0.set_version(99);
    let (off, restored) = start(&dir);
    assert!(restored.await.is_err());
    let problem = off.problem().borrow().clone();
    assert!(problem.is_some_and(|why| why.as_str().contains("written by a newer nodeglass")));
    for job in 0..200 {
        off.save(vec![record(job, true)]);
    }
    off.flush().await;
    assert_eq!(off.job(JobId(7)).await, None);
}

#[tokio::test]
async fn a_database_that_was_deleted_is_created_again_and_keeps_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    let (store, restored) = start(&dir);
    restored.await.unwrap();
    store.save(vec![record(7, true)]);
    store.flush().await;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    store.save(vec![record(8, true)]);
    store.flush().await;
    drop(store);
    let (again, _restored) = start(&dir);
    assert_eq!(again.job(JobId(8)).await, Some(record(8, true)));
    assert_eq!(again.job(JobId(7)).await, None);
}

#[tokio::test]
async fn faults_of_nodes_are_read_from_the_jobs_of_the_last_days() {
    let store = JobStore::in_memory().unwrap();
    let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap();
    let found = |job: u32, days: i64| {
        let started = Job { start: Some(now_s - days * 86_400), ..record(job, true).job };
        let mut record = JobRecord { is_final: true, ..JobRecord::of(started, now_s) };
        let found = serde_json::json!({
            "key": format!("thermal/{job}"), "kind": "thermal", "severity": "warning", "confidence_pct": 95,
            "jobs": [job], "nodes": ["n1"], "gpus": [], "title": "GPU 3 is too hot", "reason": "GPU 3 too hot",
            "evidence": [], "advice": "", "since_ms": 60_000, "or_earlier": false, "found_ms": 80_000,
            "ended_ms": 90_000, "wasted_gpus": 0,
        });
        record.findings = vec![serde_json::from_value(found).unwrap()];
        record
    };
    assert_eq!(store.save(vec![found(7, 1), found(8, 40)]), None);
    let jobs = async |days| {
        let faults = store.faults(days).await.unwrap().list(None);
        faults.iter().map(|fault| (fault.node.to_string(), fault.jobs)).collect::<Vec<_>>()
    };
    assert_eq!(jobs(30).await, [("n1".to_owned(), 1)]);
    assert_eq!(jobs(90).await, [("n1".to_owned(), 2)]);
}
