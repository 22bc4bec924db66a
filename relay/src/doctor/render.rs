//! The results as text for a terminal.

use super::{CheckResult, Level, Report};
use nodeglass_app::terminal::Style;
use nodeglass_platform::wrap;
use std::fmt::Write as _;

/// Lines are at most this long, unless a single word is longer.
const WIDTH: usize = 80;
/// Column of the text of a result.
const INDENT: usize = 28;

/// The report; symbols and words say the level, and colour only repeats them.
pub fn text(report: &Report, style: Style) -> String {
    let Report { version, machine, node, results, .. } = report;
    let node = node.as_ref().map(|node| format!(", node {node}")).unwrap_or_default();
    let mut out = format!("nodeglass {version} on {machine}{node}\n");
    let mut section = "";
    for result in results {
        if result.section != section {
            section = result.section;
            let _ = write!(out, "\n{section}\n");
        }
        line(&mut out, result, style);
    }
    let count = |level| results.iter().filter(|result| result.level == level).count();
    let (warnings, failures) = (count(Level::Warn), count(Level::Fail));
    let _ = match (failures, warnings) {
        (0, 0) => writeln!(out, "\nNothing is wrong."),
        (0, 1) => writeln!(out, "\n1 warning."),
        (0, n) => writeln!(out, "\n{n} warnings."),
        (failures, warnings) => writeln!(
            out,
            "\n{failures} failure{}, {warnings} warning{}. Begin with the first failure.",
            plural(failures),
            plural(warnings)
        ),
    };
    out
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn line(out: &mut String, result: &CheckResult, style: Style) {
    let (label, code) = match result.level {
        Level::Ok => ("● ok  ", "32"),
        Level::Warn => ("◆ warn", "33"),
        Level::Fail => ("▲ fail", "31"),
    };
    let check = result.check;
    let mut lines = result.text.lines().flat_map(|line| wrap::words(line, WIDTH - INDENT));
    let first = lines.next().unwrap_or_default();
    let _ = writeln!(out, "  {}  {check:<17} {first}", style.paint(code, label));
    for line in lines {
        let _ = writeln!(out, "{:INDENT$}{line}", "");
    }
    for (at, line) in result.advice.iter().flat_map(|text| wrap::words(text, WIDTH - INDENT - 2)).enumerate()
    {
        let mark = if at == 0 { "→" } else { " " };
        let _ = writeln!(out, "{:INDENT$}{mark} {line}", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let node = nodeglass_protocol::NodeName::new("gpu-01").ok();
        Report::new(
            "login1".into(),
            node,
            vec![
                CheckResult::ok("SLURM", "clients", "slurm 24.11.5"),
                CheckResult::warn(
                    "Node",
                    "shell",
                    "the login shell prints before our output: \"Welcome to gpu-01, the friendliest of all nodes\"",
                    "print in ~/.bashrc only if the shell is interactive: case $- in *i*) …",
                ),
                CheckResult::fail(
                    "Node",
                    "port",
                    "gpu-01 port 22: connection refused",
                    "ask the administrators",
                ),
            ],
        )
    }

    #[test]
    fn a_report_fits_80_columns_and_needs_no_colour() {
        insta::assert_snapshot!(text(&report(), Style::default()), @r#"
        nodeglass 0.1.0 on login1, node gpu-01

        SLURM
          ● ok    clients           slurm 24.11.5

        Node
          ◆ warn  shell             the login shell prints before our output: "Welcome
                                    to gpu-01, the friendliest of all nodes"
                                    → print in ~/.bashrc only if the shell is
                                      interactive: case $- in *i*) …
          ▲ fail  port              gpu-01 port 22: connection refused
                                    → ask the administrators

        1 failure, 1 warning. Begin with the first failure.
        "#);
    }

    #[test]
    fn the_json_form_is_stable() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(
            (&json["schema"], &json["level"], &json["node"]),
            (&1.into(), &"fail".into(), &"gpu-01".into())
        );
        let result = &json["results"][2];
        assert_eq!(
            *result,
            serde_json::json!({
                "section": "Node", "check": "port", "level": "fail",
                "text": "gpu-01 port 22: connection refused", "advice": "ask the administrators",
            })
        );
    }
}
