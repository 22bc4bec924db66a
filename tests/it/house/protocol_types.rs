//! The list of types in PROTOCOL.md is generated from the sources of the protocol, which rustfmt has formatted.

use super::{read, relative, sources};
use nodeglass_protocol::finding::FindingKind;
use std::fmt::Write as _;

/// Maximum number of characters in a line of the list.
const WIDTH: usize = 116;

/// Returns all types with a derived encoding, file by file, each with its fields or variants in the order of the wire, as
/// a block of code.
pub(super) fn list() -> String {
    let mut out = String::new();
    for file in sources().iter().filter(|file| relative(file).starts_with("protocol/src/")) {
        let text = read(file);
        // Tests come last in a file and are not part of the wire.
        let mut types = types(text.split("#[cfg(test)]").next().unwrap_or_default());
        if relative(file).ends_with("model/finding.rs") {
            // A macro defines it.
            let kinds: Vec<_> = FindingKind::ALL.iter().map(|kind| kind.name()).collect();
            types.insert(0, format!("FindingKind = {}", kinds.join(" | ")));
        }
        if !types.is_empty() {
            let _ = write!(out, "\n{}\n", relative(file).trim_start_matches("protocol/src/"));
            types.iter().for_each(|item| wrap(&mut out, item));
        }
    }
    assert!(out.lines().count() > 150, "the sources were not understood:\n{out}");
    format!("```text\n{}```\n", out.trim_start())
}

/// The descriptions of the encoded types of a file.
fn types(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("#[derive(") {
        rest = &rest[at..];
        let (attributes, item) = attributes(rest);
        let is_encoded = attributes.iter().any(|attribute| {
            attribute.starts_with("derive(")
                && (attribute.contains("Serialize") || attribute.contains("Deserialize"))
        });
        let description = is_encoded.then(|| describe(&attributes, item)).flatten();
        found.extend(description.filter(|description| !description.contains('$')));
        rest = item;
    }
    found
}

/// Describes a type, as `Name { field: Type, … }`, `Name = Type` or `Name = variant | …`.
fn describe(attributes: &[&str], item: &str) -> Option<String> {
    let item = item.strip_prefix("pub ").or_else(|| item.strip_prefix("pub(crate) ")).unwrap_or(item);
    let (kind, item) = item.split_once(' ')?;
    let end = item.find(['{', '(', ';'])?;
    // A lifetime belongs to an encoder, whose type is the owned one.
    let (name, body) = (item[..end].split(" where").next()?.trim(), &item[end..]);
    let serde = |name: &str| attributes.iter().any(|a| a.starts_with("serde(") && a.contains(name));
    match (kind, body.as_bytes()[0]) {
        _ if name.contains('\'') => None,
        ("struct", b'{') => {
            let fields: Vec<_> = members(inside(body))
                .iter()
                .map(|(own, field)| self::field(own, field, serde("default")))
                .collect();
            Some(format!("{name} {{ {} }}", fields.join(", ")))
        }
        ("struct", b'(') => {
            let fields: Vec<_> = members(inside(body)).iter().map(|(_, field)| type_name(field)).collect();
            Some(format!("{name} = {}", fields.join(", ")))
        }
        ("enum", b'{') => {
            let in_snake_case = serde("snake_case");
            let variants: Vec<_> = members(inside(body))
                .iter()
                .map(|(_, variant)| self::variant(variant, in_snake_case))
                .collect();
            Some(format!("{name} = {}", variants.join(" | ")))
        }
        _ => None,
    }
}

/// `name: Type`, or `name?: Type` if JSON may lack it.
fn field(attributes: &[&str], field: &str, all_default: bool) -> String {
    let (name, kind) = field.split_once(':').unwrap_or((field, ""));
    let is_optional = all_default
        || kind.trim_start().starts_with("Option<")
        || attributes.iter().any(|a| a.starts_with("serde(") && a.contains("default"));
    let mark = if is_optional { "?" } else { "" };
    format!("{}{mark}: {}", type_name(name).trim_start_matches("r#"), type_name(kind))
}

/// `name`, `name(Type)` or `name { field: Type }`.
fn variant(text: &str, in_snake_case: bool) -> String {
    let end = text.find(['(', '{', ' ']).unwrap_or(text.len());
    let name = if in_snake_case { snake_case(&text[..end]) } else { text[..end].to_owned() };
    let content = text[end..].trim_start();
    match content.as_bytes().first() {
        Some(b'(') => {
            let types: Vec<_> = members(inside(content)).iter().map(|(_, kind)| type_name(kind)).collect();
            format!("{name}({})", types.join(", "))
        }
        Some(b'{') => {
            let fields: Vec<_> =
                members(inside(content)).iter().map(|(own, field)| self::field(own, field, false)).collect();
            format!("{name} {{ {} }}", fields.join(", "))
        }
        _ => name,
    }
}

/// A type without visibility, module paths, and boxes, which are not part of the encoding.
fn type_name(text: &str) -> String {
    let text = text
        .trim()
        .trim_start_matches("pub ")
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub(super) ");
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars() {
        match c {
            _ if c.is_alphanumeric() || c == '_' || c == '#' => word.push(c),
            ':' => word.clear(),
            _ => {
                out.push_str(&std::mem::take(&mut word));
                out.push(c);
            }
        }
    }
    out.push_str(&word);
    while let Some(at) = out.find("Box<") {
        let end = at
            + out[at..]
                .char_indices()
                .scan(0_i32, |depth, (at, c)| {
                    *depth += i32::from(c == '<') - i32::from(c == '>');
                    Some((at, c, *depth))
                })
                .find(|(_, c, depth)| *c == '>' && *depth == 0)
                .map_or(0, |(at, ..)| at);
        out.remove(end);
        out.replace_range(at..at + 4, "");
    }
    out
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// The text between the first bracket and its counterpart.
fn inside(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[1..at];
        }
    }
    text
}

/// The fields or variants of a body, each with its attributes.
fn members(body: &str) -> Vec<(Vec<&str>, String)> {
    let mut found = Vec::new();
    let mut rest = skip_comments(body);
    while !rest.is_empty() {
        let (attributes, item) = attributes(rest);
        let mut depth = 0_usize;
        let end = item.char_indices().find(|(_, c)| {
            match c {
                '(' | '{' | '[' | '<' => depth += 1,
                ')' | '}' | ']' | '>' => depth -= 1,
                _ => {}
            }
            *c == ',' && depth == 0
        });
        let end = end.map_or(item.len(), |(at, _)| at);
        let text = item[..end].lines().map(str::trim).filter(|line| !line.starts_with("//"));
        found.push((attributes, text.collect::<Vec<_>>().join(" ").trim().to_owned()));
        rest = skip_comments(item[end..].trim_start_matches(','));
    }
    found
}

/// The attributes at the begin of a text without `#[` and `]`, and what follows them.
fn attributes(text: &str) -> (Vec<&str>, &str) {
    let mut attributes = Vec::new();
    let mut rest = skip_comments(text);
    while let Some(after) = rest.strip_prefix('#') {
        let attribute = inside(after);
        attributes.push(attribute);
        rest = skip_comments(&after[attribute.len() + 2..]);
    }
    (attributes, rest)
}

fn skip_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    while rest.starts_with("//") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    rest
}

/// Appends an entry in lines of limited length, which continue with an indent.
fn wrap(out: &mut String, entry: &str) {
    let mut length = 2;
    out.push_str("  ");
    for (index, word) in entry.split(' ').enumerate() {
        if index > 0 && length + 1 + word.len() > WIDTH {
            out.push_str("\n      ");
            length = 6;
        } else if index > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.len();
    }
    out.push('\n');
}

#[test]
fn types_are_listed_as_they_are_encoded() {
    let found = types(
        r#"
/// Not encoded.
#[derive(Clone)]
pub struct Other { x: u8 }

/// Encoded.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line<S = Sample> {
    /// The first, {with} braces.
    HelloThere(Box<crate::probe::Hello<S>>),
    Moved {
        /// Where.
        #[serde(default)]
        at: Vec<(u32, Text)>,
        to: Option<u8>,
    },
    Stop,
}

#[derive(Serialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

#[derive(Serialize)]
pub struct Encoder<'a> { text: &'a str }
"#,
    );
    let expected = [
        "Line<S = Sample> = hello_there(Hello<S>) | moved { at?: Vec<(u32, Text)>, to?: Option<u8> } | stop",
        "JobId = u32",
    ];
    assert_eq!(found, expected);
}
