//! Every command line of the corpus is masked as the corpus states, and arbitrary bytes never
//! panic.

use super::*;
use proptest::prelude::*;

/// Command lines with their masked form.
const CORPUS: &str = include_str!("../../../tests/hostile/secrets.txt");

/// Input and expected output of a line of the corpus.
fn entry(line: &str) -> (String, String) {
    let plain = |text: &str| text.replace('¦', "");
    let (given, shown) = line.split_once(" ⇒ ").unwrap_or((line, line));
    (plain(given), plain(shown).replace(['␣', '␤'], " "))
}

fn written_out(text: &str) -> String {
    text.replace('␣', " ").replace('␤', "\n")
}

fn line(words: &[&str]) -> String {
    command_line(words.join("\0").as_bytes())
}

#[test]
fn t26_every_secret_of_the_corpus_is_hidden_and_every_innocent_line_is_left_alone() {
    let mut wrong = Vec::new();
    let mut lines = 0;
    for raw in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (given, want) = entry(raw);
        let got = match given.strip_prefix("$ ").and_then(|variable| variable.split_once('=')) {
            Some((name, content)) => value(name, &written_out(content)),
            None => command_line(written_out(&given.replace(' ', "\0")).as_bytes()),
        };
        let want =
            want.strip_prefix("$ ").and_then(|want| want.split_once('=')).map_or(&*want, |(_, want)| want);
        if got != want {
            wrong.push(format!("{raw}\n      but it is shown as: {got}"));
        }
        lines += 1;
    }
    assert!(lines > 150, "only {lines} lines of the corpus were read");
    assert!(wrong.is_empty(), "{} of {lines}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn t26_a_script_over_several_lines_is_masked_too() {
    let shown = line(&["bash", "-c", "cd x\n\tTOKEN=hunter2 python\u{a0}train.py"]);
    assert_eq!(shown, format!("bash -c cd x  TOKEN={MASK} python train.py"));
}

#[test]
fn t26_a_command_line_of_megabytes_is_read_to_a_bound_and_in_a_moment() {
    for piece in
        ["a", "sk-", "eyJ-", "://", "key=", "a:@", "%3D", "\"", "-----BEGIN", "x ", "=", "é", "bot12:AA"]
    {
        for raw in [piece.repeat(MAX_BYTES / piece.len()), piece.repeat(2 << 20)] {
            let shown = command_line(raw.as_bytes());
            assert!(shown.len() <= 4 * MAX_BYTES + 64, "{piece}: {}", shown.len());
            let _ = (value("X", &raw), command(&raw));
        }
    }
    // A truncated line must not leave half of a key.
    let key = format!("ghp_{}", "a1B2".repeat(9));
    let long = format!("{}\0{key}", "x".repeat(MAX_BYTES - 12));
    assert!(!command_line(long.as_bytes()).contains("ghp_"));
}

proptest! {
    #[test]
    fn t26_no_command_line_is_too_strange_and_none_grows_beyond_a_bound(
        raw in prop::collection::vec(any::<u8>(), 0..400),
        name in "(?s).{0,20}",
    ) {
        let text = String::from_utf8_lossy(&raw);
        prop_assert!(command_line(&raw).len() <= 4 * text.len() + 16);
        prop_assert!(value(&name, &text).len() <= 4 * text.len() + 16);
        prop_assert!(command(&text).len() <= 4 * text.len() + 16);
    }

    #[test]
    fn t26_no_arrangement_of_what_matters_is_too_strange(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "--password", "token", "=", ":", " ", "\0", "://", "@", "Bearer", "Authorization:", "'", "\"", "sk-",
                "eyJ", ".", "-u", "-----BEGIN", "-----END", "mysql", "-p", "%3D", "abc", "A1b2C3d4E5f6G7h8I9j0K1",
                "login", "wandb", "é", ",", ";", "&", "?", "/", "{", "-c",
            ]),
            0..40,
        ),
    ) {
        let raw = pieces.concat();
        prop_assert!(command_line(raw.as_bytes()).len() <= 4 * raw.len() + 16);
    }

    #[test]
    fn t26_the_value_of_a_secret_option_is_never_shown(
        secret in "[A-Z0-9]{8,40}",
        name in "(password|token|api-key|client-secret|hf_token|db-pass|authToken)",
    ) {
        let option = format!("--{name}");
        let (joined, listed) = (format!("{option}={secret}"), format!("--x=a,{name}:{secret}"));
        let line_in_variable = format!("x {option} {secret}");
        prop_assert!(!line(&["p", &option, &secret]).contains(&secret));
        prop_assert!(!line(&["p", &joined]).contains(&secret));
        prop_assert!(!line(&["p", &listed]).contains(&secret));
        prop_assert!(!value(&name, &secret).contains(&secret));
        prop_assert!(!value("OTHER", &line_in_variable).contains(&secret));
        prop_assert!(!command(&line_in_variable).contains(&secret));
    }
}
