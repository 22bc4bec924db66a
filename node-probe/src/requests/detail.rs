//! Process details from `/proc`, for the owner of the relay.

use super::ProcReader;
use crate::proc;
use crate::proc::environ::Environ;
use crate::process::{OF_ANOTHER_USER, stat::Stat, user_name};
use nodeglass_protocol::process::{ProcessDetail, RelatedProcess, Variable};
use nodeglass_protocol::{LongText, Reading, Text};
use nodeglass_redact::mask;
use std::{collections::HashMap, fs, io, os::unix::fs::MetadataExt, path::Path};

/// Maximum depth and size of a process tree.
const MAX_RELATED: usize = 256;

impl ProcReader {
    /// Reads all details.
    pub(super) fn detail(&self, pid: u32, stat: &Stat, environment: bool) -> ProcessDetail {
        let folder = self.folder(pid);
        let own = self.is_own(pid);
        let [read_bytes, written_bytes] = input_output(&folder);
        ProcessDetail {
            ancestors: self.ancestors(pid, stat),
            descendants: self.descendants(pid),
            args: if own {
                reading(proc::read(&folder.join("cmdline"))).map(|line| mask::command_line(&line).into())
            } else {
                Reading::Failed(OF_ANOTHER_USER.into())
            },
            cwd: link(&folder.join("cwd")),
            exe: link(&folder.join("exe")),
            cgroup: reading(fs::read(folder.join("cgroup")))
                .map(|text| cgroup(&String::from_utf8_lossy(&text))),
            open_files: reading(fs::read_dir(folder.join("fd"))).map(|entries| entries.count() as u64),
            read_bytes,
            written_bytes,
            wait_channel: wait_channel(&folder),
            environment: match (environment, own) {
                (false, _) => Reading::NotYet,
                (true, false) => Reading::Failed(OF_ANOTHER_USER.into()),
                (true, true) => reading(Environ::try_read(&folder)).map(|environ| variables(&environ)),
            },
        }
    }

    /// Returns the ancestors from the oldest visible one to the process itself.
    fn ancestors(&self, pid: u32, stat: &Stat) -> Vec<RelatedProcess> {
        let mut line = vec![self.related(pid, stat)];
        let mut parent = stat.parent;
        while parent > 0 && line.len() < MAX_RELATED {
            let Some(stat) = Stat::of(&self.proc, parent) else { break };
            line.push(self.related(parent, &stat));
            parent = stat.parent;
        }
        line.reverse();
        line
    }

    /// Returns the descendants in depth-first order.
    fn descendants(&self, pid: u32) -> Vec<RelatedProcess> {
        let mut children: HashMap<u32, Vec<(u32, Stat)>> = HashMap::new();
        let pids = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        for child in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if let Some(stat) = Stat::of(&self.proc, child) {
                children.entry(stat.parent).or_default().push((child, stat));
            }
        }
        let mut found = Vec::new();
        let mut waiting = children.remove(&pid).unwrap_or_default();
        waiting.sort_by_key(|(pid, _)| std::cmp::Reverse(*pid));
        while let Some((pid, stat)) = waiting.pop().filter(|_| found.len() < MAX_RELATED) {
            found.push(self.related(pid, &stat));
            let mut below = children.remove(&pid).unwrap_or_default();
            below.sort_by_key(|(pid, _)| std::cmp::Reverse(*pid));
            waiting.append(&mut below);
        }
        found
    }

    fn related(&self, pid: u32, stat: &Stat) -> RelatedProcess {
        let uid = fs::metadata(self.folder(pid)).map(|meta| meta.uid());
        RelatedProcess {
            pid,
            parent: stat.parent,
            user: uid.map(user_name).unwrap_or_default(),
            // A prefix is sufficient, because there may be many.
            command: Text::new(self.command_of(pid, stat)).as_str().into(),
            state: stat.state as u8,
        }
    }
}

/// Converts a result to a reading; the system hides details of other users' processes.
fn reading<T>(result: io::Result<T>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Reading::Failed(OF_ANOTHER_USER.into())
        }
        Err(error) => Reading::Failed(error.to_string().into()),
    }
}

fn link(path: &Path) -> Reading<LongText> {
    reading(fs::read_link(path)).map(|path| path.to_string_lossy().as_ref().into())
}

/// Returns the path of version 2, or the longest of version 1, which identify job and container.
fn cgroup(text: &str) -> LongText {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.max_by_key(|path| path.len()).unwrap_or_default().into()
}

/// Parses `read_bytes: 1` and `write_bytes: 2` of `/proc/PID/io`.
fn input_output(folder: &Path) -> [Reading<u64>; 2] {
    let text = reading(fs::read_to_string(folder.join("io")));
    ["read_bytes: ", "write_bytes: "].map(|name| match &text {
        Reading::Value(text) => {
            let count = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            count.map_or(Reading::Unsupported, Reading::Value)
        }
        other => other.clone().map(|_| 0),
    })
}

/// Reads `/proc/PID/wchan`, which is `0` for a process that does not wait.
fn wait_channel(folder: &Path) -> Reading<Text> {
    match reading(fs::read(folder.join("wchan"))) {
        Reading::Value(name) if name.is_empty() || name == b"0" => Reading::Unsupported,
        name => name.map(|name| Text::from_bytes(&name)),
    }
}

fn variables(environ: &Environ) -> Vec<Variable> {
    let texts =
        environ.iter().map(|(name, value)| (String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
    let variables = texts.map(|(name, value)| Variable {
        name: name.as_ref().into(),
        value: mask::value(&name, &value).into(),
    });
    let mut variables: Vec<Variable> = variables.collect();
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    fn reader(proc: &Path) -> ProcReader {
        let own_uid = rustix::process::geteuid().as_raw();
        ProcReader { proc: proc.into(), boot_ms: process::boot_ms(), own_uid }
    }

    #[test]
    fn an_own_process_has_all_details() {
        let proc = Path::new("/proc");
        let own = std::process::id();
        let stat = Stat::of(proc, own).unwrap();
        let detail = reader(proc).detail(own, &stat, true);
        assert_eq!(detail.ancestors.last().unwrap().pid, own);
        for pair in detail.ancestors.windows(2) {
            assert_eq!(pair[1].parent, pair[0].pid);
        }
        assert!(*detail.open_files.value().unwrap() > 2);
        assert!(detail.exe.value().unwrap().as_str().contains("node_probe"));
        let environment = detail.environment.value().unwrap();
        assert!(environment.iter().any(|variable| variable.name.as_str() == "PATH"));
        assert_eq!(reader(proc).detail(own, &stat, false).environment, Reading::NotYet);
    }

    #[test]
    fn arguments_of_other_users_processes_are_hidden() {
        let proc = tempfile::tempdir().unwrap();
        let write = |pid: &str, name: &str, text: &str| {
            fs::create_dir_all(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join(name), text).unwrap();
        };
        let stat = |name: &str, parent: u32| format!("1 ({name}) S {parent} {}", vec!["0"; 48].join(" "));
        for (pid, name, parent) in [
            ("1", "init", 0),
            ("7", "python", 1),
            ("8", "loader", 7),
            ("9", "grandchild", 8),
            ("10", "loader", 7),
        ] {
            write(pid, "stat", &stat(name, parent));
        }
        write("7", "status", "Name:\tpython\nUid:\t3999999\t0\t0\t0\n");
        write("7", "cmdline", "python\0--key\0x\0");
        write("7", "environ", "A=1\0");
        let reader = reader(proc.path());
        let detail = reader.detail(7, &Stat::of(proc.path(), 7).unwrap(), true);
        assert_eq!(
            (detail.args, detail.environment),
            (Reading::Failed(OF_ANOTHER_USER.into()), Reading::Failed(OF_ANOTHER_USER.into()))
        );
        let names = |related: &[RelatedProcess]| {
            related.iter().map(|related| (related.pid, related.command.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(names(&detail.ancestors), [(1, "init".into()), (7, "python".into())]);
        let below = [(8, "loader".to_owned()), (9, "grandchild".into()), (10, "loader".into())];
        assert_eq!(names(&detail.descendants), below);
    }

    #[test]
    fn what_the_system_hides_is_stated_as_hidden_not_as_unsupported() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(reading::<u64>(Err(denied)), Reading::Failed(OF_ANOTHER_USER.into()));
    }

    #[test]
    fn arguments_and_environment_are_read_to_a_limit() {
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("7");
        fs::create_dir(&folder).unwrap();
        let own_uid = fs::metadata(&folder).unwrap().uid();
        let limit = usize::try_from(proc::MAX_BYTES).unwrap();
        fs::write(folder.join("status"), format!("Uid:\t{own_uid}\t{own_uid}\t0\t0\n")).unwrap();
        fs::write(folder.join("stat"), format!("7 (a) S 1 {}", vec!["0"; 48].join(" "))).unwrap();
        fs::write(folder.join("environ"), format!("A=1\0B={}\0C=1", "x".repeat(limit))).unwrap();
        let detail = reader(proc.path()).detail(7, &Stat::of(proc.path(), 7).unwrap(), true);
        let environment = detail.environment.value().unwrap();
        let names: Vec<&str> = environment.iter().map(|variable| variable.name.as_str()).collect();
        assert_eq!(names, ["A"], "one that is cut is left out");
    }

    #[test]
    fn an_environment_is_listed_by_name_without_secrets() {
        let variables = variables(&Environ::of(b"B=2\0API_KEY=hunter2\0URL=http://a:hunter2@b\0".to_vec()));
        let shown: Vec<_> = variables.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
        assert_eq!(
            shown,
            [format!("API_KEY={}", mask::MASK), "B=2".into(), format!("URL=http://{}@b", mask::MASK)]
        );
    }
}
