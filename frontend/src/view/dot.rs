//! A state is a shape with a word, never a colour alone.

use crate::health::Health;
use crate::lazy::part;
use crate::markup::view;
use leptos::prelude::*;

/// The shape of a state; its word is its title and what a screen reader says.
#[component]
pub fn Dot(
    /// The state.
    #[prop(into)]
    health: Signal<Health>,
) -> impl IntoView {
    // One part for the three of them: a state is looked at with every sample of its node, and there are many nodes.
    part(move || {
        let Health { shape, word } = health.get();
        view! { <i class=shape.class() role="img" aria-label=word.clone() title=word></i> }
    })
}
