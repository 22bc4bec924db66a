//! Tools of an unfolded finding: copying it as a message, and submitting its job again without its nodes.

use crate::describe::commands::resubmission_without;
use crate::describe::finding::when;
use crate::describe::finding_message::{blamed_nodes, message};
use crate::domain::attention::{Entry, Item};
use crate::platform;
use crate::state::attention;
use crate::state::page::Page;
use crate::view::widgets::copy::{commands, copy_button_of};
use leptos::prelude::*;
use nodeglass_protocol::job::Job;

/// The tools of an item; nothing once it is gone.
#[component]
pub fn FindingTools(
    /// The item.
    entry: Memo<Option<Entry>>,
) -> impl IntoView {
    let page = Page::from_context();
    let is_any = Memo::new(move |_| entry.with(Option::is_some));
    let resubmission = {
        let page = page.clone();
        Memo::new(move |_| {
            let item = entry.with(|entry| entry.as_ref().map(|entry| entry.item.clone()))?;
            let job = only_job(&page, &item).filter(|_| page.is_owner())?;
            resubmission_without(&job, blamed_nodes(&item))
        })
    };
    let text = move || {
        let item = entry.with_untracked(|entry| entry.as_ref().map(|entry| entry.item.clone()));
        item.map(|item| untrack(|| text_of(&page, &item))).unwrap_or_default()
    };
    let copy = move || {
        let text = text.clone();
        is_any.get().then(|| copy_button_of(text, "Copy as message", "✓ Copied"))
    };
    view! {
        <div class="finding-tools">
            {copy}
            {move || resubmission.get().map(|command| commands(vec![command]))}
        </div>
    }
}

/// The job of an item that concerns no other.
fn only_job(page: &Page, item: &Item) -> Option<Job> {
    match item.jobs.as_slice() {
        [id] => page.job(*id),
        _ => None,
    }
}

fn text_of(page: &Page, item: &Item) -> String {
    let now_ms = page.wall_ms();
    let link = format!("{}{}", platform::origin(), attention::href(item, now_ms, |route| page.href(route)));
    let day = platform::format_date((item.since.at_ms / 1_000).cast_signed());
    let zone = platform::utc_text(platform::utc_offset_min());
    let when = format!("{day}, {} ({zone})", when(item));
    message(item, only_job(page, item).as_ref(), &when, item.cost_text(now_ms).as_deref(), &link)
}
