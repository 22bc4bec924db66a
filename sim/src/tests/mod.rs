//! A scenario behaves as its file describes.

mod bad_files;
mod behaviours;
mod demo;
mod determinism;
mod faults;
mod interventions;
mod jobs;
mod readings;

use super::*;
use crate::cluster::workload;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;

/// A time in seconds after a start on 2026-01-01.
fn at(seconds: i64) -> ScenarioTime {
    ScenarioTime { t_ms: seconds * 1_000, start_wall_ms: 1_767_225_600_000 }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// Two H100 nodes with four GPUs each and the jobs or faults given.
fn scenario(rest: &str) -> Scenario {
    Scenario::from_toml(&toml(rest)).unwrap()
}

fn toml(rest: &str) -> String {
    format!(
        "cluster = \"c\"\nuser = \"alice\"\nseed = 5\n\
         [[node]]\nname = \"n[1-2]\"\nmodel = \"h100\"\ngpus = 4\n{rest}"
    )
}

/// A job on both nodes that started an hour ago, with additional keys.
fn job(rest: &str) -> String {
    format!(
        "[[job]]\nid = 7\nname = \"j\"\npartition = \"p\"\nsubmitted = \"-1h\"\nstart = \"-1h\"\n\
         nodes = \"n[1-2]\"\nargs = \"python3 j.py\"\n{rest}\n"
    )
}

fn gpu(scenario: &Scenario, name: &str, gpu: usize, second: i64) -> GpuSample {
    scenario.sample(&node(name), at(second)).unwrap().gpus.swap_remove(gpu)
}

fn value(reading: &Reading<u64>) -> u64 {
    *reading.value().unwrap()
}
