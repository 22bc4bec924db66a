//! Four tiles say how a scope fares: busy, full, hot on power, and what its hosts do.

use super::chart::Area;
use super::scope::Scope;
use crate::chart::Series;
use crate::lazy::{Memo, memo, words};
use crate::markup::view;
use crate::page::Page;
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;

/// The tiles of a scope.
#[component]
pub fn Tiles(scope: Scope) -> impl IntoView {
    let page = Page::here();
    let totals = memo({
        let (scope, page) = (scope.clone(), page.clone());
        move || scope.totals(&page)
    });
    let hosts = memo({
        let (scope, page) = (scope.clone(), page.clone());
        move || scope.hosts(&page)
    });
    let past = |field: GpuField| memo(scope.past(&page, field));
    let (util, mem, power) = (past(GpuField::Util), past(GpuField::MemUsed), past(GpuField::Power));
    let host = memo(scope.host_past(&page));
    let title = move || match totals.get().gpus {
        0 | 1 => "Utilisation".to_owned(),
        _ => format!("Utilisation, mean of {}", totals.get().counted()),
    };
    let util_now = move || totals.get().util_pct().map(|pct| (pct.to_string(), "%".to_owned()));
    let mem_now = move || totals.get().mem.used.map(|used| text::memory_of(used, totals.get().mem.whole));
    let power_now =
        move || totals.get().power.used.map(|used| text::power_of(used, totals.get().power.whole));
    let host_now = move || {
        let ram = hosts.get().mem;
        let ram =
            ram.used.map(|used| text::memory_of(used, ram.whole)).map(|(used, of)| format!("· {used} {of}"));
        hosts.get().cpu_pct().map(|pct| (format!("{pct} %"), ram.unwrap_or_default()))
    };
    view! {
        <section class="tiles" aria-label="Sums">
            <Tile title=Signal::derive(title) now=Signal::derive(util_now) series=util hue="hue-util"/>
            <Tile title="GPU memory" now=Signal::derive(mem_now) series=mem hue="hue-mem"/>
            <Tile title="Power" now=Signal::derive(power_now) series=power hue="hue-power"/>
            <Tile title="Host CPU · RAM" now=Signal::derive(host_now) series=host hue="hue-host"/>
        </section>
    }
}

/// One sum: its value, what follows it in small, and its past.
#[component]
fn Tile(
    #[prop(into)] title: Signal<String>,
    now: Signal<Option<(String, String)>>,
    series: Memo<Series>,
    hue: &'static str,
) -> impl IntoView {
    let value = move || now.get().map(|(value, _)| value);
    view! {
        <div class="tile">
            <div class="tile__title">{words(move || title.get())}</div>
            <div class="tile__value">
                {words(move || text::or_absent(value()))} " " <small>{words(move || now.get().map(|(_, rest)| rest))}</small>
            </div>
            <Area series hue/>
        </div>
    }
}
