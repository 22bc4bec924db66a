//! Runs py-spy, which reads the Python stack of a process without stopping it.

use nodeglass_logfile::access_list;
use nodeglass_protocol::Text;
use nodeglass_protocol::capture::StackReader;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    env, fs,
    io::Read,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Time limit for one stack; py-spy needs a tenth of a second, and seconds where it reads symbols from a slow disk.
const LIMIT: Duration = Duration::from_secs(5);
/// Less time than this is not enough for a stack.
pub(super) const MIN_TIME: Duration = Duration::from_millis(200);
/// Time for a killed py-spy to end.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Interval of checks whether it has ended.
const POLL: Duration = Duration::from_millis(10);
/// Maximum size of the output: some 100 bytes per frame, and thousands of threads.
const MAX_OUTPUT: u64 = 4 << 20;
/// Maximum size of an error message that is read.
const MAX_ERROR: u64 = 4 << 10;
/// Maximum length of an error message that is passed on, in characters.
const MAX_MESSAGE: usize = 160;
/// Stack size of a thread that reads output.
const STACK: usize = 64 << 10;
/// The kernel's uid for owners that are not mapped into the user namespace.
const OVERFLOW_UID: u32 = 65_534;
/// Name of the program.
const NAME: &str = "py-spy";

/// Error of reading a stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DumpError {
    /// It cannot be started.
    #[error("py-spy cannot be started: {0}")]
    Start(String),
    /// It did not end in time.
    #[error("py-spy did not exit within {} s", LIMIT.as_secs())]
    Late,
    /// It did not end although it was killed: it waits in the kernel, as the process that it reads may.
    #[error("py-spy cannot be ended")]
    LeftBehind,
    /// It printed too much.
    #[error("py-spy printed more than {} MiB", MAX_OUTPUT >> 20)]
    TooLong,
    /// It reported an error.
    #[error("py-spy failed: {0}")]
    Failed(String),
}

impl DumpError {
    /// Returns whether it still runs.
    pub(super) fn is_left_behind(&self) -> bool {
        *self == Self::LeftBehind
    }
}

/// Finds the program; says why it is not used.
pub(super) fn find(reader: &StackReader) -> Result<PathBuf, String> {
    match reader {
        StackReader::Off => Err("Python stacks are turned off".to_owned()),
        StackReader::At(path) => {
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err("the path of py-spy must begin with /".to_owned());
            }
            checked(&path)
        }
        StackReader::OnPath => on_path(env::var_os("PATH"), env::var_os("HOME").map(PathBuf::from)),
    }
}

/// Searches `PATH`, and the folder where `pip install --user` puts programs, which a shell without a login lacks.
fn on_path(path: Option<std::ffi::OsString>, home: Option<PathBuf>) -> Result<PathBuf, String> {
    let path = path.unwrap_or_default();
    let folders = env::split_paths(&path).chain(home.map(|home| home.join(".local/bin")));
    // What a relative path names depends on the working directory.
    let mut programs = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(NAME));
    let found = programs.find(|program| program.exists());
    let found = found.ok_or("no Python stacks, because py-spy is not on the PATH of the probe")?;
    checked(&found)
}

/// The path without links, if nobody but this user and root can have written the program, or can exchange it before it
/// runs: that takes write access to a folder above it.
fn checked(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let unusable = |error| format!("py-spy at {shown} cannot be used: {error}");
    let real = path.canonicalize().map_err(unusable)?;
    let facts = fs::metadata(&real).map_err(unusable)?;
    if !facts.is_file() || facts.mode() & 0o111 == 0 {
        return Err(format!("py-spy at {shown} is not used: it is not a program"));
    }
    if !is_of_user_or_root(&facts) || is_writable_by_others(&real, &facts) {
        return Err(format!("py-spy at {shown} is not used: others may write it"));
    }
    for folder in real.ancestors().skip(1) {
        let facts = fs::metadata(folder).map_err(unusable)?;
        // In a sticky folder only the owner of an entry can exchange it, and the entry is checked as well.
        let is_writable = is_writable_by_others(folder, &facts) && facts.mode() & 0o1000 == 0;
        // In a container, folders of the system belong to the overflow uid.
        if is_writable || !(is_of_user_or_root(&facts) || facts.uid() == OVERFLOW_UID) {
            return Err(format!("py-spy at {shown} is not used: others may write to {}", folder.display()));
        }
    }
    Ok(real)
}

fn is_of_user_or_root(facts: &fs::Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&facts.uid())
}

/// A group with the owner's own number is the owner's private group, which several distributions create together with
/// umask 002. With an access control list, the group bits may apply to any user.
fn is_writable_by_others(path: &Path, facts: &fs::Metadata) -> bool {
    let (by_all, by_group) = (facts.mode() & 0o002 != 0, facts.mode() & 0o020 != 0);
    by_all || by_group && (facts.gid() != facts.uid() || access_list::is_on_path(path))
}

/// Prints the stacks of a process as JSON, within `left` and [`LIMIT`].
pub(super) fn dump(program: &Path, pid: u32, left: Duration) -> Result<Vec<u8>, DumpError> {
    let child = Command::new(program)
        .args(["dump", "--json", "--nonblocking", "--pid", &pid.to_string()])
        .env_clear()
        .current_dir("/")
        // What it starts ends with it.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| DumpError::Start(error.to_string()))?;
    let mut running = Running(child);
    let until = Instant::now() + LIMIT.min(left);
    let stdout = running.0.stdout.take().map(|pipe| read_on_thread(pipe, MAX_OUTPUT + 1));
    let stderr = running.0.stderr.take().map(|pipe| read_on_thread(pipe, MAX_ERROR));
    let output = received(stdout, until);
    let is_late = output.is_none();
    let output = output.unwrap_or_default();
    if is_late || output.len() as u64 > MAX_OUTPUT {
        running.kill();
        let error = if is_late { DumpError::Late } else { DumpError::TooLong };
        return Err(running.wait(END_LIMIT).map_or(DumpError::LeftBehind, |_| error));
    }
    let message = received(stderr, until).unwrap_or_default();
    // Its output is complete, so that it is about to end.
    let Some(status) = running.wait(until.saturating_duration_since(Instant::now())) else {
        running.kill();
        return Err(running.wait(END_LIMIT).map_or(DumpError::LeftBehind, |_| DumpError::Late));
    };
    if status.success() { Ok(output) } else { Err(DumpError::Failed(first_line(&message))) }
}

/// A child that is killed, with all that it started, when it is dropped.
#[derive(Debug)]
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Waits until it ends, or `None` if it does not in time.
    fn wait(&mut self, limit: Duration) -> Option<std::process::ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child that was waited for has no group any more that could be another one's.
        if let Ok(None) = self.0.try_wait() {
            self.kill();
            self.wait(END_LIMIT);
        }
    }
}

/// Reads at most `most` bytes, then closes the pipe.
fn read_on_thread(pipe: impl Read + Send + 'static, most: u64) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut content = Vec::new();
        // What was read so far is judged like a complete output.
        let _ = pipe.take(most).read_to_end(&mut content);
        let _ = sender.send(content);
    };
    // Without a thread, the channel is closed, and the output counts as late.
    let _ = thread::Builder::new().name("py-spy-output".into()).stack_size(STACK).spawn(read);
    receiver
}

fn received(output: Option<mpsc::Receiver<Vec<u8>>>, until: Instant) -> Option<Vec<u8>> {
    output?.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

/// The first line of an error message, without control characters.
fn first_line(message: &[u8]) -> String {
    let message = String::from_utf8_lossy(message);
    let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("without a message");
    Text::new(line).as_str().chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A script as py-spy. Another process writes it: what other tests start meanwhile inherits the files that this
    /// one has open, and a file that is open for writing cannot be executed.
    fn script(folder: &Path, text: &str) -> PathBuf {
        let (source, path) = (folder.join("source"), folder.join(NAME));
        fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
        assert!(Command::new("cp").args([&source, &path]).status().unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn run(text: &str) -> Result<Vec<u8>, DumpError> {
        let folder = tempfile::tempdir().unwrap();
        dump(&script(folder.path(), text), 77, Duration::from_millis(400))
    }

    #[test]
    fn its_arguments_are_read_only_and_its_environment_is_empty() {
        let printed =
            String::from_utf8(run("echo \"$@\"; echo \"$HOME$NVIDIA_VISIBLE_DEVICES\"; pwd").unwrap());
        assert_eq!(printed.unwrap(), "dump --json --nonblocking --pid 77\n\n/\n");
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let text = format!("/bin/sleep 600 & echo $! > {}; wait", pids.display());
        let path = script(folder.path(), &text);
        assert_eq!(dump(&path, 77, Duration::from_millis(400)), Err(DumpError::Late));
        let child: u32 = fs::read_to_string(pids).unwrap().trim().parse().unwrap();
        let ends = Instant::now() + Duration::from_secs(10);
        // It may remain as a zombie, where nothing reaps orphans.
        let runs = || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.split_ascii_whitespace().nth(2).is_some_and(|state| state != "Z")
        };
        while runs() {
            assert!(Instant::now() < ends, "process {child} still runs");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn endless_output_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), "exec /bin/cat /dev/zero");
        assert_eq!(dump(&path, 77, LIMIT), Err(DumpError::TooLong));
    }

    #[test]
    fn an_error_is_passed_on_in_one_clean_line() {
        let error =
            run("printf '\\n\\033[31mError: Permission Denied\\nTry sudo\\n' >&2; exit 1").unwrap_err();
        assert_eq!(error.to_string(), "py-spy failed: [31mError: Permission Denied");
        let long = run("/usr/bin/printf 'x%.0s' $(/usr/bin/seq 3000) >&2; exit 2").unwrap_err();
        assert!(long.to_string().len() < 300);
        assert!(matches!(dump(Path::new("/no/such"), 1, LIMIT), Err(DumpError::Start(_))));
    }

    #[test]
    fn it_is_found_on_the_path_unless_others_may_write_it() {
        let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let on = |path: &Path| on_path(Some(path.into()), Some(home.path().to_owned()));
        assert!(on(folder.path()).unwrap_err().contains("not on the PATH"));
        let path = script(folder.path(), "");
        assert_eq!(on(folder.path()), Ok(path.clone()));
        assert!(on_path(Some("relative".into()), None).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(on(folder.path()).unwrap_err().contains("others may write it"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(find(&StackReader::At(path.display().to_string())).unwrap_err().contains("not a program"));
        assert!(find(&StackReader::At("py-spy".into())).unwrap_err().contains("must begin with /"));
        fs::create_dir_all(home.path().join(".local/bin")).unwrap();
        let own = script(&home.path().join(".local/bin"), "");
        assert_eq!(on(Path::new("/no/such")), Ok(own));
    }

    #[test]
    fn t16_it_is_not_run_from_a_folder_where_others_could_exchange_it() {
        let (above, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (shared, folder) = (above.path().join("shared"), above.path().join("shared/bin"));
        fs::create_dir_all(&folder).unwrap();
        let path = script(&folder, "");
        let link = elsewhere.path().join(NAME);
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let set =
            |folder: &Path, mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        // Not the link, which may change, but what it leads to is run.
        assert_eq!(checked(&link), Ok(path.clone()));
        for open in [&folder, &shared] {
            set(open, 0o777);
            for path in [&path, &link] {
                let error = checked(path).unwrap_err();
                assert!(error.ends_with(&format!("others may write to {}", open.display())), "{error}");
            }
            // A sticky folder keeps others from exchanging what is not theirs.
            set(open, 0o1777);
            assert_eq!(checked(&link), Ok(path.clone()));
            set(open, 0o755);
        }
        let facts = fs::metadata(&folder).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, None, Some(facts.uid() + 1)).unwrap();
            set(&folder, 0o775);
            assert!(checked(&link).is_err(), "a group of others");
            std::os::unix::fs::chown(&folder, Some(facts.uid() + 1), None).unwrap();
            set(&folder, 0o755);
            assert!(checked(&link).is_err(), "another owner");
        }
    }
}
