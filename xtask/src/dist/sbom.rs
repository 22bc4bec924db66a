//! Lists the libraries within the programs and the page as a software bill of materials in CycloneDX's JSON.

use super::VERSION;
use super::licences::Libraries;
use crate::shell::{cargo, root};
use crate::tools::WASM;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

/// Cargo's arguments for what a release contains: the programs, and the page.
const CONTENTS: [&[&str]; 2] = [
    &[
        "--package",
        "nodeglass-relay",
        "--package",
        "node-probe",
        "--features",
        "nodeglass-relay/vendored-openssl",
    ],
    &["--package", "nodeglass-frontend", "--target", WASM],
];

/// The file with the bill of materials.
pub(super) fn file_name() -> String {
    format!("nodeglass-{VERSION}.cdx.json")
}

/// The bill of materials. The Python package needs no library.
pub(super) fn of(libraries: &Libraries) -> Result<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("read Cargo.lock")?;
    Ok(serde_json::to_string_pretty(&bill(libraries, &checksums(&lock)))? + "\n")
}

/// The crates that are linked into a release, with their licences, by name and version.
pub(super) fn libraries() -> Result<Libraries> {
    let mut found = BTreeMap::new();
    for contents in CONTENTS {
        found.extend(tree(contents, "normal,no-proc-macro")?);
        // Sources of C libraries, which are built into the programs.
        let built = tree(contents, "normal,build,no-proc-macro")?;
        found.extend(built.into_iter().filter(|((name, _), _)| name.ends_with("-src")));
    }
    ensure!(found.len() > 100, "cargo tree lists only {} libraries", found.len());
    Ok(found)
}

fn tree(contents: &[&str], edges: &str) -> Result<Vec<((String, String), String)>> {
    let mut command = cargo();
    command.args([
        "tree",
        "--locked",
        "--prefix",
        "none",
        "--no-dedupe",
        "--format",
        "{p}\t{l}",
        "--edges",
        edges,
    ]);
    let output = command.args(contents).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo tree failed");
    Ok(String::from_utf8(output.stdout)?.lines().filter_map(library).collect())
}

/// Name, version and licence in a line of `cargo tree`; `None` for crates of this workspace, whose folder is stated.
fn library(line: &str) -> Option<((String, String), String)> {
    let (package, licence) = line.split_once('\t')?;
    let (name, version) = package.split_once(" v")?;
    (!version.contains("(/")).then(|| {
        let version = version.split(' ').next().unwrap_or_default();
        ((name.to_owned(), version.to_owned()), licence.to_owned())
    })
}

/// The checksums in a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").filter_map(|package| {
        let value = |key: &str| {
            let lines = package.lines();
            let mut values =
                lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
            values.next().map(str::to_owned)
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    packages.collect()
}

fn bill(libraries: &Libraries, checksums: &BTreeMap<(String, String), String>) -> Value {
    let components: Vec<Value> = libraries
        .iter()
        .map(|(key @ (name, version), licence)| {
            let url = format!("pkg:cargo/{name}@{version}");
            // An old form of `MIT OR Apache-2.0`, which is no SPDX expression.
            let expression = licence.replace('/', " OR ");
            let mut component = json!({
                "type": "library", "bom-ref": url, "name": name, "version": version, "purl": url,
                "licenses": [{"expression": expression}],
            });
            if let Some(checksum) = checksums.get(key) {
                component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
            }
            component
        })
        .collect();
    let own = format!("pkg:generic/nodeglass@{VERSION}");
    let needed: Vec<&Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": own, "name": "nodeglass", "version": VERSION, "purl": own,
            "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
        }},
        "dependencies": [{"ref": own, "dependsOn": needed}],
        "components": components,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_libraries_unless_they_are_of_this_workspace() {
        let found = library("ring v0.17.14\tApache-2.0 AND ISC").unwrap();
        assert_eq!(found, (("ring".into(), "0.17.14".into()), "Apache-2.0 AND ISC".into()));
        assert_eq!(library("node-probe v0.1.0 (/src/node-probe)\tMIT OR Apache-2.0"), None);
    }

    #[test]
    fn each_library_has_the_checksum_of_the_lock_file() {
        let lock =
            "[[package]]\nname = \"snap\"\nversion = \"1.1.1\"\nsource = \"registry\"\nchecksum = \"ab\"\n";
        let libraries = [(("snap".to_owned(), "1.1.1".to_owned()), "MIT/Apache-2.0".to_owned())].into();
        let bill = bill(&libraries, &checksums(lock));
        let component = &bill["components"][0];
        assert_eq!(component["hashes"][0]["content"], "ab");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["dependencies"][0]["dependsOn"][0], "pkg:cargo/snap@1.1.1");
    }

    #[test]
    fn the_bill_names_what_is_in_the_programs_and_the_page_but_not_what_only_tests_need() {
        let libraries = libraries().unwrap();
        let has = |name: &str| libraries.keys().any(|(found, _)| found == name);
        // Also the sources of C libraries.
        for name in ["tokio", "leptos", "openssl-src", "libssh2-sys", "libsqlite3-sys", "nvml-wrapper"] {
            assert!(has(name), "{name}");
        }
        for name in ["insta", "proptest", "fantoccini", "serde_derive"] {
            assert!(!has(name), "{name}");
        }
        assert!(libraries.values().all(|licence| !licence.is_empty()));
    }
}
