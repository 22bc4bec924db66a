//! A view is a template, which is one string, and what fills its holes; one interpreter draws and renews them all.
//!
//! `view!` (in `frontend/markup`) writes the templates. A part of the page that is drawn again from the same template is
//! renewed in place, hole by hole; from another one, it is replaced.

use crate::lazy::Lazy;
use leptos::prelude::*;
use leptos::reactive::owner::Owner;
use leptos::tachys::html::attribute::any_attribute::AnyAttribute;
use leptos::tachys::html::element::ElementType;
use leptos::tachys::html::node_ref::NodeRefContainer;
use leptos::tachys::hydration::Cursor;
use leptos::tachys::view::any_view::AnyViewState;
use leptos::tachys::view::{Position, PositionState, RenderHtml};
pub use nodeglass_markup::view;
use send_wrapper::SendWrapper;
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{Element, Event, HtmlElement, Node};

// What follows each of these in a template; holes for views, attributes, listeners and references need no name here, for
// what fills them says what it is.

/// Begins an element of HTML.
const OPEN: u8 = 1;
/// Begins a drawing, or an element of one.
const OPEN_SVG: u8 = 2;
/// The name of an attribute that never changes; its value follows.
const NAME: u8 = 3;
/// The value of the attribute that was just named.
const VALUE: u8 = 4;
/// A text that never changes.
const TEXT: u8 = 5;
/// Ends an element.
const CLOSE: u8 = 6;
/// A hole that says whether a class is there.
const CLASS: u8 = 14;
/// A hole for a property of its style.
const STYLE: u8 = 15;
/// A hole for a property of the element that is a text.
const PROPERTY: u8 = 16;
/// A hole for a property of the element that is true or false.
const FLAG: u8 = 17;

const SVG: &str = "http://www.w3.org/2000/svg";

/// What an attribute, a class or a property is; nothing where it is not there.
pub type Word = Option<Cow<'static, str>>;

/// A template and what fills its holes.
pub struct View {
    template: &'static str,
    holes: Vec<Hole>,
}

/// What fills a hole.
pub enum Hole {
    /// A view.
    Child(AnyView),
    /// A value that stays until the view is drawn again.
    Fixed(Word),
    /// A value that changes by itself.
    Lazy(Lazy<Word>),
    /// What hears an event.
    Listener(SendWrapper<Hear>),
    /// Who wants to know the element.
    Reference(Box<dyn Fn(&Element) + Send>),
}

type Hear = Rc<dyn Fn(Event)>;

impl View {
    /// A template with as many holes as are filled.
    pub fn new(template: &'static str, holes: Vec<Hole>) -> Self {
        Self { template, holes }
    }
}

/// A view in a hole.
pub fn child(view: impl IntoAny) -> Hole {
    Hole::Child(view.into_any())
}

/// A value in a hole.
pub fn value(value: impl IntoHole) -> Hole {
    value.into_hole()
}

/// What hears an event, in whose scope it was made.
pub fn listener<E: JsCast + 'static>(hear: impl Fn(E) + 'static) -> Hole {
    heard(Rc::new(move |event: Event| hear(event.unchecked_into())))
}

fn heard(hear: Hear) -> Hole {
    let owner = Owner::current().unwrap_or_default();
    Hole::Listener(SendWrapper::new(Rc::new(move |event| owner.with(|| hear(event)))))
}

/// Who wants to know the element.
pub fn reference(who: impl IntoReference) -> Hole {
    Hole::Reference(who.into_reference())
}

/// Who can want to know an element.
pub trait IntoReference {
    /// What is told the element.
    fn into_reference(self) -> Box<dyn Fn(&Element) + Send>;
}

impl<E> IntoReference for NodeRef<E>
where
    E: ElementType + 'static,
    E::Output: JsCast + 'static,
{
    fn into_reference(self) -> Box<dyn Fn(&Element) + Send> {
        Box::new(move |element| self.load(element))
    }
}

/// What can fill the hole of a value.
pub trait IntoHole {
    /// The hole.
    fn into_hole(self) -> Hole;
}

/// What can be a value.
pub trait IntoWord: 'static {
    /// The value.
    fn into_word(self) -> Word;
}

impl<W: IntoWord> IntoHole for W {
    fn into_hole(self) -> Hole {
        Hole::Fixed(self.into_word())
    }
}

impl<W: IntoWord> IntoHole for Lazy<W> {
    fn into_hole(self) -> Hole {
        Hole::Lazy(Box::new(move || self().into_word()))
    }
}

impl IntoWord for &'static str {
    fn into_word(self) -> Word {
        Some(Cow::Borrowed(self))
    }
}

impl IntoWord for String {
    fn into_word(self) -> Word {
        Some(Cow::Owned(self))
    }
}

impl IntoWord for bool {
    fn into_word(self) -> Word {
        self.then_some(Cow::Borrowed(""))
    }
}

impl<W: IntoWord> IntoWord for Option<W> {
    fn into_word(self) -> Word {
        self.and_then(W::into_word)
    }
}

/// A view that stands in the document.
pub struct Standing {
    template: &'static str,
    tops: Vec<Top>,
    filled: Vec<Filled>,
}

/// What stands at the top of a view.
enum Top {
    /// A node of the template.
    Node(Node),
    /// What fills a hole.
    Hole(usize),
}

/// A hole that was filled.
enum Filled {
    Child(AnyViewState),
    Fixed(Target, Word),
    Lazy(Target, #[expect(dead_code, reason = "it ends when it is dropped")] RenderEffect<Word>),
    Listener(
        Rc<RefCell<Hear>>,
        #[expect(dead_code, reason = "it ends when it is dropped")] Closure<dyn FnMut(Event)>,
    ),
    Reference(Element),
}

/// Where a value goes.
#[derive(Clone)]
struct Target {
    element: Element,
    mark: u8,
    name: &'static str,
}

impl Target {
    /// Writes a value; what cannot be written, as a name that no browser knows, is left out.
    fn write(&self, word: &Word) {
        let Self { element, mark, name } = self;
        match (*mark, word.as_deref()) {
            (CLASS, Some(_)) => drop(element.class_list().add_1(name)),
            (CLASS, None) => drop(element.class_list().remove_1(name)),
            (STYLE, word) => {
                let style = element.unchecked_ref::<HtmlElement>().style();
                let _ = style.set_property(name, word.unwrap_or_default());
            }
            (PROPERTY, word) => self.set_property(&word.unwrap_or_default().into()),
            (FLAG, word) => self.set_property(&word.is_some().into()),
            (_, Some(word)) => drop(element.set_attribute(name, word)),
            (_, None) => drop(element.remove_attribute(name)),
        }
    }

    fn set_property(&self, value: &JsValue) {
        let _ = js_sys::Reflect::set(&self.element, &self.name.into(), value);
    }

    /// Writes the value now, and again whenever it is another one.
    fn follow(&self, word: Lazy<Word>) -> RenderEffect<Word> {
        let target = self.clone();
        RenderEffect::new(move |before: Option<Word>| {
            let now = word();
            // What an element has not got needs no taking away.
            if before.as_ref().map_or(now.is_some() || target.mark == FLAG, |before| *before != now) {
                target.write(&now);
            }
            now
        })
    }
}

impl Hole {
    fn fill(self, element: Element, mark: u8, name: &'static str) -> Filled {
        let target = Target { element, mark, name };
        match self {
            Self::Child(view) => {
                let mut state = view.build();
                state.mount(&target.element, None);
                Filled::Child(state)
            }
            Self::Fixed(word) => {
                if word.is_some() {
                    target.write(&word);
                }
                Filled::Fixed(target, word)
            }
            Self::Lazy(word) => {
                let effect = target.follow(word);
                Filled::Lazy(target, effect)
            }
            Self::Listener(hear) => {
                let hear = Rc::new(RefCell::new(hear.take()));
                let now = hear.clone();
                let closure = Closure::<dyn FnMut(Event)>::new(move |event| {
                    // Let go before it is called: what it does may draw this view again.
                    let hear = now.borrow().clone();
                    hear(event);
                });
                let _ =
                    target.element.add_event_listener_with_callback(name, closure.as_ref().unchecked_ref());
                Filled::Listener(hear, closure)
            }
            Self::Reference(wants) => {
                wants(&target.element);
                Filled::Reference(target.element)
            }
        }
    }

    fn fill_again(self, filled: &mut Filled) {
        match (self, filled) {
            (Self::Child(view), Filled::Child(state)) => view.rebuild(state),
            (Self::Fixed(word), Filled::Fixed(target, now)) => {
                let before = std::mem::replace(now, word);
                if before != *now {
                    target.write(now);
                }
            }
            (Self::Listener(hear), Filled::Listener(before, _)) => *before.borrow_mut() = hear.take(),
            (Self::Reference(wants), Filled::Reference(element)) => wants(element),
            (hole, filled @ (Filled::Fixed(..) | Filled::Lazy(..))) => {
                let (Filled::Fixed(target, _) | Filled::Lazy(target, _)) = &*filled else { return };
                let target = target.clone();
                // The one before ends first, so that it cannot write after this one.
                *filled = Filled::Fixed(target.clone(), None);
                *filled = match hole {
                    Self::Lazy(word) => Filled::Lazy(target.clone(), target.follow(word)),
                    Self::Fixed(word) => {
                        target.write(&word);
                        Filled::Fixed(target, word)
                    }
                    _ => return,
                };
            }
            // A template's holes are always of the same kinds.
            _ => {}
        }
    }
}

/// A template read mark by mark.
struct Marks(&'static str);

impl Iterator for Marks {
    type Item = (u8, &'static str);

    fn next(&mut self) -> Option<Self::Item> {
        let mark = *self.0.as_bytes().first()?;
        let rest = self.0.get(1..)?;
        let end =
            rest.bytes().position(|byte| byte < 20 && !matches!(byte, b'\n' | b'\t')).unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.0 = rest;
        Some((mark, word))
    }
}

impl Render for View {
    type State = Standing;

    fn build(self) -> Standing {
        let document = document();
        let mut standing = Standing { template: self.template, tops: Vec::new(), filled: Vec::new() };
        let (mut open, mut name): (Vec<Element>, _) = (Vec::new(), "");
        let mut holes = self.holes.into_iter();
        for (mark, word) in Marks(self.template) {
            let above = open.last();
            let node = match mark {
                OPEN | OPEN_SVG => {
                    let made = match mark {
                        OPEN => document.create_element(word),
                        _ => document.create_element_ns(Some(SVG), word),
                    };
                    let Ok(element) = made else { continue };
                    let node = Node::from(element.clone());
                    match above {
                        Some(above) => drop(above.append_child(&node)),
                        None => standing.tops.push(Top::Node(node)),
                    }
                    open.push(element);
                    continue;
                }
                NAME => {
                    name = word;
                    continue;
                }
                VALUE => {
                    above.into_iter().for_each(|above| drop(above.set_attribute(name, word)));
                    continue;
                }
                CLOSE => {
                    open.pop();
                    continue;
                }
                TEXT => Node::from(document.create_text_node(word)),
                _ => {
                    let Some(hole) = holes.next() else { continue };
                    let filled = match (hole, above) {
                        (hole, Some(above)) => hole.fill(above.clone(), mark, word),
                        (Hole::Child(view), None) => {
                            standing.tops.push(Top::Hole(standing.filled.len()));
                            Filled::Child(view.build())
                        }
                        _ => continue,
                    };
                    standing.filled.push(filled);
                    continue;
                }
            };
            match above {
                Some(above) => drop(above.append_child(&node)),
                None => standing.tops.push(Top::Node(node)),
            }
        }
        standing
    }

    fn rebuild(self, state: &mut Standing) {
        // Two uses of one template are one view, wherever the compiler put the string.
        if self.template == state.template {
            self.holes.into_iter().zip(&mut state.filled).for_each(|(hole, filled)| hole.fill_again(filled));
        } else {
            let mut new = self.build();
            state.insert_before_this(&mut new);
            state.unmount();
            *state = new;
        }
    }
}

impl Mountable for Standing {
    fn unmount(&mut self) {
        for top in &self.tops {
            match top {
                Top::Node(node) => node.unchecked_ref::<Element>().remove(),
                Top::Hole(at) => {
                    if let Some(Filled::Child(state)) = self.filled.get_mut(*at) {
                        state.unmount();
                    }
                }
            }
        }
    }

    fn mount(&mut self, parent: &Element, marker: Option<&Node>) {
        for top in &self.tops {
            match top {
                Top::Node(node) => drop(parent.insert_before(node, marker)),
                Top::Hole(at) => {
                    if let Some(Filled::Child(state)) = self.filled.get_mut(*at) {
                        state.mount(parent, marker);
                    }
                }
            }
        }
    }

    fn insert_before_this(&self, child: &mut dyn Mountable) -> bool {
        self.tops.iter().any(|top| match top {
            Top::Node(node) => match node.parent_node() {
                Some(parent) => {
                    child.mount(parent.unchecked_ref(), Some(node));
                    true
                }
                None => false,
            },
            Top::Hole(at) => match self.filled.get(*at) {
                Some(Filled::Child(state)) => state.insert_before_this(child),
                _ => false,
            },
        })
    }

    fn elements(&self) -> Vec<Element> {
        Vec::new()
    }
}

/// The page is never written as HTML by a server; Leptos asks only that it could be.
macro_rules! only_in_browsers {
    ($view:ty) => {
        leptos::tachys::no_attrs!($view);

        impl RenderHtml for $view {
            type AsyncOutput = Self;
            type Owned = Self;

            const MIN_LENGTH: usize = 0;

            fn dry_resolve(&mut self) {}

            async fn resolve(self) -> Self {
                self
            }

            fn to_html_with_buf(
                self,
                _: &mut String,
                _: &mut Position,
                _: bool,
                _: bool,
                _: Vec<AnyAttribute>,
            ) {
            }

            fn hydrate<const FROM_SERVER: bool>(self, _: &Cursor, _: &PositionState) -> Self::State {
                self.build()
            }

            fn into_owned(self) -> Self {
                self
            }
        }
    };
}

only_in_browsers!(View);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_read_mark_by_mark() {
        let marks: Vec<_> = Marks("\u{1}p\u{3}class\u{4}\u{5}two\nlines: é\u{8}title\u{7}\u{6}").collect();
        let all = [
            (OPEN, "p"),
            (NAME, "class"),
            (VALUE, ""),
            (TEXT, "two\nlines: é"),
            (8, "title"),
            (7, ""),
            (CLOSE, ""),
        ];
        assert_eq!(marks, all);
    }

    #[test]
    fn what_is_no_template_ends_and_does_not_panic() {
        assert_eq!(Marks("").count(), 0);
        assert_eq!(Marks("é").count(), 0);
    }

    #[test]
    fn an_attribute_that_holds_is_there_without_a_value_and_else_it_is_not() {
        assert_eq!(true.into_word().as_deref(), Some(""));
        assert_eq!(false.into_word(), None);
        assert_eq!(Some("page").into_word().as_deref(), Some("page"));
        assert_eq!(None::<String>.into_word(), None);
    }
}
