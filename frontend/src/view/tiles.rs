//! Four tiles say how a scope fares: busy, full, hot on power, and what its hosts do.

use super::chart::Area;
use super::scope::Scope;
use crate::page::Page;
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::share::Scope as ShareScope;

/// The tiles of a scope.
#[component]
pub fn Tiles(scope: Scope) -> impl IntoView {
    let page = Page::here();
    let totals = Memo::new({
        let (scope, page) = (scope.clone(), page.clone());
        move |_| scope.totals(&page)
    });
    let hosts = Memo::new({
        let (scope, page) = (scope.clone(), page.clone());
        move |_| scope.hosts(&page)
    });
    let past = |field: Option<GpuField>, hue: &'static str| past(&scope, field, hue);
    let title = move || totals.get().util_title();
    let util_now = move || totals.get().util_pct().map(|pct| (pct.to_string(), "%".to_owned()));
    let mem_now = move || totals.get().mem.used.map(|used| text::memory_of(used, totals.get().mem.whole));
    let power_now =
        move || totals.get().power.used.map(|used| text::power_of(used, totals.get().power.whole));
    let host_now = move || {
        let of_job = page.share().is_some_and(|terms| matches!(terms.scope, ShareScope::Jobs(_)));
        let ram = hosts.get().mem;
        let ram =
            ram.used.map(|used| text::memory_of(used, ram.whole)).map(|(used, of)| format!("· {used} {of}"));
        let host =
            hosts.get().cpu_pct().map(|pct| (pct.to_string(), format!("% {}", ram.unwrap_or_default())));
        // A guest of a job receives no host readings if other jobs use the host, too.
        host.or_else(|| of_job.then(|| ("–".to_owned(), "not shared: other jobs use it, too".to_owned())))
    };
    view! {
        <section class="tiles" aria-label="Sums">
            <Tile title=Signal::derive(title) now=Signal::derive(util_now) past=past(Some(GpuField::Util), "hue-util")/>
            <Tile title="GPU memory" now=Signal::derive(mem_now) past=past(Some(GpuField::MemUsed), "hue-mem")/>
            <Tile title="Power" now=Signal::derive(power_now) past=past(Some(GpuField::Power), "hue-power")/>
            <Tile title="Host CPU · RAM" now=Signal::derive(host_now) past=past(None, "hue-host")/>
        </section>
    }
}

/// One sum: its value, what follows it in small, and its past.
#[component]
fn Tile(
    #[prop(into)] title: Signal<String>,
    now: Signal<Option<(String, String)>>,
    past: AnyView,
) -> impl IntoView {
    let value = move || now.get().map(|(value, _)| value);
    view! {
        <div class="tile">
            <div class="tile__title">{move || title.get()}</div>
            <div class="tile__value">
                {move || text::or_absent(value())} " " <small>{move || now.get().map(|(_, rest)| rest)}</small>
            </div>
            {past}
        </div>
    }
}

/// What a tile was in the last ten minutes: a field of the scope's GPUs, or how busy its hosts were.
fn past(scope: &Scope, field: Option<GpuField>, hue: &'static str) -> AnyView {
    let page = Page::here();
    let series = match field {
        Some(field) => scope.past(&page, field),
        None => scope.host_past(&page),
    };
    view! { <Area series hue/> }.into_any()
}
