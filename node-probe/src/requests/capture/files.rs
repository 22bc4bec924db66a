//! Files that may explain more: dumps of PyTorch's NCCL flight recorder, and NCCL's log. Only path, size and time of the
//! last change are read.

use crate::proc::environ::Environ;
use nodeglass_protocol::capture::{EvidenceFile, MAX_FILES};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// Variables with the beginning of a dump's path, which ends in the rank, and its default.
const DUMPS: [&str; 2] = ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"];
const DEFAULT_DUMP: &str = "/tmp/nccl_trace_rank_";

/// The files of a process that exist and belong to this user.
pub(super) fn of_process(folder: &Path, pid: u32, rank: Option<u32>, own_uid: u32) -> Vec<EvidenceFile> {
    let environ = Environ::read(folder);
    let mut paths: Vec<String> = Vec::new();
    if let Some(rank) = rank {
        let named = DUMPS.iter().filter_map(|name| environ.get(name));
        let before = paths.len();
        paths.extend(named.map(|start| format!("{start}{rank}")));
        if paths.len() == before {
            paths.push(format!("{DEFAULT_DUMP}{rank}"));
        }
    }
    if let Some(log) = environ.get("NCCL_DEBUG_FILE") {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        paths.push(expanded(log, &host, pid));
    }
    paths.iter().filter_map(|path| found(folder, path, own_uid)).take(MAX_FILES).collect()
}

/// Replaces `%h` and `%p`, as NCCL does.
fn expanded(pattern: &str, host: &str, pid: u32) -> String {
    pattern.replace("%h", host).replace("%p", &pid.to_string())
}

/// A regular file of this user, as the process sees it: it may run in a container.
fn found(folder: &Path, path: &str, own_uid: u32) -> Option<EvidenceFile> {
    let within = |start: &str, path: &Path| -> Option<PathBuf> {
        let is_plain = |part: Component<'_>| !matches!(part, Component::ParentDir | Component::Prefix(_));
        path.components().all(is_plain).then(|| folder.join(start).join(path))
    };
    let path = Path::new(path);
    let file = match path.strip_prefix("/") {
        Ok(path) => within("root", path),
        Err(_) => within("cwd", path),
    }?;
    // Not through a link: another user may have put one into /tmp.
    let facts = fs::symlink_metadata(file).ok().filter(|facts| facts.is_file() && facts.uid() == own_uid)?;
    Some(EvidenceFile {
        path: path.to_string_lossy().into_owned().into(),
        size_bytes: facts.len(),
        modified_ms: u64::try_from(facts.mtime()).unwrap_or(0).saturating_mul(1_000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like `/proc/7` whose process sees `root` as `/`.
    fn process(environ: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["root/tmp", "root/logs", "cwd"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("environ"), environ).unwrap();
        folder
    }

    fn paths(folder: &Path, rank: Option<u32>) -> Vec<String> {
        let own_uid = rustix::process::geteuid().as_raw();
        of_process(folder, 7, rank, own_uid).iter().map(|file| file.path.to_string()).collect()
    }

    #[test]
    fn dumps_of_the_rank_and_the_log_are_found_where_the_environment_says() {
        let job = process("TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/logs/trace_\0NCCL_DEBUG_FILE=nccl.%p\0");
        fs::write(job.path().join("root/logs/trace_3"), "dump").unwrap();
        fs::write(job.path().join("cwd/nccl.7"), "").unwrap();
        assert_eq!(paths(job.path(), Some(3)), ["/logs/trace_3", "nccl.7"]);
        assert_eq!(paths(job.path(), Some(4)), ["nccl.7"]);
        let plain = process("");
        fs::write(plain.path().join("root/tmp/nccl_trace_rank_0"), "dump").unwrap();
        assert_eq!(paths(plain.path(), Some(0)), ["/tmp/nccl_trace_rank_0"]);
        assert!(paths(plain.path(), None).is_empty());
    }

    #[test]
    fn links_folders_and_other_users_files_are_not_named() {
        let job = process("");
        let file = job.path().join("root/tmp/nccl_trace_rank_0");
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert!(paths(job.path(), Some(0)).is_empty());
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(paths(job.path(), Some(0)).is_empty());
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "").unwrap();
        assert!(of_process(job.path(), 7, Some(0), u32::MAX).is_empty());
        let outside = process("NCCL_DEBUG_FILE=/../../etc/passwd\0");
        assert!(paths(outside.path(), None).is_empty());
    }
}
