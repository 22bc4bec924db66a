//! `cargo xtask bench`: measures the design's targets next to other monitors, on this machine in one run.

mod catalogue;
mod figure;
mod machine;
mod summary;

use crate::shell::{cargo, root, run as run_to_end, step, target};
use crate::{page, system, test_tools};
use anyhow::{Context, Result, bail};
use catalogue::{CATALOGUE, Entry};
use figure::Figure;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Measures the selected entries, or all, prints a table and writes `target/bench/summary.json`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    if args.iter().any(|arg| arg == "--list") {
        print!("{}", catalogue::list());
        return Ok(ExitCode::SUCCESS);
    }
    if let [subject, flag] = args
        && flag == "--flame"
    {
        return flame(subject);
    }
    if let Some(flag) = args.iter().find(|arg| arg.starts_with('-')) {
        bail!("{flag:?} is not understood; `cargo xtask bench --list` names what can be measured");
    }
    let wanted = wanted(args)?;
    let variables = prepare(&wanted)?;
    let mut figures = Vec::new();
    let mut failed = Vec::new();
    for subject in subjects(&wanted) {
        let names = wanted.iter().filter(|entry| entry.subject() == subject).map(|entry| entry.name);
        println!("\n── {subject} ──");
        if let Err(error) = measure(subject, names, &variables, &mut figures) {
            println!("  {subject} was not measured to its end: {error:#}");
            failed.push(subject);
        }
    }
    print!("{}", summary::table(&figures, &machine::describe()));
    let path = summary::write(&figures)?;
    println!("written: {}", path.display());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("not measured to the end: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Runs a relay for minutes or hours, and writes `target/soak.json`.
///
/// # Errors
/// If something grows.
pub(crate) fn soak(args: &[String]) -> Result<ExitCode> {
    let minutes = match args {
        [] => "120",
        [flag, minutes] if flag == "--minutes" => minutes,
        _ => bail!("usage: cargo xtask soak [--minutes N]"),
    };
    let minutes: u32 = minutes.parse().context("--minutes needs a number")?;
    prepare(&[])?;
    let mut command = Command::new(target().join("release/examples/measure"));
    command.env("NODEGLASS_SOAK", target().join("soak.json"));
    run_to_end(command.args(["endurance", &minutes.to_string()]))?;
    Ok(ExitCode::SUCCESS)
}

/// Draws a flame graph of a subject.
fn flame(subject: &str) -> Result<ExitCode> {
    let picture = match subject {
        "page" => "page-tick.svg",
        "relay" => "relay-second.svg",
        "probe" => "probe-tick.svg",
        other => bail!("there is no chart of {other:?}; there are page, relay and probe"),
    };
    let openssl = system::for_building()?;
    system::for_testing()?;
    let is_page = subject == "page";
    if is_page {
        page::build(page::Build::Profiled)?;
    }
    let (profile, folder) = if is_page { (None, "debug") } else { (Some("--release"), "release") };
    step("building the programs to measure, and the benchmarks", || {
        let packages =
            ["-p", "node-probe", "-p", "nodeglass-relay", "-p", "fake-nvml", "-p", "nodeglass-tests"];
        let kinds = ["--bins", "--lib", "--examples"];
        run_to_end(cargo().arg("build").args(profile).args(packages).args(kinds).args(openssl.flags()))
    })?;
    let picture = root().join("docs/images/flame").join(picture);
    fs::create_dir_all(picture.parent().context("a folder for the picture")?)?;
    let measure = target().join(folder).join("examples/measure");
    run_to_end(Command::new(measure).arg(format!("{subject}-flame")).arg(&picture))?;
    println!("written: {}", picture.display());
    Ok(ExitCode::SUCCESS)
}

/// The entries whose names begin with one of the names; all of them if there are none.
fn wanted(names: &[String]) -> Result<Vec<&'static Entry>> {
    for name in names {
        if !CATALOGUE.iter().any(|entry| entry.matches(name)) {
            bail!("there is no benchmark {name:?}; `cargo xtask bench --list` lists all");
        }
    }
    let meant = |entry: &&Entry| names.is_empty() || names.iter().any(|name| entry.matches(name));
    Ok(CATALOGUE.iter().filter(meant).collect())
}

/// The subjects of entries, without duplicates, in the order of the catalogue.
fn subjects(entries: &[&'static Entry]) -> Vec<&'static str> {
    let mut subjects: Vec<_> = entries.iter().map(|entry| entry.subject()).collect();
    subjects.dedup();
    subjects
}

/// Installs and builds what the entries need; returns environment variables for the measuring program.
fn prepare(wanted: &[&'static Entry]) -> Result<Vec<(&'static str, PathBuf)>> {
    let openssl = system::for_building()?;
    system::for_testing()?;
    let subjects = subjects(wanted);
    let mut variables = Vec::new();
    if subjects.contains(&"probe") || subjects.contains(&"wire") {
        variables = test_tools::for_benchmarks()?;
    }
    if subjects.contains(&"history") {
        system::for_comparing_storage()?;
    }
    if subjects.contains(&"page") {
        page::build(page::Build::Optimised)?;
    }
    step("building the programs to measure, and the benchmarks", || {
        run_to_end(
            cargo()
                .args(["build", "--release", "-p", "node-probe", "-p", "nodeglass-relay", "-p", "fake-nvml"])
                .args(["-p", "nodeglass-tests", "--bins", "--lib", "--examples"])
                .args(openssl.flags()),
        )
    })?;
    Ok(variables)
}

/// Runs the measuring program of a subject and collects its figures.
fn measure(
    subject: &str,
    names: impl Iterator<Item = &'static str>,
    variables: &[(&'static str, PathBuf)],
    figures: &mut Vec<Figure>,
) -> Result<()> {
    let mut child = Command::new(target().join("release/examples/measure"))
        .arg(subject)
        .args(names)
        .envs(variables.iter().map(|(name, path)| (name, path)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the measuring program")?;
    let stdout = child.stdout.take().context("stdout was piped")?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        match Figure::read(&line)? {
            Some(figure) => {
                println!("  {figure}");
                figures.push(figure);
            }
            None => println!("  {line}"),
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("the measuring program ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Result<Vec<&'static str>> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(wanted(&names)?.into_iter().map(|entry| entry.name).collect())
    }

    #[test]
    fn a_subject_means_everything_of_it_and_a_name_itself() {
        assert_eq!(names(&["probe.rss_mb"]).unwrap(), ["probe.rss_mb"]);
        let probe = names(&["probe"]).unwrap();
        assert!(probe.len() > 3 && probe.iter().all(|name| name.starts_with("probe.")), "{probe:?}");
        assert_eq!(names(&[]).unwrap().len(), CATALOGUE.len());
    }

    #[test]
    fn an_unknown_name_is_reported_with_where_to_find_names() {
        let error = names(&["prob"]).unwrap_err().to_string();
        assert!(error.contains("\"prob\"") && error.contains("--list"), "{error}");
    }

    #[test]
    fn each_subject_is_measured_once() {
        let subjects = subjects(&CATALOGUE.iter().collect::<Vec<_>>());
        let mut sorted = subjects.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), subjects.len(), "entries of one subject belong together: {subjects:?}");
    }
}
