//! Static checks of the sources, so that the test command is the only routine.

mod crates;
mod functions;
mod module_cycles;
mod prose;
mod protocol_tables;
mod protocol_types;
mod reliability;

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that are imported in certain places only, and these places with their tests.
const IMPORTERS: &[(&str, &[&str])] = &[
    ("nvml_wrapper", &["node-probe/src/source", "tests/fake-nvml/tests"]),
    ("nvml_wrapper_sys", &["node-probe/src/source", "tests/fake-nvml"]),
    ("ssh2", &["relay/launch/src", "relay/launch/tests/ssh"]),
    ("libssh2_sys", &["relay/launch/src"]),
    ("axum", &["relay/web/src", "relay/app/src", "relay/web/tests/web"]),
    ("tokio_rustls", &["relay/web/src/server/tls.rs", "relay/http-client/src", "tests/src/tls.rs"]),
    ("rustls_native_certs", &["relay/http-client/src/tls.rs"]),
    // The full path, because modules of this workspace are also named `ring`.
    ("ring::signature", &["relay/launch/src/known_hosts/signature.rs"]),
    ("rusqlite", &["relay/share/src/store.rs", "relay/store/src/database.rs", "relay/store/src/database"]),
    ("crc32fast", &["relay/platform/src/frame_file.rs"]),
    ("prost", &["relay/remote-write/src/request.rs"]),
    ("snap", &["relay/remote-write/src/request.rs"]),
    ("libloading", &["node-probe/src/source/tpu/library.rs", "node-probe/src/selftest/cuda.rs"]),
    ("async_nats", &["relay/nats/src"]),
    ("gloo_net", &["frontend/src/net"]),
    ("fantoccini", &["tests/src/browser.rs"]),
    ("ratatui", &["relay/top/src"]),
    ("crossterm", &["relay/top/src"]),
];

/// Modules without I/O, and the crates that they must not use.
const PURE: &[(&str, &[&str])] = &[
    ("protocol/src", &["std::fs", "std::net", "std::process", "std::time", "tokio", "rustix", "libc"]),
    ("rules/src", &["std::fs", "std::net", "std::process", "std::time", "tokio", "rustix", "libc"]),
    ("redact/src", &["std::fs", "std::net", "std::process", "std::time", "tokio", "rustix", "libc"]),
    (
        "sim/src",
        &["tokio", "std::fs", "std::net", "std::process", "std::time::Instant", "std::time::SystemTime"],
    ),
    ("relay/api/src", &["tokio", "axum", "rusqlite", "std::net", "std::process", "std::fs"]),
    ("relay/fleet/src", &["tokio", "axum", "ssh2", "std::net", "std::process", "std::fs"]),
    // Without `std::fs`, which tests of its log samples use.
    ("relay/findings/src", &["tokio", "axum", "rusqlite", "std::net", "std::process", "std::time"]),
    ("relay/history/src", &["tokio", "axum", "rusqlite", "std::net", "std::process", "std::fs", "std::time"]),
    ("relay/report/src", &["tokio", "axum", "rusqlite", "std::net", "std::process", "std::fs", "std::time"]),
    ("relay/top/src/rows", &["tokio", "crossterm", "std::net", "std::process", "std::fs", "std::time"]),
    ("relay/top/src/draw", &["tokio", "crossterm", "std::net", "std::process", "std::fs", "std::time"]),
    ("relay/share/src/policy.rs", &["tokio", "axum", "std::net", "std::process", "std::fs"]),
    ("relay/share/src/table.rs", &["tokio", "axum", "std::net", "std::process", "std::fs"]),
    ("frontend/src/chart", &["leptos", "web_sys", "wasm_bindgen", "gloo_net", "gloo_timers"]),
    ("frontend/src/describe", &["leptos", "web_sys", "wasm_bindgen", "gloo_net", "gloo_timers"]),
    ("frontend/src/domain", &["leptos", "web_sys", "wasm_bindgen", "gloo_net", "gloo_timers"]),
    ("frontend/src/table", &["leptos", "web_sys", "wasm_bindgen", "gloo_net", "gloo_timers"]),
];

/// Allowed dependencies of the protocol: encodings and hashes, nothing that does I/O.
const PROTOCOL_NEEDS: &[&str] =
    &["base64ct", "hmac", "postcard", "serde", "serde_json", "sha2", "subtle", "thiserror", "utoipa"];

#[test]
fn each_file_starts_with_a_sentence_about_its_responsibility() {
    let violations: Vec<_> = sources()
        .into_iter()
        .filter(|file| {
            let text = read(file);
            let first = text.lines().next().unwrap_or_default();
            let sentence = first.strip_prefix("//! ").unwrap_or_default();
            // A sentence may continue on the next line, but starts on the first and is not only a title.
            sentence.split_whitespace().count() < 4
        })
        .map(|file| relative(&file))
        .collect();
    assert!(violations.is_empty(), "these files do not begin with `//! ` and a sentence: {violations:#?}");
}

#[test]
fn each_external_library_is_imported_only_where_allowed() {
    let violations = uses(IMPORTERS.iter().map(|(name, places)| (*name, *places)), |file, places| {
        !places.iter().any(|place| file.starts_with(place))
    });
    assert!(violations.is_empty(), "used outside of their places: {violations:#?}");
}

#[test]
fn pure_modules_use_no_io_clock_thread_or_page() {
    let rules = PURE.iter().flat_map(|(place, names)| names.iter().map(move |name| (*name, place)));
    let violations = uses(rules, |file, place| file.starts_with(place));
    assert!(violations.is_empty(), "no longer free of I/O: {violations:#?}");
}

/// A rule for a renamed folder would check nothing.
#[test]
fn each_path_of_a_rule_exists() {
    let importers = IMPORTERS.iter().flat_map(|(_, places)| places.iter().copied());
    let places: Vec<&str> = importers.chain(PURE.iter().map(|(place, _)| *place)).collect();
    let files: Vec<_> = sources().iter().map(|file| relative(file)).collect();
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
    let unexpected: Vec<_> = needs.into_iter().filter(|name| !PROTOCOL_NEEDS.contains(name)).collect();
    assert!(unexpected.is_empty(), "dependencies that the protocol may not have: {unexpected:?}");
}

#[test]
fn each_crate_uses_the_lints_of_the_workspace() {
    let violations: Vec<_> = files(root())
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && *file != root().join("Cargo.toml"))
        .filter(|file| !read(file).contains("[lints]\nworkspace = true"))
        .map(|file| relative(&file))
        .collect();
    assert!(violations.is_empty(), "without `[lints] workspace = true`: {violations:?}");
}

/// `([test](../tests/it/relay.rs "name_of_the_test"))` at the end of a cell.
fn named_test(cell: &str) -> Option<(&str, &str)> {
    let (path, rest) = cell.split_once("([test](../")?.1.split_once(" \"")?;
    Some((path, rest.split_once("\"))")?.0))
}

#[test]
fn each_implemented_feature_names_an_existing_test() {
    let mut feature_count = 0;
    for line in read(&root().join("docs/FEATURES.md")).lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (feature, ours) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        if !ours.starts_with(['●', '◐']) {
            continue;
        }
        let (path, test) = named_test(ours).unwrap_or_else(|| panic!("no test shows {feature:?}: {ours}"));
        let text = read(&root().join(path));
        assert!(text.contains(&format!("fn {test}(")), "{feature}: there is no test {test} in {path}");
        feature_count += 1;
    }
    assert!(feature_count > 50, "only {feature_count} features name a test: was the table read?");
}

/// The tables of review findings, whose rows begin with an id such as `S1`, name tests in their last column.
#[test]
fn each_review_finding_names_an_existing_test() {
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

/// Each threat of docs/SECURITY.md has a test whose name starts with its number.
#[test]
fn each_threat_has_a_test() {
    let all: String = sources().iter().map(|file| read(file)).collect();
    let uncovered: Vec<_> = (1..=34)
        .map(|number| format!("t{number:02}_"))
        .filter(|prefix| {
            let named = |line: &str| {
                let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn ");
                name.is_some_and(|name| name.starts_with(prefix) || name.contains(&format!("_{prefix}")))
            };
            !all.lines().any(named)
        })
        .collect();
    assert!(uncovered.is_empty(), "no test covers {uncovered:?}");
}

/// `==` may compare keys as a whole or byte by byte; only `subtle` guarantees constant time.
#[test]
fn t12_keys_and_codes_are_compared_by_subtle_alone() {
    let text = read(&root().join("protocol/src/live/handshake.rs"));
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

/// CSS cannot combine a media query with a selector, so the light theme is defined twice.
#[test]
fn the_chosen_light_theme_equals_the_systems() {
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

/// A browser searches for what a `:has()` looks for each time that something within its element changes, which readings do
/// every second: thirty of them took two thirds of the page's processor time.
#[test]
fn no_style_depends_on_what_a_part_with_readings_contains() {
    let with_readings = [".main", ".grid", ".cells", ".attention", ".machine", ".table tbody"];
    for file in files(&root().join("frontend/styles")) {
        for line in read(&file).lines().filter(|line| line.contains(":has(")) {
            let part = with_readings.iter().find(|part| line.contains(*part));
            assert_eq!(part, None, "{}: {line}", relative(&file));
        }
    }
}

#[test]
fn nothing_is_animated_with_prefers_reduced_motion() {
    for file in files(&root().join("frontend/styles")) {
        let text = read(&file);
        let mut media_query_depth = None;
        let mut depth = 0_usize;
        for (number, line) in text.lines().enumerate() {
            if line.contains("prefers-reduced-motion: no-preference") {
                media_query_depth = Some(depth);
            }
            let is_animated = line.contains("transition:") || line.contains("animation:");
            assert!(
                !is_animated || media_query_depth.is_some(),
                "{}:{}: it is_animated whether the user likes it or not",
                relative(&file),
                number + 1
            );
            depth = depth + line.matches('{').count() - line.matches('}').count();
            media_query_depth = media_query_depth.filter(|outer| depth > *outer);
        }
    }
}

#[test]
fn links_in_the_documents_resolve() {
    let mut broken = Vec::new();
    for file in files(root()).into_iter().filter(|file| file.extension().is_some_and(|kind| kind == "md")) {
        let text = read(&file);
        for link in links(&text) {
            let (path, anchor) =
                link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = match path {
                "" => file.clone(),
                path => file.parent().expect("a file has a parent folder").join(path),
            };
            let leads = match anchor {
                _ if !target.exists() => false,
                Some(anchor) => read(&target).lines().any(|line| slug(line).as_deref() == Some(anchor)),
                None => true,
            };
            if !leads {
                broken.push(format!("{}: {link}", relative(&file)));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn no_file_contains_a_path_of_this_machine() {
    let here = root().parent().map(|parent| format!("{}/", parent.display())).filter(|here| here.len() > 2);
    let Some(here) = here else { return };
    let violations: Vec<_> = files(root())
        .into_iter()
        .filter(|file| fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&here)))
        .map(|file| relative(&file))
        .collect();
    assert!(violations.is_empty(), "these files contain the local path {here}: {violations:#?}");
}

/// Violations of rules `(name, place)`: lines that use the name in a file that is `wrong`.
fn uses<P: Copy>(
    rules: impl Iterator<Item = (&'static str, P)> + Clone,
    wrong: impl Fn(&Path, P) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    // The examples in this file do not count.
    for file in sources().into_iter().filter(|file| !file.ends_with(file!())) {
        let text = read(&file);
        let short = PathBuf::from(relative(&file));
        for (name, _) in rules.clone().filter(|(_, place)| wrong(&short, *place)) {
            for (line, code) in text.lines().enumerate().filter(|(_, code)| names(code, name)) {
                found.push(format!("{}:{}: {}", short.display(), line + 1, code.trim()));
            }
        }
    }
    found
}

/// Returns whether a line of code names a crate or a module of std by its path.
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

fn relative(file: &Path) -> String {
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

/// Every file of the checkout that is not generated, in a fixed order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.as_str() {
            ".git" | "target" | "dist" | "node_modules" | "shared" => {}
            "__pycache__" | ".pytest_cache" | ".mypy_cache" => {}
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
    fn a_crate_is_found_only_where_it_is_used() {
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
    fn links_and_anchors_are_parsed_as_renderers_do() {
        let found: Vec<_> =
            links("see [a](docs/a.md#one-two) and [b](https://x.example) ![c](d.png)").collect();
        assert_eq!(found, ["docs/a.md#one-two", "d.png"]);
        assert_eq!(slug("## One, two!").as_deref(), Some("one-two"));
        assert_eq!(slug("text"), None);
    }
}
