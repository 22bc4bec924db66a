//! The probe's upload: found at the same path, or uploaded to the cache once and found there again.

use super::config::{User, expect};
use super::sshd::Sshd;
use nodeglass_launch::upload::ProbeBinary;
use nodeglass_launch::{LaunchError, Launcher};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Exits with 4 unless it is in the cache; prints its path and arguments.
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
    let probe = sshd.script(r#"printf '\036NODEGLASS1 %s %s\n' "$PWD/${0#./}" "$*"; cat >/dev/null"#);
    let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
    let hash = ProbeBinary::find(Some(&probe)).unwrap().hash16().to_owned();
    let output = expect(&mut stream, "\n").await;
    assert!(output.contains(&format!("{} --expect {hash} --relay ", probe.display())), "{output}");
    assert!(cached(&sshd).is_empty());
}

#[tokio::test]
async fn f22_another_build_there_is_replaced_by_ours_once_and_found_again() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ONLY_UPLOADED);
    let folder = sshd.home().join(".cache/nodeglass");
    for _ in 0..2 {
        let mut stream = User::of(&sshd).launch(&probe).await.unwrap();
        let output = expect(&mut stream, "\n").await;
        assert!(output.contains(".cache/nodeglass/node-probe-"), "{output}");
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
async fn a_large_probe_is_uploaded_completely_and_old_ones_are_removed() {
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

/// Prints its own path; exits with 4 at the path of the original.
const PRINT_PATH: &str = r#"p=$PWD/${0#./}; case "$p" in */bin/node-probe) exit 4;; esac
printf '\036NODEGLASS1 %s %s\n' "$p" "$*"; cat >/dev/null"#;

/// Location of the probe on a host whose `~/.cache` cannot be created.
async fn put(sshd: &Sshd) -> String {
    let _ = fs::write(sshd.home().join(".cache"), "a file in the way");
    let mut stream = User::of(sshd).launch(&sshd.script(PRINT_PATH)).await.unwrap();
    expect(&mut stream, "\n").await
}

#[tokio::test]
async fn without_a_usable_home_the_probe_is_put_into_another_folder_of_the_user_alone() {
    let Some(sshd) = Sshd::start() else { return };
    let output = put(&sshd).await;
    let uid = own_uid();
    let folder = sshd.path("tmp").join(format!("nodeglass-{uid}"));
    assert!(output.contains(&format!("{}/node-probe-", folder.display())), "{output}");
    assert_eq!(mode(&folder), 0o700);
    // It is found there again; the session's folder is preferred if there is one.
    let inode = |folder: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()).unwrap().ino()
    };
    let before = inode(&folder);
    put(&sshd).await;
    assert_eq!(inode(&folder), before);
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(sshd.path("run")).unwrap();
    let output = put(&sshd).await;
    assert!(output.contains(&format!("{}/nodeglass/node-probe-", sshd.path("run").display())), "{output}");
}

fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid()
}

#[tokio::test]
async fn t24_files_of_others_in_a_shared_folder_are_neither_used_nor_followed() {
    use std::os::unix::fs::{chown, symlink};
    let Some(sshd) = Sshd::start() else { return };
    let (tmp, run) = (sshd.path("tmp"), sshd.path("run"));
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).unwrap();
    let place = tmp.join(format!("nodeglass-{}", own_uid()));
    fs::create_dir(&run).unwrap();
    // A link to a folder of ours, which others could use to write there.
    let ours = sshd.path("ours");
    fs::create_dir(&ours).unwrap();
    symlink(&ours, run.join("nodeglass")).unwrap();
    let output = put(&sshd).await;
    assert!(output.contains(&place.display().to_string()), "{output}");
    assert_eq!((fs::read_dir(&ours).unwrap().count(), mode(&ours)), (0, 0o755));
    // A folder that others can write, with a program under the probe's name.
    let probe = fs::read_dir(&place).unwrap().next().unwrap().unwrap().path();
    evil(&sshd, &probe);
    for spoil in [0o777, 0o770] {
        fs::set_permissions(&place, fs::Permissions::from_mode(spoil)).unwrap();
        if chown(&place, Some(0), Some(65_533)).is_err() {
            eprintln!("skipped: only root can give a folder away");
            return;
        }
        let output = put(&sshd).await;
        assert!(!sshd.home().join("hacked").exists(), "{spoil:o}: it was run");
        assert!(!output.contains(&place.display().to_string()), "{output}");
    }
    let _ = fs::remove_dir_all(format!("/dev/shm/nodeglass-{}", own_uid()));
}

#[tokio::test]
async fn an_upload_that_the_host_ends_in_the_middle_is_reported_at_once_with_all_reasons() {
    let Some(sshd) = Sshd::start() else { return };
    // No file may be larger than this (KiB): as on a full disk, the host stops reading the program
    // before its end.
    fs::write(sshd.home().join(".bashrc"), "ulimit -f 100\n").unwrap();
    let probe = sshd.script(&format!("{ONLY_UPLOADED}\nexit 0\n{}", "# padding\n".repeat(800_000)));
    let began = std::time::Instant::now();
    let error = User::of(&sshd).launch(&probe).await.unwrap_err().to_string();
    assert!(began.elapsed() < std::time::Duration::from_secs(50), "it did not wait for a minute to pass");
    assert!(error.starts_with("the probe could not be copied to the node: ~/.cache/nodeglass: "), "{error}");
    assert!(error.contains("; /dev/shm/nodeglass-"), "every place was tried: {error}");
    assert!(cached(&sshd).is_empty(), "nothing is left of it: {:?}", cached(&sshd));
    let _ = fs::remove_dir(format!("/dev/shm/nodeglass-{}", own_uid()));
}

#[tokio::test]
async fn nodes_that_share_a_home_get_the_probe_once_and_all_run_it() {
    let log = |dir: &Path| dir.join("commands").display().to_string();
    let Some(sshd) = Sshd::with_key(|dir| {
        let log = log(dir);
        // Logs every command, one per line.
        format!(
            "ForceCommand sh -c 'echo \"$SSH_ORIGINAL_COMMAND\" | tr \"\\n\" \" \" >> {log}; echo >> {log}; exec sh -c \"$SSH_ORIGINAL_COMMAND\"'\n"
        )
    }) else {
        return;
    };
    let launcher = std::sync::Arc::new(User::of(&sshd).launcher(&sshd.script(ONLY_UPLOADED)));
    let launches = (0..12).map(|n| {
        let launcher = std::sync::Arc::clone(&launcher);
        let name = nodeglass_protocol::NodeName::new(format!("node-{n}")).unwrap();
        tokio::spawn(async move { launcher.launch(&name).await })
    });
    for launch in launches.collect::<Vec<_>>() {
        let mut stream = launch.await.unwrap().unwrap();
        expect(&mut stream, ".cache/nodeglass/node-probe-").await;
    }
    let commands = fs::read_to_string(sshd.path("commands")).unwrap();
    let uploads = commands.lines().filter(|line| line.contains("NODEGLASS-UPLOAD")).count();
    assert_eq!(uploads, 1, "{commands}");
    assert_eq!(cached(&sshd).len(), 1, "{:?}", cached(&sshd));
}

#[tokio::test]
async fn two_uploads_into_one_home_at_the_same_time_do_not_disturb_each_other() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(&format!("{ONLY_UPLOADED}\nexit 0\n{}", "# padding\n".repeat(400_000)));
    // Independent relays.
    let launchers: Vec<_> = (0..4).map(|_| User::of(&sshd).launcher(&probe)).collect();
    let node = super::config::node();
    let launches = launchers.iter().map(|launcher| launcher.launch(&node));
    for stream in futures_util::future::join_all(launches).await {
        expect(&mut stream.unwrap(), ".cache/nodeglass/node-probe-").await;
    }
    let [file] = &cached(&sshd)[..] else { panic!("{:?}", cached(&sshd)) };
    assert_eq!(fs::read(file).unwrap(), fs::read(&probe).unwrap());
}

#[tokio::test]
async fn a_node_with_an_unsupported_c_library_is_reported() {
    let Some(sshd) = Sshd::start() else { return };
    let tools = sshd.path("tools");
    fs::create_dir(&tools).unwrap();
    let tool = |name: &str, body: &str| {
        fs::write(tools.join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    fs::write(sshd.home().join(".bashrc"), format!("PATH={}:$PATH\n", tools.display())).unwrap();
    // This test's executable, which is built like the probe. The node has no file at its path.
    let folder = sshd.path("a folder");
    fs::create_dir(&folder).unwrap();
    let probe = folder.join("node-probe");
    fs::copy(std::env::current_exe().unwrap(), &probe).unwrap();
    for (getconf, ldd, wanted) in [
        ("echo glibc 2.12", "exit 1", "node-1 has glibc 2.12; node-probe needs 2."),
        ("exit 1", "echo 'ldd (GNU libc) 2.12'; exit 0", "node-1 has glibc 2.12; node-probe needs 2."),
        ("exit 1", "echo 'musl libc (x86_64)' >&2; exit 1", "node-1 has musl instead of glibc"),
    ] {
        tool("getconf", getconf);
        tool("ldd", ldd);
        match User::of(&sshd).launch(&probe).await {
            Err(LaunchError::Incompatible { why, advice }) => {
                assert!(why.as_str().starts_with(wanted), "{why}");
                assert!(advice.as_str().contains("--probe PATH"), "{advice}");
            }
            other => panic!("{other:?}"),
        }
    }
    tool("uname", "echo s390x");
    match User::of(&sshd).launch(&probe).await {
        Err(LaunchError::Incompatible { why, .. }) => assert!(why.as_str().contains("s390x"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(cached(&sshd).is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_probe_that_the_dynamic_linker_refuses_is_explained() {
    let Some(sshd) = Sshd::start() else { return };
    let linker =
        "echo \"$0: /lib64/libc.so.6: version \\`GLIBC_2.34' not found (required by $0)\" >&2; exit 1";
    match User::of(&sshd).launch(&sshd.script(linker)).await {
        Err(LaunchError::Incompatible { why, .. }) => {
            assert_eq!(why.as_str(), "node-1 has a glibc older than 2.34, which node-probe needs");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_probe_that_fails_before_its_first_line_is_an_error_with_its_stderr() {
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
    assert!(error.contains("is writable by others") && error.contains("chmod go-w"), "{error}");
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(ProbeBinary::find(Some(&probe)).is_ok());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(
        ProbeBinary::find(Some(&probe)).is_err(),
        "users who can write to the folder can replace the file"
    );
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let below = dir.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    let probe = below.join("node-probe");
    fs::write(&probe, "x").unwrap();
    fs::set_permissions(dir.path().join("a"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = ProbeBinary::find(Some(&probe)).unwrap_err().to_string();
    let folder = dir.path().join("a").canonicalize().unwrap();
    assert!(error.contains(&format!("because {} is writable by others", folder.display())), "{error}");
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

/// Launches a script that the node has neither at its path nor in the cache; its output shows that
/// it was uploaded.
async fn uploads(sshd: &Sshd) {
    let mut stream = User::of(sshd).launch(&sshd.script(ONLY_UPLOADED)).await.unwrap();
    expect(&mut stream, ".cache/nodeglass/node-probe-").await;
}

/// A program that creates a file when it runs.
fn evil(sshd: &Sshd, path: &Path) {
    let trace = sshd.home().join("hacked");
    fs::write(path, format!("#!/bin/sh\ntouch {}\nprintf '\\036NODEGLASS1 evil\\n'; cat\n", trace.display()))
        .unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Path of the uploaded probe.
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
async fn t24_another_users_probe_is_run_neither_from_the_cache_nor_at_the_same_path() {
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
    // Another user's program has the same path on the node: shared folders such as /tmp are local to
    // each node.
    fs::remove_file(&place).unwrap();
    let path = sshd.script(ONLY_UPLOADED);
    let launcher = User::of(&sshd).launcher(&path);
    evil(&sshd, &path);
    chown(&path, Some(65_533), None).unwrap();
    let error = launcher.launch(&super::config::node()).await.unwrap_err();
    assert!(!sshd.home().join("hacked").exists(), "it was run");
    assert!(
        error.to_string().contains("belongs to another user"),
        "nor is what lies there put there: {error}"
    );
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
async fn t24_a_cache_that_is_a_link_to_a_folder_of_another_is_not_used() {
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
    let mut stream = User::of(&sshd).launch(&sshd.script(PRINT_PATH)).await.unwrap();
    let output = expect(&mut stream, "\n").await;
    assert!(output.contains(&sshd.path("tmp").display().to_string()), "{output}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing was put there");
}

#[test]
fn t24_another_users_probe_is_not_run_whatever_its_mode() {
    use std::os::unix::fs::chown;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("theirs");
    fs::create_dir(&folder).unwrap();
    let probe = folder.join("node-probe");
    fs::write(&probe, "x").unwrap();
    for path in [&probe, &folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o555)).unwrap();
    }
    assert!(ProbeBinary::find(Some(&probe)).is_ok());
    if chown(&folder, Some(7_101), Some(7_101)).is_err() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    // Of the folder alone, and of both.
    for (path, by) in [(&folder, &folder), (&probe, &probe)] {
        chown(path, Some(7_101), Some(7_101)).unwrap();
        let error = ProbeBinary::find(Some(&probe)).unwrap_err().to_string();
        let wanted =
            format!("because {} belongs to another user (uid 7101)", by.canonicalize().unwrap().display());
        assert!(error.contains(&wanted) && error.contains("copy the probe"), "{error}");
    }
}

#[tokio::test]
async fn t24_a_local_probe_that_was_exchanged_since_the_start_is_not_run() {
    use nodeglass_launch::local::LocalLauncher;
    let dir = tempfile::tempdir().unwrap();
    let probe = dir.path().join("node-probe");
    let trace = dir.path().join("hacked");
    let write = |body: &str| {
        fs::write(&probe, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&probe, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("printf '\\036NODEGLASS1 x\\n'; cat >/dev/null");
    let launcher = LocalLauncher::new(ProbeBinary::find(Some(&probe)).unwrap(), 7);
    let mut stream = launcher.launch(&super::config::node()).await.unwrap();
    expect(&mut stream, "NODEGLASS1").await;
    drop(stream);
    fs::remove_file(&probe).unwrap();
    write(&format!("touch {}", trace.display()));
    let error = launcher.launch(&super::config::node()).await.unwrap_err().to_string();
    assert!(error.contains("no longer the one this relay was started with"), "{error}");
    // Nor a file with the same content that another user can write to meanwhile.
    fs::remove_file(&probe).unwrap();
    write("printf '\\036NODEGLASS1 x\\n'; cat >/dev/null");
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o757)).unwrap();
    let error = launcher.launch(&super::config::node()).await.unwrap_err().to_string();
    assert!(error.contains("is writable by others"), "{error}");
    assert!(!trace.exists());
}

#[test]
fn t17_a_file_that_is_no_probe_is_refused_with_a_message() {
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
    // A relative path is relative to the relay.
    let probe = dir.path().join("node-probe");
    fs::write(&probe, "x").unwrap();
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let relative = PathBuf::from(format!("{up}{}", probe.strip_prefix("/").unwrap().display()));
    assert_eq!(ProbeBinary::find(Some(&relative)).unwrap().path(), probe.canonicalize().unwrap());
}
