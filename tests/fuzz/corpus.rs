//! Every stored input, kept for its coverage or because it once broke something, passes its target.

use nodeglass_fuzz::names::NAMES;
use nodeglass_fuzz::{files, target};
use std::fs;
use std::path::Path;

#[test]
fn the_corpus_of_page_to_relay_passes() {
    replay("page-to-relay");
}

#[test]
fn the_corpus_of_relay_to_page_passes() {
    replay("relay-to-page");
}

#[test]
fn the_corpus_of_relay_to_page_for_long_passes() {
    replay("relay-to-page-for-long");
}

#[test]
fn the_corpus_of_probe_to_relay_passes() {
    replay("probe-to-relay");
}

#[test]
fn the_corpus_of_squeue_passes() {
    replay("squeue");
}

#[test]
fn the_corpus_of_scontrol_passes() {
    replay("scontrol");
}

#[test]
fn the_corpus_of_slurm_words_passes() {
    replay("slurm-words");
}

#[test]
fn the_corpus_of_known_hosts_passes() {
    replay("known-hosts");
}

#[test]
fn the_corpus_of_ssh_config_passes() {
    replay("ssh-config");
}

#[test]
fn the_corpus_of_http_passes() {
    replay("http");
}

#[test]
fn the_corpus_of_log_passes() {
    replay("log");
}

#[test]
fn the_corpus_of_names_passes() {
    replay("names");
}

#[test]
fn the_corpus_of_recording_passes() {
    replay("recording");
}

#[test]
fn the_corpus_of_history_segment_passes() {
    replay("history-segment");
}

#[test]
fn the_corpus_of_job_record_passes() {
    replay("job-record");
}

#[test]
fn the_corpus_of_database_passes() {
    replay("database");
}

#[test]
fn every_target_is_replayed_and_has_a_corpus() {
    let here = include_str!("corpus.rs");
    for (name, _) in NAMES {
        assert!(target(name).is_some(), "{name} is no target");
        assert!(here.contains(&format!("replay(\"{name}\")")), "{name} is not replayed");
    }
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")).expect("a corpus");
    for folder in folders.map(|folder| folder.expect("a folder").file_name()) {
        assert!(NAMES.iter().any(|(name, _)| folder.to_str() == Some(name)), "{folder:?} is of no target");
    }
}

#[test]
fn the_corpus_is_small() {
    // Seeds of other tests, such as the frozen bytes of the wires, have their own reasons.
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let size: u64 = NAMES
        .iter()
        .flat_map(|(name, _)| files(name))
        .filter(|file| file.starts_with(&corpus))
        .map(|file| fs::metadata(file).map_or(0, |m| m.len()))
        .sum();
    assert!(size < 100_000, "{size} bytes: `cargo xtask fuzz --keep` keeps only what leads somewhere new");
}

fn replay(name: &str) {
    let target = target(name).expect("a target");
    let files = files(name);
    assert!(files.len() >= 3, "only {} inputs for {name}", files.len());
    for file in files {
        let bytes = fs::read(&file).expect("an input can be read");
        // A failure must name its input.
        eprintln!("{}", file.display());
        target(&bytes);
    }
}
