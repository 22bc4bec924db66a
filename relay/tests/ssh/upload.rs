//! The probe comes along: found at the same path, or put into the cache once and found there again.

use super::config::{User, expect};
use super::sshd::Sshd;
use nodeglass_relay::launch::upload::ProbeBinary;
use nodeglass_relay::launch::{LaunchError, Launcher};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Ends with 4 unless it lies in the cache; says which file it is and how it was called.
const ONLY_UPLOADED: &str = r#"p=$PWD/${0#./}; case "$p" in *.cache/nodeglass/*) ;; *) exit 4;; esac
printf '\036NODEGLASS1 %s %s\n' "$p" "$*"; cat >/dev/null"#;

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
async fn t24_a_wrong_build_in_the_cache_is_replaced() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ONLY_UPLOADED);
    let hash = ProbeBinary::find(Some(&probe)).unwrap().hash16().to_owned();
    let cache = sshd.home().join(".cache/nodeglass");
    fs::create_dir_all(&cache).unwrap();
    let damaged = cache.join(format!("node-probe-{hash}"));
    fs::write(&damaged, "#!/bin/sh\nexit 4\n").unwrap();
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
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
fn t24_a_probe_that_others_can_write_is_not_run() {
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
    let below = dir.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    let probe = below.join("node-probe");
    fs::write(&probe, "x").unwrap();
    fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = ProbeBinary::find(Some(&probe)).unwrap_err().to_string();
    let folder = dir.path().join("a").canonicalize().unwrap();
    assert!(error.contains(&format!("because {} can be written", folder.display())), "{error}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&probe, &link).unwrap();
    assert!(ProbeBinary::find(Some(&link)).is_err(), "a link is as safe as where it leads");
    let missing = ProbeBinary::find(Some(&dir.path().join("nothing"))).unwrap_err().to_string();
    assert!(missing.contains("--probe PATH"), "{missing}");
}

#[tokio::test]
async fn t17_a_hostile_path_never_reaches_a_command_line() {
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

/// Starts a script that is neither at the same path there nor in the cache; what it says shows that it was uploaded.
async fn uploads(sshd: &Sshd) {
    let mut stream = User::of(sshd).launch(&sshd.script(ONLY_UPLOADED)).await.unwrap();
    expect(&mut stream, ".cache/nodeglass/node-probe-").await;
}

/// A program that leaves a trace where it is run.
fn evil(sshd: &Sshd, path: &Path) {
    let trace = sshd.home().join("hacked");
    fs::write(path, format!("#!/bin/sh\ntouch {}\nprintf '\\036NODEGLASS1 evil\\n'; cat\n", trace.display()))
        .unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The place of the uploaded probe.
fn place(sshd: &Sshd) -> PathBuf {
    let hash = ProbeBinary::find(Some(&sshd.script(ONLY_UPLOADED))).unwrap().hash16().to_owned();
    let cache = sshd.home().join(".cache/nodeglass");
    fs::create_dir_all(&cache).unwrap();
    cache.join(format!("node-probe-{hash}"))
}

#[tokio::test]
async fn t24_a_probe_in_a_cache_that_others_can_write_is_replaced_and_not_run() {
    let Some(sshd) = Sshd::start() else { return };
    for (folder, file) in [(0o777, 0o755), (0o772, 0o755), (0o700, 0o777), (0o700, 0o752)] {
        let place = place(&sshd);
        evil(&sshd, &place);
        fs::set_permissions(&place, fs::Permissions::from_mode(file)).unwrap();
        fs::set_permissions(place.parent().unwrap(), fs::Permissions::from_mode(folder)).unwrap();
        uploads(&sshd).await;
        assert!(!sshd.home().join("hacked").exists(), "{folder:o} {file:o}: it was run");
        assert_eq!((mode(&place), mode(place.parent().unwrap())), (0o700, 0o700));
        fs::remove_file(&place).unwrap();
    }
}

#[tokio::test]
async fn t24_a_probe_of_somebody_else_s_is_not_run_in_the_cache_nor_at_the_same_path() {
    use std::os::unix::fs::chown;
    let Some(sshd) = Sshd::start() else { return };
    let place = place(&sshd);
    evil(&sshd, &place);
    fs::set_permissions(place.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    if chown(&place, Some(65_533), None).is_err() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    uploads(&sshd).await;
    assert!(!sshd.home().join("hacked").exists(), "it was run");
    // At the same path there lies somebody else's program: a folder for all is another one on each node.
    fs::remove_file(&place).unwrap();
    let path = sshd.script(ONLY_UPLOADED);
    let launcher = User::of(&sshd).launcher(&path);
    evil(&sshd, &path);
    chown(&path, Some(65_533), None).unwrap();
    let error = launcher.launch(&super::config::node()).await.unwrap_err();
    assert!(!sshd.home().join("hacked").exists(), "it was run");
    assert!(error.to_string().contains("no longer the one"), "nor is what lies there now put there: {error}");
}

#[tokio::test]
async fn t24_links_in_the_cache_are_not_followed() {
    use std::os::unix::fs::symlink;
    let Some(sshd) = Sshd::start() else { return };
    let place = place(&sshd);
    let elsewhere = sshd.path("elsewhere");
    evil(&sshd, &elsewhere);
    symlink(&elsewhere, &place).unwrap();
    fs::set_permissions(place.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    uploads(&sshd).await;
    assert!(!sshd.home().join("hacked").exists(), "it was run");
    assert!(!fs::symlink_metadata(&place).unwrap().is_symlink());
    assert!(fs::read_to_string(&elsewhere).unwrap().contains("evil"), "nothing was written through the link");
}

#[tokio::test]
async fn t24_a_cache_that_is_a_link_to_a_folder_of_another_is_refused_with_a_sentence() {
    use std::os::unix::fs::{chown, symlink};
    let Some(sshd) = Sshd::start() else { return };
    let folder = sshd.path("theirs");
    fs::create_dir(&folder).unwrap();
    if chown(&folder, Some(65_533), None).is_err() {
        eprintln!("skipped: only root can give a folder away");
        return;
    }
    fs::create_dir(sshd.home().join(".cache")).unwrap();
    symlink(&folder, sshd.home().join(".cache/nodeglass")).unwrap();
    let error = User::of(&sshd).launch(&sshd.script(ONLY_UPLOADED)).await.unwrap_err().to_string();
    assert!(error.contains("belongs to somebody else"), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing was put there");
}

#[test]
fn t17_what_is_no_probe_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    for (path, word) in [
        (dir.path().to_owned(), "is not a program"),
        (empty, "is not a program"),
        ("/dev/null".into(), "is not a program"),
        ("no/such/probe".into(), "cannot read"),
        ("$(touch x)".into(), "cannot read"),
        ("a\0b".into(), "cannot read"),
        (format!("/{}", "x".repeat(10_000)).into(), "cannot read"),
    ] {
        let error = ProbeBinary::find(Some(&path)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    // A relative one is one from here.
    let probe = dir.path().join("node-probe");
    fs::write(&probe, "x").unwrap();
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let relative = PathBuf::from(format!("{up}{}", probe.strip_prefix("/").unwrap().display()));
    assert_eq!(ProbeBinary::find(Some(&relative)).unwrap().path(), probe.canonicalize().unwrap());
}
