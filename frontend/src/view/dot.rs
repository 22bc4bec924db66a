//! A state is a shape with a word, never a colour alone.

use crate::health::Health;
use crate::lazy::part;
use crate::markup::{Patch, View, view};
use leptos::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The shape of a state; its word is its title and what a screen reader says.
#[component]
pub fn Dot(
    /// The state.
    #[prop(into)]
    health: Signal<Health>,
) -> impl IntoView {
    // One part for the three of them: a state is looked at with every sample of its node, and there are many nodes.
    part(move || dot(&health.get()))
}

fn dot(health: &Health) -> View {
    let Health { shape, word } = health;
    view! { <i class=shape.class() role="img" aria-label=word.clone() title=word.clone()></i> }
}

/// The shape of a node's state in a list, written by the list when it is another one. Clones are the same.
#[derive(Clone)]
pub struct NodeDot {
    patch: Patch,
    last: Rc<RefCell<Arc<Health>>>,
}

impl NodeDot {
    /// As the node is now; wakes nobody.
    pub fn new(health: Arc<Health>) -> Self {
        Self { patch: Patch::new(dot(&health)), last: Rc::new(RefCell::new(health)) }
    }

    /// What stands in the document.
    pub fn view(&self) -> AnyView {
        self.patch.clone().into_any()
    }

    /// Writes it, if it is another one.
    pub fn write(&self, health: Arc<Health>) {
        if *self.last.borrow() != health {
            self.patch.renew(dot(&health));
            *self.last.borrow_mut() = health;
        }
    }
}
