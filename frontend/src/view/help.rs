//! The help names every key, on top of the page and gone with the next one.

use crate::keys::HELP;
use crate::lazy::part;
use crate::page::Page;
use leptos::prelude::*;

/// The help, when it is asked for.
#[component]
pub fn Help() -> impl IntoView {
    let open = Page::here().help;
    let keys = || {
        HELP.map(|(keys, what)| {
            let keys = keys.iter().map(|key| view! { <kbd>{*key}</kbd> " " }).collect_view();
            view! { <dt>{keys}</dt> <dd>{what}</dd> }
        })
    };
    part(move || {
        open.get().then(|| {
            view! {
            <div class="veil" on:click=move |_| open.set(false)>
                <div class="help" role="dialog" aria-modal="true" aria-label="Keys" on:click=|event| event.stop_propagation()>
                    <h2>"Keys"</h2>
                    <dl>{keys}</dl>
                    <h2>"Shapes"</h2>
                    <dl class="help__shapes">
                        <dt><i class="dot dot--well"></i></dt> <dd>"live, all is well"</dd>
                        <dt><i class="dot dot--attention"></i></dt> <dd>"worth a look: late, or a flag"</dd>
                        <dt><i class="dot dot--bad"></i></dt> <dd>"silent, down, refused, or a card is lost"</dd>
                        <dt><i class="dot dot--waiting"></i></dt> <dd>"waiting"</dd>
                        <dt><i class="dot dot--ended"></i></dt> <dd>"ended; the last picture stays"</dd>
                    </dl>
                    <button class="btn" on:click=move |_| open.set(false)>"Close " <kbd>"Esc"</kbd></button>
                </div>
            </div>
            }
        })
    })
}
