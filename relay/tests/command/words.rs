//! The command line and what is printed: help, completions, unknown words, control characters.

use super::{Home, demo, stderr};
use std::fs;
use std::process::Stdio;

#[test]
fn an_unknown_flag_is_met_with_the_one_that_was_meant() {
    let output = Home::new().run(&["--bindd", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean --bind?"), "{}", stderr(&output));
}

#[test]
fn output_that_cannot_be_written_is_a_failure_unless_its_reader_closed_it() {
    let home = Home::new();
    let print =
        |stdout: Stdio| home.relay(&["config"]).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
    let full = print(fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(1));
    assert!(
        stderr(&full).starts_with("relay: cannot write the output: No space left on device"),
        "{}",
        stderr(&full)
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = print(writer.into());
    assert!(closed.status.success() && closed.stderr.is_empty(), "{}", stderr(&closed));
}

#[test]
fn a_frame_is_printed_where_columns_is_no_number_of_columns() {
    // Where there is no terminal either, crossterm would ask `tput`, which prints `COLUMNS`.
    let home = Home::new();
    let mut top = home.relay(&["top", "--once", "--demo"]);
    let output = top.env("COLUMNS", "65536").env("TERM", "xterm").output().unwrap();
    assert!(output.status.success() && output.stdout.len() > 1_000, "{}", stderr(&output));
}

#[test]
fn bash_completes_commands_and_their_options() {
    let home = Home::new();
    let script = home.run(&["completions", "bash"]).stdout;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let complete = |words: &str, at: usize| {
        let text = "source \"$0\"; COMP_WORDS=($1); COMP_CWORD=$2; _relay relay \"${COMP_WORDS[$2]}\" \"${COMP_WORDS[$2-1]}\"; echo \"${COMPREPLY[*]}\"";
        let mut bash = std::process::Command::new("bash");
        let output =
            bash.args(["-euc", text]).arg(file.path()).args([words, &at.to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("relay sh", 1), "share");
    assert_eq!(complete("relay share cr", 2), "create");
    assert_eq!(complete("relay share create --exp", 3), "--expires");
    assert_eq!(complete("relay doctor --launch", 2), "--launcher");
}

#[test]
fn the_help_is_grouped_and_names_no_placeholder_of_switches() {
    let home = Home::new();
    let help = |args: &[&str]| String::from_utf8(home.run(args).stdout).unwrap();
    for short in ["-h", "--help"] {
        let text = help(&["--demo=false", short]);
        for heading in [
            "See GPUs and jobs:",
            "After a job:",
            "Listen:",
            "What to watch:",
            "Nodes:",
            "Access:",
            "Behind a proxy:",
        ] {
            assert!(text.lines().any(|line| line == heading), "{heading} {text}");
        }
        assert!(!text.contains("BOOL") && text.contains("--persist-shares"), "{text}");
        for setting in nodeglass_config::settings() {
            assert!(text.contains(&format!("--{}", setting.get_long().unwrap())), "{text}");
        }
    }
    let link = help(&["link", "--help"]);
    assert!(link.starts_with("Print the link") && link.contains("Usage: relay link"), "{link}");
    assert!(!link.contains("--bind"), "only its own options: {link}");
    assert!(help(&["share", "--help"]).contains("Usage: relay share"));
    assert!(help(&["share", "create", "--help"]).contains("Usage: relay share create"));
    assert_eq!(help(&["help", "share", "create"]), help(&["share", "create", "--help"]));
    assert!(help(&["history", "export", "--help"]).contains("Usage: relay history export"));
    // The banner and the version agree.
    assert!(help(&["-V"]).starts_with("nodeglass "), "{}", help(&["-V"]));
}

#[test]
fn a_command_that_does_not_exist_is_answered_with_what_to_do() {
    let home = Home::new();
    let (relay, _link, _lines) = demo(&home);
    let pid = relay.0.id();
    for (args, says) in [
        (&["stop"][..], format!("press Ctrl-C in the relay's terminal, or run `kill {pid}`")),
        (&["--port", "9"], "use --bind 127.0.0.1:9".to_owned()),
        (&["frobnicate"], "there is no command frobnicate".to_owned()),
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        assert!(text.starts_with("relay: ") && text.contains(&says) && text.lines().count() == 1, "{text}");
    }
    relay.end();
}

#[test]
fn t14_no_command_repeats_control_characters_of_its_arguments() {
    let home = Home::new();
    let evil = "x\x1b]0;owned\x07\u{9b}31m\u{202e}y";
    let path = home.path().join(evil).to_str().unwrap().to_owned();
    let folder = format!("{path}/");
    fs::create_dir(&folder).unwrap();
    for args in [
        &[evil][..],
        &["help", evil],
        &["report", evil],
        &["jobs", "--of", evil],
        &["findings", evil],
        &["wait", evil],
        &["note", "--job", evil, evil],
        &["notify", evil],
        &["share", evil],
        &["record", "cut", &path, "--job", evil, "--out", &path],
        &["doctor", evil],
        &["config", "--log", evil],
        &["config", "--config", &folder],
        &["--config", &path],
        &["--replay", &path],
        &["--demo", &path],
        &["--bind", evil],
        &["--tls-cert", evil, "--tls-key", evil],
    ] {
        let output = home.run(args);
        let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        let is_harmful = |letter: char| letter == '\u{202e}' || letter.is_control() && letter != '\n';
        assert!(!shown.is_empty() && !shown.contains(is_harmful), "{args:?}: {shown:?}");
    }
}
