//! Databases that are old, new, damaged, locked, shared, or whose writer was killed.

use super::*;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::report::Accounting;
use nodeglass_report::NodeTotals;
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

fn origin(host: &str) -> Origin {
    Origin { cluster: "hpc".into(), host: host.into() }
}

fn record(job: u32, start: i64, at_s: i64, is_final: bool) -> JobRecord {
    let job = Job { start: Some(start), ..Job::new(JobId(job), "alice".into(), JobState::Running) };
    JobRecord { is_final, ..JobRecord::of(job, at_s) }
}

fn dir() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    (folder, dir)
}

fn open(dir: &StateDir) -> Database {
    let (database, aside) = Database::open(dir).unwrap();
    assert!(aside.is_none(), "{aside:?}");
    database
}

fn ids(database: &Database) -> Vec<u32> {
    database.reports_since(0, None).unwrap().iter().map(|report| report.job.0).collect()
}

#[test]
fn a_job_is_found_again_with_its_latest_run() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    let records = [record(7, 100, 150, true), record(7, 200, 250, false), record(8, 300, 350, true)];
    database.save(&origin("a"), &records).unwrap();
    drop(database);
    let database = open(&dir);
    assert_eq!(database.job(JobId(7)).unwrap(), Some(records[1].clone()));
    assert_eq!(ids(&database), [8, 7, 7]);
    assert_eq!(database.reports_since(250, None).unwrap(), [records[2].report()]);
    assert_eq!(database.job(JobId(9)).unwrap(), None);
}

#[test]
fn a_requeued_job_has_all_of_its_runs_but_none_of_another_job_with_its_number() {
    let mut database = Database::in_memory().unwrap();
    let mut of_bob = record(7, 50, 60, true);
    of_bob.job.user = "bob".into();
    let (first, second, third) =
        (record(7, 100, 150, true), record(7, 200, 250, true), record(7, 300, 350, false));
    let stored = [of_bob, third.clone(), first.clone(), second.clone()];
    database.save(&origin("a"), &stored).unwrap();
    // Another login node observed the second run, but not its end.
    database.save(&origin("b"), &[record(7, 200, 240, false)]).unwrap();
    let other = Origin { cluster: "other".into(), ..origin("a") };
    database.save(&other, &[record(7, 20, 30, true)]).unwrap();
    assert_eq!(database.runs(JobId(7)).unwrap(), [first, second, third]);
    assert_eq!(database.runs(JobId(8)).unwrap(), []);
}

#[test]
fn a_relay_that_finds_an_ended_job_does_not_replace_what_another_observed() {
    let mut database = Database::in_memory().unwrap();
    let mut observed = record(7, 100, 150, true);
    let mut node = NodeTotals::new(NodeName::new("g01").unwrap());
    node.observed_ms = 40_000;
    observed.nodes = vec![node];
    database.save(&origin("a"), std::slice::from_ref(&observed)).unwrap();
    database.save(&origin("b"), &[record(7, 100, 190, true), record(8, 100, 190, true)]).unwrap();
    assert_eq!(database.job(JobId(7)).unwrap().as_ref(), Some(&observed));
    assert_eq!(database.job_of(JobId(7), &"alice".into()).unwrap().as_ref(), Some(&observed));
    assert_eq!(database.runs(JobId(7)).unwrap(), std::slice::from_ref(&observed));
    let reports = database.reports_since(0, None).unwrap();
    assert_eq!(reports, [record(8, 100, 190, true).report(), observed.report()]);
}

#[test]
fn a_relay_on_another_login_node_continues_what_the_former_one_observed() {
    let mut database = Database::in_memory().unwrap();
    let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap();
    let former = record(7, 100, now_s - 600, false);
    database.save(&origin("a"), &[former.clone(), record(8, 100, now_s, false)]).unwrap();
    database.save(&origin("b"), &[record(7, 100, now_s - 900, false)]).unwrap();
    assert_eq!(
        database.unfinished(&origin("b")).unwrap(),
        [former],
        "it runs no more, or still observes the job"
    );
    let other = Origin { cluster: "other".into(), ..origin("b") };
    assert_eq!(database.unfinished(&other).unwrap(), [], "of another cluster");
}

#[test]
fn jobs_without_a_cluster_are_read_until_their_runs_are_stored_under_its_name() {
    let mut database = Database::in_memory().unwrap();
    let (unnamed, named) = (Origin { cluster: String::new(), ..origin("a") }, origin("a"));
    let now_s = i64::try_from(Clock::wall_ms() / 1_000).unwrap();
    let (running, ended) = (record(7, 100, now_s, false), record(8, 100, now_s, true));
    database.save(&unnamed, &[running.clone(), ended.clone()]).unwrap();
    assert_eq!(database.unfinished(&named).unwrap(), std::slice::from_ref(&running));
    assert_eq!(database.unaccounted(&named, 9).unwrap(), std::slice::from_ref(&ended));
    assert_eq!(database.unfinished(&origin("b")).unwrap(), [], "of another machine");
    let later = [running, ended].map(|record| JobRecord { at_s: now_s + 60, is_final: true, ..record });
    database.save(&named, &later).unwrap();
    assert_eq!(database.unfinished(&named).unwrap(), []);
    assert_eq!(database.unaccounted(&named, 9).unwrap().len(), 2);
    assert_eq!(ids(&database), [8, 7], "each once");
}

#[test]
fn the_record_of_an_ended_job_is_never_replaced_by_one_of_its_run() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    let (late, ended) = (record(7, 100, 180, false), record(7, 100, 170, true));
    database.save(&origin("a"), &[record(7, 100, 150, false), ended.clone(), late]).unwrap();
    assert_eq!(database.job(JobId(7)).unwrap(), Some(ended));
}

#[test]
fn a_job_that_runs_on_after_a_false_end_has_a_record_of_its_run_again() {
    let mut database = Database::in_memory().unwrap();
    let mut save = |record: &JobRecord| {
        database.save(&origin("a"), std::slice::from_ref(record)).unwrap();
        database.job(JobId(7)).unwrap().unwrap()
    };
    let of = |at_s, is_final| JobRecord { false_end_s: Some(170), ..record(7, 100, at_s, is_final) };
    let (false_end, running, ended) = (record(7, 100, 170, true), of(230, false), of(290, true));
    assert_eq!(save(&false_end), false_end);
    assert_eq!(save(&running), running);
    assert_eq!(save(&false_end), running, "accounting may join it late");
    assert_eq!(save(&ended), ended);
    assert_eq!(save(&running), ended);
}

#[test]
fn jobs_that_ended_while_no_relay_ran_are_added_and_what_was_observed_of_them_stays() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    let mut watched = record(2, 200, 250, false);
    watched.nodes.push(nodeglass_report::NodeTotals::new("n1".parse().unwrap()));
    let seen_to_end = record(3, 300, 390, true);
    database.save(&origin("a"), std::slice::from_ref(&seen_to_end)).unwrap();
    database.save(&origin("b"), std::slice::from_ref(&watched)).unwrap();
    let stated = |id: u32, start: i64| {
        let job = Job {
            start: Some(start),
            ended: Some(start + 60),
            exit: Some("1:0".into()),
            ..Job::new(JobId(id), "alice".into(), JobState::Ended("FAILED".into()))
        };
        JobRecord { is_final: true, ..JobRecord::of(job, start + 60) }
    };
    let listed = || vec![stated(1, 100), stated(2, 200), stated(3, 300)];
    assert_eq!(database.add_ended(&origin("a"), listed()).unwrap(), 2);
    assert_eq!(database.job(JobId(1)).unwrap(), Some(stated(1, 100)), "of which nothing was observed");
    let (ended, of) = database.job_with_origin(JobId(2)).unwrap().unwrap();
    assert_eq!((ended.is_final, &ended.nodes, of), (true, &watched.nodes, origin("b")));
    assert_eq!((ended.report().state.as_str(), ended.report().elapsed_s), ("FAILED", 60));
    assert_eq!(database.job(JobId(3)).unwrap(), Some(seen_to_end));
    assert_eq!(database.add_ended(&origin("a"), listed()).unwrap(), 0, "once");
    assert_eq!(ids(&database), [3, 2, 1]);
}

#[test]
fn a_job_that_was_resized_is_one_run_although_accounting_counts_it_from_then_on() {
    let mut database = Database::in_memory().unwrap();
    let observed = |id, at_s, ended: Option<i64>| {
        let mut record = record(id, 100, at_s, ended.is_some());
        record.job.ended = ended;
        record.nodes.push(nodeglass_report::NodeTotals::new("n1".parse().unwrap()));
        record
    };
    let (ended, lost) = (observed(7, 401, Some(400)), observed(8, 290, None));
    database.save(&origin("a"), &[ended.clone(), lost]).unwrap();
    let stated = |id: u32, start: i64, end: i64| {
        let mut job = record(id, start, end, true).job;
        (job.ended, job.state) = (Some(end), JobState::Ended("CANCELLED".into()));
        let accounting = Accounting {
            state: "CANCELLED".into(),
            exit_code: 0,
            signal: None,
            step_exit_code: None,
            max_rss_bytes: None,
            ended_s: end,
            elapsed_s: Some((end - start).cast_unsigned()),
            reason: None,
        };
        JobRecord { is_final: true, accounting: Some(accounting), ..JobRecord::of(job, end) }
    };
    // An earlier build has added it.
    database.save(&origin("b"), &[stated(7, 140, 400)]).unwrap();
    let resized = || vec![stated(8, 140, 400), stated(7, 140, 400)];
    assert_eq!(database.add_ended(&origin("b"), resized()).unwrap(), 1);
    assert_eq!(database.job(JobId(7)).unwrap(), Some(ended));
    let report = database.job(JobId(8)).unwrap().unwrap().report();
    assert_eq!((report.is_final, report.state.as_str(), report.elapsed_s), (true, "CANCELLED", 300));
    assert_eq!(ids(&database), [8, 7]);
    // Two runs of a requeued job stay two, also where a relay learnt late that the first had ended.
    let runs = || vec![stated(9, 405, 500), stated(9, 300, 400)];
    database
        .save(
            &origin("a"),
            &[JobRecord {
                job: Job { start: Some(300), ..observed(9, 410, None).job },
                ..observed(9, 410, None)
            }],
        )
        .unwrap();
    assert_eq!(database.add_ended(&origin("b"), runs()).unwrap(), 2);
    assert_eq!(ids(&database), [9, 9, 8, 7]);
}

#[test]
fn t09_the_jobs_of_a_user_are_found_without_reading_those_of_others() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    let mut of_bob = record(7, 200, 250, true);
    of_bob.job.user = "bob".into();
    database.save(&origin("a"), &[record(7, 100, 150, true), of_bob]).unwrap();
    database.connection.execute("INSERT INTO jobs VALUES ('', 'b', 8, 0, 1, 0, '{damaged')", []).unwrap();
    let job_of = |id, user: &str| database.job_of(JobId(id), &user.into()).unwrap();
    assert_eq!(
        job_of(7, "alice"),
        Some(record(7, 100, 150, true)),
        "of that user, although another one's is newer"
    );
    assert_eq!((job_of(7, "carol"), job_of(8, "alice")), (None, None));
    let plan = format!("EXPLAIN QUERY PLAN {}", Database::query_of_user());
    let plan: String = database.connection.query_row(&plan, ["alice", "7"], |row| row.get(3)).unwrap();
    assert!(plan.contains("jobs_by_user (<expr>=? AND job=?)"), "{plan}");
}

#[test]
fn f27_two_relays_write_to_one_database_and_see_each_other() {
    let (_folder, dir) = dir();
    let writers: Vec<_> = ["a", "b"]
        .map(|host| {
            let dir = dir.clone();
            thread::spawn(move || {
                let mut database = open(&dir);
                (0..50)
                    .for_each(|at| database.save(&origin(host), &[record(7, 100, at, host == "b")]).unwrap());
            })
        })
        .into();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let database = open(&dir);
    assert_eq!(database.job(JobId(7)).unwrap(), Some(record(7, 100, 49, true)));
    assert_eq!(ids(&database), [7]);
    let now = i64::try_from(Clock::wall_ms() / 1_000).unwrap();
    let mut database = database;
    database.save(&origin("a"), &[record(7, 100, now, false)]).unwrap();
    assert_eq!(database.unfinished(&origin("a")).unwrap(), [record(7, 100, now, false)]);
    assert_eq!(database.unfinished(&origin("b")).unwrap(), []);
}

#[test]
fn an_older_schema_is_migrated_with_its_rows() {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate(&mut connection, &MIGRATIONS[..1], PathBuf::new()).unwrap();
    let mut database = Database { connection, file: None };
    database.save(&origin("a"), &[record(7, 100, 150, true)]).unwrap();
    let next: Vec<_> = MIGRATIONS.into_iter().chain(["CREATE TABLE x (text TEXT NOT NULL) STRICT"]).collect();
    migrate(&mut database.connection, &next, PathBuf::new()).unwrap();
    migrate(&mut database.connection, &next, PathBuf::new()).unwrap();
    database.connection.execute("INSERT INTO x VALUES ('x')", []).unwrap();
    assert_eq!(database.notes_of(&origin("a"), JobId(7)).unwrap(), []);
    assert_eq!(ids(&database), [7]);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let (_folder, dir) = dir();
    open(&dir).connection.pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(dir.path().join(FILE)).unwrap();
    let error = Database::open(&dir).unwrap_err();
    assert!(error.to_string().contains("newer nodeglass (schema 99"), "{error}");
    assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), before);
}

#[test]
fn a_damaged_file_is_set_aside_whole_and_a_new_one_created() {
    for damage in [(0, 200), (4_000, 6_000)] {
        let (_folder, dir) = dir();
        let mut database = open(&dir);
        let records: Vec<_> = (0..200).map(|job| record(job, 100, 150, true)).collect();
        database.save(&origin("a"), &records).unwrap();
        drop(database);
        let path = dir.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes[damage.0..damage.1].fill(0xa5);
        fs::write(&path, &bytes).unwrap();
        let (mut database, aside) = Database::open(&dir).unwrap();
        assert_eq!(fs::read(aside.unwrap().kept).unwrap(), bytes);
        assert!(ids(&database).is_empty());
        database.save(&origin("a"), &records[..1]).unwrap();
        assert_eq!(ids(&open(&dir)), [0]);
    }
}

#[test]
fn what_can_be_read_of_a_damaged_file_is_copied() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    let records: Vec<_> = (0..400).map(|job| record(job, i64::from(job), 150, true)).collect();
    database.save(&origin("a"), &records).unwrap();
    let actions = "INSERT INTO audit_actions VALUES (1, 'a', 'b', 1); INSERT INTO audit_actions VALUES (1, 'a', 'b', 1);";
    database.execute(actions);
    drop(database);
    let path = dir.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    // A page in the middle of the jobs: 13 is a leaf of a table.
    let is_leaf = |page: &&mut [u8]| page[0] == 13 && page.windows(7).any(|text| text == b"\"alice\"");
    let mut leaves: Vec<_> = bytes.chunks_mut(4_096).filter(is_leaf).collect();
    let middle = leaves.len() / 2;
    leaves[middle].fill(0xa5);
    // Text that is not UTF-8 costs its row.
    let last = leaves.last_mut().unwrap();
    let name = last.windows(7).rposition(|text| text == b"\"alice\"").unwrap();
    last[name + 1] = 0xff;
    fs::write(&path, &bytes).unwrap();
    let (database, damaged) = Database::open(&dir).unwrap();
    let (ids, damaged) = (ids(&database), damaged.unwrap());
    assert!((350..400).contains(&ids.len()), "{}", ids.len());
    assert_eq!((ids.first(), ids.last()), (Some(&399), Some(&0)));
    let count = |table| database.connection.query_row(table, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM audit_actions"), 2);
    let name = damaged.kept.file_name().unwrap().to_string_lossy();
    let missing = format!("incomplete are jobs ({} copied). The damaged file is kept as {name}", ids.len());
    assert!(damaged.text().contains(&missing), "{}", damaged.text());
    drop(database);
    assert_eq!(self::ids(&open(&dir)).len(), ids.len(), "it is not damaged");
}

#[test]
fn a_damaged_page_costs_one_table_at_most_unless_it_is_the_first() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    let records: Vec<_> = (0..60).map(|job| record(job, i64::from(job), 150, true)).collect();
    database.save(&origin("a"), &records).unwrap();
    database.execute("INSERT INTO audit_actions VALUES (1, 'a', 'b', 1)");
    drop(database);
    let path = dir.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    let pages = whole.len() / 4_096;
    for (page, damage) in (0..pages).flat_map(|page| [(page, 0xff), (page, 0x00), (page, 0x05)]) {
        let mut bytes = whole.clone();
        bytes[page * 4_096..][..8].fill(damage);
        fs::write(dir.private_file(FILE).unwrap(), &bytes).unwrap();
        let (database, damaged) = Database::open(&dir).unwrap();
        let count = |table: &str| {
            let query = format!("SELECT count(*) FROM {table}");
            database.connection.query_row(&query, [], |row| row.get::<_, usize>(0)).unwrap()
        };
        let (jobs, actions) = (count("jobs"), count("audit_actions"));
        assert!(
            page == 0 || jobs == 60 || actions == 1,
            "page {page} of {pages}: {jobs} jobs, {actions} actions"
        );
        let text = damaged.map(|damaged| damaged.text()).unwrap_or_default();
        assert_eq!(
            jobs < 60,
            text.contains(&format!("jobs ({jobs} copied)")),
            "page {page}: {jobs} jobs, {text}"
        );
        drop(database);
        fs::read_dir(dir.path()).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
    }
}

#[test]
fn a_locked_database_is_an_error_and_no_damage() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    database.connection.busy_timeout(Duration::from_millis(20)).unwrap();
    let other = open(&dir);
    other.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = database.save(&origin("a"), &[record(7, 100, 150, true)]).unwrap_err();
    assert!(!error.is_damage() && error.to_string().contains("locked"), "{error}");
    other.connection.execute_batch("COMMIT").unwrap();
    database.save(&origin("a"), &[record(7, 100, 150, true)]).unwrap();
}

#[test]
fn f24_a_full_disk_is_an_error_that_keeps_what_is_stored() {
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    database.save(&origin("a"), &[record(7, 100, 150, true)]).unwrap();
    // The limit on pages answers as a full disk does.
    let pages: i64 = database.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    database.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let many: Vec<_> = (100..1_000).map(|job| record(job, 100, 150, true)).collect();
    let error = database.save(&origin("a"), &many).unwrap_err();
    assert!(!error.is_damage() && error.to_string().contains("full"), "{error}");
    assert_eq!(ids(&open(&dir)), [7]);
}

#[test]
fn t08_the_database_and_its_log_are_private() {
    use std::os::unix::fs::MetadataExt as _;
    let (_folder, dir) = dir();
    let mut database = open(&dir);
    database.save(&origin("a"), &[record(7, 100, 150, true)]).unwrap();
    for file in fs::read_dir(dir.path()).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o077, 0);
    }
}

const WRITER_DIR: &str = "NODEGLASS_STORE_WRITER_DIR";

/// The child of the test below: stores job after job, and prints each once it is acknowledged.
#[test]
#[ignore = "it is run by other tests, as a child process"]
fn writer() {
    let dir = StateDir::at(std::env::var_os(WRITER_DIR).expect("started by the next test")).unwrap();
    let mut database = Database::open(&dir).unwrap().0;
    let first = ids(&database).first().map_or(1, |last| last + 1);
    for job in first.. {
        database.save(&origin("a"), &[record(job, i64::from(job), 150, true)]).unwrap();
        println!("stored {job}");
    }
}

#[test]
fn f13_what_was_acknowledged_survives_a_killed_writer() {
    let (_folder, dir) = dir();
    let mut acknowledged = 0;
    let began = Instant::now();
    for kill in 0..200u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "database::tests::writer"])
            .env(WRITER_DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("stored") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the writer ended by itself");
        }
        // Spread over the steps of a transaction, which takes a few ms.
        thread::sleep(Duration::from_micros(kill * 7_919 % 9_000));
        child.kill().unwrap();
        child.wait().unwrap();
        output.read_to_string(&mut line).unwrap();
        // The last line may be incomplete.
        let whole = line.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let stored = whole.lines().rev().find_map(|line| line.rsplit_once("stored ")?.1.parse::<u32>().ok());
        acknowledged = acknowledged.max(stored.unwrap());
        let (database, aside) = Database::open(&dir).unwrap();
        assert!(aside.is_none(), "{aside:?}");
        let found = ids(&database);
        assert!(found.len() >= acknowledged as usize, "{} of {acknowledged}", found.len());
        assert!(found.iter().rev().copied().eq(1..=found.len() as u32), "a gap");
    }
    println!("{acknowledged} records in {:?}", began.elapsed());
}

#[test]
fn a_database_with_other_tables_is_reported_without_sql() {
    let (_folder, dir) = dir();
    let other = Connection::open(dir.private_file(FILE).unwrap()).unwrap();
    other.execute_batch("CREATE TABLE jobs (x)").unwrap();
    other.pragma_update(None, "user_version", i64::try_from(MIGRATIONS.len()).unwrap()).unwrap();
    drop(other);
    let error = open(&dir).job(JobId(7)).unwrap_err().to_string();
    assert!(error.contains("jobs.db has other tables than nodeglass creates (no such column"), "{error}");
    assert!(!error.contains("SELECT"), "{error}");
}
