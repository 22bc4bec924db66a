//! Fuzz targets: every decoder of foreign data gets any bytes, and its results are checked.
//!
//! A target is an ordinary function that panics if something does not hold. `main.rs` gives it to libFuzzer, `corpus.rs`
//! replays what was kept, and both find it by [`target`].

pub mod names;
mod target {
    pub(crate) mod http;
    pub(crate) mod log;
    pub(crate) mod names;
    pub(crate) mod probe;
    pub(crate) mod slurm;
    pub(crate) mod ssh;
    pub(crate) mod wire;
}

/// Takes any bytes; panics if something does not hold.
pub type Target = fn(&[u8]);

/// The target of a name in [`names::NAMES`].
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
        NEEDLE => needle,
        _ => return None,
    })
}

/// A target that is in no list: finding it shows that inputs are led and not only drawn.
pub const NEEDLE: &str = "needle";

/// Nobody hits on this by chance, but each right byte is an edge of its own and leads a step further.
fn needle(bytes: &[u8]) {
    let at = |index: usize| bytes.get(index).copied();
    if at(0) == Some(b'n') && at(1) == Some(b'e') && at(2) == Some(b'e') {
        let end = at(3) == Some(b'd') && at(4) == Some(b'l') && at(5) == Some(b'e');
        assert!(!end, "the needle was found");
    }
}
