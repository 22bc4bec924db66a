//! Plays all labelled scenarios and prints what was found, missed, late, resolved wrongly, or found without a cause.
//!
//! `findings [FILTER] [--seeds N]` writes the sums to `target/findings.json`. The recorded traces (`trace/…`) are among
//! the scenarios where there are any. `findings ten-days` plays ten days of a healthy cluster, which takes most of an hour.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::findings::{Case, Observed, Summary, all, play, play_traces, ten_days};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// First seed of the runs by which thresholds may be tuned, and of the held-back runs.
const SEEDS: [u64; 2] = [1, 1_001];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (filter, seeds) = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => ("", 5),
        [filter] if !filter.starts_with("--") => (*filter, 5),
        ["--seeds", seeds] => ("", number(seeds)?),
        [filter, "--seeds", seeds] => (*filter, number(seeds)?),
        _ => anyhow::bail!("usage: findings [FILTER] [--seeds N]"),
    };
    let filter = filter.to_owned();
    let cases: Vec<Case> = all().into_iter().filter(|case| case.name.contains(&filter)).collect();
    let healthy = long_runs(&filter)?;
    ensure!(!cases.is_empty() || !healthy.is_empty(), "no scenario has {filter:?} in its name");
    let [tuned, held_back] = SEEDS.map(|first| run(&cases, first, seeds));
    let (tuned, held_back) = (tuned?, held_back?);
    let mut json = tuned.json(cases.len());
    json["held_back"] = held_back.json(cases.len());
    let counts: BTreeMap<&str, usize> =
        healthy.iter().map(|(name, found)| (name.as_str(), found.len())).collect();
    json["healthy_runs"] = serde_json::to_value(counts)?;
    let path = std::env::var("NODEGLASS_FINDINGS").unwrap_or_else(|_| "target/findings.json".to_owned());
    std::fs::write(&path, serde_json::to_string_pretty(&json)?).with_context(|| format!("write {path}"))?;
    for failure in tuned.failures.iter().chain(&held_back.failures) {
        println!("✗ {failure}");
    }
    println!(
        "{:<22} {:>8} {:>6} {:>5} {:>16} {:>12} {:>10}",
        "kind", "expected", "missed", "late", "resolved wrongly", "false alarms", "slowest"
    );
    for (kind, tally) in &tuned.kinds {
        let held = held_back.kinds.get(kind).copied().unwrap_or_default();
        println!(
            "{kind:<22} {:>8} {:>6} {:>5} {:>16} {:>12} {:>8} s",
            tally.expected + held.expected,
            tally.missed + held.missed,
            tally.late + held.late,
            tally.resolved_wrongly + held.resolved_wrongly,
            tally.false_alarms + held.false_alarms,
            tally.slowest_s.max(held.slowest_s)
        );
    }
    for (name, found) in &healthy {
        println!("{name}: {} findings", found.len());
        found.iter().for_each(|found| {
            println!("✗ {name}: {} after {} s: {}", found.kind.name(), found.found_s, found.title)
        });
    }
    println!("{} scenarios, {} runs; written: {path}", cases.len(), tuned.runs + held_back.runs);
    let are_healthy = healthy.iter().all(|(_, found)| found.is_empty());
    if tuned.is_clean() && held_back.is_clean() && are_healthy {
        return Ok(());
    }
    anyhow::bail!("{} failures", tuned.failures.len() + held_back.failures.len())
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .with_context(|| format!("{text:?} is not a number of seeds"))
}

/// Plays the parts of ten days of a healthy cluster if the filter names them, and the traces that the filter selects:
/// nothing may be found in them.
fn long_runs(filter: &str) -> Result<Vec<(String, Vec<Observed>)>> {
    let mut runs = Vec::new();
    if filter.starts_with("ten-days") {
        let parts = ten_days().into_iter().filter(|part| part.name.contains(filter));
        runs = play_long(&parts.collect::<Vec<_>>())?;
    }
    let traces = play_traces(|name| format!("trace/{name}").contains(filter))?;
    runs.extend(traces.into_iter().map(|(name, found)| (format!("trace/{name}"), found)));
    Ok(runs)
}

/// Plays cases on all cores, and prints when each is done: each takes minutes. Returns what was found without a cause.
fn play_long(cases: &[Case]) -> Result<Vec<(String, Vec<Observed>)>> {
    let (next, runs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = std::time::Instant::now();
                    let found = play(&case.toml(SEEDS[1]), case.play);
                    println!("  {}: played in {} s", case.name, began.elapsed().as_secs());
                    if let Ok(mut runs) = runs.lock() {
                        runs.push(found.map(|found| (case.name.clone(), case.judge(&found).1)));
                    }
                }
            });
        }
    });
    runs.into_inner().unwrap_or_default().into_iter().collect()
}

/// Plays all scenarios with some seeds, on all cores.
fn run(cases: &[Case], first_seed: u64, seeds: u64) -> Result<Summary> {
    let runs: Vec<(&Case, u64)> = cases
        .iter()
        .flat_map(|case| (first_seed..first_seed + seeds).map(move |seed| (case, seed)))
        .collect();
    let (next, summary, failure) = (AtomicUsize::new(0), Mutex::new(Summary::default()), Mutex::new(None));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((case, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match play(&case.toml(*seed), case.play) {
                        Ok(observed) => {
                            if let Ok(mut summary) = summary.lock() {
                                summary.add(case, *seed, &observed);
                            }
                        }
                        Err(error) => {
                            if let Ok(mut failure) = failure.lock() {
                                *failure = Some(error.context(case.name.clone()));
                            }
                            return;
                        }
                    }
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_default() {
        Some(error) => Err(error),
        None => Ok(summary.into_inner().unwrap_or_default()),
    }
}
