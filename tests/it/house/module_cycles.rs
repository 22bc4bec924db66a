//! Modules depend on each other in one direction: within each folder of a crate, no cycle of imports.
//!
//! A module is a file or a folder. It depends on what its code outside of tests names by `crate::…`,
//! `super::…` or `self::…`; re-exports do not count. A folder's `mod.rs` and the files below it are one
//! unit, so that parent and child may name each other.

use super::{read, relative, root, sources};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// A module's path within its crate: `["source", "nvml", "usage"]`.
type Path = Vec<String>;

#[test]
fn no_module_depends_on_itself_through_others() {
    let mut crates: BTreeMap<String, Vec<(Path, String)>> = BTreeMap::new();
    for file in sources() {
        let name = relative(&file);
        // Tests may use the modules that they test.
        let Some((crate_dir, path)) = name.split_once("src/") else { continue };
        let path = module(path);
        if !path.iter().any(|part| part == "tests" || part.ends_with("_tests")) {
            crates.entry(crate_dir.to_owned()).or_default().push((path, read(&file)));
        }
    }
    assert!(crates.len() > 30, "the crates were not found below {}", root().display());
    let cycles: Vec<_> = crates
        .iter()
        .flat_map(|(name, files)| cycles(files).into_iter().map(move |cycle| (name, cycle)))
        .collect();
    assert!(cycles.is_empty(), "modules that depend on each other: {cycles:#?}");
}

/// `source/nvml/mod.rs` → `["source", "nvml"]`; the root of a crate is empty.
fn module(file: &str) -> Path {
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// The dependencies between modules of one folder that are part of a cycle, as `a → b (a/file: path)`.
fn cycles(files: &[(Path, String)]) -> Vec<String> {
    let modules: BTreeSet<&Path> = files.iter().map(|(path, _)| path).collect();
    // For each folder: who depends on whom, and one place that shows it.
    let mut folders: BTreeMap<&[String], BTreeMap<(&str, &str), String>> = BTreeMap::new();
    let mut references = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.is_empty()) {
        let tokens: TokenStream = text.parse().expect("the file compiles");
        let mut found = Vec::new();
        collect(tokens, path, &mut found);
        references.extend(found.into_iter().map(|named| (path, named)));
    }
    for (path, named) in &references {
        let known = |end: &usize| modules.contains(&named[..*end].to_vec());
        let Some(end) = (1..=named.len()).rev().find(known) else { continue };
        let shared = path.iter().zip(&named[..end]).take_while(|(a, b)| a == b).count();
        if shared < path.len() && shared < end {
            folders
                .entry(&path[..shared])
                .or_default()
                .entry((&path[shared], &named[shared]))
                .or_insert_with(|| format!("{}: {}", path.join("/"), named.join("::")));
        }
    }
    folders.into_values().flat_map(in_cycles).collect()
}

/// Removes dependencies that are not part of a cycle: on modules that depend on no other, repeatedly, and of modules
/// on which no other depends.
fn in_cycles(mut edges: BTreeMap<(&str, &str), String>) -> Vec<String> {
    loop {
        let before = edges.len();
        let from: BTreeSet<_> = edges.keys().map(|(from, _)| *from).collect();
        edges.retain(|(_, to), _| from.contains(to));
        let to: BTreeSet<_> = edges.keys().map(|(_, to)| *to).collect();
        edges.retain(|(from, _), _| to.contains(from));
        if edges.len() == before {
            return edges.into_iter().map(|((from, to), place)| format!("{from} → {to} ({place})")).collect();
        }
    }
}

/// Collects the full paths that tokens of a module name, outside of tests and re-exports.
fn collect(tokens: TokenStream, module: &[String], found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                let is_test = matches!(tokens.get(at + 1), Some(TokenTree::Group(attribute))
                    if matches!(attribute.stream().to_string().replace(' ', "").as_str(), "cfg(test)" | "test"));
                at += 1;
                if is_test {
                    at = end_of_item(&tokens, at + 1);
                }
            }
            TokenTree::Ident(word) if word == "pub" => {
                let is_scope = matches!(tokens.get(at + 1), Some(TokenTree::Group(scope))
                    if scope.delimiter() == Delimiter::Parenthesis);
                let next = at + 1 + usize::from(is_scope);
                let re_exports = matches!(tokens.get(next), Some(TokenTree::Ident(word)) if word == "use");
                at = if re_exports { end_of_item(&tokens, next) } else { next };
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(at + 1), tokens.get(at + 2))
                {
                    let inner: Path = module.iter().cloned().chain([name.to_string()]).collect();
                    collect(body.stream(), &inner, found);
                    at += 2;
                }
                at += 1;
            }
            TokenTree::Ident(word) if word == "crate" || word == "super" || word == "self" => {
                at = path_at(&tokens, at, &[], module, found);
            }
            TokenTree::Group(group) => {
                collect(group.stream(), module, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Position after an item: its `;`, or its body.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    tokens[at..].iter().position(ends).map_or(tokens.len(), |end| at + end + 1)
}

/// Reads `a::b::{c, d}` after `prefix`, records each path in full, and returns the position after it.
fn path_at(
    tokens: &[TokenTree],
    mut at: usize,
    prefix: &[String],
    module: &[String],
    found: &mut Vec<Path>,
) -> usize {
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(colon)) if colon.as_char() == ':');
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => path.push(word.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace && !path.is_empty() => {
                let branches: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',');
                for branch in branches.split(is_comma) {
                    path_at(branch, 0, &path, module, found);
                }
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        if !(is_colon(at) && is_colon(at + 1)) {
            break;
        }
        at += 2;
    }
    // The first segments say from where: the crate's root, the parent, or this module.
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    while let [first, tail @ ..] = rest {
        match first.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        rest = tail;
    }
    found.push(base.into_iter().chain(rest.iter().cloned()).collect());
    at.max(1)
}

fn file(name: &str, text: &str) -> (Path, String) {
    (module(name), text.to_owned())
}

#[test]
fn a_cycle_is_found_wherever_it_is_named() {
    for text in [
        "use crate::b::B;",
        "use crate::{b::B, c};",
        "fn f() { super::b::g() }",
        "impl X { fn f(&self) -> crate::b::B { todo!() } }",
        "fn f() { println!(\"{}\", crate::b::g()) }",
        "mod inner { fn f() { super::super::b::g() } }",
    ] {
        let files = [file("lib.rs", ""), file("a.rs", text), file("b.rs", "use super::a::A;")];
        assert_eq!(cycles(&files).len(), 2, "{text}");
    }
}

#[test]
fn what_is_no_dependency_makes_no_cycle() {
    for text in [
        "pub use crate::b::B;",
        "pub(crate) use crate::b::{B, C};",
        "// crate::b::B\n/// [`crate::b::B`]\nfn f() { \"crate::b\"; }",
        "#[cfg(test)]\nmod tests { use crate::b::B; }",
        "#[cfg(test)]\nuse crate::b::B;\nfn f() {}",
        "#[test]\nfn t() { crate::b::g() }",
        "use crate::c::C;",
    ] {
        let files = [file("a.rs", text), file("b.rs", "use crate::a::A;"), file("c.rs", "")];
        assert!(cycles(&files).is_empty(), "{text}: {:?}", cycles(&files));
    }
}

#[test]
fn cycles_are_found_between_folders_and_within_them() {
    let far = [
        file("a/mod.rs", ""),
        file("a/x.rs", "use crate::b::y::Y;"),
        file("b/mod.rs", "use crate::a::X;"),
        file("b/y.rs", ""),
    ];
    assert_eq!(cycles(&far).len(), 2, "{:?}", cycles(&far));
    let near = [
        file("a/mod.rs", "use x::X;"),
        file("a/x.rs", "use super::y::Y;"),
        file("a/y.rs", "use super::x::X;"),
    ];
    assert_eq!(cycles(&near).len(), 2, "{:?}", cycles(&near));
    // A folder and the files in it are one unit.
    let parent = [file("a/mod.rs", "mod x; use self::x::X; pub struct A;"), file("a/x.rs", "use super::A;")];
    assert!(cycles(&parent).is_empty(), "{:?}", cycles(&parent));
}
