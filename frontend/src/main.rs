//! Entry point: moves the key out of the address bar, then mounts the page.

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

fn main() {
    let by_printed_link = net::key::take_from_address();
    leptos::mount::mount_to_body(move || app::App(app::AppProps { by_printed_link }));
}
