//! The symbol of a health state: a shape with a label, never a colour alone.

use crate::domain::health::Health;
use crate::view::severity_class::SeverityClass;
use leptos::prelude::*;

/// The symbol of a health state; its label is the tooltip and the alternative text.
#[component]
pub fn Dot(
    /// The health state.
    #[prop(into)]
    health: Signal<Health>,
) -> impl IntoView {
    move || health.with(dot)
}

/// The symbol of a health state that does not change.
pub fn dot(health: &Health) -> AnyView {
    let Health { severity, label } = health;
    view! { <i class=severity.class() role="img" aria-label=label.clone() title=label.clone()></i> }
        .into_any()
}
