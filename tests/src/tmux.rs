//! A terminal of a given size within tmux, whose screen tests read and into which they type.

use crate::{TIMEOUT, skip};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A terminal with a shell, ended on drop.
#[derive(Debug)]
pub struct Tmux {
    program: PathBuf,
    dir: TempDir,
}

impl Tmux {
    /// Opens a terminal and starts a program in its shell; `None` if tmux is not installed, which skips the test.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start((width, height): (u16, u16), program: &Command) -> Result<Option<Self>> {
        let Some([tmux]) = skip::programs(["tmux"]) else { return Ok(None) };
        let terminal = Self { program: tmux, dir: tempfile::tempdir()? };
        let script = terminal.dir.path().join("run");
        fs::write(&script, shell_script(program, &terminal.pid_file())?)?;
        fs::set_permissions(&script, PermissionsExt::from_mode(0o700))?;
        let (width, height) = (width.to_string(), height.to_string());
        // An interactive shell, so that programs are suspended and continued as users do it.
        let shell = "env -i PATH=\"$PATH\" TERM=\"$TERM\" PS1='$ ' LANG=C.UTF-8 bash --norc --noprofile -i";
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, shell])?;
        terminal.wait_for("the prompt of a shell", |screen| screen.contains('$'))?;
        terminal.line(&script.display().to_string())?;
        Ok(Some(terminal))
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.path().join("pid")
    }

    /// The pid of the program.
    ///
    /// # Errors
    /// If it has not started.
    pub fn pid(&self) -> Result<u32> {
        Ok(fs::read_to_string(self.pid_file())?.trim().parse()?)
    }

    fn tmux(&self, args: &[&str]) -> Result<String> {
        let socket = self.dir.path().join("tmux");
        let output = Command::new(&self.program)
            .args(["-u", "-S"])
            .arg(&socket)
            .args(args)
            .env_remove("TMUX")
            .env("LANG", "C.UTF-8")
            .output()
            .context("run tmux")?;
        ensure!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The screen, line by line.
    ///
    /// # Errors
    /// If the terminal has ended.
    pub fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Presses keys, by tmux's names: `Enter`, `Tab`, `C-c`, `q`.
    ///
    /// # Errors
    /// If the terminal has ended.
    pub fn press(&self, keys: &[&str]) -> Result<()> {
        self.tmux(&[&["send-keys"], keys].concat()).map(drop)
    }

    /// Types a line.
    ///
    /// # Errors
    /// If the terminal has ended.
    pub fn line(&self, text: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", text])?;
        self.press(&["Enter"])
    }

    /// Changes the size.
    ///
    /// # Errors
    /// If the terminal has ended.
    pub fn resize(&self, width: u16, height: u16) -> Result<()> {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]).map(drop)
    }

    /// Waits until the screen is as expected, and returns it.
    ///
    /// # Errors
    /// If it is not within [`TIMEOUT`]; includes the screen.
    pub fn wait_for(&self, what: &str, is_expected: impl Fn(&str) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let screen = self.screen()?;
            if is_expected(&screen) {
                return Ok(screen);
            }
            if start.elapsed() > TIMEOUT {
                bail!("no {what} in time; the screen is:\n{screen}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the shell has the terminal again, and returns the exit code of the program.
    ///
    /// # Errors
    /// If it does not end, or the shell cannot be read any more.
    pub fn exit_code(&self) -> Result<u8> {
        self.wait_for("the shell's prompt", |screen| screen.trim_end().ends_with('$'))?;
        self.line("echo \"code=$?.\"")?;
        let code = |screen: &str| {
            let line = screen.lines().rev().find_map(|line| line.strip_prefix("code="))?;
            line.trim_end().strip_suffix('.')?.parse().ok()
        };
        let screen = self.wait_for("an exit code", |screen| code(screen).is_some())?;
        code(&screen).context("an exit code")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Returns a script that replaces itself by the program, with its environment and the terminal's.
fn shell_script(program: &Command, pid_file: &Path) -> Result<String> {
    let quoted = |text: &std::ffi::OsStr| -> Result<String> {
        let text = text.to_str().context("an argument is not UTF-8")?;
        Ok(format!("'{}'", text.replace('\'', "'\\''")))
    };
    let mut script = format!("#!/bin/sh\necho $$ > {}\n", quoted(pid_file.as_os_str())?);
    if let Some(dir) = program.get_current_dir() {
        writeln!(script, "cd {}", quoted(dir.as_os_str())?)?;
    }
    script.push_str("exec env -i TERM=\"$TERM\" LANG=C.UTF-8");
    for (name, value) in program.get_envs() {
        if let Some(value) = value {
            write!(script, " {}={}", name.display(), quoted(value)?)?;
        }
    }
    for word in std::iter::once(program.get_program()).chain(program.get_args()) {
        write!(script, " {}", quoted(word)?)?;
    }
    script.push('\n');
    Ok(script)
}
