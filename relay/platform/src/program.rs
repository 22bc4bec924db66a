//! Finds programs on a `PATH`.

use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns whether a path is a file that this user may execute.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Returns the first executable file of this name on the `PATH` of this process.
pub fn find(name: &str) -> Option<PathBuf> {
    find_on(&std::env::var_os("PATH").unwrap_or_default(), name)
}

/// Returns the first executable file of this name in the folders of a `PATH`.
pub fn find_on(folders: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(folders).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_that_may_not_be_executed_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("sh"), "notes").unwrap();
        fs::create_dir(folder.path().join("ls")).unwrap();
        let folders = std::env::join_paths([folder.path(), Path::new("/bin")]).unwrap();
        assert_eq!(find_on(&folders, "sh"), Some("/bin/sh".into()));
        assert_eq!(find_on(&folders, "ls"), Some("/bin/ls".into()));
        assert_eq!(find_on(folder.path().as_os_str(), "sh"), None);
    }
}
