//! The child process that loads libtpuinfo: responds to each line on stdin with one on stdout.

use super::library::{Report, TpuInfo};
use crate::stdout;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, BufRead, Write},
    path::Path,
};

/// A line of the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The library cannot be loaded, with the reason, which is empty if it is not there; the worker ends.
    Unavailable(String),
    /// The report of the library.
    Report(Report),
}

/// Runs the worker until stdin ends, and then kills it: an orderly exit would run the library's
/// destructor.
///
/// # Errors
/// If the pipes fail.
pub fn run(library: &Path) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut replies = stdout::take()?;
    match TpuInfo::open(library) {
        Err(error) => send(&mut replies, &Reply::Unavailable(reason(library, &error.to_string())))?,
        Ok(info) => {
            for line in io::stdin().lock().lines() {
                line?;
                let reply =
                    info.report().map_or_else(|error| Reply::Unavailable(error.to_string()), Reply::Report);
                send(&mut replies, &reply)?;
            }
        }
    }
    kill_process(getpid(), Signal::KILL)?;
    Ok(())
}

/// Returns the loader's message; empty if the library itself does not exist, rather than a library that it needs.
fn reason(library: &Path, message: &str) -> String {
    let is_missing = message.starts_with(&format!("{}: cannot open shared object file", library.display()));
    if is_missing { String::new() } else { message.to_owned() }
}

fn send(replies: &mut File, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    replies.write_all(&line)
}
