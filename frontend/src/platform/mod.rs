//! Wrappers around browser APIs: storage, time, events, frames. Nothing here decides anything.

mod effect;
mod frame_queue;
mod observer;

pub use effect::effect;
pub use frame_queue::FrameQueue;
pub use observer::{Observer, Visibility};

use leptos::prelude::{document, window};
use std::cell::RefCell;
use std::collections::BTreeMap;
use wasm_bindgen::prelude::*;
use web_sys::{
    EventTarget, HtmlMetaElement, Notification, NotificationOptions, NotificationPermission, Storage,
};

/// Unregisters the service workers of this page's origin and returns their number. The page has none of its
/// own: one was left by a program that used the relay's port before, and would answer in the relay's place.
pub async fn remove_service_workers() -> u32 {
    let property = |of: &JsValue, name: &str| js_sys::Reflect::get(of, &name.into()).unwrap_or_default();
    let workers = property(&window().navigator(), "serviceWorker");
    let own = format!("{}{}/", window().location().origin().unwrap_or_default(), base());
    let mut removed = 0;
    let found = settled(&call_if_there(&workers, "getRegistrations")).await;
    for worker in js_sys::Array::from(&found).iter() {
        // Workers of other programs below other paths of this origin are theirs.
        if property(&worker, "scope").as_string().is_some_and(|scope| scope.starts_with(&own)) {
            let gone = settled(&call_if_there(&worker, "unregister")).await;
            removed += u32::from(gone.is_truthy());
        }
    }
    removed
}

/// Calls a method that a browser may lack.
fn call_if_there(target: &JsValue, method: &str) -> JsValue {
    match target.is_object() {
        true => call(target, method, &js_sys::Array::new()),
        false => JsValue::UNDEFINED,
    }
}

/// Awaits a promise; returns an empty list if it is none or fails.
async fn settled(promise: &JsValue) -> JsValue {
    match promise.dyn_ref::<js_sys::Promise>() {
        Some(promise) => wasm_bindgen_futures::JsFuture::from(promise.clone()).await.ok(),
        None => None,
    }
    .unwrap_or_else(|| js_sys::Array::new().into())
}

/// Milliseconds since the page was opened, on a monotonic clock.
pub fn now_ms() -> f64 {
    window().performance().map_or(0.0, |performance| performance.now())
}

/// A random number from 0 to 1.
pub fn random() -> f64 {
    js_sys::Math::random()
}

/// Returns whether the page is hidden.
pub fn is_hidden() -> bool {
    document().hidden()
}

/// `host:port` as the address bar shows it.
pub fn authority() -> String {
    window().location().host().unwrap_or_default()
}

/// The beginning of every address of the page, without a path: `http://127.0.0.1:18080`.
pub fn origin() -> String {
    window().location().origin().unwrap_or_default()
}

/// The port in the address bar; empty for the standard one.
pub fn port() -> String {
    window().location().port().unwrap_or_default()
}

/// Returns whether the page came over TLS.
pub fn is_secure() -> bool {
    window().location().protocol().is_ok_and(|protocol| protocol == "https:")
}

/// Returns the content of a `<meta>` tag unless it is missing or empty.
pub fn meta(name: &str) -> Option<String> {
    let tag = document().query_selector(&format!("meta[name='{name}']")).ok()??;
    let content = tag.dyn_into::<HtmlMetaElement>().ok()?.content();
    (!content.is_empty()).then_some(content)
}

/// Returns whether the relay identifies who connects without a key: that of a site, or behind a proxy of the owner.
pub fn is_keyless() -> bool {
    meta("nodeglass-keyless").is_some()
}

/// Returns whether the relay serves the documents.
pub fn has_help() -> bool {
    meta("nodeglass-help").is_some()
}

/// Returns the path that the relay is served under, without a trailing slash; empty at the root.
pub fn base() -> String {
    let base = meta("nodeglass-base").unwrap_or_default();
    if path().starts_with(&base) { base.trim_end_matches('/').to_owned() } else { String::new() }
}

/// The part of the address after `#`.
pub fn fragment() -> String {
    window().location().hash().unwrap_or_default().trim_start_matches('#').to_owned()
}

/// Makes the browser drop its HTTP cache of this origin. A program that used the relay's port before may have
/// left pages there, which the browser would show without a request to the relay.
pub async fn clear_cache() {
    let options = web_sys::RequestInit::new();
    // Bypasses the cache itself.
    options.set_cache(web_sys::RequestCache::NoStore);
    let promise = window().fetch_with_str_and_init(&format!("{}/clear-cache", base()), &options);
    let _ = wasm_bindgen_futures::JsFuture::from(promise).await;
}

/// The part of the address from `?` on, before `#`.
pub fn search() -> String {
    window().location().search().unwrap_or_default()
}

/// The path in the address bar.
pub fn path() -> String {
    window().location().pathname().unwrap_or_default()
}

/// Sets another address and adds a history entry.
pub fn push_address(address: &str) {
    if let Ok(history) = window().history() {
        let _ = history.push_state_with_url(&JsValue::NULL, "", Some(address));
    }
}

/// Sets another address in place of the current history entry.
pub fn replace_address(address: &str) {
    if let Ok(history) = window().history() {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(address));
    }
}

/// Returns whether a key was pressed in a control that handles keys itself.
pub fn is_control(event: &web_sys::KeyboardEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|target| {
        matches!(target.tag_name().as_str(), "INPUT" | "TEXTAREA" | "SELECT" | "BUTTON" | "A")
    })
}

/// Returns the topmost sheet, if one is open.
pub fn top_sheet() -> Option<web_sys::Element> {
    // Sheets are siblings; a later one lies above.
    document().query_selector("dialog[open]:not(:has(~ dialog[open]))").ok()?
}

/// Offers a file for download.
pub fn save(name: &str, kind: &str, text: &str) {
    let _ = try_save(name, kind, text);
}

fn try_save(name: &str, kind: &str, text: &str) -> Result<(), JsValue> {
    let options = web_sys::BlobPropertyBag::new();
    options.set_type(kind);
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    let blob = web_sys::Blob::new_with_str_sequence_and_options(&parts, &options)?;
    let url = web_sys::Url::create_object_url_with_blob(&blob)?;
    let link = document().create_element("a")?;
    link.set_attribute("href", &url)?;
    link.set_attribute("download", name)?;
    link.unchecked_into::<web_sys::HtmlElement>().click();
    web_sys::Url::revoke_object_url(&url)
}

/// Reloads the page.
pub fn reload() {
    let _ = window().location().reload();
}

/// Storage of this tab.
pub fn session() -> Option<Storage> {
    window().session_storage().ok()?
}

/// Storage of this browser.
pub fn local() -> Option<Storage> {
    window().local_storage().ok()?
}

/// Reads a stored text.
pub fn load_item(storage: Option<Storage>, name: &str) -> Option<String> {
    storage?.get_item(name).ok()?
}

/// Stores a text, unless the browser refuses.
pub fn store_item(storage: Option<Storage>, name: &str, value: &str) {
    if let Some(storage) = storage {
        let _ = storage.set_item(name, value);
    }
}

/// Removes a stored text.
pub fn remove_item(storage: Option<Storage>, name: &str) {
    if let Some(storage) = storage {
        let _ = storage.remove_item(name);
    }
}

/// Copies a text to the clipboard. Returns whether it succeeds: not without permission, or on a page that is not secure.
pub fn copy(text: &str) -> impl Future<Output = bool> + 'static {
    let navigator: JsValue = window().navigator().into();
    // It is missing on a page that is not secure.
    let clipboard = js_sys::Reflect::get(&navigator, &"clipboard".into()).unwrap_or_default();
    let is_there = clipboard.is_object();
    let written = is_there.then(|| clipboard.unchecked_ref::<web_sys::Clipboard>().write_text(text));
    async move {
        match written {
            Some(written) => wasm_bindgen_futures::JsFuture::from(written).await.is_ok(),
            None => false,
        }
    }
}

/// Sets an attribute of the document's root element, which the style sheets use.
pub fn set_root_attribute(name: &str, value: Option<&str>) {
    clear_token_cache();
    let Some(root) = document().document_element() else { return };
    let _ = match value {
        Some(value) => root.set_attribute(name, value),
        None => root.remove_attribute(name),
    };
}

/// Scrolls an element's ancestors until the element is visible, and no further.
pub fn scroll_into_view(element: &web_sys::Element) {
    let options = web_sys::ScrollIntoViewOptions::new();
    options.set_block(web_sys::ScrollLogicalPosition::Nearest);
    options.set_inline(web_sys::ScrollLogicalPosition::Nearest);
    element.scroll_into_view_with_scroll_into_view_options(&options);
}

/// Scrolls an element's ancestors until it begins at their top.
pub fn scroll_to_top_of(element: &web_sys::Element) {
    element.scroll_into_view();
}

/// Scrolls to the element with an id, if it exists.
pub fn scroll_to_id(id: &str) {
    if let Some(element) = document().get_element_by_id(id) {
        scroll_into_view(&element);
    }
}

/// Sets the title of the tab.
pub fn set_title(title: &str) {
    if document().title() != title {
        document().set_title(title);
    }
}

/// Sets the icon of the tab.
pub fn set_icon(address: &str) {
    let Ok(Some(link)) = document().query_selector("link[rel~=icon]") else { return };
    if link.get_attribute("href").as_deref() != Some(address) {
        let _ = link.set_attribute("href", address);
    }
}

/// Permission to show notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Granted.
    Granted,
    /// Not decided: a request prompts the user.
    Ask,
    /// Denied by the user, or not available on an insecure origin.
    Denied,
}

/// Returns whether notifications may be shown.
pub fn notification_permission() -> Permission {
    if !js_sys::Reflect::has(&window(), &"Notification".into()).unwrap_or(false) {
        return Permission::Denied;
    }
    match Notification::permission() {
        NotificationPermission::Granted => Permission::Granted,
        NotificationPermission::Default => Permission::Ask,
        _ => Permission::Denied,
    }
}

/// Requests permission from the user; only allowed in response to a click.
pub async fn request_notification_permission() -> Permission {
    if notification_permission() == Permission::Ask
        && let Ok(asked) = Notification::request_permission()
    {
        let _ = wasm_bindgen_futures::JsFuture::from(asked).await;
    }
    notification_permission()
}

/// Shows a notification; it replaces an earlier one with the same tag.
pub fn notify(title: &str, body: &str, tag: &str) -> Option<Notification> {
    let options = NotificationOptions::new();
    options.set_body(body);
    options.set_tag(tag);
    Notification::new_with_options(title, &options).ok()
}

/// Focuses this window.
pub fn focus_window() {
    let _ = window().focus();
}

thread_local! {
    /// Cached style tokens, until the colours change: reading one makes the browser compute all styles.
    static TOKENS: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns the value of a style token such as `--util-3`.
pub fn token(name: &str) -> String {
    if let Some(known) = TOKENS.with_borrow(|tokens| tokens.get(name).cloned()) {
        return known;
    }
    let style = document().document_element().and_then(|root| window().get_computed_style(&root).ok()?);
    let value = style.and_then(|style| style.get_property_value(name).ok()).unwrap_or_default();
    let value = value.trim().to_owned();
    TOKENS.with_borrow_mut(|tokens| tokens.insert(name.to_owned(), value.clone()));
    value
}

/// Returns the value of a style token that depends on the size or kind of the screen; not cached.
pub fn media_token(name: &str) -> String {
    TOKENS.with_borrow_mut(|tokens| tokens.remove(name));
    token(name)
}

/// Drops the cached tokens because the colours changed.
pub fn clear_token_cache() {
    TOKENS.with_borrow_mut(BTreeMap::clear);
}

/// Calls `run` when the system changes between light and dark.
pub fn on_system_theme(run: impl FnMut(web_sys::Event) + 'static) -> Option<Listener> {
    let query = js_sys::Array::of1(&"(prefers-color-scheme: light)".into());
    let list = call(&window(), "matchMedia", &query);
    Some(Listener::new(list.dyn_into::<EventTarget>().ok()?, "change", run))
}

/// Returns how far local time is ahead of UTC now, in minutes.
pub fn utc_offset_min() -> i32 {
    // JavaScript counts from local time to UTC.
    -(js_sys::Date::new_0().get_timezone_offset() as i32)
}

/// Formats an offset from UTC in minutes: `UTC+5:30`.
pub fn utc_text(offset_min: i32) -> String {
    let sign = if offset_min < 0 { "−" } else { "+" };
    match (offset_min.unsigned_abs() / 60, offset_min.unsigned_abs() % 60) {
        (0, 0) => "UTC".to_owned(),
        (hours, 0) => format!("UTC{sign}{hours}"),
        (hours, minutes) => format!("UTC{sign}{hours}:{minutes:02}"),
    }
}

/// Formats a time in local time, with the date unless it is today: `09:14`, `21 Nov 09:14`.
pub fn format_time_or_date(unix_s: i64) -> String {
    let at = js_sys::Date::new(&JsValue::from_f64(unix_s as f64 * 1_000.0));
    let today = js_sys::Date::new_0();
    let day = |at: &js_sys::Date| (at.get_date(), at.get_month(), at.get_full_year());
    if day(&at) == day(&today) { format_time(unix_s) } else { format_date_time(unix_s) }
}

/// Formats a day in local time: `22 Nov`.
pub fn format_date(unix_s: i64) -> String {
    let at = format_date_time(unix_s);
    at.rsplit_once(' ').map_or_else(String::new, |(date, _)| date.to_owned())
}

/// Opens the browser's print dialogue.
pub fn print() {
    let _ = window().print();
}

/// Formats a time in local time with seconds: `09:14:03`.
pub fn format_time_s(unix_s: i64) -> String {
    let at = js_sys::Date::new(&JsValue::from_f64(unix_s as f64 * 1_000.0));
    format!("{:02}:{:02}:{:02}", at.get_hours(), at.get_minutes(), at.get_seconds())
}

/// Formats Unix time as `09:14` in the browser's time zone.
pub fn format_time(unix_s: i64) -> String {
    format_time_s(unix_s).chars().take(5).collect()
}

/// Formats Unix time as `22 Nov 09:14` in the browser's time zone.
pub fn format_date_time(unix_s: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let at = js_sys::Date::new(&JsValue::from_f64(unix_s as f64 * 1_000.0));
    let month = MONTHS.get(at.get_month() as usize).copied().unwrap_or_default();
    format!("{} {month} {}", at.get_date(), format_time(unix_s))
}

/// Formats Unix time in local time, as [`parse_local_datetime`] reads it: `2026-11-25 09:14:03`.
pub fn local_datetime(unix_s: i64) -> String {
    let at = js_sys::Date::new(&JsValue::from_f64(unix_s as f64 * 1_000.0));
    let (year, month, day) = (at.get_full_year(), at.get_month() + 1, at.get_date());
    format!("{year:04}-{month:02}-{day:02} {}", format_time_s(unix_s))
}

/// Formats a time in local time with its zone, for what is read elsewhere and later: `2026-11-25 09:14:03 UTC+1`.
pub fn zoned_datetime(unix_s: i64) -> String {
    format!("{} {}", local_datetime(unix_s), utc_text(utc_offset_min()))
}

/// Parses a date and a time of day in local time to Unix time; seconds may be omitted.
pub fn parse_local_datetime(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once([' ', 'T'])?;
    let ms = js_sys::Date::new(&JsValue::from_str(&format!("{date}T{}", time.trim()))).get_time();
    ms.is_finite().then(|| (ms / 1_000.0) as i64)
}

thread_local! {
    /// Widths of texts by font and text, until there are [`MAX_WIDTHS`].
    static WIDTHS: RefCell<BTreeMap<(String, String), f64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Number of text widths that are remembered.
const MAX_WIDTHS: usize = 500;

/// Returns the width of a text in CSS pixels, for a font such as `500 11px` of the page's family. It is measured
/// without a layout.
pub fn text_width_px(text: &str, font: &str) -> f64 {
    let key = (font.to_owned(), text.to_owned());
    if let Some(known) = WIDTHS.with_borrow(|widths| widths.get(&key).copied()) {
        return known;
    }
    let measured = || {
        let canvas =
            document().create_element("canvas").ok()?.dyn_into::<web_sys::HtmlCanvasElement>().ok()?;
        let context = canvas.get_context("2d").ok()??.dyn_into::<web_sys::CanvasRenderingContext2d>().ok()?;
        context.set_font(&format!("{font} {}", token("--sans")));
        let measure = call(&context, "measureText", &js_sys::Array::of1(&text.into()));
        js_sys::Reflect::get(&measure, &"width".into()).ok()?.as_f64()
    };
    // Without a canvas, as wide as its characters at most.
    let width_px = measured().unwrap_or_else(|| 11.0 * text.chars().count() as f64);
    WIDTHS.with_borrow_mut(|widths| {
        if widths.len() >= MAX_WIDTHS {
            widths.clear();
        }
        widths.insert(key, width_px);
    });
    width_px
}

/// Returns an element's rectangle in the viewport: left, top, width, height in CSS pixels.
pub fn bounding_rect(element: &web_sys::Element) -> [f64; 4] {
    let rect = call(element, "getBoundingClientRect", &js_sys::Array::new());
    let side = |name: &str| js_sys::Reflect::get(&rect, &name.into()).ok().and_then(|side| side.as_f64());
    ["left", "top", "width", "height"].map(|name| side(name).unwrap_or_default())
}

/// Returns an element's descendants that match a CSS selector, in document order.
pub fn query_all(element: &web_sys::Element, css: &str) -> Vec<web_sys::Element> {
    let list = call(element, "querySelectorAll", &js_sys::Array::of1(&css.into()));
    js_sys::Array::from(&list).iter().filter_map(|one| one.dyn_into().ok()).collect()
}

/// Calls a method by name: `DomRect` and `NodeList` as types of their own would add to the wasm's size.
fn call(target: &JsValue, method: &str, operands: &js_sys::Array) -> JsValue {
    let function = js_sys::Reflect::get(target, &method.into()).ok();
    let function = function.and_then(|function| function.dyn_into::<js_sys::Function>().ok());
    function.and_then(|function| function.apply(target, operands).ok()).unwrap_or_default()
}

/// Device pixels per CSS pixel.
pub fn device_pixel_ratio() -> f64 {
    window().device_pixel_ratio().clamp(1.0, 3.0)
}

/// Width of the viewport in CSS pixels.
pub fn width() -> f64 {
    window().inner_width().ok().and_then(|width| width.as_f64()).unwrap_or(1_280.0)
}

/// Height of the viewport in CSS pixels.
pub fn height() -> f64 {
    window().inner_height().ok().and_then(|height| height.as_f64()).unwrap_or(800.0)
}

/// Calls `run` before the next frame is drawn; a hidden page draws none.
pub fn on_next_frame(run: impl FnOnce() + 'static) {
    let closure = Closure::once_into_js(run);
    let _ = window().request_animation_frame(closure.unchecked_ref());
}

/// An event listener that is removed when the guard is dropped.
pub struct Listener {
    target: EventTarget,
    event: &'static str,
    closure: Closure<dyn FnMut(web_sys::Event)>,
}

impl Listener {
    /// Calls `run` for every `event` of `target`.
    pub fn new(
        target: impl Into<EventTarget>,
        event: &'static str,
        run: impl FnMut(web_sys::Event) + 'static,
    ) -> Self {
        let (target, closure) = (target.into(), Closure::<dyn FnMut(_)>::new(run));
        let _ = target.add_event_listener_with_callback(event, closure.as_ref().unchecked_ref());
        Self { target, event, closure }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let function = self.closure.as_ref().unchecked_ref();
        let _ = self.target.remove_event_listener_with_callback(self.event, function);
    }
}
