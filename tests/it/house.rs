//! What can be checked of the sources is checked here, so that the test command is the whole ritual.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate that is imported in its corner only, and the corner with its tests.
const CORNERS: &[(&str, &[&str])] = &[
    ("nvml_wrapper", &["node-probe/src/source", "tests/fake-nvml/tests"]),
    ("nvml_wrapper_sys", &["node-probe/src/source", "tests/fake-nvml"]),
    ("ssh2", &["relay/src/launch", "relay/tests/ssh"]),
    ("libssh2_sys", &["relay/src/launch"]),
    ("axum", &["relay/src/web", "relay/src/app", "relay/tests/web"]),
    ("tokio_rustls", &["relay/src/web/tls.rs", "tests/it/threats/tls.rs"]),
    ("rusqlite", &["relay/src/share/store.rs"]),
    ("gloo_net", &["frontend/src/feed"]),
    ("fantoccini", &["tests/src/browser.rs"]),
];

/// A pure place, and the crates that have no business there.
const PURE: &[(&str, &[&str])] = &[
    ("protocol/src", &["std::fs", "std::net", "std::process", "std::time", "tokio", "rustix", "libc"]),
    ("redact/src", &["std::fs", "std::net", "std::process", "std::time", "tokio", "rustix", "libc"]),
    ("relay/src/fleet", &["tokio", "axum", "ssh2", "std::net", "std::process", "std::fs"]),
    ("relay/src/share/policy", &["tokio", "axum", "std::net", "std::process", "std::fs"]),
    ("relay/src/share/table", &["tokio", "axum", "std::net", "std::process", "std::fs"]),
    ("frontend/src/chart", &["leptos", "web_sys", "wasm_bindgen", "gloo_net", "gloo_timers"]),
];

/// All that the protocol may depend on: encodings and codes, nothing that does I/O.
const PROTOCOL_NEEDS: &[&str] = &["hmac", "postcard", "serde", "serde_json", "sha2", "subtle", "thiserror"];

#[test]
fn each_file_begins_with_a_sentence_about_its_responsibility() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|file| {
            let text = read(file);
            let first = text.lines().next().unwrap_or_default();
            let sentence = first.strip_prefix("//! ").unwrap_or_default();
            // A sentence may go on in the next line, but it begins in the first and is no mere title.
            sentence.split_whitespace().count() < 4
        })
        .map(|file| shown(&file))
        .collect();
    assert!(silent.is_empty(), "these files do not begin with `//! ` and a sentence: {silent:#?}");
}

#[test]
fn each_outside_library_stays_in_its_corner() {
    let strays = uses(CORNERS.iter().map(|(name, corner)| (*name, *corner)), |file, corner| {
        !corner.iter().any(|place| file.starts_with(place))
    });
    assert!(strays.is_empty(), "used outside of their corner: {strays:#?}");
}

#[test]
fn what_is_pure_knows_no_socket_clock_thread_or_page() {
    let rules = PURE.iter().flat_map(|(place, names)| names.iter().map(move |name| (*name, place)));
    let strays = uses(rules, |file, place| file.starts_with(place));
    assert!(strays.is_empty(), "not pure any more: {strays:#?}");
}

/// A rule for a folder that was renamed would hold of nothing.
#[test]
fn each_place_of_a_rule_exists() {
    let corners = CORNERS.iter().flat_map(|(_, places)| places.iter().copied());
    let places: Vec<&str> = corners.chain(PURE.iter().map(|(place, _)| *place)).collect();
    let files: Vec<_> = sources().iter().map(|file| shown(file)).collect();
    let nowhere: Vec<_> =
        places.iter().filter(|place| !files.iter().any(|file| file.starts_with(**place))).collect();
    assert!(nowhere.is_empty(), "no file is there: {nowhere:?}");
}

#[test]
fn the_protocol_depends_on_nothing_that_does_io() {
    let manifest = read(&root().join("protocol/Cargo.toml"));
    let section = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    let needs: Vec<_> = section
        .expect("the protocol has dependencies")
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect();
    assert!(needs.len() > 3, "the manifest was not understood: {needs:?}");
    let strange: Vec<_> = needs.into_iter().filter(|name| !PROTOCOL_NEEDS.contains(name)).collect();
    assert!(strange.is_empty(), "what do these do in the protocol? {strange:?}");
}

#[test]
fn the_protocol_document_is_of_these_sources() {
    let mut hash = Sha256::new();
    for file in sources().iter().filter(|file| shown(file).starts_with("protocol/src/")) {
        let text = read(file);
        // Tests come last in a file and are no part of the wire.
        let wire = text.split("#[cfg(test)]").next().unwrap_or_default();
        hash.update(shown(file));
        hash.update(wire);
    }
    let hash = hash.finalize().iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    });
    let line = format!("Source hash: `{}`", &hash[..16]);
    assert!(
        read(&root().join("protocol/PROTOCOL.md")).contains(&line),
        "protocol/src has changed: bring protocol/PROTOCOL.md up to date, then write in it:\n{line}"
    );
}

#[test]
fn each_crate_obeys_the_lints_of_the_workspace() {
    let lawless: Vec<_> = files(root())
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && *file != root().join("Cargo.toml"))
        .filter(|file| !read(file).contains("[lints]\nworkspace = true"))
        .map(|file| shown(&file))
        .collect();
    assert!(lawless.is_empty(), "without `[lints] workspace = true`: {lawless:?}");
}

/// `([test](../tests/it/relay.rs "name_of_the_test"))` at the end of a cell.
fn named_test(cell: &str) -> Option<(&str, &str)> {
    let (path, rest) = cell.split_once("([test](../")?.1.split_once(" \"")?;
    Some((path, rest.split_once("\"))")?.0))
}

#[test]
fn each_implemented_feature_names_an_existing_test() {
    let mut shown = 0;
    for line in read(&root().join("docs/FEATURES.md")).lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (feature, ours) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        if !ours.starts_with(['●', '◐']) {
            continue;
        }
        let (path, test) = named_test(ours).unwrap_or_else(|| panic!("no test shows {feature:?}: {ours}"));
        let text = read(&root().join(path));
        assert!(text.contains(&format!("fn {test}(")), "{feature}: there is no test {test} in {path}");
        shown += 1;
    }
    assert!(shown > 50, "only {shown} features are shown by a test: was the table read?");
}

/// The tables of review findings, whose rows begin with an id such as `S1`, name tests in their last column.
#[test]
fn each_finding_of_a_review_names_a_test_that_exists() {
    let all: String = sources().iter().map(|file| read(file)).collect();
    for (document, findings) in [("docs/SECURITY.md", 12), ("CHANGELOG.md", 30)] {
        let text = read(&root().join(document));
        let tests = |line: &str| {
            let cell = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default().to_owned();
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let rows: Vec<_> = text
            .lines()
            .skip_while(|line| !line.starts_with("| | "))
            .skip(2)
            .take_while(|line| line.starts_with("| "))
            .map(|line| (line, tests(line)))
            .collect();
        assert!(rows.len() >= findings, "{document} lists {} findings", rows.len());
        for (line, tests) in rows {
            assert!(!tests.is_empty(), "{document}: no test for {line}");
            let missing =
                |test: &&String| !all.contains(&format!("fn {test}(")) && !root().join(test).is_file();
            assert_eq!(tests.iter().find(missing), None, "{document} names a test that does not exist");
        }
    }
}

/// The threats of docs/SECURITY.md, each tried by a test that bears its number.
#[test]
fn each_threat_is_tried_by_a_test() {
    let all: String = sources().iter().map(|file| read(file)).collect();
    let untried: Vec<_> = (1..=34)
        .map(|number| format!("t{number:02}_"))
        .filter(|prefix| {
            let named = |line: &str| {
                let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn ");
                name.is_some_and(|name| name.starts_with(prefix) || name.contains(&format!("_{prefix}")))
            };
            !all.lines().any(named)
        })
        .collect();
    assert!(untried.is_empty(), "no test tries {untried:?}");
}

/// The processor may compare whole keys at once or byte by byte; only `subtle` promises never to stop early.
#[test]
fn t12_keys_and_codes_are_compared_by_subtle_alone() {
    let text = read(&root().join("protocol/src/handshake.rs"));
    for secret in ["pub struct Key(", "pub struct Code("] {
        let (before, _) = text.split_once(secret).expect("the type is there");
        let derived = before.lines().rev().find(|line| line.starts_with("#[derive")).unwrap_or_default();
        assert!(!derived.contains("PartialEq"), "{secret} is compared by {derived}");
    }
    for comparison in ["fn eq(&self", "pub fn accepts_server(", "pub fn accepts_client("] {
        let (_, body) = text.split_once(comparison).expect("the comparison is there");
        let body = body.split_once("\n    }").map_or("", |(body, _)| body);
        assert!(body.contains(".ct_eq(") && !body.contains("=="), "{comparison} is {body}");
    }
}

/// A style sheet has no other way to say "or", so that the light theme stands in it twice.
#[test]
fn the_light_theme_is_the_same_by_choice_as_by_the_system() {
    let text = read(&root().join("frontend/styles/tokens.css"));
    let block = |head: &str| -> Vec<String> {
        let (_, rest) = text.split_once(head).unwrap_or_else(|| panic!("there is no {head}"));
        let block = rest.split('}').next().unwrap_or_default();
        block.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let by_system = block(":root:not([data-theme=\"dark\"]) {");
    assert!(by_system.len() > 20, "the theme was not read: {by_system:?}");
    assert_eq!(by_system, block(":root[data-theme=\"light\"] {"));
}

#[test]
fn nothing_moves_for_who_asked_for_less_motion() {
    for file in files(&root().join("frontend/styles")) {
        let text = read(&file);
        let mut depth_of_leave = None;
        let mut depth = 0_usize;
        for (number, line) in text.lines().enumerate() {
            if line.contains("prefers-reduced-motion: no-preference") {
                depth_of_leave = Some(depth);
            }
            let moves = line.contains("transition:") || line.contains("animation:");
            assert!(
                !moves || depth_of_leave.is_some(),
                "{}:{}: it moves whether the user likes it or not",
                shown(&file),
                number + 1
            );
            depth = depth + line.matches('{').count() - line.matches('}').count();
            depth_of_leave = depth_of_leave.filter(|outer| depth > *outer);
        }
    }
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for file in files(root()).into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "md")) {
        let text = read(&file);
        for link in links(&text) {
            let (path, anchor) =
                link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = match path {
                "" => file.clone(),
                path => file.parent().expect("a file is in a folder").join(path),
            };
            let leads = match anchor {
                _ if !target.exists() => false,
                Some(anchor) => read(&target).lines().any(|line| slug(line).as_deref() == Some(anchor)),
                None => true,
            };
            if !leads {
                broken.push(format!("{}: {link}", shown(&file)));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn no_file_speaks_of_the_machine_it_was_written_on() {
    let here = root().parent().map(|parent| format!("{}/", parent.display())).filter(|here| here.len() > 2);
    let Some(here) = here else { return };
    let tattlers: Vec<_> = files(root())
        .into_iter()
        .filter(|file| fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&here)))
        .map(|file| shown(&file))
        .collect();
    assert!(tattlers.is_empty(), "these files speak of {here}: {tattlers:#?}");
}

/// The places where rules `(name, place)` are broken: a line of code names it, and the file is `wrong`.
fn uses<P: Copy>(
    rules: impl Iterator<Item = (&'static str, P)> + Clone,
    wrong: impl Fn(&Path, P) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    // This file's own examples of what to find are not found.
    for file in sources().into_iter().filter(|file| !file.ends_with(file!())) {
        let text = read(&file);
        let short = PathBuf::from(shown(&file));
        for (name, _) in rules.clone().filter(|(_, place)| wrong(&short, *place)) {
            for (line, code) in text.lines().enumerate().filter(|(_, code)| names(code, name)) {
                found.push(format!("{}:{}: {}", short.display(), line + 1, code.trim()));
            }
        }
    }
    found
}

/// Whether a line of code names a crate or a module of std by its path.
fn names(line: &str, name: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let fresh = !before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '"' | '.'));
        fresh && (after.starts_with("::") || (before.trim_end().ends_with("use") && after.starts_with(';')))
    })
}

/// Relative links of a Markdown text.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| {
        !link.contains("://") && !link.starts_with("mailto:") && !link.contains(char::is_whitespace)
    })
}

/// The anchor of a heading, as the usual renderers make it.
fn slug(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    let kept = title.trim().to_lowercase().replace(' ', "-");
    Some(kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the workspace")
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("a text file of the checkout can be read")
}

fn sources() -> Vec<PathBuf> {
    let mut sources = files(root());
    sources.retain(|file| file.extension().is_some_and(|kind| kind == "rs"));
    assert!(sources.len() > 20, "the sources were not found below {}", root().display());
    sources
}

/// Every file of the checkout that is written by people, in a fixed order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.as_str() {
            ".git" | "target" | "dist" | "node_modules" | "shared" => {}
            _ if path.is_dir() => found.extend(files(&path)),
            _ => found.push(path),
        }
    }
    found.sort();
    found
}

mod the_checks_can_fail {
    use super::{links, names, slug};

    #[test]
    fn a_crate_is_seen_where_it_is_used_and_only_there() {
        for code in [
            "use ssh2;",
            "use ssh2::Session;",
            "    let s = ssh2::Session::new();",
            "fn f(s: &ssh2::Session)",
        ] {
            assert!(names(code, "ssh2"), "{code}");
        }
        for code in
            ["use crate::launch::ssh2::Ssh2;", "// ssh2::Session", "mod ssh2;", "libssh2::x", "\"ssh2::\""]
        {
            assert!(!names(code, "ssh2"), "{code}");
        }
        assert!(names("use std::fs::File;", "std::fs"));
    }

    #[test]
    fn links_and_their_anchors_are_read_as_renderers_do() {
        let found: Vec<_> =
            links("see [a](docs/a.md#one-two) and [b](https://x.example) ![c](d.png)").collect();
        assert_eq!(found, ["docs/a.md#one-two", "d.png"]);
        assert_eq!(slug("## One, two!").as_deref(), Some("one-two"));
        assert_eq!(slug("text"), None);
    }
}
