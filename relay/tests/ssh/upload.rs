//! The probe comes along: found at the same path, or put into the cache once and found there again.

use super::config::{User, expect};
use super::sshd::Sshd;
use nodeglass_relay::launch::LaunchError;
use nodeglass_relay::launch::upload::ProbeBinary;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Ends with 4 unless it lies in the cache; says which file it is and how it was called.
const ONLY_UPLOADED: &str = r#"case "$0" in *.cache/nodeglass/*) ;; *) exit 4;; esac
printf '\036NODEGLASS1 %s %s\n' "$0" "$*"; cat >/dev/null"#;

fn cached(sshd: &Sshd) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(sshd.home().join(".cache/nodeglass")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_probe_of_the_same_build_at_the_same_path_is_run_and_nothing_is_uploaded() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(r#"printf '\036NODEGLASS1 %s %s\n' "$0" "$*"; cat >/dev/null"#);
    let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
    let hash = ProbeBinary::find(Some(&probe)).unwrap().hash16().to_owned();
    let heard = expect(&mut stream, "\n").await;
    assert!(
        heard.contains(&format!("{} --expect {hash} --relay 000000000000abcd", probe.display())),
        "{heard}"
    );
    assert!(cached(&sshd).is_empty());
}

#[tokio::test]
async fn another_build_there_is_replaced_by_ours_once_and_found_again() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ONLY_UPLOADED);
    let folder = sshd.home().join(".cache/nodeglass");
    for _ in 0..2 {
        let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
        let heard = expect(&mut stream, "\n").await;
        assert!(heard.contains(".cache/nodeglass/node-probe-"), "{heard}");
        let [file] = &cached(&sshd)[..] else { panic!("{:?}", cached(&sshd)) };
        assert_eq!(fs::read(file).unwrap(), fs::read(&probe).unwrap());
        assert_eq!((mode(file), mode(&folder)), (0o700, 0o700));
    }
}

#[tokio::test]
async fn one_session_at_a_time_is_enough() {
    let Some(sshd) = Sshd::with("MaxSessions 1\n") else { return };
    let mut stream = User::of(&sshd).launch(&sshd.script(ONLY_UPLOADED)).await.unwrap();
    expect(&mut stream, "\n").await;
}

#[tokio::test]
async fn an_uploaded_probe_is_not_uploaded_again() {
    use std::os::unix::fs::MetadataExt;
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ONLY_UPLOADED);
    let mut inodes = Vec::new();
    for _ in 0..2 {
        let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
        expect(&mut stream, "\n").await;
        inodes.push(fs::metadata(&cached(&sshd)[0]).unwrap().ino());
    }
    assert_eq!(inodes[0], inodes[1]);
}

#[tokio::test]
async fn a_large_probe_arrives_whole_and_old_ones_are_cleared_away() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(&format!("{ONLY_UPLOADED}\nexit 0\n{}", "# padding\n".repeat(400_000)));
    let cache = sshd.home().join(".cache/nodeglass");
    fs::create_dir_all(&cache).unwrap();
    for (name, days) in
        [("node-probe-0123456789abcdef", "8 days ago"), ("node-probe-fedcba9876543210", "1 day ago")]
    {
        let touched = std::process::Command::new("touch").args(["-d", days]).arg(cache.join(name)).status();
        assert!(touched.unwrap().success());
    }
    let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
    expect(&mut stream, "\n").await;
    assert!(!cache.join("node-probe-0123456789abcdef").exists(), "older than a week");
    assert!(cache.join("node-probe-fedcba9876543210").exists(), "perhaps still in use");
    let uploaded =
        cached(&sshd).into_iter().find(|path| fs::metadata(path).unwrap().len() > 4_000_000).unwrap();
    assert_eq!(fs::read(uploaded).unwrap(), fs::read(&probe).unwrap());
}

#[tokio::test]
async fn a_wrong_build_in_the_cache_is_replaced() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ONLY_UPLOADED);
    let hash = ProbeBinary::find(Some(&probe)).unwrap().hash16().to_owned();
    let cache = sshd.home().join(".cache/nodeglass");
    fs::create_dir_all(&cache).unwrap();
    let damaged = cache.join(format!("node-probe-{hash}"));
    fs::write(&damaged, "#!/bin/sh\nexit 4\n").unwrap();
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o700)).unwrap();
    let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
    expect(&mut stream, "\n").await;
    assert_eq!(fs::read(damaged).unwrap(), fs::read(&probe).unwrap());
}

#[tokio::test]
async fn a_home_that_cannot_be_written_is_said_clearly() {
    let Some(sshd) = Sshd::start() else { return };
    fs::write(sshd.home().join(".cache"), "a file in the way").unwrap();
    match User::of(&sshd).launch(&sshd.script(ONLY_UPLOADED)).await {
        Err(LaunchError::Probe { why }) => {
            assert!(why.as_str().contains("~/.cache/nodeglass cannot be written"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_probe_that_fails_before_its_first_word_is_an_error_with_what_it_said() {
    let Some(sshd) = Sshd::start() else { return };
    match User::of(&sshd).launch(&sshd.script("echo version GLIBC_2.99 not found >&2; exit 1")).await {
        Err(LaunchError::Probe { why }) => assert!(why.as_str().contains("GLIBC_2.99"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(cached(&sshd).is_empty());
}

#[test]
fn a_probe_that_others_can_write_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let probe = dir.path().join("node-probe");
    fs::write(&probe, "x").unwrap();
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o757)).unwrap();
    let error = ProbeBinary::find(Some(&probe)).unwrap_err().to_string();
    assert!(error.contains("can be written by others") && error.contains("chmod go-w"), "{error}");
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(ProbeBinary::find(Some(&probe)).is_ok());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(ProbeBinary::find(Some(&probe)).is_err(), "whoever can write the folder can replace the file");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let missing = ProbeBinary::find(Some(&dir.path().join("nothing"))).unwrap_err().to_string();
    assert!(missing.contains("--probe PATH"), "{missing}");
}

#[tokio::test]
async fn a_hostile_path_never_reaches_a_command_line() {
    let Some(sshd) = Sshd::start() else { return };
    let folder = sshd.path("a'; touch hacked; '");
    fs::create_dir(&folder).unwrap();
    let probe = folder.join("node-probe");
    fs::copy(sshd.script(ONLY_UPLOADED), &probe).unwrap();
    let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
    expect(&mut stream, "\n").await;
    assert!(!sshd.home().join("hacked").exists());
    assert_eq!(cached(&sshd).len(), 1, "it was uploaded instead");
}
