//! The crates of the relay are layers: each uses only crates that docs/ARCHITECTURE.md lists above it.

use super::{read, root};
use std::fs;

#[test]
fn each_crate_of_the_relay_uses_only_crates_listed_above_it() {
    let listed = listed(&read(&root().join("docs/ARCHITECTURE.md")));
    assert!(listed.len() > 20, "the table was not found: {listed:?}");
    let mut violations = Vec::new();
    for entry in fs::read_dir(root().join("relay")).expect("the folder can be read") {
        let folder = entry.expect("the entry can be read").path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(place) = listed.iter().position(|listed| *listed == name) else {
            violations.push(format!("{name} is not listed"));
            continue;
        };
        let is_above = |used: &&str| {
            !listed.iter().any(|listed| listed == used) || listed[..place].iter().any(|above| above == used)
        };
        violations
            .extend(used(&manifest).filter(|used| !is_above(used)).map(|used| format!("{name}: {used}")));
    }
    assert!(violations.is_empty(), "against the order of the table: {violations:#?}");
}

/// The names of the table's crates, from the lowest layer to the highest.
fn listed(document: &str) -> Vec<String> {
    let table = document.split("\n| crate | responsibility |").nth(1).unwrap_or_default();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
    rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once("/`")?.0.to_owned())).collect()
}

/// Returns the crates of the workspace that a crate depends on, without dependencies of its tests.
fn used(manifest: &str) -> impl Iterator<Item = &str> {
    let dependencies = manifest.split("\n[dependencies]").nth(1).unwrap_or_default();
    let lines = dependencies.lines().skip(1).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.strip_prefix("nodeglass-")?.split(['.', ' ', '=']).next())
}

#[test]
fn the_table_and_dependencies_are_parsed() {
    let document =
        "\n| crate | responsibility |\n|---|---|\n| `fleet/` | pure |\n| `web/` | server |\n\n| `x/` | |\n";
    assert_eq!(listed(document), ["fleet", "web"]);
    let manifest = "[package]\n\n[dependencies]\nnodeglass-fleet.workspace = true\nserde = \"1\"\n\n[dev-dependencies]\n\
                    nodeglass-web.workspace = true\n";
    assert_eq!(used(manifest).collect::<Vec<_>>(), ["fleet"]);
}
