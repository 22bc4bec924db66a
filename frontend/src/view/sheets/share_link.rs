//! The link of a share, the tunnel, and a message with both.

use crate::describe::commands::ShellCommand;
use crate::describe::share::{message, scope_text};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::copy::{commands, copy_button};
use leptos::prelude::*;
use nodeglass_protocol::share::ShareLink;

/// The link, the tunnel, and a message with both, each to copy.
pub fn link_lines(page: &Page, link: &ShareLink) -> AnyView {
    let Some(url) = &link.link else {
        return view! {
            <p class="facts__note">
                "This link cannot be shown again, because the relay does not keep its key. Create a new link and revoke this one."
            </p>
        }
        .into_any();
    };
    let line = |purpose: &str, command: String| ShellCommand { purpose: purpose.to_owned(), command };
    let owner = untrack(|| page.fleet.welcome()).map_or(String::new(), |welcome| welcome.user.to_string());
    let until = platform::format_time_or_date((link.share.terms.expires_ms / 1_000).cast_signed());
    // Who receives the message may be in another zone.
    let until = format!("{until} {}", platform::utc_text(platform::utc_offset_min()));
    let what = untrack(|| page.jobs.with(|jobs| scope_text(&link.share.terms.scope, jobs)));
    let message = message(link, &what, url, &owner, &until);
    let lines = vec![line("Link", url.clone()), line("Tunnel (their machine)", link.tunnel.to_string())];
    view! {
        {commands(lines)}
        <div class="share__message">
            <pre class="command">{message.clone()}</pre>
            {copy_button(message)}
        </div>
    }
    .into_any()
}
