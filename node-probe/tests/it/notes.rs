//! What jobs write into the spool folder is printed, and again by the next probe.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use crate::harness::{Node, Probe};
use nodeglass_protocol::JobId;
use nodeglass_protocol::probe::{Control, ProbeLine, SpoolNotes};
use serde_json::json;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

fn append(home: &Path, name: &str, text: &str) {
    let path = home.join(".nodeglass-notes").join(name);
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The next notes, with their offsets.
fn next(probe: &mut Probe) -> Vec<(u32, u64, String)> {
    let SpoolNotes { notes, .. } = probe.until(|line| match line {
        ProbeLine::Notes(notes) => Some(notes),
        _ => None,
    });
    notes.iter().map(|note| (note.job.0, note.offset, note.text.to_string())).collect()
}

#[test]
fn lines_of_running_jobs_are_printed_as_they_are_written_and_by_each_probe() {
    let home = tempfile::tempdir().unwrap();
    DirBuilder::new().mode(0o700).create(home.path().join(".nodeglass-notes")).unwrap();
    append(home.path(), "17", "before the probe\n");
    append(home.path(), "18", "of another job\n");
    let node = Node::new(&json!({"gpus": [{"uuid": "GPU-a"}]}));
    let start = || {
        let mut command = node.command();
        command.env("HOME", home.path());
        let mut probe = Probe::start(command);
        probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
        probe.send(&Control::Notes { jobs: vec![JobId(17)] });
        probe
    };
    let mut probe = start();
    assert_eq!(next(&mut probe), [(17, 0, "before the probe".to_owned())]);
    append(home.path(), "17", "epoch 1\nincompl");
    assert_eq!(next(&mut probe), [(17, 17, "epoch 1".to_owned())]);
    probe.send(&Control::Notes { jobs: vec![JobId(17), JobId(18)] });
    assert_eq!(next(&mut probe), [(18, 0, "of another job".to_owned())]);
    append(home.path(), "17", "ete\n");
    assert_eq!(next(&mut probe), [(17, 25, "incomplete".to_owned())]);
    drop(probe);
    let mut probe = start();
    let texts: Vec<_> = next(&mut probe).into_iter().map(|(_, _, text)| text).collect();
    assert_eq!(texts, ["before the probe", "epoch 1", "incomplete"]);
    fs::remove_file(home.path().join(".nodeglass-notes/17")).unwrap();
    fs::create_dir(home.path().join(".nodeglass-notes/17")).unwrap();
    let problem = probe.until(|line| match line {
        ProbeLine::Notes(notes) => notes.problems.and_then(|problems| problems.first().cloned()),
        _ => None,
    });
    assert!(problem.as_str().ends_with("it is not a regular file"), "{problem}");
}
