//! A runtime directory that somebody else prepared keeps the relay from starting, and is left as it was.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::relay::TestRelay;
use nodeglass_tests::skip;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

/// The runtime directory of a relay whose home is `home`.
const DIR: &str = "nodeglass";

/// The relay does not start in `home`, shows no link, and says these words.
fn refuses(home: &Path, words: &[&str]) -> Result<()> {
    let output = TestRelay::command(home)?.args(["--demo", "--bind", "127.0.0.1:0"]).output()?;
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(!output.status.success(), "it should refuse; it said:\n{said}");
    ensure!(!out.contains("#k="), "it showed a link:\n{out}");
    for word in words {
        ensure!(said.contains(word), "{word:?} is missing in:\n{said}");
    }
    ensure!(!said.contains("panicked") && said.lines().count() <= 3, "not one clear sentence:\n{said}");
    Ok(())
}

/// A home that only its owner can look into, as a session's directory is.
fn private_home() -> Result<tempfile::TempDir> {
    let home = tempfile::tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700))?;
    Ok(home)
}

fn entries(dir: &Path) -> Result<usize> {
    Ok(fs::read_dir(dir)?.count())
}

#[test]
fn t23_a_runtime_directory_that_is_a_symlink_is_refused_and_its_target_untouched() -> Result<()> {
    let (home, elsewhere) = (private_home()?, tempfile::tempdir()?);
    symlink(elsewhere.path(), home.path().join(DIR))?;
    refuses(home.path(), &["is not a directory", "XDG_RUNTIME_DIR"])?;
    ensure!(entries(elsewhere.path())? == 0, "something was written where the link leads");
    Ok(())
}

#[test]
fn t23_a_runtime_directory_accessible_to_others_is_refused_and_not_repaired() -> Result<()> {
    let home = private_home()?;
    let dir = home.path().join(DIR);
    fs::create_dir(&dir)?;
    for mode in [0o755, 0o770, 0o1777] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode))?;
        refuses(home.path(), &["is accessible to others", "chmod 700"])?;
        ensure!(dir.metadata()?.mode() & 0o7777 == mode && entries(&dir)? == 0, "it was touched");
    }
    Ok(())
}

#[test]
fn t23_a_runtime_directory_of_another_user_is_refused() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let home = private_home()?;
    let dir = home.path().join(DIR);
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
    chown(&dir, Some(65_534), None)?;
    refuses(home.path(), &["belongs to another user (uid 65534)"])?;
    ensure!(entries(&dir)? == 0, "something was written into it");
    Ok(())
}

#[test]
fn t23_a_file_with_the_name_of_the_key_is_neither_followed_nor_read() -> Result<()> {
    let home = private_home()?;
    let dir = home.path().join(DIR);
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
    let victim = home.path().join("victim");
    fs::write(&victim, "untouched")?;
    for name in ["1.key", "4194304.key"] {
        symlink(&victim, dir.join(name))?;
    }
    let output = TestRelay::command(home.path())?.arg("link").output()?;
    ensure!(!output.status.success(), "there is no relay to be found");
    let said = String::from_utf8(output.stderr).context("one sentence")?;
    ensure!(said.contains("no relay of yours is running"), "{said}");
    ensure!(fs::read_to_string(&victim)? == "untouched", "the link was followed");
    Ok(())
}

/// A relay that finds no directory of a session, and what its owner's other commands find, in this environment.
fn is_found_again(environment: &[(&str, &OsStr)]) -> Result<TestRelay> {
    let relay = TestRelay::start_in(&["--demo"], environment.iter().copied())?;
    let run = |args: &[&str]| -> Result<String> {
        let command = &mut TestRelay::command(relay.home())?;
        let output = command.args(args).envs(environment.iter().copied()).output()?;
        ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(run(&["link"])?.trim() == relay.link().url, "`relay link` finds another");
    ensure!(run(&["share", "list"])? == "no open shares\n");
    ensure!(run(&["--demo"])?.contains("already"), "a second relay does not find the first");
    Ok(relay)
}

#[test]
fn t23_a_name_in_tmp_taken_by_another_user_does_not_prevent_a_start() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let shared = tempfile::tempdir()?;
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777))?;
    let taken = shared.path().join(format!("nodeglass-{}", rustix::process::geteuid().as_raw()));
    fs::create_dir(&taken)?;
    fs::set_permissions(&taken, fs::Permissions::from_mode(0o777))?;
    chown(&taken, Some(65_534), None)?;
    let environment = [("XDG_RUNTIME_DIR", OsStr::new("")), ("TMPDIR", shared.path().as_os_str())];
    is_found_again(&environment)?;
    ensure!(entries(&taken)? == 0, "something was written where others can read it");
    // The next relay uses the same directory again.
    is_found_again(&environment)?;
    ensure!(entries(shared.path())? == 2, "directories pile up");
    Ok(())
}

/// A file system with no room, for as long as its guard is there.
struct Full(tempfile::TempDir);

impl Full {
    fn mount() -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4k,mode=0700", "tmpfs"]).arg(folder.path());
        if !mount.status().is_ok_and(|status| status.success()) {
            skip::skip("no file system can be mounted here");
            return Ok(None);
        }
        Ok(Some(Self(folder)))
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn t23_a_full_session_directory_is_skipped_and_reported_if_all_are_full() -> Result<()> {
    let Some(full) = Full::mount()? else { return Ok(()) };
    let shared = tempfile::tempdir()?;
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777))?;
    let session = ("XDG_RUNTIME_DIR", full.0.path().as_os_str());
    is_found_again(&[session, ("TMPDIR", shared.path().as_os_str())])?;
    let home = private_home()?;
    let mut relay = TestRelay::command(home.path())?;
    relay.args(["--demo", "--bind", "127.0.0.1:0"]).envs([session, ("TMPDIR", session.1)]);
    let output = relay.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success());
    let folder = full.0.path().display().to_string();
    ensure!(
        said.contains(&format!("cannot write to {folder}")) && said.contains("free space there"),
        "{said}"
    );
    Ok(())
}
