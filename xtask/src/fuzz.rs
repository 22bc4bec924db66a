//! Fuzzes each decoder with coverage guidance, and keeps inputs that break it.

use crate::shell::{cargo, root, step, target};
use crate::{shell, system};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

#[path = "../../tests/fuzz/src/names.rs"]
mod names;

use names::{NAMES, Name};

/// Default fuzzing time per target, in s.
const SECONDS: u32 = 60;
/// A target that can only be found with guidance; see `tests/fuzz/src/lib.rs`.
const NEEDLE: &str = "needle";
/// Time limit for finding it, in s; it takes one.
const NEEDLE_SECONDS: u32 = 60;
/// Maximum length of a message.
const MAX_INPUT: u32 = 32 * 1024;
/// Maximum size of an input to keep, and number of inputs per run: the corpus is part of every checkout.
const MAX_KEPT: u64 = 1024;
const MANY_KEPT: usize = 24;

/// The requested targets and options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    targets: Vec<String>,
    seconds: u32,
    keep: bool,
}

impl Selection {
    /// All targets, for this time.
    pub(crate) fn all_for(seconds: u32) -> Self {
        Self { targets: Vec::new(), seconds, keep: false }
    }

    /// Parses the arguments of `cargo xtask fuzz`.
    ///
    /// # Errors
    /// A sentence about the invalid argument.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut selection = Self::all_for(SECONDS);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seconds" => {
                    let seconds = args.next().and_then(|seconds| seconds.parse().ok());
                    selection.seconds =
                        seconds.filter(|seconds| *seconds > 0).context("--seconds needs a number")?;
                }
                "--keep" => selection.keep = true,
                name if NAMES.iter().any(|(one, _)| *one == name) => selection.targets.push(name.to_owned()),
                other => {
                    let known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
                    bail!("{other:?} is not understood; the targets are {}", known.join(", "));
                }
            }
        }
        Ok(selection)
    }

    fn targets(&self) -> Vec<Name> {
        let wanted = |name: &str| self.targets.is_empty() || self.targets.iter().any(|one| one == name);
        NAMES.into_iter().filter(|(name, _)| wanted(name)).collect()
    }
}

/// Builds the fuzzer, checks that guidance works, and runs each target.
pub(crate) fn run(selection: &Selection) -> Result<ExitCode> {
    let fuzzer = Fuzzer::build()?;
    step("checking that the fuzzer's guidance works", || fuzzer.find_the_needle())?;
    let targets = selection.targets();
    let queue = Mutex::new(targets.iter());
    let broken = Mutex::new(Vec::new());
    let minutes = targets.len() as u64 * u64::from(selection.seconds);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(targets.len().max(1));
    let expected = shell::duration(std::time::Duration::from_secs(minutes / workers as u64));
    step(&format!("fuzzing {} targets, {workers} at a time, in about {expected}", targets.len()), || {
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(name) = queue.lock().ok().and_then(|mut queue| queue.next()) {
                        match fuzzer.feed(name, selection) {
                            Ok(summary) => println!("  {:<24} {summary}", name.0),
                            Err(error) => {
                                println!("  {:<24} BROKEN", name.0);
                                broken.lock().map(|mut broken| broken.push((name.0, error))).ok();
                            }
                        }
                    }
                });
            }
        });
        Ok(())
    })?;
    let broken = broken.into_inner().unwrap_or_default();
    for (name, error) in &broken {
        println!("\n{name}: {error:#}");
    }
    println!("\n{} passed, {} failed", targets.len() - broken.len(), broken.len());
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The instrumented program, which counts every edge of our own crates.
struct Fuzzer {
    program: PathBuf,
    /// Folder of inputs.
    folder: PathBuf,
}

impl Fuzzer {
    fn build() -> Result<Self> {
        let openssl = system::for_building()?;
        // Of the whole workspace, so that the dependencies are shared with every other build; see `tiers`.
        let what = ["build", "--workspace", "--bin", "fuzz", "--features", "nodeglass-fuzz/libfuzzer"];
        step("building the fuzzer", || {
            shell::run(
                cargo()
                    .args(what)
                    .args(openssl.flags())
                    .env("RUSTC_WORKSPACE_WRAPPER", root().join("tests/fuzz/instrument.sh")),
            )
        })?;
        Ok(Self { program: target().join("debug/fuzz"), folder: target().join("fuzz") })
    }

    /// A fuzzer that cannot find this would find nothing else either, and still pass.
    fn find_the_needle(&self) -> Result<()> {
        let corpus = self.corpus(NEEDLE)?;
        fs::remove_dir_all(&corpus)?;
        let corpus = self.corpus(NEEDLE)?;
        let output = self.command(NEEDLE, NEEDLE_SECONDS).arg(&corpus).output()?;
        let output_text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !output_text.contains("the needle was found") {
            bail!(
                "the fuzzer was not guided: are the crates built with edge counters?\n{}",
                end_of(&output_text)
            );
        }
        Ok(())
    }

    /// Runs one target; returns a summary.
    fn feed(&self, (name, seeds): &Name, selection: &Selection) -> Result<String> {
        let found = self.corpus(name)?;
        let committed = committed(name);
        let seeds: Vec<_> = seeds.iter().map(|folder| root().join(folder)).collect();
        let output = self
            .command(name, selection.seconds)
            .arg("-print_final_stats=1")
            .arg(&found)
            .arg(&committed)
            .args(&seeds)
            .output()
            .with_context(|| format!("start {}", self.program.display()))?;
        let output_text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let what = "keep the input that it names in tests/fuzz/corpus/";
            bail!("{}\n\n{what}{name}/ once the fault is fixed", end_of(&output_text));
        }
        let course = Course::read(&output_text)
            .with_context(|| format!("not understood:\n{}", end_of(&output_text)))?;
        if course.edges == 0 {
            bail!("it took no edge at all");
        }
        let kept = if selection.keep { self.keep(name, &found, &committed, &seeds)? } else { 0 };
        Ok(format!("{course}{}", if kept > 0 { format!(", {kept} inputs kept") } else { String::new() }))
    }

    /// Adds inputs to the corpus that reach new code.
    fn keep(&self, name: &str, found: &Path, committed: &Path, seeds: &[PathBuf]) -> Result<usize> {
        let merged = self.folder.join(format!("merged-{name}"));
        let _ = fs::remove_dir_all(&merged);
        fs::create_dir_all(&merged)?;
        let known: Vec<_> = seeds.iter().map(PathBuf::as_path).chain([committed]).collect();
        for file in known.into_iter().flat_map(files) {
            fs::copy(&file, merged.join(file.file_name().unwrap_or_default()))?;
        }
        let before: BTreeSet<_> = files(&merged).collect();
        let output = self.command(name, 600).arg("-set_cover_merge=1").arg(&merged).arg(found).output()?;
        if !output.status.success() {
            bail!("{}", end_of(&String::from_utf8_lossy(&output.stderr)));
        }
        // libFuzzer writes inputs with the most coverage first.
        let mut new: Vec<_> = files(&merged)
            .filter(|file| !before.contains(file))
            .filter_map(|file| Some((fs::metadata(&file).ok()?, file)))
            .filter(|(about, _)| about.len() <= MAX_KEPT)
            .collect();
        new.sort_by_key(|(about, _)| about.modified().ok());
        new.truncate(MANY_KEPT);
        for (_, file) in &new {
            fs::copy(file, committed.join(file.file_name().unwrap_or_default()))?;
        }
        let _ = fs::remove_dir_all(&merged);
        Ok(new.len())
    }

    fn command(&self, name: &str, seconds: u32) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("NODEGLASS_FUZZ", name)
            .arg(format!("-artifact_prefix={}/{name}-", self.folder.display()))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={MAX_INPUT}"))
            // A slow input is as bad as a hang, and a large one as bad as a bomb.
            .args(["-timeout=20", "-rss_limit_mb=2048"])
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// The folder of a target's findings.
    fn corpus(&self, name: &str) -> Result<PathBuf> {
        let dir = self.folder.join("corpus").join(name);
        fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
        Ok(dir)
    }
}

fn committed(name: &str) -> PathBuf {
    root().join("tests/fuzz/corpus").join(name)
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file())
}

/// The progress of a target.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    runs: u64,
    edges_before: u64,
    edges: u64,
}

impl Course {
    fn read(output_text: &str) -> Option<Self> {
        let edges = |line: &str| line.split_once(" cov: ")?.1.split(' ').next()?.parse().ok();
        let mut steps = output_text.lines().filter_map(edges);
        let before = output_text.lines().find(|line| line.contains("INITED")).and_then(edges)?;
        let runs =
            output_text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
        Some(Self { runs: runs.trim().parse().ok()?, edges_before: before, edges: steps.next_back()? })
    }
}

impl std::fmt::Display for Course {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} inputs, {} edges, {} of them new",
            self.runs,
            self.edges,
            self.edges - self.edges_before
        )
    }
}

/// The last lines, without libFuzzer's dump of the input.
fn end_of(output_text: &str) -> String {
    let lines: Vec<_> = output_text.lines().filter(|line| !line.starts_with("0x")).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_and_a_time_are_understood() {
        let args = ["squeue", "--seconds", "5", "--keep"].map(str::to_owned);
        let selection = Selection::parse(&args).unwrap();
        assert_eq!(selection, Selection { targets: vec!["squeue".into()], seconds: 5, keep: true });
        assert_eq!(selection.targets().len(), 1);
        assert_eq!(Selection::parse(&[]).unwrap().targets().len(), NAMES.len());
        let error = Selection::parse(&["moon".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"moon\"") && error.contains("known-hosts"), "{error}");
    }

    #[test]
    fn progress_is_parsed_from_libfuzzers_output() {
        let output_text = "#5\tINITED cov: 580 ft: 594 corp: 4/39Kb\n#6\tNEW    cov: 590 ft: 651\n\
                    #9\tDONE   cov: 612 ft: 700 corp: 9\nstat::number_of_executed_units: 7968\n";
        let course = Course::read(output_text).unwrap();
        assert_eq!(course, Course { runs: 7_968, edges_before: 580, edges: 612 });
        assert_eq!(Course::read("nothing of the kind"), None);
    }
}
