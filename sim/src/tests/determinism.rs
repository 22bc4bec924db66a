//! The same scenario, times and control lines yield the same bytes.

use super::*;
use nodeglass_protocol::probe::Control;

/// Duration of a run, in ms.
const RUN_MS: i64 = 180_000;
/// Interval of pings, in ms.
const PING_MS: i64 = 10_000;

/// All bytes that the probes of some nodes print in a run, which one of them interrupts.
fn run(toml: &str, names: &[&str]) -> Vec<u8> {
    let cluster = Cluster::new(Scenario::from_toml(toml).unwrap());
    let mut bytes = Vec::new();
    for name in names {
        let latency_ms = cluster.latency(&node(name)).unwrap().as_millis() as i64;
        let mut probe = cluster.connect(&node(name), at(0).plus(latency_ms)).unwrap();
        let mut now_ms = latency_ms;
        for step in 0.. {
            let now = at(0).plus(now_ms);
            probe.advance(now);
            while probe.has_output() {
                bytes.extend(probe.take_output());
            }
            if step == 400 {
                let interval = Control::Interval { ms: 2_000, phase_ms: 250 };
                probe.receive(format!("{}\n", serde_json::to_string(&interval).unwrap()).as_bytes());
            }
            let Some(wake) = probe.next_wake() else {
                probe = match cluster.connect(&node(name), now.plus(1_000)) {
                    Ok(probe) => probe,
                    Err(_) => break,
                };
                now_ms += 1_000;
                continue;
            };
            if now_ms / PING_MS < wake.t_ms / PING_MS {
                probe.receive(b"\"ping\"\n");
            }
            now_ms = wake.t_ms;
            if now_ms > RUN_MS {
                break;
            }
        }
    }
    bytes
}

/// Nodes of the demo with different models and faults.
const NAMES: [&str; 4] = ["gpu-a03", "gpu-a04", "gpu-h09", "gpu-m01"];

#[test]
fn the_same_seed_yields_the_same_bytes() {
    let first = run(DEMO, &NAMES);
    assert!(first.len() > 1_000_000, "{} bytes", first.len());
    assert!(first == run(DEMO, &NAMES), "the bytes differ");
}

#[test]
fn another_seed_yields_other_bytes() {
    let quiet = "gpu-h01";
    assert!(run(DEMO, &[quiet]) != run(&DEMO.replace("seed = 20", "seed = 21"), &[quiet]));
}
