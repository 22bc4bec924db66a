//! Fuzz targets: every decoder of foreign data gets arbitrary bytes, and its results are checked.
//!
//! A target is an ordinary function that panics if a check fails. `main.rs` gives it to libFuzzer, `corpus.rs` replays
//! the stored inputs, and `mutated.rs` feeds mutations of them; all find it by [`target`].

use std::fs;
use std::path::{Path, PathBuf};

pub mod names;
mod target {
    pub(crate) mod http;
    pub(crate) mod log;
    pub(crate) mod names;
    pub(crate) mod probe;
    pub(crate) mod slurm;
    pub(crate) mod ssh;
    pub(crate) mod stored;
    pub(crate) mod wire;
}

/// Accepts any bytes; panics if a check fails.
pub type Target = fn(&[u8]);

/// The target with a name of [`names::NAMES`].
pub fn target(name: &str) -> Option<Target> {
    Some(match name {
        "page-to-relay" => target::wire::page_to_relay,
        "relay-to-page" => target::wire::relay_to_page,
        "relay-to-page-for-long" => target::wire::relay_to_page_for_long,
        "probe-to-relay" => target::probe::probe_to_relay,
        "squeue" => target::slurm::squeue,
        "scontrol" => target::slurm::scontrol,
        "slurm-words" => target::slurm::words,
        "known-hosts" => target::ssh::known_hosts,
        "ssh-config" => target::ssh::config,
        "http" => target::http::request,
        "log" => target::log::log,
        "names" => target::names::names,
        "recording" => target::stored::recording,
        "history-segment" => target::stored::history_segment,
        "job-record" => target::stored::job_record,
        "database" => target::stored::database,
        NEEDLE => needle,
        _ => return None,
    })
}

/// A target that is in no list: finding it shows that coverage guides the inputs.
pub const NEEDLE: &str = "needle";

/// Practically impossible to find by chance, but each correct byte covers a new edge.
fn needle(bytes: &[u8]) {
    let at = |index: usize| bytes.get(index).copied();
    if at(0) == Some(b'n') && at(1) == Some(b'e') && at(2) == Some(b'e') {
        let end = at(3) == Some(b'd') && at(4) == Some(b'l') && at(5) == Some(b'e');
        assert!(!end, "the needle was found");
    }
}

/// The files of a target's corpus and its other seeds, in order.
///
/// # Panics
/// If there is no such target, or its files cannot be listed.
pub fn files(name: &str) -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    let (_, seeds) = names::NAMES.iter().find(|(one, _)| *one == name).expect("a name");
    let folders = seeds.iter().map(|seeds| root.join(seeds)).chain([here.join("corpus").join(name)]);
    let mut files: Vec<_> = folders
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten())
        .map(|entry| entry.expect("an entry can be read").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// The contents of [`files`].
///
/// # Panics
/// If one cannot be read.
pub fn inputs(name: &str) -> Vec<Vec<u8>> {
    files(name).iter().map(|file| fs::read(file).expect("an input can be read")).collect()
}
