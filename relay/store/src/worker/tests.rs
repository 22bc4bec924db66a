//! The store's thread: what waits for the disk, and failures.

use super::super::tests::{halted, record};
use super::super::{MAX_WAITING_NOTES, REQUESTS};
use super::*;

/// A worker with a database of its own, and where it passes on what is stored.
fn worker() -> (Worker, oneshot::Receiver<Restored>) {
    worker_of(&halted(REQUESTS).0)
}

fn worker_of(store: &JobStore) -> (Worker, oneshot::Receiver<Restored>) {
    let (restored, receiver) = oneshot::channel();
    let pass_on = |stored| restored.send(stored).unwrap();
    let problem = watch::channel(None).0;
    let mut worker = Worker::new(Location::Memory, "login1".into(), pass_on, store, problem);
    worker.database = Some(Database::in_memory().unwrap());
    (worker, receiver)
}

/// Lets the pause after a failure pass.
fn pass_pause(worker: &mut Worker) {
    worker.failure.as_mut().unwrap().1 = Instant::now();
}

#[test]
fn what_cannot_be_stored_is_a_problem_until_it_can() {
    let (mut worker, _restored) = worker();
    let problem = worker.problem.subscribe();
    worker.failed(&StoreError::Newer { path: "jobs.db".into(), found: 9, known: 1 });
    assert!(problem.borrow().as_ref().is_some_and(|why| why.as_str().contains("jobs are not stored")));
    worker.succeeded();
    assert_eq!(*problem.borrow(), None);
}

#[test]
fn a_failed_first_read_is_repeated_and_nothing_is_written_before() {
    let (mut worker, mut restored) = worker();
    let origin = worker.origin.clone();
    let (database, stored) = (worker.database.as_mut().unwrap(), record(7, false));
    database.save(&origin, &[stored.clone(), record(8, true)]).unwrap();
    database.execute("ALTER TABLE jobs RENAME TO away");
    let newer = JobRecord { at_s: stored.at_s + 60, ..stored.clone() };
    worker.waiting.push_back(newer.clone());
    worker.restore();
    assert_eq!(worker.take_unaccounted(), []);
    worker.database.as_ref().unwrap().execute("ALTER TABLE away RENAME TO jobs");
    // Not at once.
    worker.write();
    assert!(restored.try_recv().is_err());
    pass_pause(&mut worker);
    worker.write();
    assert_eq!(restored.try_recv().unwrap().jobs, [stored]);
    assert_eq!(worker.database.as_ref().unwrap().job(JobId(7)).unwrap(), Some(newer));
    assert_eq!(worker.take_unaccounted(), [record(8, true)]);
}

#[test]
fn ended_jobs_that_could_not_be_read_are_taken_later() {
    let (mut worker, _restored) = worker();
    let origin = worker.origin.clone();
    worker.database.as_mut().unwrap().save(&origin, &[record(8, true)]).unwrap();
    worker.database.as_ref().unwrap().execute("ALTER TABLE jobs RENAME TO away");
    assert_eq!(worker.take_unaccounted(), []);
    worker.database.as_ref().unwrap().execute("ALTER TABLE away RENAME TO jobs");
    pass_pause(&mut worker);
    assert_eq!(worker.take_unaccounted(), [record(8, true)]);
}

#[test]
fn notes_beyond_what_may_wait_stay_with_their_sender() {
    let (store, receiver) = halted(REQUESTS);
    let changes = |count: usize| -> Vec<_> {
        (0..count).map(|id| NoteChange::Delete(NoteId::from_bits(id as u64))).collect()
    };
    assert!(store.save_notes(changes(MAX_WAITING_NOTES)).is_ok());
    assert_eq!(store.save_notes(changes(2)).unwrap_err(), changes(2));
    // Written, they make room.
    let (mut worker, _restored) = worker_of(&store);
    let Ok(Request::SaveNotes { changes: waiting, .. }) = receiver.try_recv() else { panic!("as above") };
    worker.waiting_notes = waiting;
    worker.write();
    assert!(store.save_notes(changes(2)).is_ok());
    assert_eq!(store.waiting_notes.load(Ordering::Relaxed), 2);
}

#[test]
fn running_jobs_displace_no_ended_one_while_the_disk_fails_and_lost_ones_are_counted() {
    let (store, _requests) = halted(REQUESTS);
    let (mut worker, _restored) = worker_of(&store);
    worker.add(vec![record(1, true)]);
    // Each minute, for hours.
    (0..1_000).for_each(|_| worker.add((2..102).map(|job| record(job, false)).collect()));
    assert_eq!((worker.waiting.len(), store.lost()), (101, 0));
    let most = u32::try_from(MAX_WAITING).unwrap();
    worker.add((1_000..1_000 + most).map(|job| record(job, true)).collect());
    assert_eq!(
        (worker.waiting.len(), store.lost()),
        (MAX_WAITING, 1),
        "of a running job, nothing is lost yet"
    );
    worker.write();
    worker.add(vec![record(1, true)]);
    assert_eq!((worker.waiting.len(), store.lost()), (1, 1));
}
