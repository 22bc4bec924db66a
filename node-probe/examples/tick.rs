//! How long a look at this machine's GPUs takes: `cargo run --release -p node-probe --example tick -- [LIBRARY]`.

use node_probe::source::{Source, nvml::NvmlSource};
use std::time::{Duration, Instant};

/// Looks that are timed, after one that is not.
const LOOKS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut source = NvmlSource::new(std::env::args_os().nth(1).map(Into::into));
    let mut session = source.open()?;
    let inventory = timed(|| drop(session.inventory()), 20);
    println!("{} GPUs and instances", session.inventory().gpus.len());
    session.readings()?;
    let readings = timed(|| drop(session.readings()), LOOKS);
    let occupants = timed(|| drop(session.occupants()), LOOKS);
    let health = timed(|| drop(session.health()), LOOKS);
    println!(
        "inventory {inventory:?}, readings {readings:?}, processes {occupants:?}, health {health:?} (medians)"
    );
    Ok(())
}

/// The median of so many calls.
fn timed(mut call: impl FnMut(), times: usize) -> Duration {
    let mut all: Vec<_> = (0..times)
        .map(|_| {
            let began = Instant::now();
            call();
            began.elapsed()
        })
        .collect();
    all.sort_unstable();
    all[times / 2]
}
