//! `view!` reads the markup that Leptos reads, and writes a template with holes instead of a type for each element.
//!
//! A view of Leptos is a type made of the types of all that is in it, and each such type brings its own code to be
//! built, renewed and dropped; that was a tenth of the page's weight. Here a view is a constant string that one
//! interpreter (`frontend/src/markup.rs`) reads, and a list of what is only known when the page runs.

use proc_macro::TokenStream as Tokens;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use rstml::node::{KeyedAttribute, Node, NodeAttribute, NodeElement, NodeName};
use std::cmp::Reverse;

/// What follows each of these in a template; `frontend/src/markup.rs` names the same.
mod mark {
    pub(crate) const OPEN: char = '\u{1}';
    pub(crate) const OPEN_SVG: char = '\u{2}';
    pub(crate) const NAME: char = '\u{3}';
    pub(crate) const VALUE: char = '\u{4}';
    pub(crate) const TEXT: char = '\u{5}';
    pub(crate) const CLOSE: char = '\u{6}';
    pub(crate) const CHILD: char = '\u{7}';
    pub(crate) const ATTRIBUTE: char = '\u{8}';
    pub(crate) const CLASS: char = '\u{e}';
    pub(crate) const STYLE: char = '\u{f}';
    pub(crate) const PROPERTY: char = '\u{10}';
    pub(crate) const FLAG: char = '\u{11}';
    pub(crate) const EVENT: char = '\u{12}';
    pub(crate) const REFERENCE: char = '\u{13}';
}

/// Elements that are drawings; the page uses no others.
const SVG: &[&str] = &[
    "circle",
    "clipPath",
    "defs",
    "g",
    "line",
    "linearGradient",
    "path",
    "pattern",
    "polygon",
    "polyline",
    "rect",
    "stop",
    "svg",
    "text",
    "tspan",
    "use",
];

/// A view, written as markup.
#[proc_macro]
pub fn view(tokens: Tokens) -> Tokens {
    match rstml::parse2(tokens.into()) {
        Ok(nodes) => root(nodes).unwrap_or_else(complaint).into(),
        Err(error) => error.to_compile_error().into(),
    }
}

fn complaint(words: String) -> TokenStream {
    quote!(::core::compile_error!(#words))
}

/// A template under construction.
#[derive(Default)]
struct Template {
    text: String,
    holes: Vec<TokenStream>,
}

fn root(nodes: Vec<Node>) -> Result<TokenStream, String> {
    let mut nodes: Vec<_> = nodes.into_iter().filter(|node| !matches!(node, Node::Comment(_))).collect();
    match nodes.as_slice() {
        // A component is a view already.
        [Node::Element(element)] if is_component(element) => return component(element),
        [Node::Block(block)] => return Ok(quote!(#block)),
        _ => {}
    }
    let mut template = Template::default();
    nodes.drain(..).try_for_each(|node| template.node(&node))?;
    let Template { text, holes } = template;
    Ok(quote!(crate::markup::View::new(#text, ::std::vec![#(#holes),*])))
}

impl Template {
    fn node(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Element(element) if is_component(element) => {
                let made = component(element)?;
                self.child(&made);
            }
            Node::Element(element) => self.element(element)?,
            Node::Text(text) => {
                self.text.push(mark::TEXT);
                self.text.push_str(&text.value_string());
            }
            Node::Block(block) => {
                self.child(&quote!(#[allow(unused_braces, reason = "as it was written")] #block))
            }
            Node::Comment(_) => {}
            other => return Err(format!("`view!` cannot read {:?}", other.r#type())),
        }
        Ok(())
    }

    fn child(&mut self, made: &TokenStream) {
        self.text.push(mark::CHILD);
        self.holes.push(quote!(crate::markup::child(#made)));
    }

    fn element(&mut self, element: &NodeElement<rstml::Infallible>) -> Result<(), String> {
        let tag = element.name().to_string();
        self.text.push(if SVG.contains(&tag.as_str()) { mark::OPEN_SVG } else { mark::OPEN });
        self.text.push_str(&tag);
        let mut attributes = element.attributes().iter().map(keyed).collect::<Result<Vec<_>, _>>()?;
        // Set as a whole, they would undo what is set of them piece by piece.
        attributes.sort_by_key(|attribute| {
            Reverse(matches!(attribute.key.to_string().as_str(), "class" | "style"))
        });
        attributes.into_iter().try_for_each(|attribute| self.attribute(attribute))?;
        element.children.iter().try_for_each(|child| self.node(child))?;
        self.text.push(mark::CLOSE);
        Ok(())
    }

    fn attribute(&mut self, attribute: &KeyedAttribute) -> Result<(), String> {
        let key = attribute.key.to_string();
        let Some(value) = attribute.value() else {
            self.fixed(&key, "");
            return Ok(());
        };
        let plain = value.to_token_stream().to_string();
        let value = quote!(#[allow(unused_braces, reason = "as it was written")] { #value });
        let (mark, name) = match key.split_once(':') {
            None if key == "node_ref" => {
                self.text.push(mark::REFERENCE);
                self.holes.push(quote!(crate::markup::reference(#value)));
                return Ok(());
            }
            None => match (attribute.value_literal_string(), plain.as_str()) {
                (_, "true") => {
                    self.fixed(&key, "");
                    return Ok(());
                }
                (Some(literal), _) if plain.starts_with('"') => {
                    self.fixed(&key, &literal);
                    return Ok(());
                }
                _ => (mark::ATTRIBUTE, key.as_str()),
            },
            Some(("class", name)) => (mark::CLASS, name),
            Some(("style", name)) => (mark::STYLE, name),
            Some(("prop", name @ "checked")) => (mark::FLAG, name),
            Some(("prop", name)) => (mark::PROPERTY, name),
            Some(("on", name)) => {
                let event = event(name)?;
                self.text.push(mark::EVENT);
                self.text.push_str(name);
                self.holes.push(quote!(crate::markup::listener::<#event>(#value)));
                return Ok(());
            }
            Some(_) => return Err(format!("`view!` does not know the attribute {key}")),
        };
        self.text.push(mark);
        self.text.push_str(name);
        self.holes.push(quote!(crate::markup::value(#value)));
        Ok(())
    }

    fn fixed(&mut self, name: &str, value: &str) {
        self.text.push(mark::NAME);
        self.text.push_str(name);
        self.text.push(mark::VALUE);
        self.text.push_str(value);
    }
}

fn keyed(attribute: &NodeAttribute) -> Result<&KeyedAttribute, String> {
    match attribute {
        NodeAttribute::Attribute(attribute) => Ok(attribute),
        NodeAttribute::Block(_) => Err("`view!` knows no attributes without a name".to_owned()),
    }
}

/// What an event is when it is told.
fn event(name: &str) -> Result<TokenStream, String> {
    Ok(match name {
        "click" => quote!(::web_sys::MouseEvent),
        "keydown" => quote!(::web_sys::KeyboardEvent),
        "pointerdown" | "pointermove" | "pointerup" | "pointercancel" | "pointerenter" | "pointerleave" => {
            quote!(::web_sys::PointerEvent)
        }
        "submit" => quote!(::web_sys::SubmitEvent),
        "wheel" => quote!(::web_sys::WheelEvent),
        "blur" | "cancel" | "change" | "input" | "scroll" => quote!(::web_sys::Event),
        _ => return Err(format!("`view!` does not know the event {name}")),
    })
}

/// Components are named like types.
fn is_component(element: &NodeElement<rstml::Infallible>) -> bool {
    let NodeName::Path(path) = element.name() else { return false };
    path.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with(char::is_uppercase))
}

fn component(element: &NodeElement<rstml::Infallible>) -> Result<TokenStream, String> {
    let name = element.name();
    let mut props = TokenStream::new();
    for attribute in element.attributes() {
        let attribute = keyed(attribute)?;
        let key = &attribute.key;
        let value = attribute.value().map_or_else(|| quote!(#key), |value| quote!(#value));
        props.extend(quote!(.#key(#[allow(unused_braces, reason = "as it was written")] { #value })));
    }
    if !element.children.is_empty() {
        let children = root(element.children.clone())?;
        props.extend(quote!(.children(::leptos::children::ToChildren::to_children(move || #children))));
    }
    Ok(quote! {
        ::leptos::component::component_view(&#name, ::leptos::component::component_props_builder(&#name) #props .build())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(markup: TokenStream) -> Result<String, String> {
        root(rstml::parse2(markup).unwrap()).map(|made| made.to_string())
    }

    #[test]
    fn what_never_changes_is_one_string() {
        let made = read(quote!(<p class="a" hidden=true>"words" <b></b></p>)).unwrap();
        let template = r"\u{1}p\u{3}class\u{4}a\u{3}hidden\u{4}\u{5}words\u{1}b\u{6}\u{6}";
        assert!(made.contains(template), "{made}");
        assert!(!made.contains("value"), "{made}");
    }

    #[test]
    fn a_class_as_a_whole_is_set_before_its_pieces() {
        let made = read(quote!(<p class:is-late=late class=class on:click=go></p>)).unwrap();
        assert!(made.contains(r"\u{1}p\u{8}class\u{e}is-late\u{12}click\u{6}"), "{made}");
        assert!(made.contains("MouseEvent"), "{made}");
    }

    #[test]
    fn drawings_are_no_html() {
        assert!(read(quote!(<svg><path d="M0 0"/></svg>)).unwrap().contains(r"\u{2}svg\u{2}path"));
    }

    #[test]
    fn what_cannot_be_read_is_said_when_the_page_is_built() {
        assert!(read(quote!(<p on:dance=go></p>)).unwrap_err().contains("dance"));
        assert!(read(quote!(<p {..all}></p>)).is_err());
    }
}
