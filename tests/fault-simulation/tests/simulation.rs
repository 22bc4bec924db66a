//! The simulation as an ordinary test: a few histories hold, and each broken guarantee is detected.

use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fault-simulation")).args(args).output().expect("it can be started")
}

/// The output of a run that succeeds.
fn successful(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = simulate(args);
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&stderr));
    text
}

#[test]
fn no_history_of_faults_breaks_a_guarantee() {
    successful(&["--seeds", "40"]);
}

#[test]
fn each_deliberately_broken_guarantee_is_detected() {
    for name in [
        "picture",
        "age",
        "link",
        "losses",
        "memory",
        "fresh",
        "neighbours",
        "load",
        "orphans",
        "history",
        "findings",
    ] {
        successful(&["--break", name, "--seeds", "1"]);
    }
}

#[test]
fn a_seed_replays_exactly() {
    let digest = |text: String| text.lines().find(|line| line.contains("digest")).map(str::to_owned);
    let runs = [(); 3].map(|()| digest(successful(&["--seed", "7"])));
    assert!(runs[0].is_some() && runs.iter().all(|run| *run == runs[0]), "{runs:?}");
}
