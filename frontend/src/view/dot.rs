//! A state is a shape with a word, never a colour alone.

use crate::health::Health;
use leptos::prelude::*;

/// The shape of a state; its word is its title and what a screen reader says.
#[component]
pub fn Dot(
    /// The state.
    #[prop(into)]
    health: Signal<Health>,
) -> impl IntoView {
    move || health.with(dot)
}

/// The shape of a state that does not change.
pub fn dot(health: &Health) -> AnyView {
    let Health { shape, word } = health;
    view! { <i class=shape.class() role="img" aria-label=word.clone() title=word.clone()></i> }.into_any()
}
