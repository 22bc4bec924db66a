//! Shell scripts that start or upload the probe on a node.
//!
//! Each command line consists of constants and validated parts. It is wrapped in `sh -c '…'` because the
//! user's shell may be csh or fish; inside there are no single quotes, and no `!`, which csh expands.

use super::platform::Platform;
use super::{MISSING, ProbeBinary};
use crate::StreamEnd;

/// Announces that the upload may begin, and into which of [`PLACES`].
const READY: &str = "\u{1e}NODEGLASS-UPLOAD ";
/// Delimiters of the upload script's message on stderr, as login scripts may print there, too. One short
/// line: only the last 256 bytes of stderr are kept.
const SAID: [&str; 2] = ["nodeglass-upload: ", "; |"];
/// The upload script's exit statuses: the file arrived incomplete; there is no usable folder.
const INCOMPLETE: i32 = 5;
const NO_PLACE: i32 = 6;

/// Folders for uploaded probes in the order of preference: display name, path in the shell's syntax, and
/// whether other users could create it first.
const PLACES: [(&str, &str, bool); 4] = [
    ("~/.cache/nodeglass", "$HOME/.cache/nodeglass", false),
    ("$XDG_RUNTIME_DIR/nodeglass", "${XDG_RUNTIME_DIR:-/run/user/$u}/nodeglass", true),
    ("/tmp/nodeglass-UID", "${TMPDIR:-/tmp}/nodeglass-$u", true),
    ("/dev/shm/nodeglass-UID", "/dev/shm/nodeglass-$u", true),
];

/// A shell function: whether `$1` has the type `$2` (as in `ls -l`), belongs to the user or root, and is
/// not writable by others; a group with the owner's own number counts as the owner's, unless an ACL (a
/// `+` after the mode) may name others. The owner matters: in a shared folder such as `/tmp`, anybody
/// could have put a program under this name.
const SAFE: &str = "u=$(id -u); safe() { set -- $2 $(ls -ldn \"$1\" 2>/dev/null); \
    case $2 in $1*) ;; *) return 1;; esac; case $4 in 0|$u) ;; *) return 1;; esac; \
    case $2 in ????????w*|?????w*+) return 1;; ?????w*) [ $5 -eq $4 ];; esac; }";

/// Shell functions: `enter` changes into the folder `$1` of a folder that others may write to, if nobody else
/// can choose what is in it. The folder that was entered is judged by the kernel's path of it, so that no time
/// is left between check and use. A link is refused even if it leads to a folder of the user: files that
/// others wrote and the user unpacked belong to the user, too. So is a folder in one without the sticky bit
/// (`firm`), where others could give this name to any folder of the user beside it.
const ENTER: &str = "firm() { set -- $(ls -ldn . 2>/dev/null); \
    case $1 in d????????[tT]*) case $3 in 0|$u) return 0;; esac;; esac; safe . d; }; \
    is_here() { [ \"$(pwd -P)\" = \"$1\" ] && safe . d; }; \
    enter() { cd \"${1%/*}/\" 2>/dev/null && firm && d=$(pwd -P) && cd \"./${1##*/}\" 2>/dev/null && is_here \"${d%/}/${1##*/}\"; }";

/// A shell function: prepares the folder `$2`, displayed as `$1`, for a file `$t`, or reports why it
/// cannot. `$3` is `own` below the home, where links are followed and too open a mode is fixed. Elsewhere
/// another user may have been first: the folder is created in one step, and an existing one must belong
/// to the user.
const FIT: &str = "w=; say() { w=\"$w; $1: ${2##*: }\"; }; report() { echo \"nodeglass-upload: ${w#; }; |\" >&2; }; \
    shut() { say \"$1\" \"belongs to another user, or can be written or exchanged by others\"; }; fit() { \
    if [ $3 = own ]; then e=$(mkdir -p \"$2\" 2>&1) && e=$(cd \"$2\" 2>&1) && cd \"$2\" || { say \"$1\" \"$e\"; return 1; }; \
    chmod 700 . 2>/dev/null; safe . d || { shut \"$1\"; return 1; }; \
    else e=$(mkdir \"$2\" 2>&1) || [ -e \"$2\" ] || [ -L \"$2\" ] || { say \"$1\" \"$e\"; return 1; }; \
    enter \"$2\" || { shut \"$1\"; return 1; }; fi; \
    rm -f $t; e=$( { printf \"#\\041/bin/sh\\n\" | cat > $t; } 2>&1 ) && [ -s $t ] && chmod 700 $t \
    || { rm -f $t; say \"$1\" \"${e:-cannot be written}\"; return 1; }; \
    $t 2>/dev/null || { rm -f $t; say \"$1\" \"mounted noexec\"; return 1; }; rm -f $t; }";

/// Index into [`PLACES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadDir(usize);

/// The script that receives the probe on its stdin.
pub struct UploadScript {
    /// For the node's shell.
    pub command: String,
}

/// The end of an upload script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uploaded {
    /// The probe was uploaded.
    Done,
    /// This folder failed, but another one may work.
    TryNext(UploadDir, String),
    /// No folder works.
    Failed(String),
}

impl UploadScript {
    /// Tries folders from `first` on. `random` names the temporary file: nodes that share a home may have
    /// processes with equal ids.
    pub fn new(probe: &ProbeBinary, first: UploadDir, random: u64) -> Self {
        let (hash, len) = (probe.hash16(), probe.len);
        let tries = PLACES.iter().enumerate().skip(first.0).map(|(at, (name, folder, is_shared))| {
            let kind = if *is_shared { "shared" } else { "own" };
            let name = name.replace('$', "\\$").replace("UID", "$u");
            format!("{{ fit \"{name}\" \"{folder}\" {kind} && n={at} && p=\"{name}\"; }}")
        });
        let tries: Vec<_> = tries.collect();
        let tries = tries.join(" || ");
        // `set -C`: creates a new file, never following a link of that name.
        let command = format!(
            "exec sh -c 'cd; umask 077; t=./.new-{random:016x}; {SAFE}; {ENTER}; {FIT}; {tries} || {{ report; exit {NO_PLACE}; }}; set -C; \
             find . -name \"node-probe-*\" -mtime +7 -exec rm -f {{}} +; find . -name \".new-*\" -mtime +1 -exec rm -f {{}} +; \
             printf \"\\036NODEGLASS-UPLOAD %s\\n\" $n; e=$( {{ cat > $t; }} 2>&1 ) && [ $(wc -c < $t) -eq {len} ] && \
             chmod 700 $t && mv -f $t ./node-probe-{hash} && exit 0; \
             rm -f $t; say \"$p\" \"${{e:-it did not arrive whole}}\"; report; exit {INCOMPLETE}'"
        );
        Self { command }
    }

    /// The folder that the script chose, once it has announced it.
    pub fn place(message: &[u8]) -> Option<UploadDir> {
        let text = String::from_utf8_lossy(message);
        let (number, _) = text.split_once(READY)?.1.split_once('\n')?;
        number.parse().ok().filter(|at| *at < PLACES.len()).map(UploadDir)
    }

    /// The result of the upload into `place`, if a folder was chosen. `before` is what earlier scripts
    /// reported.
    pub fn outcome(end: &StreamEnd, place: Option<UploadDir>, before: &[String]) -> Uploaded {
        let [begin, end_mark] = SAID;
        let message =
            end.stderr.as_str().rsplit_once(begin).and_then(|(_, message)| message.split_once(end_mark));
        let message = message.map_or_else(|| end.stderr.to_string(), |(message, _)| message.to_owned());
        let all = || before.iter().cloned().chain([message.clone()]).collect::<Vec<_>>().join("; ");
        match (end.exit, place) {
            (Some(0), Some(_)) => Uploaded::Done,
            (Some(INCOMPLETE), Some(UploadDir(at))) if at + 1 < PLACES.len() => {
                Uploaded::TryNext(UploadDir(at + 1), message)
            }
            (Some(INCOMPLETE | NO_PLACE), _) => Uploaded::Failed(all()),
            (Some(exit), _) => {
                Uploaded::Failed(format!("the login shell ended with status {exit}: {}", all()))
            }
            (None, _) => {
                let why = end.interruption().unwrap_or_default();
                Uploaded::Failed(format!("{why} {}", all()).trim().to_owned())
            }
        }
    }
}

impl ProbeBinary {
    /// Runs the uploaded probe of this build, or else the one at the same path as on this machine (a
    /// shared home or an install). Neither is run if other users could have put it there; then it counts
    /// as missing, and the node reports its platform.
    ///
    /// The hash is not checked before the start: only the user and root can change a file that passes
    /// `safe`, and need no such detour. `--expect` makes the probe itself detect damage and other builds.
    pub(crate) fn run_command(&self, relay: u64) -> String {
        let hash = self.hash16();
        let arguments = format!("--expect {hash} --relay {relay:016x}");
        // From within the folder: what was checked cannot be exchanged any more.
        let run = format!("run() {{ safe \"$1\" - && [ -x \"$1\" ] && exec \"$1\" {arguments}; }}");
        let uploaded = PLACES.iter().map(|(_, folder, is_shared)| match is_shared {
            true => format!("enter \"{folder}\" && run ./node-probe-{hash}; "),
            false => format!("cd \"{folder}\" 2>/dev/null && safe . d && run ./node-probe-{hash}; "),
        });
        let uploaded: String = uploaded.collect();
        // On the node, others may have put a link at this path, which leads to no link here.
        let same = self.path().to_str().filter(|path| is_plain(path)).and_then(|path| path.rsplit_once('/'));
        let same = same.map_or_else(String::new, |(folder, name)| {
            format!("cd {folder}/ 2>/dev/null && is_here {folder} && run ./{name}; ")
        });
        // A shared home may hold a probe for another processor at the same path.
        let machine = self.needs.machine.unwrap_or("*");
        let platform = Platform::COMMAND;
        format!(
            "exec sh -c 'cd; {SAFE}; {ENTER}; {run}; case $(uname -m) in {machine}) {uploaded}{same};; esac; {platform}; exit {MISSING}'"
        )
    }
}

/// Returns whether a path needs no quoting in any shell.
fn is_plain(path: &str) -> bool {
    path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'+' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_access::safe_path::grant_by_acl;
    use std::fs::{Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    fn end(exit: i32, stderr: &str) -> StreamEnd {
        StreamEnd { exit: Some(exit), stderr: stderr.into(), ..StreamEnd::default() }
    }

    #[test]
    fn scripts_have_nothing_that_another_shell_would_read_differently() {
        let probe = ProbeBinary::find(Some(&std::env::current_exe().unwrap())).unwrap();
        for script in [UploadScript::new(&probe, UploadDir(0), 7).command, probe.run_command(7)] {
            let inner = script.strip_prefix("exec sh -c '").unwrap().strip_suffix('\'').unwrap();
            assert!(!inner.contains(['\'', '!', '\n']), "{inner}");
        }
    }

    /// A folder with a program of the probe's name, which says `word`.
    fn install(folder: &Path, word: &str) -> PathBuf {
        let path = folder.join("bin/node-probe");
        create_dir_all(folder.join("bin")).unwrap();
        write(&path, format!("#!/bin/sh\necho {word}\n")).unwrap();
        for made in [folder, path.parent().unwrap(), &path] {
            set_permissions(made, Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    /// Output of the command that starts an installed probe, in a home without an uploaded one.
    fn printed(base: &Path, command: &str, search: &str) -> String {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).env("PATH", search).current_dir(base);
        for name in ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"] {
            shell.env(name, base);
        }
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    }

    const SEARCH: &str = "/usr/bin:/bin";

    #[test]
    fn t24_a_probe_that_an_acl_lets_another_user_write_is_not_run() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        for at in ["bin/node-probe", "bin"] {
            let probe = install(&base.join("opt"), "genuine");
            let gid = rustix::process::geteuid().as_raw();
            let at = base.join("opt").join(at);
            let own = std::os::unix::fs::chown(&at, None, Some(gid)).is_ok();
            let command = ProbeBinary::find(Some(&probe)).unwrap().run_command(7);
            if !own || grant_by_acl(&at, 0o7).is_err() {
                eprintln!("skipped: no ACL can be set here");
                return;
            }
            let printed_text = printed(&base, &command, SEARCH);
            assert_eq!(printed_text, "", "{}", at.display());
            assert!(ProbeBinary::find(Some(&probe)).unwrap_err().to_string().contains("writable by others"));
            rustix::fs::removexattr(&at, "system.posix_acl_access").unwrap();
            set_permissions(&at, Permissions::from_mode(0o770)).unwrap();
            assert_eq!(printed(&base, &command, SEARCH), "genuine\n", "the owner's private group");
        }
    }

    #[test]
    fn t24_an_installed_probe_is_not_exchanged_between_the_check_and_the_start() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let probe = install(&base.join("opt"), "genuine");
        install(&base.join("evil"), "evil");
        let command = ProbeBinary::find(Some(&probe)).unwrap().run_command(7);
        assert_eq!(printed(&base, &command, SEARCH), "genuine\n");
        // The worst possible timing: the folder is replaced right after the last check of the file.
        let tools = base.join("tools");
        create_dir_all(&tools).unwrap();
        let swap = "case $2 in *node-probe) mv opt gone; mv evil opt;; esac";
        let ls = format!("#!/bin/sh\nPATH={SEARCH}\nls \"$@\"\ncd {}\n{swap}\n", base.display());
        write(tools.join("ls"), ls).unwrap();
        set_permissions(tools.join("ls"), Permissions::from_mode(0o755)).unwrap();
        let printed_text = printed(&base, &command, &format!("{}:{SEARCH}", tools.display()));
        assert!(base.join("gone").exists(), "the folder was not replaced");
        assert_eq!(printed_text, "genuine\n");
    }

    /// Runs the upload script where only `tmp` and another folder of `base` can be written to, with `ls` doing `swap` after
    /// each check of a folder. Returns the number of the folder that it chose, and its messages.
    fn upload(base: &Path, swap: &str) -> (Option<usize>, String) {
        let tools = base.join("tools");
        create_dir_all(&tools).unwrap();
        let ls = format!("#!/bin/sh\nPATH={SEARCH}\nls \"$@\"\n{swap}\n");
        write(tools.join("ls"), ls).unwrap();
        set_permissions(tools.join("ls"), Permissions::from_mode(0o755)).unwrap();
        let program = install(&base.join("opt"), "genuine");
        let probe = ProbeBinary::find(Some(&program)).unwrap();
        let shm = base.join("shm");
        create_dir_all(&shm).unwrap();
        let command =
            UploadScript::new(&probe, UploadDir(0), 7).command.replace("/dev/shm", shm.to_str().unwrap());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &command]).env("PATH", format!("{}:{SEARCH}", tools.display()));
        shell.env("HOME", "/dev/null").env("XDG_RUNTIME_DIR", "/dev/null").env("TMPDIR", base.join("tmp"));
        shell.stdin(std::fs::File::open(&program).unwrap()).current_dir(base);
        let output = shell.output().unwrap();
        let place = UploadScript::place(&output.stdout).map(|UploadDir(at)| at);
        (place, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn t16_an_upload_goes_into_no_folder_that_another_user_made_or_exchanges() {
        let own_uid = rustix::process::geteuid().as_raw();
        let theirs = |path: &Path| std::os::unix::fs::chown(path, Some(65_534), None).is_ok();
        let chosen = |prepare: &dyn Fn(&Path), swap: &str| {
            let base = tempfile::tempdir().unwrap();
            let base = base.path().canonicalize().unwrap();
            create_dir_all(base.join("tmp")).unwrap();
            set_permissions(base.join("tmp"), Permissions::from_mode(0o1777)).unwrap();
            create_dir_all(base.join("evil")).unwrap();
            let is_theirs = theirs(&base.join("evil"));
            prepare(&base.join(format!("tmp/nodeglass-{own_uid}")));
            let (place, message) = upload(&base, &swap.replace("BASE", base.to_str().unwrap()));
            let arrived = std::fs::read_dir(base.join("evil")).unwrap().count();
            assert_eq!(arrived, 0, "{message}");
            (place, is_theirs, message)
        };
        assert_eq!(chosen(&|_| {}, "").0, Some(2), "nobody interferes");
        // Another user was first: with a link, a folder that all may write to, a file, or an own folder.
        let evil = |path: &Path| path.ancestors().nth(2).unwrap().join("evil");
        assert_eq!(chosen(&|path| std::os::unix::fs::symlink(evil(path), path).unwrap(), "").0, Some(3));
        assert_eq!(chosen(&|path| write(path, "").unwrap(), "").0, Some(3));
        let open_to_all = |path: &Path| {
            create_dir_all(path).unwrap();
            set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        };
        assert_eq!(chosen(&open_to_all, "").0, Some(3));
        let foreign = |path: &Path| {
            create_dir_all(path).unwrap();
            theirs(path);
        };
        let (place, is_theirs, message) = chosen(&foreign, "");
        if !is_theirs {
            eprintln!("skipped: no folder of another user can be made here");
            return;
        }
        assert_eq!(place, Some(3), "{message}");
        // The worst possible timing: the folder is exchanged for theirs, for a link to it or to one of the user's,
        // right after the folder above it was checked.
        let own = format!("BASE/tmp/nodeglass-{own_uid}");
        let checked = format!("case $PWD in */tmp) rm -rf {own}; ");
        for swap in [
            "mv BASE/evil {own}; mkdir BASE/evil;; esac",
            "ln -s BASE/evil {own};; esac",
            "mkdir BASE/mine; ln -s BASE/mine {own};; esac",
        ] {
            let swap = format!("{checked}{}", swap.replace("{own}", &own));
            let (place, _, message) = chosen(&|_| {}, &swap);
            assert_eq!(place, Some(3), "{swap}: {message}");
        }
        // Where anybody may rename anything, no folder is safe.
        let unsticky = |path: &Path| {
            set_permissions(path.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        };
        assert_eq!(chosen(&unsticky, "").0, Some(3));
    }

    /// Users of the tests.
    const VICTIM: u32 = 64_101;
    const ATTACKER: u32 = 64_102;

    /// A shell of one of the users, with `tmp` of `base` as the place for uploads that others may write to.
    fn shell_of(uid: u32, base: &Path, command: &str) -> Command {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("/bin/sh");
        let command = command.replace("/dev/shm", base.join("shm").to_str().unwrap());
        shell.args(["-c", &command]).env("PATH", SEARCH).current_dir("/").uid(uid).gid(uid);
        shell
            .env("HOME", base.join("home"))
            .env("XDG_RUNTIME_DIR", "/dev/null")
            .env("TMPDIR", base.join("tmp"));
        shell
    }

    /// Exchanges the folder of the uploads of `VICTIM` in `tmp`, as fast as a shell can, for: the attacker's own
    /// folder, a link to it, a link to what the victim unpacked, and that itself, where the folder lets anybody
    /// rename it. Writes a line to `swaps` each time.
    fn attack(base: &Path) -> std::process::Child {
        let script = format!(
            "cd {0}/tmp; n=nodeglass-{VICTIM}; while :; do echo >> {0}/swaps; \
             mv theirs $n; mv $n theirs; ln -s {0}/tmp/theirs $n; rm $n; ln -s {0}/unpacked $n; rm $n; \
             mv unpacked $n && mv $n unpacked; mv -T $n aside.$$ && rm -rf aside.$$; done 2>/dev/null",
            base.display()
        );
        shell_of(ATTACKER, base, &script).spawn().unwrap()
    }

    /// Folders of both users. The victim unpacked a program of the attacker's that has the probe's name.
    fn two_users(base: &Path, hash: &str, tmp_mode: u32) -> bool {
        set_permissions(base, Permissions::from_mode(0o755)).unwrap();
        let evil = "#!/bin/sh\necho evil\n";
        for (folder, uid, mode) in [
            ("tmp", 0, tmp_mode),
            ("shm", 0, 0o1777),
            ("home", VICTIM, 0o755),
            ("unpacked", VICTIM, 0o755),
            ("tmp/unpacked", VICTIM, 0o755),
            ("tmp/theirs", ATTACKER, 0o755),
        ] {
            let path = base.join(folder);
            create_dir_all(&path).unwrap();
            let program = path.join(format!("node-probe-{hash}"));
            if folder.ends_with("unpacked") || folder.ends_with("theirs") {
                write(&program, evil).unwrap();
                set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
                if std::os::unix::fs::chown(&program, Some(uid), Some(uid)).is_err() {
                    return false;
                }
            }
            if std::os::unix::fs::chown(&path, Some(uid), Some(uid)).is_err() {
                return false;
            }
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        write(base.join("swaps"), "").unwrap();
        std::os::unix::fs::chown(base.join("swaps"), Some(ATTACKER), None).is_ok()
    }

    #[test]
    fn t24_another_user_who_races_check_and_start_runs_no_program() {
        for tmp_mode in [0o1777, 0o777] {
            let base = tempfile::tempdir().unwrap();
            let base = base.path().canonicalize().unwrap();
            let genuine = install(&base.join("opt"), "genuine");
            let probe = ProbeBinary::find(Some(&genuine)).unwrap();
            if !two_users(&base, probe.hash16(), tmp_mode) {
                eprintln!("skipped: only root can act as two users");
                return;
            }
            let output = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
            let unpacked = format!("{}/unpacked/node-probe-{}", base.display(), probe.hash16());
            assert_eq!(output(&mut shell_of(VICTIM, &base, &unpacked)), "evil\n", "it can be run");
            // No probe at the same path, and none in the home.
            let run = probe.run_command(7).replace(base.join("opt").to_str().unwrap(), "/nonexistent");
            let upload = UploadScript::new(&probe, UploadDir(2), 7).command;
            let mut attacker = attack(&base);
            let swaps = || std::fs::read_to_string(base.join("swaps")).unwrap().len();
            let mut printed = std::collections::BTreeSet::new();
            let mut rounds = 0;
            while rounds < 60 || swaps() < 60 {
                assert!(attacker.try_wait().unwrap().is_none(), "the attack ended");
                printed.insert(output(&mut shell_of(VICTIM, &base, &run)));
                if rounds % 4 == 0 {
                    let mut script = shell_of(VICTIM, &base, &upload);
                    output(script.stdin(std::fs::File::open(&genuine).unwrap()));
                }
                rounds += 1;
            }
            attacker.kill().unwrap();
            attacker.wait().unwrap();
            assert!(!printed.contains("evil\n"), "{tmp_mode:o}: of {rounds} starts: {printed:?}");
            assert!(printed.contains("genuine\n"), "{tmp_mode:o}: no upload was of use: {printed:?}");
        }
    }

    #[test]
    fn the_reasons_of_all_folders_fit_into_a_message() {
        let all: Vec<String> = PLACES.iter().map(|(shown, ..)| format!("{shown}: mounted noexec")).collect();
        let line = format!("{}{}{}", SAID[0], all.join("; "), SAID[1]);
        assert!(
            FIT.contains("mounted noexec") && line.len() + 40 <= nodeglass_protocol::Text::MAX_BYTES,
            "{line}"
        );
    }

    #[test]
    fn a_failed_upload_tries_the_next_folder_and_reports_all_reasons() {
        let full =
            end(INCOMPLETE, "motd\nnodeglass-upload: ~/.cache/nodeglass: No space left on device; |\nbye");
        let first = "~/.cache/nodeglass: No space left on device".to_owned();
        let next = Uploaded::TryNext(UploadDir(1), first.clone());
        assert_eq!(UploadScript::outcome(&full, Some(UploadDir(0)), &[]), next);
        let none =
            end(NO_PLACE, "nodeglass-upload: /tmp/nodeglass-7: Read-only file system; /dev/shm: no; |\n");
        let all = "~/.cache/nodeglass: No space left on device; /tmp/nodeglass-7: Read-only file system; /dev/shm: no";
        assert_eq!(UploadScript::outcome(&none, None, &[first]), Uploaded::Failed(all.into()));
        assert_eq!(UploadScript::outcome(&end(0, ""), Some(UploadDir(0)), &[]), Uploaded::Done);
        // A login script that exits at once with 0 has uploaded nothing.
        assert!(matches!(UploadScript::outcome(&end(0, "bye"), None, &[]), Uploaded::Failed(_)));
    }

    #[test]
    fn the_place_is_found_among_noise() {
        assert_eq!(UploadScript::place(b"Welcome\n\x1eNODEGLASS-UPLOAD 2\n"), Some(UploadDir(2)));
        for not_yet in [
            &b"Welcome"[..],
            b"\x1eNODEGLASS-UPLOAD 2",
            b"\x1eNODEGLASS-UPLOAD 9\n",
            b"\x1eNODEGLASS-UPLOAD x\n",
        ] {
            assert_eq!(UploadScript::place(not_yet), None);
        }
    }
}
