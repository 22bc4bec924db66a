//! Logs as programs write them, in `samples/`: each with what it states in the file of the same name.

use super::*;
use nodeglass_redact::log::Window;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A log and what is expected of it.
struct Sample {
    name: String,
    log: Vec<u8>,
    expected: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/job_log/samples")
}

fn samples() -> Vec<Sample> {
    let mut logs: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    let sample = |path: &PathBuf| Sample {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        log: fs::read(path).unwrap(),
        expected: serde_json::from_slice(&fs::read(path.with_extension("json")).unwrap()).unwrap(),
    };
    logs.iter().map(sample).collect()
}

/// Returns the content of a log, in the form of the expectations.
fn stated(sample: &Sample) -> Value {
    let window = Window::of(0, sample.log.len() as u64, false);
    let tail = window.tail(&sample.log);
    let wall_s = sample.expected["read_at_s"].as_i64().unwrap_or(0);
    let mut scanner = LogScanner::new(Arc::new(LogPatterns::new(&[])), 0);
    let now = ReadTime { relay_ms: 1_000, wall_s, utc_offset_s: 0, written_s: None };
    scanner.read(&tail.lines, tail.partial.as_ref(), LogChunk::New, now);
    // What is still incomplete at the next reading is searched as well.
    scanner.read(&[], tail.partial.as_ref(), LogChunk::New, now);
    let state = scanner.state(1_000);
    let mut stated = serde_json::Map::new();
    if let Some(progress) = &state.progress {
        stated.insert("progress".to_owned(), json(progress));
    }
    if !state.messages.is_empty() {
        let names = state.messages.iter().map(|message| message.pattern.name.as_str().into());
        stated.insert("messages".to_owned(), Value::Array(names.collect()));
    }
    Value::Object(stated)
}

fn json(progress: &Progress) -> Value {
    let rounded = |value: f64| Value::from((value * 1e6).round() / 1e6);
    let mut fields =
        BTreeMap::from([("label", Value::from(progress.label.as_str())), ("done", rounded(progress.done))]);
    fields.extend(progress.total.map(|total| ("total", rounded(total))));
    if let Some(epoch) = progress.epoch {
        let epoch = [("number", epoch.number), ("done", epoch.done), ("total", epoch.total)];
        fields.insert(
            "epoch",
            epoch.into_iter().map(|(name, value)| (name.to_owned(), rounded(value))).collect(),
        );
    }
    let left = |(earliest_ms, _): (u64, u64)| rounded((earliest_ms as f64 - 1_000.0) / 1_000.0);
    fields.extend(progress.end_ms.map(|end| ("left_s", left(end))));
    fields.extend(progress.part_end_ms.map(|end| ("part_left_s", left(end))));
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Normalises numbers, whether or not they are written with a point.
fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        other => other.clone(),
    }
}

#[test]
fn each_log_states_what_is_expected_of_it() {
    let mut wrong = Vec::new();
    for sample in samples() {
        let mut expected = sample.expected.clone();
        let fields = expected.as_object_mut().unwrap();
        fields.retain(|name, _| matches!(name.as_str(), "progress" | "messages"));
        let (expected, stated) = (normal(&expected), normal(&stated(&sample)));
        if expected != stated {
            wrong.push(format!("{}: expected {expected}, found {stated}", sample.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table of formats as `docs/FINDINGS.md` has it; `cargo xtask generate` renews it.
#[test]
fn the_formats_are_documented() {
    let samples = samples();
    let of = |kind: fn(&Sample) -> bool| samples.iter().filter(move |sample| kind(sample));
    let is_harmless = |sample: &Sample| sample.name.starts_with("harmless_");
    let is_error = |sample: &Sample| sample.name.starts_with("error_");
    let program = |sample: &Sample| sample.expected["program"].as_str().unwrap_or_default().to_owned();
    let states = |sample: &Sample| {
        let progress = sample.expected.get("progress")?;
        let number = |field: &str| progress.get(field).map(ToString::to_string);
        let mut text = format!("{} {}", progress["label"].as_str()?, number("done")?).trim_start().to_owned();
        if let Some(total) = number("total") {
            text += &format!(" of {total}");
        }
        if let Some(epoch) = progress.get("epoch") {
            text += &format!("; in it {} of {}", epoch["done"], epoch["total"]);
        }
        if let Some(left_s) = number("left_s") {
            text += &format!("; ends in {left_s} s");
        }
        if let Some(left_s) = number("part_left_s") {
            text += &format!("; this part ends in {left_s} s");
        }
        Some(text)
    };
    let mut table = String::from("| program | what its log states |\n|---|---|\n");
    for sample in samples.iter().filter(|sample| !is_harmless(sample) && !is_error(sample)) {
        let states = states(sample).unwrap_or_else(|| "no progress".to_owned());
        table += &format!("| {} | {states} |\n", program(sample));
    }
    table += &format!(
        "\nAnd {} logs with errors, each found under its name, and {} harmless logs, in which nothing is found.\n",
        of(is_error).count(),
        of(is_harmless).count()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FINDINGS.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(START).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let renewed = format!("{before}{START}{table}{END}{after}");
    if std::env::var_os("NODEGLASS_FREEZE").is_some() {
        fs::write(&path, renewed).unwrap();
        return;
    }
    assert!(document == renewed, "docs/FINDINGS.md is out of date: run `cargo xtask generate`");
}

/// Markers of the table.
const START: &str = "<!-- written by the tests of `job_log/samples` -->\n";
const END: &str = "<!-- end of the formats -->";
