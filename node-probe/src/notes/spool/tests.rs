//! Spools that grow, are written anew, are hostile, or belong to somebody else.

use super::*;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

struct Scene {
    _home: tempfile::TempDir,
    folder: PathBuf,
    spool: Spool,
    mono_ns: u64,
}

impl Scene {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("notes");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        let spool = Spool::new(folder.clone());
        let mut scene = Self { _home: home, folder, spool, mono_ns: 1_000_000_000_000 };
        assert_eq!(scene.scan().problems, Some(Vec::new()), "whatever an earlier probe reported");
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn append(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let file = OpenOptions::new().create(true).append(true).open(self.path(name));
        file.unwrap().write_all(bytes.as_ref()).unwrap();
    }

    /// Two seconds later.
    fn scan(&mut self) -> SpoolNotes {
        self.mono_ns += 2_000_000_000;
        let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        self.spool.scan(&[JobId(17), JobId(18)], ScanTime { mono_ns: self.mono_ns, wall_ns })
    }

    fn texts(&mut self) -> Vec<String> {
        self.scan().notes.iter().map(|note| note.text.to_string()).collect()
    }

    fn problem(&mut self) -> String {
        let problems = self.scan().problems.unwrap_or_default();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

#[test]
fn complete_lines_are_read_once_from_each_file_of_a_running_job() {
    let mut scene = Scene::new();
    assert_eq!(scene.texts(), [""; 0]);
    scene.append("17", "epoch 1\nepo");
    scene.append("18.3", "loss 0.4\n");
    scene.append("19", "of a job that does not run here\n");
    scene.append("17~", "of an editor\n");
    let notes = scene.scan().notes;
    let read: Vec<_> = notes.iter().map(|note| (note.job.0, note.suffix.as_str(), note.offset)).collect();
    assert_eq!(read, [(17, "", 0), (18, "3", 0)]);
    scene.append("17", "ch 2\r\n\n");
    let notes = scene.scan().notes;
    assert_eq!((notes[0].text.as_str(), notes[0].offset, notes.len()), ("epoch 2", 8, 1));
    assert_eq!(scene.texts(), [""; 0]);
    // A probe that starts later reads them again, with the same offsets.
    scene.spool = Spool::new(scene.folder.clone());
    assert_eq!(scene.texts(), ["epoch 1", "epoch 2", "loss 0.4"]);
}

#[test]
fn a_file_that_is_written_anew_is_read_from_its_beginning() {
    let mut scene = Scene::new();
    scene.append("17", "epoch 1\n");
    assert_eq!(scene.texts(), ["epoch 1"]);
    let later = |path: &Path, text: &str, seconds: u64| {
        fs::write(path, text).unwrap();
        // In most cases the clock has moved by itself.
        let file = OpenOptions::new().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() + std::time::Duration::from_secs(seconds)).unwrap();
    };
    later(&scene.path("17"), "epoch 2\n", 1);
    assert_eq!(scene.texts(), ["epoch 2"]);
    later(&scene.path("17"), "e\n", 2);
    assert_eq!(scene.texts(), ["e"]);
    fs::remove_file(scene.path("17")).unwrap();
    assert_eq!(scene.texts(), [""; 0]);
    scene.append("17", "epoch 3\n");
    assert_eq!(scene.texts(), ["epoch 3"]);
}

#[test]
fn a_file_that_is_written_anew_and_longer_is_read_from_its_beginning() {
    let mut scene = Scene::new();
    scene.append("17", "a\n");
    assert_eq!(scene.texts(), ["a"]);
    fs::write(scene.path("17"), "loss is NaN\n").unwrap();
    assert_eq!(scene.texts(), ["loss is NaN"]);
    // The same start, and a line that ends elsewhere.
    fs::write(scene.path("17"), "loss is NaN again\n").unwrap();
    assert_eq!(scene.texts(), ["loss is NaN again"]);
    // A line that ends where the earlier one did.
    fs::write(scene.path("17"), "loss is 0.4 again\nepoch 2\n").unwrap();
    assert_eq!(scene.texts(), ["loss is 0.4 again", "epoch 2"]);
    // Also if the start is longer than what is remembered of it.
    let start = "x".repeat(2 * HEAD);
    fs::write(scene.path("17"), format!("{start}\n")).unwrap();
    assert_eq!(scene.scan().notes.len(), 1);
    fs::write(scene.path("17"), format!("{start}y\nepoch 3\n")).unwrap();
    assert_eq!(scene.texts()[1..], ["epoch 3"]);
    scene.append("17", "epoch 4\n");
    assert_eq!(scene.texts(), ["epoch 4"], "what is appended does not repeat the rest");
}

#[test]
fn a_file_of_exactly_the_limit_has_no_more_than_that() {
    let mut scene = Scene::new();
    scene.append("17", "line\n".repeat(MAX_LINES));
    scene.append("18", format!("{}\n", "z".repeat(1_023)).repeat(MAX_BYTES as usize / 1_024));
    for _ in 0..2 * MAX_LINES / note::MAX_PER_LINE {
        assert_eq!(scene.scan().problems, None);
    }
    scene.append("17", "\none more\n");
    assert!(scene.problem().ends_with("it has more than 1000 lines"));
    fs::remove_file(scene.path("17")).unwrap();
    assert_eq!(scene.scan(), SpoolNotes { problems: Some(Vec::new()), ..SpoolNotes::default() });
    assert_eq!(scene.scan(), SpoolNotes::default());
    scene.append("18", "z");
    assert!(scene.problem().ends_with("it has more than 256 KiB"));
}

#[test]
fn the_time_of_a_line_is_that_of_its_file_and_neither_ahead_nor_before_it_was_missing() {
    let mut scene = Scene::new();
    scene.append("17", "a\n");
    let set = |scene: &Scene, ago_s: i64| {
        let file = OpenOptions::new().append(true).open(scene.path("17")).unwrap();
        let now = SystemTime::now();
        let ago = std::time::Duration::from_secs(ago_s.unsigned_abs());
        file.set_modified(if ago_s < 0 { now + ago } else { now - ago }).unwrap();
    };
    set(&scene, 60);
    let age_s = |notes: &SpoolNotes, scene: &Scene| (scene.mono_ns - notes.notes[0].mono_ns) / 1_000_000_000;
    let first = scene.scan();
    assert_eq!(age_s(&first, &scene), 60);
    scene.append("17", "b\n");
    set(&scene, 600);
    let second = scene.scan();
    assert_eq!(age_s(&second, &scene), 2, "two seconds ago it was not there");
    scene.append("17", "c\n");
    set(&scene, -600);
    let third = scene.scan();
    assert_eq!(age_s(&third, &scene), 0);
}

#[test]
fn hostile_content_is_bounded_cleaned_and_reported() {
    let mut scene = Scene::new();
    scene.append("17", b"\x1b[31mred\xff\x00\nx\n");
    scene.append("17", vec![b'y'; 100_000]);
    scene.append("17", "\nafter\n");
    assert_eq!(scene.texts(), ["[31mred\u{fffd}", "x", "after"]);
    scene.append("18", "line\n".repeat(1_000_000));
    let mut count = 0;
    loop {
        let SpoolNotes { notes, problems } = scene.scan();
        assert!(notes.len() <= note::MAX_PER_LINE);
        count += notes.len();
        if let Some(problems) = problems {
            let [long, many] = &problems[..] else { panic!("{problems:?}") };
            assert!(long.as_str().ends_with("17 are not read: a line is longer than 16 KiB"), "{long}");
            assert!(many.as_str().ends_with("18 are not read: it has more than 1000 lines"), "{many}");
            break;
        }
    }
    assert_eq!(count, 1_000);
    assert_eq!(scene.scan(), SpoolNotes::default(), "it is reported once");
    scene.append("17.1", vec![b'z'; 300 * 1024]);
    scene.append("17.1", "\nbeyond\n");
    fs::remove_file(scene.path("18")).unwrap();
    assert!(scene.problem().ends_with("it has more than 256 KiB"));
    assert_eq!(scene.texts(), [""; 0]);
}

#[test]
fn links_pipes_and_folders_that_others_can_write_to_are_not_read() {
    let mut scene = Scene::new();
    fs::write(scene.folder.with_file_name("secret"), "hunter2\n").unwrap();
    symlink(scene.folder.with_file_name("secret"), scene.path("17")).unwrap();
    assert!(scene.problem().ends_with("17 are not read: it is a symbolic link"));
    fs::remove_file(scene.path("17")).unwrap();
    rustix::fs::mknodat(CWD, scene.path("17"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(scene.problem().ends_with("it is not a regular file"));
    fs::remove_file(scene.path("17")).unwrap();
    fs::create_dir(scene.path("17")).unwrap();
    scene.append("18", "x\n");
    let SpoolNotes { notes, problems } = scene.scan();
    assert_eq!(
        (notes.len(), problems),
        (1, None),
        "one bad file does not hide the others, and is known already"
    );
    fs::set_permissions(&scene.folder, Permissions::from_mode(0o777)).unwrap();
    scene.append("18", "y\n");
    let SpoolNotes { notes, problems } = scene.scan();
    assert!(notes.is_empty() && problems.unwrap()[0].as_str().contains("other users can write to it"));
    scene.spool.uid += 1;
    assert!(scene.problem().contains("it belongs to another user"));
    fs::rename(&scene.folder, scene.folder.with_file_name("elsewhere")).unwrap();
    symlink(scene.folder.with_file_name("elsewhere"), &scene.folder).unwrap();
    assert!(scene.problem().contains("it is not a folder"));
}

#[test]
fn lines_that_are_read_together_keep_their_order_and_later_ones_follow() {
    let mut scene = Scene::new();
    scene.append("17", (0..100).map(|n| format!("{n}\n")).collect::<String>());
    let mut notes = scene.scan().notes;
    notes.extend(scene.scan().notes);
    scene.append("17", "100\n");
    notes.extend(scene.scan().notes);
    let texts: Vec<_> = notes.iter().map(|note| note.text.to_string()).collect();
    assert_eq!(texts, (0..=100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(notes.windows(2).all(|pair| pair[1].mono_ns >= pair[0].mono_ns + LINE_STEP_NS));
}

#[test]
fn a_last_line_without_a_newline_is_reported_once_its_file_is_left_alone_until_it_is_complete() {
    let mut scene = Scene::new();
    scene.append("17", "epoch 1\nepoch 2");
    assert_eq!(scene.problem(), "");
    let file = OpenOptions::new().append(true).open(scene.path("17")).unwrap();
    file.set_modified(SystemTime::now() - std::time::Duration::from_secs(11)).unwrap();
    assert!(scene.problem().ends_with("17 are not read: its last line does not end with a newline"));
    scene.append("17", "\n");
    let SpoolNotes { notes, problems } = scene.scan();
    assert_eq!((notes[0].text.as_str(), problems), ("epoch 2", Some(Vec::new())));
}

#[test]
fn of_many_problems_the_first_are_named_and_the_others_counted() {
    let mut scene = Scene::new();
    (0..6).for_each(|rank| fs::create_dir(scene.path(&format!("17.{rank}"))).unwrap());
    let problems = scene.scan().problems.unwrap();
    assert_eq!(problems.len(), note::MAX_PROBLEMS);
    assert!(problems[2].as_str().contains("17.2 are not read"), "{problems:?}");
    assert!(problems[3].as_str().starts_with("3 further files in"), "{problems:?}");
}

#[test]
fn only_names_of_jobs_are_read() {
    let parsed = |name| parsed(name).map(|(job, suffix)| (job.0, suffix));
    assert_eq!(parsed("17"), Some((17, String::new())));
    assert_eq!(parsed("17.gpu-01"), Some((17, "gpu-01".to_owned())));
    assert_eq!(parsed("4294967295.3"), Some((4_294_967_295, "3".to_owned())));
    for other in ["", "17.", ".17", "017", "+17", "4294967296", "17.a b", "17.ä", "x", "17.\u{202e}"] {
        assert_eq!(parsed(other), None, "{other}");
    }
    assert_eq!(parsed(&format!("17.{}", "x".repeat(65))), None);
}

#[test]
fn a_file_that_grows_faster_than_it_is_read_does_not_keep_the_others_from_their_turn() {
    let mut scene = Scene::new();
    let many = "x\n".repeat(2 * note::MAX_PER_LINE);
    scene.append("18", "of another job\n");
    let read: Vec<String> = (0..3)
        .flat_map(|_| {
            scene.append("17", &many);
            scene.texts()
        })
        .collect();
    assert!(read.iter().any(|text| text == "of another job"), "{}", read.len());
}

#[test]
fn there_are_at_most_so_many_files() {
    let mut scene = Scene::new();
    (0..MAX_FILES + 5).for_each(|rank| scene.append(&format!("17.{rank}"), "x\n"));
    assert!(scene.problem().contains("only 256 files"));
    assert_eq!(scene.spool.files.len(), MAX_FILES);
    // Later the folder is not listed again, and the files are still too many.
    let jobs = [JobId(17), JobId(18)];
    for seconds in [10, 20] {
        let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let elapsed_ns = seconds * 1_000_000_000;
        let later = ScanTime { mono_ns: scene.mono_ns + elapsed_ns, wall_ns: wall_ns + elapsed_ns };
        assert_eq!(scene.spool.scan(&jobs, later).problems, None, "the same as before");
    }
}

#[test]
fn a_folder_that_fails_while_it_is_listed_costs_no_position() {
    let mut scene = Scene::new();
    scene.append("17", "epoch 1\n");
    scene.append("18", "epoch 1\n");
    assert_eq!(scene.texts().len(), 2);
    let names = [Ok(parsed("17")), Err(Errno::IO)];
    assert!(scene.spool.follow(names.into_iter(), &[JobId(17), JobId(18)]).is_err());
    assert_eq!(scene.texts(), [""; 0], "no line is read again");
}
