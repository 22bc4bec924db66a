//! Observes an element's size and visible part without forcing a layout.

use super::call;
use leptos::prelude::window;
use wasm_bindgen::prelude::*;
use web_sys::Element;

/// Observes an element until it is dropped.
pub struct Observer {
    observer: JsValue,
    _closure: Closure<dyn FnMut(js_sys::Array)>,
}

impl Observer {
    /// Margin around the viewport that counts as visible.
    const MARGIN: &str = "120px 0px";
    /// Number of thresholds: how finely changes of the visible part are reported.
    const PARTS: u32 = 64;

    /// Calls `run` now, and whenever the element's size changes.
    pub fn sizes(element: &Element, mut run: impl FnMut() + 'static) -> Option<Self> {
        Self::begin("ResizeObserver", &JsValue::UNDEFINED, element, move |_| run())
    }

    /// Calls `run` now with the part of the element that is visible within the page's main area (with a
    /// margin), and whenever that part changes.
    pub fn visibility(element: &Element, mut run: impl FnMut(Visibility) + 'static) -> Option<Self> {
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
            // Only the last entry is current.
            if let Some(last) = news.iter().last() {
                run(visibility(&last));
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

/// The visible part of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// None of it.
    Hidden,
    /// The offset from its top and the height of the visible part, in px.
    Part(u32, u32),
    /// The whole element, of any height.
    Full,
}

/// Converts an `IntersectionObserverEntry`.
fn visibility(entry: &JsValue) -> Visibility {
    let property =
        |target: &JsValue, name: &str| js_sys::Reflect::get(target, &name.into()).unwrap_or_default();
    let number = |target: &JsValue, name: &str| property(target, name).as_f64().unwrap_or_default();
    if !property(entry, "isIntersecting").is_truthy() {
        return Visibility::Hidden;
    }
    if number(entry, "intersectionRatio") > 0.999 {
        return Visibility::Full;
    }
    let (part, whole) = (property(entry, "intersectionRect"), property(entry, "boundingClientRect"));
    let from = (number(&part, "top") - number(&whole, "top")).max(0.0);
    Visibility::Part(from as u32, number(&part, "height").ceil() as u32)
}
