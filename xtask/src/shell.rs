//! Runs programs for xtask; each long step prints its name and duration.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The workspace root.
pub(crate) fn root() -> &'static Path {
    // xtask is compiled by `cargo xtask` from this very checkout.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    without_package(&mut command);
    command
}

/// Removes the variables by which `cargo run` describes xtask's package: build scripts that read them, such as ring's,
/// would run again after a `cargo build` from a shell, and recompile what depends on them.
pub(crate) fn without_package(command: &mut Command) {
    let describes = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(describes)) {
        command.env_remove(name);
    }
}

/// Runs a long step, printing its name before and its duration after it.
pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    timed_step(what, "", work)
}

/// Runs a step of the first run, and prints its usual duration on two cores.
pub(crate) fn long_step<T>(what: &str, usually: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    timed_step(what, &format!(" (usually {usually} on two cores)"), work)
}

fn timed_step<T>(what: &str, note: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("• {what}{note} …");
    let start = Instant::now();
    let result = work().with_context(|| format!("failed: {what}"))?;
    println!("  {what}: done in {}", duration(start.elapsed()));
    Ok(result)
}

/// Runs a program, showing its output.
///
/// # Errors
/// If it cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("{} ended with {status}", command_line(command));
    }
    Ok(())
}

/// The stdout of a program, or `None` if it is missing or fails; for queries.
pub(crate) fn output_of(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The path of a program.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Daemons are in sbin, which may not be on the PATH.
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    dirs.map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A duration in human-readable form.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

fn cannot_start(command: &Command) -> String {
    format!("{} cannot be started", command.get_program().to_string_lossy())
}

fn command_line(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once(command.get_program().to_string_lossy()).chain(args).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_human_readable() {
        assert_eq!(duration(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(duration(Duration::from_secs(483)), "8 min 03 s");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program cannot be started");
    }

    #[test]
    fn a_failing_program_is_reported_with_its_output() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.to_string().starts_with("sh -c exit 3 ended with exit status: 3"), "{error}");
    }
}
