//! The page is mounted into the document's body, after the key has left the address bar.

mod address;
mod app;
mod browser;
mod bundles;
mod chart;
mod feed;
mod finder;
mod flags;
mod fleet;
mod health;
mod intent;
mod keyboard;
mod keys;
mod kiosk;
mod log_words;
mod metric;
mod notices;
mod page;
mod place;
mod query;
mod roster;
mod scheme;
mod settings;
mod tab;
mod table;
mod tell;
mod text;
mod throttle;
mod time;
mod totals;
mod view;
mod watch;

fn main() {
    let by_printed_link = feed::key::take_from_address();
    leptos::mount::mount_to_body(move || app::App(app::AppProps { by_printed_link }));
}
