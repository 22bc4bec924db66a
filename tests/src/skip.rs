//! Skips tests that cannot run here, by name; with `CI=true` a skip is a failure.

use std::io::Write as _;
use std::path::PathBuf;

/// Reports that the running test is skipped, and why. The caller returns.
///
/// `cargo xtask test` collects these lines for its summary.
///
/// # Panics
/// With `CI=true`.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not `eprintln!`: the test runner would capture it, because the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
    assert!(!is_strict(), "{test} cannot run here: {why}; with CI=true that is a failure");
}

/// The paths of programs, or skips the test if one is missing.
pub fn programs<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let found = names.map(which);
    if let Some(index) = found.iter().position(Option::is_none) {
        skip(&format!("{} is not installed here", names[index]));
        return None;
    }
    Some(found.map(Option::unwrap_or_default))
}

/// Returns whether this is root; otherwise skips the test.
pub fn root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("it needs root, to make network namespaces");
    }
    is_root
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn is_strict() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_there_is_found_and_another_is_not() {
        assert!(which("sh").is_some());
        assert!(which("no-such-program").is_none());
    }
}
