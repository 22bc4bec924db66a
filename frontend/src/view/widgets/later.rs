//! Parts of a page that are created after its first frame.

use crate::state::page::Page;
use leptos::prelude::*;

/// Creates its children in a frame of their own. The page that a click opens shows its first screen at once,
/// and what lies below follows, one part per frame.
#[component]
pub fn Later(
    /// The part.
    children: ChildrenFn,
) -> impl IntoView {
    let is_due = RwSignal::new(false);
    // The view may be gone by then.
    Page::from_context().frames.push(move || _ = is_due.try_set(true));
    move || is_due.get().then(|| children())
}
