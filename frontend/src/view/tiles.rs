//! Four tiles say how a scope fares: busy, full, hot on power, and what its hosts do.

use super::chart::Area;
use super::scope::Scope;
use crate::chart::Series;
use crate::page::Page;
use crate::text;
use crate::totals::Part;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;

/// The tiles of a scope.
#[component]
pub fn Tiles(scope: Scope) -> impl IntoView {
    let page = Page::here();
    let totals = Memo::new({
        let scope = scope.clone();
        move |_| scope.totals()
    });
    let hosts = Memo::new({
        let scope = scope.clone();
        move |_| scope.hosts()
    });
    let past = |field: GpuField| {
        let (scope, page) = (scope.clone(), page.clone());
        Memo::new(move |_| scope.past(&page, field))
    };
    let (util, mem, power) = (past(GpuField::Util), past(GpuField::MemUsed), past(GpuField::Power));
    let host = {
        let (scope, page) = (scope.clone(), page.clone());
        Memo::new(move |_| scope.host_past(&page))
    };
    let title = move || match totals.get().gpus {
        0 | 1 => "Utilisation".to_owned(),
        gpus => format!("Utilisation, mean of {}", text::grouped(gpus as u64)),
    };
    let watts =
        |part: Part| part.whole.map(|whole| format!("/ {} W", text::grouped(whole))).unwrap_or("W".into());
    let gib = |part: Part| {
        part.whole.map(|whole| format!("/ {} GiB", text::whole_gib(whole))).unwrap_or("GiB".into())
    };
    view! {
        <section class="tiles" aria-label="Sums">
            <Tile title=Signal::derive(title) series=util hue="hue-util"
                value=Signal::derive(move || totals.get().util_pct().map(|pct| pct.to_string()))
                unit=Signal::derive(|| "%".to_owned())/>
            <Tile title=Signal::derive(|| "GPU memory".to_owned()) series=mem hue="hue-mem"
                value=Signal::derive(move || totals.get().mem.used.map(text::gib))
                unit=Signal::derive(move || gib(totals.get().mem))/>
            <Tile title=Signal::derive(|| "Power".to_owned()) series=power hue="hue-power"
                value=Signal::derive(move || totals.get().power.used.map(text::grouped))
                unit=Signal::derive(move || watts(totals.get().power))/>
            <Tile title=Signal::derive(|| "Host CPU · RAM".to_owned()) series=host hue="hue-host"
                value=Signal::derive(move || hosts.get().cpu_pct().map(|pct| format!("{pct} %")))
                unit=Signal::derive(move || hosts.get().mem.used.map(|used| {
                    format!("· {} {}", text::whole_gib(used), gib(hosts.get().mem))
                }).unwrap_or_default())/>
        </section>
    }
}

#[component]
fn Tile(
    title: Signal<String>,
    value: Signal<Option<String>>,
    unit: Signal<String>,
    series: Memo<Series>,
    hue: &'static str,
) -> impl IntoView {
    view! {
        <div class="tile">
            <div class="tile__title">{move || title.get()}</div>
            <div class="tile__value">
                {move || text::or_absent(value.get())} " "
                <small>{move || value.get().is_some().then(|| unit.get())}</small>
            </div>
            <Area series hue/>
        </div>
    }
}
