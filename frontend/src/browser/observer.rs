//! An element is followed: what size it has, and which part of it can be seen, without making the browser lay out the page
//! for the question.

use super::call;
use leptos::prelude::window;
use wasm_bindgen::prelude::*;
use web_sys::Element;

/// Follows an element until it is dropped.
pub struct Observer {
    observer: JsValue,
    _closure: Closure<dyn FnMut(js_sys::Array)>,
}

impl Observer {
    /// What comes so near to the edge is seen soon.
    const MARGIN: &str = "120px 0px";
    /// It is told each time that another such part of the element is seen.
    const PARTS: u32 = 64;

    /// Calls `run` at first, and whenever the element takes another size.
    pub fn sizes(element: &Element, mut run: impl FnMut() + 'static) -> Option<Self> {
        Self::begin("ResizeObserver", &JsValue::UNDEFINED, element, move |_| run())
    }

    /// Calls `run` at first with what can be seen of the element within the page's middle, or soon will be, and whenever that
    /// is another part.
    pub fn sight(element: &Element, mut run: impl FnMut(Seen) + 'static) -> Option<Self> {
        let steps = (0..=Self::PARTS).map(|part| JsValue::from(f64::from(part) / f64::from(Self::PARTS)));
        let options = js_sys::Object::new();
        let root = element.closest("main").ok().flatten().map_or(JsValue::NULL, JsValue::from);
        for (name, value) in [
            ("root", root),
            ("rootMargin", Self::MARGIN.into()),
            ("threshold", steps.collect::<js_sys::Array>().into()),
        ] {
            js_sys::Reflect::set(&options, &name.into(), &value).ok()?;
        }
        Self::begin("IntersectionObserver", &options, element, move |news| {
            // Only the last one is of now.
            if let Some(last) = news.iter().last() {
                run(seen(&last));
            }
        })
    }

    fn begin(
        kind: &str,
        options: &JsValue,
        element: &Element,
        run: impl FnMut(js_sys::Array) + 'static,
    ) -> Option<Self> {
        let closure = Closure::<dyn FnMut(js_sys::Array)>::new(run);
        let made = js_sys::Reflect::get(&window(), &kind.into()).ok()?;
        let operands = js_sys::Array::of2(closure.as_ref(), options);
        let observer = js_sys::Reflect::construct(made.dyn_ref::<js_sys::Function>()?, &operands).ok()?;
        call(&observer, "observe", &js_sys::Array::of1(element));
        Some(Self { observer, _closure: closure })
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        call(&self.observer, "disconnect", &js_sys::Array::new());
    }
}

/// Which part of an element can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// None.
    Nothing,
    /// So many px from its top on, so many px high.
    Part(u32, u32),
    /// All of it, however high it is.
    Whole,
}

/// What an `IntersectionObserverEntry` says.
fn seen(entry: &JsValue) -> Seen {
    let of = |target: &JsValue, name: &str| js_sys::Reflect::get(target, &name.into()).unwrap_or_default();
    let number = |target: &JsValue, name: &str| of(target, name).as_f64().unwrap_or_default();
    if !of(entry, "isIntersecting").is_truthy() {
        return Seen::Nothing;
    }
    if number(entry, "intersectionRatio") > 0.999 {
        return Seen::Whole;
    }
    let (part, whole) = (of(entry, "intersectionRect"), of(entry, "boundingClientRect"));
    let from = (number(&part, "top") - number(&whole, "top")).max(0.0);
    Seen::Part(from as u32, number(&part, "height").ceil() as u32)
}
