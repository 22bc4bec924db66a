//! Collects the licence texts of the libraries in the programs and the page, which every distribution of a binary must include.

use super::{MACHINES, VERSION, rust_target};
use crate::shell::{cargo, output_of, root};
use crate::tools::WASM;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The file with the texts.
pub(super) const FILE: &str = "LICENSE-THIRD-PARTY";
/// Beginnings of the names of files with a licence or a copyright notice, in lower case.
const NAMES: [&str; 7] = ["license", "licence", "unlicense", "copying", "copyright", "notice", "patents"];
/// Endings of the names of sources that begin likewise.
const SOURCES: [&str; 4] = ["rs", "pm", "py", "c"];
/// Folders of crates with code that is not built.
const NOT_BUILT: [&str; 5] =
    ["openssl/external", "openssl/util", "sqlcipher", "src/zlib-ng", "src/zlib/contrib"];
const RULE: &str = "--------------------------------------------------------------------------------";

/// The licence of each library, by its name and version.
pub(super) type Libraries = BTreeMap<(String, String), String>;

/// A text, and the files that have it.
struct Licence {
    text: String,
    files: Vec<String>,
}

/// The texts of all libraries, each once.
#[derive(Default)]
struct Licences {
    texts: Vec<Licence>,
    /// Index in `texts`, by the words of the text.
    known: BTreeMap<String, usize>,
}

impl Licences {
    /// Adds a text and returns its number.
    fn add(&mut self, text: &str, file: String) -> usize {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let at = *self.known.entry(words).or_insert(self.texts.len());
        if at == self.texts.len() {
            self.texts.push(Licence { text: text.trim_matches(['\r', '\n']).to_owned(), files: Vec::new() });
        }
        self.texts[at].files.push(file);
        at + 1
    }
}

/// Lists the libraries with their licence texts: the files of each crate, or the usual text of the licence that it states. Rust's
/// standard library comes last.
///
/// # Errors
/// If a library has no licence text.
pub(super) fn collect(libraries: &Libraries) -> Result<String> {
    let crates = crates()?;
    let mut licences = Licences::default();
    let mut list = String::new();
    for (key @ (name, version), stated) in libraries {
        let source = crates.get(key).with_context(|| format!("no sources of {name} {version}"))?;
        let numbers: Vec<_> = source
            .texts(name, stated)?
            .into_iter()
            .map(|(file, text)| licences.add(&text, format!("{file} of {name} {version}")).to_string())
            .collect();
        let _ = writeln!(list, "{name} {version} ({stated}): {}\n    {}", numbers.join(", "), source.address);
    }
    let mut out = format!(
        "Licences of the libraries within the programs and the page of nodeglass {VERSION}\n\n\
         Each library is followed by the licence that it states, the numbers of the texts below, and its address. Its unmodified\n\
         source is the crate of that name and version in Rust's package registry.\n\n{list}"
    );
    for (index, Licence { text, files }) in licences.texts.iter().enumerate() {
        let _ = write!(out, "\n{RULE}\n{}. {}\n{RULE}\n\n{text}\n", index + 1, files.join(",\n   "));
    }
    match of_standard_library() {
        Some(text) => {
            let _ = write!(out, "\n{RULE}\nRust's standard library\n{RULE}\n\n{text}\n");
        }
        None => {
            println!("  without the licences of Rust's standard library, which the toolchain does not have")
        }
    }
    Ok(out)
}

/// The sources of a crate.
struct Crate {
    folder: PathBuf,
    authors: String,
    /// Its repository or home page.
    address: String,
}

impl Crate {
    /// Its licence texts with the paths of their files.
    fn texts(&self, name: &str, stated: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        licence_files(&self.folder, &self.folder, &mut found)?;
        found.sort();
        if found.is_empty() {
            found = usual_texts(stated, &self.authors)
                .with_context(|| format!("the crate {name} has no licence file"))?;
        }
        Ok(found)
    }
}

/// Reads the licence files below a folder of a crate.
fn licence_files(folder: &Path, of: &Path, found: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let short = path.strip_prefix(of)?.display().to_string();
        if path.is_dir() {
            if !NOT_BUILT.contains(&short.as_str()) {
                licence_files(&path, of, found)?;
            }
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_source = path.extension().is_some_and(|end| SOURCES.iter().any(|source| end == *source));
        if NAMES.iter().any(|start| name.starts_with(start)) && !is_source {
            found.push((short, String::from_utf8_lossy(&fs::read(&path)?).into_owned()));
        }
    }
    Ok(())
}

/// The usual texts of the licences in an expression.
fn usual_texts(stated: &str, authors: &str) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for licence in stated.split(['/', ' ', '(', ')']).filter(|word| !matches!(*word, "" | "OR" | "AND")) {
        let text = match licence {
            "MIT" => {
                let own = own_licence("LICENSE-MIT")?;
                let permission = own.split_once("\nPermission is").context("LICENSE-MIT")?.1;
                format!("MIT License\n\nCopyright (c) {authors}\n\nPermission is{permission}")
            }
            "Apache-2.0" => own_licence("LICENSE-APACHE")?,
            _ => bail!("the usual text of {licence} is not known"),
        };
        texts.push((format!("the usual text of {licence}, which is the licence"), text));
    }
    ensure!(!texts.is_empty(), "it states no licence");
    Ok(texts)
}

fn own_licence(name: &str) -> Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| format!("read {name}"))
}

/// The sources of every crate that a build may need.
fn crates() -> Result<BTreeMap<(String, String), Crate>> {
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version", "1"]);
    command.args(["--features", "nodeglass-relay/vendored-openssl", "--filter-platform", WASM]);
    for machine in MACHINES {
        command.args(["--filter-platform", &rust_target(machine)]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo metadata failed");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("packages")?;
    packages
        .iter()
        .map(|package| {
            let text = |field: &str| package[field].as_str();
            let manifest = Path::new(text("manifest_path").context("the path of a manifest")?);
            let authors: Vec<_> =
                package["authors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let name = text("name").context("the name of a crate")?.to_owned();
            let source = Crate {
                folder: manifest.parent().context("the folder of a crate")?.to_owned(),
                authors: match authors.is_empty() {
                    true => format!("the authors of {name}"),
                    false => authors.join(", "),
                },
                address: text("repository").or(text("homepage")).unwrap_or("no address").to_owned(),
            };
            Ok(((name, text("version").context("the version of a crate")?.to_owned()), source))
        })
        .collect()
}

/// Copyright and licences of the standard library and what it contains; `None` if the toolchain lacks them.
fn of_standard_library() -> Option<String> {
    let sysroot = output_of("rustc", &["--print", "sysroot"])?;
    let html = fs::read_to_string(Path::new(&sysroot).join("share/doc/rust/COPYRIGHT-library.html")).ok()?;
    Some(text_of(&html))
}

/// The text of a simple HTML page.
fn text_of(html: &str) -> String {
    let body = html.split_once("<body>").map_or(html, |(_, body)| body);
    let mut text = String::new();
    for part in body.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, after)| after));
    }
    for (entity, letter) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(entity, letter);
    }
    let mut out = String::new();
    for line in text.lines().map(str::trim_end) {
        if !(line.is_empty() && (out.is_empty() || out.ends_with("\n\n"))) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::sbom;
    use super::*;

    #[test]
    fn every_library_has_a_licence_text_and_equal_ones_are_stated_once() {
        let libraries = sbom::libraries().unwrap();
        let text = collect(&libraries).unwrap();
        for (name, version) in libraries.keys() {
            let line = format!("\n{name} {version} (");
            let listed = text.split_once(&line).and_then(|(_, rest)| rest.lines().next()).unwrap_or_default();
            let (_, numbers) =
                listed.split_once("): ").unwrap_or_else(|| panic!("{name} {version}: {listed}"));
            let is_numbers = numbers.split(", ").all(|number| number.parse::<usize>().is_ok());
            assert!(is_numbers, "{name} {version}: {numbers}");
        }
        // A crate without a licence file, C libraries within crates, and the page.
        for part in [
            "the usual text of MIT, which is the licence of leptos ",
            "openssl/LICENSE.txt of openssl-src ",
            "libssh2/COPYING of libssh2-sys ",
            "src/zlib/LICENSE of libz-sys ",
            "third_party/fiat/LICENSE of ring ",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.len() < 1_500_000, "{} bytes", text.len());
    }

    #[test]
    fn a_crate_without_a_licence_file_has_the_usual_text_with_its_authors() {
        let texts = usual_texts("MIT/Apache-2.0", "Alice <alice@example.org>").unwrap();
        assert!(
            texts[0].1.contains("\nCopyright (c) Alice <alice@example.org>\n\nPermission is hereby granted")
        );
        assert!(texts[1].1.contains("Apache License"));
        let unknown = usual_texts("MIT OR Zlib", "Alice").unwrap_err().to_string();
        assert!(unknown.contains("Zlib"), "{unknown}");
    }

    #[test]
    fn texts_that_differ_in_their_layout_are_one() {
        let mut licences = Licences::default();
        assert_eq!(licences.add("MIT  License\n", "LICENSE of a".into()), 1);
        assert_eq!(licences.add("BSD", "LICENSE of b".into()), 2);
        assert_eq!(licences.add("\nMIT License", "COPYING of c".into()), 1);
        assert_eq!(licences.texts[0].files, ["LICENSE of a", "COPYING of c"]);
    }

    #[test]
    fn the_text_of_a_page_has_no_markup() {
        let page = "<head>x</head>\n<body>\n\n<h1>A</h1>\n \n\n<pre>a &lt;b&gt; &amp;lt;\n  c</pre>\n";
        assert_eq!(text_of(page), "A\n\na <b> &lt;\n  c");
    }
}
