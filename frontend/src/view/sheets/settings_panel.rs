//! The settings: theme, colours and their bounds, notifications.

use crate::domain::colour_scheme::ColourScheme;
use crate::platform::{self, Permission};
use crate::state::page::Page;
use crate::state::settings::{Settings, Theme};
use crate::view::widgets::sheet::Sheet;
use leptos::prelude::*;
use std::sync::Arc;
use wasm_bindgen::JsCast;
use web_sys::HtmlInputElement;

/// The settings, while they are open.
#[component]
pub fn SettingsPanel() -> impl IntoView {
    let open = Page::from_context().settings_open;
    move || {
        open.get().then(|| {
            view! {
                <Sheet class="ask settings" label="Settings" close=Arc::new(move || open.set(false))>
                    <h2>"Settings (this browser)"</h2>
                    <Themes/>
                    <Colours/>
                    <Notifications/>
                </Sheet>
            }
            .into_any()
        })
    }
}

/// One of several choices.
fn choice(
    group: &'static str,
    title: String,
    chosen: impl Fn() -> bool + Send + 'static,
    choose: impl Fn() + 'static,
) -> AnyView {
    view! {
        <label class="choice">
            <input type="radio" name=group prop:checked=chosen on:change=move |_| choose()/>
            {title}
        </label>
    }
    .into_any()
}

#[component]
fn Themes() -> impl IntoView {
    let settings = Page::from_context().settings;
    let theme = |theme: Theme| {
        let title = theme.title().to_owned();
        choice("theme", title, move || settings.theme() == theme, move || settings.set_theme(theme))
    };
    view! { <fieldset><legend>"Theme " <kbd>"t"</kbd></legend> {Theme::ALL.map(theme).into_iter().collect_view()}</fieldset> }
}

#[component]
fn Colours() -> impl IntoView {
    let settings = Page::from_context().settings;
    let scheme = |scheme: ColourScheme| {
        choice(
            "scheme",
            scheme.title(),
            move || settings.scheme() == scheme,
            move || settings.set_scheme(scheme),
        )
    };
    let bounds = move || thresholds(settings.scheme());
    let custom = choice(
        "scheme",
        "Custom thresholds".to_owned(),
        move || matches!(settings.scheme(), ColourScheme::Custom(..)),
        move || {
            let (light, heavy) = untrack(bounds);
            settings.set_scheme(ColourScheme::custom(light, heavy));
        },
    );
    view! {
        <fieldset>
            <legend>"Utilisation colours " <kbd>"c"</kbd></legend>
            {ColourScheme::NAMED.map(scheme).into_iter().collect_view()}
            {custom}
            <div class="settings__bounds">{threshold(settings, "yellow from", true)} {threshold(settings, "red from", false)}</div>
            <p class="settings__why">"Single colour: busy is good, and yellow and red are kept for problems. "
                "The others use the colours of the tools that they are named after."</p>
        </fieldset>
    }
}

/// Returns the utilisations from which on the colours are yellow and red, in %.
fn thresholds(scheme: ColourScheme) -> (u8, u8) {
    match scheme {
        ColourScheme::Custom(light, heavy) => (light, heavy),
        _ => (30, 80),
    }
}

/// The input for one of the thresholds, which chooses custom ones.
fn threshold(settings: Settings, label: &'static str, first: bool) -> AnyView {
    let set = move |event: web_sys::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok());
        let Some(value) = input.and_then(|input| input.value().parse::<u8>().ok()) else { return };
        let (light, heavy) = untrack(|| thresholds(settings.scheme()));
        settings.set_scheme(match first {
            true => ColourScheme::custom(value, heavy),
            false => ColourScheme::custom(light, value),
        });
    };
    let value = move || {
        let (light, heavy) = thresholds(settings.scheme());
        if first { light } else { heavy }
    };
    view! {
        <label>
            {label}
            <input class="field field--short" type="number" min="1" max="100" on:change=set
                prop:value=move || value().to_string()/> "%"
        </label>
    }
    .into_any()
}

#[component]
fn Notifications() -> impl IntoView {
    let settings = Page::from_context().settings;
    let allowed = RwSignal::new(platform::notification_permission());
    let change = move |event: web_sys::Event| {
        let input = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok());
        let wanted = input.is_some_and(|input| input.checked());
        settings.set_notify(wanted);
        if wanted {
            leptos::task::spawn_local(async move {
                allowed.set(platform::request_notification_permission().await)
            });
        }
    };
    let state = move || match (settings.notify(), allowed.get()) {
        (_, Permission::Denied) => {
            "This browser blocks notifications of this page. Allow them in the site settings beside the address; \
             they need https or localhost."
        }
        (true, Permission::Ask) => "The browser has not been given permission yet.",
        (true, Permission::Granted) => "On, while this tab is in the background.",
        (false, _) => "",
    };
    view! {
        <fieldset>
            <legend>"Notifications"</legend>
            <label class="choice">
                <input type="checkbox" prop:checked=move || settings.notify() on:change=change/>
                "when a job starts or ends, or something needs attention"
            </label>
            <p class="settings__why" role="status">{move || state()}</p>
        </fieldset>
    }
}
