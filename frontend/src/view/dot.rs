//! A state is a shape with a word, never a colour alone.

use crate::health::Health;
use crate::lazy::lazy;
use leptos::prelude::*;

/// The shape of a state; its word is its title and what a screen reader says.
#[component]
pub fn Dot(
    /// The state.
    #[prop(into)]
    health: Signal<Health>,
) -> impl IntoView {
    view! {
        <i
            class=lazy(move || health.with(|health| health.shape.class()))
            role="img"
            aria-label=lazy(move || health.with(|health| health.word.clone()))
            title=lazy(move || health.with(|health| health.word.clone()))
        ></i>
    }
}
