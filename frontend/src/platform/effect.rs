//! Effects that share their code.

use leptos::prelude::Effect;

/// Runs a function in the next tick, and again when a signal that it reads has changed, like [`Effect::new`].
///
/// The code of `Effect::new` is compiled for each type of function, 1 kB for each effect of the page. Behind a `Box`, all
/// functions have one type.
pub fn effect(run: impl FnMut() + 'static) {
    let run: Box<dyn FnMut()> = Box::new(run);
    Effect::new(run);
}
