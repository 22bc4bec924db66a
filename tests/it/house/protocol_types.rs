//! The list of types in PROTOCOL.md is generated from the sources of the protocol.

use super::{read, relative, sources};
use nodeglass_protocol::finding::FindingKind;
use quote::ToTokens;
use std::fmt::Write as _;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Attribute, Field, Fields, GenericArgument, Item, PathArguments, Type, Variant};

/// Maximum number of characters in a line of the list.
const WIDTH: usize = 116;

/// Returns all types with a derived encoding, file by file, each with its fields or variants in the order of the wire, as
/// a block of code.
pub(super) fn list() -> String {
    let mut out = String::new();
    for file in sources().iter().filter(|file| relative(file).starts_with("protocol/src/")) {
        let text = read(file);
        let mut types = types(&text);
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

/// The descriptions of the encoded types of a file. Its tests are a module, and not part of the wire.
fn types(text: &str) -> Vec<String> {
    let file = syn::parse_file(text).expect("the sources of the protocol are Rust");
    file.items.iter().filter_map(describe).collect()
}

/// Describes an encoded type, as `Name { field: Type, … }`, `Name = Type` or `Name = variant | …`.
fn describe(item: &Item) -> Option<String> {
    let (attributes, ident, generics) = match item {
        Item::Struct(item) => (&item.attrs, &item.ident, &item.generics),
        Item::Enum(item) => (&item.attrs, &item.ident, &item.generics),
        _ => return None,
    };
    let is_encoded = has(attributes, "derive", "Serialize") || has(attributes, "derive", "Deserialize");
    // A lifetime belongs to an encoder, whose type is the owned one.
    if !is_encoded || generics.lifetimes().next().is_some() {
        return None;
    }
    let parameters = listed(&generics.params, |one| tokens(one).replace(" :", ":"));
    let name = if parameters.is_empty() { ident.to_string() } else { format!("{ident}<{parameters}>") };
    match item {
        Item::Struct(item) => match &item.fields {
            Fields::Named(_) => {
                Some(format!("{name}{}", fields(&item.fields, has(attributes, "serde", "default"))))
            }
            Fields::Unnamed(unnamed) => {
                Some(format!("{name} = {}", listed(&unnamed.unnamed, |field| type_name(&field.ty))))
            }
            Fields::Unit => None,
        },
        Item::Enum(item) => {
            let in_snake_case = has(attributes, "serde", "snake_case");
            let variant = |variant: &Variant| {
                let name = variant.ident.to_string();
                let name = if in_snake_case { snake_case(&name) } else { name };
                format!("{name}{}", fields(&variant.fields, false))
            };
            Some(format!("{name} = {}", item.variants.iter().map(variant).collect::<Vec<_>>().join(" | ")))
        }
        _ => None,
    }
}

/// Returns whether an attribute with a name contains a word.
fn has(attributes: &[Attribute], name: &str, word: &str) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident(name) && tokens(&attribute.meta).contains(word))
}

/// The fields of a structure or variant: ` { name: Type, name?: Type }` where JSON may lack the second one, or `(Type)`.
fn fields(fields: &Fields, all_default: bool) -> String {
    match fields {
        Fields::Unit => String::new(),
        Fields::Unnamed(fields) => format!("({})", listed(&fields.unnamed, |field| type_name(&field.ty))),
        Fields::Named(fields) => {
            let field = |field: &Field| {
                let kind = type_name(&field.ty);
                let is_optional =
                    all_default || kind.starts_with("Option<") || has(&field.attrs, "serde", "default");
                let name = field.ident.as_ref().map(IdentExt::unraw);
                format!("{}{}: {kind}", name.to_token_stream(), if is_optional { "?" } else { "" })
            };
            format!(" {{ {} }}", listed(&fields.named, field))
        }
    }
}

/// A type without module paths, and without boxes, which are not part of the encoding.
fn type_name(kind: &Type) -> String {
    match kind {
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return String::new() };
            let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return last.ident.to_string();
            };
            let inner = listed(&arguments.args, |argument| match argument {
                GenericArgument::Type(kind) => type_name(kind),
                other => tokens(other),
            });
            if last.ident == "Box" { inner } else { format!("{}<{inner}>", last.ident) }
        }
        Type::Tuple(tuple) => format!("({})", listed(&tuple.elems, type_name)),
        Type::Array(array) => format!("[{}; {}]", type_name(&array.elem), tokens(&array.len)),
        other => tokens(other),
    }
}

fn listed<'a, T: 'a, P>(items: &'a Punctuated<T, P>, text: impl Fn(&'a T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn tokens(part: &impl ToTokens) -> String {
    part.to_token_stream().to_string()
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
