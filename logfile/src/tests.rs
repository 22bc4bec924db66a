//! What a guest's walk admits and refuses, as far as a single user can test it;
//! `tests/it/threats/log_files.rs` tests it with several users.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

const GUEST: Audience = Audience::Guest { since_s: 0 };

/// A folder whose path is free of symbolic links.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

fn written(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn text(path: &Path, audience: Audience) -> Result<String, OpenError> {
    let file = LogFile::open(path, audience)?;
    Ok(String::from_utf8(file.read(0, file.size).unwrap()).unwrap())
}

fn distrust(path: &Path) -> Distrust {
    match text(path, GUEST) {
        Err(OpenError::Distrusted(why)) => why,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn a_log_is_reached_through_links_dots_and_parents_of_the_owners() {
    let (_folder, base) = folder();
    fs::create_dir_all(base.join("real/run/logs")).unwrap();
    written(&base.join("real/run/logs/job.out"), "epoch 1\n");
    symlink(base.join("real"), base.join("absolute")).unwrap();
    symlink("../real/./run", base.join("real/relative")).unwrap();
    symlink("job.out", base.join("real/run/logs/latest")).unwrap();
    for path in [
        "real/run/logs/job.out",
        "absolute/run/logs/job.out",
        "absolute/relative/logs/latest",
        "real//run/./logs/../../run/logs/job.out",
        "../../../../../../../..",
    ] {
        let path = if path.starts_with("..") {
            // The parent of the root is the root.
            base.join(path).join(base.strip_prefix("/").unwrap()).join("real/run/logs/job.out")
        } else {
            base.join(path)
        };
        assert_eq!(text(&path, GUEST).unwrap(), "epoch 1\n", "{}", path.display());
    }
}

#[test]
fn a_cycle_of_links_is_detected() {
    let (_folder, base) = folder();
    symlink(base.join("b"), base.join("a")).unwrap();
    symlink(base.join("a"), base.join("b")).unwrap();
    assert_eq!(distrust(&base.join("a")), Distrust::TooManyLinks);
}

#[test]
fn what_is_no_regular_file_is_named_and_never_opened() {
    let (_folder, base) = folder();
    rustix::fs::mkfifoat(rustix::fs::CWD, base.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    written(&base.join("file"), "x");
    for (path, kind) in [("pipe", "a pipe"), (".", "a folder"), ("/dev/null", "a device")] {
        for audience in [GUEST, Audience::Owner] {
            let found = LogFile::open(&base.join(path), audience);
            assert!(matches!(&found, Err(OpenError::Kind(found)) if *found == kind), "{path}: {found:?}");
        }
    }
    for path in ["none", "none/job.out", "file/job.out"] {
        for audience in [GUEST, Audience::Owner] {
            let found = LogFile::open(&base.join(path), audience);
            assert!(matches!(found, Err(OpenError::Missing)), "{path}: {found:?}");
        }
    }
    assert!(matches!(LogFile::open(Path::new("job.out"), GUEST), Err(OpenError::Relative)));
}

#[test]
fn a_file_from_before_the_job_is_not_its_log() {
    let (_folder, base) = folder();
    let log = base.join("job.out");
    written(&log, "x\n");
    let now_s = LogFile::open(&log, GUEST).unwrap().written_s;
    let of_job = |since_s| text(&log, Audience::Guest { since_s });
    assert!(of_job(now_s + 100).is_ok(), "clocks differ a little");
    assert!(matches!(of_job(now_s + 1_000), Err(OpenError::Distrusted(Distrust::OlderThanJob))));
    assert!(text(&log, Audience::Owner).is_ok());
}

#[test]
fn a_file_with_a_second_name_is_not_shown_to_a_guest() {
    let (_folder, base) = folder();
    written(&base.join("secret"), "x\n");
    fs::hard_link(base.join("secret"), base.join("job.out")).unwrap();
    assert_eq!(distrust(&base.join("job.out")), Distrust::SeveralNames);
    fs::remove_file(base.join("secret")).unwrap();
    assert!(text(&base.join("job.out"), GUEST).is_ok());
}

/// Renames the owner's own files within a folder that others can write to.
#[test]
fn behind_a_folder_that_others_can_write_only_what_they_can_read_is_shown() {
    let (_folder, base) = folder();
    mode(&base, 0o755);
    let (shared, run) = (base.join("shared"), base.join("shared/run"));
    fs::create_dir_all(&run).unwrap();
    written(&run.join("job.out"), "x\n");
    symlink(&base, base.join("shared/out")).unwrap();
    written(&base.join("private"), "x\n");
    mode(&base.join("private"), 0o600);
    // The log's folder, then the log; the last column states whether a guest sees it.
    for (shared_mode, run_mode, log_mode, shown) in [
        (0o755, 0o700, 0o600, true),
        (0o777, 0o755, 0o644, true),
        (0o777, 0o755, 0o640, false),
        (0o777, 0o700, 0o644, false),
        (0o777, 0o711, 0o644, true),
        (0o1777, 0o700, 0o600, true),
    ] {
        mode(&shared, shared_mode);
        mode(&run, run_mode);
        mode(&run.join("job.out"), log_mode);
        let found = text(&run.join("job.out"), GUEST);
        assert_eq!(found.is_ok(), shown, "{shared_mode:o} {run_mode:o} {log_mode:o}: {found:?}");
        if !shown {
            assert_eq!(distrust(&run.join("job.out")), Distrust::Replaceable);
        }
    }
    // A link of the owner that may have been renamed leads to nothing private either.
    mode(&shared, 0o777);
    assert_eq!(distrust(&shared.join("out/private")), Distrust::Replaceable);
    assert_eq!(text(&base.join("private"), GUEST).unwrap(), "x\n");
    // Where no other user has access, no other user can rename.
    mode(&base, 0o700);
    mode(&run, 0o700);
    mode(&run.join("job.out"), 0o600);
    assert!(text(&run.join("job.out"), GUEST).is_ok());
}

#[test]
fn no_path_leads_among_keys_by_whatever_name() {
    let (_folder, base) = folder();
    fs::create_dir_all(base.join("ssh/logs")).unwrap();
    written(&base.join("ssh/logs/job.out"), "x\n");
    symlink(base.join("ssh"), base.join("innocent")).unwrap();
    let keys = id(&rustix::fs::stat(base.join("ssh")).unwrap());
    let owner = rustix::process::geteuid().as_raw();
    let guard = Guard { owner, since_s: 0, credentials: vec![keys] };
    // The relay's private folder for temporary files, also if another user took its plain name.
    let runtime = ["", "-f00d"].map(|ending| format!("nodeglass-{owner}{ending}/job.out"));
    for path in &runtime {
        fs::create_dir_all(base.join(path).parent().unwrap()).unwrap();
        written(&base.join(path), "x\n");
    }
    for path in ["ssh/logs/job.out", "innocent/logs/job.out", &runtime[0], &runtime[1]] {
        let found = guard.open(&base.join(path));
        assert!(matches!(found, Err(OpenError::Distrusted(Distrust::Credentials))), "{path}: {found:?}");
    }
}
