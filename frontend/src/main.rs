//! Entry point: moves the key out of the address bar, then mounts the page.

// Only its tests run elsewhere, and they do not draw.
#![cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "checked for wasm32, where all of it is used")
)]

mod app;
mod chart;
mod describe;
mod domain;
mod fleet;
mod net;
mod platform;
mod state;
mod table;
mod view;

#[cfg(target_arch = "wasm32")]
fn main() {
    let by_printed_link = net::key::take_from_address();
    leptos::mount::mount_to_body(move || app::App(app::AppProps { by_printed_link }));
}

/// Compiling the views for other targets would take longer than compiling the page.
#[cfg(not(target_arch = "wasm32"))]
fn main() {
    eprintln!("this is a page: it runs in a browser, to which the relay serves it");
}
